import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("connect_program.py")


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What a program saw that starts a Connect server and works with it."""
    folder = tmp_path_factory.mktemp("connect")
    settings = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-W", "ignore", str(PROGRAM), str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path.cwd(), env=settings, timeout=280
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.spark
def test_connect_reads_and_writes(seen):
    assert seen["session"] == "pyspark.sql.connect.session"
    assert seen["written"] == 3
    assert seen["read"] == [[1, "a"], [3, None], [3, None]]
    assert seen["loaded"] == 3
    assert seen["pruned"] == ["s"]
    assert seen["view"] == 9
    assert seen["replaced"] == [3, 1]
    assert seen["changes"] == 1


@pytest.mark.spark
def test_connect_streams(seen):
    assert seen["streamed"]


@pytest.mark.spark
def test_errors_reach_the_client(seen):
    assert "no column 'nope'" in seen["error"]
