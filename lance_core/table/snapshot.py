"""One version of a table, opened."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, cast

from lance_core.common.frozen import frozen
from lance_core.errors import (
    CorruptDataError,
    DatasetNotFoundError,
    LanceError,
    NotFoundError,
    VersionNotFoundError,
)
from lance_core.format.table.manifest import Manifest, decode_known_manifest, decode_manifest_file
from lance_core.format.table.paths import (
    DETACHED_BIT,
    LATEST_VERSION_HINT,
    VERSIONS_FOLDER,
    ManifestNaming,
    decode_version_hint,
    manifest_path,
    parse_manifest_name,
    parse_version,
    split_v2_names,
    transaction_path,
    v2_versions,
)
from lance_core.format.table.transaction import decode_transaction
from lance_core.table.completion import completed
from lance_core.table.locations import first_names, objects_at_once, settled_folder, with_bases
from lance_core.table.read_ahead import each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lance_core.format.table.transaction import Transaction
    from lance_core.store.base import Store

_FIRST_NAMES = 16
READERS = 8
"""Manifests that are read at the same time."""
READ_AHEAD = 64
"""Manifests in memory on their way to who goes through a history."""


@frozen(kw_only=True)
class Snapshot:
    """One version of a table.

    Attributes:
        store: The branch it is on, with the other places that it has files in.
        manifest: What the version consists of.
    """

    store: Store
    manifest: Manifest

    def __post_init__(self) -> None:
        object.__setattr__(self, "store", with_bases(self.store, self.manifest))

    @property
    def version(self) -> int:
        """The version's number."""
        return self.manifest.version


@frozen(kw_only=True)
class Versions:
    """The versions there are, without detached ones.

    Attributes:
        names: Their manifest files.
        naming: How these are named; V2 if there is none.
    """

    names: tuple[str, ...]
    naming: ManifestNaming

    @property
    def newest(self) -> int | None:
        """The highest number; None if there is no version."""
        if not self.names:
            return None
        # Newest first is what the names of scheme V2 are made for; a long history need not be parsed.
        return v2_versions([min(self.names)])[0] if self.naming is ManifestNaming.V2 else self.numbers[-1]

    @property
    def numbers(self) -> tuple[int, ...]:
        """All numbers, ascending."""
        if self.naming is ManifestNaming.V2:
            return v2_versions(self.names)
        return tuple(sorted(map(parse_version, self.names)))


def open_snapshot(store: Store, version: int | None = None, *, expected: int | None = None) -> Snapshot:
    """Open a version.

    Args:
        store: Where the table lies.
        version: Its number; None for the newest.
        expected: The version that is probably the newest: on object stores, it is read while the newest is looked for.

    Raises:
        DatasetNotFoundError: There is no table.
        VersionNotFoundError: There is no such version.
        CorruptDataError: The manifest is damaged.
        UnsupportedError: The table uses a feature that lance_core cannot read.
    """
    if version is not None:
        return _opened(store, load_known_manifest(store, version))
    while True:
        versions, manifest = (find_newest(store), None) if expected is None else _find_expected(store, expected)
        newest = versions.newest
        if newest is None:
            raise DatasetNotFoundError("there is no Lance dataset here; write one first", path=store.uri)
        try:
            if manifest is None or newest != expected or versions.naming is not ManifestNaming.V2:
                manifest = load_known_manifest(store, newest, versions.naming)
            return _opened(store, manifest)
        except VersionNotFoundError:
            # Cleaned up since it was listed, so there is a newer one; if there is none, the listing was wrong.
            if find_newest(store).newest == newest:
                raise
        except CorruptDataError as error:
            before = [number for number in list_versions(store) if number < newest]
            hint = f"; version {before[-1]} is the one before it" if before else ""
            raise CorruptDataError(
                f"the newest version, {newest}, is damaged: {error.message}{hint}", path=error.path, offset=error.offset
            ) from error


def _find_expected(store: Store, expected: int) -> tuple[Versions, Manifest | None]:
    """Find the newest version; on object stores, read the expected one meanwhile, if there is one of scheme V2."""
    if objects_at_once(store) < 2:
        return find_newest(store), None

    def load() -> Manifest | None:
        try:
            return load_known_manifest(store, expected, ManifestNaming.V2)
        except LanceError:  # read again, if it is the newest
            return None

    works: tuple[Callable[[], Versions | Manifest | None], ...] = (partial(find_newest, store), load)
    versions, manifest = each(store, works)
    return cast("Versions", versions), cast("Manifest | None", manifest)


def _opened(store: Store, manifest: Manifest) -> Snapshot:
    try:
        manifest.fragments.check(uses_stable_row_ids=manifest.uses_stable_row_ids)
    except CorruptDataError as error:
        raise CorruptDataError(error.message, path=store.uri) from error
    return Snapshot(store=store, manifest=manifest)


def find_snapshot(store: Store, *, expected: int | None = None) -> Snapshot | None:
    """Open the newest version; None if there is no table. Arguments and errors as `open_snapshot`."""
    try:
        return open_snapshot(store, expected=expected)
    except DatasetNotFoundError:
        return None


def find_versions(store: Store) -> Versions:
    """List the versions.

    Raises:
        CorruptDataError: Manifest files of both naming schemes lie side by side.
    """
    return _versions(store, store.names(VERSIONS_FOLDER))


def _versions(store: Store, names: Sequence[str]) -> Versions:
    v2, rest = split_v2_names(names)
    v1 = [name for name in rest if (parsed := parse_manifest_name(name)) and parsed.naming is ManifestNaming.V1]
    if v1 and v2:
        raise CorruptDataError(
            "the dataset has manifest files of both naming schemes. Migrate them to V2", path=store.uri
        )
    return Versions(names=tuple(v1 or v2), naming=ManifestNaming.V1 if v1 else ManifestNaming.V2)


def find_newest(store: Store, *, is_certain: bool = False) -> Versions:
    """Find the newest version, and perhaps others, with as short a listing as the store can give.

    Args:
        store: The branch.
        is_certain: Do not believe the hint that writers leave on local file systems, whatever speaks for it.

    Raises:
        CorruptDataError: Manifest files of both naming schemes were found.
    """
    hinted = None if is_certain else _hinted(store)
    if hinted is not None:
        return hinted
    # Newest first is what the names of scheme V2 are made for. Only temporary files may come before them.
    names = first_names(store, VERSIONS_FOLDER, _FIRST_NAMES)
    if names is not None:
        versions = _versions(store, names)
        if len(names) < _FIRST_NAMES or (versions.names and versions.naming is ManifestNaming.V2):
            return versions
    return find_versions(store)


def _hinted(store: Store) -> Versions | None:
    """Return the newest version by the hint of the writer that made it, if all that can be looked at agrees.

    The hint was the last that happened in the folder, and its version has one before it, and none behind it. (A
    version that stands alone may have been taken by a writer that a clean-up overtook.)
    """
    settled = settled_folder(store)
    if settled is None:
        return None
    branch_root, prefix = settled
    data = branch_root.settled(prefix + LATEST_VERSION_HINT)
    number = None if data is None else decode_version_hint(data)
    if number is None or number < 2:
        return None
    name = manifest_path(number, ManifestNaming.V2)
    if branch_root.exists(prefix + manifest_path(number + 1, ManifestNaming.V2)) or not branch_root.exists(
        prefix + name
    ):
        return None
    if not branch_root.exists(prefix + manifest_path(number - 1, ManifestNaming.V2)):
        return None
    return Versions(names=(name.rpartition("/")[2],), naming=ManifestNaming.V2)


def newest_version(store: Store) -> int:
    """Return number of the newest version.

    Raises:
        DatasetNotFoundError: There is no table.
    """
    newest = find_newest(store).newest
    if newest is None:
        raise DatasetNotFoundError("there is no Lance dataset here; write one first", path=store.uri)
    return newest


def list_versions(store: Store) -> list[int]:
    """Numbers of all versions, ascending; empty if there is no table."""
    return list(find_versions(store).numbers)


def load_manifests(store: Store) -> Iterator[Manifest]:
    """Yield the manifests of all versions, ascending, read ahead; one that is cleaned up meanwhile is left out."""
    versions = find_versions(store)

    def load(number: int) -> Manifest | None:
        try:
            return load_manifest(store, number, naming=versions.naming)
        except VersionNotFoundError:
            return None

    numbers = versions.numbers
    with ThreadPoolExecutor(READERS) as pool:
        for start in range(0, len(numbers), READ_AHEAD):
            for manifest in pool.map(load, numbers[start : start + READ_AHEAD]):
                if manifest is not None:
                    yield manifest


def load_manifest(store: Store, version: int, *, naming: ManifestNaming | None = None) -> Manifest:
    """Read the manifest of a version, and what it leaves out from other files (`lance_core.table.completion`).

    Args:
        store: Where the table lies.
        version: Number of the version.
        naming: How manifest files are named; None to try both schemes.

    Raises:
        VersionNotFoundError: There is no such version.
        CorruptDataError: The manifest, or a file that tells what it leaves out, is damaged or missing.
    """
    return completed(store, decode_version(store, version, naming=naming))


def load_known_manifest(store: Store, version: int, naming: ManifestNaming | None = None) -> Manifest:
    """As `load_manifest`, for versions that are opened again and again."""
    data, path = load_manifest_file(store, version, naming=naming)
    return completed(store, decode_known_manifest(data, version=version, path=path))


def decode_version(store: Store, version: int, *, naming: ManifestNaming | None = None) -> Manifest:
    """Read the manifest of a version as its writer left it: it may lack row counts, row ids or row versions.

    Arguments and errors are those of `load_manifest`, but no other file is opened.
    """
    data, path = load_manifest_file(store, version, naming=naming)
    return decode_manifest_file(data, version=version, path=path)


def load_manifest_file(store: Store, version: int, *, naming: ManifestNaming | None = None) -> tuple[bytes, str]:
    """Return the content of a manifest, and its address; arguments and errors are those of `load_manifest`."""
    for candidate in _candidates(version, naming):
        path = manifest_path(version, candidate)
        try:
            return store.get(path), f"{store.uri}/{path}"
        except NotFoundError:
            continue
    raise VersionNotFoundError(f"there is no version {version}; it may have been cleaned up", path=store.uri)


def load_transaction(store: Store, manifest: Manifest) -> Transaction | None:
    """Return the transaction that made a version; None if its writer left none."""
    inline = manifest.inline_transaction()
    if inline is not None or not manifest.transaction_file:
        return inline
    path = transaction_path(manifest.transaction_file)
    try:
        return decode_transaction(store.get(path), path=f"{store.uri}/{path}")
    except NotFoundError:
        return None


def read_transaction(store: Store, version: int, *, naming: ManifestNaming | None = None) -> Transaction | None:
    """Return the transaction that made a version; None if its writer left none. Arguments as in `load_manifest`.

    Raises:
        VersionNotFoundError: There is no such version.
    """
    return load_transaction(store, decode_version(store, version, naming=naming))


def _candidates(version: int, naming: ManifestNaming | None) -> tuple[ManifestNaming, ...]:
    if not 0 < version < 2 * DETACHED_BIT:
        raise VersionNotFoundError(f"there is no version {version}: versions count from 1")
    if version & DETACHED_BIT:
        return (ManifestNaming.V2,)
    return (ManifestNaming.V2, ManifestNaming.V1) if naming is None else (naming,)
