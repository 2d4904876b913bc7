"""The rows of a zone map in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import frozen

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
        ambiguous: Fragments with zones that overlap, some of them stale; their zones are left out.
        misread: Fragments with zones of NaN whose smallest value is null in the file; here it is NaN.
    """

    fragment_ids: Int64s
    starts: Int64s
    ends: Int64s
    null_count: Int64s
    nan_count: Int64s
    minimum: pa.Array
    maximum: pa.Array
    ambiguous: frozenset[int] = frozenset()
    misread: frozenset[int] = frozenset()


def overlapping_fragments(fragment_ids: Int64s, starts: Int64s, ends: Int64s) -> Int64s:
    """Return the fragments with zones that overlap, which are sorted by fragment and first row.

    pylance 14.0.2 keeps the zones of values that were changed in place, beside new ones, when it merges segments.
    """
    overlaps = (fragment_ids[1:] == fragment_ids[:-1]) & (starts[1:] < ends[:-1])
    return np.unique(fragment_ids[1:][overlaps])
