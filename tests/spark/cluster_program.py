"""A program of a user, on a cluster of several JVMs of which one dies or is slow; see test_cluster_faults.py.

Arguments: the address of the master, the folder to work in, and what goes wrong. Writes what it saw as JSON.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

from lance_core import spark as lance

ROWS, PARTITIONS, ROWS_PER_FILE = 8_000, 2, 1_000
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.log.level": "ERROR",
    # Rows reach the tasks in many batches, so that files are complete when something happens.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.task.duration.threshold": "2s",
}

master, folder, fault = sys.argv[1], Path(sys.argv[2]), sys.argv[3]


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill_executor(row):
    """The first attempt of task 1 takes its JVM with it, when most of its files are written."""
    context = TaskContext.get()
    if context.partitionId() == 1 and context.attemptNumber() == 0 and row == ROWS - 1:
        (folder / "killed").touch()
        os.kill(parent_of(os.getppid()), signal.SIGKILL)  # this is a worker, above it are its daemon and the executor
    return row


def wait_for_copy(row):
    """The first attempt of task 1 ends when its copy does, at the same moment."""
    context = TaskContext.get()
    if context.partitionId() == 1 and row == ROWS - 1:
        (folder / f"attempt {context.attemptNumber()}").touch()
        deadline = time.monotonic() + 100
        while not (folder / "attempt 1").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
    return row


lance.ensure_java()
builder = SparkSession.builder.master(master)
for key, value in {**SETTINGS, **lance.recommended_conf()}.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
happens = udf({"kill": kill_executor, "copy": wait_for_copy}[fault], LongType(), useArrow=False)
rows = spark.range(0, ROWS, numPartitions=PARTITIONS).select(happens("id").alias("id"))
done = lance.write_lance(rows, str(folder / "t"), max_rows_per_file=ROWS_PER_FILE, idempotency_key="once")
again = lance.write_lance(rows, str(folder / "t"), max_rows_per_file=ROWS_PER_FILE, idempotency_key="once")
seen = {
    "version": done.version,
    "rows": done.num_rows,
    "again": again.written,
    "happened": sorted(path.name for path in folder.iterdir() if path.is_file()),
}
(folder / "seen.json").write_text(json.dumps(seen))
spark.stop()
