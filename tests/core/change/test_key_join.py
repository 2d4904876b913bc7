import math
import os
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_core.change import key_join
from lance_core.change.key_join import KeyJoin
from lance_core.errors import UnsupportedError

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"

VALUES = {
    pa.int32(): [None, 0, 1, -2],
    pa.string(): [None, "", "a", "b"],
    pa.float64(): [None, 0.0, -0.0, math.nan, 1.5],
    pa.bool_(): [None, True, False],
    pa.large_string(): [None, "", "a", "a\0", "abcdefgh", "abcdefghi", "abcdefghij" * 3, "a" * 600, "a" * 599 + "b"],
    pa.binary(3): [None, b"abc", b"abd"],
    pa.timestamp("us"): [None, 0, 1],
    pa.decimal128(5, 2): [None, 1, 2],
    pa.dictionary(pa.int8(), pa.string()): [None, "x", "y"],
}


@st.composite
def sides(draw):
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    row = st.tuples(*(st.sampled_from(VALUES[kind]) for kind in kinds))
    return kinds, draw(st.lists(row, max_size=8)), draw(st.lists(row, max_size=8))


def are_equal(left, right):
    if left is None or right is None:
        return False
    if isinstance(left, float):
        return struct.pack("d", left) == struct.pack("d", right)
    return left == right


def slow_match(source, target):
    return [(i, j) for i, row in enumerate(target) for j, other in enumerate(source) if all(map(are_equal, row, other))]


def columns(kinds, rows):
    return [pa.chunked_array([pa.array([row[i] for row in rows], kind)]) for i, kind in enumerate(kinds)]


def sizes_of(texts):
    return np.array([len(text or b"") for text in texts.to_pylist()])


@pytest.mark.slow
@given(sides())
@settings(max_examples=2000 if IS_DEEP else 70, deadline=None)
def test_pairs_are_those_of_a_nested_loop(case):
    kinds, source, target = case
    pairs = KeyJoin(columns(kinds, source)).match([one.combine_chunks() for one in columns(kinds, target)])
    assert list(zip(pairs.target.tolist(), pairs.source.tolist(), strict=True)) == slow_match(source, target)


@pytest.mark.parametrize("find_hashes", [lambda texts: np.zeros(len(texts), np.int64), sizes_of])
def test_texts_with_one_hash_are_told_apart(monkeypatch, find_hashes):
    monkeypatch.setattr(key_join, "text_hashes", find_hashes)
    texts = pa.array(["a", "b", None, "bc", "a"])
    pairs = KeyJoin([pa.chunked_array([["b", "xy", None, "xyz"]])]).match([texts])
    assert (pairs.target.tolist(), pairs.source.tolist()) == ([1], [0])


def test_many_texts_are_found_in_many_batches():
    texts = pa.array([f"{i % 7}" * (i % 30) + str(i) for i in range(30_000)])
    join = KeyJoin([pa.chunked_array([texts[:9_000], texts[9_000:20_000]])])
    for start in (0, 123, 19_000, 25_000):
        pairs = join.match([texts[start : start + 2_000]])
        expected = range(min(2_000, max(0, 20_000 - start)))
        assert pairs.target.tolist() == list(expected)
        assert (pairs.source - start).tolist() == list(expected)
    few = KeyJoin([pa.chunked_array([texts[10:12]])]).match([texts])  # Arrow looks so few up
    assert (few.target.tolist(), few.source.tolist()) == ([10, 11], [0, 1])


def test_many_parts_do_not_overflow():
    rows = [tuple(f"{i}-{part}" for part in range(8)) for i in range(300)]
    kinds = [pa.string()] * 8
    pairs = KeyJoin(columns(kinds, rows)).match([one.combine_chunks() for one in columns(kinds, rows[::-1])])
    assert pairs.source.tolist() == list(range(299, -1, -1))


def test_nested_values_are_no_keys():
    with pytest.raises(UnsupportedError, match="list"):
        KeyJoin([pa.chunked_array([[[1]]])])


def test_a_target_row_that_meets_two_source_rows_is_found():
    pairs = KeyJoin([pa.chunked_array([[1, 2, 2]])]).match([pa.array([1, 3])])
    assert pairs.repeated_target() is None
    pairs = KeyJoin([pa.chunked_array([[1, 2, 2]])]).match([pa.array([1, 2])])
    assert pairs.source[pairs.repeated_target()] == 2


def test_a_long_text_takes_no_step_for_each_of_its_words(monkeypatch):
    steps = []
    take = key_join.leading_words
    monkeypatch.setattr(key_join, "leading_words", lambda *of: steps.append(1) or take(*of))
    long = "x" * (1 << 20)
    pairs = KeyJoin([pa.chunked_array([["a", long]])]).match([pa.array([long, long + "y", "a"])])
    assert (pairs.target.tolist(), pairs.source.tolist()) == ([0, 2], [1, 0])
    assert len(steps) <= 2 * 64 + 2
