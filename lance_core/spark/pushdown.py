"""A reader that lets Spark push its filters; only made when asked for.

Spark refuses every query with such a reader unless ``spark.sql.python.filterPushdown.enabled`` is set. A filter that is
pushed is evaluated here alone, so only those are taken that mean the same in both worlds.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource as ds
from pyspark.sql.datasource import DataSourceReader

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.table.predicate import make_predicate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import Filter, InputPartition

    from lance_core.spark.source import LanceReader


class LancePushdownReader(DataSourceReader):
    """Another reader, with the filters that Spark pushed added to its own.

    Args:
        reader: Reads.
    """

    def __init__(self, reader: LanceReader) -> None:
        self.reader = reader

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 Spark's name
        """Take the filters that can be evaluated while reading and return the others."""
        table = self.reader.fields.to_arrow()
        conditions = [] if self.reader.options.filter is None else [f"({self.reader.options.filter})"]
        rest: list[Filter] = []
        for one in filters:
            condition = to_sql(one)
            if condition is not None and _is_understood(condition, table):
                conditions.append(condition)
            else:
                rest.append(one)
        if conditions:
            self.reader.options = replace(self.reader.options, filter=" AND ".join(conditions))
        return rest

    def partitions(self) -> list[InputPartition]:
        """As without filters."""
        return self.reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition that match."""
        return self.reader.read(partition)


def _is_understood(condition: str, table: pa.Schema) -> bool:
    try:
        make_predicate(condition, table)
    except (InvalidInputError, UnsupportedError):
        return False
    return True


_COMPARISONS: Mapping[type[Filter], str] = {
    ds.EqualTo: "=",
    ds.GreaterThan: ">",
    ds.GreaterThanOrEqual: ">=",
    ds.LessThan: "<",
    ds.LessThanOrEqual: "<=",
}


def to_sql(one: Filter) -> str | None:
    """A pushed filter as an SQL condition; None if there is none with exactly its meaning."""
    operator = _COMPARISONS.get(type(one))
    if operator is not None:
        return _with_literal(one, lambda column, value: f"({column} {operator} {value})")
    if isinstance(one, ds.Not):
        inner = to_sql(one.child)
        return None if inner is None else f"(NOT {inner})"
    if isinstance(one, ds.IsNull):
        return f"({_column(one)} IS NULL)"
    if isinstance(one, ds.IsNotNull):
        return f"({_column(one)} IS NOT NULL)"
    if isinstance(one, ds.In):
        values = [_literal(value) for value in one.value]
        known = [value for value in values if value is not None]
        # A null in the list makes the answer null instead of false, which NOT would turn into a difference.
        return f"({_column(one)} IN ({', '.join(known)}))" if known and len(known) == len(values) else None
    return None


def _with_literal(one: Any, sql: Callable[[str, str], str]) -> str | None:
    value = _literal(one.value)
    return None if value is None else sql(_column(one), value)


def _column(one: Any) -> str:
    return ".".join(f"`{name}`" for name in one.attribute)


def _literal(value: Any) -> str | None:
    """Values of the types whose comparison has one meaning; Spark orders NaN, and fractions depend on the type."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, Decimal)):
        return str(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, dt.datetime):
        return None if value.tzinfo is None else f"timestamp '{value.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S.%f}+00:00'"
    return f"date '{value.isoformat()}'" if isinstance(value, dt.date) else None
