"""Make the data source ``lance`` known to a Spark session."""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec

import pyspark
from pyspark.errors import PySparkAttributeError, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.spark.catalog import install_catalogs
from lance_core.spark.common.options import PINNING_OPTIONS
from lance_core.spark.planner import install_planner
from lance_core.spark.source import LanceDataSource

MIN_PYSPARK = (4, 1)

_NO_BYTE_LIMIT = 2**31 - 1
"""The one value with which Spark does not look at the bytes of a batch; any other limit is looked at after each row."""


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("lance")`` and ``df.write.format("lance")`` work in a session.

    Registering again is harmless. Python workers import lance_core, so it must be installed where they run; those of
    a local session run this process's interpreter unless ``PYSPARK_PYTHON`` says otherwise.

    In a classic session, queries then read only the columns and rows that they need, unless
    ``spark.lance.pushdown`` is ``false``, and views and DataFrames of ``format("lance")`` without a version, tag or
    timestamp read the newest version whenever Spark plans a query. Other sessions read all columns and rows, and their
    views may stay at the version they were made at. The setting ``spark.sql.catalog.NAME=lance_core.LanceCatalog``
    gives a classic session a catalog for plain SQL; see docs/spark.md.

    Raises:
        UnsupportedError: pyspark is too old, or cannot have the catalog that the settings ask for.
        InvalidInputError: Something else is called ``lance`` in this session, for example a jar.
    """
    version = tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:2])
    if version < MIN_PYSPARK:
        needed = ".".join(map(str, MIN_PYSPARK))
        raise UnsupportedError(f"lance_core needs pyspark {needed} or later, not {pyspark.__version__}.")
    if not is_connect(spark):
        _use_this_python(spark)
        _activate(spark)
        install_catalogs(spark, install_planner(spark, PINNING_OPTIONS))
    try:
        spark.dataSource.register(LanceDataSource)
    except PySparkException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        if find_spec("pyspark_lance") is not None:
            return  # Spark has found the data source by itself, and keeps that one
        message = "This Spark session has another data source called lance; remove its jar (lance-spark) from it."
        raise InvalidInputError(message) from error


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is a client of Spark Connect."""
    try:
        spark.sparkContext  # noqa: B018 there is none in a client
    except PySparkAttributeError:
        return True
    return False


def is_case_sensitive(spark: SparkSession) -> bool:
    """Return whether a session takes names of columns that differ in case for different ones."""
    return str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true"


def _use_this_python(spark: SparkSession) -> None:
    """Let a local session start this interpreter; by default it takes the first ``python3`` on the ``PATH``."""
    if "PYSPARK_PYTHON" not in os.environ and str(spark.sparkContext.master).startswith("local"):
        spark.sparkContext.pythonExec = sys.executable


def _activate(spark: SparkSession) -> None:
    """Spark looks Python data sources up in the session that is active in this thread; in a new thread none is."""
    if SparkSession.getActiveSession() is not spark:
        spark.createDataFrame([], StructType([]))  # makes its session the active one


def recommended_conf(*, small_rows: bool = False) -> dict[str, str]:
    """Session settings that make Python data sources work well; none of them is required.

    Args:
        small_rows: Rows that go to Python are small: as many as ``spark.sql.execution.arrow.maxRecordsPerBatch`` says
            (10,000) fit into memory for each running task. Spark then does not add up the bytes of a batch after each
            row, a third of what a write of numbers and texts costs. Classic sessions do so by themselves for writes of
            such columns, with fewer rows in a batch of texts. Not for sessions that write images or long texts, of
            which a batch would have gigabytes.
    """
    conf = {
        # Python workers of a busy machine need longer than the 15 s they are given to call back.
        "spark.python.authenticate.socketTimeout": "120s",
    }
    if small_rows:
        conf["spark.sql.execution.arrow.maxBytesPerBatch"] = str(_NO_BYTE_LIMIT)
    return conf
