"""Spark's daemon of Python workers, which imports once what each of its forks would import for itself.

Users have the daemon of pyspark: `test_submit`, `test_archive` and `test_connect` start programs that do, too.
"""

import pyarrow as pa
import pyspark.worker
from pyspark import daemon

import lance_core.dataset
import lance_core.spark.reader
import lance_core.spark.sink
import lance_core.spark.source

PRELOADED = (pa, pyspark.worker, lance_core)

if __name__ == "__main__":
    daemon.manager()
