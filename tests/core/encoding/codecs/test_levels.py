"""Levels of one chunk are those that decoding many chunks gives."""

import numpy as np
import pytest

from lance_core.encoding import registry
from lance_core.encoding.choose_levels import encode_level_chunks
from lance_core.encoding.registry import decode_levels
from lance_core.errors import CorruptDataError
from lance_core.format.file.encodings import Flat, OutOfLineBitpacking, Rle


@pytest.mark.parametrize("top", [1, 2, 5, 200, 300, 40_000])
@pytest.mark.parametrize("count", [1, 5, 70, 1024, 1030, 1088, 1137, 1152, 1216, 4096, 4500, 30_000])
def test_levels(monkeypatch, count, top):
    levels = np.random.default_rng(1).integers(0, top + 1, count).astype(np.uint16)
    encoding, chunks = encode_level_chunks(levels, np.array([0, count]))
    if isinstance(encoding, OutOfLineBitpacking) and encoding.packed_bits <= 8:
        monkeypatch.setattr(registry, "decode_level_chunks", None)  # such levels need no arrays of chunks
    packed = chunks.buffers[0][: int(chunks.sizes[0, 0])].tobytes()
    assert (decode_levels(encoding, packed, count) == levels).all()


def test_levels_that_are_not_packed(monkeypatch):
    levels = np.repeat(np.arange(40) % 3, 100).astype(np.uint16)
    assert (decode_levels(Flat(16), levels.tobytes(), len(levels)) == levels).all()
    encoding, chunks = encode_level_chunks(levels, np.array([0, len(levels)]))
    assert isinstance(encoding, Rle)
    monkeypatch.setattr(registry, "decode_level_chunks", None)  # nor do these need arrays of chunks
    assert (decode_levels(encoding, chunks.buffers[0].tobytes(), len(levels)) == levels).all()


def test_damage_is_found():
    for encoding in (OutOfLineBitpacking(16, 7), OutOfLineBitpacking(16, 17), Flat(16), Flat(32), Rle(16, 8)):
        with pytest.raises(CorruptDataError):
            decode_levels(encoding, bytes(64), 40)
