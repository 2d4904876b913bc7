"""A handful of rows, read value by value; pure.

What `lance_core.file.points` shares between columns costs hundreds of steps for each encoding, whatever the number of
values. Below some hundred values it is cheaper to pick them one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from lance_core.encoding.arrow_values import offset_dtype, take_values
from lance_core.encoding.plans import Spots
from lance_core.encoding.repdef import Levels
from lance_core.encoding.structural.page import Decoded, to_arrow
from lance_core.encoding.structural.single_values import look_up, plain_array, single_reader
from lance_core.encoding.values import FixedValues
from lance_core.errors import CorruptDataError
from lance_core.file.plan import join_dictionaries
from lance_core.format.encodings import FixedSizeList
from lance_core.format.page_layout import Layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.plans import Found
    from lance_core.encoding.structural.single_values import SingleReader
    from lance_core.encoding.values import Values
    from lance_core.file.plan import Column, Part
    from lance_core.format.page_layout import MiniBlockLayout

MOST_VALUES = 256


class Singles(NamedTuple):
    """Values of one page.

    Attributes:
        column: The column.
        number: The page.
        layout: Its layout.
        reader: How to read it.
        chunks: For each value position in the file, bytes and number of values of its chunk.
        inside: Which of the chunk's values it is.
        spots: The chunks, each once.
    """

    column: Column
    number: int
    layout: MiniBlockLayout
    reader: SingleReader
    chunks: list[tuple[int, int, int]]
    inside: list[int]
    spots: Spots


def reader_of(column: Column, layout: MiniBlockLayout) -> SingleReader | None:
    """How to read single values of a page; None if they are read with others."""
    readers = column.readers
    key = id(layout)  # the column keeps the layouts of its pages
    if key not in readers:
        readers[key] = single_reader(layout)
    return readers[key]


def find_singles(column: Column, part: Part, layout: MiniBlockLayout, reader: SingleReader) -> Singles:
    """The chunks that hold rows of a page, whose index is known."""
    grid = column.indexes[part.number].table.grid
    rows = np.asarray(part.rows) + column.first_rows[part.number]
    picked = grid[:4, grid[3].searchsorted(rows, side="right") - 1]
    starts, sizes = picked[0], picked[1]
    if len(rows) > 1:
        is_first = np.append(True, starts[1:] != starts[:-1])
        starts, sizes = starts[is_first], sizes[is_first]
    found = picked.T.tolist()
    chunks = [(start, size, count) for start, size, count, _ in found]
    inside = [row - first for row, (_, _, _, first) in zip(rows.tolist(), found, strict=True)]
    return Singles(column, part.number, layout, reader, chunks, inside, Spots(starts, starts + sizes))


def decode_single(one: Singles, found: Found) -> pa.Array:
    """The values of a page.

    Raises:
        CorruptDataError: Chunks that do not fit their page.
    """
    places = None
    if found.starts is not None:
        starts = one.spots.starts
        places = dict(zip(starts.tolist(), found.places(starts).tolist(), strict=True))
    return _decode(one, found.memory.data, places)


def _decode(one: Singles, memory: memoryview, places: dict[int, int] | None) -> pa.Array:
    column, layout, read = one.column, one.layout, one.reader.read
    pairs = [
        read(memory, chunk if places is None else (places[chunk[0]], *chunk[1:]), inside)
        for chunk, inside in zip(one.chunks, one.inside, strict=True)
    ]
    values = [value for _, value in pairs]
    width = _plain_width(one)
    if width is not None:
        if layout.dictionary is not None:
            values = look_up(join_dictionaries(column, (one.number,)), values)
        levels = None if layout.definition is None else [level for level, _ in pairs]
        return plain_array(column.kind, width, values, levels)
    decoded = Decoded(levels=_levels(layout, pairs), values=_values(one, values), num_slots=len(pairs))
    return to_arrow(decoded, column.path, column.kind, len(pairs))


def _plain_width(one: Singles) -> int | None:
    """Bytes of a value if the Arrow array consists of just the values, 0 for strings; else None."""
    column, layers = one.column, one.layout.layers
    if not column.is_plain or isinstance(one.layout.values, FixedSizeList) or pa.types.is_nested(column.kind):
        return None
    if len(layers) != 1 or (one.layout.definition is not None and layers[0] is not Layer.NULLABLE_ITEM):
        return None
    try:
        return column.kind.bit_width // 8 or None
    except ValueError:
        return None if offset_dtype(column.kind) is None else 0


def _levels(layout: MiniBlockLayout, pairs: Sequence[tuple[int, bytes]]) -> Levels:
    definition = None if layout.definition is None else np.array([level for level, _ in pairs], np.uint16)
    return Levels(layout.layers, None, definition)


def _values(one: Singles, values: Sequence[bytes]) -> Values:
    found = one.reader.join(values)
    if one.layout.dictionary is None:
        return found
    if not isinstance(found, FixedValues):
        raise CorruptDataError("a dictionary page without indices")
    return take_values(join_dictionaries(one.column, (one.number,)), found.data)
