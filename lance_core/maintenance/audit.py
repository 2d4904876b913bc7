"""Audit of indices: what each segment says of rows is compared with the values of these rows.

Two comparisons find what is wrong. Questions about values that rows have are answered by the segment as in a scan; an
answer that excludes the truth is wrong, whatever the kind. Segments with an entry for each row and key are also read
as a whole: the keys of each row are added up as hashes and compared with those of its value.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.encoding.arrow_values import mask_array
from lance_core.errors import LanceError
from lance_core.format.arrow_kinds import is_text
from lance_core.format.index.bloom_filter import hash_values
from lance_core.format.index.row_sets import row_set_of
from lance_core.format.table.index_metadata import shows_moved_rows
from lance_core.index.answer import ADDRESS_SHIFT, OFFSET_MASK
from lance_core.index.column import find_column, path_of
from lance_core.index.protocol import EntrySegment, SampledSegment, ZonedSegment
from lance_core.index.row_moves import RowPositions
from lance_core.index.vector.distances import is_vector
from lance_core.index.vector.segment import VectorSegment
from lance_core.index.vector.train import searchable
from lance_core.scan.fragment_reader import FragmentReader, addresses_of_ids
from lance_core.sql import ternary
from lance_core.sql.kernels import pc
from lance_core.sql.pruning import Comparison, Contains, HasItems, IsNull, Membership

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from lance_core.format.schema import Schema
    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.scan.indexed import OpenSegment
    from lance_core.scan.open_files import OpenFiles
    from lance_core.sql.pruning import Question
    from lance_core.sql.ternary import Codes

Int64s: TypeAlias = npt.NDArray[np.int64]
UInt64s: TypeAlias = npt.NDArray[np.uint64]
Mismatch: TypeAlias = "tuple[int, str]"
"""Fragment, and what is wrong with which of its rows."""

_RUN_ROWS = 1 << 12
"""Neighbouring rows of a fragment that are compared together when a sample is asked for."""
_PICKED = 16
"""Values of a batch that questions are about."""
_NEEDLE_LENGTH = 12
_NAMED_ROWS = 10
_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
_SEED = 0


class Samples:
    """Rows that all segments of a version are compared with, in runs that are spread at random.

    The columns of all indices are read together: to begin a read takes longer than to decode a run.

    Args:
        manifest: The version.
        files: Its open files.
        num_rows: Rows for each segment, at least.
    """

    def __init__(self, manifest: Manifest, files: OpenFiles, num_rows: int) -> None:
        self._manifest = manifest
        self._files = files
        self._num_rows = num_rows
        fields = [index.fields[0] for index in manifest.indices if len(index.fields) == 1]
        columns = [find_column(manifest.schema, path_of(manifest.schema, field)) for field in fields]
        paths = {column.path for column in columns if column is not None and not is_vector(column.type)}
        self._projection = manifest.schema.select(sorted(paths))
        self._starts: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        self._runs: dict[tuple[int, int], tuple[Int64s, dict[str, pa.Array]]] = {}

    def of(self, opened: OpenSegment) -> Iterator[tuple[Int64s, pa.Array]]:
        """Return the rows to compare with a segment: addresses, and the values that are indexed.

        Raises:
            CorruptDataError: The column is damaged.
        """
        name = opened.column.projection.names[0]
        for fragment_id, start in self._starts_of(opened.fragment_ids):
            run = self._runs.get((fragment_id, start)) or self._read(opened, fragment_id, start)
            rows, values = run[0], opened.column.of(run[1][name])
            yield rows, values if opened.derive is None else opened.derive(values)

    def _starts_of(self, fragment_ids: Int64s) -> list[tuple[int, int]]:
        """Return the runs in some fragments; most segments cover the same ones."""
        key = tuple(fragment_ids.tolist())
        if key not in self._starts:
            self._starts[key] = list(_starts_of_runs(self._manifest, fragment_ids, self._num_rows))
        return self._starts[key]

    def _read(self, opened: OpenSegment, fragment_id: int, start: int) -> tuple[Int64s, dict[str, pa.Array]]:
        """Read a run for all segments; for this one alone if another column is damaged."""
        reader = FragmentReader(self._files, _fragment(self._manifest, fragment_id))
        try:
            run = self._runs[fragment_id, start] = _read(reader, self._projection, start)
        except LanceError:
            return _read(reader, opened.column.projection, start)
        return run


def _read(reader: FragmentReader, projection: Schema, start: int) -> tuple[Int64s, dict[str, pa.Array]]:
    """Read the live rows of a run: addresses, and top-level columns by name."""
    end = min(start + _RUN_ROWS, reader.physical_rows)
    offsets = np.arange(start, end)
    columns = reader.take(projection, offsets)
    live = reader.live_mask(start, end)
    if live is not None:
        offsets, columns = offsets[live], [column.filter(mask_array(live)) for column in columns]
    return offsets + (reader.fragment.id << ADDRESS_SHIFT), dict(zip(projection.names, columns, strict=True))


def _starts_of_runs(manifest: Manifest, fragment_ids: Int64s, num_rows: int) -> Iterator[tuple[int, int]]:
    """Return runs of rows that have at least so many together: fragment and first row."""
    sizes = dict(zip(manifest.fragments.ids.tolist(), manifest.fragments.physical_rows.tolist(), strict=True))
    ends = np.cumsum([-(-sizes[fragment_id] // _RUN_ROWS) for fragment_id in fragment_ids.tolist()])
    total = int(ends[-1])
    count = min(total, -(-num_rows // _RUN_ROWS))
    numbers = np.sort(np.random.default_rng(_SEED).choice(total, count, replace=False))
    chosen = np.searchsorted(ends, numbers, side="right")
    starts = (numbers - np.append(0, ends)[chosen]) * _RUN_ROWS
    yield from zip(fragment_ids[chosen].tolist(), starts.tolist(), strict=True)


def _fragment(manifest: Manifest, fragment_id: int) -> Fragment:
    fragment = manifest.fragments.find(fragment_id)
    assert fragment is not None  # noqa: S101 for the type checker: segments name existing ones
    return fragment


def audit_segment(
    manifest: Manifest, files: OpenFiles, opened: OpenSegment, *, samples: Samples | None
) -> Iterator[Mismatch]:
    """Compare a segment with the column.

    Args:
        manifest: The version.
        files: Its open files.
        opened: The segment.
        samples: Rows to compare; all rows and entries if None.

    Yields:
        What is wrong, by fragment.

    Raises:
        CorruptDataError: A file is damaged.
    """
    if is_vector(opened.column.type):  # no question can be answered
        if samples is None and isinstance(opened.segment, VectorSegment):
            yield from _wrong_vectors(manifest, files, opened, opened.segment)
        return
    if samples is None:
        fragments = [_fragment(manifest, fragment_id) for fragment_id in opened.fragment_ids.tolist()]
        batches = (batch for fragment in fragments for batch in opened.batches(files, fragment))
        parts = [_wrong_answers(opened, rows, values, is_each_asked=True) for rows, values in batches]
    else:  # a segment is asked once about all samples
        runs = list(samples.of(opened))
        rows = np.concatenate([np.empty(0, np.int64), *(run for run, _ in runs)])
        values = [array for _, array in runs]
        parts = [_wrong_answers(opened, rows, pa.concat_arrays(values), is_each_asked=False)] if runs else []
    wrong = np.unique(np.concatenate([np.empty(0, np.int64), *parts]))
    for fragment_id in np.unique(wrong >> ADDRESS_SHIFT).tolist():
        offsets = wrong[wrong >> ADDRESS_SHIFT == fragment_id] & OFFSET_MASK
        yield fragment_id, f"answers leave out or add {_named(offsets.tolist())}"
    if isinstance(opened.segment, ZonedSegment):
        yield from _rows_without_zone(manifest, files, opened, opened.segment)
        yield from _stale_nulls(manifest, files, opened, opened.segment)
    if samples is None and isinstance(opened.segment, EntrySegment):
        yield from _wrong_entries(manifest, files, opened, opened.segment)


# ------------------------------------------------------------------------------------------------------------ questions


def _wrong_answers(opened: OpenSegment, rows: Int64s, values: pa.Array, *, is_each_asked: bool) -> Int64s:
    """Return the rows for which an answer excludes the truth."""
    wrong = [np.empty(0, np.int64)]
    among = None if is_each_asked or not isinstance(opened.segment, SampledSegment) else row_set_of(rows)
    for question, truth in _questions(opened.subject, values, is_each_asked=is_each_asked):
        answer = opened.answer(question, among)
        if answer is not None:
            wrong.append(rows[(answer.at(rows) & truth()) == 0])
    return np.concatenate(wrong)


def _questions(path: str, values: pa.Array, *, is_each_asked: bool) -> Iterator[tuple[Question, Callable[[], Codes]]]:
    """Return questions about values that rows have, together or also one by one.

    Yields:
        A question, and what returns the true answer for each row: many kinds answer only some questions.
    """
    yield IsNull(path), lambda: _codes(values.is_null())
    there = values.drop_null()
    if not len(there):
        return
    picked = there.take(pa.array(np.unique(np.linspace(0, len(there) - 1, _PICKED).astype(np.int64))))
    kind = values.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        for item in pc.list_flatten(picked).drop_null().unique().slice(0, _PICKED):
            question = HasItems(path, pa.array([item.as_py()], kind.value_type), needs_all=False)
            yield question, partial(_has_item, values, item)
        return
    picked = picked.unique()
    for value in picked if is_each_asked else []:
        yield Comparison(path, "equal", value), partial(_is_among, values, pa.repeat(value, 1))
    yield Membership(path, picked), partial(_is_among, values, picked)
    if is_text(kind):
        for text in picked.to_pylist():
            middle = len(text) // 2
            part = text[max(middle - _NEEDLE_LENGTH, 0) : middle + _NEEDLE_LENGTH]
            yield Contains(path, (part,)), partial(_has_part, values, part)


def _is_among(values: pa.Array, wanted: pa.Array) -> Codes:
    return _codes(_equal(values, wanted))


def _has_part(texts: pa.Array, part: str) -> Codes:
    return _codes(pc.match_substring(texts, part))


def _equal(values: pa.Array, wanted: pa.Array) -> pa.Array:
    plain, options = _plain(values), _plain(wanted)
    return pc.if_else(values.is_valid(), pc.is_in(plain, value_set=options), pa.scalar(None, pa.bool_()))


def _plain(values: pa.Array) -> pa.Array:
    """Return values that Arrow compares by their bits; zeros of both signs are equal, as in conditions."""
    kind = values.type
    if not pa.types.is_floating(kind) and not pa.types.is_temporal(kind):
        return values
    bits = values.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width])
    if pa.types.is_temporal(kind):
        return bits
    negative_zero = pa.scalar(-(1 << kind.bit_width - 1), bits.type)
    return pc.if_else(pc.equal(bits, negative_zero), pa.scalar(0, bits.type), bits)


def _has_item(lists: pa.Array, item: pa.Scalar) -> Codes:
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0), np.int64)
    owners = np.repeat(np.arange(len(lists)), lengths)
    hits = pc.fill_null(_equal(pc.list_flatten(lists), pa.repeat(item, 1)), False)  # noqa: FBT003 a value
    truth = np.full(len(lists), ternary.FALSE, np.uint8)
    truth[owners[np.asarray(hits)]] = ternary.TRUE
    truth[np.asarray(lists.is_null())] = ternary.NULL
    return truth


def _codes(truth: Any) -> Codes:
    filled = np.asarray(pc.fill_null(truth, False))  # noqa: FBT003 a value
    codes = np.where(filled, ternary.TRUE, ternary.FALSE).astype(np.uint8)
    codes[np.asarray(truth.is_null())] = ternary.NULL
    return codes


def _rows_without_zone(
    manifest: Manifest, files: OpenFiles, opened: OpenSegment, segment: ZonedSegment
) -> Iterator[Mismatch]:
    """Find covered rows that no zone describes: lance_core reads them, but pylance leaves them out of each answer."""
    starts, ends = segment.zones
    covered = set(opened.fragment_ids.tolist())
    for fragment_id in sorted(segment.ambiguous & covered):
        yield fragment_id, "zones overlap, and pylance answers from stale ones, too"
    for fragment_id in sorted(segment.misread & covered):
        yield fragment_id, "pylance leaves out NaN of zones that have no smallest value"
    for fragment in manifest.fragments.select(sorted(covered - segment.ambiguous)):
        reader = FragmentReader(files, fragment)
        first, last = np.searchsorted(starts, [fragment.id << ADDRESS_SHIFT, (fragment.id + 1) << ADDRESS_SHIFT])
        base = fragment.id << ADDRESS_SHIFT
        lows, highs = starts[first:last] - base, ends[first:last] - base
        gap_starts, gap_ends = np.append(0, highs), np.append(lows, reader.physical_rows)
        gaps = [(start, end) for start, end in zip(gap_starts.tolist(), gap_ends.tolist(), strict=True) if start < end]
        if not gaps:
            continue
        missing = np.zeros(reader.physical_rows, np.bool_)
        for start, end in gaps:
            missing[start:end] = True
        live = reader.live_mask(0, reader.physical_rows)
        missing = missing if live is None else missing & live
        if missing.any():
            yield fragment.id, f"pylance leaves out {_named(np.flatnonzero(missing).tolist())}, which are in no zone"


def _stale_nulls(
    manifest: Manifest, files: OpenFiles, opened: OpenSegment, segment: ZonedSegment
) -> Iterator[Mismatch]:
    """Find rows that were null when a segment covered them, and are not: pylance answers so if another covers them."""
    nulls = segment.null_rows()
    if nulls is None:
        return
    others = _covered_by_others(manifest, opened)
    for fragment in manifest.fragments.select(sorted(others & set((nulls >> ADDRESS_SHIFT).tolist()))):
        for rows, values in opened.batches(files, fragment):
            wrong = rows[np.isin(rows, nulls) & np.asarray(values.is_valid())] & OFFSET_MASK
            if len(wrong):
                yield fragment.id, f"pylance answers from stale nulls for {_named(wrong.tolist())}"


# -------------------------------------------------------------------------------------------------------------- entries


def _wrong_entries(
    manifest: Manifest, files: OpenFiles, opened: OpenSegment, segment: EntrySegment
) -> Iterator[Mismatch]:
    """Compare all entries of a segment with those that its rows must have."""
    moved = _fragments_of_others(manifest, opened)
    readers = _readers(manifest, files, {*opened.fragment_ids.tolist(), *moved})
    stored, expected = _RowTotals(readers), _RowTotals(readers)
    locate = addresses_of_ids(readers) if opened.by_row_id else _same
    for keys, rows in segment.entries():
        stored.add(locate(rows), _hashes(keys))
    for number, reader in enumerate(readers):
        for rows, values in opened.batches(files, reader.fragment):
            for keys, owners in segment.expected_entries(values, rows):
                expected.add(owners, _hashes(keys))
        fragment_id = reader.fragment.id
        stored_here, expected_here = stored.of(number), expected.of(number)
        differs = stored_here != expected_here
        live = reader.live_mask(0, reader.physical_rows)
        differs = differs if live is None else differs & live
        if fragment_id in moved:
            differs &= stored_here != 0
            if differs.any():
                yield fragment_id, f"pylance answers from stale entries for {_named(np.flatnonzero(differs).tolist())}"
            continue
        has_none, needs_none = stored_here == 0, expected_here == 0
        for mask, what in (
            (differs & has_none, "there are no entries for"),
            (differs & needs_none, "there are entries for, and should be none,"),
            (differs & ~has_none & ~needs_none, "there are stale or wrong entries for"),
        ):
            if mask.any():
                yield fragment_id, f"{what} {_named(np.flatnonzero(mask).tolist())}"


def _wrong_vectors(
    manifest: Manifest, files: OpenFiles, opened: OpenSegment, segment: VectorSegment
) -> Iterator[Mismatch]:
    """Compare the rows of a vector index with those that have a vector to index; codes are not compared."""
    readers = _readers(manifest, files, opened.fragment_ids.tolist())
    stored = _RowTotals(readers)
    locate = addresses_of_ids(readers) if opened.by_row_id else _same
    for number in range(len(segment.partitions.lengths)):
        rows = locate(segment.read(number)[0])
        stored.add(rows, np.ones(len(rows), np.uint64))
    for number, reader in enumerate(readers):
        fragment_id = reader.fragment.id
        counts = stored.of(number)
        for rows, values in opened.batches(files, reader.fragment):
            offsets = rows & OFFSET_MASK
            indexed = searchable(values, offsets, segment.model.metric)[1]
            missing = indexed[counts[indexed] == 0]
            surplus = np.setdiff1d(offsets, indexed)
            surplus = surplus[counts[surplus] > 0]
            twice = indexed[counts[indexed] > 1]
            for wrong, what in (
                (missing, "there are no entries for"),
                (surplus, "there are entries for, and should be none,"),
                (twice, "there are several entries for"),
            ):
                if len(wrong):
                    yield fragment_id, f"{what} {_named(wrong.tolist())}"


def _readers(manifest: Manifest, files: OpenFiles, fragment_ids: Collection[int]) -> list[FragmentReader]:
    """Return readers of some fragments, by ascending id."""
    fragments = sorted(manifest.fragments.select(sorted(fragment_ids)), key=lambda fragment: fragment.id)
    return [FragmentReader(files, fragment) for fragment in fragments]


class _RowTotals:
    """A total for each row of some fragments.

    Args:
        readers: The fragments, by ascending id.
    """

    def __init__(self, readers: Sequence[FragmentReader]) -> None:
        ids = np.array([reader.fragment.id for reader in readers], np.int64)
        self._num_rows = [reader.physical_rows for reader in readers]
        self._positions = RowPositions(ids, np.array(self._num_rows, np.int64))
        self._totals = np.zeros(self._positions.total, np.uint64)

    def add(self, addresses: Int64s, amounts: UInt64s) -> None:
        """Add an amount for each row address; rows of other fragments are left out."""
        positions = self._positions.of(addresses)
        is_there = positions >= 0
        np.add.at(self._totals, positions[is_there], amounts[is_there])

    def of(self, number: int) -> UInt64s:
        """Return the totals of a fragment; ``number`` is its place among all."""
        start = int(self._positions.starts[number])
        return self._totals[start : start + self._num_rows[number]]


def _fragments_of_others(manifest: Manifest, opened: OpenSegment) -> frozenset[int]:
    """Return the fragments of other segments whose rows pylance also looks up in this one."""
    return _covered_by_others(manifest, opened) if opened.by_row_id and shows_moved_rows(opened.index) else frozenset()


def _covered_by_others(manifest: Manifest, opened: OpenSegment) -> frozenset[int]:
    """Return the fragments that other segments of the index cover."""
    others = [index for index in manifest.indices if index.name == opened.index.name]
    covered = frozenset[int]().union(*(index.fragment_ids or () for index in others))
    return covered & set(manifest.fragments.ids.tolist()) - set(opened.fragment_ids.tolist())


def _hashes(keys: pa.Array) -> UInt64s:
    """Return a number for each key, which is not 0."""
    hashes = np.full(len(keys), _NULL_HASH, np.uint64)
    is_valid = np.asarray(keys.is_valid())
    hashes[is_valid] = hash_values(_hashable(keys.drop_null())) | np.uint64(1)
    return hashes


def _hashable(values: pa.Array) -> pa.Array:
    return values.cast(pa.uint8()) if pa.types.is_boolean(values.type) else values


def _same(rows: Int64s) -> Int64s:
    return rows


def _named(offsets: list[int]) -> str:
    shown = ", ".join(f"{offset:,}" for offset in offsets[:_NAMED_ROWS])
    more = ", ..." if len(offsets) > _NAMED_ROWS else ""
    return f"{len(offsets):,} rows (offsets {shown}{more})"
