"""Layout of a data file: its columns, their pages, the encodings and positions of these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.common.frozen import frozen
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_core.format.schema import Field, Schema


@frozen(kw_only=True)
class PageSummary:
    """Some consecutive rows of one column.

    Attributes:
        buffers: Absolute position and size of each buffer.
        num_rows: Rows (items, for what lies below lists in files of version 2.0).
        layout: How they are encoded: a frozen value that `lance_core.format.file.notation` describes.
    """

    buffers: tuple[tuple[int, int], ...]
    num_rows: int
    layout: object

    @property
    def encoding(self) -> str:
        """Text for their encoding."""
        from lance_core.format.file.notation import notation  # noqa: PLC0415 only descriptions need it

        return notation(self.layout)

    @property
    def num_bytes(self) -> int:
        """Bytes of all buffers."""
        return sum(size for _, size in self.buffers)


@frozen(kw_only=True)
class ColumnSummary:
    """One column of a file.

    Attributes:
        path: Dotted names from the top-level field to the one that has this column.
        logical_type: Type of that field.
        pages: Its pages.
    """

    path: str
    logical_type: str
    pages: tuple[PageSummary, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of all pages."""
        return sum(page.num_bytes for page in self.pages)


@frozen(kw_only=True)
class FileLayout:
    """A whole file.

    Attributes:
        major: Major version, as the footer tells it.
        minor: Minor version.
        columns: Columns in the order of the file.
        global_buffers: Position and size; the first one is the file descriptor. None in files of version 0.1.
        num_metadata_bytes: Bytes of the metadata of the columns.
        num_data_bytes: Bytes in front of them, less those of the global buffers.
    """

    major: int
    minor: int
    columns: tuple[ColumnSummary, ...]
    global_buffers: tuple[tuple[int, int], ...]
    num_metadata_bytes: int
    num_data_bytes: int


def fields_with_columns(schema: Schema, *, inner: bool, packed: bool = True) -> Iterator[tuple[str, Field]]:
    """Yield the fields that have a column of their own, with their dotted paths, in the order of columns.

    Args:
        schema: Schema of the file.
        inner: True for versions in which lists and structs have columns too (0.1 and 2.0).
        packed: False for the version that knows no packed structs (0.1).
    """
    for top in schema.fields:
        yield from _walk(top, top.name, inner=inner, packed=packed)


def field_of_column(schema: Schema, number: int, *, inner: bool) -> Field:
    """Return the field of a file's schema that has a column.

    Args:
        schema: Schema of the file.
        number: Number of the column.
        inner: As for `fields_with_columns`.

    Raises:
        CorruptDataError: The schema has no field for the column.
    """
    for at, (_, field) in enumerate(fields_with_columns(schema, inner=inner)):
        if at == number:
            return field
    raise CorruptDataError(f"The schema of the file has no field for column {number}.")


def _walk(field: Field, path: str, *, inner: bool, packed: bool) -> Iterator[tuple[str, Field]]:
    is_leaf = field.is_leaf and (packed or not field.is_packed)
    if is_leaf or inner:
        yield path, field
    if not is_leaf:
        for child in field.children:
            yield from _walk(child, f"{path}.{child.name}", inner=inner, packed=packed)
