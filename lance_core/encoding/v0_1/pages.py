"""Pages of version 0.1: plain values, strings with absolute positions, offsets of lists. Nulls are not stored.

A page is a position in the file; how many rows it has is stored elsewhere. Batches are small, so rows of all pages of
a field are read at one go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.arrow_values import from_values, offset_dtype, pack_bits
from lance_core.encoding.kernels import MAX_OUTPUT_BYTES, aranges, gather, gather_windows, starts_of
from lance_core.encoding.plans import ByteRanges
from lance_core.encoding.v2_0.ends import Spans
from lance_core.encoding.v2_0.packed import bit_width, fixed_array
from lance_core.encoding.values import VariableValues
from lance_core.errors import CorruptDataError, UnsupportedError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.plans import ReadPlan, Rows
    from lance_core.encoding.values import Bytes, Int64s


@frozen
class Pieces:
    """Runs of neighbouring rows of pages, in the order of the file.

    Attributes:
        pages: Shape (n,): number of the page of each run.
        positions: Shape (n,): where that page begins.
        rows: Shape (n,): first row of each run, counted from the page's first one.
        counts: Shape (n,): rows, at least one.
    """

    pages: Int64s
    positions: Int64s
    rows: Int64s
    counts: Int64s

    def __len__(self) -> int:
        return int(self.counts.sum())


def cut_rows(first_rows: Int64s, positions: Int64s, rows: Rows) -> Pieces:
    """Return rows of a field as runs of rows of its pages.

    Args:
        first_rows: Shape (pages + 1,): first row of each page, and the end.
        positions: Shape (pages,): where each page begins.
        rows: At least one row, all before the end.
    """
    if isinstance(rows, range):
        low = int(first_rows.searchsorted(rows.start, side="right")) - 1
        if rows.stop <= first_rows[low + 1]:  # one page, as for single rows
            start = rows.start - int(first_rows[low])
            return Pieces(np.array([low]), positions[low : low + 1], np.array([start]), np.array([len(rows)]))
        pages = np.arange(low, int(first_rows.searchsorted(rows.stop)))
        starts = np.maximum(first_rows[pages], rows.start)
        counts = np.minimum(first_rows[pages + 1], rows.stop) - starts
        filled = counts > 0
        pages, starts, counts = pages[filled], starts[filled], counts[filled]
    else:
        owners = np.searchsorted(first_rows, rows, side="right") - 1
        begins = np.flatnonzero((rows[1:] != rows[:-1] + 1) | (owners[1:] != owners[:-1])) + 1
        begins = np.append(0, begins)
        pages, starts = owners[begins], rows[begins]
        counts = np.diff(begins, append=len(rows))
    return Pieces(pages, positions[pages], starts - first_rows[pages], counts)


def read_values(pieces: Pieces, kind: pa.DataType, *, nullable: bool, limit: int) -> ReadPlan[pa.Array]:
    """Return values of some rows.

    Args:
        pieces: At least one row.
        kind: Arrow type, no dictionary and no list.
        nullable: True if empty strings are nulls, which is all that is left of them.
        limit: Position that no page may reach beyond.

    Raises:
        CorruptDataError: A page that reaches beyond the file.
        UnsupportedError: A type that no file can have.
    """
    if pa.types.is_null(kind):
        return pa.nulls(len(pieces))
    if offset_dtype(kind) is not None:
        return (yield from _read_strings(pieces, kind, nullable=nullable, limit=limit))
    bits = _row_bits(kind)
    if bits % 8 or pa.types.is_boolean(_item(kind)):
        bitmap = yield from _read_bits(pieces, bits, limit)
        return fixed_array(kind, len(pieces), bitmap)
    width = bits // 8
    data = yield from _read_bytes(pieces, width, 0, limit)
    return fixed_array(kind, len(pieces), data)


def read_spans(pieces: Pieces, *, is_large: bool, limit: int) -> ReadPlan[Spans]:
    """Return the positions of the lists of some rows among the items of their pages; arguments as in `read_values`.

    Raises:
        CorruptDataError: Offsets that do not ascend.
    """
    dtype = np.dtype("<i8" if is_large else "<i4")
    starts, ends = yield from _read_bounds(pieces, dtype, limit)
    if (starts < 0).any() or (ends < starts).any():
        raise CorruptDataError("the offsets of a page do not ascend")
    return Spans(starts, ends, None, is_dense=False)


def row_bytes(kind: pa.DataType) -> float | None:
    """Return bytes of a row in a page of values; None for strings."""
    if pa.types.is_null(kind):
        return 0.0
    return None if offset_dtype(kind) is not None else _row_bits(kind) / 8


def _item(kind: pa.DataType) -> pa.DataType:
    return _item(kind.value_type) if pa.types.is_fixed_size_list(kind) else kind


def _row_bits(kind: pa.DataType) -> int:
    """Bits of a row of values of fixed width."""
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size * _row_bits(kind.value_type)
    bits = 0 if pa.types.is_nested(kind) or pa.types.is_dictionary(kind) else bit_width(kind)
    if not bits:
        raise UnsupportedError(f"a page of {kind} is not supported in files of version 0.1")
    return bits


def _read_bytes(pieces: Pieces, width: int, extra: int, limit: int) -> ReadPlan[Bytes]:
    """``width`` bytes for each row of the pieces and for ``extra`` rows behind each, end to end."""
    _check_size(pieces, width, limit)
    starts = pieces.positions + pieces.rows * width
    if not extra and len(starts) > 1 and bool((pieces.counts == 1).all()):
        data = yield from _find(starts, starts + width, limit)
        return gather_windows(data.memory, data.in_memory(starts), width).reshape(-1)
    sizes = (pieces.counts + extra) * width
    return (yield from _read_ranges(starts, sizes, limit))


def _read_ranges(starts: Int64s, sizes: Int64s, limit: int) -> ReadPlan[Bytes]:
    data = yield from _find(starts, starts + sizes, limit)
    return gather(data.memory, data.in_memory(starts), sizes)


def _check_size(pieces: Pieces, num_bytes: int, limit: int) -> None:
    """Refuse rows of so many bytes before numbers overflow."""
    if int((pieces.rows + pieces.counts).max()) * num_bytes > limit:
        raise CorruptDataError("a page reaches beyond the part of the file that holds pages")


def _find(starts: Int64s, ends: Int64s, limit: int) -> ReadPlan[Any]:
    """Memory that holds ranges."""
    if int(starts.min()) < 0 or (ends < starts).any() or int(ends.max()) > limit:
        raise CorruptDataError("a page reaches beyond the part of the file that holds pages")
    (buffer,) = yield [ByteRanges(starts, ends)]
    return buffer


def _read_bits(pieces: Pieces, bits: int, limit: int) -> ReadPlan[pa.Buffer]:
    """Return a bitmap of ``bits`` for each row; pages begin with whole bytes."""
    _check_size(pieces, bits // 8, limit)
    firsts, counts = pieces.rows * bits, pieces.counts * bits
    starts = pieces.positions + (firsts >> 3)
    sizes = pieces.positions + (firsts + counts + 7 >> 3) - starts
    data = yield from _read_ranges(starts, sizes, limit)
    if not ((firsts & 7).any() or (counts[:-1] & 7).any()):
        return pa.py_buffer(np.ascontiguousarray(data))
    # Runs begin and end inside of bytes that were read as a whole. +1 where a run begins and -1 behind its end add up
    # to 1 inside of runs and 0 between them, because runs do not overlap: a mask of the wanted bits.
    begins = starts_of(sizes)[:-1] * 8 + (firsts & 7)
    run_changes = np.zeros(len(data) * 8 + 1, np.int8)
    run_changes[begins] += 1
    run_changes[begins + counts] -= 1
    is_wanted = np.cumsum(run_changes[:-1], dtype=np.int8).view(np.bool_)
    return pack_bits(np.unpackbits(data, bitorder="little").view(np.bool_)[is_wanted])


def _read_strings(pieces: Pieces, kind: pa.DataType, *, nullable: bool, limit: int) -> ReadPlan[pa.Array]:
    starts, ends = yield from _read_bounds(pieces, np.dtype("<i8"), limit)
    sizes = ends - starts
    if (sizes < 0).any():
        raise CorruptDataError("the strings of a page lie outside the file")
    heads = starts_of(pieces.counts)
    lows, highs = starts[heads[:-1]], ends[heads[1:] - 1]
    if int(sizes.max()) > MAX_OUTPUT_BYTES or (highs - lows != np.add.reduceat(sizes, heads[:-1])).any():
        raise CorruptDataError("the strings of a page do not follow one another")
    filled = np.flatnonzero(highs > lows)
    data: Bytes = np.empty(0, np.uint8)
    if len(filled):
        data = yield from _read_ranges(lows[filled], (highs - lows)[filled], limit)
    validity = sizes > 0 if nullable and not sizes.all() else None
    return from_values(VariableValues(starts_of(sizes), data), kind, validity, len(sizes))


def _read_bounds(pieces: Pieces, dtype: np.dtype[Any], limit: int) -> ReadPlan[tuple[Int64s, Int64s]]:
    """Offsets of rows and of those behind them."""
    data = yield from _read_bytes(pieces, dtype.itemsize, 1, limit)
    offsets: npt.NDArray[np.int64] = np.ascontiguousarray(data).view(dtype).astype(np.int64, copy=False)
    if len(pieces.counts) == 1:
        return offsets[:-1], offsets[1:]
    if bool((pieces.counts == 1).all()):
        return offsets[::2], offsets[1::2]
    offset_indices = aranges(starts_of(pieces.counts + 1)[:-1], pieces.counts)
    return offsets[offset_indices], offsets[offset_indices + 1]
