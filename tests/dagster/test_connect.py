"""The IO manager with frames of Spark Connect."""

import json
import subprocess
import sys

import pytest

import lance_core


@pytest.mark.spark
def test_a_pipeline_on_connect_has_column_lineage(tmp_path, preloading):
    """Read from the plan of the client; frames that are made from no table have none, and nobody is warned of it."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.dagster.connect_program", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=preloading, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["session"] == "pyspark.sql.connect.session"
    assert seen["warned"] == []
    assert [one.get("lance/column_lineage", "").splitlines()[2:] for one in seen["metadata"]] == [
        [], [], [], ["| `day` | **events**: `day` |", "| `total` | **events**: `n` |"],
    ]  # fmt: skip
    assert "dagster/column_schema" in seen["keys"]
    numbers = [[one[f"lance/{key}"] for key in ("operation", "version", "rows_written")] for one in seen["metadata"]]
    assert numbers == [["create", 1, 5], ["merge", 2, 5], ["merge", 3, 5], ["overwrite", 1, 2]]
    events = lance_core.dataset(tmp_path / "events.lance").to_table().to_pylist()
    assert sorted((row["day"], row["id"]) for row in events) == [(day, n) for day in "ab" for n in range(5)]
    sums = lance_core.dataset(tmp_path / "sums.lance").to_table().sort_by("day").to_pydict()
    assert sums == {"day": ["a", "b"], "total": [6, 6]}
