"""Fields of files of version 2.0: each has a column, lists (their ends) and structs (a header) too.

Not supported: blob columns, strings stored as lists of bytes (no writer is known).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from lance_core.encoding.physical.memory import aranges, starts_of
from lance_core.encoding.plans import split_rows, together
from lance_core.encoding.v2_0.arrays import read_array, read_dictionary, read_items
from lance_core.encoding.v2_0.buffers import Wanted
from lance_core.encoding.v2_0.ends import read_ends
from lance_core.encoding.v2_0.nesting import list_array, struct_array
from lance_core.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lance_core.format.array_encoding import Dictionary, ListOffsets, decode_array_encoding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.encoding.plans import Plan, Rows, Steps
    from lance_core.encoding.v2_0.ends import Spans
    from lance_core.encoding.values import Int64s
    from lance_core.file.container import Container
    from lance_core.file.field_reader import FieldReader
    from lance_core.format.array_encoding import ArrayEncoding
    from lance_core.format.file_metadata import Page
    from lance_core.format.schema import Field, Schema

_GUESSED_STRING_BYTES = 16
_LIST_TYPES = ("list", "list.struct", "large_list", "large_list.struct")
_BLOB_KEY = "lance-encoding:blob"


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of a file.

    Attributes:
        pages: Its pages.
        first_rows: Shape (pages + 1,): first row of each page, and the end.
        encodings: Encodings of pages, as far as they were needed.
        items: Items of the dictionaries of pages, as far as they were read.
    """

    pages: tuple[Page, ...]
    first_rows: Int64s
    encodings: dict[int, ArrayEncoding] = field(default_factory=dict[int, "ArrayEncoding"])
    items: dict[int, pa.Array] = field(default_factory=dict[int, pa.Array])

    @property
    def num_rows(self) -> int:
        return int(self.first_rows[-1])

    @property
    def num_bytes(self) -> int:
        return sum(size for page in self.pages for _, size in page.buffers)

    def encoding(self, number: int) -> ArrayEncoding:
        known = self.encodings.get(number)
        if known is None:
            known = self.encodings[number] = decode_array_encoding(self.pages[number].layout)
        return known


class ContentV20:
    """A file of version 2.0.

    Args:
        container: Its metadata.
    """

    def __init__(self, container: Container) -> None:
        self._container = container
        self._columns: dict[int, _Column] = {}

    def descriptor(self) -> tuple[Schema, int]:
        """Schema and number of rows."""
        return self._container.descriptor()

    def fields(self, projection: Schema, columns: Mapping[int, int]) -> list[FieldReader]:
        """Open the fields of a projection.

        Args:
            projection: Fields to read.
            columns: For each of them and all below, by field id, its column in the file; structs may be left out.
        """
        numbers = {one.id: columns[one.id] for one in projection.walk() if one.id in columns}
        pages = self._container.pages(set(numbers.values()))
        for number in set(numbers.values()) - self._columns.keys():
            sizes = np.array([page.num_rows for page in pages[number]], np.int64)
            self._columns[number] = _Column(pages[number], starts_of(sizes))
        found = {identity: self._columns[number] for identity, number in numbers.items()}
        return [_node(one, found) for one in projection.fields]


def _node(one: Field, columns: Mapping[int, _Column]) -> _Node:
    kind = one.to_arrow().type
    if _BLOB_KEY in one.metadata:
        raise UnsupportedError(f"field {one.name!r}: blob column is not supported in data files yet")
    if one.logical_type == "struct" and not one.is_leaf:
        return _Struct(kind, tuple(_node(child, columns) for child in one.children))
    if one.id not in columns:
        raise InvalidInputError(f"field {one.name!r} has no column in this file")
    if one.logical_type in _LIST_TYPES:
        return _List(one.name, kind, columns[one.id], _node(one.children[0], columns))
    if one.children and not one.is_packed:
        raise UnsupportedError(f"field {one.name!r}: {one.logical_type} is not supported in files of version 2.0")
    if not one.children and one.logical_type == "struct":
        raise UnsupportedError(f"field {one.name!r}: struct without fields is not supported in data files yet")
    return _Leaf(kind, columns[one.id])


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A field whose values are in its column."""

    kind: pa.DataType
    column: _Column

    @property
    def num_rows(self) -> int:
        return self.column.num_rows

    @property
    def widths(self) -> list[float]:
        try:
            least = self.kind.bit_width / 8
        except ValueError:  # no fixed width
            least = _GUESSED_STRING_BYTES
        return [max(least, self.column.num_bytes / max(1, self.num_rows))]

    def plan(self, rows: Rows) -> Plan:
        if not len(rows):
            return [pa.nulls(0, self.kind)]
        _check_rows(self.column, rows)
        parts = [self._read_page(number, inside) for number, inside in split_rows(self.column.first_rows, rows)]
        return (yield from together(parts))

    def _read_page(self, number: int, rows: Rows) -> Steps[pa.Array]:
        encoding = self.column.encoding(number)
        wanted = Wanted(self.column.pages[number].buffers, rows)
        if not isinstance(encoding, Dictionary):
            return (yield from read_array(encoding, wanted, self.kind))
        items = self.column.items.get(number)
        if items is None:
            items = self.column.items[number] = yield from read_items(encoding, wanted.buffers, self.kind)
        return (yield from read_dictionary(encoding, wanted, self.kind, items))

    def fresh(self) -> _Leaf:
        return replace(self, column=replace(self.column, items={}))

    def forget(self, row: int) -> None:
        for number in [known for known in self.column.items if self.column.first_rows[known + 1] <= row]:
            del self.column.items[number]


@dataclass(frozen=True, slots=True)
class _Struct:
    """A struct; nothing of it is stored but its fields. Version 2.0 has no null structs."""

    kind: pa.DataType
    children: tuple[_Node, ...]

    @property
    def num_rows(self) -> int:
        return min(child.num_rows for child in self.children)

    @property
    def widths(self) -> list[float]:
        return [width for child in self.children for width in child.widths]

    def plan(self, rows: Rows) -> Plan:
        arrays = yield from together([child.plan(rows) for child in self.children])
        return [struct_array(self.kind, len(rows), [_whole(one) for one in arrays])]

    def fresh(self) -> _Struct:
        return replace(self, children=tuple(child.fresh() for child in self.children))

    def forget(self, row: int) -> None:
        for child in self.children:
            child.forget(row)


@dataclass(frozen=True, slots=True)
class _List:
    """Lists; the column holds where they end, the items are a field of their own."""

    name: str
    kind: pa.DataType
    column: _Column
    items: _Node

    @property
    def num_rows(self) -> int:
        return self.column.num_rows

    @property
    def widths(self) -> list[float]:
        per_list = self.items.num_rows / max(1, self.num_rows)
        return [8.0, *[width * per_list for width in self.items.widths]]

    def plan(self, rows: Rows) -> Plan:
        if not len(rows):
            return [pa.nulls(0, self.kind)]
        _check_rows(self.column, rows)
        pages = list(split_rows(self.column.first_rows, rows))
        bases = self._first_items()
        spans: list[Spans] = yield from together([self._read_page(number, inside) for number, inside in pages])
        starts = np.concatenate([one.starts + bases[number] for (number, _), one in zip(pages, spans, strict=True)])
        ends = np.concatenate([one.ends + bases[number] for (number, _), one in zip(pages, spans, strict=True)])
        validity = None
        if any(one.validity is not None for one in spans):
            validity = np.concatenate(
                [np.ones(len(one.starts), np.bool_) if one.validity is None else one.validity for one in spans]
            )
        items = yield from self.items.plan(_item_rows(starts, ends))
        return [list_array(self.name, self.kind, ends - starts, validity, _whole(items))]

    def _read_page(self, number: int, rows: Rows) -> Steps[Spans]:
        encoding = self._offsets(number)
        spans = yield from read_ends(self.column.pages[number].buffers, encoding.ends, rows, encoding.null_adjustment)
        if int(spans.ends[-1]) > encoding.num_items:
            raise CorruptDataError(
                f"a list of field {self.name!r} ends behind the {encoding.num_items} items of its page"
            )
        return spans

    def _first_items(self) -> Int64s:
        """Shape (pages + 1,): first item of each page, and the end."""
        pages = self.column.pages
        counts = [self._offsets(number).num_items if pages[number].num_rows else 0 for number in range(len(pages))]
        if sum(counts) > self.items.num_rows:
            raise CorruptDataError(f"field {self.name!r} has {self.items.num_rows} items, its lists {sum(counts)}")
        return starts_of(np.array(counts, np.int64))

    def _offsets(self, number: int) -> ListOffsets:
        encoding = self.column.encoding(number)
        if not isinstance(encoding, ListOffsets):
            raise CorruptDataError(f"a page of lists of field {self.name!r} is encoded as {type(encoding).__name__}")
        return encoding

    def fresh(self) -> _List:
        return replace(self, items=self.items.fresh())

    def forget(self, row: int) -> None:
        # Which items the lists before a row had is not known any more; dictionaries of items are few.
        del row


_Node: TypeAlias = _Leaf | _Struct | _List


def _check_rows(column: _Column, rows: Rows) -> None:
    if int(rows[-1]) >= column.num_rows:
        raise CorruptDataError(f"a column of {column.num_rows} rows is read up to row {int(rows[-1])}")


def _item_rows(starts: Int64s, ends: Int64s) -> Rows:
    """Items of lists that ascend: a range if nothing lies between them."""
    sizes = ends - starts
    first, last = int(starts[0]), int(ends[-1])
    return range(first, last) if int(sizes.sum()) == last - first else aranges(starts, sizes)


def _whole(arrays: list[pa.Array]) -> Any:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
