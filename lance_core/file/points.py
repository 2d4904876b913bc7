"""A few rows of many columns: a plan that decodes what is encoded alike at one go, whatever columns it is of; pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from lance_core.encoding.arrow_values import join_values, slice_values, take_values
from lance_core.encoding.physical.memory import starts_of
from lance_core.encoding.plans import Spots, together
from lance_core.encoding.repdef import Levels
from lance_core.encoding.structural.chunk_table import byte_ranges, select_rows
from lance_core.encoding.structural.list_points import ListRun, decode_rows, shares_levels
from lance_core.encoding.structural.mini_block_points import all_points, decode_all, decode_points, find_points
from lance_core.encoding.structural.page import Decoded, to_arrow
from lance_core.encoding.structural.shared_levels import SharedLevels
from lance_core.encoding.values import FixedValues, VariableValues
from lance_core.errors import CorruptDataError
from lance_core.file.joined_pages import chunks_of, grid_of, known_chunks
from lance_core.file.page_indexes import join_chunks, join_dictionaries
from lance_core.file.plan import index_ranges, load_indexes, plan_rows
from lance_core.format.page_layout import MiniBlockLayout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_core.encoding.plans import Found, Plan, Rows, Steps
    from lance_core.encoding.structural.chunk_table import ChunkSelection, ChunkTable
    from lance_core.encoding.structural.list_points import RowValues
    from lance_core.encoding.structural.mini_block_points import Points
    from lance_core.encoding.values import Int64s, Values
    from lance_core.file.page_indexes import MiniBlockIndex
    from lance_core.file.plan import Column, Part
    from lance_core.format.page_layout import PageLayout

_MAX_ITEMS = 1 << 14
"""Items of dictionaries of several pages that are put together."""

_MOST_TOGETHER = 1 << 17
"""A batch of so many values takes no further column: what is decoded together should stay in the cache."""

_NOT_YET = pa.nulls(0)

_Columns: TypeAlias = "list[list[pa.Array]]"


@dataclass(frozen=True, slots=True)
class _Segment:
    """Rows of neighbouring pages of one column in a batch.

    Attributes:
        column: The column.
        arrays: Takes the result.
        place: Where among them.
        start: Number of the first row in the batch.
        pages: Numbers of the pages.
        sizes: Rows of each.
    """

    column: Column
    arrays: list[pa.Array]
    place: int
    start: int
    pages: list[int]
    sizes: list[int]


@dataclass(slots=True)
class _Batch:
    """Rows of pages that are alike."""

    layout: MiniBlockLayout
    grids: list[Int64s] = field(default_factory=list)
    rows: list[Int64s] = field(default_factory=list)
    segments: list[_Segment] = field(default_factory=list)
    num_rows: int = 0

    def add_rows(self, wanted: _Wanted, parts: Sequence[Part], rows: Int64s) -> None:
        """Single rows of neighbouring pages."""
        self.grids.append(chunks_of(wanted.column, parts, rows))
        self.rows.append(rows)
        sizes = [len(part.rows) for part in parts]
        self._add_segment(wanted, self.num_rows, [part.number for part in parts], sizes)
        self.num_rows += len(rows)

    def add_known(self, wanted: _Wanted, table: ChunkTable, rows: Int64s) -> None:
        """Single rows of any pages without dictionaries."""
        self.grids.append(grid_of(table, rows))
        self.rows.append(rows)
        self._add_segment(wanted, self.num_rows, [], [len(rows)])
        self.num_rows += len(rows)

    def add_range(self, wanted: _Wanted, parts: Sequence[Part]) -> None:
        """Consecutive rows of neighbouring pages."""
        column, start = wanted.column, -1
        for part in parts:
            table, first = column.indexes[part.number].table, int(column.first_rows[part.number])
            selection = select_rows(table, range(first + part.rows[0], first + int(part.rows[-1]) + 1))
            self.grids.append(table.grid[:, selection.chunks])
            start = self.num_rows + int(selection.rows[0]) if start < 0 else start
            self.num_rows += selection.num_rows
        self._add_segment(wanted, start, [part.number for part in parts], [len(part.rows) for part in parts])

    def _add_segment(self, wanted: _Wanted, start: int, pages: list[int], sizes: list[int]) -> None:
        self.segments.append(_Segment(wanted.column, wanted.arrays, len(wanted.arrays), start, pages, sizes))
        wanted.arrays.append(_NOT_YET)

    def points(self) -> Points:
        """What to decode; all values of the chunks if there are no single rows."""
        return find_points(self.grids, self.rows) if self.rows else all_points(self.grids)


@dataclass(frozen=True, slots=True)
class _Lists:
    """Rows of one column with lists, the pages of which are alike."""

    column: Column
    arrays: list[pa.Array]
    pages: tuple[int, ...]
    layout: MiniBlockLayout
    table: ChunkTable
    bounds: Int64s
    selection: ChunkSelection

    @property
    def spots(self) -> Spots:
        return Spots(*byte_ranges(self.table, self.selection.chunks))

    def run(self, found: Found) -> ListRun:
        starts, sizes, counts = self.table.grid[:3, self.selection.chunks]
        return ListRun(
            layout=self.layout, starts=found.places(starts), sizes=sizes, counts=counts, selection=self.selection
        )

    def finish(self, rows: RowValues, shared: SharedLevels) -> None:
        values: Values = rows.values
        if self.layout.dictionary is not None:
            page_of = self.bounds.searchsorted(self.selection.chunks[rows.chunk_of], side="right") - 1
            sizes = np.bincount(page_of, minlength=len(self.pages)).tolist()
            values = _look_up(self.column, self.pages, values, sizes)
        decoded = Decoded(levels=rows.levels, values=values, num_slots=len(values))
        count = len(self.selection.rows)
        self.arrays.append(to_arrow(decoded, self.column.path, self.column.kind, count, shared))


def plan_points(columns: Sequence[Column], rows: Rows) -> Steps[_Columns]:
    """Read a few rows of columns.

    Args:
        columns: The columns; indexes that are read are kept in them.
        rows: At least one.

    Returns:
        For each column arrays (`page.to_arrow`) that hold the rows one after the other.
    """
    arrays: _Columns = [[] for _ in columns]
    mine: list[_Wanted] = []
    others: list[int] = []
    for number, column in enumerate(columns):
        if not _stands_for_itself(column):
            others.append(number)
            continue
        known = None if isinstance(rows, range) else _known(column, rows)
        if known is not None:
            mine.append(_Wanted(column, [], arrays[number], known))
            continue
        parts = column.parts(rows)
        if all(_is_plain(part.layout) for part in parts):
            mine.append(_Wanted(column, parts, arrays[number]))
        else:
            others.append(number)
    plans = [plan_rows(columns[number], rows) for number in others]
    found: list[list[pa.Array]] = yield from together([_plan(mine, rows), *plans])
    for number, one in zip(others, found[1:], strict=True):
        arrays[number] = one
    return arrays


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Rows of one column, and what takes them: by page, or of all pages if what is known of these is one table."""

    column: Column
    parts: list[Part]
    arrays: list[pa.Array]
    known: tuple[MiniBlockIndex, ChunkTable] | None = None


def _known(column: Column, rows: Int64s) -> tuple[MiniBlockIndex, ChunkTable] | None:
    """The chunks of all pages, if there is no need to know which page a row is in."""
    known = known_chunks(column)
    if known is None or int(rows[-1]) >= column.first_rows[-1]:
        return None
    layout = known[0].layouts[0]
    is_simple = layout.rep is None and layout.dictionary is None and layout.blob_layers is None
    return known if is_simple else None


def _stands_for_itself(column: Column) -> bool:
    """True if there is one value for each row, which is neither a dictionary's nor a packed struct."""
    kind = column.kind
    is_packed = pa.types.is_nested(kind) and not pa.types.is_fixed_size_list(kind)
    return not (column.is_dictionary or is_packed or column.path.items_per_row > 1)


def _is_plain(layout: PageLayout) -> bool:
    """True for mini-blocks that do not describe blobs."""
    return isinstance(layout, MiniBlockLayout) and layout.blob_layers is None


def _plan(wanted: Sequence[_Wanted], rows: Rows) -> Plan:
    missing = [(one.column, part) for one in wanted for part in one.parts if part.number not in one.column.indexes]
    if missing:
        ranges = [index_ranges(column, part) for column, part in missing]
        buffers = iter((yield [one for several in ranges for one in several]))
        load_indexes(missing, [[next(buffers) for _ in several] for several in ranges])
    lists: list[_Lists] = []
    plain: list[_Wanted] = []
    others: list[_Wanted] = []
    for one in wanted:
        has_lists = [isinstance(part.layout, MiniBlockLayout) and part.layout.rep is not None for part in one.parts]
        if not any(has_lists):
            plain.append(one)
        elif not isinstance(rows, range) and len({id(one.column.indexes[part.number].kind) for part in one.parts}) == 1:
            lists.append(_with_lists(one, rows))
        else:
            others.append(one)
    batches = list(_batches(plain, rows))
    points = [batch.points() for batch in batches]
    pieces = _decode_pieces(batches, points, lists)
    rest: list[list[pa.Array]]
    _, *rest = yield from together([pieces, *[plan_rows(one.column, rows) for one in others]])
    for one, arrays in zip(others, rest, strict=True):
        one.arrays.extend(arrays)
    return []


def _decode_pieces(batches: Sequence[_Batch], points: Sequence[Points], lists: Sequence[_Lists]) -> Plan:
    spots = [Spots(one.chunks[0], one.chunks[0] + one.chunks[1]) for one in points]
    groups = _sharing_levels(lists)
    spots += [_joined([one.spots for one in group]) for group in groups]
    memories = iter((yield spots))
    for batch, one in zip(batches, points, strict=True):
        _decode(batch, one, next(memories))
    for group in groups:
        found: Found = next(memories)
        shared = SharedLevels()
        for one, rows in zip(group, decode_rows(found.memory, [one.run(found) for one in group]), strict=True):
            one.finish(rows, shared)
    return []


def _joined(spots: Sequence[Spots]) -> Spots:
    return Spots(np.concatenate([one.starts for one in spots]), np.concatenate([one.ends for one in spots]))


def _with_lists(wanted: _Wanted, rows: Int64s) -> _Lists:
    column, layout = wanted.column, wanted.parts[0].layout
    assert isinstance(layout, MiniBlockLayout)  # noqa: S101 - all are plain
    numbers = tuple(part.number for part in wanted.parts)
    table, bounds = join_chunks(column, numbers)
    return _Lists(column, wanted.arrays, numbers, layout, table, bounds, select_rows(table, rows))


def _sharing_levels(lists: Sequence[_Lists]) -> list[list[_Lists]]:
    """Columns that encode their levels alike."""
    groups: list[list[_Lists]] = []
    for one in lists:
        group = next((group for group in groups if shares_levels(group[0].layout, one.layout)), None)
        if group is None:
            groups.append([one])
        else:
            group.append(one)
    return groups


def _batches(wanted: Sequence[_Wanted], rows: Rows) -> Iterator[_Batch]:
    """Pages that are alike, put together."""
    batches: dict[int, _Batch] = {}
    for one in wanted:
        indexes = one.column.indexes
        last, key, at = None, 0, 0
        if one.known is not None and not isinstance(rows, range):
            index, table = one.known
            key = id(index.kind)
            last = batches.setdefault(key, _Batch(index.layouts[0]))
            last.add_known(one, table, rows)
        for key, run in groupby(one.parts, key=lambda part: id(indexes[part.number].kind)):
            parts = list(run)
            last = batches.get(key)
            if last is None:
                last = batches[key] = _Batch(indexes[parts[0].number].layouts[0])
            if isinstance(rows, range):
                last.add_range(one, parts)
            else:
                end = at + sum([len(part.rows) for part in parts])
                last.add_rows(one, parts, rows[at:end])
                at = end
        if last is not None and last.num_rows >= _MOST_TOGETHER:
            yield batches.pop(key)
    yield from batches.values()


def _decode(batch: _Batch, points: Points, found: Found) -> None:
    layout = batch.layout
    starts = found.places(points.chunks[0])
    if batch.rows:
        definition, values = decode_points(found.memory, starts, points, layout)
    else:
        definition, values = decode_all(found.memory, starts, points.chunks, layout)
    shared: dict[int, pa.Array] = {}
    for segment in batch.segments:
        start, count = segment.start, sum(segment.sizes)
        if isinstance(values, FixedValues) and layout.dictionary is None and segment.column.is_plain:
            whole = shared.get(id(segment.column.kind))
            if whole is None:
                decoded = Decoded(levels=Levels(layout.layers, None, definition), values=values, num_slots=len(values))
                whole = to_arrow(decoded, segment.column.path, segment.column.kind, len(values))
                shared[id(segment.column.kind)] = whole
            segment.arrays[segment.place] = whole.slice(start, count)
            continue
        own = values if count == len(values) else _cut(values, start, start + count)
        if layout.dictionary is not None:
            own = _look_up(segment.column, tuple(segment.pages), own, segment.sizes)
        levels = Levels(layout.layers, None, None if definition is None else definition[start : start + count])
        decoded = Decoded(levels=levels, values=own, num_slots=count)
        segment.arrays[segment.place] = to_arrow(decoded, segment.column.path, segment.column.kind, count)


def _cut(values: Values, start: int, end: int) -> Values:
    """Values of one column; its strings count their bytes from 0, whatever other columns hold."""
    own = slice_values(values, start, end)
    if isinstance(own, VariableValues) and int(own.offsets[0]):
        return VariableValues(own.offsets - own.offsets[0], own.data[int(own.offsets[0]) :])
    return own


def _look_up(column: Column, numbers: tuple[int, ...], places: Values, sizes: Sequence[int]) -> Values:
    """The items at places in the dictionaries of pages.

    Args:
        column: The column.
        numbers: Its pages.
        places: Shape (n,): place of each value in the dictionary of its page.
        sizes: How many of the values are of each page; pages follow one another.
    """
    if not isinstance(places, FixedValues):
        raise CorruptDataError("a dictionary page without indices")
    if len(numbers) == 1:
        return take_values(join_dictionaries(column, numbers), places.data)
    page_of: Int64s = np.repeat(np.arange(len(numbers)), sizes)
    layouts = [column.layout(number) for number in numbers]
    num_items = np.array([one.num_dictionary_items for one in layouts if isinstance(one, MiniBlockLayout)], np.int64)
    items: Int64s = places.data.astype(np.int64)
    if (items >= num_items[page_of]).any() or (items < 0).any():
        raise CorruptDataError("an index points beyond the dictionary of its page")
    if len(items) == 0 or int(num_items.sum()) <= _MAX_ITEMS:
        return take_values(join_dictionaries(column, numbers), items + starts_of(num_items)[page_of])
    bounds = starts_of(np.array(sizes, np.int64)).tolist()
    parts = [
        take_values(join_dictionaries(column, (number,)), items[low:high])
        for number, (low, high) in zip(numbers, pairwise(bounds), strict=True)
        if high > low
    ]
    return join_values(parts)
