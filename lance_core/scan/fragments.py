"""Read a table: projection, filter, limit.

With a filter, its columns are read first; the others follow only where rows match: row by row if few do, else whole
ranges. Deleted rows never leave this module.
"""

from __future__ import annotations

from dataclasses import field
from functools import partial
from itertools import chain, takewhile
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.frozen import NamedTuple, mutable, replace
from lance_core.encoding.arrow_values import as_mask, batch_of, settled
from lance_core.encoding.dictionary_encoded import DictionaryEncoded
from lance_core.encoding.kernels import starts_of
from lance_core.file.read.strategy import MOST_HELD
from lance_core.format.schema import Schema
from lance_core.format.table.fragment_list import FragmentList
from lance_core.scan.candidates import (
    SPARSE_SHARE,
    candidate_fragments,
    candidate_mask,
    candidate_ranges,
    count_candidates,
    dense_ranges,
    live_candidates,
    residual_plan,
    scattered_candidates,
)
from lance_core.scan.fragment_reader import FragmentReader, Rows
from lance_core.scan.fragment_run import FragmentRun, runs_of
from lance_core.scan.joined_matches import JoinedMatches, answers
from lance_core.scan.output import MASKED_SHARE, output_batch, picked_rows, system_column
from lance_core.scan.plan import ROW_ADDRESS, SYSTEM_COLUMNS, ScanPlan
from lance_core.store.io_coroutines import finished
from lance_core.table.read_ahead import Work, chained, computed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lance_core.format.table.fragment import Fragment
    from lance_core.scan.deletions import Offsets
    from lance_core.scan.fragment_run import RowSource
    from lance_core.scan.open_files import OpenFiles
    from lance_core.store.io_coroutines import IoCoroutine

_ONE_ROW = pa.record_batch({"row": pa.nulls(1)})
"""A condition without columns is the same for all rows, and asked of this one."""

FragmentMatches: TypeAlias = "tuple[FragmentReader, Offsets]"
"""A fragment, and the offsets of matching rows."""

_T = TypeVar("_T")
_Source = TypeVar("_Source", bound="RowSource")

_MOST_WINDOW_ROWS = 1 << 10
"""Up to so many rows are read like single ones, so that what is learnt of the file's pages is kept."""


def scan_fragments(
    files: OpenFiles,
    fragments: Iterable[Fragment],
    plan: ScanPlan,
    *,
    limit: int | None = None,
    offset: int = 0,
    is_separate: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Read fragments one after another; those of a store that is far away some batches ahead.

    Args:
        files: The dataset's open files.
        fragments: In the order wanted.
        plan: What to read.
        limit: Rows at most, None for all.
        offset: Matching rows to leave out first.
        is_separate: Each batch holds rows of one fragment only.
    """
    fragments = candidate_fragments(fragments, plan)
    if limit is None and not is_separate and (plan.predicate is not None or not offset):
        streams = _works(files, runs_of(files, fragments, plan), plan, scan_fragment)
        return _window_of(chained(files.store, streams, num_asks=_num_asks(plan)), limit, offset)
    if plan.predicate is None:
        return chained(files.store, _windows(files, fragments, plan, limit, offset), num_asks=_num_asks(plan))
    readers = (FragmentReader(files, fragment) for fragment in fragments)
    if limit is None:
        streams = _works(files, readers, plan, scan_fragment)
        return _window_of(chained(files.store, streams, num_asks=_num_asks(plan)), limit, offset)
    window, plan = _Window(offset, limit), replace(plan, most_looked_at=0)  # a few rows may be enough
    # Fragments are read one after another, since most may not be needed.
    needed = takewhile(lambda _: window.num_rows, readers)
    return chain.from_iterable(_scan_filtered(reader, plan, 0, reader.physical_rows, window) for reader in needed)


def _works(
    files: OpenFiles, sources: Iterable[_Source], plan: ScanPlan, do: Callable[[_Source, ScanPlan], _T]
) -> Iterator[Work[_T]]:
    """Return works that read fragments or runs of them."""
    for source in sources:
        yield Work(partial(do, source, plan), _held_bytes(files, source, plan))


def _held_bytes(files: OpenFiles, source: RowSource, plan: ScanPlan) -> int:
    """Return the stored bytes that a scan of a remote store holds, about: the columns' share of the files."""
    if not files.is_far:
        return 0
    num_bytes, num_columns = source.stored_size
    wanted = len(plan.projection.leaves()) + len(plan.filter_projection.leaves())
    return min(num_bytes * min(wanted, num_columns) // max(1, num_columns), MOST_HELD)


def _num_asks(plan: ScanPlan) -> int:
    """Return how often a fragment asks its store before it has rows: its end, the condition's columns, the others."""
    return 2 if plan.predicate is None or not plan.rest.fields else 4


def _window_of(batches: Iterator[pa.RecordBatch], limit: int | None, offset: int) -> Iterator[pa.RecordBatch]:
    """Yield rows [offset, offset + limit) of all together."""
    if limit == 0:
        return
    for batch in batches:
        skipped = min(offset, batch.num_rows)
        offset -= skipped
        part = batch.slice(skipped, limit) if skipped or limit is not None else batch
        if part.num_rows:
            yield part
        limit = None if limit is None else limit - part.num_rows
        if limit == 0:
            return


@mutable
class _Window:
    """Matching rows that are left out, and how many come then; None for all."""

    offset: int = 0
    num_rows: int | None = None

    def of(self, matches: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return those of the next matching rows that are inside."""
        inside = matches[self.offset :][: self.num_rows]
        self.offset = max(0, self.offset - len(matches))
        self.num_rows = None if self.num_rows is None else self.num_rows - len(inside)
        return inside


def _windows(
    files: OpenFiles, fragments: Iterable[Fragment], plan: ScanPlan, limit: int | None, offset: int
) -> Iterator[Work[Iterator[pa.RecordBatch]]]:
    """Live rows [offset, offset + limit) of all fragments together, in parts; what lies outside is not read."""
    if isinstance(fragments, FragmentList) and offset:  # those before are not even decoded
        ends = np.add.accumulate(fragments.num_rows)
        first = int(ends.searchsorted(offset, side="right"))
        offset -= int(ends[first - 1]) if first else 0
        fragments = map(fragments.__getitem__, range(first, len(fragments)))
    for fragment in fragments:
        num_rows = fragment.num_rows
        if offset >= num_rows:
            offset -= num_rows
            continue
        last = num_rows - 1 if limit is None else min(offset + limit, num_rows) - 1
        if last < offset:
            return
        reader = FragmentReader(files, fragment)
        yield Work(partial(_scan_window, reader, plan, offset, last), _held_bytes(files, reader, plan))
        if limit is not None:
            limit -= last - offset + 1
            if not limit:
                return
        offset = 0


def _scan_window(reader: FragmentReader, plan: ScanPlan, first: int, last: int) -> Iterator[pa.RecordBatch]:
    """Live rows [first, last] of a fragment."""
    if last - first < min(_MOST_WINDOW_ROWS, plan.batch_size):
        yield take_offsets(reader, plan, reader.offsets_of_live(np.arange(first, last + 1)))
        return
    start, end = 0, reader.fragment.physical_rows
    if last - first + 1 < reader.fragment.num_rows:
        first_row, last_row = reader.offsets_of_live(np.array([first, last])).tolist()
        start, end = first_row, last_row + 1
    yield from scan_fragment(reader, plan, start=start, end=end)


def scan_fragment(
    reader: RowSource, plan: ScanPlan, *, start: int = 0, end: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Read the rows [start, end) of one fragment (offsets; deleted rows counted, but not returned)."""
    end = reader.physical_rows if end is None else end
    if plan.predicate is not None:
        yield from _scan_filtered(reader, plan, start, end, _Window())
        return
    batches = reader.scan(plan.projection, start=start, end=end, batch_size=plan.batch_size, is_kept=plan.is_kept)
    for rows in batches:
        keep = reader.live_mask(rows.start, rows.start + rows.num_rows)
        if keep is None and (whole := _whole(plan, rows)) is not None:
            yield whole
            continue
        offsets = _kept_offsets(plan, rows, keep)
        columns = list(rows.columns) if keep is None else _filtered(rows.columns, plan.projection, keep)
        yield output_batch(reader, plan, plan.projection, columns, offsets)


def take_offsets(reader: FragmentReader, plan: ScanPlan, offsets: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Read single rows of one fragment by their offsets: ascending, without duplicates."""
    return finished(taking_offsets(reader, plan, offsets))


def taking_offsets(
    reader: FragmentReader, plan: ScanPlan, offsets: npt.NDArray[np.int64]
) -> IoCoroutine[pa.RecordBatch]:
    """As `take_offsets`, but stops where a mapped file was asked for something."""
    rows = yield from reader.taking(plan.projection, offsets)
    whole = _whole(plan, rows)
    return output_batch(reader, plan, plan.projection, rows.columns, offsets) if whole is None else whole


def _whole(plan: ScanPlan, rows: Rows) -> pa.RecordBatch | None:
    """Return rows of one file as they were read, if that is what the plan puts out; None otherwise."""
    values = rows.values
    is_whole = isinstance(values, pa.RecordBatch) and values.schema.equals(plan.schema, check_metadata=True)
    return values if is_whole else None


def count_matching(reader: RowSource, plan: ScanPlan) -> int:
    """Count the rows of a fragment that the predicate matches."""
    left = _residual(reader, plan)
    if left is None:
        return (
            count_candidates(reader, plan)
            if isinstance(reader, FragmentReader)
            else len(_decided(reader, plan, 0, reader.physical_rows))
        )
    return sum(int(np.count_nonzero(match.mask)) for match in _matches(reader, left, 0, reader.physical_rows))


def count_all_matching(files: OpenFiles, fragments: Iterable[Fragment], plan: ScanPlan) -> int:
    """Count the rows of some fragments that the predicate matches."""
    fragments = candidate_fragments(fragments, plan)
    if files.is_far:
        return sum(each_match(files, fragments, plan, lambda matches: sum([len(offsets) for _, offsets in matches])))
    sources = runs_of(files, fragments, plan)
    return sum(computed(files.store, _works(files, sources, plan, count_matching)))


def matching_offsets(reader: RowSource, plan: ScanPlan) -> npt.NDArray[np.int64]:
    """Offsets of the rows of a fragment that the predicate matches, ascending; deleted rows never match."""
    left, end = _residual(reader, plan), reader.physical_rows
    if left is None:
        return _decided(reader, plan, 0, end)
    offsets = [match.offsets(np.flatnonzero(match.mask)) for match in _matches(reader, left, 0, end)]
    return np.concatenate(offsets) if offsets else np.empty(0, np.int64)


def matching_by_fragment(files: OpenFiles, fragments: Iterable[Fragment], plan: ScanPlan) -> Iterator[FragmentMatches]:
    """Fragments with rows that the predicate matches, and the offsets of these; see `matching_offsets`."""
    return chain.from_iterable(each_match(files, fragments, plan, lambda matches: matches))


def each_match(
    files: OpenFiles, fragments: Iterable[Fragment], plan: ScanPlan, do: Callable[[list[FragmentMatches]], _T]
) -> Iterator[_T]:
    """Do something with fragments that have matching rows, as soon as these are known, in any order.

    Args:
        files: The dataset's open files.
        fragments: All that may have some.
        plan: Has the predicate.
        do: Is told of a few fragments at a time; may wait for the store.
    """
    if plan.predicate is not None and not plan.predicate.columns:
        if matches_all(plan):
            readers = (FragmentReader(files, fragment) for fragment in fragments)
            yield from computed(files.store, _works(files, readers, plan, lambda reader, _: do(_all_rows(reader))))
        return
    joined = JoinedMatches(files, plan, _matching)
    works = _works(files, runs_of(files, fragments, plan), plan, lambda source, _: do(joined.find(source)))
    yield from computed(files.store, works, num_asks=2)
    yield do(joined.rest())


def matches_all(plan: ScanPlan) -> bool:
    """Return whether the predicate matches every row, whatever is in it: it names no column."""
    predicate = plan.predicate
    return predicate is not None and not predicate.columns and bool(predicate.mask(_ONE_ROW)[0].as_py())


def _all_rows(reader: FragmentReader) -> list[FragmentMatches]:
    num_rows = reader.fragment.num_rows
    return [(reader, reader.offsets_of_live(np.arange(num_rows)))] if num_rows else []


def _matching(reader: RowSource, plan: ScanPlan) -> list[FragmentMatches]:
    offsets = matching_offsets(reader, plan)
    if isinstance(reader, FragmentRun):
        return reader.split(offsets)
    return [(reader, offsets)] if len(offsets) else []


def _residual(source: RowSource, plan: ScanPlan) -> ScanPlan | None:
    """Return a plan that asks what indices leave undecided; None if they know the answer for each row.

    Runs of small fragments are asked all: their rows are read at one go.
    """
    if isinstance(source, FragmentReader):
        return residual_plan(source, plan)
    return plan if source.candidates is None else residual_plan(source.readers[0], plan)


def _decided(source: RowSource, plan: ScanPlan, start: int, end: int) -> Offsets:
    """Return the rows [start, end) that match, where indices know the answer for each row."""
    if isinstance(source, FragmentReader):
        return live_candidates(source, plan, start, end)
    rows = np.empty(0, np.int64) if source.candidates is None else source.candidates
    return rows[slice(*np.searchsorted(rows, (start, end)))]


class _Match(NamedTuple):
    """Rows of which some match: consecutive ones, or single ones.

    Attributes:
        start: Offset of the first.
        mask: Shape (n,): which ones match.
        pick: The condition's columns of some of them: shape (m,), counted from the first, ascending.
        rows: Shape (n,), the offsets of single rows; None if they are consecutive.
    """

    start: int
    mask: npt.NDArray[np.bool_]
    pick: Callable[[npt.NDArray[np.int64]], list[pa.Array]]
    rows: Offsets | None = None

    def offsets(self, indices: npt.NDArray[np.int64]) -> Offsets:
        """Return the offsets of some of the rows, counted from the first."""
        return indices + self.start if self.rows is None else self.rows[indices]


def _step(source: RowSource, plan: ScanPlan) -> int:
    """Return the rows of which the condition is asked together."""
    if isinstance(source, FragmentRun):  # is read at one go
        return max(plan.step, plan.most_looked_at)
    return plan.step_in(source.physical_rows, source.stored_size[0])


def _matches(reader: RowSource, plan: ScanPlan, start: int, end: int) -> Iterator[_Match]:
    if isinstance(reader, FragmentRun):  # fragments without candidates are left out of it
        if reader.candidates is None:
            yield from _matches_in(reader, plan, start, end)
        else:
            yield from _matches_at(reader, plan, reader.candidates)
        return
    scattered = scattered_candidates(reader, plan, start, end)
    if scattered is not None:
        yield from _matches_at(reader, plan, scattered)
        return
    for low, high in candidate_ranges(reader, plan, start, end):
        parts = None
        if plan.predicate is not None and plan.predicate.columns == plan.filter_projection.names:
            parts = reader.scan_dictionary(plan.filter_projection, start=low, end=high, batch_size=_step(reader, plan))
        if parts is None:
            yield from _matches_in(reader, plan, low, high)
        else:
            yield from _matches_among(reader, plan, low, parts)


def _matches_in(reader: RowSource, plan: ScanPlan, start: int, end: int) -> Iterator[_Match]:
    assert plan.predicate is not None  # noqa: S101 for the type checker: callers have one
    for rows in reader.scan(plan.filter_projection, start=start, end=end, batch_size=_step(reader, plan)):
        span = range(rows.start, rows.start + rows.num_rows)
        mask = as_mask(plan.predicate.mask(_predicate_batch(reader, plan, rows.columns, span)))
        among = _mask(reader, plan, span.start, span.stop)
        mask = mask if among is None else mask & among
        pieces = reader.pieces(span.start, span.stop, plan.step) if isinstance(reader, FragmentRun) else [span]
        for piece in pieces:
            here = slice(piece.start - rows.start, piece.stop - rows.start)
            columns = [column[here] for column in rows.columns] if piece != span else rows.columns
            yield _Match(piece.start, mask[here], partial(picked_rows, columns, plan.filter_projection, len(piece)))


def _matches_at(reader: RowSource, plan: ScanPlan, offsets: Offsets) -> Iterator[_Match]:
    """Ask the condition of single rows that are not deleted."""
    assert plan.predicate is not None  # noqa: S101 for the type checker: callers have one
    step = _step(reader, plan)
    for at in range(0, len(offsets), step):
        rows = offsets[at : at + step]
        columns = reader.take(plan.filter_projection, rows)
        mask = as_mask(plan.predicate.mask(_predicate_batch(reader, plan, columns, rows)))
        yield _Match(int(rows[0]), mask, partial(picked_rows, columns, plan.filter_projection, len(rows)), rows)


class _Part(NamedTuple):
    """Values of the condition's only column, from one of them on, and which ones match."""

    values: pa.Array | DictionaryEncoded
    first: int
    mask: npt.NDArray[np.bool_]


def _matches_among(
    reader: FragmentReader, plan: ScanPlan, start: int, columns: Iterator[pa.Array | DictionaryEncoded]
) -> Iterator[_Match]:
    """Matches among values that come in parts of any size, in steps as the plan has them."""
    parts: list[_Part] = []
    num_rows, step = 0, _step(reader, plan)
    for values in columns:
        mask, at = answers(plan, values), 0
        while at < len(mask):
            part = _Part(values, at, mask[at : at + step - num_rows])
            parts.append(part)
            num_rows, at = num_rows + len(part.mask), at + len(part.mask)
            if num_rows == step:
                yield _match_of(reader, plan, start, parts)
                start, parts, num_rows = start + num_rows, [], 0
    if parts:
        yield _match_of(reader, plan, start, parts)


def _match_of(reader: FragmentReader, plan: ScanPlan, start: int, parts: Sequence[_Part]) -> _Match:
    mask = parts[0].mask if len(parts) == 1 else np.concatenate([part.mask for part in parts])
    among = _mask(reader, plan, start, start + len(mask))

    def pick(indices: npt.NDArray[np.int64]) -> list[pa.Array]:
        bounds = starts_of(np.array([len(part.mask) for part in parts]))
        ends = indices.searchsorted(bounds).tolist()
        picked: list[pa.Array] = []
        for part, begin, low, high in zip(parts, bounds.tolist(), ends, ends[1:], strict=False):
            inside = indices[low:high] + (part.first - begin)
            if low == high:
                continue
            if isinstance(part.values, DictionaryEncoded):
                picked.append(part.values.taken(inside).values())
            else:
                picked += picked_rows([part.values], plan.filter_projection, len(part.values), inside)
        return picked if len(picked) == 1 else [pa.concat_arrays(picked)]

    return _Match(start, mask if among is None else mask & among, pick)


def _mask(reader: RowSource, plan: ScanPlan, start: int, end: int) -> npt.NDArray[np.bool_] | None:
    """Return which of the rows [start, end) may match: ranges that are read may hold others too; None for all."""
    if isinstance(reader, FragmentRun):
        return reader.live_mask(start, end)
    return candidate_mask(reader, plan, start, end)


def _predicate_batch(
    reader: RowSource, plan: ScanPlan, stored: Sequence[pa.Array], rows: range | Offsets
) -> pa.RecordBatch:
    names, columns = [top_field.name for top_field in plan.filter_projection.fields], list(stored)
    assert plan.predicate is not None  # noqa: S101 for the type checker: callers have one
    wanted = [name for name in SYSTEM_COLUMNS if name in plan.predicate.columns]
    for name in wanted or ([] if columns else [ROW_ADDRESS]):  # a batch without columns would have no rows
        offsets = np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows
        names.append(name)
        columns.append(system_column(reader, plan, name, offsets))
    return pa.RecordBatch.from_arrays(columns, names=names)


@mutable
class _Sparse:
    """Matching rows whose other columns are still to be fetched, row by row."""

    offsets: list[npt.NDArray[np.int64]] = field(default_factory=list)
    columns: list[list[pa.Array]] = field(default_factory=list)
    num_rows: int = 0

    def add(self, offsets: npt.NDArray[np.int64], columns: list[pa.Array]) -> None:
        self.offsets.append(offsets)
        self.columns.append(columns)
        self.num_rows += len(offsets)

    def fetch(self, reader: RowSource, plan: ScanPlan) -> Iterator[pa.RecordBatch]:
        if not self.num_rows:
            return
        offsets = np.concatenate(self.offsets)
        have = [pa.concat_arrays(list(parts)) for parts in zip(*self.columns, strict=True)]
        rest = reader.take(plan.rest, offsets)
        yield output_batch(reader, plan, _both(plan), [*have, *rest], offsets)
        self.offsets, self.columns, self.num_rows = [], [], 0


def _both(plan: ScanPlan) -> Schema:
    return Schema((*plan.filter_projection.fields, *plan.rest.fields))


def _scan_filtered(
    reader: RowSource, plan: ScanPlan, start: int, end: int, window: _Window
) -> Iterator[pa.RecordBatch]:
    for batch in _matching_batches(reader, plan, start, end, window):
        if batch.num_rows <= plan.batch_size:
            yield batch
            continue
        for at in range(0, batch.num_rows, plan.batch_size):
            part = batch.slice(at, plan.batch_size)
            yield batch_of(list(map(settled, part.columns)), batch.schema, part.num_rows)


def _matching_batches(
    reader: RowSource, plan: ScanPlan, start: int, end: int, window: _Window
) -> Iterator[pa.RecordBatch]:
    """Matching rows inside of a window; batches may be larger than the plan's."""
    is_narrow = isinstance(reader, FragmentRun) and reader.is_narrow
    left, most_rows = _residual(reader, plan), plan.step if is_narrow else _step(reader, plan)
    if left is None:
        yield from _decided_batches(reader, plan, window.of(_decided(reader, plan, start, end)), most_rows)
        return
    plan = left
    sparse = _Sparse()
    read: Callable[[range, npt.NDArray[np.int64] | None], list[pa.Array]] | None = None
    for match in _matches(reader, plan, start, end):
        indices, num_rows = window.of(np.flatnonzero(match.mask)), len(match.mask)
        if not len(indices):
            if window.num_rows == 0:
                break
            continue
        offsets = match.offsets(indices)
        columns = match.pick(indices)
        if not plan.rest.fields:
            yield output_batch(reader, plan, plan.filter_projection, columns, offsets)
        elif match.rows is not None or len(offsets) <= num_rows * SPARSE_SHARE:
            sparse.add(offsets, columns)
            if sparse.num_rows >= most_rows:
                yield from sparse.fetch(reader, plan)
        else:
            yield from sparse.fetch(reader, plan)
            read = read or reader.cursor(plan.rest, end=end)
            here = range(match.start, match.start + num_rows)
            rest = _read_some(read, plan.rest, here, indices)
            yield output_batch(reader, plan, _both(plan), [*columns, *rest], offsets)
    yield from sparse.fetch(reader, plan)


def _decided_batches(reader: RowSource, plan: ScanPlan, offsets: Offsets, most_rows: int) -> Iterator[pa.RecordBatch]:
    """Read rows that indices know to match: no column is read for the condition."""
    ranges = dense_ranges(offsets) if isinstance(reader, FragmentReader) else None
    if ranges is None:
        for at in range(0, len(offsets), most_rows):
            yield _taken(reader, plan, offsets[at : at + most_rows])
        return
    read = reader.cursor(plan.projection, end=int(offsets[-1]) + 1)
    for low, high in ranges:
        for start in range(low, high, most_rows):
            first, behind = np.searchsorted(offsets, (start, min(start + most_rows, high))).tolist()
            rows = offsets[first:behind]
            if len(rows):
                here = range(int(rows[0]), int(rows[-1]) + 1)
                columns = _read_some(read, plan.projection, here, rows - here.start)
                yield output_batch(reader, plan, plan.projection, columns, rows)


def _taken(source: RowSource, plan: ScanPlan, offsets: Offsets) -> pa.RecordBatch:
    if isinstance(source, FragmentReader):
        return take_offsets(source, plan, offsets)
    return output_batch(source, plan, plan.projection, source.take(plan.projection, offsets), offsets)


def _read_some(
    read: Callable[[range, Offsets | None], list[pa.Array]], schema: Schema, here: range, indices: Offsets
) -> list[pa.Array]:
    """Read some rows of a range, counted from its first: with all others if they are nearly all."""
    if len(indices) > len(here) * MASKED_SHARE:
        return picked_rows(read(here, None), schema, len(here), indices)
    return read(here, indices)


def _filtered(columns: Sequence[pa.Array], schema: Schema, keep: npt.NDArray[np.bool_]) -> list[pa.Array]:
    return picked_rows(columns, schema, len(keep), np.flatnonzero(keep))


def _kept_offsets(plan: ScanPlan, rows: Rows, keep: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.int64]:
    """Return the offsets of the rows that are kept; none if columns tell how many there are, but no system column."""
    if plan.columns and not any(name in SYSTEM_COLUMNS for name in plan.columns):
        return np.empty(0, np.int64)
    if keep is None:
        return np.arange(rows.start, rows.start + rows.num_rows)
    return np.flatnonzero(keep) + rows.start
