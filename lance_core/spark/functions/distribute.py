"""Run independent pieces of maintenance in Spark's tasks and commit their results together.

Worth it for tables of many gigabytes; smaller ones are compacted faster in one process.
"""

from __future__ import annotations

import base64
import pickle
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from pyspark import cloudpickle
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

from lance_core.common.signatures import check_options, with_options
from lance_core.dataset import dataset as open_dataset
from lance_core.optimize import Compaction, CompactionArguments
from lance_core.spark.functions.rewrite_tasks import execute_plan
from lance_core.spark.session import register
from lance_core.store.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from lance_core.dataset import LanceDataset
    from lance_core.optimize import CompactionMetrics, CompactionPlan, RewriteResult


@with_options(CompactionArguments)
def compact_lance(
    spark: SparkSession,
    uri: str,
    *,
    only_deletions: bool = False,
    conflict_retries: int | None = None,
    transaction_properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    **options: Unpack[CompactionArguments],
) -> CompactionMetrics:
    """Merge small fragments and drop deleted rows: planned here, executed in Spark's tasks, committed here.

    Args:
        spark: The session.
        uri: Address of the dataset.
        only_deletions: Only rewrite fragments that have deleted rows.
        conflict_retries: How often to plan anew when another commit touched the fragments; None for as often as the
            time allows.
        transaction_properties: Text for the history.
        storage_options: Options of the store.
        base_store_params: Options of other places that the table names, by address; an entry also allows the place.
        **options: See `lance_core.optimize.CompactionArguments`.

    Returns:
        What was done; with nothing to do no version is made.

    Raises:
        CommitConflictError: Other commits touched the fragments each time; nothing was changed.
    """
    check_options("compact_lance", CompactionArguments, options)
    register(spark)
    make_plan = Compaction.plan_materialization if only_deletions else Compaction.plan
    dataset = open_dataset(
        open_store(uri).uri, storage_options=dict(storage_options or {}), base_store_params=base_store_params
    )

    def make(dataset: LanceDataset) -> list[RewriteResult]:
        return execute_compaction_plan(spark, dataset, make_plan(dataset, options), storage_options=storage_options)

    return Compaction.repeat(
        dataset, make, conflict_retries=conflict_retries, transaction_properties=transaction_properties
    )


def execute_compaction_plan(
    spark: SparkSession,
    dataset: LanceDataset,
    plan: CompactionPlan,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> list[RewriteResult]:
    """Execute a plan, each of its tasks in a Spark task of its own; `Compaction.commit` publishes the results.

    Args:
        spark: The session.
        dataset: The dataset that the plan is for.
        plan: From `Compaction.plan` or `Compaction.plan_materialization`.
        storage_options: Options of the store.

    Raises:
        Exception: A task failed for good; the files of all tasks are removed, but for those of tasks that still run and
            what a killed one was writing, which a clean-up removes.
    """
    return execute_plan(dataset, plan, run=partial(run_tasks, spark), storage_options=storage_options)


def run_pickled(spark: SparkSession, run: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
    """As `run_tasks`, with any picklable values instead of texts."""

    def call(text: str) -> str:
        return _to_text(run(pickle.loads(base64.b64decode(text))))  # noqa: S301 pickled below

    answers = run_tasks(spark, call, [_to_text(task) for task in tasks])
    return [pickle.loads(base64.b64decode(text)) for text in answers]  # noqa: S301 pickled by our tasks


def _to_text(value: Any) -> str:
    return base64.b64encode(cloudpickle.dumps(value)).decode()


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

    def call(i: int) -> str:
        return run(tasks[i])

    # A plain function needs neither pandas nor an RDD; one row in each partition makes one task for each text.
    function = udf(call, StringType(), useArrow=False).asNondeterministic()
    numbers = spark.range(0, len(tasks), numPartitions=len(tasks))
    answers = {row[0]: row[1] for row in numbers.select("id", function("id")).collect()}
    return [answers[i] for i in range(len(tasks))]
