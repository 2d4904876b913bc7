"""Write a DataFrame from Spark as a Lance table and as Parquet, side by side; prints ratios.

    python benchmarks/spark_write.py [--rounds 7] [--scale 0.1] [--data flights vectors taxi] [--partitions 2]

The DataFrame is cached first, so that only the write is measured; ``vectors`` is made anew each time, which ``noop``
tells. ``receive`` hands the rows to Python, which drops them: no data source in Python can be cheaper. CPU is that of
this process and all below it: the JVM and the Python workers, also those that have ended. Rounds are interleaved and
their order rotates; the first is a warm-up. A line shows the median over the rounds and its ratio to Parquet: below 1
is cheaper.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from cpu import cpu_seconds
from data import DATA_SETS, load
from measure import bytes_on_disk
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from lance_core.spark import ensure_java, recommended_conf, register, write_lance
from lance_core.spark.types import VECTOR_SIZE_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType


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


def start_spark(cores: int) -> SparkSession:
    """A local session without a web page."""
    ensure_java()
    builder: Any = SparkSession.builder.master(f"local[{cores}]").appName("spark_write")
    conf = {
        **recommended_conf(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
    }
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    register(spark)
    spark.dataSource.register(Discarding)
    return spark


def cached_frame(spark: SparkSession, table: pa.Table, folder: Path, partitions: int) -> Any:
    """The table as a DataFrame in memory; vector columns are marked as such."""
    source = folder / "source.parquet"
    pq.write_table(table, source, coerce_timestamps="us")
    frame = spark.read.parquet(str(source)).repartition(partitions)
    for field in table.schema:
        if hasattr(field.type, "list_size"):
            frame = frame.withMetadata(field.name, {VECTOR_SIZE_KEY: field.type.list_size})
    frame = frame.cache()
    frame.count()
    return frame


def vectors_frame(spark: SparkSession, rows: int, partitions: int) -> Any:
    """An int64, a double, a text of 20 characters and an array of 16 floats, made by Spark itself; not cached."""
    floats = ", ".join(f"float((id * {17 + i}) % 1000003 / 1000003)" for i in range(16))
    return spark.range(0, rows, numPartitions=partitions).selectExpr(
        "id", "double(id * 7919 % 1000003) / 3 v", "substr(md5(string(id % 500000)), 1, 20) s", f"array({floats}) z"
    )


def measure(rounds: int, engines: dict[str, Callable[[Path], object]], folder: Path) -> dict[str, Any]:
    """Median CPU and wall seconds and bytes of each engine."""
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    sizes: dict[str, int] = {}
    names = list(engines)
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            target = folder / name
            cpu, wall = cpu_seconds(), time.perf_counter()
            engines[name](target)
            spent = (cpu_seconds() - cpu, time.perf_counter() - wall)
            if number:
                samples[name].append(spent)
            sizes[name] = bytes_on_disk(target)
            shutil.rmtree(target, ignore_errors=True)
    return {
        name: (*(statistics.median(column) for column in zip(*spent, strict=True)), sizes[name])
        for name, spent in samples.items()
    }


def report(title: str, results: dict[str, Any]) -> None:
    """Print one line for each engine."""
    print(title)
    base = results["parquet"]
    for engine, (cpu, wall, size) in results.items():
        line = f"  {engine:8} CPU {cpu:6.2f} s   wall {wall:6.2f} s   {size / 1e6:8.1f} MB"
        if engine != "parquet":
            line += (
                f"   ratio to Parquet: CPU {cpu / base[0]:.2f}, wall {wall / base[1]:.2f}, bytes {size / base[2]:.2f}"
            )
        print(line)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--scale", type=float, default=0.1, help="share of the real sizes")
    parser.add_argument("--data", nargs="+", choices=sorted([*DATA_SETS, "vectors"]), default=["flights"])
    parser.add_argument("--partitions", type=int, default=2)
    arguments = parser.parse_args()
    spark = start_spark(arguments.partitions)
    for name in arguments.data:
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            if name == "vectors":
                rows = int(10_000_000 * arguments.scale)
                frame, title = vectors_frame(spark, rows, arguments.partitions), f"vectors: {rows:,} rows x 4 columns"
            else:
                table = load(name, arguments.scale)
                frame = cached_frame(spark, table, folder, arguments.partitions)
                title = f"{name}: {table.num_rows:,} rows x {table.num_columns} columns, {table.nbytes / 1e6:.0f} MB"
            engines: dict[str, Callable[[Path], object]] = {
                "noop": lambda _, frame=frame: frame.write.format("noop").mode("overwrite").save(),
                "parquet": lambda path, frame=frame: frame.write.mode("overwrite").parquet(str(path)),
                "receive": lambda _, frame=frame: frame.write.format("discarding").mode("append").save(),
                "lance": lambda path, frame=frame: write_lance(frame, str(path)),
            }
            report(title, measure(arguments.rounds, engines, folder))
            frame.unpersist()
    spark.stop()


if __name__ == "__main__":
    main()
