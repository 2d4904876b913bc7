"""Plain SQL over Lance and over Parquet in Spark, side by side: views, nothing else.

    python benchmarks/spark_sql.py [--rounds 3] [--warm-up 1] [--scale 0.1] [--cores 2]
    [--parts queries lookups key writes merge memory]
    python benchmarks/spark_sql.py --publish    at scale 0.5, unless another is given; rewrites the table of README.md

Tables are like those of TPC-H, of which ``--scale`` is the scale factor: at 0.5, ``lineitem`` has 3 million rows.
``queries`` are 12 queries of it; ``lookups`` count all rows and read 2 of 300 columns; ``key`` finds 20 rows of
``orders``, each by a query for its key, which has an index in Lance; ``writes`` write five tables; ``merge`` upserts a
tenth of the rows of a table like ``orders``, of 3 million rows at scale 0.5, beside Parquet's join and overwrite;
``memory`` is the peak of a Python worker that writes images of 1 GB at scale 0.5 in one task, over one that writes
nothing. All answers are compared. ``--publish`` with some of the parts keeps the figures of the others.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.functions import upper
from report import PUBLISHED, publish
from spark_figures import MEAN, with_mean
from spark_queries import QUERIES, TABLES, make_table
from spark_rounds import PARQUET, Peak, print_head, print_line, run_rounds, start_spark

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
    "merge": (),
    "memory": (),
}
"""The tables that each part needs."""

_LOOKUPS = 20


def beside(samples: list[Round], base: list[Round]) -> dict[str, float]:
    """Medians of the ratios within rounds, and of the CPU seconds of what they are relative to."""
    pairs = list(zip(samples, base, strict=True))
    return {
        "cpu": statistics.median(one.cpu / other.cpu for one, other in pairs),
        "wall": statistics.median(one.wall / other.wall for one, other in pairs),
        "seconds": statistics.median(other.cpu for other in base),
    }


class Bench:
    """The tables in both formats, and how often calls run."""

    def __init__(self, spark: SparkSession, folder: Path, options: argparse.Namespace) -> None:
        self.spark = spark
        self.folder = folder
        self.options = options
        self.tables = [name for name in TABLES if any(name in PARTS[part] for part in options.parts)]
        self.works: dict[str, dict[str, float]] = {}
        self.megabytes: float | None = None

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
        self.works[title] = beside(samples["lance"], samples[PARQUET])

    def sql(self, engine: str, text: str) -> list[Any]:
        """The rows of a query over the views of one format."""
        return self.spark.sql(_TABLE.sub(rf"{engine}_\1", text)).collect()


def queries(bench: Bench) -> None:
    """The queries of TPC-H."""
    print_head("plain SQL")
    for title, text in QUERIES.items():
        bench.measure(title, {engine: partial(bench.sql, engine, text) for engine in (PARQUET, "lance")})
    mean = with_mean(bench.works)[MEAN]["cpu"]
    worst = max(bench.works[title]["cpu"] for title in QUERIES)
    print(f"\ngeometric mean {mean:.2f}, worst {worst:.2f}", flush=True)


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
    """Rows by their keys: Parquet looks at the statistics of row groups, Lance at an index.

    One takes a tenth of a second of CPU, and the JVM does as much besides, so each call looks up many keys.
    """
    print_head("one key")
    count = bench.spark.read.parquet(bench.path(PARQUET, "orders")).count()
    keys = range(0, count, max(1, count // _LOOKUPS))
    create_index_lance(bench.spark, bench.path("lance", "orders"), "o_orderkey", "BTREE")

    def look_up(engine: str) -> list[Any]:
        texts = [f"SELECT * FROM orders WHERE o_orderkey = {one}" for one in keys]  # noqa: S608
        return [bench.sql(engine, text) for text in texts]

    bench.measure("one key", {engine: partial(look_up, engine) for engine in (PARQUET, "lance")})
    bench.works["one key"]["seconds"] /= len(keys)


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
    bench.save(make_table(spark, "orders", 4 * bench.options.scale).coalesce(bench.options.cores), "merged")
    orders = spark.read.parquet(bench.path(PARQUET, "merged"))
    changes = orders.where(f"{key} % 10 = 3").withColumn("o_clerk", upper("o_clerk")).cache()
    changes.count()

    def parquet() -> None:
        new = orders.join(changes, key, "left_anti").unionByName(changes)
        new.write.mode("overwrite").parquet(bench.path(PARQUET, "out"))

    def lance() -> None:
        builder = merge_lance(changes, bench.path("lance", "merged"), key)
        builder.when_matched_update_all().when_not_matched_insert_all().execute()

    bench.measure("merge", {PARQUET: parquet, "lance": lance}, check=False)


def memory(bench: Bench) -> None:
    """Peak memory of a task that writes images."""
    print_head("memory of a task", ["MB over base"])
    images = max(1, int(2000 * bench.options.scale))
    rows = bench.spark.range(0, images, numPartitions=1)
    # Random bytes, which do not become smaller.
    block = "unhex(concat_ws('', transform(sequence(1, 16384), i -> sha2(string(id * 100000 + i), 512))))"
    frames = {"nothing": rows.where("id < 0"), "images": rows.selectExpr("id", "id * 2 k", f"{block} image")}
    base = 0.0
    for title, frame in frames.items():
        with Peak() as peak:
            _lance(frame, bench.path("lance", "images"))
        base = base or peak.megabytes
        bench.megabytes = peak.megabytes - base
        print(f"| {title} | | | | | {bench.megabytes:.0f} |", flush=True)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=1, help="rounds before those that count")
    parser.add_argument("--scale", type=float, help="scale factor of TPC-H; 0.1, or 0.5 if it is published")
    parser.add_argument("--cores", type=int, default=2, help="and partitions of what is written")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--publish", action="store_true", help="rewrite the table of README.md")
    options = parser.parse_args()
    options.scale = options.scale or (0.5 if options.publish else 0.1)
    measured: dict[str, Any] = {name: getattr(options, name) for name in ("scale", "rounds", "cores")}
    measured |= {"pyspark": pyspark.__version__, "load": os.getloadavg()[0]}
    began = time.monotonic()
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
    measured |= {"works": bench.works, "seconds": time.monotonic() - began}
    if bench.megabytes is not None:
        measured["megabytes"] = bench.megabytes
    print(f"\n{measured['seconds'] / 60:.1f} minutes")
    if options.publish:
        publish_beside(measured)


def publish_beside(measured: dict[str, Any]) -> None:
    """Put figures into the published results; those of the same scale that were not measured stay."""
    results = json.loads((PUBLISHED / "results.json").read_text())
    before = results.get("spark_sql", {})
    if before.get("scale") == measured["scale"]:
        seconds = measured["seconds"] if before["works"].keys() <= measured["works"].keys() else before["seconds"]
        measured = {**before, **measured, "works": {**before["works"], **measured["works"]}, "seconds": seconds}
    results["spark_sql"] = measured
    print("published:", *(path.name for path in publish(results)))


if __name__ == "__main__":
    main()
