"""Sensors for tables that are written elsewhere, declared in YAML.

No ``from __future__ import annotations`` here: Dagster resolves the fields' annotations.
"""

import dagster as dg
from pydantic import BaseModel, Field

from lance_dagster.components.maintenance import table_names
from lance_dagster.components.table import SensorModel


class SensorScaffoldParams(BaseModel):
    """Parameters of ``dg scaffold defs``."""

    tables: str = Field(default="my_table", description="Asset keys, separated by commas.")


class SensorScaffolder(dg.Scaffolder[SensorScaffoldParams]):
    """Writes a ``defs.yaml`` to begin with."""

    @classmethod
    def get_scaffold_params(cls) -> type[SensorScaffoldParams]:
        """See the base class."""
        return SensorScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[SensorScaffoldParams]) -> None:
        """See the base class."""
        params = request.params or SensorScaffoldParams()
        tables = table_names(params.tables)
        dg.scaffold_component(request, {"tables": tables, "report": "materialization", "running": True})


@dg.scaffold_with(SensorScaffolder)
class LanceSensorComponent(SensorModel, dg.Component):
    """One sensor for each table, which tells every version that changed data, once.

    Needs a ``LanceResource`` under ``resource_key``. A table that `LanceTableComponent` declares has its sensor there.

    ``dg scaffold defs lance_dagster.LanceSensorComponent news --tables raw/events,raw/users`` writes a ``defs.yaml`` to
    begin with.
    """

    tables: list[str] = Field(description="Asset keys, parts joined by '/'.", min_length=1, examples=[["raw/events"]])
    resource_key: str = Field(default="lance", description="Where the LanceResource is.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Sensors."""
        del context
        return dg.Definitions(sensors=[self.sensor(table, resource_key=self.resource_key) for table in self.tables])
