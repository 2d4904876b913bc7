"""Rows of pages that are encoded alike, whatever columns and files they are of, put together for `points`; pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from lance_core.encoding.layouts.chunk_table import select_rows
from lance_core.encoding.layouts.mini_block_points import all_points, find_points
from lance_core.file.read.joined_pages import chunks_of, grid_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_core.encoding.layouts.chunk_table import ChunkTable
    from lance_core.encoding.layouts.mini_block_points import Points
    from lance_core.encoding.plans import Rows
    from lance_core.encoding.values import Int64s
    from lance_core.file.read.page_indexes import MiniBlockIndex
    from lance_core.file.read.plan import Column, Part
    from lance_core.format.page_layout import MiniBlockLayout

_MOST_TOGETHER = 1 << 17
"""A batch of so many values takes no further column: what is decoded together should stay in the cache."""

_NOT_YET = pa.nulls(0)


@dataclass(slots=True)
class ColumnRows:
    """Rows of one column of a file, and what takes them.

    Attributes:
        column: The column.
        rows: Its rows.
        base: Added to positions in the file when something is asked for.
        number: Which of the columns it is.
        file: Which of the files.
        parts: The rows by page.
        arrays: Takes the result.
        known: The chunks of all pages, if these are one table, and there is no need to know which page a row is in.
    """

    column: Column
    rows: Rows
    base: int
    number: int
    file: int
    parts: list[Part]
    arrays: list[pa.Array]
    known: tuple[MiniBlockIndex, ChunkTable] | None = None


class Piece(NamedTuple):
    """Rows of neighbouring pages of a column: the numbers of these, and the rows of each."""

    column: Column
    pages: list[int]
    sizes: list[int]


@dataclass(slots=True)
class Segment:
    """Rows of neighbouring pages of one column in a batch, and of the same column in the files that follow.

    Attributes:
        last: The file in which they end.
        arrays: Takes the result.
        place: Where among them.
        start: Number of the first row in the batch.
        pieces: One for each file.
    """

    last: ColumnRows
    arrays: list[pa.Array]
    place: int
    start: int
    pieces: list[Piece]

    def goes_on_in(self, wanted: ColumnRows) -> bool:
        """Whether these are the last rows of a file, and the next ones are the first of the next file."""
        last = self.last
        if last.number != wanted.number or last.file != wanted.file - 1 or wanted.arrays:
            return False
        return len(last.arrays) == (self.place + 1 if last.arrays is self.arrays else 0)


@dataclass(slots=True)
class Batch:
    """Rows of pages that are alike."""

    layout: MiniBlockLayout
    grids: list[Int64s] = field(default_factory=list)
    rows: list[Int64s] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    num_rows: int = 0

    def add_rows(self, wanted: ColumnRows, parts: Sequence[Part], rows: Int64s) -> None:
        """Single rows of neighbouring pages."""
        self._add_grid(chunks_of(wanted.column, parts, rows), wanted.base)
        self.rows.append(rows)
        sizes = [len(part.rows) for part in parts]
        self._add_segment(wanted, self.num_rows, [part.number for part in parts], sizes)
        self.num_rows += len(rows)

    def add_known(self, wanted: ColumnRows, table: ChunkTable, rows: Int64s) -> None:
        """Single rows of any pages without dictionaries."""
        self._add_grid(grid_of(table, rows), wanted.base)
        self.rows.append(rows)
        self._add_segment(wanted, self.num_rows, [], [len(rows)])
        self.num_rows += len(rows)

    def add_range(self, wanted: ColumnRows, parts: Sequence[Part]) -> None:
        """Consecutive rows of neighbouring pages."""
        column, start = wanted.column, -1
        for part in parts:
            table, first = column.indexes[part.number].table, int(column.first_rows[part.number])
            if len(part.rows) == part.page.num_rows:
                self._add_grid(table.grid.copy() if wanted.base else table.grid, wanted.base)
                start = self.num_rows if start < 0 else start
                self.num_rows += part.page.num_rows
                continue
            selection = select_rows(table, range(first + part.rows[0], first + int(part.rows[-1]) + 1))
            self._add_grid(table.grid[:, selection.chunks], wanted.base)
            start = self.num_rows + int(selection.rows[0]) if start < 0 else start
            self.num_rows += selection.num_rows
        self._add_segment(wanted, start, [part.number for part in parts], [len(part.rows) for part in parts])

    def _add_grid(self, own: Int64s, base: int) -> None:
        """What a chunk table says of some chunks, which is a copy of it."""
        if base:
            own[0] += base
        self.grids.append(own)

    def _add_segment(self, wanted: ColumnRows, start: int, pages: list[int], sizes: list[int]) -> None:
        piece = Piece(wanted.column, pages, sizes)
        if self.segments and self.segments[-1].goes_on_in(wanted):
            self.segments[-1].pieces.append(piece)
            self.segments[-1].last = wanted
            return
        self.segments.append(Segment(wanted, wanted.arrays, len(wanted.arrays), start, [piece]))
        wanted.arrays.append(_NOT_YET)

    def points(self) -> Points:
        """What to decode; all values of the chunks if there are no single rows."""
        return find_points(self.grids, self.rows) if self.rows else all_points(self.grids)


def batches_of(wanted: Sequence[ColumnRows]) -> Iterator[Batch]:
    """Pages that are alike, put together."""
    batches: dict[int, Batch] = {}
    kinds = _Kinds()
    for one in wanted:
        indexes, rows = one.column.indexes, one.rows
        last, key, at = None, 0, 0
        if one.known is not None and not isinstance(rows, range):
            index, table = one.known
            key = kinds.number(index.kind)
            last = batches.setdefault(key, Batch(index.layouts[0]))
            last.add_known(one, table, rows)
        for kind, run in groupby(one.parts, key=lambda part: indexes[part.number].kind):
            parts, key = list(run), kinds.number(kind)
            last = batches.get(key)
            if last is None:
                last = batches[key] = Batch(indexes[parts[0].number].layouts[0])
            if isinstance(rows, range):
                last.add_range(one, parts)
            else:
                end = at + sum([len(part.rows) for part in parts])
                last.add_rows(one, parts, rows[at:end])
                at = end
        if last is not None and last.num_rows >= _MOST_TOGETHER:
            yield batches.pop(key)
    yield from batches.values()


class _Kinds:
    """What pages are alike in, over several files: within a file it is the same object, over several an equal one."""

    __slots__ = ("_equal", "_same")

    def __init__(self) -> None:
        self._same: dict[int, int] = {}
        self._equal: dict[object, int] = {}

    def number(self, kind: object) -> int:
        """The same number for kinds that are equal."""
        known = self._same.get(id(kind))
        if known is None:
            known = self._same[id(kind)] = self._equal.setdefault(kind, len(self._equal))
        return known
