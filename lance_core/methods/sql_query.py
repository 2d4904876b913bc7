"""SQL queries over a dataset; names as in pylance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lance_core.common.frozen import frozen, replace
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.scan.ordering import ColumnOrdering, Sorter, check_sortable
from lance_core.scan.select import AGGREGATES, Aggregate, Column, Select, parse_select, sql_of_groups
from lance_core.sql.expression import make_expression
from lance_core.sql.float_order import from_order_keys, order_keys
from lance_core.sql.grouping import grouped
from lance_core.table.naming import naming

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lance_core.methods.protocols import OpenDataset
    from lance_core.scanner import LanceScanner

_DEFAULT_NAME = "dataset"
_DECIMAL_DIGITS = 38


class SqlQueryBuilder:
    """A query on the way to its answer. Made by `LanceDataset.sql`; each step returns the builder."""

    def __init__(self, dataset: OpenDataset, sql: str) -> None:
        self._dataset = dataset
        self._sql = sql
        self._name = _DEFAULT_NAME
        self._options: dict[str, Any] = {}

    def table_name(self, table_name: str) -> SqlQueryBuilder:
        """Set the name of the dataset in the query; ``dataset`` by default."""
        self._name = table_name
        return self

    def with_row_id(self, with_row_id: bool = True) -> SqlQueryBuilder:
        """``*`` has ``_rowid``, too."""
        return self._with(with_row_id=with_row_id)

    def with_row_addr(self, with_row_addr: bool = True) -> SqlQueryBuilder:
        """``*`` has ``_rowaddr``, too."""
        return self._with(with_row_address=with_row_addr)

    def blob_handling(self, blob_handling: str) -> SqlQueryBuilder:
        """As in `LanceDataset.scanner`."""
        return self._with(blob_handling=blob_handling)

    def batch_size(self, batch_size: int) -> SqlQueryBuilder:
        """Return rows read at a time."""
        return self._with(batch_size=batch_size)

    def batch_size_bytes(self, batch_size_bytes: int) -> SqlQueryBuilder:
        """Return bytes in a batch, roughly."""
        return self._with(batch_size_bytes=batch_size_bytes)

    def build(self) -> SqlQuery:
        """Check the query.

        Raises:
            InvalidInputError: No SQL, unknown columns, types that do not fit.
            UnsupportedError: Something of SQL that is not supported; the message names it.
        """
        dataset = self._dataset
        with naming(dataset.snapshot.store):
            select = parse_select(self._sql, self._name)
            ids = {name: bool(self._options.get(option)) for name, option in _ID_OPTIONS.items()}
            names = [*dataset.schema.names, *(name for name, wanted in ids.items() if wanted)]
            select = replace(select, columns=tuple(_without_star(select.columns, names)))
            _check_order(select)
            plan = _grouped if select.is_grouped else _plain
            options = {name: value for name, value in self._options.items() if name not in _ID_OPTIONS.values()}
            return plan(dataset, select, options)

    def _with(self, **options: Any) -> SqlQueryBuilder:
        self._options.update(options)
        return self


_ID_OPTIONS = {"_rowid": "with_row_id", "_rowaddr": "with_row_address"}


@frozen(kw_only=True)
class SqlQuery:
    """A query that may be run as often as wanted. Made by `SqlQueryBuilder.build`.

    Attributes:
        scanner: What is read.
        select: What is made of it.
        finish: Turns what was read into the answer.
        schema: Arrow schema of the answer.
    """

    scanner: LanceScanner
    select: Select
    finish: _Plain | _Grouped
    schema: pa.Schema

    def to_batch_records(self) -> list[pa.RecordBatch]:
        """Return the answer, in memory."""
        return [batch for batch in self._batches() if batch.num_rows]

    def to_stream_reader(self) -> pa.RecordBatchReader:
        """Return the answer as a stream; whatever needs neither order nor groups is read as it is asked for."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        return self.finish.run(self.scanner, self.select, self.schema)


def _without_star(columns: Iterable[Column], names: Sequence[str]) -> Iterator[Column]:
    """Yield all columns in place of ``*``, and others by the names they have in the table."""
    by_small = {name.lower(): name for name in reversed(names)}
    for column in columns:
        if column.text is None:
            yield from (Column(name=name, text=f"`{name}`") for name in names)
        elif column.text == column.name and column.name not in names:
            yield replace(column, name=by_small.get(column.name.lower(), column.name))
        else:
            yield column


def _text_of(column: Column) -> str:
    """Return the text that a scanner takes: the name of a column is not read as SQL."""
    text = column.text or ""
    return text[1:-1] if text.startswith("`") and text.endswith("`") and "`" not in text[1:-1] else text


# ------------------------------------------------------------------------------------------------------ without groups


@frozen
class _Plain:
    """Columns ``_c0``, ... are the answer, ``_o0``, ... what it is ordered by."""

    def run(self, scanner: LanceScanner, select: Select, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        batches = scanner.to_batches()
        if not select.order and not select.is_distinct:
            for batch in batches:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
            return
        yield from _answer(batches, scanner.schema, select, schema)


def _plain(dataset: OpenDataset, select: Select, options: Mapping[str, Any]) -> SqlQuery:
    columns = {f"_c{position}": _text_of(column) for position, column in enumerate(select.columns)}
    columns.update({f"_o{position}": ordering.text for position, ordering in enumerate(select.order)})
    is_direct = not select.order and not select.is_distinct
    scanner = dataset.scanner(
        columns=columns,
        filter=select.where,
        limit=select.limit if is_direct else None,
        offset=select.offset if is_direct else None,
        **options,
    )
    for position in range(len(select.order)):
        check_sortable(scanner.schema.field(f"_o{position}").type, select.order[position].text)
    fields = [
        scanner.schema.field(f"_c{position}").with_name(column.name) for position, column in enumerate(select.columns)
    ]
    return SqlQuery(scanner=scanner, select=select, finish=_Plain(), schema=pa.schema(fields))


def _answer(
    batches: Iterable[pa.RecordBatch], made: pa.Schema, select: Select, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Rows with the columns of the answer and then those it is ordered by: different ones, in order, not too many."""
    if select.is_distinct:
        table = pa.Table.from_batches(batches, schema=made)
        try:
            batches = grouped(table, made.names).to_batches()
        except (pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
            raise UnsupportedError(f"DISTINCT does not support columns of these types: {error}") from error
    table = _sorted(batches, made, select).slice(select.offset, select.limit).select(range(len(schema)))
    for batch in table.to_batches():
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _sorted(batches: Iterable[pa.RecordBatch], schema: pa.Schema, select: Select) -> pa.Table:
    """Return the rows in the order asked for; with a limit only as many are kept in memory as may be in the answer."""
    orderings = [
        ColumnOrdering(f"_o{position}", ascending=ordering.ascending, nulls_first=ordering.nulls_first)
        for position, ordering in enumerate(select.order)
    ]
    if not orderings:
        return pa.Table.from_batches(batches, schema=schema)
    count = None if select.limit is None else select.limit + select.offset
    sorter = Sorter(order=orderings, schema=schema, count=count)
    for batch in batches:
        sorter.add(batch)
    return sorter.finish()


def _check_order(select: Select) -> None:
    texts = {column.text for column in select.columns}
    for ordering in select.order if select.is_distinct else ():
        if ordering.text not in texts:
            raise InvalidInputError(
                f"cannot ORDER BY {ordering.text}: with SELECT DISTINCT it must be among the selected columns"
            )


# --------------------------------------------------------------------------------------------------------- with groups


@frozen
class _Grouped:
    """Columns ``_key0``, ... are what groups have in common, ``_a0``, ... what aggregates are worked out from."""

    groups: pa.Schema

    def run(self, scanner: LanceScanner, select: Select, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        groups = self._aggregated(scanner, select)
        if select.having is not None:
            groups = groups.filter(make_expression(select.having, self.groups).evaluate(groups))
        columns = [make_expression(column.text or "", self.groups).evaluate(groups) for column in select.columns]
        columns += [make_expression(ordering.text, self.groups).evaluate(groups) for ordering in select.order]
        names = [
            *(f"_c{position}" for position in range(len(schema))),
            *(f"_o{position}" for position in range(len(select.order))),
        ]
        made = pa.RecordBatch.from_arrays(columns, names=names)
        yield from _answer([made], made.schema, select, schema)

    def _aggregated(self, scanner: LanceScanner, select: Select) -> pa.RecordBatch:
        keys = [f"_key{position}" for position in range(len(select.keys))]
        if not keys and not scanner.schema.names:
            counts = [pa.array([scanner.count_rows()], pa.int64())] * len(select.aggregates)
            return pa.RecordBatch.from_arrays(counts, schema=self.groups)
        table = _with_order_keys(scanner.to_table(), select.aggregates)
        try:
            groups = grouped(table, keys, [_task(*aggregate) for aggregate in enumerate(select.aggregates)])
        except (pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
            raise UnsupportedError(f"GROUP BY does not support columns of these types: {error}") from error
        columns = [groups.column(name) for name in keys]
        columns += [
            _as_float(
                groups.column(_result(position, aggregate)), self.groups.field(f"_value{position}").type, aggregate
            )
            for position, aggregate in enumerate(select.aggregates)
        ]
        cast = [column.combine_chunks().cast(field.type) for column, field in zip(columns, self.groups, strict=True)]
        return pa.RecordBatch.from_arrays([_whole(column) for column in cast], schema=self.groups)


def _with_order_keys(table: pa.Table, aggregates: Sequence[Aggregate]) -> pa.Table:
    """Replace floats by integers in their order where the smallest or largest is wanted, which may be NaN.

    pylance's answers for groups depend on the order of rows if there is NaN; those without groups are in this order.
    """
    for position, aggregate in enumerate(aggregates):
        name = f"_a{position}"
        if _kernel(aggregate) in {"min", "max"} and pa.types.is_floating(table.schema.field(name).type):
            keys = order_keys(table.column(name))
            table = table.set_column(table.schema.get_field_index(name), name, keys)
    return table


def _as_float(values: pa.ChunkedArray, kind: pa.DataType, aggregate: Aggregate) -> pa.ChunkedArray:
    """Return the floats that `_with_order_keys` replaced."""
    is_key = _kernel(aggregate) in {"min", "max"} and pa.types.is_floating(kind)
    return from_order_keys(values) if is_key else values


def _whole(values: Any) -> pa.Array:
    return pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values


def _kernel(aggregate: Aggregate) -> str:
    if aggregate.text is None:
        return "count_all"
    return "count_distinct" if aggregate.is_distinct else AGGREGATES[aggregate.name]


def _task(position: int, aggregate: Aggregate) -> tuple[Any, str, Any]:
    """Return the arguments of `pyarrow.TableGroupBy.aggregate`."""
    kernel = _kernel(aggregate)
    if kernel == "count_all":
        return ([], kernel, None)
    options: Any = None
    if kernel in {"stddev", "variance"}:
        options = pc.VarianceOptions(ddof=0 if aggregate.name.endswith("_pop") else 1)
    elif kernel in {"count", "count_distinct"}:
        options = pc.CountOptions(mode="only_valid")
    return (f"_a{position}", kernel, options)


def _result(position: int, aggregate: Aggregate) -> str:
    """Return pyarrow's name of the result."""
    kernel = _kernel(aggregate)
    return kernel if kernel == "count_all" else f"_a{position}_{kernel}"


def _grouped(dataset: OpenDataset, select: Select, options: Mapping[str, Any]) -> SqlQuery:
    columns = {f"_key{position}": text for position, text in enumerate(select.keys)}
    columns.update(
        {
            f"_a{position}": aggregate.text
            for position, aggregate in enumerate(select.aggregates)
            if aggregate.text is not None
        }
    )
    scanner = dataset.scanner(columns=columns, filter=select.where, **options)
    fields = [scanner.schema.field(f"_key{position}") for position in range(len(select.keys))]
    for position, aggregate in enumerate(select.aggregates):
        kind = None if aggregate.text is None else scanner.schema.field(f"_a{position}").type
        fields.append(
            pa.field(f"_value{position}", _type_of(aggregate, kind), nullable=AGGREGATES[aggregate.name] != "count")
        )
    groups = pa.schema(fields)
    made = [make_expression(column.text or "", groups) for column in select.columns]
    for ordering in select.order:
        check_sortable(make_expression(ordering.text, groups).type, sql_of_groups(select, ordering.text))
    if select.having is not None:
        kind = make_expression(select.having, groups).type
        if not pa.types.is_boolean(kind):
            having = sql_of_groups(select, select.having)
            raise InvalidInputError(f"HAVING '{having}' has type {kind}; give a condition, which is true or false")
    schema = pa.schema(
        [
            pa.field(column.name, value.type, nullable=value.nullable)
            for column, value in zip(select.columns, made, strict=True)
        ]
    )
    return SqlQuery(scanner=scanner, select=select, finish=_Grouped(groups), schema=schema)


def _type_of(aggregate: Aggregate, kind: pa.DataType | None) -> pa.DataType:
    """Type of an aggregate, as in pylance."""
    kernel, types = _kernel(aggregate), pa.types
    if kind is None or kernel in {"count", "count_distinct"}:
        return pa.int64()
    if kernel in {"min", "max"}:
        return kind
    if kernel in {"all", "any"} and types.is_boolean(kind):
        return kind
    if types.is_decimal(kind) and kernel == "sum":
        return pa.decimal128(min(kind.precision + 10, _DECIMAL_DIGITS), kind.scale)
    if types.is_integer(kind) or types.is_floating(kind):
        is_sum_of_integers = kernel == "sum" and types.is_integer(kind)
        return (pa.uint64() if types.is_unsigned_integer(kind) else pa.int64()) if is_sum_of_integers else pa.float64()
    raise UnsupportedError(f"{aggregate.name}() does not support values of type {kind}")
