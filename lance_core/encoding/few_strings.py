"""Many strings of a small dictionary.

To look up a string takes Arrow 4 ns or more, of whatever length, and to look up words of one length 1 ns. So strings of
one length are looked up as words. Of others, neighbours are looked up together: all tuples that the items can make are
laid out first, and the places of neighbours are the digits of their tuple's number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.encoding.kernels import binary_array, empty, numbers_array, take_inside, view_buffer
from lance_core.encoding.values import VariableValues

if TYPE_CHECKING:
    import numpy.typing as npt

_LEAST_STRINGS = 1 << 11
_LEAST_LENGTH, _MAX_LENGTH = 3, 8
"""Pairs gain too little."""
_MAX_TUPLES = 1 << 10
_MAX_TABLE_BYTES = 1 << 18
"""The tuples stay in the cache."""
_LEAST_USES = 16
"""Tuples are worth laying out if each is wanted so often."""
_MAX_OFFSET = 2**31 - 1


def take_few(items: VariableValues, indices: npt.NDArray[Any]) -> VariableValues | None:
    """The strings at some places of a dictionary; None if they are better looked up otherwise.

    Args:
        items: The dictionary.
        indices: Shape (n,), unsigned, all below the number of items.
    """
    count, num_items = len(indices), len(items)
    size = int(items.offsets[-1]) // max(1, num_items)
    if count < _LEAST_STRINGS:
        return None
    if size and count * size <= _MAX_OFFSET and (np.diff(items.offsets) == size).all():
        return _take_even(items, indices, size)
    if num_items**_LEAST_LENGTH > _MAX_TUPLES or count * int(items.offsets[-1]) > _MAX_OFFSET:
        return None
    length = _tuple_length(num_items, count, int(items.offsets[-1]))
    return None if length < _LEAST_LENGTH else _take_tuples(items, indices, length)


def _take_even(items: VariableValues, indices: npt.NDArray[Any], size: int) -> VariableValues:
    """The strings at some places, if each takes so many bytes."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(items.data[: len(items) * size]))]
    taken = take_inside(pa.Array.from_buffers(pa.binary(size), len(items), buffers), indices)
    offsets = empty(len(indices) + 1, items.offsets.dtype)
    offsets[:] = np.arange(0, (len(indices) + 1) * size, size, dtype=offsets.dtype)
    return VariableValues(offsets, view_buffer(taken.buffers()[1]))


def _tuple_length(num_items: int, num_strings: int, item_bytes: int) -> int:
    """Strings to look up at once."""
    length, num_tuples = 1, num_items
    most = min(_MAX_TUPLES, num_strings // _LEAST_USES)
    while length < _MAX_LENGTH and num_tuples * num_items <= most:
        # Each item stands equally often in each place.
        if (length + 1) * num_tuples * item_bytes > _MAX_TABLE_BYTES:
            break
        length, num_tuples = length + 1, num_tuples * num_items
    return length


def _take_tuples(items: VariableValues, indices: npt.NDArray[Any], length: int) -> VariableValues:
    digits = np.indices((len(items),) * length).reshape(length, -1).T.reshape(-1)
    laid_out = take_inside(binary_array(items.offsets.astype(np.int64), items.data), digits)
    bounds = view_buffer(laid_out.buffers()[1]).view(np.int64)[: len(digits) + 1]
    sizes = np.diff(bounds).astype(items.offsets.dtype)
    tuples = binary_array(bounds[::length], view_buffer(laid_out.buffers()[2]))
    kind = pa.binary(length * sizes.itemsize)
    tuple_sizes = pa.Array.from_buffers(kind, len(tuples), [None, pa.py_buffer(sizes)])

    numbers = numbers_array(_numbers(indices, len(items), length))
    each: npt.NDArray[Any] = view_buffer(take_inside(tuple_sizes, numbers).buffers()[1]).view(sizes.dtype)
    offsets = empty(len(indices) + 1, sizes.dtype)
    offsets[0] = 0
    np.cumsum(each[: len(indices)], out=offsets[1:])
    return VariableValues(offsets, view_buffer(take_inside(tuples, numbers).buffers()[2]))


def _numbers(indices: npt.NDArray[Any], num_items: int, length: int) -> npt.NDArray[np.uint16]:
    """The number of each tuple of neighbours; the last one is filled up with zeros."""
    if len(indices) % length:
        indices = np.append(indices, np.zeros(-len(indices) % length, indices.dtype))
    numbers = np.zeros(len(indices) // length, np.uint16)
    for digits in indices.reshape(-1, length).T:
        numbers *= np.uint16(num_items)
        np.add(numbers, digits, out=numbers, casting="unsafe")
    return numbers
