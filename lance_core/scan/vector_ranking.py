"""Searches for the nearest vectors: how the rows are found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.frozen import frozen
from lance_core.scan.nearest import parse_nearest
from lance_core.scan.ranking import RankedRows
from lance_core.scan.vector_rows import search_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_core.format.fragment import Fragment
    from lance_core.format.manifest import Manifest
    from lance_core.scan.nearest import Nearest
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.plan import ScanPlan

DISTANCE = "_distance"
QUERY_INDEX = "query_index"
_DISTANCE_FIELD = pa.field(DISTANCE, pa.float32())
_QUERY_FIELD = pa.field(QUERY_INDEX, pa.int32(), nullable=False)


@frozen(kw_only=True)
class NearestRanking:
    """A search for the nearest vectors of a version.

    Attributes:
        manifest: The version.
        nearest: What is asked for.
        prefilter: Plan of the rows to search; None for all.
        leading: The number of the query, if there are several.
        trailing: The distance.
    """

    manifest: Manifest
    nearest: Nearest
    prefilter: ScanPlan | None
    leading: Sequence[pa.Field]
    trailing: Sequence[pa.Field] = (_DISTANCE_FIELD,)

    @property
    def text(self) -> str:
        """Description of the search, for explanations of the plan."""
        nearest = self.nearest
        return f"nearest {nearest.k} of {nearest.column.path!r} to {nearest.num_queries} queries"

    def rank(self, files: OpenFiles, fragments: Sequence[Fragment]) -> RankedRows:
        """Find the rows, ordered by query, distance and row address."""
        nearest, top = self.nearest, self.nearest.top()
        search_rows(files, fragments, nearest, self.prefilter, top)
        queries, distances, rows = top.finish()
        columns: dict[str, pa.Array] = {DISTANCE: pa.array(distances.astype(np.float32))}
        if nearest.is_batch:
            columns[QUERY_INDEX] = pa.array(queries.astype(np.int32))
        return RankedRows(addresses=rows.astype(np.uint64), columns=columns)


def nearest_ranking(
    manifest: Manifest, nearest: Mapping[str, Any], prefilter: ScanPlan | None, *, only_index: bool
) -> NearestRanking:
    """Return a search of a version, ready to run.

    Args:
        manifest: The version.
        nearest: As in `LanceDataset.scanner`.
        prefilter: Plan of the rows to search; None for all.
        only_index: Leave out rows that no index covers.

    Raises:
        InvalidInputError: It does not fit the table.
    """
    checked = parse_nearest(manifest.schema, nearest, only_index=only_index)
    leading = (_QUERY_FIELD,) if checked.is_batch else ()
    return NearestRanking(manifest=manifest, nearest=checked, prefilter=prefilter, leading=leading)
