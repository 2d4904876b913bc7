"""Commits that carry a key are made once: who commits again with the key gets the version that has it.

The key is a transaction property. It is looked for in the versions that are newer than the read version, or in the
newest ones if the read version says nothing about when the work began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.errors import VersionNotFoundError
from lance_core.table.snapshot import find_newest, read_transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.format.table.transaction import Transaction
    from lance_core.store.base import Store

IDEMPOTENCY_KEY = "lance_core.token"
"""Transaction property that holds the key."""

LOOKBACK = 100
"""Versions that are looked at if nothing says when the work began."""


def key_of(transaction: Transaction) -> str | None:
    """Return the key of a commit; None if it has none."""
    return transaction.transaction_properties.get(IDEMPOTENCY_KEY)


def with_key(properties: Mapping[str, str] | None, key: str | None) -> dict[str, str]:
    """Transaction properties with the key among them."""
    return {**(properties or {}), **({} if key is None else {IDEMPOTENCY_KEY: key})}


def find_commit(
    store: Store, key: str, *, after: int | None = None, lookback: int = LOOKBACK, name: str = IDEMPOTENCY_KEY
) -> int | None:
    """Return the version that a commit with a key made, looked for from the newest backwards.

    Args:
        store: The branch.
        key: The key.
        after: Only newer versions are looked at; the newest ``lookback`` if None.
        lookback: How many.
        name: Transaction property that holds the key.

    Returns:
        Its number; None if there is no such version, or clean-up came before it was reached.
    """
    versions = find_newest(store)
    newest = versions.newest or 0
    oldest = max(newest - lookback, 0) if after is None else after
    for version in range(newest, oldest, -1):
        try:
            transaction = read_transaction(store, version, naming=versions.naming)
        except VersionNotFoundError:  # cleaned up, and so are all before it
            return None
        if transaction is not None and transaction.transaction_properties.get(name) == key:
            return version
    return None
