"""Single rows out of mini-block chunks with lists, one at a time; see `scalar_values`.

The levels of a chunk are unpacked as a whole, since rows can only be counted; of its values only those of the row. A
long row goes on in the chunks behind its first one, each of which begins with the rest of it ("preamble").
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lance_core.common.frozen import NamedTuple, frozen
from lance_core.encoding import registry
from lance_core.encoding.kernels import aranges, starts_of
from lance_core.encoding.layouts.mini_block import pick_values
from lance_core.encoding.layouts.scalar_levels import MAX_LEVEL
from lance_core.encoding.layouts.scalar_values import chunk_header, parts_of_chunk
from lance_core.encoding.repdef import max_rep, max_visible_def
from lance_core.encoding.strategy import MOST_SCALAR_LIST_ITEMS
from lance_core.encoding.values import Chunks, FixedListValues, FixedValues, VariableValues
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from struct import Struct

    import numpy.typing as npt

    from lance_core.encoding.codecs.codec import Scalar
    from lance_core.encoding.repdef import LevelArray, Mask
    from lance_core.encoding.values import Int64s, Values
    from lance_core.format.file.encodings import Encoding
    from lance_core.format.file.page_layout import Layers, MiniBlockLayout

_MANY_KINDS = 256
PREAMBLE = -1
"""Stands for the row that a chunk begins with, but which began in a chunk before."""


_Part: TypeAlias = tuple[int, int, int, int, int]
"""Values of a chunk: position and size of their buffer, their number; the first of a row, and the number of these."""


class ListPlace(NamedTuple):
    """Location of a row, or of its part in one chunk.

    Attributes:
        start: Position of the chunk in memory.
        size: Bytes of the chunk.
        num_values: Values of the chunk.
        has_preamble: The chunk begins with the rest of a row.
        num_rows: Rows that begin in the chunk.
        row: Which of these it is, or `PREAMBLE`.
    """

    start: int
    size: int
    num_values: int
    has_preamble: int
    num_rows: int
    row: int


class _RowLevels(NamedTuple):
    """Levels of a row in a chunk, and how many values stand before it there, and how many are its own."""

    rep: bytes
    definition: bytes
    first: int
    num_values: int


class _ChunkLevels:
    """Levels of a chunk, out of which those of its rows are cut.

    Args:
        rep: Shape (levels,), repetition levels.
        starts: Shape (rows,), the level that each row begins with.
        definition: Shape (levels,), definition levels, if there are any.
        is_hidden: Shape (levels,), which of them have no value; None if all have one.
    """

    __slots__ = ("_definition", "_is_hidden", "_rep", "_rows", "_starts")

    def __init__(self, rep: LevelArray, starts: Int64s, definition: LevelArray | None, is_hidden: Mask | None) -> None:
        self._rep, self._starts, self._definition, self._is_hidden = rep, starts, definition, is_hidden
        self._rows: dict[int, _RowLevels] = {}

    def of_row(self, row: int) -> _RowLevels:
        """Return the levels of a row; leaves of one field mostly ask for the same."""
        levels = self._rows.get(row)
        if levels is None:
            levels = self._rows[row] = self._cut(row)
        return levels

    def _cut(self, row: int) -> _RowLevels:
        begin = 0 if row == PREAMBLE else int(self._starts[row])
        stop = int(self._starts[row + 1]) if row + 1 < len(self._starts) else len(self._rep)
        before = inside = 0
        if self._is_hidden is not None:
            before = int(np.count_nonzero(self._is_hidden[:begin]))
            inside = int(np.count_nonzero(self._is_hidden[begin:stop]))
        definition = b"" if self._definition is None else _as_bytes(self._definition[begin:stop])
        return _RowLevels(_as_bytes(self._rep[begin:stop]), definition, begin - before, stop - begin - inside)


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
        width: Bytes of a value if buffers hold nothing but values, one after the other; else 0.
    """

    layout: MiniBlockLayout
    kind: object
    header: Struct
    rep: Encoding
    new_row: int
    visible: int
    value: Scalar
    width: int

    def read(
        self,
        memory: memoryview,
        positions: Sequence[tuple[int, ...]],
        cache: dict[object, Any],
        rep: bytearray,
        definition: bytearray,
    ) -> list[bytes]:
        """Read rows.

        Args:
            memory: Holds the chunks.
            positions: The rows, each a `ListPlace` in plain; those of several chunks have a place in each.
            cache: Levels of chunks that were read before; leaves of one field mostly have the same.
            rep: Takes the repetition levels.
            definition: Takes the definition levels, if there are any.

        Returns:
            The values: one by one if they vary in width, else each may be several end to end.

        Raises:
            CorruptDataError: The chunks do not hold them, or do not fit their page.
        """
        values: list[bytes] = []
        parts: list[_Part] = []
        for position in positions:
            start, size, count, *inside = position
            num_levels, buffers = parts_of_chunk(self.header, memory, start, size)
            *packed, (at, num_bytes) = buffers
            packed_levels = tuple([bytes(memory[low : low + part_size]) for low, part_size in packed])
            has_preamble, num_rows, row = inside
            key = (packed_levels, self.kind, num_levels, count, has_preamble, num_rows)
            chunk: _ChunkLevels | None = cache.get(key)
            if chunk is None:
                chunk = cache[key] = self._levels(packed_levels, num_levels, ListPlace(*position))
            levels = chunk.of_row(row)
            rep += levels.rep
            definition += levels.definition
            if levels.num_values and 0 < count * self.width <= num_bytes:
                at += levels.first * self.width
                values.append(bytes(memory[at : at + levels.num_values * self.width]))
            elif levels.num_values:
                parts.append((at, num_bytes, count, levels.first, levels.num_values))
        return values + self._values(memory, parts) if parts else values

    def _levels(self, packed_levels: tuple[bytes, ...], num_levels: int, position: ListPlace) -> _ChunkLevels:
        rep = registry.decode_levels(self.rep, packed_levels[0], num_levels)
        (starts,) = (rep == self.new_row).nonzero()
        if len(starts) != position.num_rows or (not position.has_preamble and (not len(starts) or starts[0])):
            raise CorruptDataError("chunks hold another number of rows than the repetition index tells")
        definition = is_hidden = None
        if self.layout.definition is not None:
            definition = registry.decode_levels(self.layout.definition, packed_levels[1], num_levels)
            is_hidden = definition > self.visible
        num_hidden = 0 if is_hidden is None else int(np.count_nonzero(is_hidden))
        if num_levels - num_hidden != position.num_values:
            raise CorruptDataError("the levels of a chunk call for another number of values than it has")
        return _ChunkLevels(rep, starts, definition, is_hidden if num_hidden else None)

    def _values(self, memory: memoryview, parts: list[_Part]) -> list[bytes]:
        if sum([part[-1] for part in parts]) > MOST_SCALAR_LIST_ITEMS:
            return self._many_values(memory, parts)
        values: list[bytes] = []
        for start, size, count, first, num_wanted in parts:
            buffer = memory[start : start + size]
            buffer = buffer if self.value.open is None else self.value.open(buffer)
            wanted = range(first, first + num_wanted)
            values += [self.value.read(buffer, 0, len(buffer), count, index) for index in wanted]
        return values

    def _many_values(self, memory: memoryview, parts: list[_Part]) -> list[bytes]:
        """Return more values than are worth reading one by one: those of all chunks are decoded together."""
        starts, sizes, counts, firsts, num_wanted = np.array(parts).T
        chunks = Chunks(
            buffers=(np.frombuffer(memory, np.uint8),), starts=starts[None], sizes=sizes[None], counts=counts
        )
        positions = aranges(starts_of(counts)[:-1] + firsts, num_wanted)
        return _separate(pick_values(self.layout.values, chunks, positions))


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
        width=registry.value_bytes(layout.values),
    )


@lru_cache(maxsize=_MANY_KINDS)
def _kind(rep: Encoding, definition: Encoding | None, layers: Layers) -> object:
    """Return the same object for the same; comparing it costs nothing."""
    del rep, definition, layers  # what it stands for
    return object()


def _as_bytes(levels: npt.NDArray[np.unsignedinteger[Any]]) -> bytes:
    """Return levels that damage did not make larger than any can be."""
    if levels.dtype.itemsize > 1:
        if len(levels) and int(levels.max()) > MAX_LEVEL:
            raise CorruptDataError("a level is larger than the layers allow")
        levels = levels.astype(np.uint8)
    return levels.tobytes()


def _separate(values: Values) -> list[bytes]:
    """Return each value by itself if they vary in width, else all of them end to end."""
    match values:
        case VariableValues(offsets, data):
            whole, bounds = data.tobytes(), offsets.tolist()
            return [whole[low:high] for low, high in pairwise(bounds)]
        case FixedListValues(_, FixedValues(data)) | FixedValues(data):
            return [data.tobytes()]
        case _:
            raise CorruptDataError("lists of values that are neither words nor strings")
