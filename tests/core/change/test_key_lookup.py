"""Merges that look their keys up in indices do what merges without indices do."""

import itertools
import shutil

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.change import merge_match
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


def key_rows_read(monkeypatch):
    """Rows of the data files whose key is read."""
    counts = []
    scan, take = DataFileReader.scan, DataFileReader.taking

    def scanned(self, projection, columns, **options):
        if "k" in projection.names:
            counts.append(options["end"] - options["start"])
        return scan(self, projection, columns, **options)

    def taken(self, projection, columns, offsets):
        if "k" in projection.names:
            counts.append(len(offsets))
        return take(self, projection, columns, offsets)

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
