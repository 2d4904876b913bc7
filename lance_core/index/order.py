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


_MOST_RANKS = (1 << 16) - 1
"""Keys that differ, so that their ranks have 16 bits."""

_SAMPLED = 1 << 14
"""Keys of a sample that is looked at before all are; of fewer, a sort costs little."""

_FEWER = 4
"""Keys of the sample for each that differs, where it pays to look for those of all."""


def sort_order(values: pa.Array) -> pa.Array:
    """Return the positions of values in order; nulls come first, and equal values keep theirs."""
    keys = _comparable(values)
    ranks = _ranks(keys)
    if ranks is None:
        return pc.array_sort_indices(keys, null_placement="at_start")
    return pa.array(ranks.argsort(kind="stable"))  # a radix sort, since they have 16 bits


def _ranks(keys: pa.Array) -> npt.NDArray[np.uint16] | None:
    """Return the rank of each key among those that differ, nulls first; None if an ordinary sort is cheaper.

    Of 5 million floats with 2,900 different ones it takes .18 instead of .99 s.
    """
    if len(keys) <= _SAMPLED or _is_narrow(keys):
        return None
    sample = keys.take(pa.array(np.linspace(0, len(keys) - 1, _SAMPLED, dtype=np.int64)))
    if pc.count_distinct(sample, mode="all").as_py() * _FEWER > _SAMPLED:
        return None
    encoded = keys.dictionary_encode(null_encoding="encode")
    if len(encoded.dictionary) > _MOST_RANKS:
        return None
    order = pc.array_sort_indices(encoded.dictionary, null_placement="at_start").to_numpy()
    ranks = np.empty(len(order), np.uint16)
    ranks[order] = np.arange(len(order), dtype=np.uint16)
    return ranks[encoded.indices.to_numpy(zero_copy_only=False)]


def _is_narrow(keys: pa.Array) -> bool:
    """Return whether Arrow counts keys instead of sorting them: integers that lie close together."""
    if not pa.types.is_integer(keys.type):
        return False
    bounds = pc.min_max(keys).as_py()
    return bounds["min"] is None or bounds["max"] - bounds["min"] <= _MOST_RANKS


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
