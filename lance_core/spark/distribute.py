"""Run independent pieces of maintenance in Spark's tasks and commit their answers together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession


def run_tasks(spark: SparkSession, run: Callable[[str], str], tasks: Sequence[str]) -> list[str]:
    """Run a function on each of some texts, each in a Spark task of its own.

    Args:
        spark: Classic or Connect session.
        run: Importable where the executors are, or picklable. Spark may run it again after a failure.
        tasks: Descriptions of the work; all of them are sent to each executor.

    Returns:
        The answers in the order of the tasks.
    """
    if not tasks:
        return []

    # A plain function needs neither pandas nor an RDD; one row in each partition makes one task for each text.
    def call(i: int) -> str:
        return run(tasks[i])

    function = udf(call, StringType(), useArrow=False).asNondeterministic()
    numbers = spark.range(0, len(tasks), numPartitions=len(tasks))
    answers = {row[0]: row[1] for row in numbers.select("id", function("id")).collect()}
    return [answers[i] for i in range(len(tasks))]
