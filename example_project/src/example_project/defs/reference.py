"""Reference tables: small, replaced as a whole by every run."""

import dagster as dg
from pyspark.sql import DataFrame

from example_project import schemas, source
from example_project.tables import KINDS, OWNERS, table
from lance_dagster import SparkSessionResource


@dg.asset(group_name="reference", kinds=KINDS, owners=OWNERS, metadata=table("airlines", schemas.AIRLINES))
def airlines(spark: SparkSessionResource) -> DataFrame:
    """Airlines and their two-letter codes."""
    return source.read_csv(spark.spark_session, "airlines", schemas.AIRLINES)


@dg.asset(group_name="reference", kinds=KINDS, owners=OWNERS, metadata=table("airports", schemas.AIRPORTS))
def airports(spark: SparkSessionResource) -> DataFrame:
    """Airports and where they are."""
    return source.read_csv(spark.spark_session, "airports", schemas.AIRPORTS)


@dg.asset(group_name="reference", kinds=KINDS, owners=OWNERS, metadata=table("planes", schemas.PLANES))
def planes(spark: SparkSessionResource) -> DataFrame:
    """Planes registered with the Federal Aviation Administration."""
    return source.read_csv(spark.spark_session, "planes", schemas.PLANES)


@dg.asset(group_name="reference", kinds=KINDS, owners=OWNERS, metadata=table("weather", schemas.WEATHER))
def weather(spark: SparkSessionResource) -> DataFrame:
    """Hourly weather at the three airports of New York City."""
    return source.read_csv(spark.spark_session, "weather", schemas.WEATHER)
