"""Code for processes of their own: jobs that tests run, break off and run again. Settings come by the environment."""

import os
import sys
import time
from pathlib import Path

import dagster as dg
import pyarrow as pa

from lance_dagster import LanceIOManager, report

ROOT = os.environ.get("TABLES", "")
DAYS = dg.DailyPartitionsDefinition("2026-11-01", end_date="2026-11-08")


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"}, backfill_policy=dg.BackfillPolicy.single_run())
def daily(context: dg.AssetExecutionContext) -> pa.Table:
    # Both processes have their rows before either of them writes.
    Path(ROOT, f"ready-{os.getpid()}").touch()
    while len(list(Path(ROOT).glob("ready-*"))) < 2:
        time.sleep(0.01)
    keys = [key for key in context.partition_keys for _ in range(1000)]
    return pa.table({"day": keys, "by": [os.getpid()] * len(keys)})


def dying_once() -> None:
    """The process ends at once after its first commit to a table, as if it had been killed."""
    original = report.tag_version

    def tag_version(dataset, name):
        marker = Path(ROOT, f"died-{Path(dataset.uri).stem}")
        if not marker.exists():
            marker.touch()
            os._exit(9)
        return original(dataset, name)

    report.tag_version = tag_version


def make_asset(mode: str):
    @dg.asset(name=mode, metadata={"mode": mode, "merge_keys": ["id"]})
    def asset():
        return pa.table({"id": [1, 2], "n": [10, 20]})

    return asset


def dying_job():
    """A job of two assets, each in a process of its own; these die once, the process named LIVES stays as it is."""
    if os.environ.get("LIVES", str(os.getpid())) != str(os.getpid()):
        dying_once()
    assets = [make_asset("append"), make_asset("merge")]
    return dg.Definitions(
        assets=assets,
        jobs=[dg.define_asset_job("job", selection=assets)],
        resources={"io_manager": LanceIOManager(root=ROOT)},
        executor=dg.multiprocess_executor.configured({"max_concurrent": 2}),
    ).resolve_job_def("job")


if __name__ == "__main__":
    first, last = sys.argv[1:]
    done = dg.materialize(
        [daily],
        resources={"io_manager": LanceIOManager(root=ROOT)},
        tags={"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last},
        instance=dg.DagsterInstance.ephemeral(),
    )
    sys.exit(0 if done.success else 1)
