"""A handful of rows, read value by value; pure.

What `lance_core.file.points` shares between columns costs hundreds of steps for each encoding, whatever the number of
values. Below some hundred values it is cheaper to pick them one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from lance_core.encoding.plans import Spots, together
from lance_core.encoding.structural.few_levels import unravel_few
from lance_core.encoding.structural.few_values import Leaf, maker, nest_of
from lance_core.errors import CorruptDataError
from lance_core.file.plan import Part, index_ranges, load_indexes
from lance_core.file.single_pages import FewRows, Place, open_page, reader_of
from lance_core.format.page_layout import MiniBlockLayout
from lance_core.format.schema import JSON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lance_core.encoding.plans import Found, Steps
    from lance_core.encoding.structural.few_levels import FewLayers, FewSlots
    from lance_core.encoding.structural.few_values import Make, Nest, Shape
    from lance_core.encoding.values import Int64s
    from lance_core.file.plan import Column
    from lance_core.file.single_pages import SinglePage
    from lance_core.format.schema import Field

_MOST_VALUES = 256
_MOST_ROWS = 4
"""So few rows are read value by value however many columns there are: steps that columns share cost each as much."""

Otherwise: TypeAlias = "Callable[[Sequence[int]], Steps[list[list[pa.Array]]]]"


def is_handful(num_rows: int, num_columns: int) -> bool:
    """True if it is cheaper to pick the values of so many rows and columns one by one."""
    return num_rows <= _MOST_ROWS or num_rows * num_columns <= _MOST_VALUES


class _Run(NamedTuple):
    """Rows of one page, one after the other."""

    page: SinglePage
    places: list[Place]


class FewReader:
    """Reads a handful of rows of one top-level field.

    Args:
        field: The field.
        kind: Its Arrow type.
        columns: Those of its leaves.
    """

    __slots__ = ("_field", "_kind", "_makers", "columns", "nest")

    def __init__(self, field: Field, kind: pa.DataType, columns: Sequence[Column]) -> None:
        self.columns = columns
        self._field = field
        self._kind = kind
        self._makers: list[tuple[Shape, Make]] | None = None
        self.nest: Nest | None = None

    def makers(self) -> list[tuple[Shape, Make]]:
        """What makes the array of each leaf; nothing if rows of the field are not read one by one."""
        makers = self._makers
        if makers is None:
            found = [_maker_of(column) for column in self.columns]
            self.nest = nest_of(self._field, self._kind)
            makers = [one for one in found if one is not None]
            if self.nest is None or len(makers) < len(found):
                makers = []
            self._makers = makers  # at last: others may read rows at the same time
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
    pages = _pages(fields, rows)
    left = [number for number, wanted in enumerate(pages) if not wanted]
    others: list[list[pa.Array]] = []
    if left:
        few, others = yield from together([_plan(fields, pages, rows), otherwise(left)])
    else:
        few = yield from _plan(fields, pages, rows)
    late = [number for number, (array, wanted) in enumerate(zip(few, pages, strict=True)) if wanted and array is None]
    if late:  # a row that lies in several chunks
        left, others = [*left, *late], [*others, *(yield from otherwise(late))]
    found = dict(zip(left, others, strict=True))
    return [found[number] if array is None else [array] for number, array in enumerate(few)]


def _plan(fields: Sequence[FewReader], pages: Sequence[list[list[int]]], rows: Int64s) -> Steps[list[Any]]:
    """For each field an array; None if it is read otherwise."""
    missing = _missing(fields, pages)
    if missing:
        ranges = [index_ranges(column, part) for column, part in missing]
        buffers = iter((yield [one for several in ranges for one in several]))
        load_indexes(missing, [[next(buffers) for _ in several] for several in ranges])
    numbers = rows.tolist()
    runs = [_find_field(one, wanted, numbers) for one, wanted in zip(fields, pages, strict=True)]
    places = [place for several in runs for own in several for run in own for place in run.places]
    spots = sorted({(start, start + size) for start, size, *_ in places if size})
    memory, moved = memoryview(b""), iter(places)
    if spots:
        found: Found
        (found,) = yield [Spots(*np.array(spots, np.int64).T)]
        memory, moved = found.memory.data, _moved(places, found)
    known: dict[object, Any] = {}
    return [
        _decode(one, several, memory, moved, known) if several else None
        for one, several in zip(fields, runs, strict=True)
    ]


def _pages(fields: Sequence[FewReader], rows: Int64s) -> list[list[list[int]]]:
    """For each field and leaf the pages of the rows; nothing for fields that are read otherwise."""
    known: dict[int, list[int]] = {}
    found: list[list[list[int]]] = []
    for one in fields:
        found.append([])
        if not one.makers():
            continue
        for column in one.columns:
            pages = known.get(id(column.first_rows))  # columns whose pages are alike share it
            if pages is None:
                if int(rows[-1]) >= column.first_rows[-1]:
                    raise CorruptDataError(f"field {column.path.leaf.name!r} has {column.num_rows} rows in this file")
                pages = (column.first_rows.searchsorted(rows, "right") - 1).tolist()
                known[id(column.first_rows)] = pages
            if _is_left(column, pages):
                found[-1].clear()
                break
            found[-1].append(pages)
    return found


def _is_left(column: Column, numbers: Sequence[int]) -> bool:
    """True if rows of any of these pages are read otherwise, as far as that is known without a look at its bytes."""
    for number in numbers if len(numbers) == 1 else set(numbers):
        if number in column.singles:
            if column.singles[number] is None:
                return True
            continue
        layout = column.layout(number)
        if isinstance(layout, MiniBlockLayout) and reader_of(column, layout) is None:
            return True
    return False


def _missing(fields: Sequence[FewReader], pages: Sequence[list[list[int]]]) -> list[tuple[Column, Part]]:
    """Pages of which it is not known where their chunks are."""
    missing: list[tuple[Column, Part]] = []
    for one, wanted in zip(fields, pages, strict=True):
        if not wanted:
            continue
        for column, numbers in zip(one.columns, wanted, strict=True):
            for number in numbers if len(numbers) == 1 else dict.fromkeys(numbers):
                if number in column.singles or number in column.indexes:
                    continue
                layout = column.layout(number)
                if isinstance(layout, MiniBlockLayout):
                    missing.append((column, Part(number, column.pages[number], layout, range(0))))
    return missing


def _find_field(one: FewReader, pages: list[list[int]], rows: list[int]) -> list[list[_Run]]:
    """For each leaf of a field where the rows are; nothing if they are read otherwise."""
    found: list[list[_Run]] = []
    if not pages:
        return found
    for column, (shape, _), numbers in zip(one.columns, one.makers(), pages, strict=True):
        runs = _find(column, shape, numbers, rows)
        if runs is None:
            return []
        found.append(runs)
    return found


def _find(column: Column, shape: Shape, numbers: list[int], rows: list[int]) -> list[_Run] | None:
    runs: list[_Run] = []
    last = -1
    for number, row in zip(numbers, rows, strict=True):
        if number != last:
            page = _page(column, number, shape)
            if page is None or (runs and not _is_alike(page, runs[0].page)):
                return None
            runs.append(_Run(page, []))
            last = number
        place = runs[-1].page.find(row)
        if place is None:
            return None
        runs[-1].places.append(place)
    return runs


def _page(column: Column, number: int, shape: Shape) -> SinglePage | None:
    if number not in column.singles:
        column.singles[number] = open_page(column, number, shape)
    return column.singles[number]


def _is_alike(one: SinglePage, other: SinglePage) -> bool:
    """True if the levels of two pages have the same meaning."""
    return one.layers == other.layers and one.has_definition == other.has_definition


def _moved(places: Sequence[Place], found: Found) -> Iterator[Place]:
    """Where the places lie in what was read."""
    if found.starts is None:
        return iter(places)
    starts = found.places(np.array([one.start for one in places], np.int64)).tolist()
    return (one._replace(start=start) for one, start in zip(places, starts, strict=True))


def _decode(
    one: FewReader, runs: list[list[_Run]], memory: memoryview, moved: Iterator[Place], known: dict[object, Any]
) -> pa.Array:
    leaves: list[Leaf] = []
    for (_, make), own in zip(one.makers(), runs, strict=True):
        page = own[0].page
        rows = FewRows([] if page.layers.max_rep else None, [] if page.has_definition else None)
        for run in own:
            run.page.read(memory, [next(moved) for _ in run.places], rows, known)
        slots = _slots(page.layers, rows, known)
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
