"""From CSV rows to features: functions from DataFrames to DataFrames that know nothing of Lance or Dagster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql.window import Window

from example_project import schemas

if TYPE_CHECKING:
    import dagster as dg
    from pyspark.sql import Column, DataFrame

LATE = 15  # minutes; the usual limit of "on time" in aviation
SMALL_ROUTE = 100  # flights; below, a mean by hour is noise


def clean_flights(raw: DataFrame) -> DataFrame:
    """Turn HHMM numbers into timestamps and tell flown, cancelled and diverted flights apart."""
    scheduled = F.col("time_hour") + F.make_dt_interval(mins="minute")
    status = F.when(F.col("dep_delay").isNull(), "cancelled").when(F.col("arr_delay").isNull(), "diverted")
    return conform(
        raw.withColumns(
            {
                "status": status.otherwise("flown"),
                "scheduled_departure": scheduled,
                "departure": scheduled + F.make_dt_interval(mins="dep_delay"),
                "departure_delay": F.col("dep_delay"),
                "arrival_delay": F.col("arr_delay"),
            }
        ),
        schemas.FLIGHTS,
    )


def enrich_flights(
    flights: DataFrame, weather: DataFrame, planes: DataFrame, airports: DataFrame, airlines: DataFrame
) -> DataFrame:
    """Add the airline, the destination, the plane and the weather at the origin; every flight stays, once."""
    # One hour is observed twice when daylight saving time ends: take either.
    observed = weather.dropDuplicates(["origin", "time_hour"])
    joined = (
        flights.withColumn("time_hour", F.date_trunc("hour", "scheduled_departure"))
        .join(F.broadcast(airlines.select("carrier", F.col("name").alias("airline"))), "carrier", "left")
        .join(F.broadcast(airports.select(F.col("faa").alias("dest"), _destination())), "dest", "left")
        .join(F.broadcast(planes.select("tailnum", _plane())), "tailnum", "left")
        .join(F.broadcast(observed.select("origin", "time_hour", _weather())), ["origin", "time_hour"], "left")
    )
    return conform(joined, schemas.ENRICHED_FLIGHTS)


def summarize_days(flights: DataFrame) -> DataFrame:
    """One row per day and airport of departure."""
    delay = F.col("departure_delay")
    summary = flights.groupBy("flight_date", "origin").agg(
        F.count("*").alias("scheduled"),
        F.count_if(F.col("status") == "cancelled").alias("cancelled"),
        F.count_if(F.col("status") == "diverted").alias("diverted"),
        F.avg(delay).alias("mean_departure_delay"),
        F.avg((delay > LATE).cast("int")).alias("late_share"),
    )
    return conform(summary.orderBy("flight_date", "origin"), schemas.DAILY_SUMMARY)


def route_features(flights: DataFrame) -> DataFrame:
    """One row per route, with the mean delay of its departures by hour as a vector of 24 floats."""
    route = ["origin", "dest"]
    local = F.from_utc_timestamp("scheduled_departure", "America/New_York")
    by_hour = flights.groupBy(*route, F.hour(local).alias("hour")).agg(
        F.avg("departure_delay").alias("delay"),
        F.count("*").alias("flights"),
        F.first("distance").alias("distance"),
        F.collect_set("carrier").alias("carriers"),
    )
    delays = F.map_from_entries(F.collect_list(F.struct("hour", F.coalesce("delay", F.lit(0.0)))))
    features = by_hour.groupBy(*route).agg(
        F.sum("flights").alias("flights"),
        F.first("distance").alias("distance"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_list("carriers")))).alias("carriers"),
        F.array(*[F.coalesce(F.try_element_at(delays, F.lit(hour)), F.lit(0.0)) for hour in range(24)]).alias(
            "delay_profile"
        ),
    )
    return conform(features.orderBy(*route), schemas.ROUTE_FEATURES)


def similar_routes(features: DataFrame, count: int = 3) -> DataFrame:
    """For each busy route the `count` routes with the most similar delays over the day."""
    routes = features.where(F.col("flights") >= SMALL_ROUTE).select("origin", "dest", "delay_profile")
    others = routes.select(
        F.col("origin").alias("similar_origin"),
        F.col("dest").alias("similar_dest"),
        F.col("delay_profile").alias("other_profile"),
    )
    different = (F.col("origin") != F.col("similar_origin")) | (F.col("dest") != F.col("similar_dest"))
    pairs = routes.join(F.broadcast(others), different).withColumn(
        "similarity", _cosine(F.col("delay_profile"), F.col("other_profile"))
    )
    best = Window.partitionBy("origin", "dest").orderBy(F.desc("similarity"), "similar_origin", "similar_dest")
    ranked = pairs.withColumn("rank", F.row_number().over(best)).where(F.col("rank") <= count)
    return conform(ranked.orderBy("origin", "dest", "rank"), schemas.SIMILAR_ROUTES)


def planes_seen(flights: DataFrame) -> DataFrame:
    """One row per plane that flew."""
    planes = flights.groupBy("tailnum").agg(
        F.first("plane.model", ignorenulls=True).alias("model"),
        F.count("*").alias("flights"),
        F.max("flight_date").alias("last_day"),
    )
    return conform(planes, schemas.PLANES_SEEN)


def conform(frame: DataFrame, schema: dg.TableSchema) -> DataFrame:
    """Select the columns of a schema, with its types, and with its meanings as comments."""
    return frame.select(*[_typed(column) for column in schema.columns])


def _typed(column: dg.TableColumn) -> Column:
    comment: dict[str, str | int] = {"comment": column.description or ""}
    vector = re.fullmatch(r"vector\((\d+)\)", column.type)
    if vector is None:
        return F.col(column.name).cast(column.type).alias(column.name, metadata=comment)
    # Spark has no lists of a fixed size: this is how to ask for one in the Lance table.
    comment["arrow.fixed-size-list.size"] = int(vector[1])
    return F.col(column.name).cast("array<float>").alias(column.name, metadata=comment)


def _destination() -> Column:
    return F.struct("name", "lat", "lon").alias("destination")


def _plane() -> Column:
    return F.struct("manufacturer", "model", "seats", (F.lit(2013) - F.col("year")).alias("age")).alias("plane")


def _weather() -> Column:
    return F.struct(
        F.round((F.col("temp") - 32) / 1.8, 1).alias("temperature"),
        F.round(F.col("wind_speed") * 1.609344, 1).alias("wind_speed"),
        F.round(F.col("precip") * 25.4, 1).alias("precipitation"),
        F.round(F.col("visib") * 1.609344, 1).alias("visibility"),
    ).alias("weather")


def _cosine(left: Column, right: Column) -> Column:
    return _dot(left, right) / F.sqrt(_dot(left, left) * _dot(right, right))


def _dot(left: Column, right: Column) -> Column:
    products = F.zip_with(left, right, lambda x, y: x.cast("double") * y)
    return F.aggregate(products, F.lit(0.0), lambda total, product: total + product)
