"""Pages of version 0.1: plain values, strings with absolute positions, offsets of lists. Nulls are not stored.

A page is a position in the file, and a number of rows that is stored elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.encoding.arrow_values import from_values, offset_dtype
from lance_core.encoding.physical.memory import starts_of
from lance_core.encoding.v2_0.arrays import read_array
from lance_core.encoding.v2_0.buffers import Wanted, read_rows, read_spans
from lance_core.encoding.v2_0.ends import Spans
from lance_core.encoding.v2_0.packed import bit_width
from lance_core.encoding.values import VariableValues
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.array_encoding import AllNulls, FixedSizeList, Flat

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.plans import Rows, Steps
    from lance_core.encoding.v2_0.buffers import Buffers
    from lance_core.encoding.values import Int64s
    from lance_core.format.array_encoding import ArrayEncoding


def read_page(buffers: Buffers, rows: Rows, kind: pa.DataType, *, nullable: bool) -> Steps[pa.Array]:
    """Some rows of a page.

    Args:
        buffers: One buffer, from the page's position to the end of what pages may lie in.
        rows: At least one row of the page.
        kind: Arrow type, no dictionary and no list.
        nullable: True if empty strings are nulls, which is all that is left of them.

    Raises:
        CorruptDataError: A page that reaches beyond the file.
        UnsupportedError: A type that no file can have.
    """
    if offset_dtype(kind) is not None:
        return (yield from _read_strings(buffers, rows, kind, nullable=nullable))
    return (yield from read_array(_encoding(kind), Wanted(buffers, rows), kind))


def _encoding(kind: pa.DataType) -> ArrayEncoding:
    """What version 2.0 would call such a page."""
    if pa.types.is_null(kind):
        return AllNulls()
    if pa.types.is_fixed_size_list(kind):
        return FixedSizeList(kind.list_size, _encoding(kind.value_type))
    if pa.types.is_nested(kind) or not bit_width(kind):
        raise UnsupportedError(f"a page of {kind} is not supported in files of version 0.1")
    return Flat(bit_width(kind), 0)


def _read_strings(buffers: Buffers, rows: Rows, kind: pa.DataType, *, nullable: bool) -> Steps[pa.Array]:
    starts, ends = yield from _read_bounds(buffers, rows, np.dtype("<i8"))
    end = buffers[0][0] + buffers[0][1]
    sizes = ends - starts
    if (sizes < 0).any() or int(starts[0]) < 0 or int(ends[-1]) > end:
        raise CorruptDataError("the strings of a page lie outside the file")
    if isinstance(rows, range):
        data = yield from read_spans(((0, end),), Flat(8, 0), starts[:1], ends[-1:] - starts[:1])
    else:
        data = yield from read_spans(((0, end),), Flat(8, 0), starts, sizes)
    validity = sizes > 0 if nullable and not sizes.all() else None
    return from_values(VariableValues(starts_of(sizes), data), kind, validity, len(rows))


def read_list_page(buffers: Buffers, rows: Rows, *, is_large: bool) -> Steps[Spans]:
    """Where the lists of some rows of a page lie among the page's items.

    Raises:
        CorruptDataError: Offsets that do not ascend.
    """
    starts, ends = yield from _read_bounds(buffers, rows, np.dtype("<i8" if is_large else "<i4"))
    if int(starts[0]) < 0 or (ends < starts).any() or (starts[1:] < ends[:-1]).any():
        raise CorruptDataError("the offsets of a page do not ascend")
    return Spans(starts, ends, None, isinstance(rows, range))


def _read_bounds(buffers: Buffers, rows: Rows, dtype: np.dtype[Any]) -> Steps[tuple[Int64s, Int64s]]:
    """Offsets of rows and of those behind them."""
    wanted: Rows = range(rows.start, rows.stop + 1) if isinstance(rows, range) else np.union1d(rows, rows + 1)
    data = yield from read_rows(buffers, Flat(8, 0), wanted, dtype.itemsize)
    offsets: npt.NDArray[np.int64] = data.view(dtype).astype(np.int64, copy=False)
    if isinstance(rows, range):
        return offsets[:-1], offsets[1:]
    at = np.searchsorted(wanted, rows)
    return offsets[at], offsets[at + 1]
