"""Write a DataFrame from Spark as a Lance table and as Parquet, side by side.

    python benchmarks/spark_write.py [--rounds 5] [--warm-up 2] [--scale 0.1] [--data flights vectors taxi] [--cores 2]
    python benchmarks/spark_write.py --gigabytes 20    one write of so much of ``vectors``, beside one of a tenth of it

The DataFrame is cached first, so that only the write is measured; ``vectors`` is made anew each time, which ``noop``
tells. ``receive`` hands the rows to Python, which drops them: no data source in Python can be cheaper. Both are
measured again with Spark told that rows are small (`lance_core.spark.recommended_conf`), which spares it a look at the
bytes of a batch after each row. ``--gigabytes`` tells how the time per row grows with the size of a write, and the
largest resident memory of a Python worker over that of one that writes nothing.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cpu import cpu_seconds
from measure import bytes_on_disk
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from spark_rounds import (
    PARQUET,
    VECTORS_ROW_BYTES,
    Peak,
    Round,
    add_arguments,
    make_frame,
    make_vectors,
    print_head,
    print_line,
    rows_of,
    run_rounds,
    start_spark,
)

from lance_core.spark import recommended_conf, write_lance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


_SMALL_ROWS = recommended_conf(small_rows=True).items() - recommended_conf().items()


class Discarding(DataSource):
    """Takes rows in Python and does nothing with them: what a data source in Python costs before it writes."""

    @classmethod
    def name(cls) -> str:
        """The name to give to ``format``."""
        return "discarding"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002 Spark's names
        """The writer."""

        class Writer(DataSourceArrowWriter):
            def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
                for _ in iterator:
                    pass
                return WriterCommitMessage()

        return Writer()


def calls_of(frame: DataFrame, folder: Path) -> dict[str, Callable[[], object]]:
    """What writes the DataFrame, each into a folder of its own below the one that is given."""

    def receive(_path: str) -> None:
        frame.write.format("discarding").mode("append").save()

    def lance(path: str) -> None:
        write_lance(frame, path, mode="create")

    engines: dict[str, Callable[[str], object]] = {
        "noop": lambda _: frame.write.format("noop").mode("overwrite").save(),
        PARQUET: lambda path: frame.write.mode("overwrite").parquet(path),
        "receive": receive,
        "lance": lance,
        "receive, small rows": partial(_with_small_rows, frame.sparkSession, receive),
        "lance, small rows": partial(_with_small_rows, frame.sparkSession, lance),
    }

    def write(name: str) -> None:
        shutil.rmtree(folder / name, ignore_errors=True)
        engines[name](str(folder / name))

    return {name: partial(write, name) for name in engines}


def measure(frame: DataFrame, title: str, folder: Path, rounds: int, warm_up: int) -> None:
    """Write the DataFrame again and again; print what it costs."""
    found = run_rounds(calls_of(frame, folder), rounds, warm_up)
    print_head(title, ["MB", "bytes / Parquet"])
    parquet_size = bytes_on_disk(folder / PARQUET)
    for name, samples in found.items():
        size = bytes_on_disk(folder / name)
        more = [f"{size / 1e6:.1f}", f"{size / parquet_size:.2f}"] if size else ["", ""]
        print_line(name, samples, found[PARQUET], more)


def measure_growth(spark: SparkSession, gigabytes: float, cores: int, folder: Path) -> None:
    """Write once so much, and a tenth of it; print the time per row, its growth and the memory of a worker."""
    with Peak() as idle:
        calls_of(make_vectors(spark, 0, cores), folder)["lance"]()
    print("\n| GB of Arrow | engine | CPU, ns per row | growth | wall s | GB on disk | MB of a worker over base |")
    print("|---:|---|---:|---:|---:|---:|---:|", flush=True)
    first: dict[str, float] = {}
    for size in (gigabytes / 10, gigabytes):
        rows = int(size * 1e9 / VECTORS_ROW_BYTES)
        calls = calls_of(make_vectors(spark, rows, cores), folder)
        for name in (PARQUET, "lance"):
            if not first.get(name):
                calls[name]()  # until the JVM has compiled what runs often
            spent, peak = _peak_of(calls[name])
            nanoseconds = spent.cpu / rows * 1e9
            growth = nanoseconds / first.setdefault(name, nanoseconds)
            written = bytes_on_disk(folder / name) / 1e9
            shutil.rmtree(folder / name)
            over = f"{peak - idle.megabytes:.0f}" if name == "lance" else ""
            cells = [
                f"{size:g}",
                name,
                f"{nanoseconds:,.0f}",
                f"{growth:.2f}",
                f"{spent.wall:.0f}",
                f"{written:.2f}",
                over,
            ]
            print("| " + " | ".join(cells) + " |", flush=True)


def _peak_of(call: Callable[[], object]) -> tuple[Round, float]:
    """Seconds of a call, and the megabytes of the largest Python worker meanwhile."""
    with Peak() as peak:
        cpu, wall = cpu_seconds(), time.perf_counter()
        call()
        spent = Round(cpu_seconds() - cpu, time.perf_counter() - wall)
    return spent, peak.megabytes


def _with_small_rows(spark: SparkSession, write: Callable[[str], object], path: str) -> None:
    """Write while the session is set to small rows."""
    for key, value in _SMALL_ROWS:
        spark.conf.set(key, value)
    try:
        write(path)
    finally:
        for key, _ in _SMALL_ROWS:
            spark.conf.unset(key)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--gigabytes", type=float, help="of Arrow, in one write")
    arguments = parser.parse_args()
    spark = start_spark(arguments.cores)
    if arguments.gigabytes:
        with tempfile.TemporaryDirectory() as text:
            measure_growth(spark, arguments.gigabytes, arguments.cores, Path(text))
        spark.stop()
        return
    spark.dataSource.register(Discarding)
    for name in arguments.data:
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            frame = make_frame(spark, name, arguments.scale, arguments.cores, folder)
            title = f"{name}: {rows_of(name, arguments.scale):,} rows x {len(frame.columns)} columns"
            measure(frame, title, folder, arguments.rounds, arguments.warm_up)
            frame.unpersist()
    spark.stop()


if __name__ == "__main__":
    main()
