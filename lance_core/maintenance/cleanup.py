"""Delete old versions and the files that only they need.

The order makes every moment safe. Manifests go first, the oldest first: a crash leaves files that nobody needs, never
a version that lacks files. Then the versions are listed once more, so that what was committed in the meantime counts,
and files that none of them needs go. Each manifest is read once; fragments that many versions share are decoded once.
"""

from __future__ import annotations

import logging
import uuid
from contextlib import suppress
from dataclasses import field
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Unpack

from lance_core.common.frozen import frozen, mutable
from lance_core.common.signatures import with_options
from lance_core.errors import DatasetNotFoundError, InvalidInputError, NotFoundError, VersionNotFoundError
from lance_core.format.table.feature_flags import check_writable
from lance_core.format.table.manifest import decode_manifest_files
from lance_core.format.table.paths import TEMPORARY_PREFIX, VERSIONS_FOLDER, ManifestName, parse_manifest_name
from lance_core.format.table.refs import Branch
from lance_core.maintenance.cleanup_plan import (
    QUIET_AGE,
    SWEPT_FOLDERS,
    UNVERIFIED_MIN_AGE,
    CandidateFile,
    CleanupRules,
    CleanupStats,
    References,
    RuleArguments,
    classify,
    make_rules,
    summarize,
)
from lance_core.table.branches import list_branches
from lance_core.table.locations import branch_of, objects_at_once
from lance_core.table.read_ahead import each
from lance_core.table.refs import KEEPING_PREFIX, drop_forgotten, list_tags_strictly
from lance_core.table.runtime import SYSTEM_RUNTIME, Runtime
from lance_core.table.snapshot import find_versions, load_manifest_file
from lance_core.telemetry import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from lance_core.format.table.manifest import ManifestFiles
    from lance_core.format.table.refs import Tag
    from lance_core.store.base import Store

__all__ = ["CleanupExplanation", "CleanupStats", "cleanup_old_versions", "explain_cleanup_old_versions"]

_LOGGER = logging.getLogger("lance_core.cleanup")

_DELETE_BATCH = 1000
_MANIFEST_BYTES = 1 << 26
"""Manifests deleted between two looks at the tags are kept in memory, at most so many bytes."""
_READ_AHEAD = 256
"""Manifests in memory while they are judged, unless `_MANIFEST_BYTES` allow fewer."""
_CLOCK_TOLERANCE = timedelta(seconds=10)
"""Stores date files to the second or two, and take a while to answer."""


@frozen(kw_only=True)
class CleanupExplanation:
    """The versions and files that a cleanup would delete.

    Attributes:
        read_version: Newest version.
        stats: Numbers.
        candidate_files: The files.
    """

    read_version: int
    stats: CleanupStats
    candidate_files: tuple[CandidateFile, ...]


@with_options(RuleArguments)
def cleanup_old_versions(
    store: Store, *, runtime: Runtime = SYSTEM_RUNTIME, **rules: Unpack[RuleArguments]
) -> CleanupStats:
    """Delete old versions and the files that only they need; does nothing if there is nothing to do.

    Never touched: the newest version, tagged and detached versions, versions that a branch comes from, and whatever
    these need. Where clocks disagree (ours, that of the store, those of the writers), the one counts that lets less go,
    and a warning is logged.

    Args:
        store: Where the table lies.
        runtime: Clock.
        **rules: See `CleanupRules`; without any, versions of 14 days and more go.

    Raises:
        DatasetNotFoundError: There is no table.
        InvalidInputError: A rule makes no sense, a tagged version would go, or files of no version shall go at once
            though somebody wrote to the table within the last day.
        CorruptDataError: A manifest, tag or branch cannot be read, so that what it needs is unknown.
        UnsupportedError: The same, because the table uses a feature that lance_core does not know.
    """
    with Span("cleanup", store.uri) as span:
        stats = _clean_up(store, make_rules(rules), runtime)
        span.attributes["versions"] = stats.old_versions
        span.add(num_bytes=stats.bytes_removed)
    _LOGGER.info(
        "%s: %d versions and %d data files deleted, %d bytes, %.3f s",
        store.uri,
        stats.old_versions,
        stats.data_files_removed,
        stats.bytes_removed,
        span.seconds,
    )
    return stats


def _clean_up(store: Store, made: CleanupRules, runtime: Runtime) -> CleanupStats:
    drop_forgotten(store, runtime.now() - UNVERIFIED_MIN_AGE)
    now = runtime.now()
    survey = _survey(store, made, now)
    is_agreed = bool(survey.going) and made.judges_age
    if is_agreed:
        agreed = min(now, _clock_of(store))
        if now - agreed > _CLOCK_TOLERANCE:
            _LOGGER.warning("it is %s here, but %s at %s: clean-up goes by the latter", now, agreed, store.uri)
            survey = _survey(store, made, agreed)
        now = agreed
    if made.needs_quiet:
        now = now if is_agreed else min(now, _clock_of(store))
        _check_quiet(store, survey, now)
    # A tag made since then protects its version: tags are written before they are believed.
    manifests = _delete_versions(store, survey)
    for version in find_versions(store).numbers:
        if version > survey.newest:
            with suppress(VersionNotFoundError):  # another clean-up was faster
                survey.needed.add(_load(store, version))
    files = _garbage(store, survey, made, now)
    if not is_agreed and any(file.unverified for file in files):
        # Whether they are old is for the clock to say that dated them: ours may be wrong by years.
        files = _garbage(store, survey, made, min(now, _clock_of(store)))
    _delete(store, [file.path for file in files])
    return summarize([*manifests, *files])


@with_options(RuleArguments)
def explain_cleanup_old_versions(
    store: Store,
    *,
    without_tags: Collection[str] = (),
    runtime: Runtime = SYSTEM_RUNTIME,
    **rules: Unpack[RuleArguments],
) -> CleanupExplanation:
    """Tell what ``cleanup_old_versions`` would delete, without deleting anything; arguments and errors are the same.

    ``without_tags`` names tags to think away: what would go if they were deleted first.
    """
    made = make_rules(rules)
    survey = _survey(store, made, runtime.now(), without_tags)
    if made.needs_quiet:
        _check_quiet(store, survey, runtime.now())
    manifests = [survey.going[version] for version in sorted(survey.going)]
    files = [*manifests, *_garbage(store, survey, made, runtime.now())]
    return CleanupExplanation(read_version=survey.newest, stats=summarize(files), candidate_files=tuple(files))


def _check_quiet(store: Store, survey: _Survey, now: datetime) -> None:
    """Refuse to delete files of no version if somebody wrote to the table lately, who may be about to commit them."""
    committed = survey.newest_committed
    youngest = f"version {survey.newest} was committed", now if committed is None else committed
    for folder in SWEPT_FOLDERS:
        for info in store.list(folder):
            if info.modified > youngest[1]:
                youngest = f"{info.path} was written", info.modified
    if youngest[1] < now - QUIET_AGE:
        return
    age = max(now - youngest[1], timedelta(0))
    raise InvalidInputError(
        f"delete_unverified=True could delete files that a writer is about to commit: {youngest[0]} {age} ago. Pass "
        f"force=True if nobody writes to the table, wait until nothing was written for {QUIET_AGE}, or leave "
        f"delete_unverified out: then such files go after {UNVERIFIED_MIN_AGE}",
        path=store.uri,
    )


def _delete_versions(store: Store, survey: _Survey) -> list[CandidateFile]:
    """Delete manifests, the oldest first; those that were deleted.

    Whoever makes a tag looks for its version afterwards, and we look for tags after deleting versions. If both are so
    close that each saw the old state first, the version is put back: nothing that it needs is deleted yet.
    """
    deleted: dict[int, CandidateFile] = {}
    for candidates in _batches(survey.going):
        protected = _protected(store)
        batch = [version for version in candidates if version not in protected]
        contents = {version: survey.content(store, version) for version in batch}
        store.delete([survey.going[version].path for version in batch])
        protected = _protected(store)
        for version in batch:
            content = contents[version]
            if version in protected and content is not None:
                store.put_if_absent(survey.going[version].path, content)
            else:
                deleted[version] = survey.going[version]
    for version in survey.going.keys() - deleted.keys():
        survey.needed.add(_load(store, version))
    return list(deleted.values())


def _batches(going: Mapping[int, CandidateFile]) -> Iterator[list[int]]:
    """Versions, the oldest first, as many at a time as one request deletes and memory holds."""
    batch: list[int] = []
    num_bytes = 0
    for version in sorted(going):
        num_bytes += going[version].size_bytes
        if batch and (len(batch) == _DELETE_BATCH or num_bytes > _MANIFEST_BYTES):
            yield batch
            batch, num_bytes = [], going[version].size_bytes
        batch.append(version)
    if batch:
        yield batch


def _load(store: Store, version: int) -> ManifestFiles:
    data, path = load_manifest_file(store, version)
    return decode_manifest_files(data, version=version, path=path)


def _get(store: Store, path: str) -> bytes | None:
    try:
        return store.get(path)
    except NotFoundError:  # another clean-up was here
        return None


@mutable(kw_only=True)
class _Survey:
    """The versions that go (their manifest files), and what those and the others need."""

    newest: int
    newest_committed: datetime | None = None
    needed: References
    removed: References
    going: dict[int, CandidateFile] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)
    num_bytes: int = 0

    def keep_content(self, version: int, data: bytes) -> None:
        """Keep a manifest that goes, as far as memory allows, so that it need not be read again to be put back."""
        self.num_bytes += len(data)
        if self.num_bytes <= _MANIFEST_BYTES:
            self.contents[version] = data

    def content(self, store: Store, version: int) -> bytes | None:
        """Return the manifest of a version that goes; None if it is gone already."""
        cached = self.contents.pop(version, None)
        return _get(store, self.going[version].path) if cached is None else cached


def _survey(store: Store, rules: CleanupRules, now: datetime, without_tags: Collection[str] = ()) -> _Survey:
    listed = _manifest_files(store)
    attached = sorted([name.version for name, _ in listed if name.naming is not None], reverse=True)
    if not attached:
        raise DatasetNotFoundError("there is no Lance dataset here", path=store.uri)
    survey = _Survey(newest=attached[0], needed=References(store.uri), removed=References(store.uri))
    ranks = {version: rank for rank, version in enumerate(attached)}
    protected = _protected(store, without_tags)
    tagged: dict[str, int] = {}
    versions = _dated(store, sorted(listed, key=lambda entry: entry[0].version), now)
    current, logs_all = next(versions, None), _LOGGER.isEnabledFor(logging.DEBUG)
    while current is not None:
        following = next(versions, None)
        version, committed = current.name.version, current.committed
        if version == survey.newest:
            survey.newest_committed = committed
        if version == survey.newest and committed is not None and committed - now > _CLOCK_TOLERANCE:
            text = "version %d of %s is of %s, but it is %s: a clock is wrong, and versions may stay too long"
            _LOGGER.warning(text, version, store.uri, committed, now)
        may_go = current.name.naming is not None and rules.allow(
            version,
            timestamp=committed,
            replaced=None if following is None else following.committed,
            rank=ranks[version],
            now=now,
        )
        if logs_all or (may_go and version in protected):
            _log_decision(store, version, protected.get(version, ()), may_go=may_go)
        if may_go and version in protected:
            names = (name for name in protected[version] if not name.startswith(KEEPING_PREFIX))
            tagged.update(dict.fromkeys(names, version))
        if may_go and version not in protected:
            survey.removed.add(current.manifest)
            survey.going[version] = CandidateFile(
                path=current.path, kind="manifest", unverified=False, size_bytes=len(current.data)
            )
            survey.keep_content(version, current.data)
        else:
            survey.needed.add(current.manifest)
        current = following
    if tagged and rules.error_if_tagged_old_versions:
        raise InvalidInputError(
            f"tagged versions would be cleaned up: {tagged}; delete the tags, or pass "
            "error_if_tagged_old_versions=False to keep those versions",
            path=store.uri,
        )
    return survey


def _log_decision(store: Store, version: int, protected_by: Collection[str], *, may_go: bool) -> None:
    if may_go and protected_by:
        _LOGGER.info("version %d of %s stays: %s", version, store.uri, ", ".join(protected_by))
    else:
        _LOGGER.debug("version %d of %s %s", version, store.uri, "goes" if may_go else "stays: the rules keep it")


@mutable(kw_only=True)
class _Version:
    """A version that was read; ``committed`` is when it was committed, as far as that can be believed."""

    name: ManifestName
    path: str
    data: bytes
    manifest: ManifestFiles
    committed: datetime | None


def _dated(store: Store, listed: list[tuple[ManifestName, str]], now: datetime) -> Iterator[_Version]:
    """Read versions, the oldest first.

    None can be older than those before it: a writer whose clock is behind makes versions that look old. What claims to
    come from the future says nothing about those after it.
    """
    before: datetime | None = None
    uri = store.uri
    for (name, path), data in zip(listed, _contents(store, [path for _, path in listed]), strict=True):
        if data is None:
            continue
        manifest = decode_manifest_files(data, version=name.version, path=f"{uri}/{path}")
        check_writable(manifest.writer_feature_flags, path=uri)
        committed = manifest.timestamp
        if committed is not None and name.naming is not None:
            committed = committed if before is None else max(committed, before)
            before = committed if committed <= now else before
        yield _Version(name=name, path=path, data=data, manifest=manifest, committed=committed)


def _contents(store: Store, paths: Sequence[str]) -> Iterator[bytes | None]:
    """Read objects in their order, of a store that is far away many at a time; None for one that is gone."""
    if objects_at_once(store) < 2:
        for path in paths:
            yield _get(store, path)
        return
    at, step = 0, 1
    while at < len(paths):
        batch = list(each(store, (partial(_get, store, path) for path in paths[at : at + step])))
        yield from batch
        largest = max(len(data or b"") for data in batch)
        at, step = at + step, max(1, min(_READ_AHEAD, _MANIFEST_BYTES // max(largest, 1)))


def _manifest_files(store: Store) -> list[tuple[ManifestName, str]]:
    """Names and paths; sizes and dates are those of what is read, so that a directory need not ask for each file."""
    files = ((parse_manifest_name(name), f"{VERSIONS_FOLDER}/{name}") for name in store.names(VERSIONS_FOLDER))
    return [(name, path) for name, path in files if name is not None]


def _protected(store: Store, without_tags: Collection[str] = ()) -> dict[int, list[str]]:
    """Versions that must stay, with the tags that name them (none for the origin of a branch)."""
    protected: dict[int, list[str]] = {}
    _, own_branch = branch_of(store)
    lists: tuple[Callable[[], list[Tag] | list[Branch]], ...] = (
        partial(list_tags_strictly, store),
        partial(list_branches, store),
    )
    for ref in chain.from_iterable(each(store, lists)):
        if isinstance(ref, Branch):
            if ref.parent_branch == own_branch:
                protected.setdefault(ref.parent_version, [])
        elif ref.branch == own_branch and ref.name not in without_tags:
            protected.setdefault(ref.version, []).append(ref.name)
    return protected


def _garbage(store: Store, survey: _Survey, rules: CleanupRules, now: datetime) -> list[CandidateFile]:
    def judged(folder: str) -> list[CandidateFile]:
        files = (
            classify(
                info.path,
                size=info.size,
                modified=info.modified,
                references=survey.needed,
                removed=survey.removed,
                rules=rules,
                now=now,
            )
            for info in store.list(folder)
        )
        return [file for file in files if file is not None]

    return [*chain.from_iterable(each(store, (partial(judged, folder) for folder in SWEPT_FOLDERS)))]


def _clock_of(store: Store) -> datetime:
    """Return the time by the clock of the storage service, which dates the files."""
    path = f"{VERSIONS_FOLDER}/{TEMPORARY_PREFIX}_clock_{uuid.uuid4().hex}"
    store.put(path, b"what time is it?")
    try:
        return max(info.modified for info in store.list(VERSIONS_FOLDER) if info.path == path)
    finally:
        store.delete([path])


def _delete(store: Store, paths: Sequence[str]) -> None:
    batches = (paths[start : start + _DELETE_BATCH] for start in range(0, len(paths), _DELETE_BATCH))
    for _ in each(store, (partial(store.delete, batch) for batch in batches)):
        pass
