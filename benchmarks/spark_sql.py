"""Plain SQL over Lance and over Parquet in Spark, side by side: views, nothing else.

    python benchmarks/spark_sql.py [--rounds 3] [--warm-up 1] [--scale 0.1] [--cores 2]
    [--parts queries lookups key writes merge memory]

Tables are like those of TPC-H, of which ``--scale`` is the scale factor: at 0.5, ``lineitem`` has 3 million rows.
``queries`` are 12 queries of it; ``lookups`` count all rows and read 2 of 300 columns; ``key`` finds one row of
``orders`` by its key, which has an index in Lance; ``writes`` write five tables; ``merge`` upserts a tenth as many rows
as ``orders`` has, beside Parquet's join and overwrite; ``memory`` is the peak of a Python worker that writes images of
1 GB at scale 1 in one task, over one that writes nothing. All answers are compared.
"""

from __future__ import annotations

import argparse
import math
import re
import shutil
import statistics
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql.functions import upper
from spark_queries import QUERIES, TABLES, make_table
from spark_rounds import PARQUET, print_head, print_line, run_rounds, start_spark

from lance_core.spark import create_index_lance, merge_lance, write_lance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from spark_rounds import Round

_TABLE = re.compile(rf"\b({'|'.join(TABLES)})\b")
PARTS = {
    "queries": tuple(TABLES),
    "lookups": ("lineitem",),
    "key": ("orders",),
    "writes": ("lineitem", "orders"),
    "merge": ("orders",),
    "memory": (),
}
"""The tables that each part needs."""


def ratio(samples: list[Round], base: list[Round]) -> float:
    """Median of the ratios of CPU within rounds."""
    return statistics.median(one.cpu / other.cpu for one, other in zip(samples, base, strict=True))


class Bench:
    """The tables in both formats, and how often calls run."""

    def __init__(self, spark: SparkSession, folder: Path, options: argparse.Namespace) -> None:
        self.spark = spark
        self.folder = folder
        self.options = options
        self.tables = [name for name in TABLES if any(name in PARTS[part] for part in options.parts)]
        self.ratios: dict[str, float] = {}

    def path(self, engine: str, name: str) -> str:
        """Address of a table."""
        return str(self.folder / engine / name)

    def save(self, frame: DataFrame, name: str) -> None:
        """Write a table in both formats."""
        frame.write.mode("overwrite").parquet(self.path(PARQUET, name))
        write_lance(self.spark.read.parquet(self.path(PARQUET, name)), self.path("lance", name), mode="overwrite")

    def show(self) -> None:
        """Make views of both formats, once, as users do."""
        for engine in (PARQUET, "lance"):
            for name in self.tables:
                source = self.spark.read.format(engine).load(self.path(engine, name))
                source.createOrReplaceTempView(f"{engine}_{name}")

    def measure(self, title: str, engines: Mapping[str, Callable[[], Any]], *, check: bool = True) -> None:
        """Run both again and again; print what they cost."""
        if check:
            answers = [sorted(map(str, call())) for call in engines.values()]
            if answers[0] != answers[1]:
                message = f"{title}: the answers differ"
                raise SystemExit(message)
        samples = run_rounds(engines, self.options.rounds, self.options.warm_up)
        for engine, rounds in samples.items():
            print_line(f"{title}, {engine}", rounds, samples[PARQUET])
        self.ratios[title] = ratio(samples["lance"], samples[PARQUET])

    def sql(self, engine: str, text: str) -> list[Any]:
        """The rows of a query over the views of one format."""
        return self.spark.sql(_TABLE.sub(rf"{engine}_\1", text)).collect()


def queries(bench: Bench) -> None:
    """The queries of TPC-H."""
    print_head("plain SQL")
    for title, text in QUERIES.items():
        bench.measure(title, {engine: partial(bench.sql, engine, text) for engine in (PARQUET, "lance")})
    found = [bench.ratios[title] for title in QUERIES]
    mean = math.exp(statistics.mean(map(math.log, found)))
    print(f"\ngeometric mean {mean:.2f}, worst {max(found):.2f}", flush=True)


def lookups(bench: Bench) -> None:
    """Queries that read little."""
    print_head("lookups")
    wide = bench.spark.range(0, int(500_000 * bench.options.scale) + 1).selectExpr(
        "id", *(f"double(hash(id, {i})) c{i}" for i in range(299))
    )
    bench.save(wide, "wide")
    text = "SELECT count(*) FROM lineitem"
    bench.measure("count(*)", {engine: partial(bench.sql, engine, text) for engine in (PARQUET, "lance")})

    def add(engine: str) -> list[Any]:
        frame = bench.spark.read.format(engine).load(bench.path(engine, "wide"))
        return frame.selectExpr("sum(c7)", "sum(c250)").collect()

    bench.measure("2 of 300 columns", {engine: partial(add, engine) for engine in (PARQUET, "lance")})


def key(bench: Bench) -> None:
    """One row by its key: Parquet looks at the statistics of row groups, Lance at an index."""
    print_head("one key")
    chosen = bench.spark.read.parquet(bench.path(PARQUET, "orders")).limit(1).collect()[0]["o_orderkey"]
    create_index_lance(bench.spark, bench.path("lance", "orders"), "o_orderkey", "BTREE")
    text = f"SELECT * FROM orders WHERE o_orderkey = {chosen}"  # noqa: S608
    bench.measure("one key", {engine: partial(bench.sql, engine, text) for engine in (PARQUET, "lance")})


def writes(bench: Bench) -> None:
    """Tables from memory to disk."""
    print_head("writes")
    rows = max(1000, int(2_000_000 * bench.options.scale))
    floats = ", ".join(f"float((id * {17 + i}) % 1000003 / 1000003)" for i in range(64))
    made = bench.spark.range(0, rows, numPartitions=bench.options.cores)
    frames = {
        "lineitem": bench.spark.read.parquet(bench.path(PARQUET, "lineitem")),
        "orders": bench.spark.read.parquet(bench.path(PARQUET, "orders")),
        "vectors": made.limit(rows // 4).selectExpr("id", f"array({floats}) vector"),
        "wide": made.limit(rows // 40).selectExpr("id", *(f"double(hash(id, {i})) c{i}" for i in range(100))),
        "events": made.selectExpr(
            "timestamp_micros(1700000000000000 + id * 977) at",
            "id % 5000 user",
            "concat('event ', id % 40) name",
            "double(hash(id)) value",
        ),
    }
    for title, frame in frames.items():
        cached = frame.coalesce(bench.options.cores).cache()
        cached.count()
        engines: dict[str, Callable[[], Any]] = {PARQUET: partial(_parquet, cached, bench.path(PARQUET, "out"))}
        engines["lance"] = partial(_lance, cached, bench.path("lance", "out"))
        bench.measure(f"write {title}", engines, check=False)
        cached.unpersist()


def _parquet(frame: DataFrame, path: str) -> None:
    frame.write.mode("overwrite").parquet(path)


def _lance(frame: DataFrame, path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)
    write_lance(frame, path, mode="create")


def merge(bench: Bench) -> None:
    """An upsert; Parquet has no merge, so all rows are joined and written."""
    print_head("merge")
    spark, key = bench.spark, "o_orderkey"
    orders = spark.read.parquet(bench.path(PARQUET, "orders"))
    changes = orders.where(f"{key} % 10 = 3").withColumn("o_clerk", upper("o_clerk")).cache()
    changes.count()

    def parquet() -> None:
        new = orders.join(changes, key, "left_anti").unionByName(changes)
        new.write.mode("overwrite").parquet(bench.path(PARQUET, "out"))

    def lance() -> None:
        builder = merge_lance(changes, bench.path("lance", "orders"), key)
        builder.when_matched_update_all().when_not_matched_insert_all().execute()

    bench.measure("merge", {PARQUET: parquet, "lance": lance}, check=False)


def memory(bench: Bench) -> None:
    """Peak memory of a task that writes images."""
    print_head("memory of a task", ["MB over base"])
    images = max(1, int(1000 * bench.options.scale))
    rows = bench.spark.range(0, images, numPartitions=1)
    # Random bytes, which do not become smaller.
    block = "unhex(concat_ws('', transform(sequence(1, 16384), i -> sha2(string(id * 100000 + i), 512))))"
    frames = {"nothing": rows.where("id < 0"), "images": rows.selectExpr("id", "id * 2 k", f"{block} image")}
    peaks: dict[str, float] = {}
    for title, frame in frames.items():
        with Peak() as peak:
            _lance(frame, bench.path("lance", "images"))
        peaks[title] = peak.megabytes
        print(f"| {title} | | | | | {peaks[title] - peaks['nothing']:.0f} |", flush=True)


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


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=1, help="rounds before those that count")
    parser.add_argument("--scale", type=float, default=0.1, help="scale factor of TPC-H")
    parser.add_argument("--cores", type=int, default=2, help="and partitions of what is written")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    runs = {"queries": queries, "lookups": lookups, "key": key, "writes": writes, "merge": merge, "memory": memory}
    spark = start_spark(options.cores)
    with tempfile.TemporaryDirectory() as text:
        bench = Bench(spark, Path(text), options)
        for name in bench.tables:
            bench.save(make_table(spark, name, options.scale).coalesce(options.cores), name)
        bench.show()
        for part in options.parts:
            runs[part](bench)
    spark.stop()


if __name__ == "__main__":
    main()
