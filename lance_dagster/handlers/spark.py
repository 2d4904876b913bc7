"""Spark frames, classic and Connect: planned here, read and written by the workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from lance_core import spark as lance_spark
from lance_core.errors import InvalidInputError
from lance_dagster.handlers.arrow import fitting

if TYPE_CHECKING:
    from lance_dagster.handlers.base import ReadRequest, WriteOperation, WriteRequest
    from lance_dagster.predicate import ColumnTest, Predicate

# Only what a partition column can be; other columns pass as "null", nobody looks at them.
_ARROW = {
    "string": pa.string(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}

_MODES: dict[WriteOperation, Literal["append", "overwrite", "create"]] = {
    "create": "create",
    "append": "append",
    "overwrite": "overwrite",
}


class SparkHandler:
    """``pyspark.sql.DataFrame``."""

    def schema(self, obj: Any) -> pa.Schema:
        """Columns; types that cannot hold partition keys are given as null, which arrow wants to be nullable."""
        kinds = [_ARROW.get(column.dataType.typeName(), pa.null()) for column in obj.schema]
        return pa.schema(
            [
                pa.field(column.name, kind, column.nullable or pa.types.is_null(kind))
                for column, kind in zip(obj.schema, kinds, strict=True)
            ]
        )

    def write(self, obj: Any, request: WriteRequest) -> int:
        """Write in one Spark job; rows outside of the partitions are noticed or dropped in the same job."""
        frame = _in_partition(obj, request)
        if request.existing is not None:
            frame = frame.select(*[_quoted(name) for name in fitting(self.schema(obj), request.existing.schema).names])
        result = lance_spark.write_lance(
            frame,
            request.uri,
            mode="overwrite" if request.replaced is not None else _MODES[request.operation],
            replace_where=request.replaced,
            idempotency_key=request.token,
            transaction_properties=dict(request.properties),
            storage_options=dict(request.storage_options) or None,
        )
        return result.version

    def load(self, request: ReadRequest) -> Any:
        """Hand out a frame that reads one version, whatever is committed meanwhile."""
        session = request.spark_session()
        if request.dataset is None:
            table = request.schema.empty_table()
            frame = session.createDataFrame(table if request.columns is None else table.select(list(request.columns)))
        else:
            frame = lance_spark.read_lance(
                session,
                request.dataset.uri,
                columns=None if request.columns is None else list(request.columns),
                filter=request.filter,
                version=request.dataset.version,
                storage_options=dict(request.storage_options) or None,
            )
        return frame.limit(0) if request.is_empty else frame


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _in_partition(frame: Any, request: WriteRequest) -> Any:
    """The frame, restricted to the run's partitions or checked while it is computed."""
    predicate = request.expected
    if predicate is None or request.out_of_partition == "allow":
        return frame
    from pyspark.sql import functions as F  # noqa: N812,PLC0415 - optional

    condition = _condition(predicate)
    if request.out_of_partition == "drop":
        return frame.filter(condition)
    if not predicate.any_of:
        raise InvalidInputError("A run without partitions has nothing to write.", path=request.uri)
    # Inside of a column that is written, the check can neither be pruned nor be moved before a join or a filter that
    # would have removed the row; and the plan runs once.
    column = predicate.any_of[0][0].column
    field = frame.schema[column]
    message = F.concat(
        F.lit(f"A row lies outside of the run's partitions of {request.uri}: column {column} is "),
        F.coalesce(F.col(_quoted(column)).cast("string"), F.lit("null")),
        F.lit(
            ". Nothing was written. Fix the asset, or set the metadata 'lance/out_of_partition' to 'drop' or 'allow'."
        ),
    )
    checked = F.when(condition, F.col(_quoted(column))).otherwise(F.raise_error(message).cast(field.dataType))
    return frame.select(
        *[
            checked.alias(name, metadata=field.metadata) if name == column else F.col(_quoted(name))
            for name in frame.columns
        ]
    )


def _condition(predicate: Predicate) -> Any:
    from pyspark.sql import functions as F  # noqa: N812,PLC0415 - optional

    condition = F.lit(False)  # noqa: FBT003 - Spark's way
    for product in predicate.any_of:
        hit = F.lit(True)  # noqa: FBT003 - likewise
        for test in product:
            hit = hit & _test(test)
        condition = condition | hit
    return condition


def _test(test: ColumnTest) -> Any:
    from pyspark.sql import functions as F  # noqa: N812,PLC0415 - optional

    column = F.col(_quoted(test.column))
    if test.values:
        return column.isin(*[_literal(value, test.type) for value in test.values])
    hit = F.lit(False)  # noqa: FBT003 - likewise
    for start, end in test.ranges:
        hit = hit | ((column >= _literal(start, test.type)) & (column < _literal(end, test.type)))
    return hit


def _literal(value: Any, type_: pa.DataType) -> Any:
    """A constant of the column's type; as text with its zone, because Spark would read a naive time in its own."""
    from pyspark.sql import functions as F  # noqa: N812,PLC0415 - optional

    if pa.types.is_timestamp(type_):
        return F.lit(value.isoformat(sep=" ")).cast("timestamp" if type_.tz is not None else "timestamp_ntz")
    return F.lit(value)
