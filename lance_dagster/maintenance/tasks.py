"""One maintenance step on one version of a table: what there is to do, and doing it.

A step raises ``CommitConflictError`` if another writer was faster; the caller then begins anew on the newest version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lance_core import Compaction
from lance_dagster.maintenance.policies import Tag, expired_run_tags

if TYPE_CHECKING:
    from collections.abc import Mapping

    import lance_core
    from lance_dagster.maintenance.policies import CleanupPolicy, CompactionPolicy, DeletionPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a step did.

    Args:
        skipped: Why nothing was done, or None if something was.
        numbers: Metadata of the step, by key.
    """

    skipped: str | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How a step is to be run.

    Args:
        dry_run: Change nothing.
        properties: Transaction properties of the commit.
    """

    dry_run: bool
    properties: Mapping[str, str]


Step = Callable[["lance_core.LanceDataset", Order], Report]


def compaction(policy: CompactionPolicy) -> Step:
    """Merge small fragments."""

    def step(dataset: lance_core.LanceDataset, order: Order) -> Report:
        options = {"target_rows_per_fragment": policy.target_rows_per_fragment, "materialize_deletions": False}
        plan = Compaction.plan(dataset, options)
        merged = sum(len(task.fragments) for task in plan.tasks)
        if not plan.tasks:
            return Report(skipped=f"no neighbouring fragments of fewer than {policy.target_rows_per_fragment:,} rows")
        if merged < policy.min_fragments:
            return Report(skipped=f"only {merged} fragments to merge, fewer than {policy.min_fragments}")
        return _rewrite(dataset, plan, order)

    return step


def materialization(policy: DeletionPolicy) -> Step:
    """Rewrite fragments with many deleted rows."""

    def step(dataset: lance_core.LanceDataset, order: Order) -> Report:
        plan = Compaction.plan_materialization(dataset, {"materialize_deletions_threshold": policy.threshold})
        if not plan.tasks:
            return Report(skipped=f"no fragment has more than {policy.threshold:.0%} deleted rows")
        return _rewrite(dataset, plan, order)

    return step


def _rewrite(dataset: lance_core.LanceDataset, plan: lance_core.CompactionPlan, order: Order) -> Report:
    planned = {
        "lance/tasks": plan.num_tasks(),
        "lance/fragments_planned": sum(len(task.fragments) for task in plan.tasks),
    }
    if order.dry_run:
        return Report(skipped="dry run", numbers=planned)
    results = [task.execute(dataset) for task in plan.tasks]
    metrics = Compaction.commit(dataset, results, transaction_properties=order.properties)
    done = {
        "lance/fragments_removed": metrics.fragments_removed,
        "lance/fragments_added": metrics.fragments_added,
        "lance/files_removed": metrics.files_removed,
        "lance/files_added": metrics.files_added,
    }
    return Report(numbers={**planned, **done})


def cleanup(policy: CleanupPolicy, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Step:
    """Expire run tags, then delete old versions and the files that only they need."""

    def step(dataset: lance_core.LanceDataset, order: Order) -> Report:
        listed = dataset.tags.list()
        tags = [Tag(name=name, version=tag["version"], created_at=tag["created_at"]) for name, tag in listed.items()]
        expired = expired_run_tags(tags, policy, now=now())
        rules: dict[str, Any] = {
            "older_than": policy.older_than,
            "retain_versions": policy.retain_versions,
            "error_if_tagged_old_versions": False,
        }
        if order.dry_run:
            would = dataset.explain_cleanup_old_versions(**rules, without_tags=[tag.name for tag in expired]).stats
            planned = {
                "lance/run_tags_planned": len(expired),
                "lance/versions_planned": would.old_versions,
                "lance/bytes_planned": would.bytes_removed,
            }
            return Report(skipped="dry run", numbers=planned)
        for tag in expired:
            dataset.tags.delete(tag.name)
        stats = dataset.cleanup_old_versions(**rules)
        numbers = {
            "lance/run_tags_expired": len(expired),
            "lance/versions_removed": stats.old_versions,
            "lance/bytes_removed": stats.bytes_removed,
            "lance/data_files_removed": stats.data_files_removed,
        }
        nothing = not expired and stats.old_versions == 0 and stats.bytes_removed == 0
        return Report(skipped="no version and no file may go" if nothing else None, numbers=numbers)

    return step
