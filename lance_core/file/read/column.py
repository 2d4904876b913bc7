"""Columns of data files as immutable values; their cache entries are in `lance_core.file.read.cache`."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import numpy as np

from lance_core.common.frozen import NamedTuple, frozen
from lance_core.encoding.kernels import aranges
from lance_core.encoding.plans import extents_of

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_core.encoding.leaves import LeafPath
    from lance_core.encoding.plans import Ranges, Rows
    from lance_core.encoding.values import Int64s
    from lance_core.format.file.file_metadata import Page
    from lance_core.format.file.page_layout import PageLayout


@frozen
class Column:
    """One leaf in one file; in fixed-size lists of structs each item counts as a row.

    Attributes:
        number: Index of the column in the file.
        path: The leaf.
        kind: Its Arrow type.
        is_dictionary: True if that is a dictionary type.
        is_plain: True if there is nothing around the leaf, and its values are what is stored.
        is_simple: True if each row or item is one value, neither dictionary-encoded in Arrow nor a packed struct.
        pages: Its pages.
        first_rows: Shape (pages + 1,): first row of each page, and the end.
    """

    number: int
    path: LeafPath
    kind: pa.DataType
    is_dictionary: bool
    is_plain: bool
    is_simple: bool
    pages: tuple[Page, ...]
    first_rows: Int64s

    @property
    def num_rows(self) -> int:
        """Top-level rows in all pages."""
        return int(self.first_rows[-1]) // self.path.items_per_row

    @property
    def num_bytes(self) -> int:
        """Stored bytes of all pages."""
        return sum([size for page in self.pages for _, size in page.buffers])

    def in_other_file(self, pages: tuple[Page, ...]) -> Column:
        """Return the same column of another file, whose pages have as many rows."""
        return Column(
            self.number,
            self.path,
            self.kind,
            self.is_dictionary,
            self.is_plain,
            self.is_simple,
            pages,
            self.first_rows,
        )

    def extents(self, rows: range) -> Ranges:
        """Return the byte ranges of the pages whose rows are all among these, in order."""
        first, last = rows.start * self.path.items_per_row, rows.stop * self.path.items_per_row
        low, high = int(self.first_rows.searchsorted(first)), int(self.first_rows.searchsorted(last, side="right")) - 1
        return [extent for page in self.pages[low : max(low, high)] for extent in extents_of(page.buffers)]


class PageSlice(NamedTuple):
    """Some rows of one page, counted from the page's first row."""

    number: int
    page: Page
    layout: PageLayout
    rows: Rows

    def range_of(self, buffer: int, start: int = 0, end: int | None = None) -> tuple[int, int]:
        """Return the byte range in the file of a part of a buffer."""
        offset, size = self.page.buffers[buffer]
        return offset + start, offset + (size if end is None else end)


@overload
def items_of(rows: Int64s, per_row: int) -> Int64s: ...
@overload
def items_of(rows: Rows, per_row: int) -> Rows: ...
def items_of(rows: Rows, per_row: int) -> Rows:
    """Return the items of fixed-size lists that rows consist of."""
    if per_row == 1:
        return rows
    if isinstance(rows, range):
        return range(rows.start * per_row, rows.stop * per_row)
    return aranges(rows * per_row, np.full(len(rows), per_row))
