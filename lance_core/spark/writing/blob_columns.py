"""Columns of blobs on their way from Spark into a table.

Spark knows them as bytes, or as structs of bytes and addresses. Blobs that a merge keeps never go through Spark: the
task that writes a row fetches them from where the row was, a bounded number of bytes at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import types as st

from lance_core.change.ingest import fit_array
from lance_core.format.blobs import BlobView, has_blobs, is_second_version, view_schema
from lance_core.format.schema import Schema
from lance_core.scan.blobs import BATCH_BYTES, row_bytes
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.open_files import OpenFiles
from lance_core.spark.common.types import spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from lance_core.format.schema import Field
    from lance_core.spark.common.task_version import TaskVersion

    Int64s = npt.NDArray[np.int64]

CLAUSE, ROW_ADDRESS = "_clause", "_rowaddr"
"""Columns of the rows that a merge writes: which clause counts, and where the row was."""

_SHIFT = 32
_OFFSET_MASK = 0xFFFF_FFFF


def blob_columns(schema: Schema) -> list[Field]:
    """Return the columns that are blobs or have some inside."""
    return [field for field in schema.fields if has_blobs(Schema((field,)))]


def written_schema(table: Schema, source: st.StructType) -> st.StructType:
    """Types of the values that are to become rows: those of the table, but blobs may come as bytes."""
    given = {field.name: field.dataType for field in source}
    kinds = {field.name: given.get(field.name, st.BinaryType()) for field in table.fields if is_second_version(field)}
    table_schema = spark_schema(table.to_arrow())
    return st.StructType([st.StructField(field.name, kinds.get(field.name, field.dataType)) for field in table_schema])


def fit_blob_columns(batches: Iterable[pa.RecordBatch], fields: Schema) -> Iterator[pa.RecordBatch]:
    """Yield the same rows with their blobs as the table's fields have them."""
    blobs = blob_columns(fields)
    for batch in batches:
        fitted = {blob.name: fit_array(batch.column(blob.name), blob, blob.name) for blob in blobs}
        yield _with_columns(batch, fitted) if blobs else batch


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBlobs:
    """Fetches the blobs that rows keep.

    Attributes:
        columns: Columns that are kept by some clause, and the numbers of these.
        version: Version that the addresses are of.
    """

    columns: tuple[tuple[Field, tuple[int, ...]], ...]
    version: TaskVersion

    def put_in(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Put kept blobs into rows, which may be cut into more batches.

        Args:
            batches: Rows with `CLAUSE`, `ROW_ADDRESS` and the columns, whose kept values are null.
        """
        snapshot = self.version.open()
        files = OpenFiles(snapshot.store)
        readers = {fragment.id: FragmentReader(files, fragment) for fragment in snapshot.manifest.fragments}
        for batch in batches:
            for part in self._cut(batch, readers):
                columns = {
                    field.name: _overlaid(part, field, rows, _fetch(readers, Schema((field,)), _addresses(part, rows)))
                    for field, rows in self._rows(part)
                    if len(rows)
                }
                yield _with_columns(part, columns)

    def _rows(self, batch: pa.RecordBatch) -> list[tuple[Field, Int64s]]:
        """For each column, the rows that keep it."""
        number = np.asarray(batch.column(CLAUSE))
        return [(field, np.flatnonzero(np.isin(number, clauses))) for field, clauses in self.columns]

    def _cut(self, batch: pa.RecordBatch, readers: dict[int, FragmentReader]) -> Iterator[pa.RecordBatch]:
        """Parts of a batch whose kept blobs fit into memory."""
        sizes = np.zeros(batch.num_rows, np.int64)
        for field, rows in self._rows(batch):
            if len(rows):
                described = view_schema(Schema((field,)), BlobView.DESCRIPTIONS)
                sizes[rows] += row_bytes(field, _fetch(readers, described, _addresses(batch, rows)))
        ends = np.cumsum(sizes)
        start = 0
        while start < batch.num_rows:
            before = int(ends[start - 1]) if start else 0
            end = max(start + 1, int(np.searchsorted(ends, before + BATCH_BYTES, side="right")))
            yield batch.slice(start, end - start)
            start = end


def _addresses(batch: pa.RecordBatch, rows: Int64s) -> Int64s:
    return np.asarray(batch.column(ROW_ADDRESS).fill_null(0))[rows]


def _fetch(readers: dict[int, FragmentReader], schema: Schema, addresses: Int64s) -> pa.Array:
    """Return a column's values at some addresses, in their order."""
    unique, order = np.unique(addresses, return_inverse=True)
    owners = unique >> _SHIFT
    parts: list[pa.Array] = []
    for owner in np.unique(owners).tolist():
        parts += readers[owner].take(schema, unique[owners == owner] & _OFFSET_MASK)
    values = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    return values if np.array_equal(order, np.arange(len(values))) else values.take(pa.array(order))


def _overlaid(batch: pa.RecordBatch, field: Field, rows: Int64s, old: pa.Array) -> pa.Array:
    """Return a column with the kept values in some rows."""
    if len(rows) == batch.num_rows:
        return old
    given = fit_array(batch.column(field.name), field, field.name)
    order = np.arange(batch.num_rows)
    order[rows] = batch.num_rows + np.arange(len(rows))
    return pa.concat_arrays([given, old]).take(pa.array(order))


def _with_columns(batch: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    names: Sequence[str] = batch.schema.names
    return pa.RecordBatch.from_arrays([columns.get(name, batch.column(name)) for name in names], names=list(names))
