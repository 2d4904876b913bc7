"""Integers of few bits, and structs whose fields stand row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.encoding.codecs import fastlanes
from lance_core.encoding.v2_0.buffers import read_rows
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.file.array_encoding import Flat

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.plans import ReadPlan, Rows
    from lance_core.encoding.v2_0.buffers import Wanted
    from lance_core.encoding.values import Bytes
    from lance_core.format.file.array_encoding import Bitpacked, FastLanes, PackedStruct


def read_bitpacked(encoding: Bitpacked, wanted: Wanted) -> ReadPlan[Bytes]:
    """Return values from one stream of bits: the bytes of the unpacked ones.

    What lies between sparse rows is read and unpacked too; no writer of this encoding is known.
    """
    numbers = _numbers(wanted)
    packed, first = encoding.packed_bits, int(numbers[0])
    count = int(numbers[-1]) + 1 - first
    low, high = first * packed // 8, ((first + count) * packed + 7) // 8
    if not packed:
        return np.zeros(len(numbers) * encoding.bits // 8, np.uint8)
    data = yield from read_rows(wanted.buffers, Flat(8, encoding.buffer), range(low, high), 1)
    bits = np.unpackbits(data, bitorder="little")[first * packed - low * 8 :][: count * packed].reshape(count, packed)
    wide = np.zeros((len(numbers), encoding.bits), np.uint8)
    wide[:, :packed] = bits[np.asarray(numbers) - first]
    if encoding.is_signed:
        wide[:, packed:] = wide[:, packed - 1 : packed]
    return np.packbits(wide, axis=1, bitorder="little").reshape(-1)


def read_fast_lanes(encoding: FastLanes, wanted: Wanted) -> ReadPlan[Bytes]:
    """Return values from blocks of 1024: the bytes of the unpacked ones."""
    numbers = np.asarray(_numbers(wanted), np.int64)
    blocks, block_index = np.unique(numbers // fastlanes.BLOCK, return_inverse=True)
    dtype = np.dtype(f"<u{encoding.bits // 8}")
    size = fastlanes.BLOCK * encoding.packed_bits // 8
    if not size:
        return np.zeros(len(numbers) * dtype.itemsize, np.uint8)
    rows: Rows = blocks
    if int(blocks[-1]) - int(blocks[0]) + 1 == len(blocks):
        rows = range(int(blocks[0]), int(blocks[-1]) + 1)
    data = yield from read_rows(wanted.buffers, Flat(8, encoding.buffer), rows, size)
    packed_words = np.ascontiguousarray(data).view(dtype)
    unpacked = fastlanes.unpack(packed_words, np.arange(len(blocks)) * (size // dtype.itemsize), encoding.packed_bits)
    values: npt.NDArray[Any] = unpacked[block_index, numbers % fastlanes.BLOCK]
    return values.view(np.uint8)


def _numbers(wanted: Wanted) -> Rows:
    return wanted.rows if wanted.per_row == 1 else wanted.numbers()


def read_packed_struct(encoding: PackedStruct, wanted: Wanted, kind: pa.DataType) -> ReadPlan[pa.Array]:
    """Structs of fields of fixed width, none of which is null.

    Raises:
        CorruptDataError: The type is no struct.
        UnsupportedError: A field that has no fixed width.
    """
    if not pa.types.is_struct(kind) or wanted.per_row != 1:
        raise CorruptDataError(f"a page has packed structs for {kind}")
    fields = [kind.field(index) for index in range(kind.num_fields)]
    widths = [byte_width(field.type) for field in fields]
    data = yield from read_rows(wanted.buffers, Flat(8, encoding.buffer), wanted.rows, sum(widths))
    rows = data.reshape(len(wanted), sum(widths))
    children: list[pa.Array] = []
    start = 0
    for field, width in zip(fields, widths, strict=True):
        column = np.ascontiguousarray(rows[:, start : start + width]).reshape(-1)
        children.append(fixed_array(field.type, len(wanted), column))
        start += width
    return pa.Array.from_buffers(kind, len(wanted), [None], children=children)


def byte_width(kind: pa.DataType) -> int:
    """Return bytes of a value.

    Raises:
        UnsupportedError: Not whole bytes, or not always the same number.
    """
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size * byte_width(kind.value_type)
    width = 0 if pa.types.is_nested(kind) or pa.types.is_dictionary(kind) else bit_width(kind)
    if width % 8 or not width:
        raise UnsupportedError(f"packed struct with a field of {kind}")
    return width // 8


def bit_width(kind: pa.DataType) -> int:
    """Bits of a value; 0 if they are not always the same number."""
    try:
        return kind.bit_width
    except ValueError:
        return 0


def fixed_array(kind: pa.DataType, count: int, data: Bytes | pa.Buffer) -> pa.Array:
    """Return values of fixed width, none of which is null; ``data`` holds exactly them."""
    if pa.types.is_fixed_size_list(kind):
        items = fixed_array(kind.value_type, count * kind.list_size, data)
        return pa.Array.from_buffers(kind, count, [None], children=[items])
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])
