"""What remains on disk when tasks or commits fail: nothing that nobody needs; and what somebody needs is not gone."""

import os
import signal
import threading
import time
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark import TaskContext

import lance_core
from lance_core.errors import CommitOutcomeUnknownError
from lance_core.spark import read_lance, write_lance
from lance_core.spark.common import task_names
from lance_core.spark.common.task_names import LAST_TASKS
from lance_core.spark.writing import commit as commit_module
from lance_core.spark.writing.sink import LanceWriter

pytestmark = pytest.mark.spark


@pytest.fixture
def numbers(spark):
    return spark.range(0, 100, numPartitions=2)


@pytest.fixture
def save_with(spark, swapped):
    """Write with a writer some methods of which misbehave."""

    def save(frame, uri, methods, mode="append"):
        spark.dataSource.register(swapped(name="lance_with_faults", writer=methods))
        frame.write.format("lance_with_faults").mode(mode).save(uri)

    return save


def fail_at_the_end(batches):
    yield from batches
    raise OSError("disk full")


def test_a_task_that_fails_for_good_leaves_no_version_and_no_file(numbers, uri, data_files):
    broken = numbers.selectExpr("if(id = 99, raise_error('row 99 is bad'), id) id")
    with pytest.raises(Exception, match="row 99 is bad"):
        write_lance(broken, uri)
    assert data_files() == []
    with pytest.raises(lance_core.LanceError):
        lance_core.dataset(uri)


def test_a_failing_write_into_a_table_leaves_it_as_it_was(numbers, uri, data_files, save_with):
    write_lance(numbers, uri)
    before = data_files()

    def write(self, iterator):
        return LanceWriter.write(self, fail_at_the_end(iterator) if TaskContext.get().partitionId() else iterator)

    with pytest.raises(Exception, match="disk full"):
        save_with(numbers, uri, {"write": write}, mode="overwrite")
    assert data_files() == before
    assert lance_core.dataset(uri).version == 1


def test_a_task_that_outlives_its_job_leaves_no_file(numbers, uri, data_files, save_with, tmp_path):
    read, written = tmp_path / "read", tmp_path / "written"

    def write(self, iterator):
        if TaskContext.get().partitionId():
            while not read.exists():
                time.sleep(0.01)
            raise OSError("disk full")
        batches = list(iterator)
        read.touch()
        time.sleep(0.5)
        message = LanceWriter.write(self, iter(batches))
        written.touch()
        return message

    def abort(self, messages):
        with patch.object(task_names, "LAST_TASKS", as_users_have_it):
            LanceWriter.abort(self, messages)

    as_users_have_it = LAST_TASKS
    with pytest.raises(Exception, match="disk full"):
        save_with(numbers, uri, {"write": write, "abort": abort})
    assert written.exists()
    assert data_files() == []


def test_a_task_that_is_repeated_makes_no_duplicates(numbers, uri, data_files, save_with):
    def write(self, iterator):
        first = TaskContext.get().attemptNumber() == 0
        return LanceWriter.write(self, fail_at_the_end(iterator) if first else iterator)

    save_with(numbers, uri, {"write": write})
    dataset = lance_core.dataset(uri)
    assert sorted(dataset.to_table()["id"].to_pylist()) == list(range(100))
    assert (dataset.version, len(data_files())) == (1, 2)


def test_a_worker_that_is_killed_makes_no_duplicates(numbers, uri, save_with):
    def write(self, iterator):
        message = LanceWriter.write(self, iterator)
        if TaskContext.get().attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return message

    save_with(numbers, uri, {"write": write})
    assert sorted(lance_core.dataset(uri).to_table()["id"].to_pylist()) == list(range(100))


def test_a_commit_that_fails_before_the_manifest_removes_its_files(numbers, uri, data_files, save_with):
    def commit(self, messages):
        def fail(*_args, **_options):
            raise OSError("cannot connect")

        commit_module.commit = fail
        try:
            LanceWriter.commit(self, messages)
        finally:
            commit_module.commit = commit_module_commit

    commit_module_commit = commit_module.commit
    write_lance(numbers, uri)
    before = data_files()
    with pytest.raises(Exception, match="cannot connect"):
        save_with(numbers, uri, {"commit": commit})
    assert data_files() == before
    assert lance_core.dataset(uri).version == 1


@pytest.mark.parametrize("lost", [OSError, CommitOutcomeUnknownError])
def test_a_commit_whose_answer_is_lost_has_succeeded(numbers, uri, data_files, save_with, lost):
    original = commit_module.commit

    def commit(self, messages):
        def succeed_and_fail(*args, **options):
            original(*args, **options)
            raise lost("connection reset")

        commit_module.commit = succeed_and_fail
        try:
            LanceWriter.commit(self, messages)
        finally:
            commit_module.commit = original

    save_with(numbers, uri, {"commit": commit})
    assert lance_core.dataset(uri).count_rows() == 100
    assert len(data_files()) == 2


def test_a_commit_that_is_in_doubt_deletes_nothing(numbers, uri, data_files, save_with):
    original = commit_module.commit

    def commit(self, messages):
        def doubt(*_args, **_options):
            raise CommitOutcomeUnknownError("timeout")

        commit_module.commit = doubt
        try:
            LanceWriter.commit(self, messages)
        finally:
            commit_module.commit = original

    with pytest.raises(Exception, match="timeout"):
        save_with(numbers, uri, {"commit": commit})
    assert len(data_files()) == 2


def test_an_error_after_the_commit_deletes_nothing(numbers, uri, data_files, save_with):
    def commit(self, messages):
        LanceWriter.commit(self, messages)
        raise OSError("the worker died")

    with pytest.raises(Exception, match="the worker died"):
        save_with(numbers, uri, {"commit": commit})
    assert lance_core.dataset(uri).count_rows() == 100
    assert len(data_files()) == 2


def test_a_reader_is_not_disturbed_by_writers(spark, numbers, uri):
    write_lance(numbers, uri)
    frame = read_lance(spark, uri)
    other = threading.Thread(target=write_lance, args=(numbers, uri), kwargs={"mode": "overwrite"})
    other.start()
    counts = [frame.count() for _ in range(3)]
    other.join()
    assert counts == [100] * 3
    assert lance_core.dataset(uri).version == 2


def test_two_writers_may_both_create_a_table(numbers, uri):
    threads = [threading.Thread(target=write_lance, args=(numbers, uri)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    dataset = lance_core.dataset(uri)
    assert (dataset.version, dataset.count_rows()) == (2, 200)


def test_two_runs_with_one_token_make_one_version(numbers, uri, data_files):
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(write_lance(numbers, uri, idempotency_key="t")))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {result.version for result in results} == {1}
    assert lance_core.dataset(uri).count_rows() == 100
    assert len(data_files()) == 2


def test_a_full_disk_is_told_with_the_file(spark, uri, data_files, save_with):
    """Files may not grow beyond some bytes, as on a disk without room; the second fragment of a table does not fit."""
    write_lance(spark.range(10), uri)
    before = data_files()

    def write(self, iterator):
        import resource  # noqa: PLC0415 in the worker

        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        try:
            return LanceWriter.write(self, iterator)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    wide = spark.range(0, 20_000, numPartitions=1).selectExpr("id * 7919 % 10007 id")
    with pytest.raises(Exception, match=r"File too large.*\.lance") as error:
        save_with(wide, uri, {"write": write})
    assert "OSError" in str(error.value)
    assert data_files() == before
    assert lance_core.dataset(uri).version == 1


MISFITS = {
    "n": ("if(id = 77, null, id)", "Column 'n' is not nullable"),
    "u": ("smallint(if(id = 77, 300, 5))", "Column 'u' cannot be converted .* 300 not in range"),
    "z": ("if(id = 77, array(1f), array(1f, 2f))", "Column 'z' cannot be converted"),
    "t": ("timestamp_ntz'2020-01-01' + make_dt_interval(0, 0, 0, if(id = 77, 0.5, 1))", "Column 't' cannot be conv"),
    "d": ("int(id)", None),
}


@pytest.mark.parametrize("wrong", [*MISFITS, "s"])
def test_a_misfit_that_only_a_task_can_find(spark, uri, data_files, wrong):
    """One row of a hundred does not fit, or a type does not; both are told by column, and no row is written."""
    schema = pa.schema(
        [
            pa.field("n", pa.int64(), nullable=False),
            pa.field("u", pa.uint8()),
            pa.field("z", pa.list_(pa.float32(), 2)),
            pa.field("t", pa.timestamp("s")),
            pa.field("d", pa.int32()),
            pa.field("s", pa.string()),
        ]
    )
    lance_core.write_dataset(pa.table([[] for _ in schema], schema), uri)
    good = {"n": "id", "u": "5Y", "z": "array(1f, 2f)", "t": "timestamp_ntz'2020-01-01'", "d": "1", "s": "'a'"}
    columns, message = dict(good), "column 's' is int, the table has string"
    if wrong == "s":
        columns["s"] = "1"
    else:
        columns[wrong], message = MISFITS[wrong]
    frame = spark.range(0, 100, numPartitions=2).selectExpr(*(f"{text} {name}" for name, text in columns.items()))
    if message is None:
        write_lance(frame, uri)
        assert lance_core.dataset(uri).count_rows() == 100
        return
    with pytest.raises(Exception, match=message):
        write_lance(frame, uri)
    assert data_files() == []
    assert lance_core.dataset(uri).version == 1
