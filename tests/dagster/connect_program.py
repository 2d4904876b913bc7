"""A pipeline on Spark Connect; started by test_connect.py with a folder, prints what became of it as JSON."""

import json
import logging
import sys

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from lance_core.spark import ensure_java
from lance_dagster import LanceIOManager, SparkSessionResource
from tests.connect_port import SERVER, take_free_port

ROOT = sys.argv[1]
DAYS = dg.StaticPartitionsDefinition(["a", "b"])
conf = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.log.level": "ERROR"}
ensure_java()
take_free_port()
spark = SparkSessionResource(master=None, remote="local[2]", conf=conf | SERVER)


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day", "mode": "merge", "merge_keys": ["id"]})
def events(context: dg.AssetExecutionContext, spark: SparkSessionResource) -> DataFrame:
    numbers = spark.spark_session.range(5)
    return numbers.select(F.lit(context.partition_key).alias("day"), "id", (F.col("id") * 2).alias("n"))


@dg.asset(ins={"events": dg.AssetIn(metadata={"filter": "id < 3"})})
def sums(events: DataFrame) -> DataFrame:
    return events.groupBy("day").agg(F.sum("n").alias("total"))


class Warnings(logging.Handler):
    def emit(self, record):
        if record.levelno >= logging.WARNING:
            warned.append(record.getMessage())


warned: list[str] = []
logging.getLogger("dagster").addHandler(Warnings())
resources = {"io_manager": LanceIOManager(root=ROOT, spark=spark), "spark": spark}
done = [
    dg.materialize([events], partition_key="a", resources=resources),
    dg.materialize([events], partition_key="b", resources=resources),
    dg.materialize([events], partition_key="a", resources=resources),
    dg.materialize([events, sums], selection=[sums], resources=resources),
]
materialized = [event.materialization for run in done for event in run.all_events if event.is_step_materialization]
seen = {
    "session": type(spark.spark_session).__module__,
    "metadata": [
        {key: entry.value for key, entry in one.metadata.items() if isinstance(entry.value, (int, str))}
        for one in materialized
    ],
    "keys": sorted({key for one in materialized for key in one.metadata}),
    "warned": warned,
}
sys.stdout.write(f"{json.dumps(seen)}\n")
spark.spark_session.stop()
