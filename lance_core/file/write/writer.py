"""Write one data file since version 2.0; `open_writer` begins one of any version.

Page buffers come first, each at a multiple of 64 bytes, then checksums, the file descriptor, the metadata of the
columns, and the footer. Each field collects rows until a page is full; what pages look like is the business of one
module for each generation of the format: `lance_core.file.write.v2_1` and its likes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

import pyarrow as pa

from lance_core.common.frozen import replace
from lance_core.encoding.options import free_options
from lance_core.encoding.profiles import profile_of
from lance_core.errors import CorruptDataError
from lance_core.file.write.blob_files import BlobFiles
from lance_core.file.write.field_writer import WrittenDataFile, fit_arrays
from lance_core.file.write.together import Collected, encode_leaves, encode_together, joined, num_bytes_of
from lance_core.file.write.v2_1 import FieldWriterV21
from lance_core.format.blobs import file_schema
from lance_core.format.file.checksums import RunningSums, align, encode_sums, sums_size
from lance_core.format.file.file_metadata import PAD_BYTE, PAGE_ALIGNMENT, Page, encode_descriptor
from lance_core.format.file.file_version import LEGACY_FILE_VERSION, check_writable, resolve_version
from lance_core.format.file.footer import ENTRY_SIZE, FOOTER_SIZE, Footer, encode_footer, encode_table
from lance_core.format.file.type_support import check_writable_types
from lance_core.format.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lance_core.encoding.values import Bytes
    from lance_core.file.write.blob_files import BlobPlaces
    from lance_core.file.write.field_writer import Leaves, RowGroups
    from lance_core.file.write.v0_1 import DataFileWriterV01
    from lance_core.file.write.v2_0 import FieldWriterV20
    from lance_core.format.file.file_version import FileVersion
    from lance_core.store.base import ObjectWriter

PAGE_BYTES = 8 << 20
"""Bytes of Arrow data that make a page of one top-level field."""

_VECTOR_PAGE_BYTES = 1 << 25
"""Likewise for values of one width that stand one by one: as much as a scan's batches have, unless it is told."""

_LEAVES_OF_A_PAGE, _MOST_PAGES = 16, 4
"""A page of more leaves has `PAGE_BYTES` for each so many of them, up to so many times: 200 leaves of a struct had
pages of 5,000 values each, which took 2.5 times as long to write."""

_VECTOR_BYTES, _MAX_VECTOR_BYTES = 1 << 8, 1 << 20

_SMALL_BUFFER = 1 << 14
"""Up to so many bytes a copy costs less than another call."""

_MANY_BYTES = 1 << 17
"""Small buffers that go to the sink together."""

_LARGE_PAGE = 1 << 20
"""What was needed for a page of so many bytes goes back to the system, unless it was of numbers: Arrow's pool finds no
other use for the many sizes that strings need, and would hold 20 MiB more. Numbers need the same sizes again."""

AnyFileWriter: TypeAlias = "DataFileWriter | DataFileWriterV01"

_PADDING = PAD_BYTE * PAGE_ALIGNMENT


def check_schema(schema: Schema, *, version: str | None) -> None:
    """Refuse what files of a version cannot hold, before anything is written.

    Args:
        schema: Fields to write.
        version: Version of the format, by name; None for the default.

    Raises:
        UnsupportedError: A version or type that cannot be written; the message names it.
    """
    resolved = resolve_version(version)
    check_writable(resolved)
    if resolved.name == LEGACY_FILE_VERSION:
        from lance_core.file.write.v0_1 import check_fields  # noqa: PLC0415 rarely needed

        check_fields(schema)
        return
    if resolved.name != "2.0":
        check_writable_types(schema, resolved.name)
        schema = Schema(schema.special_fields, schema.metadata)
    _field_writers(schema, resolved, BlobFiles(None))


def _field_writers(schema: Schema, version: FileVersion, blobs: BlobFiles) -> Sequence[FieldWriterV20 | FieldWriterV21]:
    match version.name:
        case "2.0":
            from lance_core.file.write.v2_0 import FieldWriterV20  # noqa: PLC0415 rarely needed

            return [FieldWriterV20(field) for field in schema.fields]
        case name:
            profile = profile_of(schema.metadata)
            return [FieldWriterV21(field, version=name, blobs=blobs, profile=profile) for field in schema.fields]


def open_writer(
    sink: ObjectWriter,
    schema: Schema,
    *,
    version: str | None = None,
    page_bytes: int | None = None,
    blob_places: BlobPlaces | None = None,
    groups: RowGroups | None = None,
) -> AnyFileWriter:
    """Begin a data file of any version.

    Args:
        sink: Receives the bytes.
        schema: Fields with their ids.
        version: Version of the format, by name; None for the default.
        page_bytes: As for `DataFileWriter`; not for version 0.1.
        blob_places: As for `DataFileWriter`; not for version 0.1.
        groups: Row groups of a file of version 0.1.

    Raises:
        UnsupportedError: A version or type that cannot be written; nothing was written.
    """
    if resolve_version(version).name != LEGACY_FILE_VERSION:
        return DataFileWriter(sink, schema, version=version, page_bytes=page_bytes, blob_places=blob_places)
    from lance_core.file.write.v0_1 import DataFileWriterV01  # noqa: PLC0415 rarely needed

    return DataFileWriterV01(sink, schema, groups=groups)


class DataFileWriter:
    """One data file since version 2.0 being written.

    Args:
        sink: Receives the bytes.
        schema: Fields with their ids.
        version: Version of the format, by name; None for the default.
        page_bytes: Bytes of Arrow data that make a page of one top-level field; `PAGE_BYTES` if None.
        blob_places: Where blobs go that do not go into the file.
        with_checksums: False for a file that is gone before anything could happen to it.

    Attributes:
        columns: Rows of each field that wait for their page.
        options: How fields are written of which nothing but the type is said.

    Raises:
        UnsupportedError: A version or type that cannot be written; nothing was written.
    """

    def __init__(
        self,
        sink: ObjectWriter,
        schema: Schema,
        *,
        version: str | None = None,
        page_bytes: int | None = None,
        blob_places: BlobPlaces | None = None,
        with_checksums: bool = True,
    ) -> None:
        self._version = resolve_version(version)
        check_writable(self._version)
        self._sink = sink
        self._schema = schema
        self._kinds = schema.to_arrow()
        self._blobs = BlobFiles(blob_places)
        if self._version.name != "2.0":
            check_writable_types(schema, self._version.name)
        self.columns = [Collected(writer) for writer in _field_writers(schema, self._version, self._blobs)]
        self.options = free_options(self._version.name, profile_of(schema.metadata))
        self._position = 0
        self._waiting: list[bytes | Bytes] = []
        self._handed_over = 0
        self._num_rows = 0
        self._page_bytes = PAGE_BYTES if page_bytes is None else page_bytes
        self._encoded_from, self._encoded_to = 0, 0
        self._shared_bytes = 0
        self._global_buffers: list[tuple[int, int]] = []
        self._checksums = RunningSums() if with_checksums else None

    @property
    def num_rows(self) -> int:
        """Rows taken so far."""
        return self._num_rows

    @property
    def schema(self) -> Schema:
        """The fields, as they were given."""
        return self._schema

    @property
    def bytes_written(self) -> int:
        """Bytes of the file so far."""
        return self._position

    @property
    def waiting_bytes(self) -> int | None:
        """Bytes of the rows as Arrow data, if all of them wait for their pages; else None."""
        return None if self._position else self._buffered_bytes()

    def _buffered_bytes(self) -> int:
        return sum([column.num_bytes for column in self.columns])

    def has_reached(self, num_bytes: int) -> bool:
        """Return whether the file, with the rows that wait for their pages, has about so many bytes.

        Waiting rows are assumed to be encoded as well as those already written. Where there are none, the waiting rows
        are written to find out.

        Args:
            num_bytes: Size of the file in bytes.
        """
        buffered = self._buffered_bytes()
        if self._position + buffered < num_bytes:
            return False
        if not self._encoded_from:
            for column in self.columns:
                self.write_collected(column)
            return self._position >= num_bytes
        return self._position + buffered * self._encoded_to // self._encoded_from >= num_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows.

        Args:
            batch: Columns in the order of the schema. Its buffers are kept until their pages are written; where several
                columns share a buffer, until the first of these pages is.

        Raises:
            InvalidInputError: Other names or types than the schema's, or nulls where there must be none; no row of the
                batch was taken.
        """
        arrays = fit_arrays(batch, self._kinds)
        for array, column in zip(arrays, self.columns, strict=True):
            if column.writer.needs_check:
                column.writer.check(array)
        num_rows, encoded_before = batch.num_rows, self._encoded_from
        small = min(self._page_bytes // 2, _VECTOR_BYTES * num_rows)
        for array, column in zip(arrays, self.columns, strict=True):
            num_bytes = num_bytes_of(array)
            self._shared_bytes += num_bytes
            if num_bytes + column.num_bytes < small:
                column.arrays.append(array)
                column.num_rows += num_rows
                column.num_bytes += num_bytes
            else:
                self._collect(column, array, max(1, num_bytes))
        # A batch that came through a pipe is one buffer. Without these copies a narrow column would keep all batches of
        # its page in memory: a gigabyte of images for 8 MiB of ids. Wide columns are never copied, nor others before
        # half of what they keep is written: a copy of what waits would save less than it takes.
        if self._encoded_from > encoded_before and 2 * self._sharing_bytes() <= self._shared_bytes:
            for column in self.columns:
                column.unshare()
            self._shared_bytes = 0
        self._num_rows += num_rows

    def _sharing_bytes(self) -> int:
        """Return the bytes of rows that wait for their page and may share memory."""
        return sum([column.num_bytes - column.owned_bytes for column in self.columns])

    def copy_pages(self, columns: Sequence[Iterable[tuple[Page, Sequence[bytes | Bytes]]]], num_rows: int) -> None:
        """Add rows whose pages another file of this version has: they are copied as they are, column by column.

        Args:
            columns: For each field, all of which must be single leaves, its pages and their buffers.
            num_rows: Rows in the pages of each field.

        Raises:
            CorruptDataError: A field has pages for more or fewer rows.
        """
        for column, pages in zip(self.columns, columns, strict=True):
            self.write_collected(column)
            assert isinstance(column.writer, FieldWriterV21)  # noqa: S101 for the type checker: callers have checked
            copied = column.writer.copy(pages, self._put)
            if copied != num_rows:
                raise CorruptDataError(f"a column has pages for {copied} rows, the others for {num_rows}")
        self._num_rows += num_rows

    def abort(self) -> None:
        """Give up the file."""
        self._blobs.abort()
        self._sink.abort()

    def add_schema_metadata(self, key: str, value: bytes) -> None:
        """Add metadata to the schema that the file holds."""
        self._schema = replace(self._schema, metadata={**self._schema.metadata, key: value})

    def add_global_buffer(self, data: bytes) -> int:
        """Add bytes that belong to the file as a whole; their index among the global buffers."""
        self._global_buffers.append(self._put(data))
        return len(self._global_buffers)

    def finish(self) -> WrittenDataFile:
        """Write what is left and the metadata, and commit the sink."""
        (written,) = _finish_together([self])
        return written

    def end(self) -> WrittenDataFile:
        """Write the metadata behind the last page, and commit the sink."""
        self._blobs.finish()
        blob_sums = self._blobs.checksums()
        if self._checksums is not None and blob_sums:
            self.add_global_buffer(blob_sums)
        columns = [data for column in self.columns for data in column.writer.finish()]
        self._write_metadata(encode_descriptor(file_schema(self._schema), self._num_rows), columns)
        self._write_waiting()
        self._sink.commit()
        field_ids = tuple(identity for column in self.columns for identity in column.writer.field_ids)
        return WrittenDataFile(
            num_rows=self._num_rows,
            size=self._position,
            field_ids=field_ids,
            column_indices=tuple(range(len(field_ids))),
            major=self._version.major,
            minor=self._version.minor,
        )

    def _write_metadata(self, descriptor: bytes, columns: Sequence[bytes]) -> None:
        """Write checksums, and all that comes behind them: its size is known before, so that they can be of it, too."""
        self._wait(_PADDING[: align(self._position) - self._position])
        if self._checksums is None:
            self._wait(self._tail(self._position, None, descriptor, columns))
            return
        self._write_waiting()
        start = self._position
        num_globals = 2 + len(self._global_buffers)
        tail_size = len(descriptor) + sum(map(len, columns)) + ENTRY_SIZE * (len(columns) + num_globals) + FOOTER_SIZE
        end = start + sums_size(self._checksums, tail_size)
        tail = self._tail(align(end), (start, end - start), descriptor, columns)
        self._wait(encode_sums(self._checksums, tail))
        self._wait(_PADDING[: align(end) - end])
        self._wait(tail)

    def _tail(
        self, start: int, checksums: tuple[int, int] | None, descriptor: bytes, columns: Sequence[bytes]
    ) -> bytes:
        """Descriptor, metadata of the columns, tables and footer.

        Args:
            start: Where they begin.
            checksums: Place of the checksums, if there are any.
            descriptor: The file descriptor.
            columns: Metadata of each column.
        """
        columns_start = start + len(descriptor)
        entries: list[tuple[int, int]] = []
        position = columns_start
        for data in columns:
            entries.append((position, len(data)))
            position += len(data)
        column_table = encode_table(entries)
        global_buffers = [(start, len(descriptor)), *self._global_buffers, *([] if checksums is None else [checksums])]
        footer = Footer(
            column_metadata_start=columns_start,
            column_table_start=position,
            global_table_start=position + len(column_table),
            num_global_buffers=len(global_buffers),
            num_columns=len(columns),
            major=self._version.footer[0],
            minor=self._version.footer[1],
        )
        return b"".join([descriptor, *columns, column_table, encode_table(global_buffers), encode_footer(footer)])

    def _collect(self, column: Collected, array: pa.Array, num_bytes: int) -> None:
        """Add rows of so many bytes to a column; pages that are full are written."""
        page_bytes = self._page_bytes
        if page_bytes == PAGE_BYTES:
            page_bytes *= max(1, min(len(column.writer.free_leaves) // _LEAVES_OF_A_PAGE, _MOST_PAGES))
        step = max(1, len(array) * page_bytes // num_bytes)
        full = rows_of_vectors(array.type) if self._page_bytes == PAGE_BYTES else None
        start = 0
        while start < len(array):
            part = array.slice(start, step if full is None else full - column.num_rows)
            start += len(part)
            column.arrays.append(part)
            column.num_rows += len(part)
            column.num_bytes += num_bytes * len(part) // len(array)
            if column.num_bytes >= page_bytes * 3 // 4 if full is None else column.num_rows >= full:
                self.write_collected(column)

    def write_collected(self, column: Collected, leaves: Leaves | None = None) -> None:
        """Write the rows that a column has collected; ``leaves`` are those that were looked at already."""
        if not column.arrays:
            return
        if leaves is None:
            (leaves,) = encode_leaves([column], self.options)
        arrays, num_bytes = column.arrays, column.num_bytes
        column.arrays, column.num_bytes, column.num_rows = [], 0, 0
        column.num_owned, column.owned_bytes = 0, 0
        start = self._position
        column.writer.write(arrays[0] if len(arrays) == 1 else joined(arrays), self._put, leaves)
        self._encoded_from += num_bytes
        self._encoded_to += self._position - start
        if num_bytes >= _LARGE_PAGE and not pa.types.is_primitive(arrays[0].type):
            pa.default_memory_pool().release_unused()

    def _put(self, data: bytes | Bytes) -> tuple[int, int]:
        """Write a buffer where one may begin; its position and size."""
        size, gap = len(data), -self._position % PAGE_ALIGNMENT
        position = self._position + gap
        self._position = position + size
        if size <= _SMALL_BUFFER:
            self._waiting += (_PADDING[:gap], data)
            if self._position - self._handed_over >= _MANY_BYTES:
                self._write_waiting()
        else:
            self._waiting.append(_PADDING[:gap])
            self._write_waiting()
            self._hand_over(data if isinstance(data, bytes) else data.data)
        return position, size

    def _wait(self, data: bytes) -> None:
        """Write bytes, together with what else there is: each call of the sink costs as much as a copy."""
        self._position += len(data)
        self._waiting.append(data)

    def _write_waiting(self) -> None:
        if self._waiting:
            data = b"".join(cast("list[bytes]", self._waiting))  # arrays are buffers, which only Python 3.12 tells
            self._waiting = []
            self._hand_over(data)

    def _hand_over(self, data: bytes | memoryview) -> None:
        """Give bytes to the sink."""
        self._sink.write(data)
        self._handed_over += len(data) if isinstance(data, bytes) else data.nbytes
        if self._checksums is not None:
            self._checksums.add(data)


def finish_files(writers: Sequence[AnyFileWriter]) -> list[WrittenDataFile]:
    """Finish files of one schema and version. Columns of all of them that are alike are encoded at one go.

    Args:
        writers: The files. Each gets the bytes that it would get alone.

    Returns:
        What was written, in the same order.
    """
    together = [writer for writer in writers if isinstance(writer, DataFileWriter)]
    if len(together) < len(writers):
        return [writer.finish() for writer in writers]
    return _finish_together(together)


def _finish_together(writers: Sequence[DataFileWriter]) -> list[WrittenDataFile]:
    owners = iter([writer for writer in writers for _ in writer.columns])
    columns = [column for writer in writers for column in writer.columns]
    for some, looked_at in encode_together(columns, writers[0].options):
        for column, leaves, owner in zip(some, looked_at, owners, strict=False):
            owner.write_collected(column, leaves)
    return [writer.end() for writer in writers]


def rows_of_vectors(kind: pa.DataType) -> int | None:
    """Rows of a page of large values of one width: a power of two, as scans ask for, whose batches need no copy then.

    Args:
        kind: Type of the column.

    Returns:
        Rows; None for other values.
    """
    items = 1
    while pa.types.is_fixed_size_list(kind):
        kind, items = kind.value_type, items * kind.list_size
    try:
        row_bytes = items * kind.bit_width // 8
    except ValueError:  # no fixed width
        return None
    if not _VECTOR_BYTES <= row_bytes <= _MAX_VECTOR_BYTES:
        return None
    return 1 << (_VECTOR_PAGE_BYTES // row_bytes).bit_length() - 1
