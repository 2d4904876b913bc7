"""Asset factories: one small asset per table and kind of maintenance.

No ``from __future__ import annotations`` here: Dagster reads the annotations of the asset functions as types.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

import lance_core
from lance_core.errors import DatasetNotFoundError, RefNotFoundError
from lance_dagster.maintenance.execution import DEFAULT_EXECUTION, ExecutionPolicy, spark_session
from lance_dagster.maintenance.indices import INDICES, declared_indices, indexing
from lance_dagster.maintenance.live import grace_period, versions_in_use
from lance_dagster.maintenance.policies import (
    DEFAULT_CLEANUP,
    DEFAULT_COMPACTION,
    DEFAULT_DELETIONS,
    CleanupPolicy,
    CompactionPolicy,
    DeletionPolicy,
    IndexPolicy,
)
from lance_dagster.maintenance.tasks import Order, Report, Step, cleanup, compaction, materialization
from lance_dagster.metadata import storage_metadata, table_numbers
from lance_dagster.setting_keys import check_asset

if TYPE_CHECKING:
    from lance_dagster.resource import LanceResource

_CLEANUP = "cleanup"

Table = dg.AssetKey | dg.AssetsDefinition | dg.AssetSpec | Sequence[str] | str


class MaintenanceConfig(dg.Config):
    """Run configuration of every maintenance asset."""

    dry_run: bool = Field(default=False, description="Say what would be done; change nothing.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """Settings that all maintenance assets of one call share."""

    resource_key: str
    spark_resource_key: str | None
    execution: ExecutionPolicy
    max_attempts: int | None
    cleanup: CleanupPolicy | None
    branch: str | None

    @property
    def resource_keys(self) -> set[str]:
        return {key for key in (self.resource_key, self.spark_resource_key) if key is not None}


def build_maintenance_assets(
    tables: Table | Iterable[Table],
    *,
    compaction: CompactionPolicy | None = DEFAULT_COMPACTION,
    deletions: DeletionPolicy | None = DEFAULT_DELETIONS,
    cleanup: CleanupPolicy | None = DEFAULT_CLEANUP,
    indices: IndexPolicy | Mapping[str, str] | None = None,
    execution: ExecutionPolicy = DEFAULT_EXECUTION,
    resource_key: str = "lance",
    spark_resource_key: str | None = None,
    group_name: str = "maintenance",
    pool: str | None = None,
    kinds: Iterable[str] = ("lance",),
    tags: Mapping[str, str] | None = None,
    owners: Sequence[str] | None = None,
    automation_condition: dg.AutomationCondition | None = None,
    max_attempts: int | None = None,
    branch: str | None = None,
) -> list[dg.AssetsDefinition]:
    """Maintenance assets: ``<table>/compaction``, ``.../materialize_deletions``, ``.../indices``, ``.../cleanup``.

    They depend on the table and on one another in this order, never change its rows, and never make anything
    downstream of it stale. With nothing to do they materialize with ``lance/skipped`` and ``lance/reason`` and commit
    nothing. Each needs a ``LanceResource`` under ``resource_key``. The run configuration ``dry_run: true`` only tells.

    Args:
        tables: One asset key (``"silver/users"``), asset or spec, or a list of them.
        compaction: When to merge fragments; None leaves the asset out.
        deletions: When to rewrite fragments with deleted rows; None leaves the asset out.
        cleanup: Which versions stay; None leaves the asset out.
        indices: Indices to keep up to date, or their types by column (``{"id": "BTREE"}``). Tables whose asset has the
            metadata ``lance/indices`` of that form declare further ones. Without any the asset is left out.
        execution: Where fragments are rewritten and how much memory this may take.
        resource_key: Where the ``LanceResource`` is.
        spark_resource_key: Where a ``SparkSessionResource`` (or anything with a ``spark_session``) is; large tables
            are then rewritten by Spark's tasks. The session is not started for anything else.
        group_name: Asset group.
        pool: Concurrency pool; default ``lance/<table>`` (one writer of a table at a time if the pool's limit is 1).
        kinds: Kinds shown on the asset.
        tags: Asset tags.
        owners: Asset owners.
        automation_condition: For example ``dg.AutomationCondition.on_cron("0 3 * * *")`` instead of a schedule.
        max_attempts: How often fragments are rewritten when other commits touch them meanwhile; None for as often as
            the time allows that lance_core gives every commit (``LANCE_CORE_COMMIT_TIMEOUT``, ten minutes by default).
        branch: Maintain this branch of the tables, not the main one; the keys are then ``<table>/<branch>/compaction``
            and so on.

    Returns:
        Assets, ready for ``dg.Definitions(assets=[*yours, *these])``.
    """
    setting = _Setting(
        resource_key=resource_key,
        spark_resource_key=spark_resource_key,
        execution=execution,
        max_attempts=max_attempts,
        cleanup=cleanup,
        branch=branch,
    )
    options: dict[str, Any] = {
        "group_name": group_name,
        "kinds": set(kinds),
        "tags": tags,
        "owners": owners,
        "automation_condition": automation_condition,
    }
    keys, declared = table_keys_and_indices(tables)
    return [
        asset
        for key in keys
        for asset in _table_assets(
            key,
            _steps(compaction, deletions, cleanup, index_policy(indices, declared.get(key))),
            setting,
            options={**options, "pool": pool or f"lance/{key.to_user_string()}"},
        )
    ]


def _steps(
    compaction_policy: CompactionPolicy | None,
    deletions_policy: DeletionPolicy | None,
    cleanup_policy: CleanupPolicy | None,
    indices_policy: IndexPolicy | None,
) -> list[tuple[str, str, Step]]:
    """Name, description and work of each asset, in order."""
    steps: list[tuple[str, str, Step]] = []
    if compaction_policy is not None:
        text = f"Merges neighbouring fragments of fewer than {compaction_policy.target_rows_per_fragment:,} rows."
        steps.append(("compaction", text, compaction(compaction_policy)))
    if deletions_policy is not None:
        text = f"Rewrites fragments with more than {deletions_policy.threshold:.0%} deleted rows."
        steps.append(("materialize_deletions", text, materialization(deletions_policy)))
    if indices_policy is not None:
        text = f"Builds and extends the indices over {', '.join(indices_policy.indices) or 'all indexed columns'}."
        steps.append((INDICES, text, indexing(indices_policy)))
    if cleanup_policy is not None:
        text = (
            f"Deletes untagged versions older than {cleanup_policy.older_than} (never the newest "
            f"{cleanup_policy.retain_versions}) and run tags older than {cleanup_policy.keep_runs_for} (never the "
            f"newest {cleanup_policy.keep_runs})."
        )
        steps.append((_CLEANUP, text, cleanup(cleanup_policy)))
    return steps


def _table_assets(
    key: dg.AssetKey,
    steps: Sequence[tuple[str, str, Step]],
    setting: _Setting,
    *,
    options: Mapping[str, Any],
) -> Iterable[dg.AssetsDefinition]:
    """The assets of one table in a row: each waits for the one before, so that they do not compete."""
    before = key
    for name, description, step in steps:
        asset_key = dg.AssetKey([*key.path, *branch_path(setting.branch), name])
        yield _asset(asset_key, key, step, setting, options={**options, "deps": [before], "description": description})
        before = asset_key


def _asset(
    key: dg.AssetKey, table: dg.AssetKey, step: Step, setting: _Setting, *, options: Mapping[str, Any]
) -> dg.AssetsDefinition:
    def maintenance(context: dg.AssetExecutionContext, config: MaintenanceConfig) -> dg.MaterializeResult:
        metadata = _run(context, table, step, setting, dry_run=config.dry_run)
        if metadata["lance/skipped"]:
            context.log.info("Nothing was changed: %s.", metadata["lance/reason"])
        return dg.MaterializeResult(metadata=metadata)

    return dg.asset(key=key, required_resource_keys=setting.resource_keys, **options)(maintenance)


def _run(
    context: dg.AssetExecutionContext, table: dg.AssetKey, step: Step, setting: _Setting, *, dry_run: bool
) -> dict[str, Any]:
    """Run a step on the newest version; returns metadata."""
    lance: LanceResource = getattr(context.resources, setting.resource_key)
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
    report = step(dataset, _order(context, table, dataset, setting, dry_run=dry_run))
    if report.warning is not None:
        context.log.warning("%s", report.warning)
    after = lance.dataset(table, branch=setting.branch)
    return {
        **_numbers(before, table_numbers(after)),
        **_told(report),
        **storage_metadata(table, lance.uri(table)),
        "lance/version": after.version,
        **({} if setting.branch is None else {"lance/branch": setting.branch}),
        "lance/attempts": report.attempts,
        "lance/seconds": round(time.monotonic() - started, 3),
    }


def _order(
    context: dg.AssetExecutionContext,
    table: dg.AssetKey,
    dataset: lance_core.LanceDataset,
    setting: _Setting,
    *,
    dry_run: bool,
) -> Order:
    """Return the facts about the run that the step needs."""
    lance: LanceResource = getattr(context.resources, setting.resource_key)
    spark_key = setting.spark_resource_key
    policy = setting.cleanup if context.asset_key.path[-1] == _CLEANUP else None
    return Order(
        dry_run=dry_run,
        properties={"dagster/run_id": context.run.run_id, "dagster/asset_key": context.asset_key.to_user_string()},
        execution=setting.execution,
        spark=None if spark_key is None else lambda: spark_session(getattr(context.resources, spark_key)),
        storage_options=lance.storage_options,
        max_attempts=setting.max_attempts,
        in_use=versions_in_use(context, table, dataset) if policy is not None and policy.keep_live_inputs else {},
        grace_period=timedelta(0) if policy is None else grace_period(context, policy),
    )


def _told(report: Report) -> dict[str, Any]:
    reason = {} if report.skipped is None else {"lance/reason": report.skipped}
    return {**report.numbers, "lance/skipped": report.skipped is not None, **reason}


def _numbers(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """The table's numbers after the step, and as ``..._before`` those that were others before."""
    changed = {f"{key}_before": value for key, value in before.items() if after[key] != value}
    return {**after, **changed}


def branch_path(branch: str | None) -> list[str]:
    """Return the part of an asset's key that names its branch."""
    return [] if branch is None else branch.split("/")


def index_policy(
    given: IndexPolicy | Mapping[str, str] | None, declared: Mapping[str, str] | None
) -> IndexPolicy | None:
    """Return the policy for a table: what was given, and what the metadata of its asset declare; None if neither."""
    policy = IndexPolicy(indices=given) if isinstance(given, Mapping) else given
    if not declared:
        return policy
    policy = policy or IndexPolicy()
    return replace(policy, indices={**policy.indices, **declared})


def table_keys_and_indices(tables: Any) -> tuple[list[dg.AssetKey], dict[dg.AssetKey, dict[str, str]]]:
    """Asset keys of whatever names tables, and the indices that the metadata of their assets declare."""
    if isinstance(tables, (str, dg.AssetKey, dg.AssetSpec, dg.AssetsDefinition)):
        tables = [tables]
    tables = list(tables)
    specs = [
        spec
        for table in tables
        if isinstance(table, (dg.AssetsDefinition, dg.AssetSpec))
        for spec in (table.specs if isinstance(table, dg.AssetsDefinition) else [table])
    ]
    declared = {spec.key: declared_indices(spec.metadata) for spec in specs}
    return table_keys(tables), {key: indices for key, indices in declared.items() if indices}


def table_keys(tables: Any) -> list[dg.AssetKey]:
    """Asset keys of whatever names tables; the settings of definitions are checked."""
    if isinstance(tables, (str, dg.AssetKey, dg.AssetSpec, dg.AssetsDefinition)):
        tables = [tables]
    keys: list[dg.AssetKey] = []
    for table in tables:
        if isinstance(table, (dg.AssetsDefinition, dg.AssetSpec)):
            check_asset(table)
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
