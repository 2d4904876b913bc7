"""Imports once, in each of Spark's daemons of Python workers, what its forks would import for themselves.

A worker that fails ends, and the next one would import everything again. Python runs this module at its start if the
folder is on PYTHONPATH. Users have daemons without it: `test_submit`, `test_archive` and `test_connect` start programs
that do, too.
"""

import sys
from importlib import import_module

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    of_tasks = ["pandas"] if sys.orig_argv[3:] == ["pyspark.worker"] else []  # others plan and commit
    for name in ("pyarrow", "lance_core.spark.source", "lance_core.spark.reader", "lance_core.spark.sink", *of_tasks):
        import_module(name)
