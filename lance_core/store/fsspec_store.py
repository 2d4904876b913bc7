"""Datasets on any file system that fsspec knows, for reading.

fsspec promises no atomic creation: its generic way is to look whether a file exists and then to write it, so that two
writers can both win. Nothing is written through it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from lance_core.errors import InvalidInputError, NotFoundError, UnsafeStoreError, UnsupportedError
from lance_core.store.base import ObjectInfo
from lance_core.store.paths import check_path
from lance_core.store.range_reader import RangeReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lance_core.store.base import ObjectWriter

_MAX_FILE_SYSTEMS = 16


class FsspecStore:
    """A dataset that can be read, and not written.

    Args:
        uri: Address of the dataset.
        scheme: What comes before ``://`` in it.
        options: Arguments of the fsspec file system.

    Raises:
        UnsupportedError: fsspec has no such file system, or needs another package for it.
    """

    def __init__(self, *, uri: str, scheme: str, options: Mapping[str, Any]) -> None:
        from fsspec import get_filesystem_class  # noqa: PLC0415 slow to import

        try:
            get_filesystem_class(scheme)
        except (ImportError, ValueError) as error:
            raise UnsupportedError(f"{scheme}:// addresses cannot be opened: {error}", path=uri) from error
        self._uri = uri
        self._scheme = scheme
        self._options = tuple(sorted(options.items()))

    def __repr__(self) -> str:
        return f"FsspecStore({self._uri!r})"

    @property
    def uri(self) -> str:
        """Address of the dataset."""
        return self._uri

    def reader(self, path: str, /) -> RangeReader:
        """Open a file."""
        files, name = self._files(path)
        try:
            size: int = files.size(name)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._not_found(path) from error

        def fetch(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            files, name = self._files(path)  # of the process that reads
            starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
            return files.cat_ranges([name] * len(ranges), starts, ends, on_error="raise")

        return RangeReader(fetch, path=f"{self._uri}/{path}", size=size)

    def get(self, path: str, /) -> bytes:
        """Read a whole file."""
        files, name = self._files(path)
        try:
            return files.cat_file(name)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise self._not_found(path) from error

    def names(self, folder: str, /) -> list[str]:
        """Names of files and folders in a folder."""
        files, name = self._files(folder)
        try:
            found: list[str] = files.ls(name, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [one.rstrip("/").rpartition("/")[2] for one in found if one.rstrip("/") != name]

    def list(self, prefix: str, /) -> Iterator[ObjectInfo]:
        """All files below a folder."""
        files, name = self._files(prefix)
        found: dict[str, dict[str, Any]] = files.find(name, detail=True)
        for address, info in found.items():
            if address != name:
                below = address.removeprefix(name).lstrip("/")
                modified: datetime = files.modified(address)
                aware = modified if modified.tzinfo else modified.replace(tzinfo=UTC)
                yield ObjectInfo(path=f"{prefix}/{below}", size=info["size"], modified=aware)

    def writer(self, path: str, /) -> ObjectWriter:
        """Refuse to write."""
        self._refuse(path)

    def put(self, path: str, data: bytes, /) -> None:
        """Refuse to write."""
        del data
        self._refuse(path)

    def put_if_absent(self, path: str, data: bytes, /) -> bool:
        """Refuse to write."""
        del data
        self._refuse(path)

    def delete(self, paths: Sequence[str], /) -> None:
        """Refuse to delete."""
        for path in paths:
            self._refuse(path)

    def _refuse(self, path: str) -> NoReturn:
        check_path(path)
        raise UnsafeStoreError(
            f"{self._scheme}:// can be read, but not written: its file system offers no atomic creation that "
            "lance_core knows, so that two writers could overwrite each other's commits",
            path=self._uri,
        )

    def _files(self, path: str) -> tuple[Any, str]:
        """The file system of this process, and a path in it."""
        check_path(path)
        files, root = _file_system(self._uri, self._options, os.getpid())
        return files, f"{root.rstrip('/')}/{path}"

    def _not_found(self, path: str) -> NotFoundError:
        return NotFoundError("there is no such file", path=f"{self._uri}/{path}")


@lru_cache(maxsize=_MAX_FILE_SYSTEMS)
def _file_system(uri: str, options: tuple[tuple[str, Any], ...], process: int) -> tuple[Any, str]:
    """File system and path; one for each process, because connections do not survive a fork."""
    from fsspec import url_to_fs  # noqa: PLC0415 slow to import

    del process  # only part of the key
    try:
        # An old listing hides versions.
        return url_to_fs(uri, skip_instance_cache=True, use_listings_cache=False, **dict(options))
    except TypeError as error:
        raise InvalidInputError(f"storage options that the file system does not take: {error}", path=uri) from error
    except ImportError as error:
        raise UnsupportedError(f"the file system cannot be used: {error}", path=uri) from error
