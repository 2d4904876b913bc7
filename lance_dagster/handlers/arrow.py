"""pyarrow tables and streams; every other in-memory frame goes through here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import lance_core
from lance_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lance_dagster.handlers.base import ReadRequest, WriteRequest

_SHOWN = 5


class ArrowHandler:
    """``pa.Table``, ``pa.RecordBatch``, ``pa.RecordBatchReader``; loads ``LanceDataset`` too."""

    def schema(self, obj: Any) -> pa.Schema:
        """Columns."""
        return obj.schema

    def write(self, obj: Any, request: WriteRequest) -> int:
        """Write batch by batch."""
        if isinstance(obj, lance_core.LanceDataset):
            return write_batches(obj.schema, obj.to_batches(), request)
        batches = [obj] if isinstance(obj, pa.RecordBatch) else obj.to_batches() if isinstance(obj, pa.Table) else obj
        return write_batches(obj.schema, batches, request)

    def load(self, request: ReadRequest) -> Any:
        """Hand out a table, a stream, or the dataset itself."""
        if issubclass(request.type, pa.RecordBatchReader):
            return load_reader(request)
        if issubclass(request.type, lance_core.LanceDataset):
            return _load_dataset(request)
        table = load_table(request)
        return table.combine_chunks().to_batches()[0] if issubclass(request.type, pa.RecordBatch) else table


def load_table(request: ReadRequest) -> pa.Table:
    """Read into memory."""
    if request.is_empty or request.dataset is None:
        return _projected(request).empty_table()
    columns = None if request.columns is None else list(request.columns)
    return request.dataset.to_table(columns=columns, filter=request.filter)


def load_reader(request: ReadRequest) -> pa.RecordBatchReader:
    """A stream; nothing is read before it is asked for."""
    schema = _projected(request)
    if request.is_empty or request.dataset is None:
        return pa.RecordBatchReader.from_batches(schema, [])
    columns = None if request.columns is None else list(request.columns)
    batches = request.dataset.to_batches(columns=columns, filter=request.filter)
    return pa.RecordBatchReader.from_batches(schema, batches)


def _load_dataset(request: ReadRequest) -> lance_core.LanceDataset:
    restricted = request.columns is not None or request.filter is not None or request.is_empty
    if restricted or request.dataset is None:
        msg = (
            "A LanceDataset is a whole table and cannot stand for some of its partitions, columns or rows: annotate "
            "the input with pa.RecordBatchReader to read lazily, or open the table through LanceResource."
        )
        raise InvalidInputError(msg)
    return request.dataset


def _projected(request: ReadRequest) -> pa.Schema:
    if request.columns is None:
        return request.schema
    unknown = [name for name in request.columns if name not in request.schema.names]
    if unknown:
        msg = f"The columns {unknown} are not among {request.schema.names}."
        raise InvalidInputError(msg)
    return pa.schema([request.schema.field(name) for name in request.columns])


def write_batches(schema: pa.Schema, batches: Iterable[pa.RecordBatch], request: WriteRequest) -> int:
    """Write a stream of batches in one commit.

    Args:
        schema: Columns of the batches.
        batches: Read once, one after the other.
        request: What to do.

    Returns:
        The version made.
    """
    target = storable(schema) if request.existing is None else fitting(schema, request.existing.schema)
    stream = pa.RecordBatchReader.from_batches(target, _checked(batches, target, request))
    return _commit(stream, request)


def _commit(stream: pa.RecordBatchReader, request: WriteRequest) -> int:
    """Commit; returns the version."""
    properties = dict(request.properties)
    if request.operation == "replace_where":
        assert request.existing is not None  # noqa: S101 - states the contract
        assert request.replaced is not None  # noqa: S101 - likewise
        request.existing.replace_where(request.replaced, stream, transaction_properties=properties)
        return request.existing.version
    made = lance_core.write_dataset(
        stream,
        request.uri,
        mode=request.operation,
        transaction_properties=properties,
        storage_options=dict(request.storage_options) or None,
    )
    return made.version


def _checked(batches: Iterable[pa.RecordBatch], target: pa.Schema, request: WriteRequest) -> Iterator[pa.RecordBatch]:
    """Batches with the target's columns and only rows of the run's partitions."""
    for batch in batches:
        kept = _in_partition(batch, request)
        yield pa.RecordBatch.from_arrays([_cast(kept.column(column.name), column) for column in target], schema=target)


def _in_partition(batch: pa.RecordBatch, request: WriteRequest) -> pa.RecordBatch:
    if request.expected is None or request.out_of_partition == "allow":
        return batch
    mask = request.expected.mask(batch)
    if mask.all():
        return batch
    if request.out_of_partition == "drop":
        return batch.filter(pa.array(mask))
    columns = list(dict.fromkeys(test.column for product in request.expected.any_of for test in product))
    examples = batch.select(columns).take(pa.array(np.flatnonzero(~mask)[:_SHOWN])).to_pylist()
    msg = (
        f"{int((~mask).sum())} rows of a batch of {batch.num_rows} lie outside of the run's partitions, such as "
        f"{examples}. Nothing was written. Fix the asset, or set the metadata 'lance/out_of_partition' to 'drop' or "
        "'allow'."
    )
    raise InvalidInputError(msg, path=request.uri)


def _cast(column: pa.Array, target: pa.Field) -> pa.Array:
    if column.type == target.type:
        return column
    try:
        return column.cast(target.type)
    except pa.ArrowException as error:
        msg = f"Column {target.name!r} is {column.type} in the data and {target.type} in the table: {error}"
        raise InvalidInputError(msg) from error


def fitting(schema: pa.Schema, table: pa.Schema) -> pa.Schema:
    """The table's schema, if data of ``schema`` has the same columns (in any order).

    Raises:
        InvalidInputError: For missing or extra columns.
    """
    missing = [name for name in table.names if name not in schema.names]
    extra = [name for name in schema.names if name not in table.names]
    if missing or extra:
        msg = (
            f"The data does not have the table's columns: missing {missing}, extra {extra}. "
            "Give it the same columns, or overwrite the whole table from an unpartitioned asset."
        )
        raise InvalidInputError(msg)
    return table


def storable(schema: pa.Schema) -> pa.Schema:
    """The schema with types that a table can have: string and binary views become plain ones."""
    return pa.schema([column.with_type(_storable(column.type)) for column in schema], metadata=schema.metadata)


def _storable(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_binary_view(type_):
        return pa.binary()
    return type_
