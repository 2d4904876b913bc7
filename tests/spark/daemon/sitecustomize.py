"""Imports once, in each of Spark's daemons of Python workers, what its forks would import for themselves.

A worker that fails ends, and the next one would import everything again. Python runs this module at its start if the
folder is on PYTHONPATH. Users have daemons without it: `test_submit` and `test_archive` start programs that do, too.

`WORKERS_HAVE_LANCE_CORE=no` leaves lance_core to the workers, of a program that ships it to them.
"""

import gc
import os
import sys
from importlib import import_module


def preload(worker):
    # Spark puts its archive of pyspark before the installed one, without bytecode. Each worker reads its directory
    # again for each package that came from it.
    sys.path[:] = [path for path in sys.path if not path.endswith((".zip", ".jar"))]
    import_module(worker)
    for name in ["pyarrow", *(["pandas"] if worker == "pyspark.worker" else [])]:  # others plan and commit
        import_module(name)
    if os.environ.get("WORKERS_HAVE_LANCE_CORE") != "no":
        for name in ("spark.source", "spark.reading.reader", "spark.writing.sink", "sql.parse"):
            import_module(f"lance_core.{name}")
        # A job that failed waits for tasks that still run, which those of tests do for milliseconds.
        import_module("lance_core.spark.common.task_names").LAST_TASKS = 1.0
    gc.collect()
    gc.freeze()


if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    preload(sys.orig_argv[3])
