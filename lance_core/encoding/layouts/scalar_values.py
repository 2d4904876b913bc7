"""Single values out of mini-block chunks without lists, one at a time.

A numpy call costs as much for one value as for a thousand. For a handful of values plain numbers are cheaper.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.encoding import registry
from lance_core.encoding.layouts.scalar_levels import MAX_LEVEL
from lance_core.encoding.values import FixedValues, VariableValues
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_core.encoding.codecs.codec import Read, Scalar
    from lance_core.encoding.values import Values
    from lance_core.format.file.page_layout import MiniBlockLayout

_LEVEL_SHAPE = ("words", 2)


Opened: TypeAlias = tuple[memoryview, int, int, int, memoryview, int, int]
"""A chunk whose parts are found: memory of its values, where they begin there, their bytes, how many they are; memory
of its definition levels (if it has any), where they begin, their bytes. A plain tuple: each column has one."""


Items: TypeAlias = "Callable[[Sequence[bytes]], list[bytes]]"
"""Reads the items at indices into a dictionary."""


@frozen(kw_only=True)
class ScalarReader:
    """Reads single values of chunks of one layout.

    Attributes:
        header: Number of levels, bytes of levels if there are any, of each buffer of values; the rest is padding.
        level: Reads a definition level; None if there are none.
        value: Reads a value.
    """

    header: Struct
    level: Read | None
    value: Scalar

    def open(self, memory: memoryview, chunk: tuple[int, int, int]) -> Opened:
        """Find the buffers of a chunk.

        Args:
            memory: Holds the chunk.
            chunk: Its position, bytes and number of values.

        Raises:
            CorruptDataError: They do not fit it.
        """
        start, size, count = chunk
        num_levels, parts = parts_of_chunk(self.header, memory, start, size)
        if self.level is not None and num_levels != count:
            raise CorruptDataError("a chunk without lists has another number of levels than of values")
        levels_at, level_size = parts[0]
        if self.value.open is None:
            at, value_size = parts[-1]
            return memory, at, value_size, count, memory, levels_at, level_size
        buffers = parts if self.level is None else parts[1:]
        values = self.value.open(*[memory[at : at + value_size] for at, value_size in buffers])
        return values, 0, len(values), count, memory, levels_at, level_size

    def read(self, opened: Opened, index: int) -> tuple[int, bytes]:
        """Return the definition level (0 without) and the bytes of a value.

        Args:
            opened: The chunk.
            index: Which of its values.

        Raises:
            CorruptDataError: The chunk does not hold it.
        """
        memory, at, size, count, levels, levels_at, levels_size = opened
        if not 0 <= index < count:
            raise CorruptDataError("values are wanted that their chunks do not hold")
        level = 0
        if self.level is not None:
            level = int.from_bytes(self.level(levels, levels_at, levels_size, count, index), "little")
            if level > MAX_LEVEL:
                raise CorruptDataError("a definition level is larger than the layers allow")
        return level, self.value.read(memory, at, size, count, index)


def scalar_reader(layout: MiniBlockLayout) -> ScalarReader | None:
    """Return the reader of single values of a layout; None if that takes more than a few bytes."""
    if layout.rep is not None or layout.num_buffers != registry.num_buffers(layout.values):
        return None
    value, level = registry.scalar_of(layout.values), None
    if layout.definition is not None:
        level = registry.scalar_of(layout.definition)
        if level is None or level.shape != _LEVEL_SHAPE or level.open is not None:
            return None
    if value is None:
        return None
    return ScalarReader(header=chunk_header(layout), level=None if level is None else level.read, value=value)


def parts_of_chunk(header: Struct, memory: memoryview, start: int, size: int) -> tuple[int, list[tuple[int, int]]]:
    """Return number of levels of a chunk, and position and bytes of each of its parts, levels first.

    Args:
        header: From `chunk_header`.
        memory: Holds the chunk.
        start: Where it begins.
        size: Its bytes.

    Raises:
        CorruptDataError: A part leaves the chunk.
    """
    at, end = start + header.size, start + size
    if at > end or end > len(memory):
        raise CorruptDataError("a chunk is too small for its header")
    num_levels, *sizes = header.unpack_from(memory, start)
    parts: list[tuple[int, int]] = []
    last = at
    for part_size in sizes:
        parts += ((at, part_size),)
        last = at + part_size
        at += part_size + 7 & ~7
    if last > end:
        raise CorruptDataError("a buffer reaches beyond the end of its chunk")
    return num_levels, parts


def chunk_header(layout: MiniBlockLayout) -> Struct:
    """Return number of levels, bytes of each buffer of levels and of values; padded to eight bytes."""
    num_levels = (layout.rep is not None) + (layout.definition is not None)
    fields = "<H" + "H" * num_levels + ("I" if layout.has_large_chunk else "H") * layout.num_buffers
    return Struct(f"{fields}{-Struct(fields).size % 8}x")


def item_reader(items: Values, width: int) -> Items:
    """Return what reads items of a dictionary by little-endian indices, one by one or several end to end.

    Args:
        items: The dictionary.
        width: Bytes of an index.

    Raises:
        CorruptDataError: The items are neither words nor strings; likewise, later, for an index beyond them.
    """
    match items:
        case VariableValues(offsets, data):
            count, bounds_of, stored = len(items), offsets, data
        case FixedValues(stored) if stored.dtype != np.bool_:
            count, bounds_of = len(items), None
        case _:
            raise CorruptDataError("a dictionary of values that are neither words nor strings")

    def read(indices: Sequence[bytes]) -> list[bytes]:
        whole = b"".join(indices)
        item_indices = [int.from_bytes(whole[at : at + width], "little") for at in range(0, len(whole), width)]
        if item_indices and max(item_indices) >= count:
            raise CorruptDataError(f"an index points beyond {count} values")
        if bounds_of is None:
            return [stored[item_index].tobytes() for item_index in item_indices]
        bounds = [bounds_of[item_index : item_index + 2].tolist() for item_index in item_indices]
        return [stored[begin:end].tobytes() for begin, end in bounds]

    return read
