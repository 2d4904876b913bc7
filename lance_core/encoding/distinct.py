"""Distinct numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


def distinct(numbers: Int64s) -> Int64s:
    """Each number once, ascending; `numpy.unique` builds a hash table for that, which takes many times as long."""
    ordered = np.sort(numbers)
    is_first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]
