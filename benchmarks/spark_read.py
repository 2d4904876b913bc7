"""Read the same table with Spark from Lance and from Parquet, both written by Spark, side by side.

    python benchmarks/spark_read.py [--rounds 5] [--warm-up 2] [--scale 0.1] [--data flights vectors taxi] [--cores 2]
    [--queries full two filter] [--batch-size 16384]

Queries: all columns to Spark's noop sink (``full``); the sum of two numeric columns, pruned (``two``), which for Lance
means ``columns=``; few rows found by a filter (``filter``).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_rounds import (
    PARQUET,
    add_arguments,
    make_frame,
    print_head,
    print_line,
    rows_of,
    run_rounds,
    start_spark,
    two_numbers,
)

from lance_core.spark import read_lance, write_lance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

QUERIES = ("full", "two", "filter")


def consume(frame: DataFrame) -> None:
    """Read all rows and do nothing with them."""
    frame.write.format("noop").mode("overwrite").save()


def add_up(frame: DataFrame, names: Sequence[str]) -> None:
    """Sums of some columns."""
    frame.selectExpr(*(f"sum(`{name}`)" for name in names)).collect()


def queries(
    spark: SparkSession, folder: Path, names: Sequence[str], batch_size: int | None = None
) -> dict[str, dict[str, Callable[[], object]]]:
    """What to run, by query and engine."""
    parquet, lance = str(folder / PARQUET), str(folder / "lance")
    options: dict[str, Any] = {"batch_size": batch_size}
    return {
        "full": {
            PARQUET: lambda: consume(spark.read.parquet(parquet)),
            "lance": lambda: consume(read_lance(spark, lance, **options)),
        },
        "two": {
            PARQUET: lambda: add_up(spark.read.parquet(parquet), names),
            "lance": lambda: add_up(read_lance(spark, lance, columns=names, **options), names),
        },
        "filter": {
            PARQUET: lambda: consume(spark.read.parquet(parquet).where(f"`{names[0]}` = 7")),
            "lance": lambda: consume(read_lance(spark, lance, filter=f"`{names[0]}` = 7", **options)),
        },
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=QUERIES)
    parser.add_argument("--batch-size", type=int)
    arguments = parser.parse_args()
    spark = start_spark(arguments.cores)
    for name in arguments.data:
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            frame = make_frame(spark, name, arguments.scale, arguments.cores, folder)
            frame.write.parquet(str(folder / PARQUET))
            write_lance(frame, str(folder / "lance"))
            frame.unpersist()
            print_head(f"{name}: {rows_of(name, arguments.scale):,} rows x {len(frame.columns)} columns")
            found = queries(spark, folder, two_numbers(frame), arguments.batch_size)
            for query in arguments.queries:
                results = run_rounds(found[query], arguments.rounds, arguments.warm_up)
                for engine, samples in results.items():
                    print_line(f"{query}, {engine}", samples, results[PARQUET])
    spark.stop()


if __name__ == "__main__":
    main()
