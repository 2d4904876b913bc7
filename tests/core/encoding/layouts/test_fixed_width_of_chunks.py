"""Words that stand in chunks as they are, found without a look at their chunks."""

from dataclasses import replace

import numpy as np
import pytest

from lance_core.encoding.layouts.scattered_values import Scattered, decode_fixed_width, find_fixed_width, value_ranges
from lance_core.format.file.encodings import Flat, InlineBitpacking
from lance_core.format.file.page_layout import Layer, MiniBlockLayout

LAYOUT = MiniBlockLayout(
    rep=None,
    definition=None,
    values=Flat(16),
    dictionary=None,
    num_dictionary_items=0,
    layers=(Layer.ALL_VALID_ITEM,),
    num_buffers=1,
    has_repetition_index=False,
    num_items=7,
    has_large_chunk=True,
)
POINTS = Scattered(np.array([[16, 48], [16, 16], [4, 3]]), np.array([0, 0, 1]), np.array([0, 3, 2]))


def test_words_stand_behind_the_header():
    words = find_fixed_width(POINTS, LAYOUT)
    assert words.tolist() == [16 + 8, 16 + 8 + 6, 48 + 8 + 4]
    assert value_ranges(words, LAYOUT).ends.tolist() == [26, 32, 62]
    memory = np.arange(64, dtype=np.uint8)
    assert decode_fixed_width(memory, words, LAYOUT).data.tolist() == [24 + 25 * 256, 30 + 31 * 256, 60 + 61 * 256]


@pytest.mark.parametrize(
    "layout",
    [
        replace(LAYOUT, values=InlineBitpacking(16)),
        replace(LAYOUT, values=Flat(1)),
        replace(LAYOUT, values=Flat(32)),
        replace(LAYOUT, definition=Flat(16)),
        replace(LAYOUT, num_buffers=2),
    ],
)
def test_chunks_that_hold_something_else_have_to_be_looked_at(layout):
    assert find_fixed_width(POINTS, layout) is None


def test_words_that_their_chunks_do_not_hold_are_not_found():
    for chunk, index in ((1, 3), (0, 4), (0, -1)):
        points = Scattered(POINTS.chunks, np.array([chunk]), np.array([index]))
        assert find_fixed_width(points, LAYOUT) is None
