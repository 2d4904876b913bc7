"""Plan of a read: the rows and columns of a version, divided among tasks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StructField, StructType

from lance_core.errors import InvalidInputError
from lance_core.format.blobs import blob_view
from lance_core.scan.candidates import indexed_ranges
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.indexed import with_index_answer
from lance_core.scan.lineage import ROW_CREATED_AT, ROW_UPDATED_AT
from lance_core.scan.open_files import OpenFiles
from lance_core.scan.plan import ROW_ADDRESS, ROW_ID, SYSTEM_COLUMNS, known_plan, plan_scan
from lance_core.spark.common.names import with_names_of
from lance_core.spark.common.types import check_readable, spark_schema
from lance_core.spark.reading.plan import FragmentSize, plan_partitions
from lance_core.table.naming import naming
from lance_core.table.open_table import BranchAddress, find_version_as_of, open_branch, open_version
from lance_core.table.refs import other_branch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from lance_core.format.schema import Schema
    from lance_core.format.table.base_path import BasePath
    from lance_core.format.table.fragment import Fragment
    from lance_core.scan.plan import ScanPlan
    from lance_core.spark.common.read_options import ReadOptions
    from lance_core.spark.reading.plan import Piece
    from lance_core.store.base import Store
    from lance_core.table.snapshot import Snapshot

_BATCH_ROWS, _MOST_BATCH_ROWS, _BATCH_BYTES = 1 << 14, 1 << 17, 1 << 21
"""Rows of a batch; of columns of fixed width more, if they fit into so many bytes: each batch costs Spark the same, a
third of what two numbers cost in small ones."""

_MOST_TABLES = 4
_open_tables: deque[tuple[object, OpenFiles]] = deque(maxlen=_MOST_TABLES)

_ROW_VERSIONS = (ROW_CREATED_AT, ROW_UPDATED_AT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRange:
    """Rows [start, end) of a fragment, deleted ones included."""

    fragment: Fragment
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LancePartition(InputPartition):
    """The work of one task.

    Attributes:
        ranges: What to read, in the order of the table.
        branch_address: The branch.
        base_paths: Other places that files may lie in.
        branch: Branch that the version is on; None for the main branch.
        limit: Rows at most.
    """

    ranges: tuple[RowRange, ...]
    branch_address: BranchAddress
    base_paths: tuple[BasePath, ...] = ()
    branch: str | None = None
    limit: int | None = None


def open_read_branch(options: ReadOptions) -> Store:
    """Return the branch that the options are about."""
    branch_root = open_branch(options.path, options.storage_options, options.base_store_params)
    return branch_root if options.branch is None else other_branch(branch_root, options.branch)


def find_version(options: ReadOptions) -> Snapshot:
    """Open the version that the options name; the newest one if they name none."""
    branch_root = open_read_branch(options)
    if options.timestamp is not None:
        # Versions are found that are older than a point in time; the one of this very moment counts, too.
        moment = datetime.fromisoformat(options.timestamp) + timedelta(microseconds=1)
        return open_version(branch_root, find_version_as_of(branch_root, moment))
    return open_version(branch_root, options.version if options.tag is None else options.tag)


def pin(options: ReadOptions, snapshot: Snapshot) -> ReadOptions:
    """Return the options for this version, whatever is committed later; a branch has an address of its own."""
    path = snapshot.store.uri
    options = with_names_of(options, snapshot.manifest.schema)
    return replace(options, path=path, version=snapshot.version, tag=None, timestamp=None, branch=None)


def scan_plan(table: Schema, options: ReadOptions, columns: Sequence[str] | None = None) -> ScanPlan:
    """Plan a scan of the columns given, or of those that the options ask for.

    Raises:
        InvalidInputError: There is no such column, or the filter does not fit.
    """
    names = list(columns or with_names_of(options, table).columns or table.names)
    if columns is None:
        names += [ROW_ID] * (options.with_row_id and ROW_ID not in names)
        names += [ROW_ADDRESS] * (options.with_row_address and ROW_ADDRESS not in names)
        names += [column for column in _ROW_VERSIONS if options.with_row_versions and column not in names]
    plan = plan_scan(
        table,
        columns=names,
        filter=options.filter,
        batch_size=options.batch_size or _BATCH_ROWS,
        with_row_id=False,
        with_row_address=False,
        blob_view=blob_view(options.blob_handling),
    )
    return plan if options.batch_size else replace(plan, batch_size=_fitting_rows(plan.schema))


def _fitting_rows(schema: pa.Schema) -> int:
    """Return rows of a batch of these columns, if the options do not say."""
    try:
        bits = sum(field.type.bit_width for field in schema)
    except ValueError:  # strings, lists and structs have no fixed width
        return _BATCH_ROWS
    return min(max(_BATCH_BYTES * 8 // max(bits, 1), _BATCH_ROWS), _MOST_BATCH_ROWS)


def readable_schema(plan: ScanPlan) -> StructType:
    """Return the columns of a scan as Spark types.

    Raises:
        UnsupportedError: Spark has no type for a column.
    """
    return StructType(
        [
            StructField(field.name, LongType()) if name in SYSTEM_COLUMNS else field
            for name, field in zip(plan.columns, spark_schema(plan.schema), strict=True)
        ]
    )


def checked_plan(table: Schema, options: ReadOptions, asked: StructType) -> ScanPlan:
    """Return the scan for the columns that Spark asks for: the table's own schema, or one that the user gave.

    Raises:
        InvalidInputError: There are no such columns, or they have other types.
    """
    return known_plan(table, (options, asked), lambda: _checked_plan(table, options, asked))


def _checked_plan(table: Schema, options: ReadOptions, asked: StructType) -> ScanPlan:
    there = [name for name in asked.names if name in table.names or name in SYSTEM_COLUMNS]
    paths = [name for name in options.columns or () if name in asked.names and name not in there]
    plan = scan_plan(table, options, [*there, *paths]) if there or paths else scan_plan(table, options)
    check_readable(asked, readable_schema(plan))
    return plan if list(plan.columns) == asked.names else scan_plan(table, options, asked.names)


def open_files(snapshot: Snapshot, options: ReadOptions) -> OpenFiles:
    """Return open files of a version.

    A process plans one query after another: what it has open of the tables that it planned last stays open, most of all
    pages of indices. Files never change, so they serve all versions whose files are found at the same places.
    """
    table = (options.path, options.storage_options, options.base_store_params, snapshot.manifest.base_paths)
    for open_table, files in _open_tables:
        if open_table == table:
            return files
    files = OpenFiles(snapshot.store)
    _open_tables.appendleft((table, files))
    return files


def ask_indices(snapshot: Snapshot, files: OpenFiles, plan: ScanPlan) -> ScanPlan:
    """Return a plan that knows what the indices of the version know."""
    with naming(snapshot.store):
        return with_index_answer(plan, snapshot.manifest, files)


def plan_ranges(snapshot: Snapshot, files: OpenFiles, plan: ScanPlan, options: ReadOptions) -> list[RowRange]:
    """Return the rows that a scan looks at: without those that cannot match the filter, or lie behind the limit."""
    if options.limit is not None and plan.predicate is None:
        return _first_rows(snapshot.manifest.fragments, files, options.limit)
    return [
        RowRange(fragment=fragment, start=start, end=end)
        for fragment in snapshot.manifest.fragments
        for start, end in indexed_ranges(fragment, plan, 0, fragment.physical_rows)
    ]


def _first_rows(fragments: Iterable[Fragment], files: OpenFiles, limit: int) -> list[RowRange]:
    row_ranges: list[RowRange] = []
    for candidate in fragments:
        end = candidate.physical_rows
        if limit < candidate.num_rows:
            last = FragmentReader(files, candidate).offsets_of_live(np.array([limit - 1]))
            end = int(last[0]) + 1
        row_ranges.append(RowRange(fragment=candidate, start=0, end=end))
        limit -= candidate.num_rows
        if limit <= 0:
            break
    return row_ranges


def plan_tasks(snapshot: Snapshot, ranges: Sequence[RowRange], options: ReadOptions) -> list[LancePartition]:
    """Divide rows among tasks by their number and their bytes; at least one task, so that Spark has a partition.

    With a limit and a filter one task looks for the rows, so that they are exactly as many.
    """
    if options.limit is not None and options.filter is not None:
        groups = [tuple(ranges)]
    else:
        parts = plan_partitions(
            [_size(row_range) for row_range in ranges],
            split_rows=options.split_rows,
            split_bytes=options.split_bytes,
            min_partitions=options.min_partitions,
        )
        groups = [tuple(_cut(ranges[piece.index], piece) for piece in part) for part in parts]
    manifest, branch_address = snapshot.manifest, BranchAddress.of(snapshot.store, options.storage_options)
    return [
        LancePartition(
            ranges=group,
            branch_address=branch_address,
            base_paths=manifest.base_paths,
            branch=manifest.branch,
            limit=options.limit,
        )
        for group in groups or [()]
    ]


def _size(row_range: RowRange) -> FragmentSize:
    num_rows, fragment = row_range.end - row_range.start, row_range.fragment
    num_bytes = sum(file.file_size_bytes for file in fragment.files)
    return FragmentSize(num_rows=num_rows, num_bytes=num_bytes * num_rows // max(fragment.physical_rows, 1))


def _cut(row_range: RowRange, piece: Piece) -> RowRange:
    return replace(row_range, start=row_range.start + piece.start, end=row_range.start + piece.end)


def check_same_columns(fields: Schema, version: int, snapshot: Snapshot) -> None:
    """Columns keep their identity over the versions that are read together.

    Args:
        fields: Columns as they are in one version.
        version: That version.
        snapshot: Another one; if it is older, it may lack columns that allow nulls.

    Raises:
        InvalidInputError: A column is missing or another one there.
    """
    there = {field.name: field for field in snapshot.manifest.schema.fields}
    for mine in fields.fields:
        other = there.get(mine.name)
        if other is None and snapshot.version < version and mine.nullable:
            continue
        if other is None or (other.id, other.logical_type) != (mine.id, mine.logical_type):
            raise InvalidInputError(
                f"version {snapshot.version} has no column {mine.name!r} like that of version {version}, from "
                "which the schema is; read other columns, or the versions up to this change and those after it apart",
                path=snapshot.store.uri,
            )
