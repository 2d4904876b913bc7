"""Job, schedule and everything together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from lance_dagster.maintenance.assets import build_maintenance_assets
from lance_dagster.maintenance.conditions import maintenance_needed
from lance_dagster.maintenance.execution import DEFAULT_EXECUTION, ExecutionPolicy
from lance_dagster.maintenance.health import build_table_health
from lance_dagster.maintenance.policies import (
    DEFAULT_CLEANUP,
    DEFAULT_COMPACTION,
    DEFAULT_DELETIONS,
    CleanupPolicy,
    CompactionPolicy,
    DeletionPolicy,
    IndexPolicy,
)
from lance_dagster.maintenance.tables import Table, as_list, index_policy, table_keys_and_indices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lance_dagster._compat import AssetJob
    from lance_dagster.maintenance.assets import Per
    from lance_dagster.resource import LanceResource


def build_maintenance_job(
    assets: Sequence[dg.AssetsDefinition | dg.AssetKey],
    *,
    name: str = "lance_maintenance",
    executor_def: dg.ExecutorDefinition | None = dg.in_process_executor,
) -> AssetJob:
    """Return a job that materializes exactly these maintenance assets.

    Args:
        assets: From ``build_maintenance_assets``.
        name: Name of the job.
        executor_def: Runs the steps, one after the other in one process by default: most steps take milliseconds,
            and a process for each takes seconds to import Dagster. None takes the executor of the code location.
    """
    return dg.define_asset_job(
        name,
        selection=dg.AssetSelection.assets(*assets),
        description="Maintenance of Lance tables.",
        executor_def=executor_def,
    )


def build_maintenance_schedule(
    assets: Sequence[dg.AssetsDefinition | dg.AssetKey],
    *,
    cron_schedule: str = "0 3 * * *",
    execution_timezone: str | None = None,
    name: str = "lance_maintenance",
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
    executor_def: dg.ExecutorDefinition | None = dg.in_process_executor,
) -> dg.ScheduleDefinition:
    """Return a schedule that runs ``build_maintenance_job`` on a cron schedule.

    Args:
        assets: From ``build_maintenance_assets``.
        cron_schedule: When.
        execution_timezone: Time zone of the cron schedule; None is UTC.
        name: Name of the job; the schedule is named ``<name>_schedule``.
        default_status: RUNNING starts it with the deployment; Dagster's own default is STOPPED.
        executor_def: As in ``build_maintenance_job``.
    """
    is_on = default_status is dg.DefaultScheduleStatus.RUNNING
    advice = (
        "On from the start." if is_on else "Off until it is turned on under Automation (or default_status=RUNNING)."
    )
    return dg.ScheduleDefinition(
        name=f"{name}_schedule",
        description=f"Maintenance of Lance tables. {advice}",
        job=build_maintenance_job(assets, name=name, executor_def=executor_def),
        cron_schedule=cron_schedule,
        execution_timezone=execution_timezone,
        default_status=default_status,
    )


def build_index_assets(
    tables: Table | Iterable[Table],
    *,
    indices: IndexPolicy | Mapping[str, str] | None = None,
    resource_key: str = "lance",
    group_name: str = "maintenance",
    pool: str | None = None,
    automation_condition: dg.AutomationCondition | None = None,
    branch: str | None = None,
) -> list[dg.AssetsDefinition]:
    """Only the assets ``<table>/indices`` of ``build_maintenance_assets``, with the same arguments."""
    return build_maintenance_assets(
        tables,
        compaction=None,
        deletions=None,
        cleanup=None,
        indices=indices,
        resource_key=resource_key,
        group_name=group_name,
        pool=pool,
        automation_condition=automation_condition,
        branch=branch,
    )


def build_maintenance_definitions(
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
    name: str = "lance_maintenance",
    pool: str | None = None,
    max_attempts: int | None = None,
    branch: str | None = None,
    health: bool = True,
    when_needed: LanceResource | None = None,
    cron_schedule: str | None = "0 3 * * *",
    execution_timezone: str | None = None,
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
    executor_def: dg.ExecutorDefinition | None = dg.in_process_executor,
    per: Per = "step",
    num_threads: int = 4,
    measure_partitions: bool = False,
) -> dg.Definitions:
    """Assets, job and schedule together, for ``dg.Definitions.merge``.

    The job is there with and without a schedule, for maintenance on demand.

    Args:
        tables: As in ``build_maintenance_assets``, like the next eight.
        compaction: When to merge fragments.
        deletions: When to rewrite fragments with deleted rows.
        cleanup: Which versions stay.
        indices: Indices to keep up to date; with ``when_needed`` as soon as rows are not covered.
        execution: Where fragments are rewritten and how much memory this may take.
        resource_key: Where the ``LanceResource`` is.
        spark_resource_key: Where a ``SparkSessionResource`` is.
        group_name: Asset group.
        pool: As in ``build_maintenance_assets``, like the next two.
        max_attempts: How often fragments are rewritten beside other writers.
        branch: Maintain this branch of the tables.
        health: Add an asset ``<name>/table_health`` that says which tables need what, and why.
        when_needed: Where the tables are: compaction and materialization of deletions are then requested as soon as the
            manifest says that there is something to do, by the sensor ``<name>_when_needed``.
        name: Name of the job; the schedule is named ``<name>_schedule``.
        cron_schedule: When; None makes no schedule (the job is there all the same).
        execution_timezone: Time zone of the cron schedule; None is UTC.
        default_status: RUNNING starts the schedule with the deployment.
        executor_def: Runs the steps of the job; as in ``build_maintenance_job``. Runs that the sensor of
            ``when_needed`` requests have the executor of the code location, since Dagster gives them no job.
        per: One asset per ``step`` of a table, per ``table``, or one for the ``group`` of all tables; see
            ``build_maintenance_assets``.
        num_threads: Tables that are worked on at the same time with ``per="table"`` and ``"group"``.
        measure_partitions: As in ``build_table_health``.
    """
    policies: dict[str, Any] = {
        "compaction": compaction,
        "deletions": deletions,
        "cleanup": cleanup,
        "indices": indices,
    }
    names = as_list(tables)
    keys, declared = table_keys_and_indices(names)
    assets = build_maintenance_assets(
        names,
        **policies,
        execution=execution,
        resource_key=resource_key,
        spark_resource_key=spark_resource_key,
        group_name=group_name,
        pool=pool,
        max_attempts=max_attempts,
        branch=branch,
        per=per,
        name=name,
        num_threads=num_threads,
        automation_condition=None
        if when_needed is None
        else maintenance_needed(
            when_needed,
            compaction=compaction,
            deletions=deletions,
            indices=index_policy(indices, {}) or (IndexPolicy() if declared else None),
            branch=branch,
            tables=[key.path for key in keys] if per == "group" else (),
        ),
    )
    sensors = [] if when_needed is None else [_sensor(f"{name}_when_needed", assets, default_status)]
    options: dict[str, Any] = {"resource_key": resource_key, "group_name": group_name, "branch": branch}
    health_key = dg.AssetKey([name, "table_health"])
    targets = [*assets, health_key] if health else assets
    schedules = (
        []
        if cron_schedule is None
        else [
            build_maintenance_schedule(
                targets,
                cron_schedule=cron_schedule,
                execution_timezone=execution_timezone,
                name=name,
                default_status=default_status,
                executor_def=executor_def,
            )
        ]
    )
    if health:
        schedule = next(iter(schedules), None)
        options |= {"key": health_key.path, "schedule": schedule, "measure_partitions": measure_partitions}
        assets.append(build_table_health(names, **policies, **options))
    jobs = [] if schedules else [build_maintenance_job(targets, name=name, executor_def=executor_def)]
    return dg.Definitions(assets=assets, jobs=jobs, schedules=schedules, sensors=sensors)


def _sensor(
    name: str, assets: Sequence[dg.AssetsDefinition], status: dg.DefaultScheduleStatus
) -> dg.AutomationConditionSensorDefinition:
    """Make the sensor that evaluates our condition; Dagster's own sensor cannot."""
    running = status is dg.DefaultScheduleStatus.RUNNING
    return dg.AutomationConditionSensorDefinition(
        name,
        target=dg.AssetSelection.assets(*assets),
        use_user_code_server=True,
        default_status=dg.DefaultSensorStatus.RUNNING if running else dg.DefaultSensorStatus.STOPPED,
    )
