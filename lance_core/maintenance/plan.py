"""Selection of the fragments to rewrite, from the manifest alone.

Source: the compaction planner of pylance 14.0.2, whose plans these rules reproduce. Fragments are walked in the order
of their ids. A candidate has too many deleted rows (worth rewriting by itself) or too few rows (worth rewriting with a
neighbour). Consecutive candidates that the same indices cover form a bin; bins are cut into tasks of about the target
size. Fragments never move past one that stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import frozen, replace
from lance_core.errors import InvalidInputError
from lance_core.format.file.file_version import check_writable, resolve_version
from lance_core.format.table.fragment import file_version_of
from lance_core.maintenance.budget import DEFAULT_MEMORY, LEAST_MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest

_CONFIG_PREFIX = "lance.compaction."


@frozen(kw_only=True)
class CompactionOptions:
    """Options of compaction; field names as in pylance.

    Attributes:
        target_rows_per_fragment: Rows that new fragments shall have.
        max_bytes_per_file: Bytes in a full data file, roughly.
        materialize_deletions: Rewrite fragments that have many deleted rows.
        materialize_deletions_threshold: Share of deleted rows above which they are rewritten.
        batch_size: Rows read at a time; None for as many as make about 32 MiB.
        max_source_fragments: Fragments to rewrite at most; whole tasks that would exceed it wait.
        max_source_rows: Live rows to rewrite at most.
        max_source_bytes: Bytes of data files to rewrite at most.
        excluded_fragment_ids: Fragments that stay as they are; nothing is merged across them.
        compaction_mode: "reencode" decodes all rows; "try_binary_copy" copies pages as they are where files allow it;
            "force_binary_copy" refuses what cannot be copied; None copies where pages are large enough to stay.
        max_memory_bytes: Memory that rewriting may take, divided among tasks that run at the same time in one process;
            roughly, as values of unusual size count late. Not in pylance.
        data_storage_version: File version of the new files; None for that of the table. Fragments with files of other
            versions are rewritten whatever their size, so a table can be migrated a few fragments at a time (see
            ``max_source_fragments`` and its like). The table keeps its own version for other writes, as with pylance.
        defer_index_remap: Leave the files of indices as they are and record where rows went, until `optimize_indices`
            writes the indices anew; queries use them meanwhile. Not for tables with stable row ids.
    """

    target_rows_per_fragment: int = 1024 * 1024
    max_bytes_per_file: int = 90 * 1024**3
    materialize_deletions: bool = True
    materialize_deletions_threshold: float = 0.1
    batch_size: int | None = None
    max_source_fragments: int | None = None
    max_source_rows: int | None = None
    max_source_bytes: int | None = None
    excluded_fragment_ids: frozenset[int] = frozenset()
    compaction_mode: str | None = None
    max_memory_bytes: int = DEFAULT_MEMORY
    data_storage_version: str | None = None
    defer_index_remap: bool = False


@frozen(kw_only=True)
class RewriteTask:
    """Fragments to rewrite together.

    Attributes:
        read_version: Version the fragments are from.
        fragments: The fragments as they are in that version, neighbours in the order of the table.
    """

    read_version: int
    fragments: tuple[Fragment, ...]


def make_options(given: Mapping[str, object], config: Mapping[str, str]) -> CompactionOptions:
    """Options from arguments (None means not given), else from the table's config, else the defaults.

    Raises:
        InvalidInputError: A value that makes no sense.
    """
    options: dict[str, object] = {}
    for name, kind in _OPTION_TYPES.items():
        text = config.get(_CONFIG_PREFIX + name)
        if given.get(name) is not None:
            options[name] = given[name]
        elif text is not None:
            options[name] = _parse(name, text, kind)
    made = CompactionOptions(**options)  # type: ignore[arg-type]
    if made.data_storage_version is not None:
        version = resolve_version(made.data_storage_version)
        check_writable(version)
        made = replace(made, data_storage_version=version.name)
    if made.target_rows_per_fragment < 1 or made.max_bytes_per_file < 1:
        raise InvalidInputError("'target_rows_per_fragment' and 'max_bytes_per_file' must be at least 1")
    if made.compaction_mode not in _MODES:
        raise InvalidInputError(f"'compaction_mode' must be one of {_MODES}, not {made.compaction_mode!r}")
    if made.max_memory_bytes < LEAST_MEMORY:
        raise InvalidInputError(f"'max_memory_bytes' must be at least {LEAST_MEMORY:,}, not {made.max_memory_bytes:,}")
    return made


def _parse(name: str, text: str, kind: type) -> object:
    try:
        return {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError) as error:
        raise InvalidInputError(
            f"config key '{_CONFIG_PREFIX}{name}' must be of type {kind.__name__}, but is {text!r}"
        ) from error


_OPTION_TYPES: dict[str, type] = {
    "target_rows_per_fragment": int,
    "max_bytes_per_file": int,
    "materialize_deletions": bool,
    "materialize_deletions_threshold": float,
    "batch_size": int,
    "max_source_fragments": int,
    "max_source_rows": int,
    "max_source_bytes": int,
    "excluded_fragment_ids": frozenset,
    "compaction_mode": str,
    "max_memory_bytes": int,
    "data_storage_version": str,
    "defer_index_remap": bool,
}
_MODES = (None, "reencode", "try_binary_copy", "force_binary_copy")


def plan_compaction(manifest: Manifest, options: CompactionOptions) -> tuple[RewriteTask, ...]:
    """Return the tasks of a compaction; none if nothing is worth it."""
    fragments = manifest.fragments
    live = fragments.num_rows.tolist()
    cuts = [cut for bin_ in _bins(manifest, options) for cut in _cut(bin_, live, options.target_rows_per_fragment)]
    chosen = _within_budget(manifest, cuts, live, options)
    return tuple(_task(manifest, bin_) for bin_ in chosen)


def plan_materialization(manifest: Manifest, *, threshold: float = 0.0) -> tuple[RewriteTask, ...]:
    """One task for each fragment whose share of deleted rows is above the threshold."""
    fragments = manifest.fragments
    heavy = fragments.num_deleted_rows > fragments.physical_rows * threshold
    return tuple(_task(manifest, [index]) for index in heavy.nonzero()[0].tolist())


def _task(manifest: Manifest, indices: Sequence[int]) -> RewriteTask:
    fragments = tuple(manifest.fragments[index] for index in indices)
    return RewriteTask(read_version=manifest.version, fragments=fragments)


def _bins(manifest: Manifest, options: CompactionOptions) -> Iterator[list[int]]:
    """Runs of neighbouring candidates, as places in the list of fragments."""
    fragments = manifest.fragments
    is_heavy = fragments.num_deleted_rows > fragments.physical_rows * options.materialize_deletions_threshold
    is_heavy &= options.materialize_deletions
    is_heavy |= _is_of_other_version(manifest, options.data_storage_version)
    is_candidate = is_heavy | (fragments.physical_rows < options.target_rows_per_fragment)
    ids = fragments.ids.tolist()
    covering = _covering_indices(manifest)
    current: list[int] = []
    cover: frozenset[int] = frozenset()
    for position, fragment_id in enumerate(ids):
        fits = bool(is_candidate[position]) and fragment_id not in options.excluded_fragment_ids
        own_cover = covering(fragment_id)
        if current and (not fits or own_cover != cover):
            if len(current) > 1 or is_heavy[current[0]]:
                yield current
            current = []
        if fits:
            current.append(position)
            cover = own_cover
    if len(current) > 1 or (current and is_heavy[current[0]]):
        yield current


def _is_of_other_version(manifest: Manifest, wanted: str | None) -> npt.NDArray[np.bool_]:
    """Return an array of shape (fragments,): which fragments have files of another version than is wanted."""
    if wanted is None:
        return np.zeros(len(manifest.fragments), np.bool_)
    return np.array(
        [any(file_version_of(file) != wanted for file in fragment.files) for fragment in manifest.fragments], np.bool_
    )


def _covering_indices(manifest: Manifest) -> Callable[[int], frozenset[int]]:
    """For a fragment id, which index entries cover it; an entry that does not say is taken to cover all."""
    covered = [index.fragment_ids for index in manifest.indices]
    if not covered:
        return lambda _: frozenset()
    return lambda fragment_id: frozenset(
        number for number, ids in enumerate(covered) if ids is None or fragment_id in ids
    )


def _cut(indices: list[int], live: Sequence[int], target: int) -> Iterator[list[int]]:
    """Take fragments until the target is reached, as long as what remains reaches it as well."""
    remaining = sum(live[index] for index in indices)
    current: list[int] = []
    rows = 0
    for index in indices:
        current.append(index)
        rows += live[index]
        remaining -= live[index]
        if rows >= target and remaining >= target:
            yield current
            current, rows = [], 0
    if current:
        yield current


def _within_budget(
    manifest: Manifest, cuts: Sequence[list[int]], live: Sequence[int], options: CompactionOptions
) -> Iterator[list[int]]:
    """Tasks from the front until the next would exceed a limit."""
    limits = (options.max_source_fragments, options.max_source_rows, options.max_source_bytes)
    spent = [0, 0, 0]
    for bin_ in cuts:
        size = 0
        if options.max_source_bytes is not None:
            size = sum(file.file_size_bytes for index in bin_ for file in manifest.fragments[index].files)
        spent = [a + b for a, b in zip(spent, (len(bin_), sum(live[p] for p in bin_), size), strict=True)]
        if any(limit is not None and used > limit for limit, used in zip(limits, spent, strict=True)):
            return
        yield bin_
