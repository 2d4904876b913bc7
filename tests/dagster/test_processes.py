"""Backfills in processes of their own at the same time; processes that end at any point of a step."""

import os
import subprocess
import sys
from collections import Counter
from datetime import date, timedelta
from multiprocessing import forkserver
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableJob

import lance_core
from lance_dagster.versions.tags import run_tag

CODE = Path(__file__).with_name("backfill_process.py")
IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"


def day(number):
    return (date(2026, 11, 1) + timedelta(number)).isoformat()


def run_together(root, windows):
    """One process for each list of windows; all begin to write at the same time."""
    Path(root).mkdir()
    env = {**os.environ, "TABLES": root, "TOGETHER": str(len(windows))}
    running = [
        subprocess.Popen([sys.executable, str(CODE), *mine], env=env, stderr=subprocess.PIPE) for mine in windows
    ]
    errors = [one.communicate(timeout=280)[1][-2000:] for one in running]
    assert [one.returncode for one in running] == [0] * len(windows), errors


@pytest.mark.timeout(900)
def test_backfills_of_one_table_at_once(root, tables):
    """Day by day in several processes, each day twice by different ones: 50 days and 8 processes if tests go deep."""
    days, processes = (50, 8) if IS_DEEP else (5, 3)
    own = [[f"{day(n)}..{day(n)}" for n in range(start, days, processes)] for start in range(processes)]
    run_together(root, [mine + own[number - 1] for number, mine in enumerate(own)])
    rows = tables.dataset("daily").to_table().to_pylist()
    assert Counter(row["day"] for row in rows) == {day(number): 100 for number in range(days)}
    assert len({(row["day"], row["by"]) for row in rows}) == days
    assert tables.dataset("daily").version == 2 * days


def test_backfills_of_ranges_at_once(root, tables):
    run_together(root, [[f"{day(0)}..{day(2)}"], [f"{day(3)}..{day(4)}"]])
    rows = tables.dataset("daily").to_table().to_pylist()
    assert Counter(row["day"] for row in rows) == {day(number): 100 for number in range(5)}
    assert len({(row["by"], row["day"] > day(2)) for row in rows}) == 2


@pytest.fixture
def new_forkserver():
    """Steps are forks of a server that keeps the environment in which it started."""
    server = forkserver._forkserver
    server._stop()
    yield
    server._stop()


@pytest.mark.usefixtures("new_forkserver")
def test_steps_that_are_killed_or_fail(tmp_path, monkeypatch):
    """Whenever it happened, the job run again from its failures leaves one commit, and a tag of the run for it."""
    monkeypatch.setenv("TABLES", str(tmp_path))
    monkeypatch.setenv("LIVES", str(os.getpid()))
    job = ReconstructableJob.for_file(str(CODE), "dying_job")
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        first = dg.execute_job(job, instance, raise_on_error=False)
        assert not first.success
        kept = {event.asset_key.to_user_string() for event in first.all_events if event.is_step_materialization}
        assert kept == {"append_retried"}
        killed = {path.name.removeprefix("killed-") for path in tmp_path.glob("killed-*")}
        assert killed == {"append_before", "append_staged", "append_committed", "append_tagged", "merge_committed"}
        again = dg.ReexecutionOptions.from_failure(first.run_id, instance)
        with dg.execute_job(job, instance, reexecution_options=again) as second:
            assert second.success
            events = {
                event.asset_key.to_user_string(): event.materialization
                for event in (*first.all_events, *second.all_events)
                if event.is_step_materialization
            }
    replayed = {name for name, event in events.items() if "lance/idempotent_replay" in event.metadata}
    assert replayed == {"append_committed", "append_tagged", "append_retried", "merge_committed"}
    for name, event in events.items():
        dataset = lance_core.dataset(tmp_path / f"{name}.lance")
        assert (dataset.version, dataset.count_rows()) == (1, 2), name
        assert event.tags["dagster/data_version"] == "1", name
        run = first if name in kept else second
        assert dataset.tags.get_version(run_tag(run.run_id)) == 1, name
        assert not lance_core.verify(dataset.uri, level="full").problems, name
