"""The reader of the data source: plans tasks, and reads in them.

Spark creates it in a process of its own and pickles it for the tasks, so it holds plain values. Each task gets the
records of its fragments with it and reads no manifest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from lance_core.errors import InvalidInputError
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.fragments import scan_fragment
from lance_core.scan.open_files import OpenFiles
from lance_core.spark.common.cast import cast_batches
from lance_core.spark.common.task_memory import keep_freed_memory, keep_modules
from lance_core.spark.common.types import arrow_schema
from lance_core.spark.common.worker_errors import without_traceback
from lance_core.spark.reading.found_rows import FoundRows, find_few_rows
from lance_core.spark.reading.read_plan import (
    LancePartition,
    ask_indices,
    checked_plan,
    find_version,
    open_files,
    pin,
    plan_ranges,
    plan_tasks,
)
from lance_core.table.locations import at_places

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lance_core.scan.plan import ScanPlan
    from lance_core.spark.common.read_options import ReadOptions
    from lance_core.spark.reading.read_plan import RowRange

_STEP_BATCHES, _STEP_BYTES = 4, 1 << 23
"""Batches that are decoded together, if they need no more bytes: each time costs two thousand calls of Python."""


class LanceReader(DataSourceReader):
    """Reads one version of a table as record batches of exactly the types Spark demands.

    Args:
        options: What to read; without a version the newest.
        schema: Columns to read, in this order.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        options.check_batch()
        snapshot = find_version(options)
        self.options = pin(options, snapshot)
        self.schema = schema
        self.fields = snapshot.manifest.schema
        self.plan()

    def plan(self) -> ScanPlan:
        """Return the scan of a task."""
        return checked_plan(self.fields, self.options, self.schema)

    def answer(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return what Spark gets for rows of the scan."""
        return cast_batches(batches, arrow_schema(self.schema), truncate_nanoseconds=self.options.truncate_nanoseconds)

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each task; rows that cannot match the filter are in none."""
        snapshot = find_version(self.options)
        files = open_files(snapshot, self.options)
        plan = ask_indices(snapshot, files, self.plan())
        batches = find_few_rows(snapshot, files, plan, self.options)
        if batches is not None:
            return [FoundRows.of(self.answer(batches), arrow_schema(self.schema))]
        return plan_tasks(snapshot, plan_ranges(snapshot, files, plan, self.options), self.options)

    @without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one partition."""
        keep_modules()
        if not isinstance(partition, LancePartition):
            return partition.batches() if isinstance(partition, FoundRows) else iter(())
        keep_freed_memory()
        return self.answer(scan_partition(partition, self.plan()))


@dataclass(slots=True)
class Outdated(InputPartition):
    """Tells the planner rule, which looks for the mark, that there is a newer version than the one it trusts."""

    mark: bytes = b"lance-outdated:"


class OutdatedReader(DataSourceReader):
    """Reads nothing: the planner rule begins anew with the newest version."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return the news."""
        return [Outdated()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Refuse to read."""
        raise InvalidInputError(f"There is a newer version than the one that was planned, so {partition} has no rows.")


def scan_partition(partition: LancePartition, plan: ScanPlan) -> Iterator[pa.RecordBatch]:
    """Read the rows of a partition, in order."""
    files = OpenFiles(at_places(partition.branch_address.open(), partition.base_paths, partition.branch))
    left = partition.limit
    for row_range in partition.ranges:
        reader = FragmentReader(files, row_range.fragment)
        if left is None:
            yield from _scan_range(reader, row_range, plan)
            continue
        for batch in scan_fragment(reader, plan, start=row_range.start, end=row_range.end):
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return


def _scan_range(reader: FragmentReader, row_range: RowRange, plan: ScanPlan) -> Iterator[pa.RecordBatch]:
    """Read rows of a fragment; behind the first batch, which tells how wide rows are, several are decoded together."""
    middle = row_range.end if plan.predicate is not None else min(row_range.start + plan.batch_size, row_range.end)
    num_rows = num_bytes = 0
    for batch in scan_fragment(reader, plan, start=row_range.start, end=middle):
        num_rows += batch.num_rows
        num_bytes += batch.nbytes
        yield batch
    if middle == row_range.end:
        return
    stored = sum(file.file_size_bytes for file in row_range.fragment.files) / row_range.fragment.physical_rows
    width = max(num_bytes / max(num_rows, 1), stored, 1)  # rows that come later may be wider than the first ones
    num_batches = max(1, min(_STEP_BATCHES, int(_STEP_BYTES / (width * plan.batch_size))))
    wider = replace(plan, batch_size=num_batches * plan.batch_size)
    for batch in scan_fragment(reader, wider, start=middle, end=row_range.end):
        yield from (batch.slice(at, plan.batch_size) for at in range(0, batch.num_rows, plan.batch_size))
