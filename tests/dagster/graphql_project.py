"""A small project, looked at as Dagster's web server shows it. Settings come by the environment."""

import os

import dagster as dg
import pyarrow as pa

from lance_dagster import (
    LanceIOManager,
    LanceResource,
    SparkSessionResource,
    build_lance_checks,
    build_maintenance_assets,
    lance_asset_metadata,
)

ROOT = os.environ.get("TABLES", "tables")
DAYS = dg.DailyPartitionsDefinition("2026-11-01", end_date="2026-11-06")
COLUMNS = dg.TableSchema(
    [
        dg.TableColumn("day", "string", "Day of the order"),
        dg.TableColumn("id", "int64", "Number of the order", constraints=dg.TableColumnConstraints(nullable=False)),
        dg.TableColumn("price", "double", "In euros", tags={"money": ""}),
    ]
)
MADE_FROM = dg.TableColumnLineage({"total": [dg.TableColumnDep(asset_key="orders", column_name="price")]})


@dg.asset(
    partitions_def=DAYS,
    kinds={"lance"},
    code_version="7",
    metadata=lance_asset_metadata("orders", root=ROOT, schema=COLUMNS, partition_expr="day", primary_key=["day", "id"]),
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    """Orders, three for each day; the run's tag `day` moves them to another day."""
    keys = [context.run.tags.get("day", key) for key in context.partition_keys for _ in range(3)]
    price = float(context.run.tags.get("price", 1))
    return pa.table({"day": keys, "id": list(range(len(keys))), "price": [price] * len(keys)})


@dg.asset(
    partitions_def=DAYS,
    kinds={"lance"},
    metadata={"partition_expr": "day", "dagster/column_lineage": MADE_FROM},
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def totals(orders: pa.Table) -> pa.Table:
    """What the orders of a day come to."""
    return orders.group_by("day").aggregate([("price", "sum")]).rename_columns(["day", "total"])


TOKEN = dg.EnvVar("STORE_TOKEN")

defs = dg.Definitions(
    assets=[orders, totals, *build_maintenance_assets([orders])],
    asset_checks=[build_lance_checks(orders, min_rows=1, max_rows=100, unique=["day", "id"], max_deleted_fraction=0.5)],
    jobs=[dg.define_asset_job("all_orders", selection="orders")],
    resources={
        "io_manager": LanceIOManager(root=ROOT, storage_options={"token": TOKEN}),
        "lance": LanceResource(
            root=ROOT, storage_options={"token": TOKEN}, base_store_params={"s3://cold": {"token": TOKEN}}
        ),
        "written_out": LanceIOManager(
            root=ROOT,
            storage_options={"token": "written-token"},
            base_store_params={"s3://cold": {"token": "written-token"}},
        ),
        "spark": SparkSessionResource(remote="sc://host/;token=written-token", conf={"spark.token": "written-token"}),
    },
    executor=dg.in_process_executor,
)
