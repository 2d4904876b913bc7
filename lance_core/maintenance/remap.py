"""Remap indices: write the row addresses of rewritten fragments anew, for the commit that replaces these fragments."""

from __future__ import annotations

import uuid
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lance_core.change.fragment_reuse import later_moves, reuse_version, write_fragment_reuse
from lance_core.common.frozen import frozen, replace
from lance_core.errors import CorruptDataError, NotFoundError, UnsupportedError
from lance_core.format.table.fragment_reuse import find_fragment_reuse
from lance_core.format.table.index_metadata import RewrittenIndex, holds_row_ids, index_fields
from lance_core.format.table.operations import DeferredRemap, ReserveFragments, Rewrite
from lance_core.format.table.paths import INDICES_FOLDER
from lance_core.format.table.transaction import Transaction
from lance_core.index.column import find_column, path_of
from lance_core.index.files import SegmentFiles
from lance_core.index.kinds import mover_of
from lance_core.index.protocol import SegmentTarget
from lance_core.index.row_moves import FragmentPlaces, MovedGroup, RowMoves
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.open_files import OpenFiles
from lance_core.table.commit import commit
from lance_core.table.fragment_reuse import load_fragment_reuse
from lance_core.table.rules.apply import next_fragment_id, with_fragment_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.format.table.index_metadata import IndexMetadata
    from lance_core.format.table.operations import RewriteGroup
    from lance_core.index.column import IndexedColumn
    from lance_core.index.moved import LaterMoves
    from lance_core.index.protocol import Int64s, MovableKind, Relocation
    from lance_core.table.snapshot import Snapshot


@frozen(kw_only=True)
class _Segment:
    """A segment that can be remapped."""

    entry: IndexMetadata
    kind: MovableKind
    column: IndexedColumn


def _remappable(snapshot: Snapshot, operation: Rewrite) -> list[_Segment]:
    """Return the segments that hold addresses of rewritten rows and whose kind can be remapped."""
    manifest = snapshot.manifest
    old = [{fragment.id for fragment in group.old_fragments} for group in operation.groups]
    segments: list[_Segment] = []
    for entry in manifest.indices:
        covered = entry.fragment_ids or frozenset()
        has_addresses = not (manifest.uses_stable_row_ids and holds_row_ids(entry))
        if not has_addresses or not any(covered.issuperset(ids) for ids in old):
            continue
        column = find_column(manifest.schema, path_of(manifest.schema, entry.fields[0])) if entry.fields else None
        kind = None if column is None else mover_of(index_fields(entry), column)
        if column is not None and kind is not None:
            segments.append(_Segment(entry=entry, kind=kind, column=column))
    return segments


class RemappedIndices:
    """Files of remapped segments on the way to their commit.

    Args:
        snapshot: The version before the rewrite.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._written: list[SegmentFiles] = []
        self._reuse_path: str | None = None
        self._has_changed = False

    @property
    def has_remapped(self) -> bool:
        """True if there were indices to remap; a commit may then have lost against another change to them."""
        return self._has_changed

    def remapped(self, operation: Rewrite) -> Rewrite:
        """Return a rewrite that replaces the files of indices, too; the ids of its new fragments are reserved for that.

        Segments that cannot be read lose their coverage, which the rewrite reports.
        """
        segments = _remappable(self._snapshot, operation)
        count = sum(len(group.new_fragments) for group in operation.groups)
        if not segments or not count:
            return operation
        self._has_changed = True
        operation, _ = self._with_reserved_ids(operation, count)
        moves = row_moves(OpenFiles(self._snapshot.store), operation.groups)
        earlier = later_moves(self._snapshot)
        rewritten: list[RewrittenIndex] = []
        for segment in segments:
            identity = uuid.uuid4()
            files = SegmentFiles(self._snapshot.store, f"{INDICES_FOLDER}/{identity}")
            self._written.append(files)
            try:
                relocate = _of_covered(segment.entry, moves, earlier)
                rewritten.append(self._remap(segment, files, relocate, identity.bytes))
            except (CorruptDataError, NotFoundError, UnsupportedError):
                files.remove()
        return replace(operation, rewritten_indices=tuple(rewritten))

    def deferred(self, operation: Rewrite) -> Rewrite:
        """Return a rewrite that leaves the files of indices, and tells in the fragment reuse index where rows went.

        Indices stay as they are until `optimize_indices` writes them anew. Where fragments are not in the order of
        their ids, which that index takes for granted, indices are remapped at once.

        Raises:
            UnsupportedError: The fragment reuse index has a layout that is not known.
        """
        manifest = self._snapshot.manifest
        covered = [
            entry.fragment_ids or frozenset[int]()
            for entry in manifest.indices
            if entry.fields and not (manifest.uses_stable_row_ids and holds_row_ids(entry))
        ]
        groups = [group for group in operation.groups if _is_covered(group, covered)]
        if not groups:
            return operation
        if not all(_is_ascending(group) for group in groups):
            return self.remapped(operation)
        self._has_changed = True
        count = sum(len(group.new_fragments) for group in operation.groups)
        numbered, version = self._with_reserved_ids(operation, count)
        groups = [group for group in numbered.groups if _is_covered(group, covered)]
        added = reuse_version(OpenFiles(self._snapshot.store), groups, dataset_version=version)
        entry = find_fragment_reuse(manifest.indices)
        before = () if entry is None else load_fragment_reuse(self._snapshot.store, entry)
        if before is None:
            raise UnsupportedError(
                "cannot defer the remap of indices: the fragment reuse index has a layout that is not known",
                path=self._snapshot.store.uri,
            )
        made, self._reuse_path = write_fragment_reuse(self._snapshot.store, (*before, added), dataset_version=version)
        return replace(
            numbered, deferred_remap=DeferredRemap(entry=made, replaces=None if entry is None else entry.uuid)
        )

    def _with_reserved_ids(self, operation: Rewrite, count: int) -> tuple[Rewrite, int]:
        """Return the rewrite with ids, and the version that reserved them."""
        reservation = Transaction(
            read_version=self._snapshot.version,
            uuid=str(uuid.uuid4()),
            operation=ReserveFragments(num_fragments=count),
        )
        reserved = commit(self._snapshot.store, reservation, read=self._snapshot, has_new_uuid=True)
        return with_fragment_ids(operation, next_fragment_id(reserved.manifest) - count), reserved.version

    def _remap(self, segment: _Segment, files: SegmentFiles, relocate: Relocation, identity: bytes) -> RewrittenIndex:
        old = SegmentFiles.of(self._snapshot.store, segment.entry)
        opened = segment.kind.open(old, segment.column)
        stable = self._snapshot.manifest.uses_stable_row_ids
        target = SegmentTarget(files=files, column=segment.column, with_stable_row_ids=stable)
        content = segment.kind.rewrite(target, [(opened, relocate)])
        return RewrittenIndex(
            old_id=segment.entry.uuid,
            new_id=identity,
            type_url=segment.kind.type_url,
            details=content.details,
            index_version=content.index_version,
            files=tuple(files.written.items()),
        )

    def forget(self) -> None:
        """Remove the files written."""
        for files in self._written:
            files.remove()
        if self._reuse_path is not None:
            self._snapshot.store.delete([self._reuse_path])


def _is_covered(group: RewriteGroup, covered: Sequence[frozenset[int]]) -> bool:
    old = {fragment.id for fragment in group.old_fragments}
    return any(old <= ids for ids in covered)


def _is_ascending(group: RewriteGroup) -> bool:
    return all(first.id < second.id for first, second in pairwise(group.old_fragments))


def row_moves(files: OpenFiles, groups: Sequence[RewriteGroup]) -> RowMoves:
    """Return the moves of the rows of rewritten fragments.

    Args:
        files: The dataset's open files.
        groups: The old fragments, and the new ones with their ids.
    """
    return RowMoves(
        [
            MovedGroup(
                ids=[fragment.id for fragment in group.old_fragments],
                num_rows=[fragment.physical_rows for fragment in group.old_fragments],
                deleted=[FragmentReader(files, fragment).deleted for fragment in group.old_fragments],
                new_ids=[fragment.id for fragment in group.new_fragments],
                new_num_rows=[fragment.physical_rows for fragment in group.new_fragments],
            )
            for group in groups
        ]
    )


def _of_covered(entry: IndexMetadata, moves: RowMoves, earlier: LaterMoves | None) -> Relocation:
    """Return the moves of the rows that a segment covers; its stale entries are gone.

    Args:
        entry: The segment.
        moves: What moves now.
        earlier: Moves of earlier compactions that the segment may not know of.
    """
    fragments = FragmentPlaces(np.array(sorted(entry.fragment_ids or ()), np.int64))

    def relocate(addresses: Int64s) -> Int64s:
        if earlier is not None:
            addresses = earlier(addresses)
        is_covered = fragments.of(addresses) >= 0
        if is_covered.all():
            return moves(addresses)
        after = np.full(len(addresses), -1, np.int64)
        after[is_covered] = moves(addresses[is_covered])
        return after

    return relocate
