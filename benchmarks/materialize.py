"""A Dagster asset from start to end beside the same table written by hand; a DataFrame of Spark beside Parquet."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # noqa: TC002 - Dagster looks at the annotation
from data import load
from engines import ENGINES
from measure import alone, compare

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHARE = 0.2
"""A million rows of taxi."""
_CORES = 2
_READ_SHARE = 0.6
"""Of the rows that Spark writes, those that it reads: six millions, as those had who asked for these figures."""


def materialization(root: Path, scale: float, rounds: int) -> dict[str, dict[str, tuple[float, float]]]:
    """CPU and wall seconds; the engine lance_core is all that a run of Dagster does, for one asset of one table."""
    import dagster as dg  # noqa: PLC0415 - other parts need no Dagster

    from lance_dagster import LanceIOManager  # noqa: PLC0415 - likewise

    table = load("taxi", min(scale, SHARE))
    quiet = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
    resources: Any = {"io_manager": LanceIOManager(root=str(root / "lake"))}

    @dg.asset
    def trips() -> pa.Table:
        return table

    def materialize() -> None:
        if not dg.materialize([trips], resources=resources, run_config=quiet).success:
            raise AssertionError("the run failed")

    def by_hand(engine: str) -> Callable[[], None]:
        path = root / f"by hand {engine}"

        def write() -> None:
            shutil.rmtree(path, ignore_errors=True)
            ENGINES[engine].write(table, str(path))

        return write

    names = ("pylance-2.0", "pylance-2.1", "pylance-2.2", "core-2.2", "parquet")
    spent = compare({"lance_core": materialize, **{name: by_hand(name) for name in names}}, rounds)
    return {"materialize an asset": {name: (one.cpu, one.wall) for name, one in spent.items()}}


def on_spark(root: Path, scale: float, rounds: int) -> dict[str, dict[str, tuple[float, float]]]:
    """CPU and wall seconds of Spark, its workers among them: vectors written and read, as Lance and as Parquet.

    Reads and writes have a JVM each, as jobs have: what a JVM has compiled for writes changes what reads cost in it.
    """
    spent: dict[str, dict[str, tuple[float, float]]] = {}
    for measured in (_spark_reads, _spark_writes):
        spent |= alone(measured, root, scale, rounds)
    return spent


def _spark_writes(root: Path, scale: float, rounds: int) -> dict[str, dict[str, tuple[float, float]]]:
    import spark_rounds  # noqa: PLC0415 - other parts need no Spark
    import spark_write  # noqa: PLC0415 - likewise

    spark = spark_rounds.start_spark(_CORES)
    frame = spark_rounds.make_frame(spark, spark_rounds.VECTORS, scale, _CORES, root)
    calls = spark_write.calls_of(frame, root)
    written = {name: calls[name] for name in (spark_rounds.PARQUET, "lance", "lance, small rows")}
    found = spark_rounds.run_rounds(written, rounds, warm_up=1)
    spark.stop()
    medians = {name: spark_rounds.medians(samples) for name, samples in found.items()}
    return {"Spark write": {"lance_core": medians["lance"], **medians}}


def _spark_reads(root: Path, scale: float, rounds: int) -> dict[str, dict[str, tuple[float, float]]]:
    import spark_read  # noqa: PLC0415 - other parts need no Spark
    import spark_rounds  # noqa: PLC0415 - likewise
    import spark_write  # noqa: PLC0415 - likewise

    spark = spark_rounds.start_spark(_CORES)
    frame = spark_rounds.make_frame(spark, spark_rounds.VECTORS, scale * _READ_SHARE, _CORES, root)
    calls = spark_write.calls_of(frame, root)
    for name in (spark_rounds.PARQUET, "lance"):
        calls[name]()
    asked = spark_read.queries(spark, root, spark_rounds.two_numbers(frame))
    spent: dict[str, dict[str, tuple[float, float]]] = {}
    for query in ("full", "two"):
        found = spark_rounds.run_rounds(asked[query], rounds, warm_up=2)
        medians = {name: spark_rounds.medians(samples) for name, samples in found.items()}
        spent[f"Spark read, {query}"] = {"lance_core": medians["lance"], **medians}
    spark.stop()
    return spent
