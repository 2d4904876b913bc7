"""Files of which each column has one page, read without opening them: the metadata of all is taken apart at one go.

Files of as many rows of one table that one writer made differ in where buffers lie and in how pages are encoded. One of
them is opened, and tells what the columns are. Pages of others are told from it by the bytes of their layouts: of files
that follow one another with the same layout a column is one read. Ends of files have been held against their checksums
by whoever read them.
"""

from __future__ import annotations

import struct
from itertools import compress, pairwise
from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import NamedTuple
from lance_core.encoding.kernels import starts_of
from lance_core.encoding.layouts import constant
from lance_core.file.read import strategy
from lance_core.file.read.cache import Budget, PageCache
from lance_core.file.read.column_read import ColumnRead
from lance_core.file.read.constant_pages import constant_array
from lance_core.file.read.page_index import check_page
from lance_core.file.read.page_runs import PagesRead, dictionary_items, page_kind, run_layout
from lance_core.format.file.column_pages import PAGE_PARTS, ColumnPages, decode_column_pages
from lance_core.format.file.file_metadata import Page
from lance_core.format.file.footer import ENTRY_SIZE, decode_footer
from lance_core.format.file.page_layout import ConstantLayout, FullZipLayout, MiniBlockLayout, decode_layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lance_core.encoding.plans import Rows
    from lance_core.encoding.values import Int64s
    from lance_core.file.read.alike_files import Opener
    from lance_core.file.read.column import Column
    from lance_core.file.read.plan import LeavesField
    from lance_core.file.read.wanted import Wanted
    from lance_core.file.source import FileBytes
    from lance_core.format.file.footer import Footer
    from lance_core.format.file.page_layout import PageLayout

FEWEST = 4
"""Files of as many rows that are taken apart together: a few are opened as fast."""

_ENTRY = struct.Struct("<QQ")


class FileEnd(NamedTuple):
    """A file of which the end has been read.

    Attributes:
        file: The file.
        rows: Rows that are wanted: at least one, ascending.
    """

    file: FileBytes
    rows: Rows


class SimilarFiles:
    """Rows of files with the same columns, each of which has one page.

    Args:
        fields: The fields that are read, in one of the files.
        files: The files.
        pages: Pages of all leaves in all files, those of a file one after the other.
        layouts: Their layouts.
    """

    def __init__(
        self,
        fields: Sequence[LeavesField],
        files: Sequence[FileEnd],
        pages: ColumnPages,
        layouts: Sequence[bytes],
    ) -> None:
        self.fields = fields
        self._files = files
        self._pages = pages
        self._layouts = layouts

    @property
    def files(self) -> list[FileBytes]:
        """The files."""
        return [end.file for end in self._files]

    @property
    def contents(self) -> list[pa.Buffer | None]:
        """All bytes of each file, as far as it has been read."""
        return [end.file.content for end in self._files]

    def reads(self, *, numbers: Sequence[int], first: int, base_bits: int) -> list[list[ColumnRead | PagesRead]]:
        """Return reads of each leaf in all files, in their order; see `lance_core.file.read.alike_files.AlikeFiles`."""
        leaves = [leaf for field in self.fields for leaf in field.leaves]
        return [
            self._reads(leaf, slice(at, None, len(leaves)), number, first, base_bits)
            for at, (leaf, number) in enumerate(zip(leaves, numbers, strict=True))
        ]

    def _reads(
        self, leaf: tuple[Column, PageCache], pages: slice, number: int, first: int, base_bits: int
    ) -> list[ColumnRead | PagesRead]:
        """Return reads of one leaf, whose pages are these."""
        rows, num_buffers = [end.rows for end in self._files], self._pages.num_buffers[pages].tolist()
        extents = np.array([self._pages.positions[pages], self._pages.sizes[pages]]).swapaxes(1, 2)
        serialized = self._layouts[pages]
        layouts, kinds = _told_apart(leaf[0], serialized, num_buffers)
        reads: list[ColumnRead | PagesRead] = []
        for start, end in _alike_neighbours(layouts, kinds, extents[1].sum(axis=0)):
            some, layout = extents[:, : num_buffers[start], start:end], layouts[start]
            column, cached = _column_of(leaf, serialized[start], some[:, :, 0], layout)
            if _inline_value(leaf[0], layout, num_buffers[start]) is not None:
                reads.append(_constants(column, cached, layouts[start:end], rows[start:end]))
                continue
            together = PagesRead(column, cached, rows[start:end], some.copy(), layouts[start:end])
            if run_layout(together) is not None:
                together.extents[0] += np.arange(first + start, first + end) << base_bits
                reads.append(together)
                continue
            for at in range(start, end):
                column, alike_pages = _column_of(leaf, serialized[at], extents[:, : num_buffers[at], at], layouts[at])
                base = first + at << base_bits
                reads.append(ColumnRead(column, alike_pages, rows[at], number=number, file=first + at, base=base))
        return reads


def _told_apart(
    column: Column, serialized: Sequence[bytes], num_buffers: Sequence[int]
) -> tuple[list[PageLayout], list[int]]:
    """Return the layout of each page, and a number that it shares with those that are read together.

    Args:
        column: The leaf.
        serialized: Serialized layout of each page; equal ones are decoded once.
        num_buffers: Buffers of each page.
    """
    layouts: dict[tuple[bytes, int], PageLayout] = {}
    numbers: dict[tuple[bytes, int], int] = {}
    kinds: dict[object, int] = {}
    keys = list(zip(serialized, num_buffers, strict=True))
    for key in dict.fromkeys(keys):
        layout = layouts[key] = decode_layout(key[0])
        check_page(key[1], layout)
        numbers[key] = kinds.setdefault((_kind(column, layout, key), key[1]), len(kinds))
    return [layouts[key] for key in keys], [numbers[key] for key in keys]


def _kind(column: Column, layout: PageLayout, key: tuple[bytes, int]) -> object:
    """Return what pages that are read together are alike in."""
    if isinstance(layout, MiniBlockLayout | FullZipLayout):
        return page_kind(layout)
    return key if _inline_value(column, layout, key[1]) is None else layout.layers


def _alike_neighbours(layouts: Sequence[PageLayout], kinds: Sequence[int], sizes: Int64s) -> Iterator[tuple[int, int]]:
    """Yield the bounds of pages that are alike, follow one another and are decoded at one go.

    Args:
        layouts: Layout of each page.
        kinds: What tells those that are alike.
        sizes: Shape (pages,): bytes of each page.
    """
    items = dictionary_items(layouts)
    cuts = [0, *[at for at, (kind, after) in enumerate(pairwise(kinds), 1) if kind != after], len(kinds)]
    for start, end in pairwise(cuts):
        low, num_bytes, num_items = start, 0, 0
        if not strategy.fits_group(int(sizes[start:end].sum()), sum(items[start:end])):
            for at, size in enumerate(sizes[start:end].tolist(), start):
                num_bytes, num_items = num_bytes + size, num_items + items[at]
                if at > low and not strategy.fits_group(num_bytes, num_items):
                    yield low, at
                    low, num_bytes, num_items = at, size, items[at]
        yield low, end


def _inline_value(column: Column, layout: PageLayout, num_buffers: int) -> bytes | None:
    """Return the value of all rows of a page, if that is all there is to read."""
    if num_buffers or not column.is_simple or column.path.items_per_row != 1 or not isinstance(layout, ConstantLayout):
        return None
    return constant.value_of(layout, (), column.kind)


def _constants(column: Column, cached: PageCache, layouts: Sequence[PageLayout], rows: Sequence[Rows]) -> ColumnRead:
    """Return a read whose rows, of pages that have one value each, are there."""
    read = ColumnRead(column, cached, rows[0])
    values = [value for layout in layouts if (value := _inline_value(column, layout, 0)) is not None]
    read.arrays.append(constant_array(column, layouts[0].layers, values, list(map(len, rows))))
    return read


def _column_of(
    leaf: tuple[Column, PageCache], serialized: bytes, extents: Int64s, layout: PageLayout
) -> tuple[Column, PageCache]:
    """Return a column like that of another file, whose only page is encoded otherwise and lies elsewhere.

    Args:
        leaf: That column.
        serialized: Serialized layout of the page.
        extents: Shape (2, buffers): position and bytes of each buffer.
        layout: The layout.
    """
    other, cached = leaf
    buffers = tuple([(start, size) for start, size in extents.T.tolist()])
    page = Page(buffers=buffers, num_rows=other.pages[0].num_rows, first_row=0, layout=serialized)
    shared = ({0: layout}, Budget(), cached.kinds, {})
    return other.in_other_file((page,)), PageCache(other.first_rows, *shared, items_per_row=cached.items_per_row)


def open_similar(
    files: Sequence[FileEnd], num_rows: Sequence[int], opener: Opener
) -> tuple[list[Wanted | SimilarFiles], list[int]]:
    """Open files; of those that are similar only one.

    Args:
        files: The files.
        num_rows: Rows in each of them, says the manifest.
        opener: Opens them.

    Returns:
        The files in another order, and their numbers in that.
    """
    groups: dict[int, list[int]] = {}
    for number, rows in enumerate(num_rows):
        groups.setdefault(rows, []).append(number)
    opened: list[Wanted | SimilarFiles] = []
    order: list[int] = []
    for numbers in groups.values():
        are_open = [opener.is_open(number) for number in numbers]
        if are_open.count(False) < FEWEST:
            continue
        first = opener.open(numbers[are_open.index(True) if any(are_open) else 0])
        similar, matching = _similar(first, [files[number] for number in numbers])
        if similar is not None:
            opened.append(similar)
            order += [numbers[at] for at in matching]
            if _reads_pages(first):
                opener.note([numbers[at] for at in matching])
    alone = sorted(set(range(len(files))) - set(order))
    return [*opened, *map(opener.open, alone)], [*order, *alone]


def _reads_pages(first: Wanted) -> bool:
    """Return whether rows are read page by page, so that it pays to keep what is read of them."""
    leaves = [leaf for field in first.fields for leaf in field.leaves]
    reads = [ColumnRead(column, cached, first.rows) for column, cached in leaves]
    return any(
        run_layout(read) is None and not isinstance(read.pages.layout(read.column, 0), ConstantLayout) for read in reads
    )


def _similar(first: Wanted, files: Sequence[FileEnd]) -> tuple[SimilarFiles | None, list[int]]:
    """Find the files whose columns are those of one of them, each with one page of as many rows.

    Args:
        first: That file, opened.
        files: The files.

    Returns:
        The files, and their numbers; None if they are few.
    """
    columns = [column for field in first.fields for column, _ in field.leaves]
    has_one_page = all(len(column.pages) == 1 for column in columns)
    if not has_one_page or len(first.fields) < len(first.opened.fields):
        return None, []
    numbers, footers = _of_same_schema(first.file, files)
    if len(numbers) < FEWEST:
        return None, []
    pages, layouts = _pages([files[number] for number in numbers], footers, [column.number for column in columns])
    limits = np.repeat([footer.column_metadata_start for footer in footers], len(columns))[:, None]
    num_rows = np.tile([column.pages[0].num_rows for column in columns], len(numbers))
    fits = pages.is_plain & (pages.num_rows == num_rows) & (pages.sizes <= limits - pages.positions).all(axis=1)
    has_rows = [int(files[number].rows[-1]) < first.opened.num_rows for number in numbers]
    is_similar = fits.reshape(len(numbers), -1).all(axis=1) & has_rows
    similar = [number for number, is_one in zip(numbers, is_similar.tolist(), strict=True) if is_one]
    if len(similar) < FEWEST:
        return None, []
    is_selected = np.repeat(is_similar, len(columns))
    selected = ColumnPages(**{name: getattr(pages, name)[is_selected] for name in PAGE_PARTS})
    similar_layouts = list(compress(layouts, is_selected.tolist()))
    return SimilarFiles(first.fields, [files[number] for number in similar], selected, similar_layouts), similar


def _of_same_schema(first: FileBytes, files: Sequence[FileEnd]) -> tuple[list[int], list[Footer]]:
    """Return the numbers and footers of the files that have the schema, rows and version of one of them.

    Their metadata of columns has been read.

    Raises:
        CorruptDataError: A footer that cannot be.
    """
    numbers: list[int] = []
    footers: list[Footer] = []
    _, expected = _identity(first)
    for number, (file, _) in enumerate(files):
        footer, identity = _identity(file)
        if identity is not None and identity == expected:
            numbers.append(number)
            footers.append(footer)
    return numbers, footers


def _identity(file: FileBytes) -> tuple[Footer, object]:
    """Return the footer of a file, and what tells its schema, rows and version; None if more of it has to be read."""
    end, size = memoryview(file.end), file.size
    footer = decode_footer(end, size)
    first, table = size - len(end), footer.global_table_start
    if min(footer.column_metadata_start, table) < first or not footer.num_global_buffers:
        return footer, None
    start, num_bytes = _ENTRY.unpack_from(end, table - first)
    if start < first:
        return footer, None
    descriptor = bytes(end[start - first : start + num_bytes - first])
    return footer, (descriptor, footer.num_columns, footer.major, footer.minor)


def _pages(
    files: Sequence[FileEnd], footers: Sequence[Footer], numbers: Sequence[int]
) -> tuple[ColumnPages, list[bytes]]:
    """Return the pages of columns in all files, those of a file one after the other, and the layouts of these."""
    tails = [
        memoryview(end.file.end)[footer.column_metadata_start - end.file.size :]
        for end, footer in zip(files, footers, strict=True)
    ]
    joined = b"".join(tails)
    data = np.frombuffer(joined, np.uint8)
    starts = np.array([footer.column_metadata_start for footer in footers], np.int64)
    tables = np.array([footer.column_table_start for footer in footers], np.int64)
    shifts = starts_of(np.array([len(tail) for tail in tails], np.int64))[:-1] - starts
    entries = (tables + shifts)[:, None] + ENTRY_SIZE * np.array(numbers, np.int64)
    table = data[entries[:, :, None] + np.arange(ENTRY_SIZE)].view("<i8")
    lows, sizes = table[:, :, 0], table[:, :, 1]
    is_inside = (lows >= starts[:, None]) & (sizes >= 0) & (lows <= tables[:, None] - sizes)
    begins = np.where(is_inside, lows + shifts[:, None], 0).reshape(-1)
    pages = decode_column_pages(data, begins, begins + np.where(is_inside, sizes, 0).reshape(-1))
    spans = zip(pages.layout_starts.tolist(), pages.layout_ends.tolist(), strict=True)
    return pages, [joined[start:end] for start, end in spans]
