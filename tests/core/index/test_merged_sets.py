"""Segments of bitmap and list indices are merged set by set."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

import lance_core
from lance_core.format.index.row_sets import parts_of
from lance_core.index.scalar import posting_build
from lance_core.index.scalar.bitmap_build import relocated

ROWS = st.sets(st.integers(0, 40) | st.integers(1 << 32, (1 << 32) + 40), max_size=30).map(sorted)


def rows_of(parts):
    return [(high << 32) + low for high, data in parts for low in BitMap.deserialize(data)]


@given(st.lists(ROWS, min_size=1, max_size=5), st.integers(0, 2**32), st.booleans())
def test_rows_of_each_key_are_where_they_went(sets, seed, stay):
    every = np.unique(np.concatenate([np.empty(0, np.int64), *sets]).astype(np.int64))
    rng = np.random.default_rng(seed)
    moved = every if stay else np.where(rng.random(len(every)) < 0.3, -1, rng.permutation(every))
    content = [(pa.array([None, *range(1, len(sets))], pa.int64()), [np.array(rows, np.int64) for rows in sets])]
    ((keys, merged),) = relocated([(content, lambda rows: moved[np.searchsorted(every, rows)])])
    assert keys.to_pylist() == content[0][0].to_pylist()
    where = dict(zip(every.tolist(), moved.tolist(), strict=True))
    expected = [sorted(where[row] for row in rows if where[row] >= 0) for rows in sets]
    assert [rows_of(parts) for parts in merged] == expected


@given(st.lists(st.integers(0, 1 << 34), max_size=40))
def test_parts_take_rows_in_any_order(rows):
    assert rows_of(parts_of(np.array(rows, np.int64))) == sorted(set(rows))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_merged_segments_answer_as_a_scan_does(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)

    def rows(count):
        lists = [None if rng.random() < 0.1 else rng.choice([1, 2, 3, 7], rng.integers(0, 3)) for _ in range(count)]
        codes = [None if rng.random() < 0.2 else int(code) for code in rng.integers(0, 5, count)]
        return pa.table({"labels": pa.array(lists, pa.list_(pa.int32())), "code": pa.array(codes, pa.int32())})

    path = tmp_path_factory.mktemp("t") / "t"
    table = lance_core.write_dataset(rows(60), path, max_rows_per_file=25)
    table.create_scalar_index("labels", "LABEL_LIST")
    table.create_scalar_index("code", "BITMAP")
    for _ in range(2):
        table = lance_core.write_dataset(rows(20), path, mode="append")
        table.delete("code = 4")
    table.optimize.optimize_indices()
    assert len(table.list_indices()) == 2
    for condition in ("array_has(labels, 7)", "labels IS NULL", "code = 3", "code IS NULL", "code = 4"):
        by_index = table.to_table(filter=condition, with_row_address=True)
        assert by_index == table.to_table(filter=condition, with_row_address=True, use_scalar_index=False)


@pytest.mark.parametrize("condition", ["labels IS NULL", "labels IS NOT NULL", "array_has(labels, 'b')"])
def test_scans_ask_the_index_of_lists_that_they_name(tmp_path, condition):
    labels = pa.array([["a", "b"], None, ["b"]] * 50, pa.list_(pa.string()))
    table = lance_core.write_dataset(pa.table({"labels": labels}), tmp_path / "t")
    table.create_scalar_index("labels", "LABEL_LIST")
    assert "index: labels_idx" in table.scanner(filter=condition).explain_plan()


def test_no_row_is_put_in_order_to_merge_segments(tmp_path, monkeypatch):
    labels = pa.array([["a", "b"], None, ["b"]] * 50, pa.list_(pa.string()))
    table = lance_core.write_dataset(pa.table({"labels": labels}), tmp_path / "t")
    table.create_scalar_index("labels", "LABEL_LIST")
    table = lance_core.write_dataset(pa.table({"labels": labels[:6]}), tmp_path / "t", mode="append")
    ordered = []
    order = posting_build.order_of_numbers
    monkeypatch.setattr(posting_build, "order_of_numbers", lambda codes: ordered.append(len(codes)) or order(codes))
    table.optimize.optimize_indices()
    assert ordered == [6]  # items of the new rows
    assert table.count_rows("array_has(labels, 'b')") == 104
