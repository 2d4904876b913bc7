"""Code location of the pictures for which the example project is too small; ``docs/pictures.py`` runs and shows it.

A hundred tables with maintenance, a table whose partitions changed from days to months, and a write that takes a while.
Tables go below the folder of the environment variable ``PICTURES_LAKE``.

No ``from __future__ import annotations`` here: Dagster reads the annotations of assets.
"""

import os
import time
from collections.abc import Iterator
from datetime import date, timedelta

import dagster as dg
import numpy as np
import pyarrow as pa

from lance_dagster import (
    CleanupPolicy,
    LanceIOManager,
    LanceResource,
    build_maintenance_definitions,
    build_partition_change_job,
    describe_tables,
)

NUM_TABLES, NUM_AREAS = 100, 10
NUM_IN_NEED = 12
DAYS = dg.DailyPartitionsDefinition("2026-08-20", end_date="2026-10-30")
MONTHS = dg.MonthlyPartitionsDefinition("2026-08-01", end_date="2026-11-01")
SCHEMA = pa.schema({"id": pa.int64(), "value": pa.float64()})
BATCHES, PAUSE_S = 48, 0.5
ROOT = os.environ.get("PICTURES_LAKE", "lake")
RESOURCES = {"io_manager": LanceIOManager(root=ROOT), "lance": LanceResource(root=ROOT)}
_AT_ONCE = timedelta(0)
CLEANUP = CleanupPolicy(older_than=_AT_ONCE, grace_period=_AT_ONCE, keep_live_inputs=False)


def table(number: int) -> dg.AssetsDefinition:
    """One of the hundred."""

    @dg.asset(name=f"table_{number:02d}", group_name=f"area_{number % NUM_AREAS}")
    def asset() -> pa.Table:
        return batches_of(number + 1, rows=1000)

    return asset


def batches_of(seed: int, *, rows: int) -> pa.Table:
    """Rows of a table."""
    return pa.table([np.arange(rows), np.random.default_rng(seed).random(rows)], schema=SCHEMA)


def orders(partitions: dg.PartitionsDefinition) -> dg.AssetsDefinition:
    """Orders by day, which became orders by month."""

    @dg.asset(name="orders", group_name="shop", partitions_def=partitions, metadata={"partition_expr": "day"})
    def asset(context: dg.AssetExecutionContext) -> pa.Table:
        days = [date.fromisoformat(key) for key in context.partition_keys for _ in range(50)]
        return pa.table({"id": range(len(days)), "day": days})

    return asset


@dg.asset(group_name="shop", metadata={"mode": "append"})
def clicks() -> pa.RecordBatchReader:
    """Clicks, from a source that takes its time."""

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(BATCHES):
            time.sleep(PAUSE_S)
            yield from batches_of(number, rows=50_000).to_batches()

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


TABLES = [table(number) for number in range(NUM_TABLES)]
BY_MONTH = orders(MONTHS)
defs = describe_tables(
    dg.Definitions.merge(
        dg.Definitions(
            assets=[*TABLES, BY_MONTH, clicks],
            jobs=[build_partition_change_job(BY_MONTH), dg.define_asset_job("load_clicks", [clicks])],
            resources=RESOURCES,
        ),
        build_maintenance_definitions(TABLES, per="table", cleanup=CLEANUP),
    )
)


def main() -> None:
    """Make the history that the pictures show, in the instance of ``DAGSTER_HOME``."""
    health = dg.AssetKey(["lance_maintenance", "table_health"])
    with dg.DagsterInstance.get() as instance:
        dg.materialize(TABLES, resources=RESOURCES, instance=instance)
        defs.resolve_job_def("lance_maintenance").execute_in_process(instance=instance)
        for number in range(NUM_IN_NEED):
            RESOURCES["lance"].write(TABLES[number].key, batches_of(number, rows=500))
        defs.resolve_job_def("lance_maintenance").execute_in_process(instance=instance, asset_selection=[health])
        by_day = {
            "dagster/asset_partition_range_start": "2026-08-20",
            "dagster/asset_partition_range_end": "2026-10-29",
        }
        dg.materialize([orders(DAYS)], resources=RESOURCES, instance=instance, tags=by_day)
        dry_run = {"ops": {"orders__change_partitions": {"config": {"dry_run": True}}}}
        change = defs.resolve_job_def("orders__change_partitions")
        change.execute_in_process(instance=instance, run_config=dry_run)
        defs.resolve_job_def("load_clicks").execute_in_process(instance=instance)


if __name__ == "__main__":
    main()
