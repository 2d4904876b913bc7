"""Takes of a large share of the rows read all that lie between them, and pick their own."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.file.read import plan, strategy

ROWS = 9_000
RNG = np.random.default_rng(17)
IS_NULL = RNG.random(ROWS) < 0.2


def _table():
    words = [f"word {number}" for number in RNG.integers(0, 40, ROWS).tolist()]
    return pa.table({
        "id": np.arange(ROWS),
        "number": pa.array(RNG.normal(size=ROWS)),
        "small": pa.array(RNG.integers(0, 100, ROWS, np.int32), mask=IS_NULL),
        "words": pa.array(words, mask=IS_NULL),
        "texts": [f"{row * 7919 % 10_007} and more of it" for row in range(ROWS)],
        "lists": [[row] * (row % 4) for row in range(ROWS)],
        "vectors": pa.FixedSizeListArray.from_arrays(pa.array(RNG.random(ROWS * 512, np.float32)), 512),
    })  # fmt: skip


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("window_rows", [None, 2_048])
def test_dense_rows_are_picked_out_of_ranges(data_file, monkeypatch, version, window_rows):
    if window_rows:
        monkeypatch.setattr(strategy, "kept_window_rows", lambda _widths, _batch_size: window_rows)
    table = _table()
    data_file.write(table, version=version)
    reader = data_file.open()
    numbers = reader.column_numbers
    read = []
    ranges = plan.plan_rows
    monkeypatch.setattr(plan, "plan_rows", lambda *given, **named: read.append(given[1]) or ranges(*given, **named))
    for names in (table.column_names[:-1], table.column_names):
        schema = reader.schema.select(names)
        columns = {field.id: numbers[field.id] for field in schema.walk() if field.id in numbers}
        for share, is_dense in ((2, True), (5, True), (40, False)):
            rows = RNG.choice(ROWS, ROWS // share, replace=False)
            rows = np.append(rows, rows[:5])  # in any order, some of them twice
            read.clear()
            assert pa.Table.from_batches([reader.take(schema, columns, rows)]).equals(table.select(names).take(rows))
            assert all(isinstance(some, range) for some in read) == (is_dense and "vectors" not in names)


def test_columns_with_large_rows_are_read_one_by_one():
    widths = [8.0] * 500
    assert strategy.is_dense(10_000, 50_000, widths)
    assert not strategy.is_dense(10_000, 20_000, [3_072.0])
    assert strategy.are_fetched(3_000, 50_000)
