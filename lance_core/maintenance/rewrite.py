"""Carry out the rewriting of fragments: anywhere, one task at a time, then one commit for all.

A task copies pages as they are where it can, else it streams its live rows into new files; either way memory does not
grow with the fragments. Row ids and row versions of
tables with stable row ids move along.
"""

from __future__ import annotations

import logging
import time
import uuid
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lance_core.change.stage import FileLimits, remove_staged, stage_fragments
from lance_core.common.frozen import frozen, replace
from lance_core.errors import CommitConflictError, CommitOutcomeUnknownError, InvalidInputError, UnsupportedError
from lance_core.format.blobs import BlobView
from lance_core.format.file.file_version import LEGACY_FILE_VERSION
from lance_core.format.table.fragment import file_version_of
from lance_core.format.table.operations import Rewrite, RewriteGroup
from lance_core.format.table.row_ids import encode_row_ids, encode_row_versions
from lance_core.format.table.transaction import Transaction
from lance_core.maintenance.budget import LEAST_MEMORY, make_budget
from lance_core.maintenance.live_rows import live_batches, stage_live_rows
from lance_core.maintenance.remap import RemappedIndices
from lance_core.maintenance.verbatim import MIN_PAGE_BYTES, can_copy, stage_copy
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.open_files import OpenFiles
from lance_core.scan.plan import plan_scan
from lance_core.table.commit import commit
from lance_core.table.naming import naming
from lance_core.table.rules.apply_indices import unindexed_rows
from lance_core.table.runtime import commit_timeout_s
from lance_core.table.snapshot import open_snapshot
from lance_core.telemetry import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.maintenance.budget import Budget
    from lance_core.maintenance.plan import CompactionOptions, RewriteTask
    from lance_core.store.base import Store
    from lance_core.table.snapshot import Snapshot

_LOGGER = logging.getLogger("lance_core.compaction")


@frozen(kw_only=True)
class RewriteMetrics:
    """Numbers of what a rewrite changed; names as in pylance.

    Attributes:
        fragments_removed: Fragments that were replaced.
        fragments_added: Fragments that replace them.
        files_removed: Data and deletion files that the new version does not need.
        files_added: Data files written.
        unindexed_rows: Rows that an index covered before and does not cover now, by name of the index. Queries scan
            them until the index is brought up to date. Not in pylance.
    """

    fragments_removed: int = 0
    fragments_added: int = 0
    files_removed: int = 0
    files_added: int = 0
    unindexed_rows: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def index_advice(self) -> str | None:
        """Advice that names the indices that lost rows and what to do; None if none did. Not in pylance."""
        if not self.unindexed_rows:
            return None
        lost = ", ".join(f"{count:,} of {name!r}" for name, count in sorted(self.unindexed_rows.items()))
        return (
            f"Rewriting fragments took rows out of indices: {lost}. Queries stay right but scan these rows; to index "
            "them again, call `optimize.optimize_indices()` of lance_core, or of pylance for kinds that lance_core "
            "does not build."
        )


@frozen(kw_only=True)
class RewriteResult:
    """Result of one task.

    Attributes:
        read_version: Version the task was planned on.
        original_fragments: Fragments to replace.
        new_fragments: Staged fragments with their live rows, ids 0.
    """

    read_version: int
    original_fragments: tuple[Fragment, ...]
    new_fragments: tuple[Fragment, ...]

    @property
    def metrics(self) -> RewriteMetrics:
        """The numbers of this task."""
        return sum_metrics([self])


def sum_metrics(results: Sequence[RewriteResult]) -> RewriteMetrics:
    """Return the numbers of several tasks together."""
    old = [fragment for result in results for fragment in result.original_fragments]
    new = [fragment for result in results for fragment in result.new_fragments]
    return RewriteMetrics(
        fragments_removed=len(old),
        fragments_added=len(new),
        files_removed=sum(len(fragment.files) + (fragment.deletion_file is not None) for fragment in old),
        files_added=sum(len(fragment.files) for fragment in new),
    )


def execute_task(
    snapshot: Snapshot,
    task: RewriteTask,
    options: CompactionOptions,
    *,
    new_uuid: Callable[[], bytes] = lambda: uuid.uuid4().bytes,
) -> RewriteResult:
    """Write the live rows of a task's fragments into new files.

    Args:
        snapshot: The version the task was planned on.
        task: What to rewrite.
        options: How large the new files shall be, and how much memory this may take.
        new_uuid: 16 bytes for the name of a new file at each call, unlike all others.

    Raises:
        InvalidInputError: The task belongs to another version.
        CorruptDataError: A file is damaged; nothing is left behind.
        UnsupportedError: Pages shall be copied, but cannot.
    """
    if snapshot.version != task.read_version:
        raise InvalidInputError(f"cannot run a task for version {task.read_version} on version {snapshot.version}")
    manifest = snapshot.manifest
    _check_version(manifest, options)
    budget = make_budget(
        options.max_memory_bytes,
        num_columns=len(manifest.schema.fields),
        fragments=task.fragments,
        batch_size=options.batch_size,
    )
    files = OpenFiles(snapshot.store)
    readers = [FragmentReader(files, fragment) for fragment in task.fragments]
    new = _copied(snapshot, task, options, budget, new_uuid)
    if new is None:
        new = _reencoded(files, snapshot, task, readers, options=options, budget=budget, new_uuid=new_uuid)
    if manifest.uses_stable_row_ids:
        new = _with_lineage(readers, new)
    return RewriteResult(read_version=task.read_version, original_fragments=task.fragments, new_fragments=new)


def _copied(
    snapshot: Snapshot, task: RewriteTask, options: CompactionOptions, budget: Budget, new_uuid: Callable[[], bytes]
) -> tuple[Fragment, ...] | None:
    """New fragments whose pages are those of the old ones; None if that is not possible or not wanted."""
    mode, store = options.compaction_mode, snapshot.store
    if _changes_version(snapshot.manifest, task, options):
        if mode == "force_binary_copy":
            raise UnsupportedError("cannot copy pages into files of another version", path=store.uri)
        return None
    least = MIN_PAGE_BYTES if mode is None else 0
    new: tuple[Fragment, ...] | None = None
    may_copy = mode != "reencode" and _fits(task, options)
    if may_copy and can_copy(snapshot.manifest, task.fragments, min_page_bytes=least):
        new = stage_copy(store, snapshot.manifest, task.fragments, new_uuid=new_uuid, max_bytes=budget.copy_bytes)
    if new is None and mode == "force_binary_copy":
        raise UnsupportedError("cannot copy the pages of these fragments; nothing was written", path=store.uri)
    return new


def _reencoded(
    files: OpenFiles,
    snapshot: Snapshot,
    task: RewriteTask,
    readers: Sequence[FragmentReader],
    *,
    options: CompactionOptions,
    budget: Budget,
    new_uuid: Callable[[], bytes],
) -> tuple[Fragment, ...]:
    """New fragments with the live rows of the old ones."""
    manifest = snapshot.manifest
    plan = plan_scan(
        manifest.schema,
        columns=None,
        filter=None,
        batch_size=budget.batch_size,
        with_row_id=False,
        with_row_address=False,
        blob_view=BlobView.VALUES,
    )
    store = snapshot.store
    with naming(store):
        if _fits(task, options) and not _changes_version(manifest, task, options):
            return stage_live_rows(files, manifest, readers, plan, new_uuid=new_uuid, budget=budget)
        return stage_fragments(
            store,
            manifest.schema,
            live_batches(files, readers, plan, may_join=budget.may_join),
            limits=replace(_limits(task, options), page_bytes=budget.page_bytes),
            data_storage_version=options.data_storage_version or manifest.new_file_version,
            new_uuid=new_uuid,
        )


def _changes_version(manifest: Manifest, task: RewriteTask, options: CompactionOptions) -> bool:
    """Return whether the files asked for have another version than the old ones or the table."""
    wanted = options.data_storage_version
    if wanted is None:
        return False
    versions = {file_version_of(file) for fragment in task.fragments for file in fragment.files}
    return versions | {manifest.data_storage_version} != {wanted}


def _check_version(manifest: Manifest, options: CompactionOptions) -> None:
    before, wanted = manifest.data_storage_version, options.data_storage_version
    if wanted is not None and (before == LEGACY_FILE_VERSION) != (wanted == LEGACY_FILE_VERSION):
        raise UnsupportedError(
            f"Compaction cannot turn files of version {before} into version {wanted}, since a table cannot mix them. "
            "Write the whole table anew: write_dataset(dataset.scanner().to_reader(), uri, "
            f'mode="overwrite", data_storage_version="{wanted}")'
        )


def _fits(task: RewriteTask, options: CompactionOptions) -> bool:
    """Return whether one file takes all, as far as the sizes of the old ones tell."""
    num_bytes = sum(file.file_size_bytes for fragment in task.fragments for file in fragment.files)
    return _num_files(task, options) == 1 and num_bytes <= options.max_bytes_per_file


def commit_results(
    read: Snapshot,
    results: Sequence[RewriteResult],
    *,
    defers_remap: bool = False,
    properties: Mapping[str, str] | None = None,
) -> tuple[Snapshot, RewriteMetrics]:
    """Publish what tasks made, all in one version.

    Args:
        read: The version that the tasks were planned on.
        results: Results of some or all of the tasks.
        defers_remap: Leave indices as they are, see `CompactionOptions`.
        properties: Transaction properties.

    Returns:
        The new version, and what changed.

    Raises:
        CommitConflictError: Another commit touched one of the fragments: plan again on the newest version. The new
            files are removed.
        InvalidInputError: No results, or results of another version.
        UnsupportedError: The remap cannot be deferred.
    """
    try:
        return _publish(read, results, properties, defers_remap=defers_remap)
    except CommitOutcomeUnknownError:
        raise
    except Exception:
        discard_results(read.store, results)
        raise


def _publish(
    read: Snapshot, results: Sequence[RewriteResult], properties: Mapping[str, str] | None, *, defers_remap: bool
) -> tuple[Snapshot, RewriteMetrics]:
    """As `commit_results`, but the new files stay if it fails."""
    versions = {result.read_version for result in results}
    if versions != {read.version}:
        raise InvalidInputError(
            f"cannot commit results for versions {sorted(versions)} together with results for version {read.version}"
        )
    groups = tuple(
        RewriteGroup(old_fragments=result.original_fragments, new_fragments=result.new_fragments) for result in results
    )
    deadline_s = time.monotonic() + commit_timeout_s()
    while True:
        indices = RemappedIndices(read)
        try:
            operation = (indices.deferred if defers_remap else indices.remapped)(Rewrite(groups=groups))
            transaction = Transaction(
                read_version=read.version,
                uuid=str(uuid.uuid4()),
                operation=operation,
                transaction_properties=dict(properties or {}),
            )
            done = commit(read.store, transaction, read=read, has_new_uuid=True)
        except CommitOutcomeUnknownError:
            raise
        except CommitConflictError as error:
            indices.forget()
            if not indices.has_remapped or not error.is_retryable or time.monotonic() > deadline_s:
                raise
            read = open_snapshot(read.store)
            if not all(_is_untouched(read.manifest, result) for result in results):
                raise
        except BaseException:
            indices.forget()
            raise
        else:
            lost = unindexed_rows(read.manifest, done.manifest, operation.rewritten_indices)
            return done, replace(sum_metrics(results), unindexed_rows=lost)


def discard_results(store: Store, results: Sequence[RewriteResult]) -> None:
    """Remove the files of results that will not be committed."""
    remove_staged(store, [fragment for result in results for fragment in result.new_fragments])


def _limits(task: RewriteTask, options: CompactionOptions) -> FileLimits:
    rows, num_files = sum(fragment.num_rows for fragment in task.fragments), _num_files(task, options)
    return FileLimits(max_rows_per_file=max(-(-rows // num_files), 1), max_bytes_per_file=options.max_bytes_per_file)


def _num_files(task: RewriteTask, options: CompactionOptions) -> int:
    """Return a task makes one file, unless its rows fill several of the target size."""
    return max(sum(fragment.num_rows for fragment in task.fragments) // options.target_rows_per_fragment, 1)


def _with_lineage(readers: Sequence[FragmentReader], new: Sequence[Fragment]) -> tuple[Fragment, ...]:
    """Row ids and versions of the live rows, cut at the new fragments."""
    ids = np.concatenate([reader.stable_row_ids[_live(reader)] for reader in readers])
    created = np.concatenate([reader.created_versions[_live(reader)] for reader in readers])
    updated = np.concatenate([reader.updated_versions[_live(reader)] for reader in readers])
    moved: list[Fragment] = []
    start = 0
    for fragment in new:
        rows = slice(start, start + fragment.physical_rows)
        start = rows.stop
        moved.append(
            replace(
                fragment,
                row_id_sequence=encode_row_ids(ids[rows]),
                created_at_version_sequence=encode_row_versions(created[rows]),
                last_updated_at_version_sequence=encode_row_versions(updated[rows]),
            )
        )
    return tuple(moved)


def _live(reader: FragmentReader) -> npt.NDArray[np.bool_]:
    mask = reader.live_mask(0, reader.fragment.physical_rows)
    return np.ones(reader.fragment.physical_rows, np.bool_) if mask is None else mask


def rewrite(
    snapshot: Snapshot,
    make: Callable[[Snapshot], Sequence[RewriteResult]],
    *,
    conflict_retries: int | None,
    defers_remap: bool = False,
    properties: Mapping[str, str] | None = None,
) -> tuple[Snapshot, RewriteMetrics]:
    """Rewrite fragments and commit; when another commit touched some of them, commit the rest and begin anew.

    Args:
        snapshot: Version to begin with.
        make: Plan on a version and execute the plan; no results mean that there is nothing to do.
        conflict_retries: How often to begin anew; None for as often as `commit_timeout_s` allows.
        defers_remap: Leave indices as they are, see `CompactionOptions`.
        properties: Transaction properties.

    Returns:
        The new version and what changed; the version given if there was nothing to do.

    Raises:
        CommitConflictError: Other commits touched all fragments each time.
    """
    deadline_s = time.monotonic() + commit_timeout_s()
    done = RewriteMetrics()
    attempt = 0
    while results := make(snapshot):
        try:
            snapshot, metrics = _publish(snapshot, results, properties, defers_remap=defers_remap)
            return snapshot, _sum(done, metrics)
        except CommitConflictError as error:
            conflict = error
        except CommitOutcomeUnknownError:
            raise
        except Exception:
            discard_results(snapshot.store, results)
            raise
        snapshot, metrics = _commit_untouched(snapshot.store, results, conflict, properties, defers_remap=defers_remap)
        done = _sum(done, metrics)
        if attempt == conflict_retries or time.monotonic() > deadline_s:
            if not done.fragments_removed:
                raise conflict
            break
        attempt += 1
    return snapshot, done


def _commit_untouched(
    store: Store,
    results: Sequence[RewriteResult],
    conflict: CommitConflictError,
    properties: Mapping[str, str] | None,
    *,
    defers_remap: bool,
) -> tuple[Snapshot, RewriteMetrics]:
    """Commit the results whose fragments nobody touched, and remove the files of the others.

    Beside writers that never pause, what is untouched now may be touched before it is published: then the rest of it
    is tried again, until all is published or nothing is left.

    Returns:
        The newest version, and what changed.

    Raises:
        CommitConflictError: Another attempt would not help.
    """
    left, is_first = list(results), True
    if not conflict.is_retryable:
        discard_results(store, left)
        raise conflict
    try:
        while True:
            newest = open_snapshot(store)
            touched = [result for result in left if not _is_untouched(newest.manifest, result)]
            if not touched and not is_first:  # it is about something else than the fragments
                touched = left
            discard_results(store, touched)
            left = [replace(result, read_version=newest.version) for result in left if result not in touched]
            if not left:
                return newest, RewriteMetrics()
            is_first = False
            try:
                return _publish(newest, left, properties, defers_remap=defers_remap)
            except CommitConflictError as error:
                if not error.is_retryable:
                    raise
    except CommitOutcomeUnknownError:
        raise
    except BaseException:
        discard_results(store, left)
        raise


def _is_untouched(manifest: Manifest, result: RewriteResult) -> bool:
    return all(manifest.fragments.find(fragment.id) == fragment for fragment in result.original_fragments)


def _sum(first: RewriteMetrics, second: RewriteMetrics) -> RewriteMetrics:
    names = sorted(first.unindexed_rows.keys() | second.unindexed_rows.keys())
    return RewriteMetrics(
        fragments_removed=first.fragments_removed + second.fragments_removed,
        fragments_added=first.fragments_added + second.fragments_added,
        files_removed=first.files_removed + second.files_removed,
        files_added=first.files_added + second.files_added,
        unindexed_rows={name: first.unindexed_rows.get(name, 0) + second.unindexed_rows.get(name, 0) for name in names},
    )


def execute_tasks(
    snapshot: Snapshot, tasks: Sequence[RewriteTask], options: CompactionOptions, *, num_threads: int
) -> list[RewriteResult]:
    """Execute tasks, which share the memory; if one fails or we are interrupted, the files of all are removed."""
    num_threads = min(num_threads, len(tasks), max(options.max_memory_bytes // LEAST_MEMORY, 1))
    with Span("compact", snapshot.store.uri, total_tasks=len(tasks), has_bar=True) as span:

        def execute(task: RewriteTask) -> RewriteResult:
            result = execute_task(snapshot, task, options)
            fragments = result.original_fragments
            files = (file for fragment in fragments for file in fragment.files)
            span.add(
                tasks=1,
                rows=sum(fragment.num_rows for fragment in fragments),
                num_bytes=sum(file.file_size_bytes or 0 for file in files),
            )
            _LOGGER.info("%d of %d tasks done for %s", span.tasks, len(tasks), snapshot.store.uri)
            return result

        if num_threads <= 1:
            return _execute_in_turn(snapshot, tasks, execute)
        options = replace(options, max_memory_bytes=options.max_memory_bytes // num_threads)
        return _execute_in_threads(snapshot, tasks, execute, num_threads=num_threads)


def _execute_in_threads(
    snapshot: Snapshot,
    tasks: Sequence[RewriteTask],
    execute: Callable[[RewriteTask], RewriteResult],
    *,
    num_threads: int,
) -> list[RewriteResult]:
    with ThreadPoolExecutor(max_workers=num_threads) as pool:
        futures = [pool.submit(execute, task) for task in tasks]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            for future in futures:
                future.cancel()
            wait(futures)
            done = [future for future in futures if not future.cancelled()]
            results = [future.result() for future in done if future.exception() is None]
            if len(results) < len(tasks):
                discard_results(snapshot.store, results)
    failed = next((future.exception() for future in done if future.exception() is not None), None)
    if failed is not None:
        raise failed
    return results


def _execute_in_turn(
    snapshot: Snapshot, tasks: Sequence[RewriteTask], execute: Callable[[RewriteTask], RewriteResult]
) -> list[RewriteResult]:
    results: list[RewriteResult] = []
    try:
        for task in tasks:
            results.append(execute(task))  # noqa: PERF401 what is done must be known
    except BaseException:
        discard_results(snapshot.store, results)
        raise
    return results
