"""Pages as the scalar kernel reads them: where rows lie, and their levels and values; pure.

What is the same for all rows of a page (its layout, its chunks, its dictionary) is put together once, when a row of it
is first wanted.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeAlias

from lance_core.common.frozen import frozen, mutable
from lance_core.encoding import registry
from lance_core.encoding.layouts import full_zip, mini_block
from lance_core.encoding.layouts.scalar_arrays import shape_of_items
from lance_core.encoding.layouts.scalar_levels import MAX_LEVEL
from lance_core.encoding.layouts.scalar_lists import PREAMBLE, ListReader, list_reader
from lance_core.encoding.layouts.scalar_values import ScalarReader, item_reader, scalar_reader
from lance_core.encoding.leaves import is_list_field
from lance_core.encoding.repdef import is_list, levels_of
from lance_core.encoding.strategy import MOST_SCALAR_CHUNKS
from lance_core.format.file.page_layout import ConstantLayout, FullZipLayout, Layer, MiniBlockLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.codecs.codec import Shape
    from lance_core.encoding.layouts.chunk_table import ChunkTable
    from lance_core.encoding.layouts.scalar_values import Items
    from lance_core.encoding.leaves import LeafPath
    from lance_core.encoding.repdef import LayersLevels
    from lance_core.encoding.values import Int64s
    from lance_core.file.read.column import Column
    from lance_core.file.read.column_read import ColumnRead
    from lance_core.file.read.page_index import MiniBlockIndex
    from lance_core.format.file.page_layout import Layers


_WHOLE = -1
_WHOLE_COLUMN = ((_WHOLE, range(0)),)
"""Stands for the pages of a column if the chunks of all are one table."""

_NOT_OPEN = object()

Position: TypeAlias = tuple[int, ...]
"""Where a row is: position of the bytes that hold it (those of a chunk, or its own), how many these are (0 if none are
needed), and what else the page needs to know. A plain tuple: there is one for each value."""

_NOWHERE: Position = (0, 0)

Run: TypeAlias = "tuple[ScalarPage, Sequence[Position], list[int]]"
"""Rows of one page, one after the other: where they are, and their numbers. A plain tuple: each column has one."""


@mutable
class ScalarRows:
    """Levels and values of some rows of a column, and the memory that holds them.

    Attributes:
        memory: Holds the rows.
        cache: What was found out for other columns about the same rows.
        rep: Repetition levels; none without lists.
        definition: Definition levels; None if nothing is null or empty.
        values: The values that have a slot; those of one width may be several end to end.
    """

    memory: memoryview
    cache: dict[object, Any]
    rep: bytearray
    definition: bytearray | None
    values: list[bytes] = dataclasses.field(default_factory=list)


@frozen
class _Chunks:
    """Chunks without lists."""

    layers: LayersLevels
    has_definition: bool
    alike: tuple[int, bool]
    table: ChunkTable
    reader: ScalarReader
    items: Items | None

    def find(self, rows: Int64s, numbers: list[int]) -> list[Position]:
        del numbers
        # Of so few rows, a column of the table for each of their chunks takes half as long as one array for all.
        grid, positions, last = self.table.grid, list[Position](), 0
        for end in grid[3].searchsorted(rows, side="right").tolist():
            positions.append(positions[-1] if end == last else tuple(grid[:, end - 1].tolist()))
            last = end
        return positions

    def read(self, positions: Sequence[Position], rows: list[int], into: ScalarRows) -> None:
        memory = into.memory
        values: list[bytes] = []
        opened, last = None, -1
        for (start, size, count, first, _), row in zip(positions, rows, strict=True):
            if opened is None or start != last:
                opened, last = self.reader.open(memory, (start, size, count)), start
            level, value = self.reader.read(opened, row - first)
            if into.definition is not None:
                into.definition.append(level)
            values.append(value)
        into.values += values if self.items is None else self.items(values)


@frozen
class _ListChunks:
    """Chunks with lists."""

    layers: LayersLevels
    has_definition: bool
    alike: tuple[int, bool]
    table: ChunkTable
    reader: ListReader
    items: Items | None

    def find(self, rows: Int64s, numbers: list[int]) -> list[Position] | None:
        positions: list[Position] = []
        grid = self.table.grid
        for row, end in zip(numbers, grid[3].searchsorted(rows, side="right").tolist(), strict=True):
            start, size, count, first, num_rows = grid[:, end - 1].tolist()
            positions.append((start, size, count, self._is_cut(end - 1), num_rows, row - first))
            if row - first == num_rows - 1 and not self._follow(end, positions):
                return None
        return positions

    def _follow(self, chunk: int, positions: list[Position]) -> bool:
        """Add the chunks in which a row goes on; return False if they are too many."""
        limit = chunk + MOST_SCALAR_CHUNKS - 1
        while self._is_cut(chunk):
            if chunk == limit:
                return False
            start, size, count, _, num_rows = self.table.grid[:, chunk].tolist()
            positions.append((start, size, count, True, num_rows, PREAMBLE))
            if num_rows:
                break
            chunk += 1
        return True

    def _is_cut(self, chunk: int) -> bool:
        begins = self.table.has_preamble
        return begins is not None and chunk < len(begins) and bool(begins[chunk])

    def read(self, positions: Sequence[Position], rows: list[int], into: ScalarRows) -> None:
        del rows
        levels = bytearray() if into.definition is None else into.definition
        values = self.reader.read(into.memory, positions, into.cache, into.rep, levels)
        into.values += values if self.items is None else self.items(values)


@frozen
class _Even:
    """A page of values of one width, one after the other."""

    layers: LayersLevels
    alike: tuple[int, bool]
    first_row: int
    start: int
    width: int
    has_definition: bool = False

    def find(self, rows: Int64s, numbers: list[int]) -> list[Position]:
        del rows
        start, width = self.start - self.first_row * self.width, self.width
        return [(start + row * width, width) for row in numbers]

    def read(self, positions: Sequence[Position], rows: list[int], into: ScalarRows) -> None:
        del rows
        memory = into.memory
        into.values += [bytes(memory[start : start + self.width]) for start, *_ in positions]


@frozen
class _Constant:
    """A page of one value."""

    layers: LayersLevels
    alike: tuple[int, bool]
    value: bytes
    level: int
    has_definition: bool

    def find(self, rows: Int64s, numbers: list[int]) -> list[Position]:
        del rows
        return [_NOWHERE] * len(numbers)

    def read(self, positions: Sequence[Position], rows: list[int], into: ScalarRows) -> None:
        del rows
        into.values += [self.value] * len(positions)
        if into.definition is not None:
            into.definition += bytes([self.level]) * len(positions)


ScalarPage: TypeAlias = _Chunks | _ListChunks | _Even | _Constant
"""One page, or pages of which it does not matter which one a row is in: what its levels mean, whether it has definition
levels, and an object (`alike`) that is the same for pages of which both are the same. `find` returns where rows of the
column are, also given as plain numbers; None if one is read otherwise. `read` reads rows at positions in the memory."""


def runs_of(read: ColumnRead, shape: Shape, rows: Int64s, numbers: list[int]) -> list[Run] | None:
    """Return where the rows of a column are; None if they are not read value by value.

    Args:
        read: The column; its pages are found, and the indexes of these known.
        shape: What values are wanted.
        rows: The rows.
        numbers: The same as plain numbers.
    """
    cached = read.pages
    runs: list[Run] = []
    at = 0
    for number, inside in read.spans if read.whole is None else _WHOLE_COLUMN:
        page = cached.scalar_pages.get((number, shape), _NOT_OPEN)
        if page is _NOT_OPEN:
            page = cached.scalar_pages[number, shape] = _open_page(read, number, shape)
        if page is None or (runs and page.alike != runs[0][0].alike):
            return None
        if inside is read.rows or number == _WHOLE:
            positions = page.find(rows, numbers)
            return None if positions is None else [(page, positions, numbers)]
        some = slice(at, at := at + len(inside))
        positions = page.find(rows[some], numbers[some])
        if positions is None:
            return None
        runs.append((page, positions, numbers[some]))
    return runs


def _open_page(read: ColumnRead, number: int, shape: Shape) -> ScalarPage | None:
    """Put together what is the same for all rows of a page; None if rows are not read value by value."""
    column, cached = read.column, read.pages
    if number < 0 and read.whole is not None:
        return _open_chunks(read, read.whole, shape)
    layout = cached.layout(column, number)
    match layout:
        case MiniBlockLayout():
            index = cached.indexes[number]
            return _open_chunks(read, index, shape)
        case FullZipLayout():
            return _open_even(column, number, layout, shape)
        case ConstantLayout():
            has_levels = column.pages[number].buffers or not _fits(layout.layers, column.path)
            return None if has_levels else _open_constant(layout, shape)
        case _:
            return None


def _fits(layers: Layers, path: LeafPath) -> bool:
    """Return whether the layers of a page are those of its column."""
    if len(layers) != len(path.fields):
        return False
    if len(layers) == 1:
        return not is_list(layers[0])
    fields = reversed(path.fields)
    return all(is_list(layer) == is_list_field(field) for layer, field in zip(layers, fields, strict=True))


def _open_chunks(read: ColumnRead, index: MiniBlockIndex, shape: Shape) -> ScalarPage | None:
    layout, table, items = index.layouts[0], index.table, index.dictionary
    readers, reader = read.pages.readers, None
    if mini_block.is_plain(layout) and _fits(layout.layers, read.column.path):
        key = id(layout)  # the index keeps it
        if key not in readers:
            readers[key] = scalar_reader(layout) if layout.rep is None else list_reader(layout)
        reader = readers[key]
    if reader is None or (reader.value.shape if items is None else shape_of_items(items)) != shape:
        return None
    layers, has_definition = levels_of(layout.layers), layout.definition is not None
    if layers.max_def > MAX_LEVEL:
        return None
    alike = (id(layers), has_definition)
    find_items = None if items is None else item_reader(items, reader.value.shape[1])
    if isinstance(reader, ListReader):
        return _ListChunks(layers, has_definition, alike, table, reader, find_items)
    return _Chunks(layers, has_definition, alike, table, reader, find_items)


def _open_even(column: Column, number: int, layout: FullZipLayout, shape: Shape) -> ScalarPage | None:
    value = registry.scalar_of(layout.values)
    has_more = full_zip.has_index(layout) or full_zip.control_bytes(layout)
    is_even = not has_more and value is not None and value.shape == shape and value.open is None
    page, width = column.pages[number], full_zip.stride(layout)
    if not is_even or width != shape[1] or width * page.num_rows > page.buffers[0][1]:
        return None
    if not _fits(layout.layers, column.path):
        return None
    layers = levels_of(layout.layers)
    return _Even(layers, (id(layers), False), int(column.first_rows[number]), page.buffers[0][0], width)


def _open_constant(layout: ConstantLayout, shape: Shape) -> ScalarPage | None:
    """Open a page of one value without levels."""
    if layout.sparse is not None or any(map(is_list, layout.layers)):
        return None
    layers, value = levels_of(layout.layers), layout.inline_value
    if value is None:  # nothing but null leaves is written without levels
        is_null = layout.layers[0] is Layer.NULLABLE_ITEM
        null = _Constant(layers, (id(layers), True), bytes(shape[1]), 1, has_definition=True)
        return null if is_null else None
    kind, width = shape
    is_right = (kind in {"bits", "words"} and len(value) == width) or kind == "strings"
    return _Constant(layers, (id(layers), False), value, 0, has_definition=False) if is_right else None
