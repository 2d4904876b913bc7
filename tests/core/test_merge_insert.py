import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lance_core
from lance_core.errors import CommitConflictError, InvalidInputError, UnsupportedError

ROWS = pa.table(
    {"id": pa.array(range(6), pa.int64()), "b": [f"b{i}" for i in range(6)], "c": [i * 1.5 for i in range(6)]}
)


def source(ids, columns=("id", "b", "c")):
    table = pa.table({"id": pa.array(ids, pa.int64()), "b": [f"s{i}" for i in ids], "c": [0.0] * len(ids)})
    return table.select(list(columns))


@pytest.fixture
def dataset(tmp_path):
    return lance_core.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=3)


def upsert(dataset, on="id"):
    return dataset.merge_insert(on).when_matched_update_all().when_not_matched_insert_all()


def files(dataset):
    return sorted(one.name for one in Path(dataset.uri).rglob("*") if one.is_file())


def test_the_dataset_moves_to_the_version_made(dataset):
    assert upsert(dataset).execute(source([1, 9])) == {
        "num_inserted_rows": 1,
        "num_updated_rows": 1,
        "num_deleted_rows": 0,
    }
    assert dataset.version == 2
    assert dataset.to_table()["id"].to_pylist() == [0, 2, 3, 4, 5, 1, 9]


def test_a_builder_may_be_used_again(dataset):
    builder = upsert(dataset)
    builder.execute(source([1, 9]))
    assert builder.execute(source([9, 10]))["num_updated_rows"] == 1


@pytest.mark.parametrize(
    "data",
    [
        source([9], ["id", "c"]).to_pandas,
        lambda: source([9]).to_batches()[0],
        lambda: source([9]).to_reader(),
        lambda: iter(source([9]).to_batches()),
        source([9]).to_pylist,
    ],
)
def test_the_source_may_have_any_form(dataset, data):
    assert upsert(dataset).execute(data())["num_inserted_rows"] == 1


@pytest.mark.parametrize(
    ("configure", "data", "error", "message"),
    [
        (lambda d: d.merge_insert("id"), source([1]), InvalidInputError, "has no action"),
        (lambda d: d.merge_insert("nope"), source([1]), InvalidInputError, "nope"),
        (lambda d: d.merge_insert([]), source([1]), InvalidInputError, "primary key"),
        (lambda d: d.merge_insert(), source([1]), InvalidInputError, "primary key"),
        (upsert, source([1], ["b", "c"]), InvalidInputError, "lacks the key column"),
        (upsert, source([1]).append_column("q", [[1]]), InvalidInputError, "'q'"),
        (upsert, source([1]).set_column(0, "id", pa.array([1], pa.int32())), InvalidInputError, "int32"),
        (lambda d: upsert(d).when_matched_update_all("c > 1"), source([1]), InvalidInputError, "'c'"),
        (lambda d: upsert(d).when_matched_update_all("source.q > 1"), source([1]), InvalidInputError, "'q'"),
        (lambda d: upsert(d).when_matched_update_all("source is null"), source([1]), InvalidInputError, "column"),
        (lambda d: upsert(d).when_not_matched_by_source_delete("q > 1"), source([1]), InvalidInputError, "'q'"),
        (upsert, source([1, 1]), InvalidInputError, "id = 1"),
        (lambda d: upsert(d).when_matched_fail(), source([9, 1]), InvalidInputError, "id = 1"),
        (lambda d: upsert(d).write_mode("fast"), source([1]), InvalidInputError, "write mode"),
        (lambda d: upsert(d).write_mode("rewrite_columns"), source([1], ["id", "b"]), InvalidInputError, "inserting"),
        (lambda d: upsert(d).conflict_retries(-1), source([1]), InvalidInputError, "conflict_retries"),
        (lambda d: upsert(d).target_bases(["x"]), source([1]), InvalidInputError, "no base path"),
        (
            lambda d: upsert(d).target_all_bases(include_primary=False),
            source([1]),
            InvalidInputError,
            "the dataset has none",
        ),
        (lambda d: upsert(d).mark_sstables_as_compacted([]), source([1]), UnsupportedError, "mark_sstables"),
    ],
)
def test_what_does_not_fit_leaves_nothing_behind(dataset, configure, data, error, message):
    before = files(dataset)
    with pytest.raises(error, match=message):
        configure(dataset).execute(data)
    assert files(dataset) == before


@pytest.mark.parametrize(
    ("columns", "message"),
    [(("id", "b", "c"), "all columns"), (("id",), "besides the key")],
)
def test_columns_are_rewritten_only_if_that_saves_something(dataset, columns, message):
    builder = dataset.merge_insert("id").when_matched_update_all().write_mode("rewrite_columns")
    with pytest.raises(InvalidInputError, match=message):
        builder.execute(source([1], columns))


def test_missing_columns_that_cannot_be_null(tmp_path):
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("must", pa.int64(), nullable=False)])
    dataset = lance_core.write_dataset(pa.table({"id": [1], "must": [5]}, schema=schema), tmp_path / "t")
    keys = pa.table({"id": pa.array([1, 2], pa.int64())})
    with pytest.raises(InvalidInputError, match="must"):
        upsert(dataset).execute(keys)
    dataset.merge_insert("id").when_matched_update_all().execute(keys)
    assert dataset.to_table().to_pylist() == [{"id": 1, "must": 5}]


def test_the_primary_key_is_the_default(tmp_path):
    fields = [
        pa.field("v", pa.int64()),
        pa.field("k2", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("k1", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
    ]
    schema = pa.schema(fields)
    table = pa.table({"v": [1, 2], "k2": ["a", "b"], "k1": [1, 1]}, schema=schema)
    dataset = lance_core.write_dataset(table, tmp_path / "t")
    upsert(dataset, None).execute(pa.table({"v": [7, 8], "k2": ["b", "b"], "k1": [1, 2]}, schema=schema))
    assert sorted(dataset.to_table()["v"].to_pylist()) == [1, 7, 8]


def test_keys_without_regard_to_case(dataset):
    assert upsert(dataset, "ID").execute(source([1]))["num_updated_rows"] == 1


def test_keys_of_nested_types_are_refused(tmp_path):
    dataset = lance_core.write_dataset(pa.table({"k": [[1]], "v": [1]}), tmp_path / "t")
    with pytest.raises(UnsupportedError, match="'k'"):
        dataset.merge_insert("k")


def test_uncommitted(dataset):
    transaction, stats = upsert(dataset).execute_uncommitted(source([1, 9]))
    assert (dataset.latest_version, stats["num_updated_rows"]) == (1, 1)
    done = lance_core.LanceDataset.commit(dataset.uri, transaction)
    assert done.to_table()["id"].to_pylist() == [0, 2, 3, 4, 5, 1, 9]


def test_two_inserts_of_one_key_are_one_row(dataset):
    stale = lance_core.dataset(dataset.uri)
    upsert(dataset).execute(source([9]))
    assert upsert(stale).execute(source([9, 10])) == {
        "num_inserted_rows": 1,
        "num_updated_rows": 1,
        "num_deleted_rows": 0,
    }
    assert sorted(stale.to_table()["id"].to_pylist()) == [0, 1, 2, 3, 4, 5, 9, 10]


def test_without_retries_an_append_in_between_is_a_conflict(dataset):
    stale = lance_core.dataset(dataset.uri)
    lance_core.write_dataset(source([9]), dataset.uri, mode="append")
    before = files(dataset)
    with pytest.raises(CommitConflictError):
        upsert(stale).conflict_retries(0).execute(source([9]))
    assert files(dataset) == before
    assert dataset.merge_insert("id").when_matched_update_all().conflict_retries(0).execute(source([2]))


def test_a_schema_that_changed_meanwhile_counts(dataset):
    stale = lance_core.dataset(dataset.uri)
    upsert(dataset).execute(source([9]))
    lance_core.write_dataset(ROWS.drop_columns("c"), dataset.uri, mode="overwrite")
    before = files(dataset)
    with pytest.raises((InvalidInputError, CommitConflictError)):
        upsert(stale).execute(source([1]))
    assert files(dataset) == before


def test_explained(dataset):
    text = upsert(dataset).when_not_matched_by_source_delete("id > 7").explain_plan()
    assert "on=[id], when_matched=UpdateAll, when_not_matched=InsertAll" in text
    assert "when_not_matched_by_source=Delete(id > 7)" in text
    assert "num_fragments=2" in text


def test_text_for_the_history(dataset):
    upsert(dataset).commit_message("m").transaction_properties({"job": "7"}).execute(source([1]))
    assert dataset.read_transaction(2).transaction_properties == {"job": "7", "__lance_commit_message": "m"}


def test_parts_of_structs(tmp_path):
    kind = pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string()), ("u", pa.int64())]))])
    rows = [{"x": 1, "y": {"z": "a", "u": 1}}, None, {"x": 3, "y": None}]
    table = pa.table({"id": [0, 1, 2], "s": pa.array(rows, kind)})
    dataset = lance_core.write_dataset(table, tmp_path / "t")
    part = pa.struct([("y", pa.struct([("u", pa.int64())]))])
    given = pa.array([{"y": {"u": 7}}, {"y": {"u": 8}}, None, {"y": {"u": 9}}], part)
    upsert(dataset).execute(pa.table({"id": [0, 1, 2, 3], "s": given}))
    assert dataset.to_table()["s"].to_pylist() == [
        {"x": 1, "y": {"z": "a", "u": 7}},
        {"x": None, "y": {"z": None, "u": 8}},
        None,
        {"x": None, "y": {"z": None, "u": 9}},
    ]


def test_parts_of_structs_inside_lists_are_refused(tmp_path):
    kind = pa.list_(pa.struct([("x", pa.int64()), ("y", pa.int64())]))
    table = pa.table({"id": [0], "l": pa.array([[{"x": 1, "y": 2}]], kind)})
    dataset = lance_core.write_dataset(table, tmp_path / "t")
    part = pa.array([[{"x": 1}]], pa.list_(pa.struct([("x", pa.int64())])))
    with pytest.raises(UnsupportedError, match="'l'"):
        upsert(dataset).execute(pa.table({"id": [0], "l": part}))


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=20, unique=True),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=8, unique_by=lambda row: row[0]),
    st.integers(0, 2),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_rows_that_are_not_looked_at_stay(rows, source, part, deletes):
    """Against a model: within one part of the table it is a merge, elsewhere nothing happens."""

    def table(values, mark):
        columns = {"id": [one[0] for one in values], "part": [one[1] for one in values], "by": [mark] * len(values)}
        return pa.table(columns, pa.schema({"id": pa.int64(), "part": pa.int64(), "by": pa.string()}))

    with tempfile.TemporaryDirectory() as folder:
        dataset = lance_core.write_dataset(table(rows, "old"), f"{folder}/t.lance", max_rows_per_file=4)
        merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        if deletes:
            merge = merge.when_not_matched_by_source_delete()
        merge.within(f"part = {part}").execute(table([(one[0], part) for one in source], "new"))
        found = sorted(tuple(row.values()) for row in dataset.to_table().to_pylist())
    given = {one[0] for one in source}
    kept = [(*one, "old") for one in rows if one[1] != part or (one[0] not in given and not deletes)]
    assert found == sorted(kept + [(one[0], part, "new") for one in source])


def test_a_wrong_choice_of_rows_is_refused(dataset):
    with pytest.raises(InvalidInputError):
        dataset.merge_insert("id").when_matched_update_all().within("nope = 1").execute(pa.table({"id": [1]}))


@pytest.mark.parametrize("matched", ["update_all", "delete", "fail"])
@pytest.mark.parametrize("rows", [0, 6])
def test_rows_of_one_key_are_not_inserted_twice(tmp_path, matched, rows):
    table = lance_core.write_dataset(ROWS.slice(0, rows), tmp_path / "t")
    merge = getattr(table.merge_insert("id"), f"when_matched_{matched}")().when_not_matched_insert_all()
    before = files(table)
    with pytest.raises(InvalidInputError, match=r"more than one row of the source has id = 8; .*nothing was written"):
        merge.execute(source([7, 8, 9, 8]))
    assert (table.version, files(table)) == (1, before)


def test_several_columns_make_up_the_key_of_inserted_rows(tmp_path):
    table = lance_core.write_dataset(ROWS.slice(0, 0), tmp_path / "t")
    upsert(table, ["id", "b"]).execute(source([1, 2]).set_column(0, "id", pa.array([1, 1], pa.int64())))
    again = source([3, 3])
    with pytest.raises(InvalidInputError, match="has id = 3, b = 's3'"):
        upsert(table, ["id", "b"]).execute(again)


def test_null_is_no_key_of_inserted_rows(tmp_path):
    table = lance_core.write_dataset(ROWS.slice(0, 0), tmp_path / "t")
    rows = source([1, 2]).set_column(0, "id", pa.array([None, None], pa.int64()))
    assert upsert(table).execute(rows)["num_inserted_rows"] == 2


def test_where_matches_are_kept_a_source_may_repeat_keys(tmp_path):
    """As in pylance: a merge that changes no row may be repeated, whatever keys it brings."""
    table = lance_core.write_dataset(ROWS.slice(0, 0), tmp_path / "t")
    for inserted in (2, 0):
        merge = table.merge_insert("id").when_not_matched_insert_all()
        assert merge.execute(source([8, 8]))["num_inserted_rows"] == inserted
