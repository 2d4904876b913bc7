"""History of a table, newest version first."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from lance_core.errors import VersionNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    import lance_core

# Commits that change how rows are stored or found, not which rows there are.
_SAME_DATA = frozenset(
    {"Rewrite", "ReserveFragments", "CreateIndex", "UpdateConfig", "UpdateBases", "UpdateMemWalState"}
)


def recent_properties(
    dataset: lance_core.LanceDataset, *, limit: int, since: datetime | None = None
) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Version and transaction properties of the newest versions, until one was cleaned up.

    Args:
        dataset: The table, newest version.
        limit: Most versions looked at.
        since: Versions older than this are not looked at.
    """
    for version, transaction in islice(_transactions(dataset), limit):
        if since is not None and _is_older(dataset, version, since):
            return
        yield version, (transaction.transaction_properties or {}) if transaction is not None else {}


def _is_older(dataset: lance_core.LanceDataset, version: int, moment: datetime) -> bool:
    try:
        return dataset.checkout_version(version).get_version()["timestamp"].astimezone() < moment
    except VersionNotFoundError:
        return True


def data_version(dataset: lance_core.LanceDataset) -> int:
    """Return the last version that changed data; compaction, indices and settings do not count.

    Ends at the oldest version that clean-up left.
    """
    last = dataset.version
    for version, transaction in _transactions(dataset):
        last = version
        if changes_data(transaction):
            break
    return last


def data_changes(dataset: lance_core.LanceDataset, *, after: int) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Version and transaction properties of the versions newer than one that may have changed data, newest first."""
    for version, transaction in _transactions(dataset):
        if version <= after:
            return
        if changes_data(transaction):
            yield version, (transaction.transaction_properties or {}) if transaction is not None else {}


def changes_data(transaction: lance_core.Transaction | None) -> bool:
    """Return whether a commit may have changed which rows there are; one that left no trace may."""
    return transaction is None or type(transaction.operation).__name__ not in _SAME_DATA


def _transactions(dataset: lance_core.LanceDataset) -> Iterator[tuple[int, lance_core.Transaction | None]]:
    for version in range(dataset.version, 0, -1):
        try:
            yield version, dataset.read_transaction(version)
        except VersionNotFoundError:
            return
