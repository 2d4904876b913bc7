"""Data files without a table: names, arguments and results as in ``lance.file`` of pylance."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.common.unsupported import refuse_given
from lance_core.errors import InvalidInputError
from lance_core.file.read.reader import DataFileReader
from lance_core.file.write.writer import PAGE_BYTES, AnyFileWriter, check_schema, open_writer
from lance_core.format.extensions import batches_with_types, with_types
from lance_core.format.file.file_version import DEFAULT_VERSION
from lance_core.format.schema import Schema
from lance_core.store.open import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from lance_core.file.file_layout import FileLayout
    from lance_core.store.base import ObjectWriter, Store

DEFAULT_BATCH_ROWS = 1024


@frozen
class LanceBufferDescriptor:
    """Location of a buffer.

    Attributes:
        position: First byte in the file.
        size: Bytes.
    """

    position: int
    size: int


@frozen
class LancePageMetadata:
    """Some consecutive rows of a column.

    Attributes:
        buffers: Its buffers.
        encoding: How they are encoded, as text for people.
    """

    buffers: list[LanceBufferDescriptor]
    encoding: str


@frozen
class LanceColumnMetadata:
    """One column.

    Attributes:
        column_buffers: Buffers of the column as a whole; no writer is known that has some.
        pages: Its pages.
    """

    column_buffers: list[LanceBufferDescriptor]
    pages: list[LancePageMetadata]


@frozen
class LanceFileMetadata:
    """Metadata of a file.

    Attributes:
        schema: Arrow schema.
        num_rows: Rows.
        num_data_bytes: Bytes of pages, with the padding between them.
        num_column_metadata_bytes: Bytes of the metadata of columns.
        num_global_buffer_bytes: Bytes of global buffers.
        global_buffers: Global buffers; the first one is the file descriptor.
        columns: Columns in the order of the file.
        major_version: Version in the footer.
        minor_version: Version in the footer.
    """

    schema: pa.Schema
    num_rows: int
    num_data_bytes: int
    num_column_metadata_bytes: int
    num_global_buffer_bytes: int
    global_buffers: list[LanceBufferDescriptor]
    columns: list[LanceColumnMetadata]
    major_version: int
    minor_version: int


@frozen
class LanceColumnStatistics:
    """Size of one column.

    Attributes:
        num_pages: Pages.
        size_bytes: Bytes of their buffers.
    """

    num_pages: int
    size_bytes: int


@frozen
class LanceFileStatistics:
    """Sizes of the columns of a file.

    Attributes:
        columns: One for each column.
    """

    columns: list[LanceColumnStatistics]


class ReaderResults:
    """Rows that were asked for; they are read when they are used, and once."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self._reader = pa.RecordBatchReader.from_batches(with_types(schema), batches_with_types(schema, batches))

    def to_batches(self) -> pa.RecordBatchReader:
        """Return the rows, batch by batch."""
        return self._reader

    def to_table(self) -> pa.Table:
        """Return the rows in memory."""
        return self._reader.read_all()


class LanceFileReader:
    """One data file, of any version.

    Args:
        path: Path or address of the file.
        storage_options: Settings of the storage service.
        columns: Columns to read, or dotted paths inside structs; all if None.
        namespace_client: Not supported, like ``table_id``.
        table_id: Not supported.

    Raises:
        NotFoundError: There is no such file.
        CorruptDataError: Not a data file.
        InvalidInputError: There is no such column.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        columns: Sequence[str] | None = None,
        *,
        namespace_client: object = None,
        table_id: Sequence[str] | None = None,
    ) -> None:
        refuse_given("LanceFileReader", namespace_client=namespace_client, table_id=table_id)
        store, name = _open_location(path, storage_options)
        self._reader = DataFileReader(store.reader(name), path=os.fspath(path))
        schema = self._reader.schema
        self._projection = schema if columns is None else schema.select(list(columns))

    def read_all(self, *, batch_size: int = DEFAULT_BATCH_ROWS, batch_readahead: int = 16) -> ReaderResults:
        """Return all rows.

        Args:
            batch_size: Rows of each batch.
            batch_readahead: Accepted; reads are planned by bytes.
        """
        return self.read_range(0, self.num_rows(), batch_size=batch_size, batch_readahead=batch_readahead)

    def read_range(
        self, start: int, num_rows: int, *, batch_size: int = DEFAULT_BATCH_ROWS, batch_readahead: int = 16
    ) -> ReaderResults:
        """Consecutive rows.

        Args:
            start: First row.
            num_rows: How many.
            batch_size: Rows of each batch.
            batch_readahead: Accepted; reads are planned by bytes.

        Raises:
            InvalidInputError: There are not that many rows.
        """
        del batch_readahead
        batches = self._reader.scan(
            self._projection,
            self._reader.column_numbers,
            start=start,
            end=start + num_rows,
            batch_size=batch_size,
        )
        return ReaderResults(self._projection.to_arrow(), batches)

    def take_rows(
        self, indices: Sequence[int] | pa.Array, *, batch_size: int = DEFAULT_BATCH_ROWS, batch_readahead: int = 16
    ) -> ReaderResults:
        """Single rows, in the order asked for.

        Args:
            indices: Row numbers.
            batch_size: Rows of each batch.
            batch_readahead: Accepted; reads are planned by bytes.

        Raises:
            InvalidInputError: There is no such row.
        """
        del batch_readahead
        rows = np.asarray(indices, np.int64) if len(indices) else np.empty(0, np.int64)
        taken = self._reader.take(self._projection, self._reader.column_numbers, rows)
        batches = pa.Table.from_batches([taken]).to_batches(max_chunksize=batch_size)
        return ReaderResults(taken.schema, iter(batches))

    def metadata(self) -> LanceFileMetadata:
        """Metadata of the file."""
        layout = self._reader.file_layout()
        return LanceFileMetadata(
            schema=with_types(self._reader.schema.to_arrow()),
            num_rows=self.num_rows(),
            num_data_bytes=layout.num_data_bytes,
            num_column_metadata_bytes=layout.num_metadata_bytes,
            num_global_buffer_bytes=sum(size for _, size in layout.global_buffers),
            global_buffers=_descriptors(layout.global_buffers),
            columns=_columns(layout),
            major_version=layout.major,
            minor_version=layout.minor,
        )

    def file_statistics(self) -> LanceFileStatistics:
        """Pages and bytes of each column."""
        columns = self._reader.file_layout().columns
        return LanceFileStatistics([LanceColumnStatistics(len(column.pages), column.num_bytes) for column in columns])

    def read_global_buffer(self, index: int) -> bytes:
        """Return the content of a global buffer.

        Raises:
            InvalidInputError: There is no such buffer.
        """
        return self._reader.global_buffer(index)

    def num_rows(self) -> int:
        """Return rows in the file."""
        return self._reader.num_rows


def stable_version() -> str:
    """Return the file version that is written if none is asked for."""
    return DEFAULT_VERSION


class LanceFileWriter:
    """A data file being written; nobody sees it before `close`.

    As a context manager it closes the file, or drops it if there was an error.

    Args:
        path: Path or address of the file; an existing one is replaced.
        schema: Arrow schema; that of the first batch if None.
        data_cache_bytes: Bytes of Arrow data of all columns together that are collected before pages are written.
        version: Version of the format: ``0.1``, ``2.0``, ``2.1`` or ``2.2``; the default if None. Not in pylance: 0.1.
        storage_options: Settings of the storage service.
        max_page_bytes: Bytes of Arrow data that make a page of one column.
        namespace_client: Not supported, like ``table_id``.
        table_id: Not supported.

    Raises:
        UnsupportedError: A version or type that cannot be written.

    Examples:
        >>> from lance_core.file import LanceFileReader, LanceFileWriter
        >>> with LanceFileWriter("numbers.lance", pa.schema([("x", pa.int64())])) as writer:
        ...     writer.write_batch(pa.table({"x": [1, 2, 3]}))
        >>> LanceFileReader("numbers.lance").num_rows()
        3
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: pa.Schema | None = None,
        *,
        data_cache_bytes: int | None = None,
        version: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        max_page_bytes: int | None = None,
        namespace_client: object = None,
        table_id: Sequence[str] | None = None,
    ) -> None:
        refuse_given("LanceFileWriter", namespace_client=namespace_client, table_id=table_id)
        self._store, self._name = _open_location(path, storage_options)
        self._sink: ObjectWriter | None = None
        self._version = version
        self._cache_bytes = data_cache_bytes
        self._page_bytes = max_page_bytes
        self._writer = None if schema is None else self._begin(schema)
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif not self._closed:
            self._closed = True
            if self._sink is not None:
                self._sink.abort()

    def write_batch(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows.

        Raises:
            InvalidInputError: They do not fit the schema; none of them was taken.
        """
        if self._writer is None:
            self._writer = self._begin(batch.schema)
        table = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
        for batch_part in table.to_batches():
            self._writer.write(batch_part)

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Add metadata to the schema of the file; needs a schema or a batch first."""
        self._begun().add_schema_metadata(key, value.encode())

    def add_global_buffer(self, data: bytes) -> int:
        """Add bytes of your own to the file; needs a schema or a batch first.

        Returns:
            Index for `LanceFileReader.read_global_buffer`.
        """
        return self._begun().add_global_buffer(data)

    def close(self) -> int | None:
        """Finish the file.

        Returns:
            Rows in the file; None if it was closed before.

        Raises:
            InvalidInputError: There is neither a schema nor a batch.
        """
        if self._closed:
            return None
        written = self._begun().finish()
        self._closed = True
        return written.num_rows

    def _begin(self, schema: pa.Schema) -> AnyFileWriter:
        cached = PAGE_BYTES if self._cache_bytes is None else self._cache_bytes // max(1, len(schema))
        page_bytes = max(1, min(cached, self._page_bytes or cached))
        fields = Schema.from_arrow(schema)
        check_schema(fields, version=self._version)
        self._sink = self._store.writer(self._name)
        return open_writer(self._sink, fields, version=self._version, page_bytes=page_bytes)

    def _begun(self) -> AnyFileWriter:
        if self._writer is None:
            raise InvalidInputError("the file has no schema yet: give one, or write a batch first")
        return self._writer


def _columns(layout: FileLayout) -> list[LanceColumnMetadata]:
    return [
        LanceColumnMetadata([], [LancePageMetadata(_descriptors(page.buffers), page.encoding) for page in column.pages])
        for column in layout.columns
    ]


def _descriptors(ranges: Sequence[tuple[int, int]]) -> list[LanceBufferDescriptor]:
    return [LanceBufferDescriptor(position, size) for position, size in ranges]


def _open_location(path: str | os.PathLike[str], storage_options: Mapping[str, str] | None) -> tuple[Store, str]:
    """Return the store of the folder that a file lies in, and the file's name."""
    folder, slash, name = os.fspath(path).rpartition("/")
    if not name:
        raise InvalidInputError(f"{path!r} does not name a file", path=os.fspath(path))
    return open_store((folder or slash) if slash else ".", storage_options), name
