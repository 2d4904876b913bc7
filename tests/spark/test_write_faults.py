"""Where a write is cut off: rows are in the table once or not at all, and a second run with its key mends it."""

import uuid
from pathlib import Path

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CommitOutcomeUnknownError, CorruptDataError, DatasetNotFoundError
from lance_core.format.table.operations import Append
from lance_core.spark import write_lance
from lance_core.spark.common.options import WriteOptions
from lance_core.spark.common.task_names import TaskNames
from lance_core.spark.functions import staging
from lance_core.spark.functions import write as write_module
from lance_core.spark.writing import rows_job, staged_transactions
from lance_core.spark.writing.rows_job import RowsJob
from lance_core.spark.writing.sink import JobTarget, LanceCommitMessage, LanceWriter
from lance_core.spark.writing.write_plan import plan_write

pytestmark = pytest.mark.spark


@pytest.fixture
def numbers(spark):
    return spark.range(0, 100, numPartitions=2)


@pytest.fixture
def job(numbers, uri):
    """A job as the tasks get it."""
    plan = plan_write(WriteOptions(path=uri), numbers.schema, overwrite=False)
    job_target = JobTarget(branch_address=plan.branch_address, job=uuid.uuid4())
    return RowsJob(job_target=job_target, plan=plan, publishes=True)


def batches():
    yield pa.record_batch({"id": [1, 2, 3]})


def staged(job, task, attempt):
    part = job.stage(batches(), TaskNames(job=job.job_target.job, task=task, attempt=attempt))
    return LanceCommitMessage(part=part, partition=task, attempt=attempt)


class Killed(BaseException):
    """What no handler of errors sees."""


def test_killed_between_the_tasks_and_the_commit(numbers, uri, monkeypatch):
    def killed(*_args):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(write_module, "publish", killed)
        with pytest.raises(Killed):
            write_lance(numbers, uri, idempotency_key="k")
    with pytest.raises(lance_core.LanceError):
        lance_core.dataset(uri)
    assert write_lance(numbers, uri, idempotency_key="k").written
    assert lance_core.dataset(uri).count_rows() == 100


def test_killed_between_the_commit_and_the_answer(numbers, uri, data_files, monkeypatch):
    publish = write_module.publish

    def killed(*args):
        publish(*args)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(write_module, "publish", killed)
        with pytest.raises(Killed):
            write_lance(numbers, uri, idempotency_key="k")
    again = write_lance(numbers, uri, idempotency_key="k")
    assert (again.version, again.written, lance_core.dataset(uri).count_rows(), len(data_files())) == (1, False, 100, 2)


def test_what_was_staged_but_cannot_be_found_is_told(numbers, uri, monkeypatch):
    def lost(store, job):
        staged_transactions.load_staged_transaction(store, job)
        return staged_transactions.load_staged_transaction(store, job)

    monkeypatch.setattr(staging, "load_staged_transaction", lost)
    with pytest.raises(CommitOutcomeUnknownError, match="cannot be found"):
        write_lance(numbers, uri)


def test_a_speculative_copy_of_a_task_changes_nothing(job, uri, data_files):
    copies = [staged(job, 0, attempt) for attempt in (0, 1)]
    other = staged(job, 1, 0)
    assert len(data_files()) == 3
    LanceWriter(job).commit([copies[1], other])
    assert len(data_files()) == 2
    assert lance_core.dataset(uri).count_rows() == 6


def test_a_job_that_is_given_up_leaves_nothing(job, data_files):
    """Task 0 answered, attempts of task 1 wrote files and never did."""
    message = staged(job, 0, 0)
    staged(job, 1, 0)
    staged(job, 1, 2)
    LanceWriter(job).abort([message, None])
    assert data_files() == []


def test_a_staged_transaction_that_fails_removes_what_was_staged(job, data_files, monkeypatch):
    quiet = RowsJob(job_target=job.job_target, plan=job.plan, publishes=False)
    message = staged(quiet, 0, 0)

    def full(*_args):
        raise OSError("disk full")

    monkeypatch.setattr(rows_job, "stage_transaction", full)
    with pytest.raises(OSError, match="disk full"):
        LanceWriter(quiet).commit([message])
    assert data_files() == []


def test_nothing_is_left_of_a_staged_transaction(numbers, uri):
    write_lance(numbers, uri)
    assert len(list(Path(uri, "_transactions").iterdir())) == 1


def test_each_damage_of_a_staged_transaction_is_noticed(job):
    """Also where it is cut short: fewer rows would be committed than were staged."""
    store, path = job.job_target.open(), Path(job.plan.uri, "_transactions")
    fragments = staged(job, 0, 0).part.fragments
    staged_transactions.stage_transaction(
        store, job.job_target.job, Append(fragments=fragments), {"partitions.0": pa.table({"x": [1]})}
    )
    (file,) = path.iterdir()
    whole = file.read_bytes()
    flips = [whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :] for at in range(len(whole))]
    for damaged in [*flips, *(whole[:size] for size in range(len(whole)))]:
        file.write_bytes(damaged)
        with pytest.raises(CorruptDataError) as caught:
            staged_transactions.load_staged_transaction(store, job.job_target.job)
        assert caught.value.path == str(file)
    file.write_bytes(whole)
    restored = staged_transactions.load_staged_transaction(store, job.job_target.job)
    assert restored.operation == Append(fragments=fragments)
    assert not file.exists()


def test_a_damaged_staged_transaction_commits_nothing(numbers, uri, monkeypatch):
    def damaged(store, job):
        (file,) = Path(uri, "_transactions").iterdir()
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 4
        file.write_bytes(data)
        return staged_transactions.load_staged_transaction(store, job)

    monkeypatch.setattr(staging, "load_staged_transaction", damaged)
    with pytest.raises(CorruptDataError, match="damaged"):
        write_lance(numbers, uri)
    with pytest.raises(DatasetNotFoundError):
        lance_core.dataset(uri)
