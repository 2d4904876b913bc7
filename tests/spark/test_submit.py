"""Programs that never mention lance_core: Spark finds the data source by itself."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest

import lance_core
from lance_core.spark import ensure_java

ROOT = Path(lance_core.__file__).parent.parent
MODULE = "lance_core/spark/pyspark_lance.py"

PROGRAM = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
source, target = sys.argv[1:]
spark.read.format("lance").load(source).where("id > 0").write.format("lance").mode("append").save(target)
spark.sql(f"CREATE TEMPORARY VIEW t USING lance OPTIONS (path '{target}')")
spark.sql("INSERT INTO t SELECT id + 10 FROM t")
spark.stop()
"""


def test_the_wheel_has_the_module_where_spark_looks_for_it():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"] == {MODULE: "pyspark_lance.py"}


@pytest.mark.spark
def test_spark_submit_needs_no_line_of_code(tmp_path):
    ensure_java()
    shutil.copy(ROOT / MODULE, tmp_path / "pyspark_lance.py")  # as the wheel does
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    lance_core.write_dataset(pa.table({"id": [0, 1, 2]}), source)
    command = [shutil.which("spark-submit", path=Path(sys.executable).parent), "--master", "local[2]"]
    command += ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1", program, source, target]
    settings = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    assert sorted(lance_core.dataset(target).to_table()["id"].to_pylist()) == [1, 2, 11, 12]
