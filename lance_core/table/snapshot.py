"""One version of a table, opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lance_core.format.manifest import Manifest
    from lance_core.format.transaction import Transaction
    from lance_core.store.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One version of a table.

    Attributes:
        store: Where the table lies.
        manifest: What the version consists of.
    """

    store: Store
    manifest: Manifest

    @property
    def version(self) -> int:
        """The version's number."""
        return self.manifest.version


def open_snapshot(store: Store, version: int | None = None) -> Snapshot:
    """Open a version.

    Args:
        store: Where the table lies.
        version: Its number; None for the newest.

    Raises:
        DatasetNotFoundError: There is no table.
        VersionNotFoundError: There is no such version.
        CorruptDataError: The manifest is damaged.
        UnsupportedError: The table uses a feature that lance_core cannot read.
    """
    raise NotImplementedError


def list_versions(store: Store) -> list[int]:
    """Numbers of all versions, ascending; empty if there is no table."""
    raise NotImplementedError


def read_transaction(store: Store, version: int) -> Transaction | None:
    """The transaction that made a version; None if its writer left none.

    Raises:
        VersionNotFoundError: There is no such version.
    """
    raise NotImplementedError
