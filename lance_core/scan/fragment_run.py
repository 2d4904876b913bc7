"""Small neighbouring fragments read as if they were one: to open and decode a file costs more than its few values."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from lance_core.encoding.kernels import starts_of, take_inside
from lance_core.file.read.field_reader import joined
from lance_core.file.read.field_shapes import shapes_of
from lance_core.file.read.strategy import MOST_HELD, MOST_ROWS_OF_A_RUN_PAGE
from lance_core.index.answer import ADDRESS_SHIFT
from lance_core.scan.candidates import candidate_ranges, residual_plan, scattered_candidates
from lance_core.scan.deletions import Offsets, live_mask
from lance_core.scan.fragment_reader import LEAVES_HAVE_SHAPES, FragmentReader, Rows
from lance_core.scan.take_together import MOST_LARGE_FILES, is_full, is_small, pays_together, take_together
from lance_core.table.once import once
from lance_core.table.read_ahead import in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from lance_core.encoding.repdef import Mask
    from lance_core.format.schema import Schema
    from lance_core.format.table.fragment import Fragment
    from lance_core.scan.columns import FilePart
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.plan import ScanPlan
    from lance_core.scan.take_together import FilesAtHand, RowsOfFragment

_SMALL_FILE_ROWS, _SMALL_FAR_FILE_ROWS, _SMALL_FILE_BYTES = 1 << 16, 1 << 15, 1 << 20
"""Rows of a file, and bytes of the columns that are read: more values cost more than the steps to decode them, which a
run shares. Two columns of numbers in files of 50,000 rows take seven tenths of the CPU time in a run; far stores fetch
and decode them together without one. Two of three columns of texts in files of 10,000 rows and 1.3 MB take six tenths;
vectors in files of 3 MB, which are mapped otherwise, take twice as much."""

_FIRST_RUN_ROWS, _RUN_ROWS, _RUN_VALUES = 1 << 13, 1 << 19, 1 << 23
"""Bounds of a run, unless batches may have more rows, which are in memory together. The first run of a stream is small,
so that the first batch comes early. Of files with pages of few rows all others are as large as they may be, since each
run takes steps of every column: a stream of 50 files of 10,000 rows takes a third less CPU time than with 2^17 rows and
2^21 values, one of files of 2,500 rows a tenth, and 50 MB more memory. Runs of far files double, so that some are
fetched while others are decoded."""

_NOT_SMALL: tuple[int | None, bool] = (None, False)

RowSource: TypeAlias = "FragmentReader | FragmentRun"
"""What a scan reads rows of."""


class FragmentRun:
    """Small fragments that follow one another; row offsets are counted from the first row of the first one.

    Args:
        files: The dataset's open files.
        readers: The fragments, each with one data file for all columns that will be asked for.
        is_narrow: Columns that are read of rows that match take more bytes than those that they are asked of.
        candidates: Shape (n,), the only rows that are looked at, since no others match; None for all. Indices leave the
            same parts of the predicate undecided in all of the fragments.
    """

    def __init__(
        self,
        files: OpenFiles,
        readers: Sequence[FragmentReader],
        *,
        is_narrow: bool = False,
        candidates: Offsets | None = None,
    ) -> None:
        self.readers = readers
        self.is_narrow = is_narrow
        self.candidates = candidates
        self._files = files
        self._at_hand: FilesAtHand = {}
        self._starts = starts_of(np.array([reader.physical_rows for reader in readers], np.int64))

    @property
    def physical_rows(self) -> int:
        """Rows of all fragments, deleted ones included."""
        return int(self._starts[-1])

    @property
    def stored_size(self) -> tuple[int, int]:
        """Bytes of all files, as far as the manifest knows, and the columns of one fragment."""
        sizes = [reader.stored_size for reader in self.readers]
        return sum([num_bytes for num_bytes, _ in sizes]), sizes[0][1]

    @property
    def held_bytes(self) -> int:
        """Stored bytes that a scan of all columns holds at the same time, at most."""
        return min(self.stored_size[0], MOST_HELD)

    @once
    def deleted(self) -> Offsets:
        """Offsets of the deleted rows, ascending."""
        starts = self._starts[:-1].tolist()
        return np.concatenate([reader.deleted + start for reader, start in zip(self.readers, starts, strict=True)])

    def live_mask(self, start: int, end: int) -> Mask | None:
        """Return a mask of the live rows of [start, end); None if all are live."""
        return live_mask(self.deleted, start, end)

    def values_by_fragment(self, projection: Schema) -> Iterator[tuple[FragmentReader, list[pa.Array]]]:
        """Read all rows, deleted ones included: columns of each fragment."""
        columns = self._read(projection, self._ranges(0, self.physical_rows))
        for reader, (low, high) in zip(self.readers, pairwise(self._starts.tolist()), strict=True):
            yield reader, [column.slice(low, high - low) for column in columns]

    def pieces(self, start: int, end: int, most_rows: int) -> Iterator[range]:
        """Cut rows [start, end) into those of which columns that the condition is not asked of are read together."""
        if not self.is_narrow:
            yield range(start, end)
            return
        for first, behind in pairwise(self._starts.tolist()):
            for low in range(max(first, start), min(behind, end), most_rows):
                yield range(low, min(low + most_rows, behind, end))

    def parts(self, offsets: Offsets) -> Iterator[tuple[FragmentReader, int, slice]]:
        """Return for each fragment the offset of its first row, and which of ascending row offsets lie in it."""
        cuts = offsets.searchsorted(self._starts).tolist()
        for reader, start, (low, high) in zip(self.readers, self._starts.tolist(), pairwise(cuts), strict=False):
            yield reader, start, slice(low, high)

    def by_address(self, addresses: npt.NDArray[np.uint64]) -> Iterator[tuple[FragmentReader, slice]]:
        """Return for each fragment which of row addresses, in the order of the run, lie in it; if there are any."""
        owners = addresses >> np.uint64(ADDRESS_SHIFT)
        starts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1])[: len(owners)])
        readers = {reader.fragment.id: reader for reader in self.readers}
        for start, end in pairwise([*starts.tolist(), len(owners)]):
            yield readers[int(owners[start])], slice(start, end)

    def split(self, offsets: Offsets) -> list[tuple[FragmentReader, Offsets]]:
        """Ascending row offsets by fragment, counted from its first row; fragments without any are left out."""
        return [
            (reader, offsets[rows] - start) for reader, start, rows in self.parts(offsets) if rows.start < rows.stop
        ]

    def scan(
        self, projection: Schema, *, start: int, end: int, batch_size: int, is_kept: bool = False
    ) -> Iterator[Rows]:
        """Read rows [start, end) in order; see `FragmentReader.scan`."""
        columns = self._read(projection, self._ranges(start, end))
        step = max(end - start, 1) if is_kept else batch_size
        for low in range(start, end, step):
            count = min(step, end - low)
            yield Rows(start=low, num_rows=count, values=[column.slice(low - start, count) for column in columns])

    def cursor(self, projection: Schema, *, end: int) -> Callable[[range, Offsets | None], list[pa.Array]]:
        """Read ranges of rows, which are `pieces` of a narrow run; see `FragmentReader.cursor`."""
        del end  # files of a run are read whole

        def read(rows: range, selected: Offsets | None) -> list[pa.Array]:
            if self.is_narrow:
                ((reader, inside),) = self._ranges(rows.start, rows.stop)
                return reader.cursor(projection, end=reader.physical_rows)(inside, selected)
            columns = self._read(projection, self._ranges(rows.start, rows.stop))
            return columns if selected is None else [take_inside(column, selected) for column in columns]

        return read

    def take(self, projection: Schema, offsets: Offsets) -> list[pa.Array]:
        """Read single rows by their ascending offsets."""
        if not projection.fields:
            return []
        wanted = self.split(offsets)
        if self._are_small or pays_together(wanted, projection, are_small=False):
            return self._read(projection, wanted)
        works = (partial(reader.taking, projection, rows) for reader, rows in wanted)
        return _joined([rows.columns for rows in in_turn(self._files.store, works)])

    @once
    def _are_small(self) -> bool:
        return all(is_small(reader.stored_size[0]) for reader in self.readers)

    def _ranges(self, start: int, end: int) -> list[tuple[FragmentReader, range]]:
        ranges: list[tuple[FragmentReader, range]] = []
        for reader, (low, high) in zip(self.readers, pairwise(self._starts.tolist()), strict=True):
            rows = range(max(start, low) - low, min(end, high) - low)
            if rows:
                ranges.append((reader, rows))
        return ranges

    def _read(self, projection: Schema, wanted: Sequence[RowsOfFragment]) -> list[pa.Array]:
        """Read rows of some of the fragments, one after the other."""
        columns = take_together(self._files, wanted, projection, self._at_hand) if len(wanted) > 1 else None
        if columns is not None:
            return columns
        return _joined([reader.take(projection, np.asarray(rows, np.int64)) for reader, rows in wanted])


def _joined(parts: Sequence[Sequence[pa.Array]]) -> list[pa.Array]:
    """Return columns of which each fragment has a part."""
    return [joined(list(arrays)) for arrays in zip(*parts, strict=True)]


def runs_of(files: OpenFiles, fragments: Iterable[Fragment], plan: ScanPlan) -> Iterator[RowSource]:
    """Fragments for a scan: small neighbours as runs, all others by themselves.

    Args:
        files: The dataset's open files.
        fragments: In the order wanted.
        plan: What to read; small fragments that its predicate cannot match are left out.
    """
    projections = (plan.projection,) if plan.predicate is None else (plan.filter_projection, plan.rest)
    sources = _runs(files, fragments, projections, plan.step, plan)
    return sources if plan.index_answer is None or files.is_far else _scattered_runs(files, sources, plan)


def _scattered_runs(files: OpenFiles, sources: Iterable[RowSource], plan: ScanPlan) -> Iterator[RowSource]:
    """Make runs of neighbours of which indices leave few rows: to read a few of each file costs more than the rows."""
    run: list[tuple[FragmentReader, Offsets]] = []
    most_rows, num_rows, residual = max(plan.step, plan.most_looked_at), 0, plan
    for source in sources:
        is_run = isinstance(source, FragmentRun)
        rows = None if is_run else scattered_candidates(source, plan, 0, source.physical_rows)
        before, residual = residual, plan if is_run else residual_plan(source, plan)
        is_full = rows is not None and (num_rows + len(rows) > most_rows or len(run) == MOST_LARGE_FILES)
        if run and (rows is None or is_full or residual is not before):
            yield _scattered_run(files, run)
            run, num_rows = [], 0
        if is_run or rows is None:
            yield source
        elif len(rows):
            run.append((source, rows))
            num_rows += len(rows)
    if run:
        yield _scattered_run(files, run)


def _scattered_run(files: OpenFiles, run: Sequence[tuple[FragmentReader, Offsets]]) -> RowSource:
    readers = [reader for reader, _ in run]
    starts = starts_of(np.array([reader.physical_rows for reader in readers], np.int64)).tolist()
    candidates = [rows + start for (_, rows), start in zip(run, starts, strict=False)]
    return readers[0] if len(run) == 1 else FragmentRun(files, readers, candidates=np.concatenate(candidates))


def runs_of_columns(
    files: OpenFiles, fragments: Iterable[Fragment], projection: Schema, step: int
) -> Iterator[RowSource]:
    """Fragments of which all rows are read: small neighbours as runs, all others by themselves.

    Args:
        files: The dataset's open files.
        fragments: In the order wanted.
        projection: What to read of them.
        step: Rows that are read together.
    """
    return _runs(files, fragments, (projection,), step, None)


def _runs(
    files: OpenFiles, fragments: Iterable[Fragment], projections: Sequence[Schema], step: int, plan: ScanPlan | None
) -> Iterator[RowSource]:
    can_join = bool(projections[0].fields)
    projections = [projection for projection in projections if projection.fields]
    num_columns = sum([len(projection.fields) for projection in projections])
    smallest = max(step, _FIRST_RUN_ROWS)
    is_kept = plan is not None and plan.is_kept
    largest = max(smallest, min(_RUN_ROWS, _RUN_VALUES // max(1, num_columns)))
    most_rows = largest if is_kept and not files.is_far else smallest
    small_rows = _SMALL_FAR_FILE_ROWS if files.is_far else _SMALL_FILE_ROWS
    run: list[FragmentReader] = []
    is_narrow, num_rows, num_bytes, num_large = False, 0, 0, 0
    for fragment in fragments:
        reader = FragmentReader(files, fragment)
        rows = reader.physical_rows
        may_join = can_join and 0 < rows <= small_rows
        size, is_large = _small_size(reader, projections) if may_join else _NOT_SMALL
        is_large_rest = size is None and may_join and len(projections) > 1 and not files.is_far
        if is_large_rest:
            size, is_large = _small_size(reader, projections[:1])
        if size is not None and plan is not None and residual_plan(reader, plan) is None:
            size = None
        bound = most_rows if rows <= MOST_ROWS_OF_A_RUN_PAGE else smallest
        is_end = num_rows + rows > bound or is_full(len(run), num_large, num_bytes + (size or 0))
        if run and (size is None or is_end):
            yield _source(files, run, is_narrow=is_narrow)
            run, is_narrow, num_rows, num_bytes, num_large = [], False, 0, 0, 0
            most_rows = min(2 * most_rows, largest) if files.is_far else largest
        if size is None:
            yield reader
        elif plan is None or plan.predicate is None or candidate_ranges(reader, plan, 0, rows):
            run.append(reader)
            is_narrow = is_narrow or is_large_rest
            num_rows, num_bytes, num_large = num_rows + rows, num_bytes + size, num_large + is_large
    if run:
        yield _source(files, run, is_narrow=is_narrow)


def _source(files: OpenFiles, run: list[FragmentReader], *, is_narrow: bool) -> RowSource:
    return run[0] if len(run) == 1 else FragmentRun(files, run, is_narrow=is_narrow)


def _small_size(reader: FragmentReader, projections: Sequence[Schema]) -> tuple[int | None, bool]:
    """Return bytes of the projections, about, and whether they are parts of larger files.

    The bytes are None unless each projection is in one file, and they are few.
    """
    rows = reader.physical_rows
    parts: list[FilePart] = []
    for projection in projections:
        part = reader.only_part(projection)
        if part is None or (part.file.file_major_version, part.file.file_minor_version) < LEAVES_HAVE_SHAPES:
            return _NOT_SMALL
        parts.append(part)
    files = {part.file.path: part.file for part in parts}
    size = sum([file.file_size_bytes for file in files.values()])
    is_large = not is_small(size)
    if size > _SMALL_FILE_BYTES:
        size = sum([_stored_bytes(part, rows) for part in parts])
    return (size, is_large) if 0 < size <= _SMALL_FILE_BYTES else _NOT_SMALL


def _stored_bytes(part: FilePart, num_rows: int) -> int:
    """Guess the stored bytes of some columns of a file.

    Values of one width take no more than that; of others the columns are taken for as large as those beside them.
    """
    file, shapes = part.file, shapes_of(part.schema.fields)
    leaves = [leaf for shape in shapes for leaf in shape.leaves]
    least = int(sum([leaf.least_width for leaf in leaves]) * num_rows)
    if all(shape.width for shape in shapes):
        return min(least, file.file_size_bytes)
    num_columns = sum([index >= 0 for index in file.column_indices])
    return max(least, file.file_size_bytes * len(leaves) // max(1, num_columns))
