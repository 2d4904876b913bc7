import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from lance_core.encoding import kernels
from lance_core.encoding.codecs import fastlanes

WIDTHS = [(bits, width) for bits in (8, 16, 32, 64) for width in range(bits + 1)]


def slow_unpack(words, width, bits):
    """One value after the other, each bit by bit from its lane's stream."""
    lanes = 1024 // bits
    out = [0] * 1024
    for lane in range(lanes):
        stream = sum(int(words[k * lanes + lane]) << (k * bits) for k in range(width))
        for row in range(bits):
            index = [0, 4, 2, 6, 1, 5, 3, 7][row // 8] * 16 + row % 8 * 128 + lane
            out[index] = stream >> (row * width) & ((1 << width) - 1)
    return out


def random_words(count, bits, seed=0):
    return np.frombuffer(np.random.default_rng(seed).bytes(count * bits // 8), f"<u{bits // 8}")


@pytest.mark.parametrize(("bits", "width"), WIDTHS)
def test_unpacks_what_the_slow_way_unpacks(bits, width):
    words = random_words(1024 // bits * width + 3, bits)
    got = fastlanes.unpack(words, np.array([3]), width)
    assert got.tolist() == [slow_unpack(words[3:], width, bits)]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 65])
@pytest.mark.parametrize(("bits", "width"), WIDTHS)
def test_packing_is_the_reverse_of_unpacking(bits, width, count):
    lanes = 1024 // bits
    words = random_words(lanes * width * count, bits, seed=width)
    starts = np.random.default_rng(0).permutation(count) * lanes * width
    blocks = fastlanes.unpack(words, starts, width)
    packed = np.zeros_like(words)
    fastlanes.pack_into(blocks, width, packed, starts)
    assert np.array_equal(packed, words)
    assert np.array_equal(blocks[-1:], fastlanes.unpack(words, starts[-1:], width))


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_blocks_of_all_widths_at_once(bits):
    lanes = 1024 // bits
    widths = np.random.default_rng(1).permutation(np.arange(150) % (bits + 1))
    bounds = np.append(0, np.cumsum(widths * lanes))
    words = random_words(int(bounds[-1]), bits)
    blocks = np.empty((len(widths), 1024), words.dtype)
    fastlanes.unpack_mixed(words, bounds[:-1], widths, blocks)
    one_by_one = [fastlanes.unpack(words, bounds[i : i + 1], width)[0] for i, width in enumerate(widths.tolist())]
    assert np.array_equal(blocks, np.stack(one_by_one))

    some = np.flatnonzero(widths < bits)  # among them 0; the last ones of some sizes, so that nothing lies behind
    few = np.empty((len(some), 1024), words.dtype)
    fastlanes.unpack_mixed(words, bounds[some], widths[some], few)
    assert np.array_equal(few, blocks[some])


def test_more_blocks_than_are_taken_at_once():
    words = random_words(32 * 7 * 600, 32)
    starts = np.arange(600) * 32 * 7
    got = fastlanes.unpack(words, starts, 7)
    for block in (0, 255, 256, 511, 512, 599):
        assert np.array_equal(got[block], fastlanes.unpack(words, starts[block : block + 1], 7)[0])


@pytest.mark.parametrize(("bits", "width", "count"), [(64, 10, 60), (64, 33, 60), (8, 3, 600), (64, 33, 600)])
def test_what_unpacking_needs_on_the_way_is_used_again_or_comes_from_arrows_pool(bits, width, count):
    """Numpy's memory of this size may be mapped anew for each call, which costs a page fault for every 4 KiB."""
    words = random_words(1024 // bits * width * count, bits)
    starts = np.arange(count) * (1024 // bits * width)
    out = np.empty((count, 1024), words.dtype)
    fastlanes.unpack_into(words, starts, width, out)  # what is used again is there
    tracemalloc.start()
    try:
        fastlanes.unpack_into(words, starts, width, out)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 17
    assert np.array_equal(out[-1:], fastlanes.unpack(words, starts[-1:], width))


def test_unpacking_many_blocks_asks_the_pool_for_nothing(monkeypatch):
    """What goes back to the pool goes back to the system, and comes from there as zeros."""
    words, starts = random_words(16 * 33 * 600, 64), np.arange(600) * 16 * 33
    out = np.empty((600, 1024), words.dtype)
    expected = fastlanes.unpack(words, starts, 33)
    monkeypatch.setattr(kernels, "empty", None)
    monkeypatch.setattr(fastlanes, "empty", None)
    fastlanes.unpack_into(words, starts, 33, out)
    assert np.array_equal(out, expected)


def test_threads_do_not_share_what_they_need_on_the_way():
    words, starts = random_words(16 * 64 * 300, 64), np.arange(300) * 16 * 64
    expected = [fastlanes.unpack(words, starts, width) for width in range(20, 28)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda width: fastlanes.unpack(words, starts, width), [*range(20, 28)] * 4))
    assert all(np.array_equal(one, two) for one, two in zip(found, expected * 4, strict=True))


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_bit_widths(bits):
    blocks = np.array([[0, 0], [1, 0], [2, 1], [(1 << bits) - 1, 0], [1 << (bits - 1), 5]], f"<u{bits // 8}")
    assert fastlanes.bit_widths(blocks).tolist() == [0, 1, 2, bits, bits]


@pytest.mark.parametrize(("bits", "width"), WIDTHS[1:])
def test_single_values_are_read_without_a_look_beyond_their_words(bits, width, monkeypatch):
    """What lies behind may be a page of a file that has to be fetched for it."""
    words = random_words(1024 // bits * width + 500, bits)
    end = 1024 * width // 8
    ends = []
    gather = fastlanes.gather_words
    monkeypatch.setattr(
        fastlanes,
        "gather_words",
        lambda memory, starts, dtype: ends.append(int(starts.max()) + bits // 8) or gather(memory, starts, dtype),
    )
    index = np.arange(1024)
    starts = np.zeros(1024, np.int64)
    found = fastlanes.unpack_points(words.view(np.uint8), starts, np.full(1024, width), index, words.dtype)
    assert found.tolist() == slow_unpack(words, width, bits)
    assert max(ends) <= end or width == 0
