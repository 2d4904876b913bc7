"""Small pages of many columns, encoded at one go: each column gets the page that it would have got alone."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.encoding import pages as pages_module
from lance_core.encoding.layouts.page import Decoded
from lance_core.encoding.layouts.small_page import encode_strings, encode_words
from lance_core.encoding.options import PageOptions
from lance_core.encoding.repdef import NO_LEVELS
from lance_core.encoding.shred import Nesting, build_levels
from lance_core.encoding.values import FixedValues
from lance_core.format.file.encodings import Flat, InlineBitpacking, Variable
from lance_core.format.file.page_layout import ConstantLayout, encode_layout

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
KINDS = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def as_bytes(page, *, is_encoded=True):
    """A page as what is written of it; None for none."""
    if page is None:
        return None
    assert not is_encoded or page.encoded_layout in (None, encode_layout(page.layout))
    return page.layout, [bytes(buffer) for buffer in page.buffers]


def texts(num_items, count, kind=None):
    return pa.array([f"text {number}" for number in RNG.integers(0, num_items, count).tolist()]).cast(
        kind or pa.string()
    )


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("size", [1, 2, 64, 1000, 1024, 1025, 4096])
def test_numbers_get_the_pages_that_they_get_alone(size, dtype, version):
    columns = [make(size).astype(np.uint64).astype(dtype) for make in MAKERS] * 9  # more than are encoded at once
    pages = encode_words(columns, PageOptions(version=version))
    assert [as_bytes(page) for page in pages] == [
        as_bytes(encode_words([data], PageOptions(version=version))[0]) for data in columns
    ]
    taken = [page.layout.values for page in pages if page is not None and not isinstance(page.layout, ConstantLayout)]
    assert {type(encoding) for encoding in taken} <= {Flat, InlineBitpacking}
    assert len(taken) >= 9 or size < 64


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("count", [100, 1000, 1024, 3000])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_strings_get_the_pages_that_they_get_alone(kind, count, version):
    columns = [texts(number, count + 2, kind).slice(1, count) for number in (2, 7, 40, 40, 300, 9)]
    pages = encode_strings(columns, PageOptions(version=version))
    assert [as_bytes(page) for page in pages] == [
        as_bytes(encode_strings([array], PageOptions(version=version))[0]) for array in columns
    ]
    assert all(page.layout.dictionary or isinstance(page.layout.values, Variable) for page in pages[:4])


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_columns_of_one_value_get_constant_pages(version):
    number, text = np.full(500, 7, np.uint64), pa.array(["same"] * 200)
    options = PageOptions(version=version)
    pages = [encode_words([number], options)[0], encode_strings([text], options)[0]]
    assert [isinstance(page.layout, ConstantLayout) for page in pages] == [version == "2.2"] * 2
    others = (
        encode_words([number], options, may_be_constant=False),
        encode_strings([text], options, may_be_constant=False),
    )
    assert not any(isinstance(page.layout, ConstantLayout) for pages in others for page in pages)


def test_what_other_encodings_may_shorten_is_left_to_them():
    unique, long = pa.array([f"{number:012d}" for number in range(4000)]), pa.array(["x" * 300, "y" * 300] * 100)
    assert [encode_strings([array], PageOptions()) for array in (unique, long)] == [[None]] * 2
    runs = np.repeat(RNG.integers(0, 1 << 60, 20, np.uint64), 200)
    assert encode_words([runs.astype(np.uint32)], PageOptions()) == [None]


LARGE_MAKERS = [
    *MAKERS,
    lambda n: np.arange(n) * 1000 + RNG.integers(0, 9, n),
    np.arange,
    lambda n: RNG.integers(0, 1 << 40, n),
    lambda n: RNG.choice(RNG.integers(0, 1 << 62, 900), n),
    lambda n: RNG.choice(RNG.integers(0, 1 << 62, 3), n),
    lambda n: RNG.choice(RNG.integers(0, 1 << 62, n // 3), n),
    lambda n: np.where(RNG.random(n) < 0.001, 1 << 50, RNG.integers(0, 9, n)),
]


def _levels(size):
    """No nulls, some, and two runs of them."""
    masks = (RNG.random(size) < 0.1, np.arange(size) % 2000 > 1990)
    return [NO_LEVELS, *[build_levels([Nesting(length=size, is_null=mask)]) for mask in masks]]


@pytest.mark.parametrize("profile", ["balanced", "small"])
@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("size", [4097, 20_000, 1 << 16])
def test_larger_numbers_get_the_pages_of_larger_pages(monkeypatch, size, dtype, version, profile):
    options = PageOptions(version=version, profile=profile)
    columns = [make(size).astype(np.uint64).astype(dtype) for make in LARGE_MAKERS for _ in range(3)]
    levels = _levels(size) * len(LARGE_MAKERS)
    pages = encode_words(columns, options, levels)
    monkeypatch.setattr("lance_core.encoding.layouts.small_page.encode", lambda *_: None)
    kind = pa.from_numpy_dtype(np.dtype(dtype))
    for data, own, page in zip(columns, levels, pages, strict=True):
        if page is not None:
            decoded = Decoded(levels=own, values=FixedValues(data), num_slots=size)
            other = pages_module._encode(decoded, kind, "c", options, is_giant=False)
            assert as_bytes(page, is_encoded=False) == as_bytes(other, is_encoded=False)
    assert sum(page is not None for page in pages) > len(pages) // 4


def test_many_columns_of_strings():
    columns = [texts(1 + number % 200, 400) for number in range(130)]
    alone = [as_bytes(encode_strings([array], PageOptions())[0]) for array in columns]
    assert [as_bytes(page) for page in encode_strings(columns, PageOptions())] == alone
    assert sum(page is not None for page in alone) > 60
