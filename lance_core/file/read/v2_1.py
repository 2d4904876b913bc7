"""Fields of files of version 2.1 and 2.2: only leaves have columns, each with the structure of all its ancestors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from lance_core.encoding.kernels import starts_of
from lance_core.encoding.layouts.shared_levels import SharedLevels
from lance_core.encoding.leaves import is_list_field, join_leaves, packed_kind
from lance_core.encoding.plans import together
from lance_core.errors import InvalidInputError
from lance_core.file.outline import field_of_column, fields_with_columns
from lance_core.file.read.field_reader import arrays_of, kept_rows
from lance_core.file.read.field_shapes import shapes_of
from lance_core.file.read.plan import Column, plan_rows
from lance_core.file.read.points import plan_points
from lance_core.file.read.single_rows import FewReader, is_handful, plan_few
from lance_core.file.read.some_rows import plan_coded, plan_kept
from lance_core.format.notation import notation
from lance_core.format.page_layout import decode_layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_core.encoding.coded import Coded
    from lance_core.encoding.plans import Plan, Rows, Steps
    from lance_core.encoding.values import Int64s
    from lance_core.file.container import Container
    from lance_core.file.outline import FileOutline
    from lance_core.file.read.field_reader import FieldReader
    from lance_core.file.read.field_shapes import LeafShape
    from lance_core.file.read.known_files import FileKnown
    from lance_core.format.file_metadata import Page
    from lance_core.format.schema import Field, Schema

_GUESSED_STRING_BYTES = 16
_LEVELS_SHARE = 4
"""What the values of lists take with their levels, which are unpacked beside them."""

_FEW_ROWS = 1 << 15
"""Up to so many consecutive rows, a step costs more than the values: columns that are alike share the steps."""

_MORE_ROWS, _MANY_FIELDS = 1 << 16, 32
"""Up to so many rows of so many fields of one column each, steps cost as much as the values: these share them, too."""


class ContentV21:
    """A file of version 2.1 or 2.2.

    Args:
        container: Its metadata.
        known: What is known of it.
    """

    def __init__(self, container: Container, known: FileKnown) -> None:
        self._container = container
        self._known = known

    def descriptor(self) -> tuple[Schema, int]:
        """Schema and number of rows."""
        return self._container.descriptor()

    def column_numbers(self) -> dict[int, int]:
        """Columns of the file's own fields, by field id."""
        fields = fields_with_columns(self.descriptor()[0], inner=False)
        return {field.id: number for number, (_, field) in enumerate(fields)}

    def outline(self) -> FileOutline:
        """What the file is made of."""
        return self._container.outline(lambda layout: notation(decode_layout(layout)), inner=False)

    def fields(self, projection: Schema, columns: Mapping[int, int]) -> list[FieldReader]:
        """Open the fields of a projection.

        Args:
            projection: Fields to read.
            columns: For each leaf of the projection, by field id, its column in the file.
        """
        shapes = shapes_of(projection.fields)
        numbers: dict[int, int] = {}
        for shape in shapes:
            for one in shape.leaves:
                leaf = one.path.leaf
                if leaf.id not in columns:
                    raise InvalidInputError(f"field {leaf.name!r} has no column in this file")
                numbers[leaf.id] = columns[leaf.id]
        pages = self._container.pages(set(numbers.values()))
        return [
            _leaves_reader(field, kind, [self._column(one, numbers[one.path.leaf.id], pages) for one in leaves])
            for field, kind, leaves in shapes
        ]

    def plan(self, fields: Sequence[FieldReader], rows: Rows) -> Steps[list[list[pa.Array]]]:
        """Read at least one row of each of these fields."""
        readers = cast("Sequence[_LeavesReader]", fields)
        if isinstance(rows, range) and len(rows) > _FEW_ROWS:
            return (yield from _plan_many(readers, rows))
        if isinstance(rows, range) or not is_handful(len(rows), sum([len(one.columns) for one in readers])):
            return (yield from _plan_shared(readers, rows))

        def otherwise(numbers: Sequence[int]) -> Steps[list[list[pa.Array]]]:
            return _plan_shared([readers[number] for number in numbers], rows)

        return (yield from plan_few([one.few for one in readers], rows, otherwise))

    def plan_some(self, fields: Sequence[FieldReader], rows: range, kept: Int64s) -> Steps[list[list[pa.Array]]]:
        """Read some of consecutive rows."""
        if len(rows) <= _FEW_ROWS:
            return kept_rows(self.plan(fields, rows), kept)
        return together([one.plan_kept(rows, kept) for one in fields if isinstance(one, _LeavesReader)])

    def plan_coded(self, field: FieldReader, rows: range) -> Steps[list[pa.Array | Coded]]:
        """Read consecutive rows of a field."""
        if isinstance(field, _LeavesReader) and len(field.columns) == 1 and field.columns[0].is_plain:
            return plan_coded(field.columns[0], rows)
        return arrays_of(field, rows)

    def _column(self, leaf: LeafShape, number: int, pages: Mapping[int, tuple[Page, ...]]) -> Column:
        """A column, with what is known about its pages."""
        known, own = self._known.pages(number), pages[number]
        kind = leaf.kind
        if leaf.is_packed:
            stored = field_of_column(self.descriptor()[0], number, inner=False)
            kind = packed_kind(stored, leaf.path.leaf, kind)
        return Column(
            leaf.path,
            kind,
            is_dictionary=leaf.is_dictionary,
            is_plain=leaf.is_plain,
            pages=own,
            first_rows=self._bounds(tuple([page.num_rows for page in own])),
            layouts=known.layouts,
            indexes=known.indexes,
            joined_pages=known.joined_pages,
            sparse_indexes=known.sparse_indexes,
            kinds=self._known.kinds,
            readers=self._known.readers,
            held=self._known.held,
        )

    def _bounds(self, sizes: tuple[int, ...]) -> Int64s:
        """First row of each page, and the end; columns whose pages are alike share it."""
        known = self._known.first_rows.get(sizes)
        if known is None:
            known = self._known.first_rows[sizes] = starts_of(np.array(sizes, np.int64))
        return known


def _plan_many(readers: Sequence[_LeavesReader], rows: range) -> Steps[list[list[pa.Array]]]:
    """Many rows of fields, the leaves of each of which share their levels."""
    alike = [len(rows) <= _MORE_ROWS and len(one.columns) == 1 for one in readers]
    if sum(alike) < _MANY_FIELDS:
        return (yield from together([one.plan(rows) for one in readers]))
    shared = _plan_shared([one for one, is_alike in zip(readers, alike, strict=True) if is_alike], rows)
    alone = together([one.plan(rows) for one, is_alike in zip(readers, alike, strict=True) if not is_alike])
    found = dict(zip((True, False), map(iter, (yield from together([shared, alone]))), strict=True))
    return [next(found[is_alike]) for is_alike in alike]


def _plan_shared(readers: Sequence[_LeavesReader], rows: Rows) -> Steps[list[list[pa.Array]]]:
    """Rows of fields whose columns share their steps."""
    leaves = iter((yield from plan_points([column for one in readers for column in one.columns], rows)))
    return [one.join([next(leaves) for _ in one.columns]) for one in readers]


@dataclass(frozen=True, slots=True)
class _LeavesReader:
    """One top-level field of a projection, put together from its leaves."""

    field: Field
    kind: pa.DataType
    columns: list[Column]
    few: FewReader

    @property
    def num_rows(self) -> int:
        if len(self.columns) == 1:
            return self.columns[0].num_rows
        return min(column.num_rows for column in self.columns)

    @property
    def widths(self) -> list[float]:
        return [_row_bytes(column) for column in self.columns]

    def plan(self, rows: Rows) -> Plan:
        shared = SharedLevels() if len(self.columns) > 1 else None
        return self.join((yield from together([plan_rows(column, rows, shared) for column in self.columns])))

    def plan_kept(self, rows: range, kept: Int64s) -> Plan:
        shared = SharedLevels() if len(self.columns) > 1 else None
        return self.join((yield from together([plan_kept(column, rows, kept, shared) for column in self.columns])))

    def join(self, leaves: list[list[pa.Array]]) -> list[pa.Array]:
        """The field, from the arrays of its leaves."""
        if len(leaves) == 1:
            return [join_leaves(self.field, self.kind, [array]) for array in leaves[0]]
        whole = [arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays) for arrays in leaves]
        return [join_leaves(self.field, self.kind, whole)]

    def fresh(self) -> _LeavesReader:
        return _leaves_reader(self.field, self.kind, [column.fresh() for column in self.columns])

    def forget(self, row: int) -> None:
        for column in self.columns:
            last = row * column.path.items_per_row
            for indexes in (column.indexes, column.sparse_indexes):
                for number in [known for known in indexes if column.first_rows[known + 1] <= last]:
                    del indexes[number]


def _leaves_reader(field: Field, kind: pa.DataType, columns: list[Column]) -> _LeavesReader:
    return _LeavesReader(field, kind, columns, FewReader(field, kind, columns))


def _row_bytes(column: Column) -> float:
    """Decoded bytes of a row, guessed."""
    stored = sum(size for page in column.pages for _, size in page.buffers) / max(1, column.num_rows)
    try:
        least = column.kind.bit_width / 8
    except ValueError:  # no fixed width
        least = _GUESSED_STRING_BYTES
    has_lists = any(is_list_field(one) for one in column.path.fields)
    return max(stored, least) * (_LEVELS_SHARE if has_lists else 1)
