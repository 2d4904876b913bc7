"""Write data files of version 0.1: row groups of plain pages, the page table, statistics and dictionaries.

The format has no place for nulls but in strings, where null and empty are the same. pylance 14.0.2 writes zeros for
other nulls and reads empty strings as nulls without a word; here both are refused, so that what is read is what was
written. Layout and messages are described in `lance_core.format.file.legacy_file`.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

from lance_core.common.frozen import mutable, replace
from lance_core.encoding.arrow_values import json_to_binary, offset_dtype
from lance_core.encoding.leaves import check_nulls, list_items
from lance_core.encoding.v0_1.dictionaries import DictionaryBuilder
from lance_core.encoding.v0_1.encode import PageBytes, put_offsets, put_strings, put_values
from lance_core.encoding.v0_1.statistics import GroupStatistics, group_statistics, has_statistics
from lance_core.encoding.v2_0.nesting import LIST_TYPES
from lance_core.encoding.v2_0.packed import bit_width
from lance_core.encoding.values import VariableValues
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.file.write.field_writer import RowGroups, WrittenDataFile, fit_arrays
from lance_core.format.file.checksums import RunningSums, align, encode_place, encode_sums, sums_size
from lance_core.format.file.legacy_file import (
    LEGACY_FOOTER_SIZE,
    encode_legacy_footer,
    encode_legacy_metadata,
    encode_legacy_schema,
    encode_page_table,
    statistics_schema,
    with_encodings,
)
from lance_core.format.schema import JSON, Schema
from lance_core.format.table.legacy_dictionaries import place_dictionaries, with_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_core.format.schema import Field
    from lance_core.store.base import ObjectWriter

pc: Any = pyarrow.compute  # its functions are made when it is imported, type checkers do not see them

_INSTEAD = "use file version 2.2"
_MAX_ROWS = 2**31 - 1


@mutable
class _Leaf:
    """Values that have pages of their own: one for each row group."""

    owner: Field
    kind: pa.DataType
    keeps_statistics: bool
    entries: list[tuple[int, int]] = dataclasses.field(default_factory=list[tuple[int, int]])
    statistics: list[GroupStatistics] = dataclasses.field(default_factory=list[GroupStatistics])

    def check(self, array: pa.Array) -> None:
        if offset_dtype(self.kind) is not None:
            if self.owner.nullable:
                _check_not_empty(self.owner, array)
        elif not pa.types.is_null(self.kind):
            _check_not_null(self.owner, array)

    def write(self, arrays: Sequence[pa.Array], pages: PageBytes) -> None:
        array = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
        if self.owner.logical_type == JSON:
            array = json_to_binary(array)
        if self.keeps_statistics:
            self.statistics.append(group_statistics(array))
        self.entries.append((put_values(array, pages), len(array)))

    def columns(self) -> Iterator[_Column]:
        yield self

    def has_usable_statistics(self) -> bool:
        """Return whether the file may hold the statistics of this column.

        pylance 14.0.2 takes a row group that has some nulls for one that has none, and does not think of NaN: it
        answers ``s IS NULL`` and ``f > 5`` wrongly on such files of its own. Without statistics its answers are right.
        """
        pairs = zip(self.statistics, self.entries, strict=True) if self.keeps_statistics else ()
        return self.keeps_statistics and not any(
            statistics.has_nan or 0 < statistics.null_count < num_rows for statistics, (_, num_rows) in pairs
        )


@mutable
class _Dictionary:
    """Keys of values that the end of the file holds."""

    owner: Field
    builder: DictionaryBuilder
    entries: list[tuple[int, int]] = dataclasses.field(default_factory=list[tuple[int, int]])

    def check(self, array: pa.DictionaryArray) -> None:
        self.builder.check(array)

    def write(self, arrays: Sequence[pa.DictionaryArray], pages: PageBytes) -> None:
        keys = np.concatenate([self.builder.keys(array) for array in arrays])
        self.entries.append((pages.put(keys.view(np.uint8)), len(keys)))

    def columns(self) -> Iterator[_Column]:
        yield self


@mutable
class _List:
    """Lists: pages of their offsets, then those of the items."""

    owner: Field
    items: _Node
    is_large: bool
    entries: list[tuple[int, int]] = dataclasses.field(default_factory=list[tuple[int, int]])

    def check(self, array: pa.Array) -> None:
        _check_not_null(self.owner, array)
        self.items.check(list_items(array, None)[1])

    def write(self, arrays: Sequence[pa.Array], pages: PageBytes) -> None:
        parts = [list_items(array, None) for array in arrays]
        sizes = np.concatenate([sizes for sizes, _ in parts])
        self.entries.append((put_offsets(sizes, pages, is_large=self.is_large), len(sizes) + 1))
        self.items.write([items for _, items in parts], pages)

    def columns(self) -> Iterator[_Column]:
        yield self
        yield from self.items.columns()


@mutable
class _Struct:
    """Structs leave no trace but their fields."""

    owner: Field
    children: tuple[_Node, ...]

    def check(self, array: pa.Array) -> None:
        _check_not_null(self.owner, array)
        for index, child in enumerate(self.children):
            child.check(array.field(index))

    def write(self, arrays: Sequence[pa.Array], pages: PageBytes) -> None:
        for index, child in enumerate(self.children):
            child.write([array.field(index) for array in arrays], pages)

    def columns(self) -> Iterator[_Column]:
        for child in self.children:
            yield from child.columns()


_Column: TypeAlias = "_Leaf | _Dictionary | _List"
_Node: TypeAlias = "_Column | _Struct"


def check_fields(schema: Schema) -> None:
    """Refuse fields that files of version 0.1 cannot hold, or that pylance 14.0.2 cannot read in them.

    Raises:
        UnsupportedError: Names the field, its type and the version to use.
    """
    _nodes(schema)


class DataFileWriterV01:
    """One data file of version 0.1 being written; see `lance_core.file.write.writer.DataFileWriter` for the methods.

    Args:
        sink: Receives the bytes.
        schema: Fields with their ids; dictionary fields of an existing table hold their values.
        groups: Which rows make a row group; 1024 each if None.
        with_checksums: False for a file that is gone before anything could happen to it.

    Raises:
        UnsupportedError: A type that cannot be written; nothing was written.
    """

    def __init__(
        self,
        sink: ObjectWriter,
        schema: Schema,
        *,
        groups: RowGroups | None = None,
        with_checksums: bool = True,
    ) -> None:
        self._sink = sink
        self._schema = with_encodings(schema)
        self._kinds = schema.to_arrow()
        self._nodes = _nodes(schema)
        self._columns = [column for node in self._nodes for column in node.columns()]
        groups = groups or RowGroups()
        self._rows_per_group = groups.max_rows
        self._group_ends = deque(groups.ends)
        self._waiting: deque[list[pa.Array]] = deque()
        self._rows_waiting = 0
        self._bytes_waiting = 0
        self._batch_offsets = [0]
        self._position = 0
        self._checksums = RunningSums() if with_checksums else None

    @property
    def num_rows(self) -> int:
        """Rows taken so far."""
        return self._batch_offsets[-1] + self._rows_waiting

    @property
    def bytes_written(self) -> int:
        """Bytes of the file so far."""
        return self._position

    @property
    def waiting_bytes(self) -> None:
        """None: the next file goes on with the dictionaries of this one, so that it cannot wait."""

    def has_reached(self, num_bytes: int) -> bool:
        """Return whether the file, with the rows that wait for their row group, has about so many bytes."""
        return self._position + self._bytes_waiting >= num_bytes

    @property
    def schema(self) -> Schema:
        """The fields; those of dictionary type hold the values that the file has so far."""
        builders = {column.owner.id: column.builder for column in self._columns if isinstance(column, _Dictionary)}
        return with_values(self._schema, lambda field: builders[field.id].dictionary()) if builders else self._schema

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            InvalidInputError: Other names or types than the schema's, or values that the file would lose.
        """
        arrays = fit_arrays(batch, self._kinds)
        if self.num_rows + batch.num_rows > _MAX_ROWS:
            raise InvalidInputError(f"a file of version 0.1 holds at most {_MAX_ROWS:,} rows; write more files")
        for array, node, field in zip(arrays, self._nodes, self._schema.fields, strict=True):
            check_nulls(field, array)
            node.check(array)
        if not batch.num_rows:
            return
        self._waiting.append(arrays)
        self._rows_waiting += batch.num_rows
        self._bytes_waiting += batch.nbytes
        while self._rows_waiting >= (count := self._next_group()):
            self._write_group(count)

    def add_schema_metadata(self, key: str, value: bytes) -> None:
        """Add metadata to the schema that the file holds."""
        self._schema = replace(self._schema, metadata={**self._schema.metadata, key: value})

    def add_global_buffer(self, data: bytes) -> int:
        """Refuse: files of this version have no global buffers."""
        raise UnsupportedError(f"files of version 0.1 have no global buffers, for {len(data)} bytes; {_INSTEAD}")

    def abort(self) -> None:
        """Give up the file."""
        self._sink.abort()

    def finish(self) -> WrittenDataFile:
        """Write what is left and the metadata, and commit the sink."""
        if self._rows_waiting:
            self._write_group(self._rows_waiting)
        field_ids = tuple(sorted(item.id for item in self._schema.walk()))
        pages = PageBytes(self._position)
        entries = {item.owner.id: item.entries for item in self._columns}
        num_groups = len(self._batch_offsets) - 1
        table = pages.put(encode_page_table(entries, first_id=field_ids[0], num_batches=num_groups))
        statistics = self._put_statistics(pages) if num_groups else None
        schema, dictionaries = place_dictionaries(self.schema, pages.position)
        pages.put(dictionaries)
        self._write(pages.take())
        self._write_tail(encode_legacy_schema(schema), table, statistics)
        self._sink.commit()
        return WrittenDataFile(
            num_rows=self.num_rows, size=self._position, field_ids=field_ids, column_indices=(), major=0, minor=2
        )

    def _next_group(self) -> int:
        """Return rows of the next row group."""
        while self._group_ends and self._group_ends[0] <= self._batch_offsets[-1]:
            self._group_ends.popleft()
        return self._group_ends[0] - self._batch_offsets[-1] if self._group_ends else self._rows_per_group

    def _write_group(self, num_rows: int) -> None:
        pages = PageBytes(self._position)
        for node, parts in zip(self._nodes, self._cut(num_rows), strict=True):
            node.write(parts, pages)
        self._write(pages.take())
        self._batch_offsets.append(self._batch_offsets[-1] + num_rows)

    def _cut(self, num_rows: int) -> list[list[pa.Array]]:
        """Take rows from those that wait: for each column its parts."""
        columns: list[list[pa.Array]] = [[] for _ in self._nodes]
        left = num_rows
        while left:
            arrays = self._waiting.popleft()
            count = min(left, len(arrays[0]))
            for parts, array in zip(columns, arrays, strict=True):
                parts.append(array if count == len(array) else array.slice(0, count))
            if count < len(arrays[0]):
                self._waiting.appendleft([array.slice(count) for array in arrays])
            left -= count
        self._bytes_waiting -= self._bytes_waiting * num_rows // self._rows_waiting
        self._rows_waiting -= num_rows
        return columns

    def _put_statistics(self, pages: PageBytes) -> tuple[Schema, int] | None:
        """Write the pages of the statistics and their page table; its schema and position."""
        leaves = [item for item in self._columns if isinstance(item, _Leaf) and item.has_usable_statistics()]
        if not leaves:
            return None
        leaves.sort(key=lambda leaf: leaf.owner.id)
        schema = statistics_schema([leaf.owner for leaf in leaves])
        entries: dict[int, list[tuple[int, int]]] = {}
        for leaf, parts in zip(leaves, schema.fields, strict=True):
            batches = leaf.statistics
            counts = np.array([item.null_count for item in batches], "<i8")
            positions = [
                pages.put(counts.view(np.uint8)),
                _put_bounds([item.minimum for item in batches], leaf.kind, pages),
                _put_bounds([item.maximum for item in batches], leaf.kind, pages),
            ]
            for part, position in zip(parts.children, positions, strict=True):
                entries[part.id] = [(position, len(batches))]
        return schema, pages.put(encode_page_table(entries, first_id=0, num_batches=1))

    def _write_tail(self, schema: bytes, page_table: int, statistics: tuple[Schema, int] | None) -> None:
        """Write checksums, schema, metadata and footer; the tail's size is known before, so that it has some, too."""

        def tail(start: int, checksums: tuple[int, int]) -> bytes:
            metadata = encode_legacy_metadata(
                schema_position=start,
                page_table_position=page_table,
                batch_offsets=self._batch_offsets,
                statistics=statistics,
            )
            trailer = b"" if self._checksums is None else encode_place(*checksums, LEGACY_FOOTER_SIZE)
            return b"".join([schema, metadata, trailer, encode_legacy_footer(start + len(schema))])

        start = self._position
        if self._checksums is None:
            self._write(tail(start, (0, 0)))
            return
        size = len(tail(0, (0, 0)))
        while True:  # positions are varints: where the tail begins depends on its size, and the reverse
            end = start + sums_size(self._checksums, size)
            data = tail(align(end), (start, end - start))
            if len(data) == size:
                break
            size = len(data)
        checksums, self._checksums = self._checksums, None
        self._write(encode_sums(checksums, data) + bytes(align(end) - end) + data)

    def _write(self, data: bytes) -> None:
        if data:
            self._sink.write(data)
            self._position += len(data)
            if self._checksums is not None:
                self._checksums.add(data)


def _put_bounds(bounds: Sequence[bytes | None], kind: pa.DataType, pages: PageBytes) -> int:
    """Write a page of bounds; those that are unknown are empty strings."""
    data = b"".join([bound or b"" for bound in bounds])
    if offset_dtype(kind) is not None:
        offsets = np.zeros(len(bounds) + 1, np.int64)
        np.cumsum([len(bound or b"") for bound in bounds], out=offsets[1:])
        return put_strings(VariableValues(offsets, np.frombuffer(data, np.uint8)), pages)
    values = np.frombuffer(data, np.uint8)
    return pages.put(np.packbits(values, bitorder="little") if pa.types.is_boolean(kind) else values)


# ------------------------------------------------------------------------------------------- types and lost values


def _nodes(schema: Schema) -> list[_Node]:
    return [_node(field, keeps_statistics=True) for field in schema.fields]


def _node(field: Field, *, keeps_statistics: bool) -> _Node:
    """Return a field and all below it; nothing below a list has statistics."""
    text = field.logical_type
    if field.is_blob:
        raise UnsupportedError(
            f"field {field.name!r} is a blob; pylance cannot read blobs of file version 0.1, {_INSTEAD}"
        )
    if text in LIST_TYPES:
        items = _node(_below(field, field.children[0]), keeps_statistics=False)
        return _List(field, items, is_large=text.startswith("large"))
    if text == "struct" and field.children:
        children = [_node(_below(field, child), keeps_statistics=keeps_statistics) for child in field.children]
        return _Struct(field, tuple(children))
    kind = pa.large_binary() if text == JSON else field.to_arrow().type
    _check_type(field, kind)
    if pa.types.is_dictionary(kind):
        return _Dictionary(field, DictionaryBuilder(kind, field.values, field.name))
    return _Leaf(field, kind, keeps_statistics and has_statistics(kind))


def _below(field: Field, child: Field) -> Field:
    """Return a child that errors call by its path; nothing else here looks at names."""
    return replace(child, name=f"{field.name}.{child.name}")


def _check_type(field: Field, kind: pa.DataType) -> None:
    """Refuse types that pylance 14.0.2 cannot write and read in files of version 0.1."""
    if pa.types.is_null(kind) or offset_dtype(kind) is not None:
        return
    if pa.types.is_dictionary(kind):
        is_held = pa.types.is_integer(kind.value_type) or kind.value_type in _DICTIONARY_STRINGS
    else:
        inner = kind
        while pa.types.is_fixed_size_list(inner):
            inner = inner.value_type
        # pylance scans fixed-size lists of booleans, but single rows of them make it panic.
        is_bits = pa.types.is_boolean(inner) and inner != kind
        is_plain = not pa.types.is_nested(inner) and not pa.types.is_dictionary(inner)
        is_held = is_plain and not is_bits and offset_dtype(inner) is None and bit_width(inner) > 0
    if not is_held:
        raise UnsupportedError(
            f"field {field.name!r} is of type {kind}, which file version 0.1 cannot hold; {_INSTEAD}"
        )


_DICTIONARY_STRINGS = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def _check_not_null(field: Field, array: pa.Array) -> None:
    inner = array
    while not (num_nulls := inner.null_count) and pa.types.is_fixed_size_list(inner.type):
        size = inner.type.list_size
        inner = inner.values.slice(inner.offset * size, len(inner) * size)
    if num_nulls:
        raise InvalidInputError(
            f"field {field.name!r} has {num_nulls:,} nulls; file version 0.1 cannot store nulls of type {inner.type}. "
            f"Fill them, or {_INSTEAD}"
        )


def _check_not_empty(field: Field, array: pa.Array) -> None:
    if field.logical_type == JSON:
        return  # no JSON is empty
    num_empty = int(pc.sum(pc.equal(pc.binary_length(array), 0)).as_py() or 0)
    if num_empty:
        raise InvalidInputError(
            f"field {field.name!r} has {num_empty:,} empty values of type {array.type}; file version 0.1 would return "
            f"them as nulls. Replace them by nulls, declare the column not nullable, or {_INSTEAD}"
        )
