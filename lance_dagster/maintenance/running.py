"""Maintenance of one table: its steps, one after the other, and what became of each."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg

from lance_core.errors import DatasetNotFoundError, RefNotFoundError
from lance_dagster.located import lance_of
from lance_dagster.maintenance.execution import spark_session
from lance_dagster.maintenance.live import grace_period, versions_in_use
from lance_dagster.maintenance.tasks import Order, summary
from lance_dagster.metadata import storage_metadata, table_numbers
from lance_dagster.progress import watched
from lance_dagster.units import seconds_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import lance_core
    from lance_dagster.maintenance.execution import ExecutionPolicy
    from lance_dagster.maintenance.policies import CleanupPolicy
    from lance_dagster.maintenance.tasks import Report, Step
    from lance_dagster.progress import Watch

CLEANUP = "cleanup"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Settings that all maintenance assets of one call share."""

    resource_key: str
    spark_resource_key: str | None
    execution: ExecutionPolicy
    max_attempts: int | None
    cleanup: CleanupPolicy | None
    branch: str | None

    @property
    def resource_keys(self) -> set[str]:
        """Resources that the assets need."""
        return {key for key in (self.resource_key, self.spark_resource_key) if key is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One kind of maintenance.

    Args:
        name: Name of the kind, such as ``compaction``.
        description: What it does.
        step: Does it.
    """

    name: str
    description: str
    step: Step


def run_work(
    context: dg.AssetExecutionContext, table: dg.AssetKey, work: Work, setting: Setting, *, dry_run: bool
) -> dict[str, Any]:
    """Do one kind of maintenance on the newest version; returns metadata."""
    lance = lance_of(context, setting.resource_key)
    started = time.monotonic()
    # In an environment of its own, maintenance never touches the main branch.
    setting = setting if setting.branch is not None else replace(setting, branch=lance.own_branch)
    try:
        dataset = lance.dataset(table, branch=setting.branch)
    except DatasetNotFoundError:
        return {"lance/skipped": True, "lance/reason": "there is no table yet"}
    except RefNotFoundError:
        return {"lance/skipped": True, "lance/reason": f"there is no branch {setting.branch!r}"}
    before = table_numbers(dataset)
    with watched(context.log, dataset.uri, f"{table.to_user_string()}: {work.name}") as watch:
        report = work.step(dataset, _order(context, table, work, dataset, setting, dry_run=dry_run, watch=watch))
    if report.warning is not None:
        context.log.warning("%s", report.warning)
    after = dataset if report.skipped is not None else lance.dataset(table, branch=setting.branch)
    seconds = time.monotonic() - started
    if report.skipped is None:
        text = "%s is at version %d: %s in %s."
        context.log.info(text, dataset.uri, after.version, summary(report), seconds_text(seconds))
    return {
        **_numbers(before, before if after is dataset else table_numbers(after)),
        **_told(report),
        **storage_metadata(table, lance.uri(table)),
        "lance/version": after.version,
        **({} if setting.branch is None else {"lance/branch": setting.branch}),
        "lance/attempts": report.attempts,
        "lance/seconds": round(seconds, 3),
    }


def run_plan(
    context: dg.AssetExecutionContext, table: dg.AssetKey, plan: Sequence[Work], setting: Setting, *, dry_run: bool
) -> dict[str, Any]:
    """Do all kinds of maintenance of a table, one after the other; returns metadata of all, and of each as a table."""
    started = time.monotonic()
    results = {work.name: run_work(context, table, work, setting, dry_run=dry_run) for work in plan}
    merged: dict[str, Any] = {}
    for metadata in results.values():
        for key, value in metadata.items():
            # Counts add up; numbers of the table are those after the last step, and before the first.
            is_count = key in _COUNTS and isinstance(value, int)
            if not (key.endswith("_before") and key in merged):
                merged[key] = merged.get(key, 0) + value if is_count else value
    merged = {key: value for key, value in merged.items() if not _is_unchanged(key, merged)}
    done = [metadata["lance/summary"] for metadata in results.values() if not metadata["lance/skipped"]]
    skipped = [metadata["lance/skipped"] for metadata in results.values()]
    reasons = {metadata["lance/reason"] for metadata in results.values() if metadata["lance/skipped"]}
    reason = reasons.pop() if len(reasons) == 1 else "dry run" if dry_run else "nothing to do"
    return {
        **{key: value for key, value in merged.items() if key not in ("lance/reason", "lance/summary")},
        **({"lance/summary": "; ".join(done)} if done else {}),
        "lance/skipped": all(skipped),
        **({"lance/reason": reason} if all(skipped) else {}),
        "lance/steps": dg.MetadataValue.md(steps_markdown(results)),
        "lance/seconds": round(time.monotonic() - started, 3),
    }


_COUNTS = frozenset(
    f"lance/{what}_{done}"
    for what, done in [
        ("fragments", "planned"),
        ("bytes", "planned"),
        ("fragments", "removed"),
        ("fragments", "added"),
        ("files", "removed"),
        ("files", "added"),
    ]
) | {"lance/tasks"}
"""Numbers that several steps have, and that add up."""


def _is_unchanged(key: str, numbers: Mapping[str, Any]) -> bool:
    return key.endswith("_before") and numbers[key] == numbers.get(key.removesuffix("_before"))


def steps_markdown(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the steps of a plan as a Markdown table: what each did, or why it did nothing."""
    lines = ["| step | result | duration |", "|---|---|---:|"]
    for name, metadata in results.items():
        result = metadata["lance/reason"] if metadata["lance/skipped"] else f"**{metadata['lance/summary']}**"
        # No break between number and unit, but between the words of a name: the UI gives the table little room.
        seconds = seconds_text(metadata.get("lance/seconds", 0)).replace(" ", "\N{NO-BREAK SPACE}")
        lines.append(f"| {name.replace('_', ' ')} | {result} | {seconds} |")
    return "\n".join(lines)


def _order(
    context: dg.AssetExecutionContext,
    table: dg.AssetKey,
    work: Work,
    dataset: lance_core.LanceDataset,
    setting: Setting,
    *,
    dry_run: bool,
    watch: Watch,
) -> Order:
    """Return the facts about the run that the step needs."""
    lance = lance_of(context, setting.resource_key)
    spark_key = setting.spark_resource_key
    policy = setting.cleanup if work.name == CLEANUP else None
    return Order(
        dry_run=dry_run,
        properties={"dagster/run_id": context.run.run_id, "dagster/asset_key": _asset_key(context, table)},
        execution=setting.execution,
        spark=None if spark_key is None else lambda: watch.takes(spark_session(getattr(context.resources, spark_key))),
        storage_options=lance.tables.storage_options_of(dataset.uri),
        max_attempts=setting.max_attempts,
        in_use=versions_in_use(context.instance, table, dataset, run_id=context.run.run_id)
        if policy is not None and policy.keep_live_inputs
        else {},
        grace_period=timedelta(0) if policy is None else grace_period(context, policy),
    )


def _asset_key(context: dg.AssetExecutionContext, table: dg.AssetKey) -> str:
    """Return the key of the asset that maintains a table; a step may have many."""
    keys = context.selected_asset_keys
    owners = keys if len(keys) == 1 else {key for key in keys if key.path[: len(table.path)] == table.path}
    return min(key.to_user_string() for key in owners or keys)


def _told(report: Report) -> dict[str, Any]:
    if report.skipped is not None:
        return {**report.numbers, "lance/skipped": True, "lance/reason": report.skipped}
    return {"lance/summary": summary(report), **report.numbers, "lance/skipped": False}


def _numbers(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return the table's numbers after the step, and as ``..._before`` those that were others before."""
    changed = {f"{key}_before": value for key, value in before.items() if after[key] != value}
    return {**after, **changed}
