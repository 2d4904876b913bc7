"""Arrow arrays without nesting, to values and back. Nulls are not values: they travel as definition levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.common.limits import check_limit
from lance_core.encoding.codecs.packed_struct import split_rows
from lance_core.encoding.jsonb import encode_text
from lance_core.encoding.jsonb_arrays import decode_texts
from lance_core.encoding.kernels import check_places, gather, starts_of, take_inside, take_numbers
from lance_core.encoding.values import DictionaryValues, FixedListValues, FixedValues, StructValues, VariableValues
from lance_core.errors import CorruptDataError, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.encoding.repdef import Mask
    from lance_core.encoding.values import LeafValues, Values

_UNSIGNED: dict[int, npt.DTypeLike] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
MAX_INT32 = 2**31 - 1
_MAX_NUMPY_STRINGS = 1 << 8
"""Up to so many, numpy finds strings faster than Arrow."""
_MOSTLY_NULL = 3 / 4
"""Share of nulls from which on the values are so few that to repeat them costs nothing."""

_MANY_STRINGS, _REPEATS, _LOOKED_AT, _MORE_ROOM = 1 << 15, 8, 1 << 10, 1.1
"""Of so many strings, each so often, the mean size of some is asked, and for so much more memory."""


def is_fieldless(kind: pa.DataType) -> bool:
    """True for a struct without fields, which has neither values nor nulls."""
    return pa.types.is_struct(kind) and kind.num_fields == 0


def offset_dtype(kind: pa.DataType) -> npt.DTypeLike | None:
    """Return the type of a string or binary type's offsets; None for other types."""
    if kind in (pa.string(), pa.binary()):
        return np.int32
    return np.int64 if kind in (pa.large_string(), pa.large_binary()) else None


def buffer_view(buffer: pa.Buffer | None, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an Arrow buffer as array; empty if there is none."""
    if buffer is None or buffer.size == 0:
        return np.empty(0, dtype)
    width = np.dtype(dtype).itemsize
    return np.frombuffer(buffer, dtype, count=buffer.size // width)


def unpack_bits(buffer: pa.Buffer, offset: int, length: int) -> Mask:
    """Bits ``offset`` to ``offset + length`` of a bitmap."""
    first = offset // 8
    used = buffer_view(buffer, np.uint8)[first : (offset + length + 7) // 8]
    return np.unpackbits(used, bitorder="little")[offset - 8 * first :][:length].view(np.bool_)


def pack_bits(mask: Mask) -> pa.Buffer:
    """Return a bitmap in Arrow's bit order."""
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def as_mask(array: pa.BooleanArray) -> Mask:
    """Return an array without nulls as a mask; `to_numpy` would import pandas."""
    return unpack_bits(array.buffers()[1], array.offset, len(array)) if len(array) else np.empty(0, np.bool_)


def mask_array(mask: Mask) -> pa.BooleanArray:
    """Return a mask as an Arrow array; see `numbers_array`."""
    return pa.BooleanArray.from_buffers(pa.bool_(), len(mask), [None, pack_bits(mask)])


def null_mask(array: pa.Array) -> Mask | None:
    """Return an array of shape (n,), True where an array is null; None if nothing is."""
    if not array.null_count:
        return None
    if pa.types.is_null(array.type):
        return np.ones(len(array), np.bool_)
    return ~unpack_bits(array.buffers()[0], array.offset, len(array))


def to_values(array: pa.Array) -> Values:
    """Return the values of a leaf array, views where possible; whatever stands under its nulls is kept."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        return _list_to_values(array)
    if pa.types.is_boolean(kind):
        return FixedValues(as_mask(array))
    dtype = offset_dtype(kind)
    if dtype is None:
        return FixedValues(words_of(array))
    _, offset_buffer, data = array.buffers()
    if not len(array):
        return VariableValues(np.zeros(1, dtype), np.empty(0, np.uint8))
    offsets = buffer_view(offset_buffer, dtype)[array.offset : array.offset + len(array) + 1]
    begin, end = int(offsets[0]), int(offsets[-1])
    return VariableValues(offsets - offsets[0] if begin else offsets, buffer_view(data, np.uint8)[begin:end])


def leaf_values(array: pa.Array, name: str) -> LeafValues | None:
    """Return the values of a leaf array of any type that a column can have; None if the type has no values.

    Raises:
        InvalidInputError: Null in a field of a packed struct.
    """
    kind = array.type
    if pa.types.is_null(kind) or is_fieldless(kind):
        return None
    if pa.types.is_struct(kind):
        return _struct_to_values(array, name)
    return _dictionary_to_values(array) if pa.types.is_dictionary(kind) else to_values(array)


def _struct_to_values(array: pa.StructArray, name: str) -> StructValues:
    is_null = null_mask(array)
    children: list[Values] = []
    for index in range(array.type.num_fields):
        child = array.field(index)
        inner = null_mask(child)
        if inner is not None and bool(inner.any() if is_null is None else (inner & ~is_null).any()):
            inside = f"{name}.{array.type.field(index).name}"
            raise InvalidInputError(f"field {inside!r}: packed structs cannot hold nulls of single fields")
        if pa.types.is_fixed_size_list(child.type) and is_null is not None:
            child = child.fill_null(pa.scalar([0] * child.type.list_size, child.type))
        children.append(to_values(child))
    return StructValues(tuple(children))


def _dictionary_to_values(array: pa.DictionaryArray) -> DictionaryValues:
    """Indices and items; items that are null stay in the dictionary, their places are null already."""
    items = array.dictionary
    indices = array.indices.fill_null(0)
    return DictionaryValues(FixedValues(words_of(indices)), to_values(items))


def dictionary_without_nulls(array: pa.Array) -> pa.Array:
    """Return the same array of dictionary type; places that point to a null of the dictionary are null themselves."""
    if not pa.types.is_dictionary(array.type) or not array.dictionary.null_count:
        return array
    indices = np.asarray(array.indices.fill_null(0)).astype(np.int64)
    is_null = np.asarray(array.dictionary.is_null())[indices] | np.asarray(array.is_null())
    items = array.dictionary.drop_null()
    new_indices = np.cumsum(np.asarray(array.dictionary.is_valid())) - 1
    moved = pa.array(np.where(is_null, 0, new_indices[indices]), mask=is_null).cast(array.type.index_type)
    return pa.DictionaryArray.from_arrays(moved, items, ordered=array.type.ordered)


def words_of(array: pa.Array) -> npt.NDArray[Any]:
    """Values of one width of whole bytes: unsigned words, or rows of bytes if there are no words of that width."""
    bits: int = array.type.bit_width
    if bits in _UNSIGNED:
        return buffer_view(array.buffers()[1], _UNSIGNED[bits])[array.offset : array.offset + len(array)]
    width = bits // 8
    data = buffer_view(array.buffers()[1], np.uint8)[array.offset * width : (array.offset + len(array)) * width]
    return data.reshape(len(array), width)


def spread_over_nulls(values: npt.NDArray[Any], array: pa.Array) -> npt.NDArray[Any]:
    """Return values of one width; where most of an array is null, nulls hold the value before them.

    They may hold anything, and a page of them would be as large as one without nulls. Where fewer are null this saves
    little, and takes ten times as long.

    Args:
        values: Shape (n, ...), of the array.
        array: n values.
    """
    if not _MOSTLY_NULL < array.null_count / max(1, len(array)) < 1:
        return values
    valid = unpack_bits(array.buffers()[0], array.offset, len(array)).nonzero()[0]
    counts = np.diff(valid, append=len(array))
    counts[0] += valid[0]
    return np.repeat(values[valid], counts, axis=0)


def _list_to_values(array: pa.FixedSizeListArray) -> FixedListValues:
    dimension: int = array.type.list_size
    items = array.values.slice(array.offset * dimension, len(array) * dimension)
    is_null = null_mask(items)
    return FixedListValues(dimension, to_values(items), None if is_null is None else ~is_null)


def from_values(values: LeafValues | None, kind: pa.DataType, validity: Mask | None, length: int) -> pa.Array:
    """Return a leaf array.

    Args:
        values: The values; None if all are null.
        kind: Arrow type.
        validity: Shape (length,), None if all are valid.
        length: Number of values.

    Raises:
        CorruptDataError: The values are not such as the type needs.
        InvalidInputError: More bytes than 32-bit offsets can tell.
    """
    if is_fieldless(kind):
        return pa.Array.from_buffers(kind, length, [None], children=[])
    if values is None or pa.types.is_null(kind):
        return pa.nulls(length, kind)
    if len(values) != length:
        raise CorruptDataError(f"a page has {len(values)} values where its levels call for {length}")
    return _array_of(values, kind, None if validity is None else pack_bits(validity))


def _array_of(values: LeafValues, kind: pa.DataType, bitmap: pa.Buffer | None) -> pa.Array:
    """Return values as an array with a validity bitmap; None if no value is null."""
    match values:
        case FixedListValues():
            return _list_from_values(values, kind, bitmap)
        case VariableValues():
            return _strings_from_values(values, kind, bitmap)
        case FixedValues() if pa.types.is_struct(kind):
            return _struct_from_values(StructValues(tuple(split_rows(values, _widths(kind)))), kind, bitmap)
        case FixedValues():
            return _fixed_from_values(values.data, kind, bitmap)
        case StructValues():
            return _struct_from_values(values, kind, bitmap)
        case DictionaryValues() if pa.types.is_dictionary(kind):
            return _dictionary_from_values(values, kind, bitmap)
        case DictionaryValues():
            return _looked_up(values.items, values.indices.data, kind, bitmap)


def json_to_binary(array: pa.Array) -> pa.Array:
    """JSON as it is stored, from text.

    Raises:
        InvalidInputError: Text that is no JSON.
    """
    return pa.array([None if text is None else encode_text(text) for text in array.to_pylist()], pa.large_binary())


def binary_to_json(array: pa.Array) -> pa.Array:
    """JSON as text, from what is stored; errors as in `lance_core.encoding.jsonb_arrays.decode_texts`."""
    return decode_texts(array)


def _widths(kind: pa.StructType) -> list[int]:
    """Return bytes of each field of fixed width.

    Raises:
        CorruptDataError: A field of another kind.
    """
    try:
        return [kind.field(index).type.bit_width // 8 for index in range(kind.num_fields)]
    except ValueError as error:
        raise CorruptDataError(f"a page has structs of fixed width for {kind}") from error


def _struct_from_values(values: StructValues, kind: pa.DataType, bitmap: pa.Buffer | None) -> pa.Array:
    if not pa.types.is_struct(kind) or kind.num_fields != len(values.children):
        raise CorruptDataError(f"a page has packed structs of {len(values.children)} fields for {kind}")
    children = [
        from_values(child, kind.field(index).type, None, len(values)) for index, child in enumerate(values.children)
    ]
    return pa.Array.from_buffers(kind, len(values), [bitmap], children=children)


def _dictionary_from_values(values: DictionaryValues, kind: pa.DataType, bitmap: pa.Buffer | None) -> pa.Array:
    """Return a dictionary array; an item that occurs in the dictionaries of several pages is left once."""
    items = from_values(values.items, kind.value_type, None, len(values.items))
    item_indices: npt.NDArray[Any] = values.indices.data
    if len(values) and int(item_indices.max()) >= len(items):
        raise CorruptDataError(f"an index points beyond {len(items)} items of a dictionary")
    if values.may_repeat:
        once = items.dictionary_encode()
        if len(once.dictionary) < len(items):
            items, item_indices = once.dictionary, np.asarray(once.indices).take(item_indices)
    if len(items) > _max_index(kind.index_type) + 1:
        raise InvalidInputError(f"{len(items)} items are too many for {kind}; ask for smaller batches")
    dtype = np.dtype(kind.index_type.to_pandas_dtype())
    indices = pa.Array.from_buffers(
        kind.index_type,
        len(item_indices),
        [bitmap, pa.py_buffer(np.ascontiguousarray(item_indices.astype(dtype, copy=False)))],
    )
    return pa.DictionaryArray.from_arrays(indices, items, safe=False)


def _looked_up(items: Values, indices: npt.NDArray[Any], kind: pa.DataType, bitmap: pa.Buffer | None) -> pa.Array:
    """Return the items at indices; those under nulls have to be there, too."""
    if not isinstance(items, VariableValues) or len(indices) <= _MAX_NUMPY_STRINGS:
        return _array_of(take_values(items, indices), kind, bitmap)
    check_places(indices, len(items))
    array = take_inside(_strings_from_values(_with_room(items, indices), kind, None), indices)
    return array if bitmap is None else pa.Array.from_buffers(kind, len(array), [bitmap, *array.buffers()[1:]])


def _max_index(kind: pa.DataType) -> int:
    return int(np.iinfo(kind.to_pandas_dtype()).max)


def _fixed_from_values(data: npt.NDArray[Any], kind: pa.DataType, bitmap: pa.Buffer | None) -> pa.Array:
    if offset_dtype(kind) is not None or pa.types.is_nested(kind):
        raise CorruptDataError(f"a page has fixed-width values for {kind}")
    if pa.types.is_boolean(kind):
        if data.dtype != np.bool_:
            raise CorruptDataError("a page has no booleans for a column of them")
        return pa.Array.from_buffers(kind, len(data), [bitmap, pack_bits(data)])
    width = data.dtype.itemsize * (data.shape[1] if data.ndim > 1 else 1)
    if data.dtype == np.bool_ or width * 8 != kind.bit_width:
        raise CorruptDataError(f"a page has values of {width} bytes for {kind}")
    return pa.Array.from_buffers(kind, len(data), [bitmap, pa.py_buffer(np.ascontiguousarray(data))])


def _strings_from_values(values: VariableValues, kind: pa.DataType, bitmap: pa.Buffer | None) -> pa.Array:
    dtype = offset_dtype(kind)
    if dtype is None:
        raise CorruptDataError(f"a page has values of variable width for {kind}")
    offsets = values.offsets
    if offsets.dtype != dtype:
        if dtype == np.int32 and int(offsets[-1]) > MAX_INT32:
            raise InvalidInputError(f"more than 2 GiB of {kind} in one batch; ask for smaller batches")
        offsets = offsets.astype(dtype)
    buffers = [bitmap, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(values.data))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def _list_from_values(values: FixedListValues, kind: pa.DataType, bitmap: pa.Buffer | None) -> pa.Array:
    if not pa.types.is_fixed_size_list(kind) or kind.list_size != values.dimension:
        raise CorruptDataError(f"a page has lists of {values.dimension} items for {kind}")
    items = from_values(values.items, kind.value_type, values.validity, len(values) * values.dimension)
    return pa.Array.from_buffers(kind, len(values), [bitmap], children=[items])


def join_values(parts: Sequence[Values]) -> Values:
    """Join values of several parts, one after the other.

    Raises:
        CorruptDataError: Parts of different kinds.
    """
    if len(parts) == 1:
        return parts[0]
    lists = [part for part in parts if isinstance(part, FixedListValues)]
    if len(lists) == len(parts) and len({part.dimension for part in lists}) == 1:
        return _join_lists(lists)
    arrays = [part.data for part in parts if isinstance(part, FixedValues)]
    strings = [part for part in parts if isinstance(part, VariableValues)]
    if len(arrays) == len(parts) and len({(part.dtype, part.shape[1:]) for part in arrays}) == 1:
        return FixedValues(np.concatenate(arrays))
    if len(strings) != len(parts) or len({part.offsets.dtype for part in strings}) > 1:
        raise CorruptDataError("dictionaries of one column hold different kinds of values")
    ends = [int(part.offsets[-1]) for part in strings]
    bases = np.cumsum([0, *ends[:-1]])
    moved = [part.offsets[1:].astype(np.int64) + base for part, base in zip(strings, bases, strict=True)]
    offsets: npt.NDArray[Any] = np.concatenate([np.zeros(1, np.int64), *moved])
    data = np.concatenate([part.data[:end] for part, end in zip(strings, ends, strict=True)])
    if len(data) <= MAX_INT32:
        offsets = offsets.astype(strings[0].offsets.dtype)
    return VariableValues(offsets, data)


def _join_lists(parts: Sequence[FixedListValues]) -> FixedListValues:
    items = join_values([part.items for part in parts])
    if all(part.validity is None for part in parts):
        return FixedListValues(parts[0].dimension, items, None)
    masks = [np.ones(len(part.items), np.bool_) if part.validity is None else part.validity for part in parts]
    return FixedListValues(parts[0].dimension, items, np.concatenate(masks))


def own_values(values: Values) -> Values:
    """Return the same values in memory of their own."""
    match values:
        case FixedValues(data):
            return FixedValues(np.array(data))
        case VariableValues(offsets, data):
            start, end = int(offsets[0]), int(offsets[-1])
            return VariableValues(offsets - offsets.dtype.type(start), data[start:end].copy())
        case FixedListValues(dimension, items, validity):
            return FixedListValues(dimension, own_values(items), None if validity is None else validity.copy())


def num_bytes_of(values: Values) -> int:
    """Return bytes that values take in memory."""
    match values:
        case FixedValues(data):
            return data.nbytes
        case VariableValues(offsets, data):
            return offsets.nbytes + data.nbytes
        case FixedListValues(_, items, validity):
            return num_bytes_of(items) + (0 if validity is None else validity.nbytes)


def slice_leaf(values: LeafValues | None, start: int, end: int) -> LeafValues | None:
    """Return some consecutive values of a page; views as in `slice_values`."""
    match values:
        case None:
            return None
        case StructValues(children):
            return StructValues(tuple(slice_values(child, start, end) for child in children))
        case DictionaryValues(indices, items, may_repeat):
            return DictionaryValues(FixedValues(indices.data[start:end]), items, may_repeat=may_repeat)
        case _:
            return slice_values(values, start, end)


def slice_values(values: Values, start: int, end: int) -> Values:
    """Return some consecutive values; views, so that offsets of strings need not start at 0."""
    match values:
        case FixedValues(data):
            return FixedValues(data[start:end])
        case VariableValues(offsets, data):
            return VariableValues(offsets[start : end + 1], data)
        case FixedListValues(dimension, items, validity):
            low, high = start * dimension, end * dimension
            sliced_validity = None if validity is None else validity[low:high]
            return FixedListValues(dimension, slice_values(items, low, high), sliced_validity)


def take_values(values: Values, indices: npt.NDArray[Any]) -> Values:
    """Return the values at ``indices``.

    Raises:
        CorruptDataError: An index beyond the values.
    """
    check_places(indices, len(values))
    match values:
        case FixedValues(data) if data.ndim == 1 and data.dtype != np.bool_:
            return FixedValues(take_numbers(data, indices))
        case FixedValues(data):
            return FixedValues(data.take(indices, axis=0))
        case VariableValues(offsets, data) if len(indices) <= _MAX_NUMPY_STRINGS:
            value_indices: npt.NDArray[np.int64] = indices.astype(np.int64)
            starts = offsets[value_indices].astype(np.int64)
            sizes = offsets[value_indices + 1] - starts
            bounds: npt.NDArray[Any] = starts_of(sizes)
            if bounds[-1] <= MAX_INT32:
                bounds = bounds.astype(offsets.dtype)
            return VariableValues(bounds, gather(data, starts, sizes))
        case VariableValues(offsets, _):
            kind = pa.binary() if offsets.dtype == np.int32 else pa.large_binary()
            return to_values(take_inside(_strings_from_values(_with_room(values, indices), kind, None), indices))
        case FixedListValues(dimension, items, validity):
            value_indices = (indices[:, None] * np.int64(dimension) + np.arange(dimension)).reshape(-1)
            taken_validity = None if validity is None else validity[value_indices]
            return FixedListValues(dimension, take_values(items, value_indices), taken_validity)


def _with_room(items: VariableValues, indices: npt.NDArray[Any]) -> VariableValues:
    """Return strings to take many of, and maybe one more behind them that no index asks for.

    Arrow makes room for as many strings of mean size as are taken, and if those that repeat are larger it copies all to
    twice the room, into memory never touched before. The last string raises the mean to that of some of the indices.
    """
    if len(indices) < max(_MANY_STRINGS, _REPEATS * len(items)):
        return items
    offsets = items.offsets
    some = np.diff(offsets)[indices[:: -(-len(indices) // _LOOKED_AT)]]
    room = int(some.mean() * _MORE_ROOM * (len(items) + 1)) + 1 - int(offsets[-1] - offsets[0])
    if room <= 0 or int(offsets[-1]) + room > MAX_INT32:
        return items
    data = np.concatenate((items.data[: int(offsets[-1])], np.zeros(room, np.uint8)))
    longer: npt.NDArray[Any] = np.append(offsets, offsets.dtype.type(len(data)))
    return VariableValues(longer, data)


def spread_values(values: Values | StructValues, is_valid: Mask) -> Values | StructValues:
    """Return values with empty ones between them.

    Args:
        values: One for each slot that is valid.
        is_valid: Shape (n,): the slots.

    Raises:
        CorruptDataError: There are not as many values as valid slots.
        UnsupportedError: More bytes than the limit allows.
    """
    num_valid = int(np.count_nonzero(is_valid))
    if num_valid != len(values):
        raise CorruptDataError(f"a page has {len(values)} values for {num_valid} valid slots")
    if num_valid == len(is_valid):
        return values
    if isinstance(values, StructValues):
        return StructValues(tuple(_spread(child, is_valid) for child in values.children))
    return _spread(values, is_valid)


def _spread(values: Values, is_valid: Mask) -> Values:
    match values:
        case FixedValues(data):
            row_bytes = data.itemsize * (data.shape[1] if data.ndim > 1 else 1)
            check_limit("max_decompressed_bytes", len(is_valid) * row_bytes, "bytes of values among nulls")
            spread = np.zeros((len(is_valid), *data.shape[1:]), data.dtype)
            spread[is_valid] = data
            return FixedValues(spread)
        case VariableValues(offsets, data):
            sizes = np.zeros(len(is_valid), np.int64)
            sizes[is_valid] = np.diff(offsets)
            bounds: npt.NDArray[Any] = starts_of(sizes).astype(offsets.dtype)
            return VariableValues(bounds, data)
        case FixedListValues(dimension, items, validity):
            check_limit("max_decompressed_bytes", len(is_valid) * dimension, "items among nulls")
            of_items = np.repeat(is_valid, dimension)
            if validity is not None:
                here = np.zeros(len(of_items), np.bool_)
                here[of_items] = validity
                validity = here
            return FixedListValues(dimension, _spread(items, of_items), validity)


def without_views(kind: pa.DataType) -> pa.DataType:
    """Return the type with string and binary views replaced by strings and bytes, at any depth.

    Arrow has no kernels that take or filter views, and Lance stores none. Views of lists stay: Lance has no such type.
    """
    if isinstance(kind, pa.BaseExtensionType):  # those made in Python have no hash
        return pa.json_(without_views(kind.storage_type)) if isinstance(kind, pa.JsonType) else kind
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, without_views(kind.value_type), kind.ordered)
    if not kind.num_fields:
        return _PLAIN.get(kind.id, kind)
    fields = [kind.field(number) for number in range(kind.num_fields)]
    plain = [field.with_type(without_views(field.type)) for field in fields]
    if plain == fields:
        return kind
    if pa.types.is_struct(kind):
        return pa.struct(plain)
    if pa.types.is_map(kind):
        return pa.map_(*(plain[0].type.field(number) for number in range(2)), keys_sorted=kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(plain[0], kind.list_size)
    make = {pa.types.is_list: pa.list_, pa.types.is_large_list: pa.large_list}
    return next((of(plain[0]) for is_kind, of in make.items() if is_kind(kind)), kind)


_PLAIN = {pa.string_view().id: pa.string(), pa.binary_view().id: pa.binary()}


def as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array in the type that `without_views` makes of its own."""
    if array.type.equals(kind, check_metadata=True):
        return array
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(kind, as_type(array.storage, kind.storage_type))
    return array.cast(kind)


def batch_of(arrays: Sequence[pa.Array], schema: pa.Schema, num_rows: int) -> pa.RecordBatch:
    """Make a batch of columns that are ``num_rows`` long; without columns it has as many rows all the same."""
    if arrays:
        return pa.RecordBatch.from_arrays(list(arrays), schema=schema)
    empty = pa.Array.from_buffers(pa.struct([]), num_rows, [None], children=[])
    return pa.RecordBatch.from_struct_array(empty).replace_schema_metadata(schema.metadata)


def taken(table: pa.Table, indices: pa.Array) -> pa.Table:
    """Take rows of a table; Arrow itself forgets how many there are if the table has no columns."""
    if table.num_columns:
        return table.take(indices)
    return pa.Table.from_batches([batch_of([], table.schema, len(indices))])


def settled(array: pa.Array) -> pa.Array:
    """Return the same values, safe to filter and to take from.

    pyarrow 26.0.1 reads other memory when it filters slices of fixed-size lists of fixed-size lists; this copies them.
    """
    return pa.concat_arrays([array]) if needs_settling(array.type) else array


def needs_settling(kind: pa.DataType) -> bool:
    """True if `settled` copies: fixed-size lists occur directly inside of each other, at any depth."""
    if not pa.types.is_nested(kind):
        return False
    if pa.types.is_fixed_size_list(kind) and pa.types.is_fixed_size_list(kind.value_type):
        return True
    return any(needs_settling(kind.field(index).type) for index in range(kind.num_fields))
