"""One maintenance step of a table: what there is to do, and doing it.

Beside other writers, lance_core decides for how long a step begins anew on the newest version, see `Compaction.repeat`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg

import lance_core
from lance_dagster.maintenance.execution import DEFAULT_EXECUTION, ExecutionPolicy, execute, planned_bytes
from lance_dagster.maintenance.policies import Tag, expired_run_tags
from lance_dagster.units import bytes_text, count_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_dagster.maintenance.policies import CleanupPolicy, CompactionPolicy, DeletionPolicy

_SHOWN_FILES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Result of a step.

    Args:
        skipped: Why nothing was done, or None if something was.
        numbers: Metadata of the step, by key.
        warning: What people should know of it, or None.
        attempts: How often fragments were rewritten; more than once beside other writers of the same fragments.
    """

    skipped: str | None = None
    warning: str | None = None
    attempts: int = 1
    numbers: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Instructions for a step.

    Args:
        dry_run: Change nothing.
        properties: Transaction properties of the commit.
        execution: Where fragments are rewritten.
        spark: Gives a Spark session; None if there is none.
        storage_options: Settings of the object store.
        max_attempts: How often to rewrite beside other writers; None for as often as `Compaction.repeat` does.
        in_use: Versions that somebody needs, and who.
        grace_period: How long ago a version may have been the newest and still be in use.
    """

    dry_run: bool
    properties: Mapping[str, str]
    execution: ExecutionPolicy = DEFAULT_EXECUTION
    spark: Callable[[], Any] | None = None
    storage_options: Mapping[str, str] | None = None
    max_attempts: int | None = None
    in_use: Mapping[int, Sequence[str]] = field(default_factory=dict[int, "Sequence[str]"])
    grace_period: timedelta = timedelta(0)


Step = Callable[["lance_core.LanceDataset", Order], Report]
Planned = tuple["lance_core.CompactionPlan", "str | None"]
"""A plan, and why it is not to be carried out."""


def plan_compaction(
    dataset: lance_core.LanceDataset, policy: CompactionPolicy, *, max_memory_bytes: int | None = None
) -> lance_core.CompactionPlan:
    """Plan what compaction would merge, from the manifest alone."""
    wanted = {
        "target_rows_per_fragment": policy.target_rows_per_fragment,
        "materialize_deletions": False,
        "max_source_bytes": policy.max_source_bytes,
        "max_memory_bytes": max_memory_bytes,
    }
    return lance_core.Compaction.plan(dataset, wanted)


def plan_materialization(
    dataset: lance_core.LanceDataset, policy: DeletionPolicy, *, max_memory_bytes: int | None = None
) -> lance_core.CompactionPlan:
    """Plan what materialization of deletions would rewrite, from the manifest alone."""
    wanted = {"materialize_deletions_threshold": policy.threshold, "max_memory_bytes": max_memory_bytes}
    return lance_core.Compaction.plan_materialization(dataset, wanted)


def num_fragments(plan: lance_core.CompactionPlan) -> int:
    """Fragments that a plan rewrites."""
    return sum(len(task.fragments) for task in plan.tasks)


def compaction(policy: CompactionPolicy) -> Step:
    """Merge small fragments."""

    def plan(dataset: lance_core.LanceDataset, order: Order) -> Planned:
        plan = plan_compaction(dataset, policy, max_memory_bytes=order.execution.max_memory_bytes)
        merged = num_fragments(plan)
        if not plan.tasks:
            return plan, f"no neighbouring fragments of fewer than {policy.target_rows_per_fragment:,} rows"
        if merged < policy.min_fragments:
            return plan, f"only {merged} fragments to merge, fewer than {policy.min_fragments}"
        return plan, None

    return partial(_rewrite, plan)


def materialization(policy: DeletionPolicy) -> Step:
    """Rewrite fragments with many deleted rows."""

    def plan(dataset: lance_core.LanceDataset, order: Order) -> Planned:
        plan = plan_materialization(dataset, policy, max_memory_bytes=order.execution.max_memory_bytes)
        return plan, None if plan.tasks else f"no fragment has more than {policy.threshold:.0%} deleted rows"

    return partial(_rewrite, plan)


def _rewrite(
    make_plan: Callable[[lance_core.LanceDataset, Order], Planned], dataset: lance_core.LanceDataset, order: Order
) -> Report:
    """Carry out plans until one is committed."""
    reasons: list[str | None] = []
    numbers: dict[str, Any] = {}

    def make(dataset: lance_core.LanceDataset) -> Sequence[lance_core.RewriteResult]:
        plan, reason = make_plan(dataset, order)
        if reason is None:
            numbers.update(_planned(plan))
            reason = "dry run" if order.dry_run else None
        reasons.append(reason)
        if reason is not None:
            return ()
        engine, results = execute(
            dataset, plan, order.execution, spark=order.spark, storage_options=order.storage_options
        )
        numbers.update({"lance/engine": engine, "lance/read_version": dataset.version})
        return results

    metrics = lance_core.Compaction.repeat(
        dataset,
        make,
        conflict_retries=None if order.max_attempts is None else order.max_attempts - 1,
        transaction_properties=order.properties,
    )
    attempts = max(reasons.count(None), 1)
    if not metrics.fragments_removed:
        return Report(skipped=reasons[-1], numbers=numbers, attempts=attempts)
    return Report(
        numbers={**numbers, **_done(metrics), "lance/version_made": dataset.version},
        warning=metrics.index_advice,
        attempts=attempts,
    )


def _planned(plan: lance_core.CompactionPlan) -> dict[str, Any]:
    return {
        "lance/tasks": plan.num_tasks(),
        "lance/fragments_planned": num_fragments(plan),
        "lance/bytes_planned": planned_bytes(plan),
    }


def _done(metrics: lance_core.CompactionMetrics) -> dict[str, Any]:
    numbers: dict[str, Any] = {
        "lance/fragments_removed": metrics.fragments_removed,
        "lance/fragments_added": metrics.fragments_added,
        "lance/files_removed": metrics.files_removed,
        "lance/files_added": metrics.files_added,
    }
    if metrics.unindexed_rows:
        numbers["lance/unindexed_rows"] = dg.MetadataValue.json(dict(metrics.unindexed_rows))
    return numbers


def cleanup(policy: CleanupPolicy, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Step:
    """Expire run tags, then delete old versions and the files that only they need."""

    def step(dataset: lance_core.LanceDataset, order: Order) -> Report:
        # A tag of another line has nothing to do with the versions of this one.
        listed = {name: tag for name, tag in dataset.tags.list().items() if tag["branch"] == dataset.branch}
        tags = [Tag(name=name, version=tag["version"], created_at=tag["created_at"]) for name, tag in listed.items()]
        expired = expired_run_tags(tags, policy, now=now())
        rules: dict[str, Any] = {
            "older_than": policy.older_than,
            "retain_versions": policy.retain_versions,
            "error_if_tagged_old_versions": False,
            "keep_versions": order.in_use,
            "grace_period": order.grace_period,
        }
        if order.dry_run:
            would = dataset.explain_cleanup_old_versions(**rules, without_tags=[tag.name for tag in expired])
            return Report(skipped="dry run", numbers={**_foretold(would, expired), **_in_use(order)})
        for tag in expired:
            dataset.tags.delete(tag.name)
        stats = dataset.cleanup_old_versions(**rules)
        numbers = {
            "lance/run_tags_expired": len(expired),
            "lance/versions_removed": stats.old_versions,
            "lance/versions_kept": len(dataset.versions()),
            "lance/bytes_reclaimed": stats.bytes_removed,
            "lance/data_files_removed": stats.data_files_removed,
            **_in_use(order),
        }
        nothing = not expired and stats.old_versions == 0 and stats.bytes_removed == 0
        return Report(skipped="no version and no file may go" if nothing else None, numbers=numbers)

    return step


def _foretold(would: Any, expired: Sequence[Tag]) -> dict[str, Any]:
    """Return a preview of what clean-up would remove."""
    files = would.candidate_files
    lines = [f"| `{file.path}` | {file.kind} | {file.size_bytes:,} |" for file in files[:_SHOWN_FILES]]
    more = [f"| and {len(files) - _SHOWN_FILES:,} more | | |"] if len(files) > _SHOWN_FILES else []
    table = "\n".join(["| file | kind | bytes |", "|---|---|---:|", *lines, *more])
    return {
        "lance/run_tags_planned": len(expired),
        "lance/versions_planned": would.stats.old_versions,
        "lance/bytes_planned": would.stats.bytes_removed,
        "lance/files_planned": len(files),
        "lance/preview": dg.MetadataValue.md(table if files else "Nothing would be removed."),
    }


def summary(report: Report) -> str:
    """Return what a step did, for people."""
    numbers = report.numbers
    if "lance/fragments_removed" in numbers:
        removed = count_text(numbers["lance/fragments_removed"], "fragment")
        return f"{removed} ({bytes_text(numbers['lance/bytes_planned'])}) became {numbers['lance/fragments_added']:,}"
    if "lance/versions_removed" in numbers:
        removed = count_text(numbers["lance/versions_removed"], "version")
        return f"{removed} and {bytes_text(numbers['lance/bytes_reclaimed'])} deleted"
    return "indices brought up to date"


def _in_use(order: Order) -> dict[str, Any]:
    """Versions that assets downstream were made from, and the time that readers are given."""
    reasons = {str(version): list(names) for version, names in sorted(order.in_use.items())}
    told = {"lance/versions_in_use": dg.MetadataValue.json(reasons)} if reasons else {}
    return {**told, "lance/grace_seconds": order.grace_period.total_seconds()}
