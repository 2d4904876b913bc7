"""What Spark's tasks and the one commit ask of the store: counted, so that it cannot grow unseen."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

import lance_core
from lance_core.spark import (
    add_columns_lance,
    compact_lance,
    delete_lance,
    merge_lance,
    register,
    update_lance,
    write_lance,
)
from lance_core.spark.functions import distribute, staging
from lance_core.spark.functions import write as write_module
from lance_core.spark.reading.reader import LanceReader
from lance_core.spark.writing.sink import LanceWriter

pytestmark = pytest.mark.spark

NUM_TASKS = 4


@pytest.fixture
def numbers(spark):
    return spark.range(0, 100, numPartitions=NUM_TASKS)


@pytest.fixture
def recorded(tmp_path):
    """Makes a method write down, for each of its calls, what it asks of the store; also in other processes.

    Classes made here are sent to Spark's processes by value.
    """
    folder = tmp_path / "calls"
    folder.mkdir()

    def recorded(what, method):
        def recording(*arguments):
            import uuid  # noqa: PLC0415 it runs in other processes

            from lance_core.store.local import LocalStore  # noqa: PLC0415 likewise

            calls = []

            def noting(name, inner):
                def noted(store, *given, **named):
                    call = [name.removeprefix("sized_"), given[0] if isinstance(given[0], str) else list(given[0])]
                    if [call] != calls[-1:]:  # a large file is opened by the other of the two methods
                        calls.append(call)
                    return inner(store, *given, **named)

                return noted

            kept = {name: one for name, one in vars(LocalStore).items() if name[0] != "_" and callable(one)}
            for name, one in kept.items():
                setattr(LocalStore, name, noting(name, one))
            try:
                return method(*arguments)
            finally:
                for name, one in kept.items():
                    setattr(LocalStore, name, one)
                (folder / f"{what} {uuid.uuid4()}").write_text(json.dumps(calls))

        return recording

    recorded.calls = lambda what: [json.loads(file.read_text()) for file in folder.glob(f"{what} *")]
    return recorded


@pytest.fixture
def recording(spark, recorded, swapped, monkeypatch):
    """Tasks and commit steps write down their calls: those of the format whose name this is, and of `write_lance`."""
    writer = {"write": recorded("task", LanceWriter.write), "commit": recorded("commit", LanceWriter.commit)}
    reader = {"read": recorded("read", lambda *arguments: iter(list(LanceReader.read(*arguments))))}
    register(spark)
    spark.dataSource.register(swapped(name="lance_recording", writer=writer, reader=reader))
    monkeypatch.setattr(staging, "StagingSource", swapped(staging.StagingSource, writer=writer))
    monkeypatch.setattr(write_module, "publish", recorded("publish", write_module.publish))
    return "lance_recording"


@pytest.fixture(params=[None, "trial"])
def table(request, uri):
    """A table of two fragments, or a branch of it."""
    table = lance_core.write_dataset(pa.table({"id": range(10)}), uri, max_rows_per_file=5)
    return table if request.param is None else table.create_branch(request.param)


def data_files(table):
    return {file.path for one in table.get_fragments() for file in one.data_files()}


def check(recorded, table, commit):
    """Each task begins one file and asks for nothing else; one manifest is written, by one commit."""
    now = lance_core.dataset(table.uri)
    assert now.version == table.version + 1
    tasks = recorded.calls("task")
    assert [len(calls) for calls in tasks] == [1] * NUM_TASKS
    new_files = data_files(now) - data_files(table)
    assert {name for ((name, _),) in tasks} == {"writer"}
    assert {Path(path).name for ((_, path),) in tasks} == new_files
    (calls,) = recorded.calls(commit)
    assert len([path for name, path in calls if name.startswith("put") and path.endswith(".manifest")]) == 1


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_tasks_of_the_format_write_their_files_and_nothing_else(numbers, table, recording, recorded, mode):
    numbers.write.format(recording).mode(mode).save(table.uri)
    check(recorded, table, "commit")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.usefixtures("recording")
def test_tasks_of_write_lance_write_their_files_and_nothing_else(numbers, table, recorded, mode):
    write_lance(numbers, table.uri, mode=mode)
    check(recorded, table, "publish")
    (committed,) = recorded.calls("commit")
    assert [(name, path.split("/")[-2]) for name, path in committed] == [("put", "_transactions")]


def test_tasks_that_read_open_their_files_and_nothing_else(spark, table, recording, recorded):
    found = spark.read.format(recording).option("min_partitions", 2).load(table.uri)
    assert found.count() == 10
    calls = [call for task in recorded.calls("read") for call in task]
    assert {name for name, _ in calls} == {"reader"}
    assert {Path(path).name for _, path in calls} == data_files(table)


CHANGES = {
    "delete": (
        lambda spark, uri: delete_lance(spark, uri, "id in (2, 7)"),
        {("reader", "data"), ("put", "_deletions")},
    ),
    "update": (
        lambda spark, uri: update_lance(spark, uri, {"id": "-id"}, "id in (2, 7)"),
        {("reader", "data"), ("writer", "data"), ("put", "_deletions")},
    ),
    "compact": (compact_lance, {("reader", "data"), ("writer", "data")}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_tasks_that_change_a_table_get_their_fragments_and_read_no_manifest(
    spark, table, recorded, monkeypatch, change
):
    run_tasks = distribute.run_tasks
    monkeypatch.setattr(
        distribute, "run_tasks", lambda spark, run, tasks: run_tasks(spark, recorded("change", run), tasks)
    )
    work, expected = CHANGES[change]
    before = data_files(table)
    work(spark, table.uri)
    assert lance_core.dataset(table.uri).version == table.version + 1
    calls = [(name, what) for task in recorded.calls("change") for name, what in task if what]  # [] is nothing to do
    assert {(name, Path(path).parent.name) for name, path in calls} == expected
    assert sorted(Path(path).name for name, path in calls if name == "reader") == sorted(before)


@pytest.fixture
def blobs(uri):
    """Two fragments with a blob in each row."""
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    rows = pa.table([range(10), [b"x"] * 10], pa.schema([pa.field("id", pa.int64()), blob]))
    return lance_core.write_dataset(rows, uri, max_rows_per_file=5)


JOINS = {
    "merge": (
        lambda rows, uri: (
            merge_lance(rows.selectExpr("id"), uri, "id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        ),
        {("reader", "data"), ("writer", "data")},
    ),
    "add columns": (
        lambda rows, uri: add_columns_lance(rows.sparkSession, uri, rows.selectExpr("id", "-id v"), on="id"),
        {("writer", "data")},
    ),
}


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.usefixtures("recording")
def test_tasks_that_write_joined_rows_read_no_manifest(numbers, blobs, recorded, join):
    work, expected = JOINS[join]
    work(numbers, blobs.uri)
    assert lance_core.dataset(blobs.uri).version == 2
    calls = [(name, what) for task in recorded.calls("task") for name, what in task if what]  # [] is nothing to do
    assert {(name, Path(path).parent.name) for name, path in calls} == expected
