"""Single levels are those that decoding everything gives."""

import numpy as np
import pytest

from lance_core.encoding import registry
from lance_core.encoding.choose_levels import encode_level_chunks
from lance_core.encoding.structural.level_points import decode_level_points
from lance_core.encoding.values import Chunks
from lance_core.errors import CorruptDataError
from lance_core.format.encodings import Flat, OutOfLineBitpacking, Rle


def test_single_levels_of_runs():
    levels = np.repeat(np.arange(40) % 3, 300).astype(np.uint16)
    encoding, chunks = encode_level_chunks(levels, np.array([0, 4096, 8192, len(levels)]))
    assert isinstance(encoding, Rle)
    positions = np.array([0, 299, 300, 4095, 4096, 8191, 8192, len(levels) - 1])
    assert decode_level_points(encoding, chunks, positions).tolist() == levels[positions].tolist()


@pytest.mark.parametrize("top", [1, 2, 5])
@pytest.mark.parametrize("counts", [[5], [4096, 4096, 1000], [1024, 1024], [2048, 3]])
def test_single_levels(counts, top):
    rng = np.random.default_rng(1)
    levels = rng.integers(0, top + 1, sum(counts)).astype(np.uint16)
    encoding, chunks = encode_level_chunks(levels, np.append(0, np.cumsum(counts)))
    positions = np.unique(rng.integers(0, len(levels), 50))
    found = decode_level_points(encoding, chunks, positions)
    if found is not None:
        assert (found == registry.decode_level_chunks(encoding, chunks)[positions]).all()
    assert found is not None or isinstance(encoding, OutOfLineBitpacking)  # raw tails are left to others


def test_what_must_be_decoded_whole():
    chunks = Chunks(
        buffers=(np.zeros(64, np.uint8),),
        starts=np.array([[0]]),
        sizes=np.array([[64]]),
        counts=np.array([10]),
    )
    for encoding in (OutOfLineBitpacking(16, 0), None, Flat(32)):
        assert decode_level_points(encoding, chunks, np.array([3])) is None
    beyond = Chunks(buffers=chunks.buffers, starts=np.array([[8]]), sizes=chunks.sizes, counts=chunks.counts)
    with pytest.raises(CorruptDataError):
        decode_level_points(Flat(16), beyond, np.array([3]))
