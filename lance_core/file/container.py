"""The container of data files since version 2.0: footer, offset tables, descriptor, metadata of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from lance_core.common.limits import check_limit
from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.file.file_layout import ColumnSummary, FileLayout, PageSummary, fields_with_columns
from lance_core.format.file.file_metadata import decode_column, decode_descriptor, decode_plain_column
from lance_core.format.file.footer import FOOTER_SIZE, decode_footer, decode_table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from lance_core.file.source import FileBytes
    from lance_core.format.file.file_metadata import Page
    from lance_core.format.file.footer import Footer
    from lance_core.format.schema import Schema

_Table: TypeAlias = list[tuple[int, int]]


_COLUMN_BYTES, _PAGE_BYTES = 1 << 8, 1 << 9
"""Bytes of a column whose pages are known, and of where each page is."""


class Budget:
    """Counts the bytes that the cache entry of a file takes."""

    __slots__ = ("num_bytes",)

    def __init__(self) -> None:
        self.num_bytes = 0


class Parsed:
    """Parsed metadata of a file.

    Attributes:
        frame: Footer, column table and global buffer table.
        descriptor: Schema and number of rows.
        pages: Pages of columns, by column index.
        budget: Counts the bytes of the pages.
    """

    __slots__ = ("budget", "descriptor", "frame", "pages")

    def __init__(self) -> None:
        self.frame: tuple[Footer, _Table, _Table] | None = None
        self.descriptor: tuple[Schema, int] | None = None
        self.pages: dict[int, tuple[Page, ...]] = {}
        self.budget = Budget()


class Container:
    """The metadata of a file; columns are read when they are first asked for.

    Args:
        file: The file.
        parsed: What is known of it.

    Raises:
        CorruptDataError: Positions that cannot be.
    """

    def __init__(self, file: FileBytes, parsed: Parsed | None = None) -> None:
        self._file = file
        self._parsed = Parsed() if parsed is None else parsed
        if self._parsed.frame is None:
            footer = decode_footer(memoryview(file.tail), file.size)
            self._parsed.frame = (footer, *self._read_tables(footer))
        self._footer, self._column_table, self._global_table = self._parsed.frame

    @property
    def frame(self) -> tuple[Footer, _Table, _Table]:
        """Footer, and place and size of the metadata of each column and of each global buffer."""
        return self._footer, self._column_table, self._global_table

    def descriptor(self) -> tuple[Schema, int]:
        """Schema and number of rows."""
        descriptor = self._parsed.descriptor
        if descriptor is None:
            if not self._global_table:
                raise CorruptDataError("the file has no schema")
            start, size = self._global_table[0]
            check_limit("max_metadata_bytes", size, "bytes of a file descriptor")
            descriptor = decode_descriptor(self._file.fetch([(start, start + size)])[0].to_pybytes())
            self._parsed.descriptor = descriptor
        return descriptor

    def pages(self, numbers: Collection[int]) -> dict[int, tuple[Page, ...]]:
        """Pages of columns (and of others that are known already), by column index.

        Raises:
            InvalidInputError: There is no such column.
        """
        pages = self._parsed.pages
        for number, data in self._metadata(sorted(set(numbers) - pages.keys())):
            pages[number] = decode_column(data, limit=self._footer.column_metadata_start)
            self._parsed.budget.num_bytes += _COLUMN_BYTES + _PAGE_BYTES * len(pages[number])
        return pages

    def plain_pages(self, numbers: Collection[int]) -> dict[int, tuple[Page, ...]] | None:
        """Pages of columns, if they are all that there is to know of these columns; errors as in `pages`."""
        if len(self._global_table) != (1 if self._file.checks is None else 2):
            return None  # besides the schema and perhaps checksums
        pages: dict[int, tuple[Page, ...]] = {}
        for number, data in self._metadata(numbers):
            decoded = decode_plain_column(data, limit=self._footer.column_metadata_start)
            if decoded is None:
                return None
            pages[number] = decoded
        return pages

    def _metadata(self, numbers: Collection[int]) -> Iterator[tuple[int, bytes]]:
        """Yield the metadata of columns."""
        for number in numbers:
            if not 0 <= number < len(self._column_table):
                raise InvalidInputError(f"there is no column {number} in a file of {len(self._column_table)} columns")
        ranges = [(start, start + size) for start, size in (self._column_table[number] for number in numbers)]
        for start, end in ranges:
            check_limit("max_metadata_bytes", end - start, "bytes of metadata of a column")
        for number, data in zip(numbers, self._file.fetch(ranges) if ranges else (), strict=True):
            yield number, data.to_pybytes()

    def global_buffer(self, number: int) -> bytes:
        """Return the content of a global buffer.

        Raises:
            InvalidInputError: There is no such buffer.
        """
        if not 0 <= number < len(self._global_table):
            raise InvalidInputError(f"there is no global buffer {number} in a file of {len(self._global_table)}")
        start, size = self._global_table[number]
        return self._file.fetch([(start, start + size)])[0].to_pybytes()

    def buffer_before_sums(self) -> bytes:
        """The content of the global buffer before that of the checksums (the last one); nothing if there is none."""
        number = len(self._global_table) - 2
        if number <= 0:
            return b""
        check_limit("max_checksum_bytes", self._global_table[number][1], "bytes of checksums of blob files")
        return self.global_buffer(number)

    def file_layout(self, decode: Callable[[bytes], object], *, inner: bool) -> FileLayout:
        """Return the layout of the file.

        Args:
            decode: Decodes the layout of a page.
            inner: As for `fields_with_columns`.

        Raises:
            CorruptDataError: The schema does not fit the columns.
        """
        fields = list(fields_with_columns(self.descriptor()[0], inner=inner))
        if len(fields) != len(self._column_table):
            raise CorruptDataError(f"the schema asks for {len(fields)} columns, the file has {len(self._column_table)}")
        pages = self.pages(range(len(fields)))
        columns = tuple(
            ColumnSummary(
                path=path,
                logical_type=field.logical_type,
                pages=tuple(
                    PageSummary(buffers=page.buffers, num_rows=page.num_rows, layout=decode(page.layout))
                    for page in pages[number]
                ),
            )
            for number, (path, field) in enumerate(fields)
        )
        start = self._footer.column_metadata_start
        return FileLayout(
            major=self._footer.major,
            minor=self._footer.minor,
            columns=columns,
            global_buffers=tuple(self._global_table),
            num_metadata_bytes=self._footer.global_table_start - start,
            num_data_bytes=start - sum(size for _, size in self._global_table),
        )

    def _read_tables(self, footer: Footer) -> tuple[_Table, _Table]:
        check_limit("max_fields", footer.num_columns, "columns")
        check_limit("max_metadata_bytes", 16 * footer.num_global_buffers, "bytes of a table of global buffers")
        end = self._file.size - FOOTER_SIZE
        columns_end = footer.column_table_start + 16 * footer.num_columns
        globals_end = footer.global_table_start + 16 * footer.num_global_buffers
        ranges = [(footer.column_table_start, columns_end), (footer.global_table_start, globals_end)]
        columns, global_buffers = self._file.fetch(ranges)
        return (
            decode_table(memoryview(columns), limit=end, what="column"),
            decode_table(memoryview(global_buffers), limit=end, what="global buffer"),
        )
