"""Indices into dictionaries of several pages, laid end to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lance_core.encoding.kernels import starts_of
from lance_core.encoding.layouts.mini_block import move_indices
from lance_core.encoding.values import FixedValues
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from lance_core.encoding.values import Int64s

PAGES = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300)), min_size=1, max_size=8)


def moved(pages: list[tuple[int, int]], indices: np.ndarray) -> np.ndarray:
    sizes, num_items = np.array(pages, np.int64).T
    return move_indices(FixedValues(indices), starts_of(sizes), num_items)


def indices_of(pages: list[tuple[int, int]], dtype: str) -> np.ndarray:
    """All places of each dictionary, again and again."""
    return np.concatenate([np.arange(size) % num_items for size, num_items in pages]).astype(dtype)


@given(PAGES, st.sampled_from(["<u2", "<u4", "<u8", "<i4", "<i8"]))
def test_indices_are_moved_by_the_items_before(pages: list[tuple[int, int]], dtype: str) -> None:
    indices = indices_of(pages, dtype)
    sizes, num_items = np.array(pages, np.int64).T
    firsts: Int64s = np.cumsum(num_items) - num_items
    expected = indices.astype(np.int64) + np.repeat(firsts, sizes)
    assert moved(pages, indices).astype(np.int64).tolist() == expected.tolist()


@given(PAGES, st.data(), st.sampled_from(["<u4", "<i4", "<i8"]))
def test_an_index_that_only_the_next_page_has_is_refused(
    pages: list[tuple[int, int]], data: st.DataObject, dtype: str
) -> None:
    used = [number for number, (size, _) in enumerate(pages) if size]
    assume(used)
    number = data.draw(st.sampled_from(used))
    at = sum(size for size, _ in pages[:number]) + data.draw(st.integers(0, pages[number][0] - 1))
    indices = indices_of(pages, dtype)
    indices[at] = pages[number][1]
    with pytest.raises(CorruptDataError, match="beyond the dictionary of its page"):
        moved(pages, indices)


def test_a_negative_index_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="beyond the dictionary of its page"):
        moved([(2, 3), (2, 3)], np.array([0, 1, -1, 2], np.int32))
