"""Keep indices up to date: index the fragments that they miss, merge their segments where it pays."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.change.fragment_reuse import ReuseState, later_moves, write_fragment_reuse
from lance_core.change.indices import IndexTarget, forget_files
from lance_core.common.frozen import frozen, mutable
from lance_core.errors import CorruptDataError, InvalidInputError, LanceError, NotFoundError, UnsupportedError
from lance_core.format.table.index_metadata import holds_row_ids, index_fields, index_kind, shows_moved_rows
from lance_core.format.table.operations import CreateIndex
from lance_core.index.answer import ADDRESS_SHIFT
from lance_core.index.column import column_to_index, path_of
from lance_core.index.files import SegmentFiles
from lance_core.index.kinds import KINDS, kind_of_index
from lance_core.index.protocol import MODEL, RewritableKind, ZonedKind, ZonedSegment
from lance_core.scan.deletions import contains
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.indexed import naming_index
from lance_core.scan.open_files import OpenFiles

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lance_core.format.table.index_metadata import IndexMetadata
    from lance_core.format.table.manifest import Manifest
    from lance_core.format.table.operations import Operation
    from lance_core.index.moved import LaterMoves
    from lance_core.index.protocol import IndexKind, Int64s, Relocation, Segment
    from lance_core.store.base import Store
    from lance_core.table.snapshot import Snapshot

_ALWAYS_MERGED = 1 << 20
_MOST_GROWTH = 4
"""Rows up to which a segment is merged in any case, and how much larger than the newer ones together it may be: so each
row is written a few times at most, whatever the number of appends, and the segments stay few."""


@frozen(kw_only=True)
class Extension:
    """Planned changes to the segments of one index.

    Attributes:
        entries: All segments of the index.
        replaced: Those that the new segment replaces.
        missing: Fragments whose column is read.
        covered: Fragments of the new segment.
    """

    entries: Sequence[IndexMetadata]
    replaced: Sequence[IndexMetadata]
    missing: frozenset[int]
    covered: frozenset[int]

    @property
    def name(self) -> str:
        """Name of the index."""
        return self.entries[0].name


@mutable(kw_only=True)
class OptimizeIndices:
    """Indices that shall cover all fragments again.

    Attributes:
        names: Names of the indices; all of known kinds if None.
        num_to_merge: Number of segments to merge, the newest first; as many as pay if None.
        retrain: Read the column of all fragments.
        optimized: Names of those that the last preparation wrote.
        failed: Errors of those that it could not write, by name.
    """

    names: Collection[str] | None = None
    num_to_merge: int | None = None
    retrain: bool = False
    sees_new_rows: bool = False
    optimized: tuple[str, ...] = ()
    failed: dict[str, LanceError] = field(default_factory=dict[str, LanceError])
    _written: list[SegmentFiles] = field(default_factory=list[SegmentFiles])
    _store: Store | None = None
    _reuse_path: str | None = None

    def plan(self, snapshot: Snapshot) -> list[Extension]:
        """Return what there is to do.

        Raises:
            NotFoundError: There is no index of one of the names.
            UnsupportedError: One of these is of a kind that lance_core does not build.
        """
        manifest, reuse, plans = snapshot.manifest, ReuseState.of(snapshot), list[Extension]()
        for entries in _by_name(snapshot, self.names).values():
            plan = plan_extension(manifest, entries, num_to_merge=self.num_to_merge, retrain=self.retrain, reuse=reuse)
            if plan is not None and (_keeps_moved_rows(snapshot, plan) or _keeps_changed_nulls(snapshot, plan)):
                plan = plan_extension(manifest, entries, num_to_merge=len(entries), reuse=reuse)
            plans += [] if plan is None else [plan]
        return plans

    def has_work(self, snapshot: Snapshot) -> bool:
        """Return whether there is something to do; raises as `plan` does."""
        if self.plan(snapshot):
            return True
        reuse = ReuseState.of(snapshot)
        return reuse is not None and reuse.trimmed(snapshot.manifest.indices) is not None

    def prepare(self, snapshot: Snapshot) -> Operation:
        """Write new segments; an index that fails does not stop the others."""
        self.forget()
        self.failed.clear()
        new: list[IndexMetadata] = []
        removed: list[IndexMetadata] = []
        optimized: list[str] = []
        for extension in self.plan(snapshot):
            try:
                new += self._extend(snapshot, extension)
            except UnsupportedError as error:
                if self.names is not None:  # else it is left to pylance, like indices of unknown kinds
                    self.failed[extension.name] = error
                continue
            except LanceError as error:
                self.failed[extension.name] = error
                continue
            removed += extension.replaced
            optimized.append(extension.name)
        self.optimized = tuple(optimized)
        if not optimized:
            self.raise_failed()
        self._trim(snapshot, new, removed)
        return CreateIndex(new_indices=tuple(new), removed_indices=tuple(removed))

    def _trim(self, snapshot: Snapshot, new: list[IndexMetadata], removed: list[IndexMetadata]) -> None:
        """Drop compactions from the fragment reuse index that no index needs from now on."""
        reuse = ReuseState.of(snapshot)
        if reuse is None:
            return
        gone = {entry.uuid for entry in removed}
        trimmed = reuse.trimmed([*new, *(entry for entry in snapshot.manifest.indices if entry.uuid not in gone)])
        if trimmed is None:
            return
        entry, path = write_fragment_reuse(snapshot.store, trimmed, dataset_version=snapshot.version)
        self._store, self._reuse_path = snapshot.store, path
        new.append(entry)
        removed.append(reuse.entry)

    def raise_failed(self) -> None:
        """Tell which indices could not be written, if there are any.

        Raises:
            LanceError: The error of the index, if it is one.
            CorruptDataError: Several have failed.
        """
        if len(self.failed) == 1:
            (error,) = self.failed.values()
            raise error
        if self.failed:
            causes = "; ".join(f"{name!r}: {error}" for name, error in self.failed.items())
            raise CorruptDataError(
                f"{len(self.failed)} indices could not be optimized, all others were. Call optimize_indices with "
                f"retrain=True to build them again, or drop them. {causes}"
            )

    def _extend(self, snapshot: Snapshot, extension: Extension) -> list[IndexMetadata]:
        if not extension.covered and len(extension.replaced) < len(extension.entries):
            return []
        first = extension.entries[0]
        kind = kind_of_index(first)
        assert kind is not None  # noqa: S101 for the type checker: plans are for known kinds
        column = column_to_index(snapshot.manifest.schema, path_of(snapshot.manifest.schema, first.fields[0]))
        if not kind.takes(column.type):
            raise UnsupportedError(f"index {first.name!r} is over a column of type {column.type}")
        with naming_index(extension.name):
            segments = (
                []
                if self.retrain
                else [kind.open(SegmentFiles.of(snapshot.store, entry), column) for entry in extension.replaced]
            )
            options: dict[str, Any] = {
                **kind.default_options,
                **(segments[0].options if segments else self._options(snapshot, extension)),
            }
        if self.retrain and MODEL in options:
            options[MODEL] = None
        target = self._target(IndexTarget.of(snapshot, kind, column, first.name))
        everything = snapshot.manifest.fragments.select(sorted(extension.covered))
        has_row_ids = snapshot.manifest.uses_stable_row_ids and any(map(holds_row_ids, extension.replaced))
        if (
            not segments
            or has_row_ids
            or not isinstance(kind, RewritableKind)
            or extension.missing == extension.covered
        ):
            return [target.build(everything, options)]
        moves = later_moves(snapshot)
        parts = [
            (segment, _staying((entry.fragment_ids or frozenset()) & extension.covered, moves))
            for segment, entry in zip(segments, extension.replaced, strict=True)
        ]
        try:
            return [self._merged(target, kind, parts, extension, options)]
        except UnsupportedError:
            return [target.build(everything, options)]

    def _merged(
        self,
        target: IndexTarget,
        kind: RewritableKind,
        parts: list[tuple[Segment, Relocation]],
        extension: Extension,
        options: dict[str, Any],
    ) -> IndexMetadata:
        """Merge segments with one of the missing fragments, which exists for that only."""
        if not extension.missing:
            with naming_index(extension.name):
                return target.rewrite(kind, parts, extension.covered)
        newest = self._target(IndexTarget.of(target.snapshot, kind, target.column, target.name))
        newest.build(target.snapshot.manifest.fragments.select(sorted(extension.missing)), options)
        part = (kind.open(newest.files, target.column), _staying(extension.missing))
        with naming_index(extension.name):
            made = target.rewrite(kind, [*parts, part], extension.covered)
        newest.files.remove()
        return made

    def _options(self, snapshot: Snapshot, extension: Extension) -> dict[str, Any]:
        """Return the options of the newest segment that can be read."""
        for entry in reversed(extension.entries):
            kind = kind_of_index(entry)
            column = column_to_index(snapshot.manifest.schema, path_of(snapshot.manifest.schema, entry.fields[0]))
            try:
                return {} if kind is None else dict(kind.open(SegmentFiles.of(snapshot.store, entry), column).options)
            except (CorruptDataError, NotFoundError):
                if not self.retrain:
                    raise
        return {}

    def _target(self, target: IndexTarget) -> IndexTarget:
        self._written.append(target.files)
        return target

    def forget(self) -> None:
        """Remove the files written so far."""
        forget_files(self._written)
        if self._store is not None and self._reuse_path is not None:
            self._store.delete([self._reuse_path])
            self._reuse_path = None


def plan_extension(
    manifest: Manifest,
    entries: Sequence[IndexMetadata],
    *,
    num_to_merge: int | None = None,
    retrain: bool = False,
    reuse: ReuseState | None = None,
) -> Extension | None:
    """Decide what to do for an index; None if nothing.

    Args:
        manifest: The version.
        entries: The segments of the index, the newest last.
        num_to_merge: See `OptimizeIndices`.
        retrain: See `OptimizeIndices`.
        reuse: Compactions that left segments as they were: these are written anew.
    """
    fragments = manifest.fragments
    num_rows = dict(zip(fragments.ids.tolist(), fragments.num_rows.tolist(), strict=True))
    live = frozenset(num_rows)
    if retrain or any(entry.fragment_ids is None for entry in entries):
        return Extension(entries=entries, replaced=entries, missing=live, covered=live)
    coverage = {entry.uuid: (entry.fragment_ids or frozenset()) & live for entry in entries}
    missing = live.difference(*coverage.values())
    sizes = [sum(num_rows[fragment] for fragment in coverage[entry.uuid]) for entry in entries]
    count = _count_to_merge(sizes, sum(num_rows[fragment] for fragment in missing), num_to_merge)
    newest = entries[len(entries) - count :]
    worn = [
        entry
        for entry in entries
        if _is_worn(entry, coverage[entry.uuid]) or (reuse is not None and reuse.needs(entry))
    ]
    if not missing and not worn and count < 2:
        return None
    replaced = [entry for entry in entries if entry in newest or entry in worn]
    covered = missing.union(*(coverage[entry.uuid] for entry in replaced))
    return Extension(entries=entries, replaced=replaced, missing=missing, covered=covered)


def _count_to_merge(sizes: Sequence[int], rows: int, num_to_merge: int | None) -> int:
    """Return how many of the newest segments are merged with ``rows`` new rows."""
    if num_to_merge is not None:
        return min(num_to_merge, len(sizes))
    count = 0
    for size in reversed(sizes):
        if size > max(_ALWAYS_MERGED, _MOST_GROWTH * rows):
            break
        rows += size
        count += 1
    return count


def _is_worn(entry: IndexMetadata, covered: Collection[int]) -> bool:
    """Return whether most of what a segment holds is of fragments that are gone."""
    return 2 * len(covered) < len(entry.fragment_ids or ())


def _by_name(snapshot: Snapshot, names: Collection[str] | None) -> dict[str, list[IndexMetadata]]:
    """Return the segments of the indices to optimize."""
    by_name: dict[str, list[IndexMetadata]] = {}
    for index in snapshot.manifest.indices:
        by_name.setdefault(index.name, []).append(index)
    for name in names or ():
        if name not in by_name:
            raise NotFoundError(f"there is no index {name!r}", path=snapshot.store.uri)
        if not _can_extend(by_name[name]):
            raise UnsupportedError(
                f"index {name!r} is of type {index_kind(by_name[name][0])}; lance_core extends {', '.join(KINDS)} only"
            )
    return {
        name: entries for name, entries in by_name.items() if (names is None or name in names) and _can_extend(entries)
    }


def _can_extend(entries: list[IndexMetadata]) -> bool:
    kinds: list[IndexKind | None] = [kind_of_index(entry) for entry in entries]
    return all(kind is not None and kind is kinds[0] for kind in kinds)


def check_num_to_merge(number: int | None) -> None:
    """Check the argument ``num_indices_to_merge``.

    Raises:
        InvalidInputError: It is below 0.
    """
    if number is not None and number < 0:
        raise InvalidInputError(f"'num_indices_to_merge' must be at least 0, not {number}")


def _keeps_moved_rows(snapshot: Snapshot, plan: Extension) -> bool:
    """Return whether a segment that stays has entries of rows that a new one covers, and pylance would read them."""
    staying = [entry for entry in plan.entries if entry not in plan.replaced and shows_moved_rows(entry)]
    if not staying or not snapshot.manifest.uses_stable_row_ids:
        return False
    newest, files = max(index_fields(entry).dataset_version for entry in staying), OpenFiles(snapshot.store)
    for fragment in snapshot.manifest.fragments.select(sorted(plan.missing)):
        if (FragmentReader(files, fragment).created_versions <= newest).any():
            return True
    return False


def _keeps_changed_nulls(snapshot: Snapshot, plan: Extension) -> bool:
    """Return whether a segment that stays tells nulls of fragments that a new one covers, and pylance would read them.

    Fragments whose column was changed in place leave a segment, and come back with the next one.
    """
    schema = snapshot.manifest.schema
    for entry in plan.entries:
        kind = kind_of_index(entry)
        if not isinstance(kind, ZonedKind) or entry in plan.replaced or not plan.missing:
            continue
        column = column_to_index(schema, path_of(schema, entry.fields[0]))
        try:
            segment = kind.open(SegmentFiles.of(snapshot.store, entry), column)
            nulls = segment.null_rows() if isinstance(segment, ZonedSegment) else None
        except (CorruptDataError, NotFoundError):  # which stays as it is
            continue
        if nulls is not None and not plan.missing.isdisjoint((nulls >> ADDRESS_SHIFT).tolist()):
            return True
    return False


def _staying(fragment_ids: Collection[int], moves: LaterMoves | None = None) -> Relocation:
    """Return the relocation by which rows of some fragments stay where they are and all others are gone.

    Args:
        fragment_ids: The fragments.
        moves: Moves in earlier compactions that a segment may not know of.
    """
    ids = np.array(sorted(fragment_ids), np.int64)

    def relocate(addresses: Int64s) -> Int64s:
        if moves is not None:
            addresses = moves(addresses)
        return np.where(contains(ids, addresses >> ADDRESS_SHIFT), addresses, -1)

    return relocate
