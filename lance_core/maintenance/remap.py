"""Remap indices: write the row addresses of rewritten fragments anew, for the commit that replaces these fragments."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lance_core.errors import CorruptDataError, NotFoundError, UnsupportedError
from lance_core.format.index_metadata import RewrittenIndex, holds_row_ids
from lance_core.format.operations import ReserveFragments, Rewrite
from lance_core.format.paths import INDICES_FOLDER
from lance_core.format.transaction import Transaction
from lance_core.frozen import frozen
from lance_core.index.column import find_column, path_of
from lance_core.index.files import SegmentFiles
from lance_core.index.kinds import kind_of_index
from lance_core.index.protocol import RewritableKind
from lance_core.maintenance.row_moves import FragmentPlaces, RowMoves
from lance_core.scan.open_files import OpenFiles
from lance_core.table.apply import next_fragment_id, with_fragment_ids
from lance_core.table.commit import commit

if TYPE_CHECKING:
    from lance_core.format.index_metadata import IndexMetadata
    from lance_core.index.column import IndexedColumn
    from lance_core.index.protocol import Int64s, Relocation
    from lance_core.table.snapshot import Snapshot


@frozen(kw_only=True)
class _Segment:
    """A segment that can be remapped."""

    entry: IndexMetadata
    kind: RewritableKind
    column: IndexedColumn


def _remappable(snapshot: Snapshot, operation: Rewrite) -> list[_Segment]:
    """Return the segments that hold addresses of rewritten rows and whose kind can be remapped."""
    manifest = snapshot.manifest
    old = [{fragment.id for fragment in group.old_fragments} for group in operation.groups]
    segments: list[_Segment] = []
    for entry in manifest.indices:
        kind = kind_of_index(entry)
        covered = entry.fragment_ids or frozenset()
        if not isinstance(kind, RewritableKind) or not any(covered.issuperset(ids) for ids in old):
            continue
        column = find_column(manifest.schema, path_of(manifest.schema, entry.fields[0])) if entry.fields else None
        has_addresses = not (manifest.uses_stable_row_ids and holds_row_ids(entry))
        if has_addresses and column is not None and kind.takes(column.type):
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

    @property
    def has_remapped(self) -> bool:
        """True if there were indices to remap; a commit may then have lost against another change to them."""
        return bool(self._written)

    def remapped(self, operation: Rewrite) -> Rewrite:
        """Return a rewrite that replaces the files of indices, too; the ids of its new fragments are reserved for that.

        Segments that cannot be read lose their coverage, which the rewrite reports.
        """
        segments = _remappable(self._snapshot, operation)
        count = sum(len(group.new_fragments) for group in operation.groups)
        if not segments or not count:
            return operation
        operation = self._with_reserved_ids(operation, count)
        moves = RowMoves(OpenFiles(self._snapshot.store), operation.groups)
        rewritten: list[RewrittenIndex] = []
        for segment in segments:
            identity = uuid.uuid4()
            files = SegmentFiles(self._snapshot.store, f"{INDICES_FOLDER}/{identity}")
            self._written.append(files)
            try:
                rewritten.append(self._remap(segment, files, moves, identity.bytes))
            except (CorruptDataError, NotFoundError, UnsupportedError):
                files.remove()
        return replace(operation, rewritten_indices=tuple(rewritten))

    def _with_reserved_ids(self, operation: Rewrite, count: int) -> Rewrite:
        reservation = Transaction(
            read_version=self._snapshot.version,
            uuid=str(uuid.uuid4()),
            operation=ReserveFragments(num_fragments=count),
        )
        reserved = commit(self._snapshot.store, reservation, read=self._snapshot, has_new_uuid=True)
        return with_fragment_ids(operation, next_fragment_id(reserved.manifest) - count)

    def _remap(self, segment: _Segment, files: SegmentFiles, moves: RowMoves, identity: bytes) -> RewrittenIndex:
        old = SegmentFiles.of(self._snapshot.store, segment.entry)
        opened = segment.kind.open(old, segment.column)
        content = segment.kind.rewrite(
            files,
            segment.column,
            [(opened, _of_covered(segment.entry, moves))],
            with_stable_row_ids=self._snapshot.manifest.uses_stable_row_ids,
        )
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


def _of_covered(entry: IndexMetadata, moves: RowMoves) -> Relocation:
    """Return the moves of the rows that a segment covers; its stale entries are gone."""
    fragments = FragmentPlaces(np.array(sorted(entry.fragment_ids or ()), np.int64))

    def relocate(addresses: Int64s) -> Int64s:
        is_covered = fragments.of(addresses) >= 0
        if is_covered.all():
            return moves(addresses)
        after = np.full(len(addresses), -1, np.int64)
        after[is_covered] = moves(addresses[is_covered])
        return after

    return relocate
