"""Tables that keep what they have: rows with a key are updated, rows of each run are appended."""

from datetime import UTC, datetime

import dagster as dg
import pyarrow as pa
from pyspark.sql import DataFrame

from example_project import schemas, transforms
from example_project.defs.flights import flight_corrections
from example_project.tables import KINDS, OWNERS, table


@dg.asset(
    group_name="insights",
    kinds=KINDS,
    owners=OWNERS,
    code_version="1",
    ins={
        "enriched_flights": dg.AssetIn(
            metadata={"columns": ["tailnum", "plane", "flight_date"], "filter": "tailnum IS NOT NULL"}
        )
    },
    deps=[flight_corrections],
    # A column that this code gets later will be added to the table.
    metadata={
        **table("planes_seen", schemas.PLANES_SEEN, mode="merge", primary_key=["tailnum"], schema_mode="add"),
        "lance/indices": {"tailnum": "BTREE"},
    },
)
def planes_seen(enriched_flights: DataFrame) -> DataFrame:
    """Planes that flew: those that are known are updated, others are added."""
    return transforms.planes_seen(enriched_flights)


@dg.asset(
    group_name="insights",
    kinds={"lance", "arrow"},
    owners=OWNERS,
    # No other version than that which Dagster shows as this asset's input, whoever writes meanwhile.
    ins={"route_features": dg.AssetIn(metadata={"columns": ["flights"], "read": "materialized"})},
    metadata=table("route_history", schemas.ROUTE_HISTORY, mode="append"),
    retry_policy=dg.RetryPolicy(max_retries=2),
)
def route_history(context: dg.AssetExecutionContext, route_features: pa.Table) -> pa.Table:
    """One row for each run; a step that is tried again does not append twice. Arrow is enough, Spark is not asked."""
    flights = sum(route_features["flights"].to_pylist())
    row = {"run": context.run_id, "at": datetime.now(UTC), "routes": route_features.num_rows, "flights": flights}
    return pa.Table.from_pylist([row])
