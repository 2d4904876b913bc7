"""One plan serves reads of one row and of many: they share most of their functions."""

import cProfile
import pstats
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lance_core

ROOMS = ("lance_core/file/", "lance_core/encoding/")
ROWS = 20_000


@pytest.fixture(scope="module")
def trips(tmp_path_factory):
    """Timestamps that rise, small integers, amounts in cents, flags, some nulls."""
    rng = np.random.default_rng(1)
    is_unknown = rng.random(ROWS) < 0.04
    fare = np.round(3 + rng.gamma(1.5, 5.0, ROWS), 2)
    columns = {
        "vendor": rng.integers(1, 3, ROWS, np.int32),
        "pickup": np.datetime64("2024-01-01", "us") + np.cumsum(rng.integers(0, 12_000_000, ROWS)).astype("m8[us]"),
        "passengers": pa.array(rng.integers(1, 7, ROWS), mask=is_unknown),
        "forwarded": pa.array(rng.choice(["N", "Y"], ROWS), mask=is_unknown),
        "zone": rng.integers(1, 266, ROWS, np.int32),
        "fare": fare,
        "tax": rng.choice([0.5, 0.0], ROWS),
        "surcharge": np.full(ROWS, 1.0),
        "total": np.round(fare + 1.5, 2),
        "company": rng.choice(["Creative", "VeriFone", "Curb"], ROWS),
    }
    return lance_core.write_dataset(pa.table(columns), tmp_path_factory.mktemp("trips"))


def functions_of(work):
    """Functions of reading that a piece of work calls; comprehensions belong to the function around them."""
    profile = cProfile.Profile()
    profile.runcall(work)
    root = Path(lance_core.__file__).parents[1]
    stats = pstats.Stats(profile).stats
    names = {(Path(file).as_posix().removeprefix(f"{root.as_posix()}/"), *rest) for file, *rest in stats}
    return {(file, *rest) for file, *rest in names if file.startswith(ROOMS) and not rest[-1].startswith("<")}


def test_reads_of_one_row_and_of_many_share_their_plan(trips):
    few, many = [777], np.arange(0, ROWS, ROWS // 100).tolist()
    for rows in (few, many, few, many):
        trips.take(rows)
    scalar, vector = functions_of(lambda: trips.take(few)), functions_of(lambda: trips.take(many))
    shared = scalar & vector
    assert len(shared) / len(scalar) >= 0.65, sorted(scalar - vector)
    assert len(shared) / len(scalar | vector) >= 0.27, sorted(vector - scalar)
