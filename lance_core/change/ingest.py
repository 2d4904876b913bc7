"""Data in the many forms callers have it, as a stream of record batches; and as the columns of a table.

Nothing here imports pandas, Polars or pyarrow.dataset: what an object can do decides how it is read.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.change.fit_blobs import fit_blobs, takes_blobs
from lance_core.common.frozen import frozen, replace
from lance_core.common.hints import joined_reasons
from lance_core.encoding.arrow_values import as_type, binary_to_json, without_views
from lance_core.encoding.profiles import PROFILE_KEY, profile_of, with_profile
from lance_core.errors import CorruptDataError, InvalidInputError, SchemaMismatchError
from lance_core.format.blobs import is_second_version
from lance_core.format.schema import JSON, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lance_core.format.schema import Field

_ACCEPTED = (
    "pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, a LanceDataset or LanceScanner, a pandas or "
    "Polars DataFrame, a Hugging Face Dataset, a dict of columns, a list of dicts, or an iterable of record batches "
    "with schema="
)
_ROWS_AT_ONCE = 1 << 13
"""Rows that are asked of a Hugging Face data set at a time."""


@frozen(kw_only=True)
class RecordStream:
    """Record batches to be read once.

    Attributes:
        schema: Arrow schema of all batches.
        batches: The batches.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


def read_input(data: Any, schema: pa.Schema | None = None) -> RecordStream:
    """Turn data into a stream of record batches; views of text and bytes become text and bytes.

    Args:
        data: Any of the forms named in the error message below.
        schema: Schema to convert to; needed for an iterable of batches.

    Raises:
        InvalidInputError: Another kind of object, or data that does not fit the schema.
    """
    stream = _plain(_open(data, schema))
    schema = None if schema is None else plain_schema(schema)
    if schema is None or stream.schema.equals(schema, check_metadata=True):
        return stream
    return RecordStream(schema=schema, batches=_converted(stream, schema))


def is_at_hand(data: Any) -> bool:
    """Return whether data can be read more than once, and each time costs little: it is in memory."""
    return isinstance(data, pa.Table | pa.RecordBatch | dict | list) or type(data).__module__.startswith("pandas.")


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with views of text and bytes replaced by text and bytes, at any depth."""
    stored = schema.types
    types = [without_views(kind) for kind in stored]
    if types == stored:  # of lists, the same objects are equal without being compared
        return schema
    fields = [field.with_type(kind) for kind, field in zip(types, schema, strict=True)]
    return pa.schema(fields, metadata=schema.metadata)


def _plain(stream: RecordStream) -> RecordStream:
    schema = plain_schema(stream.schema)
    return stream if schema is stream.schema else RecordStream(schema=schema, batches=_without_views(stream, schema))


def _without_views(stream: RecordStream, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in stream.batches:
        try:
            columns = [as_type(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
        except pa.ArrowInvalid as error:
            raise InvalidInputError(
                f"a batch of views does not fit into plain arrays: {error}; write smaller batches"
            ) from error
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _open(data: Any, schema: pa.Schema | None) -> RecordStream:
    if isinstance(data, pa.Table):
        return RecordStream(schema=data.schema, batches=iter(data.to_batches()))
    if isinstance(data, pa.RecordBatch):
        return RecordStream(schema=data.schema, batches=iter([data]))
    if isinstance(data, pa.RecordBatchReader):
        return RecordStream(schema=data.schema, batches=iter(data))
    if type(data).__module__.startswith("pandas.") and hasattr(data, "to_numpy"):
        return _open(pa.Table.from_pandas(data, schema=schema), schema)
    if hasattr(data, "to_batches") and isinstance(getattr(data, "schema", None), pa.Schema):
        return RecordStream(schema=data.schema, batches=iter(data.to_batches()))
    if isinstance(getattr(data, "projected_schema", None), pa.Schema):
        return _open(data.to_reader(), schema)
    if type(data).__module__.startswith("datasets."):
        return _from_hugging_face(data, schema)
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        return RecordStream(schema=reader.schema, batches=iter(reader))
    if isinstance(data, (dict, list)) and data and (isinstance(data, dict) or isinstance(data[0], dict)):
        return _open(_from_python(data, schema), schema)
    if isinstance(data, (str, bytes, dict)) or not hasattr(data, "__iter__"):
        raise InvalidInputError(f"cannot write data of type {type(data).__name__}. Pass a {_ACCEPTED}")
    return _from_iterable(data, schema)


def _from_python(data: dict[str, Any] | list[dict[str, Any]], schema: pa.Schema | None) -> pa.Table:
    """Columns, or rows, made of Python values."""
    if isinstance(data, dict) and any(isinstance(column, (str, bytes)) for column in data.values()):
        raise InvalidInputError("each column of a dict must be a list or array of values, not text")
    try:
        if isinstance(data, list):
            return pa.Table.from_pylist(data, schema=schema)
        return pa.Table.from_pydict(data, schema=schema)
    except (pa.ArrowException, TypeError, ValueError, KeyError) as error:
        raise InvalidInputError(f"cannot convert the {type(data).__name__} to a table: {error}") from error


def _from_hugging_face(data: Any, schema: pa.Schema | None) -> RecordStream:
    """Return rows of a data set of the library ``datasets``, in the order that it was shuffled or selected into."""
    if not hasattr(data, "with_format") or hasattr(data, "keys"):
        raise InvalidInputError(
            f"the {type(data).__name__} has more than one split. Pass one of them, such as data['train']"
        )
    tables = data.with_format("arrow").iter(batch_size=_ROWS_AT_ONCE)
    declared = None if data.features is None else data.features.arrow_schema
    if declared is None:
        return _from_iterable(tables, schema)
    return RecordStream(schema=declared, batches=_check_batches(tables))


def _from_iterable(data: Iterable[Any], schema: pa.Schema | None) -> RecordStream:
    batches = _check_batches(data)
    first = next(batches, None)
    if first is None and schema is None:
        raise InvalidInputError("cannot infer a schema from an empty iterable. Pass 'schema'")
    stream_schema = schema if first is None else first.schema
    return RecordStream(schema=stream_schema, batches=chain(() if first is None else (first,), batches))


def _check_batches(data: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for item in data:
        if isinstance(item, pa.Table):
            yield from item.to_batches()
        elif isinstance(item, pa.RecordBatch):
            yield item
        else:
            raise InvalidInputError(f"cannot write an iterable of {type(item).__name__}. Pass a {_ACCEPTED}")


def _converted(stream: RecordStream, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if stream.schema.names != schema.names:
        raise InvalidInputError(f"the data has columns {stream.schema.names}, but 'schema' has {schema.names}")
    for batch in stream.batches:
        try:
            yield pa.RecordBatch.from_arrays(
                [_cast(column, field.type) for column, field in zip(batch.columns, schema, strict=True)], schema=schema
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise InvalidInputError(f"the data does not fit 'schema': {error}") from error


def _cast(column: pa.Array, target: pa.DataType) -> pa.Array:
    return column if column.type.equals(target, check_metadata=True) else column.cast(target)


# ------------------------------------------------------------------------------------ onto the columns of a table


_RESERVED = ("_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version")


def new_schema(source: pa.Schema, *, profile: str | None = None, replaced: Schema | None = None) -> Schema:
    """Return the schema of a new table for some data.

    Args:
        source: Schema of the data.
        profile: Compression profile; if None, that of the data, or else that of the schema that is replaced.
        replaced: The schema of the table before, if there is one.

    Raises:
        InvalidInputError: No columns, a name that occurs twice or means something else, or an unknown profile.
        UnsupportedError: A type that Lance cannot hold.
    """
    names = source.names
    problems = [f"column {name!r} occurs twice" for name, times in sorted(Counter(names).items()) if times > 1]
    problems += [f"the name {name!r} is reserved" for name in names if name in _RESERVED]
    if not names:
        problems = ["a table needs at least one column"]
    if problems:
        raise InvalidInputError(f"cannot make a table of this data: {joined_reasons(problems)}; nothing was written")
    schema = Schema.from_arrow(source)
    if profile is None and replaced is not None and PROFILE_KEY not in schema.metadata:
        profile = profile_of(replaced.metadata) if PROFILE_KEY in replaced.metadata else None
    return replace(schema, metadata=with_profile(schema.metadata, profile))


def _other_case(name: str, names: Iterable[str]) -> str:
    """Return a hint if a column of the table differs from a name in case only."""
    same = [other for other in names if other.lower() == name.lower()]
    return f" (did you mean {same[0]!r}?)" if same else ""


def fit_schema(source: pa.Schema, table: Schema) -> Schema:
    """Select the fields of a table that some data provides.

    Columns are matched by name. Nullable columns may be missing; they read as null.

    Args:
        source: Schema of the data.
        table: Schema of the table.

    Returns:
        The table's fields that are in the data, in the order of the table.

    Raises:
        SchemaMismatchError: Unknown or missing columns, other types; the message lists all of them.
    """
    if source.equals(table.to_arrow()):
        return table
    names, table_names = Counter(source.names), set(table.names)
    duplicates = {name for name, count in names.items() if count > 1}
    problems = [f"column {name!r} occurs twice" for name in sorted(duplicates)]
    problems += [
        f"column {name!r} is not in the table{_other_case(name, table.names)}"
        for name in source.names
        if name not in table_names
    ]
    for field in table.fields:
        if field.name in names and field.name not in duplicates:
            problems += _differences(source.field(field.name).type, field, field.name)
        elif not field.nullable and field.name not in duplicates:
            problems.append(f"column {field.name!r} is missing, and it is not nullable")
    if problems:
        raise SchemaMismatchError(
            f"the data does not fit the table's schema: {joined_reasons(problems)}; nothing was written. Change the "
            "data, or replace table and schema with mode overwrite"
        )
    return Schema(tuple(field for field in table.fields if field.name in names), table.metadata)


def _differences(given: pa.DataType, field: Field, path: str) -> list[str]:
    """List the differences between a type and a field's type.

    Field order in structs, names of list items and the layout of text do not count; columns without any value fit all.
    """
    wanted = field.to_arrow().type
    if given.equals(wanted):
        return []
    if isinstance(given, pa.BaseExtensionType):
        given = given.storage_type
    if is_second_version(field) and takes_blobs(given):
        return []
    if field.logical_type == JSON and given in _JSON_STORAGE:
        return []
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        return _struct_differences(given, field, path)
    if _is_same_list(given, wanted) and len(field.children) == 1:
        return _differences(given.value_type, field.children[0], f"{path}[]")
    if given.equals(wanted) or _is_same_text(given, wanted) or _is_same_storage(given, wanted):
        return []
    if pa.types.is_null(given) and field.nullable:
        return []
    return [f"column {path!r} is {given}, the table has {wanted}"]


_JSON_STORAGE = (pa.string(), pa.large_string(), pa.string_view(), pa.large_binary())
# Which of these a library uses says nothing about the values: pandas 3 makes large strings of all text. pylance 14.0.2
# takes views only, and refuses the others.
_TEXTS = (pa.string(), pa.large_string(), pa.string_view())
_BYTES = (pa.binary(), pa.large_binary(), pa.binary_view())


def _is_same_text(given: pa.DataType, wanted: pa.DataType) -> bool:
    """True for types that hold the same values in another layout."""
    return any(given in types and wanted in types for types in (_TEXTS, _BYTES))


def _is_same_storage(given: pa.DataType, wanted: pa.DataType) -> bool:
    """True for types that differ in what Lance does not keep: order of dictionaries, fields of fixed-size lists."""
    if pa.types.is_dictionary(given) and pa.types.is_dictionary(wanted):
        return (given.index_type, given.value_type) == (wanted.index_type, wanted.value_type)
    if pa.types.is_fixed_size_list(given) and pa.types.is_fixed_size_list(wanted):
        ours = given.value_type.storage_type if isinstance(given.value_type, pa.BaseExtensionType) else given.value_type
        return given.list_size == wanted.list_size and (
            ours == wanted.value_type or _is_same_storage(ours, wanted.value_type)
        )
    return False


def _is_same_list(given: pa.DataType, wanted: pa.DataType) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list)
    return any(is_kind(given) and is_kind(wanted) for is_kind in kinds)


def _struct_differences(given: pa.StructType, field: Field, path: str) -> list[str]:
    names = [field.name for field in given]
    children = {child.name: child for child in field.children}
    problems = [f"field '{path}.{name}' is not in the table" for name in names if name not in children]
    for name, child in children.items():
        if name in names:
            problems += _differences(given.field(name).type, child, f"{path}.{name}")
        elif not child.nullable:
            problems.append(f"field '{path}.{name}' is missing, and it is not nullable")
    return problems


def fit_batch(batch: pa.RecordBatch, fields: Schema) -> pa.RecordBatch:
    """Bring a batch into the types of a table's fields.

    Args:
        batch: Rows whose schema passed `fit_schema`.
        fields: What `fit_schema` answered.

    Raises:
        InvalidInputError: Null in a field that is not nullable.
    """
    target = fields.to_arrow()
    is_plain = all(field.nullable for field in fields.fields) and not any(map(_may_change, fields.special_fields))
    if is_plain and batch.schema.equals(target):
        return batch
    columns = [fit_array(batch.column(field.name), field, field.name) for field in fields.fields]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _may_change(field: Field) -> bool:
    """Return whether values of the field's Arrow type may still have to be checked or changed."""
    return bool(field.children or field.metadata or field.extension_name or field.logical_type == JSON)


def with_missing(batch: pa.RecordBatch, table: Schema) -> pa.RecordBatch:
    """Return a batch with columns of nulls for those it lacks: files of version 0.1 cannot leave columns out.

    Raises:
        InvalidInputError: A column of a type for which such files have no nulls is missing.
    """
    names = set(batch.schema.names)
    for field in table.fields:
        if field.name in names:
            continue
        arrow = field.to_arrow()
        if arrow.type not in (*_TEXTS, *_BYTES, pa.null()):
            raise InvalidInputError(
                f"column {field.name!r} is missing; file version 0.1 can neither leave columns out nor store nulls of "
                f"type {arrow.type}. Add the column, or replace the table with file version 2.2"
            )
        batch = batch.append_column(arrow, pa.nulls(batch.num_rows, arrow.type))
    return batch


def fit_array(array: pa.Array, field: Field, path: str) -> pa.Array:
    """Bring one column into a field's type; errors as in `fit_batch`."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if _is_same_storage(array.type, field.to_arrow().type) and array.type != field.to_arrow().type:
        array = _restored(array, field.to_arrow().type)
    if not field.nullable and array.null_count:
        raise InvalidInputError(f"column {path!r} is not nullable, but the data has {array.null_count} null values")
    if is_second_version(field):
        return fit_blobs(pa.nulls(len(array), pa.binary()) if pa.types.is_null(array.type) else array, field, path)
    if field.logical_type == JSON and array.type == pa.large_binary():
        try:
            return binary_to_json(array)
        except CorruptDataError as error:
            raise InvalidInputError(f"column {path!r} holds bytes that are not JSON as Lance stores it") from error
    kind = field.to_arrow().type
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if pa.types.is_struct(kind):
        return _fit_struct(array, field, path)
    if pa.types.is_nested(kind) and field.children and not array.type.equals(kind):
        return _fit_list(array, field, path, kind)
    try:
        return _cast(array, kind)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"{path!r}: {error}; write smaller batches") from error


def _restored(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the same memory as another type of the same storage."""
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(array.indices, array.dictionary, safe=False)
    items = array.values.storage if isinstance(array.values, pa.ExtensionArray) else array.values
    if items.type != kind.value_type:
        items = _restored(items, kind.value_type)
    buffers = array.buffers()[:1]
    return pa.Array.from_buffers(kind, len(array), buffers, offset=array.offset, children=[items])


def _fit_struct(array: pa.StructArray, field: Field, path: str) -> pa.Array:
    if not field.children:
        return array  # without columns Arrow would not know how long it is
    given = {field.name: index for index, field in enumerate(array.type)}
    valid = array.is_valid()
    columns = []
    for child in field.children:
        if child.name not in given:
            columns.append(pa.nulls(len(array), child.to_arrow().type))
            continue
        values = array.field(given[child.name])
        if not child.nullable and values.null_count and array.null_count:
            _check_nulls_hidden(values, valid, f"{path}.{child.name}")
            columns.append(_cast(values, child.to_arrow().type))
        else:
            columns.append(fit_array(values, child, f"{path}.{child.name}"))
    fields = [child.to_arrow() for child in field.children]
    mask = pa.array(~np.asarray(valid)) if array.null_count else None
    return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)


def _check_nulls_hidden(values: pa.Array, valid: pa.Array, path: str) -> None:
    """A null below a null parent is no null of its own."""
    seen = int((np.asarray(values.is_null()) & np.asarray(valid)).sum())
    if seen:
        raise InvalidInputError(f"column {path!r} is not nullable, but the data has {seen} null values")


def _fit_list(array: pa.Array, field: Field, path: str, kind: pa.DataType) -> pa.Array:
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        return array.cast(kind)
    values = fit_array(array.values, field.children[0], f"{path}[]")
    # the list's own offsets and validity stay as they are, so a slice keeps its place
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(kind, len(array), buffers, array.null_count, array.offset, children=[values])
