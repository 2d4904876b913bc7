"""Code location `reports`: adds up with Spark what the location `ingest` has stored."""

import dagster as dg
import lake
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it


@dg.asset
def totals(orders: DataFrame) -> DataFrame:
    """Orders and sales of each month."""
    return orders.groupBy("month").agg(F.count("*").alias("orders"), F.sum("amount").alias("sales"))


defs = dg.Definitions(
    assets=[totals, dg.AssetSpec("orders").with_io_manager_key("io_manager")],  # of the other code location
    jobs=[dg.define_asset_job("report", selection=[totals])],
    resources=lake.resources(),
    executor=dg.in_process_executor,
)
