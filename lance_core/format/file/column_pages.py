"""Metadata of many columns that have one page each, taken apart at one go.

Source: message ``ColumnMetadata`` of package ``lance.file.v2``; see `lance_core.format.file.file_metadata`. Messages
are expected as all writers lay them down: fields by ascending number, packed. Others are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.format.wire import varints_at

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Ints = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]

_COLUMN_ENCODING, _PAGE = 0x0A, 0x12
_OFFSETS, _SIZES, _NUM_ROWS, _ENCODING, _PRIORITY = 0x0A, 0x12, 0x18, 0x22, 0x28
_DIRECT, _LAYOUT = 0x12, 0x0A
_MOST_BUFFERS = 8


@frozen
class ColumnPages:
    """The only page of each column, shape (n,) unless told otherwise.

    Attributes:
        is_plain: Which columns have one page, laid down as expected; nothing is known of the others.
        num_rows: Rows of the page.
        num_buffers: Buffers of the page.
        positions: Shape (n, buffers): their positions; 0 where there are fewer.
        sizes: Likewise their bytes.
        layout_starts: Where the layout begins in the data.
        layout_ends: Where it ends.
    """

    is_plain: Mask
    num_rows: Ints
    num_buffers: Ints
    positions: Ints
    sizes: Ints
    layout_starts: Ints
    layout_ends: Ints


PAGE_PARTS = tuple(ColumnPages.__annotations__)
"""Names of the attributes, each an array with a row for each column."""


class _Cursors:
    """Positions in as many messages.

    Args:
        data: The messages.
        starts: Where they begin.
        ends: Where they end.
    """

    def __init__(self, data: Bytes, starts: Ints, ends: Ints) -> None:
        self._data = data
        self._at = starts
        self.ends = ends
        self.is_plain = (starts <= ends) & (ends <= len(data))

    def number(self, key: int) -> Ints:
        """Return a number, and step behind it; 0 where another field comes first."""
        at = np.where(self.is_plain, self._at, 0)
        has_field = self.is_plain & (at < self.ends) & (self._data[np.minimum(at, len(self._data) - 1)] == key)
        values, behind = varints_at(self._data, at + has_field)
        self._at = np.where(has_field, behind, self._at)
        return np.where(has_field, values, 0)

    def content(self, key: int) -> tuple[Ints, Ints]:
        """Return where bytes begin and end, and step behind them; nothing where another field comes first."""
        size = self.number(key)
        starts, ends = self._at, self._at + size
        self.is_plain = self.is_plain & (size >= 0) & (ends <= self.ends)
        self._at = ends
        return starts, ends

    def finish(self) -> Mask:
        """Return which messages end here."""
        return self.is_plain & (self._at == self.ends)


def decode_column_pages(data: Bytes, starts: Ints, ends: Ints) -> ColumnPages:
    """Take metadata of columns apart.

    Args:
        data: Serialized ColumnMetadata of the columns, and more; not empty.
        starts: Shape (n,): where each begins.
        ends: Shape (n,): where it ends.

    Raises:
        CorruptDataError: A number is longer than ten bytes.
    """
    column = _Cursors(data, starts, ends)
    column.content(_COLUMN_ENCODING)
    page = _Cursors(data, *column.content(_PAGE))
    offsets, sizes = page.content(_OFFSETS), page.content(_SIZES)
    num_rows = page.number(_NUM_ROWS)
    encoding = _Cursors(data, *page.content(_ENCODING))
    page.number(_PRIORITY)
    direct = _Cursors(data, *encoding.content(_DIRECT))
    layout_starts, layout_ends = direct.content(_LAYOUT)
    is_plain = column.finish() & page.finish() & encoding.finish() & direct.finish() & (layout_starts < layout_ends)
    positions, num_positions, has_positions = _packed(data, *offsets, is_plain)
    bytes_of, num_sizes, has_sizes = _packed(data, *sizes, is_plain)
    is_plain &= has_positions & has_sizes & (num_positions == num_sizes)
    return ColumnPages(is_plain, num_rows, num_positions, positions, bytes_of, layout_starts, layout_ends)


def _packed(data: Bytes, starts: Ints, ends: Ints, is_plain: Mask) -> tuple[Ints, Ints, Mask]:
    """Return packed numbers, shape (n, `_MOST_BUFFERS`), how many they are, and which of them end where they should."""
    numbers, counts = np.zeros((len(starts), _MOST_BUFFERS), np.int64), np.zeros(len(starts), np.int64)
    at = np.where(is_plain, starts, ends)
    for buffer in range(_MOST_BUFFERS):
        rows = np.flatnonzero(at < ends)
        if not len(rows):
            break
        numbers[rows, buffer], at[rows] = varints_at(data, at[rows])
        counts[rows] += 1
    return numbers, counts, (at == ends) & (numbers >= 0).all(axis=1)
