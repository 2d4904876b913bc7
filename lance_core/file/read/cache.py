"""Cached metadata of data files: it serves the next reads of a file and its next readers.

Data files never change, and what is kept is about bytes that were held against their checksums. A file is found again
by its name, inode and times, its size and the checksums in its end, which every reader reads and verifies: these tell
the content of the whole file. A file that was replaced or written to is another one. A file without checksums, or in a
store that cannot tell when it was changed, is not found again. Each reader holds bytes of data against checksums anew.

Nothing here keeps a file open or mapped.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.common.frozen import NamedTuple
from lance_core.encoding.arrow_values import join_values, num_bytes_of
from lance_core.encoding.kernels import starts_of
from lance_core.encoding.layouts.chunk_table import ChunkTable, join_tables
from lance_core.errors import CorruptDataError
from lance_core.file.container import Budget, Parsed
from lance_core.file.read import strategy
from lance_core.file.read.page_index import MiniBlockIndex, check_page, join_indexes
from lance_core.format.file.page_layout import decode_layout

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from lance_core.encoding.values import Int64s, Values
    from lance_core.file.read.column import Column, PageSlice
    from lance_core.file.read.field_reader import Opened
    from lance_core.file.read.page_index import JoinedChunks, SparseIndex
    from lance_core.format.file.file_metadata import Page
    from lance_core.format.file.page_layout import PageLayout

_COLUMN_BYTES, _PAGE_BYTES = 3 << 8, 1 << 8
"""Bytes of an opened column and of each of its pages, without what they hold: a dozen small objects. With those of
`lance_core.file.container` and its chunk table a column of one page counts 2 KiB; 1,000 of them take 1.8 MB."""

_ONE_PAGE = 2
"""Length of the first rows of a column of one page: that of the page, and the end."""

_MAX_SEARCHED_ROWS = 256
"""Up to so many rows, to look each up takes 6 us or less; to look up the chunks among the rows takes 10."""


class JoinedPages(NamedTuple):
    """Pages of a column without lists that are alike, and their chunks."""

    pages: frozenset[int]
    table: ChunkTable


class _Joined:
    """Joined metadata of several pages of a column; most columns need none of it.

    Attributes:
        pages: Pages that are alike, by identity of what they are alike in.
        indexes: Indexes, by the numbers of their pages, as the next two.
        dictionaries: Items of dictionaries.
        tables: Chunk tables.
    """

    __slots__ = ("dictionaries", "indexes", "pages", "tables")

    def __init__(self) -> None:
        self.pages: dict[int, JoinedPages] = {}
        self.indexes: dict[tuple[int, ...], MiniBlockIndex] = {}
        self.dictionaries: dict[tuple[int, ...], Values] = {}
        self.tables: dict[tuple[int, ...], JoinedChunks] = {}


class PageCache:
    """Cache entry of one column: metadata of its pages, by number of the page.

    A table of a thousand columns in forty files has forty thousand of these: what most columns do not need is made when
    it is first asked for.

    Attributes:
        items_per_row: In fixed-size lists of structs each of so many items counts as a row of pages.
        kinds: What pages of the file are alike in; the same for all its columns.
        readers: How the scalar kernel reads chunks, by identity of their layout; likewise.
        layouts: Layouts; columns whose pages are encoded alike share them.
        indexes: Indexes of mini-block pages.
        sparse_indexes: Indexes of pages of different values below sparse layers.
        even_pages: Position and bytes of the first value of full-zip pages whose values lie one after the other; 0 of
            other ones.
        scalar_pages: Pages as the scalar kernel reads them, by number and form of the values; None for those that it
            does not read.
        ready: 1 for each page whose rows can be found: what tells where they are is known or not needed.
        whole: Index of one page with the chunks of all, if all are alike and it does not matter which one a row is in;
            pages with dictionaries have one only if there is a single page.
        encodings: Encodings of pages of version 2.0.
        items: Dictionaries of pages of version 2.0.
    """

    __slots__ = (
        "_budget",
        "_first_rows",
        "_joined",
        "encodings",
        "even_pages",
        "indexes",
        "items",
        "items_per_row",
        "kinds",
        "layouts",
        "readers",
        "ready",
        "scalar_pages",
        "sparse_indexes",
        "whole",
    )
    encodings: dict[int, Any]
    sparse_indexes: dict[int, SparseIndex]
    scalar_pages: dict[object, Any]
    items: dict[int, Any]
    even_pages: dict[int, tuple[int, int]]

    def __init__(
        self,
        first_rows: Int64s,
        layouts: dict[int, PageLayout],
        budget: Budget,
        kinds: dict[object, object],
        readers: dict[int, Any],
        *,
        source: PageCache | None = None,
        items_per_row: int = 1,
    ) -> None:
        self._first_rows = first_rows
        self.layouts = layouts
        self.kinds = kinds
        self.readers = readers
        self._budget = budget
        self.items_per_row = items_per_row
        self._joined: _Joined | None = None
        self.whole: MiniBlockIndex | None = None
        if source is None:
            self.ready = bytearray(len(first_rows) - 1)
            self.indexes: dict[int, MiniBlockIndex] = {}
            return
        self.ready, self.whole = bytearray(source.ready), source.whole
        self.encodings, self.even_pages = source.encodings, source.even_pages
        self.indexes, self.sparse_indexes = dict(source.indexes), dict(source.sparse_indexes)

    def __getattr__(self, name: str) -> dict[Any, Any]:
        """Make a dictionary that has not been asked for."""
        made: dict[Any, Any] = {}
        object.__setattr__(self, name, made)  # whatever is no slot is refused
        return made

    @property
    def _put_together(self) -> _Joined:
        joined = self._joined
        if joined is None:
            joined = self._joined = _Joined()
        return joined

    def layout(self, column: Column, number: int) -> PageLayout:
        """Return the layout of a page; it is decoded when it is first asked for."""
        layout = self.layouts.get(number)
        if layout is None:
            page = column.pages[number]
            layout = self.layouts[number] = decode_layout(page.layout)
            check_page(len(page.buffers), layout)
        return layout

    def keep_index(self, number: int, index: MiniBlockIndex) -> None:
        """Keep the index of a mini-block page."""
        self.indexes[number] = index
        self.ready[number] = 1
        self._budget.num_bytes += index.num_bytes
        if len(self._first_rows) == _ONE_PAGE and index.is_simple:
            self.whole = index

    def keep_sparse_index(self, number: int, index: SparseIndex) -> None:
        """Keep the index of a page with sparse layers."""
        self.sparse_indexes[number] = index
        self.ready[number] = 1
        self._budget.num_bytes += index.num_bytes

    def forget(self, row: int) -> None:
        """Drop what is known of the pages that end at a row or before it."""
        self.whole = None
        for indexes in filter(None, (self.indexes, self.sparse_indexes, self.items)):
            for number in [number for number in indexes if self._first_rows[number + 1] <= row]:
                del indexes[number]
                self.ready[number] = 0

    def index_of(self, numbers: tuple[int, ...], *, is_kept: bool) -> MiniBlockIndex:
        """Return the indexes of some pages as one.

        Args:
            numbers: The pages.
            is_kept: Whether to keep what had to be put together.
        """
        if len(numbers) == 1:
            return self.indexes[numbers[0]]
        joined = self._put_together.indexes.get(numbers)
        if joined is None:
            joined = join_indexes([self.indexes[number] for number in numbers])
            if is_kept:
                self._keep(self._put_together.indexes, numbers, joined)
        return joined

    def dictionary_of(self, numbers: tuple[int, ...]) -> Values:
        """Return the items of the dictionaries of some pages, one after the other."""
        joined = None if len(numbers) == 1 else self._put_together.dictionaries.get(numbers)
        if joined is None:
            dictionaries = [self.indexes[number].dictionary for number in numbers]
            items = [dictionary for dictionary in dictionaries if dictionary is not None]
            if not items:
                raise CorruptDataError("a dictionary page without dictionary")
            if len(dictionaries) == 1:
                return items[0]
            joined = join_values(items)
            self._keep(self._put_together.dictionaries, numbers, joined)
        return joined

    def chunks_of(self, numbers: tuple[int, ...]) -> JoinedChunks:
        """Return the chunks of some pages."""
        joined = self._put_together.tables.get(numbers)
        if joined is None:
            tables = [self.indexes[number].table for number in numbers]
            joined = (join_tables(tables), starts_of(np.array([len(table.starts) for table in tables])))
            if len(tables) > 1:
                self._keep(self._put_together.tables, numbers, joined)
        return joined

    def _keep(self, cached: dict[tuple[int, ...], Any], numbers: tuple[int, ...], joined: Any) -> None:
        """Keep what was put together, and drop what was before once that is much."""
        if len(cached) >= strategy.MAX_JOINED:
            dropped = list(cached.values())
            cached.clear()
            self._budget.num_bytes -= sum(map(_num_bytes, dropped))
        cached[numbers] = joined
        self._budget.num_bytes += _num_bytes(joined)

    def cells_of(self, parts: Sequence[PageSlice], rows: Int64s) -> Int64s:
        """Return what the chunk tables say of the chunk of each of some rows.

        Args:
            parts: The rows by page; the pages are alike, and their indexes known.
            rows: Shape (n,): the same rows, counted from the first of the column.

        Returns:
            Shape (5, n), as `ChunkTable.grid`.
        """
        table = self._table_of(parts) if len(parts) > 1 else self.indexes[parts[0].number].table
        if table is not None:
            return cells_in(table, rows)
        ends = np.cumsum([len(part.rows) for part in parts[:-1]])
        each = zip(parts, np.split(rows, ends), strict=True)
        return np.concatenate([self.cells_of([part], some) for part, some in each], axis=1)

    def _table_of(self, parts: Sequence[PageSlice]) -> ChunkTable | None:
        """Return the chunks of these pages and of others that are alike; None if joining them does not pay yet."""
        kind = self.indexes[parts[0].number].kind
        joined = self._put_together.pages.get(id(kind))
        if joined is None or not joined.pages.issuperset([part.number for part in parts]):
            alike = sorted(number for number, index in list(self.indexes.items()) if index.kind is kind)
            is_all = len(self.indexes) == len(self._first_rows) - 1
            if joined is not None and not is_all and not strategy.pays_to_join(len(alike), len(joined.pages)):
                return None
            joined = self._put_together.pages[id(kind)] = self._join(alike)
            first, is_each = self.indexes[alike[0]], len(alike) == len(self._first_rows) - 1
            if is_each and first.is_simple and first.dictionary is None:
                self.whole = MiniBlockIndex(first.layouts, first.bounds, joined.table, None, first.kind)
                self.scalar_pages.clear()
        return joined.table

    def _join(self, numbers: Sequence[int]) -> JoinedPages:
        indexes = [self.indexes[number] for number in numbers]
        grid = _around([index.table.grid for index in indexes])
        if grid is None:
            grid = join_tables([index.table for index in indexes]).grid
            bounds = starts_of(np.array([index.table.grid.shape[1] for index in indexes]))
            for number, index, (low, high) in zip(numbers, indexes, pairwise(bounds.tolist()), strict=True):
                table = ChunkTable(grid=grid[:, low:high], has_preamble=None)  # nothing is kept twice
                self.indexes[number] = MiniBlockIndex(index.layouts, index.bounds, table, index.dictionary, index.kind)
        return JoinedPages(frozenset(numbers), ChunkTable(grid=grid, has_preamble=None))


def cells_in(table: ChunkTable, rows: Int64s) -> Int64s:
    """Return what a table says of the chunk of each of some rows, all of which it has; as `PageCache.cells_of`."""
    grid = table.grid
    if rows.size <= _MAX_SEARCHED_ROWS:
        return grid.take(grid[3].searchsorted(rows, side="right") - 1, axis=1)
    return grid.take(chunks_in(grid[3], rows), axis=1)


def chunks_in(first_rows: Int64s, rows: Int64s) -> Int64s:
    """Return the chunk that each row is in: both ascend, and what is fewer is looked for among what is more."""
    if rows.size < first_rows.size:
        return first_rows.searchsorted(rows, side="right") - 1
    begins = rows.searchsorted(first_rows)
    return np.repeat(np.arange(len(first_rows)), np.diff(begins, append=len(rows)))


def _around(grids: Sequence[Int64s]) -> Int64s | None:
    """Return the grid that grids are neighbouring parts of, as those of pages read together are; None otherwise."""
    whole = grids[0].base
    if not isinstance(whole, np.ndarray) or whole.ndim < 2 or any(grid.base is not whole for grid in grids):
        return None
    firsts = [(grid.ctypes.data - whole.ctypes.data) // whole.itemsize for grid in grids]
    ends = [first + grid.shape[1] for first, grid in zip(firsts, grids, strict=True)]
    return whole[:, firsts[0] : ends[-1]] if firsts[1:] == ends[:-1] else None


def _num_bytes(joined: MiniBlockIndex | Values | JoinedChunks) -> int:
    if isinstance(joined, tuple):
        return joined[0].grid.nbytes
    return joined.num_bytes if isinstance(joined, MiniBlockIndex) else num_bytes_of(joined)


class FileCache:
    """Cache entry of one file; may be shared by its readers.

    Attributes:
        file: Tells the content of the file; None if nothing does.
        parsed: Footer, schema and pages.
        kinds: What pages are alike in.
        fields: The field that was opened last of each column, by the number of its first one: projections share them.
        opened: The fields of some projections; never more than a few.
        derived: What was made of the whole file, by what tells it from other such things.
        readers: How the scalar kernel reads chunks, by identity of their layout.
        bounds: First row of each page, and the end, by the rows in each; columns whose pages are alike share it.
        layouts: Layouts of pages, by their bytes and the numbers of buffers; columns that are alike share them.
        budget: Counts places of pages, columns and their pages, chunk tables, dictionaries and what is derived.
    """

    __slots__ = ("_columns", "_source", "bounds", "budget", "derived", "fields", "file", "kinds", "layouts", "opened",
                 "parsed", "readers")  # fmt: skip

    def __init__(self, source: FileCache | None = None, *, file: Hashable = None) -> None:
        self._source = source
        self.file = file
        self.parsed = Parsed() if source is None else source.parsed
        self.kinds: dict[object, object] = {} if source is None else source.kinds
        self.readers: dict[int, Any] = {} if source is None else source.readers
        self.bounds: dict[tuple[int, ...], Int64s] = {} if source is None else source.bounds
        self.layouts: dict[tuple[object, ...], dict[int, PageLayout]] = {} if source is None else source.layouts
        self._columns: dict[int, PageCache] = {}
        self.derived: dict[Hashable, Any] = {}
        self.budget = self.parsed.budget if source is None else Budget()
        self.fields: dict[int, Any] = {}
        self.opened: deque[Opened] = deque()

    def empty(self) -> None:
        """Let go of what takes memory; readers of the file that are open still hold this entry.

        Nothing is removed from where it is: who reads meanwhile goes on with what there was.
        """
        self.parsed.pages, self.parsed.budget = {}, Budget()
        self._columns, self.fields, self.layouts, self.budget = {}, {}, {}, self.parsed.budget
        self.derived, self.opened = {}, deque()

    def transient(self) -> FileCache:
        """Return a cache for one stream: it knows the same, and what it learns of pages serves no other reader."""
        return FileCache(self)

    def keep(self, opened: Opened) -> None:
        """Keep the fields of a projection in the place of those that were opened first."""
        if len(self.opened) >= strategy.MAX_OPENED:
            self.opened.popleft()
        self.opened.append(opened)

    def pages(self, number: int, pages: Sequence[Page], first_rows: Int64s, items_per_row: int = 1) -> PageCache:
        """Return the cache entry of a column.

        Args:
            number: Index of the column in the file.
            pages: Its pages.
            first_rows: First row of each page, and the end.
            items_per_row: In fixed-size lists of structs each of so many items counts as a row of pages.
        """
        entry = self._columns.get(number)
        if entry is None:
            source = None if self._source is None else self._source.known_pages(number)
            alike = (*[(page.layout, len(page.buffers)) for page in pages],)
            if alike not in self.layouts:
                self.layouts[alike] = {}
            shared = (self.layouts[alike], self.budget, self.kinds, self.readers)
            entry = PageCache(first_rows, *shared, source=source, items_per_row=items_per_row)
            self._columns[number] = entry
            self.budget.num_bytes += _COLUMN_BYTES + _PAGE_BYTES * len(pages)
        return entry

    def known_pages(self, number: int) -> PageCache | None:
        """Return the cache entry of a column if there is one."""
        return self._columns.get(number)

    def forget(self, row: int) -> None:
        """Drop what is known of pages that end at a row or before it."""
        for pages in self._columns.values():
            pages.forget(row * pages.items_per_row)

    def first_rows(self, sizes: tuple[int, ...]) -> Int64s:
        """Return the first row of each page, and the end; columns whose pages are alike share it."""
        first_rows = self.bounds.get(sizes)
        if first_rows is None:
            first_rows = self.bounds[sizes] = starts_of(np.array(sizes, np.int64))
        return first_rows


class FileCaches:
    """Cache entries of the files that were opened last, within one budget. May be shared by threads.

    Args:
        most_files: Number of files.
        most_bytes: Bytes of all entries.
        step: Bytes are counted when so many files were opened: to ask all of them takes less than opening one.
            Behind a file that takes more than its share of the bytes they are counted at once.
    """

    def __init__(
        self,
        most_files: int = strategy.MOST_CACHED_FILES,
        most_bytes: int = strategy.MOST_CACHED_BYTES,
        step: int = 64,
    ) -> None:
        self._step, self._num_found = step, 0
        self._most_files = most_files
        self._most_bytes = most_bytes
        self._files: OrderedDict[Hashable, FileCache] = OrderedDict()
        self._last = FileCache()
        self._lock = Lock()

    def find(self, file: Hashable) -> FileCache:
        """Return the entry of a file.

        Args:
            file: Tells its content.
        """
        with self._lock:
            entry = self._files.get(file) or FileCache(file=file)
            self._keep(file, entry)
        return entry

    def has(self, file: Hashable) -> bool:
        """Return whether there is an entry of a file."""
        return file in self._files

    def renew(self, entry: FileCache) -> None:
        """Keep an entry again that may have been dropped, since a reader that holds it reads more of the file."""
        if entry.file is None:
            return
        with self._lock:
            other = self._files.get(entry.file)
            if other is not entry:
                if other is not None:
                    other.empty()
                self._keep(entry.file, entry)

    def _keep(self, file: Hashable, entry: FileCache) -> None:
        last, self._last = self._last, entry
        self._files[file] = entry
        self._files.move_to_end(file)
        if len(self._files) > self._most_files:
            self._files.popitem(last=False)[1].empty()
        self._num_found += 1
        if self._num_found % self._step == 0 or last.budget.num_bytes > self._most_bytes // self._most_files:
            self._drop()

    def _drop(self) -> None:
        """Drop the files that were found first while all together are too large."""
        num_bytes = self._num_bytes()
        while len(self._files) > 1 and num_bytes > self._most_bytes:
            _, dropped = self._files.popitem(last=False)
            num_bytes -= dropped.budget.num_bytes
            dropped.empty()

    def _num_bytes(self) -> int:
        return sum([entry.budget.num_bytes for entry in self._files.values()])

    def has_room(self, cache: FileCache, most_of_file: int | None = None) -> bool:
        """Return whether a scan may keep the metadata of a file: it is one of these, and they are not too large.

        Args:
            cache: The entry of the file.
            most_of_file: Bytes of this entry at most, as a stream keeps; None for all there is.
        """
        if most_of_file is not None and cache.budget.num_bytes > most_of_file:
            return False
        most_of_all = self._most_bytes if most_of_file is None else 4 * min(most_of_file, strategy.MOST_STREAMED_BYTES)
        with self._lock:
            return self._files.get(cache.file) is cache and self._num_bytes() < most_of_all


FILE_CACHES = FileCaches()
