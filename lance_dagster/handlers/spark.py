"""Spark frames, classic and Connect: planned here, read and written by the workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's way

from lance_core import spark as lance_spark
from lance_core.errors import InvalidInputError
from lance_core.spark.common.types import lance_schema, spark_type
from lance_dagster.handlers.stream import projected
from lance_dagster.spark_errors import task_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_dagster.handlers.base import ReadRequest, WriteRequest
    from lance_dagster.partitioning.predicate import ColumnTest, Predicate


class SparkHandler:
    """``pyspark.sql.DataFrame``."""

    @property
    def types(self) -> Sequence[str]:
        """Classic and Connect frames have this base."""
        return ("pyspark.DataFrame",)

    def schema(self, obj: Any) -> pa.Schema:
        """Columns."""
        return lance_schema(obj.schema)

    def write(self, obj: Any, request: WriteRequest) -> int:
        """Write in one Spark job; rows outside of the partitions are noticed or dropped in the same job."""
        with task_errors(request.uri):
            return self._write(obj, request)

    def _write(self, obj: Any, request: WriteRequest) -> int:
        frame = _in_partition(obj, request)
        operation = request.operation
        if operation == "merge":
            return _merge(frame, request)
        if request.unique_keys is not None:
            frame = _unique(frame, request.unique_keys, request.uri)
        if request.target is not None:
            frame = frame.select(*_columns(frame, request.target, fills=operation == "overwrite"))
        result = lance_spark.write_lance(
            frame,
            request.uri,
            mode="overwrite"
            if request.replaced is not None
            else "overwrite"
            if operation == "replace_where"
            else operation,
            replace_where=request.replaced,
            # Checked already; and these may be rows that are let through on purpose.
            check_replace_where=False,
            idempotency_key=request.token,
            transaction_properties=dict(request.properties),
            **request.options,
        )
        return result.version

    def load(self, request: ReadRequest) -> Any:
        """Hand out a frame that reads one version, whatever is committed meanwhile."""
        session = request.spark_session()
        if request.dataset is None:
            return session.createDataFrame(projected(request).empty_table())
        return lance_spark.read_lance(
            session,
            request.dataset.uri,
            columns=None if request.columns is None else projected(request).names,
            filter="false" if request.is_empty else request.filter,
            version=request.dataset.version,
            **request.options,
        )


SPARK = SparkHandler()


def _merge(frame: Any, request: WriteRequest) -> int:
    """Join the frame with the table's rows of the run's partitions; neither of them has to fit into one memory."""
    merge = lance_spark.merge_lance(
        frame,
        request.uri,
        request.merge_keys,
        within=request.replaced,
        idempotency_key=request.token,
        transaction_properties=dict(request.properties),
        **request.options,
    )
    return merge.when_matched_update_all().when_not_matched_insert_all().execute().version


def _unique(frame: Any, keys: Sequence[str], uri: str) -> Any:
    """Return the frame, checked for repeated keys while it is computed; null is no key."""
    columns = [F.col(_quoted(name)) for name in keys]
    is_repeated = F.count(F.lit(1)).over(Window.partitionBy(*columns)) > 1
    for column in columns:
        is_repeated &= column.isNotNull()
    values = [F.concat(F.lit(f"{name} = "), column.cast("string")) for name, column in zip(keys, columns, strict=True)]
    message = F.concat(
        F.lit(f"Merging into {uri}: more than one row has "),
        F.concat_ws(", ", *values),
        F.lit("; give one row for each key. Nothing was written."),
    )
    # Inside of a column that is written, as the check of partitions.
    name = keys[0]
    field = frame.schema[name]
    checked = F.when(is_repeated, F.raise_error(message).cast(field.dataType)).otherwise(columns[0])
    return frame.select(
        *[
            checked.alias(other, metadata=field.metadata) if other == name else F.col(_quoted(other))
            for other in frame.columns
        ]
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _columns(frame: Any, target: pa.Schema, *, fills: bool) -> list[Any]:
    """Return the frame's columns in the table's order; where the whole table is replaced, those it lacks as nulls."""
    present = set(frame.columns)
    columns: list[Any] = []
    for field in target:
        if field.name in present:
            columns.append(F.col(_quoted(field.name)))
        elif fills:
            columns.append(F.lit(None).cast(spark_type(field.type, field.name)).alias(field.name))
    return columns


def _in_partition(frame: Any, request: WriteRequest) -> Any:
    """Return the frame, restricted to the run's partitions or checked while it is computed."""
    predicate = request.expected
    if predicate is None or request.out_of_partition == "allow":
        return frame
    condition = _condition(predicate)
    if request.out_of_partition == "drop":
        return frame.filter(condition)
    if not predicate.any_of:
        raise InvalidInputError("The run has no partitions, so there is nothing to write.", path=request.uri)
    # Inside of a column that is written, the check can neither be pruned nor be moved before a join or a filter that
    # would have removed the row; and the plan runs once.
    column = predicate.reads[0]
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
    if any(test.expression is not None for product in predicate.any_of for test in product):
        return _computed(predicate)
    condition = F.lit(False)  # noqa: FBT003 - Spark's way
    for product in predicate.any_of:
        hit = F.lit(True)  # noqa: FBT003 - likewise
        for test in product:
            hit = hit & _test(test)
        condition = condition | hit
    return condition


def _computed(predicate: Predicate) -> Any:
    """A condition with expressions, which lance_core computes in the workers: Spark's functions differ in detail."""
    names, sql = list(predicate.reads), predicate.sql()

    def is_inside(*columns: pa.Array) -> pa.Array:
        from lance_core.expression import make_expression  # noqa: PLC0415 - in the worker, which knows no Dagster

        # Spark hands times over in the session's zone; they are the same instants.
        instants = [
            column.cast(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(column.type) and column.type.tz else column
            for column in columns
        ]
        batch = pa.RecordBatch.from_arrays(instants, names)
        return make_expression(sql, batch.schema).evaluate(batch).fill_null(False)  # noqa: FBT003 - the value to fill in

    function: Any = F.arrow_udf
    return function(is_inside, "boolean")(*[F.col(_quoted(name)) for name in names])


def _test(test: ColumnTest) -> Any:
    column = F.col(_quoted(test.column))
    if test.values:
        return column.isin(*[_literal(value, test.type) for value in test.values])
    hit = F.lit(False)  # noqa: FBT003 - likewise
    for start, end in test.ranges:
        hit = hit | ((column >= _literal(start, test.type)) & (column < _literal(end, test.type)))
    return hit


def _literal(value: Any, type_: pa.DataType) -> Any:
    """A constant of the column's type; as text with its zone, because Spark would read a naive time in its own."""
    if pa.types.is_timestamp(type_):
        return F.lit(value.isoformat(sep=" ")).cast("timestamp" if type_.tz is not None else "timestamp_ntz")
    return F.lit(value)
