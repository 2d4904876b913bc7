"""Maintenance of tables, declared in YAML.

No ``from __future__ import annotations`` here: Dagster resolves the fields' annotations.
"""

from datetime import timedelta

import dagster as dg
from pydantic import Field

from lance_core.errors import InvalidInputError
from lance_dagster.maintenance import (
    CleanupPolicy,
    CompactionPolicy,
    DeletionPolicy,
    build_maintenance_definitions,
)


class CompactionModel(dg.Model):
    """When to merge fragments."""

    target_rows_per_fragment: int = Field(default=1024 * 1024, description="Smaller fragments are merged.")
    min_fragments: int = Field(default=2, description="Do nothing for fewer fragments to merge.")


class DeletionModel(dg.Model):
    """When to rewrite fragments with deleted rows."""

    threshold: float = Field(default=0.1, description="Share of deleted rows above which they are rewritten.")


class CleanupModel(dg.Model):
    """Which versions stay."""

    older_than_days: float = Field(default=7, description="Age at which an untagged version may go.")
    retain_versions: int = Field(default=3, description="Newest versions that stay whatever their age.")
    keep_runs: int = Field(default=10, description="Newest run tags that stay whatever their age.")
    keep_runs_for_days: float = Field(default=14, description="Run tags younger than this stay.")


class LanceMaintenanceComponent(dg.Component, dg.Model, dg.Resolvable):
    """Compaction, materialization of deletions and clean-up for some tables, with a job and a schedule.

    Needs a ``LanceResource`` under ``resource_key``. A part that is set to null is left out.
    """

    tables: list[str] = Field(description="Asset keys, parts joined by '/'.")
    compaction: CompactionModel | None = CompactionModel()
    deletions: DeletionModel | None = DeletionModel()
    cleanup: CleanupModel | None = CleanupModel()
    resource_key: str = "lance"
    group_name: str = "maintenance"
    job_name: str = "lance_maintenance"
    cron_schedule: str | None = Field(default="0 3 * * *", description="When; null makes no schedule.")
    execution_timezone: str | None = None
    schedule_running: bool = Field(default=False, description="Start the schedule with the deployment.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Assets, job and schedule."""
        del context
        if not self.tables:
            raise InvalidInputError("`tables` names no table.")
        status = dg.DefaultScheduleStatus
        return build_maintenance_definitions(
            self.tables,
            compaction=None if self.compaction is None else CompactionPolicy(**self.compaction.model_dump()),
            deletions=None if self.deletions is None else DeletionPolicy(**self.deletions.model_dump()),
            cleanup=None if self.cleanup is None else _cleanup_policy(self.cleanup),
            resource_key=self.resource_key,
            group_name=self.group_name,
            name=self.job_name,
            cron_schedule=self.cron_schedule,
            execution_timezone=self.execution_timezone,
            default_status=status.RUNNING if self.schedule_running else status.STOPPED,
        )


def _cleanup_policy(model: CleanupModel) -> CleanupPolicy:
    return CleanupPolicy(
        older_than=timedelta(days=model.older_than_days),
        retain_versions=model.retain_versions,
        keep_runs=model.keep_runs,
        keep_runs_for=timedelta(days=model.keep_runs_for_days),
    )
