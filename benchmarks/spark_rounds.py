"""What the benchmarks of Spark share: a session, the tables, rounds side by side, a table of the results.

CPU is that of this process and all below it: the JVM and the Python workers, also those that have ended. Rounds are
interleaved and their order rotates. The first ones are not counted: until the JVM has compiled what runs often, both
sides are several times as slow. Figures are medians over the rounds; ratios are made within each round.
Python keeps what it compiled, as it does wherever it may write beside the modules.
"""

from __future__ import annotations

import atexit
import os
import shutil
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow.parquet as pq
from cpu import cpu_seconds
from data import DATA_SETS, load
from pyspark.sql import SparkSession
from pyspark.sql.types import NumericType

from lance_core.spark import ensure_java, recommended_conf, register
from lance_core.spark.common.types import VECTOR_SIZE_KEY

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame

VECTORS, VECTORS_ROWS, VECTORS_ROW_BYTES = "vectors", 10_000_000, 104
NAMES = sorted([*DATA_SETS, VECTORS])
PARQUET = "parquet"
"""The engine that stands for 1."""


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of one call."""

    cpu: float
    wall: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that the benchmarks of Spark have in common."""
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=2, help="rounds before those that count")
    parser.add_argument("--scale", type=float, default=0.1, help="share of the real sizes")
    parser.add_argument("--data", nargs="+", choices=NAMES, default=["flights"])
    parser.add_argument("--cores", type=int, default=2, help="and partitions")


def start_spark(cores: int) -> SparkSession:
    """A local session without a web page."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if "PYTHONPYCACHEPREFIX" not in os.environ:
        os.environ["PYTHONPYCACHEPREFIX"] = folder = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    ensure_java()
    builder: Any = SparkSession.builder.master(f"local[{cores}]").appName("benchmark")
    conf = {
        **recommended_conf(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
    }
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    register(spark)
    return spark


def rows_of(name: str, scale: float) -> int:
    """Rows of a data set."""
    return int((VECTORS_ROWS if name == VECTORS else DATA_SETS[name].rows) * scale)


def two_numbers(frame: DataFrame) -> list[str]:
    """The first two columns of numbers."""
    return [field.name for field in frame.schema if isinstance(field.dataType, NumericType)][:2]


def make_frame(spark: SparkSession, name: str, scale: float, partitions: int, folder: Path) -> DataFrame:
    """A data set as a DataFrame: in memory, but ``vectors``, which Spark makes anew each time."""
    if name == VECTORS:
        return make_vectors(spark, rows_of(name, scale), partitions)
    table = load(name, scale)
    source = folder / "source.parquet"
    pq.write_table(table, source, coerce_timestamps="us")
    frame: Any = spark.read.parquet(str(source)).repartition(partitions)
    for field in table.schema:
        if hasattr(field.type, "list_size"):
            frame = frame.withMetadata(field.name, {VECTOR_SIZE_KEY: field.type.list_size})
    frame = frame.cache()
    frame.count()
    return frame


def make_vectors(spark: SparkSession, rows: int, partitions: int) -> DataFrame:
    """An int64, a double, a text of 20 characters and an array of 16 floats: `VECTORS_ROW_BYTES` in Arrow."""
    floats = ", ".join(f"float((id * {17 + i}) % 1000003 / 1000003)" for i in range(16))
    return spark.range(0, rows, numPartitions=partitions).selectExpr(
        "id", "double(id * 7919 % 1000003) / 3 v", "substr(md5(string(id % 500000)), 1, 20) s", f"array({floats}) z"
    )


def run_rounds(calls: Mapping[str, Callable[[], object]], rounds: int, warm_up: int) -> dict[str, list[Round]]:
    """Run each call once in each round."""
    found: dict[str, list[Round]] = {name: [] for name in calls}
    names = list(calls)
    for number in range(warm_up + rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            cpu, wall = cpu_seconds(), time.perf_counter()
            calls[name]()
            if number >= warm_up:
                found[name].append(Round(cpu_seconds() - cpu, time.perf_counter() - wall))
    return found


def medians(samples: list[Round]) -> tuple[float, float]:
    """CPU and wall seconds."""
    return statistics.median(one.cpu for one in samples), statistics.median(one.wall for one in samples)


def print_head(title: str, columns: Iterable[str] = ()) -> None:
    """Begin a table in Markdown."""
    names = [title, "CPU s", "wall s", "CPU / Parquet", "wall / Parquet", *columns]
    print("\n| " + " | ".join(names) + " |\n|---|" + "---:|" * (len(names) - 1), flush=True)


def print_line(title: str, samples: list[Round], base: list[Round], more: Iterable[str] = ()) -> None:
    """One line of it."""
    cpu, wall = medians(samples)
    cells = [title, f"{cpu:.2f}", f"{wall:.2f}", _ratio(samples, base, "cpu"), _ratio(samples, base, "wall"), *more]
    print("| " + " | ".join(cells) + " |", flush=True)


def _ratio(samples: list[Round], base: list[Round], name: str) -> str:
    """Median, least and largest of the ratios within rounds."""
    found = [getattr(one, name) / getattr(other, name) for one, other in zip(samples, base, strict=True)]
    return "1" if samples is base else f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


class Peak:
    """Largest resident memory of any Python worker of Spark while a block runs, in MB."""

    def __init__(self) -> None:
        self.megabytes = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.megabytes = max([self.megabytes, *map(_resident, Path("/proc").glob("[0-9]*"))])


def _resident(process: Path) -> float:
    try:
        if b"pyspark.daemon" not in (process / "cmdline").read_bytes():
            return 0.0
        pages = (process / "statm").read_text().split()[1]
    except OSError:
        return 0.0  # it ended meanwhile
    return int(pages) * 4096 / 1e6
