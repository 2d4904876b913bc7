"""The rows of a version that a search may return: those of some fragments that match a filter before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.scan.fragment_reader import readers_of
from lance_core.scan.fragments import matching_by_fragment

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.index.row_moves import RowPositions
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.plan import ScanPlan


@frozen(kw_only=True)
class RowMask:
    """Rows of a version.

    Attributes:
        positions: Positions of all rows.
        mask: Shape (rows of the version + 1,), by position; the last item is false, for rows that are not there.
    """

    positions: RowPositions
    mask: npt.NDArray[np.bool_]

    def has(self, addresses: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each row address whether the row is among them."""
        return self.mask.take(self.positions.of(addresses))


def rows_to_search(
    manifest: Manifest, files: OpenFiles, fragments: Sequence[Fragment], prefilter: ScanPlan | None
) -> RowMask:
    """Return the rows of some fragments that match a filter; with no filter all rows, deleted ones included."""
    positions = readers_of(files, manifest.fragments).positions
    mask = np.zeros(positions.total + 1, np.bool_)
    if prefilter is None:
        for fragment in fragments:
            start = positions.start(fragment.id)
            mask[start : start + fragment.physical_rows] = True
    else:
        for reader, offsets in matching_by_fragment(files, fragments, prefilter):
            mask[positions.start(reader.fragment.id) + offsets] = True
    return RowMask(positions=positions, mask=mask)
