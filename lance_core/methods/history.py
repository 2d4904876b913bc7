"""Methods of `LanceDataset` about its versions."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from lance_core.change.migrate import migrate_manifest_paths_v2 as migrate
from lance_core.change.retries import new_transaction
from lance_core.format.table.operations import Restore
from lance_core.table.commit import commit
from lance_core.table.refs import keeping
from lance_core.table.runtime import SYSTEM_RUNTIME
from lance_core.table.snapshot import list_versions, newest_version, open_snapshot
from lance_core.table.snapshot import read_transaction as load_transaction
from lance_core.table.statistics import version_summary
from lance_core.table.version_list import VersionList

if TYPE_CHECKING:
    from collections.abc import Generator

    from lance_core.methods.protocols import OpenDataset
    from lance_core.table.refs import Reference
    from lance_core.values.operations import Transaction

_Dataset = TypeVar("_Dataset", bound="OpenDataset")


def versions(dataset: OpenDataset) -> VersionList:
    """Return all versions of this branch, ascending.

    Where pylance has a list, this is a sequence: the versions are listed now, and the manifest of each is read when
    its entry is looked at.

    Returns:
        Dicts with ``version``, ``timestamp`` (local time without a time zone, as in pylance) and ``metadata``
        (numbers as text).

    Examples:
        >>> table.delete("id = 1")
        {'num_deleted_rows': 1}
        >>> [entry["version"] for entry in table.versions()]
        [1, 2]
    """
    return VersionList(dataset.snapshot.store)


def version_refs(dataset: OpenDataset) -> list[dict[str, int]]:
    """Return the numbers of all versions of this branch, ascending, as dicts with ``version``; no manifest is read."""
    return [{"version": number} for number in list_versions(dataset.snapshot.store)]


def get_version(dataset: OpenDataset) -> dict[str, Any]:
    """This version as an entry of `versions`; nothing is read."""
    return version_summary(dataset.snapshot.manifest)


def migrate_manifest_paths_v2(dataset: OpenDataset) -> None:
    """Name the manifests of an old dataset so that the newest sorts first.

    Can be repeated if it was interrupted. Nobody may write at the same time.
    """
    migrate(dataset.snapshot.store)


def checkout_version(dataset: _Dataset, version: Reference) -> _Dataset:
    """This dataset at another version; this object stays where it is.

    Args:
        version: Number on the same branch, tag, or tuple of branch (None or "main": the main branch) and number (None:
            the newest).

    Examples:
        >>> table.delete("id = 1")
        {'num_deleted_rows': 1}
        >>> table.checkout_version(1).count_rows(), table.count_rows()
        (4, 3)
    """
    return dataset.reopened(version)


def checkout_latest(dataset: OpenDataset) -> None:
    """Move this object to the newest version."""
    dataset.snapshot = open_snapshot(dataset.snapshot.store)


@contextmanager
def pinned(dataset: _Dataset) -> Generator[_Dataset]:
    """Keep this version, and all files that it needs, from clean-up while a block reads it. Not in pylance.

    A tag of its own keeps it, until the block ends. So every process may read it meanwhile, clean-ups of pylance that
    begin in the meantime heed it (unless told to pass over tagged versions, they refuse to run), and writing to the
    table's root must be allowed. Whoever dies in the block leaves the tag. Clean-up drops tags of this kind that are
    older than seven days, whether the block goes on or not.

    Returns:
        A context manager: ``with lance_core.dataset(uri).pinned() as dataset: ...``.

    Raises:
        VersionNotFoundError: A clean-up has taken the version.

    Examples:
        >>> with table.pinned() as pinned:
        ...     pinned.count_rows()
        4
    """
    with keeping(dataset.snapshot.store, dataset.version, uuid=str(uuid.uuid4()), runtime=SYSTEM_RUNTIME):
        yield dataset


def restore(dataset: OpenDataset) -> None:
    """Make this version the newest again, as a new version; this object moves to it.

    Examples:
        >>> table.delete("id = 1")
        {'num_deleted_rows': 1}
        >>> table.checkout_version(1).restore()
        >>> lance_core.dataset("cities.lance").count_rows()
        4
    """
    store = dataset.snapshot.store
    # The newest version is not opened: it may be damaged, and going back to this one the remedy.
    read_version = newest_version(store)
    transaction = new_transaction(read_version, Restore(version=dataset.version), properties=None, message=None)
    dataset.snapshot = commit(store, transaction, has_new_uuid=True)


def read_transaction(dataset: OpenDataset, version: int) -> Transaction | None:
    """Return the transaction that made a version; None if its writer left none."""
    from lance_core.values.operations import from_inner  # noqa: PLC0415 twenty classes that few need

    inner = load_transaction(dataset.snapshot.store, version)
    return None if inner is None else from_inner(inner)


def get_transactions(dataset: OpenDataset, recent_transactions: int = 10) -> list[Transaction | None]:
    """Return the transactions of this version and those before it, newest first."""
    numbers = [number for number in list_versions(dataset.snapshot.store) if number <= dataset.version]
    return [read_transaction(dataset, number) for number in reversed(numbers[-recent_transactions:])]
