"""Rows that indices know to match are read without their condition: as ranges, as parts of these, or one by one."""

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.scan import candidates
from lance_core.sql.predicate import Predicate

NUM_ROWS = 90_000
_RNG = np.random.default_rng(3)
_TIMES = np.arange(NUM_ROWS) * 10
ROWS = pa.table(
    {
        "time": pa.array(_TIMES, mask=_RNG.random(NUM_ROWS) < 0.05),
        "whole": _TIMES,
        "mixed": _RNG.permutation(NUM_ROWS),
        "number": pa.array(_RNG.integers(0, 900, NUM_ROWS), mask=_RNG.random(NUM_ROWS) < 0.1),
        "text": [f"text {number}" for number in range(NUM_ROWS)],
        "items": [[number % 5] * (number % 3) for number in range(NUM_ROWS)],
    }
)
CONDITIONS = {
    "a range with nulls in it": "time >= 100000 AND time < 300000",
    "a range of all that lies there": "whole >= 200000 AND whole < 390000",
    "scattered rows": "mixed < 20000",
    "few scattered rows": "mixed < 40",
    "two ranges": "whole < 3000 OR (whole > 300000 AND whole < 400000)",
    "ranges and single rows": "whole < 20000 OR mixed < 300",
    "no row": "whole > 100000 AND whole < 100005",
}


@pytest.fixture(params=["2.0", "2.1", "2.2"])
def version(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["all rows", "deleted rows"])
def table(request, tmp_path, version):
    table = lance_core.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=50_000, data_storage_version=version)
    for column in ("time", "whole", "mixed"):
        table.create_scalar_index(column, "BTREE")
    if request.param:
        table.delete("number % 7 = 3")
        table.checkout_latest()
    return table


def test_rows_are_those_of_a_scan(table, monkeypatch):
    options = [{}, {"columns": ["text"], "with_row_id": True}, {"limit": 700, "offset": 900}, {"batch_size": 4096}]
    whole = {
        condition: [table.to_table(filter=condition, use_scalar_index=False, **option) for option in options]
        for condition in CONDITIONS.values()
    }

    def refuse(predicate, batch):
        raise AssertionError(f"{predicate.text} is asked of {batch.num_rows} rows")

    monkeypatch.setattr(Predicate, "mask", refuse)
    for condition, tables in whole.items():
        for option, rows in zip(options, tables, strict=True):
            assert table.to_table(filter=condition, **option).equals(rows), (condition, option)


@pytest.mark.parametrize(
    ("offsets", "ranges"),
    [
        ([], None),
        ([5], None),
        (range(0, 90_000, 40), None),
        (range(0, 90_000, 30), [(0, 89_971)]),
        (range(500, 900), [(500, 900)]),
        ([*range(900), *range(20_000, 20_900)], [(0, 900), (20_000, 20_900)]),
        (range(0, 90_000, 5_000), None),
    ],
)
def test_rows_that_lie_together_are_read_as_ranges(offsets, ranges):
    assert candidates.dense_ranges(np.array(list(offsets), np.int64)) == ranges
