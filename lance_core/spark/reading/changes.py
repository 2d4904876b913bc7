"""Changes between versions as rows: what each version inserted, updated and deleted.

The columns behind those of the table are named as in Delta's change data feed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lance_core.change.row_changes import ChangedRows, ChangeType, all_rows, compare_rows
from lance_core.errors import InvalidInputError, UnsupportedError, VersionNotFoundError
from lance_core.format.table.operations import (
    Append,
    DataOverlay,
    DataReplacement,
    Overwrite,
    Update,
    UpdateMode,
    operation_name,
)
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.fragments import scan_fragment
from lance_core.scan.open_files import OpenFiles
from lance_core.scan.plan import ROW_ADDRESS
from lance_core.spark.common.cast import cast_batches
from lance_core.spark.common.names import with_names_of
from lance_core.spark.common.types import arrow_schema, check_readable
from lance_core.spark.common.worker_errors import without_traceback
from lance_core.spark.reading.plan import FragmentSize, plan_partitions
from lance_core.spark.reading.read_plan import (
    check_same_columns,
    find_version,
    open_read_branch,
    readable_schema,
    scan_plan,
)
from lance_core.spark.reading.stream_plan import WITHOUT_ROWS
from lance_core.table.locations import at_places
from lance_core.table.open_table import BranchAddress
from lance_core.table.snapshot import load_transaction, open_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lance_core.format.schema import Schema
    from lance_core.format.table.base_path import BasePath
    from lance_core.format.table.operations import Operation
    from lance_core.scan.plan import ScanPlan
    from lance_core.spark.common.read_options import ReadOptions
    from lance_core.spark.reading.plan import Piece
    from lance_core.store.base import Store
    from lance_core.table.snapshot import Snapshot

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"

_CHANGE_COLUMNS = [
    st.StructField(CHANGE_TYPE, st.StringType(), nullable=False),
    st.StructField(COMMIT_VERSION, st.LongType(), nullable=False),
    st.StructField(COMMIT_TIMESTAMP, st.TimestampType()),
]
_OFFSET_MASK = np.uint64((1 << 32) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Rows of one fragment to which the same happened in one version.

    Attributes:
        rows: Which rows.
        start: The first row offset that counts.
        end: The row offset behind the last one that counts.
        version: The version.
        timestamp: When it was committed, microseconds since 1970; None if its manifest does not say.
        base_paths: Other places that its files may lie in.
    """

    rows: ChangedRows
    start: int
    end: int
    version: int
    timestamp: int | None
    base_paths: tuple[BasePath, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePartition(InputPartition):
    """The work of one task.

    Attributes:
        changes: What to read.
        branch_address: The branch.
        branch: Branch that the versions are on; None for the main branch.
    """

    changes: tuple[Change, ...]
    branch_address: BranchAddress
    branch: str | None


def change_schema(table: Schema, options: ReadOptions) -> st.StructType:
    """Return the columns asked for, then what happened to the row.

    Raises:
        InvalidInputError: There is no such column, or the table itself has columns of these names.
    """
    taken = [column.name for column in _CHANGE_COLUMNS if column.name in table.names]
    if taken:
        raise InvalidInputError(f"Cannot read changes: the table has columns named {', '.join(taken)}. Rename them.")
    return st.StructType([*readable_schema(scan_plan(table, options)), *_CHANGE_COLUMNS])


class LanceChangeReader(DataSourceReader):
    """Reads what versions changed.

    Args:
        options: Of the read.
        schema: Columns to read, in this order.
    """

    def __init__(self, options: ReadOptions, schema: st.StructType) -> None:
        self.options, snapshot = pin_changes(options)
        self.fields = snapshot.manifest.schema
        self.schema = schema
        check_readable(schema, change_schema(self.fields, self.options))

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        """Compares the versions; only ids of rows are read for that, not rows."""
        branch_root = open_read_branch(self.options)
        begin, end = change_range(self.options)
        changes = list(find_changes(branch_root, self._plan().projection, begin, end))
        parts = plan_partitions(
            [_size(change) for change in changes],
            split_rows=self.options.split_rows,
            split_bytes=self.options.split_bytes,
            min_partitions=self.options.min_partitions,
        )
        branch = open_snapshot(branch_root, end).manifest.branch
        groups = [tuple(_cut(changes[piece.index], piece) for piece in part) for part in parts]
        address = BranchAddress.of(branch_root, self.options.storage_options)
        return [ChangePartition(changes=group, branch_address=address, branch=branch) for group in groups or [()]]

    @without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes of one partition."""
        batches = self._read(partition) if isinstance(partition, ChangePartition) else iter(())
        return cast_batches(batches, arrow_schema(self.schema), truncate_nanoseconds=self.options.truncate_nanoseconds)

    def _read(self, partition: ChangePartition) -> Iterator[pa.RecordBatch]:
        branch_root, plan = partition.branch_address.open(), self._plan()
        files: OpenFiles | None = None
        base_paths: tuple[BasePath, ...] = ()
        for change in partition.changes:
            if files is None or base_paths != change.base_paths:
                base_paths = change.base_paths
                files = OpenFiles(at_places(branch_root, base_paths, partition.branch))
            reader = FragmentReader(files, change.rows.fragment)
            for batch in scan_fragment(reader, plan, start=change.start, end=change.end):
                yield _described(_chosen(batch, change.rows.offsets), change)

    def _plan(self) -> ScanPlan:
        names = [name for name in self.schema.names if name not in (column.name for column in _CHANGE_COLUMNS)]
        return scan_plan(self.fields, self.options, [*(name for name in names if name != ROW_ADDRESS), ROW_ADDRESS])


def _chosen(batch: pa.RecordBatch, offsets: npt.NDArray[np.int64] | None) -> pa.RecordBatch:
    if offsets is None or not batch.num_rows:
        return batch
    here = (np.asarray(batch.column(ROW_ADDRESS)) & _OFFSET_MASK).astype(np.int64)
    first, last = np.searchsorted(offsets, (here[0], here[-1] + 1))
    keep = np.isin(here, offsets[first:last], assume_unique=True)
    return batch if keep.all() else batch.filter(pa.array(keep))


def _described(batch: pa.RecordBatch, change: Change) -> pa.RecordBatch:
    count = batch.num_rows
    extra = [
        pa.repeat(pa.scalar(str(change.rows.change)), count),
        pa.repeat(pa.scalar(change.version, pa.int64()), count),
        pa.repeat(pa.scalar(change.timestamp, pa.timestamp("us", "UTC")), count),
    ]
    names = [*batch.schema.names, CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP]
    return pa.RecordBatch.from_arrays([*batch.columns, *extra], names=names)


def _size(change: Change) -> FragmentSize:
    fragment, num_rows = change.rows.fragment, change.end - change.start
    num_bytes = sum(file.file_size_bytes for file in fragment.files) * num_rows // max(fragment.physical_rows, 1)
    return FragmentSize(num_rows=num_rows, num_bytes=num_bytes)


def _cut(change: Change, piece: Piece) -> Change:
    offsets, start, end = change.rows.offsets, change.start + piece.start, change.start + piece.end
    if offsets is not None:
        offsets = offsets[slice(*np.searchsorted(offsets, (start, end)))]
    rows = replace(change.rows, offsets=offsets)
    return replace(change, rows=rows, start=start, end=end)


# ------------------------------------------------------------------------------------------------------ what changed


def pin_changes(options: ReadOptions) -> tuple[ReadOptions, Snapshot]:
    """Return the options with a last version, and that version, from which the schema is.

    Raises:
        InvalidInputError: There are no such versions, or they are in the wrong order.
        VersionNotFoundError: The first or the last of them is not there.
    """
    options.check_batch()
    snapshot = find_version(replace(options, version=options.ending_version))
    options = with_names_of(options, snapshot.manifest.schema)
    options = replace(options, path=snapshot.store.uri, branch=None, ending_version=snapshot.version)
    begin, _ = change_range(options)
    if begin:
        _open(snapshot.store, begin)
    return options, snapshot


def change_range(options: ReadOptions) -> tuple[int, int]:
    """Return the version before the first change, and the last version; errors as `pin_changes`."""
    text, end = options.starting_version or "", options.ending_version or 0
    if not text.isdecimal() or int(text) < 1:
        raise InvalidInputError(f"The option 'starting_version' must be a version number, got {text!r}.")
    if int(text) > end + 1:
        raise InvalidInputError(f"The option 'starting_version' is {text}, but the last version to read is {end}.")
    return int(text) - 1, end


def find_changes(branch_root: Store, fields: Schema, begin: int, end: int) -> Iterator[Change]:
    """Yield the changes made by the versions (begin, end], in order.

    Raises:
        VersionNotFoundError: One of them was cleaned up.
        UnsupportedError: Values were replaced in a way that leaves no trace of which rows changed.
        InvalidInputError: Columns changed their identity.
    """
    before = None if begin == 0 else _open(branch_root, begin)
    for version in range(begin + 1, end + 1):
        after = _open(branch_root, version)
        timestamp = after.manifest.timestamp
        moment = None if timestamp is None else int(timestamp.timestamp() * 1_000_000)
        changes = list(_changes(before, after))
        for end_point in {
            id(snapshot): snapshot for snapshot in (before, after) if snapshot is not None and changes
        }.values():
            check_same_columns(fields, end, end_point)
        for rows in changes:
            is_older = rows.change in (ChangeType.DELETE, ChangeType.UPDATE_PREIMAGE)
            owner = before if is_older and before is not None else after
            offsets = rows.offsets
            yield Change(
                rows=rows,
                start=0 if offsets is None else int(offsets[0]),
                end=rows.fragment.physical_rows if offsets is None else int(offsets[-1]) + 1,
                version=version,
                timestamp=moment,
                base_paths=owner.manifest.base_paths,
            )
        before = after


def _open(branch_root: Store, version: int) -> Snapshot:
    try:
        return open_snapshot(branch_root, version)
    except VersionNotFoundError as error:
        message = f"changes up to the newest version need version {version}, which has been cleaned up"
        raise VersionNotFoundError(message, path=branch_root.uri) from error


def _changes(before: Snapshot | None, after: Snapshot) -> Iterable[ChangedRows]:
    transaction = load_transaction(after.store, after.manifest)
    operation = None if transaction is None else transaction.operation
    fragments = list(after.manifest.fragments)
    if before is None:
        return all_rows(fragments, ChangeType.INSERT)
    if isinstance(operation, WITHOUT_ROWS):
        return ()
    if isinstance(operation, Append):
        return all_rows(fragments[len(fragments) - len(operation.fragments) :], ChangeType.INSERT)
    if isinstance(operation, Overwrite):
        return [*all_rows(before.manifest.fragments, ChangeType.DELETE), *all_rows(fragments, ChangeType.INSERT)]
    _check_traceable(operation, after)
    return compare_rows(before, after)


def _check_traceable(operation: Operation | None, after: Snapshot) -> None:
    in_place = isinstance(operation, Update) and operation.update_mode is UpdateMode.REWRITE_COLUMNS
    is_lost = operation is None or isinstance(operation, (DataReplacement, DataOverlay))
    if is_lost or (in_place and not after.manifest.uses_stable_row_ids):
        what = "something unknown" if operation is None else operation_name(operation)
        raise UnsupportedError(
            f"cannot tell which rows version {after.version} changed, since it replaced values in place "
            f"({what}). Read the changes before and after it separately",
            path=after.store.uri,
        )
