"""The column ``_rowoffset``: the place of a row among the live rows of its version, from 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import frozen

if TYPE_CHECKING:
    from lance_core.format.table.fragment_list import FragmentList


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

    def row_offsets(
        self, fragment_id: int, deleted: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint64]:
        """Return the places of rows of a fragment; a deleted row has that of the next live one, as in pylance.

        Args:
            fragment_id: Id of the fragment.
            deleted: Offsets of its deleted rows, ascending.
            offsets: Offsets of the rows.
        """
        start = self.starts[np.searchsorted(self.ids, fragment_id)]
        return (start + offsets - np.searchsorted(deleted, offsets)).astype(np.uint64)
