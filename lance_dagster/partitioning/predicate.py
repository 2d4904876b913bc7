"""A partition selection with the types of the columns: as SQL text, as a test of Arrow batches, as counts per key.

Values of a key, by the column's type:

- string, integer, boolean: the key's text, its number (the digits of a date: 20260131), ``true``/``false``;
- date: the key's ISO date, or the days of a time window (which must begin and end at midnight of its zone);
- timestamp with a zone: the instants of a time window, or the key's ISO time (UTC if it names no zone);
- timestamp without a zone: the wall-clock time in the partitions' own zone.

Time windows on strings and integers are compared key by key, because their order as text or number need not be the
order in time.

Instead of a column there may be an SQL expression over columns, such as ``date(at)``; its values are compared.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import lance_core
from lance_core.common.hints import did_you_mean
from lance_core.common.late_module import LateModule
from lance_core.errors import InvalidInputError, LanceError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import pyarrow as pa

    from lance_core.expression import Expression
    from lance_dagster.partitioning.partitions import DimensionKeys, PartitionSelection
else:
    np = LateModule("numpy")
    pa = LateModule("pyarrow")

Value = str | int | bool | date | datetime
Range = tuple[Value, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTest:
    """A column (or an expression) has one of some values, or lies in one of some ranges.

    Args:
        column: Column name, or the text of the expression.
        type: Its Arrow type (value type of a dictionary).
        expression: What to compute instead of taking a column; None for a column.
        values: Allowed values; empty if there are ranges.
        ranges: Allowed ranges [start, end), disjoint, in any order.
    """

    column: str
    type: pa.DataType
    expression: Expression | None = None
    values: tuple[Value, ...] = ()
    ranges: tuple[Range, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns that must be in a batch."""
        return (self.column,) if self.expression is None else tuple(p.split(".")[0] for p in self.expression.columns)

    def term(self) -> str:
        """Return the column or expression as SQL text."""
        return _term(self.column, self.expression)

    def sql(self) -> str:
        """As SQL text in lance_core's dialect (that of Lance)."""
        column = self.term()
        if self.values:
            literals = ", ".join(literal(value) for value in self.values)
            return f"{column} = {literals}" if len(self.values) == 1 else f"{column} IN ({literals})"
        tests = [f"{column} >= {literal(start)} AND {column} < {literal(end)}" for start, end in self.ranges]
        return tests[0] if len(tests) == 1 else " OR ".join(f"({test})" for test in tests)

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the column or the values of the expression."""
        return batch.column(self.column) if self.expression is None else self.expression.evaluate(batch)

    def codes(self, column: pa.ChunkedArray | pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Per row (int64) the index of the value or range that it falls into, -1 for none and for nulls.

        Args:
            column: From ``of``, or computed elsewhere.
        """
        # Takes long to import, and only writers of partitions need it. Its functions are made at run time.
        pc: Any = importlib.import_module("pyarrow.compute")

        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if self.values:
            indices = pc.index_in(column, value_set=pa.array(self.values, self.type))
            return _numpy(pc.fill_null(indices, -1)).astype(np.int64)
        bounds = _numpy(_integers(pa.array([bound for range_ in self.ranges for bound in range_], self.type)))
        order = np.argsort(bounds[::2], kind="stable")  # that of keys need not be that of time, as in 31-01-2026
        bounds = bounds.reshape(-1, 2)[order].ravel()
        position = np.searchsorted(bounds, _numpy(pc.fill_null(_integers(column), bounds[0] - 1)), side="right")
        # Odd positions are inside of a range: after its start, not after its end.
        return np.where(position % 2 == 1, order[np.minimum(position // 2, len(order) - 1)], -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """OR of ANDs of column tests."""

    any_of: tuple[tuple[ColumnTest, ...], ...]

    def sql(self) -> str:
        """As SQL text; a predicate that selects nothing is ``false``."""
        products = [" AND ".join(f"({test.sql()})" for test in product) for product in self.any_of]
        return " OR ".join(f"({product})" for product in products) if products else "false"

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns that must be in a batch."""
        return tuple(dict.fromkeys(name for product in self.any_of for test in product for name in test.reads))

    def mask(self, batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Per row whether it is selected (bool); a null in a partition column is never selected."""
        mask = np.zeros(batch.num_rows, bool)
        for product in self.any_of:
            hit = np.ones(batch.num_rows, bool)
            for test in product:
                hit &= test.codes(test.of(batch)) >= 0
            mask |= hit
        return mask


def typed(selection: PartitionSelection, schema: pa.Schema) -> Predicate:
    """Return the predicate of a selection for a table of this schema.

    Raises:
        InvalidInputError: If a partition column is missing or a key does not fit its type.
        UnsupportedError: For a column type that cannot hold keys.
    """
    return Predicate(
        any_of=tuple(
            tuple(column_test(dimension, schema, dimension.windows()) for dimension in product)
            for product in selection.products
        )
    )


def partition_terms(selection: PartitionSelection, schema: pa.Schema) -> dict[str, str]:
    """Return the columns that ``count_by_key`` needs: name -> SQL text, one for each dimension."""
    return {
        f"p{i}": _term(dimension.column, _resolved(dimension, schema)[1])
        for i, dimension in enumerate(selection.dimensions)
    }


def count_by_key(selection: PartitionSelection, schema: pa.Schema, values: pa.Table) -> Mapping[str, int]:
    """Return rows of each selected key.

    Args:
        selection: The keys.
        schema: Columns of the table.
        values: The columns that ``partition_terms`` names.
    """
    if not selection.keys:
        return {}
    code = np.zeros(values.num_rows, np.int64)
    is_counted = np.ones(values.num_rows, bool)
    for i, dimension in enumerate(selection.dimensions):
        windows = dimension.windows() and [dimension.window_of(key) for key in dimension.keys]
        codes = column_test(dimension, schema, windows).codes(values.column(i))
        is_counted &= codes >= 0
        code = code * len(dimension.keys) + codes
    counts = np.bincount(code[is_counted], minlength=1)
    positions = [{key: i for i, key in enumerate(dimension.keys)} for dimension in selection.dimensions]
    result: dict[str, int] = {}
    for key, parts in zip(selection.keys, selection.parts, strict=True):
        index = 0
        for dimension, position, part in zip(selection.dimensions, positions, parts, strict=True):
            index = index * len(dimension.keys) + position[part]
        result[key] = int(counts[index]) if index < len(counts) else 0
    return result


def column_test(
    dimension: DimensionKeys, schema: pa.Schema, windows: Sequence[tuple[datetime, datetime]] | None
) -> ColumnTest:
    """Return the test of the keys of one dimension.

    Args:
        dimension: The keys.
        schema: Columns of the table.
        windows: Disjoint time windows of the keys; None compares values.

    Raises:
        InvalidInputError: The column is missing or a key does not fit its type.
    """
    text = dimension.column
    type_, expression = _resolved(dimension, schema)
    if windows and pa.types.is_temporal(type_) and not pa.types.is_time(type_):
        ranges = tuple((_bound(start, type_), _bound(end, type_)) for start, end in windows)
        if any(not start < end for start, end in ranges):  # pyright: ignore[reportOperatorIssue] - both of one type
            raise InvalidInputError(_ambiguous(text))
        return ColumnTest(column=text, type=type_, expression=expression, ranges=ranges)
    values = tuple(_value(key, type_, text) for key in dimension.keys)
    if len(set(values)) < len(values):
        msg = f"Several partition keys mean the same value of column {text!r} ({type_})."
        raise InvalidInputError(msg)
    return ColumnTest(column=text, type=type_, expression=expression, values=values)


def _resolved(dimension: DimensionKeys, schema: pa.Schema) -> tuple[pa.DataType, Expression | None]:
    """Return the type of what a dimension names, and the expression that it is; None for a column."""
    expression = None if dimension.column in schema.names else _expression(dimension, schema)
    type_ = schema.field(dimension.column).type if expression is None else expression.type
    return type_.value_type if pa.types.is_dictionary(type_) else type_, expression


def _term(text: str, expression: Expression | None) -> str:
    return quote(text) if expression is None else f"({text})"


def _expression(dimension: DimensionKeys, schema: pa.Schema) -> Expression:
    """Return the expression that a dimension names instead of a column."""
    text = dimension.column
    if text.isidentifier():
        hint = did_you_mean(text, schema.names)
        msg = f"The column {text!r} of 'partition_expr' is not among the columns {schema.names}.{hint}"
        raise InvalidInputError(msg)
    try:
        expression = lance_core.make_expression(text, schema)
    except LanceError as error:
        msg = f"The partition expression {text!r} does not fit the columns {schema.names}: {error.message}"
        raise InvalidInputError(msg) from error
    zones = [getattr(schema.field(name.split(".")[0]).type, "tz", None) for name in expression.columns]
    zone = getattr(dimension.definition, "timezone", "UTC")
    if pa.types.is_date(expression.type) and any(zones) and zone != "UTC":
        msg = (
            f"The partition expression {text!r} gives days in UTC, but the partitions are in {zone}: "
            f"name the column itself ({expression.columns[0]!r}), whose times are compared with the partitions' own."
        )
        raise InvalidInputError(msg)
    return expression


def _bound(moment: datetime, type_: pa.DataType) -> Value:
    """Return a window's end as a value of the column's type."""
    if pa.types.is_date(type_):
        if moment.time() != datetime.min.time():
            msg = f"A date column cannot hold partitions that begin or end within a day ({moment.isoformat()})."
            raise InvalidInputError(msg)
        return moment.date()
    if type_.tz is not None:
        return moment.astimezone(UTC)
    naive = moment.replace(tzinfo=None)
    if moment.tzinfo is not None and moment.replace(fold=0).utcoffset() != moment.replace(fold=1).utcoffset():
        raise InvalidInputError(_ambiguous(f"at {moment.isoformat()}"))
    return naive


def _ambiguous(where: str) -> str:
    return (
        f"A timestamp without a zone cannot tell partitions apart where clocks are changed ({where}): "
        "use a timestamp column with a zone, or partitions in UTC."
    )


_DATE = re.compile(r"[0-9]{4}-[0-9]{2}")
_TRUTH = {"true": True, "false": False, "True": True, "False": False}


def _value(key: str, type_: pa.DataType, column: str) -> Value:
    """Return a key as a value of the column's type."""
    try:
        if _is_string(type_):
            return key
        if pa.types.is_integer(type_):
            return int(pa.scalar(_integer(key), type_).as_py())
        if pa.types.is_boolean(type_):
            return _TRUTH[key]
        if pa.types.is_date(type_):
            return date.fromisoformat(key)
        if pa.types.is_timestamp(type_):
            return _moment(key, type_)
    except (ValueError, KeyError, OverflowError, pa.ArrowException) as error:
        msg = f"The partition key {key!r} is no value of column {column!r} of type {type_}."
        raise InvalidInputError(msg) from error
    msg = f"A partition column of type {type_} (column {column!r})"
    raise UnsupportedError(msg)


def _integer(key: str) -> int:
    """Return the number that a key is, or for a key that is a date or time its digits: 2026-01-31 is 20260131."""
    return int(re.sub(r"[-:T ]", "", key) if _DATE.match(key) else key)


def _moment(key: str, type_: pa.DataType) -> datetime:
    moment = datetime.fromisoformat(key)
    if type_.tz is not None:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    if moment.tzinfo is not None:
        msg = "the key has a zone, the column has none"
        raise ValueError(msg)
    return moment


def quote(column: str) -> str:
    """Return a column name for SQL text."""
    return "`" + column.replace("`", "``") + "`"


def literal(value: Value) -> str:
    """Return a value as SQL text."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case datetime():
            return f"timestamp '{value.isoformat(sep=' ')}'"
        case date():
            return f"date '{value.isoformat()}'"
        case _:
            return "'" + value.replace("'", "''") + "'"


def _is_string(type_: pa.DataType) -> bool:
    return pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)


def _integers(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Dates as days or milliseconds, timestamps in their unit: int64, so that numpy can search them."""
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    return column.cast(pa.int64())


def _numpy(column: pa.Array | pa.ChunkedArray) -> np.ndarray[Any, Any]:
    return column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(zero_copy_only=False)
