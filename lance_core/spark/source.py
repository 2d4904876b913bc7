"""The data source ``lance``.

Spark creates this object in processes of its own: ``schema`` in one, ``reader`` and what it plans in a second, tasks in
the executors. What they pass on is pickled, so it holds plain values.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import DataSource

from lance_core.errors import UnsupportedError
from lance_core.spark.common.options import parse_options
from lance_core.spark.common.read_options import ReadOptions
from lance_core.spark.common.task_memory import keep_modules
from lance_core.spark.common.worker_errors import without_traceback
from lance_core.spark.reading.pushdown import asks_newest, describe, take_pushdown
from lance_core.spark.reading.read_plan import find_version, pin, readable_schema, scan_plan
from lance_core.spark.reading.reader import LanceReader, OutdatedReader
from lance_core.spark.writing.rows_writer import rows_writer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter
    from pyspark.sql.types import StructType

    from lance_core.spark.writing.sink import LanceWriter


def resolve(options: ReadOptions) -> tuple[ReadOptions, StructType]:
    """Return the options for the version that they name now, and the columns that they ask for.

    Raises:
        DatasetNotFoundError, VersionNotFoundError, RefNotFoundError: There is no such thing.
        InvalidInputError: Unknown columns, a wrong condition.
        UnsupportedError: Spark has no type for a column.
    """
    if options.read_change_feed:
        from lance_core.spark.reading.changes import change_schema, pin_changes  # noqa: PLC0415 rarely needed

        pinned, snapshot = pin_changes(options)
        return pinned, change_schema(snapshot.manifest.schema, pinned)
    pinned, schema, _ = _resolve_rows(options)
    return pinned, schema


def _resolve_rows(options: ReadOptions) -> tuple[ReadOptions, StructType, str]:
    """As `resolve`, and what the planner rule should know about the version."""
    snapshot = find_version(options)
    plan = scan_plan(snapshot.manifest.schema, options)
    return pin(options, snapshot), readable_schema(plan), describe(snapshot, plan)


class LanceDataSource(DataSource):
    """Reads and writes Lance tables: ``spark.read.format("lance")`` and ``df.write.format("lance")``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._given = dict(options)
        self._pinned: ReadOptions | None = None
        self._description = ""

    @classmethod
    def name(cls) -> str:
        """Return the name to give to ``format``."""
        return "lance"

    @without_traceback
    def schema(self) -> StructType:
        """Return the table's schema, and read its version unless Spark asks a new object for the reader.

        Spark keeps this object with the relation. `lance_core.spark.planner` gives each query an object of its own,
        unless a version was asked for, and reads the description in the pickled object.
        """
        keep_modules()
        options = parse_options(ReadOptions, self._given)
        if options.read_change_feed:
            self._pinned, schema = resolve(options)
        else:
            self._pinned, schema, self._description = _resolve_rows(options)
        return schema

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for the table's schema or a selection of its columns."""
        keep_modules()
        options = self._pinned or parse_options(ReadOptions, self._given)
        if options.read_change_feed:
            from lance_core.spark.reading.changes import LanceChangeReader  # noqa: PLC0415 rarely needed

            return LanceChangeReader(options, schema)
        if asks_newest(schema) and _resolve_rows(parse_options(ReadOptions, self._given))[2] != self._description:
            return OutdatedReader()
        pushed, schema = take_pushdown(schema)
        if pushed is not None:
            options = pushed.apply(options, tuple(schema.names))
            if pushed.aggregates is not None:
                from lance_core.spark.reading.aggregates import LanceAggregateReader, Partials  # noqa: PLC0415 rarely needed

                return LanceAggregateReader(options, schema, Partials(**pushed.aggregates))
        return LanceReader(options, schema)

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> LanceWriter:
        """Return a writer for one write; checks everything that can be checked before any task runs."""
        if "row_changes" in self._given:
            from lance_core.spark.writing.sql_changes import changes_writer  # noqa: PLC0415 rarely needed

            return changes_writer(self._given)
        return rows_writer(self._given, schema, overwrite=overwrite)

    @without_traceback
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 Spark's name
        """Return a reader for the new versions of the table.

        Raises:
            UnsupportedError: pyspark is too old.
        """
        if find_spec("pyspark.sql.streaming.datasource") is None:
            raise UnsupportedError(f"Streaming reads need pyspark 4.2 or later, not {pyspark.__version__}.")
        from lance_core.spark.reading.stream_source import LanceStreamReader  # noqa: PLC0415 older ones cannot import it

        version = None if self._pinned is None else self._pinned.version
        return LanceStreamReader(parse_options(ReadOptions, self._given), version, schema)

    @without_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 Spark's name
        """Return a writer for micro-batches."""
        from lance_core.spark.writing.stream_sink import LanceStreamWriter  # noqa: PLC0415 other workers do without

        return LanceStreamWriter(self._given, schema, overwrite=overwrite)
