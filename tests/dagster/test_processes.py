"""Backfills in processes of their own at the same time; processes that end between their commit and its event."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import dagster as dg
from dagster._core.definitions.reconstruct import ReconstructableJob

import lance_core

CODE = Path(__file__).with_name("backfill_process.py")


def test_two_backfills_of_one_table_at_once(root, tables):
    Path(root).mkdir()
    env = {**os.environ, "TABLES": root}
    ranges = [("2026-11-01", "2026-11-03"), ("2026-11-04", "2026-11-05")]
    running = [subprocess.Popen([sys.executable, str(CODE), *keys], env=env, stderr=subprocess.PIPE) for keys in ranges]
    errors = [one.communicate(timeout=280)[1] for one in running]
    assert [one.returncode for one in running] == [0, 0], errors[0][-2000:] + errors[1][-2000:]
    rows = tables.dataset("daily").to_table().to_pylist()
    assert Counter(row["day"] for row in rows) == {f"2026-11-0{day}": 1000 for day in range(1, 6)}
    assert len({(row["by"], row["day"] > "2026-11-03") for row in rows}) == 2


def test_processes_that_end_after_their_commit(tmp_path, monkeypatch):
    """Both steps are killed before Dagster hears of what they did; run again, they find it."""
    monkeypatch.setenv("TABLES", str(tmp_path))
    monkeypatch.setenv("LIVES", str(os.getpid()))
    job = ReconstructableJob.for_file(str(CODE), "dying_job")
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        first = dg.execute_job(job, instance, raise_on_error=False)
        assert not first.success
        assert {path.name for path in tmp_path.glob("died-*")} == {"died-append", "died-merge"}
        again = dg.ReexecutionOptions.from_failure(first.run_id, instance)
        with dg.execute_job(job, instance, reexecution_options=again) as second:
            events = [one for one in second.all_events if one.is_step_materialization]
    assert len(events) == 2
    assert all(one.materialization.metadata["lance/idempotent_replay"].value is True for one in events)
    assert {one.materialization.tags["dagster/data_version"] for one in events} == {"1"}
    for mode in ("append", "merge"):
        dataset = lance_core.dataset(tmp_path / f"{mode}.lance")
        assert (dataset.version, dataset.count_rows()) == (1, 2)
