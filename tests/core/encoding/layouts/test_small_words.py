"""Columns that are encoded together get the pages that each of them would have got alone."""

import numpy as np
import pytest

from lance_core.encoding.layouts import constant, small_page
from lance_core.encoding.layouts.page import Decoded
from lance_core.encoding.layouts.small_words import encode_words
from lance_core.encoding.options import PageOptions
from lance_core.encoding.repdef import Levels
from lance_core.encoding.values import FixedValues
from lance_core.format.encodings import Flat, InlineBitpacking
from lance_core.format.page_layout import Layer, encode_layout

RNG = np.random.default_rng(4)
MAKERS = [
    lambda n: RNG.integers(0, 256, n),
    lambda n: RNG.integers(0, 3, n),
    lambda n: RNG.integers(0, 1 << 63, n, np.uint64),
    lambda n: np.arange(n) // 1024 * 1000 + RNG.integers(0, 2, n),
    lambda n: np.arange(n) // 50,
    lambda n: RNG.choice([1 << 60, 7, 5], n),
    np.zeros,
    lambda n: np.full(n, 200),
]


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("size", [1, 2, 64, 1000, 1024, 1025, 4096])
def test_same_pages_as_alone(size, dtype, version):
    columns = [make(size).astype(np.uint64).astype(dtype) for make in MAKERS] * 9  # more than are encoded at once
    pages = encode_words(columns, version)
    taken = 0
    for data, page in zip(columns, pages, strict=True):
        alone = _alone(data, PageOptions(version=version))
        if page is None:
            continue
        assert alone is not None
        assert page.layout == encode_layout(alone.layout)
        assert page.buffers == [one.tobytes() for one in alone.buffers]
        assert isinstance(alone.layout.values, (Flat, InlineBitpacking))
        taken += 1
    assert taken >= 9 or size < 64


def _alone(data, options):
    """The page of one column; None where `small_page` is not asked, or has no answer."""
    if options.has_large_chunks and constant.single_value(FixedValues(data), None) is not None:
        return None
    levels = Levels((Layer.ALL_VALID_ITEM,), None, None)
    return small_page.encode(Decoded(levels=levels, values=FixedValues(data), num_slots=len(data)), options)
