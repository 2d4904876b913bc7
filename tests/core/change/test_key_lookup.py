"""Merges that look their keys up in indices do what merges without indices do."""

import itertools
import shutil

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.change.merging import key_lookup, merge_match
from lance_core.file.read.reader import DataFileReader

ROWS = 4000


def table(rng, count):
    keys = rng.permutation(ROWS * 2)[:count]
    names = pa.array([f"name {key:05}" for key in keys], mask=rng.random(count) < 0.05)
    return pa.table({"k": pa.array(keys), "name": names, "x": rng.random(count)})


def build(path, *, stable):
    """A table with indices that miss new fragments, updated rows and deleted rows."""
    rng = np.random.default_rng(7)
    rows = table(rng, ROWS)
    dataset = lance_core.write_dataset(rows.slice(0, 3000), path, max_rows_per_file=700, enable_stable_row_ids=stable)
    dataset.create_scalar_index("k", "BTREE")
    dataset.create_scalar_index("name", "BTREE")
    dataset.update({"name": "name || '!'"}, where="k % 13 = 7")
    dataset.delete("k % 11 = 7")
    lance_core.write_dataset(rows.slice(3000), dataset, mode="append")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Copies of tables that are built once."""
    folder = tmp_path_factory.mktemp("built")
    for stable in (False, True):
        build(folder / str(stable), stable=stable)

    def copy(path, *, stable):
        shutil.copytree(folder / str(stable), path)
        return lance_core.dataset(path)

    return copy


def source(rng, dataset):
    old = dataset.to_table(columns=["k", "name"]).take(pa.array(rng.permutation(dataset.count_rows())[:20]))
    new = table(rng, 5).select(["k", "name"])
    rows = pa.concat_tables([old, new.set_column(0, "k", pa.array(range(90_000, 90_005)))])
    return rows.append_column("x", pa.array(np.arange(rows.num_rows, dtype=float)))


CLAUSES = {
    "upsert": lambda merge: merge.when_matched_update_all().when_not_matched_insert_all(),
    "insert": lambda merge: merge.when_not_matched_insert_all(),
    "condition": lambda merge: merge.when_matched_update_all("source.x > target.x").when_not_matched_insert_all(),
    "delete": lambda merge: merge.when_matched_delete(),
    "replace": lambda merge: merge.when_matched_update_all().when_not_matched_by_source_delete("k < 1000"),
}


CASES = list(itertools.product(CLAUSES, [["k"], ["name"], ["k", "name"], ["x", "k"]], [False, True]))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CASES)))
def test_merges_with_and_without_indices_are_alike(tmp_path, monkeypatch, built, number):
    clause, key, stable = CASES[number]
    results = []
    for has_index in (True, False):
        path = tmp_path / str(has_index)
        dataset = built(path, stable=stable)
        rows = source(np.random.default_rng(number), dataset)
        if not has_index:
            monkeypatch.setattr(merge_match, "find_candidates", lambda *_: None)
        stats = CLAUSES[clause](dataset.merge_insert(key)).execute(rows)
        results.append((stats, dataset.to_table().sort_by("k")))
    assert results[0][0] == results[1][0]
    assert results[0][1].equals(results[1][1])


def key_rows_read(monkeypatch, name="k"):
    """Rows of the data files of which a column of the key is read."""
    counts = []
    scan, take = DataFileReader.scan, DataFileReader.taking

    def scanned(self, projection, columns, **options):
        if name in projection.names:
            counts.append(options["end"] - options["start"])
        return scan(self, projection, columns, **options)

    def taken(self, projection, columns, offsets, **options):
        if name in projection.names:
            counts.append(len(offsets))
        return take(self, projection, columns, offsets, **options)

    monkeypatch.setattr(DataFileReader, "scan", scanned)
    monkeypatch.setattr(DataFileReader, "taking", taken)
    return counts


@pytest.mark.parametrize("kind", ["BTREE", "ZONEMAP"])
def test_few_keys_are_read(tmp_path, monkeypatch, kind):
    rows = pa.table({"k": range(100_000), "x": np.zeros(100_000)})
    dataset = lance_core.write_dataset(rows, tmp_path / "t", max_rows_per_file=20_000)
    dataset.create_scalar_index("k", kind, **({"rows_per_zone": 1000} if kind == "ZONEMAP" else {}))
    counts = key_rows_read(monkeypatch)
    keys = pa.table({"k": [5, 50_005, 100_005], "x": [1.0, 2.0, 3.0]})
    stats = dataset.merge_insert("k").when_matched_update_all().when_not_matched_insert_all().execute(keys)
    assert stats == {"num_inserted_rows": 1, "num_updated_rows": 2, "num_deleted_rows": 0}
    assert sum(counts) <= (0 if kind == "BTREE" else 4000)


TYPES = [
    pa.int8(), pa.uint64(), pa.bool_(), pa.float32(), pa.float64(), pa.decimal128(22, 2), pa.date32(), pa.date64(),
    pa.time32("s"), pa.time64("us"), pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.duration("ms"), pa.string(),
    pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(5),
]  # fmt: skip


def keys_of(kind, numbers):
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.array([f"{number:05}".encode() for number in numbers], kind)
    if pa.types.is_date64(kind):
        return pa.array(numbers, pa.int32()).cast(pa.date32()).cast(kind)
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.array(numbers, pa.int32()).cast(kind)
    return pa.array(numbers, pa.int64()).cast(kind)


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_keys_of_all_types_are_looked_up_and_none_is_read(tmp_path, monkeypatch, kind, stable):
    numbers = np.random.default_rng(5).permutation(2 if pa.types.is_boolean(kind) else 120) + 1
    numbers = numbers % 2 if pa.types.is_boolean(kind) else numbers
    rows = pa.table({"x": numbers, "k": keys_of(kind, numbers)})
    dataset = lance_core.write_dataset(rows, tmp_path / "t", max_rows_per_file=50, enable_stable_row_ids=stable)
    dataset.create_scalar_index("k", "BTREE")
    dataset.update({"x": "x + 1000"}, where="x = 1")  # its new row is covered by no index
    dataset.optimize.optimize_indices()
    monkeypatch.setattr(key_lookup, "MOST_SHARE", 1)
    counts = key_rows_read(monkeypatch)
    wanted = numbers[-1:] if pa.types.is_boolean(kind) else np.array([3, 77, 1, 121])
    source = pa.table({"k": keys_of(kind, wanted), "x": -wanted - 1})
    stats = dataset.merge_insert("k").when_matched_update_all().when_not_matched_insert_all().execute(source)
    assert stats["num_inserted_rows"] == int((~np.isin(wanted, numbers)).sum())
    assert sum(counts) == 0
    expected = {number: -number - 1 if number in wanted else number for number in {*numbers.tolist(), *wanted.tolist()}}
    assert sorted(dataset.to_table(columns=["x"])["x"].to_pylist()) == sorted(expected.values())


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
@pytest.mark.parametrize("indexed", [("k", "name"), ("k",)], ids=str)
def test_a_key_of_several_columns_is_read_where_no_index_knows_it(tmp_path, monkeypatch, indexed, stable):
    rng = np.random.default_rng(9)
    rows = pa.table({"name": [f"n{number % 7}" for number in range(20_000)], "k": rng.permutation(20_000) // 3})
    rows = rows.append_column("x", pa.array(range(20_000)))
    dataset = lance_core.write_dataset(rows, tmp_path / "t", max_rows_per_file=5_000, enable_stable_row_ids=stable)
    for column in indexed:
        dataset.create_scalar_index(column, "BTREE")
    dataset.delete("x = 17")
    there = rows.take([5, 17, 9_000, 19_999])
    absent = pa.table({"name": ["n8", "n1"], "k": [there["k"][0].as_py(), 99_999], "x": [0, 0]})
    k_rows, name_rows = key_rows_read(monkeypatch), key_rows_read(monkeypatch, "name")
    merge = dataset.merge_insert(["name", "k"]).when_matched_update_all().when_not_matched_insert_all()
    stats = merge.execute(pa.concat_tables([there, absent]))
    assert (stats["num_updated_rows"], stats["num_inserted_rows"]) == (3, 3)
    assert sum(k_rows) == 0
    assert sum(name_rows) <= 4 * 3


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
def test_an_index_of_another_column_of_the_key_narrows_what_a_btree_finds(tmp_path, monkeypatch, stable):
    rows = pa.table({"name": [f"n{number % 500}" for number in range(20_000)], "k": range(20_000), "x": range(20_000)})
    dataset = lance_core.write_dataset(rows, tmp_path / "t", max_rows_per_file=5_000, enable_stable_row_ids=stable)
    dataset.create_scalar_index("name", "BTREE")
    dataset.create_scalar_index("k", "ZONEMAP", rows_per_zone=1000)
    counts = key_rows_read(monkeypatch)
    merge = dataset.merge_insert(["name", "k"]).when_matched_update_all().when_not_matched_insert_all()
    stats = merge.execute(pa.table({"name": ["n7", "n9", "n8"], "k": [507, 509, 509], "x": [0, 0, 0]}))
    assert (stats["num_updated_rows"], stats["num_inserted_rows"]) == (2, 1)
    assert 0 < sum(counts) <= 3 * 2  # of 3 * 40 rows with these names, those of the zone


@pytest.mark.parametrize("value", [0.0, -0.0, float("nan")])
def test_zeros_and_nan_among_keys_are_left_to_a_scan(tmp_path, monkeypatch, value):
    keys = [0.0, -0.0, float("nan"), 1.5] * 50
    dataset = lance_core.write_dataset(pa.table({"k": keys, "x": range(200)}), tmp_path / "t")
    dataset.create_scalar_index("k", "BTREE")
    monkeypatch.setattr(key_lookup, "MOST_SHARE", 1)
    source = pa.table({"k": [value, 1.5]})
    assert dataset.merge_insert("k").when_matched_delete().execute(source)["num_deleted_rows"] == 100


def test_null_keys_match_nothing(tmp_path):
    dataset = lance_core.write_dataset(pa.table({"k": pa.array([None, *range(999)])}), tmp_path / "t")
    dataset.create_scalar_index("k", "BTREE")
    keys = pa.table({"k": pa.array([None, 5], pa.int64())})
    stats = dataset.merge_insert("k").when_not_matched_insert_all().execute(keys)
    assert stats["num_inserted_rows"] == 1
    assert dataset.count_rows("k is null") == 2


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.timestamp("us")])
def test_many_keys_are_found_in_many_pages(tmp_path, kind):
    """Every 64th value of the pages is read, then those between two of them; keys repeat over pages."""
    rng = np.random.default_rng(3)
    numbers = np.sort(rng.integers(0, 60_000, 200_000))
    values = pa.array(numbers + 100_000).cast(kind)
    dataset = lance_core.write_dataset(pa.table({"k": values, "row": range(len(numbers))}), tmp_path / "t")
    dataset.create_scalar_index("k", "BTREE")
    wanted = np.sort(rng.choice(70_000, 300, replace=False))
    merged = pa.table({"k": pa.array(wanted + 100_000).cast(kind)})
    stats = dataset.merge_insert("k").when_matched_delete().execute(merged)
    assert stats["num_deleted_rows"] == int(np.isin(numbers, wanted).sum())
    left = dataset.to_table(columns=["row"])["row"].to_numpy()
    assert not np.isin(numbers[left], wanted).any()
