"""Searches in the vector indices of a version.

Files of an index hold rows that are deleted, moved or changed since: rows are searched if they are live and in a
fragment that the index covers. Fragments that it does not cover are left to the caller.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.errors import UnsupportedError
from lance_core.format.index.vector_index import LAST_VERSION, TYPE_URL
from lance_core.format.table.fragment_list import ids_of, with_ids, without_ids
from lance_core.format.table.fragment_reuse import find_fragment_reuse
from lance_core.format.table.index_metadata import holds_row_ids, index_fields
from lance_core.index.files import SegmentFiles
from lance_core.index.moved import load_later_moves
from lance_core.index.vector.distances import default_metric
from lance_core.index.vector.segment import RowLocator, SearchedRows, VectorSegment
from lance_core.scan.fragment_reader import readers_of, row_places
from lance_core.scan.indexed import naming_index
from lance_core.scan.search.row_mask import rows_to_search

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.index_metadata import IndexMetadata
    from lance_core.format.table.manifest import Manifest
    from lance_core.index.moved import LaterMoves
    from lance_core.index.row_moves import RowPositions
    from lance_core.index.vector.distances import Doubles, Int64s
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.plan import ScanPlan
    from lance_core.scan.search.nearest import Nearest


@frozen(kw_only=True)
class IndexedRows:
    """Rows that an index found.

    Attributes:
        metric: The metric of the index.
        rows: Number of the query, distance and address of each row.
        is_exact: The distances are those of the vectors themselves.
        uncovered: Fragments that the index does not cover.
    """

    metric: str
    rows: tuple[Int64s, Doubles, Int64s]
    is_exact: bool
    uncovered: Sequence[Fragment]


def vector_segments(manifest: Manifest, field_id: int) -> dict[str, list[IndexMetadata]]:
    """Return the segments of the vector indices over a field, by name of the index."""
    indices: dict[str, list[IndexMetadata]] = {}
    for index in manifest.indices:
        if index.fields != (field_id,):
            continue
        fields = index_fields(index)
        is_vector = fields.details is not None and fields.details[0].lower() == TYPE_URL.lower()
        if is_vector and fields.index_version <= LAST_VERSION and fields.fragment_ids:
            indices.setdefault(index.name, []).append(index)
    return indices


def open_vector_segment(files: OpenFiles, index: IndexMetadata, nearest: Nearest) -> VectorSegment:
    """Return a segment of a vector index; it stays open with the dataset."""
    opened = files.index_segment(index.uuid, lambda: VectorSegment(SegmentFiles.of(files.store, index), nearest.column))
    if not isinstance(opened, VectorSegment):
        raise UnsupportedError(f"index {index.name!r} is not a vector index")
    return opened


def search_indices(
    manifest: Manifest,
    files: OpenFiles,
    fragments: Sequence[Fragment],
    nearest: Nearest,
    prefilter: ScanPlan | None,
) -> IndexedRows | None:
    """Search an index over the column.

    Args:
        manifest: The version.
        files: The dataset's open files.
        fragments: The fragments to search.
        nearest: What is asked for.
        prefilter: Plan of the rows to search; None for all.

    Returns:
        What it found; None if there is no index of the metric that is asked for.

    Raises:
        CorruptDataError: A file of the index is damaged.
        UnsupportedError: lance_core cannot read the index.
    """
    if manifest.index_section is None:
        return None
    for name, entries in vector_segments(manifest, nearest.column.leaf.id).items():
        with naming_index(name):
            segments = [(entry, open_vector_segment(files, entry, nearest)) for entry in entries]
            metric = segments[0][1].model.metric
            if nearest.metric is None or nearest.metric == metric:
                return _search(manifest, files, fragments, nearest, prefilter, segments=segments)
    if nearest.only_index:
        kind = nearest.column.type.value_type
        metric = nearest.metric or default_metric(kind)
        return IndexedRows(metric=metric, rows=nearest.top().finish(), is_exact=True, uncovered=())
    return None


def _search(
    manifest: Manifest,
    files: OpenFiles,
    fragments: Sequence[Fragment],
    nearest: Nearest,
    prefilter: ScanPlan | None,
    *,
    segments: Sequence[tuple[IndexMetadata, VectorSegment]],
) -> IndexedRows:
    covered = [np.fromiter(entry.fragment_ids or (), np.int64) for entry, _ in segments]
    ids = np.intersect1d(ids_of(fragments), np.concatenate(covered))
    is_exact = all(segment.model.codes.is_exact for _, segment in segments)
    factor = None if is_exact else nearest.refine_factor
    top = nearest.top() if factor is None else nearest.top(factor, has_range=False)
    queries, distances, rows = top.finish()
    if len(ids):
        positions = readers_of(files, manifest.fragments).positions
        mask = None
        if prefilter is not None or len(fragments) < len(manifest.fragments):
            mask = rows_to_search(manifest, files, with_ids(fragments, ids.tolist()), prefilter).mask
        for entry, segment in segments:
            locator = segment.kept_for(manifest, partial(_locator, manifest, files, entry, positions))
            searched = SearchedRows(locator=locator, mask=mask)
            segment.search(nearest.queries, nearest.probes, nearest.k * (factor or 1), top, searched)
        queries, distances, rows = top.finish()
        rows = positions.addresses(rows)
    return IndexedRows(
        metric=segments[0][1].model.metric,
        rows=(queries, distances, rows),
        is_exact=is_exact,
        uncovered=without_ids(fragments, covered),
    )


def _moves(files: OpenFiles, reuse: IndexMetadata) -> LaterMoves:
    moves = files.row_moves(reuse.uuid, lambda: load_later_moves(files.store, reuse))
    if moves is None:
        raise UnsupportedError("the fragment reuse index has a layout that is not known; search with use_index=False")
    return moves


def _locator(manifest: Manifest, files: OpenFiles, entry: IndexMetadata, positions: RowPositions) -> RowLocator:
    """Return what finds the live rows of a segment's entries in the fragments that it covers."""
    by_row_id = manifest.uses_stable_row_ids and holds_row_ids(entry)
    reuse = None if by_row_id else find_fragment_reuse(manifest.indices)
    moves = None if reuse is None else _moves(files, reuse)
    fragments = manifest.fragments.select(sorted(entry.fragment_ids or ()))
    locate = row_places(files, fragments, by_row_id=by_row_id)
    return RowLocator(lambda rows: positions.of(locate(rows if moves is None else moves(rows))))
