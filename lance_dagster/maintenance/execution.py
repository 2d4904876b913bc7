"""Execution of rewrites: in this process, or as Spark tasks when there is much to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lance_core
from lance_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionPolicy:
    """Execution of rewrites.

    Args:
        spark_from_bytes: With a Spark session at hand, rewrite so many bytes of files (or more) as Spark's tasks.
        max_memory_bytes: Memory that rewriting may take in one process, roughly; at least 128 MiB.
        num_threads: Groups of fragments rewritten at the same time in this process; they share the memory.
    """

    spark_from_bytes: int = 4 << 30
    max_memory_bytes: int = 1 << 30
    num_threads: int = 1

    def __post_init__(self) -> None:
        if self.spark_from_bytes < 0 or self.num_threads < 1 or self.max_memory_bytes < 1 << 27:
            msg = "spark_from_bytes must not be negative, num_threads at least 1, max_memory_bytes at least 128 MiB."
            raise InvalidInputError(msg)


DEFAULT_EXECUTION = ExecutionPolicy()


def spark_session(resource: Any) -> Any:
    """Return the session behind a resource: ours, dagster-pyspark's, or the session itself."""
    return getattr(resource, "spark_session", resource)


def planned_bytes(plan: lance_core.CompactionPlan) -> int:
    """Return bytes of the files that a plan rewrites."""
    return sum(
        file.file_size_bytes or 0 for task in plan.tasks for fragment in task.fragments for file in fragment.files
    )


def execute(
    dataset: lance_core.LanceDataset,
    plan: lance_core.CompactionPlan,
    policy: ExecutionPolicy,
    *,
    spark: Callable[[], Any] | None,
    storage_options: Mapping[str, str] | None,
) -> tuple[str, Sequence[lance_core.RewriteResult]]:
    """Execute a plan; nothing is committed. If it fails, no file is left behind.

    Args:
        dataset: The table.
        plan: The plan.
        policy: Where and with how much memory.
        spark: Gives the Spark session, which starts when it is asked for; None if there is none.
        storage_options: Settings of the object store.

    Returns:
        ``"spark"`` or ``"in-process"``, and the results.
    """
    if spark is None or plan.num_tasks() < 2 or planned_bytes(plan) < policy.spark_from_bytes:
        return "in-process", lance_core.Compaction.run(dataset, plan, num_threads=policy.num_threads)
    # Imported here: pyspark is an optional dependency and takes long to import.
    from lance_core.spark import execute_compaction_plan  # noqa: PLC0415
    from lance_dagster.spark_errors import task_errors  # noqa: PLC0415 - likewise

    with task_errors(dataset.uri):
        return "spark", execute_compaction_plan(spark(), dataset, plan, storage_options=storage_options)
