"""A program of a user of Spark Connect; started by test_connect.py, prints what it saw as JSON."""

import json
import sys
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import lance_core
from lance_core import spark as lance

seen = {}
folder = Path(sys.argv[1])
uri = str(folder / "t")
lance.ensure_java()
builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "ERROR").getOrCreate()
seen["session"] = type(spark).__module__

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

query = (
    spark.readStream.format("lance")
    .load(uri)
    .select("id")
    .writeStream.format("lance")
    .option("checkpointLocation", str(folder / "checkpoint"))
    .trigger(availableNow=True)
    .start(str(folder / "copy"))
)
query.awaitTermination(120)
seen["streamed"] = lance_core.dataset(folder / "copy").count_rows() == lance.read_lance(spark, uri).count()
try:
    lance.read_lance(spark, uri, columns=["nope"]).collect()
except AnalysisException as error:
    seen["error"] = str(error)
spark.stop()
sys.stdout.write(json.dumps(seen))
