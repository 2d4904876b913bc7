"""Code for processes of their own: jobs that tests run, break off and run again. Settings come by the environment."""

import os
import signal
import sys
import time
from pathlib import Path

import dagster as dg
import pyarrow as pa

from lance_core.table import commit
from lance_dagster import LanceIOManager, io_manager, report

ROOT = os.environ.get("TABLES", "")
TOGETHER = int(os.environ.get("TOGETHER", "2"))
PRELOADED = ["lance_dagster", "dagster._core.storage.sqlite_storage", "dagster._core.storage.base_storage"]
"""Modules that each step would import otherwise, which takes longer than the step."""
DAYS = dg.DailyPartitionsDefinition("2026-11-01", end_date="2027-01-01")


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"}, backfill_policy=dg.BackfillPolicy.single_run())
def daily(context: dg.AssetExecutionContext) -> pa.Table:
    # All processes have their rows before any of them writes.
    Path(ROOT, f"ready-{os.getpid()}").touch()
    while len(list(Path(ROOT).glob("ready-*"))) < TOGETHER:
        time.sleep(0.01)
    keys = [key for key in context.partition_keys for _ in range(100)]
    return pa.table({"day": keys, "by": [os.getpid()] * len(keys)})


def backfill(first: str, last: str) -> bool:
    """Materialize a range of days in one run."""
    done = dg.materialize(
        [daily],
        resources={"io_manager": LanceIOManager(root=ROOT)},
        tags={"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last},
        instance=dg.DagsterInstance.ephemeral(),
    )
    return done.success


def once(name: str) -> bool:
    """Whether this has not happened before."""
    marker = Path(ROOT, name)
    is_first = not marker.exists()
    marker.touch()
    return is_first


HOOKS = ("before", "staged", "committed", "tagged")
"""Where a step is killed: before it writes, when its files are there, after its commit, and after its tag."""


def kill_once(hook: str) -> None:
    """Kill this process where a hook says, if it stores the asset that is for this hook, and has not been killed."""

    def wrap(original, *, named):
        def hooked(*args, **kwargs):
            stem = Path(named(*args)).stem
            if stem.endswith(hook) and once(f"killed-{stem}"):
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        return hooked

    match hook:
        case "before":
            io_manager.store = wrap(io_manager.store, named=lambda *args: args[2].uri)
        case "staged":
            commit._Committer._publish = wrap(commit._Committer._publish, named=lambda self, *_: self.store.uri)
        case "committed":
            report.tag_version = wrap(report.tag_version, named=lambda dataset, _: dataset.uri)
        case "tagged":
            report.storage_metadata = wrap(report.storage_metadata, named=lambda _, uri: uri)


def make_asset(name: str, *, mode: str = "append", **options):
    @dg.asset(name=name, metadata={"mode": mode, "merge_keys": ["id"]}, **options)
    def asset():
        return pa.table({"id": [1, 2], "n": [10, 20]})

    return asset


def dying_job():
    """A job of several assets, each in a process of its own; these die once, the process named LIVES stays as it is."""
    if os.environ.get("LIVES", str(os.getpid())) != str(os.getpid()):
        for hook in HOOKS:
            kill_once(hook)
        raise_twice()
    assets = [
        *(make_asset(f"append_{hook}") for hook in HOOKS),
        make_asset("merge_committed", mode="merge"),
        make_asset("append_retried", retry_policy=dg.RetryPolicy(max_retries=2)),
    ]
    return dg.Definitions(
        assets=assets,
        jobs=[dg.define_asset_job("job", selection=assets)],
        resources={"io_manager": LanceIOManager(root=ROOT)},
        executor=dg.multiprocess_executor.configured(
            {"max_concurrent": 3, "start_method": {"forkserver": {"preload_modules": PRELOADED}}}
        ),
    ).resolve_job_def("job")


def raise_twice() -> None:
    """The step of `append_retried` fails twice after its commit, each time in another process."""
    original = report.storage_metadata

    def failing(asset_key, uri):
        if "append_retried" in uri and (once("failed-1") or once("failed-2")):
            raise RuntimeError
        return original(asset_key, uri)

    report.storage_metadata = failing


if __name__ == "__main__":
    windows = [window.split("..") for window in sys.argv[1:]]
    sys.exit(0 if all(backfill(*window) for window in windows) else 1)
