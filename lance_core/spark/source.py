"""The data source ``lance`` and its reader.

Spark creates these objects in processes of its own: ``schema`` in one, ``reader`` and ``partitions`` in a second,
``read`` in the executors. What they pass on is pickled, so they hold plain values; a table is opened where needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StructField, StructType

import lance_core
from lance_core.errors import InvalidInputError
from lance_core.spark.cast import cast_batches
from lance_core.spark.options import ReadOptions, WriteOptions, parse_options
from lance_core.spark.plan import FragmentSize, Piece, plan_partitions
from lance_core.spark.sink import LanceWriter
from lance_core.spark.types import arrow_schema, check_readable, spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

ROW_ID = "_rowid"
ROW_ADDRESS = "_rowaddr"


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
        dataset = open_dataset(options)
        self._pinned = replace(options, version=dataset.version, tag=None)
        return readable_schema(dataset, options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader for the table's schema or a selection of its columns."""
        options = self._pinned or parse_options(ReadOptions, self._given)
        reader = LanceReader(options, schema)
        if not options.pushdown:
            return reader
        from lance_core.spark.pushdown import LancePushdownReader  # noqa: PLC0415 rarely used

        return LancePushdownReader(reader)

    def writer(self, schema: StructType, overwrite: bool) -> LanceWriter:
        """A writer for one write; checks everything that can be checked before any task runs."""
        return LanceWriter(parse_options(WriteOptions, self._given), schema, overwrite=overwrite)


def open_dataset(options: ReadOptions) -> lance_core.LanceDataset:
    """Open the version that the options name."""
    version = options.version if options.tag is None else options.tag
    return lance_core.dataset(options.path, version=version, storage_options=options.storage_options)


def readable_schema(dataset: lance_core.LanceDataset, options: ReadOptions) -> StructType:
    """The columns the options ask for, as Spark types.

    Raises:
        InvalidInputError: There is no such column.
        UnsupportedError: Spark has no type for a column.
    """
    table: pa.Schema = dataset.schema
    names = options.columns or table.names
    missing = [name for name in names if name not in table.names]
    if missing:
        raise InvalidInputError(f"There is no column {', '.join(missing)}; there are {', '.join(table.names)}.")
    extra = [(ROW_ID, options.with_row_id), (ROW_ADDRESS, options.with_row_address)]
    columns = spark_schema(table.empty_table().select(names).schema)
    return StructType([*columns, *(StructField(name, LongType()) for name, wanted in extra if wanted)])


@dataclass(frozen=True, slots=True, kw_only=True)
class LancePartition(InputPartition):
    """The work of one task.

    Attributes:
        pieces: Row ranges of fragments, in the order of the table.
    """

    pieces: tuple[Piece, ...]


class LanceReader(DataSourceReader):
    """Reads one version of a table as record batches of exactly the types Spark demands.

    Args:
        options: With the version in them; without one the newest is taken.
        schema: Columns to read, in this order.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        dataset = open_dataset(options)
        check_readable(schema, readable_schema(dataset, replace(options, columns=None)))
        self.options = replace(options, version=dataset.version, tag=None)
        self.schema = arrow_schema(schema)

    def partitions(self) -> list[InputPartition]:
        """One partition for each task, planned by rows and bytes; see ``plan_partitions``."""
        options = self.options
        sizes = [
            FragmentSize(
                fragment_id=fragment.fragment_id,
                num_rows=fragment.physical_rows,
                num_bytes=sum(file.file_size_bytes or 0 for file in fragment.data_files()),
            )
            for fragment in open_dataset(options).get_fragments()
        ]
        parts = plan_partitions(
            sizes,
            split_rows=options.split_rows,
            split_bytes=options.split_bytes,
            min_partitions=options.min_partitions,
        )
        return [LancePartition(pieces=pieces) for pieces in parts] or [LancePartition(pieces=())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        pieces = partition.pieces if isinstance(partition, LancePartition) else ()
        return cast_batches(self._scan(pieces), self.schema)

    def _scan(self, pieces: tuple[Piece, ...]) -> Iterator[pa.RecordBatch]:
        options = self.options
        dataset = open_dataset(options)
        for piece in pieces:
            yield from dataset.get_fragment(piece.fragment_id).to_batches(
                columns=[name for name in self.schema.names if name not in (ROW_ID, ROW_ADDRESS)],
                filter=options.filter,
                batch_size=options.batch_size,
                with_row_id=options.with_row_id,
                with_row_address=options.with_row_address,
            )
