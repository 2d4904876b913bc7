"""Asset factories: one small asset per table and kind of maintenance.

No ``from __future__ import annotations`` here: Dagster reads the annotations of the asset functions as types.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from lance_core.errors import CommitConflictError, DatasetNotFoundError
from lance_dagster.maintenance.policies import (
    DEFAULT_CLEANUP,
    DEFAULT_COMPACTION,
    DEFAULT_DELETIONS,
    CleanupPolicy,
    CompactionPolicy,
    DeletionPolicy,
)
from lance_dagster.maintenance.tasks import Order, Report, Step, cleanup, compaction, materialization
from lance_dagster.metadata import storage_metadata, table_numbers
from lance_dagster.resource import LanceResource

Table = dg.AssetKey | dg.AssetsDefinition | dg.AssetSpec | Sequence[str] | str


class MaintenanceConfig(dg.Config):
    """Run configuration of every maintenance asset."""

    dry_run: bool = Field(default=False, description="Say what would be done; change nothing.")


def build_maintenance_assets(
    tables: Table | Iterable[Table],
    *,
    compaction: CompactionPolicy | None = DEFAULT_COMPACTION,
    deletions: DeletionPolicy | None = DEFAULT_DELETIONS,
    cleanup: CleanupPolicy | None = DEFAULT_CLEANUP,
    resource_key: str = "lance",
    group_name: str = "maintenance",
    pool: str | None = None,
    kinds: Iterable[str] = ("lance",),
    tags: Mapping[str, str] | None = None,
    owners: Sequence[str] | None = None,
    automation_condition: dg.AutomationCondition | None = None,
    max_attempts: int = 5,
) -> list[dg.AssetsDefinition]:
    """Maintenance assets for tables: ``<table>/compaction``, ``<table>/materialize_deletions``, ``<table>/cleanup``.

    They depend on the table and on one another in this order, never change its rows, and never make anything
    downstream of it stale. With nothing to do they materialize with ``lance/skipped`` and ``lance/reason`` and commit
    nothing. Each needs a ``LanceResource`` under ``resource_key``. The run configuration ``dry_run: true`` only tells.

    Args:
        tables: One asset key (``"silver/users"``), asset or spec, or a list of them.
        compaction: When to merge fragments; None leaves the asset out.
        deletions: When to rewrite fragments with deleted rows; None leaves the asset out.
        cleanup: Which versions stay; None leaves the asset out.
        resource_key: Where the ``LanceResource`` is.
        group_name: Asset group.
        pool: Concurrency pool; default ``lance/<table>`` (one writer of a table at a time if the pool's limit is 1).
        kinds: Kinds shown on the asset.
        tags: Asset tags.
        owners: Asset owners.
        automation_condition: For example ``dg.AutomationCondition.on_cron("0 3 * * *")`` instead of a schedule.
        max_attempts: Plans made anew after conflicts with other writers before giving up.

    Returns:
        Assets, ready for ``dg.Definitions(assets=[*yours, *these])``.
    """
    steps = _steps(compaction, deletions, cleanup)
    options: dict[str, Any] = {
        "group_name": group_name,
        "kinds": set(kinds),
        "tags": tags,
        "owners": owners,
        "automation_condition": automation_condition,
    }
    return [
        asset
        for key in _keys(tables)
        for asset in _table_assets(
            key,
            steps,
            resource_key=resource_key,
            max_attempts=max_attempts,
            options={**options, "pool": pool or f"lance/{key.to_user_string()}"},
        )
    ]


def _steps(
    compaction_policy: CompactionPolicy | None,
    deletions_policy: DeletionPolicy | None,
    cleanup_policy: CleanupPolicy | None,
) -> list[tuple[str, str, Step]]:
    """Name, description and work of each asset, in order."""
    steps: list[tuple[str, str, Step]] = []
    if compaction_policy is not None:
        text = f"Merges neighbouring fragments of fewer than {compaction_policy.target_rows_per_fragment:,} rows."
        steps.append(("compaction", text, compaction(compaction_policy)))
    if deletions_policy is not None:
        text = f"Rewrites fragments with more than {deletions_policy.threshold:.0%} deleted rows."
        steps.append(("materialize_deletions", text, materialization(deletions_policy)))
    if cleanup_policy is not None:
        text = (
            f"Deletes untagged versions older than {cleanup_policy.older_than} (never the newest "
            f"{cleanup_policy.retain_versions}) and run tags older than {cleanup_policy.keep_runs_for} (never the "
            f"newest {cleanup_policy.keep_runs})."
        )
        steps.append(("cleanup", text, cleanup(cleanup_policy)))
    return steps


def _table_assets(
    key: dg.AssetKey,
    steps: Sequence[tuple[str, str, Step]],
    *,
    resource_key: str,
    max_attempts: int,
    options: Mapping[str, Any],
) -> Iterable[dg.AssetsDefinition]:
    """The assets of one table in a row: each waits for the one before, so that they do not compete."""
    before = key
    for name, description, step in steps:
        own = dg.AssetKey([*key.path, name])
        yield _asset(
            own,
            key,
            step,
            resource_key=resource_key,
            max_attempts=max_attempts,
            options={**options, "deps": [before], "description": description},
        )
        before = own


def _asset(
    key: dg.AssetKey,
    table: dg.AssetKey,
    step: Step,
    *,
    resource_key: str,
    max_attempts: int,
    options: Mapping[str, Any],
) -> dg.AssetsDefinition:
    def maintenance(context: dg.AssetExecutionContext, config: MaintenanceConfig) -> dg.MaterializeResult:
        lance: LanceResource = getattr(context.resources, resource_key)
        order = Order(dry_run=config.dry_run, properties=_properties(context))
        return dg.MaterializeResult(metadata=_run(context, lance, table, step, order, max_attempts=max_attempts))

    return dg.asset(key=key, required_resource_keys={resource_key}, **options)(maintenance)


def _run(
    context: dg.AssetExecutionContext,
    lance: LanceResource,
    table: dg.AssetKey,
    step: Step,
    order: Order,
    *,
    max_attempts: int,
) -> dict[str, Any]:
    """Run a step, anew on the newest version if another writer was faster; returns metadata."""
    attempt = 1
    while True:
        try:
            dataset = lance.dataset(table)
        except DatasetNotFoundError:
            return {"lance/skipped": True, "lance/reason": "there is no table yet"}
        before = table_numbers(dataset)
        try:
            report = step(dataset, order)
        except CommitConflictError as error:
            if attempt == max_attempts or not error.is_retryable:
                raise
            context.log.info("Attempt %d met another commit (%s); planning anew.", attempt, error)
            attempt += 1
            continue
        after = lance.dataset(table)
        return {
            **_numbers(before, table_numbers(after)),
            **_told(report),
            **_place(table, lance, after.version, attempt),
        }


def _told(report: Report) -> dict[str, Any]:
    reason = {} if report.skipped is None else {"lance/reason": report.skipped}
    return {**report.numbers, "lance/skipped": report.skipped is not None, **reason}


def _place(table: dg.AssetKey, lance: LanceResource, version: int, attempt: int) -> dict[str, Any]:
    return {**storage_metadata(table, lance.uri(table)), "lance/version": version, "lance/attempts": attempt}


def _numbers(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """The table's numbers after the step, and as ``..._before`` those that were others before."""
    changed = {f"{key}_before": value for key, value in before.items() if after[key] != value}
    return {**after, **changed}


def _properties(context: dg.AssetExecutionContext) -> dict[str, str]:
    return {"dagster/run_id": context.run.run_id, "dagster/asset_key": context.asset_key.to_user_string()}


def _keys(tables: Any) -> list[dg.AssetKey]:
    """Asset keys of whatever names tables."""
    if isinstance(tables, (str, dg.AssetKey, dg.AssetSpec, dg.AssetsDefinition)):
        tables = [tables]
    keys: list[dg.AssetKey] = []
    for table in tables:
        match table:
            case dg.AssetsDefinition():
                keys.extend(sorted(table.keys))
            case dg.AssetSpec():
                keys.append(table.key)
            case str():
                keys.append(dg.AssetKey.from_user_string(table))
            case _:
                keys.append(dg.AssetKey.from_coercible(table))
    return list(dict.fromkeys(keys))
