"""From the encoding of a page to the Arrow array of some of its rows: the only dispatch point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.encoding.arrow_values import (
    dictionary_without_nulls,
    from_values,
    null_mask,
    offset_dtype,
    pack_bits,
    take_values,
    to_values,
    unpack_bits,
)
from lance_core.encoding.kernels import take_inside
from lance_core.encoding.plans import finished_plan, together
from lance_core.encoding.v2_0.buffers import Wanted, read_bits, read_words
from lance_core.encoding.v2_0.packed import bit_width, fixed_array, read_bitpacked, read_fast_lanes, read_packed_struct
from lance_core.encoding.v2_0.strings import read_binary, read_equal, read_fsst
from lance_core.encoding.values import VariableValues
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.file.array_encoding import (
    AllNulls,
    Binary,
    Bitpacked,
    Dictionary,
    FastLanes,
    FixedSizeBinary,
    FixedSizeList,
    Flat,
    Fsst,
    PackedStruct,
    SomeNulls,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.plans import ReadPlan
    from lance_core.encoding.v2_0.buffers import Buffers
    from lance_core.format.file.array_encoding import ArrayEncoding

_UNSIGNED = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}


def read_array(encoding: ArrayEncoding, wanted: Wanted, kind: pa.DataType) -> ReadPlan[pa.Array]:
    """Return values of a page.

    Args:
        encoding: How the page is encoded.
        wanted: At least one value.
        kind: Arrow type to come out.

    Returns:
        Array of that type and of ``len(wanted)`` values, with offset 0.

    Raises:
        CorruptDataError: Buffers that do not fit the encoding, an encoding that does not fit the type.
        UnsupportedError: An encoding that cannot be read for this type.
        InvalidInputError: More bytes than 32-bit offsets can tell.
    """
    match encoding:  # hands generators on rather than delegate to them: each costs time at every step of a column
        case AllNulls():
            return finished_plan(pa.nulls(len(wanted), kind))
        case SomeNulls():
            return _read_some_nulls(encoding, wanted, kind)
        case Flat() | Bitpacked() | FastLanes():
            return _read_fixed(encoding, wanted, kind)
        case FixedSizeList():
            return _read_lists(encoding, wanted, kind)
        case Binary():
            return read_binary(encoding, wanted, kind)
        case Fsst():
            return read_fsst(encoding, wanted, kind)
        case FixedSizeBinary():
            return read_equal(encoding, wanted, kind)
        case PackedStruct():
            return read_packed_struct(encoding, wanted, kind)
        case Dictionary():
            return _read_own_dictionary(encoding, wanted, kind)
        case _:
            raise UnsupportedError(f"a page of {type(encoding).__name__} for {kind} is not supported")


def _read_own_dictionary(encoding: Dictionary, wanted: Wanted, kind: pa.DataType) -> ReadPlan[pa.Array]:
    items = yield from read_items(encoding, wanted.buffers, kind)
    return (yield from read_dictionary(encoding, wanted, kind, items))


def _read_some_nulls(encoding: SomeNulls, wanted: Wanted, kind: pa.DataType) -> ReadPlan[pa.Array]:
    coroutines: list[ReadPlan[Any]] = [read_bits(wanted, encoding.validity), read_array(encoding.values, wanted, kind)]
    bitmap, array = yield from together(coroutines)
    if pa.types.is_dictionary(kind) or pa.types.is_null(kind):
        raise UnsupportedError(f"a page of {kind} with a bitmap of nulls is not supported")
    is_null = null_mask(array)
    if is_null is not None:
        bitmap = pack_bits(unpack_bits(bitmap, 0, len(array)) & ~is_null)
    children: list[pa.Array] | None = None
    if pa.types.is_fixed_size_list(kind):
        children = [array.values]
    elif pa.types.is_struct(kind):
        children = [array.field(index) for index in range(kind.num_fields)]
    bounds = array.buffers()[1:] if children is None else []
    return pa.Array.from_buffers(kind, len(array), [bitmap, *bounds], children=children)


def _read_fixed(encoding: Flat | Bitpacked | FastLanes, wanted: Wanted, kind: pa.DataType) -> ReadPlan[pa.Array]:
    if pa.types.is_nested(kind) or pa.types.is_dictionary(kind) or encoding.bits != bit_width(kind):
        raise CorruptDataError(f"a page has values of {encoding.bits} bits for {kind}")
    match encoding:
        case Flat(bits=1):
            data = yield from read_bits(wanted, encoding)
        case Flat():
            data = yield from read_words(wanted, encoding)
        case Bitpacked():
            data = yield from read_bitpacked(encoding, wanted)
        case FastLanes():
            data = yield from read_fast_lanes(encoding, wanted)
    return fixed_array(kind, len(wanted), data)


def _read_lists(encoding: FixedSizeList, wanted: Wanted, kind: pa.DataType) -> ReadPlan[pa.Array]:
    if not pa.types.is_fixed_size_list(kind) or kind.list_size != encoding.dimension:
        raise CorruptDataError(f"a page has lists of {encoding.dimension} items for {kind}")
    inside = Wanted(wanted.buffers, wanted.rows, wanted.per_row * encoding.dimension)
    items = yield from read_array(encoding.items, inside, kind.value_type)
    return pa.Array.from_buffers(kind, len(wanted), [None], children=[items])


def read_items(encoding: Dictionary, buffers: Buffers, kind: pa.DataType) -> ReadPlan[pa.Array]:
    """Return all items of a page's dictionary."""
    item_kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not encoding.num_items:
        return pa.nulls(0, item_kind)
    return (yield from read_array(encoding.items, Wanted(buffers, range(encoding.num_items)), item_kind))


def read_dictionary(encoding: Dictionary, wanted: Wanted, kind: pa.DataType, items: pa.Array) -> ReadPlan[pa.Array]:
    """Return values of a page with a dictionary.

    Args:
        encoding: How the page is encoded.
        wanted: At least one value.
        kind: Arrow type to come out; nulls are nulls among the indices, even if it is a dictionary type.
        items: What `read_items` returned.
    """
    bits = encoding.indices.bits if isinstance(encoding.indices, (Flat, Bitpacked, FastLanes)) else 0
    if bits not in _UNSIGNED or wanted.per_row != 1:
        raise CorruptDataError(f"a page has dictionary indices of {bits} bits")
    array = yield from read_array(encoding.indices, wanted, _UNSIGNED[bits])
    indices: npt.NDArray[Any] = array.to_numpy()
    if pa.types.is_dictionary(kind):
        return dictionary_array(kind, indices, items)
    if int(indices.max()) > len(items):
        raise _beyond(items)
    if offset_dtype(kind) is not None and len(items) and not items.null_count:
        return _take_strings(items, indices, kind)
    return take_inside(pa.concat_arrays([pa.nulls(1, kind), items]), array)


def _take_strings(items: pa.Array, indices: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Strings of a dictionary; index 0 is null, and others count from 1."""
    # What stands under a null does not matter. An item does not make strings of one length differ.
    strings = to_values(items)
    assert isinstance(strings, VariableValues)  # noqa: S101 - what an array of strings consists of
    shortest = int(np.diff(strings.offsets).argmin())
    values = to_values(pa.concat_arrays([items.slice(shortest, 1), items]))
    is_valid = indices != 0
    return from_values(take_values(values, indices), kind, None if is_valid.all() else is_valid, len(indices))


def dictionary_array(kind: pa.DataType, indices: npt.NDArray[Any], items: pa.Array) -> pa.Array:
    """Return a dictionary array; what points at a null item becomes null itself.

    Args:
        kind: Dictionary type.
        indices: Shape (n,), at least one.
        items: Of the type's value type.

    Raises:
        CorruptDataError: An index beyond the items.
    """
    if int(indices.min()) < 0 or int(indices.max()) >= len(items):
        raise _beyond(items)
    numbers = indices.astype(kind.index_type.to_pandas_dtype(), copy=False)
    keys = pa.Array.from_buffers(kind.index_type, len(numbers), [None, pa.py_buffer(numbers)])
    return dictionary_without_nulls(pa.DictionaryArray.from_arrays(keys, items, ordered=kind.ordered))


def _beyond(items: pa.Array) -> CorruptDataError:
    return CorruptDataError(f"an index points beyond a dictionary of {len(items)} items")
