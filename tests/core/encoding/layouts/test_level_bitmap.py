"""Bitmap of levels are those that decoding all of them gives."""

from itertools import pairwise

import numpy as np
import pytest

from lance_core.encoding.choose_levels import encode_level_chunks
from lance_core.encoding.codecs.fastlanes import BLOCK
from lance_core.encoding.layouts.level_bitmap import above, bitmap_of, count_blocks
from lance_core.encoding.values import Chunks
from lance_core.errors import CorruptDataError
from lance_core.format.file.encodings import Flat, OutOfLineBitpacking, Rle

COUNTS = [[5], [4096, 4096, 1000], [1024, 1024], [2048, 3], [1030, 1137, 1150], [60, 0, 70], [1088, 1152, 1216, 64]]


def one_buffer(memory, starts, sizes, counts):
    return Chunks(
        buffers=(memory,), starts=np.array([starts]), sizes=np.array([sizes]), counts=np.array(counts, np.int64)
    )


def marked(limit, encoding, chunks):
    """Shape (n,): for each position whether there is a mark."""
    return np.unpackbits(above(limit, encoding, chunks).view(np.uint8), bitorder="little").astype(bool)


def expected(limit, levels, counts):
    """As `marked`, level by level."""
    out = np.zeros(int(count_blocks(np.array(counts)).sum()) * BLOCK, bool)
    at = 0
    for low, high in pairwise(np.append(0, np.cumsum(counts)).tolist()):
        out[at : at + high - low] = [level > limit for level in levels[low:high].tolist()]
        at += -(-(high - low) // BLOCK) * BLOCK
    return out


@pytest.mark.parametrize("top", [1, 2, 3, 5, 12, 300])
@pytest.mark.parametrize("counts", COUNTS)
def test_marks(counts, top):
    levels = np.random.default_rng(1).integers(0, top + 1, sum(counts)).astype(np.uint16)
    bounds = np.append(0, np.cumsum(counts))
    encoding, chunks = encode_level_chunks(levels, bounds)
    assert encoding.bits == 16
    for limit in {0, 1, top - 1, top}:
        assert (marked(limit, encoding, chunks) == expected(limit, levels, counts)).all()


@pytest.mark.parametrize("encoding", [Flat(16), Rle(16)])
def test_marks_of_levels_that_are_not_packed(encoding):
    counts = [4096, 4096, 700] if encoding == Rle(16) else [5, 1030]
    levels = np.repeat(np.arange(40) % 3, -(-sum(counts) // 40))[: sum(counts)].astype(np.uint16)
    found, chunks = encode_level_chunks(levels, np.append(0, np.cumsum(counts)))
    if encoding == Flat(16):
        found, chunks = encoding, one_buffer(levels.view(np.uint8), [0, 10], [10, 2060], counts)
    assert found == encoding
    assert (marked(1, found, chunks) == expected(1, levels, counts)).all()


def test_what_stands_behind_the_last_level_is_no_mark():
    memory = np.full(256, 255, np.uint8)
    chunks = one_buffer(memory, [0, 128], [128, 128], [1024, 70])
    assert bitmap_of(above(0, OutOfLineBitpacking(16, 1), chunks)).before[-1] == 1024 + 70


@pytest.mark.parametrize("share", [0.02, 0.5, 1.0])
def test_counting_and_finding(share):
    flags = np.random.default_rng(2).random(4 * BLOCK) < share
    flags[0] = True
    marks = bitmap_of(np.packbits(flags, bitorder="little").view(np.uint64))
    places = np.flatnonzero(flags)
    everywhere = np.arange(len(flags))
    assert (marks.is_at(everywhere) == flags).all()
    assert (marks.count_before(everywhere) == np.cumsum(flags) - flags).all()
    assert (marks.find(np.arange(len(places))) == places).all()
    assert (marks.follow(places) == np.append(places[1:], -1)).all()


def test_damage_is_found():
    memory = np.zeros(64, np.uint8)
    chunks = one_buffer(memory, [0], [64], [40])
    for encoding in (OutOfLineBitpacking(16, 7), OutOfLineBitpacking(16, 17), Flat(16), Flat(32)):
        with pytest.raises(CorruptDataError):
            above(0, encoding, chunks)
    beyond = one_buffer(memory, [8], [64], [32])
    with pytest.raises(CorruptDataError):
        above(0, Flat(16), beyond)
