import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from lance_core.encoding.codecs import rle
from lance_core.encoding.values import Chunks
from lance_core.format.file.encodings import Rle


def chunks_of(values, lengths, per_chunk):
    """Runs of 64 bits in chunks of so many runs."""
    counts = lengths.astype(np.int64).reshape(-1, per_chunk).sum(axis=1)
    firsts = np.arange(len(counts)) * per_chunk
    sizes = np.full(len(counts), per_chunk)
    return Chunks(
        buffers=(values.view(np.uint8), lengths),
        starts=np.stack((firsts * 8, firsts)),
        sizes=np.stack((sizes * 8, sizes)),
        counts=counts,
    )


def test_lengths_of_many_short_runs_are_not_widened():
    """Where runs end takes 8 bytes for each, and numpy as much on the way; a length stays the byte that is stored."""
    rng = np.random.default_rng(0)
    values, lengths = rng.integers(0, 9, 64_000).astype("<u8"), rng.integers(1, 4, 64_000).astype(np.uint8)
    chunks = chunks_of(values, lengths, 500)
    expected = np.repeat(values, lengths)
    rle.decode(Rle(64), chunks)  # modules that are loaded when first needed
    tracemalloc.start()
    try:
        decoded = rle.decode(Rle(64), chunks)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.array_equal(decoded.data, expected)
    assert peak < 20 * len(values)


@pytest.mark.parametrize("seldom", [0, 1, 40])
def test_long_runs_of_mostly_one_value_are_in_the_memory_of_the_pool(seldom):
    values, lengths = np.zeros(1_000, "<u8"), np.full(1_000, 250, np.uint8)
    places = np.arange(seldom) * 24
    values[places], lengths[places] = places + 7, places % 3
    before = pa.total_allocated_bytes()
    decoded = rle.decode(Rle(64), chunks_of(values, lengths, 10))
    assert np.array_equal(decoded.data, np.repeat(values, lengths))
    assert pa.total_allocated_bytes() - before >= decoded.data.nbytes


def test_long_runs_of_several_values():
    values, lengths = np.arange(1_000, dtype="<u8") % 7, np.full(1_000, 250, np.uint8)
    decoded = rle.decode(Rle(64), chunks_of(values, lengths, 10))
    assert np.array_equal(decoded.data, np.repeat(values, lengths))
