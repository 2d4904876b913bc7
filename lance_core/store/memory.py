"""Datasets in the memory of this process: the guarantees of a real store and nothing left behind."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.errors import NotFoundError
from lance_core.store.base import ObjectInfo
from lance_core.store.paths import check_path
from lance_core.store.sizes import check_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def _utc_now() -> datetime:
    return datetime.now(UTC)


@cache  # forgetting one would lose its data
def memory_store(uri: str) -> MemoryStore:
    """Return the store of an address: the same one for all who ask in this process."""
    return MemoryStore(uri)


class MemoryStore:
    """Objects in a dictionary; may be used by several threads.

    Args:
        uri: What it calls itself.
        now: Clock for the times of objects.
    """

    def __init__(self, uri: str = "memory://dataset", *, now: Callable[[], datetime] = _utc_now) -> None:
        self._uri = uri
        self._now = now
        self._objects: dict[str, tuple[bytes, datetime]] = {}
        self._lock = Lock()

    @property
    def uri(self) -> str:
        """The name given."""
        return self._uri

    def reader(self, path: str, /) -> MemoryReader:
        """Open an object."""
        return MemoryReader(self._object(path), f"{self._uri}/{path}")

    def get(self, path: str, /) -> bytes:
        """Read a whole object."""
        data = self._object(path)
        check_size(path, len(data), f"{self._uri}/{path}")
        return data

    def _object(self, path: str) -> bytes:
        check_path(path)
        stored = self._objects.get(path)
        if stored is None:
            raise NotFoundError("there is no such object", path=f"{self._uri}/{path}")
        return stored[0]

    def writer(self, path: str, /) -> MemoryWriter:
        """Begin an object."""
        check_path(path)
        return MemoryWriter(self, path)

    def put(self, path: str, data: bytes, /) -> None:
        """Write a whole object."""
        check_path(path)
        self._objects[path] = (bytes(data), self._now())

    def put_if_absent(self, path: str, data: bytes, /) -> bool:
        """Create an object; False if it exists."""
        check_path(path)
        with self._lock:
            if path in self._objects:
                return False
            self._objects[path] = (bytes(data), self._now())
            return True

    def names(self, folder: str, /) -> list[str]:
        """Names of objects and folders in a folder."""
        return list({info.path[len(folder) + 1 :].split("/", 1)[0] for info in self.list(folder)})

    def list(self, prefix: str, /) -> Iterator[ObjectInfo]:
        """Yield all objects below a folder."""
        check_path(prefix)
        for path, (data, modified) in list(self._objects.items()):
            if path.startswith(f"{prefix}/"):
                yield ObjectInfo(path=path, size=len(data), modified=modified)

    def delete(self, paths: Sequence[str], /) -> None:
        """Delete objects."""
        for path in paths:
            check_path(path)
            self._objects.pop(path, None)

    def find(self, path: str) -> bytes | None:
        """Return an object, or None if there is none."""
        stored = self._objects.get(path)
        return None if stored is None else stored[0]

    def copied(self) -> MemoryStore:
        """Return a store of its own with the same objects; their bytes are shared."""
        copy = MemoryStore(self._uri, now=self._now)
        copy._objects = dict(self._objects)
        return copy


class MemoryReader:
    """Random access to bytes.

    Args:
        data: The object.
        path: Its name, for errors.
    """

    def __init__(self, data: bytes | pa.Buffer, path: str) -> None:
        self._buffer = pa.py_buffer(data)
        self._path = path

    @property
    def size(self) -> int:
        """Bytes in the object."""
        return self._buffer.size

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """Views of half-open byte ranges.

        Raises:
            NotFoundError: A range lies beyond the end.
        """
        for start, end in ranges:
            if not 0 <= start <= end <= self.size:
                raise NotFoundError(
                    f"bytes {start} to {end} are not in the object of {self.size} bytes", path=self._path
                )
        return [self._buffer.slice(start, end - start) for start, end in ranges]

    def close(self) -> None:
        """Nothing to release."""


def copy_ranges(source: pa.Buffer, into: memoryview, ranges: Sequence[tuple[int, int]]) -> None:
    """Copy byte ranges of a buffer, one behind the other."""
    view, at = memoryview(source).cast("B"), 0
    for start, end in ranges:
        into[at : at + end - start] = view[start:end]
        at += end - start


class MemoryWriter:
    """An object that appears when it is finished.

    Args:
        store: Where it will appear.
        path: Under which name.
    """

    def __init__(self, store: MemoryStore, path: str) -> None:
        self._store = store
        self._path = path
        self._parts: list[bytes] = []

    def write(self, data: bytes | memoryview | pa.Buffer) -> None:
        """Append bytes."""
        self._parts.append(bytes(memoryview(data)))

    def commit(self) -> int:
        """Let the object appear and return its size in bytes."""
        data = b"".join(self._parts)
        self._store.put(self._path, data)
        return len(data)

    def abort(self) -> None:
        """Drop what was written."""
        self._parts.clear()
