"""From Arrow arrays to pages of version 2.0: plain values, strings with their ends, small dictionaries.

Buffers of a page are numbered in the order in which the tree of its encoding names them.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import mutable
from lance_core.encoding.arrow_values import buffer_view, null_mask, offset_dtype, pack_bits, to_values, unpack_bits
from lance_core.encoding.codecs import fsst
from lance_core.encoding.codecs.general import compress_block
from lance_core.encoding.options import PageOptions
from lance_core.encoding.v2_0.packed import bit_width
from lance_core.encoding.values import VariableValues
from lance_core.errors import InvalidInputError
from lance_core.format.file.array_encoding import (
    AllNulls,
    Binary,
    Dictionary,
    FixedSizeList,
    Flat,
    Fsst,
    ListOffsets,
    PackedStruct,
    SomeNulls,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.encoding.repdef import Mask
    from lance_core.encoding.values import Bytes, Int64s
    from lance_core.format.file.array_encoding import ArrayEncoding

_MAX_ITEMS = 255
"""Items of the dictionary of a page of strings: indices are of 8 bits, and 0 is null."""
_MIN_DICTIONARY_ROWS = 100
_SAMPLE_ROWS = 1 << 10


_AS_IT_IS = PageOptions(version="2.0")


@mutable
class PageBuffers:
    """The buffers of a page, as they are made.

    Attributes:
        options: How to compress the bytes of strings.
    """

    options: PageOptions = _AS_IT_IS
    buffers: list[Bytes] = field(default_factory=list["Bytes"])

    def add(self, data: Bytes) -> int:
        """Append a buffer; its number."""
        self.buffers.append(data)
        return len(self.buffers) - 1


def encode_values(array: pa.Array, page: PageBuffers, *, may_be_indexed: bool = True) -> ArrayEncoding:
    """Encode values that are neither structs nor lists of varying length.

    Args:
        array: Any number of values.
        page: Takes the buffers.
        may_be_indexed: False if strings must not be replaced by a dictionary.

    Raises:
        InvalidInputError: A dictionary without room for null.
    """
    kind = array.type
    num_nulls = array.null_count
    if pa.types.is_null(kind) or (num_nulls and num_nulls == len(array)):
        return AllNulls()
    if pa.types.is_dictionary(kind):
        return _encode_dictionary(array, page)
    if offset_dtype(kind) is not None:
        indexed = _index_strings(array, page) if may_be_indexed else None
        return indexed or _encode_strings(array, page)
    if not num_nulls:
        return _encode_plain(array, page)
    validity = page.add(_bits(array.buffers()[0], array.offset, len(array)))
    return SomeNulls(Flat(1, validity), _encode_plain(array, page))


def encode_ends(sizes: Int64s, is_null: Mask | None, page: PageBuffers) -> ListOffsets:
    """Encode where lists end.

    Args:
        sizes: Shape (n,), items of each list.
        is_null: Shape (n,), None if nothing is null.
        page: Takes the buffer.
    """
    num_items = int(sizes.sum())
    ends = np.cumsum(sizes, dtype=np.int64)
    if is_null is not None:
        ends[is_null] += num_items + 1
    return ListOffsets(Flat(64, page.add(ends.view(np.uint8))), num_items + 1, num_items)


def encode_packed(columns: Sequence[Bytes], page: PageBuffers) -> PackedStruct:
    """Encode structs row by row.

    Args:
        columns: For each field shape (n, width) of uint8.
        page: Takes the buffer.
    """
    number = page.add(np.concatenate(columns, axis=1).reshape(-1))
    return PackedStruct(number, tuple(Flat(8 * column.shape[1], number) for column in columns))


def fixed_bytes(array: pa.Array) -> Bytes:
    """Return an array of shape (n, width): the bytes of values of fixed width; whatever stands under nulls is kept."""
    count = len(array)
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        start = array.offset * kind.list_size
        return fixed_bytes(array.values.slice(start, count * kind.list_size)).reshape(count, -1)
    width = bit_width(kind) // 8
    data = buffer_view(array.buffers()[1], np.uint8)
    return data[array.offset * width : (array.offset + count) * width].reshape(count, width)


def _encode_plain(array: pa.Array, page: PageBuffers) -> ArrayEncoding:
    """Return values of fixed width; nulls are the caller's."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        items = array.values.slice(array.offset * kind.list_size, len(array) * kind.list_size)
        return FixedSizeList(kind.list_size, encode_values(items, page))
    if pa.types.is_boolean(kind):
        return Flat(1, page.add(_bits(array.buffers()[1], array.offset, len(array))))
    return Flat(bit_width(kind), page.add(fixed_bytes(array).reshape(-1)))


def _bits(bitmap: pa.Buffer | None, offset: int, length: int) -> Bytes:
    """Return a bitmap that begins with its first bit and has no others."""
    if bitmap is None or not length:
        return np.empty(0, np.uint8)
    if offset % 8 or length % 8:
        bitmap, offset = pack_bits(unpack_bits(bitmap, offset, length)), 0
    return buffer_view(bitmap, np.uint8)[offset // 8 : (offset + length + 7) // 8]


def _encode_strings(array: pa.Array, page: PageBuffers) -> Binary | Fsst:
    values = to_values(array)
    assert isinstance(values, VariableValues)  # noqa: S101 for the type checker: the caller asked
    table = None
    if page.options.compression == "fsst" and offset_dtype(array.type) == np.int32:  # pylance reads no others
        table, values = fsst.encode(values)
    total = len(values.data)
    ends = values.offsets[1:].astype(np.int64)
    is_null = null_mask(array)
    if is_null is not None:
        ends[is_null] += total + 1
    number = page.add(ends.view(np.uint8))
    codec = page.options.codec if total else None
    data = values.data if codec is None else compress_block(codec, values.data, page.options.compression_level)
    binary = Binary(Flat(64, number), Flat(8, page.add(data), codec), total + 1)
    return binary if table is None else Fsst(table, binary)


def _index_strings(array: pa.Array, page: PageBuffers) -> Dictionary | None:
    """Return a dictionary for few different strings; pylance 14.0.2 takes the items for text with 32-bit offsets."""
    if len(array) < _MIN_DICTIONARY_ROWS or array.type != pa.string():
        return None
    if len(array) > _SAMPLE_ROWS and len(array.slice(0, _SAMPLE_ROWS).dictionary_encode().dictionary) > _MAX_ITEMS:
        return None
    encoded = array.dictionary_encode()
    items = encoded.dictionary
    if len(items) > _MAX_ITEMS:
        return None
    positions = buffer_view(encoded.indices.buffers()[1], np.int32)[: len(array)].astype(np.uint8) + np.uint8(1)
    is_null = null_mask(array)
    if is_null is not None:
        positions[is_null] = 0
    indices = Flat(8, page.add(positions))
    plain = PageBuffers(buffers=page.buffers)
    return Dictionary(indices, encode_values(items, plain, may_be_indexed=False), len(items))


def _encode_dictionary(array: pa.DictionaryArray, page: PageBuffers) -> Dictionary:
    """Arrays of dictionary type: a null becomes an item like any other."""
    kind = array.type
    indices, items = _without_unused(array) if len(array.dictionary) > len(array) else (array.indices, array.dictionary)
    is_null = null_mask(indices)
    if is_null is not None and not items.null_count:
        if len(items) >= _capacity(kind.index_type):
            indices, items = _without_unused(array)
        if len(items) >= _capacity(kind.index_type):
            raise InvalidInputError(
                f"a dictionary of {len(items)} values with {kind.index_type} indices has no room for null, which "
                "files of version 2.0 need; use a wider index type"
            )
        items = pa.concat_arrays([items, pa.nulls(1, items.type)])
    dtype: npt.DTypeLike = kind.index_type.to_pandas_dtype()
    positions: npt.NDArray[Any] = buffer_view(indices.buffers()[1], dtype)[indices.offset : indices.offset + len(array)]
    if is_null is not None:
        position = int(np.flatnonzero(np.asarray(items.is_null()))[0])
        positions = np.where(is_null, np.asarray(position, dtype), positions)
    number = page.add(np.ascontiguousarray(positions).view(np.uint8))
    plain = PageBuffers(buffers=page.buffers)
    encoded = encode_values(items, plain, may_be_indexed=False)
    return Dictionary(Flat(bit_width(kind.index_type), number), encoded, len(items))


def _capacity(index_type: pa.DataType) -> int:
    return int(np.iinfo(index_type.to_pandas_dtype()).max) + 1


def _without_unused(array: pa.DictionaryArray) -> tuple[pa.Array, pa.Array]:
    """Indices into those values of a dictionary that occur."""
    is_null = null_mask(array.indices)
    indices = np.asarray(array.indices.fill_null(0)).astype(np.int64)
    is_used = np.zeros(len(array.dictionary), bool)
    is_used[indices if is_null is None else indices[~is_null]] = True
    # Nulls count as index 0, which an empty dictionary does not have.
    positions = np.append(np.cumsum(is_used) - is_used, 0)[indices].astype(array.type.index_type.to_pandas_dtype())
    used = pa.array(np.flatnonzero(is_used))
    return pa.array(positions, array.type.index_type, mask=is_null), array.dictionary.take(used)
