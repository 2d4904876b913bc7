import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import lance_core

HEAVY = ["pyarrow.compute", "pyarrow.dataset", "sqlglot", "sqlite3", "pandas", "polars", "pyspark", "dagster"]
HEAVY += ["obstore", "boto3", "secrets", "difflib"]
RARE = ["optimize", "maintenance.compact", "merge_insert", "change.merge", "verification", "file.read.v0_1"]
RARE += ["operations"]
HEAVY += [f"lance_core.{one}" for one in RARE]


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
    with pytest.raises(AttributeError, match="no attribute 'Sessions'"):
        _ = lance_core.Sessions


READ = """
import sys
import lance_core
table = lance_core.dataset(sys.argv[1])
work = sys.argv[2]
if work == "scan":
    table.to_table(with_row_id=True)
if work == "take":
    table.take([5, 1, 5, 900])
    table.take(list(range(0, 3000, 2)))
print(table.count_rows() if "pandas" not in sys.modules else "pandas")
"""


@pytest.mark.parametrize("work", ["scan", "take"])
def test_reading_does_not_import_pandas(tmp_path, work):
    """pyarrow imports it for the first array that it makes of Python's or numpy's values."""
    numbers = np.arange(3000)
    lists = [{"name": f"{one}", "count": one} for one in range(3)]
    table = pa.table(
        {
            "number": numbers,
            "text": [f"row {one}" for one in numbers],
            "words": [f"word {one % 7}" for one in numbers],
            "lists": pa.array([lists[: one % 4] if one % 5 else None for one in range(3000)]),
        }
    )
    dataset = lance_core.write_dataset(table, tmp_path / "t", max_rows_per_file=2000)
    dataset.delete("number = 3")
    answer = subprocess.run([sys.executable, "-c", READ, dataset.uri, work], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["2999"]
