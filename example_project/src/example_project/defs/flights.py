"""Flights, month by month: a run replaces exactly the months it is started for."""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from example_project import schemas, source, transforms
from example_project.tables import KINDS, MONTHS, ONE_RUN, OWNERS, table
from lance_dagster import LanceResource, SparkSessionResource


@dg.asset(
    group_name="flights",
    kinds=KINDS,
    owners=OWNERS,
    partitions_def=MONTHS,
    backfill_policy=ONE_RUN,
    metadata=table("raw_flights", schemas.RAW_FLIGHTS, partition_expr="flight_date"),
)
def raw_flights(context: dg.AssetExecutionContext, spark: SparkSessionResource) -> DataFrame:
    """All flights that were to leave New York City, as published."""
    start, end = (moment.date() for moment in context.partition_time_window)
    in_months = (F.col("flight_date") >= start) & (F.col("flight_date") < end)
    flights = source.read_csv(spark.spark_session, "flights", schemas.FLIGHTS_CSV)
    dated = flights.withColumn("flight_date", F.make_date("year", "month", "day"))
    return transforms.conform(dated, schemas.RAW_FLIGHTS).where(in_months)


@dg.asset(
    group_name="flights",
    kinds=KINDS,
    owners=OWNERS,
    partitions_def=MONTHS,
    backfill_policy=ONE_RUN,
    metadata={
        **table("flights", schemas.FLIGHTS, partition_expr="flight_date"),
        "lance/indices": {"origin": "BITMAP"},
    },
)
def flights(raw_flights: DataFrame) -> DataFrame:
    """Flights with real timestamps, and with a status: flown, cancelled or diverted."""
    return transforms.clean_flights(raw_flights)


@dg.asset(
    group_name="flights",
    kinds=KINDS,
    owners=OWNERS,
    partitions_def=MONTHS,
    backfill_policy=ONE_RUN,
    metadata=table("enriched_flights", schemas.ENRICHED_FLIGHTS, partition_expr="flight_date"),
)
def enriched_flights(
    flights: DataFrame, weather: DataFrame, planes: DataFrame, airports: DataFrame, airlines: DataFrame
) -> DataFrame:
    """Flights joined with the airline, the destination, the plane and the weather."""
    return transforms.enrich_flights(flights, weather, planes, airports, airlines)


ONLY_FLOWN = dg.AssetCheckSpec(
    "only_flown_flights_remain",
    asset="flight_corrections",
    description="Nothing is left of flights that were cancelled or diverted, and nothing else is missing.",
)


@dg.asset(
    group_name="flights", kinds={"lance", "python"}, owners=OWNERS, deps=[enriched_flights], check_specs=[ONLY_FLOWN]
)
def flight_corrections(lance: LanceResource):  # noqa: ANN201 - Dagster takes no annotation beside `check_specs`
    """Late corrections: flights that never arrived are deleted from `enriched_flights`, and the result is checked.

    A Lance delete writes only which rows are gone; the files with the data stay as they are until maintenance.
    """
    table = lance.dataset("enriched_flights")
    deleted = table.delete("status <> 'flown'")["num_deleted_rows"]
    wrong, left = table.count_rows("status <> 'flown'"), table.count_rows()
    flown = lance.dataset("flights").count_rows("status = 'flown'")
    check = dg.AssetCheckResult(passed=wrong == 0 and left == flown, metadata={"left": left, "flown": flown})
    return dg.MaterializeResult(metadata={"rows_deleted": deleted, "rows_left": left}, check_results=[check])
