"""The rows of a zone map in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.frozen import frozen

if TYPE_CHECKING:
    import pyarrow as pa

Int64s: TypeAlias = npt.NDArray[np.int64]


@frozen(kw_only=True)
class ZoneTable:
    """Content of one zone map, sorted by fragment and first row.

    Attributes:
        fragment_ids: Shape (zones,).
        starts: Shape (zones,), offset of each zone's first row.
        ends: Shape (zones,), offset of the row behind its last one; greater than its start.
        null_count: Shape (zones,).
        nan_count: Shape (zones,).
        minimum: One value for each zone.
        maximum: Likewise.
    """

    fragment_ids: Int64s
    starts: Int64s
    ends: Int64s
    null_count: Int64s
    nan_count: Int64s
    minimum: pa.Array
    maximum: pa.Array
