"""Read rows of one fragment, whichever files its columns are in."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.frozen import NamedTuple, frozen
from lance_core.encoding.kernels import numbers_array
from lance_core.errors import CorruptDataError
from lance_core.file.read.strategy import MOST_HELD
from lance_core.format.blobs import BlobView, needs_bytes, view_schema
from lance_core.format.index.row_sets import decode_row_treemap, encode_row_treemap
from lance_core.format.table.paths import data_file_path
from lance_core.format.table.row_ids import row_id_bounds, row_id_range
from lance_core.index.row_moves import RowPositions
from lance_core.index.row_sets import rows_of_fragments
from lance_core.scan import lineage
from lance_core.scan.blobs import BlobSources, fill_batches
from lance_core.scan.columns import is_legacy, join_columns, lost_fields, part_with_shape, split_projection
from lance_core.scan.deletions import Offsets, contains, live_mask, load_deletions, offsets_of_live
from lance_core.store.io_coroutines import finished
from lance_core.table import rebase
from lance_core.table.once import once
from lance_core.table.read_ahead import each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyroaring import BitMap64

    from lance_core.encoding.dictionary_encoded import DictionaryEncoded
    from lance_core.encoding.repdef import Mask
    from lance_core.file.read.reader import DataFileReader
    from lance_core.file.read.v0_1 import BatchStatistics
    from lance_core.format.schema import Field, Schema
    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.fragment_list import FragmentList
    from lance_core.index.answer import Int64s, RowAnswer
    from lance_core.scan.columns import FilePart
    from lance_core.scan.open_files import OpenFiles
    from lance_core.store.io_coroutines import IoCoroutine

_MOST_ID = (1 << 63) - 1
_ADDRESS_SHIFT = 32
LEAVES_HAVE_SHAPES = (2, 1)
"""File version since which each leaf tells of all lists and structs around it."""

_MOST_KEPT = 64
_MOST_DELETED = 1 << 17
"""Fragments that are kept open, and deleted rows of one of them: 64 MiB at most."""


@frozen(kw_only=True)
class Rows:
    """Consecutive rows of a fragment, deleted ones included.

    Attributes:
        start: Offset of the first.
        num_rows: How many.
        values: One array of that length for each field of the projection; a batch if one file has them all, of which
            no arrays need to be made: those of a thousand columns take five milliseconds.
    """

    start: int
    num_rows: int
    values: Any  # pa.RecordBatch | Sequence[pa.Array]: pyarrow has no types by which a checker tells them apart

    @property
    def columns(self) -> Sequence[pa.Array]:
        """The arrays."""
        return self.values.columns if isinstance(self.values, pa.RecordBatch) else self.values


class _Stored(NamedTuple):
    """A read of a file, with its blobs to be fetched afterwards."""

    schema: Schema
    lacks_bytes: bool


_stored: deque[tuple[Schema, _Stored]] = deque(maxlen=8)
"""What files were asked for last, which for many files of a table is the same schema object."""


def _stored_as(schema: Schema) -> _Stored:
    for schemas, stored in list(_stored):
        if schemas is schema:
            return stored
    stored = _Stored(view_schema(schema, BlobView.DESCRIPTIONS), needs_bytes(schema))
    _stored.appendleft((schema, stored))
    return stored


class FragmentReader:
    """One fragment, opened for reading; files are opened when their columns are needed.

    Args:
        files: The dataset's open files.
        fragment: The fragment.
    """

    def __init__(self, files: OpenFiles, fragment: Fragment) -> None:
        self.fragment = fragment
        self._files = files
        self._last_splits: tuple[tuple[Schema, tuple[tuple[FilePart, ...], tuple[_Stored, ...]]], ...] = ()

    @property
    def physical_rows(self) -> int:
        """Rows, deleted ones included."""
        return self.fragment.physical_rows

    @property
    def stored_size(self) -> tuple[int, int]:
        """Bytes of all files, as far as the manifest knows, and their columns."""
        files = self.fragment.files
        return sum([file.file_size_bytes for file in files]), sum([len(file.fields) for file in files])

    @property
    def held_bytes(self) -> int:
        """Stored bytes that a scan of all columns holds at the same time, at most."""
        return min(self.stored_size[0], MOST_HELD)

    @once
    def deleted(self) -> Offsets:
        """Offsets of the deleted rows, ascending."""
        return load_deletions(self._files.store, self.fragment)

    @once
    def stable_row_ids(self) -> npt.NDArray[np.uint64]:
        """Stable row id of each row, shape (physical_rows,)."""
        return lineage.row_ids(self)

    @once
    def created_versions(self) -> npt.NDArray[np.uint64]:
        """Version that created each row, shape (physical_rows,)."""
        return lineage.created_versions(self)

    @once
    def updated_versions(self) -> npt.NDArray[np.uint64]:
        """Version that last changed each row, shape (physical_rows,)."""
        return lineage.updated_versions(self)

    def live_mask(self, start: int, end: int) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the live rows of [start, end); None if all are live."""
        return live_mask(self.deleted, start, end)

    def offsets_of_live(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Row offsets for places among the rows that are left."""
        return offsets_of_live(self.deleted, positions)

    def row_addresses(self, offsets: npt.NDArray[np.integer]) -> pa.Array:
        """Row addresses as uint64, for row offsets."""
        return numbers_array(offsets.astype(np.uint64) + np.uint64(self.fragment.id << _ADDRESS_SHIFT))

    def row_ids(self, offsets: npt.NDArray[np.integer]) -> pa.Array:
        """Row ids as uint64: the stable ones if the table has them, else the addresses."""
        if self.fragment.row_id_sequence is None:
            return self.row_addresses(offsets)
        return numbers_array(self.stable_row_ids[offsets])

    def scan(
        self, projection: Schema, *, start: int, end: int, batch_size: int, is_kept: bool = False
    ) -> Iterator[Rows]:
        """Read rows [start, end) in order, deleted ones included, at most ``batch_size`` at a time.

        Who will keep all of them in memory says so with ``is_kept``.
        """
        parts = self._parts(projection)
        options = {"start": start, "end": end, "batch_size": batch_size}
        streams = [self._scan_part(part, options, is_kept=is_kept) for part in parts]
        if not streams:
            yield from self._scan_nothing(projection, start, end, batch_size)
            return
        position = start
        for batches in _aligned(streams):
            num_rows = batches[0].num_rows
            yield self._rows(projection, parts, batches, position, num_rows)
            position += num_rows
        if position != end:
            path = data_file_path(parts[0].file)
            raise CorruptDataError(f"the data file has {position} rows, its fragment needs {end}", path=path)

    def scan_dictionary(
        self, projection: Schema, *, start: int, end: int, batch_size: int
    ) -> Iterator[pa.Array | DictionaryEncoded] | None:
        """Read one field of the rows [start, end), deleted ones included; arguments as of `scan`.

        Returns:
            The rows in order, in parts: values, or places in dictionaries. None if the field is not stored as one.
        """
        parts, reads = self._split(projection)
        if len(projection.fields) != 1 or len(parts) != 1:
            return None
        part, stored = parts[0], reads[0]
        if stored.schema.fields != projection.fields:
            return None
        return self._open(part).scan_dictionary(
            stored.schema, part.columns, start=start, end=end, batch_size=batch_size
        )

    def cursor(self, projection: Schema, *, end: int) -> Callable[[range, Offsets | None], list[pa.Array]]:
        """Read ranges of rows, each behind the one before, or only some rows of them.

        Args:
            projection: Fields to read.
            end: Offset behind the last row that will be asked for.

        Returns:
            Reads a range, deleted rows included, or those rows of it that are wanted: at least one, counted from its
            first row, ascending.
        """
        parts, reads = self._split(projection)
        files = [
            (part, stored, self._open(part).cursor(stored.schema, part.columns, end=end))
            for part, stored in zip(parts, reads, strict=True)
        ]

        def read(rows: range, selected: Offsets | None) -> list[pa.Array]:
            batches = [self._with_bytes(part, stored, read_file(rows, selected)) for part, stored, read_file in files]
            count = len(rows) if selected is None else len(selected)
            offsets = None if selected is None else selected + rows.start
            return list(self._rows(projection, parts, batches, rows.start, count, offsets=offsets).columns)

        return read

    def batch_statistics(self, projection: Schema) -> list[tuple[npt.NDArray[np.int64], Mapping[int, BatchStatistics]]]:
        """For each data file that tells something of the values of a projection: its batches, and what it tells.

        Newer files tell nothing, and are not opened.
        """
        if not any(map(is_legacy, self.fragment.files)):
            return []
        parts = [part for part in split_projection(projection, self.fragment.files) if is_legacy(part.file)]
        return [self._open(part).batch_statistics(part.columns.keys()) for part in parts]

    def take(self, projection: Schema, offsets: npt.NDArray[np.int64]) -> list[pa.Array]:
        """Read single rows.

        Args:
            projection: Fields to read.
            offsets: Row offsets, ascending, without duplicates.
        """
        return list(finished(self.taking(projection, offsets)).columns)

    def only_part(self, projection: Schema) -> FilePart | None:
        """The file that holds all of a projection as it is wanted; None if nothing less than `taking` will do."""
        parts, reads = self._split(projection)
        if len(parts) != 1 or parts[0].schema.fields != projection.fields:
            return None
        stored = reads[0]
        return parts[0] if stored.schema.fields == projection.fields and not stored.lacks_bytes else None

    def taking(self, projection: Schema, offsets: npt.NDArray[np.int64]) -> IoCoroutine[Rows]:
        """As `take`, but stops where a mapped file was asked for something."""
        parts, reads = self._split(projection)
        batches: list[pa.RecordBatch] = []
        for part, stored in zip(parts, reads, strict=True):
            file = yield from self._files.opening(part.file, num_rows=self.fragment.physical_rows)
            columns = yield from file.taking(stored.schema, part.columns, offsets)
            batches.append(self._with_bytes(part, stored, columns))
        return self._rows(projection, parts, batches, 0, len(offsets), offsets=offsets)

    def _parts(self, projection: Schema) -> tuple[FilePart, ...]:
        """Divide a projection among the files."""
        return self._split(projection)[0]

    def _split(self, projection: Schema) -> tuple[tuple[FilePart, ...], tuple[_Stored, ...]]:
        """Divide a projection among the files, with the reads of these; calls ask for the same two projections."""
        for wanted, split in self._last_splits:
            if wanted is projection:
                return split
        if not self.fragment.files:
            raise CorruptDataError(f"fragment {self.fragment.id} has no data files")
        parts = split_projection(projection, self.fragment.files)
        if lost := lost_fields(projection, parts):
            parts += tuple([part for path in lost if (part := self._shape(path)) is not None])
        split = parts, tuple([_stored_as(part.schema) for part in parts])
        self._last_splits = ((projection, split), *self._last_splits[:1])
        return split

    def _shape(self, path: Sequence[Field]) -> FilePart | None:
        """Return the part that holds the levels of a field of which no stored child is selected."""
        for file in self.fragment.files:
            if (file.file_major_version, file.file_minor_version) >= LEAVES_HAVE_SHAPES:
                stored = self._files.open(file, num_rows=self.fragment.physical_rows).schema
                if (part := part_with_shape(file, stored, path)) is not None:
                    return part
        return None

    def _scan_part(self, part: FilePart, rows: Mapping[str, int], *, is_kept: bool) -> Iterator[pa.RecordBatch]:
        stored = view_schema(part.schema, BlobView.DESCRIPTIONS)
        batches = self._open(part).scan(stored, part.columns, **rows, is_kept=is_kept)
        return fill_batches(part.schema, batches, self._blobs(part)) if needs_bytes(part.schema) else batches

    def _with_bytes(self, part: FilePart, stored: _Stored, batch: pa.RecordBatch) -> pa.RecordBatch:
        """With the bytes of blobs, if they are wanted."""
        if not stored.lacks_bytes:
            return batch
        pieces = list(fill_batches(part.schema, iter([batch]), self._blobs(part)))
        return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)

    def _blobs(self, part: FilePart) -> BlobSources:
        return BlobSources(self._files.store, part.file)

    def _open(self, part: FilePart) -> DataFileReader:
        return self._files.open(part.file, num_rows=self.fragment.physical_rows)

    def _scan_nothing(self, projection: Schema, start: int, end: int, batch_size: int) -> Iterator[Rows]:
        for position in range(start, end, batch_size):
            yield self._rows(projection, (), (), position, min(batch_size, end - position))

    def _rows(
        self,
        projection: Schema,
        parts: Sequence[FilePart],
        batches: Sequence[pa.RecordBatch],
        start: int,
        num_rows: int,
        *,
        offsets: Offsets | None = None,
    ) -> Rows:
        """Return rows with the parts of all files; consecutive ones unless there are ``offsets``."""

        def live() -> Mask | None:
            return self.live_mask(start, start + num_rows) if offsets is None else ~np.isin(offsets, self.deleted)

        if len(parts) == 1 and parts[0].schema.fields == projection.fields:
            return Rows(start=start, num_rows=num_rows, values=batches[0])
        pairs = [(part.schema, batch.columns) for part, batch in zip(parts, batches, strict=True)]
        return Rows(start=start, num_rows=num_rows, values=join_columns(projection, pairs, num_rows, live))


class FragmentReaders:
    """The fragments of one version, each opened when it is first asked for. May be shared by threads.

    Args:
        files: The dataset's open files.
        fragments: The fragments.
    """

    def __init__(self, files: OpenFiles, fragments: FragmentList) -> None:
        self.fragments = fragments
        self._files = files
        self._readers: dict[int, FragmentReader] = {}

    @once
    def ends(self) -> npt.NDArray[np.int64]:
        """Return an array of shape (fragments,): live rows up to the end of each."""
        return np.cumsum(self.fragments.num_rows)

    @once
    def rows(self) -> BitMap64:
        """Addresses of all rows, deleted ones included; must not be changed."""
        return rows_of_fragments(self.fragments.ids.astype(np.int64), self.fragments.physical_rows.astype(np.int64))

    @once
    def positions(self) -> RowPositions:
        """Return the positions of all rows, deleted ones included."""
        ids, num_rows = self.fragments.ids.astype(np.int64), self.fragments.physical_rows.astype(np.int64)
        order = np.argsort(ids)
        return RowPositions(ids[order], num_rows[order])

    @once
    def deleted_rows(self) -> BitMap64:
        """Addresses of all deleted rows; must not be changed."""
        numbers = np.flatnonzero(self.fragments.num_rows != self.fragments.physical_rows).tolist()
        fragments = [self.fragments[number] for number in numbers]
        store = self._files.store
        bitmaps = each(store, (partial(rebase.load_deletions, store, part) for part in fragments))
        parts = [(part.id, bitmap.serialize()) for part, bitmap in zip(fragments, bitmaps, strict=True)]
        return decode_row_treemap(encode_row_treemap(sorted(parts)), path=store.uri)

    def __getitem__(self, number: int) -> FragmentReader:
        """Return the reader of a fragment; it is kept with what it learns, unless that would be much."""
        reader = self._readers.get(number)
        if reader is None:
            reader = FragmentReader(self._files, self.fragments[number])
            if reader.fragment.num_deleted_rows <= _MOST_DELETED:
                if len(self._readers) >= _MOST_KEPT:
                    self._readers.clear()
                self._readers[number] = reader
        return reader


def readers_of(files: OpenFiles, fragments: FragmentList) -> FragmentReaders:
    """Return the fragments of a version, opened; many calls in a row ask for those of the same version."""
    return files.kept_for(fragments, lambda: FragmentReaders(files, fragments))


def _aligned(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[list[pa.RecordBatch]]:
    """Batches of all streams, cut so that they have the same rows."""
    if len(streams) == 1:
        yield from ([batch] for batch in streams[0])
        return
    pending: list[pa.RecordBatch | None] = [None] * len(streams)
    while True:
        heads = [batch or next(stream, None) for batch, stream in zip(pending, streams, strict=True)]
        ready = [batch for batch in heads if batch is not None]
        if len(ready) < len(streams):
            return
        num_rows = min(batch.num_rows for batch in ready)
        yield [batch.slice(0, num_rows) for batch in ready]
        pending = [batch.slice(num_rows) if batch.num_rows > num_rows else None for batch in ready]


def addresses_of_ids(readers: Sequence[FragmentReader]) -> Callable[[Int64s], Int64s]:
    """Return a function that finds the addresses of row ids; -1 for ids of no live row of some fragments."""
    ids: list[Int64s] = [np.empty(0, np.int64)]
    addresses: list[Int64s] = [np.empty(0, np.int64)]
    for reader in readers:
        live = reader.live_mask(0, reader.physical_rows)
        offsets = np.arange(reader.physical_rows) if live is None else np.flatnonzero(live)
        ids.append(reader.stable_row_ids.astype(np.int64)[offsets])
        addresses.append(offsets + (reader.fragment.id << _ADDRESS_SHIFT))
    every, targets = np.concatenate(ids), np.concatenate(addresses)
    order = np.argsort(every)
    every, targets = every[order], targets[order]

    def locate(rows: Int64s) -> Int64s:
        at = np.minimum(np.searchsorted(every, rows), max(len(every) - 1, 0))
        return np.where(every[at] == rows, targets[at], -1) if len(every) else np.full(len(rows), -1)

    return locate


def row_places(files: OpenFiles, fragments: Iterable[Fragment], *, by_row_id: bool) -> Callable[[Int64s], Int64s]:
    """Return a function that finds the rows of a segment's entries.

    It returns the addresses of live rows of some fragments, and -1 for all others.

    Args:
        files: The dataset's open files.
        fragments: The fragments that the segment covers.
        by_row_id: Entries are stable row ids, not addresses.
    """
    readers = [FragmentReader(files, fragment) for fragment in fragments]
    if by_row_id:
        return addresses_of_ids(readers)
    readers.sort(key=lambda reader: reader.fragment.id)
    ids = np.array([reader.fragment.id for reader in readers], np.int64)
    deleted = [reader.deleted.astype(np.int64) + (reader.fragment.id << _ADDRESS_SHIFT) for reader in readers]
    gone = np.concatenate([np.empty(0, np.int64), *deleted])

    def locate(rows: Int64s) -> Int64s:
        is_there = contains(ids, rows >> _ADDRESS_SHIFT)
        if len(gone):
            is_there &= ~contains(gone, rows)
        return rows if is_there.all() else np.where(is_there, rows, -1)

    return locate


def codes_of_ids(answer: RowAnswer, reader: FragmentReader) -> tuple[Int64s, npt.NDArray[np.uint8]]:
    """Return the codes of a fragment's rows: offsets where runs of one code begin and end, and the code of each."""
    sequence, num_rows = reader.fragment.row_id_sequence, reader.physical_rows
    bounds = row_id_bounds(sequence) if isinstance(sequence, bytes) else None
    if isinstance(sequence, bytes) and bounds is not None:
        low, high = np.searchsorted(answer.bounds, np.array(bounds, np.int64), side="right").tolist()
        if low == high:
            return np.array([0, num_rows], np.int64), answer.codes[low : low + 1]
        if row_id_range(sequence) == (bounds[0], bounds[0] + num_rows):
            edges = np.concatenate([bounds[:1], answer.bounds[low:high], [bounds[1] + 1]]) - bounds[0]
            return edges, answer.codes[low : high + 1]
    codes = answer.at(reader.stable_row_ids.astype(np.int64))
    edges = np.flatnonzero(np.diff(codes)) + 1
    edges = np.concatenate([[0], edges, [num_rows]]).astype(np.int64)
    return edges, codes[edges[:-1]]


def offsets_of_ids(wanted: Int64s, reader: FragmentReader) -> Int64s | None:
    """Return the offset of the row of each id, -1 where there is none; None if a fragment has none of them.

    Args:
        wanted: Row ids, ascending and distinct.
        reader: The fragment.
    """
    sequence = reader.fragment.row_id_sequence
    bounds = row_id_bounds(sequence) if isinstance(sequence, bytes) else (0, _MOST_ID)
    if bounds is None:
        return None
    low = int(np.searchsorted(wanted, min(bounds[0], _MOST_ID)))
    high = int(np.searchsorted(wanted, min(bounds[1], _MOST_ID), side="right"))
    if low == high:
        return None
    offsets = np.full(len(wanted), -1)
    if isinstance(sequence, bytes) and row_id_range(sequence) is not None:
        offsets[low:high] = wanted[low:high] - bounds[0]
        return offsets
    ids = reader.stable_row_ids.astype(np.int64)
    wanted_indices = np.minimum(np.searchsorted(wanted, ids), len(wanted) - 1)
    hits = np.flatnonzero(wanted[wanted_indices] == ids)
    offsets[wanted_indices[hits]] = hits
    return offsets
