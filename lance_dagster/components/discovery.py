"""All tables below a root or in a namespace as external assets, found when ``dg`` refreshes the state.

No ``from __future__ import annotations`` here: Dagster resolves the fields' annotations.
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg
from dagster.components import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from pydantic import BaseModel, Field

from lance_core.errors import LanceError
from lance_dagster import _compat
from lance_dagster.column_schema import table_schema
from lance_dagster.components.maintenance import MaintenanceModel, optional
from lance_dagster.components.resources import StorageModel
from lance_dagster.maintenance.health import look_at
from lance_dagster.maintenance.policies import DEFAULT_CLEANUP, DEFAULT_COMPACTION, DEFAULT_DELETIONS
from lance_dagster.metadata import readable, storage_metadata
from lance_dagster.tables import Tables

_THREADS = 8


class DiscoveryScaffoldParams(BaseModel):
    """Parameters of ``dg scaffold defs``."""

    root: str = Field(default="data", description="Folder or address that holds the tables.")


class DiscoveryScaffolder(dg.Scaffolder[DiscoveryScaffoldParams]):
    """Writes a ``defs.yaml`` to begin with."""

    @classmethod
    def get_scaffold_params(cls) -> type[DiscoveryScaffoldParams]:
        """See the base class."""
        return DiscoveryScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[DiscoveryScaffoldParams]) -> None:
        """See the base class."""
        params = request.params or DiscoveryScaffoldParams()
        attributes = {
            "root": params.root,
            "group_name": "discovered",
            "defs_state": {"management_type": "LOCAL_FILESYSTEM"},
        }
        dg.scaffold_component(request, attributes)


@dg.scaffold_with(DiscoveryScaffolder)
class LanceDiscoveryComponent(StorageModel, dg.StateBackedComponent):
    """All tables below a root, or in a namespace, as external assets with columns, size and health.

    ``dg utils refresh-defs-state`` looks for tables anew; ``dg dev`` does so when it starts. Tables whose asset keys
    the rest of the project defines are left to it. With ``maintenance``, the tables are maintained, too, which needs
    a ``LanceResource`` of the same root under ``resource_key``.

    ``dg scaffold defs lance_dagster.LanceDiscoveryComponent lake --root s3://bucket/lake`` writes a ``defs.yaml`` to
    begin with.
    """

    key_prefix: list[str] = Field(default_factory=list, description="Parts put before the asset key of each table.")
    exclude: list[str] = Field(
        default_factory=list,
        description="Asset keys (without the prefix) that are left out; those of this project are in any case.",
        examples=[["raw/events"]],
    )
    group_name: str = Field(default="discovered", description="Asset group.")
    owners: list[str] = Field(default_factory=list, examples=[["team:data"]])
    maintenance: MaintenanceModel | None = Field(default=None, json_schema_extra=optional)
    maintenance_name: str = Field(default="discovered_maintenance", description="Name of the maintenance job.")
    resource_key: str = Field(default="lance", description="Where the LanceResource is.")
    io_manager_key: str = Field(default="io_manager", description="Loads the tables downstream.")
    defs_state: ResolvedDefsStateConfig = Field(default_factory=DefsStateConfigArgs.local_filesystem)

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """The key and the storage of the state."""
        return DefsStateConfig.from_args(self.defs_state, default_key=f"{type(self).__name__}[{self.root}]")

    def write_state_to_path(self, state_path: Path) -> None:
        """Find the tables, and write their columns and numbers."""
        given = self.storage()
        tables = Tables(
            root=self.root,
            storage_options=_without_variables(given["storage_options"]),
            namespace=_without_variables(given["namespace"]),
        )
        keys = [key for key in tables.asset_keys() if key.to_user_string() not in self.exclude]
        with ThreadPoolExecutor(_THREADS) as pool:
            entries = list(pool.map(lambda key: describe(tables, key), keys))
        state_path.write_text(json.dumps(entries, indent=1))

    def build_defs_from_state(self, context: dg.ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        """Make an external asset of each table that no other component of the project defines."""
        entries: Sequence[Mapping[str, Any]] = [] if state_path is None else json.loads(state_path.read_text())
        others = _compat.keys_of_other_components(context, but=LanceDiscoveryComponent)
        entries = [entry for entry in entries if self._key(entry) not in others]
        definitions = dg.Definitions(assets=[self._spec(entry) for entry in entries])
        if self.maintenance is None or not entries:
            return definitions
        upkeep = self.maintenance.definitions(
            [self._key(entry).to_user_string() for entry in entries],
            name=self.maintenance_name,
            group_name="maintenance",
            resource_key=self.resource_key,
        )
        return dg.Definitions.merge(definitions, upkeep)

    def _key(self, entry: Mapping[str, Any]) -> dg.AssetKey:
        return dg.AssetKey([*self.key_prefix, *entry["key"]])

    def _spec(self, entry: Mapping[str, Any]) -> dg.AssetSpec:
        key = self._key(entry)
        metadata: dict[str, Any] = {**storage_metadata(key, entry["uri"]), **entry["numbers"]}
        metadata["dagster/io_manager_key"] = self.io_manager_key
        if self.key_prefix:
            metadata["lance/uri"] = entry["address"]
        if "columns" in entry:
            metadata["dagster/column_schema"] = dg.TableSchema([_column(column) for column in entry["columns"]])
        return dg.AssetSpec(
            key,
            group_name=self.group_name,
            owners=self.owners,
            kinds={"lance"},
            description=entry["problem"] or None,
            metadata=readable(metadata),
        )


def _without_variables(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value.get_value() if isinstance(value, dg.EnvVar) else value) for name, value in settings.items()}


def describe(tables: Tables, key: dg.AssetKey) -> dict[str, Any]:
    """Return the columns, numbers and needs of a table, as JSON takes them."""
    entry: dict[str, Any] = {"key": key.path, "address": tables.address(key), "uri": "", "numbers": {}, "problem": ""}
    try:
        entry["uri"] = tables.uri(key)
        dataset = tables.open(entry["uri"])
        policies: Any = {"compaction": DEFAULT_COMPACTION, "deletions": DEFAULT_DELETIONS, "cleanup": DEFAULT_CLEANUP}
        health = look_at(dataset, key.to_user_string(), **policies)
    except LanceError as error:
        return {**entry, "problem": f"This table cannot be read: {error}"}
    needs = "; ".join(f"{name}: {why}" for name, why in health.needs.items()) or "needs no maintenance"
    columns = [
        {
            "name": column.name,
            "type": column.type,
            "description": column.description,
            "nullable": column.constraints.nullable,
        }
        for column in table_schema(dataset.schema).columns
    ]
    numbers = {"lance/summary": needs, "lance/version": dataset.version, **health.numbers}
    return {**entry, "numbers": numbers, "columns": columns}


def _column(column: Mapping[str, Any]) -> dg.TableColumn:
    return dg.TableColumn(
        name=column["name"],
        type=column["type"],
        description=column["description"],
        constraints=dg.TableColumnConstraints(nullable=column["nullable"]),
    )
