"""Names of tables, and what their definitions say of maintenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import dagster as dg

from lance_dagster.maintenance.indices import declared_indices
from lance_dagster.maintenance.policies import IndexPolicy
from lance_dagster.partitioning.partitions import TablePartitions, check_partition_expr
from lance_dagster.setting_keys import check_asset
from lance_dagster.settings import find_setting

Table: TypeAlias = dg.AssetKey | dg.AssetsDefinition | dg.AssetSpec | Sequence[str] | str


def branch_path(branch: str | None) -> list[str]:
    """Return the part of an asset's key that names its branch."""
    return [] if branch is None else branch.split("/")


def index_policy(
    given: IndexPolicy | Mapping[str, str] | None, declared: Mapping[str, str] | None
) -> IndexPolicy | None:
    """Return the policy for a table: what was given, and what the metadata of its asset declare; None if neither."""
    policy = IndexPolicy(indices=given) if isinstance(given, Mapping) else given
    if not declared:
        return policy
    policy = policy or IndexPolicy()
    return replace(policy, indices={**policy.indices, **declared})


def table_keys_and_indices(tables: Any) -> tuple[list[dg.AssetKey], dict[dg.AssetKey, dict[str, str]]]:
    """Asset keys of whatever names tables, and the indices that the metadata of their assets declare."""
    tables = as_list(tables)
    declared = {key: declared_indices(metadata) for key, metadata in table_metadata(tables).items()}
    return table_keys(tables), {key: indices for key, indices in declared.items() if indices}


def as_list(tables: Any) -> list[Any]:
    """Whatever names tables, one or several, as a list."""
    is_one = isinstance(tables, (str, dg.AssetKey, dg.AssetSpec, dg.AssetsDefinition))
    return [tables] if is_one else list(tables)


def table_metadata(tables: Any) -> dict[dg.AssetKey, Mapping[str, Any]]:
    """Metadata of the definitions among whatever names tables."""
    return {
        spec.key: spec.metadata
        for table in as_list(tables)
        if isinstance(table, (dg.AssetsDefinition, dg.AssetSpec))
        for spec in (table.specs if isinstance(table, dg.AssetsDefinition) else [table])
    }


def table_partitions(tables: Any) -> dict[dg.AssetKey, TablePartitions]:
    """Partitions of the definitions among whatever names tables, as far as their metadata say which column has them."""
    partitions: dict[dg.AssetKey, TablePartitions] = {}
    for table in as_list(tables):
        if not isinstance(table, (dg.AssetsDefinition, dg.AssetSpec)):
            continue
        for spec in table.specs if isinstance(table, dg.AssetsDefinition) else [table]:
            partition_expr = find_setting("partition_expr", spec.metadata)
            if spec.partitions_def is not None and partition_expr is not None:
                check_partition_expr(spec.partitions_def, partition_expr)
                partitions[spec.key] = TablePartitions(definition=spec.partitions_def, partition_expr=partition_expr)
    return partitions


def table_keys(tables: Any) -> list[dg.AssetKey]:
    """Asset keys of whatever names tables; the settings of definitions are checked."""
    keys: list[dg.AssetKey] = []
    for table in as_list(tables):
        if isinstance(table, (dg.AssetsDefinition, dg.AssetSpec)):
            check_asset(table)
        match table:
            case dg.AssetsDefinition():
                keys.extend(sorted(table.keys))
            case dg.AssetSpec():
                keys.append(table.key)
            case str():
                keys.append(dg.AssetKey.from_user_string(table))
            case _:
                keys.append(dg.AssetKey.from_coercible(table))
    return list(dict.fromkeys(keys))
