"""One version of a table, opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_core.errors import CorruptDataError, DatasetNotFoundError, NotFoundError, VersionNotFoundError
from lance_core.format.manifest import Manifest, decode_manifest_file
from lance_core.format.paths import (
    DETACHED_BIT,
    VERSIONS_FOLDER,
    ManifestNaming,
    manifest_path,
    parse_manifest_name,
    transaction_path,
)
from lance_core.format.transaction import decode_transaction

if TYPE_CHECKING:
    from datetime import datetime

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The versions there are.

    Attributes:
        numbers: Ascending; without detached versions.
        naming: How their files are named; V2 if there is none.
    """

    numbers: tuple[int, ...]
    naming: ManifestNaming


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionInfo:
    """A version in the history.

    Attributes:
        version: Its number.
        timestamp: When it was committed, UTC; None if its writer did not record it.
    """

    version: int
    timestamp: datetime | None


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
    if version is not None:
        return Snapshot(store=store, manifest=load_manifest(store, version))
    while True:
        versions = find_versions(store)
        if not versions.numbers:
            raise DatasetNotFoundError("there is no Lance dataset here; write one first", path=store.uri)
        try:
            return Snapshot(store=store, manifest=load_manifest(store, versions.numbers[-1], naming=versions.naming))
        except VersionNotFoundError:
            # Cleaned up since it was listed, so there is a newer one; if there is none, the listing was wrong.
            if find_versions(store).numbers == versions.numbers:
                raise


def find_versions(store: Store) -> Versions:
    """List the versions.

    Raises:
        CorruptDataError: Manifest files of both naming schemes lie side by side.
    """
    found = [name for name in map(parse_manifest_name, store.names(VERSIONS_FOLDER)) if name is not None]
    namings = {name.naming for name in found if name.naming is not None}
    if len(namings) > 1:
        raise CorruptDataError("the manifest files have names of both schemes; migrate them to V2", path=store.uri)
    numbers = sorted(name.version for name in found if name.naming is not None)
    return Versions(numbers=tuple(numbers), naming=namings.pop() if namings else ManifestNaming.V2)


def list_versions(store: Store) -> list[int]:
    """Numbers of all versions, ascending; empty if there is no table."""
    return list(find_versions(store).numbers)


def describe_versions(store: Store) -> list[VersionInfo]:
    """All versions with the time of their commit, ascending; one read per version."""
    versions = find_versions(store)
    infos: list[VersionInfo] = []
    for number in versions.numbers:
        try:
            manifest = load_manifest(store, number, naming=versions.naming)
        except VersionNotFoundError:  # cleaned up since it was listed
            continue
        infos.append(VersionInfo(version=number, timestamp=manifest.timestamp))
    return infos


def load_manifest(store: Store, version: int, *, naming: ManifestNaming | None = None) -> Manifest:
    """Read the manifest of a version.

    Args:
        store: Where the table lies.
        version: Number of the version.
        naming: How manifest files are named; None to try both schemes.

    Raises:
        VersionNotFoundError: There is no such version.
    """
    for candidate in _candidates(version, naming):
        path = manifest_path(version, candidate)
        try:
            data = store.get(path)
        except NotFoundError:
            continue
        return decode_manifest_file(data, version=version, path=f"{store.uri}/{path}")
    raise VersionNotFoundError(f"there is no version {version}; it may have been cleaned up", path=store.uri)


def load_transaction(store: Store, manifest: Manifest) -> Transaction | None:
    """The transaction that made a version; None if its writer left none."""
    inline = manifest.inline_transaction()
    if inline is not None or not manifest.transaction_file:
        return inline
    path = transaction_path(manifest.transaction_file)
    try:
        return decode_transaction(store.get(path), path=f"{store.uri}/{path}")
    except NotFoundError:
        return None


def read_transaction(store: Store, version: int) -> Transaction | None:
    """The transaction that made a version; None if its writer left none.

    Raises:
        VersionNotFoundError: There is no such version.
    """
    return load_transaction(store, load_manifest(store, version))


def _candidates(version: int, naming: ManifestNaming | None) -> tuple[ManifestNaming, ...]:
    if not 0 < version < 2 * DETACHED_BIT:
        raise VersionNotFoundError(f"there is no version {version}: versions count from 1")
    if version & DETACHED_BIT:
        return (ManifestNaming.V2,)
    return (ManifestNaming.V2, ManifestNaming.V1) if naming is None else (naming,)
