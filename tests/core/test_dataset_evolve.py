"""Columns added, altered and dropped: values, files, errors, conflicts."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CommitConflictError, InvalidInputError, UnsupportedError
from lance_core.methods import evolving

N = 1000
ROWS = pa.table(
    {
        "id": range(N),
        "name": [f"n{i}" if i % 3 else None for i in range(N)],
        "st": [{"x": i, "y": str(i)} if i % 5 else None for i in range(N)],
        "v": pa.array([[i, i / 2] for i in range(N)], pa.list_(pa.float32(), 2)),
    }
)
LEFT = [i for i in range(N) if i % 7 and not 250 <= i < 300]


@pytest.fixture(params=["2.2", "2.1"])
def dataset(tmp_path, request):
    """Four fragments; every seventh row and a whole range at the begin of a fragment are deleted."""
    made = lance_core.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=250, data_storage_version=request.param)
    made.delete("id % 7 = 0 or id between 250 and 299")
    return made


def data_files(dataset):
    return sorted(one.name for one in Path(dataset.uri, "data").iterdir())


def column(dataset, name):
    again = lance_core.dataset(dataset.uri)
    assert again.to_table(columns=["id"])["id"].to_pylist() == LEFT
    return again.to_table(columns=[name])[name].to_pylist()


def test_sql(dataset):
    before = data_files(dataset)
    dataset.add_columns({"double": "id * 2", "label": "coalesce(name, 'none')", "half": "st.x / 2"}, batch_size=64)
    assert dataset.version == 3
    assert column(dataset, "double") == [2 * i for i in LEFT]
    assert column(dataset, "label") == [f"n{i}" if i % 3 else "none" for i in LEFT]
    assert column(dataset, "half") == [i // 2 if i % 5 else None for i in LEFT]
    assert not dataset.schema.field("label").nullable
    assert len(data_files(dataset)) == len(before) + 4
    assert set(before) < set(data_files(dataset))
    assert dataset.count_rows("double > 1000 and label = 'none'") == sum(i > 500 and i % 3 == 0 for i in LEFT)


def test_functions(dataset):
    def twice(batch):
        return pa.record_batch({"twice": [2 * i for i in batch["id"].to_pylist()]})

    dataset.add_columns(twice, read_columns=["id"])
    assert column(dataset, "twice") == [2 * i for i in LEFT]

    @lance_core.batch_udf(output_schema=pa.schema([("text", pa.string()), ("row", pa.uint64())]))
    def texts(batch):
        assert batch.num_rows <= 100
        assert batch.schema.names == ["id", "_rowid"]
        return pd.DataFrame({"row": batch["_rowid"].to_numpy(), "text": [str(i) for i in batch["id"].to_pylist()]})

    dataset.add_columns(texts, read_columns=["id", "_rowid"], batch_size=100)
    assert column(dataset, "text") == [str(i) for i in LEFT]
    assert column(dataset, "row") == dataset.to_table(columns=["_rowid"])["_rowid"].to_pylist()


def test_data_in_the_order_of_the_table(dataset):
    batches = pa.table({"w": [i * 10 for i in LEFT]}).to_batches(max_chunksize=33)
    dataset.add_columns(iter(batches), reader_schema=batches[0].schema)
    assert column(dataset, "w") == [i * 10 for i in LEFT]
    dataset.add_columns(pd.DataFrame({"p": LEFT}))
    assert column(dataset, "p") == LEFT


@pytest.mark.parametrize("change", [-1, 1])
def test_data_with_another_number_of_rows(dataset, change):
    before = data_files(dataset)
    with pytest.raises(InvalidInputError, match="fewer rows" if change < 0 else "more rows"):
        dataset.add_columns(pa.table({"w": range(len(LEFT) + change)}))
    assert data_files(dataset) == before
    assert dataset.latest_version == 2


def test_null_columns_write_nothing(dataset):
    before = data_files(dataset)
    dataset.add_columns(pa.field("later", pa.list_(pa.string())))
    dataset.add_columns([pa.field("a", pa.int8()), pa.field("b", pa.struct([("c", pa.string())]))])
    assert data_files(dataset) == before
    assert column(dataset, "later") == column(dataset, "b") == [None] * len(LEFT)
    lance_core.write_dataset(pa.table({"id": [N + 1], "later": [["x"]]}), dataset.uri, mode="append")
    assert lance_core.dataset(dataset.uri).to_table(filter="later is not null").num_rows == 1


def test_joins(dataset):
    other = pa.table({"key": [5, 1, 999, 999, 10**6, None], "w": ["five", "one", "a", "b", "none", "null"]})
    dataset.merge(other, left_on="id", right_on="key")
    expected = {5: "five", 1: "one", 999: "a"}
    assert column(dataset, "w") == [expected.get(i) for i in LEFT]
    dataset.merge(pa.table({"name": ["n1", "n2"], "z": [1, 2]}), left_on="name")
    assert [one for one in column(dataset, "z") if one] == [1, 2]
    with pytest.raises(InvalidInputError, match="keys of the table are int64"):
        dataset.merge(pa.table({"id": ["x"], "q": [1]}), left_on="id")
    with pytest.raises(InvalidInputError, match="cannot join on 'nope'"):
        dataset.merge(pa.table({"id": [1], "q": [1]}), left_on="id", right_on="nope")


def test_casts_write_one_column(dataset):
    dataset.alter_columns(
        {"path": "id", "data_type": pa.int32()},
        {"path": "v", "data_type": pa.list_(pa.float16(), 2), "name": "vector"},
        {"path": "st.x", "data_type": pa.float64(), "name": "xx"},
    )
    assert dataset.schema.field("id").type == pa.int32()
    assert dataset.schema.field("id").nullable
    assert column(dataset, "st") == [{"xx": float(i), "y": str(i)} if i % 5 else None for i in LEFT]
    assert column(dataset, "vector") == [[i, i / 2] for i in LEFT]
    assert dataset.schema.names == ["id", "name", "st", "vector"]
    assert [len(one.data_files()) for one in dataset.get_fragments()] == [2] * 4
    with pytest.raises(InvalidInputError, match="cannot become int8"):
        dataset.alter_columns({"path": "id", "data_type": pa.int8()})
    assert dataset.latest_version == 3


def test_names_and_nullability_are_metadata(dataset):
    before = data_files(dataset)
    dataset.alter_columns({"path": "name", "name": "title"}, {"path": "id", "nullable": False})
    assert data_files(dataset) == before
    assert dataset.schema.names == ["id", "title", "st", "v"]
    assert not dataset.schema.field("id").nullable
    dataset.alter_columns({"path": "id", "nullable": True})
    for path in ("title", "st"):
        with pytest.raises(InvalidInputError, match="contains nulls"):
            dataset.alter_columns({"path": path, "nullable": False})
    dataset.alter_columns({"path": "st.y", "nullable": False})  # null only where the struct is
    assert not dataset.schema.field("st").type.field("y").nullable
    assert column(dataset, "title") == [f"n{i}" if i % 3 else None for i in LEFT]


def test_dropping_and_adding_again(dataset):
    dataset.drop_columns(["name", "st.x"])
    assert dataset.schema.field("st").type == pa.struct([("y", pa.string())])
    dataset.add_columns({"name": "st.y"})
    assert column(dataset, "name") == [str(i) if i % 5 else None for i in LEFT]
    assert dataset.checkout_version(2).to_table(columns=["name"])["name"].to_pylist()[0] == "n1"
    dataset.optimize.compact_files(target_rows_per_fragment=10_000)
    assert sorted(lance_core.dataset(dataset.uri).to_table()["id"].to_pylist()) == LEFT


def test_metadata(dataset):
    dataset.replace_schema_metadata({"a": "1"})
    dataset.replace_field_metadata("st.x", {"unit": "m", "old": "1"})
    dataset.update_field_metadata({"st.x": {"old": None}, "id": {"k": "v"}})
    assert dataset.schema.metadata == {b"a": b"1"}
    assert dataset.schema.field("st").type.field("x").metadata == {b"unit": b"m"}
    assert dataset.schema.field("id").metadata == {b"k": b"v"}
    with pytest.raises(InvalidInputError, match="no column"):
        dataset.update_field_metadata({"nope": {}})


@pytest.mark.parametrize(
    ("transforms", "error", "words"),
    [
        ({"id": "1"}, InvalidInputError, "exists already"),
        ({"q": "nope"}, InvalidInputError, "no column 'nope'"),
        ({"q": "now()"}, UnsupportedError, "function now"),
        ({"q": 3}, InvalidInputError, "SQL text"),
        ({"q": "1 / (id - id)"}, InvalidInputError, "divide by zero"),
        ({}, InvalidInputError, "no columns"),
        (7, InvalidInputError, "cannot write data of type int"),
        (lambda batch: batch.slice(1).select(["id"]).rename_columns(["q"]), InvalidInputError, "one row for each"),
        (lambda _: {"not": "a batch"}, InvalidInputError, "each column of a dict"),
    ],
)
def test_errors_leave_nothing_behind(dataset, transforms, error, words):
    before = data_files(dataset)
    with pytest.raises(error, match=words):
        dataset.add_columns(transforms)
    assert data_files(dataset) == before
    assert dataset.latest_version == dataset.version == 2


def test_an_append_in_between_is_a_conflict(dataset, monkeypatch):
    before = data_files(dataset)
    real = evolving.commit_operation

    def racing(*args, **kwargs):
        monkeypatch.setattr(evolving, "commit_operation", real)
        lance_core.write_dataset(ROWS.slice(0, 3), dataset.uri, mode="append")
        return real(*args, **kwargs)

    monkeypatch.setattr(evolving, "commit_operation", racing)
    with pytest.raises(CommitConflictError) as caught:
        dataset.add_columns({"q": "id"})
    assert caught.value.is_retryable
    assert len(data_files(dataset)) == len(before) + 1
    dataset.checkout_latest()
    dataset.add_columns({"q": "id"})
    assert dataset.to_table(columns=["q"])["q"].null_count == 0


def test_a_checkpoint_saves_work(dataset, tmp_path):
    calls, fail_at = [], [5]

    def compute(batch):
        calls.append(batch["id"][0].as_py())
        if len(calls) == fail_at[0]:
            raise RuntimeError("interrupted")
        return pa.record_batch({"q": batch["id"]})

    checkpoint = tmp_path / "checkpoint"
    udf = lance_core.batch_udf(pa.schema([("q", pa.int64())]), checkpoint)(compute)
    with pytest.raises(RuntimeError, match="interrupted"):
        dataset.add_columns(udf, batch_size=100)
    assert checkpoint.exists()
    assert dataset.latest_version == 2
    with pytest.raises(InvalidInputError, match="another computation"):
        dataset.add_columns(udf, batch_size=50)
    done, fail_at[0] = calls[:4], 0
    calls.clear()
    dataset.add_columns(udf, batch_size=100)
    assert set(done).isdisjoint(calls)
    assert column(dataset, "q") == LEFT
    assert not checkpoint.exists()
    (tmp_path / "other").write_text("no database, but long enough for one " * 10)
    with pytest.raises(InvalidInputError, match="not a checkpoint file"):
        dataset.add_columns(lance_core.batch_udf(pa.schema([("r", pa.int64())]), tmp_path / "other")(compute))


def test_tables_without_rows(tmp_path):
    empty = lance_core.write_dataset(ROWS.slice(0, 0), tmp_path / "empty")
    empty.add_columns({"q": "id + 1"})
    empty.add_columns(lambda batch: batch.select(["id"]).rename_columns(["r"]))
    empty.alter_columns({"path": "q", "data_type": pa.int32()})
    assert lance_core.dataset(empty.uri).schema.names == ["id", "name", "st", "v", "q", "r"]


def test_stable_row_ids_stay(tmp_path):
    table = lance_core.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=300, enable_stable_row_ids=True)
    table.delete("id < 10")
    table.add_columns({"q": "id"})
    found = lance_core.dataset(table.uri).to_table(columns=["q"], with_row_id=True)
    assert found["q"].to_pylist() == found["_rowid"].to_pylist() == list(range(10, N))


def test_fragments_write_columns_for_one_commit(dataset):
    made = [one.merge_columns({"q": "id * 3"}) for one in dataset.get_fragments()]
    operation = lance_core.LanceOperation.Merge([one for one, _ in made], made[0][1])
    dataset = lance_core.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)
    assert column(dataset, "q") == [3 * i for i in LEFT]
    first = dataset.get_fragments()[0]
    news = pa.table({"id": [1, 2, 7, 900], "q": [-1, None, -7, -900]})
    changed, modified, offsets = first.update_columns(news, left_on="id", with_offsets=True)
    operation = lance_core.LanceOperation.Update(
        updated_fragments=[changed], fields_modified=modified, update_mode="rewrite_columns"
    )
    dataset = lance_core.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)
    assert column(dataset, "q") == [{1: -1, 2: None}.get(i, 3 * i) for i in LEFT]
    assert offsets.startswith(b":0")
    assert first.take([2, 0, 0], columns=["id"])["id"].to_pylist() == [3, 1, 1]
    with pytest.raises(InvalidInputError, match="cannot update columns"):
        first.update_columns(pa.table({"id": [1], "nope": [1]}), left_on="id")


def test_data_files_are_replaced(dataset):
    dataset.add_columns({"q": "id"})
    first = dataset.get_fragments()[0]
    changed, _ = first.update_columns(pa.table({"id": [1], "q": [100]}), left_on="id")
    group = lance_core.LanceOperation.DataReplacementGroup(0, changed.files[-1])
    operation = lance_core.LanceOperation.DataReplacement([group])
    dataset = lance_core.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)
    assert column(dataset, "q") == [100 if i == 1 else i for i in LEFT]
    assert dataset.read_transaction(dataset.version).operation == operation
