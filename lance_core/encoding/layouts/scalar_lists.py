"""Single rows out of mini-block chunks with lists, one at a time; see `scalar_values`.

The levels of a chunk are unpacked as a whole, since rows can only be counted; of its values only those of the row.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.encoding import registry
from lance_core.encoding.codecs.codec import one_block
from lance_core.encoding.layouts.scalar_values import chunk_header, parts_of_chunk
from lance_core.encoding.repdef import max_rep, max_visible_def
from lance_core.encoding.strategy import MOST_SCALAR_LIST_ITEMS
from lance_core.encoding.values import FixedListValues, FixedValues, VariableValues
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from struct import Struct

    from lance_core.encoding.codecs.codec import Scalar
    from lance_core.encoding.values import Values
    from lance_core.format.file.encodings import Encoding
    from lance_core.format.file.page_layout import Layers, MiniBlockLayout

_MANY_KINDS = 256


class ListPlace(NamedTuple):
    """Location of a row.

    Attributes:
        start: Position of its chunk in memory.
        size: Bytes of the chunk.
        num_values: Values of the chunk.
        has_preamble: The chunk begins with the rest of a row.
        num_rows: Rows that begin in the chunk.
        row: Which of these it is.
    """

    start: int
    size: int
    num_values: int
    has_preamble: bool
    num_rows: int
    row: int


class _RowLevels(NamedTuple):
    """Levels of a row, and how many values stand before it in its chunk, and how many are its own."""

    rep: list[int]
    definition: list[int] | None
    first: int
    num_values: int


@frozen(kw_only=True)
class ListReader:
    """Reads single rows of chunks of one layout.

    Attributes:
        layout: The layout.
        kind: The same object for layouts that encode levels alike.
        header: See `scalar_values.chunk_header`.
        rep: Encoding of the repetition levels.
        new_row: The repetition level that begins a row.
        visible: The largest definition level of an entry that has a value.
        value: Reads a value.
    """

    layout: MiniBlockLayout
    kind: object
    header: Struct
    rep: Encoding
    new_row: int
    visible: int
    value: Scalar

    def read(
        self, memory: memoryview, position: ListPlace, cache: dict[object, Any]
    ) -> tuple[list[int], list[int] | None, list[bytes]]:
        """Return levels and values of a row that lies in one chunk.

        Args:
            memory: Holds the chunk.
            position: The row.
            cache: Levels of rows that were read before; leaves of one field mostly have the same.

        Raises:
            CorruptDataError: The chunk does not hold it, or does not fit its page.
        """
        start, size, count, *inside = position
        num_levels, parts = parts_of_chunk(self.header, memory, start, size)
        *packed, values = [memory[at : at + part_size] for at, part_size in parts]
        packed_levels = tuple(map(bytes, packed))
        key = (packed_levels, self.kind, num_levels, count, *inside)
        levels: _RowLevels | None = cache.get(key)
        if levels is None:
            levels = cache[key] = self._levels(packed_levels, num_levels, position)
        return levels.rep, levels.definition, self._values(values, count, levels)

    def _levels(self, packed_levels: tuple[bytes, ...], num_levels: int, position: ListPlace) -> _RowLevels:
        rep = registry.decode_levels(self.rep, packed_levels[0], num_levels)
        (starts,) = (rep == self.new_row).nonzero()
        if len(starts) != position.num_rows or (not position.has_preamble and (not len(starts) or starts[0])):
            raise CorruptDataError("chunks hold another number of rows than the repetition index tells")
        begin, stop = int(starts[position.row]), num_levels
        if position.row + 1 < len(starts):
            stop = int(starts[position.row + 1])
        row_levels, before, inside, all_hidden = None, 0, 0, 0
        if self.layout.definition is not None:
            definition = registry.decode_levels(self.layout.definition, packed_levels[1], num_levels)
            row_levels = definition[begin:stop].tolist()
            is_hidden = definition > self.visible
            all_hidden, before = int(np.count_nonzero(is_hidden)), int(np.count_nonzero(is_hidden[:begin]))
            inside = sum([level > self.visible for level in row_levels])
        if num_levels - all_hidden != position.num_values:
            raise CorruptDataError("the levels of a chunk call for another number of values than it has")
        return _RowLevels(rep[begin:stop].tolist(), row_levels, begin - before, stop - begin - inside)

    def _values(self, buffer: memoryview, count: int, levels: _RowLevels) -> list[bytes]:
        if not levels.num_values:
            return []
        wanted = range(levels.first, levels.first + levels.num_values)
        if len(wanted) <= MOST_SCALAR_LIST_ITEMS:
            buffer = buffer if self.value.open is None else self.value.open(buffer)
            return [self.value.read(buffer, 0, len(buffer), count, index) for index in wanted]
        value_indices = np.arange(wanted.start, wanted.stop)
        chunk = one_block(np.frombuffer(buffer, np.uint8), count)
        first = np.zeros_like(value_indices)
        return _separate(registry.decode_points(self.layout.values, chunk, first, value_indices))


def list_reader(layout: MiniBlockLayout) -> ListReader | None:
    """Return the reader of single rows of a layout with lists; None if that takes more than a few bytes."""
    value = registry.scalar_of(layout.values)
    if layout.rep is None or value is None or layout.num_buffers != 1:
        return None
    return ListReader(
        layout=layout,
        kind=_kind(layout.rep, layout.definition, layout.layers),
        header=chunk_header(layout),
        rep=layout.rep,
        new_row=max_rep(layout.layers),
        visible=max_visible_def(layout.layers),
        value=value,
    )


@lru_cache(maxsize=_MANY_KINDS)
def _kind(rep: Encoding, definition: Encoding | None, layers: Layers) -> object:
    """Return the same object for the same; comparing it costs nothing."""
    del rep, definition, layers  # what it stands for
    return object()


def _separate(values: Values) -> list[bytes]:
    """Return each value by itself."""
    match values:
        case VariableValues(offsets, data):
            whole, bounds = data.tobytes(), offsets.tolist()
            return [whole[low:high] for low, high in pairwise(bounds)]
        case FixedListValues(dimension, FixedValues(data)):
            return _of_width(data.tobytes(), data.nbytes // len(data) * dimension)
        case FixedValues(data):
            return _of_width(data.tobytes(), data.nbytes // len(data))
        case _:
            raise CorruptDataError("lists of values that are neither words nor strings")


def _of_width(data: bytes, width: int) -> list[bytes]:
    return [data[at : at + width] for at in range(0, len(data), width)]
