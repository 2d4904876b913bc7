"""Single values out of mini-block chunks without lists, one at a time.

A numpy call costs as much for one value as for a thousand. For a handful of values plain numbers are cheaper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from struct import Struct
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from lance_core.encoding.arrow_values import offset_dtype
from lance_core.encoding.physical import fixed_size_list, flat
from lance_core.encoding.physical.fastlanes import BLOCK, unpack_one
from lance_core.encoding.values import FixedValues, VariableValues
from lance_core.errors import CorruptDataError
from lance_core.format.encodings import Encoding, FixedSizeList, Flat, InlineBitpacking, OutOfLineBitpacking, Variable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.values import Values
    from lance_core.format.page_layout import MiniBlockLayout

_LEVEL_BITS = 16

_Read: TypeAlias = Callable[[memoryview, int, int, int, int], bytes]
"""From memory, position and bytes of a buffer, values in it, and which is wanted: its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleReader:
    """How to read single values of chunks of one layout.

    Attributes:
        header: Number of levels, bytes of levels if there are any, bytes of values; the rest is padding.
        level: Reads a definition level; None if there are none.
        value: Reads a value.
        encoding: Encoding of the values.
    """

    header: Struct
    level: _Read | None
    value: _Read
    encoding: Encoding

    def read(self, memory: memoryview, chunk: tuple[int, int, int], index: int) -> tuple[int, bytes]:
        """The definition level (0 without) and the bytes of a value.

        Args:
            memory: Holds the chunk.
            chunk: Its position, bytes and number of values.
            index: Which of its values.

        Raises:
            CorruptDataError: The chunk does not hold it.
        """
        start, size, count = chunk
        at, end = start + self.header.size, start + size
        if at > end or end > len(memory):
            raise CorruptDataError("a chunk is too small for its header")
        if not 0 <= index < count:
            raise CorruptDataError("values are wanted that their chunks do not hold")
        level = 0
        if self.level is None:
            _, value_size = self.header.unpack_from(memory, start)
        else:
            num_levels, level_size, value_size = self.header.unpack_from(memory, start)
            if num_levels != count:
                raise CorruptDataError("a chunk without lists has another number of levels than of values")
            if at + level_size > end:
                raise CorruptDataError("a buffer reaches beyond the end of its chunk")
            level = int.from_bytes(self.level(memory, at, level_size, count, index), "little")
            at += level_size + 7 & ~7
        if at + value_size > end:
            raise CorruptDataError("a buffer reaches beyond the end of its chunk")
        return level, self.value(memory, at, value_size, count, index)

    def join(self, values: Sequence[bytes]) -> Values:
        """What was read, as values."""
        data = np.frombuffer(b"".join(values), np.uint8)
        match self.encoding:
            case Variable(offset_bits):
                offsets = np.fromiter(accumulate(map(len, values), initial=0), f"<i{offset_bits // 8}", len(values) + 1)
                return VariableValues(offsets, data)
            case FixedSizeList():
                return fixed_size_list.decode_fixed_zip(self.encoding, data.reshape(len(values), -1))
            case Flat(1):
                return FixedValues(data.view(np.bool_))
            case Flat(bits) | InlineBitpacking(bits):
                return flat.from_bytes(data, bits)
            case _:
                raise ValueError(f"values in {self.encoding} are not read one by one")


def single_reader(layout: MiniBlockLayout) -> SingleReader | None:
    """How to read single values of a layout; None if that takes more than a look at a few bytes."""
    value = _value(layout.values)
    level = None if layout.definition is None else _level(layout.definition)
    if layout.rep is not None or value is None or (level is None) != (layout.definition is None):
        return None
    if layout.num_buffers != 1:
        return None
    fields = "<H" + "H" * (level is not None) + ("I" if layout.has_large_chunk else "H")
    padding = -Struct(fields).size % 8
    return SingleReader(header=Struct(f"{fields}{padding}x"), level=level, value=value, encoding=layout.values)


def look_up(items: Values, indices: Sequence[bytes]) -> list[bytes]:
    """The items at little-endian places in a dictionary.

    Raises:
        CorruptDataError: A place beyond the dictionary.
    """
    places = [int.from_bytes(index, "little") for index in indices]
    if max(places) >= len(items):
        raise CorruptDataError(f"an index points beyond {len(items)} values")
    match items:
        case VariableValues(offsets, data):
            bounds = [offsets[place : place + 2].tolist() for place in places]
            return [data[begin:end].tobytes() for begin, end in bounds]
        case FixedValues(data) if data.dtype != np.bool_:
            return [data[place].tobytes() for place in places]
        case _:
            raise CorruptDataError("a dictionary of values that are neither words nor strings")


def plain_array(kind: pa.DataType, width: int, values: Sequence[bytes], levels: Sequence[int] | None) -> pa.Array:
    """Words or strings without nesting as an Arrow array.

    Args:
        kind: Its type.
        width: Bytes of each value of that type, if they are words; 0 for strings.
        values: The values.
        levels: For each 1 if it is null and 0 if not; None if none is.

    Raises:
        CorruptDataError: A level that means nothing, or values that are not of that type.
    """
    count, bitmap = len(values), None
    if levels is not None and any(levels):
        if max(levels) > 1:
            raise CorruptDataError("a definition level is larger than the layers allow")
        bitmap = pa.py_buffer(np.packbits([level == 0 for level in levels], bitorder="little"))
    data = b"".join(values)
    if width:
        if len(data) != width * count or len(values[0]) != width:
            raise CorruptDataError(f"a page has values of {len(values[0])} bytes for {kind}")
        return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(data)])
    offsets = np.fromiter(accumulate(map(len, values), initial=0), offset_dtype(kind), count + 1)
    return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])


def _value(encoding: Encoding) -> _Read | None:
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


def _level(encoding: Encoding) -> _Read | None:
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


def _flat(width: int) -> _Read:
    def read(memory: memoryview, start: int, size: int, count: int, index: int) -> bytes:
        if size < count * width:
            raise CorruptDataError(f"Flat: a chunk has {size} bytes where {count * width} are needed")
        at = start + index * width
        return bytes(memory[at : at + width])

    return read


def _packed_inline(bits: int) -> _Read:
    word_bytes = bits // 8

    def read(memory: memoryview, start: int, size: int, count: int, index: int) -> bytes:
        if size < word_bytes or count > BLOCK:
            raise CorruptDataError(f"bit-packed chunk of {count} values in {size} bytes")
        width = int.from_bytes(memory[start : start + word_bytes], "little")
        if width > bits or size < word_bytes + width * (BLOCK // 8):
            raise CorruptDataError(f"bit-packed chunk of width {width} in {size} bytes, for values of {bits} bits")
        return unpack_one(memory, start + word_bytes, width, index, bits).to_bytes(word_bytes, "little")

    return read


def _packed_levels(width: int) -> _Read:
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


def _variable(width: int) -> _Read:
    def read(memory: memoryview, start: int, size: int, count: int, index: int) -> bytes:
        needed = (count + 1) * width
        at = start + index * width
        if size < needed:
            raise CorruptDataError(f"Variable: a chunk has {size} bytes where {needed} are needed")
        begin = int.from_bytes(memory[at : at + width], "little")
        end = int.from_bytes(memory[at + width : at + 2 * width], "little")
        if not needed <= begin <= end <= size:
            raise CorruptDataError("Variable: offsets of a chunk point outside of its bytes")
        return bytes(memory[start + begin : start + end])

    return read
