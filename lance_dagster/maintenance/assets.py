"""Asset factories of maintenance: an asset for each step of a table, for each table, or for all of them.

No ``from __future__ import annotations`` here: Dagster reads the annotations of the asset functions as types.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal, get_args

import dagster as dg
from pydantic import Field

from lance_dagster import _compat
from lance_dagster.maintenance.execution import DEFAULT_EXECUTION, ExecutionPolicy
from lance_dagster.maintenance.indices import INDICES, indexing
from lance_dagster.maintenance.many import run_each, run_many
from lance_dagster.maintenance.policies import (
    DEFAULT_CLEANUP,
    DEFAULT_COMPACTION,
    DEFAULT_DELETIONS,
    CleanupPolicy,
    CompactionPolicy,
    DeletionPolicy,
    IndexPolicy,
)
from lance_dagster.maintenance.running import CLEANUP, Setting, Work, run_work
from lance_dagster.maintenance.tables import Table, branch_path, index_policy, table_keys_and_indices
from lance_dagster.maintenance.tasks import cleanup as cleanup_step
from lance_dagster.maintenance.tasks import compaction as compaction_step
from lance_dagster.maintenance.tasks import materialization
from lance_dagster.metadata import TABLE_LINK, readable
from lance_dagster.settings import check_choice
from lance_dagster.units import age_text

PLAN = "maintenance"
"""Name of the asset that does all kinds of maintenance of a table."""

Per = Literal["step", "table", "group"]


class MaintenanceConfig(dg.Config):
    """Run configuration of every maintenance asset."""

    dry_run: bool = Field(default=False, description="Say what would be done; change nothing.")


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
    per: Per = "step",
    name: str = "lance_maintenance",
    num_threads: int = 4,
) -> list[dg.AssetsDefinition]:
    """Maintenance assets: ``<table>/compaction``, ``.../materialize_deletions``, ``.../indices``, ``.../cleanup``.

    They depend on the table and on one another in this order, never change its rows, and never make anything
    downstream of it stale. With nothing to do they materialize with ``lance/skipped`` and ``lance/reason`` and commit
    nothing. Each needs a ``LanceResource`` under ``resource_key``. The run configuration ``dry_run: true`` only tells.

    With ``per="table"`` a table has one asset, ``<table>/maintenance``, whose metadata tell what became of each step.
    Those of a run are one step of Dagster, which works on several tables at a time.
    With ``per="group"`` there is one asset for all tables, ``<name>/tables``, which depends on none of them: it works
    on several tables at a time, goes on with the others if one fails, and fails at the end.

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
        pool: Concurrency pool. None is ``lance/<table>`` with ``per="step"`` (one writer of a table at a time if the
            pool's limit is 1), and no pool otherwise.
        kinds: Kinds shown on the asset.
        tags: Asset tags.
        owners: Asset owners.
        automation_condition: For example ``dg.AutomationCondition.on_cron("0 3 * * *")`` instead of a schedule.
        max_attempts: How often fragments are rewritten when other commits touch them meanwhile; None for as often as
            the time allows that lance_core gives every commit (``LANCE_CORE_COMMIT_TIMEOUT``, ten minutes by default).
        branch: Maintain this branch of the tables, not the main one; the keys are then ``<table>/<branch>/compaction``
            and so on.
        per: One asset per ``step`` of a table, per ``table``, or one for the whole ``group`` of tables.
        name: With ``per="group"``, first part of the asset's key.
        num_threads: With ``per="table"`` and ``"group"``, tables that are worked on at the same time.

    Returns:
        Assets, ready for ``dg.Definitions(assets=[*yours, *these])``.
    """
    check_choice("per", per, get_args(Per))
    setting = Setting(
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
    plans = {key: make_plan(compaction, deletions, cleanup, index_policy(indices, declared.get(key))) for key in keys}
    if per == "group":
        key = dg.AssetKey([name, *branch_path(branch), "tables"])
        text = (
            f"Maintenance of {len(plans):,} tables: {', '.join(work.name for work in next(iter(plans.values()), []))}."
        )
        options |= {"pool": pool, "description": text}
        return [_group_asset(key, plans, setting, num_threads=num_threads, options=options)]
    if per == "table":
        return [_plan_assets(plans, setting, pool=pool, num_threads=num_threads, options=options)] if plans else []
    return [
        asset
        for key, plan in plans.items()
        for asset in _table_assets(
            key, plan, setting, options={**options, "pool": pool or f"lance/{key.to_user_string()}"}
        )
    ]


def make_plan(
    compaction: CompactionPolicy | None,
    deletions: DeletionPolicy | None,
    cleanup: CleanupPolicy | None,
    indices: IndexPolicy | None,
) -> list[Work]:
    """Return the kinds of maintenance of a table, in order."""
    plan: list[Work] = []
    if compaction is not None:
        text = f"Merges neighbouring fragments of fewer than {compaction.target_rows_per_fragment:,} rows."
        plan.append(Work(name="compaction", description=text, step=compaction_step(compaction)))
    if deletions is not None:
        text = f"Rewrites fragments with more than {deletions.threshold:.0%} deleted rows."
        plan.append(Work(name="materialize_deletions", description=text, step=materialization(deletions)))
    if indices is not None:
        text = f"Builds and extends the indices over {', '.join(indices.indices) or 'all indexed columns'}."
        plan.append(Work(name=INDICES, description=text, step=indexing(indices)))
    if cleanup is not None:
        text = (
            f"Deletes untagged versions older than {age_text(cleanup.older_than)} "
            f"(never the newest {cleanup.retain_versions}) and run tags older than {age_text(cleanup.keep_runs_for)} "
            f"(never the newest {cleanup.keep_runs})."
        )
        plan.append(Work(name=CLEANUP, description=text, step=cleanup_step(cleanup)))
    return plan


def _plan_assets(
    plans: Mapping[dg.AssetKey, Sequence[Work]],
    setting: Setting,
    *,
    pool: str | None,
    num_threads: int,
    options: Mapping[str, Any],
) -> dg.AssetsDefinition:
    """One asset for each table, all in one step: a step costs Dagster more than most tables need."""
    tables = {dg.AssetKey([*key.path, *branch_path(setting.branch), PLAN]): key for key in plans}
    specs = [
        dg.AssetSpec(
            key,
            deps=[table],
            description="\n".join(f"{number}. {work.description}" for number, work in enumerate(plans[table], 1)),
            metadata={TABLE_LINK: dg.MetadataValue.asset(table)},
            **options,
        )
        for key, table in tables.items()
    ]
    digest = sha256("\n".join(key.to_user_string() for key in tables).encode()).hexdigest()[:8]

    def maintenance(context: dg.AssetExecutionContext, config: MaintenanceConfig) -> Iterator[dg.MaterializeResult]:
        chosen = {table: plans[table] for key, table in tables.items() if key in context.selected_asset_keys}
        keys = {table: key for key, table in tables.items()}
        for table, metadata in run_each(context, chosen, setting, num_threads=num_threads, dry_run=config.dry_run):
            yield dg.MaterializeResult(asset_key=keys[table], metadata=readable(metadata))

    return dg.multi_asset(
        name=f"lance_maintenance_{digest}",
        specs=specs,
        can_subset=True,
        required_resource_keys=setting.resource_keys,
        pool=pool,
    )(maintenance)


def _table_assets(
    key: dg.AssetKey, plan: Sequence[Work], setting: Setting, *, options: Mapping[str, Any]
) -> Iterable[dg.AssetsDefinition]:
    """The assets of one table in a row: each waits for the one before, so that they do not compete."""
    path = [*key.path, *branch_path(setting.branch)]
    before = key
    for work in plan:
        asset_key = dg.AssetKey([*path, work.name])
        more = {"deps": [before], "description": work.description}
        yield _asset(asset_key, key, work, setting, options={**options, **more})
        before = asset_key


def _asset(
    key: dg.AssetKey, table: dg.AssetKey, work: Work, setting: Setting, *, options: Mapping[str, Any]
) -> dg.AssetsDefinition:
    """Return an asset that does one kind of maintenance."""

    def maintenance(context: dg.AssetExecutionContext, config: MaintenanceConfig) -> dg.MaterializeResult:
        metadata = run_work(context, table, work, setting, dry_run=config.dry_run)
        if metadata["lance/skipped"]:
            context.log.info("Nothing was changed: %s.", metadata["lance/reason"])
        return dg.MaterializeResult(metadata=readable(metadata))

    metadata = {TABLE_LINK: dg.MetadataValue.asset(table)}
    return dg.asset(
        key=key,
        dagster_type=_compat.NOTHING,
        required_resource_keys=setting.resource_keys,
        metadata=metadata,
        **options,
    )(maintenance)


def _group_asset(
    key: dg.AssetKey,
    plans: Mapping[dg.AssetKey, Sequence[Work]],
    setting: Setting,
    *,
    num_threads: int,
    options: Mapping[str, Any],
) -> dg.AssetsDefinition:
    """One asset for all tables, without an edge to any of them."""

    def maintenance(context: dg.AssetExecutionContext, config: MaintenanceConfig) -> dg.MaterializeResult:
        return run_many(context, plans, setting, num_threads=num_threads, dry_run=config.dry_run)

    return dg.asset(key=key, dagster_type=_compat.NOTHING, required_resource_keys=setting.resource_keys, **options)(
        maintenance
    )
