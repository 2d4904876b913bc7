"""The data source ``lance`` and its reader.

Spark creates these objects in processes of its own: ``schema`` in one, ``reader`` and ``partitions`` in a second,
``read`` in the executors. What they pass on is pickled, so they hold plain values. Each task gets the records of its
fragments with it and reads no manifest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StructField, StructType

from lance_core.errors import InvalidInputError
from lance_core.spark.cast import cast_batches
from lance_core.spark.options import ReadOptions, WriteOptions, parse_options
from lance_core.spark.plan import FragmentSize, plan_partitions
from lance_core.spark.sink import LanceWriter
from lance_core.spark.types import arrow_schema, check_readable, spark_schema
from lance_core.table.fragment_reader import FragmentReader
from lance_core.table.open_files import OpenFiles
from lance_core.table.open_table import open_line, open_version
from lance_core.table.places import at_places
from lance_core.table.predicate import make_predicate
from lance_core.table.scan import scan_fragment
from lance_core.table.scan_plan import ROW_ADDRESS, ROW_ID, plan_scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from lance_core.format.base_path import BasePath
    from lance_core.format.fragment import Fragment
    from lance_core.format.schema import Schema
    from lance_core.table.snapshot import Snapshot


class LanceDataSource(DataSource):
    """Reads and writes Lance tables: ``spark.read.format("lance")`` and ``df.write.format("lance")``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._given = dict(options)
        self._pinned: ReadOptions | None = None

    @classmethod
    def name(cls) -> str:
        """The name to give to ``format``."""
        return "lance"

    def schema(self) -> StructType:
        """The table's schema; the version is fixed here, so that the data comes from the same one."""
        options = parse_options(ReadOptions, self._given)
        snapshot = find_version(options)
        self._pinned = _pinned(options, snapshot)
        return readable_schema(snapshot.manifest.schema, options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader for the table's schema or a selection of its columns."""
        options = self._pinned or parse_options(ReadOptions, self._given)
        return LanceReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> LanceWriter:
        """A writer for one write; checks everything that can be checked before any task runs."""
        return LanceWriter(parse_options(WriteOptions, self._given), schema, overwrite=overwrite)


def find_version(options: ReadOptions) -> Snapshot:
    """Open the version that the options name."""
    store = open_line(options.path, options.storage_options)
    return open_version(store, options.version if options.tag is None else options.tag)


def _pinned(options: ReadOptions, snapshot: Snapshot) -> ReadOptions:
    """Options that name this version; a tag may name one on a branch, which has an address of its own."""
    return replace(options, path=snapshot.store.uri, version=snapshot.version, tag=None)


def readable_schema(table: Schema, options: ReadOptions) -> StructType:
    """The columns the options ask for, as Spark types.

    Raises:
        InvalidInputError: There is no such column, or the filter does not fit.
        UnsupportedError: Spark has no type for a column.
    """
    arrow = table.to_arrow()
    names = options.columns or arrow.names
    missing = [name for name in names if name not in arrow.names]
    if missing:
        raise InvalidInputError(f"There is no column {', '.join(missing)}; there are {', '.join(arrow.names)}.")
    if options.filter is not None:
        make_predicate(options.filter, arrow)
    extra = [(ROW_ID, options.with_row_id), (ROW_ADDRESS, options.with_row_address)]
    columns = spark_schema(arrow.empty_table().select(names).schema)
    return StructType([*columns, *(StructField(name, LongType()) for name, wanted in extra if wanted)])


@dataclass(frozen=True, slots=True, kw_only=True)
class LancePartition(InputPartition):
    """The work of one task.

    Attributes:
        ranges: Rows [start, end) of fragments, in the order of the table.
        uri: Address of the line of versions.
        base_paths: Other places that files may lie in.
        branch: Branch that the version is on; None for the main line.
    """

    ranges: tuple[tuple[Fragment, int, int], ...]
    uri: str
    base_paths: tuple[BasePath, ...] = ()
    branch: str | None = None


class LanceReader(DataSourceReader):
    """Reads one version of a table as record batches of exactly the types Spark demands.

    Args:
        options: What to read; without a version the newest.
        schema: Columns to read, in this order.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        snapshot = find_version(options)
        self.options = _pinned(options, snapshot)
        self.fields = snapshot.manifest.schema
        self.schema = arrow_schema(schema)
        check_readable(schema, readable_schema(self.fields, replace(options, columns=None)))

    def partitions(self) -> list[InputPartition]:
        """One partition for each task, planned by rows and bytes; see ``plan_partitions``."""
        options = self.options
        snapshot = find_version(options)
        manifest = snapshot.manifest
        fragments = list(manifest.fragments)
        sizes = [
            FragmentSize(num_rows=fragment.physical_rows, num_bytes=sum(f.file_size_bytes for f in fragment.files))
            for fragment in fragments
        ]
        parts = plan_partitions(
            sizes,
            split_rows=options.split_rows,
            split_bytes=options.split_bytes,
            min_partitions=options.min_partitions,
        )
        ranges = [tuple((fragments[piece.index], piece.start, piece.end) for piece in part) for part in parts]
        return [
            LancePartition(ranges=part, uri=snapshot.store.uri, base_paths=manifest.base_paths, branch=manifest.branch)
            for part in ranges or [()]
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        batches = self._scan(partition) if isinstance(partition, LancePartition) else iter(())
        return cast_batches(batches, self.schema)

    def _scan(self, partition: LancePartition) -> Iterator[pa.RecordBatch]:
        options = self.options
        line = open_line(partition.uri, options.storage_options)
        files = OpenFiles(at_places(line, partition.base_paths, partition.branch))
        plan = plan_scan(
            self.fields,
            columns=self.schema.names,
            filter=options.filter,
            batch_size=options.batch_size,
            with_row_id=False,
            with_row_address=False,
        )
        for fragment, start, end in partition.ranges:
            yield from scan_fragment(FragmentReader(files, fragment), plan, start=start, end=end)
