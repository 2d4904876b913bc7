"""Indices over more rows than are read, sorted or folded at once answer as scans, and the audit agrees."""

import numpy as np
import pyarrow as pa
import pytest

import lance_core

ROWS = 70_000
CONDITIONS = {
    "BTREE": ("k", "k = 41"),
    "BITMAP": ("few", "few = 3"),
    "LABEL_LIST": ("tags", "array_has(tags, 'x3')"),
    "NGRAM": ("text", "contains(text, 'Row 41')"),
    "ZONEMAP": ("k", "k = 41"),
    "BLOOMFILTER": ("k", "k = 41"),
}


@pytest.fixture(scope="module")
def rows():
    numbers = np.arange(ROWS)
    few = pa.array(numbers % 5, mask=numbers % 7 == 0)
    texts = pa.array([f"Row {number % 977} {'é' if number < 9_000 else ''}" for number in range(ROWS)])
    tags = pa.ListArray.from_arrays(np.arange(ROWS + 1, dtype=np.int32), [f"x{number % 5}" for number in range(ROWS)])
    return pa.table({"k": numbers * 7_919 % 10_007, "few": few, "tags": tags, "text": texts})


@pytest.mark.parametrize("kind", CONDITIONS)
def test_indices_over_many_rows_answer_as_scans(tmp_path, rows, kind):
    column, condition = CONDITIONS[kind]
    dataset = lance_core.write_dataset(rows.select([column]), tmp_path / "t")
    dataset.create_scalar_index(column, kind)
    scanner = dataset.scanner(filter=condition, use_scalar_index=False, columns=[], with_row_id=True)
    expected = scanner.to_table()["_rowid"].to_pylist()
    assert len(expected) > 1, "the condition must choose rows"
    found = dataset.to_table(filter=condition, columns=[], with_row_id=True)["_rowid"].to_pylist()
    assert found == expected
    assert dataset.verify(level="indices").is_ok
