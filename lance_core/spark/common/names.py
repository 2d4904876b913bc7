"""Names of columns as Spark compares them: without regard to case, unless a session has ``spark.sql.caseSensitive``.

A name means the column of exactly this name if there is one, else the only one that differs from it in case.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyspark.sql import types as st

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lance_core.format.schema import Field, Schema
    from lance_core.spark.common.read_options import ReadOptions

_Options = TypeVar("_Options", bound="ReadOptions")


def find_name(name: str, names: Iterable[str]) -> str:
    """Return which of the names is meant; the name itself if none is, or more than one."""
    candidates = [other for other in names if other.lower() == name.lower()]
    return candidates[0] if len(candidates) == 1 and name not in candidates else name


def find_path(path: str, fields: Sequence[Field]) -> str:
    """Return the spelling of a column, or of a dotted path inside structs, that a table has."""
    whole = find_name(path, [field.name for field in fields])
    first, dot, rest = path.partition(".")
    if not dot or any(field.name == whole for field in fields):
        return whole
    name = find_name(first, [field.name for field in fields])
    children = [child for field in fields if field.name == name for child in field.children]
    return f"{name}.{find_path(rest, children)}"


def with_names_of(options: _Options, table: Schema) -> _Options:
    """Return the options with the columns spelled as in a table."""
    if options.columns is None:
        return options
    return replace(options, columns=tuple(find_path(column, table.fields) for column in options.columns))


def adopt_names(schema: st.StructType, table: Iterable[pa.Field]) -> st.StructType:
    """Return the schema of a DataFrame with columns, and fields of structs, spelled as in a table."""
    fields = {field.name: field for field in table}
    names = _matched(schema.names, list(fields))
    return st.StructType(
        [
            st.StructField(
                name,
                _adopted(field.dataType, fields[name].type) if name in fields else field.dataType,
                field.nullable,
                field.metadata,
            )
            for name, field in zip(names, schema, strict=True)
        ]
    )


def _matched(given: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names that are meant, each at most once."""
    matched: list[str] = []
    for name in given:
        meant = find_name(name, names)
        matched.append(name if meant != name and (meant in given or meant in matched) else meant)
    return matched


def _adopted(kind: st.DataType, wanted: pa.DataType) -> st.DataType:
    if isinstance(kind, st.StructType) and pa.types.is_struct(wanted):
        return adopt_names(kind, list(wanted))
    if isinstance(kind, st.ArrayType) and hasattr(wanted, "value_field"):
        return st.ArrayType(_adopted(kind.elementType, wanted.value_type), kind.containsNull)
    if isinstance(kind, st.MapType) and pa.types.is_map(wanted):
        key, value = _adopted(kind.keyType, wanted.key_type), _adopted(kind.valueType, wanted.item_type)
        return st.MapType(key, value, kind.valueContainsNull)
    return kind


def rename_columns(batches: Iterable[pa.RecordBatch], target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Spell the columns of batches as a table does; no values are copied."""
    for batch in batches:
        schema = pa.schema(_renamed(list(batch.schema), target))
        yield batch if schema.equals(batch.schema) else pa.record_batch(_Renamed(batch, schema))


def _renamed(fields: Sequence[pa.Field], table: Iterable[pa.Field]) -> list[pa.Field]:
    wanted = {field.name: field for field in table}
    names = _matched([field.name for field in fields], list(wanted))
    return [
        field.with_name(name).with_type(_renamed_type(field.type, wanted[name].type)) if name in wanted else field
        for name, field in zip(names, fields, strict=True)
    ]


def _renamed_type(kind: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind) and pa.types.is_struct(wanted):
        return pa.struct(_renamed(list(kind), list(wanted)))
    if pa.types.is_list(kind) and hasattr(wanted, "value_field"):
        return pa.list_(kind.value_field.with_type(_renamed_type(kind.value_type, wanted.value_type)))
    if pa.types.is_map(kind) and pa.types.is_map(wanted):
        key = kind.key_field.with_type(_renamed_type(kind.key_type, wanted.key_type))
        return pa.map_(key, kind.item_field.with_type(_renamed_type(kind.item_type, wanted.item_type)))
    return kind


class _Renamed:
    """A batch under another schema with the same types, for Arrow's interface between libraries."""

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch = batch
        self._schema = schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Return the schema and the memory of the batch."""
        del requested_schema
        return self._schema.__arrow_c_schema__(), self._batch.__arrow_c_array__()[1]
