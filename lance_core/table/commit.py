"""The commit loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lance_core.format.transaction import Transaction
    from lance_core.store.base import Store
    from lance_core.table.snapshot import Snapshot

DEFAULT_MAX_RETRIES = 20


def commit(
    store: Store,
    transaction: Transaction,
    *,
    max_retries: int = DEFAULT_MAX_RETRIES,
    data_storage_version: str | None = None,
    enable_stable_row_ids: bool = False,
    enable_v2_manifest_paths: bool = True,
) -> Snapshot:
    """Make a new version of a table (more keyword arguments: clock and base snapshot)."""
    raise NotImplementedError
