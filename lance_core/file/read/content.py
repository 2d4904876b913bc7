"""Content of a data file below its footer: one class for each generation of the format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.file.file_layout import FileLayout
    from lance_core.file.read.cache import FileCache
    from lance_core.file.read.field_reader import FieldReader
    from lance_core.format.schema import Schema


class Content(Protocol):
    """A data file below its footer."""

    def descriptor(self) -> tuple[Schema, int]:
        """Schema and number of rows."""
        ...

    def fields(self, projection: Schema, columns: Mapping[int, int], cache: FileCache, /) -> list[FieldReader]:
        """Open the fields of a projection.

        Args:
            projection: Fields to read.
            columns: See `lance_core.file.read.reader.DataFileReader.scan`.
            cache: Takes the metadata of their pages.
        """
        ...

    def column_numbers(self) -> dict[int, int]:
        """For each field of the file that has a column, by field id, its number."""
        ...

    def file_layout(self) -> FileLayout:
        """Return the layout of the file."""
        ...
