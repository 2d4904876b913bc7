"""Strings of many columns encoded at one go: the pages that each column would get alone, or none."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.encoding.arrow_values import to_values
from lance_core.encoding.layouts import small_page
from lance_core.encoding.layouts.page import Decoded
from lance_core.encoding.layouts.small_strings import encode_strings
from lance_core.encoding.options import PageOptions
from lance_core.encoding.repdef import Levels
from lance_core.format.encodings import Variable
from lance_core.format.page_layout import Layer, encode_layout

RNG = np.random.default_rng(4)
KINDS = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def _texts(num_items, count, kind):
    return pa.array([f"text {one}" for one in RNG.integers(0, num_items, count).tolist()]).cast(kind)


def _alone(array, version):
    levels = Levels((Layer.ALL_VALID_ITEM,), None, None)
    decoded = Decoded(levels=levels, values=to_values(array), num_slots=len(array))
    page = small_page.encode(decoded, PageOptions(version=version))
    assert page is not None
    return page


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("count", [100, 1000, 1024, 3000])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_as_each_would_be_alone(kind, count, version):
    columns = [_texts(number, count + 2, kind).slice(1, count) for number in (2, 7, 40, 40, 300, 9)]
    for array, page in zip(columns, encode_strings(columns, version), strict=True):
        alone = _alone(array, version)
        if page is None:
            assert isinstance(alone.layout.values, Variable)
        else:
            assert page.layout == encode_layout(alone.layout)
            assert page.buffers == [one.tobytes() for one in alone.buffers]


def test_what_does_not_repeat_is_left_to_others():
    few, same = _texts(9, 99, pa.string()), pa.array(["same"] * 200)
    unique, long = pa.array(map(str, range(200))), pa.array(["x" * 300, "y" * 300] * 100)
    assert [encode_strings([one], "2.2") for one in (few, same, unique, long)] == [[None]] * 4


def test_many_columns():
    columns = [_texts(1 + number % 200, 400, pa.string()) for number in range(130)]
    alone = [encode_strings([one], "2.2")[0] for one in columns]
    assert encode_strings(columns, "2.2") == alone
    assert sum(one is not None for one in alone) > 60
