import subprocess
import sys

HEAVY = ["pyarrow.compute", "pyarrow.dataset", "sqlglot", "sqlite3", "pandas", "polars", "s3fs", "pyspark", "dagster"]


def test_importing_is_light():
    """Every Spark worker imports lance_core; what few calls need is imported by them."""
    code = f"import sys, lance_core; print(*[one for one in {HEAVY} if one in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == []
