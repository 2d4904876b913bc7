"""Methods of `LanceDataset` that change its settings and free text; each moves the object to the version it made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.change.retries import new_transaction
from lance_core.format.table.operations import UpdateConfig, UpdateMap
from lance_core.table.commit import commit

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
    _update_map(dataset, UpdateConfig(config_updates=UpdateMap(update_entries=dict(values), replace=replace)))
    return dict(dataset.snapshot.manifest.config)


def delete_config_keys(dataset: OpenDataset, keys: Iterable[str]) -> None:
    """Remove settings of the table; this object moves to the new version."""
    update_config(dataset, dict.fromkeys(keys))


def update_metadata(dataset: OpenDataset, values: Mapping[str, str | None], *, replace: bool = False) -> dict[str, str]:
    """Change the free text about the table; as `update_config`."""
    _update_map(dataset, UpdateConfig(table_metadata_updates=UpdateMap(update_entries=dict(values), replace=replace)))
    return dict(dataset.snapshot.manifest.table_metadata)


def update_schema_metadata(
    dataset: OpenDataset, values: Mapping[str, str | None], *, replace: bool = False
) -> dict[str, str]:
    """Change the metadata of the Arrow schema; as `update_config`.

    Examples:
        >>> table.update_schema_metadata({"source": "survey"})
        {'source': 'survey'}
    """
    _update_map(dataset, UpdateConfig(schema_metadata_updates=UpdateMap(update_entries=dict(values), replace=replace)))
    return {key: value.decode() for key, value in dataset.snapshot.manifest.schema.metadata.items()}


def _update_map(dataset: OpenDataset, operation: UpdateConfig) -> None:
    transaction = new_transaction(dataset.version, operation, properties=None, message=None)
    dataset.snapshot = commit(dataset.snapshot.store, transaction, read=dataset.snapshot, has_new_uuid=True)
