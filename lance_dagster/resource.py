"""Direct access to tables from assets, checks and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from lance_dagster.metadata import table_numbers
from lance_dagster.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import lance_core


class LanceResource(dg.ConfigurableResource):
    """The tables below ``root``, named like the IO manager names them.

    Example:
        ``lance.dataset(dg.AssetKey(["silver", "users"])).count_rows()``
    """

    root: str = Field(description="Folder or URI that holds the tables; the same as the IO manager's.")
    storage_options: dict[str, str] = Field(default_factory=dict, description="Settings of the object store.")

    @property
    def tables(self) -> Tables:
        """Naming and opening."""
        return Tables(root=self.root, storage_options=self.storage_options)

    def uri(self, asset_key: dg.AssetKey | Sequence[str] | str) -> str:
        """URI of the table of an asset; a str is one part or parts joined by ``/``."""
        return self.tables.uri(_key(asset_key))

    def exists(self, asset_key: dg.AssetKey | Sequence[str] | str) -> bool:
        """Whether the table is there."""
        return self.tables.find(self.uri(asset_key)) is not None

    def dataset(
        self, asset_key: dg.AssetKey | Sequence[str] | str, *, version: int | str | None = None
    ) -> lance_core.LanceDataset:
        """Open an asset's table.

        Args:
            asset_key: Key of the asset.
            version: Version number, tag, or None for the newest.

        Raises:
            DatasetNotFoundError: The asset was never materialized here.
        """
        return self.tables.open(self.uri(asset_key), version=version)

    def tags(self, asset_key: dg.AssetKey | Sequence[str] | str) -> Mapping[str, int]:
        """Tag name -> version."""
        dataset = self.dataset(asset_key)
        return {name: dataset.tags.get_version(name) for name in dataset.tags.list()}

    def statistics(self, asset_key: dg.AssetKey | Sequence[str] | str) -> Mapping[str, int | float]:
        """Rows, fragments, files, bytes and the like of the newest version, by metadata key (``lance/...``)."""
        return table_numbers(self.dataset(asset_key))


def _key(asset_key: dg.AssetKey | Sequence[str] | str) -> dg.AssetKey:
    if isinstance(asset_key, dg.AssetKey):
        return asset_key
    if isinstance(asset_key, str):
        return dg.AssetKey.from_user_string(asset_key)
    return dg.AssetKey(list(asset_key))
