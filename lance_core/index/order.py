"""The order of values in sorted indices: numbers and times by value, floats in total order, text by its bytes."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.errors import CorruptDataError
from lance_core.sql import float_order
from lance_core.sql.kernels import pc

Keys: TypeAlias = npt.NDArray[Any]
"""Values that NumPy compares in the order of the index: integers, or Python's objects."""


def sort_order(values: pa.Array) -> pa.Array:
    """Return the positions of values in order; nulls come first."""
    return pc.array_sort_indices(_comparable(values), null_placement="at_start")


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
