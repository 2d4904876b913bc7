"""Counts that indices know from the sizes of what they keep: no row of the table is looked at, nor its number."""

import shutil

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lance_core
from lance_core.file.read.reader import DataFileReader
from lance_core.index import row_sets
from lance_core.store.local import LocalStore

NUM_ROWS = 600
ROWS = pa.table(
    {
        "i": range(NUM_ROWS),
        "k": pa.array([None if i % 11 == 0 else i * 7 % 50 for i in range(NUM_ROWS)], pa.int64()),
        "s": [None if i % 13 == 0 else f"text {i % 30}" for i in range(NUM_ROWS)],
    }
)
COUNTED = [
    "k = 7",
    "k <> 7",
    "k < 7",
    "NOT (k < 7)",
    "NOT (NOT (k >= 7))",
    "k > 3 AND k <= 9",
    "NOT (k <= 3 OR k > 9)",
    "k IN (1, 2, 2, 900)",
    "k NOT IN (1, 2)",
    "k IS NULL",
    "k IS NOT NULL",
    "(k = 7) IS NOT TRUE",
    "(k = 7) IS TRUE",
    "k = 900",
    "s = 'text 3'",
    "s LIKE 'text 2%'",
    "s NOT LIKE 'text 2%'",
]
COMBINED = [
    "k = 7 AND s = 'text 3'",
    "k < 30 AND NOT (s < 'text 2')",
    "k IN (1, 2, 3) OR s IS NULL",
    "NOT (k < 30 AND s LIKE 'text 1%')",
    "(k < 30 OR s = 'text 7') IS NOT TRUE",
    "k IS NULL AND s IS NOT NULL",
    "k <> 7 AND (s <> 'text 3' OR k > 40)",
    "k < 30 AND i % 2 = 0",
    "k < 30 AND s LIKE '%2'",
]


@pytest.fixture(params=["BTREE", "BITMAP"])
def kind(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["addresses", "stable row ids"])
def table(request, tmp_path, kind):
    ours = lance_core.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=250, enable_stable_row_ids=request.param)
    for column in ("k", "s"):
        ours.create_scalar_index(column, kind)
    return ours


def scanned(table, condition):
    return len(table.to_table(filter=condition, use_scalar_index=False))


def test_sizes_of_an_index_tell_counts_without_any_data_file(table, tmp_path):
    counts = {condition: scanned(table, condition) for condition in COUNTED}
    shutil.rmtree(tmp_path / "t" / "data")
    fresh = lance_core.dataset(tmp_path / "t")
    assert {condition: fresh.count_rows(condition) for condition in COUNTED} == counts
    assert {condition: fresh.count_rows(condition) for condition in COUNTED} == counts


def append(table):
    lance_core.write_dataset(ROWS.slice(0, 60), table, mode="append")


CHANGES = {
    "delete": lambda table: table.delete("i % 3 = 0"),
    "delete a fragment": lambda table: table.delete("i < 250"),
    "compact": lambda table: (table.delete("i % 3 = 0"), table.optimize.compact_files()),
    "compact later": lambda table: (
        table.delete("i % 3 = 0"),
        table.optimize.compact_files(defer_index_remap=not table.has_stable_row_ids),
    ),
    "update": lambda table: table.update({"k": "7"}, where="i % 5 = 0"),
    "update and compact": lambda table: (
        table.update({"k": "7"}, where="i % 5 = 0"),
        table.checkout_latest(),
        table.optimize.compact_files(),
    ),
    "append": append,
    "extend": lambda table: (append(table), table.checkout_latest(), table.optimize.optimize_indices()),
    "extend by a segment": lambda table: (
        append(table),
        table.checkout_latest(),
        table.optimize.optimize_indices(num_indices_to_merge=0),
    ),
    "update, extend and compact": lambda table: (
        table.update({"k": "7"}, where="i % 5 = 0"),
        table.checkout_latest(),
        table.optimize.optimize_indices(num_indices_to_merge=0),
        table.checkout_latest(),
        table.optimize.compact_files(),
    ),
}


@pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
@pytest.mark.parametrize("change", CHANGES)
def test_counts_stay_those_of_a_scan(table, change):
    CHANGES[change](table)
    table.checkout_latest()
    for condition in [*COUNTED, *COMBINED]:
        expected = table.to_table(filter=condition, use_scalar_index=False)
        assert table.count_rows(condition) == len(expected), condition
        assert table.to_table(filter=condition).equals(expected)


@pytest.mark.parametrize("deleted", ["i % 3 = 0", "i < 250", "k = 7", "i >= 0"])
def test_sets_of_an_index_tell_counts_of_rows_that_are_left(tmp_path, monkeypatch, kind, deleted):
    """Without any data file, and with each deletion file read once."""
    table = lance_core.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=250)
    for column in ("k", "s"):
        table.create_scalar_index(column, kind)
    table.delete(deleted)
    table.checkout_latest()
    conditions = [*COUNTED, *COMBINED[:7]]
    counts = {condition: scanned(table, condition) for condition in conditions}
    shutil.rmtree(tmp_path / "t" / "data")
    fresh, read, get = lance_core.dataset(tmp_path / "t"), [], LocalStore.get
    monkeypatch.setattr(LocalStore, "get", lambda self, path: read.append(path) or get(self, path))
    assert {condition: fresh.count_rows(condition) for condition in conditions} == counts
    deletions = [path for path in read if path.startswith("_deletions")]
    assert len(deletions) == len(set(deletions)) == len(list((tmp_path / "t" / "_deletions").glob("*")))


def test_sets_of_many_keys_are_joined_before_their_rows_are_told(tmp_path, monkeypatch):
    table = lance_core.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=250)
    table.create_scalar_index("k", "BITMAP")
    told = []
    numbers = row_sets.rows_of_treemap

    def counted(rows):
        told.append(len(rows))
        return numbers(rows)

    monkeypatch.setattr(row_sets, "rows_of_treemap", counted)
    for condition in ("k < 40", "k IN (1, 2, 3) AND i > 20", "NOT (k < 40 AND i > 20)"):
        told.clear()
        assert table.to_table(filter=condition).equals(table.to_table(filter=condition, use_scalar_index=False))
        assert 0 < len(told) <= 2  # for matching rows and for null


@pytest.mark.parametrize("condition", ["a = 3", "a = 3 AND b = 1"])
def test_the_first_count_reads_the_rows_of_few_keys(tmp_path, monkeypatch, condition):
    """A check of what a segment offers must not evaluate it: that once read the rows of all keys."""
    rows = range(20_000)
    columns = {"a": [None if row % 7 == 0 else row % 50 for row in rows], "b": [row % 40 for row in rows]}
    dataset = lance_core.write_dataset(pa.table(columns), tmp_path)
    for name in columns:
        dataset.create_scalar_index(name, "BITMAP")
    taken, take = [], DataFileReader.take

    def told(reader, projection, numbers, positions):
        if projection.names == ("bitmaps",):
            taken.append(len(positions))
        return take(reader, projection, numbers, positions)

    monkeypatch.setattr(DataFileReader, "take", told)
    table = pa.table(columns)
    expected = sum(
        a == 3 and ("b" not in condition or b == 1) for a, b in zip(*table.to_pydict().values(), strict=True)
    )
    assert lance_core.dataset(tmp_path).count_rows(condition) == expected
    assert 0 < len(taken) <= 3
    assert sum(taken) <= 3  # a value and null of one, a value of the other, which has no null


@given(st.integers(0, 6), st.integers(0, 6), st.sampled_from(["and", "or"]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_pyarrow_expressions_use_indices(expressions_table, low, high, join, is_inverted):
    table, (x, s) = expressions_table, (pc.field("x"), pc.field("s"))
    parts = (x >= low) & (x < high), s.isin([f"t{high}", None]) | s.is_null()
    condition = parts[0] & parts[1] if join == "and" else parts[0] | parts[1]
    condition = ~condition if is_inverted else condition
    assert "index: x_idx" in table.scanner(filter=condition).explain_plan()
    expected = table.to_table(filter=condition, use_scalar_index=False)
    assert table.to_table(filter=condition) == expected
    assert table.count_rows(condition) == len(expected)


@pytest.fixture(scope="module")
def expressions_table(tmp_path_factory):
    numbers = [None if place % 11 == 0 else place % 7 for place in range(400)]
    texts = [None if place % 5 == 0 else f"t{place % 6}" for place in range(400)]
    place = tmp_path_factory.mktemp("expressions")
    table = lance_core.write_dataset(pa.table({"x": numbers, "s": texts}), place, max_rows_per_file=90)
    table.create_scalar_index("x", "BTREE")
    table.create_scalar_index("s", "BITMAP")
    table.delete("x = 3 AND s = 't1'")
    return table
