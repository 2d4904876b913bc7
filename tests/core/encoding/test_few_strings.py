"""Strings of a small dictionary, looked up several at once, beside one by one."""

from itertools import pairwise

import numpy as np
import pytest

from lance_core.encoding.arrow_values import take_values
from lance_core.encoding.few_strings import take_few
from lance_core.encoding.values import VariableValues

WORDS = [b"", b"N", b"yes", b"\0\xff", b"a longer one", b"Creative", b"N", b"Myle", b"Curb", b"Helix", b"x" * 100]


def values_of(words, dtype=np.int32):
    offsets = np.cumsum([0, *map(len, words)]).astype(dtype)
    return VariableValues(offsets, np.frombuffer(b"".join(words) + b"behind the end", np.uint8))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("count", [16_384, 16_385, 20_003])
@pytest.mark.parametrize("num_items", [1, 2, 3, 5, 7, 10])
def test_as_one_by_one(num_items, count, dtype):
    places = np.random.default_rng(count).integers(0, num_items, count).astype(np.uint8)
    found = take_few(values_of(WORDS[:num_items], dtype), places)
    assert found is not None
    assert found.offsets.dtype == dtype
    ends = found.offsets.tolist()
    data = found.data.tobytes()
    assert [data[begin:end] for begin, end in pairwise(ends)] == [WORDS[place] for place in places]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 17])
@pytest.mark.parametrize("num_items", [1, 4, 300])
def test_strings_of_one_length(num_items, size, dtype):
    words = [str(one).rjust(size, "a").encode()[-size:] for one in range(num_items)]
    places = np.random.default_rng(size).integers(0, num_items, 3000).astype(np.uint16)
    found = take_few(values_of(words, dtype), places)
    assert found.offsets.dtype == dtype
    assert found.offsets.tolist() == list(range(0, 3001 * size, size))
    assert found.data.tobytes() == b"".join([words[place] for place in places])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.int64])
def test_places_of_any_type(dtype):
    places = np.random.default_rng(1).integers(0, 5, 30_000)
    expected = take_few(values_of(WORDS[:5]), places)
    found = take_values(values_of(WORDS[:5]), places.astype(dtype))
    assert np.array_equal(found.offsets, expected.offsets)
    assert found.data[: found.offsets[-1]].tobytes() == expected.data[: expected.offsets[-1]].tobytes()


def test_many_items_and_few_strings_are_looked_up_one_by_one():
    places = np.zeros(40_000, np.uint8)
    assert take_few(values_of([b"", *[bytes([one]) for one in range(10)]]), places) is None
    assert take_few(values_of(WORDS[:10]), places[:10_000]) is None
    assert take_few(values_of([b"a", b"b"]), places[:1000]) is None
    assert take_few(values_of([b"", b"long" * 20_000]), places) is None


def test_more_bytes_than_32_bits_count_are_left_to_arrow():
    assert take_few(values_of([b"a", b"b" * 10_000]), np.zeros(1 << 18, np.uint8)) is None
