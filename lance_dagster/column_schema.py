"""Arrow schemas as Dagster column schemas, and back: ``dagster/column_schema`` is where users declare columns.

Types are told by Arrow's own text (``int64``, ``timestamp[us, tz=UTC]``, ``list<item: string>``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import dagster as dg

from lance_core.common.late_module import LateModule
from lance_core.errors import InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
else:
    pa = LateModule("pyarrow")


def table_schema(schema: pa.Schema, *, declared: dg.TableSchema | None = None) -> dg.TableSchema:
    """Columns for ``dagster/column_schema``; a field's metadata ``comment`` or ``description`` becomes its text.

    Args:
        schema: The table's columns.
        declared: What the asset's definition says: its texts, tags and constraints are kept.
    """
    declared_columns = {} if declared is None else {column.name: column for column in declared.columns}
    constraints = None if declared is None else declared.constraints
    return dg.TableSchema(
        columns=[_column(column, declared_columns.get(column.name)) for column in schema], constraints=constraints
    )


def with_primary_key(schema: dg.TableSchema, primary_key: Sequence[str]) -> dg.TableSchema:
    """Return the schema, with the names of the table's key among its constraints."""
    if not primary_key:
        return schema
    constraints = dg.TableConstraints(other=[*schema.constraints.other, f"primary key: {', '.join(primary_key)}"])
    return dg.TableSchema(columns=schema.columns, constraints=constraints)


def _column(column: pa.Field, declared: dg.TableColumn | None) -> dg.TableColumn:
    notes = {key.decode(): value.decode(errors="replace") for key, value in (column.metadata or {}).items()}
    text = notes.get("comment") or notes.get("description")
    constraints = declared.constraints if declared is not None else dg.TableColumnConstraints()
    return dg.TableColumn(
        name=column.name,
        type=str(column.type),
        description=text if declared is None else declared.description or text,
        constraints=dg.TableColumnConstraints(
            nullable=column.nullable and constraints.nullable, unique=constraints.unique, other=constraints.other
        ),
        tags=None if declared is None else declared.tags,
    )


def declared_schema(metadata: Mapping[str, Any]) -> dg.TableSchema | None:
    """Return the column schema that an asset's definition declares by ``dagster/column_schema``, or None."""
    declared = metadata.get("dagster/column_schema")
    declared = getattr(declared, "schema", declared)
    return declared if isinstance(declared, dg.TableSchema) else None


def arrow_schema(schema: dg.TableSchema) -> pa.Schema:
    """Return the Arrow schema that a declared column schema tells.

    Raises:
        UnsupportedError: For a type that is not Arrow's text, or is dictionary, map or union.
    """
    return pa.schema(
        [pa.field(column.name, arrow_type(column.type), column.constraints.nullable) for column in schema.columns]
    )


_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns), tz=(.+)\]")
_DECIMAL = re.compile(r"(decimal(?:32|64|128|256))\((\d+), (-?\d+)\)")
_FIXED_BINARY = re.compile(r"fixed_size_binary\[(\d+)\]")
_NESTED = re.compile(r"(list|large_list|fixed_size_list|struct)<(.*)>(?:\[(\d+)\])?")
_NOT_NULL = " not null"


def arrow_type(text: str) -> pa.DataType:
    """Return the type that ``str(type)`` gave."""
    if match := _TIMESTAMP.fullmatch(text):
        return pa.timestamp(match[1], match[2])
    if match := _DECIMAL.fullmatch(text):
        return getattr(pa, match[1])(int(match[2]), int(match[3]))
    if match := _FIXED_BINARY.fullmatch(text):
        return pa.binary(int(match[1]))
    if match := _NESTED.fullmatch(text):
        fields = [_field(part) for part in _split(match[2])]
        return pa.struct(fields) if match[1] == "struct" else _list(match[1], fields[0], match[3])
    try:
        return pa.type_for_alias(text)
    except ValueError as error:
        msg = f"The column type {text!r} in a declared schema (Arrow's text is known, such as 'int64' or 'date32[day]')"
        raise UnsupportedError(msg) from error


def _list(kind: str, item: pa.Field, size: str | None) -> pa.DataType:
    if kind == "large_list":
        return pa.large_list(item)
    return pa.list_(item) if size is None else pa.list_(item, int(size))


def _field(text: str) -> pa.Field:
    name, text_, type_ = text.partition(": ")
    if not text_:
        msg = f"{text!r} is no field of an Arrow type; it reads 'name: type'."
        raise InvalidInputError(msg)
    return pa.field(name, arrow_type(type_.removesuffix(_NOT_NULL)), not type_.endswith(_NOT_NULL))


def _split(text: str) -> Iterator[str]:
    """Parts between commas that are inside of no bracket."""
    depth = start = 0
    for i, character in enumerate(text):
        depth += (character in "<[(") - (character in ">])")
        if character == "," and depth == 0:
            yield text[start:i]
            start = i + 2
    if text:
        yield text[start:]
