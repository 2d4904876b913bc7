"""Full-text searches: how the rows are found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.kernels import numbers_array
from lance_core.index.text.query import columns_of, parse_query
from lance_core.scan.ranking import RankedRows
from lance_core.scan.search.row_mask import rows_to_search
from lance_core.scan.search.text_search import TextSearch, indexed_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.index.text.query import FullTextQuery
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.plan import ScanPlan

SCORE = "_score"
_SCORE_FIELD = pa.field(SCORE, pa.float32())


@frozen(kw_only=True)
class TextRanking:
    """A full-text search of a version.

    Attributes:
        manifest: The version.
        query: What is searched.
        prefilter: Plan that asks which rows to search; None for all.
        count: Rows at most; None for all.
        only_index: Leave out rows that no index covers.
        leading: No columns.
        trailing: The score.
    """

    manifest: Manifest
    query: FullTextQuery
    prefilter: ScanPlan | None
    count: int | None
    only_index: bool
    leading: Sequence[pa.Field] = ()
    trailing: Sequence[pa.Field] = (_SCORE_FIELD,)

    @property
    def text(self) -> str:
        """Description for explanations of the plan."""
        columns = ", ".join(map(repr, columns_of(self.query)))
        return f"full text, a query of type {self.query.query_type().value} in {columns}"

    def rank(self, files: OpenFiles, fragments: Sequence[Fragment]) -> RankedRows:
        """Find the rows, ordered by score and row address."""
        allowed = None
        if self.prefilter is not None:
            allowed = rows_to_search(self.manifest, files, fragments, self.prefilter)
        search = TextSearch(self.manifest, files, fragments, allowed=allowed, only_index=self.only_index)
        best = search.hits(self.query, self.count).best(self.count)
        scores = numbers_array(best.scores.astype(np.float32))
        return RankedRows(addresses=best.rows.astype(np.uint64), columns={SCORE: scores})


def text_ranking(
    manifest: Manifest, query: Any, prefilter: ScanPlan | None, *, count: int | None, only_index: bool
) -> TextRanking:
    """Return a search of a version, ready to run.

    Args:
        manifest: The version.
        query: ``full_text_query`` as in `LanceDataset.scanner`.
        prefilter: Plan that asks which rows to search; None for all.
        count: Rows at most; None for all.
        only_index: Leave out rows that no index covers.

    Raises:
        InvalidInputError: It does not fit the table.
    """
    parsed = parse_query(query, indexed_columns(manifest))
    return TextRanking(manifest=manifest, query=parsed, prefilter=prefilter, count=count, only_index=only_index)
