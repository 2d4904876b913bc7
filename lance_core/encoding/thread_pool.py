"""Many byte ranges, worked on by several threads side by side."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from lance_core.encoding.kernels import starts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_core.encoding.values import Int64s

_T = TypeVar("_T")

_LEAST_BYTES = 1 << 21
"""About two milliseconds of work: with less a hundred single values would pay for threads."""
_MOST_THREADS = 16


def run_parts(work: Callable[[slice], _T], sizes: Int64s) -> list[_T]:
    """Call a function with neighbouring ranges, cut into as many parts as threads.

    Threads are as many as Arrow takes (``pyarrow.set_cpu_count``, or the environment variable ``OMP_NUM_THREADS``,
    which Spark sets for its workers), up to 16. They end with the call, so that processes can be forked at any time.

    Args:
        work: Is called with the ranges of each part. It must let other threads run (most of what takes long here does).
        sizes: Shape (n,): bytes of each range.

    Returns:
        The results in the order of the ranges; one, of all ranges, if they are few.
    """
    bounds = starts_of(sizes)
    num_parts = min(pa.cpu_count(), _MOST_THREADS, int(bounds[-1]) // _LEAST_BYTES)
    if num_parts <= 1:
        return [work(slice(0, len(sizes)))]
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - slow to import, and seldom needed

    targets = np.arange(1, num_parts) * (int(bounds[-1]) // num_parts)
    cuts = [0, *bounds.searchsorted(targets).tolist(), len(sizes)]
    parts = [slice(low, high) for low, high in pairwise(cuts)]
    with ThreadPoolExecutor(num_parts - 1) as pool:
        others = [pool.submit(work, part) for part in parts[1:]]
        return [work(parts[0]), *(future.result() for future in others)]
