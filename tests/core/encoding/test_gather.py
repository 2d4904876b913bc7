"""Gathering many ranges: what comes out, and how often Arrow makes room for it."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.encoding.kernels import gather, gather_between

_SIZE = 500
_COUNT = 300
_MEMORY = np.arange(_SIZE * _COUNT, dtype=np.uint32).astype(np.uint8)


def _ranges(gap):
    starts = np.arange(_COUNT, dtype=np.int64) * _SIZE + gap
    return starts, np.full(_COUNT, _SIZE - gap, np.int64)


def _expected(starts, sizes):
    return b"".join(_MEMORY[start : start + size].tobytes() for start, size in zip(starts, sizes, strict=True))


@pytest.mark.parametrize("gap", [1, 8, 249, 400])
def test_ranges_come_end_to_end(gap):
    starts, sizes = _ranges(gap)
    assert gather(_MEMORY, starts, sizes).tobytes() == _expected(starts, sizes)
    assert gather_between(_MEMORY, starts, sizes, b"head", b"t").tobytes() == b"head" + _expected(starts, sizes) + b"t"


def test_ranges_may_come_in_any_order_and_overlap():
    starts = np.random.default_rng(1).permutation(_COUNT).astype(np.int64) * (_SIZE // 2)
    sizes = np.full(_COUNT, _SIZE, np.int64)
    assert gather(_MEMORY, starts, sizes).tobytes() == _expected(starts, sizes)


@pytest.mark.skipif(not hasattr(pa.MemoryPool, "num_allocations"), reason="this pyarrow does not count allocations")
def test_room_for_ranges_is_made_once():
    pool = pa.default_memory_pool()

    def allocations(gap):
        starts, sizes = _ranges(gap)
        before = pool.num_allocations()
        gather(_MEMORY, starts, sizes)
        return pool.num_allocations() - before

    assert allocations(8) == allocations(400)
