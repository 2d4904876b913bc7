"""The chunks of a mini-block page: where they lie, how many values and rows they hold, which ones some rows need.

Chunk metadata is one little-endian word per chunk (u32 in file version 2.2, u16 in 2.1): the low 4 bits are log2 of the
number of values, the others the chunk's size in units of 8 bytes, less one. The last chunk holds what is left of the
page's values, whatever its word says.

With lists, a repetition index of two u64 per chunk tells how many rows end in the chunk, and how many levels stand
behind the end of the last one. A chunk whose predecessor has such levels begins with a "preamble": the rest of a row.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.encoding.kernels import starts_of
from lance_core.encoding.repdef import max_visible_def
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.repdef import LevelArray, Levels, Mask
    from lance_core.encoding.values import Bytes, Int64s

_LOG_BITS = 4
_UNIT = 8
_MAX_ITEMS = 2**40


@frozen(kw_only=True)
class ChunkTable:
    """The chunks of one page, or of several that are read together.

    Attributes:
        grid: Shape (5, chunks): `starts`, `sizes`, `counts`, `first_rows` and `num_rows`, picked at one go.
        has_preamble: Shape (chunks,): True if the chunk begins in the middle of a row; None without lists.
    """

    grid: Int64s
    has_preamble: Mask | None

    @property
    def starts(self) -> Int64s:
        """Shape (chunks,): positions in the file."""
        return self.grid[0]

    @property
    def sizes(self) -> Int64s:
        """Shape (chunks,): bytes."""
        return self.grid[1]

    @property
    def counts(self) -> Int64s:
        """Shape (chunks,): values in each chunk."""
        return self.grid[2]

    @property
    def first_rows(self) -> Int64s:
        """Shape (chunks,): the first row of the column that starts in the chunk or behind it."""
        return self.grid[3]

    @property
    def num_rows(self) -> Int64s:
        """Shape (chunks,): rows that start in the chunk."""
        return self.grid[4]


@frozen(kw_only=True)
class ChunkSelection:
    """The chunks that some rows need.

    Attributes:
        chunks: Numbers of the chunks, ascending.
        is_cut: Shape as ``chunks``: True if a chunk begins with the rest of a row whose beginning is not selected.
        num_rows: Rows that the chunks hold, cut ones at both ends included.
        rows: Where the wanted rows stand among them.
    """

    chunks: Int64s
    is_cut: Mask | None
    num_rows: int
    rows: range | Int64s


@frozen(kw_only=True)
class PageWords:
    """Chunk words of pages, alike in the size of their words, and in having lists or not.

    Attributes:
        chunk_words: One word for each chunk, those of one page after the other.
        word_bytes: Shape (pages,): bytes of the words of each page.
        is_large: Words of 32 bits.
        index: The repetition indexes, likewise; None without lists, where each value is a row.
        index_bytes: Shape (pages,): bytes of each of them; of no meaning without lists.
        num_items: Shape (pages,): values.
        num_rows: Shape (pages,): rows.
        data_sizes: Shape (pages,): bytes of the buffer that holds the chunks.
        positions: Shape (pages,): where that buffer lies in the file.
        first_rows: Shape (pages,): number of the page's first row.
    """

    chunk_words: Bytes
    word_bytes: Int64s
    is_large: bool
    index: Bytes | None
    index_bytes: Int64s
    num_items: Int64s
    num_rows: Int64s
    data_sizes: Int64s
    positions: Int64s
    first_rows: Int64s


def encode_words(sizes: Int64s, counts: Int64s, *, is_large: bool) -> Bytes:
    """Chunk metadata; sizes are multiples of 8, counts powers of two but for the last."""
    logs = np.log2(counts).astype(np.int64)
    logs[-1:] = 0
    return (((sizes // _UNIT - 1) << _LOG_BITS) | logs).astype("<u4" if is_large else "<u2").view(np.uint8)


def level_bounds(levels: Levels, counts: Int64s) -> Int64s:
    """First level of each chunk, and the end: a chunk ends behind its last value, the last one takes the rest.

    Args:
        levels: Levels of a page.
        counts: Values in each chunk.
    """
    bounds = starts_of(counts)
    if levels.rep is None:
        return bounds if levels.definition is not None else np.zeros_like(bounds)
    if levels.definition is not None and len(counts) > 1:
        visible = np.flatnonzero(levels.definition <= max_visible_def(levels.layers))
        bounds[1:] = visible[bounds[1:] - 1] + 1
    bounds[-1] = len(levels.rep)
    return bounds


def encode_repetition_index(rep: LevelArray, bounds: Int64s, new_row: int) -> Bytes:
    """Return the repetition index.

    Args:
        rep: Repetition levels of the page.
        bounds: Shape (chunks + 1,): first level of each chunk, and the end.
        new_row: Level that begins a row; the page begins with one.
    """
    if len(bounds) == 2:  # most pages of few rows: a fifth of what encoding their levels took
        return np.array([np.count_nonzero(rep == new_row), 0], "<u8").view(np.uint8)
    starts = np.flatnonzero(rep == new_row)
    before = np.searchsorted(starts, bounds)  # rows that start before each chunk
    begins_row = np.append(rep[bounds[:-1]] == new_row, True)
    # A row ends in the chunk before the next one starts; the chunk that the next row begins counts none of it.
    ended = before[1:] - 1 + begins_row[1:]
    rows = np.diff(ended, prepend=0)
    last_starts = starts[before[1:] - 1]
    leftover = np.where(begins_row[1:], 0, bounds[1:] - np.maximum(last_starts, bounds[:-1]))
    return np.stack([rows, leftover], axis=1).astype("<u8").reshape(-1).view(np.uint8)


def page_tables(pages: PageWords) -> tuple[ChunkTable, Int64s]:
    """Return the chunks of pages, decoded for all of them at one go.

    Args:
        pages: The pages.

    Returns:
        The chunks of all pages, and shape (pages + 1,): the first chunk of each page, and the end.

    Raises:
        CorruptDataError: Words or a repetition index that do not fit their page.
    """
    bounds, sizes, counts = _decode_words(pages)
    ends = starts_of(sizes)
    grid = np.empty((5, len(counts)), np.int64)
    num_chunks = np.diff(bounds)
    np.add(ends[:-1], np.repeat(pages.positions - ends[bounds[:-1]], num_chunks), out=grid[0])
    grid[1], grid[2] = sizes, counts
    started, has_preamble = (counts, None) if pages.index is None else _decode_repetition(pages, pages.index, bounds)
    rows = starts_of(started)
    _check_each("rows", pages.num_rows, rows[bounds[1:]] - rows[bounds[:-1]])
    np.add(rows[:-1], np.repeat(pages.first_rows - rows[bounds[:-1]], num_chunks), out=grid[3])
    grid[4] = started
    return ChunkTable(grid=grid, has_preamble=has_preamble), bounds


def counts_of_items(numbers: Sequence[int]) -> Int64s:
    """Return numbers of values as array; those that are refused anyway may need more than 64 bits."""
    try:
        return np.array(numbers, np.int64)
    except OverflowError:
        return np.array([min(number, _MAX_ITEMS + 1) for number in numbers], np.int64)


def split_table(table: ChunkTable, bounds: Int64s) -> list[ChunkTable]:
    """Return the chunks of each page; see `page_tables`."""
    has_preamble = table.has_preamble
    return [
        ChunkTable(grid=table.grid[:, low:high], has_preamble=None if has_preamble is None else has_preamble[low:high])
        for low, high in pairwise(bounds.tolist())
    ]


def _decode_words(pages: PageWords) -> tuple[Int64s, Int64s, Int64s]:
    """First chunk of each page and the end, and of all chunks bytes and numbers of values."""
    width = 4 if pages.is_large else 2
    if (pages.word_bytes % width).any():
        raise CorruptDataError(f"chunk metadata is no multiple of {width} bytes")
    bounds = starts_of(pages.word_bytes // width)
    numbers = pages.chunk_words.view(f"<u{width}").astype(np.int64)
    sizes = ((numbers >> _LOG_BITS) + 1) * _UNIT
    ends = starts_of(sizes)
    if (ends[bounds[1:]] - ends[bounds[:-1]] > pages.data_sizes).any():
        raise CorruptDataError("chunks of more bytes than their buffer has")
    counts = np.int64(1) << (numbers & (2**_LOG_BITS - 1))
    has_chunks = bounds[1:] > bounds[:-1]
    last = bounds[1:][has_chunks] - 1
    counts[last] = 0  # they hold what is left, whatever their words say
    value_starts = starts_of(counts)
    left = pages.num_items - (value_starts[bounds[1:]] - value_starts[bounds[:-1]])
    if (left < 0).any() or (pages.num_items > _MAX_ITEMS).any() or pages.num_items[~has_chunks].any():
        raise CorruptDataError("chunks that cannot hold as many values as their page has")
    counts[last] = left[has_chunks]
    return bounds, sizes, counts


def _decode_repetition(pages: PageWords, index: Bytes, bounds: Int64s) -> tuple[Int64s, Mask]:
    """Return rows that start in each chunk, and which chunks begin with a preamble."""
    _check_each("bytes of repetition index", pages.index_bytes, 16 * np.diff(bounds))
    table = index.view("<u8").reshape(-1, 2)
    if (table > np.uint64(_MAX_ITEMS)).any():
        raise CorruptDataError("a repetition index counts more rows than there can be")
    is_left = table[:, 1] > 0
    has_preamble = np.zeros(len(table), np.bool_)
    has_preamble[1:] = is_left[:-1]
    has_preamble[bounds[:-1][bounds[:-1] < len(table)]] = False
    started = table[:, 0].astype(np.int64) + is_left - has_preamble
    if (started < 0).any():
        raise CorruptDataError("a repetition index tells of rows that end before they begin")
    return started, has_preamble


def _check_each(what: str, expected: Int64s, sizes: Int64s) -> None:
    wrong = (sizes != expected).nonzero()[0]
    if len(wrong):
        at = int(wrong[0])
        raise CorruptDataError(f"the chunks of a page call for {int(sizes[at])} {what}, but there are {expected[at]}")


def join_tables(tables: Sequence[ChunkTable]) -> ChunkTable:
    """Return the chunks of several pages, in the order of their rows."""
    if len(tables) == 1:
        return tables[0]
    preambles = [table.has_preamble for table in tables if table.has_preamble is not None]
    return ChunkTable(
        grid=np.concatenate([table.grid for table in tables], axis=1),
        has_preamble=np.concatenate(preambles) if preambles else None,
    )


def select_range(table: ChunkTable, rows: range) -> tuple[slice, int, int]:
    """Return the chunks that consecutive rows need, which are not lists: as `select_rows` in a third of the steps.

    Args:
        table: Chunks of a page.
        rows: At least one row.

    Returns:
        The chunks, where the first row stands among their rows, and how many these have.
    """
    first_rows = table.grid[3]
    low = int(first_rows.searchsorted(rows.start, side="right")) - 1
    high = int(first_rows.searchsorted(rows.stop))
    first = int(first_rows[low])
    return slice(low, high), rows.start - first, int(first_rows[high - 1] + table.grid[4, high - 1]) - first


def select_rows(table: ChunkTable, rows: range | Int64s) -> ChunkSelection:
    """Return the chunks that some rows need.

    Args:
        table: Chunks of all pages that hold the rows.
        rows: Ascending rows of the column, at least one.
    """
    ends = np.array([rows.start, rows.stop - 1]) if isinstance(rows, range) else rows
    at = table.first_rows.searchsorted(ends, side="right") - 1
    last = at if table.has_preamble is None else _last_chunk_of(table, ends, table.has_preamble)
    chunks = np.arange(at[0], last[-1] + 1) if isinstance(rows, range) else _union(at, last, len(table.counts))
    firsts, started, is_cut = table.first_rows[chunks], table.num_rows[chunks], None
    if table.has_preamble is not None:
        is_cut = table.has_preamble[chunks]
        is_cut[1:] &= chunks[1:] - chunks[:-1] > 1
        started = started + is_cut
        firsts = firsts - is_cut
    row_starts = starts_of(started)
    shifts = row_starts[:-1] - firsts  # from a row's number to its place among the rows of the selected chunks
    if isinstance(rows, range):
        rows_of_run = range(rows.start + int(shifts[0]), rows.stop + int(shifts[0]))
    else:
        rows_of_run = rows + shifts[chunks.searchsorted(at)]
    return ChunkSelection(chunks=chunks, is_cut=is_cut, num_rows=int(row_starts[-1]), rows=rows_of_run)


def _last_chunk_of(table: ChunkTable, rows: Int64s, has_preamble: Mask) -> Int64s:
    """Return the chunk in which each row ends."""
    following = table.first_rows.searchsorted(rows + 1, side="right") - 1
    return following - ((table.first_rows[following] == rows + 1) & ~has_preamble[following])


def _union(first: Int64s, last: Int64s, num_chunks: int) -> Int64s:
    """Return all chunks of the closed intervals [first, last], which ascend."""
    if first is last or (first == last).all():
        is_new = np.empty(len(first), np.bool_)
        is_new[0] = True
        np.not_equal(first[1:], first[:-1], out=is_new[1:])
        return first[is_new]
    depth_changes = np.zeros(num_chunks + 1, np.int64)
    np.add.at(depth_changes, first, 1)
    np.add.at(depth_changes, last + 1, -1)
    return depth_changes[:-1].cumsum().nonzero()[0]


def byte_ranges(table: ChunkTable, chunks: Int64s) -> tuple[Int64s, Int64s]:
    """Starts and ends of ranges of the file that hold some chunks; neighbours are joined."""
    starts = table.starts[chunks]
    ends = starts + table.sizes[chunks]
    breaks = (starts[1:] != ends[:-1]).nonzero()[0]
    if len(breaks) == 0:
        return starts[:1], ends[-1:]
    return starts[np.append(0, breaks + 1)], ends[np.append(breaks, len(ends) - 1)]
