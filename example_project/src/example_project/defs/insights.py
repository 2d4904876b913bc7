"""Insights from the flights: small tables for people and models."""

import dagster as dg
from pyspark.sql import DataFrame

from example_project import schemas, transforms
from example_project.defs.flights import flight_corrections
from example_project.tables import KINDS, MONTHS, ONE_RUN, OWNERS, table


@dg.asset(
    group_name="insights",
    kinds=KINDS,
    owners=OWNERS,
    partitions_def=MONTHS,
    backfill_policy=ONE_RUN,
    metadata=table("daily_summary", schemas.DAILY_SUMMARY, partition_expr="flight_date"),
)
def daily_summary(flights: DataFrame) -> DataFrame:
    """Flights, cancellations and delays per day and airport."""
    return transforms.summarize_days(flights)


@dg.asset(
    group_name="insights",
    kinds=KINDS,
    owners=OWNERS,
    # Only these columns are read, from all months.
    ins={
        "enriched_flights": dg.AssetIn(
            metadata={
                "columns": ["origin", "dest", "carrier", "distance", "scheduled_departure", "departure_delay"],
            }
        )
    },
    deps=[flight_corrections],
    metadata=table("route_features", schemas.ROUTE_FEATURES),
)
def route_features(enriched_flights: DataFrame) -> DataFrame:
    """One row per route; its delays over the day are a vector of 24 floats."""
    return transforms.route_features(enriched_flights)


@dg.asset(group_name="insights", kinds=KINDS, owners=OWNERS, metadata=table("similar_routes", schemas.SIMILAR_ROUTES))
def similar_routes(route_features: DataFrame) -> DataFrame:
    """The three routes whose delays over the day are most alike, for each busy route."""
    return transforms.similar_routes(route_features)
