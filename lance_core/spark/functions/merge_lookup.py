"""Look up the keys of a merge in the table, so that Spark joins few of its rows instead of all.

The keys of a small source come to the driver, which asks the indices; tasks then read the rows that may have one of
the keys. Without an index, tasks get the keys, and read those of the table. Spark still compares the keys, so that an
index need only narrow. A DataFrame may give other rows each time that it is evaluated, so it is kept from the first
look at its keys to the end of the merge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lance_core.change.merging.key_lookup import MOST_SHARE, find_candidates, has_key_index
from lance_core.format.table.fragment_list import FragmentList
from lance_core.index import answer as answers
from lance_core.index.answer import ADDRESS_SHIFT
from lance_core.scan.candidates import SPARSE_SHARE, kept_ranges
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.fragments import scan_fragment, take_offsets
from lance_core.scan.open_files import OpenFiles
from lance_core.scan.plan import ROW_ADDRESS, ROW_ID, plan_scan
from lance_core.spark.common.cast import cast_batches
from lance_core.spark.common.conditions import quoted
from lance_core.spark.common.signed import OPTION, SignedSource, register_signing, signed
from lance_core.spark.common.task_memory import keep_modules
from lance_core.spark.common.task_version import TaskVersion
from lance_core.spark.common.types import arrow_schema, spark_schema
from lance_core.spark.common.worker_errors import without_traceback
from lance_core.spark.functions.read import parallelism
from lance_core.spark.reading.read_plan import readable_schema
from lance_core.spark.session import is_connect
from lance_core.sql.grouping import grouped
from lance_core.sql.ternary import FALSE, NULL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from lance_core.format.schema import Schema
    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.index.answer import RowAnswer
    from lance_core.scan.plan import ScanPlan
    from lance_core.spark.functions.modification import Modification
    from lance_core.table.snapshot import Snapshot

    Int64s = npt.NDArray[np.int64]

MIN_TABLE_ROWS = 1 << 18
"""Smaller tables are read as a whole in the time that the jobs for the keys take."""

_MOST_KEYS, _MOST_KEYS_TO_TASKS = 1 << 17, 1 << 20
"""Rows of a source whose keys come to the driver to ask indices, or to go to the tasks."""

_MOST_KEY_BYTES = 1 << 24
"""Bytes of these keys."""

_MOST_MATCHED = 1 / 2
"""Share of the table's rows from which on Spark's join of all of them costs as much as to look for the keys."""

_MOST_BROADCAST_ROWS = 1 << 22
"""Rows of a table whose keys every executor can hold, even if all of them match."""

_MOST_SOURCE_BYTES, _UNKNOWN_BYTES = 1 << 28, 1 << 50
"""Estimate of Spark up to which a source is looked at, and from which on Spark does not know."""

_MOST_CANDIDATES = 1 / 4
"""Share of the table's rows from which on reading all of them costs as much."""

_PIECE_ROWS = 1 << 20
"""Rows of a range that one task reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows of a fragment that are read together.

    Attributes:
        fragment_id: The fragment.
        start: First row.
        end: Row behind the last one.
        offsets: Single rows, ascending; None for all of the range.
    """

    fragment_id: int
    start: int
    end: int
    offsets: Int64s | None = None


@dataclass(slots=True)
class TaskPieces(InputPartition):
    """The work of one task."""

    pieces: tuple[Piece, ...]


class CachedSource:
    """The source of a merge, which gives the same rows each time once its keys were read.

    Args:
        frame: The DataFrame.

    Attributes:
        has_distinct_keys: No two rows have the same key; False if that is unknown.
    """

    def __init__(self, frame: DataFrame) -> None:
        self.has_distinct_keys = False
        self._frame = frame
        self._is_cached = False
        self._is_large = False

    def keys(self, schema: Schema, most: int) -> pa.Table | None:
        """Read the keys.

        Args:
            schema: Fields of the key, as the table has them.
            most: Rows of the source at most.

        Returns:
            Them in the types of the table; None for a larger source, or one whose keys have other types.
        """
        if self._is_large or not _has_types(self._frame, schema):
            return None
        self._keep()
        # One more row tells a larger source, which is not read as a whole.
        rows = self._frame.select(*(F.col(quoted(name)) for name in schema.names)).limit(most + 1).toArrow()
        if rows.num_rows > most or rows.nbytes > _MOST_KEY_BYTES:
            self._is_large = True
            self.release()
            return None
        batches = cast_batches(iter(rows.to_batches()), schema.to_arrow())
        keys = pa.Table.from_batches(batches, schema=schema.to_arrow())
        distinct = grouped(keys, keys.column_names)
        self.has_distinct_keys = distinct.num_rows == keys.num_rows
        return keys

    def _keep(self) -> None:
        """Keep the rows, unless the caller does."""
        if not self._is_cached and not self.is_kept:
            self._frame.persist()
            self._is_cached = True

    @property
    def num_bytes(self) -> int:
        """Spark's estimate of the size; a client of Spark Connect gets none."""
        if is_connect(self._frame.sparkSession):
            return _UNKNOWN_BYTES
        unknown: Any = self._frame
        plan = unknown._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 there is no public way
        return int(str(plan.stats().sizeInBytes()))

    @property
    def is_kept(self) -> bool:
        """True if the caller keeps the rows."""
        level = self._frame.storageLevel
        return level.useMemory or level.useDisk

    def release(self) -> None:
        """Forget the rows."""
        if self._is_cached:
            self._frame.unpersist()
            self._is_cached = False


def _has_types(frame: DataFrame, schema: Schema) -> bool:
    """Return whether Spark compares the keys as Lance does: both sides have the same type, one with a single order."""
    arrow = schema.to_arrow()
    given = {field.name: field.dataType for field in frame.schema}
    return all(
        _is_exact(field.type) and given.get(field.name) == kind.dataType
        for field, kind in zip(arrow, spark_schema(arrow), strict=True)
    )


def _is_exact(kind: pa.DataType) -> bool:
    """Return whether values keep their meaning on the way through Spark; floats have several zeros and NaN."""
    is_number = pa.types.is_signed_integer(kind) or pa.types.is_decimal128(kind) or pa.types.is_boolean(kind)
    is_text = any(check(kind) for check in _TEXT_CHECKS)
    is_time = pa.types.is_date32(kind) or (pa.types.is_timestamp(kind) and kind.unit == "us")
    return is_number or is_text or is_time


_TEXT_CHECKS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def candidate_rows(
    change: Modification,
    snapshot: Snapshot,
    source: CachedSource,
    on: Sequence[str],
    columns: Sequence[str],
    *,
    within: str | None,
) -> DataFrame | None:
    """Return the rows of the table that may have a key of the source.

    Args:
        change: The merge.
        snapshot: The version.
        source: The source.
        on: Columns of the key.
        columns: Columns to read.
        within: SQL text; only these rows.

    Returns:
        The columns, ``_rowaddr`` and, in tables with stable row ids, ``_rowid``; None if indices do not help.
    """
    manifest, files = snapshot.manifest, OpenFiles(snapshot.store)
    most = _most_keys(manifest, files, source, on)
    schema = manifest.schema.select(on)
    keys = source.keys(schema, most) if most else None
    if keys is None:
        return None
    candidates = find_candidates(files, manifest, schema, keys)
    chosen = None if candidates is None else _fragments(snapshot, candidates.answer)
    if candidates is not None and chosen is not None:
        fragments = chosen
        pieces = [piece for fragment in fragments for piece in _pieces(fragment, candidates.answer)]
    elif len(on) == 1:
        fragments = list(manifest.fragments)
        pieces = [piece for fragment in fragments for piece in _cut(fragment.id, 0, fragment.physical_rows)]
    else:
        return None
    some = replace(snapshot, manifest=replace(manifest, fragments=FragmentList.of(fragments)))
    read = CandidateReader(
        version=TaskVersion.whole(change.branch_address, some),
        pieces=pieces,
        columns=[*columns, *([ROW_ID] if manifest.uses_stable_row_ids else []), ROW_ADDRESS],
        within=within,
        num_tasks=parallelism(change.spark),
        keys=keys.column(0).drop_null().unique() if len(on) == 1 else None,
        key=on[0],
    )
    rows = change.spark.read.format(register_signing(change.spark, CandidateSource)).schema(read.schema)
    frame = rows.option(OPTION, signed(read)).load()
    has_keys_only = set(columns) <= set(on) and manifest.num_rows <= _MOST_BROADCAST_ROWS
    return F.broadcast(frame) if has_keys_only else frame


def _most_keys(manifest: Manifest, files: OpenFiles, source: CachedSource, on: Sequence[str]) -> int:
    """Return the largest number of source rows whose keys are looked up; 0 for none.

    A source of unknown size is counted only to ask an index, since rows that turn out to be many are read twice.
    """
    if manifest.num_rows < MIN_TABLE_ROWS:
        return 0
    if len(on) == 1 and (source.is_kept or source.num_bytes <= _MOST_SOURCE_BYTES):
        return min(int(manifest.num_rows * _MOST_MATCHED), _MOST_KEYS_TO_TASKS)
    if not has_key_index(files, manifest, on) or _MOST_SOURCE_BYTES < source.num_bytes < _UNKNOWN_BYTES:
        return 0
    return min(int(manifest.num_rows * MOST_SHARE), _MOST_KEYS)


def _fragments(snapshot: Snapshot, answer: RowAnswer) -> list[Fragment] | None:
    """Return the fragments with candidates; None if too many rows are some."""
    fragments = snapshot.manifest.fragments
    ids, num_rows = fragments.ids.astype(np.int64), fragments.physical_rows.astype(np.int64)
    chosen = [fragments[number] for number in np.flatnonzero(answer.may_match(ids, num_rows)).tolist()]
    candidates = sum(answer.of_fragment(fragment.id, fragment.physical_rows).num_candidates for fragment in chosen)
    return chosen if candidates <= snapshot.manifest.num_rows * _MOST_CANDIDATES else None


def _pieces(fragment: Fragment, answer: RowAnswer) -> Iterator[Piece]:
    """Yield the rows to read of a fragment."""
    end = fragment.physical_rows
    rows = answer.of_fragment(fragment.id, end)
    if rows.num_candidates <= end * SPARSE_SHARE:
        yield Piece(fragment_id=fragment.id, start=0, end=end, offsets=rows.candidates())
        return
    for low, high in kept_ranges(rows.bounds, rows.may_match, 0, end):
        yield from _cut(fragment.id, low, high)


def _cut(fragment_id: int, low: int, high: int) -> Iterator[Piece]:
    for start in range(low, high, _PIECE_ROWS):
        yield Piece(fragment_id=fragment_id, start=start, end=min(start + _PIECE_ROWS, high))


class CandidateSource(SignedSource):
    """The data source of rows that were looked up, by a `CandidateReader`."""

    title = "lance_candidates"

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader in the options.

        Raises:
            InvalidInputError: There is none, or somebody else made it.
        """
        del schema
        return self.job()


class CandidateReader(DataSourceReader):
    """Reads rows of a version.

    Args:
        version: The version.
        pieces: The rows.
        columns: Columns to read.
        within: SQL text; only these rows.
        num_tasks: Tasks to aim at.
        keys: Only rows of whole ranges with one of these keys; None for all.
        key: The column of these keys.
    """

    def __init__(
        self,
        *,
        version: TaskVersion,
        pieces: Sequence[Piece],
        columns: Sequence[str],
        within: str | None,
        num_tasks: int,
        keys: pa.ChunkedArray | pa.Array | None = None,
        key: str,
    ) -> None:
        self._version = version
        self._pieces = pieces
        self._columns = columns
        self._within = within
        self._num_tasks = num_tasks
        self._keys = keys
        self._key = key

    @property
    def schema(self) -> StructType:
        """The columns, in the types that Spark knows."""
        return readable_schema(self._plan())

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each task, neighbours together."""
        cuts = (
            np.linspace(0, len(self._pieces), max(min(self._num_tasks, len(self._pieces)), 1) + 1).astype(int).tolist()
        )
        return [TaskPieces(tuple(self._pieces[low:high])) for low, high in pairwise(cuts)]

    @without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        if not isinstance(partition, TaskPieces):
            return
        keep_modules()
        plan, snapshot = self._plan(self._within), self._version.open()
        files, types = OpenFiles(snapshot.store), arrow_schema(self.schema)
        for piece in partition.pieces:
            fragment = snapshot.manifest.fragments.find(piece.fragment_id)
            assert fragment is not None  # noqa: S101 for the type checker: the driver chose it
            reader = FragmentReader(files, fragment)
            if piece.offsets is None and self._keys is not None:
                yield from cast_batches(self._with_keys(reader, plan, piece, self._keys), types)
            else:
                yield from cast_batches(_rows(reader, plan, piece), types)

    def _with_keys(
        self, reader: FragmentReader, plan: ScanPlan, piece: Piece, keys: pa.ChunkedArray | pa.Array
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range that have one of the keys; their other columns are read when they are known."""
        import pyarrow.compute as pc  # noqa: PLC0415 slow to import

        kernels: Any = pc
        narrow = self._plan(self._within, [self._key, ROW_ADDRESS])
        batches = list(scan_fragment(reader, narrow, start=piece.start, end=piece.end))
        rows = pa.Table.from_batches(batches, schema=narrow.schema)
        # All at once, since each call makes a hash table of the keys.
        matched = rows.filter(kernels.is_in(rows.column(self._key), value_set=keys))
        if set(self._columns) == {self._key, ROW_ADDRESS}:
            yield from matched.to_batches()
            return
        addresses = np.asarray(matched.column(ROW_ADDRESS)).astype(np.int64)
        if len(addresses) <= (piece.end - piece.start) * SPARSE_SHARE:
            offsets = addresses - (reader.fragment.id << ADDRESS_SHIFT)
            yield from _rows(reader, self._plan(), replace(piece, offsets=offsets))
            return
        for batch in scan_fragment(reader, plan, start=piece.start, end=piece.end):
            is_matched = np.isin(np.asarray(batch.column(ROW_ADDRESS)).astype(np.int64), addresses)
            yield batch.filter(pa.array(is_matched))

    def _plan(self, within: str | None = None, columns: Sequence[str] | None = None) -> ScanPlan:
        return plan_scan(
            self._version.manifest.schema,
            columns=columns or self._columns,
            filter=within,
            batch_size=None if columns is None else _PIECE_ROWS,
            with_row_id=False,
            with_row_address=False,
        )


def _rows(reader: FragmentReader, plan: ScanPlan, piece: Piece) -> Iterator[pa.RecordBatch]:
    if piece.offsets is None:
        yield from scan_fragment(reader, plan, start=piece.start, end=piece.end)
        return
    if plan.predicate is not None:
        addresses = piece.offsets + (reader.fragment.id << ADDRESS_SHIFT)
        near = answers.of_rows(undecided=addresses, elsewhere=FALSE | NULL)
        yield from scan_fragment(reader, replace(plan, index_answer=near))
        return
    offsets = piece.offsets[~np.isin(piece.offsets, reader.deleted)] if len(reader.deleted) else piece.offsets
    for at in range(0, len(offsets), plan.batch_size):
        yield take_offsets(reader, plan, offsets[at : at + plan.batch_size])
