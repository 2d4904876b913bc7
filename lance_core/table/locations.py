"""Locations of the files of one version: the dataset, a branch inside it, and its base paths.

The main branch of a dataset lies at its root, a branch in ``tree/{name}`` below it, laid out like a dataset of its own,
but without tags and branches: these are kept at the root. A version may also have files in other places, which its
manifest lists. Paths of such files begin with ``_base/{id}/``, and `BasedStore` knows where that is.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from lance_core.common.frozen import frozen, mutable, replace
from lance_core.errors import CorruptDataError, NotFoundError, UntrustedPlaceError
from lance_core.format.table.paths import BASE_PREFIX, branch_folder, path_in_base, split_base_path
from lance_core.format.table.refs import is_branch_name
from lance_core.store.addresses import parse_address
from lance_core.store.base import (
    BatchSink,
    FarStore,
    FolderRemover,
    ObjectSizes,
    OrderedFolder,
    PieceSink,
    SettledFolder,
    offers,
)
from lance_core.store.range_reader import WHOLE_BYTES
from lance_core.store.tasks import all_blocking
from lance_core.store.trust import PlaceSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lance_core.format.table.base_path import BasePath
    from lance_core.format.table.manifest import Manifest
    from lance_core.store.base import ObjectInfo, ObjectReader, ObjectWriter, PendingRead, Store
    from lance_core.table.commit_lock import CommitLock

_Read = TypeVar("_Read")


# ------------------------------------------------------------------------------------------------------------ branches


@frozen
class FolderStore:
    """A folder of a store, as a store.

    Attributes:
        parent: The store.
        folder: Path of the folder.
        branch: The branch that the folder is for; None for any other.
    """

    parent: Store
    folder: str
    branch: str | None = None

    @property
    def uri(self) -> str:
        """Address of the folder."""
        return address_below(self.parent.uri, self.folder)

    def reader(self, path: str, /) -> ObjectReader:
        """Open an object."""
        return self.parent.reader(self._at(path))

    def sized_reader(self, path: str, size: int, /, *, most_bytes: int = WHOLE_BYTES) -> ObjectReader:
        """Open an object of a known size."""
        return sized_reader(self.parent, self._at(path), size, most_bytes=most_bytes)

    def get(self, path: str, /) -> bytes:
        """Read a whole object."""
        return self.parent.get(self._at(path))

    def writer(self, path: str, /) -> ObjectWriter:
        """Begin an object."""
        return self.parent.writer(self._at(path))

    def put(self, path: str, data: bytes, /) -> None:
        """Write a whole object."""
        self.parent.put(self._at(path), data)

    def put_if_absent(self, path: str, data: bytes, /) -> bool:
        """Create an object."""
        return self.parent.put_if_absent(self._at(path), data)

    def names(self, folder: str, /) -> list[str]:
        """Names in a folder."""
        return self.parent.names(self._at(folder))

    def list(self, prefix: str, /) -> Iterator[ObjectInfo]:
        """Return all objects below a folder."""
        cut = len(self.folder) + 1
        return (replace(info, path=info.path[cut:]) for info in self.parent.list(self._at(prefix)))

    def delete(self, paths: Sequence[str], /) -> None:
        """Delete objects."""
        self.parent.delete([self._at(path) for path in paths])

    def _at(self, path: str) -> str:
        return f"{self.folder}/{path}"


def branch_store(root: Store, branch: str | None) -> Store:
    """Return the store of a branch; None is the main branch."""
    return root if branch is None else FolderStore(root, branch_folder(branch), branch)


def branch_of(store: Store) -> tuple[Store, str | None]:
    """Return the root of a dataset, where tags and branches are kept, and the branch that a store is for."""
    branch_root = without_bases(store)
    return (
        (branch_root.parent, branch_root.branch)
        if isinstance(branch_root, FolderStore) and branch_root.branch is not None
        else (branch_root, None)
    )


def address_below(uri: str, folder: str) -> str:
    """Address of a folder; settings at the end of an address (``?``) stay there."""
    location, mark, settings = uri.partition("?") if "://" in uri else (uri, "", "")
    return f"{location.rstrip('/')}/{folder}{mark}{settings}"


# ---------------------------------------------------------------------------------------------------------- base paths


@mutable
class BasedStore:
    """A branch together with the other places that one of its versions names.

    Attributes:
        branch_root: The main branch or a branch.
        settings: How other places are opened.
        bases: The base paths of the version.
        branch: Branch the version is on, as its manifest says.
        commit_lock: Lock of the caller, held while a manifest is created.
    """

    branch_root: Store
    settings: PlaceSettings
    bases: tuple[BasePath, ...] = ()
    branch: str | None = None
    commit_lock: CommitLock | None = None
    _opened: dict[int, tuple[Store, BasePath]] = field(default_factory=dict[int, "tuple[Store, BasePath]"])

    def __reduce__(self) -> tuple[object, ...]:
        return (BasedStore, (self.branch_root, self.settings, self.bases, self.branch, self.commit_lock))

    @property
    def uri(self) -> str:
        """Address of the branch."""
        return self.branch_root.uri

    def reader(self, path: str, /) -> ObjectReader:
        """Open an object.

        A version of a branch names the place of its parent. If the whole dataset was copied or moved since, what is
        not there is looked for at the parent's place in this dataset.
        """
        return self._read(path, lambda store, inner: store.reader(inner))

    def sized_reader(self, path: str, size: int, /, *, most_bytes: int = WHOLE_BYTES) -> ObjectReader:
        """Open an object of a known size; as `reader`."""
        return self._read(path, lambda store, inner: sized_reader(store, inner, size, most_bytes=most_bytes))

    def get(self, path: str, /) -> bytes:
        """Read a whole object; as `reader`."""
        return self._read(path, lambda store, inner: store.get(inner))

    def writer(self, path: str, /) -> ObjectWriter:
        """Begin an object."""
        store, inner = self.locate(path)
        return store.writer(inner)

    def put(self, path: str, data: bytes, /) -> None:
        """Write a whole object."""
        store, inner = self.locate(path)
        store.put(inner, data)

    def put_if_absent(self, path: str, data: bytes, /) -> bool:
        """Create an object."""
        store, inner = self.locate(path)
        return store.put_if_absent(inner, data)

    def names(self, folder: str, /) -> list[str]:
        """Names in a folder."""
        store, inner = self.locate(folder)
        return store.names(inner)

    def list(self, prefix: str, /) -> Iterator[ObjectInfo]:
        """Return all objects below a folder."""
        store, inner = self.locate(prefix)
        if store is self.branch_root:
            return store.list(prefix)
        return (replace(info, path=f"{prefix}{info.path[len(inner) :]}") for info in store.list(inner))

    def delete(self, paths: Sequence[str], /) -> None:
        """Delete objects."""
        located = [self.locate(path) for path in paths]
        for store in {id(store): store for store, _ in located}.values():
            store.delete([inner for other, inner in located if other is store])

    def base(self, base_id: int) -> tuple[Store, BasePath]:
        """Return the place of a base path.

        Raises:
            CorruptDataError: The version has no such base path.
            LanceError: The table may not name this address; see `PlaceSettings.resolve`.
        """
        store = self._opened.get(base_id)
        if store is None:
            base = self._listed(base_id)
            store = self._opened[base_id] = (self._open(base), base)
        return store

    def external(self, base_id: int, uri: str) -> ObjectReader:
        """Open an external blob.

        Args:
            base_id: Base path that it lies below; 0 for none.
            uri: Path below the base path, or address.

        Raises:
            CorruptDataError: The version has no such base path.
            LanceError: The table may not name this address; see `PlaceSettings.resolve`.
        """
        external_address = parse_address(self._listed(base_id).path).joined(uri) if base_id else parse_address(uri)
        return self.settings.open_object(external_address, dataset=branch_of(self.branch_root)[0].uri)

    def _listed(self, base_id: int) -> BasePath:
        base = next((base for base in self.bases if base.id == base_id), None)
        if base is None:
            raise CorruptDataError(f"a file lies below base path {base_id}, which the manifest does not list")
        return base

    def _open(self, base: BasePath) -> Store:
        root, _ = branch_of(self.branch_root)
        address = base.path.rstrip("/").removeprefix("file://")
        if address == root.uri:
            return root
        inside = address.removeprefix(f"{root.uri}/")
        if inside != address and not any(part in {"", ".", ".."} for part in inside.split("/")):
            return FolderStore(root, inside)
        return self.settings.open(base.path, dataset=root.uri)

    def locate(self, path: str) -> tuple[Store, str]:
        """Return the store that has a path, and the path in it."""
        if not path.startswith(BASE_PREFIX):
            return self.branch_root, path
        base_id, inner = split_base_path(path)
        store, base = self.base(base_id)
        return store, path_in_base(inner, is_dataset_root=base.is_dataset_root)

    def _read(self, path: str, read: Callable[[Store, str], _Read]) -> _Read:
        try:
            return read(*self.locate(path))
        except (NotFoundError, UntrustedPlaceError):
            moved = self._moved(path)
            if moved is None:
                raise
            with suppress(NotFoundError):
                return read(*moved)
            raise

    def _moved(self, path: str) -> tuple[Store, str] | None:
        """Return the location of a file of a branch's parent after the whole dataset was moved."""
        if self.branch is None or not path.startswith(BASE_PREFIX):
            return None
        root, _ = branch_of(self.branch_root)
        base_id, inner = split_base_path(path)
        base = self._listed(base_id)
        if not base.is_dataset_root or not (base.name is None or is_branch_name(base.name)):
            return None
        return branch_store(root, base.name), inner


def open_external(store: Store, base_id: int, uri: str) -> ObjectReader:
    """Open an external blob of a version; arguments and errors as `BasedStore.external`."""
    based = store if isinstance(store, BasedStore) else BasedStore(store, PlaceSettings())
    return based.external(base_id, uri)


def with_bases(store: Store, manifest: Manifest) -> Store:
    """The store that finds all files of a version; itself if it does already, or if they all lie in the branch."""
    return at_places(store, manifest.base_paths, manifest.branch)


def at_places(store: Store, bases: tuple[BasePath, ...], branch: str | None) -> Store:
    """As `with_bases`, for the base paths and the branch of a version."""
    if isinstance(store, BasedStore):
        if store.bases == bases and store.branch == branch:
            return store
        return BasedStore(store.branch_root, store.settings, bases, branch, store.commit_lock)
    return BasedStore(store, PlaceSettings(), bases, branch) if bases else store


def without_bases(store: Store) -> Store:
    """Return the branch itself."""
    return store.branch_root if isinstance(store, BasedStore) else store


def with_settings(store: Store, settings: PlaceSettings, commit_lock: CommitLock | None = None) -> Store:
    """Return a store that opens other places with these settings and commits under this lock.

    Args:
        store: The store of any version.
        settings: How other places are opened.
        commit_lock: See `BasedStore`.
    """
    if not settings.storage_options and not settings.base_store_params and commit_lock is None:
        return store
    if isinstance(store, BasedStore) and store.settings == settings and store.commit_lock == commit_lock:
        return store
    return BasedStore(without_bases(store), settings, commit_lock=commit_lock)


def finds_same_files(store: Store, other: Store) -> bool:
    """Return whether two stores find a file of any path at one place."""
    if isinstance(store, BasedStore) and isinstance(other, BasedStore):
        return (
            store.branch_root == other.branch_root and store.settings == other.settings and store.bases == other.bases
        )
    return store is other or store == other


def same_branch(store: Store, branch_root: Store) -> Store:
    """Another line of the same dataset, with the settings of ``store``."""
    return (
        BasedStore(branch_root, store.settings, commit_lock=store.commit_lock)
        if isinstance(store, BasedStore)
        else branch_root
    )


# --------------------------------------------------------------------------------------------------- what stores offer


def first_names(store: Store, folder: str, count: int) -> list[str] | None:
    """Return the first names of a folder in ascending order; None if the store would have to list all of it."""
    branch_root = without_bases(store)
    if isinstance(branch_root, FolderStore):
        return first_names(branch_root.parent, f"{branch_root.folder}/{folder}", count)
    return branch_root.first_names(folder, count) if offers(branch_root, OrderedFolder, "first_names") else None


def create(store: Store, path: str, pieces: Sequence[bytes | memoryview]) -> bool:
    """Create an object of bytes end to end, as ``put_if_absent``, without laying them together where that can be."""
    if isinstance(store, BasedStore):
        inner, path = store.locate(path)
        return create(inner, path, pieces)
    if isinstance(store, FolderStore):
        return create(store.parent, f"{store.folder}/{path}", pieces)
    if offers(store, PieceSink, "put_pieces_if_absent"):
        return store.put_pieces_if_absent(path, pieces)
    return store.put_if_absent(path, b"".join(pieces))


def remove_empty_folders(store: Store, folder: str) -> None:
    """Remove what is left of a folder whose objects were deleted, where stores keep empty folders."""
    branch_root = without_bases(store)
    if isinstance(branch_root, FolderStore):
        remove_empty_folders(branch_root.parent, f"{branch_root.folder}/{folder}" if folder else branch_root.folder)
    elif offers(branch_root, FolderRemover, "remove_empty_folders"):
        branch_root.remove_empty_folders(folder)


def settled_folder(store: Store) -> tuple[SettledFolder, str] | None:
    """The store that can tell what is settled, and the prefix of paths of this branch there; None if it cannot."""
    branch_root, prefix = without_bases(store), ""
    while isinstance(branch_root, FolderStore):
        branch_root, prefix = without_bases(branch_root.parent), f"{branch_root.folder}/{prefix}"
    return (branch_root, prefix) if offers(branch_root, SettledFolder, "settled") else None


def settle(store: Store, path: str, data: bytes) -> None:
    """Put an object that can be checked against others, so that who reads it while it is written does no harm."""
    branch_root = without_bases(store)
    if isinstance(branch_root, FolderStore):
        settle(branch_root.parent, f"{branch_root.folder}/{path}", data)
    elif offers(branch_root, SettledFolder, "settle"):
        branch_root.settle(path, data)
    else:
        branch_root.put(path, data)


def objects_at_once(store: Store) -> int:
    """Objects that it pays to read at the same time: one of a store that answers at once."""
    branch_root = without_bases(store)
    if isinstance(branch_root, FolderStore):
        return objects_at_once(branch_root.parent)
    return branch_root.at_once if offers(branch_root, FarStore, "at_once") else 1


def waits_in_tasks(store: Store) -> bool:
    """Return whether tasks that wait for the store let others go on; see `lance_core.store.tasks`."""
    branch_root = without_bases(store)
    if isinstance(branch_root, FolderStore):
        return waits_in_tasks(branch_root.parent)
    return getattr(branch_root, "waits_in_tasks", False)


def sized_reader(store: Store, path: str, size: int, *, most_bytes: int = WHOLE_BYTES) -> ObjectReader:
    """Open an object that has ``size`` bytes if it is what it was.

    Stores that are far away read one of at most ``most_bytes`` whole, the local one if it is small.
    """
    if not size or not offers(store, FarStore, "sized_reader"):
        return store.reader(path)
    return store.sized_reader(path, size, most_bytes=most_bytes)


def begin_puts(store: Store, objects: Sequence[tuple[str, bytes]]) -> Sequence[PendingRead[object]]:
    """Write whole objects, at the same time if the store is far away.

    Returns:
        Those that are still on their way: each is there when its result is.

    Raises:
        Exception: Of one that failed; others may have been written.
    """
    if isinstance(store, FolderStore):
        return begin_puts(store.parent, [(f"{store.folder}/{path}", data) for path, data in objects])
    if isinstance(store, BasedStore) and not any(path.startswith(BASE_PREFIX) for path, _ in objects):
        return begin_puts(store.branch_root, objects)
    if offers(store, BatchSink, "begin_puts"):
        return store.begin_puts(objects)
    if objects_at_once(store) > 1:
        all_blocking([partial(store.put, path, data) for path, data in objects])
        return []
    for path, data in objects:
        store.put(path, data)
    return []


def object_sizes(store: Store, paths: Sequence[str]) -> list[int]:
    """Return bytes in each object, asked for at the same time if the store can do that.

    Raises:
        NotFoundError: One is not there.
    """
    if isinstance(store, FolderStore):
        return object_sizes(store.parent, [f"{store.folder}/{path}" for path in paths])
    if isinstance(store, BasedStore):
        if any(path.startswith(BASE_PREFIX) for path in paths):
            return [_size(store, path) for path in paths]
        return object_sizes(store.branch_root, paths)
    return store.sizes(paths) if offers(store, ObjectSizes, "sizes") else [_size(store, path) for path in paths]


def _size(store: Store, path: str) -> int:
    reader = store.reader(path)
    try:
        return reader.size
    finally:
        reader.close()


def with_lock(store: Store, lock: CommitLock | None) -> Store:
    """Return a store whose manifests are created under a lock; None keeps the lock that the store has."""
    if lock is None:
        return store
    if isinstance(store, BasedStore):
        return BasedStore(store.branch_root, store.settings, store.bases, store.branch, lock)
    return BasedStore(store, PlaceSettings(), commit_lock=lock)


def lock_of(store: Store) -> CommitLock | None:
    """Return the lock under which manifests are created, if the caller gave one."""
    return store.commit_lock if isinstance(store, BasedStore) else None
