"""Searches for the nearest vectors: how the rows are found.

Fragments that an index covers are searched in it, all others exactly. A filter that comes first says which rows are
searched; one that comes later is asked of the rows that were found.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.kernels import numbers_array
from lance_core.index.vector.distances import pair_distances
from lance_core.scan.ranking import RankedRows
from lance_core.scan.search.indexed_vectors import search_indices
from lance_core.scan.search.nearest import Nearest, parse_nearest
from lance_core.scan.search.vector_rows import search_rows, take_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.index.vector.distances import Doubles, Int64s
    from lance_core.index.vector.top_rows import TopRows
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.plan import ScanPlan

DISTANCE = "_distance"
QUERY_INDEX = "query_index"
DISTANCE_FIELD = pa.field(DISTANCE, pa.float32())
_QUERY_FIELD = pa.field(QUERY_INDEX, pa.int32(), nullable=False)


@frozen(kw_only=True)
class NearestRanking:
    """A search for the nearest vectors of a version.

    Attributes:
        manifest: The version.
        nearest: What is asked for.
        prefilter: Plan that asks which rows to search; None for all.
        leading: The number of the query, if there are several.
        trailing: The distance.
    """

    manifest: Manifest
    nearest: Nearest
    prefilter: ScanPlan | None
    leading: Sequence[pa.Field]
    trailing: Sequence[pa.Field] = (DISTANCE_FIELD,)

    @property
    def text(self) -> str:
        """Description of the search, for explanations of the plan."""
        nearest = self.nearest
        return f"nearest {nearest.k} of {nearest.column.path!r} to {nearest.num_queries} queries"

    def rank(self, files: OpenFiles, fragments: Sequence[Fragment]) -> RankedRows:
        """Find the rows, ordered by query, distance and row address."""
        nearest = self.nearest
        top = nearest.top()
        rest = fragments
        if nearest.use_index and not nearest.is_multivector:
            indexed = search_indices(self.manifest, files, fragments, nearest, self.prefilter)
            if indexed is not None:
                nearest = replace(nearest, metric=indexed.metric)
                rest = indexed.uncovered
                # Rows that are compared exactly must not be ranked beside distances of codes.
                is_refined = nearest.refine_factor is not None or (bool(rest) and not nearest.only_index)
                is_refined = is_refined and not indexed.is_exact
                self._add(top, files, indexed.rows, nearest, is_refined=is_refined)
        if rest and not nearest.only_index:
            search_rows(files, rest, nearest, self.prefilter, top)
        queries, distances, rows = top.finish()
        with np.errstate(over="ignore"):  # infinite in the type of the column
            columns: dict[str, pa.Array] = {DISTANCE: numbers_array(distances.astype(np.float32))}
        if nearest.is_batch:
            columns[QUERY_INDEX] = numbers_array(queries.astype(np.int32))
        return RankedRows(addresses=rows.astype(np.uint64), columns=columns)

    def _add(
        self,
        top: TopRows,
        files: OpenFiles,
        ranked: tuple[Int64s, Doubles, Int64s],
        nearest: Nearest,
        *,
        is_refined: bool,
    ) -> None:
        """Take in what an index found, with the distances of the vectors themselves if that is asked for."""
        queries, distances, rows = ranked
        if is_refined and len(rows):
            unique, order = np.unique(rows, return_inverse=True)
            vectors = take_vectors(self.manifest, files, nearest.column, unique)
            asked = nearest.queries if len(nearest.queries) == 1 else nearest.queries[queries]
            distances = pair_distances(asked, vectors[order], nearest.exact_metric)
        top.add(queries, distances, rows)


def nearest_ranking(
    manifest: Manifest, nearest: Mapping[str, Any], prefilter: ScanPlan | None, *, only_index: bool
) -> NearestRanking:
    """Return a search of a version, ready to run.

    Args:
        manifest: The version.
        nearest: As in `LanceDataset.scanner`.
        prefilter: Plan that asks which rows to search; None for all.
        only_index: Leave out rows that no index covers.

    Raises:
        InvalidInputError: It does not fit the table.
    """
    checked = parse_nearest(manifest.schema, nearest, only_index=only_index)
    leading = (_QUERY_FIELD,) if checked.is_batch else ()
    return NearestRanking(manifest=manifest, nearest=checked, prefilter=prefilter, leading=leading)
