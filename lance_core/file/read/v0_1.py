"""Files of version 0.1: row groups of plain pages, found by field id and batch.

Nulls are not stored: strings that are empty read as null where the field may be null; everything else reads as
whatever was written in their place (pylance 14.0.2 does the same).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.common.limits import check_limit
from lance_core.encoding.kernels import distinct, starts_of
from lance_core.encoding.plans import together
from lance_core.encoding.v0_1.dictionaries import dictionary_of
from lance_core.encoding.v0_1.pages import Pieces, cut_rows, read_spans, read_values, row_bytes
from lance_core.encoding.v2_0.arrays import dictionary_array
from lance_core.encoding.v2_0.ends import Spans
from lance_core.encoding.v2_0.nesting import LIST_TYPES
from lance_core.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lance_core.file.file_layout import ColumnSummary, FileLayout, PageSummary, fields_with_columns
from lance_core.file.read.nodes import OffsetPages, ValuePages, open_field
from lance_core.format.file.legacy_file import (
    SIZE_BYTES,
    decode_legacy_footer,
    decode_legacy_metadata,
    decode_legacy_schema,
    decode_page_table,
    decode_size,
)
from lance_core.format.table.legacy_dictionaries import is_legacy_dictionary

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lance_core.encoding.plans import Plan, ReadPlan, Rows
    from lance_core.encoding.values import Int64s
    from lance_core.file.read.cache import FileCache
    from lance_core.file.read.field_reader import FieldReader
    from lance_core.file.source import FileBytes
    from lance_core.format.dictionary_values import LegacyDictionary
    from lance_core.format.file.legacy_file import LegacyStatistics
    from lance_core.format.schema import Field, Schema


@frozen(kw_only=True)
class BatchStatistics:
    """Statistics of the values of one field in each batch of a file, taken before nulls were lost.

    Attributes:
        null_count: Shape (batches,): nulls.
        minimum: One value for each batch that none is less than, null if unknown; NaN does not count.
        maximum: Likewise the other end.
    """

    null_count: Int64s
    minimum: pa.Array
    maximum: pa.Array


class ContentLegacy:
    """A file of version 0.1.

    Args:
        file: The file.

    Raises:
        CorruptDataError: Positions that cannot be.
    """

    def __init__(self, file: FileBytes) -> None:
        self._file = file
        self._limit = decode_legacy_footer(memoryview(file.tail), file.size)
        self._metadata = decode_legacy_metadata(self._message(self._limit))
        self._schema: Schema | None = None
        self._tables: dict[int, Int64s] = {}

    def descriptor(self) -> tuple[Schema, int]:
        """Schema and number of rows."""
        if self._schema is None:
            if not 0 < self._metadata.schema_position < self._limit:
                raise CorruptDataError("the file has no schema")
            self._schema = decode_legacy_schema(self._message(self._metadata.schema_position))
        return self._schema, int(self._metadata.batch_offsets[-1])

    def column_numbers(self) -> dict[int, int]:
        """Return rows of the page table of the file's own fields, by field id."""
        fields = [field for _, field in fields_with_columns(self.descriptor()[0], inner=True, packed=False)]
        first = min((field.id for field in fields), default=0)
        return {field.id: field.id - first for field in fields}

    def file_layout(self) -> FileLayout:
        """Return the layout of the file. Pages do not record their ends: each reaches to the next thing."""
        numbers = self.column_numbers()
        tables = self._read_tables(numbers.values())
        fields = list(fields_with_columns(self.descriptor()[0], inner=True, packed=False))
        starts = (tables[number][:, 0] for number in numbers.values())
        positions = distinct(np.concatenate([np.empty(0, np.int64), *starts]))
        ends = np.append(positions[1:], self._metadata.page_table_position)
        columns = tuple(
            ColumnSummary(
                path=path,
                logical_type=field.logical_type,
                pages=tuple(
                    PageSummary(
                        buffers=((int(position), max(0, int(ends[np.searchsorted(positions, position)] - position))),),
                        num_rows=int(length),
                        layout=field.logical_type,
                    )
                    for position, length in tables[numbers[field.id]]
                    if length
                ),
            )
            for path, field in fields
        )
        start = self._metadata.page_table_position
        return FileLayout(
            major=0,
            minor=1,
            columns=columns,
            global_buffers=(),
            num_metadata_bytes=self._limit - start,
            num_data_bytes=start,
        )

    def fields(self, projection: Schema, columns: Mapping[int, int], cache: FileCache) -> list[FieldReader]:
        """Open the fields of a projection.

        Args:
            projection: Fields to read.
            columns: For each of them and all below, by field id, its row of the page table.
            cache: Not needed: pages have no metadata.
        """
        del cache
        numbers = {field.id: columns[field.id] for field in projection.walk() if field.id in columns}
        page_tables = self._read_tables(numbers.values())
        tables = {identity: page_tables[number] for identity, number in numbers.items()}
        opener = self._opener(tables)
        return [open_field(field, opener) for field in projection.fields]

    def _opener(self, tables: Mapping[int, Int64s]) -> _Opener:
        stored = {field.id: field for field in self.descriptor()[0].walk() if field.dictionary is not None}
        return _Opener(self._file, tables, stored, self._limit)

    def _read_tables(self, numbers: Iterable[int]) -> dict[int, Int64s]:
        """Return rows of the page table, by number."""
        missing = sorted(set(numbers) - self._tables.keys())
        ranges = [self._metadata.table_range(number) for number in missing]
        if any(not 0 <= start <= end <= self._limit for start, end in ranges):
            raise CorruptDataError("the page table lies outside the file", offset=self._metadata.page_table_position)
        for number, data in zip(missing, self._file.fetch(ranges), strict=True):
            self._tables[number] = decode_page_table(data.to_pybytes(), limit=self._limit)
        return self._tables

    @property
    def batch_offsets(self) -> Int64s:
        """Shape (batches + 1,): first row of each batch, and the number of rows."""
        return self._metadata.batch_offsets

    def dictionaries(self, fields: Collection[int]) -> dict[int, tuple[str, LegacyDictionary]]:
        """Return logical type and dictionary of dictionary fields, by id; other fields are passed over."""
        opener = self._opener({})
        return {
            field.id: (field.logical_type, dictionary_of(opener.items(field, field.to_arrow().type)))
            for field in self.descriptor()[0].walk()
            if field.id in fields and is_legacy_dictionary(field)
        }

    def statistics(self, fields: Collection[int]) -> dict[int, BatchStatistics]:
        """Statistics of fields, by id; many have none."""
        stored = self._metadata.statistics
        if stored is None or len(self.batch_offsets) < 2:
            return {}
        return {
            field_id: self._statistics(stored, stored.fields[field_id])
            for field_id in fields
            if field_id in stored.fields
        }

    def _statistics(self, stored: LegacyStatistics, parts: tuple[Field, Field, Field]) -> BatchStatistics:
        ranges = [stored.entry_range(field) for field in parts]
        if any(not 0 <= start < end <= self._limit for start, end in ranges):
            raise CorruptDataError("the statistics lie outside the file", offset=stored.page_table_position)
        entries = [decode_page_table(table.to_pybytes(), limit=self._limit)[0] for table in self._file.fetch(ranges)]
        num_batches = len(self.batch_offsets) - 1
        if any(int(entry[1]) != num_batches for entry in entries):
            raise CorruptDataError("the statistics are not those of the file's batches")
        # Unknown bounds are stored as empty strings; old writers called them not nullable nevertheless.
        null_count, minimum, maximum = self._file.run(
            together(
                [
                    read_values(
                        _page(int(entry[0]), num_batches), field.to_arrow().type, nullable=True, limit=self._limit
                    )
                    for field, entry in zip(parts, entries, strict=True)
                ]
            )
        )
        if null_count.type != pa.int64():
            raise CorruptDataError(f"the numbers of nulls are {null_count.type}")
        return BatchStatistics(null_count=null_count.to_numpy(), minimum=minimum, maximum=maximum)

    def _message(self, position: int) -> bytes:
        """Return a message with its size in front."""
        start = position + SIZE_BYTES
        size = decode_size(self._file.fetch([(position, start)])[0].to_pybytes())
        if start + size > self._file.size:
            raise CorruptDataError("a message of the metadata reaches beyond the file", offset=position)
        check_limit("max_metadata_bytes", size, "bytes of a message")
        return self._file.fetch([(start, start + size)])[0].to_pybytes()


@frozen
class _Pages:
    """Pages of one field: shape (batches,), where each begins; shape (batches + 1,), its first row, and the end."""

    positions: Int64s
    first_rows: Int64s
    limit: int

    def cut(self, rows: Rows) -> Pieces:
        return cut_rows(self.first_rows, self.positions, rows)


def _values(kind: pa.DataType, pages: _Pages, items: pa.Array | None, *, nullable: bool) -> ValuePages:
    """Return the values of a field; ``items`` are those of the one dictionary that it has."""
    stored, num_rows = kind if items is None else kind.index_type, int(pages.first_rows[-1])

    def read(rows: Rows) -> Plan:
        is_nullable = nullable and items is None
        array = yield from read_values(pages.cut(rows), stored, nullable=is_nullable, limit=pages.limit)
        return [array if items is None else dictionary_array(kind, array.to_numpy(), items)]

    width = row_bytes(stored)
    # Pages of strings do not tell how long they are; there cannot be more in them than in the file.
    return ValuePages(num_rows, pages.limit if width is None else int(width * num_rows), read)


def _offsets(kind: pa.DataType, pages: _Pages, first_items: Int64s) -> OffsetPages:
    """Return the offsets of lists; ``first_items`` is the first item of each page, and the end."""

    def read(rows: Rows) -> ReadPlan[Spans]:
        pieces = pages.cut(rows)
        spans = yield from read_spans(pieces, is_large=pa.types.is_large_list(kind), limit=pages.limit)
        bases = np.repeat(first_items[pieces.pages], pieces.counts)
        starts, ends = spans.starts + bases, spans.ends + bases
        limits = np.repeat(first_items[pieces.pages + 1], pieces.counts)
        if (ends > limits).any() or (starts[1:] < ends[:-1]).any():
            raise CorruptDataError("a list ends behind the items of its page")
        return Spans(starts, ends, None, is_dense=False)

    return OffsetPages(int(pages.first_rows[-1]), int(first_items[-1]), read)


@frozen
class _Opener:
    """Finds pages by field id."""

    file: FileBytes
    tables: Mapping[int, Int64s]
    stored: Mapping[int, Field]
    limit: int

    def values(self, field: Field, kind: pa.DataType) -> ValuePages:
        items = self.items(field, kind) if pa.types.is_dictionary(kind) else None
        return _values(kind, self._pages(field), items, nullable=field.nullable)

    def blobs(self, field: Field, kind: pa.DataType) -> ValuePages:
        del kind  # pylance 14.0.2 cannot read what it writes there
        raise UnsupportedError(f"field {field.name!r}: blobs in files of version 0.1 are not supported")

    def offsets(self, field: Field, kind: pa.DataType) -> OffsetPages:
        return _offsets(kind, self._pages(field), self._rows(field.children[0]))

    def packed_kind(self, field: Field, kind: pa.DataType) -> None:
        del field, kind  # version 0.1 has no packed structs

    def count_empty(self, field: Field) -> int:
        raise UnsupportedError(f"field {field.name!r}: structs without fields leave no trace in files of version 0.1")

    def _pages(self, field: Field) -> _Pages:
        if field.id not in self.tables:
            raise InvalidInputError(f"field {field.name!r} has no pages in this file")
        return _Pages(np.ascontiguousarray(self.tables[field.id][:, 0]), self._rows(field), self.limit)

    def _rows(self, field: Field) -> Int64s:
        """Return shape (batches + 1,), the first row of each page, and the end; a struct has those of a field."""
        while field.logical_type == "struct" and field.children:
            field = field.children[0]
        if field.id not in self.tables:
            raise InvalidInputError(f"field {field.name!r} has no pages in this file")
        lengths = self.tables[field.id][:, 1]
        return starts_of(np.maximum(lengths - 1, 0) if field.logical_type in LIST_TYPES else lengths)

    def items(self, field: Field, kind: pa.DataType) -> pa.Array:
        """Return the dictionary of a field; the projection's own one lies in the manifest, not in this file."""
        stored = self.stored.get(field.id)
        position, length = (-1, 0) if stored is None or stored.dictionary is None else stored.dictionary
        if not 0 <= position <= self.limit or length < 0:
            raise CorruptDataError(f"field {field.name!r}: its dictionary lies outside the file")
        if not length:
            return pa.nulls(0, kind.value_type)
        return self.file.run(read_values(_page(position, length), kind.value_type, nullable=True, limit=self.limit))


def _page(position: int, num_rows: int) -> Pieces:
    """Return all rows of a page that stands alone."""
    return cut_rows(np.array([0, num_rows]), np.array([position]), range(num_rows))
