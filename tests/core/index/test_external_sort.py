"""Sorting in temporary files gives what sorting in memory gives, and leaves no files behind."""

import math
import random
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_core
from lance_core.format.index.row_sets import (
    decode_row_set,
    decode_row_treemap,
    encode_row_set,
    encode_row_treemap,
    merged_parts,
    parts_of,
    rows_of_treemap,
)
from lance_core.index import external_sort, order
from lance_core.index.external_sort import ExternalSort
from lance_core.index.order import order_of_numbers, sort_order

VALUES = {
    "int": pa.array([None if i % 9 == 0 else i * 7919 % 503 for i in range(5000)], pa.int64()),
    "text": pa.array([None if i % 9 == 0 else f"text {i * 7919 % 503} ü" for i in range(5000)]),
    "float": pa.array([(None, math.nan, -math.nan, 0.0, -0.0, 1.5 * i)[i % 6] for i in range(5000)], pa.float64()),
    "bool": pa.array([(None, True, False)[i % 3] for i in range(5000)]),
    "null": pa.nulls(5000, pa.int16()),
}


def sort(values, max_memory_bytes):
    schema = pa.schema([("values", values.type), ("row", pa.int64())])
    with ExternalSort(schema, max_memory_bytes) as rows:
        for start in range(0, len(values), 700):
            part = values.slice(start, 700)
            rows.add(pa.record_batch([part, pa.array(range(start, start + len(part)))], schema=schema))
        batches = list(rows.batches())
        return pa.Table.from_batches(batches, schema=schema), rows.num_runs


@pytest.mark.parametrize("kind", VALUES)
def test_runs_in_files_are_merged_in_the_order_of_indices(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    expected, none = sort(VALUES[kind], 1 << 30)
    found, runs = sort(VALUES[kind], 4 << 10)
    assert none == 0
    assert runs > 3
    assert repr(found.to_pylist()) == repr(expected.to_pylist())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("values", "num_shares"), [(pa.array(range(5000)), 6), (pa.array(["a" * 4] * 5000), 8)])
def test_a_run_is_a_sixth_of_the_memory_or_an_eighth(values, num_shares):  # with their rows 80 KB
    assert sort(values, num_shares * 90_000)[1] == 0
    assert sort(values, num_shares * 40_000)[1] == 2


def test_numbers_are_merged_without_asking_for_single_keys(monkeypatch):
    num_calls = 0

    def counted(values):
        nonlocal num_calls
        num_calls += 1
        return order.sort_keys(values)

    monkeypatch.setattr(external_sort, "sort_keys", counted)
    num_runs = sort(VALUES["int"], 100_000)[1]
    assert num_runs > 3
    assert num_calls <= 3 * num_runs


MANY = 40_000
FEW_VALUES = {
    "floats": pa.array([(None, math.nan, -math.nan, 0.0, -0.0, 1.5 * (i % 90))[i % 6] for i in range(MANY)]),
    "texts": pa.array([None if i % 9 == 0 else f"{i * 7919 % 503} ü" for i in range(MANY)]),
    "far apart": pa.array([(i * 7919 % 503) << 40 for i in range(MANY)]),
    "nulls": pa.nulls(MANY, pa.int64()),
    "many that differ": pa.array([i * 7919 % 39_989 * 0.5 for i in range(MANY)]),
    "few in the sample": pa.array(np.maximum(np.arange(570_000) * 7919 % 570_000 - 500_000, 0) * 0.5),
}


@pytest.mark.parametrize("kind", FEW_VALUES)
def test_few_values_that_differ_have_the_same_order_as_many(kind, monkeypatch):
    values = FEW_VALUES[kind]
    found = np.asarray(sort_order(values))
    monkeypatch.setattr(order, "_ranks", lambda _: None)
    assert np.array_equal(found, np.asarray(sort_order(values)))


WORDS = {
    "equal": ["same text"] * 50,
    "one is the start of another": ["a" * (i % 40) for i in range(200)],
    "zeros": [b"a\0" * (i % 9) + b"\xff" * (i % 3) for i in range(200)],
    "short": [b"", b"b", b"a"],
    "short with zeros": [b"a" + b"\0" * (i % 3) for i in range(0, 50, 2)],
    "empty": [b"", b""],
    "long": [f"https://example.org/{i * 7919 % 97}/{i % 5}" for i in range(500)],
    "nulls": [None if i % 4 == 0 else f"key-{i * 7919 % 503}" for i in range(2000)],
    "wide numbers": [(i * 7919 % 503) * (1 << 54) - (1 << 62) for i in range(503)],
    "narrow numbers": [i * 7919 % 503 - 250 for i in range(2000)],
    "extremes": [-(1 << 63), (1 << 63) - 1, 0, -1, 1, 0, None],
}


@pytest.mark.parametrize("name", WORDS)
@pytest.mark.parametrize("is_sliced", [False, True])
def test_words_of_keys_have_the_order_of_the_keys(name, is_sliced):
    values = pa.array(WORDS[name])
    variants = (
        [values] if pa.types.is_integer(values.type) else [values.cast(pa.binary()), values.cast(pa.large_binary())]
    )
    for variant in variants:
        part = variant.slice(1, len(variant) - 2) if is_sliced else variant
        expected = pc.array_sort_indices(part, null_placement="at_start")
        assert np.asarray(sort_order(part)).tolist() == expected.to_pylist()


def test_unsigned_numbers_have_their_order():
    values = pa.array([(1 << 64) - 1, 0, 1 << 63, 5, (1 << 63) - 1], pa.uint64())
    assert np.asarray(sort_order(values)).tolist() == [1, 3, 4, 2, 0]
    assert np.asarray(sort_order(values.slice(2, 1))).tolist() == [0]


def test_no_rows():
    assert len(sort(pa.array([], pa.int64()), 1)[0]) == 0


KINDS = {"k": "BTREE", "b": "BITMAP", "l": "LABEL_LIST", "s": "NGRAM"}


def test_indices_that_do_not_fit_in_memory_are_the_same(tmp_path, monkeypatch):
    rng = random.Random(0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    data = pa.table(
        {
            "k": [rng.choice([None, rng.randrange(9000)]) for _ in range(20_000)],
            "b": [rng.choice([None, "a", "b", "c"]) for _ in range(20_000)],
            "l": [rng.choice([None, [], ["x", None], ["x", "y", "y"]]) for _ in range(20_000)],
            "s": [rng.choice([None, f"word{rng.randrange(300)} ü"]) for _ in range(20_000)],
        }
    )
    table = lance_core.write_dataset(data, tmp_path / "t", max_rows_per_file=3000)
    contents = []
    for memory in (None, 100_000):
        for column, kind in KINDS.items():
            table.create_scalar_index(column, kind, max_memory_bytes=memory)
        contents.append([content for name in KINDS for content in index_files(table, f"{name}_idx")])
    assert contents[0] == contents[1]
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("kind", VALUES)
def test_segments_of_a_b_tree_are_merged_some_rows_at_a_time(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("lance_core.index.scalar.btree._LEAST_BATCH_ROWS", 300)
    monkeypatch.setattr("lance_core.index.scalar.btree._BATCH_ROWS", 300)
    table = lance_core.write_dataset(pa.table({"v": VALUES[kind].slice(0, 1500)}), tmp_path / "t")
    table.create_scalar_index("v", "BTREE")
    for start, end in ((1500, 1500), (3000, 2000)):
        table = lance_core.write_dataset(pa.table({"v": VALUES[kind].slice(start, end)}), table.uri, mode="append")
        table.optimize.optimize_indices(num_indices_to_merge=0)
    monkeypatch.setattr("lance_core.index.scalar.btree_build.ExternalSort", None)
    assert table.optimize.optimize_indices(num_indices_to_merge=3) == ["v_idx"]
    monkeypatch.undo()
    merged = list(index_files(table, "v_idx"))
    table.create_scalar_index("v", "BTREE")
    built = list(index_files(table, "v_idx"))
    rows, expected = (next(file for file in files if "ids" in file[0]) for files in (merged, built))
    assert sorted(map(repr, rows)) == sorted(map(repr, expected))
    assert [repr(row["values"]) for row in rows] == [repr(row["values"]) for row in expected]
    assert repr([file for file in merged if file is not rows]) == repr([file for file in built if file is not expected])


def index_files(table, name):
    segment = next(one for one in table.describe_indices() if one.name == name).segments[0]
    for path in sorted(Path(table.uri, "_indices", segment.uuid).iterdir()):
        reader = lance_core.file.read.reader.DataFileReader(
            table.snapshot.store.reader(f"_indices/{segment.uuid}/{path.name}"), path=path.name
        )
        projection = reader.schema
        rows = reader.scan(projection, reader.column_numbers, start=0, end=reader.num_rows, batch_size=1 << 16)
        yield [row for batch in rows for row in batch.to_pylist()]


def test_options_that_a_kind_does_not_have(tmp_path):
    table = lance_core.write_dataset(pa.table({"a": [1]}), tmp_path / "t")
    with pytest.raises(lance_core.errors.InvalidInputError, match="no option 'max_memory_bytes'"):
        table.create_scalar_index("a", "ZONEMAP", max_memory_bytes=1)
    with pytest.raises(lance_core.errors.InvalidInputError, match="number_of_items"):
        table.create_scalar_index("a", "BLOOMFILTER", number_of_items=0)


def test_row_sets_read_back():
    rng = np.random.default_rng(0)
    rows = np.unique(rng.integers(0, 5, 3000) << 32 | rng.integers(0, 9000, 3000))
    parts = merged_parts([*parts_of(rng.permutation(rows)[:2000]), *parts_of(rows[::-1])])
    assert rows_of_treemap(decode_row_set(encode_row_set(parts), path="x")).tolist() == rows.tolist()
    assert rows_of_treemap(decode_row_treemap(encode_row_treemap(parts), path="x")).tolist() == rows.tolist()
    assert not decode_row_set(encode_row_set([]), path="x")


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: data[:5], lambda _: b""]
)
def test_damaged_row_sets_are_told(damage):
    data = encode_row_set(parts_of(np.arange(40)))
    with pytest.raises(lance_core.errors.CorruptDataError, match="set of rows"):
        decode_row_set(damage(data), path="x")


def test_whole_fragments_are_refused():
    with pytest.raises(lance_core.errors.CorruptDataError, match="0 bytes"):
        decode_row_set(b"\1\0\0\0" + b"\3\0\0\0" + b"\0\0\0\0", path="x")


@pytest.mark.parametrize("kind", [pa.float64(), pa.int64(), pa.uint64()])
def test_equal_numbers_among_many_that_differ_keep_their_order(kind):
    rng = np.random.default_rng(11)
    numbers = rng.integers(0, 1 << 62, 20_000)[rng.integers(0, 20_000, 40_000)]
    values = pa.array(numbers.astype(kind.to_pandas_dtype()), mask=rng.random(40_000) < 0.1)
    expected = pc.array_sort_indices(values, null_placement="at_start")
    assert np.array_equal(np.asarray(sort_order(values)), np.asarray(expected))


@pytest.mark.parametrize("most", [0, 3, 1 << 40, (1 << 62) - 1])
@pytest.mark.parametrize("count", [0, 1, 5000])
def test_integers_are_put_in_order_and_equal_ones_keep_theirs(most, count):
    distinct = np.random.default_rng(1).integers(-most, most + 1, 700)
    numbers = np.random.default_rng(2).choice(distinct, count)
    assert order_of_numbers(numbers).tolist() == np.argsort(numbers, kind="stable").tolist()
