"""FixedSizeList: a fixed number of items per value, nested to any depth around Flat, or Constant if all are null.

Buffers of a chunk: the items' validity bitmap of each level that has one (outer first), then the data. In full-zip
values the same parts stand next to each other in every value. Where every item is null, pylance stores ``Constant``
without a value in full-zip pages: rows hold the bitmaps only. Source: message ``FixedSizeList``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.codecs import flat
from lance_core.encoding.codecs.codec import Codec, Scalar
from lance_core.encoding.kernels import MAX_VALUE_BITS, check_sizes, gather
from lance_core.encoding.values import Chunks, FixedListValues, FixedValues
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.file.encodings import Constant, FixedSizeList, Flat

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Int64s, Values


@frozen
class _Level:
    """One list level: its dimension, items per outermost value, and whether it has a bitmap."""

    dimension: int
    items: int
    has_validity: bool


def _levels(encoding: FixedSizeList) -> tuple[list[_Level], int]:
    """Return the levels, outer first, and the bits of a stored item.

    Raises:
        CorruptDataError: A dimension is 0 or too large.
        UnsupportedError: The items are not Flat.
    """
    levels, inner = _unwrap(encoding)
    if not isinstance(inner, Flat):
        raise UnsupportedError(f"FixedSizeList over {type(inner).__name__} encoding")
    flat.check_bits(inner.bits)
    _check_width(levels, inner.bits)
    return levels, inner.bits


def _unwrap(encoding: FixedSizeList) -> tuple[list[_Level], object]:
    """Return the levels, outer first, and the encoding of the innermost items."""
    levels: list[_Level] = []
    items = 1
    inner: object = encoding
    while isinstance(inner, FixedSizeList):
        items *= inner.dimension
        if not 0 < items <= MAX_VALUE_BITS:
            raise CorruptDataError(f"fixed-size list of {items} items")
        levels.append(_Level(inner.dimension, items, inner.has_validity))
        inner = inner.values
    return levels, inner


def _check_width(levels: list[_Level], bits: int) -> None:
    items = levels[-1].items
    if items * bits > MAX_VALUE_BITS:
        raise CorruptDataError(f"fixed-size list of {items} items of {bits} bits")


def _num_buffers(encoding: FixedSizeList) -> int:
    """Return the value buffers of a chunk: one for each bitmap and one for the data."""
    levels, _ = _levels(encoding)
    return 1 + sum(level.has_validity for level in levels)


def decode(encoding: FixedSizeList, chunks: Chunks) -> FixedListValues:
    """Decode all values of all chunks.

    Raises:
        CorruptDataError: A buffer is too short for its count.
    """
    levels, bits = _levels(encoding)
    if len(chunks.buffers) == 1 and any(level.has_validity for level in levels):
        return _decode_block(encoding, chunks)
    validities: list[npt.NDArray[np.bool_] | None] = []
    position = 0
    for level in levels:
        validities.append(_bits(chunks, position, level.items) if level.has_validity else None)
        position += level.has_validity
    counts = chunks.counts * levels[-1].items
    data = Chunks(
        buffers=chunks.buffers[position:], starts=chunks.starts[position:], sizes=chunks.sizes[position:], counts=counts
    )
    return _nest(levels, flat.decode(Flat(bits), data), validities)


def _decode_block(encoding: FixedSizeList, blocks: Chunks) -> FixedListValues:
    """Decode a block of lists with validity: the rows of a full-zip page."""
    start, size, count = int(blocks.starts[0, 0]), int(blocks.sizes[0, 0]), int(blocks.counts[0])
    if len(blocks.counts) != 1 or count == 0 or size % count:
        raise CorruptDataError(f"a block of {size} bytes for {count} fixed-size lists")
    return decode_rows(encoding, blocks.buffers[0][start : start + size].reshape(count, -1), None)


def decode_at(encoding: FixedSizeList, chunks: Chunks, chunk_of: Int64s, index: Int64s) -> FixedListValues | None:
    """Decode value ``index[i]`` of chunk ``chunk_of[i]``; None for items of less than a byte or with nulls.

    Raises:
        CorruptDataError: A buffer is too short for its count.
    """
    levels, bits = _levels(encoding)
    if bits == 1 or any(level.has_validity for level in levels):
        return None
    rows = flat.decode_at(Flat(levels[-1].items * bits), chunks, chunk_of, index)
    return _nest(levels, flat.from_bytes(flat.to_bytes(rows.data), bits), [None] * len(levels))


def decode_one(encoding: FixedSizeList) -> Scalar | None:
    """Make the reader of single values; None for lists of lists, of bits, or of items that may be null."""
    items = encoding.values
    if encoding.has_validity or not isinstance(items, Flat) or items.bits <= 0 or items.bits % 8:
        return None
    width = encoding.dimension * items.bits // 8
    return Scalar(flat.read_width(width), ("lists", width))


def _bits(chunks: Chunks, position: int, items: int) -> npt.NDArray[np.bool_]:
    """One validity bitmap of all chunks."""
    counts = chunks.counts * items
    needed = (counts + 7) // 8
    check_sizes(chunks.sizes[position], needed, "FixedSizeList validity")
    return flat.unpack_bits(gather(chunks.buffers[position], chunks.starts[position], needed), counts)


def _nest(levels: list[_Level], items: Values, validities: list[npt.NDArray[np.bool_] | None]) -> FixedListValues:
    """Wrap items from the innermost level outwards."""
    inner, *outer = zip(reversed(levels), reversed(validities), strict=True)
    values = FixedListValues(inner[0].dimension, items, inner[1])
    for level, validity in outer:
        values = FixedListValues(level.dimension, values, validity)
    return values


def decode_rows(encoding: FixedSizeList, rows: Bytes, kind: pa.DataType | None) -> FixedListValues:
    """Decode full-zip rows.

    Args:
        encoding: Lists around Flat, or around Constant without a value; booleans are bits.
        rows: Shape (n, bytes per value), validity bytes first.
        kind: Arrow type of the values, which tells the lists and the width of items that are not stored.

    Raises:
        CorruptDataError: Rows have another width.
        UnsupportedError: The items are neither Flat nor null.
    """
    levels, inner = _unwrap(encoding)
    is_null = inner == Constant(None)
    bits = 0 if is_null else _levels(encoding)[1]
    validities: list[npt.NDArray[np.bool_] | None] = []
    at = 0
    for level in levels:
        width = (level.items + 7) // 8 if level.has_validity else 0
        validities.append(_row_bits(rows[:, at : at + width], level.items) if width else None)
        at += width
    data = rows[:, at:]
    if data.shape[1] != (levels[-1].items * bits + 7) // 8:
        raise CorruptDataError(f"full-zip list value of {rows.shape[1]} bytes")
    if is_null:
        if kind is None:
            raise UnsupportedError("FixedSizeList over Constant encoding inside of other values")
        validities[-1] = np.zeros(len(rows) * levels[-1].items, np.bool_)
        return _nest(levels, _null_items(levels, kind, len(rows)), validities)
    items = FixedValues(_row_bits(data, levels[-1].items)) if bits == 1 else _row_items(data, bits)
    return _nest(levels, items, validities)


def _null_items(levels: list[_Level], kind: pa.DataType, num_rows: int) -> Values:
    """Return what stands below items that are all null: zeros, in the lists that the type has in addition.

    Raises:
        CorruptDataError: The type is none of such lists, or values of it are too large.
    """
    for level in levels:
        if not pa.types.is_fixed_size_list(kind) or kind.list_size != level.dimension:
            raise CorruptDataError(f"a page has fixed-size lists of {level.dimension} items for {kind}")
        kind = kind.value_type
    inner: list[_Level] = []
    items = levels[-1].items
    while pa.types.is_fixed_size_list(kind):
        items *= kind.list_size
        inner.append(_Level(kind.list_size, items, has_validity=False))
        kind = kind.value_type
    try:
        bits: int = kind.bit_width
    except ValueError as error:
        raise CorruptDataError(f"a page has fixed-size lists for items of {kind}") from error
    flat.check_bits(bits)
    _check_width([*levels, *inner], bits)
    zeros = np.zeros(num_rows * items * bits // 8, np.uint8)
    values = FixedValues(np.zeros(num_rows * items, np.bool_)) if bits == 1 else flat.from_bytes(zeros, bits)
    return _nest(inner, values, [None] * len(inner)) if inner else values


def _row_items(data: Bytes, bits: int) -> FixedValues:
    """Items of all rows; a view if rows adjoin."""
    return flat.from_bytes(np.ascontiguousarray(data).reshape(-1), bits)


def _row_bits(data: Bytes, count: int) -> npt.NDArray[np.bool_]:
    """Return the first ``count`` bits of each row."""
    if data.shape[1] * 8 < count:
        raise CorruptDataError(f"full-zip list value: {data.shape[1]} bytes for {count} bits")
    flags = np.unpackbits(np.ascontiguousarray(data), axis=1, count=count, bitorder="little")
    return flags.reshape(-1).view(np.bool_)


def flatten(values: FixedListValues) -> tuple[list[FixedListValues], FixedValues]:
    """List levels, outer first, and the innermost items.

    Raises:
        UnsupportedError: Items of variable width.
    """
    levels = [values]
    while isinstance(levels[-1].items, FixedListValues):
        levels.append(levels[-1].items)
    items = levels[-1].items
    if not isinstance(items, FixedValues):
        raise UnsupportedError("fixed-size list of strings")
    return levels, items


def encoding_of(values: FixedListValues) -> FixedSizeList:
    """Return the encoding that ``encode_chunks`` writes."""
    levels, items = flatten(values)
    inner: Flat | FixedSizeList = Flat(flat.bits_of(items))
    for level in reversed(levels):
        inner = FixedSizeList(level.dimension, level.validity is not None, inner)
    assert isinstance(inner, FixedSizeList)  # noqa: S101 - there is at least one level
    return inner


def encode_chunks(values: FixedListValues, counts: Int64s) -> Chunks:
    """Bitmaps and data of all chunks.

    Args:
        values: The values.
        counts: Values per chunk; multiples of 8 but for the last if there are bitmaps or booleans.
    """
    levels, items = flatten(values)
    num_items = 1
    parts: list[Chunks] = []
    for level in levels:
        num_items *= level.dimension
        if level.validity is not None:
            parts.append(flat.encode_chunks(FixedValues(level.validity), counts * num_items))
    parts.append(flat.encode_chunks(items, counts * num_items))
    return Chunks(
        buffers=tuple(part.buffers[0] for part in parts),
        starts=np.concatenate([part.starts for part in parts]),
        sizes=np.concatenate([part.sizes for part in parts]),
        counts=counts,
    )


FIXED_SIZE_LIST = Codec(
    serves=FixedSizeList,
    decode=decode,
    decode_at=decode_at,
    decode_one=decode_one,
    num_buffers=_num_buffers,
    decode_rows=decode_rows,
)
