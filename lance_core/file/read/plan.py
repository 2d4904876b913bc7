"""The plan of every read of files of version 2.1 and 2.2: rows -> pages -> chunks -> byte ranges -> arrays; pure.

A plan asks twice: for what tells where rows are (chunk tables, repetition indexes, dictionaries), unless it is known,
then for the data. Two kernels decode them, behind one seam (`Job`): the scalar one value by value, the vector one with
steps that columns share (`batches`) or column by column (`groups`).
"""

from __future__ import annotations

from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.common.late_module import LateModule
from lance_core.encoding.layouts.shared_levels import SharedLevels
from lance_core.encoding.leaves import join_leaves
from lance_core.encoding.plans import together
from lance_core.file.read import strategy
from lance_core.file.read.batches import batch_jobs
from lance_core.file.read.column_read import PLAIN, ColumnRead, ReadOptions, find_pages
from lance_core.file.read.direct import DirectJob
from lance_core.file.read.field_reader import pick_joined, selected_rows
from lance_core.file.read.groups import group_jobs, joined_jobs
from lance_core.file.read.page_index import PageRead, decode_indexes, index_ranges
from lance_core.file.read.page_runs import page_runs
from lance_core.format.file.page_layout import MiniBlockLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.plans import Plan, Ranges, ReadPlan, Rows
    from lance_core.encoding.values import Int64s
    from lance_core.file.read import scalar
    from lance_core.file.read.cache import PageCache
    from lance_core.file.read.column import Column, PageSlice
    from lance_core.file.read.column_read import Job
    from lance_core.file.read.field_reader import FieldReader
    from lance_core.file.read.field_shapes import FieldShape
    from lance_core.file.read.page_runs import PageRun, PagesRead
else:  # what reads single rows, unless pages are constant
    scalar = LateModule("lance_core.file.read.scalar")


@frozen
class LeavesField:
    """One top-level field of a projection in one file, put together from its leaves.

    Attributes:
        shape: The field.
        leaves: Its leaves with their cache entries.
        num_leaves: How many there are.
    """

    shape: FieldShape
    leaves: Sequence[tuple[Column, PageCache]]
    num_leaves: int

    @property
    def columns(self) -> list[Column]:
        """Its leaves."""
        return [column for column, _ in self.leaves]

    @property
    def num_rows(self) -> int:
        """Rows that can be read."""
        return min([column.num_rows for column, _ in self.leaves])

    @property
    def is_known(self) -> bool:
        """True if nothing has to be read to find any of its rows."""
        return all(all(pages.ready) for _, pages in self.leaves)

    @property
    def stored_row_bytes(self) -> float:
        """Stored bytes of a row, in a leaf on average."""
        num_bytes = sum([column.num_bytes for column, _ in self.leaves])
        return num_bytes / max(1, self.num_rows) / self.num_leaves

    @property
    def widths(self) -> list[float]:
        """Decoded bytes of a row in each column, guessed."""
        if self.shape.width:
            return [self.shape.width]
        return [
            max(column.num_bytes / max(1, column.num_rows), leaf.least_width)
            * (strategy.LEVELS_SHARE if leaf.has_lists else 1)
            for (column, _), leaf in zip(self.leaves, self.shape.leaves, strict=True)
        ]

    def plan(self, rows: Rows) -> Plan:
        """Read at least one row; see `lance_core.file.read.field_reader.FieldReader`."""
        return (yield from plan_fields([self], rows))[0]

    def join(self, leaves: Sequence[list[pa.Array]]) -> list[pa.Array]:
        """Return the field, from the arrays of its leaves."""
        field, kind = self.shape.field, self.shape.kind
        if len(leaves) == 1:
            is_done = leaves[0][0].type == kind  # one object less that the garbage collector goes through
            return leaves[0] if is_done else [join_leaves(field, kind, [array]) for array in leaves[0]]
        whole = [arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays) for arrays in leaves]
        return [join_leaves(field, kind, whole)]


def are_known(fields: Sequence[FieldReader]) -> bool:
    """Return whether nothing has to be read to find any rows of fields of a file."""
    return all(isinstance(field, LeavesField) and field.is_known for field in fields)


def plan_rows(
    fields: Sequence[FieldReader], rows: Rows, selected: Int64s | None = None, *, bytes_beside: int = 0
) -> ReadPlan[list[list[pa.Array]]]:
    """Read rows of fields of a file of any version.

    Args:
        fields: As of `plan_fields`, as is the result.
        rows: At least one row.
        selected: Which of consecutive rows are wanted, counted from the first; None for all.
        bytes_beside: About so many bytes are read as fast as a row that is found by itself.
    """
    if selected is not None:  # what is before the first row that is wanted, or behind the last one, is not even fetched
        first, last = int(selected[0]), int(selected[-1])
        rows, selected = rows[first : last + 1], None if last - first == len(selected) - 1 else selected - first
    if fields and isinstance(fields[0], LeavesField):  # and so are the others
        return _plan_leaves(cast("Sequence[LeavesField]", fields), rows, selected, bytes_beside)
    plan = together([field.plan(rows) for field in fields])
    return plan if selected is None else selected_rows(plan, selected)


def plan_take(fields: Sequence[FieldReader], rows: Int64s) -> tuple[ReadPlan[list[list[pa.Array]]], bool]:
    """Read rows by themselves, or as ranges with what lies between them, of which it tells.

    Args:
        fields: As of `plan_rows`, as is the result of the plan.
        rows: At least one, ascending.
    """
    first, num_rows = int(rows[0]), len(rows)
    span = int(rows[-1]) + 1 - first
    if strategy.is_consecutive(num_rows, span):
        return plan_rows(fields, range(first, first + span)), True
    is_scalar = strategy.is_scalar(num_rows, len(fields), are_neighbours=span == num_rows)
    if not (is_scalar or strategy.are_fetched(num_rows, span)):
        widths = [width for field in fields for width in field.widths]
        if strategy.is_dense(num_rows, span, widths):
            return _plan_dense(fields, rows, strategy.kept_window_rows(widths, 1)), True
    return plan_rows(fields, rows), False


def _plan_dense(fields: Sequence[FieldReader], rows: Int64s, step: int) -> ReadPlan[list[list[pa.Array]]]:
    """Decode so many rows at once at most, and pick those that are wanted."""
    arrays: list[list[pa.Array]] = [[] for _ in fields]
    cuts = rows.searchsorted(np.arange(int(rows[0]), int(rows[-1]) + 1, step)).tolist()
    for low, high in pairwise([*cuts, len(rows)]):
        if low < high:
            some = range(int(rows[low]), int(rows[high - 1]) + 1)
            selected, beside = rows[low:high] - some.start, strategy.BYTES_OF_A_PICKED_VALUE
            parts = yield from plan_rows(fields, some, selected, bytes_beside=beside)
            for field_arrays, part in zip(arrays, parts, strict=True):
                field_arrays.extend(part)
    return arrays


def _plan_leaves(
    fields: Sequence[LeavesField], rows: Rows, selected: Int64s | None, bytes_beside: int
) -> ReadPlan[list[list[pa.Array]]]:
    """As `plan_fields`, but fields with large rows are asked for the selected ones only, not for all around them."""
    if selected is None or not isinstance(rows, range):
        return (yield from plan_fields(fields, rows, selected))
    is_apart = [strategy.are_apart(len(selected), len(rows), field.stored_row_bytes, bytes_beside) for field in fields]
    if not any(is_apart):
        return (yield from plan_fields(fields, rows, selected))
    wanted = selected + rows.start
    if all(is_apart):
        return (yield from plan_fields(fields, wanted))
    apart = [field for field, is_one in zip(fields, is_apart, strict=True) if is_one]
    others = [field for field, is_one in zip(fields, is_apart, strict=True) if not is_one]
    both = yield from together([plan_fields(apart, wanted), plan_fields(others, rows, selected)])
    picked, read = map(iter, both)
    return [next(picked if is_one else read) for is_one in is_apart]


def plan_fields(
    fields: Sequence[LeavesField], rows: Rows, selected: Int64s | None = None
) -> ReadPlan[list[list[pa.Array]]]:
    """Read rows of fields.

    Args:
        fields: The fields; indexes that are read are kept in their cache entries.
        rows: At least one row.
        selected: Which of consecutive rows are wanted, counted from the first; None for all.

    Returns:
        For each field arrays that hold the rows one after the other.
    """
    columns = [ColumnRead(column, pages, rows) for field in fields for column, pages in field.leaves]
    ends = list(accumulate([field.num_leaves for field in fields]))
    reads = [columns[low:high] for low, high in pairwise([0, *ends])]
    yield from _load_indexes(columns)
    arrays = [leaves[0].arrays for leaves in reads]
    jobs: list[Job] = []
    left: Sequence[int] = range(len(fields))
    is_late = selected is not None and strategy.is_selected_late(len(rows))
    if isinstance(rows, range) and (selected is None or is_late):
        direct = DirectJob()
        left = [
            number
            for number, field in enumerate(fields)
            if field.num_leaves > 1 or not direct.takes(reads[number][0], arrays[number])
        ]
        jobs += [direct] if direct.is_needed else []
    elif not isinstance(rows, range) and len(rows) <= strategy.MOST_DIRECT_ROWS:
        are_neighbours = int(rows[-1]) - int(rows[0]) == len(rows) - 1
        is_scalar = strategy.is_scalar(len(rows), len(columns), are_neighbours=are_neighbours)
        gathers = strategy.gathers_values(len(columns), is_scalar=is_scalar)
        direct = DirectJob()
        left = [
            number
            for number, field in enumerate(fields)
            if not (gathers and field.num_leaves == 1 and direct.takes(reads[number][0], arrays[number]))
        ]
        jobs += [direct] if direct.is_needed else []
        if one_by_one := [number for number in left if is_scalar or all(read.is_constant for read in reads[number])]:
            job = scalar.ScalarJob(rows)
            taken = {number for number in one_by_one if job.takes(fields[number].shape, reads[number], arrays[number])}
            left = [number for number in left if number not in taken]
            jobs += [job] if job.is_needed else []
    if left:
        jobs += _vector_jobs([reads[number] for number in left], rows, None if is_late else selected)
    yield from _decode(jobs)
    for number in left:
        arrays[number] = fields[number].join([read.arrays for read in reads[number]])
    return [pick_joined(array, selected) for array in arrays] if is_late else arrays


def _vector_jobs(fields: Sequence[Sequence[ColumnRead]], rows: Rows, selected: Int64s | None) -> list[Job]:
    """Return what decodes the leaves of fields with arrays."""
    options = PLAIN if selected is None else ReadOptions(selected=selected)
    shared: list[ColumnRead] = []
    alone: list[ColumnRead] = []
    num_alike = sum([len(reads) == 1 for reads in fields]) if selected is None else 0
    for reads in fields:
        if isinstance(rows, range) and len(reads) > 1:
            levels = SharedLevels()
            for read in reads:
                read.levels = levels
        (shared if strategy.is_batched(rows, len(reads), num_alike) else alone).extend(reads)
    jobs, others = batch_jobs(shared, options)
    return jobs + [job for read in [*others, *alone] for job in group_jobs(read, options)]


def plan_ranges(fields: Sequence[LeavesField], ranges: Sequence[range]) -> ReadPlan[list[list[list[pa.Array]]]]:
    """Read ranges of rows of fields at one go.

    Args:
        fields: The fields.
        ranges: Each of at least one row, in any order.

    Returns:
        For each range and each field arrays that hold the rows one after the other.
    """
    reads = [
        [[ColumnRead(column, pages, rows) for column, pages in field.leaves] for field in fields] for rows in ranges
    ]
    columns = [read for wanted in reads for leaves in wanted for read in leaves]
    yield from _load_indexes(columns)
    jobs, others = batch_jobs(columns, PLAIN)
    yield from _decode(jobs + [job for read in others for job in group_jobs(read, PLAIN)])
    return [
        [field.join([read.arrays for read in leaves]) for field, leaves in zip(fields, wanted, strict=True)]
        for wanted in reads
    ]


def plan_files(
    fields: Sequence[LeavesField], leaves: Sequence[Sequence[ColumnRead | PagesRead]]
) -> ReadPlan[list[list[pa.Array]]]:
    """Read some rows of the same fields of files whose bytes cost more than requests.

    Args:
        fields: The fields in one of the files.
        leaves: For each leaf of all fields its reads in all files; those whose rows are there already are passed over.

    Returns:
        For each field arrays that hold the rows of all files, one after the other.
    """
    runs, columns = page_runs(leaves)
    yield from _load_indexes(columns, runs)
    options = ReadOptions(is_near=True)
    jobs, others = batch_jobs(columns, options)
    yield from _decode([*runs, *jobs, *[job for read in others for job in group_jobs(read, options)]])
    arrays = iter([list(chain.from_iterable([read.arrays for read in reads])) for reads in leaves])
    return [field.join([next(arrays) for _ in range(field.num_leaves)]) for field in fields]


def plan_column(column: Column, pages: PageCache, rows: range, options: ReadOptions = PLAIN) -> ReadPlan[list[Any]]:
    """Read consecutive rows of one leaf.

    Returns:
        Arrays that hold the rows one after the other; `DictionaryEncoded` ones among them if dictionaries are kept.
    """
    read = ColumnRead(column, pages, rows)
    yield from _load_indexes([read])
    yield from _decode(group_jobs(read, options))
    return read.arrays


def plan_joined(reads: Sequence[ColumnRead]) -> ReadPlan[list[Any]]:
    """Read all rows of one leaf in several files; arguments as of `joined_jobs`, result as of `plan_column`."""
    yield from _load_indexes(reads)
    yield from _decode(joined_jobs(reads, ReadOptions(keeps_dictionaries=True)))
    return [array for read in reads for array in read.arrays]


def plan_dictionary(field: FieldReader, rows: range) -> ReadPlan[list[Any]]:
    """Read consecutive rows of one field of a file of any version; dictionary-encoded values may stay so."""
    if isinstance(field, LeavesField) and field.num_leaves == 1 and field.leaves[0][0].is_plain:
        return plan_column(*field.leaves[0], rows, ReadOptions(keeps_dictionaries=True))
    return field.plan(rows)


def _load_indexes(reads: Sequence[ColumnRead], runs: Sequence[PageRun] = ()) -> ReadPlan[None]:
    """Find the pages that hold rows, and read what tells where the rows are, as far as it is not known."""
    missing: list[tuple[ColumnRead, PageSlice, Ranges]] = []
    for read, part in find_pages(reads):
        if ranges := index_ranges(part):
            missing.append((read, part, ranges))
        else:
            read.pages.ready[part.number] = 1
    if not missing and not runs:
        return  # one read less
    wanted = [(start + read.base, end + read.base) for read, _, ranges in missing for start, end in ranges]
    buffers = iter((yield [*wanted, *[run.index_ranges for run in runs]]))
    chunked: list[tuple[ColumnRead, PageRead]] = []
    for read, part, ranges in missing:
        column_buffers = [next(buffers) for _ in ranges]
        if isinstance(part.layout, MiniBlockLayout):
            first_row = int(read.column.first_rows[part.number])
            chunked.append((read, PageRead(part, first_row, column_buffers, read.pages.kinds)))
        else:
            read.buffers = {**(read.buffers or {}), part.number: column_buffers}
    indexes = decode_indexes([page for _, page in chunked])
    for (read, page), index in zip(chunked, indexes, strict=True):
        read.pages.keep_index(page.part.number, index)
    for run in runs:
        run.find_rows(next(buffers))


def _decode(jobs: Sequence[Job]) -> ReadPlan[None]:
    """Read the bytes of all rows at one go, and decode them."""
    for job, buffers in zip(jobs, (yield [job.ranges for job in jobs]), strict=True):
        job.decode(buffers)
