"""A store that counts what is read, as a remote store would read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lance_core.common.frozen import frozen
from lance_core.dataset import LanceDataset
from lance_core.store.coalesce import plan_reads
from lance_core.store.open import open_store
from lance_core.table.snapshot import open_snapshot

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lance_core.store.base import ObjectInfo, ObjectReader, ObjectWriter, Store


@dataclass(slots=True)
class ReadCounts:
    """Numbers of reads from data files and others.

    Attributes:
        calls: For each read of a data file the byte ranges asked for.
        num_requests: Requests of a remote store, which joins ranges that lie close together.
        num_bytes: Bytes that those requests fetch.
    """

    calls: list[list[tuple[int, int]]] = field(default_factory=list)
    num_requests: int = 0
    num_bytes: int = 0

    def clear(self) -> None:
        """Begin again."""
        self.calls, self.num_requests, self.num_bytes = [], 0, 0

    def add(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Count one call."""
        self.calls.append(list(ranges))
        for span in plan_reads(ranges).spans:
            self.num_requests += len(span.requests)
            self.num_bytes += span.end - span.start


@frozen
class CountingStore:
    """Passes calls on to a store and counts reads.

    Attributes:
        inner: The store that does the work.
        counts: What was read so far.
    """

    inner: Store
    counts: ReadCounts = field(default_factory=ReadCounts)

    @property
    def uri(self) -> str:
        """Address of the inner store."""
        return self.inner.uri

    def reader(self, path: str, /) -> ObjectReader:
        """Open an object."""
        return _CountingReader(self.inner.reader(path), self.counts)

    def get(self, path: str, /) -> bytes:
        """Read a whole object."""
        data = self.inner.get(path)
        self.counts.add([(0, len(data))])
        return data

    def writer(self, path: str, /) -> ObjectWriter:
        """Begin an object."""
        return self.inner.writer(path)

    def put(self, path: str, data: bytes, /) -> None:
        """Write a whole object."""
        self.inner.put(path, data)

    def put_if_absent(self, path: str, data: bytes, /) -> bool:
        """Create an object."""
        return self.inner.put_if_absent(path, data)

    def names(self, folder: str, /) -> list[str]:
        """List names."""
        return self.inner.names(folder)

    def list(self, prefix: str, /) -> Iterator[ObjectInfo]:
        """List objects."""
        return self.inner.list(prefix)

    def delete(self, paths: Sequence[str], /) -> None:
        """Delete objects."""
        self.inner.delete(paths)


@frozen
class _CountingReader:
    inner: ObjectReader
    counts: ReadCounts

    @property
    def size(self) -> int:
        return self.inner.size

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        self.counts.add(ranges)
        return self.inner.read_ranges(ranges)

    def close(self) -> None:
        self.inner.close()


def open_counting(uri: str | os.PathLike[str]) -> tuple[LanceDataset, ReadCounts]:
    """Return the newest version of a dataset, and the counts of what is read of it from now on."""
    store = CountingStore(open_store(uri))
    snapshot = open_snapshot(store)
    return LanceDataset(uri, snapshot=snapshot), store.counts
