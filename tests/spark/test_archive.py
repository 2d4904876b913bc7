"""lance_core as an archive: a program whose processes find nothing else of it writes and reads a table."""

import os
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import lance_core
from lance_core.spark import archive_lance_core

pytestmark = pytest.mark.spark

PROGRAM = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
import lance_core
from lance_core.spark import delete_lance, read_lance, write_lance
assert ".zip" in lance_core.__file__, lance_core.__file__
write_lance(spark.range(10), sys.argv[1])
delete_lance(spark, sys.argv[1], "id > 6")
assert read_lance(spark, sys.argv[1]).count() == 7
spark.stop()
"""


def test_the_same_files_give_the_same_archive(tmp_path):
    one, other = (Path(archive_lance_core(tmp_path / name)) for name in ("a.zip", "b.zip"))
    assert one.read_bytes() == other.read_bytes()
    names = zipfile.ZipFile(one).namelist()
    assert {"lance_core/__init__.py", "lance_core/spark/writing/sink.py", "lance_core/_proto/table_pb2.pyc"} <= set(
        names
    )
    assert not [name for name in names if "__pycache__" in name]


def test_spark_submit_ships_the_archive(tmp_path):
    """The environment has lance_core installed in place, so this runs without the file that says where."""
    archive = archive_lance_core(tmp_path / "lance_core.zip")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    packages = tmp_path / "packages"
    packages.mkdir()
    for found in Path(site.getsitepackages()[0]).iterdir():
        if found.suffix != ".pth" and "lance" not in found.name:
            (packages / found.name).symlink_to(found)
    python = tmp_path / "python"
    # -S leaves out the folder in which lance_core is installed
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    submit = Path(site.getsitepackages()[0], "pyspark", "bin", "spark-submit")
    command = [
        submit,
        "--master",
        "local[2]",
        "--conf",
        "spark.ui.enabled=false",
        "--conf",
        "spark.driver.host=127.0.0.1",
        "--driver-memory",
        "512m",
        "--py-files",
        archive,
        program,
        tmp_path / "table",
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": str(python), "PYTHONPATH": str(packages)}
    done = subprocess.run(
        list(map(str, command)), env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert lance_core.dataset(tmp_path / "table").count_rows() == 7
