"""What changes of tables of many small fragments cost: these are read in runs, not one by one."""

import numpy as np
import pyarrow as pa
import pytest

import lance_core

ROWS, FEW, MANY = 600, 20, 120


def table(path, fragments, **options):
    rows = pa.table({"id": np.arange(ROWS), "key": [f"key {i}" for i in range(ROWS)], "n": np.arange(ROWS) % 7})
    lance_core.write_dataset(rows, path, max_rows_per_file=ROWS // fragments, **options)
    return str(path)


def upsert(path):
    rows = pa.table({"id": [3, 10_000], "key": ["a", "b"], "n": [1, 2]})
    dataset = lance_core.dataset(path)
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)


def upsert_by_text(path):
    rows = pa.table({"id": [3, 10_000], "key": ["key 3", "key"], "n": [1, 2]})
    dataset = lance_core.dataset(path)
    dataset.merge_insert("key").when_matched_update_all("target.n < source.n").when_not_matched_insert_all().execute(
        rows
    )


WORKS = {
    "update": lambda path: lance_core.dataset(path).update({"n": "8"}, where="id = 5"),
    "upsert": upsert,
    "upsert by text": upsert_by_text,
    "build a B-tree": lambda path: lance_core.dataset(path).create_scalar_index("n", "BTREE"),
    "build zones": lambda path: lance_core.dataset(path).create_scalar_index("n", "ZONEMAP"),
}
MOST_CALLS = 260
"""For each further fragment; it took 870 to 1,070 when each was read by itself."""


@pytest.mark.slow
@pytest.mark.parametrize("work", WORKS)
def test_a_small_fragment_costs_few_calls(tmp_path, calls_of, work):
    counts = []
    for number in (FEW, MANY):
        WORKS[work](table(tmp_path / f"{number} warm", number))
        path = table(tmp_path / f"{number}", number)
        counts.append(calls_of(lambda path=path: WORKS[work](path)))
    assert (counts[1] - counts[0]) / (MANY - FEW) <= MOST_CALLS


@pytest.mark.slow
def test_a_new_column_of_a_small_fragment_costs_few_calls(tmp_path, calls_of):
    """A file for each: it took 800 calls when each was written by itself."""
    counts = []
    for number in (FEW, MANY):
        for name in ("warm", "counted"):
            path = table(tmp_path / f"{number} {name}", number)
            calls = calls_of(lambda path=path: lance_core.dataset(path).add_columns({"m": "n * 2"}))
        counts.append(calls)
    assert (counts[1] - counts[0]) / (MANY - FEW) <= 680


def test_no_new_file_is_left_behind_if_a_late_fragment_fails(tmp_path):
    path, calls = table(tmp_path / "t", 50), []

    @lance_core.batch_udf()
    def fails(batch):
        calls.append(batch.num_rows)
        if len(calls) == 45:
            raise ValueError
        return pa.RecordBatch.from_arrays([batch["n"]], ["m"])

    before = {file.name for file in (tmp_path / "t" / "data").iterdir()}
    with pytest.raises(ValueError):  # noqa: PT011 as it was raised
        lance_core.dataset(path).add_columns(fails, read_columns=["n"])
    assert {file.name for file in (tmp_path / "t" / "data").iterdir()} == before


@pytest.mark.parametrize("condition", ["true", "1 < 2"])
def test_all_rows_are_deleted_without_a_look_at_any_fragment(tmp_path, calls_of, condition):
    counts = []
    for number in (FEW, MANY):
        for name in ("warm", "counted"):
            path = table(tmp_path / f"{number} {name}", number)
            dataset = lance_core.dataset(path)
            dataset.delete("id < 50")
            calls = calls_of(lambda dataset=dataset: dataset.delete(condition))
            assert (dataset.count_rows(), dataset.get_fragments()) == (0, [])
        counts.append(calls)
    assert (counts[1] - counts[0]) / (MANY - FEW) <= 1
    assert dataset.delete(condition) == {"num_deleted_rows": 0}


INDEXED_WORKS = {
    "update": WORKS["update"],
    "delete": lambda path: lance_core.dataset(path).delete("id = 5"),
    "upsert": lambda path: (
        lance_core.dataset(path)
        .merge_insert("id")
        .when_matched_update_all()
        .execute(pa.table({"id": [3], "key": ["a"], "n": [1]}))
    ),
}


@pytest.mark.parametrize("work", INDEXED_WORKS)
def test_fragments_that_an_index_excludes_cost_next_to_nothing(tmp_path, calls_of, work):
    counts = []
    for number in (FEW, MANY):
        for name in ("warm", "counted"):
            path = table(tmp_path / f"{number} {name}", number)
            lance_core.dataset(path).create_scalar_index("id", "BTREE")
            calls = calls_of(lambda path=path: INDEXED_WORKS[work](path))
        counts.append(calls)
    assert (counts[1] - counts[0]) / (MANY - FEW) <= 12


def test_functions_see_the_rows_of_one_fragment_at_a_time(tmp_path):
    dataset = lance_core.dataset(table(tmp_path / "t", 12))
    dataset.delete("id % 10 = 3 or id < 50")
    seen = []

    def double(batch):
        seen.append(batch.column(0).to_pylist())
        return pa.RecordBatch.from_arrays([pa.array([2 * number for number in seen[-1]])], ["double"])

    dataset.add_columns(double, read_columns=["id"])
    live = [[i for i in range(start, start + 50) if i % 10 != 3] for start in range(50, 600, 50)]
    assert seen[1:] == live  # the first call is to learn the type
    assert dataset.to_table(columns=["double"])["double"].to_pylist() == [2 * i for numbers in live for i in numbers]


@pytest.mark.parametrize("is_stable", [False, True])
@pytest.mark.parametrize("deleted", ["false", "id % 5 = 1", "id < 40"])
def test_changes_do_not_depend_on_how_rows_are_spread(tmp_path, deleted, is_stable):
    results = []
    for number in (1, 60):
        path = table(tmp_path / str(number), number, enable_stable_row_ids=is_stable)
        dataset = lance_core.dataset(path)
        dataset.delete(deleted)
        dataset.update({"n": "n + 100"}, where="id % 3 = 0")
        source = pa.table({"id": np.arange(30, 630, 4), "key": ["s"] * 150, "n": np.arange(150)})
        merge = dataset.merge_insert("id").when_matched_update_all("target.n < 100")
        merge.when_not_matched_insert_all().execute(source)
        merge = dataset.merge_insert("id").when_matched_update_all()
        merge.when_not_matched_by_source_delete("n = 4").execute(source[:9])
        dataset.create_scalar_index("n", "BTREE")
        dataset.delete("id > 300 and n = 5")
        dataset.add_columns({"twice": "n * 2", "text": "concat(key, '!')"})
        dataset.alter_columns({"path": "n", "data_type": pa.int32()})
        rows = dataset.to_table(columns=["id", "key", "n", "twice", "text"], with_row_id=is_stable).sort_by("id")
        results.append((rows, dataset.to_table(columns=["id"], filter="n = 3").sort_by("id")))
    assert results[0] == results[1]


@pytest.mark.parametrize("condition", ["true", "1 = 2", "null = 1"])
def test_conditions_without_columns_hold_for_all_rows_or_none(tmp_path, condition):
    dataset = lance_core.dataset(table(tmp_path / "t", 4))
    dataset.delete("id < 200")
    dataset.delete(condition)
    assert dataset.count_rows() == (0 if condition == "true" else 400)
    assert len(dataset.get_fragments()) == (0 if condition == "true" else 3)
