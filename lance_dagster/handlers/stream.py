"""Arrow tables and streams in and out; every frame but Spark's goes through here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance_core
from lance_core.common.hints import did_you_mean
from lance_core.common.late_module import LateModule
from lance_core.errors import InvalidInputError, LanceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    import pyarrow as pa

    from lance_dagster.handlers.base import ReadRequest, WriteRequest
else:
    np = LateModule("numpy")
    pa = LateModule("pyarrow")

_SHOWN = 5


def load_table(request: ReadRequest) -> pa.Table:
    """Read into memory."""
    schema = projected(request)
    if request.is_empty or request.dataset is None:
        return schema.empty_table()
    return request.dataset.to_table(columns=schema.names, filter=request.filter)


def load_reader(request: ReadRequest) -> pa.RecordBatchReader:
    """Return a stream; nothing is read before it is asked for."""
    schema = projected(request)
    if request.is_empty or request.dataset is None:
        return pa.RecordBatchReader.from_batches(schema, [])
    batches = request.dataset.to_batches(columns=schema.names, filter=request.filter)
    return pa.RecordBatchReader.from_batches(schema, batches)


def projected(request: ReadRequest) -> pa.Schema:
    """Return the columns to hand out.

    Raises:
        InvalidInputError: Unknown columns.
    """
    if request.columns is None:
        return request.schema
    unknown = [name for name in request.columns if name not in request.schema.names]
    if unknown:
        hint = did_you_mean(unknown[0], request.schema.names)
        msg = f"The columns {unknown} are not among {request.schema.names}.{hint}"
        raise InvalidInputError(msg)
    return pa.schema([request.schema.field(name) for name in request.columns])


def write_batches(schema: pa.Schema, data: pa.Table | Iterable[pa.RecordBatch], request: WriteRequest) -> int:
    """Write batches in one commit.

    Args:
        schema: Columns of the batches.
        data: A stream is read once; a table is checked as a whole before anything is written.
        request: What to do.

    Returns:
        The version made.
    """
    target = storable(schema) if request.target is None else request.target
    if isinstance(data, pa.Table):
        batches: Iterable[pa.RecordBatch] = list(_checked(_batches(data), target, request))
    else:
        batches = _checked(data, target, request)
    return _commit(pa.RecordBatchReader.from_batches(target, batches), request)


def _batches(table: Any) -> list[pa.RecordBatch]:
    return table.to_batches()


def _commit(stream: pa.RecordBatchReader, request: WriteRequest) -> int:
    """Commit; returns the version."""
    properties = dict(request.properties)
    dataset = request.existing
    if request.operation == "merge":
        assert dataset is not None  # noqa: S101 - states the contract
        merge = dataset.merge_insert(request.merge_keys).when_matched_update_all().when_not_matched_insert_all()
        merge.within(request.replaced).transaction_properties(properties).execute(stream)
        return dataset.version
    if request.operation == "replace_where":
        assert dataset is not None  # noqa: S101 - states the contract
        assert request.replaced is not None  # noqa: S101 - likewise
        dataset.replace_where(request.replaced, stream, transaction_properties=properties)
        return dataset.version
    made = lance_core.write_dataset(
        stream,
        request.uri,
        mode=request.operation,
        idempotency_key=request.idempotency_key,
        transaction_properties=properties,
        **request.options,
    )
    return made.version


def _checked(batches: Iterable[pa.RecordBatch], target: pa.Schema, request: WriteRequest) -> Iterator[pa.RecordBatch]:
    """Batches with the target's columns and only rows of the run's partitions."""
    keys: list[pa.RecordBatch] = []
    for batch in batches:
        checked = _in_partition(batch, request)
        stored = pa.RecordBatch.from_arrays([_column(checked, column) for column in target], schema=target)
        if request.unique_keys is not None:
            keys.append(stored.select(list(request.unique_keys)))
        yield stored
    if keys:
        # The commit comes after the last batch, so nothing is stored if this fails.
        _check_unique(pa.Table.from_batches(keys), request)


def _check_unique(keys: pa.Table, request: WriteRequest) -> None:
    from lance_core.merge_insert import check_unique_keys  # noqa: PLC0415 imports what merges

    try:
        check_unique_keys(keys)
    except LanceError as error:
        error.path = error.path or request.uri
        raise


def _in_partition(batch: pa.RecordBatch, request: WriteRequest) -> pa.RecordBatch:
    if request.expected is None or request.out_of_partition == "allow":
        return batch
    mask = request.expected.mask(batch)
    if mask.all():
        return batch
    if request.out_of_partition == "drop":
        return batch.filter(pa.array(mask))
    outside = batch.select(list(request.expected.reads)).take(pa.array(np.flatnonzero(~mask)[:_SHOWN]))
    msg = (
        f"{int((~mask).sum())} rows of a batch of {batch.num_rows} lie outside of the run's partitions, such as "
        f"{outside.to_pylist()}. Nothing was written. Fix the asset, or set the metadata 'lance/out_of_partition' to "
        "'drop' or 'allow'."
    )
    raise InvalidInputError(msg, path=request.uri)


def _column(batch: pa.RecordBatch, target: pa.Field) -> pa.Array:
    if target.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, target.type)
    column = batch.column(target.name)
    if column.type == target.type:
        return column
    try:
        return column.cast(target.type)
    except pa.ArrowException as error:
        msg = f"Column {target.name!r} is {column.type} in the data and {target.type} in the table: {error}"
        raise InvalidInputError(msg) from error


def storable(schema: pa.Schema) -> pa.Schema:
    """Return the schema with types that a table can have: string and binary views become plain ones."""
    return pa.schema([column.with_type(_storable(column.type)) for column in schema], metadata=schema.metadata)


def _storable(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_binary_view(type_):
        return pa.binary()
    return type_
