"""A reader that counts rows instead of returning them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lance_core.scan.open_files import OpenFiles
from lance_core.scan.plan import ROW_ADDRESS
from lance_core.spark.found_rows import FoundRows, find_few_rows
from lance_core.spark.read_plan import (
    LancePartition,
    ask_indices,
    find_version,
    pin,
    plan_ranges,
    plan_tasks,
    scan_plan,
)
from lance_core.spark.reader import scan_partition
from lance_core.spark.task_memory import keep_freed_memory, keep_modules
from lance_core.spark.types import arrow_schema
from lance_core.spark.worker_errors import without_traceback

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.types import StructType

    from lance_core.spark.read_options import ReadOptions


class LanceCountReader(DataSourceReader):
    """Counts the rows of one version that match a condition, in each task.

    Args:
        options: What to count; without a version the newest.
        schema: The column of the counts.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        snapshot = find_version(options)
        self.options = pin(options, snapshot)
        self.schema = schema
        self.fields = snapshot.manifest.schema

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each task; rows that cannot match the condition are in none."""
        snapshot = find_version(self.options)
        files = OpenFiles(snapshot.store)
        plan = ask_indices(snapshot, files, scan_plan(self.fields, self.options, [ROW_ADDRESS]))
        batches = find_few_rows(snapshot, files, plan, self.options)
        if batches is not None:
            return [FoundRows.of([self._counted(batches)], arrow_schema(self.schema))]
        return plan_tasks(snapshot, plan_ranges(snapshot, files, plan, self.options), self.options)

    @without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the number of rows of one partition."""
        keep_modules()
        if isinstance(partition, FoundRows):
            yield from partition.batches()
        if not isinstance(partition, LancePartition):
            return
        keep_freed_memory()
        plan = scan_plan(self.fields, self.options, [ROW_ADDRESS])
        yield self._counted(scan_partition(partition, plan))

    def _counted(self, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
        count = sum(batch.num_rows for batch in batches)
        return pa.RecordBatch.from_arrays([pa.array([count], pa.int64())], schema=arrow_schema(self.schema))
