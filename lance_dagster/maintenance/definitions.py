"""Job, schedule and everything together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from lance_dagster.maintenance.assets import Table, build_maintenance_assets
from lance_dagster.maintenance.policies import (
    DEFAULT_CLEANUP,
    DEFAULT_COMPACTION,
    DEFAULT_DELETIONS,
    CleanupPolicy,
    CompactionPolicy,
    DeletionPolicy,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lance_dagster._compat import AssetJob


def build_maintenance_job(assets: Sequence[dg.AssetsDefinition], *, name: str = "lance_maintenance") -> AssetJob:
    """A job that materializes exactly these maintenance assets."""
    return dg.define_asset_job(
        name, selection=dg.AssetSelection.assets(*assets), description="Maintenance of Lance tables."
    )


def build_maintenance_schedule(
    assets: Sequence[dg.AssetsDefinition],
    *,
    cron_schedule: str = "0 3 * * *",
    execution_timezone: str | None = None,
    name: str = "lance_maintenance",
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
) -> dg.ScheduleDefinition:
    """A schedule that runs ``build_maintenance_job`` on a cron schedule.

    Args:
        assets: From ``build_maintenance_assets``.
        cron_schedule: When.
        execution_timezone: Time zone of the cron schedule; None is UTC.
        name: Name of the job; the schedule is named ``<name>_schedule``.
        default_status: RUNNING starts it with the deployment; Dagster's own default is STOPPED.
    """
    return dg.ScheduleDefinition(
        name=f"{name}_schedule",
        job=build_maintenance_job(assets, name=name),
        cron_schedule=cron_schedule,
        execution_timezone=execution_timezone,
        default_status=default_status,
    )


def build_maintenance_definitions(
    tables: Table | Iterable[Table],
    *,
    compaction: CompactionPolicy | None = DEFAULT_COMPACTION,
    deletions: DeletionPolicy | None = DEFAULT_DELETIONS,
    cleanup: CleanupPolicy | None = DEFAULT_CLEANUP,
    resource_key: str = "lance",
    group_name: str = "maintenance",
    name: str = "lance_maintenance",
    cron_schedule: str | None = "0 3 * * *",
    execution_timezone: str | None = None,
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
) -> dg.Definitions:
    """Assets, job and schedule together, for ``dg.Definitions.merge``.

    Args:
        tables: As in ``build_maintenance_assets``, like the next five.
        compaction: When to merge fragments.
        deletions: When to rewrite fragments with deleted rows.
        cleanup: Which versions stay.
        resource_key: Where the ``LanceResource`` is.
        group_name: Asset group.
        name: Name of the job; the schedule is named ``<name>_schedule``.
        cron_schedule: When; None makes no schedule (the job is there all the same).
        execution_timezone: Time zone of the cron schedule; None is UTC.
        default_status: RUNNING starts the schedule with the deployment.
    """
    assets = build_maintenance_assets(
        tables,
        compaction=compaction,
        deletions=deletions,
        cleanup=cleanup,
        resource_key=resource_key,
        group_name=group_name,
    )
    if cron_schedule is None:
        return dg.Definitions(assets=assets, jobs=[build_maintenance_job(assets, name=name)])
    schedule = build_maintenance_schedule(
        assets,
        cron_schedule=cron_schedule,
        execution_timezone=execution_timezone,
        name=name,
        default_status=default_status,
    )
    return dg.Definitions(assets=assets, schedules=[schedule])
