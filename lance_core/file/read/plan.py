"""Which bytes some rows of a column need, and what to make of them; pure. File versions 2.1 and 2.2.

Each plan asks twice, first for what tells where things are (chunk tables, repetition indexes, dictionaries), then for
the data.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, overload

import numpy as np
import pyarrow as pa

from lance_core.encoding.arrow_values import buffer_view, slice_leaf
from lance_core.encoding.kernels import aranges, gather_windows
from lance_core.encoding.layouts import chunk_table, constant, full_zip, mini_block, sparse
from lance_core.encoding.layouts.chunk_table import PageWords
from lance_core.encoding.layouts.page import cut, pick, to_arrow
from lance_core.encoding.plans import Spots, extents_of, split_rows, touching
from lance_core.errors import CorruptDataError
from lance_core.file.read.page_indexes import Held, MiniBlockIndex, SparseIndex, join_indexes
from lance_core.format.page_layout import ConstantLayout, FullZipLayout, MiniBlockLayout, SparseLayout, decode_layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lance_core.encoding.layouts.chunk_table import ChunkSelection
    from lance_core.encoding.layouts.page import Decoded
    from lance_core.encoding.layouts.shared_levels import SharedLevels
    from lance_core.encoding.layouts.single_lists import ListReader
    from lance_core.encoding.layouts.single_values import SingleReader
    from lance_core.encoding.layouts.sparse import SparseRows
    from lance_core.encoding.leaves import LeafPath
    from lance_core.encoding.plans import Found, Plan, Ranges, Rows, Steps
    from lance_core.encoding.values import Bytes, Int64s, LeafValues, Values
    from lance_core.file.read.joined_pages import JoinedPages
    from lance_core.file.read.page_indexes import JoinedChunks
    from lance_core.file.read.single_pages import SinglePage
    from lance_core.format.file_metadata import Page
    from lance_core.format.page_layout import PageLayout

_MAX_GROUP_BYTES = 1 << 25
_MAX_GROUP_ITEMS = 1 << 16
"""Items of dictionaries of several pages that are put together."""

_NOWHERE = Spots(np.empty(0, np.int64), np.empty(0, np.int64))

_SPARSE = 8
"""Consecutive rows are picked one by one if their chunks hold this many times as many."""


@dataclass(frozen=True, slots=True)
class Column:
    """One leaf in one file; in fixed-size lists of structs each item counts as a row.

    Attributes:
        path: The leaf.
        kind: Its Arrow type.
        is_dictionary: True if that is a dictionary type.
        is_plain: True if there is nothing around the leaf, and its values are what is stored.
        pages: Its pages.
        first_rows: Shape (pages + 1,): first row of each page, and the end.
        layouts: Layouts of pages, as far as they were needed.
        indexes: Indexes of mini-block pages, as far as they were read.
        sparse_indexes: Indexes of pages of different values below sparse layers, likewise.
        joined_pages: Pages that single rows were looked for in, put together by the identity of their kind.
        joined: Indexes of the groups of pages that rows were picked from last.
        dictionaries: Dictionaries of the groups of pages that rows were picked from last.
        tables: Likewise their chunks, and the first chunk of each page.
        kinds: What pages of the file are alike in; shared by its columns.
        readers: How to read single rows, by the identity of the layout; shared by the file's columns.
        singles: Pages of which single rows were wanted; None for those that are read otherwise.
        held: Counts what is kept beyond this reader, in indexes and what was put together of them; None if nothing is.
    """

    path: LeafPath
    kind: pa.DataType
    is_dictionary: bool
    is_plain: bool
    pages: tuple[Page, ...]
    first_rows: Int64s
    layouts: dict[int, PageLayout] = field(default_factory=dict)
    indexes: dict[int, MiniBlockIndex] = field(default_factory=dict)
    sparse_indexes: dict[int, SparseIndex] = field(default_factory=dict)
    joined_pages: dict[int, JoinedPages] = field(default_factory=dict)
    joined: dict[tuple[int, ...], MiniBlockIndex] = field(default_factory=dict)
    dictionaries: dict[tuple[int, ...], Values] = field(default_factory=dict)
    tables: dict[tuple[int, ...], JoinedChunks] = field(default_factory=dict)
    kinds: dict[object, object] = field(default_factory=dict)
    readers: dict[int, SingleReader | ListReader | None] = field(default_factory=dict)
    singles: dict[int, SinglePage | None] = field(default_factory=dict)
    held: Held | None = None

    @property
    def num_rows(self) -> int:
        """Top-level rows in all pages."""
        return int(self.first_rows[-1]) // self.path.items_per_row

    def fresh(self) -> Column:
        """The same column, which keeps what else it reads for itself; `replace` would take several times as long."""
        return Column(
            self.path,
            self.kind,
            self.is_dictionary,
            self.is_plain,
            self.pages,
            self.first_rows,
            layouts=self.layouts,
            indexes=dict(self.indexes),
            sparse_indexes=dict(self.sparse_indexes),
            kinds=self.kinds,
            readers=self.readers,
        )

    def parts(self, rows: Rows) -> list[Part]:
        """Rows of the column as rows of its pages; in fixed-size lists of structs items.

        Raises:
            CorruptDataError: The column ends before the last row.
        """
        last = rows.stop if isinstance(rows, range) else int(rows[-1]) + 1
        if last > self.first_rows[-1]:
            raise CorruptDataError(f"field {self.path.leaf.name!r} has {self.num_rows} rows in this file, not {last}")
        if len(self.pages) == 1:
            return [Part(0, self.pages[0], self.layout(0), rows)]
        return [
            Part(number, self.pages[number], self.layout(number), inside)
            for number, inside in split_rows(self.first_rows, rows)
        ]

    def extents(self, rows: range) -> Ranges:
        """Where pages lie whose rows are all among these, in order."""
        first, last = rows.start * self.path.items_per_row, rows.stop * self.path.items_per_row
        low, high = int(self.first_rows.searchsorted(first)), int(self.first_rows.searchsorted(last, side="right")) - 1
        return [one for page in self.pages[low : max(low, high)] for one in extents_of(page.buffers)]

    def layout(self, number: int) -> PageLayout:
        """The layout of a page; decoded when it is first asked for."""
        known = self.layouts.get(number)
        if known is None:
            page = self.pages[number]
            known = self.layouts[number] = decode_layout(page.layout)
            _check_page(page, known)
        return known


class Part(NamedTuple):
    """Some rows of one page; they are counted from the page's first row."""

    number: int
    page: Page
    layout: PageLayout
    rows: Rows

    def range_of(self, buffer: int, start: int = 0, end: int | None = None) -> tuple[int, int]:
        """Absolute position of a part of a buffer."""
        offset, size = self.page.buffers[buffer]
        return offset + start, offset + (size if end is None else end)


def _check_page(page: Page, layout: PageLayout) -> None:
    count = len(page.buffers)
    match layout:
        case MiniBlockLayout():
            is_right = count == 2 + (layout.dictionary is not None) + layout.has_repetition_index
        case FullZipLayout():
            is_right = count == 1 + full_zip.has_index(layout)
        case ConstantLayout():
            is_right = count <= 3 or layout.sparse is not None
        case SparseLayout():
            is_right = count >= sparse.value_buffers(layout).stop
    if not is_right:
        raise CorruptDataError(f"a page has {count} buffers, which does not fit its layout")


@overload
def items_of(rows: Int64s, per_row: int) -> Int64s: ...
@overload
def items_of(rows: Rows, per_row: int) -> Rows: ...
def items_of(rows: Rows, per_row: int) -> Rows:
    """The items of fixed-size lists, for rows."""
    if per_row == 1:
        return rows
    if isinstance(rows, range):
        return range(rows.start * per_row, rows.stop * per_row)
    return aranges(rows * per_row, np.full(len(rows), per_row))


def plan_rows(column: Column, rows: Rows, shared: SharedLevels | None = None) -> Plan:
    """Read some rows of a column.

    Args:
        column: The column; indexes that are read are kept in it.
        rows: At least one row.
        shared: Knows the levels of other leaves of the same field.

    Returns:
        Arrays (`page.to_arrow`) that hold the rows one after the other.
    """
    return [group.decode(found, shared) for group, found in (yield from plan_groups(column, rows))]


def plan_groups(column: Column, rows: Rows) -> Steps[list[tuple[Group, Found]]]:
    """Read the bytes of some rows of a column; arguments as of `plan_rows`.

    Returns:
        What decodes the rows, in their order, and the bytes it needs.
    """
    parts = column.parts(items_of(rows, column.path.items_per_row))
    wanted = [index_ranges(column, part) for part in parts]
    ranges = [one for several in wanted for one in several]
    found = iter((yield ranges) if ranges else [])  # one read less if nothing is missing
    indexes = [[next(found) for _ in several] for several in wanted]
    missing = [number for number, part in enumerate(parts) if _lacks_index(column, part)]
    load_indexes([(column, parts[number]) for number in missing], [indexes[number] for number in missing])
    groups = list(_merged(_group(column, parts, indexes)))
    return list(zip(groups, (yield [group.spots for group in groups]), strict=True))


def index_ranges(column: Column, part: Part) -> Ranges:
    """Where it stands where the rows of a part are."""
    match part.layout:
        case MiniBlockLayout():
            if not _lacks_index(column, part):
                return []
            return [part.range_of(buffer) for buffer in range(len(part.page.buffers)) if buffer != 1]
        case FullZipLayout():
            if not full_zip.has_index(part.layout):
                return []
            width = full_zip.index_width(part.page.buffers[1][1], part.page.num_rows)
            return [part.range_of(1, *ends) for ends in full_zip.index_ranges(part.rows, width)]
        case ConstantLayout():
            return [part.range_of(buffer) for buffer in range(len(part.page.buffers))]
        case SparseLayout():
            if part.number in column.sparse_indexes:
                return []
            data = sparse.data_buffer(part.layout)
            return [part.range_of(buffer) for buffer in range(len(part.page.buffers)) if buffer != data]


def _lacks_index(column: Column, part: Part) -> bool:
    return isinstance(part.layout, MiniBlockLayout) and part.number not in column.indexes


@dataclass(frozen=True, slots=True)
class MiniBlockGroup:
    """Rows of neighbouring pages whose chunks are decoded together."""

    column: Column
    index: MiniBlockIndex
    selection: ChunkSelection
    spots: Spots

    @property
    def count(self) -> int:
        """Wanted rows."""
        return len(self.selection.rows)

    @property
    def bounds(self) -> tuple[int, int]:
        """The first of consecutive rows among those that the chunks hold, and the end."""
        first = int(self.selection.rows[0])
        return first, first + self.count

    @property
    def has_lists(self) -> bool:
        """True if there are lists around the leaf."""
        return _mini_block(self.index.layouts[0]).rep is not None

    @property
    def has_dictionary(self) -> bool:
        """True if values are places in dictionaries."""
        return self.index.dictionary is not None

    def decode(self, found: Found, shared: SharedLevels | None = None) -> pa.Array:
        """The wanted rows."""
        column, selection, rows = self.column, self.selection, self.selection.rows
        if not isinstance(rows, range) or len(rows) * _SPARSE < selection.num_rows:
            return to_arrow(self.decode_values(found, np.asarray(rows)), column.path, column.kind, len(rows))
        decoded = self.decode_values(found, None, shared=shared)
        if column.path.items_per_row > 1:  # chunks may begin inside of a row
            return to_arrow(cut(decoded, rows), column.path, column.kind, len(rows))
        return pick(to_arrow(decoded, column.path, column.kind, selection.num_rows, shared), rows)

    def wanted_values(self, found: Found) -> LeafValues | None:
        """The values of the wanted rows of pages without lists."""
        rows = self.selection.rows
        if isinstance(rows, range):
            return slice_leaf(self.decode_values(found, None).values, rows.start, rows.stop)
        return self.decode_values(found, rows).values

    def decode_values(
        self,
        found: Found,
        rows: Int64s | None,
        *,
        keeps_dictionary: bool = False,
        shared: SharedLevels | None = None,
    ) -> Decoded:
        """Some of the rows that the chunks hold, or all of them; see `mini_block.decode`."""
        keeps_dictionary = keeps_dictionary or self.column.is_dictionary
        run = self._run(found)
        return mini_block.decode(found.memory, run, rows=rows, keeps_dictionary=keeps_dictionary, shared=shared)

    def _run(self, found: Found) -> mini_block.ChunkRun:
        index, chunks = self.index, self.selection.chunks
        return mini_block.ChunkRun(
            layouts=index.layouts,
            bounds=np.searchsorted(chunks, index.bounds),
            starts=found.places(index.table.starts[chunks]),
            sizes=index.table.sizes[chunks],
            counts=index.table.counts[chunks],
            is_cut=self.selection.is_cut,
            dictionary=index.dictionary,
        )


@dataclass(frozen=True, slots=True)
class _FullZipGroup:
    """Rows of full-zip pages that are alike: where each starts and ends, or of one page, one after the other."""

    column: Column
    count: int
    layout: FullZipLayout
    bounds: tuple[Int64s, Int64s] | None
    spots: Spots

    def decode(self, found: Found, shared: SharedLevels | None = None) -> pa.Array:
        del shared  # it is about levels of chunks
        return to_arrow(self._decode(found), self.column.path, self.column.kind, self.count)

    def wanted_values(self, found: Found) -> LeafValues | None:
        """The values of the wanted rows of pages without lists."""
        return self._decode(found).values

    def _decode(self, found: Found) -> Decoded:
        count, kind = self.count, self.column.kind
        if self.bounds is None:
            start, size = int(found.places(self.spots.starts)[0]), int(self.spots.ends[0] - self.spots.starts[0])
            return full_zip.decode_even(self.layout, found.memory[start : start + size], count, kind)
        if full_zip.has_index(self.layout):
            starts = found.places(self.bounds[0])
            ends = starts + (self.bounds[1] - self.bounds[0])
            return full_zip.decode_rows(self.layout, found.memory, starts, ends, kind)
        step = full_zip.stride(self.layout)
        rows = gather_windows(found.memory, found.places(self.bounds[0]), step).reshape(-1)
        return full_zip.decode_even(self.layout, rows, count, kind)


@dataclass(frozen=True, slots=True)
class ConstantGroup:
    """Rows of one constant page."""

    column: Column
    part: Part
    layout: ConstantLayout
    buffers: list[Bytes]
    spots: Spots

    @property
    def count(self) -> int:
        """Wanted rows."""
        return len(self.part.rows)

    def of(self, kept: Int64s) -> ConstantGroup:
        """The same page with fewer rows wanted: those at some places among the consecutive rows that were."""
        return replace(self, part=self.part._replace(rows=kept + self.part.rows[0]))

    def decode(self, found: Found, shared: SharedLevels | None = None) -> pa.Array:
        """The wanted rows."""
        del found, shared  # there is no data beyond the index
        rows = self.part.rows
        decoded = constant.decode(
            self.layout, self.buffers, self.column.kind, num_rows=self.part.page.num_rows, rows=rows
        )
        return to_arrow(decoded, self.column.path, self.column.kind, len(rows))


@dataclass(frozen=True, slots=True)
class _SparseGroup:
    """Rows of one page of different values below sparse layers."""

    column: Column
    count: int
    rows: SparseRows
    values: MiniBlockGroup | _FullZipGroup | None
    spots: Spots

    def decode(self, found: Found, shared: SharedLevels | None = None) -> pa.Array:
        del shared  # it is about levels of chunks
        values = None if self.values is None else self.values.wanted_values(found)
        return to_arrow(self.rows.join(values), self.column.path, self.column.kind, self.count)


Group: TypeAlias = MiniBlockGroup | _FullZipGroup | ConstantGroup | _SparseGroup


def _group(column: Column, parts: list[Part], indexes: list[list[pa.Buffer]]) -> Iterator[Group]:
    """Put neighbouring parts together that can be decoded at once."""
    waiting: list[Part] = []
    waiting_bytes = waiting_items = 0
    for part, buffers in zip(parts, indexes, strict=True):
        layout = part.layout
        if isinstance(layout, MiniBlockLayout):
            waiting_bytes += part.page.buffers[1][1]
            waiting_items += layout.num_dictionary_items
            is_small = waiting_bytes <= _MAX_GROUP_BYTES and waiting_items <= _MAX_GROUP_ITEMS
            if waiting and not (is_small and mini_block.is_alike(_mini_block(waiting[0].layout), layout)):
                yield _mini_block_group(column, waiting)
                waiting, waiting_bytes, waiting_items = [], part.page.buffers[1][1], layout.num_dictionary_items
            waiting.append(part)
            continue
        if waiting:
            yield _mini_block_group(column, waiting)
            waiting, waiting_bytes, waiting_items = [], 0, 0
        index = [buffer_view(one, np.uint8) for one in buffers]
        match layout:
            case FullZipLayout():
                yield _full_zip_group(column, part, layout, index)
            case ConstantLayout():
                yield ConstantGroup(column, part, layout, index, _NOWHERE)
            case SparseLayout():
                yield _sparse_group(column, part, layout, buffers)
    if waiting:
        yield _mini_block_group(column, waiting)


def _mini_block(layout: PageLayout) -> MiniBlockLayout:
    assert isinstance(layout, MiniBlockLayout)  # noqa: S101 - groups are built from such pages alone
    return layout


def load_indexes(missing: Sequence[tuple[Column, Part]], buffers: Sequence[Sequence[pa.Buffer]]) -> None:
    """Keep the indexes of mini-block pages.

    Args:
        missing: The pages, with their columns.
        buffers: For each what `index_ranges` asked for.
    """
    alike: dict[tuple[bool, bool], list[tuple[Column, Part, MiniBlockLayout, list[Bytes]]]] = {}
    for (column, part), own in zip(missing, buffers, strict=True):
        layout = _mini_block(part.layout)
        if layout.rep is not None and not layout.has_repetition_index:
            raise CorruptDataError("a page with lists has no repetition index")
        views = [buffer_view(one, np.uint8) for one in own]
        alike.setdefault((layout.has_large_chunk, layout.rep is None), []).append((column, part, layout, views))
    for pages in alike.values():
        tables = chunk_table.page_tables([_page_words(*page) for page in pages])
        items = mini_block.decode_dictionaries(
            [(layout, views[layout.dictionary is not None]) for _, _, layout, views in pages]
        )
        for (column, part, layout, _), table, dictionary in zip(pages, tables, items, strict=True):
            index = MiniBlockIndex(
                layouts=(layout,),
                bounds=np.array([0, table.grid.shape[1]]),
                table=table,
                dictionary=dictionary,
                kind=_kind(column, layout),
            )
            column.indexes[part.number] = index if column.held is None else column.held.keep(index)


def _page_words(column: Column, part: Part, layout: MiniBlockLayout, buffers: list[Bytes]) -> PageWords:
    position, size = part.page.buffers[1]
    return PageWords(
        words=buffers[0],
        is_large=layout.has_large_chunk,
        index=None if layout.rep is None else buffers[-1],
        num_items=layout.num_items,
        num_rows=part.page.num_rows,
        data_size=size,
        position=position,
        first_row=int(column.first_rows[part.number]),
    )


def _kind(column: Column, layout: MiniBlockLayout) -> object:
    key = (layout.values, layout.definition, layout.layers, layout.dictionary is None, layout.has_large_chunk)
    key = (*key, layout.num_buffers, layout.rep, layout.blob_layers)
    return column.kinds.setdefault(key, key)


def _column_rows(column: Column, parts: list[Part]) -> Rows:
    """The rows of neighbouring parts, counted from the column's first one."""
    firsts = column.first_rows[[part.number for part in parts]].tolist()
    if isinstance(parts[0].rows, range):
        # Between the first and the last page of a range all rows are wanted.
        return range(firsts[0] + parts[0].rows[0], firsts[-1] + int(parts[-1].rows[-1]) + 1)
    rows = [first + np.asarray(part.rows) for first, part in zip(firsts, parts, strict=True)]
    return rows[0] if len(rows) == 1 else np.concatenate(rows)


def _mini_block_group(column: Column, parts: list[Part]) -> MiniBlockGroup:
    wanted = _column_rows(column, parts)
    numbers = tuple([part.number for part in parts])
    index = join_indexes(column, numbers, is_kept=not isinstance(wanted, range))
    selection = chunk_table.select_rows(index.table, wanted)
    spots = Spots(*chunk_table.byte_ranges(index.table, selection.chunks))
    return MiniBlockGroup(column, index, selection, spots)


def _full_zip_group(column: Column, part: Part, layout: FullZipLayout, index: list[Bytes]) -> _FullZipGroup:
    base, size = part.page.buffers[0]
    count = len(part.rows)
    if index:
        width = full_zip.index_width(part.page.buffers[1][1], part.page.num_rows)
        starts, ends = full_zip.row_ranges(index, part.rows, width, size)
        bounds = (starts + base, ends + base)
        return _FullZipGroup(column, count, layout, bounds, touching(*bounds))
    step = full_zip.stride(layout)
    if step * part.page.num_rows > size:
        raise CorruptDataError(f"a page of {size} bytes cannot hold {part.page.num_rows} rows")
    if isinstance(part.rows, range):
        ends = np.array([part.rows.start, part.rows.stop]) * step + base
        return _FullZipGroup(column, count, layout, None, Spots(ends[:1], ends[1:]))
    starts = part.rows * step + base
    return _FullZipGroup(column, count, layout, (starts, starts + step), Spots(starts, starts + step))


def _load_sparse_index(column: Column, part: Part, layout: SparseLayout, buffers: list[pa.Buffer]) -> SparseIndex:
    """Keep the index of a page with sparse layers, from all its buffers but that of the values."""
    own, data = sparse.value_buffers(layout), sparse.data_buffer(layout)
    buffers = [*buffers[:data], pa.py_buffer(b""), *buffers[data:]]
    page = sparse.decode_page(layout, [buffer_view(one, np.uint8) for one in buffers], part.page.num_rows)
    values, of_values = replace(layout.values, num_items=page.num_values), [buffers[at] for at in own if at != data]
    index = SparseIndex(page, values, None, None)
    if isinstance(values, MiniBlockLayout):
        inner = _inner(column, part, layout, index)
        load_indexes([(inner, Part(0, inner.pages[0], values, range(0)))], [of_values])
        index = replace(index, chunks=inner.indexes[0])
    elif of_values:
        index = replace(index, rows=buffer_view(of_values[0], np.uint8).copy())  # without the file's memory
    column.sparse_indexes[part.number] = index
    if column.held is not None:
        column.held.num_bytes += index.num_bytes
    return index


def _inner(column: Column, part: Part, layout: SparseLayout, index: SparseIndex) -> Column:
    """The page of values of a page with sparse layers, as a column of its own."""
    own = sparse.value_buffers(layout)
    page = replace(part.page, buffers=part.page.buffers[own.start : own.stop], num_rows=index.page.num_values)
    return replace(
        column.fresh(),
        pages=(page,),
        first_rows=np.array([0, page.num_rows]),
        layouts={0: index.layout},
        indexes={} if index.chunks is None else {0: index.chunks},
        sparse_indexes={},
        held=None if column.held is None else Held(),  # what is kept has memory of its own, and is counted once
    )


def _sparse_group(column: Column, part: Part, layout: SparseLayout, buffers: list[pa.Buffer]) -> _SparseGroup:
    """The rows of a page of values that rows of a page with sparse layers need."""
    index = column.sparse_indexes.get(part.number) or _load_sparse_index(column, part, layout, buffers)
    rows = index.page.find(part.rows)
    if not len(rows.values):
        return _SparseGroup(column, len(part.rows), rows, None, _NOWHERE)
    inner = _inner(column, part, layout, index)
    inside = Part(0, inner.pages[0], index.layout, rows.values)
    if isinstance(index.layout, MiniBlockLayout):
        group = _mini_block_group(inner, [inside])
    else:
        parts: list[Bytes] = []
        if index.rows is not None:
            width = full_zip.index_width(len(index.rows), index.page.num_values)
            parts = [index.rows[start:end] for start, end in full_zip.index_ranges(rows.values, width)]
        group = _full_zip_group(inner, inside, index.layout, parts)
    return _SparseGroup(column, len(part.rows), rows, group, group.spots)


def _merged(groups: Iterable[Group]) -> Iterator[Group]:
    """Single rows of neighbouring full-zip pages that are alike as one group."""
    waiting: list[_FullZipGroup] = []
    for group in groups:
        single = group if isinstance(group, _FullZipGroup) and group.bounds is not None else None
        if waiting and not (single and full_zip.is_alike(waiting[0].layout, single.layout)):
            yield _merge(waiting)
            waiting = []
        if single:
            waiting.append(single)
        else:
            yield group
    if waiting:
        yield _merge(waiting)


def _merge(groups: list[_FullZipGroup]) -> _FullZipGroup:
    if len(groups) == 1:
        return groups[0]
    bounds = [one.bounds for one in groups if one.bounds is not None]
    starts, ends = (np.concatenate([pair[side] for pair in bounds]) for side in (0, 1))
    count = sum(one.count for one in groups)
    return _FullZipGroup(groups[0].column, count, groups[0].layout, (starts, ends), touching(starts, ends))
