"""Flat buffers of a page: which bytes some rows need, and the values in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.arrow_values import pack_bits, unpack_bits
from lance_core.encoding.codecs.general import decompress_values
from lance_core.encoding.kernels import aranges, gather, gather_windows, view_buffer
from lance_core.encoding.plans import ByteRanges
from lance_core.encoding.values import VariableValues
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from lance_core.encoding.plans import ReadPlan, Rows
    from lance_core.encoding.values import Bytes, Int64s
    from lance_core.format.file.array_encoding import Flat

Buffers = tuple[tuple[int, int], ...]
"""Absolute position and size of each buffer of a page."""

_LONG_RUN = 8
"""From so many adjoining rows on, as of long lists, they are copied as one piece instead of one by one."""


@frozen
class Wanted:
    """Values of a page that are wanted: some for each of some rows.

    Attributes:
        buffers: Buffers of the page.
        rows: Rows of the page.
        per_row: Values in a row; more than 1 inside fixed-size lists.
    """

    buffers: Buffers
    rows: Rows
    per_row: int = 1

    def __len__(self) -> int:
        return len(self.rows) * self.per_row

    def numbers(self) -> Int64s:
        """Return an array of shape (n,): which values of the page."""
        starts = np.asarray(self.rows, np.int64) * self.per_row
        return starts if self.per_row == 1 else aranges(starts, np.full(len(starts), self.per_row))


def read_words(wanted: Wanted, flat: Flat) -> ReadPlan[Bytes]:
    """Return the bytes of values of whole bytes, end to end."""
    return read_rows(wanted.buffers, flat, wanted.rows, flat.bits // 8 * wanted.per_row)


def read_rows(buffers: Buffers, flat: Flat, rows: Rows, width: int) -> ReadPlan[Bytes]:
    """``width`` bytes for each row, end to end.

    Raises:
        CorruptDataError: The buffer is not there, or ends before the last row.
    """
    if isinstance(rows, range):
        return _read_range(buffers, flat, rows.start * width, rows.stop * width)
    return _read_scattered(buffers, flat, rows, width)


def _read_scattered(buffers: Buffers, flat: Flat, rows: Int64s, width: int) -> ReadPlan[Bytes]:
    last = int(rows[-1])
    position, size = _extent(buffers, flat)
    if flat.compression is not None:
        data = yield from _read_range(buffers, flat, 0, (last + 1) * width)
        return gather_windows(data, rows * width, width).reshape(-1)
    _check_end((last + 1) * width, size)
    firsts, counts = _runs(rows)
    starts = firsts * width + position
    (row_bytes,) = yield [ByteRanges(starts, starts + counts * width)]
    if len(firsts) * _LONG_RUN <= len(rows):
        return gather(row_bytes.memory, row_bytes.in_memory(starts), counts * width)
    starts = starts if len(firsts) == len(rows) else rows * width + position
    return gather_windows(row_bytes.memory, row_bytes.in_memory(starts), width).reshape(-1)


def _runs(rows: Int64s) -> tuple[Int64s, Int64s]:
    """First row of each run of adjoining rows, and how many these are; of rows that lie apart each is one."""
    breaks = (rows[1:] - rows[:-1] != 1).nonzero()[0]
    if 2 * len(breaks) >= len(rows):
        return rows, np.ones(len(rows), np.int64)
    bounds = np.concatenate(([0], breaks + 1, [len(rows)]))
    return rows[bounds[:-1]], bounds[1:] - bounds[:-1]


def read_spans(buffers: Buffers, flat: Flat, starts: Int64s, sizes: Int64s) -> ReadPlan[Bytes]:
    """Byte ranges of a buffer, ascending and apart, end to end."""
    filled = np.flatnonzero(sizes)
    if not len(filled):
        return np.empty(0, np.uint8)
    starts, sizes = starts[filled], sizes[filled]
    end = int(starts[-1] + sizes[-1])
    if flat.compression is not None:
        data = yield from _read_range(buffers, flat, 0, end)
        return gather(data, starts, sizes)
    position, size = _extent(buffers, flat)
    _check_end(end, size)
    starts = starts + position
    (span_bytes,) = yield [ByteRanges(starts, starts + sizes)]
    return gather(span_bytes.memory, span_bytes.in_memory(starts), sizes)


def read_bits(wanted: Wanted, flat: Flat) -> ReadPlan[pa.Buffer]:
    """Return a bitmap of the wanted values."""
    if isinstance(wanted.rows, range):
        first = wanted.rows.start * wanted.per_row
        end = first + len(wanted)
        data = yield from _read_range(wanted.buffers, flat, first // 8, (end + 7) // 8)
        bitmap = pa.py_buffer(data)
        return bitmap if first % 8 == 0 else pack_bits(unpack_bits(bitmap, first % 8, len(wanted)))
    numbers = wanted.numbers()
    byte_offsets = numbers >> 3  # ascend, as the numbers do
    is_first = np.append(True, byte_offsets[1:] != byte_offsets[:-1])
    data = yield from read_rows(wanted.buffers, flat, byte_offsets[is_first], 1)
    bits = data[np.add.accumulate(is_first, dtype=np.int64) - 1] >> (numbers & 7).astype(np.uint8) & 1
    return pack_bits(bits.view(np.bool_))


def _read_range(buffers: Buffers, flat: Flat, start: int, end: int) -> ReadPlan[Bytes]:
    position, size = _extent(buffers, flat)
    if flat.compression is None:
        _check_end(end, size)
        if start == end:
            return np.empty(0, np.uint8)
        (buffer,) = yield [(position + start, position + end)]
        return view_buffer(buffer)
    (buffer,) = yield [(position, position + size)]
    packed = VariableValues(np.array([0, size]), view_buffer(buffer))
    data = decompress_values(flat.compression, packed).data
    _check_end(end, len(data))
    return data[start:end]


def _extent(buffers: Buffers, flat: Flat) -> tuple[int, int]:
    if flat.buffer >= len(buffers):
        raise CorruptDataError(f"a page of {len(buffers)} buffers refers to buffer {flat.buffer}")
    return buffers[flat.buffer]


def _check_end(end: int, size: int) -> None:
    if end > size:
        raise CorruptDataError(f"a buffer of {size} bytes is read up to byte {end}")
