"""Sets of rows: several are encoded together as each is by itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from lance_core.format.index import row_sets
from lance_core.format.index.row_sets import parts_of, parts_of_each

ROWS = st.one_of(
    st.lists(st.integers(0, 40), max_size=30),  # with some of them twice, and runs
    st.lists(st.integers(0, 1 << 18), max_size=30),
    st.lists(st.integers(0, (1 << 62) - 1), max_size=30),
    st.builds(range, st.integers(0, 1 << 33), st.just(1 << 33)).map(lambda rows: list(rows[:400])),
    st.lists(st.integers(0, 1 << 34), min_size=250, max_size=260),
)


def edges_of(sets):
    return np.cumsum([0, *map(len, sets)])


@given(st.lists(ROWS, max_size=6))
def test_several_sets_are_encoded_as_each_is_by_itself(sets):
    rows = np.array([row for some in sets for row in some], np.int64)
    expected = [parts_of(np.array(some, np.int64)) if some else [] for some in sets]
    assert parts_of_each(rows, edges_of(sets)) == expected


@pytest.mark.parametrize("rows", [[7], [7, 1 << 16, 5 << 16, 6 << 32], [*range(100)], [3, 3, 1]])
def test_what_is_encoded_together_is_a_roaring_bitmap(rows):
    for parts in parts_of_each(np.array(rows * 2, np.int64), np.array([0, len(rows), 2 * len(rows)])):
        decoded = {high << 32 | low for high, data in parts for low in BitMap.deserialize(data)}
        assert decoded == set(rows)


def test_small_sets_are_not_encoded_one_by_one(monkeypatch):
    alone = []
    monkeypatch.setattr(row_sets, "parts_of", lambda rows: alone.append(len(rows)) or parts_of(rows))
    sizes = [3] * 500 + [1000]
    rows = np.arange(sum(sizes)) * 977 % 100_003
    assert len(parts_of_each(rows, np.cumsum([0, *sizes]))) == 501
    assert alone == [1000]
