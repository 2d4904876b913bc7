"""A program of a user of Spark Connect; started by test_connect.py, prints what it saw as JSON."""

import json
import sys
import traceback
from importlib.util import find_spec
from pathlib import Path

import pyspark
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it
from pyspark.sql.functions import udf

import lance_core
from lance_core import spark as lance
from tests.connect_port import SERVER, take_free_port
from tests.streams import run_stream

seen = {}
folder = Path(sys.argv[1])
uri = str(folder / "t")
lance.ensure_java()
take_free_port()
builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").config(map=SERVER)
spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "ERROR").getOrCreate()
seen["session"] = type(spark).__module__

# Executors get lance_core from the session. First of all: workers that have imported another one keep it.
lance.ship_lance_core(spark, folder)
seen["shipped"] = spark.range(1).select(udf(lambda _: lance_core.__file__, "string")("id")).first()[0]

rows = spark.createDataFrame(
    [(1, "a", [1.0, 2.0]), (2, "b", None), (3, None, [])], "id long, s string, v array<double>"
)
seen["written"] = lance.write_lance(rows, uri).num_rows
lance.register(spark)
rows.where("id > 2").write.format("lance").mode("append").save(uri)
seen["read"] = sorted(map(list, lance.read_lance(spark, uri, columns=["id", "s"], filter="id <> 2").collect()))
seen["loaded"] = spark.read.format("lance").option("version", 1).load(uri).count()
seen["pruned"] = spark.read.format("lance").schema("s string").load(uri).columns
spark.sql(f"CREATE TEMPORARY VIEW t USING lance OPTIONS (path '{uri}', columns '[\"id\"]')")
seen["view"] = spark.sql("SELECT sum(id) FROM t").first()[0]
replaced = lance.write_lance(rows.where("id = 2").withColumn("s", rows.s.substr(1, 0)), uri, replace_where="id = 2")
seen["replaced"] = [replaced.version, replaced.num_rows]
seen["changes"] = lance.read_lance_changes(spark, uri, 1, 2).count()

CAN_STREAM = find_spec("pyspark.sql.streaming.datasource") is not None
if CAN_STREAM:
    copied = spark.readStream.format("lance").load(uri).select("id").writeStream.format("lance")
    copied = copied.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    run_stream(lambda: copied.start(str(folder / "copy")))
    seen["streamed"] = lance_core.dataset(folder / "copy").count_rows() == lance.read_lance(spark, uri).count()

copy = str(folder / "copies")


def write_once(batch, number):
    from lance_core import spark as lance  # noqa: PLC0415 it runs in a process of the server

    lance.write_lance(batch, copy, idempotency_key=f"batch {number}")


# In Spark 4.2, the process that runs a batch may wait for ever when it lets go of it (CachedRemoteRelation.__del__).
CAN_BATCH = CAN_STREAM and not pyspark.__version__.startswith("4.2.")
for checkpoint in ("first", "second") if CAN_BATCH else ():  # the second knows nothing of the first
    stream = spark.readStream.format("lance").load(uri).writeStream.foreachBatch(write_once)
    stream = stream.option("checkpointLocation", str(folder / checkpoint)).trigger(availableNow=True)
    run_stream(stream.start)
if not CAN_BATCH:
    write_once(lance.read_lance(spark, uri), 0)
seen["batches"] = [lance_core.dataset(copy).count_rows(), len(lance_core.dataset(copy).versions())]

lance_core.dataset(copy).create_branch("trial")
lance.write_lance(rows.where("id = 1"), copy, branch="trial", partition_overwrite_by=["id"])
lance.delete_lance(spark, copy, "id = 2", branch="trial")
seen["branch"] = sorted(row["id"] for row in lance.read_lance(spark, copy, branch="trial").collect())
rows.write.format("lance").mode("append").option("branch", "trial").save(copy)
seen["main and branch"] = [lance.read_lance(spark, copy, branch=one).count() for one in (None, "trial")]
rows.write.format("lance").mode("overwrite").save(copy)
lance.write_lance(rows.where("id > 1"), copy, mode="overwrite")
seen["overwritten"] = [lance.read_lance(spark, copy, version=one).count() for one in (1, 2, 3)]

# ------------------------------------------------------------------------------------------------------- new columns

wider = spark.sql("SELECT 4L id, 7 n")
try:
    lance.write_lance(wider, copy)
except lance_core.LanceError as error:
    seen["unknown column"] = str(error)
wider.write.format("lance").mode("append").option("mergeSchema", "true").save(copy)
for _ in range(2):
    lance.write_lance(spark.sql("SELECT 5L id, 'x' m"), copy, merge_schema=True, idempotency_key="m")
seen["wider"] = [(row["id"], row["n"], row["m"]) for row in lance.read_lance(spark, copy).orderBy("id").collect()]

# ------------------------------------------------------------------------------------------- changes to a larger table

big = str(folder / "big")
lance.write_lance(spark.range(0, 100, numPartitions=4).selectExpr("id", "id * 2 v", "string(id) s"), big)


def contents():
    return {row["id"]: row for row in lance_core.dataset(big).to_table().to_pylist()}


changes = spark.range(90, 110).selectExpr("id", "-id v")
merged = (
    lance.merge_lance(changes, big, "id", within="id >= 90", idempotency_key="merge")
    .when_matched_update_all("source.id % 2 = 0")
    .when_not_matched_insert_all()
    .execute()
)
seen["merged"] = [merged.num_updated_rows, merged.num_inserted_rows, sum(row["v"] for row in contents().values())]
again = lance.merge_lance(changes, big, "id", idempotency_key="merge").when_matched_delete().execute()
seen["merged_again"] = [again.version == merged.version, again.written]
seen["updated"] = lance.update_lance(spark, big, {"s": "concat(s, '!')"}, "id < 30").num_updated_rows
seen["deleted"] = lance.delete_lance(spark, big, "id % 10 = 3").num_deleted_rows
lance.add_columns_lance(spark, big, {"twice": "v * 2"})
lance.add_columns_lance(spark, big, spark.range(0, 50).selectExpr("id", "string(id + 1) next"), on="id")
lance.create_zone_map_lance(spark, big, "id", rows_per_zone=10)
seen["zone_maps"] = [one["name"] for one in lance_core.dataset(big).list_indices()]
seen["by_zone_map"] = [row["id"] for row in lance.read_lance(spark, big, filter="id = 42").collect()]
seen["compacted"] = lance.LanceTable.forPath(spark, big).optimize().executeCompaction().fragments_removed > 1
seen["rows"] = [contents()[i] for i in (28, 42, 91, 104)] + [len(contents())]
table = lance.LanceTable.forPath(spark, big)
copies = spark.range(95, 97).selectExpr("id AS number").alias("c")
merge = table.alias("t").merge(copies, "t.id = c.number AND t.v < 0")
seen["table"] = [
    merge.whenMatchedUpdate(set={"s": F.concat(F.lit("v"), F.col("t.v"))}).execute().num_updated_rows,
    table.delete(F.col("id") % 50 == 1).num_deleted_rows,
    lance.read_lance(spark, big, columns=["id"], filter="s rlike '^v' AND id div 2 = 48").collect()[0][0],
    [row.operation for row in table.history(2).collect()],
    table.toDF().count(),
]
try:
    lance.merge_lance(changes, big, "id", within="id < 95").when_not_matched_insert_all().execute()
except PySparkException as error:
    seen["merge_error"] = str(error)
seen["versions"] = len(lance_core.dataset(big).versions())
seen["errors"] = []
asked = [{"columns": ["nope"]}, {"filter": "id >"}, {"filter": "nope(id) = 1"}]
asked += [{"version": 99}, {"tag": "nope"}, {"branch": "nope"}]
for path, arguments in [(uri, one) for one in asked] + [(uri + " 2", {})]:
    try:
        lance.read_lance(spark, path, **arguments)
    except AnalysisException as error:
        seen["errors"].append("".join(traceback.format_exception_only(error)).splitlines()[-1])
try:
    lance.read_lance_changes(spark, uri, 99)
except AnalysisException as error:
    seen["errors"].append("".join(traceback.format_exception_only(error)).splitlines()[-1])

spark.stop()
sys.stdout.write(json.dumps(seen))
