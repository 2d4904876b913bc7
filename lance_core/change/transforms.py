"""Sources of the values of new columns: SQL, functions, streams, casts, and tables joined by a key."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.change.column_files import Transform
from lance_core.change.ingest import RecordStream, read_input
from lance_core.change.key_join import KeyJoin
from lance_core.common.frozen import mutable
from lance_core.encoding.arrow_values import null_mask
from lance_core.encoding.kernels import numbers_array
from lance_core.encoding.leaves import list_items
from lance_core.encoding.v2_0.nesting import list_array
from lance_core.errors import InvalidInputError
from lance_core.scan.plan import ROW_ADDRESS
from lance_core.sql.expression import make_expression
from lance_core.sql.kernels import pc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from lance_core.change.evolution import Cast

_OFFSET_MASK = np.uint64(0xFFFF_FFFF)


def from_sql(expressions: Mapping[str, str], schema: pa.Schema, batch_size: int | None) -> Transform:
    """Columns computed from SQL expressions.

    Args:
        expressions: Name of the new column to SQL.
        schema: Schema of the table.
        batch_size: Rows computed at a time.

    Raises:
        InvalidInputError: SQL that does not fit the table.
        UnsupportedError: SQL that is not supported.
    """
    for name, sql in expressions.items():
        if not isinstance(sql, str):  # pyright: ignore[reportUnnecessaryIsInstance] callers are not checked
            raise InvalidInputError(f"the expression for column {name!r} must be SQL text, not {type(sql).__name__}")
    made = {name: make_expression(sql, schema) for name, sql in expressions.items()}
    fields = [pa.field(name, field.type, nullable=field.nullable) for name, field in made.items()]
    tops = [_top(column, schema) for name in made.values() for column in name.columns]

    def apply(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [expression.evaluate(batch) for expression in made.values()]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    columns = tuple(dict.fromkeys(tops))
    return Transform(columns=columns, schema=pa.schema(fields), apply=apply, batch_size=batch_size)


def _top(path: str, schema: pa.Schema) -> str:
    """Return the top-level column of a path; expressions take what they need of it."""
    return path if path in schema.names else next(name for name in schema.names if path.startswith(f"{name}."))


def from_function(
    function: Callable[[pa.RecordBatch], Any],
    columns: Sequence[str],
    output: pa.Schema,
    batch_size: int | None,
) -> Transform:
    """Columns made by a function of batches, which may answer a record batch, a table or a DataFrame."""

    def apply(batch: pa.RecordBatch) -> pa.RecordBatch:
        return as_batch(function(batch), output)

    return Transform(columns=tuple(columns), schema=output, apply=apply, batch_size=batch_size)


def as_batch(data: Any, schema: pa.Schema | None) -> pa.RecordBatch:
    """Convert the result of a function to one record batch.

    Raises:
        InvalidInputError: Another kind of object, or data that does not fit the schema.
    """
    stream = read_input(data, None)
    if schema is not None:
        if sorted(stream.schema.names) == sorted(schema.names):  # columns go by name
            batches = (batch.select(schema.names) for batch in stream.batches)
            stream_fields = pa.schema([stream.schema.field(name) for name in schema.names])
            stream = RecordStream(schema=stream_fields, batches=batches)
        stream = read_input(pa.RecordBatchReader.from_batches(stream.schema, stream.batches), schema)
    batches = list(stream.batches)
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches, schema=stream.schema).combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=stream.schema)


@mutable(kw_only=True)
class RowStream:
    """Rows of a stream, handed out in pieces of any length.

    Attributes:
        stream: Where they come from.
    """

    stream: RecordStream
    _pending: list[pa.RecordBatch] = field(default_factory=list[pa.RecordBatch])

    def take(self, num_rows: int) -> pa.RecordBatch:
        """Return the next rows.

        Raises:
            InvalidInputError: There are not so many.
        """
        have = sum(batch.num_rows for batch in self._pending)
        while have < num_rows:
            batch = next(self.stream.batches, None)
            if batch is None:
                raise InvalidInputError("the data has fewer rows than the table; nothing was committed")
            self._pending.append(batch)
            have += batch.num_rows
        table = pa.Table.from_batches(self._pending, schema=self.stream.schema)
        rest = table.slice(num_rows)
        self._pending = rest.to_batches()
        return table.slice(0, num_rows).combine_chunks().to_batches()[0]

    def check_empty(self) -> None:
        """Refuse rows that are left over.

        Raises:
            InvalidInputError: There are more rows than were taken.
        """
        if any(batch.num_rows for batch in self._pending) or any(batch.num_rows for batch in self.stream.batches):
            raise InvalidInputError("the data has more rows than the table; nothing was committed")


def from_stream(rows: RowStream) -> Transform:
    """Columns that come row by row in the order of the table."""
    return Transform(columns=(), schema=rows.stream.schema, apply=lambda batch: rows.take(batch.num_rows))


# ------------------------------------------------------------------------------------------------------------ casts


def from_cast(casts: Sequence[Cast], schema: pa.Schema) -> Transform:
    """Columns in another type.

    Args:
        casts: What to cast; fields inside of structs and lists stay inside of ones that hold nothing else.
        schema: Arrow schema of the new columns.
    """

    def apply(batch: pa.RecordBatch) -> pa.RecordBatch:
        pairs = zip(casts, schema, strict=True)
        columns = [_nested(batch.column(cast.names[0]), cast, arrow, 1) for cast, arrow in pairs]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    return Transform(columns=tuple(cast.names[0] for cast in casts), schema=schema, apply=apply)


def _cast(values: pa.Array, cast: Cast) -> pa.Array:
    try:
        return pc.cast(values, cast.target, safe=not _loses_digits_only(values.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        message = f"column {cast.path!r} cannot become {cast.target}: {error}; nothing was committed"
        raise InvalidInputError(message) from error


def _loses_digits_only(kind: pa.DataType) -> bool:
    """Floats become shorter floats by rounding; among other types a value that does not fit is an error."""
    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return bool(pa.types.is_floating(kind))


def _nested(values: pa.Array, cast: Cast, arrow: pa.Field, depth: int) -> pa.Array:
    """Return the cast values inside the structs and lists that they lie in, which stay null where they are."""
    if depth == len(cast.names):
        return _cast(values, cast)
    inner = arrow.type.field(0)
    if pa.types.is_list(arrow.type) or pa.types.is_large_list(arrow.type):
        is_null = null_mask(values)
        sizes, items = list_items(values, is_null)
        validity = None if is_null is None else ~is_null
        return list_array(arrow.name, arrow.type, sizes, validity, _nested(items, cast, inner, depth + 1))
    child = _nested(values.field(cast.names[depth]), cast, inner, depth + 1)
    mask = pc.is_null(values) if values.null_count else None
    return pa.StructArray.from_arrays([child], fields=[inner], mask=mask)


# ------------------------------------------------------------------------------------------------------------ joins


class Lookup:
    """Rows of a table found by a key; the first one if several have it. Null finds nothing.

    Args:
        table: The rows, in memory.
        key: Its column with the keys.

    Raises:
        InvalidInputError: There is no such column.
    """

    def __init__(self, table: pa.Table, key: str) -> None:
        if key not in table.schema.names:
            raise InvalidInputError(
                f"cannot join on {key!r}: the data has no such column; its columns are: {', '.join(table.schema.names)}"
            )
        self.key_type: pa.DataType = table.schema.field(key).type
        self.values: pa.Table = table.drop_columns([key]).combine_chunks()
        self._keys = KeyJoin([table.column(key)])

    def find(self, keys: pa.Array) -> pa.Array:
        """Places of the rows for keys; null where there is none.

        Raises:
            InvalidInputError: Keys of another type.
        """
        if not keys.type.equals(self.key_type):
            raise InvalidInputError(
                f"cannot join: the keys of the table are {keys.type}, those of the data {self.key_type}"
            )
        pairs = self._keys.match([keys])
        rows, first = np.unique(pairs.target, return_index=True)
        positions, is_missing = np.zeros(len(keys), np.int64), np.ones(len(keys), np.bool_)
        positions[rows], is_missing[rows] = pairs.source[first], False
        return pa.array(positions, mask=is_missing)


def _combined(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def from_lookup(lookup: Lookup, left_on: str) -> Transform:
    """Columns of a table that is joined by a key; null where it has no such row."""
    schema = pa.schema([column.with_nullable(True) for column in lookup.values.schema])  # noqa: FBT003 pyarrow's argument

    def apply(batch: pa.RecordBatch) -> pa.RecordBatch:
        positions = lookup.find(batch.column(left_on))
        columns = [_combined(lookup.values.column(name).take(positions)) for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    return Transform(columns=(left_on,), schema=schema, apply=apply)


def from_update(
    lookup: Lookup, left_on: str, schema: pa.Schema, note: Callable[[npt.NDArray[np.int64]], None]
) -> Transform:
    """Existing columns with the values of a joined table where it has a row, else as they are.

    Args:
        lookup: The rows with new values.
        left_on: Key column of the table.
        schema: The columns to update, as in the table.
        note: Told the offsets of the rows found in each batch.
    """
    names = schema.names

    def apply(batch: pa.RecordBatch) -> pa.RecordBatch:
        positions = lookup.find(batch.column(left_on))
        is_there = pc.is_valid(positions)
        addresses = np.asarray(batch.column(ROW_ADDRESS))[np.asarray(is_there)]
        note((addresses & _OFFSET_MASK).astype(np.int64))
        columns: list[pa.Array] = []
        for name in names:
            new = _fitted(_combined(lookup.values.column(name).take(positions)), schema.field(name))
            columns.append(_chosen(is_there, new, batch.column(name)))
        return pa.RecordBatch.from_arrays(columns, names=names)

    return Transform(columns=tuple(dict.fromkeys((left_on, *names, ROW_ADDRESS))), schema=schema, apply=apply)


def _fitted(values: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return values.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"cannot store values of type {values.type} in column {field.name!r}, which is {field.type}: {error}"
        ) from error


def _chosen(is_new: pa.Array, new: pa.Array, old: pa.Array) -> pa.Array:
    """As ``if_else``, which lacks nested types."""
    rows = np.arange(len(old))
    index = np.where(np.asarray(is_new), rows, rows + len(old))
    return pa.concat_arrays([new, old.cast(new.type)]).take(numbers_array(index))


def whole_table(data: Any, schema: pa.Schema | None) -> pa.Table:
    """Data in any form, in memory."""
    stream = read_input(data, schema)
    return pa.Table.from_batches(_all(stream.batches), schema=stream.schema)


def _all(batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return list(batches)
