"""Commits on object stores that cannot create an object atomically: a table elsewhere decides who wins.

    1. write the manifest under a staged name, ``{final}-{uuid}``, that nobody else uses
    2. create the version's row with that path: here exactly one writer wins
    3. copy the staged manifest to its final name
    4. let the row name the final path, and delete the staged manifest

After step 2 the version is committed. A writer that stops there leaves a row with a staged path, and whoever looks for
the newest version, or for this one, does the remaining steps; if that fails, so does looking. Each step may be done
several times and by several processes, because all of them copy the same bytes. Readers that do not know the table see
what is under final names, which is at most one version behind.

Source: section "External Manifest Store" of the table format. pylance 14.0.2 does the same.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from lance_core.errors import CorruptDataError, NotFoundError, UnsafeStoreError
from lance_core.format.table.paths import DETACHED_BIT, VERSIONS_FOLDER, parse_manifest_name
from lance_core.store.base import BatchSink, FarStore, FolderRemover, ObjectSizes, OrderedFolder, offers
from lance_core.store.paths import check_path
from lance_core.store.tasks import all_blocking
from lance_core.store.version_table import VersionRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_core.store.base import ObjectInfo, ObjectReader, ObjectWriter, PendingRead, Store
    from lance_core.store.version_table import VersionTable

_SUFFIX = ".manifest"
_REFS_FOLDER = "_refs"
_ONLY = 1
"""Version of the one row of something that has no versions."""


class ExternalManifestStore:
    """A dataset whose versions are decided by a table.

    Args:
        inner: Where the objects lie.
        table: Which version is whose.
        base: What the table calls the dataset.
        uri: Address of the dataset that also names the table, if there is one.
    """

    def __init__(self, inner: Store, table: VersionTable, *, base: str, uri: str | None = None) -> None:
        self._inner = inner
        self._table = table
        self._base = base
        self._uri = inner.uri if uri is None else uri

    def __repr__(self) -> str:
        return f"ExternalManifestStore({self._inner!r}, {self._table!r})"

    @property
    def uri(self) -> str:
        """Address of the dataset."""
        return self._uri

    @property
    def at_once(self) -> int:
        """Objects that may be read at the same time."""
        return self._inner.at_once if offers(self._inner, FarStore, "at_once") else 1

    # ------------------------------------------------------------------------------------------------------- reading

    def reader(self, path: str, /) -> ObjectReader:
        """Open an object."""
        return self._inner.reader(path)

    def sized_reader(self, path: str, size: int, /, *, most_bytes: int) -> ObjectReader:
        """Open an object of a known size."""
        inner = self._inner
        if not offers(inner, FarStore, "sized_reader"):
            return inner.reader(path)
        return inner.sized_reader(path, size, most_bytes=most_bytes)

    def get(self, path: str, /) -> bytes:
        """Read a whole object; a manifest also if its last steps are still to be done."""
        try:
            return self._inner.get(path)
        except NotFoundError:
            folder_prefix, version = _prefix_and_version(path)
            row = None if version is None else self._table.find(self._base_of(folder_prefix), version)
            if row is None or folder_prefix + _final_path(row, self._uri) != path or folder_prefix + row.path == path:
                raise
        return self._finish(folder_prefix, row)

    def sizes(self, paths: Sequence[str], /) -> list[int]:
        """Return bytes in each object."""
        if offers(self._inner, ObjectSizes, "sizes"):
            return self._inner.sizes(paths)
        return [self._size(path) for path in paths]

    def names(self, folder: str, /) -> list[str]:
        """Names in a folder; among those of manifests is the newest, for certain."""
        folder_prefix = _branch_prefix(folder)
        if folder_prefix is None:
            return self._inner.names(folder)
        newest = self._finish_newest(folder_prefix)
        return self._with_newest(self._inner.names(folder), folder_prefix, newest)

    def first_names(self, folder: str, count: int, /) -> list[str]:
        """Return the first names in a folder, in ascending order."""
        if not offers(self._inner, OrderedFolder, "first_names"):
            return sorted(self.names(folder))[:count]
        folder_prefix = _branch_prefix(folder)
        if folder_prefix is None:
            return self._inner.first_names(folder, count)
        newest = self._finish_newest(folder_prefix)
        return sorted(self._with_newest(self._inner.first_names(folder, count), folder_prefix, newest))

    def list(self, prefix: str, /) -> Iterator[ObjectInfo]:
        """Return all objects below a folder."""
        return self._inner.list(prefix)

    def remove_empty_folders(self, folder: str, /) -> None:
        """Remove folders that are empty, if the store has such."""
        if offers(self._inner, FolderRemover, "remove_empty_folders"):
            self._inner.remove_empty_folders(folder)

    # ------------------------------------------------------------------------------------------------------- writing

    def writer(self, path: str, /) -> ObjectWriter:
        """Begin an object."""
        return self._inner.writer(path)

    def begin_puts(self, objects: Sequence[tuple[str, bytes]], /) -> Sequence[PendingRead[object]]:
        """Begin to write whole objects."""
        if offers(self._inner, BatchSink, "begin_puts"):
            return self._inner.begin_puts(objects)
        all_blocking([partial(self._inner.put, path, data) for path, data in objects])
        return []

    def put(self, path: str, data: bytes, /) -> None:
        """Write a whole object."""
        self._inner.put(path, data)

    def put_if_absent(self, path: str, data: bytes, /) -> bool:
        """Create an object; False if it exists. What is no manifest is left to the store, if that can do it."""
        check_path(path)
        folder_prefix, version = _prefix_and_version(path)
        if version is not None:
            return self._claim(folder_prefix, version, path.removeprefix(folder_prefix), data)
        try:
            return self._inner.put_if_absent(path, data)
        except UnsafeStoreError:
            folder, _, name = path.rpartition("/")
            return self._claim(f"{folder}/" if folder else "", _ONLY, name, data, base=f"{self._base}/{path}")

    def delete(self, paths: Sequence[str], /) -> None:
        """Delete objects.

        Rows of old versions stay, so that nobody takes their numbers again. The row of the newest version goes before
        its manifest, because readers rely on it.
        """
        deleted = {_prefix_and_version(path) for path in paths}
        for folder_prefix in {folder_prefix for folder_prefix, version in deleted if version is not None}:
            newest = self._table.find(self._base_of(folder_prefix), None)
            if newest is not None and (folder_prefix, newest.version) in deleted:
                self._table.remove(self._base_of(folder_prefix), newest)
        for path in paths:
            if path.startswith(f"{_REFS_FOLDER}/"):
                base = f"{self._base}/{path}"
                row = self._table.find(base, _ONLY)
                if row is not None:
                    self._table.remove(base, row)
        self._inner.delete(paths)

    def _base_of(self, folder_prefix: str) -> str:
        """Return the table's name for a branch."""
        return f"{self._base}/{folder_prefix}".rstrip("/") if folder_prefix else self._base

    def _claim(self, folder_prefix: str, version: int, path: str, data: bytes, *, base: str | None = None) -> bool:
        """Create ``path`` below the folder ``folder_prefix`` if the row of its version can be created."""
        base = self._base_of(folder_prefix) if base is None else base
        staged = VersionRow(version=version, path=f"{path}-{uuid.uuid4()}", size=len(data))
        self._inner.put(folder_prefix + staged.path, data)
        # Whatever fails from here on, the staged manifest stays: the row may name it.
        if not self._table.create(base, staged) and not self._is_ours(base, staged, folder_prefix, path, data=data):
            with suppress(OSError):
                self._inner.delete([folder_prefix + staged.path])
            return False
        self._inner.put(folder_prefix + path, data)
        self._settle(base, staged, folder_prefix, path)
        return True

    def _is_ours(self, base: str, staged: VersionRow, folder_prefix: str, path: str, *, data: bytes) -> bool:
        """Return whether the row is there because a request was repeated when its answer got lost."""
        row = self._table.find(base, staged.version)
        if row is None or row.path == staged.path:
            return row is not None
        if row.path != path:
            return False
        try:
            return (
                self._inner.get(folder_prefix + path) == data
            )  # somebody has finished it; manifests are never the same
        except NotFoundError:
            return False

    # --------------------------------------------------------------------------------------------------------- repair

    def _finish_newest(self, folder_prefix: str) -> VersionRow | None:
        """Return the newest version's row, when its manifest is in place."""
        row = self._table.find(self._base_of(folder_prefix), None)
        if row is not None and row.path != _final_path(row, self._uri):
            self._finish(folder_prefix, row)
        return row

    def _finish(self, folder_prefix: str, row: VersionRow) -> bytes:
        """Do the last steps of a commit; the manifest."""
        path = _final_path(row, self._uri)
        try:
            data = self._inner.get(folder_prefix + row.path)
        except NotFoundError:
            try:
                return self._inner.get(folder_prefix + path)  # another process was faster
            except NotFoundError as error:
                raise CorruptDataError(
                    f"version {row.version} was committed, but its staged manifest is gone",
                    path=f"{self._uri}/{folder_prefix}{path}",
                ) from error
        self._inner.put(folder_prefix + path, data)
        self._settle(self._base_of(folder_prefix), row, folder_prefix, path)
        return data

    def _settle(self, base: str, staged: VersionRow, folder_prefix: str, path: str) -> None:
        """Clear up after a commit that is visible already; if that fails, the next process does it."""
        with suppress(OSError):
            final = VersionRow(version=staged.version, path=path, size=staged.size)
            self._table.settle(base, final, staged=staged.path)
            self._inner.delete([folder_prefix + staged.path])

    def _with_newest(self, names: list[str], folder_prefix: str, newest: VersionRow | None) -> list[str]:
        """Return a listing with the newest manifest in it."""
        if newest is None:
            return names
        path = _final_path(newest, self._uri)
        name = path.rpartition("/")[2]
        if name in names:
            return names
        try:
            self._size(folder_prefix + path)
        except NotFoundError as error:
            raise CorruptDataError(
                f"the table of versions knows version {newest.version}, but its manifest is gone. If the dataset was "
                "deleted on purpose, delete its rows there, too",
                path=f"{self._uri}/{folder_prefix}{path}",
            ) from error
        return [*names, name]

    def _size(self, path: str) -> int:
        reader = self._inner.reader(path)
        reader.close()
        return reader.size


def _branch_prefix(folder: str) -> str | None:
    """Return the path prefix of the branch whose manifests are in a folder: empty, or ``tree/{branch}/``."""
    folder_prefix = folder.removesuffix(VERSIONS_FOLDER)
    return folder_prefix if folder_prefix != folder and (not folder_prefix or folder_prefix.endswith("/")) else None


def _prefix_and_version(path: str) -> tuple[str, int | None]:
    """Line and number of the version whose manifest has this path; no number for detached ones and all else."""
    folder, _, name = path.rpartition("/")
    folder_prefix = _branch_prefix(folder)
    parsed = None if folder_prefix is None else parse_manifest_name(name)
    number = None if parsed is None or parsed.version & DETACHED_BIT else parsed.version
    return folder_prefix or "", number


def _final_path(row: VersionRow, uri: str) -> str:
    """Return the final path of the manifest of a row.

    Raises:
        CorruptDataError: The row names something else than a manifest of its version.
    """
    stem, suffix, _ = row.path.partition(_SUFFIX)
    path = stem + suffix
    if (
        _prefix_and_version(path) != ("", row.version)
        or "/" in row.path[len(path) :]
        or "\\" in row.path
        or "\0" in row.path
    ):
        raise CorruptDataError(f"the row of version {row.version} names {row.path!r}", path=uri)
    return path
