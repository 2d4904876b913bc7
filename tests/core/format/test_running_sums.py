"""Checksums of a file that is being written, however its bytes come."""

import numpy as np
import pytest

from lance_core.format.file import checksums
from lance_core.format.file.checksums import RunningSums, crc32

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("block_size", [1, 2, 7, 16])
def test_blocks_do_not_depend_on_the_pieces(block_size):
    sizes = [0, 1, block_size - 1, block_size, block_size + 1, 3 * block_size]
    for _ in range(200):
        sums, whole = RunningSums(block_size, block_size), b""
        for size in RNG.choice(sizes, RNG.integers(0, 7)).tolist():
            piece = RNG.bytes(size)
            sums.add(memoryview(piece) if size % 2 else piece)
            whole += piece
            assert sums.size == len(whole)
            assert sums.all() == [
                crc32(whole[start : start + block_size]) for start in range(0, len(whole), block_size)
            ]


@pytest.mark.parametrize("step", [1, 3, 8, 40, 1000])
def test_blocks_double_as_often_as_a_file_is_large(step, monkeypatch):
    monkeypatch.setattr(checksums, "_MOST_SUMS", 4)
    whole = RNG.bytes(200)
    expected = {0: 2, 7: 2, 8: 4, 15: 4, 16: 8, 31: 8, 32: 16, 200: 16}  # four of the blocks before
    for size, block_size in expected.items():
        sums = RunningSums(2, 16)
        for start in range(0, size, step):
            sums.add(whole[start : min(start + step, size)])
        assert (sums.size, sums.block_size) == (size, block_size)
        assert sums.all() == [crc32(whole[at : min(at + block_size, size)]) for at in range(0, size, block_size)]
