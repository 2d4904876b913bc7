"""The order of values in sorted indices: numbers and times by value, floats in total order, text by its bytes."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.frozen import NamedTuple
from lance_core.encoding.arrow_values import as_mask, offset_dtype
from lance_core.encoding.kernels import WORD_BYTES, leading_words, numbers_array, numbers_of, view_buffer
from lance_core.errors import CorruptDataError
from lance_core.sql import float_order
from lance_core.sql.kernels import pc

Keys: TypeAlias = npt.NDArray[Any]
"""Values that NumPy compares in the order of the index: integers, or Python's objects."""

Int64s: TypeAlias = npt.NDArray[np.int64]

_MOST_RANKS = (1 << 16) - 1
"""Keys that differ, so that their ranks have 16 bits."""

_SAMPLED = 1 << 14
"""Keys of a sample that is looked at before all are; of fewer, a sort costs little."""

_FEWER = 4
"""Keys of the sample for each that differs, where it pays to look for those of all."""


def sort_order(values: pa.Array) -> pa.Array:
    """Return the positions of values in order; nulls come first, and equal values keep theirs."""
    keys = _comparable(values)
    if not keys.null_count:
        return numbers_array(_order_of(keys))
    nulls = keys.is_null()
    is_null = as_mask(nulls)
    filled = np.flatnonzero(~is_null)
    return numbers_array(np.concatenate([np.flatnonzero(is_null), filled[_order_of(keys.drop_null())]]))


def _order_of(keys: pa.Array) -> Int64s:
    """Return the positions of keys that are not null in order.

    NumPy sorts integers with vector instructions: 4 million in .09 s with their positions in the same words, .27 s
    without, where Arrow takes .86 s. Of texts it sorts 8 bytes behind what all of them begin with.
    """
    numbers = numbers_of(keys) if pa.types.is_integer(keys.type) else None
    if numbers is not None:
        order = _packed_order(numbers)
        if order is not None:
            return order
    ranks = _ranks(keys)
    if ranks is not None:
        return ranks.argsort(kind="stable")  # a radix sort, since they have 16 bits
    if numbers is not None:
        return _order_of_numbers(numbers)
    offset = offset_dtype(keys.type)
    if offset is None or not len(keys):
        return numbers_of(_sorted_by_arrow(keys))
    prefixes = _text_prefixes(keys, offset)
    return _order_of_numbers(prefixes.numbers) if prefixes.are_whole else _order_by_prefixes(prefixes.numbers, keys)


def order_of_numbers(numbers: npt.NDArray[Any]) -> Int64s:
    """Return the positions of integers in order; equal ones keep theirs."""
    order = _packed_order(numbers)
    return _order_of_numbers(numbers) if order is None else order


def _packed_order(numbers: npt.NDArray[Any]) -> Int64s | None:
    """Return the order of integers that leave room in words of 64 bits for their positions; None if they do not."""
    if not len(numbers):
        return np.empty(0, np.int64)
    least = int(numbers.min())
    position_bits = len(numbers).bit_length()
    if (int(numbers.max()) - least).bit_length() + position_bits > WORD_BYTES * 8:
        return None
    packed = numbers.astype(np.uint64)  # wraps around, as does the difference
    packed -= np.uint64(least & (1 << 64) - 1)
    packed <<= np.uint64(position_bits)
    packed |= np.arange(len(packed), dtype=np.uint64)
    packed.sort()
    packed &= np.uint64((1 << position_bits) - 1)
    return packed.view(np.int64)


def _order_of_numbers(numbers: npt.NDArray[Any]) -> Int64s:
    """Return the order of any numbers. NumPy's fast sort mixes up equal ones, so that their ranks are sorted again.

    Of a million of which half come twice it takes 70 ms, where Arrow takes 260 to sort those.
    """
    order = numbers.argsort()
    in_order = numbers[order]
    is_next = in_order[1:] != in_order[:-1]
    if is_next.all():
        return order
    ranks = np.zeros(len(order), np.uint64)
    np.cumsum(is_next, out=ranks[1:])
    position_bits = np.uint64(len(order).bit_length())  # ranks have no more: both fit for 2^32 numbers
    ranks <<= position_bits
    ranks |= order.view(np.uint64)
    ranks.sort()
    ranks &= (np.uint64(1) << position_bits) - np.uint64(1)
    return ranks.view(np.int64)


def _order_by_prefixes(prefixes: npt.NDArray[Any], keys: pa.Array) -> Int64s:
    """Return the order of keys by numbers that ascend with them; keys of equal ones are compared."""
    order = prefixes.argsort()
    in_order = prefixes[order]
    is_equal = in_order[1:] == in_order[:-1]
    if not is_equal.any():
        return order
    is_tied = np.append(is_equal, False)
    is_tied[1:] |= is_equal
    positions = np.flatnonzero(is_tied)
    tied = np.sort(order[positions])
    # Keys of equal numbers lie behind those of all lesser numbers, so that all are put in order together.
    order[positions] = tied[numbers_of(_sorted_by_arrow(keys.take(numbers_array(tied))))]
    return order


class _Prefixes(NamedTuple):
    """The first bytes of texts.

    Attributes:
        numbers: Shape (n,): 8 bytes behind what all texts begin with, zeros behind their end.
        are_whole: Texts of equal numbers are equal: none is longer, and none has zeros of its own.
    """

    numbers: npt.NDArray[np.uint64]
    are_whole: bool


def _text_prefixes(keys: pa.Array, dtype: npt.DTypeLike) -> _Prefixes:
    """Return the first bytes of texts.

    Args:
        keys: Texts, shape (n,), at least one.
        dtype: Type of their offsets.
    """
    bounds = pc.min_max(keys.cast(pa.binary() if dtype == np.int32 else pa.large_binary())).as_py()
    least, greatest = bounds["min"], bounds["max"]
    differs = (at for at, (low, high) in enumerate(zip(least, greatest, strict=False)) if low != high)
    prefix = next(differs, len(least))
    offsets = np.frombuffer(keys.buffers()[1], dtype)
    offsets = offsets[keys.offset : keys.offset + len(keys) + 1]
    data = view_buffer(keys.buffers()[2])
    starts = offsets[:-1] + offsets.dtype.type(prefix)
    sizes = offsets[1:] - starts
    are_whole = bool(sizes.max() <= WORD_BYTES and np.all(data[offsets[0] : offsets[-1]]))
    return _Prefixes(leading_words(data, starts, sizes).byteswap(inplace=True), are_whole)


def _sorted_by_arrow(keys: pa.Array) -> pa.Array:
    return pc.array_sort_indices(keys, null_placement="at_start")


def _ranks(keys: pa.Array) -> npt.NDArray[np.uint16] | None:
    """Return the rank of each key among those that differ; None if an ordinary sort is cheaper.

    Of 5 million floats with 2,900 different ones it takes .18 instead of .99 s.
    """
    if len(keys) <= _SAMPLED:
        return None
    sample = keys.take(numbers_array(np.linspace(0, len(keys) - 1, _SAMPLED, dtype=np.int64)))
    if pc.count_distinct(sample, mode="all").as_py() * _FEWER > _SAMPLED:
        return None
    encoded = keys.dictionary_encode()
    if len(encoded.dictionary) > _MOST_RANKS:
        return None
    order = numbers_of(_sorted_by_arrow(encoded.dictionary))
    ranks = np.empty(len(order), np.uint16)
    ranks[order] = np.arange(len(order), dtype=np.uint16)
    return ranks[numbers_of(encoded.indices)]


def sort_keys(values: pa.Array) -> Keys:
    """Return what NumPy compares instead of values, which are not null.

    Raises:
        CorruptDataError: Text is not valid UTF-8.
    """
    comparable = _comparable(values)
    if pa.types.is_integer(comparable.type):
        return comparable.to_numpy(zero_copy_only=False)
    # Code points of str are in the order of the bytes of UTF-8.
    keys = np.empty(len(comparable), object)
    try:
        keys[:] = comparable.to_pylist()
    except UnicodeDecodeError as error:
        raise CorruptDataError("an index has text that is not valid UTF-8") from error
    return keys


def has_number_keys(kind: pa.DataType) -> bool:
    """Return whether `sort_keys` of values of a type are integers."""
    return pa.types.is_primitive(kind)


def num_bytes(keys: Keys) -> int:
    """Return how much memory keys take, about."""
    return keys.nbytes + (sum(map(sys.getsizeof, keys.tolist())) if keys.dtype == object else 0)


def _comparable(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_floating(kind):
        return float_order.order_keys(values)
    if pa.types.is_boolean(kind):
        return values.cast(pa.uint8())
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return values.view(pa.int32())
    return values.view(pa.int64()) if pa.types.is_temporal(kind) else values
