"""Single rows of many columns: a plan that decodes what is encoded alike at one go, whatever columns it is of; pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from lance_core.encoding.arrow_values import slice_values, take_values
from lance_core.encoding.physical.memory import starts_of
from lance_core.encoding.plans import Spots, together
from lance_core.encoding.repdef import Levels
from lance_core.encoding.structural.mini_block_points import decode_points, find_points
from lance_core.encoding.structural.page import Decoded, to_arrow
from lance_core.encoding.values import FixedValues
from lance_core.errors import CorruptDataError
from lance_core.file.plan import index_ranges, join_dictionaries, load_index, plan_rows
from lance_core.format.page_layout import MiniBlockLayout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_core.encoding.plans import Found, Steps
    from lance_core.encoding.structural.mini_block_points import Points
    from lance_core.encoding.values import Int64s, Values
    from lance_core.file.plan import Column, Part
    from lance_core.format.page_layout import PageLayout

_MAX_ITEMS = 1 << 12
"""Items of dictionaries of several pages that are put together."""

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

    def add(self, part: Part, column: Column, arrays: list[pa.Array], *, follows: bool) -> None:
        index = column.indexes[part.number]
        rows = np.asarray(part.rows) + column.first_rows[part.number]
        at = index.table.first_rows.searchsorted(rows, side="right") - 1
        self.grids.append(index.table.grid[:, at])
        self.rows.append(rows)
        if follows:
            self.segments[-1].pages.append(part.number)
            self.segments[-1].sizes.append(len(rows))
        else:
            self.segments.append(_Segment(column, arrays, len(arrays), self.num_rows, [part.number], [len(rows)]))
            arrays.append(_NOT_YET)
        self.num_rows += len(rows)


def plan_points(columns: Sequence[Column], rows: Int64s) -> Steps[_Columns]:
    """Read single rows of columns.

    Args:
        columns: The columns; indexes that are read are kept in them.
        rows: Ascending, without repetition, at least one.

    Returns:
        For each column arrays (`page.to_arrow`) that hold the rows one after the other.
    """
    mine: list[tuple[int, Column, list[Part]]] = []
    others: list[int] = []
    for number, column in enumerate(columns):
        parts = column.parts(rows) if _stands_for_itself(column) else []
        if parts and all(_is_plain(part.layout) for part in parts):
            mine.append((number, column, parts))
        else:
            others.append(number)
    plans = [plan_rows(columns[number], rows) for number in others]
    found: list[_Columns] = yield from together([_plan([(column, parts) for _, column, parts in mine]), *plans])
    arrays: _Columns = [[] for _ in columns]
    for (number, _, _), one in zip(mine, found[0], strict=True):
        arrays[number] = one
    for number, one in zip(others, found[1:], strict=True):
        arrays[number] = one
    return arrays


def _stands_for_itself(column: Column) -> bool:
    """True if there is one value for each row, which is neither a dictionary's nor a packed struct."""
    kind = column.kind
    is_packed = pa.types.is_nested(kind) and not pa.types.is_fixed_size_list(kind)
    return not (column.is_dictionary or is_packed or column.path.items_per_row > 1)


def _is_plain(layout: PageLayout) -> bool:
    """True for mini-blocks without lists that do not describe blobs."""
    return isinstance(layout, MiniBlockLayout) and layout.rep is None and layout.blob_layers is None


def _plan(columns: Sequence[tuple[Column, list[Part]]]) -> Steps[_Columns]:
    if not columns:
        return []
    missing = [(column, part) for column, parts in columns for part in parts if part.number not in column.indexes]
    if missing:
        ranges = [index_ranges(column, part) for column, part in missing]
        buffers = iter((yield [one for several in ranges for one in several]))
        for (column, part), several in zip(missing, ranges, strict=True):
            load_index(column, part, [next(buffers) for _ in several])
    arrays: _Columns = [[] for _ in columns]
    batches = list(_batches(columns, arrays))
    points = [find_points(batch.grids, batch.rows) for batch in batches]
    memories = yield [Spots(one.chunks[0], one.chunks[0] + one.chunks[1]) for one in points]
    for batch, one, found in zip(batches, points, memories, strict=True):
        _decode(batch, one, found)
    return arrays


def _batches(columns: Sequence[tuple[Column, list[Part]]], arrays: _Columns) -> Iterator[_Batch]:
    """Pages that are alike, put together."""
    batches: dict[int, _Batch] = {}
    for (column, parts), out in zip(columns, arrays, strict=True):
        last: _Batch | None = None
        items = 0
        for part in parts:
            layout = part.layout
            assert isinstance(layout, MiniBlockLayout)  # noqa: S101 - all are plain
            key = id(column.indexes[part.number].kind)
            batch = batches.get(key)
            if batch is None:
                batch = batches[key] = _Batch(layout)
            items += layout.num_dictionary_items
            follows = batch is last and items <= _MAX_ITEMS
            if not follows:
                items = layout.num_dictionary_items
            batch.add(part, column, out, follows=follows)
            last = batch
    yield from batches.values()


def _decode(batch: _Batch, points: Points, found: Found) -> None:
    layout = batch.layout
    definition, values = decode_points(found.memory, found.places(points.chunks[0]), points, layout)
    for segment in batch.segments:
        start, count = segment.start, sum(segment.sizes)
        own = values if count == len(values) else slice_values(values, start, start + count)
        if layout.dictionary is not None:
            own = _look_up(segment, own)
        levels = Levels(layout.layers, None, None if definition is None else definition[start : start + count])
        decoded = Decoded(levels=levels, values=own, num_slots=count)
        segment.arrays[segment.place] = to_arrow(decoded, segment.column.path, segment.column.kind, count)


def _look_up(segment: _Segment, places: Values) -> Values:
    """The items at places in the dictionaries of a segment's pages."""
    if not isinstance(places, FixedValues):
        raise CorruptDataError("a dictionary page without indices")
    dictionary = join_dictionaries(segment.column, tuple(segment.pages))
    if len(segment.pages) == 1:
        return take_values(dictionary, places.data)
    column = segment.column
    layouts = [column.layout(number) for number in segment.pages]
    num_items = np.array([one.num_dictionary_items for one in layouts if isinstance(one, MiniBlockLayout)], np.int64)
    page_of = np.repeat(np.arange(len(layouts)), segment.sizes)
    items: Int64s = places.data.astype(np.int64)
    if (items >= num_items[page_of]).any() or (items < 0).any():
        raise CorruptDataError("an index points beyond the dictionary of its page")
    return take_values(dictionary, items + starts_of(num_items)[page_of])
