"""Sums that are looked up in rounded tables are within their margin, and no row within a limit is left out."""

import numpy as np
import pytest

from lance_core.index.vector.rounded_tables import RoundedTables

LENGTHS = (300, 0, 1, 700)


def sums_of(tables, codes):
    number = np.arange(tables.shape[1])[:, None]
    return np.concatenate([tables[at % len(tables)][number, stored].sum(axis=0) for at, stored in enumerate(codes)])


@pytest.mark.parametrize("num_bytes", [1, 2, 3, 16])
@pytest.mark.parametrize("num_tables", [1, len(LENGTHS)])
def test_sums_within_the_limit_are_exact_up_to_the_margin(num_bytes, num_tables):
    rng = np.random.default_rng(num_bytes)
    tables = rng.normal(size=(num_tables, num_bytes, 256)) * rng.uniform(0.1, 3, (num_bytes, 1))
    codes = [rng.integers(0, 256, (num_bytes, length), np.uint8) for length in LENGTHS]
    sums, fixed = sums_of(tables, codes), rng.normal(size=len(codes))
    terms = rng.normal(size=len(sums))
    exact = sums + np.repeat(fixed, LENGTHS) + terms
    rounded = RoundedTables(tables.copy())
    for limit in (np.inf, *np.quantile(exact, [0.8, 0.1, 0.01]), exact.min() - 100):
        totals = rounded.totals(codes, fixed, terms, limit + rounded.margin)
        is_left_out = np.isinf(totals)
        assert (exact[is_left_out] >= limit).all()
        assert (np.abs(totals - exact)[~is_left_out] <= rounded.margin + 1e-9).all()
        assert is_left_out.sum() >= (exact > limit + 2 * rounded.margin + 1e-9).sum()
