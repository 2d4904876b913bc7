"""Rows of one column being read: which pages hold them, and the arrays that they become."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lance_core.common.frozen import frozen, mutable
from lance_core.encoding.plans import ByteRanges, extents_of, split_rows
from lance_core.errors import CorruptDataError
from lance_core.file.read import strategy
from lance_core.file.read.column import PageSlice, items_of
from lance_core.format.file.page_layout import ConstantLayout, MiniBlockLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_core.encoding.layouts.shared_levels import SharedLevels
    from lance_core.encoding.plans import RangeBuffers, Ranges, Rows
    from lance_core.encoding.values import Int64s
    from lance_core.file.read.cache import PageCache
    from lance_core.file.read.column import Column
    from lance_core.file.read.page_index import MiniBlockIndex


@frozen(kw_only=True)
class ReadOptions:
    """Options of a read.

    Attributes:
        selected: Which of consecutive rows are wanted: counted from the first, ascending; None for all.
        keeps_dictionaries: Return dictionary-encoded values as such (`DictionaryEncoded`).
        is_near: Bytes cost more than requests: fixed-width values are asked for without their chunks.
    """

    selected: Int64s | None = None
    keeps_dictionaries: bool = False
    is_near: bool = False


PLAIN = ReadOptions()


@mutable
class ColumnRead:
    """Rows of one column of a file.

    Attributes:
        column: The column.
        pages: Its cache entry; indexes that are read are kept in it.
        rows: Its rows, at least one.
        number: Which of the columns it is.
        file: Which of the files.
        base: Added to positions in the file when something is asked for; of several files each has room of its own.
        levels: Levels of the leaves of the same field that were decoded before.
        whole: Index of one page with the chunks of all, if it does not matter which page a row is in.
        spans: Otherwise the number of each page, and rows counted from its first one.
        buffers: What was read to find the rows of pages, by number of the page, if it is not kept.
        arrays: Takes the rows, one after the other: arrays, and `DictionaryEncoded` values if dictionaries are kept.
    """

    column: Column
    pages: PageCache
    rows: Rows
    number: int = 0
    file: int = 0
    base: int = 0
    levels: SharedLevels | None = None
    whole: MiniBlockIndex | None = None
    spans: Sequence[tuple[int, Rows]] = ()
    buffers: dict[int, list[pa.Buffer]] | None = None
    arrays: list[Any] = field(default_factory=list)
    _slices: list[PageSlice] | None = None

    @property
    def slices(self) -> list[PageSlice]:
        """The rows by page; none if it does not matter which page a row is in."""
        slices = self._slices
        if slices is None:
            pages, layout = self.column.pages, self.pages.layout
            slices = self._slices = [
                PageSlice(number, pages[number], layout(self.column, number), rows) for number, rows in self.spans
            ]
        return slices

    @property
    def is_constant(self) -> bool:
        """True if the values of all pages are known without reading them."""
        return self.whole is None and all(
            isinstance(self.pages.layout(self.column, number), ConstantLayout) for number, _ in self.spans
        )


def find_pages(reads: Sequence[ColumnRead]) -> list[tuple[ColumnRead, PageSlice]]:
    """Find the pages that hold the rows of columns.

    Returns:
        Pages of which it has to be read where rows are.

    Raises:
        CorruptDataError: A column ends before the last row.
    """
    missing: list[tuple[ColumnRead, PageSlice]] = []
    # Columns whose pages are alike share their first rows.
    first_rows: dict[tuple[int, int], list[tuple[int, Rows]]] = {}
    rows: Rows = range(0)
    last: int | None = None
    for read in reads:
        column, cached = read.column, read.pages
        if rows is not read.rows:
            rows = read.rows
            last = None if isinstance(rows, range) else int(rows[-1])
        whole = cached.whole
        if last is not None and whole is not None and whole.dictionary is None:
            is_there = column.is_simple and last < column.first_rows[-1]
            read.whole = whole if is_there else None
        if read.whole is not None:
            continue
        key, per_row = (id(column.first_rows), id(rows)), column.path.items_per_row
        spans = first_rows.get(key) if per_row == 1 else None
        if spans is None:
            spans = first_rows[key] = _split(column, items_of(rows, per_row))
        read.spans = spans
        missing += [(read, read.slices[at]) for at, (number, _) in enumerate(spans) if not cached.ready[number]]
    return missing


def _split(column: Column, rows: Rows) -> list[tuple[int, Rows]]:
    """Return the pages that hold rows, and the rows counted from the first one of each."""
    last = rows.stop if isinstance(rows, range) else int(rows[-1]) + 1
    if last > column.first_rows[-1]:
        message = f"field {column.path.leaf.name!r} has {column.num_rows} rows in this file, not {last}"
        raise CorruptDataError(message)
    return [(0, rows)] if len(column.pages) == 1 else list(split_rows(column.first_rows, rows))


def touched_extents(column: Column, pages: PageCache, rows: Int64s) -> Ranges:
    """Return the byte ranges of pages without a known chunk table of which scattered rows touch nearly all chunks.

    How many chunks a page has is told by the size of that table; their rows are taken to be as many in each.
    """
    extents: Ranges = []
    for number, inside in _split(column, items_of(rows, column.path.items_per_row)):
        page, layout = column.pages[number], pages.layout(column, number)
        if not isinstance(layout, MiniBlockLayout) or pages.ready[number]:
            continue
        num_chunks = page.buffers[0][1] // (4 if layout.has_large_chunk else 2)
        chunks = np.asarray(inside) * num_chunks // (column.first_rows[number + 1] - column.first_rows[number])
        if strategy.are_read_whole(int(np.count_nonzero(np.diff(chunks))) + 1, num_chunks):
            extents += extents_of(page.buffers)
    return extents


class Job(Protocol):
    """Rows that a kernel decodes at one go: the seam between the plan and the kernels."""

    @property
    def ranges(self) -> ByteRanges:
        """The byte ranges that it needs."""
        ...

    def decode(self, buffers: RangeBuffers, /) -> None:
        """Decode the rows into the arrays of their columns."""
        ...


NO_RANGES = ByteRanges(np.empty(0, np.int64), np.empty(0, np.int64))
