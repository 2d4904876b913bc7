"""A table, declared in YAML: what it is, what is checked, what is done to keep it in shape.

No ``from __future__ import annotations`` here: Dagster resolves the fields' annotations.
"""

from datetime import timedelta
from typing import Any, Literal

import dagster as dg
from pydantic import BaseModel, Field

from lance_core.errors import InvalidInputError
from lance_dagster.checks import build_checks
from lance_dagster.components.maintenance import MaintenanceModel, optional
from lance_dagster.table_checks import LanceChecks
from lance_dagster.versions.observe import build_observable_table
from lance_dagster.versions.sensors import build_table_sensor


class ColumnModel(dg.Model, dg.Resolvable):
    """A column, for the catalog."""

    name: str
    type: str = Field(description="Arrow type.", examples=["int64", "string", "timestamp[us, tz=UTC]"])
    description: str | None = None
    nullable: bool = True
    tags: dict[str, str] = Field(default_factory=dict)


class ChecksModel(dg.Model, dg.Resolvable):
    """Rules for the table; each that is given becomes a check, and all run in one step."""

    min_rows: int | None = Field(default=None, ge=0, description="Fewest rows allowed.")
    max_rows: int | None = Field(default=None, ge=0, description="Most rows allowed.")
    columns: dict[str, str] | None = Field(
        default=None, description="Columns and their Arrow types; other columns fail, too.", examples=[{"id": "int64"}]
    )
    schema_change: bool = Field(default=False, description="Warn when a change of data came with other columns.")
    not_null: list[str] = Field(default_factory=list, description="Columns without nulls.")
    unique: list[list[str]] = Field(
        default_factory=list, description="Lists of columns that together have no value twice.", examples=[[["id"]]]
    )
    max_age_hours: float | None = Field(default=None, gt=0, description="Warn when the data is older.")
    max_deleted_fraction: float | None = Field(
        default=None, ge=0, le=1, description="Warn when more rows of the files are deleted."
    )
    integrity: Literal["quick", "full"] | None = Field(
        default=None, description="Whether all files are there and fit together; full reads every value."
    )
    max_unindexed_fraction: float | None = Field(
        default=None, ge=0, le=1, description="Warn when an index does not cover more of the rows."
    )
    index_audit: Literal["sample", "full"] | None = Field(
        default=None, description="Whether indices answer what the columns hold; full compares all rows."
    )
    blocking: bool = Field(default=False, description="A failure stops what is downstream.")

    def rules(self) -> LanceChecks:
        """Return the same as a value."""
        given = self.model_dump(exclude={"blocking", "max_age_hours"})
        age = None if self.max_age_hours is None else timedelta(hours=self.max_age_hours)
        return LanceChecks(**given, max_age=age)


class FreshnessModel(dg.Model, dg.Resolvable):
    """Maximum age of the newest materialization: a ``dg.FreshnessPolicy``."""

    fail_after_hours: float = Field(gt=0, description="Older is a failure.")
    warn_after_hours: float | None = Field(default=None, gt=0, description="Older is a warning.")

    def policy(self) -> dg.FreshnessPolicy:
        """Return the same for an asset."""
        warn = None if self.warn_after_hours is None else timedelta(hours=self.warn_after_hours)
        return dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=self.fail_after_hours), warn_window=warn)


class SensorModel(dg.Model, dg.Resolvable):
    """A sensor that tells every version that changed data, once."""

    target: str | None = Field(
        default=None, description="Selection of assets to run for each such version.", examples=["silver/users+"]
    )
    report: Literal["materialization", "observation"] | None = Field(
        default=None, description="Event to report; without a target a materialization."
    )
    start: Literal["newest", "first"] = Field(default="newest", description="Version to begin with.")
    minimum_interval_seconds: int | None = Field(default=None, ge=1, description="Least time between two looks.")
    running: bool = Field(default=False, description="Start the sensor with the deployment.")

    def sensor(self, table: str, *, resource_key: str) -> dg.SensorDefinition:
        """Return the sensor of a table."""
        status = dg.DefaultSensorStatus
        return build_table_sensor(
            table,
            target=self.target and dg.AssetSelection.from_string(self.target),
            report=self.report,
            start=self.start,
            resource_key=resource_key,
            minimum_interval_seconds=self.minimum_interval_seconds,
            default_status=status.RUNNING if self.running else status.STOPPED,
        )


class TableScaffoldParams(BaseModel):
    """Parameters of ``dg scaffold defs``."""

    table: str = Field(default="my_table", description="Asset key of the table, parts joined by '/'.")


class TableScaffolder(dg.Scaffolder[TableScaffoldParams]):
    """Writes a ``defs.yaml`` to begin with."""

    @classmethod
    def get_scaffold_params(cls) -> type[TableScaffoldParams]:
        """See the base class."""
        return TableScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[TableScaffoldParams]) -> None:
        """See the base class."""
        params = request.params or TableScaffoldParams()
        attributes = {
            "table": params.table,
            "description": "Written by ...",
            "sensor": {"running": True},
            "checks": {"min_rows": 1, "integrity": "quick"},
        }
        dg.scaffold_component(request, attributes)


@dg.scaffold_with(TableScaffolder)
class LanceTableComponent(dg.Component, dg.Model, dg.Resolvable):
    """A Lance table: one that is written elsewhere, or checks and maintenance of one that an asset writes.

    Needs a ``LanceResource`` under ``resource_key``; a table that is written elsewhere is loaded downstream by the IO
    manager under ``io_manager_key``.

    ``dg scaffold defs lance_dagster.LanceTableComponent events --table raw/events`` writes a ``defs.yaml`` to begin
    with.
    """

    table: str = Field(
        description="Asset key, parts joined by '/'; the table is where the LanceResource looks for it.",
        min_length=1,
        examples=["raw/events"],
    )
    external: bool = Field(
        default=True, description="Declare the asset. Set it to false if an asset of this name is defined elsewhere."
    )
    description: str | None = Field(default=None, description="Shown in the catalog.")
    group_name: str | None = Field(default=None, description="Asset group.")
    owners: list[str] = Field(default_factory=list, examples=[["team:data"]])
    tags: dict[str, str] = Field(default_factory=dict, description="Asset tags.")
    columns: list[ColumnModel] = Field(default_factory=list, description="Columns, for the catalog.")
    freshness: FreshnessModel | None = Field(default=None, json_schema_extra=optional)
    observe_cron: str | None = Field(
        default=None, description="When to observe the table by automation.", examples=["@hourly"]
    )
    sensor: SensorModel | None = Field(default=None, json_schema_extra=optional)
    checks: ChecksModel | None = Field(default=None, json_schema_extra=optional)
    maintenance: MaintenanceModel | None = Field(default=None, json_schema_extra=optional)
    resource_key: str = Field(default="lance", description="Where the LanceResource is.")
    io_manager_key: str = Field(default="io_manager", description="Loads the table downstream.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the declared definitions."""
        del context
        key = dg.AssetKey.from_user_string(self.table)
        if not self.external and (declared := self._declared()):
            msg = f"{', '.join(declared)}: say this where the asset {self.table} is defined, or set `external: true`."
            raise InvalidInputError(msg)
        definitions = dg.Definitions(
            assets=[self._asset()] if self.external else [],
            sensors=[] if self.sensor is None else [self.sensor.sensor(self.table, resource_key=self.resource_key)],
            asset_checks=[]
            if self.checks is None
            else [
                build_checks(key, self.checks.rules(), blocking=self.checks.blocking, resource_key=self.resource_key)
            ],
        )
        if self.maintenance is None:
            return definitions
        upkeep = self.maintenance.definitions(
            [self.table],
            name="__".join([*key.path, "maintenance"]),
            group_name="maintenance",
            resource_key=self.resource_key,
        )
        return dg.Definitions.merge(definitions, upkeep)

    def _declared(self) -> list[str]:
        """Attributes that only a table which is written elsewhere can have."""
        names = ("description", "group_name", "owners", "tags", "columns", "freshness", "observe_cron")
        return [name for name in names if getattr(self, name)]

    def _asset(self) -> dg.AssetsDefinition:
        metadata: dict[str, Any] = {}
        if self.columns:
            metadata["dagster/column_schema"] = dg.TableSchema([_column(column) for column in self.columns])
        return build_observable_table(
            self.table,
            resource_key=self.resource_key,
            io_manager_key=self.io_manager_key,
            group_name=self.group_name,
            description=self.description,
            owners=self.owners,
            tags=self.tags,
            metadata=metadata,
            freshness_policy=self.freshness and self.freshness.policy(),
            automation_condition=None
            if self.observe_cron is None
            else dg.AutomationCondition.on_cron(self.observe_cron),
        )


def _column(column: ColumnModel) -> dg.TableColumn:
    return dg.TableColumn(
        name=column.name,
        type=column.type,
        description=column.description,
        constraints=dg.TableColumnConstraints(nullable=column.nullable),
        tags=column.tags,
    )
