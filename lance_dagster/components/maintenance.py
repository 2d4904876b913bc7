"""Maintenance of tables, declared in YAML.

No ``from __future__ import annotations`` here: Dagster resolves the fields' annotations.
"""

from datetime import timedelta
from typing import Any, Literal

import dagster as dg
from pydantic import BaseModel, Field

from lance_dagster.maintenance import (
    CleanupPolicy,
    CompactionPolicy,
    DeletionPolicy,
    ExecutionPolicy,
    IndexPolicy,
    build_maintenance_alerts,
    build_maintenance_definitions,
)


def optional(schema: dict[str, Any]) -> None:
    """Make the schema of an optional part say what is wrong inside of the part, and not that it is no alternative."""
    choices = schema.get("anyOf", ())
    parts = [choice for choice in choices if "$ref" in choice]
    if len(parts) == 1:
        others = [choice for choice in schema.pop("anyOf") if "$ref" not in choice]
        schema.update({"if": {"type": "object"}, "then": parts[0], "else": {"anyOf": others}})


class CompactionModel(dg.Model, dg.Resolvable):
    """Thresholds for merging fragments."""

    target_rows_per_fragment: int = Field(default=1024 * 1024, ge=1, description="Smaller fragments are merged.")
    min_fragments: int = Field(default=2, ge=1, description="Do nothing for fewer fragments to merge.")
    max_source_bytes: int | None = Field(default=None, ge=1, description="Bytes of files rewritten in one run.")

    def policy(self) -> CompactionPolicy:
        """Return the same for the asset factory."""
        return CompactionPolicy(**self.model_dump())


class DeletionModel(dg.Model, dg.Resolvable):
    """Thresholds for rewriting fragments with deleted rows."""

    threshold: float = Field(
        default=0.1, ge=0, le=1, description="Share of deleted rows above which fragments are rewritten."
    )

    def policy(self) -> DeletionPolicy:
        """Return the same for the asset factory."""
        return DeletionPolicy(**self.model_dump())


class CleanupModel(dg.Model, dg.Resolvable):
    """Rules for the versions that stay."""

    older_than_days: float = Field(default=7, ge=0, description="Age at which an untagged version may go.")
    retain_versions: int = Field(default=3, ge=1, description="Newest versions that stay whatever their age.")
    keep_runs: int = Field(default=10, ge=0, description="Newest run tags that stay whatever their age.")
    keep_runs_for_days: float = Field(default=14, ge=0, description="Run tags younger than this stay.")
    grace_hours: float = Field(default=1, ge=0, description="Versions that were the newest so lately stay.")
    keep_live_inputs: bool = Field(default=True, description="Keep versions that assets downstream were made from.")

    def policy(self) -> CleanupPolicy:
        """Return the same for the asset factory."""
        return CleanupPolicy(
            older_than=timedelta(days=self.older_than_days),
            retain_versions=self.retain_versions,
            keep_runs=self.keep_runs,
            keep_runs_for=timedelta(days=self.keep_runs_for_days),
            grace_period=timedelta(hours=self.grace_hours),
            keep_live_inputs=self.keep_live_inputs,
        )


class ExecutionModel(dg.Model, dg.Resolvable):
    """Execution of rewrites."""

    spark_from_bytes: int = Field(default=4 << 30, ge=0, description="Rewrite so many bytes or more as Spark's tasks.")
    max_memory_bytes: int = Field(default=1 << 30, ge=1 << 27, description="Memory for rewriting in one process.")
    num_threads: int = Field(default=1, ge=1, description="Groups of fragments rewritten at the same time.")

    def policy(self) -> ExecutionPolicy:
        """Return the same for the asset factory."""
        return ExecutionPolicy(**self.model_dump())


class IndicesModel(dg.Model, dg.Resolvable):
    """Indices to keep up to date."""

    columns: dict[str, str] = Field(
        default_factory=dict,
        description="Indices that the tables shall have: type by column. Others are brought up to date as well.",
        examples=[{"id": "BTREE", "kind": "BITMAP"}],
    )
    max_uncovered_fraction: float = Field(
        default=0.0, ge=0, le=1, description="Do nothing while no index misses a larger share of the rows."
    )

    def policy(self) -> IndexPolicy:
        """Return the same for the asset factory."""
        return IndexPolicy(indices=self.columns, max_uncovered_fraction=self.max_uncovered_fraction)


class MaintenanceModel(dg.Model, dg.Resolvable):
    """Upkeep of tables; a part that is set to null is left out."""

    compaction: CompactionModel | None = Field(default=CompactionModel(), json_schema_extra=optional)
    deletions: DeletionModel | None = Field(default=DeletionModel(), json_schema_extra=optional)
    cleanup: CleanupModel | None = Field(default=CleanupModel(), json_schema_extra=optional)
    indices: IndicesModel | None = Field(default=None, json_schema_extra=optional)
    execution: ExecutionModel = ExecutionModel()
    spark_resource_key: str | None = Field(default=None, description="Where a SparkSessionResource is, if one is used.")
    pool: str | None = Field(default=None, description="Concurrency pool; null is one for each table.")
    max_attempts: int | None = Field(
        default=None,
        ge=1,
        description="How often fragments are rewritten beside other writers; null for as often as lance_core's time "
        "for commits (LANCE_CORE_COMMIT_TIMEOUT) allows.",
    )
    branch: str | None = Field(default=None, description="Maintain this branch of the tables, not the main branch.")
    health: bool = Field(default=False, description="Add an asset that says which tables need what, and why.")
    per: Literal["step", "table", "group"] = Field(
        default="step", description="One asset per step of a table, per table, or one for all tables."
    )
    num_threads: int = Field(default=4, ge=1, description="Tables worked on at a time, if one step is for many.")
    alerts: bool = Field(default=False, description="Add a sensor that tells of tables in need and of failures.")
    cron_schedule: str | None = Field(
        default="0 3 * * *", description="When; null makes no schedule.", examples=["0 3 * * *", "@weekly"]
    )
    execution_timezone: str | None = Field(default=None, description="Time zone of the schedule; null is UTC.")
    schedule_running: bool = Field(default=False, description="Start the schedule with the deployment.")

    def definitions(self, tables: list[str], *, name: str, group_name: str, resource_key: str) -> dg.Definitions:
        """Assets, a job and a schedule."""
        status = dg.DefaultScheduleStatus
        policies: Any = {
            "compaction": self.compaction and self.compaction.policy(),
            "deletions": self.deletions and self.deletions.policy(),
            "cleanup": self.cleanup and self.cleanup.policy(),
            "indices": self.indices and self.indices.policy(),
        }
        upkeep = build_maintenance_definitions(
            tables,
            **policies,
            per=self.per,
            num_threads=self.num_threads,
            execution=self.execution.policy(),
            resource_key=resource_key,
            spark_resource_key=self.spark_resource_key,
            group_name=group_name,
            name=name,
            pool=self.pool,
            max_attempts=self.max_attempts,
            branch=self.branch,
            health=self.health,
            cron_schedule=self.cron_schedule,
            execution_timezone=self.execution_timezone,
            default_status=status.RUNNING if self.schedule_running else status.STOPPED,
        )
        if not self.alerts:
            return upkeep
        sensor = build_maintenance_alerts(tables, **policies, name=name, resource_key=resource_key, branch=self.branch)
        return dg.Definitions.merge(upkeep, dg.Definitions(sensors=[sensor]))


def table_names(text: str) -> list[str]:
    """Return the names of tables that are separated by commas."""
    return [table.strip() for table in text.split(",")]


class MaintenanceScaffoldParams(BaseModel):
    """Parameters of ``dg scaffold defs``."""

    tables: str = Field(default="my_table", description="Asset keys, separated by commas.")


class MaintenanceScaffolder(dg.Scaffolder[MaintenanceScaffoldParams]):
    """Writes a ``defs.yaml`` to begin with."""

    @classmethod
    def get_scaffold_params(cls) -> type[MaintenanceScaffoldParams]:
        """See the base class."""
        return MaintenanceScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[MaintenanceScaffoldParams]) -> None:
        """See the base class."""
        params = request.params or MaintenanceScaffoldParams()
        tables = table_names(params.tables)
        attributes = {"tables": tables, "cleanup": {"older_than_days": 7}, "indices": {}, "cron_schedule": "0 3 * * *"}
        dg.scaffold_component(request, attributes)


@dg.scaffold_with(MaintenanceScaffolder)
class LanceMaintenanceComponent(MaintenanceModel, dg.Component):
    """Compaction, materialization of deletions, clean-up and indices of some tables, with a job and a schedule.

    Needs a ``LanceResource`` under ``resource_key``. A part that is set to null is left out.

    ``dg scaffold defs lance_dagster.LanceMaintenanceComponent upkeep --tables orders,users`` writes a ``defs.yaml`` to
    begin with.
    """

    tables: list[str] = Field(description="Asset keys, parts joined by '/'.", min_length=1, examples=[["raw/events"]])
    resource_key: str = Field(default="lance", description="Where the LanceResource is.")
    group_name: str = Field(default="maintenance", description="Asset group.")
    health: bool = Field(default=True, description="Add an asset that says which tables need what, and why.")
    job_name: str = Field(default="lance_maintenance", description="Name of the job; the schedule adds _schedule.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Assets, job and schedule."""
        del context
        return self.definitions(
            self.tables, name=self.job_name, group_name=self.group_name, resource_key=self.resource_key
        )
