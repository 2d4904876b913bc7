"""The streaming side of the data source: new versions of a table as micro-batches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from lance_core.format.schema import Schema
from lance_core.spark.common.cast import cast_batches
from lance_core.spark.common.names import with_names_of
from lance_core.spark.common.types import arrow_schema
from lance_core.spark.common.worker_errors import without_traceback
from lance_core.spark.reading.read_plan import LancePartition, checked_plan, find_version, open_read_branch
from lance_core.spark.reading.reader import scan_partition
from lance_core.spark.reading.stream_plan import Limits, Position, StreamPlan, first_position
from lance_core.table.snapshot import newest_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lance_core.spark.common.read_options import ReadOptions


class LanceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what versions of a table add, exactly once as far as the sink is.

    Args:
        options: Of the stream.
        schema_version: Version that the schema is from.
        schema: Columns to read, in this order.
    """

    def __init__(self, options: ReadOptions, schema_version: int | None, schema: StructType) -> None:
        options.check_stream()
        snapshot = find_version(replace(options, version=schema_version))
        self.options = options = with_names_of(options, snapshot.manifest.schema)
        self.schema = schema
        self.fields = snapshot.manifest.schema
        self._schema_version = snapshot.version
        self._last_version: int | None = None
        checked_plan(self.fields, options, schema)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 Spark's name
        """Return the start of a new query."""
        return first_position(open_read_branch(self.options), self.options).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 Spark's name
        """Return the end of the next micro-batch; errors as `StreamPlan.latest`."""
        limits = Limits()
        if not isinstance(limit, ReadAllAvailable):
            limits = Limits(max_rows=self.options.max_rows_per_batch, max_bytes=self.options.max_bytes_per_batch)
        return self._plan().latest(Position.from_json(start), limits, self._last_version).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 Spark's name
        """Return the limit on the size of a micro-batch that the options set."""
        rows, num_bytes = self.options.max_rows_per_batch, self.options.max_bytes_per_batch
        if rows is not None:
            return ReadMaxRows(rows)
        return ReadAllAvailable() if num_bytes is None else ReadMaxBytes(num_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 Spark's name
        """Read nothing that is committed after now."""
        self._last_version = newest_version(open_read_branch(self.options))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 Spark's name
        """Return the position behind the newest version, for the query's progress."""
        return Position(version=newest_version(open_read_branch(self.options)) + 1).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the work of one micro-batch."""
        return self._plan().tasks(Position.from_json(start), Position.from_json(end))

    @without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        if not isinstance(partition, LancePartition):
            return iter(())
        plan = checked_plan(self.fields, self.options, self.schema)
        batches = scan_partition(partition, plan)
        return cast_batches(batches, arrow_schema(self.schema), truncate_nanoseconds=self.options.truncate_nanoseconds)

    def _plan(self) -> StreamPlan:
        plan = checked_plan(self.fields, self.options, self.schema)
        mine = plan.projection.fields
        return StreamPlan(
            branch_root=open_read_branch(self.options),
            fields=Schema(
                (*plan.projection.fields, *(field for field in plan.filter_projection.fields if field not in mine))
            ),
            schema_version=self._schema_version,
            options=self.options,
        )
