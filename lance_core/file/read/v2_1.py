"""Files of version 2.1 and 2.2: only leaves have columns, each with the structure of all its ancestors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.encoding.leaves import packed_kind
from lance_core.errors import InvalidInputError
from lance_core.file.file_layout import field_of_column, fields_with_columns
from lance_core.file.read.alike_files import Pattern
from lance_core.file.read.column import Column
from lance_core.file.read.field_shapes import shapes_of
from lance_core.file.read.plan import LeavesField
from lance_core.format.file.page_layout import decode_layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.file.container import Container
    from lance_core.file.file_layout import FileLayout
    from lance_core.file.read.cache import FileCache, PageCache
    from lance_core.file.read.field_reader import FieldReader
    from lance_core.file.read.field_shapes import FieldShape
    from lance_core.file.read.wanted import Wanted
    from lance_core.format.file.file_metadata import Page
    from lance_core.format.schema import Schema


class ContentV21:
    """A file of version 2.1 or 2.2.

    Args:
        container: Its metadata.
    """

    def __init__(self, container: Container) -> None:
        self._container = container

    def descriptor(self) -> tuple[Schema, int]:
        """Return schema and number of rows."""
        return self._container.descriptor()

    def column_numbers(self) -> dict[int, int]:
        """Return the columns of the file's own fields, by field id."""
        fields = fields_with_columns(self.descriptor()[0], inner=False)
        return {field.id: number for number, (_, field) in enumerate(fields)}

    def file_layout(self) -> FileLayout:
        """Return what the file is made of."""
        return self._container.file_layout(decode_layout, inner=False)

    def pattern(self, wanted: Wanted) -> Pattern | None:
        """Return what other small files have in common with this one if they can be read like it."""
        return Pattern.of(self._container, wanted)

    def fields(self, projection: Schema, columns: Mapping[int, int], cache: FileCache) -> list[FieldReader]:
        """Open the fields of a projection.

        Args:
            projection: Fields to read.
            columns: For each leaf of the projection, by field id, its column in the file.
            cache: Takes the metadata of their pages.
        """
        shapes = shapes_of(projection.fields)
        numbers: set[int] = set()
        for shape in shapes:
            for leaf in shape.leaves:
                field = leaf.path.leaf
                if field.id not in columns:
                    raise InvalidInputError(f"field {field.name!r} has no column in this file")
                numbers.add(columns[field.id])
        pages = self._container.pages(numbers)
        return [self._field(shape, columns, pages, cache) for shape in shapes]

    def _field(
        self,
        shape: FieldShape,
        numbers: Mapping[int, int],
        pages: Mapping[int, tuple[Page, ...]],
        cache: FileCache,
    ) -> LeavesField:
        first = numbers[shape.leaves[0].path.leaf.id]
        if first in cache.fields and cache.fields[first].shape is shape:
            field: LeavesField = cache.fields[first]
            if [column.number for column, _ in field.leaves] == [numbers[leaf.path.leaf.id] for leaf in shape.leaves]:
                return field
        leaves: tuple[tuple[Column, PageCache], ...] = ()
        for leaf in shape.leaves:
            number, kind = numbers[leaf.path.leaf.id], leaf.kind
            if leaf.is_packed:
                stored = field_of_column(self.descriptor()[0], number, inner=False)
                kind = packed_kind(stored, leaf.path.leaf, kind)
            column_pages = pages[number]
            first_rows = cache.first_rows(tuple([page.num_rows for page in column_pages]))
            column = Column(
                number, leaf.path, kind, leaf.is_dictionary, leaf.is_plain, leaf.is_simple, column_pages, first_rows
            )
            leaves += ((column, cache.pages(number, column_pages, first_rows, leaf.path.items_per_row)),)
        field = cache.fields[first] = LeavesField(shape, leaves, len(leaves))
        return field
