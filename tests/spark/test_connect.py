import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def seen(tmp_path_factory, preloading):
    """What a program saw that starts a Connect server and works with it."""
    folder = tmp_path_factory.mktemp("connect")
    settings = {**preloading, "WORKERS_HAVE_LANCE_CORE": "no"}  # the program ships it
    command = [sys.executable, "-W", "ignore", "-m", "tests.spark.connect_program", str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path.cwd(), env=settings, timeout=800
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
def test_connect_changes_rows_and_columns(seen):
    """Even ids of 90 to 99 get their negative as v, 100 to 109 are new; then ids like 13 are gone."""
    values = sum(2 * i for i in range(100)) - sum(3 * i for i in range(90, 100, 2)) - sum(range(100, 110))
    assert seen["merged"] == [5, 10, values]
    assert seen["merged_again"] == [True, False]
    assert (seen["updated"], seen["deleted"]) == (30, 11)
    assert seen["zone_maps"] == ["id_idx"]
    assert seen["by_zone_map"] == [42]
    assert seen["compacted"]
    assert seen["rows"] == [
        {"id": 28, "v": 56, "s": "28!", "twice": 112, "next": "29"},
        {"id": 42, "v": 84, "s": "42", "twice": 168, "next": "43"},
        {"id": 91, "v": 182, "s": "91", "twice": 364, "next": None},
        {"id": 104, "v": -104, "s": None, "twice": -208, "next": None},
        99,
    ]
    assert "do not match within='id < 95'" in seen["merge_error"]
    assert seen["table"] == [1, 3, 96, ["Delete", "Update"], 96]
    assert seen["versions"] == 11  # a compaction that remaps an index reserves the ids of its fragments first


@pytest.mark.spark
@pytest.mark.skipif(find_spec("pyspark.sql.streaming.datasource") is None, reason="streaming reads need pyspark 4.2")
def test_connect_streams(seen):
    assert seen["streamed"]
    assert seen["batches"] == [4, 1]


@pytest.mark.spark
def test_connect_overwrites_and_writes_to_branches(seen):
    assert seen["branch"] == [1, 3, 3]
    assert seen["main and branch"] == [4, 6]
    assert seen["overwritten"] == [4, 3, 2]


@pytest.mark.spark
def test_connect_adds_columns(seen):
    assert "option mergeSchema" in seen["unknown column"]
    assert seen["wider"] == [[2, None, None], [3, None, None], [4, 7, None], [5, None, "x"]]


@pytest.mark.spark
def test_the_last_line_of_an_error_says_what_is_wrong(seen):
    wrong = [
        "InvalidInputError: no column 'nope'",
        "InvalidInputError: cannot parse the predicate 'id >'",
        "UnsupportedError: predicate 'nope(id) = 1': function nope is not supported",
        "VersionNotFoundError: there is no version 99",
        "RefNotFoundError: there is no tag",
        "RefNotFoundError: there is no branch",
        "DatasetNotFoundError: there is no Lance dataset",
        "InvalidInputError: The option 'starting_version' is 100",
    ]
    assert len(seen["errors"]) == len(wrong)
    for line, text in zip(seen["errors"], wrong, strict=True):
        assert f"lance_core.errors.{text}" in line


@pytest.mark.spark
def test_executors_get_lance_core_from_a_client(seen):
    assert seen["shipped"].endswith("lance_core.zip/lance_core/__init__.pyc")
