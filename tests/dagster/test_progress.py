"""The run log while a step runs: what is written where, how fast, and what got in its way."""

import logging
import threading
import time
import types
from datetime import timedelta

import dagster as dg
import pyarrow as pa
import pytest

import lance_core
from lance_core.telemetry import Span
from lance_dagster import build_maintenance_assets, progress
from lance_dagster.units import age_text, bytes_text, count_text, seconds_text

SCHEMA = pa.schema({"id": pa.int64()})


def lines_of(instance, result):
    return [entry.user_message for entry in instance.all_logs(result.run_id)]


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL_S", 0.05)


def slow_batches():
    for number in range(4):
        yield pa.record_batch({"id": [number] * 1000})
        time.sleep(0.1)


@pytest.mark.usefixtures("often")
def test_a_long_write_tells_rows_bytes_and_rate(run, instance):
    @dg.asset
    def slow() -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(SCHEMA, slow_batches())

    lines = lines_of(instance, run(slow))
    told = [line for line in lines if line.startswith("Storing slow, ")]
    assert any("2,000 rows and 16 kB written" in line and "rows/s" in line for line in told)
    assert any(line.startswith("Committed version 1 of") for line in lines)


def test_a_load_says_which_version_of_what(run, instance):
    @dg.asset
    def first() -> pa.Table:
        return pa.table({"id": [1]})

    @dg.asset
    def second(first: pa.Table) -> pa.Table:
        return first

    lines = lines_of(instance, run(first, second))
    assert any(line.startswith("Loading first from version 1 of ") for line in lines)


def test_maintenance_says_what_it_did(run, instance, tables):
    for number in range(3):
        tables.write("busy", pa.table({"id": [number]}))
    compaction, *_ = build_maintenance_assets("busy")
    lines = lines_of(instance, run(compaction))
    (told,) = [line for line in lines if "is at version 4" in line]
    assert "3 fragments" in told
    assert "became 1" in told


@pytest.mark.usefixtures("often")
def test_steps_that_run_at_once_share_a_thread(caplog):
    log = logging.getLogger("run")
    with (
        caplog.at_level(logging.INFO),
        progress.watched(log, "a", "Storing a"),
        progress.watched(log, "b", "Storing b"),
    ):
        time.sleep(0.2)
        tellers = [thread for thread in threading.enumerate() if thread.name == "lance_dagster_progress"]
    assert len(tellers) == 1
    assert {message.partition(",")[0] for message in caplog.messages} == {"Storing a", "Storing b"}


def test_lost_commits_and_retries_are_told(tmp_path, caplog):
    path = str(tmp_path / "t.lance")
    lance_core.write_dataset(pa.table({"id": [1]}), path)
    with caplog.at_level(logging.INFO), progress.watched(logging.getLogger("run"), path, "Storing t"):
        with Span("commit", path) as span:
            span.attributes |= {"attempts": 3, "version": 7}
        with pytest.raises(ValueError, match="taken"), Span("commit", path):
            raise ValueError("taken")
        with Span("commit", f"{path}2") as span:
            span.attributes |= {"attempts": 9, "version": 7}
    assert caplog.messages == [
        f"Version 7 of {path} took 3 attempts beside other writers.",
        f"A commit to {path} did not happen: taken",
    ]


def test_tasks_of_compactions_and_of_spark_are_told(caplog):
    stage = types.SimpleNamespace(stageId=4, numTasks=200, numCompletedTasks=12)
    tracker = types.SimpleNamespace(getActiveStageIds=lambda: [4], getStageInfo=lambda _: stage)
    session = types.SimpleNamespace(_sc=types.SimpleNamespace(statusTracker=lambda: tracker))
    watch = progress.Watch(logging.getLogger("run"), "t", "t/compaction")
    watch.takes(session)
    with caplog.at_level(logging.INFO), Span("compact", "t", total_tasks=8) as span:
        watch.begin(span)
        span.add(rows=5, num_bytes=2_000_000, tasks=3)
        watch.tell(10)
    assert caplog.messages[0].startswith("t/compaction, 10 s so far: 3 of 8 tasks, 5 rows and 2 MB rewritten")
    assert "Spark stage 4: 12 of 200 tasks done" in caplog.text


@pytest.mark.usefixtures("often")
def test_tasks_of_a_connect_server_are_told(caplog):
    handlers = []
    session = types.SimpleNamespace(registerProgressHandler=handlers.append, removeProgressHandler=handlers.remove)
    stage = types.SimpleNamespace(num_tasks=10, num_completed_tasks=4)
    with caplog.at_level(logging.INFO), progress.watched(logging.getLogger("run"), "t", "Storing t", session=session):
        time.sleep(0.06)
        handlers[0]([stage], 1, "id", done=False)
    assert "Storing t: 4 of 10 tasks of Spark done." in caplog.messages
    assert not handlers


def test_units():
    assert [bytes_text(size) for size in (0, 1, 999, 1234, 2_000_000, 123_400_000, 5e12)] == [
        "0 bytes",
        "1 byte",
        "999 bytes",
        "1.23 kB",
        "2 MB",
        "123 MB",
        "5 TB",
    ]
    assert [seconds_text(seconds) for seconds in (0.1234, 59, 200, 7500)] == [
        "0.123 s",
        "59 s",
        "3 min 20 s",
        "2 h 5 min",
    ]
    ages = (timedelta(days=7), timedelta(hours=25), timedelta(hours=1), timedelta(seconds=90))
    assert [age_text(age) for age in ages] == ["7 days", "25 hours", "1 hour", "1 min 30 s"]
    assert [count_text(number, "row") for number in (1, 12000)] == ["1 row", "12,000 rows"]
