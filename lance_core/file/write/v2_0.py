"""Write fields of files of version 2.0: each has a column, lists (their ends) and structs (a header) too.

There is no place for structs that are null, nor for maps; packed structs hold no nulls at all.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import mutable, replace
from lance_core.encoding.arrow_values import json_to_binary, null_mask
from lance_core.encoding.leaves import LeafPath, check_nulls, list_items
from lance_core.encoding.options import page_options
from lance_core.encoding.v2_0.encode import PageBuffers, encode_ends, encode_packed, encode_values, fixed_bytes
from lance_core.encoding.v2_0.nesting import LIST_TYPES
from lance_core.encoding.v2_0.packed import bit_width
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.blobs import is_second_version
from lance_core.format.file.array_encoding import StructHeader, encode_array_encoding
from lance_core.format.file.file_metadata import Page, encode_column
from lance_core.format.schema import BLOB_KEY, JSON, logical_type_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_core.encoding.options import PageOptions
    from lance_core.encoding.values import Bytes
    from lance_core.file.write.field_writer import Leaves, Put
    from lance_core.format.file.array_encoding import ArrayEncoding
    from lance_core.format.schema import Field

_PACKED_KEY = "lance-encoding:packed"


class FieldWriterV20:
    """One top-level field; see `lance_core.file.write.v2_1.FieldWriterV21`.

    Args:
        field: The field.

    Raises:
        UnsupportedError: A type that cannot be written; the message names it.
        InvalidInputError: Metadata that asks for what cannot be.
    """

    is_bare = False
    paths: Sequence[LeafPath] = ()
    free_leaves: tuple[int, ...] = ()
    needs_check = True

    def __init__(self, field: Field) -> None:
        self._field = field
        self._node = _node(field)

    @property
    def field_ids(self) -> tuple[int, ...]:
        """All fields but those inside packed structs, depth first."""
        return tuple(self._node.field_ids())

    def check(self, array: pa.Array) -> None:
        """Nulls where there must be none, and those that this version cannot hold."""
        check_nulls(self._field, array)
        self._node.check(array)

    def write(self, array: pa.Array, put: Put, _: Leaves) -> None:
        """Write rows as one page of each column."""
        self._node.write(array, put)

    def finish(self) -> list[bytes]:
        """Return the metadata of each column."""
        return list(self._node.finish())


@mutable
class _Column:
    """Pages of one column."""

    owner: Field
    pages: list[Page] = dataclasses.field(default_factory=list[Page])

    def add(self, encoding: ArrayEncoding, buffers: list[Bytes], num_rows: int, put: Put) -> None:
        positions = tuple(put(buffer) for buffer in buffers)
        layout = encode_array_encoding(encoding)
        self.pages.append(Page(buffers=positions, num_rows=num_rows, first_row=0, layout=layout))


@mutable
class _Node:
    """A field with a column, and the fields below it."""

    column: _Column
    children: tuple[_Node, ...] = ()

    def field_ids(self) -> Iterator[int]:
        yield self.column.owner.id
        for child in self.children:
            yield from child.field_ids()

    def check(self, array: pa.Array) -> None:
        """Refuse values that the file cannot hold; by default it holds whatever the type can."""

    def write(self, array: pa.Array, put: Put) -> None:
        raise NotImplementedError

    def finish(self) -> Iterator[bytes]:
        yield encode_column(self.column.pages)
        for child in self.children:
            yield from child.finish()


@mutable(kw_only=True)
class _Leaf(_Node):
    """Values that have one column."""

    options: PageOptions

    def write(self, array: pa.Array, put: Put) -> None:
        page = PageBuffers(self.options)
        if self.column.owner.logical_type == JSON:
            array = json_to_binary(array)
        try:
            encoding = encode_values(array, page)
        except InvalidInputError as error:
            raise InvalidInputError(f"field {self.column.owner.name!r}: {error.message}") from error
        self.column.add(encoding, page.buffers, len(array), put)


class _List(_Node):
    """Lists: a column of their ends, then those of the items."""

    __slots__ = ()

    def check(self, array: pa.Array) -> None:
        _, items = list_items(array, null_mask(array))
        self.children[0].check(items)

    def write(self, array: pa.Array, put: Put) -> None:
        page = PageBuffers()
        is_null = null_mask(array)
        sizes, items = list_items(array, is_null)
        self.column.add(encode_ends(sizes, is_null, page), page.buffers, len(array), put)
        self.children[0].write(items, put)


@mutable
class _Struct(_Node):
    """Structs: a header that tells how many there are, then the columns of their fields."""

    num_rows: int = 0

    def check(self, array: pa.Array) -> None:
        _check_not_null(self.column.owner, array, "null structs")
        for index, child in enumerate(self.children):
            child.check(array.field(index))

    def write(self, array: pa.Array, put: Put) -> None:
        self.num_rows += len(array)
        for index, child in enumerate(self.children):
            child.write(array.field(index), put)

    def finish(self) -> Iterator[bytes]:
        layout = encode_array_encoding(StructHeader())
        self.column.pages = [Page(buffers=(), num_rows=self.num_rows, first_row=0, layout=layout)]
        return _Node.finish(self)


class _Packed(_Node):
    """Structs whose fields share one column."""

    __slots__ = ()

    def check(self, array: pa.Array) -> None:
        what = "nulls in packed structs"
        _check_not_null(self.column.owner, array, what)
        for index, child in enumerate(self.column.owner.children):
            inside = array.field(index)
            _check_not_null(child, inside, what)
            while pa.types.is_fixed_size_list(inside.type):
                inside = inside.flatten()
                _check_not_null(child, inside, what)

    def write(self, array: pa.Array, put: Put) -> None:
        page = PageBuffers()
        columns = [fixed_bytes(array.field(index)) for index in range(array.type.num_fields)]
        self.column.add(encode_packed(columns, page), page.buffers, len(array), put)


class _Blob(_Node):
    """Values that lie alone in the file; the column tells where and how long they are."""

    __slots__ = ()

    def write(self, array: pa.Array, put: Put) -> None:
        positions = np.zeros((len(array), 2), "<u8")
        for row, value in enumerate(array):
            if not value.is_valid:
                positions[row] = 1, 0
            elif data := value.as_buffer():
                positions[row] = put(np.frombuffer(data, np.uint8))
        page = PageBuffers()
        columns = [positions[:, at : at + 1].copy().view(np.uint8) for at in range(2)]
        self.column.add(encode_packed(columns, page), page.buffers, len(array), put)

    def finish(self) -> Iterator[bytes]:
        yield encode_column(self.column.pages, is_blob=True)


def _node(field: Field) -> _Node:
    """Return a field and all below it."""
    text = field.logical_type
    kind = field.to_arrow().type
    column = _Column(field)
    if is_second_version(field):
        raise UnsupportedError(f"field {field.name!r}: blobs ({field.extension_name}) need file version 2.2")
    if BLOB_KEY in field.metadata:
        if not field.is_blob:  # pylance 14.0.2 makes it a blob whatever the value is
            raise InvalidInputError(f"field {field.name!r}: remove the metadata {BLOB_KEY!r}, or set it to 'true'")
        if text != "large_binary":
            raise UnsupportedError(
                f"field {field.name!r}: a blob of type {kind}; files of version 2.0 need large_binary"
            )
        return _Blob(column)
    if text in LIST_TYPES:
        return _List(column, (_node(_below(field, field.children[0])),))
    if text == "struct" and (field.is_packed or _PACKED_KEY in field.metadata):
        _check_packed(field)
        return _Packed(column)
    if text == "struct":
        return _Struct(column, tuple(_node(_below(field, child)) for child in field.children))
    _check_leaf(field, kind)
    return _Leaf(column, options=page_options(LeafPath((field,)), "2.0"))


def _below(field: Field, child: Field) -> Field:
    """Return a child that errors call by its path; nothing else here looks at names."""
    return replace(child, name=f"{field.name}.{child.name}")


def _check_not_null(field: Field, array: pa.Array, what: str) -> None:
    if array.null_count:
        raise InvalidInputError(
            f"field {field.name!r}: {array.null_count} of its values are null, but files of version 2.0 cannot hold "
            f"{what}; use version 2.1 or newer"
        )


def _check_packed(field: Field) -> None:
    if not field.is_packed:  # pylance 14.0.2 packs whatever the value is, and cannot read it
        raise InvalidInputError(f"field {field.name!r}: remove the metadata {_PACKED_KEY!r}, or set it to 'true'")
    if not field.children:
        raise UnsupportedError(f"field {field.name!r}: a packed struct without fields")
    for child in field.children:
        kind = child.to_arrow().type
        while pa.types.is_fixed_size_list(kind):
            kind = kind.value_type
        if pa.types.is_nested(kind) or pa.types.is_dictionary(kind) or bit_width(kind) % 8 or not bit_width(kind):
            raise UnsupportedError(f"field {field.name!r}: a packed struct with a field of {child.to_arrow().type}")


def _check_leaf(field: Field, kind: pa.DataType) -> None:
    """Refuse types that no page of this version can have."""
    inner = kind
    while pa.types.is_fixed_size_list(inner):
        inner = inner.value_type
    if pa.types.is_dictionary(inner):
        inner = inner.value_type
        if ":" in logical_type_of(inner, field.name):  # pylance 14.0.2 takes the text of such a type for another
            raise UnsupportedError(f"field {field.name!r}: a dictionary of {inner}; write its values instead")
    is_plain = not pa.types.is_nested(inner) and not pa.types.is_dictionary(inner)
    if not is_plain or (pa.types.is_fixed_size_binary(inner) and not inner.byte_width):
        raise UnsupportedError(f"field {field.name!r}: files of version 2.0 cannot hold {kind}; use version 2.2")
