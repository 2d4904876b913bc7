"""Fields of files whose lists and structs are columns of their own: versions 0.1 and 2.0.

What a page looks like is the business of `ValuePages` and `OffsetPages`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.arrow_values import binary_to_json
from lance_core.encoding.kernels import aranges
from lance_core.encoding.leaves import pick_packed
from lance_core.encoding.plans import together, touching
from lance_core.encoding.v2_0.nesting import LIST_TYPES, list_array, struct_array
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.file.read.field_shapes import least_width
from lance_core.file.read.strategy import KEPT_WINDOW_BYTES, is_picked_from_range
from lance_core.format.blobs import is_described
from lance_core.format.schema import BLOB_KEY, JSON

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_core.encoding.plans import ByteRanges, Plan, ReadPlan, Rows
    from lance_core.encoding.v2_0.ends import Spans
    from lance_core.format.schema import Field


@frozen
class ValuePages:
    """Pages of values.

    Attributes:
        num_rows: Rows in all pages.
        num_bytes: Bytes in all pages, 0 if unknown.
        read: Reads rows: at least one, all of which are there.
    """

    num_rows: int
    num_bytes: int
    read: Callable[[Rows], Plan]


@frozen
class OffsetPages:
    """Pages that tell where lists begin and end.

    Attributes:
        num_rows: Rows in all pages.
        num_items: Items of all lists.
        read: Reads rows as above; items are counted from the column's first one. Raises CorruptDataError if a list ends
            behind the items of its page.
    """

    num_rows: int
    num_items: int
    read: Callable[[Rows], ReadPlan[Spans]]


class Opener(Protocol):
    """Finds the pages of fields."""

    def values(self, field: Field, kind: pa.DataType, /) -> ValuePages:
        """Pages of a field of that type."""
        ...

    def blobs(self, field: Field, kind: pa.DataType, /) -> ValuePages:
        """Pages of a blob column: positions and sizes."""
        ...

    def offsets(self, field: Field, kind: pa.DataType, /) -> OffsetPages:
        """Pages of a list."""
        ...

    def packed_kind(self, field: Field, kind: pa.DataType, /) -> pa.DataType | None:
        """The Arrow type in which a packed struct is decoded (`pick_packed` makes ``kind`` of it); None for others."""
        ...

    def count_empty(self, field: Field, /) -> int:
        """Count the structs of a field without fields."""
        ...


def open_field(field: Field, opener: Opener) -> _Node:
    """Return a field and all below it.

    Raises:
        UnsupportedError: A type that cannot be read; the message names it.
        InvalidInputError: A field that is not in the file.
    """
    kind = field.to_arrow().type
    if is_described(field):
        packed = opener.packed_kind(field, kind)
        return _Leaf(kind, opener.blobs(field, packed or kind), packed=field if packed else None)
    if BLOB_KEY in field.metadata:
        raise UnsupportedError(f"field {field.name!r}: files hold where a blob is; read it as a table's column")
    if field.logical_type in LIST_TYPES:
        return _List(field.name, kind, opener.offsets(field, kind), open_field(field.children[0], opener))
    if field.logical_type == "struct" and not field.children:
        return _EmptyStruct(kind, opener.count_empty(field))
    packed = opener.packed_kind(field, kind)
    if packed is not None:
        return _Leaf(kind, opener.values(field, packed), packed=field)
    if field.logical_type == "struct":
        return _Struct(kind, tuple(open_field(child, opener) for child in field.children))
    if field.children:
        raise UnsupportedError(f"field {field.name!r}: {field.logical_type} is not supported in files before 2.1")
    if field.logical_type == JSON:
        return _Leaf(kind, opener.values(field, pa.large_binary()), is_json=True)
    return _Leaf(kind, opener.values(field, kind))


@frozen
class _Leaf:
    """A field whose values are in its column; ``packed`` is that field if it is a packed struct."""

    kind: pa.DataType
    pages: ValuePages
    is_json: bool = False
    packed: Field | None = None

    @property
    def num_rows(self) -> int:
        return self.pages.num_rows

    @property
    def widths(self) -> list[float]:
        return [max(least_width(self.kind), self.pages.num_bytes / max(1, self.num_rows))]

    def plan(self, rows: Rows) -> Plan:
        if not len(rows):
            return [pa.nulls(0, self.kind)]
        _check_rows(self.num_rows, rows)
        arrays = yield from self.pages.read(rows)
        if self.packed is not None:
            return [pick_packed(self.packed, self.kind, array) for array in arrays]
        return [binary_to_json(array) for array in arrays] if self.is_json else arrays


@frozen
class _Struct:
    """A struct; nothing of it is stored but its fields. These versions have no null structs."""

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
        return [struct_array(self.kind, len(rows), [_whole(child_arrays) for child_arrays in arrays])]


@frozen
class _EmptyStruct:
    """A struct without fields, of which only the number is known."""

    kind: pa.DataType
    num_rows: int

    @property
    def widths(self) -> list[float]:
        return [1.0]

    def plan(self, rows: Rows) -> Plan:
        if len(rows):
            _check_rows(self.num_rows, rows)
        yield []
        return [struct_array(self.kind, len(rows), [])]


@frozen
class _List:
    """Lists; the column holds where they end, the items are a field of their own."""

    name: str
    kind: pa.DataType
    pages: OffsetPages
    items: _Node

    @property
    def num_rows(self) -> int:
        return self.pages.num_rows

    @property
    def widths(self) -> list[float]:
        per_list = self.items.num_rows / max(1, self.num_rows)
        return [8.0, *[width * per_list for width in self.items.widths]]

    def plan(self, rows: Rows) -> Plan:
        if not len(rows):
            return [pa.nulls(0, self.kind)]
        _check_rows(self.num_rows, rows)
        if self.pages.num_items > self.items.num_rows:
            raise CorruptDataError(
                f"field {self.name!r} has {self.items.num_rows} items, its lists {self.pages.num_items}"
            )
        spans = yield from self.pages.read(rows)
        sizes, runs = spans.ends - spans.starts, touching(spans.starts, spans.ends)
        whole = range(int(runs.starts[0]), int(runs.ends[-1]))
        if len(runs.starts) == 1:
            items = yield from self.items.plan(whole)
        elif is_picked_from_range(int(sizes.sum()), len(whole)):
            items = yield from self._picked(whole, runs)
        else:
            items = yield from self.items.plan(aranges(spans.starts, sizes))
        return [list_array(self.name, self.kind, sizes, spans.validity, _whole(items))]

    def _picked(self, items: range, runs: ByteRanges) -> Plan:
        """Read all items and keep those of some runs, from the first to the last of them."""
        bounds = np.stack((runs.starts, runs.ends), axis=1).reshape(-1)
        is_wanted = pa.array(np.repeat(np.arange(len(bounds) - 1) % 2 == 0, np.diff(bounds)))
        step = max(1, int(KEPT_WINDOW_BYTES / sum(self.items.widths)))  # in steps: strings have 32-bit offsets

        def pick(some: range) -> Plan:
            arrays = yield from self.items.plan(some)
            return [_whole(arrays).filter(is_wanted.slice(some.start - items.start, len(some)))]

        picked = yield from together([pick(items[at : at + step]) for at in range(0, len(items), step)])
        return [array for arrays in picked for array in arrays]


_Node: TypeAlias = _Leaf | _Struct | _EmptyStruct | _List


def _check_rows(num_rows: int, rows: Rows) -> None:
    if int(rows[-1]) >= num_rows:
        raise CorruptDataError(f"a column of {num_rows} rows is read up to row {int(rows[-1])}")


def _whole(arrays: list[pa.Array]) -> Any:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
