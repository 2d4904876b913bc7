"""Methods of `LanceDataset` that change its settings and free text; each moves the object to the version it made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.change.evolution import find_path
from lance_core.change.retries import commit_operation
from lance_core.format.table.operations import UpdateConfig, UpdateMap
from lance_core.table.naming import naming

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lance_core.methods.protocols import OpenDataset


def update_config(dataset: OpenDataset, values: Mapping[str, str | None], *, replace: bool = False) -> dict[str, str]:
    """Change settings of the table; this object moves to the new version.

    Args:
        values: New values; None removes a key.
        replace: Make these the only ones.

    Returns:
        All settings there are now.

    Examples:
        >>> table.update_config({"owner": "maps"})
        {'owner': 'maps'}
    """
    updates = UpdateConfig(config_updates=UpdateMap(update_entries=dict(values), replace=replace))
    dataset.snapshot = commit_operation(dataset.snapshot, updates)
    return dict(dataset.snapshot.manifest.config)


def delete_config_keys(dataset: OpenDataset, keys: Iterable[str]) -> None:
    """Remove settings of the table; this object moves to the new version."""
    update_config(dataset, dict.fromkeys(keys))


def update_metadata(dataset: OpenDataset, values: Mapping[str, str | None], *, replace: bool = False) -> dict[str, str]:
    """Change the free text about the table; as `update_config`."""
    updates = UpdateConfig(table_metadata_updates=UpdateMap(update_entries=dict(values), replace=replace))
    dataset.snapshot = commit_operation(dataset.snapshot, updates)
    return dict(dataset.snapshot.manifest.table_metadata)


def update_schema_metadata(
    dataset: OpenDataset, values: Mapping[str, str | None], *, replace: bool = False
) -> dict[str, str]:
    """Change the metadata of the Arrow schema; as `update_config`.

    Examples:
        >>> table.update_schema_metadata({"source": "survey"})
        {'source': 'survey'}
    """
    updates = UpdateConfig(schema_metadata_updates=UpdateMap(update_entries=dict(values), replace=replace))
    dataset.snapshot = commit_operation(dataset.snapshot, updates)
    return {key: value.decode() for key, value in dataset.snapshot.manifest.schema.metadata.items()}


def replace_schema_metadata(dataset: OpenDataset, new_metadata: Mapping[str, str]) -> None:
    """Replace the metadata of the Arrow schema; this object moves to the new version."""
    update_schema_metadata(dataset, new_metadata, replace=True)


def replace_field_metadata(dataset: OpenDataset, field_name: str, new_metadata: Mapping[str, str]) -> None:
    """Replace the metadata of one column; this object moves to the new version."""
    update_field_metadata(dataset, {field_name: new_metadata}, replace=True)


def update_field_metadata(
    dataset: OpenDataset, field_updates: Mapping[str, Mapping[str, str | None]], *, replace: bool = False
) -> None:
    """Change the metadata of columns; this object moves to the new version.

    Args:
        field_updates: Name or dotted path to new entries; None removes a key.
        replace: Make these the only ones.

    Raises:
        InvalidInputError: An unknown column.

    Examples:
        >>> table.update_field_metadata({"height": {"unit": "m"}})
        >>> table.schema.field("height").metadata
        {b'unit': b'm'}
    """
    snapshot = dataset.snapshot
    with naming(snapshot.store):
        ids = {path: find_path(snapshot.manifest.schema, path)[-1].id for path in field_updates}
    updates = {
        ids[path]: UpdateMap(update_entries=dict(entries), replace=replace) for path, entries in field_updates.items()
    }
    dataset.snapshot = commit_operation(snapshot, UpdateConfig(field_metadata_updates=updates))
