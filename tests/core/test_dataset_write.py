import pickle

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

import lance_core
from lance_core.errors import (
    CommitConflictError,
    DatasetAlreadyExistsError,
    DatasetNotFoundError,
    InvalidInputError,
    UnsupportedError,
)

ROWS = pa.table({"id": pa.array([1, 2, 3]), "name": pa.array(["a", None, "c"])})


def files_below(path):
    return sorted(str(one) for one in path.rglob("*") if one.is_file())


def forms_of_rows():
    batches = ROWS.to_batches(max_chunksize=2)
    return {
        "table": ROWS,
        "batch": ROWS.combine_chunks().to_batches()[0],
        "reader": pa.RecordBatchReader.from_batches(ROWS.schema, batches),
        "list of batches": batches,
        "generator of tables": (ROWS.slice(i, 1) for i in range(3)),
        "list of dicts": ROWS.to_pylist(),
        "pandas": pd.DataFrame({"id": [1, 2, 3], "name": pd.Series(["a", None, "c"], dtype="object")}),
        "polars": pl.DataFrame({"id": [1, 2, 3], "name": ["a", None, "c"]}),
        "dataset": pyarrow.dataset.dataset(ROWS),
        "capsule": Capsule(),
    }


class Capsule:
    def __arrow_c_stream__(self, requested_schema=None):
        return ROWS.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("form", list(forms_of_rows()))
def test_every_form_of_data_is_written(tmp_path, form):
    dataset = lance_core.write_dataset(forms_of_rows()[form], tmp_path / "t", ROWS.schema)
    assert dataset.to_table().to_pylist() == ROWS.to_pylist()
    assert dataset.version == 1
    assert dataset.schema.equals(ROWS.schema)


def test_a_dataset_is_written_from_another(tmp_path):
    first = lance_core.write_dataset(ROWS, tmp_path / "a")
    assert lance_core.write_dataset(first, tmp_path / "b").to_table().equals(ROWS)


@pytest.mark.parametrize("data", ["text", 3, {"a": "text"}, {"a": 1}, {}, [1, 2], [], None])
def test_other_objects_are_refused(tmp_path, data):
    with pytest.raises(InvalidInputError):
        lance_core.write_dataset(data, tmp_path / "t")
    assert files_below(tmp_path) == []


def test_schema_converts_the_data_or_refuses_it(tmp_path):
    narrow = pa.schema({"id": pa.int8(), "name": pa.large_string()})
    assert lance_core.write_dataset(ROWS, tmp_path / "t", narrow).schema.equals(narrow)
    with pytest.raises(InvalidInputError, match="does not fit 'schema'"):
        lance_core.write_dataset(ROWS, tmp_path / "u", pa.schema({"id": pa.int64(), "name": pa.int64()}))
    with pytest.raises(InvalidInputError, match="has columns"):
        lance_core.write_dataset(ROWS, tmp_path / "u", pa.schema({"id": pa.int64()}))
    assert files_below(tmp_path / "u") == []


def test_no_rows_make_an_empty_table(tmp_path):
    dataset = lance_core.write_dataset(ROWS.slice(0, 0), tmp_path / "t")
    assert (dataset.count_rows(), dataset.get_fragments()) == (0, [])
    assert dataset.to_table().equals(ROWS.slice(0, 0))
    assert dataset.to_table(filter="id = 1").num_rows == 0
    assert lance_core.write_dataset(ROWS, tmp_path / "t", mode="append").count_rows() == 3
    assert lance_core.write_dataset(iter([]), tmp_path / "u", ROWS.schema).schema.equals(ROWS.schema)


def test_modes(tmp_path):
    place = tmp_path / "t"
    assert lance_core.write_dataset(ROWS, place, mode="append").version == 1
    assert lance_core.write_dataset(ROWS, place, mode="append").count_rows() == 6
    other = pa.table({"x": [1.5]})
    overwritten = lance_core.write_dataset(other, place, mode="overwrite")
    assert overwritten.version == 3
    assert overwritten.to_table().equals(other)
    assert overwritten.checkout_version(2).count_rows() == 6
    with pytest.raises(DatasetAlreadyExistsError, match="'append' or 'overwrite'"):
        lance_core.write_dataset(ROWS, place)
    with pytest.raises(InvalidInputError, match="'replace'"):
        lance_core.write_dataset(ROWS, place, mode="replace")
    assert overwritten.latest_version == 3


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"table_id": ["t"]}, InvalidInputError, "table_id"),
        ({"external_blob_mode": "ingest"}, UnsupportedError, "external_blob_mode"),
        ({"nonsense": 1}, TypeError, "nonsense"),
        ({"max_rows_per_file": 0}, InvalidInputError, "max_rows_per_file"),
        ({"data_storage_version": "2.3"}, UnsupportedError, "2.3"),
    ],
)
def test_wrong_arguments_write_nothing(tmp_path, arguments, error, words):
    with pytest.raises(error, match=words):
        lance_core.write_dataset(ROWS, tmp_path / "t", **arguments)
    assert files_below(tmp_path) == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pa.table({"_rowid": [1]}), "'_rowid' is reserved"),
        (pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), "'a' occurs twice"),
        (pa.table({}), "at least one column"),
    ],
)
def test_tables_that_nobody_could_read_are_not_made(tmp_path, data, words):
    with pytest.raises(InvalidInputError, match=words) as caught:
        lance_core.write_dataset(data, tmp_path / "t")
    assert caught.value.path == str(tmp_path / "t")
    assert files_below(tmp_path) == []


def test_hints_of_pylance_are_accepted(tmp_path):
    assert lance_core.write_dataset(ROWS, tmp_path / "t", max_rows_per_group=7, session=None).count_rows() == 3


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pa.table({"id": ["1"], "name": ["a"]}), "'id' is string, the table has int64"),
        (pa.table({"id": pa.array([1], pa.int32()), "name": ["a"]}), "'id' is int32"),
        (pa.table({"id": [1], "name": ["a"], "more": [1]}), "'more' is not in the table"),
        (pa.table({"ID": [1]}), "'ID' is not in the table"),
        (pa.table({"name": ["a"]}), "'id' is missing"),
        (pa.table({"id": pa.array([None], pa.int64())}), "'id' is not nullable"),
        (pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"]), "occurs twice"),
    ],
)
def test_data_that_does_not_fit_is_refused_and_leaves_nothing(tmp_path, data, words):
    place = tmp_path / "t"
    strict = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    lance_core.write_dataset(ROWS, place, strict)
    before = files_below(place)
    with pytest.raises(InvalidInputError, match=words):
        lance_core.write_dataset(data, place, mode="append")
    assert files_below(place) == before


def test_all_problems_of_the_schema_are_named_at_once(tmp_path):
    lance_core.write_dataset(ROWS, tmp_path / "t")
    with pytest.raises(InvalidInputError) as caught:
        lance_core.write_dataset(pa.table({"id": ["x"], "q": [1]}), tmp_path / "t", mode="append")
    assert "'q'" in str(caught.value)
    assert "'id'" in str(caught.value)


def test_columns_are_matched_by_name_and_missing_ones_read_as_null(tmp_path):
    lance_core.write_dataset(ROWS, tmp_path / "t")
    lance_core.write_dataset(pa.table({"name": ["d"], "id": [4]}), tmp_path / "t", mode="append")
    dataset = lance_core.write_dataset(pa.table({"id": [5]}), tmp_path / "t", mode="append")
    assert dataset.to_table().slice(3).to_pylist() == [{"id": 4, "name": "d"}, {"id": 5, "name": None}]
    assert dataset.to_table(columns=["name"], filter="id = 5").to_pylist() == [{"name": None}]
    assert dataset.count_rows("name is null") == 2
    assert dataset.take([4, 3], columns=["name"])["name"].to_pylist() == [None, "d"]


def test_structs_are_matched_by_name_too(tmp_path):
    whole = pa.table({"s": [{"x": 1, "y": "a"}], "l": [[{"x": 1}]]})
    lance_core.write_dataset(whole, tmp_path / "t")
    lance_core.write_dataset(pa.table({"s": [{"y": "b", "x": 2}, None]}), tmp_path / "t", mode="append")
    dataset = lance_core.write_dataset(pa.table({"s": [{"x": 3}]}), tmp_path / "t", mode="append")
    assert dataset.to_table()["s"].to_pylist() == [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}, None, {"x": 3, "y": None}]
    with pytest.raises(InvalidInputError, match=r"s\.z"):
        lance_core.write_dataset(pa.table({"s": [{"z": 3}]}), tmp_path / "t", mode="append")
    with pytest.raises(InvalidInputError, match=r"'l\[\]\.x' is string"):
        lance_core.write_dataset(pa.table({"l": [[{"x": "s"}]]}), tmp_path / "t", mode="append")


def test_names_of_list_items_do_not_matter(tmp_path):
    lance_core.write_dataset(pa.table({"l": pa.array([[1, None], None])}), tmp_path / "t")
    other = pa.array([[9], [2, 3], []], pa.list_(pa.field("element", pa.int64())))
    dataset = lance_core.write_dataset(pa.table({"l": other}).slice(1), tmp_path / "t", mode="append")
    assert dataset.to_table()["l"].to_pylist() == [[1, None], None, [2, 3], []]


def test_the_layout_of_text_does_not_matter_and_columns_without_values_fit(tmp_path):
    kinds = {"s": pa.string(), "b": pa.large_binary(), "l": pa.list_(pa.string()), "t": pa.struct([("x", pa.string())])}
    lance_core.write_dataset(pa.table({name: pa.nulls(1, kind) for name, kind in kinds.items()}), tmp_path / "t")
    rows = [{"s": "a", "b": b"b", "l": ["c", None], "t": {"x": "d"}}, dict.fromkeys(kinds)]
    for texts, blobs in ((pa.large_string(), pa.binary()), (pa.string_view(), pa.binary_view())):
        given = {"s": texts, "b": blobs, "l": pa.list_(texts), "t": pa.struct([("x", texts)])}
        data = pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in given.items()})
        dataset = lance_core.write_dataset(data, tmp_path / "t", mode="append")
    dataset = lance_core.write_dataset(pa.table({name: pa.nulls(2) for name in kinds}), tmp_path / "t", mode="append")
    assert dataset.schema == pa.schema(list(kinds.items()))
    assert dataset.to_table().to_pylist()[1:5] == rows * 2
    assert dataset.to_table().to_pylist()[5:] == [dict.fromkeys(kinds)] * 2
    frame = pd.DataFrame({"s": ["a", "z"]})  # pandas 3 makes large strings of text
    done = dataset.merge_insert("s").when_not_matched_insert_all().execute(frame)
    assert done["num_inserted_rows"] == 1


def test_a_message_names_some_of_many_columns(tmp_path):
    table = lance_core.write_dataset(pa.table({"x": [1]}), tmp_path / "t")
    many = pa.table({f"column {number}": [1] for number in range(3000)})
    with pytest.raises(InvalidInputError, match=r"'column 0'.*and 2,980 more; nothing was written") as told:
        lance_core.write_dataset(many, table, mode="append")
    assert len(str(told.value)) < 2000


def test_a_column_without_values_does_not_fit_where_no_null_may_be(tmp_path):
    lance_core.write_dataset(pa.table({"a": [1]}, schema=pa.schema([pa.field("a", pa.int64(), False)])), tmp_path / "t")  # noqa: FBT003
    with pytest.raises(InvalidInputError, match="a"):
        lance_core.write_dataset(pa.table({"a": pa.nulls(1)}), tmp_path / "t", mode="append")


def test_files_are_cut_where_the_limits_say(tmp_path):
    rows = pa.table({"id": range(1000)})
    exact = lance_core.write_dataset(rows, tmp_path / "a", max_rows_per_file=300)
    assert [one.physical_rows for one in exact.get_fragments()] == [300, 300, 300, 100]
    full = lance_core.write_dataset(rows, tmp_path / "b", max_rows_per_file=500)
    assert [one.physical_rows for one in full.get_fragments()] == [500, 500]
    small = lance_core.write_dataset(rows.to_batches(max_chunksize=100), tmp_path / "c", max_bytes_per_file=1600)
    assert [one.physical_rows for one in small.get_fragments()] == [300, 300, 300, 100]  # packed to two thirds
    assert small.to_table().equals(rows)


def test_a_failing_stream_leaves_nothing(tmp_path):
    def broken():
        yield from ROWS.to_batches()
        yield from ROWS.to_batches()
        raise RuntimeError("source is gone")

    stream = pa.RecordBatchReader.from_batches(ROWS.schema, broken())
    with pytest.raises(RuntimeError, match="source is gone"):
        lance_core.write_dataset(stream, tmp_path / "t", max_rows_per_file=2)
    assert files_below(tmp_path) == []


def test_a_null_found_late_leaves_nothing(tmp_path):
    strict = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    place = tmp_path / "t"
    lance_core.write_dataset(pa.table({"id": [0]}, strict), place)
    before = files_below(place)
    late = [pa.record_batch({"id": [1, 2]}), pa.record_batch({"id": [3, None]})]
    with pytest.raises(InvalidInputError, match="null"):
        lance_core.write_dataset(late, place, mode="append", max_rows_per_file=1)
    assert files_below(place) == before


def test_history_keeps_message_and_properties(tmp_path):
    dataset = lance_core.write_dataset(
        ROWS, tmp_path / "t", commit_message="first", transaction_properties={"run": "17"}
    )
    transaction = dataset.read_transaction(1)
    assert transaction.transaction_properties == {"__lance_commit_message": "first", "run": "17"}
    assert transaction.read_version == 0
    assert dataset.get_transactions() == [transaction]
    assert dataset.versions()[0]["metadata"]["total_rows"] == "3"


def test_fragments_staged_elsewhere_are_committed(tmp_path):
    place = tmp_path / "t"
    staged = lance_core.write_fragments(ROWS, place, mode="create", max_rows_per_file=2)
    with pytest.raises(DatasetNotFoundError):
        lance_core.dataset(place)
    travelled = [lance_core.FragmentMetadata.from_json(one.to_json()) for one in staged]
    assert pickle.loads(pickle.dumps(staged)) == staged == travelled  # noqa: S301
    created = lance_core.LanceDataset.commit(place, lance_core.LanceOperation.Overwrite(ROWS.schema, travelled))
    more = lance_core.write_fragments(ROWS, created)
    transaction = lance_core.Transaction(1, lance_core.LanceOperation.Append(more), transaction_properties={"k": "v"})
    appended = lance_core.LanceDataset.commit(created, transaction)
    assert appended.to_table().num_rows == 6
    assert appended.read_transaction(2).transaction_properties == {"k": "v"}
    assert appended.read_transaction(2).uuid == transaction.uuid
    with pytest.raises(InvalidInputError, match="read_version"):
        lance_core.LanceDataset.commit(place, lance_core.LanceOperation.Append(more))
    with pytest.raises(InvalidInputError, match="does not fit"):
        lance_core.write_fragments(pa.table({"other": [1]}), place)


def test_a_commit_that_cannot_be_merged_removes_what_it_staged(tmp_path):
    place = tmp_path / "t"
    lance_core.write_dataset(ROWS, place)

    class Racing:
        schema = ROWS.schema

        def to_batches(self):
            lance_core.write_dataset(ROWS, place, mode="overwrite")
            return ROWS.to_batches()

    with pytest.raises(CommitConflictError):
        lance_core.write_dataset(Racing(), place, mode="append")
    referenced = {
        file.path
        for number in (1, 2)
        for one in lance_core.dataset(place, number).get_fragments()
        for file in one.data_files()
    }
    assert {one.name for one in (place / "data").iterdir()} == referenced
