"""Definitions of assets: metadata for Dagster's UI, and a check of settings before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from lance_dagster import _compat
from lance_dagster.column_schema import table_schema, with_primary_key
from lance_dagster.io_manager import LanceIOManager
from lance_dagster.metadata import MAINTENANCE_LINK, STORAGE_KIND, TABLE_LINK, storage_metadata
from lance_dagster.setting_keys import check_asset, check_run_tags, warn_of
from lance_dagster.shared_tables import TableAddress, refuse_shared
from lance_dagster.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

_MAX_KINDS = 10


def lance_asset_metadata(
    asset_key: dg.AssetKey | Sequence[str] | str,
    *,
    root: str,
    schema: pa.Schema | dg.TableSchema | None = None,
    partition_expr: str | Mapping[str, str] | None = None,
    mode: str | None = None,
    schema_mode: str | None = None,
    primary_key: Sequence[str] = (),
) -> dict[str, Any]:
    """Metadata for ``@dg.asset(metadata=...)``: the Storage panel, the Columns table, and the IO manager's settings.

    Args:
        asset_key: Key of the asset.
        root: The IO manager's root.
        schema: Declared columns; with Arrow's types also the schema of the empty input of a self-dependent asset's
            first partition.
        partition_expr: Column that holds the partition key (or an SQL expression), or dimension -> such.
        mode: Write mode of this asset.
        schema_mode: What happens to columns that differ from the table's.
        primary_key: Columns shown as the table's key, by which the mode ``merge`` tells rows apart.

    Returns:
        ``dagster/table_name``, ``dagster/uri``, ``dagster/storage_kind`` and what was given.
    """
    key = dg.AssetKey.from_coercible(asset_key)
    metadata = storage_metadata(key, Tables(root=root).uri(key))
    if schema is not None:
        columns = schema if isinstance(schema, dg.TableSchema) else table_schema(schema)
        metadata["dagster/column_schema"] = with_primary_key(columns, primary_key)
    if partition_expr is not None:
        metadata["partition_expr"] = partition_expr if isinstance(partition_expr, str) else dict(partition_expr)
    if mode is not None:
        metadata["mode"] = mode
    if schema_mode is not None:
        metadata["schema_mode"] = schema_mode
    if primary_key:
        metadata["primary_key"] = list(primary_key)
    return metadata


def check_definitions(definitions: dg.Definitions) -> dg.Definitions:
    """Check the settings of all assets that a `LanceIOManager` stores or loads, without running anything.

    Keys that look like a misspelt setting, such as ``{"mod": "append"}``, are told by a ``UserWarning``.

    Example:
        ``defs = check_definitions(dg.Definitions(assets=assets, resources=resources))``

    Args:
        definitions: Assets with their resources.

    Returns:
        The same definitions.

    Raises:
        InvalidInputError: An unknown ``lance/`` key in the metadata or tags of an asset, in the metadata of an input,
            or among the tags of a job; a value that a setting cannot have; two assets that write one table, or tables
            whose names differ in case only.
    """
    ours = {key for key, value in (definitions.resources or {}).items() if isinstance(value, LanceIOManager)}
    for asset in definitions.assets or ():
        if isinstance(asset, (dg.AssetsDefinition, dg.AssetSpec)) and _compat.io_manager_keys(asset) & ours:
            check_asset(asset)
    _check_places(definitions)
    for job in definitions.jobs or ():
        tags = {**(getattr(job, "tags", None) or {}), **(getattr(job, "run_tags", None) or {})}
        warn_of(f"Job {job.name}", check_run_tags, tags)
    return definitions


def describe_tables(definitions: dg.Definitions) -> dg.Definitions:
    """Give the assets that are Lance tables the kind ``lance``, their place, and links to their maintenance.

    What the definitions of the assets say already stays as it is. Assets that give nothing to an IO manager, such as
    those declared ``-> None``, are left alone.

    Example:
        ``defs = describe_tables(check_definitions(dg.Definitions(assets=assets, resources=resources)))``

    Args:
        definitions: Assets with their resources and their maintenance.

    Returns:
        Definitions with more metadata.
    """
    managers = {key: value for key, value in (definitions.resources or {}).items() if isinstance(value, LanceIOManager)}
    stored: dict[dg.AssetKey, LanceIOManager] = {}
    maintenance: dict[dg.AssetKey, list[dg.AssetKey]] = {}
    for asset in definitions.assets or ():
        specs = asset.specs if isinstance(asset, dg.AssetsDefinition) else [asset]
        for spec in specs:
            if not isinstance(spec, dg.AssetSpec):
                continue
            table = spec.metadata.get(TABLE_LINK)
            if isinstance(table, dg.DagsterAssetMetadataValue):
                maintenance.setdefault(table.asset_key, []).append(spec.key)
            elif isinstance(asset, dg.AssetsDefinition) and _compat.stores_value(asset, spec.key):
                manager = managers.get(asset.get_io_manager_key_for_asset_key(spec.key))
                if manager is not None:
                    stored[spec.key] = manager

    def described(spec: dg.AssetSpec) -> dg.AssetSpec:
        if spec.key not in stored and spec.key not in maintenance:
            return spec
        metadata: dict[str, Any] = {}
        if spec.key in stored:
            manager = stored[spec.key]
            address = TableAddress.of(spec.key, spec.metadata, manager.tables, branch=manager.branch)
            metadata |= storage_metadata(spec.key, address.uri)
        if spec.key in maintenance:
            metadata[MAINTENANCE_LINK] = dg.MetadataValue.md(_links(maintenance[spec.key]))
        given = {key: value for key, value in metadata.items() if key not in spec.metadata}
        # The UI shows ten kinds at most.
        kinds = {STORAGE_KIND} if len(spec.kinds) < _MAX_KINDS else set[str]()
        return spec.merge_attributes(metadata=given, kinds=kinds)

    mapped = [
        next(iter(dg.map_asset_specs(described, [asset])))
        if isinstance(asset, (dg.AssetsDefinition, dg.AssetSpec))
        else asset
        for asset in definitions.assets or ()
    ]
    return dg.Definitions(
        assets=mapped,
        schedules=definitions.schedules,
        sensors=definitions.sensors,
        jobs=definitions.jobs,
        resources=definitions.resources,
        executor=definitions.executor,
        loggers=definitions.loggers,
        asset_checks=definitions.asset_checks,
        metadata=definitions.metadata,
    )


def _links(keys: Sequence[dg.AssetKey]) -> str:
    return ", ".join(f"[{key.to_user_string()}](/assets/{key.to_user_string()})" for key in keys)


def _check_places(definitions: dg.Definitions) -> None:
    """Refuse two assets that write one table without saying so."""
    addresses: list[TableAddress] = []
    for asset in definitions.assets or ():
        if not isinstance(asset, dg.AssetsDefinition) or not asset.is_executable:
            continue
        for key in asset.keys:
            manager = (definitions.resources or {}).get(asset.get_io_manager_key_for_asset_key(key))
            if isinstance(manager, LanceIOManager):
                metadata = asset.metadata_by_key.get(key, {})
                addresses.append(TableAddress.of(key, metadata, manager.tables, branch=manager.branch))
    refuse_shared(addresses)
