"""Versions of a table that changed data since one was seen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING

from lance_core.errors import InvalidInputError, VersionNotFoundError
from lance_dagster.versions.history import changes_data

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    import lance_core


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The last version that was dealt with: the cursor.

    Args:
        version: Its number.
        identity: Of its commit, by which a table that was made anew is noticed; empty if unknown.
    """

    version: int
    identity: str = ""

    @classmethod
    def of(cls, cursor: str | None) -> Seen | None:
        """From the text of a cursor: a version number, and after a colon the commit's identity.

        Raises:
            InvalidInputError: For any other text.
        """
        if not cursor:
            return None
        version, _, identity = cursor.partition(":")
        if not version.isdecimal():
            msg = f"The cursor {cursor!r} is no version number: set it to one, or reset it to begin anew."
            raise InvalidInputError(msg)
        return cls(version=int(version), identity=identity)

    def __str__(self) -> str:
        return f"{self.version}:{self.identity}" if self.identity else str(self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A version that changed data, or stands for some that were cleaned up.

    Args:
        version: Its number.
        identity: Of its commit.
        operation: Kind of its commit, as pylance calls it.
        properties: Transaction properties.
        num_rows: Rows of the table.
        timestamp: When it was made, with zone.
        num_lost: Versions before it that were cleaned up unseen.
    """

    version: int
    identity: str
    operation: str
    properties: Mapping[str, str]
    num_rows: int
    timestamp: datetime
    num_lost: int = 0


def changes_since(
    dataset: lance_core.LanceDataset, seen: Seen | None, *, limit: int, only_newest: bool = False
) -> tuple[list[Change], Seen]:
    """Return the changes after a version, oldest first, and the last version seen.

    Args:
        dataset: The table at its newest version.
        seen: The last version that was dealt with; None for none.
        limit: Most versions to look at.
        only_newest: The last change only, however many versions there are.
    """
    numbers = [
        version_ref["version"] for version_ref in dataset.version_refs() if version_ref["version"] <= dataset.version
    ]
    if seen is not None and _is_another_table(dataset, seen):
        seen = None
    if only_newest:
        return _newest(dataset, numbers)
    last = seen or Seen(version=0)
    changes: list[Change] = []
    for version in [number for number in numbers if number > last.version][:limit]:
        lost = version - last.version - 1
        try:
            change, is_change = _look(dataset, version, num_lost=lost)
        except VersionNotFoundError:
            continue  # cleaned up a moment ago: the next one stands for it
        if is_change or lost:
            changes.append(change)
        last = Seen(version=version, identity=change.identity)
    return changes, last


def _newest(dataset: lance_core.LanceDataset, numbers: list[int]) -> tuple[list[Change], Seen]:
    newest, _ = _look(dataset, dataset.version)
    change = newest
    for version in reversed(numbers):
        try:
            change, is_change = _look(dataset, version)
        except VersionNotFoundError:
            break
        if is_change:
            break
    return [change], Seen(version=newest.version, identity=newest.identity)


def _is_another_table(dataset: lance_core.LanceDataset, seen: Seen) -> bool:
    """Return whether the version that was seen is none of this table's."""
    if seen.version > dataset.version:
        return True
    try:
        return bool(seen.identity) and _identity(seen.version, dataset.read_transaction(seen.version)) != seen.identity
    except VersionNotFoundError:
        return False  # cleaned up


def _identity(version: int, transaction: lance_core.Transaction | None) -> str:
    return f"version-{version}" if transaction is None else transaction.uuid


def _look(dataset: lance_core.LanceDataset, version: int, *, num_lost: int = 0) -> tuple[Change, bool]:
    """Return a version, and whether it changed data."""
    transaction = dataset.read_transaction(version)
    there = dataset.checkout_version(version)
    change = Change(
        version=version,
        identity=_identity(version, transaction),
        operation="unknown" if transaction is None else type(transaction.operation).__name__,
        properties={} if transaction is None else transaction.transaction_properties or {},
        num_rows=there.count_rows(),
        timestamp=there.get_version()["timestamp"].astimezone(UTC),
        num_lost=num_lost,
    )
    return change, changes_data(transaction)
