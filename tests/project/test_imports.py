"""Importing lance_core stays light, because every Spark executor does it."""

import subprocess
import sys

HEAVY = ["pyspark", "dagster", "pandas", "polars", "fsspec", "sqlglot", "pyarrow.dataset", "lance"]


def test_import_is_light():
    code = f"import sys, lance_core; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_spark_side_does_not_import_dagster():
    code = "import sys, lance_core.spark; print('dagster' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
