"""Several data files as one in memory: their pages, moved side by side, can be decoded together.

A numpy call costs as much for a small page as for a large one, so that many small files are read faster this way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.errors import CorruptDataError
from lance_core.file.page_copy import copy_pages
from lance_core.file.reader import DataFileReader
from lance_core.file.writer import DataFileWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.file.page_copy import PageSource
    from lance_core.format.schema import Schema


def join_files(sources: Sequence[PageSource], schema: Schema, *, version: str, path: str) -> DataFileReader:
    """A file in memory with the rows of some files, one after the other.

    Args:
        sources: The files; each is read with one request.
        schema: The fields whose pages they hold. Column n of the result is leaf n of it.
        version: Version of all of them.
        path: What errors call the result.

    Raises:
        CorruptDataError: A file is damaged.
    """
    sink = _Memory()
    writer = DataFileWriter(sink, schema, version=version, with_checksums=False)
    copy_pages(sources, writer, max_bytes=max(one.data_end for one in sources))
    writer.finish()
    return DataFileReader(_MemoryFile(sink.buffer), path=path)


class _Memory:
    """Takes the bytes of a file; what it is given is kept until the end, not copied."""

    def __init__(self) -> None:
        self._parts: list[bytes | memoryview | pa.Buffer] = []
        self.buffer: pa.Buffer = pa.py_buffer(b"")

    def write(self, data: bytes | memoryview | pa.Buffer) -> None:
        self._parts.append(data)

    def commit(self) -> int:
        sizes = [len(part) if isinstance(part, bytes) else memoryview(part).nbytes for part in self._parts]
        self.buffer = pa.allocate_buffer(sum(sizes))
        target = np.frombuffer(self.buffer, np.uint8)
        at = 0
        for part, size in zip(self._parts, sizes, strict=True):
            target[at : at + size] = np.frombuffer(part, np.uint8)
            at += size
        self._parts.clear()
        return at

    def abort(self) -> None:
        self._parts.clear()


class _MemoryFile:
    """A file in memory; see `lance_core.store.base.MappedReader`."""

    def __init__(self, buffer: pa.Buffer) -> None:
        self.mapped = buffer
        self.size = buffer.size

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        for start, end in ranges:
            if not 0 <= start <= end <= self.size:
                raise CorruptDataError(f"bytes {start} to {end} are not in a file of {self.size} bytes")
        return [self.mapped.slice(start, end - start) for start, end in ranges]

    def announce(self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], /) -> None:
        """Everything is at hand."""

    def close(self) -> None:
        """Nothing to release."""
