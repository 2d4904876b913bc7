"""The kernel for values that lie one after the other: found by arithmetic, gathered for all columns; pure.

It serves one row as well as thousands: a column costs one addition, and a width one gathering. Consecutive rows are
views of the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.encoding import registry
from lance_core.encoding.arrow_values import from_values
from lance_core.encoding.kernels import gather_windows, gather_words
from lance_core.encoding.layouts import full_zip
from lance_core.encoding.plans import ByteRanges
from lance_core.encoding.repdef import is_list
from lance_core.encoding.values import FixedValues
from lance_core.format.file.page_layout import FullZipLayout

if TYPE_CHECKING:
    from lance_core.encoding.plans import RangeBuffers
    from lance_core.encoding.values import Int64s
    from lance_core.file.read.column import Column
    from lance_core.file.read.column_read import ColumnRead

_WORD_BYTES = (1, 2, 4, 8)


class DirectJob:
    """Rows of columns without levels whose values have one width and lie in no chunk."""

    __slots__ = ("_consecutive", "_fields")

    def __init__(self) -> None:
        self._fields: dict[int, tuple[pa.DataType, int, list[Int64s], list[list[pa.Array]]]] = {}
        self._consecutive: list[tuple[int, int, int, pa.DataType, list[pa.Array]]] = []

    def takes(self, read: ColumnRead, arrays: list[pa.Array]) -> bool:
        """Take a field of one leaf; False if its values lie otherwise.

        Args:
            read: The leaf; its pages are found.
            arrays: Takes the field's array.
        """
        column, cached = read.column, read.pages
        if read.whole is not None or not column.is_plain:
            return False
        starts: list[Int64s] = []
        consecutive: list[tuple[int, int, int, pa.DataType, list[pa.Array]]] = []
        width = 0
        for number, rows in read.spans:
            layout = cached.layout(column, number)
            if not isinstance(layout, FullZipLayout):
                return False
            even = cached.even_pages.get(number)
            if even is None:
                even = cached.even_pages[number] = _even_page(column, number, layout)
            first, width = even
            if not width:
                return False
            if isinstance(rows, range):
                consecutive.append((first + rows.start * width, width, len(rows), column.kind, arrays))
            else:
                starts.append(first + rows * width)
        if consecutive:
            self._consecutive += consecutive
            return True
        alike = self._fields.get(id(column.kind))
        if alike is None:
            alike = self._fields[id(column.kind)] = (column.kind, width, [], [])
        alike[2].append(starts[0] if len(starts) == 1 else np.concatenate(starts))
        alike[3].append(arrays)
        return True

    @property
    def is_needed(self) -> bool:
        """True if it took a field."""
        return bool(self._fields or self._consecutive)

    @property
    def ranges(self) -> ByteRanges:
        """The byte ranges of the values."""
        scattered = [(np.concatenate(starts), width) for _, width, starts, _ in self._fields.values()]
        bounds = np.array([(at, at + width * count) for at, width, count, *_ in self._consecutive], np.int64)
        starts, ends = bounds.reshape(-1, 2).T
        return ByteRanges(
            np.concatenate([starts, *[at for at, _ in scattered]]),
            np.concatenate([ends, *[at + width for at, width in scattered]]),
        )

    def decode(self, buffers: RangeBuffers) -> None:
        """Gather the values of each type, of which each column is a view; consecutive ones are where they are."""
        if self._consecutive:
            self._view(buffers)
        for kind, width, starts, fields in self._fields.values():
            positions, count = buffers.in_memory(np.concatenate(starts)), len(starts[0])
            if width in _WORD_BYTES:
                data = gather_words(buffers.memory, positions, f"<u{width}")
            else:
                data = gather_windows(buffers.memory, positions, width)
            whole = from_values(FixedValues(data), kind, None, len(data))
            for at, arrays in enumerate(fields):
                arrays.append(whole.slice(at * count, count))

    def _view(self, buffers: RangeBuffers) -> None:
        """Make arrays of consecutive values where they are; of those that are not aligned a copy."""
        memory = np.ascontiguousarray(buffers.memory)
        whole, base = pa.py_buffer(memory), memory.ctypes.data
        positions = buffers.in_memory(np.array([at for at, *_ in self._consecutive], np.int64)).tolist()
        for start, (_, width, count, kind, arrays) in zip(positions, self._consecutive, strict=True):
            is_aligned = width not in _WORD_BYTES or (base + start) % width == 0
            part = whole.slice(start, width * count)
            values = part if is_aligned else pa.py_buffer(part.to_pybytes())
            arrays.append(pa.Array.from_buffers(kind, count, [None, values]))


def _even_page(column: Column, number: int, layout: FullZipLayout) -> tuple[int, int]:
    """Return position and bytes of the first value of a page; no bytes if its values lie otherwise."""
    if full_zip.has_index(layout) or full_zip.control_bytes(layout):
        return 0, 0
    page, kind, width = column.pages[number], column.kind, full_zip.stride(layout)
    is_even = registry.value_bytes(layout.values) == width and len(layout.layers) == 1
    if not is_even or is_list(layout.layers[0]) or width * page.num_rows > page.buffers[0][1]:
        return 0, 0
    if pa.types.is_nested(kind) or pa.types.is_boolean(kind) or pa.types.is_dictionary(kind):
        return 0, 0
    try:
        return (page.buffers[0][0], width) if kind.bit_width == width * 8 else (0, 0)
    except ValueError:  # no fixed width
        return 0, 0
