"""Single levels are those that decoding everything gives."""

import numpy as np
import pytest

from lance_core.encoding import registry
from lance_core.encoding.choose_levels import encode_level_chunks
from lance_core.encoding.registry import decode_levels_at
from lance_core.encoding.values import Chunks
from lance_core.errors import CorruptDataError
from lance_core.format.file.encodings import Flat, OutOfLineBitpacking, Rle


def points(encoding, chunks, positions):
    bounds = np.append(0, np.cumsum(chunks.counts))
    chunk_of = np.searchsorted(bounds, positions, side="right") - 1
    return decode_levels_at(encoding, chunks, chunk_of, positions - bounds[chunk_of])


def test_single_levels_of_runs():
    levels = np.repeat(np.arange(40) % 3, 300).astype(np.uint16)
    encoding, chunks = encode_level_chunks(levels, np.array([0, 4096, 8192, len(levels)]))
    assert isinstance(encoding, Rle)
    positions = np.array([0, 299, 300, 4095, 4096, 8191, 8192, len(levels) - 1])
    assert points(encoding, chunks, positions).tolist() == levels[positions].tolist()


@pytest.mark.parametrize("top", [1, 2, 5])
@pytest.mark.parametrize("counts", [[5], [4096, 4096, 1000], [1024, 1024], [2048, 3], [1030]])
def test_single_levels(counts, top):
    rng = np.random.default_rng(1)
    levels = rng.integers(0, top + 1, sum(counts)).astype(np.uint16)
    encoding, chunks = encode_level_chunks(levels, np.append(0, np.cumsum(counts)))
    positions = np.unique(np.append(rng.integers(0, len(levels), 50), len(levels) - 1))
    assert (points(encoding, chunks, positions) == levels[positions]).all()
    assert (points(encoding, chunks, positions) == registry.decode_level_chunks(encoding, chunks)[positions]).all()


def test_damage_is_found():
    chunks = Chunks(
        buffers=(np.zeros(64, np.uint8),),
        starts=np.array([[0]]),
        sizes=np.array([[64]]),
        counts=np.array([40]),
    )
    position = np.array([3])
    assert points(OutOfLineBitpacking(16, 0), chunks, position).tolist() == [0]
    for encoding in (OutOfLineBitpacking(16, 7), OutOfLineBitpacking(16, 17), Flat(16), Flat(32)):
        with pytest.raises(CorruptDataError):
            points(encoding, chunks, position)
    beyond = Chunks(buffers=chunks.buffers, starts=np.array([[8]]), sizes=chunks.sizes, counts=chunks.counts)
    with pytest.raises(CorruptDataError):
        points(Flat(16), beyond, position)
