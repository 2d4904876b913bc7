"""The commit loop: make a new version, or fail without leaving a trace.

A version is published by creating its manifest file, which the store lets exactly one writer do. Who loses reads what
was committed in between, judges whether its own work still holds, and builds on the newest version instead. When the
store leaves open whether the file was created, the transaction's uuid in the file that is there tells.

After publication, `lance_core.table.visibility` makes sure that the new version is part of the branch that others see.

On object stores, each request takes tens of milliseconds. There, the transaction file is written, the new files are
checked and the newest version is looked for at the same time; the manifest is published only after all three.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, cast

from lance_core.common.frozen import mutable, replace
from lance_core.errors import (
    CommitConflictError,
    CommitContentionError,
    CommitOutcomeUnknownError,
    DatasetAlreadyExistsError,
    DatasetNotFoundError,
    InvalidInputError,
    LanceError,
    NotFoundError,
    VersionNotFoundError,
)
from lance_core.format.table import feature_flags
from lance_core.format.table.manifest import Manifest, with_transaction
from lance_core.format.table.operations import (
    Operation,
    Overwrite,
    ReserveFragments,
    Restore,
    Rewrite,
    operation_name,
)
from lance_core.format.table.paths import DETACHED_BIT, ManifestNaming, deletion_file_path, transaction_path
from lance_core.format.table.transaction import Transaction, encode_transaction, encode_transaction_file
from lance_core.table.idempotency import find_commit, key_of
from lance_core.table.locations import objects_at_once, with_bases
from lance_core.table.mem_wal import check_keeps_log
from lance_core.table.publish import brought_fragments, check_files, create_manifest
from lance_core.table.read_ahead import each
from lance_core.table.rebase import rebase_deletions
from lance_core.table.refs import keeping
from lance_core.table.rules.apply import apply, common_file_version, empty_manifest, next_fragment_id, with_fragment_ids
from lance_core.table.rules.conflicts import Verdict, adds_rows, judge
from lance_core.table.runtime import COMMIT_TIMEOUT_VARIABLE, SYSTEM_RUNTIME, Runtime, commit_timeout_s
from lance_core.table.snapshot import (
    Snapshot,
    decode_version,
    find_newest,
    load_known_manifest,
    load_manifest,
    load_transaction,
    open_snapshot,
    read_transaction,
)
from lance_core.table.staged_dictionaries import staged_dictionaries
from lance_core.table.visibility import is_visible
from lance_core.telemetry import Span

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_core.store.base import Store
    from lance_core.table.rules.apply_dictionaries import StagedDictionaries
    from lance_core.table.snapshot import Versions

DEFAULT_DATA_STORAGE_VERSION = "2.2"

_LOGGER = logging.getLogger("lance_core.commit")

_BACK_OFF_MARGIN = 1.1
_FIRST_BACK_OFF_SLOTS = 2
_MAX_BACK_OFF_SLOTS = 32
_QUICK_RETRIES = 10
_MAX_QUICK_SLOTS = 256
_LEAST_SLOTS = 4
_MAX_BACK_OFF_S = 5.0
_MAX_CATCH_UPS = 20
_NEW_FILE_S = 3600.0
"""Files that are not older need no look: a clean-up takes none that is younger than a day, unless nobody writes."""

_VERSIONS_BEFORE_RELISTING = 1
"""Commits that are judged in about the time in which other writers make one."""


def commit(
    store: Store,
    transaction: Transaction,
    *,
    read: Snapshot | None = None,
    max_retries: int | None = None,
    timeout_s: float | None = None,
    data_storage_version: str | None = None,
    enable_stable_row_ids: bool = False,
    enable_v2_manifest_paths: bool = True,
    sees_new_rows: bool = False,
    has_new_uuid: bool = False,
    files_since_s: float | None = None,
    finish_files: Callable[[], None] | None = None,
    runtime: Runtime = SYSTEM_RUNTIME,
) -> Snapshot:
    """Make a new version of a table.

    Committing one transaction (that is, one uuid) again returns the version that it made the first time. So does
    committing one with the same idempotency key (see `lance_core.table.idempotency`).

    Args:
        store: Where the table lies.
        transaction: What to do. An ``Overwrite`` with read version 0 creates the table.
        read: The transaction's read version, if it is open already: saves reading it again.
        max_retries: How often to build on a newer version after losing a race; None for as often as the time allows.
            With 0, an ``Overwrite`` is strict: it fails if anything was committed since its read version.
        timeout_s: Seconds after which no new attempt begins; None for `commit_timeout_s`.
        data_storage_version: File version of a new table, or one that an ``Overwrite`` switches to.
        enable_stable_row_ids: For a new table: give rows ids that survive compaction.
        enable_v2_manifest_paths: For a new table: name manifests so that the newest sorts first.
        sees_new_rows: The work depends on which rows there are, not only on those it touches: other commits that add
            rows are conflicts.
        has_new_uuid: The transaction's uuid was made for this call, so no other commit can have written its file. On
            object stores, the file is then written before other commits are judged.
        files_since_s: Time of ``runtime.monotonic_s`` before the caller wrote all files that the transaction adds. If
            that was a short time ago, nobody looks whether they are there. None if others may have written some.
        finish_files: Waits until all files of the transaction are there; called before a version names them, and again
            for each attempt. None if they are.
        runtime: Clock, waiting and chance.

    Returns:
        The version made.

    Raises:
        CommitConflictError: Another commit changed what this one relies on.
        CommitContentionError: Too many other commits came first.
        CommitOutcomeUnknownError: The store leaves open whether the commit landed.
        DatasetNotFoundError: There is no table, and the operation does not create one.
        DatasetAlreadyExistsError: There is a table, and the operation creates one.
        VersionNotFoundError: The read version is newer than the newest version.
        NotFoundError: A data or deletion file that the transaction adds does not exist.
        UnsupportedError: The table or operation needs something lance_core cannot do.
    """
    committer = _Committer(
        store=store,
        transaction=transaction,
        read=read.manifest if read is not None and read.version == transaction.read_version else None,
        max_retries=max_retries,
        deadline_s=runtime.monotonic_s() + (commit_timeout_s() if timeout_s is None else timeout_s),
        data_storage_version=data_storage_version,
        enable_stable_row_ids=enable_stable_row_ids,
        creation_naming=ManifestNaming.V2 if enable_v2_manifest_paths else ManifestNaming.V1,
        sees_new_rows=sees_new_rows,
        has_new_uuid=has_new_uuid,
        runtime=runtime,
        checked=transaction.read_version,
        finish_files=finish_files,
        files_checked=files_since_s is not None and runtime.monotonic_s() - files_since_s < _NEW_FILE_S,
    )
    with Span("commit", store.uri, operation=operation_name(transaction.operation)) as span:
        snapshot = _run(committer)
        span.attributes["version"] = snapshot.version
        span.attributes["attempts"] = committer.attempts
    if _LOGGER.isEnabledFor(logging.INFO):
        text = "version %d of %s: %s, attempt %d, %.3f s"
        _LOGGER.info(text, snapshot.version, store.uri, span.attributes["operation"], committer.attempts, span.seconds)
    return snapshot


def _run(committer: _Committer) -> Snapshot:
    """Commit; remove what was written if the commit certainly did not happen."""
    operation, uuid = committer.operation, committer.transaction.uuid
    try:
        if not isinstance(operation, Restore):
            return committer.run()
        # A clean-up that begins before we publish would take what only the restored version needs.
        with keeping(committer.store, operation.version, uuid=uuid, runtime=committer.runtime, is_read_inside=True):
            return committer.run()
    except CommitOutcomeUnknownError:
        raise  # whatever was written may be in use
    except Exception as error:
        _LOGGER.info(
            "%s not committed to %s after %d attempts: %s",
            operation_name(operation),
            committer.store.uri,
            committer.attempts,
            error,
        )
        committer.remove_traces()
        raise


def _slots(attempt: int, *, is_quick: bool) -> int:
    """Return the number of slots to choose a pause from: more after each attempt, fewer for writers that wait long.

    One writer wins each round, so short pauses of old losers cost no progress; long ones would let new writers pass.
    """
    if attempt < _QUICK_RETRIES:
        return min(_FIRST_BACK_OFF_SLOTS << attempt, _MAX_QUICK_SLOTS if is_quick else _MAX_BACK_OFF_SLOTS)
    return max(_MAX_BACK_OFF_SLOTS >> min(attempt - _QUICK_RETRIES, 8), _LEAST_SLOTS)


@mutable(kw_only=True)
class _Committer:
    """State of one commit over its attempts.

    ``checked`` is the newest version whose transaction was judged, ``must_rebase`` whether one of them deleted rows
    in our fragments, ``restored`` the version that this attempt brings back, ``staged`` the transaction whose file was
    written last, with its encoded form, ``leftovers`` the files written that nobody needs unless the commit lands.
    """

    store: Store
    transaction: Transaction
    read: Manifest | None
    max_retries: int | None
    deadline_s: float
    data_storage_version: str | None
    enable_stable_row_ids: bool
    creation_naming: ManifestNaming
    sees_new_rows: bool
    has_new_uuid: bool
    runtime: Runtime
    checked: int
    finish_files: Callable[[], None] | None = None
    must_rebase: bool = False
    files_checked: bool = False
    restored: Manifest | None = None
    dictionaries: StagedDictionaries | None = None
    staged: tuple[Transaction, bytes] | None = None
    attempts: int = 0
    leftovers: list[str] = field(default_factory=list)

    @property
    def operation(self) -> Operation:
        return self.transaction.operation

    @property
    def _is_local(self) -> bool:
        return "://" not in self.store.uri

    def run(self) -> Snapshot:
        # A local attempt waits for nobody: what it takes beyond its own work is the machine being busy, and to wait
        # for that as well leaves the table to nobody. Who loses again and again has too many others around it.
        attempt, work_s, wall_s = 0, 0.0, 0.0
        for attempt in count():
            started, worked = self.runtime.monotonic_s(), self.runtime.thread_cpu_s()
            self.attempts = attempt + 1
            done = self._attempt()
            if done is not None:
                return done
            work_s = work_s or (self.runtime.thread_cpu_s() - worked) * _BACK_OFF_MARGIN
            lasted_s = (self.runtime.monotonic_s() - started) * _BACK_OFF_MARGIN
            wall_s = min(wall_s or lasted_s, lasted_s)
            is_quick = self._is_local and attempt < _QUICK_RETRIES
            slot_s = work_s if is_quick else wall_s
            _LOGGER.info("lost the race for a version of %s, attempt %d", self.store.uri, self.attempts)
            if attempt == self.max_retries or not self._wait(_slots(attempt, is_quick=is_quick), slot_s):
                break
            self._reserve_fragment_ids()
        raise CommitContentionError(
            f"{attempt + 1} attempts to commit {operation_name(self.operation)} lost{self._winner()}; try again "
            f"later, or set {COMMIT_TIMEOUT_VARIABLE} to more seconds",
            path=self.store.uri,
        )

    def _winner(self) -> str:
        """Describe the commit that won the race, as far as it can be read."""
        with suppress(Exception):
            newest = open_snapshot(self.store)
            theirs = load_transaction(self.store, newest.manifest)
            name = "a commit" if theirs is None else operation_name(theirs.operation)
            return f" against other writers, the last one to {name} (version {newest.version})"
        return " against other writers"

    def remove_traces(self) -> None:
        """Take back what a commit that did not land has written."""
        with suppress(Exception):
            self.store.delete(self.leftovers)

    def _remove_leftovers(self, committed: Transaction) -> None:
        """Remove what earlier attempts wrote and the one that landed does not use."""
        used = {transaction_path(committed.file_name)}
        for fragment in brought_fragments(committed.operation):
            if fragment.deletion_file is not None and fragment.deletion_file.base_id is None:
                used.add(deletion_file_path(fragment.id, fragment.deletion_file))
        self.leftovers = [path for path in self.leftovers if path not in used]
        if self.leftovers:
            self.remove_traces()

    def _wait(self, slots: int, slot_s: float) -> bool:
        """Let a random number of slots pass; False if time is up."""
        pause_s = min(self.runtime.random_u63() % slots * slot_s, _MAX_BACK_OFF_S)
        if self.runtime.monotonic_s() + pause_s > self.deadline_s:
            return False
        self.runtime.sleep_s(pause_s)
        return True

    def _attempt(self) -> Snapshot | None:
        """One attempt; None if another writer was faster."""
        versions = self._find_newest()
        self._finish_files()
        newest = versions.newest
        if newest is None:
            base = self._new_table()
            versions = replace(versions, naming=self.creation_naming)
        else:
            base, mine = self._catch_up_with(newest, versions.naming)
            if mine is not None:
                return self._done_before(mine)
            if base is None:
                return None
        self._check_allows(base)
        transaction = self._on_top_of(base)
        self._check_files(base)
        manifest = self._publish(base, transaction, versions.naming)
        if manifest is None:
            return None
        if not is_visible(self.store, manifest, transaction, versions.naming):
            return None
        self._remove_leftovers(transaction)
        return Snapshot(store=self.store, manifest=manifest)

    def _find_newest(self) -> Versions:
        """Find the newest version; on an object store, check files and write the transaction file meanwhile.

        Neither depends on what others committed, as a rule: the transaction is written again if it must be rebased.
        """
        works = self._works_ahead()
        if not works:
            return find_newest(self.store)
        return cast("Versions", list(each(self.store, [*works, partial(find_newest, self.store)]))[-1])

    def _works_ahead(self) -> list[Callable[[], object]]:
        """Return what the first attempt on an object store does while the newest version is looked for."""
        if self.attempts > 1 or not self.has_new_uuid or objects_at_once(self.store) < 2:
            return []
        if isinstance(self.operation, Restore) and self.read is None:
            return [partial(self._stage, self.transaction), self._read_restored, self._read_expected]
        expected = self._expected_base()
        if expected is None:
            return []
        self._check_allows(expected)
        transaction = self._on_top_of(expected)
        works: list[Callable[[], object]] = [partial(self._check_files, expected)]
        if transaction is self.transaction:  # a rewrite that reserved no ids depends on the newest version
            works.insert(0, partial(self._stage, transaction))
        return works

    def _expected_base(self) -> Manifest | None:
        """Return the version that the first attempt probably builds on, if it is open."""
        is_creation = isinstance(self.operation, Overwrite) and not self.transaction.read_version
        return self._new_table() if is_creation else self.read

    def _read_expected(self) -> None:
        """Read the version that the first attempt probably builds on; if that fails, it is read again when it is."""
        with suppress(LanceError):
            self.read = load_known_manifest(self.store, self.transaction.read_version)

    def _read_restored(self) -> None:
        """Read the version that a restore brings back."""
        if isinstance(self.operation, Restore) and self.restored is None:
            self.restored = load_known_manifest(self.store, self.operation.version)

    def _check_allows(self, base: Manifest) -> None:
        """Check that the operation may build on a version."""
        feature_flags.check_writable(base.writer_feature_flags, path=self.store.uri)
        check_keeps_log(self.operation, base)

    def _finish_files(self) -> None:
        if self.finish_files is not None:
            self.finish_files()

    def _check_files(self, base: Manifest) -> None:
        """Check once that the files of the operation exist."""
        self._finish_files()
        if not self.files_checked:
            check_files(self.store, self.operation, base)
            self.files_checked = True

    def _done_before(self, version: int) -> Snapshot:
        """Open the version that another attempt made; our transaction file is not needed if it was another's."""
        done = open_snapshot(self.store, version)
        if self.transaction.uuid not in done.manifest.transaction_file:
            self.remove_traces()
        return done

    def _new_table(self) -> Manifest:
        if not isinstance(self.operation, Overwrite) or self.transaction.read_version:
            raise DatasetNotFoundError(
                f"{operation_name(self.operation)} on version {self.transaction.read_version} needs a "
                "dataset, but there is none at this address",
                path=self.store.uri,
            )
        version = self.data_storage_version or common_file_version(self.operation.fragments)
        return empty_manifest(
            self.operation.schema,
            data_storage_version=version or DEFAULT_DATA_STORAGE_VERSION,
            enable_stable_row_ids=self.enable_stable_row_ids,
        )

    def _load(self, newest: int, naming: ManifestNaming) -> Manifest | None:
        """Return the newest manifest; None if it was cleaned up since it was listed."""
        if self.read is not None and self.read.version == newest:
            return self.read
        try:
            return load_known_manifest(self.store, newest, naming)
        except VersionNotFoundError:
            return None

    # ------------------------------------------------------------------------------------------ other writers' commits

    def _catch_up_with(self, newest: int | None, naming: ManifestNaming) -> tuple[Manifest | None, int | None]:
        """Judge all commits there are; the newest manifest (None to begin anew) and the version that is ours already.

        Judging many takes long enough for others to commit again. To publish then would lose once more, and always to
        writers of small commits that have nothing to judge. So what came meanwhile is judged, until that is little.
        """
        latest = None
        for _ in range(_MAX_CATCH_UPS):
            latest = None if newest is None else self._load(newest, naming)
            if latest is None:
                break
            before = self.checked
            mine = self._catch_up(latest, naming)
            if mine is not None or latest.version <= before + _VERSIONS_BEFORE_RELISTING:
                return latest, mine
            newest = find_newest(self.store).newest
        return latest, None

    def _catch_up(self, latest: Manifest, naming: ManifestNaming) -> int | None:
        """Judge what was committed since; the version that is ours, if our own commit is among it."""
        read_version = self.transaction.read_version
        if read_version & DETACHED_BIT:
            raise InvalidInputError(
                "changes based on a detached version can only be committed detached", path=self.store.uri
            )
        if read_version > latest.version:
            raise VersionNotFoundError(
                f"the transaction is based on version {read_version}, but the newest is {latest.version}",
                path=self.store.uri,
            )
        if isinstance(self.operation, Overwrite) and not read_version:
            return self._created_by_us()
        if isinstance(self.operation, Overwrite) and self.checked == read_version:
            # An overwrite is often worked out without a look at the table, so its read version tells little.
            key = key_of(self.transaction)
            done = None if key is None else find_commit(self.store, key)
            if done is not None:
                return done
        for version in range(self.checked + 1, latest.version + 1):
            theirs = self._committed(version, latest, naming)
            if self._is_ours(theirs):
                return version
            self._judge(theirs, version)
            self.checked = version
        if latest.version > read_version and isinstance(self.operation, Overwrite) and self.max_retries == 0:
            raise self._conflict("any commit", latest.version, Verdict.RETRY)
        return None

    def _created_by_us(self) -> int:
        with suppress(VersionNotFoundError):
            first = read_transaction(self.store, 1)
            if first is not None and self._is_ours(first):
                return 1
        key = key_of(self.transaction)
        version = None if key is None else find_commit(self.store, key)
        if version is not None:
            return version
        raise DatasetAlreadyExistsError("the dataset exists already", path=self.store.uri)

    def _is_ours(self, theirs: Transaction) -> bool:
        """Return whether another attempt, perhaps of another process, has done the work already."""
        key = key_of(self.transaction)
        return theirs.uuid == self.transaction.uuid or (key is not None and key_of(theirs) == key)

    def _committed(self, version: int, latest: Manifest, naming: ManifestNaming) -> Transaction:
        try:
            manifest = latest if version == latest.version else decode_version(self.store, version, naming=naming)
        except VersionNotFoundError:
            raise self._conflict("a commit that was cleaned up", version, Verdict.RETRY) from None
        theirs = load_transaction(self.store, manifest)
        if theirs is None:
            raise self._conflict("a commit that left no transaction", version, Verdict.INCOMPATIBLE)
        return theirs

    def _judge(self, theirs: Transaction, version: int) -> None:
        verdict = judge(self.operation, theirs.operation)
        if self.sees_new_rows and verdict is not Verdict.INCOMPATIBLE and adds_rows(theirs.operation):
            verdict = Verdict.RETRY
        if verdict in {Verdict.RETRY, Verdict.INCOMPATIBLE}:
            raise self._conflict(operation_name(theirs.operation), version, verdict)
        self.must_rebase |= verdict is Verdict.REBASE

    def _conflict(self, theirs: str, version: int, verdict: Verdict) -> CommitConflictError:
        ours = operation_name(self.operation)
        is_retryable = verdict is Verdict.RETRY
        advice = "read the newest version and do the work again" if is_retryable else "it cannot be merged"
        return CommitConflictError(
            f"{ours} on version {self.transaction.read_version} conflicts with {theirs} in version {version}; {advice}",
            ours=ours,
            theirs=theirs,
            version=version,
            is_retryable=is_retryable,
            path=self.store.uri,
        )

    def _on_top_of(self, base: Manifest) -> Transaction:
        """Return the transaction as it applies to ``base``."""
        if isinstance(self.operation, Rewrite):
            numbered = with_fragment_ids(self.operation, next_fragment_id(base))
            return self.transaction if numbered is self.operation else replace(self.transaction, operation=numbered)
        if not self.must_rebase:
            return self.transaction
        try:
            read = self.read or load_manifest(self.store, self.transaction.read_version)
            rebased = rebase_deletions(
                with_bases(self.store, base), self.transaction, base=read, latest=base, new_id=self.runtime.random_u63
            )
        except NotFoundError:
            raise self._conflict("a clean-up of what it read", base.version, Verdict.RETRY) from None
        if rebased is None:
            raise self._conflict("a commit that changed the same rows", base.version, Verdict.RETRY)
        self.leftovers.extend(rebased.new_files)
        return rebased.transaction

    def _reserve_fragment_ids(self) -> None:
        """Reserve the ids of a rewrite that lost a race, so that its later attempts share one encoded transaction.

        The transaction names every fragment that the rewrite replaces. Encoding thousands of them takes longer than
        other writers need for a commit, and a compaction that encodes them in each attempt loses each.
        """
        operation = self.operation
        if not isinstance(operation, Rewrite):
            return
        ids = [fragment.id for group in operation.groups for fragment in group.new_fragments]
        if all(ids):
            return
        newest = open_snapshot(self.store)
        reservation = Transaction(
            read_version=newest.version,
            uuid=self.runtime.new_uuid(),
            operation=ReserveFragments(num_fragments=len(ids)),
        )
        left_s = self.deadline_s - self.runtime.monotonic_s()
        reserved = commit(self.store, reservation, read=newest, timeout_s=left_s, runtime=self.runtime)
        first_id = next_fragment_id(reserved.manifest) - len(ids)
        self.transaction = replace(self.transaction, operation=with_fragment_ids(operation, first_id))

    # ------------------------------------------------------------------------------------------------------ publishing

    def _publish(self, base: Manifest, transaction: Transaction, naming: ManifestNaming) -> Manifest | None:
        """Write transaction and manifest; None if the version was taken by another writer."""
        self._read_restored()
        restored, self.restored = self.restored, None  # another attempt looks again whether it is there
        manifest = apply(
            base,
            transaction,
            version=base.version + 1,
            now=self.runtime.now(),
            data_storage_version=self.data_storage_version,
            restored=restored,
            dictionaries=self._dictionaries(base),
        )
        manifest = with_transaction(manifest, transaction, self._stage(transaction))
        return manifest if create_manifest(self.store, manifest, naming) else None

    def _stage(self, transaction: Transaction) -> bytes:
        """Encode the transaction and write its file, unless an earlier attempt did; return the encoded form."""
        if self.staged is None or self.staged[0] is not transaction:
            self.staged = transaction, encode_transaction(transaction)
            path = transaction_path(transaction.file_name)
            self.leftovers.append(path)
            self.store.put(path, encode_transaction_file(self.staged[1]))
        return self.staged[1]

    def _dictionaries(self, base: Manifest) -> StagedDictionaries:
        """Read the dictionaries of our own files once."""
        if self.dictionaries is None:
            version = self.data_storage_version
            self.dictionaries = staged_dictionaries(self.store, self.operation, base, data_storage_version=version)
        return self.dictionaries
