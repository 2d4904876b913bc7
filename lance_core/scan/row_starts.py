"""The column ``_rowoffset``: the place of a row among the live rows of its version, from 0."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lance_core.frozen import frozen
from lance_core.scan.plan import ROW_OFFSET

if TYPE_CHECKING:
    from lance_core.format.fragment_list import FragmentList
    from lance_core.format.manifest import Manifest
    from lance_core.scan.fragment_reader import FragmentReader
    from lance_core.scan.plan import ScanPlan


@frozen(kw_only=True)
class RowStarts:
    """Start of each fragment among all live rows of a version.

    Attributes:
        ids: Shape (n,), ids of the fragments, ascending.
        starts: Shape (n,), place of the first live row of each.
    """

    ids: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]

    @staticmethod
    def of(fragments: FragmentList) -> RowStarts:
        """Those of the fragments of a version."""
        ids, num_rows = fragments.ids.astype(np.int64), fragments.num_rows.astype(np.int64)
        order = np.argsort(ids)
        return RowStarts(ids=ids[order], starts=(np.cumsum(num_rows) - num_rows)[order])

    def row_offsets(self, reader: FragmentReader, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """The places of rows of a fragment; a deleted row has that of the next live one, as in pylance."""
        start = self.starts[np.searchsorted(self.ids, reader.fragment.id)]
        return (start + offsets - np.searchsorted(reader.deleted, offsets)).astype(np.uint64)


def with_row_starts(plan: ScanPlan, manifest: Manifest) -> ScanPlan:
    """A plan that knows what ``_rowoffset`` needs, if it asks for it."""
    asked = plan.columns if plan.predicate is None else (*plan.columns, *plan.predicate.columns)
    return replace(plan, row_starts=RowStarts.of(manifest.fragments)) if ROW_OFFSET in asked else plan
