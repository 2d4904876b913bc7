"""Conversion between Spark types and the Arrow types of a Lance table.

Spark compares the first batch of a Python data source with ``to_arrow_schema(schema, timezone="UTC")`` for exact
equality, so everything Spark has no type for (unsigned integers, large and view layouts, dictionaries, fixed-size
lists, other time units) is read as the nearest Spark type that holds all its values. Writing goes the other way:
the existing table's types win, as long as no value is lost.

What a Spark type cannot say is kept in the column's metadata: a vector column carries the key that lance-spark uses,
``arrow.fixed-size-list.size``.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as st

# What Spark itself compares our batches with; the only names here that its documentation does not list.
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type

from lance_core.common.hints import joined_reasons
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.extensions import EXTENSION_NAME_KEY
from lance_core.format.schema import BLOB_EXTENSION, BLOB_KEY
from lance_core.spark.common.uuids import NUM_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# pyspark 4.1 has the argument `timestamp_utc`, later versions replace it by `timezone`.
_UTC: Mapping[str, Any] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {"timestamp_utc": True}
)

VECTOR_SIZE_KEY = "arrow.fixed-size-list.size"

SPARK_TYPE_KEY = "spark.sql.type"
"""Key of the metadata of a column; its value is the Spark type of intervals and texts that Arrow types do not tell."""

_INTERVALS = [st.DayTimeIntervalType(start, end) for start in range(4) for end in range(start, 4)]

# Keys that Spark uses for its own purposes and that mean nothing in a stored table.
_SPARK_KEYS = ("SPARK::", "__", "CURRENT_DEFAULT", "EXISTS_DEFAULT")

_SIMPLE: Mapping[pa.DataType, st.DataType] = {
    pa.null(): st.NullType(),
    pa.bool_(): st.BooleanType(),
    pa.int8(): st.ByteType(),
    pa.int16(): st.ShortType(),
    pa.int32(): st.IntegerType(),
    pa.int64(): st.LongType(),
    pa.uint8(): st.ShortType(),
    pa.uint16(): st.IntegerType(),
    pa.uint32(): st.LongType(),
    pa.uint64(): st.DecimalType(20, 0),
    pa.float16(): st.FloatType(),
    pa.float32(): st.FloatType(),
    pa.float64(): st.DoubleType(),
    pa.string(): st.StringType(),
    pa.large_string(): st.StringType(),
    pa.string_view(): st.StringType(),
    pa.binary(): st.BinaryType(),
    pa.large_binary(): st.BinaryType(),
    pa.binary_view(): st.BinaryType(),
    pa.date32(): st.DateType(),
    pa.date64(): st.DateType(),
}

_BLOB_KEYS = (BLOB_KEY, "lance-encoding:packed")
_EXTENSION_KEY, _UUID = EXTENSION_NAME_KEY, "arrow.uuid"

_MAX_PRECISION = 38  # of a Spark decimal

_WIDER: Mapping[str, frozenset[str]] = {
    "tinyint": frozenset({"smallint", "int", "bigint", "float", "double"}),
    "smallint": frozenset({"int", "bigint", "float", "double"}),
    "int": frozenset({"bigint", "double"}),
    "float": frozenset({"double"}),
}


def spark_schema(schema: pa.Schema) -> st.StructType:
    """Return the Spark schema of a Lance table.

    Raises:
        UnsupportedError: Spark has no type for a column; the message names it.
    """
    fields = [(_spark_field(field), _is_uuid(field)) for field in schema]
    return st.StructType([_with_text(field) if is_uuid else field for field, is_uuid in fields])


def _spark_field(field: pa.Field) -> st.StructField:
    metadata: dict[str, Any] = {k.decode(): v.decode(errors="replace") for k, v in (field.metadata or {}).items()}
    if pa.types.is_fixed_size_list(field.type):
        metadata[VECTOR_SIZE_KEY] = field.type.list_size
    if pa.types.is_struct(field.type) and BLOB_KEY in metadata:  # the description of a blob is no blob itself
        metadata = {key: value for key, value in metadata.items() if key not in _BLOB_KEYS}
    kind = _narrowed(spark_type(field.type, field.name), metadata.pop(SPARK_TYPE_KEY, None))
    return st.StructField(field.name, kind, field.nullable, metadata or None)


def _narrowed(kind: st.DataType, text: str | None) -> st.DataType:
    """Return the Spark type that metadata give; the type itself if they give none that fits."""
    if text is None:
        return kind
    if isinstance(kind, st.StringType) and text.startswith(_COLLATED):
        return st.StringType(text.removeprefix(_COLLATED))
    same = [interval for interval in _INTERVALS if isinstance(kind, st.DayTimeIntervalType)]
    return next((interval for interval in same if interval.simpleString() == text), kind)


_COLLATED = "string collate "


def _type_text(kind: st.DataType) -> str | None:
    """Return the text for the metadata of a column; None if the Arrow type says it all."""
    is_interval = isinstance(kind, st.DayTimeIntervalType) and kind != st.DayTimeIntervalType()
    is_collated = isinstance(kind, st.StringType) and kind.simpleString().startswith(_COLLATED)
    return kind.simpleString() if is_interval or is_collated else None


def _is_blob(field: pa.Field) -> bool:
    """Blobs of version 2 may also come as plain bytes."""
    return (field.metadata or {}).get(_EXTENSION_KEY.encode()) == BLOB_EXTENSION.encode()


def _with_text(uuid: st.StructField) -> st.StructField:
    return st.StructField(uuid.name, st.StringType(), uuid.nullable, uuid.metadata)


def _is_uuid(field: pa.Field) -> bool:
    """Uuids are text in Spark; those inside of structs, lists and maps stay bytes."""
    return field.type == pa.binary(NUM_BYTES) and (field.metadata or {}).get(_EXTENSION_KEY.encode()) == _UUID.encode()


def spark_type(arrow: pa.DataType, column: str) -> st.DataType:
    """Return the Spark type that holds every value of an Arrow type.

    Args:
        arrow: Type in the table.
        column: Name for the error message.

    Raises:
        UnsupportedError: There is none.
    """
    kind = pa.types
    if arrow in _SIMPLE:
        return _SIMPLE[arrow]
    if kind.is_dictionary(arrow):
        return spark_type(arrow.value_type, column)
    if kind.is_fixed_size_binary(arrow):
        return st.BinaryType()
    if kind.is_decimal128(arrow) or (kind.is_decimal256(arrow) and arrow.precision <= _MAX_PRECISION):
        return st.DecimalType(arrow.precision, arrow.scale)
    if kind.is_timestamp(arrow):
        return st.TimestampType() if arrow.tz else st.TimestampNTZType()
    if kind.is_time(arrow):
        return st.TimeType(6)
    if kind.is_duration(arrow):
        return st.DayTimeIntervalType()
    if kind.is_list(arrow) or kind.is_large_list(arrow) or kind.is_fixed_size_list(arrow):
        return st.ArrayType(spark_type(arrow.value_type, column), arrow.value_field.nullable)
    if kind.is_struct(arrow):
        return st.StructType([_spark_field(arrow.field(i)) for i in range(arrow.num_fields)])
    if kind.is_map(arrow):
        value = spark_type(arrow.item_type, column)
        return st.MapType(spark_type(arrow.key_type, column), value, arrow.item_field.nullable)
    raise UnsupportedError(f"Spark has no type for column {column!r} of type {arrow}. Select the other columns.")


def arrow_schema(schema: st.StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects from a reader of this schema."""
    return to_arrow_schema(schema, **_UTC)


def lance_schema(schema: st.StructType, *, is_declared: bool = False) -> pa.Schema:
    """Return the schema of a new table for a DataFrame.

    Every column is nullable: whether a DataFrame's column is depends on the expressions that made it, not on the data.

    Args:
        schema: The columns.
        is_declared: A user has declared the columns, so those that are NOT NULL stay so.

    Raises:
        InvalidInputError: The size of a vector column is no positive integer, or the column is no array.
        UnsupportedError: A Spark type has no Arrow counterpart; the message names the column.
    """
    fields = [_lance_field(field) for field in schema]
    if is_declared:
        fields = [_declared(arrow, field) for arrow, field in zip(fields, schema, strict=True)]
    return pa.schema(fields)


def _declared(arrow: pa.Field, field: st.StructField) -> pa.Field:
    """Return a column, or a field of structs, that has nulls only if it was declared with them."""
    kind = field.dataType
    if isinstance(kind, st.StructType):
        inner = [_declared(arrow.type.field(i), kind.fields[i]) for i in range(arrow.type.num_fields)]
        arrow = arrow.with_type(pa.struct(inner))
    return arrow.with_nullable(field.nullable)


def check_names(schema: pa.Schema) -> None:
    """Refuse columns, and fields of structs, whose names differ in case only: Spark could not read them by default.

    Raises:
        InvalidInputError: There are such names; the message has them.
    """
    _check_fields(list(schema), "")


def _check_fields(fields: Sequence[pa.Field], path: str) -> None:
    names: dict[str, str] = {}
    for field in fields:
        other = names.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise InvalidInputError(
                f"Columns {path + other!r} and {path + field.name!r} differ only in case, so a session with "
                "spark.sql.caseSensitive=false cannot read the table; nothing was written. Rename one of "
                "them, or set the option 'case_sensitive' to true."
            )
        kind = field.type
        _check_fields([kind.field(i) for i in range(kind.num_fields)], f"{path}{field.name}.")


def _lance_field(field: st.StructField) -> pa.Field:
    texts = {k: v for k, v in field.metadata.items() if isinstance(v, str) and not k.startswith(_SPARK_KEYS)}
    text = _type_text(field.dataType)
    if text is not None:
        texts[SPARK_TYPE_KEY] = text
    size = field.metadata.get(VECTOR_SIZE_KEY)
    texts.pop(VECTOR_SIZE_KEY, None)
    arrow = _lance_type(field.dataType, field.name)
    if texts.get(_EXTENSION_KEY) == _UUID and (pa.types.is_string(arrow) or pa.types.is_binary(arrow)):
        arrow = pa.binary(NUM_BYTES)
    if texts.get(BLOB_KEY) == "true" and pa.types.is_binary(arrow):
        arrow = pa.large_binary()
    return pa.field(field.name, arrow if size is None else _vector(arrow, field.name, size), metadata=texts or None)


def _vector(arrow: pa.DataType, column: str, size: Any) -> pa.DataType:
    if not pa.types.is_list(arrow) or not str(size).isdecimal() or int(size) < 1:
        raise InvalidInputError(
            f"Column {column!r} says {VECTOR_SIZE_KEY}={size!r} in its metadata, which needs an array column and a "
            f"positive integer, but the column has type {arrow}."
        )
    return pa.list_(arrow.value_field, int(size))


_WITHOUT_PLACE = (st.VariantType, st.GeometryType, st.GeographyType, st.UserDefinedType)
"""Types that Spark turns into structs for Arrow, which would come back as such."""


def _lance_type(spark: st.DataType, column: str) -> pa.DataType:
    if isinstance(spark, st.ArrayType):
        _check_items(column, spark.elementType)
        return pa.list_(pa.field("item", _lance_type(spark.elementType, column)))
    if isinstance(spark, st.StructType):
        return pa.struct([_lance_field(field) for field in spark])
    if isinstance(spark, st.MapType):
        _check_items(column, spark.keyType, spark.valueType)
        value = pa.field("value", _lance_type(spark.valueType, column))
        return pa.map_(pa.field("key", _lance_type(spark.keyType, column), nullable=False), value)
    if isinstance(spark, _WITHOUT_PLACE):
        raise UnsupportedError(
            f"Column {column!r} has Spark type {spark.simpleString()}, which Lance tables do not support."
        )
    if isinstance(spark, (st.CharType, st.VarcharType)):
        raise UnsupportedError(
            f"Column {column!r} has Spark type {spark.simpleString()}, but Lance keeps no lengths of text. Use STRING."
        )
    try:
        return to_arrow_type(spark, **_UTC)
    except TypeError as error:
        raise UnsupportedError(f"Column {column!r}: {error}") from error


def _check_items(column: str, *kinds: st.DataType) -> None:
    """Items of lists and maps have no metadata that could hold their type."""
    lost = [kind.simpleString() for kind in kinds if _type_text(kind) is not None]
    if lost:
        raise UnsupportedError(
            f"Column {column!r} has a list or map of {lost[0]}, which would lose this type. Cast its items to "
            f"{'string' if lost[0].startswith(_COLLATED) else 'interval day to second'}."
        )


def find_misfits(schema: st.StructType, table: pa.Schema) -> list[str]:
    """List the reasons why a DataFrame cannot be written into a table, one sentence for each column.

    Columns are matched by name. A column fits if the table's type holds all values of its Spark type, or is read by
    Spark as that type; in the second case the values are checked while they are written.
    """
    given = {field.name: field for field in schema}
    wanted = set(table.names)
    missing = [f"column {name!r} is missing" for name in table.names if name not in given]
    unknown = [f"column {name!r} does not exist in the table" for name in given if name not in wanted]
    wrong = [
        f"column {f.name!r} is {given[f.name].dataType.simpleString()}, the table has {f.type}"
        for f in table
        if f.name in given
        and not (_is_uuid(f) and isinstance(given[f.name].dataType, _TEXT))
        and not (_is_blob(f) and isinstance(given[f.name].dataType, st.BinaryType))
        and not _fits(given[f.name].dataType, f.type, f.name)
    ]
    return missing + unknown + wrong


def _fits(spark: st.DataType, arrow: pa.DataType, column: str) -> bool:
    if pa.types.is_float16(arrow):
        return False  # read as float, whose values it does not hold
    if isinstance(spark, st.ArrayType) and hasattr(arrow, "value_field"):
        return _fits(spark.elementType, arrow.value_type, column)
    if isinstance(spark, st.MapType) and pa.types.is_map(arrow):
        return _fits(spark.keyType, arrow.key_type, column) and _fits(spark.valueType, arrow.item_type, column)
    if isinstance(spark, st.StructType) and pa.types.is_struct(arrow):
        return not find_misfits(spark, pa.schema(list(arrow)))
    if isinstance(spark, st.NullType):
        return True
    try:
        table = spark_type(arrow, column)
    except UnsupportedError:
        return False
    return _same(spark, table) or table.simpleString() in _WIDER.get(spark.simpleString(), ())


_TEXT = (st.StringType, st.CharType, st.VarcharType)


def _same(spark: st.DataType, table: st.DataType) -> bool:
    """Equality without what has no meaning in storage: collations, char lengths, precision of times, interval units."""
    if isinstance(spark, st.DecimalType) and isinstance(table, st.DecimalType):
        integral = spark.precision - spark.scale <= table.precision - table.scale
        return integral and spark.scale <= table.scale
    loose = (_TEXT, st.TimeType, st.DayTimeIntervalType)
    return any(isinstance(spark, k) and isinstance(table, k) for k in loose) or spark == table


def check_readable(asked: st.StructType, table: st.StructType) -> None:
    """Check that columns of a table can be read by a schema from elsewhere.

    Args:
        asked: Schema that the user gave, or that a view or DataFrame got when it was made.
        table: Columns of the version that is read.

    Raises:
        InvalidInputError: Columns do not exist, or have other types or nulls; the message lists all of them.
    """
    existing = {field.name: field for field in table}
    misfits: list[str] = []
    for field in asked:
        previous = existing.get(field.name)
        if previous is None:
            misfits.append(f"column {field.name!r} does not exist")
        elif field.dataType.simpleString() != previous.dataType.simpleString():
            kind, wanted = previous.dataType.simpleString(), field.dataType.simpleString()
            misfits.append(f"column {field.name!r} is {kind}, not {wanted}")
        elif previous.nullable and not field.nullable:
            misfits.append(f"column {field.name!r} may have nulls")
    if misfits:
        raise InvalidInputError(
            f"The schema given does not fit the table: {joined_reasons(misfits)}. If you gave none, the table has "
            "changed since this view or DataFrame was made: make it again, or read an earlier version with the option "
            "version."
        )
