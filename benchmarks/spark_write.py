"""Write a DataFrame from Spark as a Lance table and as Parquet, side by side.

    python benchmarks/spark_write.py [--rounds 5] [--warm-up 2] [--scale 0.1] [--data flights vectors taxi] [--cores 2]

The DataFrame is cached first, so that only the write is measured; ``vectors`` is made anew each time, which ``noop``
tells. ``receive`` hands the rows to Python, which drops them: no data source in Python can be cheaper. Both are
measured again with Spark told that rows are small (`lance_core.spark.recommended_conf`), which spares it a look at the
bytes of a batch after each row.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from measure import bytes_on_disk
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from spark_rounds import PARQUET, add_arguments, make_frame, print_head, print_line, rows_of, run_rounds, start_spark

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
    arguments = parser.parse_args()
    spark = start_spark(arguments.cores)
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
