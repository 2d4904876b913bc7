"""A few rows of many columns: a plan that decodes what is encoded alike at one go, whatever columns it is of; pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from lance_core.encoding.arrow_values import join_values, slice_values, take_values
from lance_core.encoding.kernels import starts_of
from lance_core.encoding.layouts.chunk_table import byte_ranges, select_rows
from lance_core.encoding.layouts.list_points import ListRun, decode_rows, shares_levels
from lance_core.encoding.layouts.mini_block_points import (
    decode_all,
    decode_points,
    decode_words,
    find_words,
    word_spots,
)
from lance_core.encoding.layouts.page import Decoded, to_arrow
from lance_core.encoding.layouts.shared_levels import SharedLevels
from lance_core.encoding.plans import Found, Spots, together
from lance_core.encoding.repdef import Levels
from lance_core.encoding.values import FixedValues, VariableValues
from lance_core.errors import CorruptDataError
from lance_core.file.read.joined_pages import known_chunks
from lance_core.file.read.page_indexes import join_chunks, join_dictionaries
from lance_core.file.read.plan import index_ranges, load_indexes, plan_rows
from lance_core.file.read.point_batches import ColumnRows, batches_of
from lance_core.format.page_layout import MiniBlockLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.layouts.chunk_table import ChunkSelection, ChunkTable
    from lance_core.encoding.layouts.list_points import RowValues
    from lance_core.encoding.layouts.mini_block_points import Points
    from lance_core.encoding.plans import Plan, Rows, Steps
    from lance_core.encoding.values import Int64s, Values
    from lance_core.file.read.page_indexes import MiniBlockIndex
    from lance_core.file.read.plan import Column
    from lance_core.file.read.point_batches import Batch
    from lance_core.format.page_layout import PageLayout

_MAX_ITEMS = 1 << 14
"""Items of dictionaries of several pages that are put together."""

_Columns: TypeAlias = "list[list[pa.Array]]"


class RowsOfFile(NamedTuple):
    """Rows of columns of a file.

    Attributes:
        columns: The columns; indexes that are read are kept in them.
        rows: At least one.
        base: Added to positions in the file when something is asked for; of several files each has room of its own.
    """

    columns: Sequence[Column]
    rows: Rows
    base: int


@dataclass(frozen=True, slots=True)
class _Lists:
    """Rows of one column with lists, the pages of which are alike."""

    column: Column
    arrays: list[pa.Array]
    base: int
    pages: tuple[int, ...]
    layout: MiniBlockLayout
    table: ChunkTable
    bounds: Int64s
    selection: ChunkSelection

    @property
    def spots(self) -> Spots:
        starts, ends = byte_ranges(self.table, self.selection.chunks)
        return Spots(starts + self.base, ends + self.base)

    def run(self, found: Found) -> ListRun:
        starts, sizes, counts = self.table.grid[:3, self.selection.chunks]
        return ListRun(
            layout=self.layout,
            starts=found.places(starts + self.base),
            sizes=sizes,
            counts=counts,
            selection=self.selection,
        )

    def finish(self, rows: RowValues, shared: SharedLevels) -> None:
        values: Values = rows.values
        if self.layout.dictionary is not None:
            page_of = self.bounds.searchsorted(self.selection.chunks[rows.chunk_of], side="right") - 1
            sizes = np.bincount(page_of, minlength=len(self.pages)).tolist()
            values = _look_up([(self.column, number) for number in self.pages], values, sizes)
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
    return (yield from plan_points_of([RowsOfFile(columns, rows, 0)]))


def plan_points_of(files: Sequence[RowsOfFile], *, is_near: bool = False) -> Steps[_Columns]:
    """Read a few rows of the same columns of files.

    Args:
        files: Rows of each.
        is_near: Bytes cost more than requests: words are asked for without their chunks.

    Returns:
        For each column arrays (`page.to_arrow`) that hold the rows of all files, one after the other.
    """
    arrays: list[_Columns] = []
    mine: list[ColumnRows] = []
    others: list[ColumnRows] = []
    for number in range(len(files[0].columns)):
        arrays.append([])
        for at, (columns, rows, base) in enumerate(files):
            one = ColumnRows(columns[number], rows, base, number, at, [], [])
            arrays[number].append(one.arrays)
            (mine if _find_parts(one) else others).append(one)
    plans = [_moved(plan_rows(one.column, one.rows), one.base) for one in others]
    found: list[list[pa.Array]] = yield from together([_plan(mine, is_near=is_near), *plans])
    for one, several in zip(others, found[1:], strict=True):
        one.arrays.extend(several)
    return [list(chain.from_iterable(one)) for one in arrays]


def _find_parts(wanted: ColumnRows) -> bool:
    """Find the pages that hold the rows; False if the column is read otherwise."""
    column, rows = wanted.column, wanted.rows
    if not _stands_for_itself(column):
        return False
    wanted.known = None if isinstance(rows, range) else _known(column, rows)
    if wanted.known is None:
        wanted.parts = column.parts(rows)
    return all(_is_plain(part.layout) for part in wanted.parts)


def _moved(plan: Plan, base: int) -> Plan:
    """A plan that asks for positions behind a base."""
    if not base:
        return (yield from plan)
    try:
        wanted = next(plan)
        while True:
            found = yield [
                Spots(one.starts + base, one.ends + base) if isinstance(one, Spots) else (one[0] + base, one[1] + base)
                for one in wanted
            ]
            wanted = plan.send([one.moved(-base) if isinstance(one, Found) else one for one in found])
    except StopIteration as stop:
        return stop.value


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


def _plan(wanted: Sequence[ColumnRows], *, is_near: bool) -> Plan:
    missing = [(one, part) for one in wanted for part in one.parts if part.number not in one.column.indexes]
    if missing:
        ranges = [
            [(start + one.base, end + one.base) for start, end in index_ranges(one.column, part)]
            for one, part in missing
        ]
        buffers = iter((yield [one for several in ranges for one in several]))
        pages = [(one.column, part) for one, part in missing]
        load_indexes(pages, [[next(buffers) for _ in several] for several in ranges])
    lists: list[_Lists] = []
    plain: list[ColumnRows] = []
    others: list[ColumnRows] = []
    for one in wanted:
        has_lists = [isinstance(part.layout, MiniBlockLayout) and part.layout.rep is not None for part in one.parts]
        if not any(has_lists):
            plain.append(one)
        elif (
            not isinstance(one.rows, range)
            and len({id(one.column.indexes[part.number].kind) for part in one.parts}) == 1
        ):
            lists.append(_with_lists(one, one.rows))
        else:
            others.append(one)
    batches = list(batches_of(plain))
    points = [batch.points() for batch in batches]
    words = [
        find_words(one, batch.layout) if is_near and batch.rows else None
        for batch, one in zip(batches, points, strict=True)
    ]
    pieces = _decode_pieces(batches, points, words, lists)
    rest: list[list[pa.Array]]
    plans = [_moved(plan_rows(one.column, one.rows), one.base) for one in others]
    _, *rest = yield from together([pieces, *plans])
    for one, arrays in zip(others, rest, strict=True):
        one.arrays.extend(arrays)
    return []


def _decode_pieces(
    batches: Sequence[Batch], points: Sequence[Points], words: Sequence[Int64s | None], lists: Sequence[_Lists]
) -> Plan:
    spots = [
        Spots(one.chunks[0], one.chunks[0] + one.chunks[1]) if own is None else word_spots(own, batch.layout)
        for batch, one, own in zip(batches, points, words, strict=True)
    ]
    groups = _sharing_levels(lists)
    spots += [_joined([one.spots for one in group]) for group in groups]
    memories = iter((yield spots))
    for batch, one, own in zip(batches, points, words, strict=True):
        _decode(batch, one, own, next(memories))
    for group in groups:
        found: Found = next(memories)
        shared = SharedLevels()
        for one, rows in zip(group, decode_rows(found.memory, [one.run(found) for one in group]), strict=True):
            one.finish(rows, shared)
    return []


def _joined(spots: Sequence[Spots]) -> Spots:
    return Spots(np.concatenate([one.starts for one in spots]), np.concatenate([one.ends for one in spots]))


def _with_lists(wanted: ColumnRows, rows: Int64s) -> _Lists:
    column, layout = wanted.column, wanted.parts[0].layout
    assert isinstance(layout, MiniBlockLayout)  # noqa: S101 - all are plain
    numbers = tuple(part.number for part in wanted.parts)
    table, bounds = join_chunks(column, numbers)
    return _Lists(column, wanted.arrays, wanted.base, numbers, layout, table, bounds, select_rows(table, rows))


def _sharing_levels(lists: Sequence[_Lists]) -> list[list[_Lists]]:
    """Columns of a file that encode their levels alike."""
    groups: list[list[_Lists]] = []
    for one in lists:
        alike = (group for group in groups if group[0].base == one.base and shares_levels(group[0].layout, one.layout))
        group = next(alike, None)
        if group is None:
            groups.append([one])
        else:
            group.append(one)
    return groups


def _decode(batch: Batch, points: Points, words: Int64s | None, found: Found) -> None:
    layout = batch.layout
    if words is not None:
        definition, values = None, decode_words(found.memory, found.places(words), layout)
    elif batch.rows:
        definition, values = decode_points(found.memory, found.places(points.chunks[0]), points, layout)
    else:
        definition, values = decode_all(found.memory, found.places(points.chunks[0]), points.chunks, layout)
    shared: dict[int, pa.Array] = {}
    for segment in batch.segments:
        column = segment.last.column
        start, count = segment.start, sum([sum(piece.sizes) for piece in segment.pieces])
        if isinstance(values, FixedValues) and layout.dictionary is None and column.is_plain:
            whole = shared.get(id(column.kind))
            if whole is None:
                decoded = Decoded(levels=Levels(layout.layers, None, definition), values=values, num_slots=len(values))
                whole = shared[id(column.kind)] = to_arrow(decoded, column.path, column.kind, len(values))
            segment.arrays[segment.place] = whole.slice(start, count)
            continue
        own = values if count == len(values) else _cut(values, start, start + count)
        if layout.dictionary is not None:
            pages = [(piece.column, number) for piece in segment.pieces for number in piece.pages]
            own = _look_up(pages, own, [size for piece in segment.pieces for size in piece.sizes])
        levels = Levels(layout.layers, None, None if definition is None else definition[start : start + count])
        decoded = Decoded(levels=levels, values=own, num_slots=count)
        segment.arrays[segment.place] = to_arrow(decoded, column.path, column.kind, count)


def _cut(values: Values, start: int, end: int) -> Values:
    """Values of one column; its strings count their bytes from 0, whatever other columns hold."""
    own = slice_values(values, start, end)
    if isinstance(own, VariableValues) and int(own.offsets[0]):
        return VariableValues(own.offsets - own.offsets[0], own.data[int(own.offsets[0]) :])
    return own


def _look_up(pages: Sequence[tuple[Column, int]], places: Values, sizes: Sequence[int]) -> Values:
    """The items at places in the dictionaries of pages.

    Args:
        pages: The pages, with their columns: one column of one file or of several.
        places: Shape (n,): place of each value in the dictionary of its page.
        sizes: How many of the values are of each page; pages follow one another.
    """
    if not isinstance(places, FixedValues):
        raise CorruptDataError("a dictionary page without indices")
    if len(pages) == 1:
        return take_values(_dictionaries(pages), places.data)
    page_of: Int64s = np.repeat(np.arange(len(pages)), sizes)
    layouts = [column.layout(number) for column, number in pages]
    num_items = np.array([one.num_dictionary_items for one in layouts if isinstance(one, MiniBlockLayout)], np.int64)
    items: Int64s = places.data.astype(np.int64)
    if (items >= num_items[page_of]).any() or (items < 0).any():
        raise CorruptDataError("an index points beyond the dictionary of its page")
    if len(items) == 0 or int(num_items.sum()) <= _MAX_ITEMS:
        return take_values(_dictionaries(pages), items + starts_of(num_items)[page_of])
    bounds = starts_of(np.array(sizes, np.int64)).tolist()
    parts = [
        take_values(_dictionaries([page]), items[low:high])
        for page, (low, high) in zip(pages, pairwise(bounds), strict=True)
        if high > low
    ]
    return join_values(parts)


def _dictionaries(pages: Sequence[tuple[Column, int]]) -> Values:
    """Items of the dictionaries of some pages, one after the other."""
    several = [
        join_dictionaries(one[0][0], tuple([number for _, number in one]))
        for one in (list(run) for _, run in groupby(pages, key=lambda page: id(page[0])))
    ]
    return several[0] if len(several) == 1 else join_values(several)
