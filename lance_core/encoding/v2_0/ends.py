"""Ends of strings and lists: u64 each, with an adjustment added where null; pylance stores no leading 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.encoding.v2_0.buffers import read_rows
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from lance_core.encoding.plans import ReadPlan, Rows
    from lance_core.encoding.repdef import Mask
    from lance_core.encoding.v2_0.buffers import Buffers
    from lance_core.encoding.values import Int64s
    from lance_core.format.file.array_encoding import Flat


@frozen
class Spans:
    """Positions of things of varying length.

    Attributes:
        starts: Shape (n,), ascending.
        ends: Shape (n,), not before the starts.
        validity: Shape (n,), None if nothing is null.
        is_dense: True if each one begins where the one before ends.
    """

    starts: Int64s
    ends: Int64s
    validity: Mask | None
    is_dense: bool


def read_ends(buffers: Buffers, flat: Flat, rows: Rows, adjustment: int) -> ReadPlan[Spans]:
    """Spans of some rows of a page.

    Raises:
        CorruptDataError: Ends that do not ascend.
    """
    if isinstance(rows, range):
        numbers: Rows = range(max(rows.start - 1, 0), rows.stop)
        at: slice | Int64s = slice(rows.start - numbers.start, None)
    else:
        pairs = np.stack((rows - 1, rows), axis=1).reshape(-1)  # a row begins where the one before it ends
        is_first = np.append(pairs[0] >= 0, pairs[1:] > pairs[:-1])
        numbers = pairs[is_first]
        at = np.add.accumulate(is_first, dtype=np.int64)[1::2] - 1
    data = yield from read_rows(buffers, flat, numbers, 8)
    raw: Int64s = data.view("<i8")
    is_null = raw >= adjustment
    has_nulls = bool(is_null.any())
    ends = np.where(is_null, raw - adjustment, raw) if has_nulls else raw
    if int(ends[0]) < 0 or (ends[1:] < ends[:-1]).any():
        raise CorruptDataError("the offsets of a page do not ascend")
    if isinstance(at, slice):
        starts = ends[:-1] if at.start else np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    else:
        starts = np.where(at > 0, ends[at - 1], 0)
    validity = ~is_null[at] if has_nulls else None
    return Spans(starts, ends[at], validity, isinstance(rows, range))
