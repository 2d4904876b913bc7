"""The vector kernel for small files: pages of a leaf that are encoded alike in all of them, decoded as one; pure.

What is done for each page of each file costs more than the few values of a page. So the numbers of all pages become
arrays before anything is done with them.
"""

from __future__ import annotations

from dataclasses import field
from itertools import chain, pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from lance_core.common.frozen import NamedTuple, mutable, replace
from lance_core.encoding.kernels import gather, gather_windows, starts_of
from lance_core.encoding.layouts import chunk_table, full_zip, mini_block
from lance_core.encoding.layouts.page import to_arrow
from lance_core.encoding.plans import ByteRanges
from lance_core.errors import CorruptDataError
from lance_core.file.read import strategy
from lance_core.file.read.column_read import NO_RANGES, ColumnRead
from lance_core.file.read.groups import chunk_group
from lance_core.file.read.page_index import MiniBlockIndex
from lance_core.format.file.encodings import Fsst, codes_of
from lance_core.format.file.page_layout import FullZipLayout, MiniBlockLayout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lance_core.encoding.plans import RangeBuffers, Rows
    from lance_core.encoding.values import Int64s
    from lance_core.file.read.cache import PageCache
    from lance_core.file.read.column import Column
    from lance_core.file.read.groups import MiniBlockGroup
    from lance_core.format.file.page_layout import PageLayout


@mutable
class PagesRead:
    """Rows of one leaf in files that have one page of it, all of one `page_kind`.

    Attributes:
        column: The leaf in the first of the files.
        pages: Its cache entry there.
        rows: Rows of each file, at least one.
        extents: Shape (2, buffers, files): position and bytes of each buffer.
        layouts: Layout of each page.
        arrays: Takes the rows of all files, one after the other.
    """

    column: Column
    pages: PageCache
    rows: Sequence[Rows]
    extents: Int64s
    layouts: Sequence[PageLayout]
    arrays: list[pa.Array] = field(default_factory=list)


_Read: TypeAlias = ColumnRead | PagesRead
_Layout: TypeAlias = MiniBlockLayout | FullZipLayout


class _Pages(NamedTuple):
    """Pages of a leaf, and which of its reads has them."""

    number: int
    read: _Read
    layout: _Layout


@mutable
class PagesOfFiles:
    """Pages of one leaf, each the only one of its file.

    Attributes:
        reads: Reads of the leaf in the files.
        numbers: Which of the reads these are; where neighbours follow one another, so do their rows.
        rows: Wanted rows of each page.
        extents: Shape (2, buffers, pages): position and bytes of each buffer of the pages.
        num_rows: Shape (pages,): rows that each page has.
        is_whole: All rows are wanted, so that all bytes of the pages are asked for at one go.
    """

    reads: list[_Read]
    numbers: list[int]
    rows: list[Rows]
    extents: Int64s
    num_rows: Int64s
    is_whole: bool

    def share(self, array: pa.Array) -> None:
        """Give the rows of all pages to the reads; the first one of neighbouring files takes those of all."""
        cuts = [0, *[at for at, (low, high) in enumerate(pairwise(self.numbers), 1) if high > low + 1]]
        bounds = starts_of(np.array([_num_rows(read) for read in self.reads], np.int64)).tolist()
        for at, end in pairwise([*cuts, len(self.reads)]):
            self.reads[at].arrays.append(array.slice(bounds[at], bounds[end] - bounds[at]))


@mutable
class ChunkRun(PagesOfFiles):
    """Mini-block pages.

    Attributes:
        layouts: Layouts of the pages, which differ in numbers of values and symbol tables at most.
    """

    layouts: tuple[MiniBlockLayout, ...]
    _group: MiniBlockGroup | None = None
    _whole_pages: RangeBuffers | None = None

    @property
    def index_ranges(self) -> ByteRanges:
        """The byte ranges of chunk words, dictionaries and repetition indexes, and of the chunks if all are wanted."""
        extents = self.extents if self.is_whole else np.delete(self.extents, 1, axis=1)
        starts, sizes = extents.reshape(2, -1)
        return ByteRanges(starts, starts + sizes)

    def find_rows(self, buffers: RangeBuffers) -> None:
        """Find the chunks that hold the wanted rows.

        Args:
            buffers: What `index_ranges` asked for.

        Raises:
            CorruptDataError: Words, dictionaries or a repetition index that do not fit their page.
        """
        (positions, sizes), layout = self.extents, self.layouts[0]
        starts = buffers.in_memory(positions)
        first_rows = starts_of(self.num_rows)
        chunk_words = chunk_table.PageWords(
            chunk_words=gather(buffers.memory, starts[0], sizes[0]),
            word_bytes=sizes[0],
            is_large=layout.has_large_chunk,
            index=None if layout.rep is None else gather(buffers.memory, starts[-1], sizes[-1]),
            index_bytes=sizes[-1],
            num_items=chunk_table.counts_of_items([layout.num_items for layout in self.layouts]),
            num_rows=self.num_rows,
            data_sizes=sizes[1],
            positions=positions[1],
            first_rows=first_rows[:-1],
        )
        table, bounds = chunk_table.page_tables(chunk_words)
        dictionary = None
        if layout.dictionary is not None:
            dictionary = mini_block.decode_joined_dictionaries(self.layouts, buffers.memory, starts[2], sizes[2])
        index = MiniBlockIndex(self.layouts, bounds, table, dictionary, None)
        self._group = chunk_group(self.reads[0].column, index, self._rows(first_rows))
        self._whole_pages = buffers if self.is_whole else None

    def _rows(self, first_rows: Int64s) -> Rows:
        """Return the wanted rows, counted from the first one of all pages."""
        if self.is_whole:
            return range(int(first_rows[-1]))
        firsts = np.repeat(first_rows[:-1], list(map(len, self.rows)))
        return np.concatenate([np.asarray(rows, np.int64) for rows in self.rows]) + firsts

    @property
    def group(self) -> MiniBlockGroup:
        """The chunks that hold the rows."""
        if self._group is None:
            raise ValueError("rows are decoded before it is known where they are")
        return self._group

    @property
    def ranges(self) -> ByteRanges:
        """The byte ranges of the chunks, unless they have been read."""
        return NO_RANGES if self.is_whole else self.group.ranges

    def decode(self, buffers: RangeBuffers) -> None:
        """Decode the rows."""
        self.share(self.group.decode(buffers if self._whole_pages is None else self._whole_pages))


@mutable
class RowRun(PagesOfFiles):
    """Full-zip pages without index, whose rows have one width.

    Attributes:
        layout: Layout of all pages.
    """

    layout: FullZipLayout
    _bounds: ByteRanges | None = None
    _whole_pages: RangeBuffers | None = None

    @property
    def index_ranges(self) -> ByteRanges:
        """The byte ranges of all rows if they are wanted, else none."""
        return self._row_ranges if self.is_whole else NO_RANGES

    def find_rows(self, buffers: RangeBuffers) -> None:
        """Keep the rows if they have been read."""
        self._whole_pages = buffers if self.is_whole else None

    @property
    def _row_ranges(self) -> ByteRanges:
        """The byte ranges of the rows, of consecutive ones together."""
        if self._bounds is None:
            step = full_zip.stride(self.layout)
            self._bounds = _row_ranges(self.rows, self.extents[0, 0], step)
        return self._bounds

    @property
    def ranges(self) -> ByteRanges:
        """The byte ranges of the rows, unless they have been read."""
        return NO_RANGES if self.is_whole else self._row_ranges

    def decode(self, buffers: RangeBuffers) -> None:
        """Decode the rows."""
        source = buffers if self._whole_pages is None else self._whole_pages
        ranges, column, num_rows = self._row_ranges, self.reads[0].column, sum(map(len, self.rows))
        starts, step = source.in_memory(ranges.starts), full_zip.stride(self.layout)
        if len(starts) == num_rows:
            memory = gather_windows(source.memory, starts, step).reshape(-1)
        else:
            memory = gather(source.memory, starts, ranges.ends - ranges.starts)
        decoded = full_zip.decode_even(self.layout, memory, num_rows, column.kind)
        self.share(to_arrow(decoded, column.path, column.kind, num_rows))


def _row_ranges(rows: Sequence[Rows], positions: Int64s, step: int) -> ByteRanges:
    """Return the byte ranges of rows, all of them single ones or all consecutive.

    Args:
        rows: Rows of each page.
        positions: Shape (pages,): where the pages begin.
        step: Bytes of a row.
    """
    spans = [(some[0], len(some)) for some in rows if isinstance(some, range)]
    if len(spans) == len(rows):
        firsts, counts = np.array(spans, np.int64).T
        starts = positions + firsts * step
        return ByteRanges(starts, starts + counts * step)
    starts = np.concatenate([np.asarray(some, np.int64) for some in rows]) * step
    starts += np.repeat(positions, list(map(len, rows)))
    return ByteRanges(starts, starts + step)


PageRun: TypeAlias = "ChunkRun | RowRun"


def page_runs(leaves: Sequence[Sequence[_Read]]) -> tuple[list[PageRun], list[ColumnRead]]:
    """Put pages of each leaf together that can be decoded as one.

    Args:
        leaves: For each leaf its reads in all files, in the order of their rows; those whose rows are there already
            are passed over.

    Returns:
        The pages, and the reads of others.
    """
    runs: list[PageRun] = []
    others: list[ColumnRead] = []
    kinds: dict[int, object] = {}
    for reads in leaves:
        alike: dict[object, list[_Pages]] = {}
        for number, read in enumerate(reads):
            layout = run_layout(read)
            if layout is not None:
                kind = kinds.get(id(layout))
                if kind is None:
                    kind = kinds[id(layout)] = page_kind(layout)
                alike.setdefault(kind, []).append(_Pages(number, read, layout))
        joined: set[int] = set()
        for part in chain.from_iterable(map(_fitting, alike.values())):
            if len(part) >= strategy.FEWEST_PAGES_OF_A_RUN or isinstance(part[0].read, PagesRead):
                runs.append(_run(part))
                joined.update(runs[-1].numbers)
        others += [
            read
            for number, read in enumerate(reads)
            if isinstance(read, ColumnRead) and number not in joined and not read.arrays
        ]
    return runs, others


def run_layout(read: _Read) -> _Layout | None:
    """Return the layout of the only page of each file; None if it is better read by itself."""
    column = read.column
    if read.arrays or len(column.pages) != 1 or not column.is_simple or column.path.items_per_row != 1:
        return None
    page = column.pages[0]
    layout = read.pages.layout(column, 0)
    if isinstance(layout, FullZipLayout):
        fits = strategy.fits_run_pages(page.num_rows) and not full_zip.has_index(layout)
        return layout if fits else None
    if not isinstance(layout, MiniBlockLayout) or layout.blob_layers is not None:
        return None
    # Chunk tables of files that are not opened are not kept: a page of its own would pay for all of its table, too.
    num_wanted = page.num_rows if isinstance(read, PagesRead) else len(read.rows)
    return layout if strategy.is_in_run(num_wanted, page.num_rows) else None


def _rows_of(read: _Read) -> Sequence[Rows]:
    return read.rows if isinstance(read, PagesRead) else [read.rows]


def _num_rows(read: _Read) -> int:
    return sum(map(len, read.rows)) if isinstance(read, PagesRead) else len(read.rows)


def page_kind(layout: MiniBlockLayout | FullZipLayout) -> object:
    """Return what pages that are decoded as one are alike in."""
    if isinstance(layout, FullZipLayout):
        return full_zip.kind_of(layout)
    key = (
        type(layout.values),
        codes_of(layout.values),
        layout.definition,
        layout.rep,
        layout.layers,
        layout.dictionary,
    )
    return (*key, layout.has_large_chunk, layout.num_buffers, layout.has_repetition_index)


def dictionary_items(layouts: Sequence[PageLayout]) -> list[int]:
    """Return how many items the dictionary of each page has; many pages have the same layout."""
    numbers = list(map(id, layouts))
    items = {
        number: layout.num_dictionary_items if isinstance(layout, MiniBlockLayout) else 0
        for number, layout in dict(zip(numbers, layouts, strict=True)).items()
    }
    return [items[number] for number in numbers]


def _fitting(pages: Sequence[_Pages]) -> Iterator[list[_Pages]]:
    """Cut reads of pages that are alike into those that are decoded at one go."""
    part: list[_Pages] = []
    num_bytes = num_items = 0
    for page in pages:
        _, read, layout = page
        data = 1 if isinstance(layout, MiniBlockLayout) else 0
        if isinstance(read, PagesRead):
            size, items = int(read.extents[1, data].sum()), sum(dictionary_items(read.layouts))
        else:
            size, items = read.column.pages[0].buffers[data][1], sum(dictionary_items([layout]))
        if part and not strategy.fits_group(num_bytes + size, num_items + items):
            yield part
            part, num_bytes, num_items = [], 0, 0
        part.append(page)
        num_bytes, num_items = num_bytes + size, num_items + items
    yield part


def _run(pages: Sequence[_Pages]) -> PageRun:
    """Return pages that are alike as a run."""
    reads = [read for _, read, _ in pages]
    num_pages = [len(_rows_of(read)) for read in reads]
    num_rows = np.repeat(np.array([read.column.pages[0].num_rows for read in reads], np.int64), num_pages)
    rows = [rows for read in reads for rows in _rows_of(read)]
    is_whole = sum(map(len, rows)) == int(np.add.reduce(num_rows))
    parts = (reads, [number for number, _, _ in pages], rows, _extents(reads), num_rows, is_whole)
    layouts = [
        layout for _, read, alone in pages for layout in (read.layouts if isinstance(read, PagesRead) else [alone])
    ]
    first = layouts[0]
    if isinstance(first, FullZipLayout):
        if (parts[3][1, 0] < full_zip.stride(first) * num_rows).any():
            raise CorruptDataError(f"a page is too small for its rows of {full_zip.stride(first)} bytes")
        return RowRun(*parts, first)
    chunked = [layout for layout in layouts if isinstance(layout, MiniBlockLayout)]
    return ChunkRun(*parts, tuple(_shared(chunked)))


def _shared(layouts: Sequence[MiniBlockLayout]) -> list[MiniBlockLayout]:
    """Return layouts that are the same object if they are equal, and else share their parts: compared in no time."""
    first, numbers = layouts[0], list(map(id, layouts))
    made: dict[int, MiniBlockLayout] = {}
    shared: dict[tuple[int, int, bytes | None], MiniBlockLayout] = {}
    for number, layout in dict(zip(numbers, layouts, strict=True)).items():
        values = layout.values if isinstance(layout.values, Fsst) else first.values
        table = values.symbol_table if isinstance(values, Fsst) else None
        key = (layout.num_items, layout.num_dictionary_items, table)
        if key not in shared:
            shared[key] = replace(first, values=values, num_items=key[0], num_dictionary_items=key[1])
        made[number] = shared[key]
    return [made[number] for number in numbers]


def _extents(reads: Sequence[_Read]) -> Int64s:
    """Return the byte ranges of all pages; see `PageRun`."""
    alone = [read for read in reads if isinstance(read, ColumnRead)]
    extents = np.array([read.column.pages[0].buffers for read in alone], np.int64).transpose(2, 1, 0) if alone else None
    if extents is not None:
        extents[0] += np.array([read.base for read in alone], np.int64)
    parts: list[Int64s] = []
    at = 0
    for read in reads:
        if isinstance(read, PagesRead):
            parts.append(read.extents)
        elif extents is not None:
            parts.append(extents[:, :, at : at + 1])
            at += 1
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)
