"""Fields of files of version 2.0: each has a column, lists (their ends) and structs (a header) too.

Not supported: strings stored as lists of bytes (no writer is known).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.arrow_values import pack_bits
from lance_core.encoding.kernels import starts_of
from lance_core.encoding.leaves import packed_kind
from lance_core.encoding.plans import split_rows, together
from lance_core.encoding.v2_0.arrays import read_array, read_dictionary, read_items
from lance_core.encoding.v2_0.buffers import Wanted
from lance_core.encoding.v2_0.ends import Spans, read_ends
from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.file.file_layout import field_of_column, fields_with_columns
from lance_core.file.read.nodes import OffsetPages, ValuePages, open_field
from lance_core.format.file.array_encoding import Dictionary, ListOffsets, decode_array_encoding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lance_core.encoding.plans import Plan, ReadPlan, Rows
    from lance_core.encoding.values import Int64s
    from lance_core.file.container import Container
    from lance_core.file.file_layout import FileLayout
    from lance_core.file.read.cache import FileCache, PageCache
    from lance_core.file.read.field_reader import FieldReader
    from lance_core.format.file.array_encoding import ArrayEncoding
    from lance_core.format.file.file_metadata import Page
    from lance_core.format.schema import Field, Schema


@frozen
class _Column:
    """One column of a file.

    Attributes:
        pages: Its pages.
        first_rows: Shape (pages + 1,): first row of each page, and the end.
        cache: Its cache entry.
    """

    pages: tuple[Page, ...]
    first_rows: Int64s
    cache: PageCache

    def encoding(self, number: int) -> ArrayEncoding:
        encoding = self.cache.encodings.get(number)
        if encoding is None:
            encoding = self.cache.encodings[number] = decode_array_encoding(self.pages[number].layout)
        return encoding

    def first_items(self) -> Int64s:
        counts = [self.offsets(at).num_items if page.num_rows else 0 for at, page in enumerate(self.pages)]
        return starts_of(np.array(counts, np.int64))

    def offsets(self, number: int) -> ListOffsets:
        encoding = self.encoding(number)
        if not isinstance(encoding, ListOffsets):
            raise CorruptDataError(f"a page of lists is encoded as {type(encoding).__name__}")
        return encoding


def _values(kind: pa.DataType, column: _Column) -> ValuePages:
    """Return the values of a column as a type."""

    def read(rows: Rows) -> Plan:
        if len(rows) == 1:
            rows = range(int(rows[0]), int(rows[0]) + 1)
        pages = list(split_rows(column.first_rows, rows))
        if len(pages) == 1:
            return [(yield from read_page(*pages[0]))]
        return (yield from together([read_page(number, inside) for number, inside in pages]))

    def read_page(number: int, rows: Rows) -> ReadPlan[pa.Array]:
        encoding = column.encoding(number)
        wanted = Wanted(column.pages[number].buffers, rows)
        if not isinstance(encoding, Dictionary):
            return (yield from read_array(encoding, wanted, kind))
        cached = column.cache.items
        items = cached.get(number)
        if items is None:
            items = cached[number] = yield from read_items(encoding, wanted.buffers, kind)
        return (yield from read_dictionary(encoding, wanted, kind, items))

    num_bytes = sum(size for page in column.pages for _, size in page.buffers)
    return ValuePages(int(column.first_rows[-1]), num_bytes, read)


def _blob_with_nulls(array: pa.Array) -> pa.Array:
    """Return positions and sizes of blobs; position 1 and size 0 stand for null."""
    children = [array.field(index) for index in range(2)]
    positions, sizes = (child.to_numpy() for child in children)
    is_null = (positions == 1) & (sizes == 0)
    bitmap = pack_bits(~is_null) if is_null.any() else None
    return pa.Array.from_buffers(array.type, len(array), [bitmap], children=children)


def _offsets(column: _Column) -> OffsetPages:
    """Return the ends of lists of a column."""
    first_items = column.first_items()

    def read(rows: Rows) -> ReadPlan[Spans]:
        pages = split_rows(column.first_rows, rows)
        parts = yield from together([read_page(number, inside) for number, inside in pages])
        return parts[0] if len(parts) == 1 else _joined(parts)

    def read_page(number: int, rows: Rows) -> ReadPlan[Spans]:
        encoding = column.offsets(number)
        spans = yield from read_ends(column.pages[number].buffers, encoding.ends, rows, encoding.null_adjustment)
        base, end = first_items[number : number + 2].tolist()
        if base + int(spans.ends[-1]) > end:
            raise CorruptDataError("a list ends behind the items of its page")
        return replace(spans, starts=spans.starts + base, ends=spans.ends + base)

    return OffsetPages(int(column.first_rows[-1]), int(first_items[-1]), read)


def _joined(parts: list[Spans]) -> Spans:
    starts, ends = (
        np.concatenate(bounds) for bounds in ([part.starts for part in parts], [part.ends for part in parts])
    )
    validity = None
    if any(part.validity is not None for part in parts):
        validity = np.concatenate(
            [np.ones(len(part.starts), np.bool_) if part.validity is None else part.validity for part in parts]
        )
    return Spans(starts, ends, validity, is_dense=False)


@frozen
class _Opener:
    """Finds columns.

    Attributes:
        columns: By number.
        numbers: By field id.
        schema: Reads the schema of the file.
    """

    columns: Mapping[int, _Column]
    numbers: Mapping[int, int]
    schema: Callable[[], Schema]

    def values(self, field: Field, kind: pa.DataType) -> ValuePages:
        return _values(kind, self._column(field))

    def blobs(self, field: Field, kind: pa.DataType) -> ValuePages:
        values = self.values(field, kind)

        def read(rows: Rows) -> Plan:
            return [_blob_with_nulls(array) for array in (yield from values.read(rows))]

        return replace(values, read=read)

    def offsets(self, field: Field, kind: pa.DataType) -> OffsetPages:
        del kind  # lists and large lists look the same
        return _offsets(self._column(field))

    def packed_kind(self, field: Field, kind: pa.DataType) -> pa.DataType | None:
        if not field.is_packed:
            return None
        stored = field_of_column(self.schema(), self._number(field), inner=True)
        return packed_kind(stored, field, kind)

    def count_empty(self, field: Field) -> int:
        return int(self._column(field).first_rows[-1])

    def _column(self, field: Field) -> _Column:
        return self.columns[self._number(field)]

    def _number(self, field: Field) -> int:
        if field.id not in self.numbers:
            raise InvalidInputError(f"field {field.name!r} has no column in this file")
        return self.numbers[field.id]


class ContentV20:
    """A file of version 2.0.

    Args:
        container: Its metadata.
    """

    def __init__(self, container: Container) -> None:
        self._container = container

    def descriptor(self) -> tuple[Schema, int]:
        """Schema and number of rows."""
        return self._container.descriptor()

    def column_numbers(self) -> dict[int, int]:
        """Columns of the file's own fields, by field id."""
        fields = fields_with_columns(self.descriptor()[0], inner=True)
        return {field.id: number for number, (_, field) in enumerate(fields)}

    def file_layout(self) -> FileLayout:
        """Return the layout of the file."""
        return self._container.file_layout(decode_array_encoding, inner=True)

    def fields(self, projection: Schema, columns: Mapping[int, int], cache: FileCache) -> list[FieldReader]:
        """Open the fields of a projection.

        Args:
            projection: Fields to read.
            columns: For each of them and all below, by field id, its column in the file; structs may be left out.
            cache: Takes the metadata of their pages.
        """
        numbers = {field.id: columns[field.id] for field in projection.walk() if field.id in columns}
        pages = self._container.pages(set(numbers.values()))
        opened: dict[int, _Column] = {}
        for number in set(numbers.values()):
            first_rows = cache.first_rows(tuple([page.num_rows for page in pages[number]]))
            opened[number] = _Column(pages[number], first_rows, cache.pages(number, pages[number], first_rows))
        opener = _Opener(opened, numbers, lambda: self.descriptor()[0])
        return [open_field(field, opener) for field in projection.fields]
