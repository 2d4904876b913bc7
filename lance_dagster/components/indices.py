"""Indices of tables, declared in YAML.

No ``from __future__ import annotations`` here: Dagster resolves the fields' annotations.
"""

import dagster as dg
from pydantic import BaseModel, Field

from lance_dagster.components.maintenance import IndicesModel, table_names
from lance_dagster.maintenance import build_maintenance_definitions


class IndexScaffoldParams(BaseModel):
    """Parameters of ``dg scaffold defs``."""

    tables: str = Field(default="my_table", description="Asset keys, separated by commas.")
    column: str = Field(default="id", description="Column that all of them have.")
    type: str = Field(default="BTREE", description="Type of the index, such as BTREE, BITMAP or INVERTED.")


class IndexScaffolder(dg.Scaffolder[IndexScaffoldParams]):
    """Writes a ``defs.yaml`` to begin with."""

    @classmethod
    def get_scaffold_params(cls) -> type[IndexScaffoldParams]:
        """See the base class."""
        return IndexScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[IndexScaffoldParams]) -> None:
        """See the base class."""
        params = request.params or IndexScaffoldParams()
        attributes = {
            "tables": table_names(params.tables),
            "columns": {params.column: params.type},
            "cron_schedule": "0 4 * * *",
        }
        dg.scaffold_component(request, attributes)


@dg.scaffold_with(IndexScaffolder)
class LanceIndexComponent(IndicesModel, dg.Component):
    """Indices of some tables: an asset ``<table>/indices`` that creates, extends and merges them, a job and a schedule.

    Needs a ``LanceResource`` under ``resource_key``. `LanceMaintenanceComponent` keeps indices up to date as well: give
    it ``indices``, or have this component, for a table, not both.

    ``dg scaffold defs lance_dagster.LanceIndexComponent ids --tables orders,users --column id`` writes a ``defs.yaml``
    to begin with.
    """

    tables: list[str] = Field(description="Asset keys, parts joined by '/'.", min_length=1, examples=[["raw/events"]])
    branch: str | None = Field(default=None, description="Indices of this branch of the tables, not the main branch.")
    pool: str | None = Field(default=None, description="Concurrency pool; null is one for each table.")
    resource_key: str = Field(default="lance", description="Where the LanceResource is.")
    group_name: str = Field(default="maintenance", description="Asset group.")
    job_name: str = Field(default="lance_indices", description="Name of the job; the schedule adds _schedule.")
    cron_schedule: str | None = Field(
        default="0 4 * * *", description="When; null makes no schedule.", examples=["0 4 * * *", "@hourly"]
    )
    execution_timezone: str | None = Field(default=None, description="Time zone of the schedule; null is UTC.")
    schedule_running: bool = Field(default=False, description="Start the schedule with the deployment.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Assets, job and schedule."""
        del context
        status = dg.DefaultScheduleStatus
        return build_maintenance_definitions(
            self.tables,
            compaction=None,
            deletions=None,
            cleanup=None,
            indices=self.policy(),
            health=False,
            branch=self.branch,
            pool=self.pool,
            resource_key=self.resource_key,
            group_name=self.group_name,
            name=self.job_name,
            cron_schedule=self.cron_schedule,
            execution_timezone=self.execution_timezone,
            default_status=status.RUNNING if self.schedule_running else status.STOPPED,
        )
