"""Dictionaries: each distinct value once, and an index for each value.

The index is a page's value (and is packed like any integer); the items are a block of their own in the mini-block
layout. Source: fields ``dictionary`` and ``num_dictionary_items`` of ``MiniBlockLayout``.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.encoding.codecs.flat import from_bytes
from lance_core.encoding.kernels import numbers_array, view_buffer
from lance_core.encoding.values import FixedValues, VariableValues

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Int64s

MAX_ITEMS = 100_000
_MIN_VALUES = 100
_SAMPLE_BLOCKS = 32
_SPARSE_SAMPLE = 512
_REPEATS = 0.95
"""If more than this part of a few strings are distinct, so are more than half of the sample."""
_OFTEN = 8
"""If a few values repeat so often, more of them need not be looked at."""
_SAMPLE_BLOCK, _LARGE_SAMPLE_BLOCK = 128, 2048


def to_arrow(values: FixedValues | VariableValues) -> pa.Array:
    """Return values as a binary or unsigned Arrow array, without copy."""
    if isinstance(values, VariableValues):
        kind = pa.binary() if values.offsets.dtype.itemsize == 4 else pa.large_binary()
        buffers = [None, pa.py_buffer(values.offsets), pa.py_buffer(values.data)]
        return pa.Array.from_buffers(kind, len(values), buffers)
    if values.data.ndim == 1:
        return numbers_array(values.data)
    kind = pa.binary(values.data.shape[1])
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values.data))])


def _from_arrow(array: pa.Array, like: FixedValues | VariableValues) -> FixedValues | VariableValues:
    """Return the reverse of ``to_arrow``, for arrays that own their memory."""
    buffers = array.buffers()
    if isinstance(like, VariableValues):
        offsets: npt.NDArray[Any] = np.frombuffer(buffers[1], like.offsets.dtype, len(array) + 1)
        return VariableValues(offsets, view_buffer(buffers[2]))
    return from_bytes(view_buffer(buffers[1])[: len(array) * like.data[:1].nbytes], like.data[:1].nbytes * 8)


@lru_cache(maxsize=4)
def sample_positions(count: int, block: int = _SAMPLE_BLOCK) -> Int64s:
    """Return positions of up to 4096 values (or 32 times ``block``) in blocks spread over all of them."""
    if count <= _SAMPLE_BLOCKS * block:
        return np.arange(count, dtype=np.int64)
    firsts = np.arange(_SAMPLE_BLOCKS, dtype=np.int64) * (count - block) // (_SAMPLE_BLOCKS - 1)
    return (firsts[:, None] + np.arange(block)).reshape(-1)


def sparse_positions(count: int) -> Int64s:
    """Return some of the sampled positions, all of them if they are not many."""
    positions = sample_positions(count)
    return positions[:: len(positions) // _SPARSE_SAMPLE] if len(positions) > 2 * _SPARSE_SAMPLE else positions


def sampled_distinct(values: FixedValues | VariableValues) -> int | None:
    """Distinct values, judged by samples; None if they repeat too little for a dictionary to be worth building.

    Strings must repeat so much that no codec does as well. Codecs find little in words, so for those many items may be
    worth it; their number follows from how few values of a sample occur twice.
    """
    if len(values) < _MIN_VALUES:
        return None
    positions, some = sample_positions(len(values)), sparse_positions(len(values))
    if len(some) < len(positions):
        num_sampled, is_word = _num_distinct(values, some), isinstance(values, FixedValues) and values.data.ndim == 1
        if num_sampled * _OFTEN <= len(some):
            return num_sampled
        if num_sampled > (len(some) - 1 if is_word else _REPEATS * len(some)):
            return None
    whole = to_arrow(values)
    sample = whole if len(positions) == len(values) else whole.take(numbers_array(positions))
    distinct = len(sample.unique())
    if distinct * 2 <= len(sample):
        return distinct
    guess = None if isinstance(values, VariableValues) else _guess(distinct, len(sample))
    if guess is None or len(values) <= _SAMPLE_BLOCKS * _LARGE_SAMPLE_BLOCK:
        return guess  # to look at all of so few values costs as much as to build the dictionary
    positions = sample_positions(len(values), _LARGE_SAMPLE_BLOCK)
    return _guess(len(whole.take(numbers_array(positions)).unique()), len(positions))


def _num_distinct(values: FixedValues | VariableValues, positions: Int64s) -> int:
    """Return the distinct ones of a few values."""
    if isinstance(values, FixedValues) and values.data.ndim == 1:
        some = np.sort(values.data[positions])
        return 1 + int(np.count_nonzero(some[1:] != some[:-1]))
    return len(to_arrow(values).take(numbers_array(positions)).unique())


def _guess(distinct: int, count: int) -> int | None:
    """Estimate the number of equally frequent values from the distinct ones of a sample; None above `MAX_ITEMS`."""
    low, high = distinct, MAX_ITEMS
    if distinct > high * -math.expm1(-count / high):
        return None
    while low < high:
        middle = (low + high) // 2
        if middle * -math.expm1(-count / middle) < distinct:
            low = middle + 1
        else:
            high = middle
    return low


def build(
    values: FixedValues | VariableValues, *, most: int
) -> tuple[FixedValues, FixedValues | VariableValues] | None:
    """Split values into indices and items; None if there are more than ``most`` distinct values.

    Indices are as narrow as the number of items allows: words of 8 and 16 bits are unpacked five and two times as fast
    as those of 32, and look items up without being widened. pylance 14.0.2 writes 32 bits, but reads all widths.
    """
    encoded = to_arrow(values).dictionary_encode()
    num_items = len(encoded.dictionary)
    if num_items > min(most, MAX_ITEMS):
        return None
    indices = view_buffer(encoded.indices.buffers()[1])[: len(values) * 4].view("<u4")
    return FixedValues(indices.astype(index_dtype(num_items), copy=False)), _from_arrow(encoded.dictionary, values)


def index_dtype(num_items: int) -> str:
    """Return the narrowest words that number so many items."""
    return "<u1" if num_items <= 1 << 8 else "<u2" if num_items <= 1 << 16 else "<u4"
