import os
import sys
import warnings
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lance_core.spark import ensure_java, recommended_conf, register


@pytest.fixture(scope="session")
def spark():
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        **recommended_conf(),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "America/St_Johns",  # far from UTC, and not by whole hours
        "spark.log.level": "OFF",
    }
    builder = SparkSession.builder.master("local[2,4]").appName("tests")  # a task is tried four times
    for key, value in conf.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pylance, if another test imported it, warns of every fork
        session = builder.getOrCreate()
    register(session)
    yield session
    session.stop()


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "a table")


@pytest.fixture
def data_files(uri):
    """Names of the files in the data folder, whether a version knows them or not."""

    def names():
        folder = Path(uri, "data")
        return sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []

    return names
