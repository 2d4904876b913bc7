"""Code location `ingest`: loads the orders of a month. Needs no Spark."""

import dagster as dg
import lake
import pyarrow as pa

MONTHS = dg.StaticPartitionsDefinition(["2026-01", "2026-02", "2026-03"])
_ORDERS = 1_000


@dg.asset(partitions_def=MONTHS, metadata={"partition_expr": "month"})
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    """Orders of a month, as a shop would export them."""
    month = context.partition_key
    amounts = pa.array([number % 90 + 10.0 for number in range(_ORDERS)])
    return pa.table({"month": [month] * _ORDERS, "id": range(_ORDERS), "amount": amounts})


defs = dg.Definitions(
    assets=[orders],
    jobs=[dg.define_asset_job("load", selection=[orders])],
    resources=lake.resources(),
    executor=dg.in_process_executor,
)
