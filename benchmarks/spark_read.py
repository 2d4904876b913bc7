"""Read the same table with Spark from Lance and from Parquet, side by side; prints ratios.

    python benchmarks/spark_read.py [--rounds 5] [--scale 0.1] [--data flights embeddings] [--cores 2]
    [--batch-size 16384] [--queries full two filter]

Queries: all columns to Spark's noop sink (``full``); the sum of two numeric columns, pruned (``two``), which for Lance
means ``columns=``; few rows found by a filter (``filter``). CPU is that of this process and all below it: the JVM and
the Python workers. Rounds are interleaved and their order rotates; the first is a warm-up. A line shows the median over
the rounds and the ratio of Lance to Parquet: below 1 is cheaper.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from cpu import cpu_seconds
from data import DATA_SETS, load
from spark_write import start_spark

import lance_core
from lance_core.spark import read_lance

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


def numeric_columns(table: pa.Table) -> list[str]:
    """The first two columns of numbers."""
    return [one.name for one in table.schema if pa.types.is_integer(one.type) or pa.types.is_floating(one.type)][:2]


def consume(frame: DataFrame) -> None:
    """Read all rows and do nothing with them."""
    frame.write.format("noop").mode("overwrite").save()


def add_up(frame: DataFrame, names: list[str]) -> None:
    """Sums of some columns."""
    frame.selectExpr(*(f"sum(`{name}`)" for name in names)).collect()


def queries(spark: SparkSession, table: pa.Table, folder: Path, batch_size: int) -> dict[str, dict[str, Any]]:
    """What to run, by query and engine."""
    parquet, lance = str(folder / "parquet"), str(folder / "lance")
    names = numeric_columns(table)
    options: dict[str, Any] = {"batch_size": batch_size}
    return {
        "full": {
            "parquet": lambda: consume(spark.read.parquet(parquet)),
            "lance": lambda: consume(read_lance(spark, lance, **options)),
        },
        "two": {
            "parquet": lambda: add_up(spark.read.parquet(parquet), names),
            "lance": lambda: add_up(read_lance(spark, lance, columns=names, **options), names),
        },
        "filter": {
            "parquet": lambda: consume(spark.read.parquet(parquet).where(f"`{names[0]}` = 7")),
            "lance": lambda: consume(read_lance(spark, lance, filter=f"`{names[0]}` = 7", **options)),
        },
    }


def measure(rounds: int, engines: dict[str, Callable[[], object]]) -> dict[str, tuple[float, float]]:
    """Median CPU and wall seconds of each engine."""
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    names = list(engines)
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            cpu, wall = cpu_seconds(), time.perf_counter()
            engines[name]()
            if number:
                samples[name].append((cpu_seconds() - cpu, time.perf_counter() - wall))
    return {name: (*map(statistics.median, zip(*spent, strict=True)),) for name, spent in samples.items()}  # type: ignore[misc]


def write_both(table: pa.Table, folder: Path, parts: int) -> None:
    """The same rows in as many files of each kind."""
    rows = -(-table.num_rows // parts)
    (folder / "parquet").mkdir()
    for number in range(parts):
        pq.write_table(
            table.slice(number * rows, rows), folder / "parquet" / f"{number}.parquet", coerce_timestamps="us"
        )
    lance_core.write_dataset(table, folder / "lance", max_rows_per_file=rows)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=0.1, help="share of the real sizes")
    parser.add_argument("--data", nargs="+", choices=sorted(DATA_SETS), default=["flights"])
    parser.add_argument("--queries", nargs="+", choices=["full", "two", "filter"], default=["full", "two", "filter"])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16384)
    arguments = parser.parse_args()
    spark = start_spark(arguments.cores)
    for name in arguments.data:
        table = load(name, arguments.scale)
        print(f"{name}: {table.num_rows:,} rows x {table.num_columns} columns, {table.nbytes / 1e6:.0f} MB in memory")
        with tempfile.TemporaryDirectory() as text:
            write_both(table, Path(text), arguments.cores)
            found = queries(spark, table, Path(text), arguments.batch_size)
            for query in arguments.queries:
                results = measure(arguments.rounds, found[query])
                (base_cpu, base_wall), (cpu, wall) = results["parquet"], results["lance"]
                print(
                    f"  {query:7} parquet CPU {base_cpu:5.2f} s, wall {base_wall:5.2f} s   lance CPU {cpu:5.2f} s, "
                    f"wall {wall:5.2f} s   ratio CPU {cpu / base_cpu:.2f}, wall {wall / base_wall:.2f}"
                )
    spark.stop()


if __name__ == "__main__":
    main()
