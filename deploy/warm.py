"""Writes and reads a table with Spark once, while an image is built: fills caches, and fails if anything is missing."""

import tempfile

from pyspark.sql import SparkSession

from lance_core.spark import ensure_java, read_lance, recommended_conf, write_lance

ensure_java()
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for key, value in recommended_conf().items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
with tempfile.TemporaryDirectory() as folder:
    write_lance(spark.range(10), f"{folder}/t.lance")
    read_lance(spark, f"{folder}/t.lance", filter="id > 4").show()
spark.stop()
