"""Files of one index segment: Lance files in a folder of their own, which are never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from lance_core.errors import CorruptDataError
from lance_core.format.schema import Schema
from lance_core.format.table.index_metadata import index_fields
from lance_core.format.table.paths import INDICES_FOLDER, base_prefix
from lance_core.table.locations import sized_reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lance_core.file.read.reader import DataFileReader
    from lance_core.format.table.index_metadata import IndexMetadata
    from lance_core.store.base import ObjectWriter, Store

_FILE_VERSION = "2.1"
_NO_SIZES: Mapping[str, int] = {}
_MAX_ROWS_AT_ONCE = 1 << 16
"""Rows up to which a read as rows takes less time than to begin a scan."""


class Ends(Protocol):
    """Completes files while others are written; see `lance_core.change.completion.Completion`."""

    def sink(self, sink: ObjectWriter, /) -> ObjectWriter:
        """Return a writer whose ``commit`` need not wait."""
        ...

    def wait(self, *, leave: int = 0) -> None:
        """Wait until at most so many files are being completed; raises what the first one failed with."""
        ...

    def close(self) -> None:
        """Wait until all files are there or have failed."""
        ...


class SegmentFiles:
    """Reads and writes the files of one segment.

    Args:
        store: The dataset.
        folder: Folder of the segment.
        ends: Completes the files that are written, and is waited for by the caller; None if they are to be there when
            they were written.
        sizes: Bytes of files by name, as far as they are recorded: small ones are read whole.
    """

    def __init__(
        self, store: Store, folder: str, ends: Ends | None = None, *, sizes: Mapping[str, int] = _NO_SIZES
    ) -> None:
        self._store = store
        self._folder = folder
        self._ends = ends
        self._sizes = sizes
        self.written: dict[str, int] = {}
        """Size of each file written here, by name."""
        self._begun: list[str] = []

    @classmethod
    def of(cls, store: Store, index: IndexMetadata) -> SegmentFiles:
        """Return the files of a segment of a version."""
        folder = f"{base_prefix(index.base_id)}{INDICES_FOLDER}/{index.uuid_text}"
        return cls(store, folder, sizes=dict(index_fields(index).files))

    def path(self, name: str) -> str:
        """Return the path of a file below the dataset."""
        return f"{self._folder}/{name}"

    def open(self, name: str) -> DataFileReader:
        """Open a file.

        Raises:
            CorruptDataError: It is damaged.
            NotFoundError: It is missing.
        """
        path = self.path(name)
        if self._ends is not None:
            self._ends.wait()
        from lance_core.file.read.reader import DataFileReader  # noqa: PLC0415 whoever opens no file needs no decoder

        source = sized_reader(self._store, path, self._sizes.get(name, 0))
        return DataFileReader(source, path=f"{self._store.uri}/{path}")

    def write(
        self,
        name: str,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        *,
        metadata: Mapping[str, str],
        buffers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Write a file.

        Args:
            name: Its name.
            schema: Arrow schema.
            batches: The rows.
            metadata: Schema metadata.
            buffers: Global buffers by the key of the schema metadata that gets the number of the buffer.
        """
        from lance_core.file.write.writer import DataFileWriter  # noqa: PLC0415 whoever writes no file needs no encoder

        self._begun.append(name)  # a store may have the file although it reports an error
        sink = self._store.writer(self.path(name))
        if self._ends is not None:
            sink = self._ends.sink(sink)
        writer = DataFileWriter(sink, Schema.from_arrow(schema), version=_FILE_VERSION)
        try:
            for batch in batches:
                writer.write(batch)
            for key, data in (buffers or {}).items():
                writer.add_schema_metadata(key, str(writer.add_global_buffer(data)).encode())
            for key, text in metadata.items():
                writer.add_schema_metadata(key, text.encode())
            if self._ends is not None:
                self._ends.wait(leave=1)
            self.written[name] = writer.finish().size
        except BaseException:
            writer.abort()
            raise

    def remove(self) -> None:
        """Remove the files written here."""
        if self._ends is not None:
            self._ends.close()
        self._store.delete([self.path(name) for name in self._begun])
        self._begun.clear()
        self.written.clear()


def check_columns(reader: DataFileReader, expected: pa.Schema, *, path: str) -> None:
    """Check that a file has the columns that its kind of index has.

    Raises:
        CorruptDataError: It has other columns.
    """
    stored = reader.schema.to_arrow()
    if stored.names != expected.names or stored.types != expected.types:
        shown = ", ".join(f"{field.name} {field.type}" for field in stored)
        raise CorruptDataError(f"the index file has columns {shown}; drop the index and build it again", path=path)


def read_columns(reader: DataFileReader, names: Sequence[str], start: int, end: int) -> list[pa.Array]:
    """Read columns of the rows [start, end), each as one array.

    Raises:
        CorruptDataError: The file is damaged.
    """
    projection = reader.schema.select(list(names))
    if end - start <= _MAX_ROWS_AT_ONCE:
        batch = reader.take(projection, reader.column_numbers, np.arange(start, end))
        return [batch.column(name) for name in names]
    batches = reader.scan(projection, reader.column_numbers, start=start, end=end, batch_size=end - start)
    table = pa.Table.from_batches(batches, schema=projection.to_arrow()).select(list(names))
    return [_whole(column) for column in table.columns]


def read_ranges(reader: DataFileReader, names: Sequence[str], ranges: Sequence[range]) -> list[list[pa.Array]]:
    """Read columns of ranges of rows at one go, of each range each as one array; arrays may share their memory.

    Raises:
        CorruptDataError: The file is damaged.
    """
    projection = reader.schema.select(list(names))
    some = [rows for rows in ranges if len(rows)]
    batches = iter(reader.take_ranges(projection, reader.column_numbers, some))
    empty = pa.RecordBatch.from_pylist([], schema=projection.to_arrow())
    each = [next(batches) if len(rows) else empty for rows in ranges]
    return [[batch.column(name) for name in names] for batch in each]


def metadata_number(reader: DataFileReader, key: str) -> int | None:
    """Return a positive number from a file's schema metadata; None if there is none."""
    text = reader.schema.metadata.get(key, b"")
    return int(text) if text.isdigit() and int(text) else None


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
