"""The vector kernel for many columns: rows of pages that are encoded alike, of any columns and files; pure.

A call of numpy costs as much for one value as for a thousand. Its price is paid once for all columns that are encoded
alike, not once for each: a table of 500 columns has few encodings.
"""

from __future__ import annotations

from dataclasses import field
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import NamedTuple, frozen, mutable
from lance_core.common.late_module import LateModule
from lance_core.encoding.arrow_values import from_values, join_values, slice_values, take_values
from lance_core.encoding.kernels import starts_of
from lance_core.encoding.layouts import mini_block
from lance_core.encoding.layouts.chunk_table import byte_ranges, select_range, select_rows
from lance_core.encoding.layouts.open_chunks import PageChunks
from lance_core.encoding.layouts.page import Decoded, to_arrow
from lance_core.encoding.layouts.scattered_values import (
    decode_fixed_width,
    decode_values,
    find_all,
    find_fixed_width,
    find_scattered,
    value_ranges,
)
from lance_core.encoding.layouts.shared_levels import SharedLevels
from lance_core.encoding.plans import ByteRanges
from lance_core.encoding.repdef import Levels, value_validity
from lance_core.encoding.values import DictionaryValues, FixedValues, VariableValues
from lance_core.errors import CorruptDataError
from lance_core.file.read import strategy
from lance_core.file.read.cache import cells_in
from lance_core.file.read.constant_pages import ConstantRead, constant_jobs, constant_read
from lance_core.file.read.page_index import mini_block_layout
from lance_core.format.file.encodings import General
from lance_core.format.file.page_layout import Layer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lance_core.encoding.layouts import scattered_lists
    from lance_core.encoding.layouts.chunk_table import ChunkSelection, ChunkTable
    from lance_core.encoding.layouts.scattered_lists import ListRun, RowValues
    from lance_core.encoding.layouts.scattered_values import Scattered
    from lance_core.encoding.plans import RangeBuffers
    from lance_core.encoding.repdef import LevelArray
    from lance_core.encoding.values import Int64s, LeafValues, Values
    from lance_core.file.read.cache import PageCache
    from lance_core.file.read.column import Column, PageSlice
    from lance_core.file.read.column_read import ColumnRead, Job, ReadOptions
    from lance_core.format.file.page_layout import MiniBlockLayout
else:  # many tables have no lists
    scattered_lists = LateModule("lance_core.encoding.layouts.scattered_lists")

_NOT_YET = pa.nulls(0)
_ITEMS = ((Layer.ALL_VALID_ITEM,), (Layer.NULLABLE_ITEM,))
_NO_CHUNKS = np.empty((3, 0), np.int64)


@mutable
class _Segment:
    """Rows of neighbouring pages of one column in a batch, and of the same column in the files that follow.

    Attributes:
        last: The file in which they end.
        arrays: Takes the result.
        position: Where among them.
        start: Number of the first row in the batch.
        count: Number of rows.
        pages: If these have dictionaries, cache entry of the column, number and rows of each page.
    """

    last: ColumnRead
    arrays: list[Any]
    position: int
    start: int
    count: int
    pages: list[tuple[PageCache, int, int]]

    def continues_in(self, read: ColumnRead) -> bool:
        """Return whether these are the last rows of a file, and the next ones are the first of the next file."""
        last = self.last
        if last.number != read.number or last.file != read.file - 1 or read.arrays:
            return False
        return len(last.arrays) == (self.position + 1 if last.arrays is self.arrays else 0)


@mutable
class _Batch:
    """Rows of mini-block pages without lists that are encoded alike.

    Attributes:
        layout: The layout of the pages.
        is_near: See `ReadOptions`.
        grids: What chunk tables say of chunks.
        rows: Scattered rows.
        segments: Where the result goes.
        num_rows: Rows that are decoded.
        num_bytes: Compressed bytes of the chunks of scattered rows.
        chunks: The chunks, as `Scattered` has them, when it has told its `ranges`.
        scattered: Likewise which of their values are wanted; None for all.
        fixed_width: Likewise the positions of values that are read without their chunks; None if they are not.
    """

    layout: MiniBlockLayout
    is_near: bool
    grids: list[Int64s] = field(default_factory=list["Int64s"])
    rows: list[Int64s] = field(default_factory=list["Int64s"])
    segments: list[_Segment] = field(default_factory=list[_Segment])
    num_rows: int = 0
    num_bytes: int = 0
    chunks: Int64s = _NO_CHUNKS
    scattered: Scattered | None = None
    fixed_width: Int64s | None = None

    def add_rows(self, read: ColumnRead, cells: Int64s, sizes: Sequence[tuple[int, int]], rows: Int64s) -> None:
        """Add scattered rows.

        Args:
            read: Their column.
            cells: What the chunk tables say of the chunk of each row.
            sizes: Number and rows of each page.
            rows: The rows.
        """
        if isinstance(self.layout.values, General):  # chunks are decompressed as a whole
            starts, num_bytes = cells[:2]
            self.num_bytes += int(num_bytes[0]) + int(num_bytes[1:][starts[1:] != starts[:-1]].sum())
        self._add_grid(cells, read.base)
        self.rows.append(rows)
        self._add_segment(read, self.num_rows, len(rows), sizes)
        self.num_rows += len(rows)

    def add_range(self, read: ColumnRead, parts: Sequence[PageSlice]) -> None:
        """Add consecutive rows of neighbouring pages."""
        start = -1
        for part in parts:
            table, first = read.pages.indexes[part.number].table, int(read.column.first_rows[part.number])
            if len(part.rows) == part.page.num_rows:
                self._add_grid(table.grid, read.base)
                start = self.num_rows if start < 0 else start
                self.num_rows += part.page.num_rows
                continue
            position = self._add_chunks(read, table, range(first + part.rows[0], first + int(part.rows[-1]) + 1))
            start = position if start < 0 else start
        sizes = [(part.number, len(part.rows)) for part in parts]
        self._add_segment(read, start, sum([count for _, count in sizes]), sizes)

    def add_whole_range(self, read: ColumnRead, table: ChunkTable, rows: range) -> None:
        """Add consecutive rows of a column of which it does not matter which page they are in."""
        self._add_segment(read, self._add_chunks(read, table, rows), len(rows), ((0, len(rows)),))

    def _add_chunks(self, read: ColumnRead, table: ChunkTable, rows: range) -> int:
        """Add the chunks of consecutive rows; return where the first of these is in the batch."""
        chunks, inside, count = select_range(table, rows)
        self._add_grid(table.grid[:, chunks], read.base)
        position = self.num_rows + inside
        self.num_rows += count
        return position

    def _add_grid(self, grid: Int64s, base: int) -> None:
        """Add what a chunk table says of some chunks."""
        if base:
            grid = grid.copy()
            grid[0] += base
        self.grids.append(grid)

    def _add_segment(self, read: ColumnRead, start: int, count: int, sizes: Sequence[tuple[int, int]]) -> None:
        has_dictionaries = self.layout.dictionary is not None
        pages = [(read.pages, number, size) for number, size in sizes] if has_dictionaries else []
        last = self.segments[-1] if self.segments and read.file else None
        if last is not None and last.continues_in(read):
            last.pages += pages
            last.count += count
            last.last = read
            return
        self.segments.append(_Segment(read, read.arrays, len(read.arrays), start, count, pages))
        read.arrays.append(_NOT_YET)

    @property
    def ranges(self) -> ByteRanges:
        """The byte ranges of the chunks, or of the values alone."""
        if self.rows:
            self.scattered = find_scattered(self.grids, self.rows)
            self.chunks = self.scattered.chunks
            if self.is_near:
                self.fixed_width = find_fixed_width(self.scattered, self.layout)
        else:
            self.chunks = find_all(self.grids)
        if self.fixed_width is not None:
            return value_ranges(self.fixed_width, self.layout)
        return ByteRanges(self.chunks[0], self.chunks[0] + self.chunks[1])

    def finish(self, definition: LevelArray | None, values: Values) -> None:
        """Give each column its own of the decoded values."""
        shared: dict[int, pa.Array] = {}
        for segment in self.segments:
            segment.arrays[segment.position] = _array_of(segment, self.layout, definition, values, shared)


@frozen
class BatchJob:
    """Batches whose chunks are opened, and their levels decoded, at one go."""

    batches: Sequence[_Batch]

    @property
    def ranges(self) -> ByteRanges:
        """The byte ranges of all batches."""
        ranges = [batch.ranges for batch in self.batches]
        if len(ranges) == 1:
            return ranges[0]
        starts, ends = [part.starts for part in ranges], [part.ends for part in ranges]
        return ByteRanges(np.concatenate(starts), np.concatenate(ends))

    def decode(self, buffers: RangeBuffers) -> None:
        """Decode the values of all columns, and give each its own."""
        wanted: list[tuple[PageChunks, Scattered | None]] = []
        opened: list[_Batch] = []
        for batch in self.batches:
            if batch.fixed_width is not None:
                positions = buffers.in_memory(batch.fixed_width)
                batch.finish(None, decode_fixed_width(buffers.memory, positions, batch.layout))
                continue
            starts, sizes, counts = batch.chunks
            wanted.append((PageChunks(batch.layout, buffers.in_memory(starts), sizes, counts), batch.scattered))
            opened.append(batch)
        for batch, (definition, values) in zip(opened, decode_values(buffers.memory, wanted), strict=True):
            batch.finish(definition, values)


def _array_of(
    segment: _Segment,
    layout: MiniBlockLayout,
    definition: LevelArray | None,
    values: Values,
    shared: dict[int, pa.Array],
) -> pa.Array:
    """Return the rows of one column as an array; columns of one type are views of one array."""
    column, start, count = segment.last.column, segment.start, segment.count
    if isinstance(values, FixedValues) and layout.dictionary is None and column.is_plain:
        whole = shared.get(id(column.kind))
        if whole is None:
            whole = shared[id(column.kind)] = _leaf_array(column, layout, definition, values)
        return whole.slice(start, count)
    levels: LevelArray | None = None if definition is None else definition[start : start + count]
    segment_values: LeafValues = values if count == len(values) else _cut(values, start, start + count)
    if layout.dictionary is not None:
        pages = [(cached, number) for cached, number, _ in segment.pages]
        segment_values = _look_up(pages, segment_values, [size for *_, size in segment.pages])
    return _leaf_array(column, layout, levels, segment_values)


def _leaf_array(column: Column, layout: MiniBlockLayout, definition: LevelArray | None, values: LeafValues) -> pa.Array:
    """Return values of a column as an array, with their nulls, inside of what is around them."""
    count = len(values)
    if column.is_plain and layout.layers in _ITEMS:
        return from_values(values, column.kind, value_validity(layout.layers, definition, count), count)
    decoded = Decoded(levels=Levels(layout.layers, None, definition), values=values, num_slots=count)
    return to_arrow(decoded, column.path, column.kind, count)


def _cut(values: Values, start: int, end: int) -> Values:
    """Return values of one column; its strings count their bytes from 0, whatever other columns hold."""
    piece = slice_values(values, start, end)
    if isinstance(piece, VariableValues) and int(piece.offsets[0]):
        return VariableValues(piece.offsets - piece.offsets[0], piece.data[int(piece.offsets[0]) :])
    return piece


class _ListColumn(NamedTuple):
    """Scattered rows of one column with lists, the pages of which are alike."""

    read: ColumnRead
    numbers: tuple[int, ...]
    layout: MiniBlockLayout
    table: ChunkTable
    bounds: Int64s
    selection: ChunkSelection

    def run(self, buffers: RangeBuffers) -> ListRun:
        """Return the chunks in memory."""
        starts, sizes, counts = self.table.grid[:3, self.selection.chunks]
        positions = buffers.in_memory(starts + self.read.base)
        chunks = PageChunks(self.layout, positions, sizes, counts)
        return scattered_lists.ListRun(chunks=chunks, selection=self.selection)

    def finish(self, rows: RowValues, shared: SharedLevels) -> None:
        """Make the array of the rows."""
        values, column = rows.values, self.read.column
        if self.layout.dictionary is not None:
            page_of = self.bounds.searchsorted(self.selection.chunks[rows.chunk_of], side="right") - 1
            sizes = np.bincount(page_of, minlength=len(self.numbers)).tolist()
            values = _look_up([(self.read.pages, number) for number in self.numbers], values, sizes)
        decoded = Decoded(levels=rows.levels, values=values, num_slots=len(values))
        self.read.arrays.append(to_arrow(decoded, column.path, column.kind, len(self.selection.rows), shared))


@frozen
class ListJob:
    """Scattered rows of columns with lists of one file that encode their levels alike."""

    columns: list[_ListColumn]

    @property
    def ranges(self) -> ByteRanges:
        """The byte ranges of the chunks."""
        bounds = [byte_ranges(column.table, column.selection.chunks) for column in self.columns]
        base = self.columns[0].read.base
        return ByteRanges(*(np.concatenate([pair[side] for pair in bounds]) + base for side in (0, 1)))

    def decode(self, buffers: RangeBuffers) -> None:
        """Decode the rows."""
        shared = SharedLevels()
        decoded = scattered_lists.decode_rows(buffers.memory, [column.run(buffers) for column in self.columns])
        for column, rows in zip(self.columns, decoded, strict=True):
            column.finish(rows, shared)

    def takes(self, column: _ListColumn) -> bool:
        """Return whether a column of the same file encodes its levels alike."""
        first = self.columns[0]
        return first.read.base == column.read.base and scattered_lists.shares_levels(first.layout, column.layout)


def batch_jobs(reads: Sequence[ColumnRead], options: ReadOptions) -> tuple[list[Job], list[ColumnRead]]:
    """Put columns together that share steps.

    Args:
        reads: The columns; their pages are found, and the indexes of these known.
        options: How they are read.

    Returns:
        Rows to decode together, and the columns that are decoded each for itself.
    """
    plain: list[ColumnRead] = []
    lists: list[ListJob] = []
    others: list[ColumnRead] = []
    constants: list[ConstantRead] = []
    for read in reads:
        if read.whole is None and isinstance(read.rows, range) and read.column.is_simple:
            read.whole = read.pages.whole
        if read.whole is not None:
            plain.append(read)
            continue
        layouts = [part.layout for part in read.slices]
        if not read.column.is_simple or not all(map(mini_block.is_plain, layouts)):
            page = constant_read(read)
            if page is None:
                others.append(read)
            else:
                constants.append(page)
        elif not any(mini_block_layout(layout).rep is not None for layout in layouts):
            plain.append(read)
        elif isinstance(read.rows, range) or not _are_alike(read):
            others.append(read)
        else:
            column = _list_column(read, read.rows)
            if not strategy.is_sparse(len(read.rows), column.selection.num_rows):
                others.append(read)
                continue
            job = next((job for job in lists if job.takes(column)), None)
            if job is None:
                lists.append(ListJob([column]))
            else:
                job.columns.append(column)
    return [*constant_jobs(constants), *_batch_jobs(_batches(plain, is_near=options.is_near)), *lists], others


def _are_alike(read: ColumnRead) -> bool:
    return len({id(read.pages.indexes[part.number].kind) for part in read.slices}) == 1


def _list_column(read: ColumnRead, rows: Int64s) -> _ListColumn:
    numbers = tuple([part.number for part in read.slices])
    table, bounds = read.pages.chunks_of(numbers)
    layout = mini_block_layout(read.slices[0].layout)
    return _ListColumn(read, numbers, layout, table, bounds, select_rows(table, rows))


def _batch_jobs(batches: Iterable[_Batch]) -> Iterator[BatchJob]:
    """Yield batches, as many together as should be decoded at one go."""
    together: list[_Batch] = []
    num_rows = num_bytes = 0
    for batch in batches:
        together.append(batch)
        num_rows, num_bytes = num_rows + batch.num_rows, num_bytes + batch.num_bytes
        if strategy.fills_batch(num_rows, num_bytes):
            yield BatchJob(together)
            together, num_rows, num_bytes = [], 0, 0
    if together:
        yield BatchJob(together)


def _batches(reads: Sequence[ColumnRead], *, is_near: bool) -> Iterator[_Batch]:
    """Yield rows of pages that are alike, put together."""
    batches: dict[int, _Batch] = {}
    kinds = _Kinds()
    for read in reads:
        indexes, rows, at, key = read.pages.indexes, read.rows, 0, 0
        batch: _Batch | None = None
        if (index := read.whole) is not None:
            key = kinds.number(index.kind)
            batch = batches.get(key)
            if batch is None:
                batch = batches[key] = _Batch(index.layouts[0], is_near)
            if isinstance(rows, range):
                batch.add_whole_range(read, index.table, rows)
            else:
                batch.add_rows(read, cells_in(index.table, rows), ((0, len(rows)),), rows)
        for kind, run in [] if index is not None else groupby(read.slices, key=lambda part: indexes[part.number].kind):
            parts, key = list(run), kinds.number(kind)
            batch = batches.get(key)
            if batch is None:
                batch = batches[key] = _Batch(indexes[parts[0].number].layouts[0], is_near)
            if isinstance(rows, range):
                batch.add_range(read, parts)
            else:
                some = rows[at : (at := at + sum([len(part.rows) for part in parts]))]
                sizes = [(part.number, len(part.rows)) for part in parts]
                batch.add_rows(read, read.pages.cells_of(parts, some), sizes, some)
        if batch is not None and strategy.fills_batch(batch.num_rows, batch.num_bytes):
            yield batches.pop(key)
    yield from batches.values()


class _Kinds:
    """Kinds of pages: the same object for pages of one file that are alike, an equal one for pages of others."""

    __slots__ = ("_equal", "_same")

    def __init__(self) -> None:
        self._same: dict[int, int] = {}
        self._equal: dict[object, int] = {}

    def number(self, kind: object) -> int:
        """Return the same number for kinds that are equal."""
        number = self._same.get(id(kind))
        if number is None:
            number = self._same[id(kind)] = self._equal.setdefault(kind, len(self._equal))
        return number


def _look_up(pages: Sequence[tuple[PageCache, int]], indices: Values | None, sizes: Sequence[int]) -> LeafValues:
    """Return the items of the dictionaries of pages, or their places in one dictionary.

    Args:
        pages: Cache entry of the column and number of each page: one column of one file or of several.
        indices: Shape (n,): dictionary index of each value in its page.
        sizes: Values of each page; pages follow one another.
    """
    if not isinstance(indices, FixedValues):
        raise CorruptDataError("a dictionary page without indices")
    if len(pages) == 1:
        return DictionaryValues(indices, _dictionaries(pages))
    layouts = [mini_block_layout(cache.indexes[number].layouts[0]) for cache, number in pages]
    num_items = np.array([layout.num_dictionary_items for layout in layouts], np.int64)
    bounds = starts_of(np.array(sizes, np.int64))
    if int(num_items.sum()) <= strategy.MAX_LOOKED_UP_ITEMS:
        moved = FixedValues(mini_block.move_indices(indices, bounds, num_items))
        return DictionaryValues(moved, _dictionaries(pages), may_repeat=True)
    parts = [
        take_values(_dictionaries([page]), indices.data[low:high])
        for page, (low, high) in zip(pages, pairwise(bounds.tolist()), strict=True)
        if high > low
    ]
    return join_values(parts) if parts else take_values(_dictionaries(pages[:1]), indices.data)


def _dictionaries(pages: Sequence[tuple[PageCache, int]]) -> Values:
    """Return the items of the dictionaries of some pages, one after the other."""
    if len(pages) == 1:
        return pages[0][0].dictionary_of((pages[0][1],))
    each = [
        run[0][0].dictionary_of(tuple([number for _, number in run]))
        for run in (list(run) for _, run in groupby(pages, key=lambda page: id(page[0])))
    ]
    return each[0] if len(each) == 1 else join_values(each)
