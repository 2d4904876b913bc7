"""The vector kernel for one column: pages that are alike, decoded at one go; pure.

Items of dictionaries are looked up late: rows that are not selected cost no look-up, and what is asked of values can be
asked of each item once.
"""

from __future__ import annotations

from dataclasses import field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.encoding.arrow_values import buffer_view, from_values, settled, slice_leaf, take_values
from lance_core.encoding.dictionary_encoded import DictionaryEncoded
from lance_core.encoding.kernels import empty, gather_windows, starts_of
from lance_core.encoding.layouts import chunk_table, constant, full_zip, mini_block
from lance_core.encoding.layouts.chunk_table import ChunkTable
from lance_core.encoding.layouts.page import cut, pick, to_arrow
from lance_core.encoding.layouts.shared_levels import LeafLevels
from lance_core.encoding.plans import ByteRanges, touching
from lance_core.encoding.repdef import check_levels, unravel
from lance_core.encoding.values import DictionaryValues
from lance_core.errors import CorruptDataError
from lance_core.file.read import strategy
from lance_core.file.read.column import items_of
from lance_core.file.read.column_read import NO_RANGES
from lance_core.file.read.page_index import (
    PageRead,
    decode_sparse_index,
    join_indexes,
    mini_block_layout,
    values_slice,
)
from lance_core.format.file.page_layout import ConstantLayout, FullZipLayout, MiniBlockLayout, SparseLayout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from lance_core.encoding.layouts.chunk_table import ChunkSelection
    from lance_core.encoding.layouts.page import Decoded
    from lance_core.encoding.layouts.shared_levels import SharedLevels
    from lance_core.encoding.layouts.sparse import SparseRows
    from lance_core.encoding.plans import RangeBuffers, Rows
    from lance_core.encoding.values import Bytes, Int64s, LeafValues
    from lance_core.file.read.column import Column, PageSlice
    from lance_core.file.read.column_read import ColumnRead, ReadOptions
    from lance_core.file.read.page_index import MiniBlockIndex


@frozen
class MiniBlockGroup:
    """Rows of neighbouring pages whose chunks are decoded together."""

    column: Column
    index: MiniBlockIndex
    selection: ChunkSelection
    ranges: ByteRanges

    @property
    def count(self) -> int:
        """Wanted rows."""
        return len(self.selection.rows)

    @property
    def has_lists(self) -> bool:
        """True if there are lists around the leaf."""
        return self.index.layouts[0].rep is not None

    def decode(self, buffers: RangeBuffers, shared: SharedLevels | None = None) -> pa.Array:
        """Decode the wanted rows."""
        column, selection, rows = self.column, self.selection, self.selection.rows
        if not self._decodes_all(rows):
            return to_arrow(self.decode_values(buffers, np.asarray(rows)), column.path, column.kind, len(rows))
        if isinstance(rows, range) and shared is not None and selection.is_cut is not None:
            decoded = self.decode_values(buffers, None, leaf=self._leaf_levels(rows, shared))
            return to_arrow(decoded, column.path, column.kind, len(rows), shared)
        decoded = self.decode_values(buffers, None)
        if isinstance(rows, range) and column.path.items_per_row > 1:  # chunks may begin inside of a row
            return to_arrow(cut(decoded, rows), column.path, column.kind, len(rows))
        array = to_arrow(decoded, column.path, column.kind, selection.num_rows, shared)
        return pick(array if isinstance(rows, range) else settled(array), rows)

    def _leaf_levels(self, rows: range, shared: SharedLevels) -> LeafLevels:
        """Return what finds the levels of consecutive rows, counted among those of the chunks."""
        selection = self.selection
        first = int(self.index.table.first_rows[selection.chunks[0]])
        first -= 0 if selection.is_cut is None else int(selection.is_cut[0])
        in_column, num_behind = range(first + rows.start, first + rows.stop), selection.num_rows - rows.stop
        return LeafLevels(shared, self.column.path, in_column, rows.start, num_behind)

    def _decodes_all(self, rows: Rows) -> bool:
        """Return whether all rows of the chunks are decoded, and the wanted ones picked out of them."""
        may_pick = self.has_lists or isinstance(rows, range)
        return may_pick and not strategy.is_sparse(len(rows), self.selection.num_rows)

    def decode_selected(self, buffers: RangeBuffers, selected: Int64s, shared: SharedLevels | None) -> pa.Array:
        """Decode some of consecutive rows, counted from the first of them."""
        if self.has_lists:
            return _pick_rows(self.column, self.decode(buffers, shared), selected)
        decoded = self.decode_values(buffers, _shifted(selected, int(self.selection.rows[0])))
        return to_arrow(decoded, self.column.path, self.column.kind, len(selected))

    def decode_dictionary(self, buffers: RangeBuffers) -> DictionaryEncoded:
        """Decode consecutive rows of pages with dictionaries, without looking their items up."""
        column, first = self.column, int(self.selection.rows[0])
        decoded, here = self.decode_values(buffers, None), slice(first, first + self.count)
        values = decoded.values
        if not isinstance(values, DictionaryValues):
            raise CorruptDataError(f"field {column.path.leaf.name!r}: a page with a dictionary has none")
        check_levels(decoded.levels)
        validity = unravel(decoded.levels, decoded.num_slots)[0].validity
        items = from_values(values.items, column.kind, None, len(values.items))
        return DictionaryEncoded(items, values.indices.data[here], None if validity is None else validity[here])

    def wanted_values(self, buffers: RangeBuffers) -> LeafValues | None:
        """Decode the values of the wanted rows of pages without lists."""
        rows = self.selection.rows
        if isinstance(rows, range):
            values = slice_leaf(self.decode_values(buffers, None).values, rows.start, rows.stop)
        else:
            values = self.decode_values(buffers, rows).values
        if isinstance(values, DictionaryValues) and not self.column.is_dictionary:
            return take_values(values.items, values.indices.data)
        return values

    def decode_values(
        self,
        buffers: RangeBuffers,
        rows: Int64s | None,
        *,
        leaf: LeafLevels | None = None,
    ) -> Decoded:
        """Decode some of the rows that the chunks hold, or all of them; see `mini_block.decode`."""
        index, chunks = self.index, self.selection.chunks
        run = mini_block.ChunkRun(
            layouts=index.layouts,
            bounds=np.searchsorted(chunks, index.bounds),
            starts=buffers.in_memory(index.table.starts[chunks]),
            sizes=index.table.sizes[chunks],
            counts=index.table.counts[chunks],
            is_cut=self.selection.is_cut,
            dictionary=index.dictionary,
        )
        return mini_block.decode(buffers.memory, run, rows=rows, leaf=leaf)


@frozen
class _FullZipGroup:
    """Rows of full-zip pages that are alike: where each starts and ends, or of one page, one after the other."""

    column: Column
    count: int
    layout: FullZipLayout
    bounds: tuple[Int64s, Int64s] | None
    ranges: ByteRanges

    def decode(self, buffers: RangeBuffers, shared: SharedLevels | None = None) -> pa.Array:
        del shared  # it is about levels of chunks
        return to_arrow(self._decode(buffers), self.column.path, self.column.kind, self.count)

    def decode_selected(self, buffers: RangeBuffers, selected: Int64s, shared: SharedLevels | None) -> pa.Array:
        return _pick_rows(self.column, self.decode(buffers, shared), selected)

    def wanted_values(self, buffers: RangeBuffers) -> LeafValues | None:
        """Decode the values of the wanted rows of pages without lists."""
        return self._decode(buffers).values

    def _decode(self, buffers: RangeBuffers) -> Decoded:
        count, kind = self.count, self.column.kind
        if self.bounds is None:
            start, size = (
                int(buffers.in_memory(self.ranges.starts)[0]),
                int(self.ranges.ends[0] - self.ranges.starts[0]),
            )
            return full_zip.decode_even(self.layout, buffers.memory[start : start + size], count, kind)
        if full_zip.has_index(self.layout):
            starts = buffers.in_memory(self.bounds[0])
            ends = starts + (self.bounds[1] - self.bounds[0])
            return full_zip.decode_rows(self.layout, buffers.memory, starts, ends, kind)
        step = full_zip.stride(self.layout)
        rows = gather_windows(buffers.memory, buffers.in_memory(self.bounds[0]), step).reshape(-1)
        return full_zip.decode_even(self.layout, rows, count, kind)


@frozen
class _ConstantGroup:
    """Rows of one constant page."""

    column: Column
    part: PageSlice
    layout: ConstantLayout
    buffers: list[Bytes]
    ranges: ByteRanges = NO_RANGES

    @property
    def count(self) -> int:
        return len(self.part.rows)

    def decode(self, buffers: RangeBuffers, shared: SharedLevels | None = None) -> pa.Array:
        del buffers, shared  # there is no data beyond the index
        rows, column = self.part.rows, self.column
        decoded = constant.decode(self.layout, self.buffers, column.kind, num_rows=self.part.page.num_rows, rows=rows)
        return to_arrow(decoded, column.path, column.kind, len(rows))

    def decode_selected(self, buffers: RangeBuffers, selected: Int64s, shared: SharedLevels | None) -> pa.Array:
        rows = selected + self.part.rows[0]
        return replace(self, part=self.part._replace(rows=rows)).decode(buffers, shared)


@frozen
class _SparseGroup:
    """Rows of one page of different values below sparse layers."""

    column: Column
    count: int
    rows: SparseRows
    values: MiniBlockGroup | _FullZipGroup | None

    @property
    def ranges(self) -> ByteRanges:
        return NO_RANGES if self.values is None else self.values.ranges

    def decode(self, buffers: RangeBuffers, shared: SharedLevels | None = None) -> pa.Array:
        del shared  # it is about levels of chunks
        values = None if self.values is None else self.values.wanted_values(buffers)
        return to_arrow(self.rows.join(values), self.column.path, self.column.kind, self.count)

    def decode_selected(self, buffers: RangeBuffers, selected: Int64s, shared: SharedLevels | None) -> pa.Array:
        return _pick_rows(self.column, self.decode(buffers, shared), selected)


_Group: TypeAlias = MiniBlockGroup | _FullZipGroup | _ConstantGroup | _SparseGroup


def _pick_rows(column: Column, array: pa.Array, items: Int64s) -> pa.Array:
    """Return some rows of an array, given as items of its rows; pages of this kind hold whole rows."""
    per_row = column.path.items_per_row
    return pick(settled(array), items if per_row == 1 else items[::per_row] // per_row)


def _shifted(rows: Int64s, by: int) -> Int64s:
    return np.add(rows, by, out=empty(len(rows), np.int64)) if by else rows


@frozen
class GroupJob:
    """One group of a column.

    Attributes:
        read: The column.
        group: The rows.
        selected: Which of them are wanted, counted from the group's first one; None for all.
        keeps_dictionary: Return dictionary-encoded values as such.
        positions: Positions among the arrays of the column, each with its number of rows; empty for the next one.
    """

    read: ColumnRead
    group: _Group
    selected: Int64s | None
    keeps_dictionary: bool
    positions: dict[int, int] = field(default_factory=dict)

    @property
    def ranges(self) -> ByteRanges:
        """The byte ranges of the rows."""
        ranges, base = self.group.ranges, self.read.base
        return ByteRanges(ranges.starts + base, ranges.ends + base) if base else ranges

    def decode(self, buffers: RangeBuffers) -> None:
        """Decode the rows."""
        read, group = self.read, self.group
        page_buffers = buffers.moved(-read.base) if read.base else buffers
        array: Any
        if self.selected is not None and len(self.selected):
            array = group.decode_selected(page_buffers, self.selected, read.levels)
        elif self.selected is not None:
            array = pick(settled(group.decode(page_buffers, read.levels)), self.selected)
        elif self.keeps_dictionary and isinstance(group, MiniBlockGroup) and group.index.dictionary is not None:
            array = group.decode_dictionary(page_buffers)
        else:
            array = group.decode(page_buffers, read.levels)
        if not self.positions:
            read.arrays.append(array)
        start = 0
        for position, count in self.positions.items():
            read.arrays[position] = array.slice(start, count)
            start += count


def group_jobs(read: ColumnRead, options: ReadOptions) -> list[GroupJob]:
    """Put neighbouring pages of a column together that can be decoded at once."""
    column = read.column
    keeps = options.keeps_dictionaries and column.is_plain and not column.is_dictionary
    if not isinstance(read.rows, range) and len(read.slices) > 1:
        return _scattered_jobs(read)
    groups = list(_merged(_groups(read, read.slices)))
    if options.selected is None:
        return [GroupJob(read, group, None, keeps) for group in groups]
    selected = items_of(options.selected, column.path.items_per_row)
    bounds = starts_of(np.array([group.count for group in groups]))
    cuts = pairwise(selected.searchsorted(bounds).tolist())
    return [
        GroupJob(read, group, _shifted(selected[low:high], -first), keeps)
        for group, first, (low, high) in zip(groups, bounds[:-1].tolist(), cuts, strict=True)
    ]


def _scattered_jobs(read: ColumnRead) -> list[GroupJob]:
    """Put pages together that are alike, wherever they are; their rows go where those of their pages belong."""
    kinds: dict[object, list[int]] = {}
    for number, part in enumerate(read.slices):
        index = read.pages.indexes.get(part.number)
        kinds.setdefault(type(part.layout) if index is None else index.kind, []).append(number)
    jobs: list[GroupJob] = []
    job_of: dict[int, GroupJob] = {}
    for alike in kinds.values():
        numbers = iter(alike)
        for group in _merged(_groups(read, [read.slices[number] for number in alike])):
            jobs.append(GroupJob(read, group, None, keeps_dictionary=False))
            num_left = group.count
            while num_left:
                number = next(numbers)
                job_of[number], num_left = jobs[-1], num_left - len(read.slices[number].rows)
    last = None
    for number, part in enumerate(read.slices):
        job = job_of[number]
        if job is not last:
            read.arrays.append(None)
        last, at = job, len(read.arrays) - 1
        job.positions[at] = job.positions.get(at, 0) + len(part.rows) // read.column.path.items_per_row
    return jobs


def joined_jobs(reads: Sequence[ColumnRead], options: ReadOptions) -> list[GroupJob]:
    """Put the pages of a leaf in several files together, as `group_jobs` does those of one file.

    Args:
        reads: All rows of the leaf in each file, by ascending bases; there are no lists around it.
        options: How they are read; nothing is selected.

    Returns:
        Jobs in the order of the rows; one for several files gives its array to the first of them.
    """
    jobs: list[GroupJob] = []
    waiting: list[ColumnRead] = []
    for read in [*reads, None]:
        if waiting and (read is None or not _are_alike([*waiting, read])):
            jobs += group_jobs(waiting[0], options) if len(waiting) == 1 else [_job_of_files(waiting, options)]
            waiting = []
        if read is not None:
            waiting.append(read)
    return jobs


def _are_alike(reads: Sequence[ColumnRead]) -> bool:
    """Return whether all pages of several files can be decoded at once."""
    parts = [part for read in reads for part in read.slices]
    layouts = [part.layout for part in parts if isinstance(part.layout, MiniBlockLayout)]
    return (
        len(layouts) == len(parts)
        and all(mini_block.is_alike(layouts[0], layout) for layout in layouts)
        and strategy.fits_group(
            sum([part.page.buffers[1][1] for part in parts]), sum([layout.num_dictionary_items for layout in layouts])
        )
    )


def _job_of_files(reads: Sequence[ColumnRead], options: ReadOptions) -> GroupJob:
    """Return the rows of several files as those of one column, whose positions count from the base of the first."""
    indexes: list[MiniBlockIndex] = []
    num_rows = 0
    for read in reads:
        shift = np.array([read.base - reads[0].base, 0, 0, num_rows, 0])[:, None]
        for part in read.slices:
            index = read.pages.indexes[part.number]
            indexes.append(replace(index, table=ChunkTable(grid=index.table.grid + shift, has_preamble=None)))
        num_rows += len(read.rows)
    group = chunk_group(reads[0].column, join_indexes(indexes), range(num_rows))
    return GroupJob(reads[0], group, None, options.keeps_dictionaries)


def _groups(read: ColumnRead, parts: Sequence[PageSlice]) -> Iterator[_Group]:
    waiting: list[PageSlice] = []
    num_bytes = num_items = 0
    for part in parts:
        layout = part.layout
        if isinstance(layout, MiniBlockLayout):
            size = part.page.buffers[1][1] * len(part.rows) // part.page.num_rows
            num_bytes += size
            num_items += layout.num_dictionary_items
            fits = strategy.fits_group(num_bytes, num_items)
            if waiting and not (fits and mini_block.is_alike(mini_block_layout(waiting[0].layout), layout)):
                yield _chunks_of_pages(read, waiting)
                waiting, num_bytes, num_items = [], size, layout.num_dictionary_items
            waiting.append(part)
            continue
        if waiting:
            yield _chunks_of_pages(read, waiting)
            waiting, num_bytes, num_items = [], 0, 0
        buffers = (read.buffers or {}).get(part.number, [])
        index = [buffer_view(buffer, np.uint8) for buffer in buffers]
        match layout:
            case FullZipLayout():
                yield _full_zip_group(read.column, part, layout, index)
            case ConstantLayout():
                yield _ConstantGroup(read.column, part, layout, index)
            case SparseLayout():
                yield _sparse_group(read, part, layout, buffers)
    if waiting:
        yield _chunks_of_pages(read, waiting)


def _chunks_of_pages(read: ColumnRead, parts: list[PageSlice]) -> MiniBlockGroup:
    firsts = read.column.first_rows[[part.number for part in parts]].tolist()
    rows: Rows
    if isinstance(parts[0].rows, range):
        # Between the first and the last page of a range all rows are wanted.
        rows = range(firsts[0] + parts[0].rows[0], firsts[-1] + int(parts[-1].rows[-1]) + 1)
    else:
        each = [first + np.asarray(part.rows) for first, part in zip(firsts, parts, strict=True)]
        rows = each[0] if len(each) == 1 else np.concatenate(each)
    numbers = tuple([part.number for part in parts])
    return chunk_group(read.column, read.pages.index_of(numbers, is_kept=not isinstance(rows, range)), rows)


def chunk_group(column: Column, index: MiniBlockIndex, rows: Rows) -> MiniBlockGroup:
    """Return rows of the pages of an index."""
    selection = chunk_table.select_rows(index.table, rows)
    return MiniBlockGroup(column, index, selection, ByteRanges(*chunk_table.byte_ranges(index.table, selection.chunks)))


def _full_zip_group(column: Column, part: PageSlice, layout: FullZipLayout, index: list[Bytes]) -> _FullZipGroup:
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
        return _FullZipGroup(column, count, layout, None, ByteRanges(ends[:1], ends[1:]))
    starts = part.rows * step + base
    return _FullZipGroup(column, count, layout, (starts, starts + step), ByteRanges(starts, starts + step))


def _sparse_group(
    read: ColumnRead, part: PageSlice, layout: SparseLayout, buffers: Sequence[pa.Buffer]
) -> _SparseGroup:
    """Return the rows of a page of values that rows of a page with sparse layers need."""
    index = read.pages.sparse_indexes.get(part.number)
    if index is None:
        index = decode_sparse_index(PageRead(part, 0, buffers, read.pages.kinds), layout)
        read.pages.keep_sparse_index(part.number, index)
    rows, column = index.page.find(part.rows), read.column
    if not len(rows.values):
        return _SparseGroup(column, len(part.rows), rows, None)
    if index.chunks is not None:
        return _SparseGroup(column, len(part.rows), rows, chunk_group(column, index.chunks, rows.values))
    inside = values_slice(part, layout, index.layout)._replace(rows=rows.values)
    parts: list[Bytes] = []
    if index.rows is not None:
        width = full_zip.index_width(len(index.rows), index.page.num_values)
        parts = [index.rows[start:end] for start, end in full_zip.index_ranges(rows.values, width)]
    assert isinstance(inside.layout, FullZipLayout)  # noqa: S101 - the others have chunks
    return _SparseGroup(column, len(part.rows), rows, _full_zip_group(column, inside, inside.layout, parts))


def _merged(groups: Iterable[_Group]) -> Iterator[_Group]:
    """Yield scattered rows of neighbouring full-zip pages that are alike as one group."""
    waiting: list[_FullZipGroup] = []
    for group in groups:
        scattered = group if isinstance(group, _FullZipGroup) and group.bounds is not None else None
        if waiting and not (scattered and full_zip.is_alike(waiting[0].layout, scattered.layout)):
            yield _merge(waiting)
            waiting = []
        if scattered:
            waiting.append(scattered)
        else:
            yield group
    if waiting:
        yield _merge(waiting)


def _merge(groups: list[_FullZipGroup]) -> _FullZipGroup:
    if len(groups) == 1:
        return groups[0]
    bounds = [group.bounds for group in groups if group.bounds is not None]
    starts, ends = (np.concatenate([pair[side] for pair in bounds]) for side in (0, 1))
    count = sum(group.count for group in groups)
    return _FullZipGroup(groups[0].column, count, groups[0].layout, (starts, ends), touching(starts, ends))
