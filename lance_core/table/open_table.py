"""From an address and a reference to an opened version."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from lance_core.common.frozen import frozen
from lance_core.errors import DatasetNotFoundError, VersionNotFoundError
from lance_core.format.table.paths import BRANCH_FILES_FOLDER
from lance_core.format.table.refs import is_branch_name
from lance_core.store.open import open_store
from lance_core.store.trust import PlaceSettings
from lance_core.table.branches import get_branch
from lance_core.table.locations import BasedStore, branch_of, branch_store, with_settings
from lance_core.table.refs import resolve
from lance_core.table.snapshot import find_snapshot, find_versions, load_manifest, open_snapshot

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from lance_core.store.base import Store
    from lance_core.table.refs import Reference
    from lance_core.table.snapshot import Snapshot

_MARK = f"/{BRANCH_FILES_FOLDER}/"


@frozen(kw_only=True)
class BranchAddress:
    """Address of a branch: enough for other processes to open it without reading anything.

    Attributes:
        root: Address of the dataset.
        branch: The branch that the address is of; None for the main branch.
        storage_options: Settings of the storage service.
        base_store_params: Settings of other places that the table names; see `PlaceSettings`.
    """

    root: str
    branch: str | None
    storage_options: Mapping[str, str] | None = field(repr=False)
    base_store_params: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(store: Store, storage_options: Mapping[str, str] | None) -> BranchAddress:
        """Return the address of an open branch."""
        root, branch = branch_of(store)
        params = store.settings.base_store_params if isinstance(store, BasedStore) else {}
        return BranchAddress(root=root.uri, branch=branch, storage_options=storage_options, base_store_params=params)

    def open(self) -> Store:
        """Return the line, opened in this process."""
        branch_root = branch_store(open_store(self.root, self.storage_options), self.branch)
        settings = PlaceSettings(storage_options=self.storage_options or {}, base_store_params=self.base_store_params)
        return with_settings(branch_root, settings)


def open_branch(
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
) -> Store:
    """Open the branch at an address: the main branch of a dataset, or a branch by the address of its folder.

    Args:
        uri: As for `lance_core.store.open.open_store`.
        storage_options: Settings of the storage service.
        base_store_params: Settings of other places that the table names, by address; an entry also allows the place
            and what lies below it.
    """
    store = open_store(uri, storage_options)
    for root, branch in _splits(store.uri):
        branch_root = branch_store(open_store(root, storage_options), branch)
        snapshot = find_snapshot(branch_root)
        if snapshot is not None and snapshot.manifest.branch == branch:
            store = branch_root
            break
    if not storage_options and not base_store_params:
        return store
    return with_settings(
        store, PlaceSettings(storage_options=storage_options or {}, base_store_params=base_store_params or {})
    )


def _splits(uri: str) -> Iterator[tuple[str, str]]:
    """Addresses of datasets, and branches of them, that an address may mean."""
    location, mark, settings = uri.partition("?") if "://" in uri else (uri, "", "")
    start = location.find(_MARK)
    while start > 0:
        branch = location[start + len(_MARK) :]
        if is_branch_name(branch):
            yield f"{location[:start]}{mark}{settings}", branch
        start = location.find(_MARK, start + 1)


def open_version(store: Store, reference: Reference = None) -> Snapshot:
    """Open a version of a dataset.

    Args:
        store: A branch of the dataset.
        reference: Number on this branch, tag, or branch and number; None for the newest of this branch.

    Raises:
        DatasetNotFoundError: There is no dataset.
        RefNotFoundError: There is no such tag or branch.
        VersionNotFoundError: There is no such version.
    """
    branch_root, version = resolve(store, reference)
    try:
        return open_snapshot(branch_root, version)
    except (DatasetNotFoundError, VersionNotFoundError):
        root, branch = branch_of(branch_root)
        if branch is None:
            raise
        get_branch(root, branch)
        raise


def find_version_as_of(store: Store, time: datetime) -> int:
    """Return the newest version of a branch that was committed before a point in time.

    Versions are looked at from the newest backwards.

    Raises:
        DatasetNotFoundError: There is no dataset.
        VersionNotFoundError: All versions are newer.
    """
    listed = find_versions(store)
    if listed.newest is None:
        raise DatasetNotFoundError("there is no Lance dataset here; write one first", path=store.uri)
    for version in reversed(listed.numbers):
        try:
            timestamp = load_manifest(store, version, naming=listed.naming).timestamp
        except VersionNotFoundError:  # cleaned up since it was listed
            continue
        if timestamp is not None and timestamp < time:
            return version
    raise VersionNotFoundError(f"there is no version as of {time.isoformat()}: the first one is newer", path=store.uri)
