"""Pages of which single rows are wanted: where a row lies, and its levels and values. See `single_rows`.

What is the same for all rows of a page (its layout, its chunks, its dictionary) is put together once, when a row of it
is first wanted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from lance_core.encoding import registry
from lance_core.encoding.layouts import full_zip
from lance_core.encoding.layouts.few_levels import few_layers
from lance_core.encoding.layouts.few_values import shape_of_items
from lance_core.encoding.layouts.single_lists import ListPlace, ListReader, list_reader
from lance_core.encoding.layouts.single_values import SingleReader, look_up, single_reader
from lance_core.encoding.leaves import is_list_field
from lance_core.encoding.repdef import is_list
from lance_core.format.page_layout import ConstantLayout, FullZipLayout, Layer, MiniBlockLayout, SparseLayout
from lance_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from lance_core.encoding.codecs.codec import Shape
    from lance_core.encoding.layouts.few_levels import FewLayers
    from lance_core.encoding.leaves import LeafPath
    from lance_core.encoding.values import Int64s, Values
    from lance_core.file.read.plan import Column
    from lance_core.format.page_layout import Layers


Place: TypeAlias = tuple[int, int, int, int, int]
"""Where a row is: position of the bytes that hold it (those of a chunk, or its own), how many these are (0 if none are
needed), values in the chunk, which of the values or of the chunk's rows it is, number of the chunk in its page. A plain
tuple: there is one for each value."""


@dataclass(slots=True)
class FewRows:
    """Levels and values of some rows of a column.

    Attributes:
        rep: Repetition levels; None without lists.
        definition: Definition levels; None if nothing is null or empty.
        values: The values that have a slot.
    """

    rep: list[int] | None
    definition: list[int] | None
    values: list[bytes] = field(default_factory=list)


class SinglePage(Protocol):
    """One page.

    Attributes:
        layers: What its levels mean.
        has_definition: Whether it has definition levels.
    """

    @property
    def layers(self) -> FewLayers: ...  # noqa: D102 - see above

    @property
    def has_definition(self) -> bool: ...  # noqa: D102 - see above

    def find(self, row: int, /) -> Place | None:
        """Where a row of the column is; None if it is not read by itself."""
        ...

    def read(self, memory: memoryview, places: Sequence[Place], into: FewRows, known: dict[object, Any], /) -> None:
        """Read rows.

        Args:
            memory: Holds them.
            places: Where they are in the memory.
            into: Takes what is read.
            known: What was found out for other columns about the same rows.
        """
        ...


@frozen
class _Chunks:
    """A page of chunks without lists."""

    layers: FewLayers
    has_definition: bool
    first_rows: Int64s
    grid: Int64s
    reader: SingleReader
    items: Values | None

    def find(self, row: int) -> Place:
        chunk = int(self.first_rows.searchsorted(row, "right")) - 1
        start, size, count, first = self.grid[:4, chunk].tolist()
        return start, size, count, row - first, chunk

    def read(self, memory: memoryview, places: Sequence[Place], into: FewRows, known: dict[object, Any]) -> None:
        del known
        values: list[bytes] = []
        levels: list[int] = []
        opened, last = None, -1
        for start, size, count, index, _ in places:
            if opened is None or start != last:
                opened, last = self.reader.open(memory, (start, size, count)), start
            level, value = self.reader.read(opened, index)
            levels.append(level)
            values.append(value)
        if into.definition is not None:
            into.definition += levels
        into.values += values if self.items is None else look_up(self.items, values)


@frozen
class _ListChunks:
    """A page of chunks with lists."""

    layers: FewLayers
    has_definition: bool
    first_rows: Int64s
    grid: Int64s
    preambles: npt.NDArray[np.bool_] | None
    reader: ListReader
    items: Values | None

    def find(self, row: int) -> Place | None:
        chunk = int(self.first_rows.searchsorted(row, "right")) - 1
        start, size, count, first, num_rows = self.grid[:, chunk].tolist()
        if row - first == num_rows - 1 and chunk + 1 < len(self.first_rows) and self._is_cut(chunk + 1):
            return None  # the row goes on in the next chunk
        return start, size, count, row - first, chunk

    def _is_cut(self, chunk: int) -> bool:
        return self.preambles is not None and bool(self.preambles[chunk])

    def read(self, memory: memoryview, places: Sequence[Place], into: FewRows, known: dict[object, Any]) -> None:
        num_rows = self.grid[4]
        for start, size, count, index, chunk in places:
            place = ListPlace(start, size, count, self._is_cut(chunk), int(num_rows[chunk]), index)
            rep, definition, values = self.reader.read(memory, place, known)
            if into.rep is not None:
                into.rep += rep
            if into.definition is not None and definition is not None:
                into.definition += definition
            into.values += values if self.items is None else look_up(self.items, values)


@frozen
class _Even:
    """A page of values of one width, one after the other."""

    layers: FewLayers
    first_row: int
    start: int
    width: int
    has_definition: bool = False

    def find(self, row: int) -> Place:
        return self.start + (row - self.first_row) * self.width, self.width, 1, 0, 0

    def read(self, memory: memoryview, places: Sequence[Place], into: FewRows, known: dict[object, Any]) -> None:
        del known
        into.values += [bytes(memory[start : start + self.width]) for start, *_ in places]


@frozen
class _Constant:
    """A page of one value."""

    layers: FewLayers
    value: bytes
    level: int
    has_definition: bool

    def find(self, row: int) -> Place:
        del row
        return _NOWHERE

    def read(self, memory: memoryview, places: Sequence[Place], into: FewRows, known: dict[object, Any]) -> None:
        del memory, known
        into.values += [self.value] * len(places)
        if into.definition is not None:
            into.definition += [self.level] * len(places)


_NOWHERE: Place = (0, 0, 0, 0, 0)


def reader_of(column: Column, layout: MiniBlockLayout) -> SingleReader | ListReader | None:
    """How to read single rows of mini-blocks; None if they are read with others."""
    readers = column.readers
    key = id(layout)  # the column keeps the layouts of its pages
    if key not in readers:
        is_plain = layout.blob_layers is None
        readers[key] = (single_reader(layout) if layout.rep is None else list_reader(layout)) if is_plain else None
    return readers[key]


def open_page(column: Column, number: int, shape: Shape) -> SinglePage | None:
    """A page for single rows; None if they are read with others.

    Args:
        column: The column; the index of the page is known if it has mini-blocks.
        number: The page.
        shape: What values are wanted.
    """
    layout = column.layout(number)
    if not _fits(layout.layers, column.path):
        return None
    match layout:
        case MiniBlockLayout():
            return _open_chunks(column, number, layout, shape)
        case FullZipLayout():
            value = registry.scalar_of(layout.values)
            if full_zip.has_index(layout) or full_zip.control_bytes(layout) or value is None or value.shape != shape:
                return None
            page, width = column.pages[number], full_zip.stride(layout)
            if width != shape[1] or width * page.num_rows > page.buffers[0][1]:
                return None
            return _Even(few_layers(layout.layers), int(column.first_rows[number]), page.buffers[0][0], width)
        case ConstantLayout():
            return None if column.pages[number].buffers else _open_constant(layout, shape)
        case SparseLayout():
            return None


def _fits(layers: Layers, path: LeafPath) -> bool:
    """True if the layers of a page are those of its column."""
    if len(layers) != len(path.fields):
        return False
    if len(layers) == 1:
        return not is_list(layers[0])
    fields = reversed(path.fields)
    return all(is_list(layer) == is_list_field(one) for layer, one in zip(layers, fields, strict=True))


def _open_chunks(column: Column, number: int, layout: MiniBlockLayout, shape: Shape) -> SinglePage | None:
    reader, index = reader_of(column, layout), column.indexes[number]
    if reader is None:
        return None
    found = reader.value.shape if index.dictionary is None else shape_of_items(index.dictionary)
    if found != shape:
        return None
    layers, has_definition, table = few_layers(layout.layers), layout.definition is not None, index.table
    first_rows, grid, items = table.first_rows, table.grid, index.dictionary
    if isinstance(reader, ListReader):
        return _ListChunks(layers, has_definition, first_rows, grid, table.has_preamble, reader, items)
    return _Chunks(layers, has_definition, first_rows, grid, reader, items)


def _open_constant(layout: ConstantLayout, shape: Shape) -> SinglePage | None:
    """A page of one value without levels."""
    if layout.sparse is not None or any(map(is_list, layout.layers)):
        return None
    if layout.inline_value is None:  # nothing but null leaves is written without levels
        is_null = layout.layers[0] is Layer.NULLABLE_ITEM
        return _Constant(few_layers(layout.layers), bytes(shape[1]), 1, has_definition=True) if is_null else None
    kind, width = shape
    is_right = kind in {"bits", "words"} and len(layout.inline_value) == width
    is_right |= kind == "strings"
    return _Constant(few_layers(layout.layers), layout.inline_value, 0, has_definition=False) if is_right else None
