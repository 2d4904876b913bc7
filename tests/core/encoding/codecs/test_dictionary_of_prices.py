"""Dictionaries of doubles that are whole hundredths, which need no hash table."""

import warnings

import numpy as np
import pytest

from lance_core.encoding.codecs import dictionary
from lance_core.encoding.values import FixedValues

RNG = np.random.default_rng(3)
PRICES = np.round(RNG.gamma(2.0, 20.0, 5000), 2)


def _with(value):
    """Prices and one other value behind those that are looked at first."""
    return np.where(np.arange(len(PRICES)) == 3000, value, PRICES)


def _built(doubles):
    """Build a dictionary, and return whether its items ascend; values must come back bit for bit."""
    words = np.ascontiguousarray(doubles).view(np.uint64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        indices, items = dictionary.build(FixedValues(words), most=len(words))
    assert (items.data[indices.data] == words).all()
    assert len(np.unique(items.data)) == len(items)
    assert indices.data.dtype == dictionary.index_dtype(len(items))
    return bool((np.diff(items.data.view(np.float64)) > 0).all())


@pytest.mark.parametrize("doubles", [PRICES, -PRICES, PRICES - 40.0, PRICES[:1], _with(250.0)])
def test_hundredths_come_in_order(doubles):
    assert _built(np.round(doubles, 2) + 0.0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0, 1.7e308, 1e15, 0.001, np.nextafter(7.1, 8)])
def test_values_that_are_no_hundredths_are_kept(value):
    assert not _built(_with(value))


@pytest.mark.parametrize(
    "words", [np.arange(900) % 7, np.full(200, np.nan).view(np.int64), RNG.integers(0, 1 << 62, 200)]
)
def test_other_words_are_kept(words):
    _built(words.astype(np.int64).view(np.float64))


def test_too_many_items_are_refused():
    assert dictionary.build(FixedValues(PRICES.view(np.uint64)), most=100) is None
