"""A shop: orders, events and products with every kind of partitions, modes, checks, sensors, Pipes and maintenance.

The folder of the tables comes by the environment, since each step runs in a process of its own.
"""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from lance_dagster import (
    CompactionPolicy,
    LanceIOManager,
    LanceResource,
    RetentionPolicy,
    build_branch_jobs,
    build_lance_checks,
    build_maintenance_alerts,
    build_maintenance_definitions,
    build_observable_table,
    build_retention_asset,
    build_table_sensor,
    build_wipe_job,
    check_definitions,
    deployment_branch,
    describe_tables,
)

ROOT = os.environ.get("SHOP_TABLES", "")
DAYS = dg.DailyPartitionsDefinition("2026-11-01", end_date="2026-11-08", timezone="Europe/Berlin")
REGIONS = dg.StaticPartitionsDefinition(["asia", "eu", "us"])
DAYS_AND_REGIONS = dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS})
TENANTS = dg.DynamicPartitionsDefinition(name="tenants")
PRELOADED = [__name__, "dagster._core.storage.sqlite_storage", "dagster._core.storage.base_storage"]
"""Modules that each step would import otherwise, which takes longer than most steps."""
ONE_RUN = dg.BackfillPolicy.single_run()
PIPES_SCRIPT = str(Path(__file__).with_name("pipes_script.py"))


def number_of(key: str) -> int:
    """Return a day as the warehouse writes it: 20261101."""
    return int(key.replace("-", ""))


def noon_of(key: str) -> datetime:
    return datetime.fromisoformat(key).replace(hour=12, tzinfo=UTC)


# ----------------------------------------------------------------------------------------------------------- products


@dg.asset(
    key_prefix="shop",
    metadata={"mode": "merge", "primary_key": ["sku"], "lance/indices": {"sku": "BTREE", "title": "INVERTED"}},
)
def products(context: dg.AssetExecutionContext) -> pa.Table:
    """Merged by key: one more product with each run."""
    numbers = range(3 + int(context.run.tags.get("delivery", "0")))
    return pa.table(
        {
            "sku": [f"sku-{number}" for number in numbers],
            "title": [f"blue chair {number}" for number in numbers],
            "price": [10.0 + number for number in numbers],
        }
    )


@dg.asset(key_prefix="shop", metadata={"mode": "append"})
def deliveries(context: dg.AssetExecutionContext) -> pd.DataFrame:
    """A log: each run appends."""
    return pd.DataFrame({"run": [context.run.run_id], "at": [pd.Timestamp("2026-11-01T12:00:00Z")]})


@dg.asset(key_prefix="shop", metadata={"lance/uri": f"{ROOT}/elsewhere/discounts"})
def discounts() -> pa.Table:
    return pa.table({"region": ["eu", "us"], "discount": [0.1, 0.2]})


# ------------------------------------------------------------------------------------------- days, in one run or many


@dg.asset(
    key_prefix="shop",
    partitions_def=DAYS,
    metadata={"partition_expr": "day"},
    backfill_policy=ONE_RUN,
)
def events(context: dg.AssetExecutionContext) -> pa.Table:
    """The partition column holds int dates."""
    days = [number_of(key) for key in context.partition_keys for _ in range(4)]
    return pa.table({"day": pa.array(days, pa.int32()), "kind": ["view", "view", "buy", None] * (len(days) // 4)})


@dg.asset(
    key_prefix="shop",
    partitions_def=DAYS,
    metadata={"partition_expr": "day"},
    backfill_policy=ONE_RUN,
)
def funnel(events: pa.Table) -> pd.DataFrame:
    """The same days of the input."""
    frame = events.to_pandas().groupby("day", as_index=False).agg(events=("kind", "size"), kinds=("kind", "nunique"))
    return frame.astype({"day": "int32"})


@dg.asset(
    key_prefix="shop",
    partitions_def=DAYS,
    metadata={"partition_expr": "at"},
    backfill_policy=ONE_RUN,
    ins={
        "funnel": dg.AssetIn(
            ["shop", "funnel"], partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-2, end_offset=0)
        )
    },
)
def trend(context: dg.AssetExecutionContext, funnel: pa.Table) -> pa.Table:
    """Three days of the input for each day; the partition column is a timestamp with zone."""
    times = [noon_of(key) for key in context.partition_keys]
    total = pc.sum(funnel["events"]).as_py()
    return pa.table(
        {"at": pa.array(times, pa.timestamp("us", "UTC")), "events": [total] * len(times)},
    )


@dg.asset(
    key_prefix="shop",
    partitions_def=DAYS,
    metadata={"partition_expr": "day"},
    ins={
        "before": dg.AssetIn(
            ["shop", "stock"], partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
        )
    },
    op_tags={"dagster/priority": "1"},
)
def stock(context: dg.AssetExecutionContext, before: pa.Table) -> pa.Table:
    """Depends on its own day before."""
    left = before["left"][0].as_py() if before.num_rows else 100
    return pa.table({"day": [datetime.fromisoformat(context.partition_key).date()], "left": [left - 1]})


# ------------------------------------------------------------------------------------------- regions, days and regions


@dg.asset(key_prefix="shop", partitions_def=REGIONS, metadata={"partition_expr": "region"}, backfill_policy=ONE_RUN)
def prices(context: dg.AssetExecutionContext, products: pa.Table, discounts: pa.Table) -> pd.DataFrame:
    """A static partition for each region."""
    cut = dict(zip(discounts["region"].to_pylist(), discounts["discount"].to_pylist(), strict=True))
    frames = [
        products.to_pandas()[["sku", "price"]].assign(region=key, price=lambda f, k=key: f.price * (1 - cut.get(k, 0)))
        for key in context.partition_keys
    ]
    return pd.concat(frames)


@dg.asset(
    key_prefix="shop",
    partitions_def=DAYS_AND_REGIONS,
    metadata={"partition_expr": {"day": "day", "region": "region"}},
    backfill_policy=ONE_RUN,
)
def orders(context: dg.AssetExecutionContext, products: pa.Table) -> pa.Table:
    """Two dimensions; string dates."""
    keys = [dg.MultiPartitionKey(key.keys_by_dimension).keys_by_dimension for key in context.partition_keys]
    return pa.table(
        {
            "order_id": [f"{key['day']}-{key['region']}-{number}" for key in keys for number in range(2)],
            "day": [key["day"] for key in keys for _ in range(2)],
            "region": [key["region"] for key in keys for _ in range(2)],
            "sku": [products["sku"][number].as_py() for _ in keys for number in range(2)],
        }
    )


@dg.asset(
    key_prefix="shop",
    partitions_def=REGIONS,
    metadata={"partition_expr": "region"},
    backfill_policy=ONE_RUN,
    ins={
        "orders": dg.AssetIn(
            ["shop", "orders"],
            partition_mapping=dg.MultiToSingleDimensionPartitionMapping("region"),
            metadata={"columns": ["order_id", "region", "sku"]},
        )
    },
)
def revenue(orders: pd.DataFrame, prices: pd.DataFrame) -> pd.DataFrame:
    """All days of a region."""
    return orders.merge(prices, on=["region", "sku"]).groupby("region", as_index=False).agg(revenue=("price", "sum"))


@dg.asset(key_prefix="shop")
def report(revenue: pa.Table, funnel: pa.Table) -> pa.Table:
    """All partitions of several inputs."""
    return pa.table({"revenue": [pc.sum(revenue["revenue"]).as_py()], "days": [funnel.num_rows]})


# ------------------------------------------------------------------------------------------------- tenants, other tools


@dg.asset(key_prefix="shop", partitions_def=TENANTS, metadata={"partition_expr": "tenant", "mode": "append"})
def feedback(context: dg.AssetExecutionContext) -> pa.Table:
    """Dynamic partitions, appended."""
    return pa.table({"tenant": [context.partition_key], "text": ["it's fine"]})


@dg.asset(key_prefix="shop", kinds={"python"})
def refunds(
    context: dg.AssetExecutionContext, pipes: dg.PipesSubprocessClient, lance: LanceResource
) -> dg.MaterializeResult:
    """Another process writes the table, and reports its version."""
    uri = lance.uri(context.asset_key)
    command = [sys.executable, PIPES_SCRIPT]
    return pipes.run(command=command, context=context, extras={"uri": uri}).get_materialize_result()


suppliers = build_observable_table("shop/suppliers")
"""Written by others."""


@dg.asset(key_prefix="shop")
def contacts(suppliers: pa.Table) -> pa.Table:
    return suppliers.select(["name"])


ASSETS = [
    products,
    deliveries,
    discounts,
    events,
    funnel,
    trend,
    stock,
    prices,
    orders,
    revenue,
    report,
    feedback,
    refunds,
    contacts,
]
CHECKS = [
    build_lance_checks(events, min_rows=4, not_null=["day"], partitioned=True),
    build_lance_checks(orders, unique=["order_id"], partitioned=True, blocking=True),
    build_lance_checks(products, unique=["sku"], integrity="quick", max_unindexed_fraction=0.0),
    build_lance_checks(discounts, min_rows=2, blocking=True),
]


JOBS = {
    "whole": [products, deliveries, discounts, refunds, contacts],
    "by_day": [events, funnel, trend],
    "by_region": [prices],
    "by_day_and_region": [orders],
    "revenue": [revenue],
    "report": [report],
    "stock": [stock],
    "feedback": [feedback],
}


def definitions() -> dg.Definitions:
    branch = deployment_branch()
    own = dg.Definitions(
        assets=[*ASSETS, suppliers, build_retention_asset(events, RetentionPolicy(keep=2))],
        asset_checks=CHECKS,
        jobs=[
            *(dg.define_asset_job(name, selection=dg.AssetSelection.assets(*assets)) for name, assets in JOBS.items()),
            *build_branch_jobs(ASSETS),
            build_wipe_job(orders),
        ],
        sensors=[
            build_table_sensor("shop/suppliers", target=dg.AssetSelection.assets(contacts)),
            build_maintenance_alerts(ASSETS),
        ],
        resources={
            "io_manager": LanceIOManager(root=ROOT, branch=branch),
            "lance": LanceResource(root=ROOT, branch=branch),
            "pipes": dg.PipesSubprocessClient(),
        },
        executor=dg.multiprocess_executor.configured(
            {"max_concurrent": 2, "start_method": {"forkserver": {"preload_modules": PRELOADED}}}
        ),
    )
    upkeep = build_maintenance_definitions(
        ASSETS, compaction=CompactionPolicy(min_fragments=2), per="table", executor_def=None
    )
    return describe_tables(check_definitions(dg.Definitions.merge(own, upkeep)))


DEFINITIONS = definitions()
"""Made once, when the process is started from which the steps fork."""


def __getattr__(name: str) -> dg.JobDefinition:
    """Return a job, as an attribute of the module: what processes run is found by such a name."""
    if name not in {*JOBS, "lance_maintenance"}:
        raise AttributeError(name)
    return DEFINITIONS.resolve_job_def(name)
