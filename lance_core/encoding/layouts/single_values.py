"""Single values out of mini-block chunks without lists, one at a time.

A numpy call costs as much for one value as for a thousand. For a handful of values plain numbers are cheaper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from lance_core.encoding.codecs import flat
from lance_core.encoding.codecs.fastlanes import BLOCK, row_start, unpack_one
from lance_core.encoding.codecs.general import decompress_one
from lance_core.encoding.values import FixedValues, VariableValues
from lance_core.errors import CorruptDataError
from lance_core.format.encodings import (
    Compression,
    Encoding,
    FixedSizeList,
    Flat,
    General,
    InlineBitpacking,
    OutOfLineBitpacking,
    Variable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.values import Values
    from lance_core.format.page_layout import MiniBlockLayout

_LEVEL_BITS = 16
_OFFSET_32 = 4
_WORD_CODES = {8: "<B", 16: "<H", 32: "<I", 64: "<Q"}

Read: TypeAlias = Callable[[memoryview, int, int, int, int], bytes]
"""From memory, position and bytes of a buffer, values in it, and which is wanted: its bytes."""


class Opened(NamedTuple):
    """Where the buffers of a chunk lie.

    Attributes:
        memory: Holds the values.
        at: Where they begin.
        size: Their bytes.
        num_values: How many they are.
        levels: Holds the definition levels, if there are any.
        levels_at: Where these begin.
        levels_size: Their bytes.
    """

    memory: memoryview
    at: int
    size: int
    num_values: int
    levels: memoryview
    levels_at: int
    levels_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleReader:
    """How to read single values of chunks of one layout.

    Attributes:
        header: Number of levels, bytes of levels if there are any, bytes of values; the rest is padding.
        level: Reads a definition level; None if there are none.
        value: Reads a value.
        encoding: Encoding of the values, uncompressed.
        compression: What the values of each chunk are compressed by; None if they are not.
    """

    header: Struct
    level: Read | None
    value: Read
    encoding: Encoding
    compression: Compression | None = None

    def open(self, memory: memoryview, chunk: tuple[int, int, int]) -> Opened:
        """Find the buffers of a chunk.

        Args:
            memory: Holds the chunk.
            chunk: Its position, bytes and number of values.

        Raises:
            CorruptDataError: They do not fit it.
        """
        start, size, count = chunk
        at, end = start + self.header.size, start + size
        if at > end or end > len(memory):
            raise CorruptDataError("a chunk is too small for its header")
        levels_at, level_size = at, 0
        if self.level is None:
            _, value_size = self.header.unpack_from(memory, start)
        else:
            num_levels, level_size, value_size = self.header.unpack_from(memory, start)
            if num_levels != count:
                raise CorruptDataError("a chunk without lists has another number of levels than of values")
            at += level_size + 7 & ~7
        if at + value_size > end:
            raise CorruptDataError("a buffer reaches beyond the end of its chunk")
        if self.compression is None:
            return Opened(memory, at, value_size, count, memory, levels_at, level_size)
        values = decompress_one(self.compression, memory[at : at + value_size])
        return Opened(values, 0, len(values), count, memory, levels_at, level_size)

    def read(self, opened: Opened, index: int) -> tuple[int, bytes]:
        """The definition level (0 without) and the bytes of a value.

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
        return level, self.value(memory, at, size, count, index)


def single_reader(layout: MiniBlockLayout) -> SingleReader | None:
    """How to read single values of a layout; None if that takes more than a look at a few bytes."""
    encoding, compression = layout.values, None
    if isinstance(encoding, General):
        encoding, compression = encoding.values, encoding.compression
    value = value_reader(encoding)
    level = None if layout.definition is None else _level(layout.definition)
    if layout.rep is not None or value is None or (level is None) != (layout.definition is None):
        return None
    if layout.num_buffers != 1:
        return None
    return SingleReader(
        header=chunk_header(layout), level=level, value=value, encoding=encoding, compression=compression
    )


def chunk_header(layout: MiniBlockLayout) -> Struct:
    """Number of levels, bytes of each buffer of levels, bytes of the values; padded to eight bytes."""
    num_levels = (layout.rep is not None) + (layout.definition is not None)
    fields = "<H" + "H" * num_levels + ("I" if layout.has_large_chunk else "H")
    return Struct(f"{fields}{-Struct(fields).size % 8}x")


def look_up(items: Values, indices: Sequence[bytes]) -> list[bytes]:
    """The items at little-endian places in a dictionary.

    Raises:
        CorruptDataError: A place beyond the dictionary.
    """
    places = [int.from_bytes(index, "little") for index in indices]
    if max(places, default=-1) >= len(items):
        raise CorruptDataError(f"an index points beyond {len(items)} values")
    match items:
        case VariableValues(offsets, data):
            bounds = [offsets[place : place + 2].tolist() for place in places]
            return [data[begin:end].tobytes() for begin, end in bounds]
        case FixedValues(data) if data.dtype != np.bool_:
            return [data[place].tobytes() for place in places]
        case _:
            raise CorruptDataError("a dictionary of values that are neither words nor strings")


def value_reader(encoding: Encoding) -> Read | None:
    """What reads single values; None if that takes more than a look at a few bytes."""
    match encoding:
        case Flat(1):
            return _bit
        case Flat(bits) if bits > 0 and bits % 8 == 0:
            return _flat(bits // 8)
        case InlineBitpacking(bits) if bits in flat.WORD_BITS:
            return _packed_inline(bits)
        case Variable(offset_bits) if offset_bits in (32, 64):
            return _variable(offset_bits // 8)
        case FixedSizeList(dimension, False, Flat(bits)) if bits > 0 and bits % 8 == 0:
            return _flat(dimension * bits // 8)
        case _:
            return None


def _level(encoding: Encoding) -> Read | None:
    match encoding:
        case Flat(bits) if bits == _LEVEL_BITS:
            return _flat(2)
        case OutOfLineBitpacking(bits, width) if bits == _LEVEL_BITS and 0 < width <= bits:
            return _packed_levels(width)
        case _:
            return None


def _bit(memory: memoryview, start: int, size: int, count: int, index: int) -> bytes:
    if size * 8 < count:
        raise CorruptDataError(f"Flat: a chunk has {size} bytes for {count} bits")
    return b"\1" if memory[start + index // 8] >> index % 8 & 1 else b"\0"


def _flat(width: int) -> Read:
    def read(memory: memoryview, start: int, size: int, count: int, index: int) -> bytes:
        if size < count * width:
            raise CorruptDataError(f"Flat: a chunk has {size} bytes where {count * width} are needed")
        at = start + index * width
        return bytes(memory[at : at + width])

    return read


@cache
def _rows_of_values(bits: int) -> list[int]:
    """The row that holds each value of a block, for words of so many bits."""
    rows = [0] * BLOCK
    for row in range(bits):
        rows[row_start(row) : row_start(row) + BLOCK // bits] = [row] * (BLOCK // bits)
    return rows


def _packed_inline(bits: int) -> Read:
    word = Struct(_WORD_CODES[bits])
    word_bytes, row_bytes, rows, lanes = bits // 8, BLOCK // 8, _rows_of_values(bits), BLOCK // bits - 1
    zero = bytes(word_bytes)

    def read(memory: memoryview, start: int, size: int, count: int, index: int) -> bytes:
        if size < word_bytes or count > BLOCK:
            raise CorruptDataError(f"bit-packed chunk of {count} values in {size} bytes")
        (width,) = word.unpack_from(memory, start)
        if width > bits or size < word_bytes + width * row_bytes:
            raise CorruptDataError(f"bit-packed chunk of width {width} in {size} bytes, for values of {bits} bits")
        if not width:
            return zero
        number, shift = divmod(rows[index] * width, bits)
        at = start + word_bytes + number * row_bytes + (index & lanes) * word_bytes
        (value,) = word.unpack_from(memory, at)
        value >>= shift
        if shift + width > bits:
            value |= word.unpack_from(memory, at + row_bytes)[0] << bits - shift
        return word.pack(value & (1 << width) - 1)

    return read


def _packed_levels(width: int) -> Read:
    block_size = width * (BLOCK // 8)

    def read(memory: memoryview, start: int, size: int, count: int, index: int) -> bytes:
        whole, tail = divmod(count, BLOCK)
        block, place = divmod(index, BLOCK)
        if size == whole * block_size + tail * 2:
            if block == whole:  # the tail is not packed
                at = start + whole * block_size + place * 2
                return bytes(memory[at : at + 2])
        elif size != (whole + (tail > 0)) * block_size:
            raise CorruptDataError(f"{size} bytes cannot hold {count} values packed to {width} bits")
        return unpack_one(memory, start + block * block_size, width, place, _LEVEL_BITS).to_bytes(2, "little")

    return read


def _variable(width: int) -> Read:
    pair = Struct("<2I" if width == _OFFSET_32 else "<2Q")

    def read(memory: memoryview, start: int, size: int, count: int, index: int) -> bytes:
        needed = (count + 1) * width
        if size < needed:
            raise CorruptDataError(f"Variable: a chunk has {size} bytes where {needed} are needed")
        begin, end = pair.unpack_from(memory, start + index * width)
        if not needed <= begin <= end <= size:
            raise CorruptDataError("Variable: offsets of a chunk point outside of its bytes")
        return bytes(memory[start + begin : start + end])

    return read
