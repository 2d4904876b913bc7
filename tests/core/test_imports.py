import subprocess
import sys

import pytest

import lance_core

HEAVY = ["pyarrow.compute", "pyarrow.dataset", "sqlglot", "sqlite3", "pandas", "polars", "s3fs", "pyspark", "dagster"]


def test_importing_is_light():
    """Every Spark worker imports lance_core; what few calls need is imported by them."""
    code = f"import sys, lance_core; print(*[one for one in {HEAVY} if one in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == []


def test_every_public_name_is_there():
    assert set(lance_core.__all__) <= set(dir(lance_core))
    for name in lance_core.__all__:
        assert getattr(lance_core, name) is not None
    assert lance_core.CleanupStats(old_versions=1).old_versions == 1
    assert lance_core.__version__[0].isdigit()
    with pytest.raises(AttributeError, match="no attribute 'Session'"):
        _ = lance_core.Session
