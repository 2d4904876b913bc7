"""A handful of rows, read value by value; pure.

What `lance_core.file.read.points` shares between columns costs hundreds of steps for each encoding, whatever the number
of values. Below some hundred values it is cheaper to pick them one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lance_core.encoding.layouts.few_levels import unravel_few
from lance_core.encoding.layouts.few_values import Leaf, maker, nest_of
from lance_core.encoding.plans import Spots, together
from lance_core.errors import CorruptDataError
from lance_core.file.read.plan import Part, index_ranges, load_indexes
from lance_core.file.read.single_pages import FewRows, open_page, reader_of
from lance_core.format.page_layout import MiniBlockLayout
from lance_core.format.schema import JSON

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from lance_core.encoding.codecs.codec import Shape
    from lance_core.encoding.layouts.few_levels import FewLayers, FewSlots
    from lance_core.encoding.layouts.few_values import Make, Nest
    from lance_core.encoding.plans import Found, Steps
    from lance_core.encoding.values import Int64s
    from lance_core.file.read.plan import Column
    from lance_core.file.read.single_pages import Place, SinglePage
    from lance_core.format.schema import Field

_MOST_VALUES = 256
_MOST_ROWS = 4
"""So few rows are read value by value however many columns there are: steps that columns share cost each as much."""

Otherwise: TypeAlias = "Callable[[Sequence[int]], Steps[list[list[pa.Array]]]]"


def is_handful(num_rows: int, num_columns: int) -> bool:
    """True if it is cheaper to pick the values of so many rows and columns one by one."""
    return num_rows <= _MOST_ROWS or num_rows * num_columns <= _MOST_VALUES


_Run: TypeAlias = tuple["SinglePage", list["Place"]]
"""Rows of one page, one after the other. A plain tuple: there is one for each column."""

_LEFT: list[list[_Run]] = []
"""Instead of the rows of a field that are read otherwise."""


class FewReader:
    """Reads a handful of rows of one top-level field.

    Args:
        field: The field.
        kind: Its Arrow type.
        columns: Those of its leaves.
    """

    __slots__ = ("_field", "_kind", "columns", "is_bare", "makers", "nest")

    def __init__(self, field: Field, kind: pa.DataType, columns: Sequence[Column]) -> None:
        self.columns = columns
        self.is_bare = field.is_leaf
        self.nest: Nest | None = None
        self.makers: list[tuple[Shape, Make]] | None = None
        self._field = field
        self._kind = kind

    def make_ready(self) -> list[tuple[Shape, Make]]:
        """Find what makes the array of each leaf; nothing if rows of the field are not read one by one."""
        found = [_maker_of(column) for column in self.columns]
        self.nest = nest_of(self._field, self._kind)
        makers = [one for one in found if one is not None]
        if self.nest is None or len(makers) < len(found):
            makers = []
        self.makers = makers  # at last: others may read rows at the same time
        return makers


def _maker_of(column: Column) -> tuple[Shape, Make] | None:
    if column.is_dictionary or column.path.leaf.logical_type == JSON:
        return None
    return maker(column.kind)


def plan_few(fields: Sequence[FewReader], rows: Int64s, otherwise: Otherwise) -> Steps[list[list[pa.Array]]]:
    """Read a handful of rows of fields.

    Args:
        fields: The fields.
        rows: At least one, ascending.
        otherwise: Reads the rows of those of the fields that are not read one by one, by number.

    Returns:
        For each field arrays that hold the rows one after the other.
    """
    numbers, pages = rows.tolist(), _Pages(rows)
    runs = [_find(one, pages, numbers) for one in fields]
    missing = [(number, _missing(one, pages)) for number, one in enumerate(fields) if runs[number] is None]
    for number, _ in (one for one in missing if one[1] is None):
        runs[number] = _LEFT
    left = [number for number, own in enumerate(runs) if own is _LEFT]
    others: list[list[pa.Array]] = []
    if left:
        few, others = yield from together([_plan(fields, runs, missing, pages, numbers), otherwise(left)])
    else:
        few = yield from _plan(fields, runs, missing, pages, numbers)
    late = [number for number, array in enumerate(few) if array is None and runs[number] is not _LEFT]
    if late:  # a row that lies in several chunks
        left, others = [*left, *late], [*others, *(yield from otherwise(late))]
    found = dict(zip(left, others, strict=True))
    return [found[number] if array is None else [array] for number, array in enumerate(few)]


class _Pages:
    """The pages of rows.

    Args:
        rows: The rows.
    """

    __slots__ = ("_known", "_rows")

    def __init__(self, rows: Int64s) -> None:
        self._rows = rows
        self._known: dict[int, list[int]] = {}

    def of(self, column: Column) -> list[int]:
        """For each row the number of its page; columns whose pages are alike share the bounds of these."""
        firsts = column.first_rows
        pages = self._known.get(id(firsts))
        if pages is None:
            if int(self._rows[-1]) >= firsts[-1]:
                raise CorruptDataError(f"field {column.path.leaf.name!r} has {column.num_rows} rows in this file")
            pages = self._known[id(firsts)] = (firsts.searchsorted(self._rows, "right") - 1).tolist()
        return pages


def _plan(
    fields: Sequence[FewReader],
    runs: Sequence[list[list[_Run]] | None],
    missing: Sequence[tuple[int, list[tuple[Column, Part]] | None]],
    pages: _Pages,
    rows: list[int],
) -> Steps[list[Any]]:
    """For each field an array; None if it is read otherwise."""
    wanted = [one for _, parts in missing for one in parts or ()]
    if wanted:
        ranges = [index_ranges(column, part) for column, part in wanted]
        buffers = iter((yield [one for several in ranges for one in several]))
        load_indexes(wanted, [[next(buffers) for _ in several] for several in ranges])
    found = list(runs)
    for number, parts in missing:
        if parts is not None:
            _open_pages(fields[number], pages)
            found[number] = _find(fields[number], pages, rows)
    places = [place for several in found for own in several or () for _, run in own for place in run]
    spots = sorted({(start, start + size) for start, size, *_ in places if size})
    memory = memoryview(b"")
    if spots:
        read: Found
        (read,) = yield [Spots(*np.array(spots, np.int64).T)]
        memory = read.memory.data
        if read.starts is not None:
            found = _moved(found, places, read)
    known: dict[object, Any] = {}
    return [_decode(one, own, memory, known) if own else None for one, own in zip(fields, found, strict=True)]


def _find(one: FewReader, pages: _Pages, rows: list[int]) -> list[list[_Run]] | None:
    """For each leaf of a field where the rows are; None if too little is known of its pages."""
    makers = one.makers
    if not (one.make_ready() if makers is None else makers):
        return _LEFT
    found: list[list[_Run]] = []
    for column in one.columns:
        singles, last = column.singles, -1
        runs: list[_Run] = []
        places: list[Place] = []
        page = None
        for number, row in zip(pages.of(column), rows, strict=True):
            if number != last:
                if number not in singles:
                    return None
                page, last = singles[number], number
                if page is None or (runs and not _is_alike(page, runs[0][0])):
                    return _LEFT
                places = []
                runs.append((page, places))
            place = page.find(row) if page else None
            if place is None:
                return _LEFT
            places.append(place)
        found.append(runs)
    return found


def _missing(one: FewReader, pages: _Pages) -> list[tuple[Column, Part]] | None:
    """Pages of which it is not known where their chunks are; None if the field is read otherwise."""
    missing: list[tuple[Column, Part]] = []
    for column in one.columns:
        for number in dict.fromkeys(pages.of(column)):
            if number in column.singles:
                if column.singles[number] is None:
                    return None
                continue
            layout = column.layout(number)
            if not isinstance(layout, MiniBlockLayout):
                continue
            if reader_of(column, layout) is None:
                return None
            if number not in column.indexes:
                missing.append((column, Part(number, column.pages[number], layout, range(0))))
    return missing


def _open_pages(one: FewReader, pages: _Pages) -> None:
    for column, (shape, _) in zip(one.columns, one.makers or (), strict=True):
        for number in dict.fromkeys(pages.of(column)):
            if number not in column.singles:
                column.singles[number] = open_page(column, number, shape)


def _is_alike(one: SinglePage, other: SinglePage) -> bool:
    """True if the levels of two pages have the same meaning."""
    return one.layers == other.layers and one.has_definition == other.has_definition


def _moved(
    runs: Sequence[list[list[_Run]] | None], places: Sequence[Place], found: Found
) -> list[list[list[_Run]] | None]:
    """The same rows with where they lie in what was read."""
    starts = iter(found.places(np.array([start for start, *_ in places], np.int64)).tolist())

    def move(run: list[Place]) -> list[Place]:
        return [(next(starts), size, count, inside, chunk) for _, size, count, inside, chunk in run]

    return [several and [[(page, move(run)) for page, run in own] for own in several] for several in runs]


def _decode(one: FewReader, runs: list[list[_Run]], memory: memoryview, known: dict[object, Any]) -> pa.Array:
    leaves: list[Leaf] = []
    for (_, make), own in zip(one.makers or (), runs, strict=True):
        first = own[0][0]
        rows = FewRows([] if first.layers.max_rep else None, [] if first.has_definition else None)
        for page, places in own:
            page.read(memory, places, rows, known)
        if one.is_bare and not first.has_definition:
            return make(rows.values, None)  # nothing is around the values
        slots = _slots(first.layers, rows, known)
        leaves.append(Leaf(make(rows.values, slots[0].valid), slots))
    return one.nest(leaves) if one.nest else leaves[0].array


def _slots(layers: FewLayers, rows: FewRows, known: dict[object, Any]) -> list[FewSlots]:
    """Validity and offsets; leaves of one field mostly have the same."""
    if rows.rep is None:
        return unravel_few(layers, rows.rep, rows.definition, len(rows.values))
    key = (id(layers), tuple(rows.rep), rows.definition and tuple(rows.definition), len(rows.values))
    slots: list[FewSlots] | None = known.get(key)
    if slots is None:
        slots = known[key] = unravel_few(layers, rows.rep, rows.definition, len(rows.values))
    return slots
