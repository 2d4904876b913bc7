from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from lance_core.change.key_join import KeyJoin
from lance_core.change.number_index import NumberIndex
from lance_core.errors import InvalidInputError

RNG = np.random.default_rng(6)
LOW, HIGH = np.iinfo(np.int64).min, np.iinfo(np.int64).max
NUMBERS = {
    "one": [7],
    "near": RNG.permutation(5000) - 2500,
    "near with gaps": RNG.integers(1 << 40, (1 << 40) + 30_000, 5000),
    "near with wide gaps": np.arange(0, 1 << 20, 1 << 10),
    "far": RNG.integers(LOW, HIGH, 5000),
    "far and equal": RNG.choice(RNG.integers(LOW, HIGH, 50), 5000),
    "steps": np.arange(5000) << 40,
    "floats": np.arange(5000, dtype=np.float64).view(np.int64),
    "ends": [LOW, HIGH, 0, -1, LOW, HIGH],
}


def slow_find(source, asked):
    known = set(source.tolist())
    return [number in known for number in asked.tolist()]


@pytest.mark.parametrize("name", NUMBERS)
def test_finds_what_is_there(name):
    source = np.asarray(NUMBERS[name], np.int64)
    index = NumberIndex(source)
    assert np.array_equal(source[index.codes], source)
    assert len(np.unique(index.codes)) == len(np.unique(source))
    near = source[RNG.integers(0, len(source), 3000)] + RNG.integers(-1, 2, 3000)
    asked = np.concatenate([near, RNG.integers(LOW, HIGH, 3000), [LOW, HIGH, 0]])
    codes = index.find(asked)
    assert (codes >= 0).tolist() == slow_find(source, asked)
    assert np.array_equal(source[codes[codes >= 0]], asked[codes >= 0])
    assert np.array_equal(index.find(source), index.codes)
    assert len(index.find(np.empty(0, np.int64))) == 0


def collisions(count):
    """Different numbers with one home: what the factor makes of them differs in the lowest bits only."""
    back = pow(0x9E3779B97F4A7C15, -1, 1 << 64)
    return np.array([(one * back) % (1 << 64) for one in range(count)], np.uint64).view(np.int64)


def test_chosen_collisions_are_sorted():
    numbers = collisions(1000)
    codes = NumberIndex(numbers[::2]).find(numbers)
    assert codes[::2].tolist() == list(range(500))
    assert set(codes[1::2].tolist()) == {-1}
    pairs = KeyJoin([pa.chunked_array([numbers])]).match([pa.array(numbers[::-1])])
    assert pairs.source.tolist() == list(range(999, -1, -1))


def test_keys_of_other_types_are_refused():
    with pytest.raises(InvalidInputError, match="int32"):
        KeyJoin([pa.chunked_array([[1, 2]])]).match([pa.array([1], pa.int32())])


def test_words_are_not_looked_up_by_arrow(monkeypatch):
    monkeypatch.setattr("pyarrow.compute.index_in", None)
    days = pa.chunked_array([pa.array([1, 2, 3], pa.date32()), pa.array([2], pa.date32())])
    pairs = KeyJoin([days, pa.chunked_array([[0.5, 1.5, 2.5, 1.5]])]).match(
        [pa.array([3, None, 2], pa.date32()), pa.array([2.5, 0.5, 1.5])]
    )
    assert list(zip(pairs.target.tolist(), pairs.source.tolist(), strict=True)) == [(0, 2), (2, 1), (2, 3)]


@pytest.mark.parametrize(
    ("kind", "no", "yes"),
    [
        (pa.string(), "no", "yes"),
        (pa.large_binary(), b"", b"x"),
        (pa.decimal128(9, 2), Decimal("1.50"), Decimal("-2.00")),
        (pa.bool_(), False, True),
        (pa.int16(), -1, 1),
    ],
)
def test_values_in_many_chunks(kind, no, yes):
    chunks = [[yes, None], [], [no, yes], [no]]
    column = pa.chunked_array([pa.array(one, kind) for one in chunks], kind)
    pairs = KeyJoin([column]).match([pa.chunked_array([column.chunk(2)])])
    assert list(zip(pairs.target.tolist(), pairs.source.tolist(), strict=True)) == [(0, 2), (0, 4), (1, 0), (1, 3)]
    assert len(KeyJoin([pa.chunked_array([], kind)]).match([column])) == 0
