"""Queries: a scan, and the processing of its rows - computed columns, order, sizes of batches."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen, replace
from lance_core.encoding.arrow_values import batch_of
from lance_core.encoding.kernels import numbers_array, numbers_of
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.scan.blob_rows import blob_leaves
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.fragments import scan_fragments
from lance_core.scan.ordering import Sorter, check_sortable, sorted_rows
from lance_core.scan.plan import (
    ROW_ADDRESS,
    ROW_ID,
    ROW_OFFSET,
    SYSTEM_COLUMNS,
    output_names,
    plan_scan,
    rest_of,
    with_narrow_structs,
    with_stored_json,
)
from lance_core.scan.ranking import ranked_columns, ranked_schema
from lance_core.scan.take import take_addresses
from lance_core.sql.expression import Expression, make_expression
from lance_core.telemetry import Span, is_observed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyarrow import compute

    from lance_core.format.schema import Schema
    from lance_core.format.table.fragment import Fragment
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.ordering import ColumnOrdering
    from lance_core.scan.plan import ScanPlan
    from lance_core.scan.ranking import Ranking

_LOGGER = logging.getLogger("lance_core.scan")
_OFFSET_BITS = 32


@frozen(kw_only=True)
class Output:
    """One column of the result.

    Attributes:
        name: Its name.
        source: Column of the scan; the name of the expression's result if there is one.
        expression: How it is computed; None if it is read.
    """

    name: str
    source: str
    expression: Expression | None = None

    @property
    def paths(self) -> Sequence[str]:
        """Paths of the fields that it is made of."""
        return (self.source,) if self.expression is None else self.expression.columns


@frozen(kw_only=True)
class Query:
    """A scan and the processing of its rows, checked against a schema.

    Attributes:
        plan: What is read.
        outputs: Columns of the result; None if they are those of the scan.
        schema: Arrow schema of the result.
        order: Columns to order by.
        limit: Rows at most, None for all.
        offset: Rows to leave out first.
        include_deleted_rows: Deleted rows come too, with a null row id.
        rows_per_batch: Rows in each batch but the last; None if batches may have any size.
        bytes_per_batch: Bytes in a batch, roughly; None for no bound.
        ranking: The search that says which rows are read; None for all rows.
        fetched: Plan of what is read of the rows that it finds.
    """

    plan: ScanPlan
    outputs: tuple[Output, ...] | None
    schema: pa.Schema
    order: tuple[ColumnOrdering, ...] = ()
    limit: int | None = None
    offset: int = 0
    include_deleted_rows: bool = False
    rows_per_batch: int | None = None
    bytes_per_batch: int | None = None
    ranking: Ranking | None = None
    fetched: ScanPlan | None = None


def plan_query(
    schema: Schema,
    *,
    columns: Sequence[str] | Mapping[str, str] | None,
    filter: str | compute.Expression | None = None,  # noqa: A002 the name users know
    order: Sequence[ColumnOrdering] = (),
    limit: int | None = None,
    offset: int = 0,
    batch_size: int | None = None,
    with_row_id: bool = False,
    with_row_address: bool = False,
    include_deleted_rows: bool = False,
    strict_batch_size: bool = False,
    batch_size_bytes: int | None = None,
    make_plan: Callable[..., ScanPlan] = plan_scan,
    ranking: Ranking | None = None,
) -> Query:
    """Check what is asked for.

    Args:
        schema: Schema of the table.
        columns: Names and dotted paths, or a dict of name to SQL expression; None for all columns.
        filter: SQL text or pyarrow expression.
        order: Columns to order by.
        limit: Rows at most.
        offset: Rows to leave out first.
        batch_size: Rows read at a time.
        with_row_id: Add ``_rowid``.
        with_row_address: Add ``_rowaddr``.
        include_deleted_rows: Read deleted rows too.
        strict_batch_size: All batches but the last have exactly ``batch_size`` rows.
        batch_size_bytes: Bytes in a batch, roughly.
        make_plan: What plans the scan.
        ranking: A search that says which rows are read; the filter is asked of the rows that it finds.

    Raises:
        InvalidInputError: Unknown columns, SQL that does not fit.
        UnsupportedError: SQL that is not supported, an order of a type that has none.
    """
    stored = schema
    if ranking is not None:
        schema, columns = ranked_schema(schema, ranking), ranked_columns(schema, columns, ranking)
    ids = {ROW_ID: with_row_id, ROW_ADDRESS: with_row_address}
    if include_deleted_rows and not with_row_id:
        raise InvalidInputError("include_deleted_rows needs with_row_id=True: deleted rows are told by a null row id")
    if strict_batch_size and batch_size is None:
        raise InvalidInputError("strict_batch_size needs batch_size")
    outputs = _outputs(schema, columns, ids)
    names = list(schema.names) if columns is None else list(columns)
    if outputs is not None:
        names = list(dict.fromkeys(source for output in outputs for source in _needed(output)))
    names += [name for name, wanted in ids.items() if wanted and name not in names]
    num_asked = len(names)
    names += [key.column_name for key in order if key.column_name not in names]
    if include_deleted_rows and ROW_ADDRESS not in names:
        names.append(ROW_ADDRESS)
    plan = make_plan(
        schema, columns=names, filter=filter, batch_size=batch_size, with_row_id=False, with_row_address=False
    )
    if include_deleted_rows and plan.predicate is not None and ROW_OFFSET in plan.predicate.columns:
        raise UnsupportedError(f"a filter on {ROW_OFFSET} together with include_deleted_rows")
    direct = names if outputs is None else [output.source for output in outputs if output.expression is None]
    text_columns = {*direct, *(key.column_name for key in order)}
    if outputs is not None:
        if ranking is None:
            paths = [path for output in outputs for path in output.paths]
            plan = with_narrow_structs(plan, [*paths, *(key.column_name for key in order)])
        plan = with_stored_json(plan, text_columns)
    fetched = None
    if ranking is not None:
        asked_too = () if plan.predicate is None else plan.predicate.columns
        needed = [name for name in dict.fromkeys([*plan.columns, *asked_too]) if name not in _added(ranking)]
        fetched = make_plan(
            stored, columns=needed, filter=None, batch_size=batch_size, with_row_id=False, with_row_address=False
        )
        fetched = with_stored_json(fetched, text_columns)
    for key in order:
        if key.column_name not in plan.columns:
            raise InvalidInputError(
                f"rows cannot be ordered by {key.column_name!r}, which has many values for each row"
            )
        check_sortable(plan.schema.field(key.column_name).type, key.column_name)
    asked = output_names(names[:num_asked], schema)
    if outputs is None and plan.columns != asked:
        outputs = tuple(Output(name=name, source=name) for name in asked)
    return Query(
        plan=plan,
        outputs=outputs,
        schema=plan.schema if outputs is None else _output_schema(outputs, plan.schema),
        order=tuple(order),
        limit=limit,
        offset=offset,
        include_deleted_rows=include_deleted_rows,
        rows_per_batch=batch_size if strict_batch_size else None,
        bytes_per_batch=batch_size_bytes,
        ranking=ranking,
        fetched=fetched,
    )


def _added(ranking: Ranking) -> set[str]:
    """Return the names of the columns that a search adds."""
    return {field.name for field in (*ranking.leading, *ranking.trailing)}


def _outputs(
    schema: Schema, columns: Sequence[str] | Mapping[str, str] | None, ids: Mapping[str, bool]
) -> tuple[Output, ...] | None:
    if columns is None or not isinstance(columns, dict):
        return None
    arrow = schema.to_arrow()
    for name in SYSTEM_COLUMNS:
        arrow = arrow.append(pa.field(name, pa.uint64()))
    outputs = [_output(name, sql, schema, arrow) for name, sql in columns.items()]
    outputs += [Output(name=name, source=name) for name, wanted in ids.items() if wanted and name not in columns]
    return tuple(outputs)


def _output(name: str, sql: str, schema: Schema, arrow: pa.Schema) -> Output:
    if sql in arrow.names or _is_nested_blob(sql, schema):
        return Output(name=name, source=sql)
    return Output(name=name, source=name, expression=make_expression(sql, arrow))


def _is_nested_blob(path: str, schema: Schema) -> bool:
    """Return whether a path leads to a blob inside of a struct, which expressions cannot read."""
    top, _, rest = path.partition(".")
    return bool(rest) and top in schema.names and any(".".join(names) == rest for names, _ in blob_leaves(schema, top))


def _needed(output: Output) -> Sequence[str]:
    """Columns of the scan that an output is made of: top-level ones, because expressions look into structs."""
    if output.expression is None:
        return output.paths
    return tuple(path.split(".")[0] if "." in path else path for path in output.paths)


def _output_schema(outputs: Sequence[Output], scanned: pa.Schema) -> pa.Schema:
    fields: list[pa.Field] = []
    for output in outputs:
        if output.expression is None:
            fields.append(scanned.field(output.source).with_name(output.name))
        else:
            fields.append(pa.field(output.name, output.expression.type, nullable=output.expression.nullable))
    return pa.schema(fields, metadata=scanned.metadata)


# --------------------------------------------------------------------------------------------------------- running


def run_query(files: OpenFiles, fragments: Sequence[Fragment], query: Query) -> Iterator[pa.RecordBatch]:
    """Read batches.

    Args:
        files: The dataset's open files.
        fragments: In the order wanted.
        query: What to read.
    """
    if query.ranking is not None:
        batches = _ranked(files, fragments, query, query.ranking)
    else:
        batches = _ordered(files, fragments, query) if query.order else _scanned(files, fragments, query)
    made = (_made(batch, query) for batch in batches)
    if query.bytes_per_batch is not None:
        made = _bounded(made, query.bytes_per_batch)
    if query.rows_per_batch is not None:
        made = _even(made, query.rows_per_batch, query.schema)
    if is_observed() or _LOGGER.isEnabledFor(logging.DEBUG):
        return _observed(made, files.store.uri, fragments, query)
    return made


def _observed(
    batches: Iterator[pa.RecordBatch], uri: str, fragments: Sequence[Fragment], query: Query
) -> Iterator[pa.RecordBatch]:
    """Count what a scan yields, for those who watch."""
    is_filtered = query.plan.predicate is not None or query.limit is not None or query.include_deleted_rows
    total = None if is_filtered else sum(fragment.num_rows for fragment in fragments) - query.offset
    # Batches are wanted one by one by programs that may have a progress bar of their own.
    span = Span("scan", uri, total_rows=total, is_scoped=False, has_bar=query.plan.is_kept, fragments=len(fragments))
    counts_bytes = span.is_observed or _LOGGER.isEnabledFor(logging.DEBUG)
    with span:
        for batch in batches:
            span.add(rows=batch.num_rows, num_bytes=batch.nbytes if counts_bytes else 0)
            yield batch
    _LOGGER.debug("%d rows, %d bytes of %s, %.3f s", span.rows, span.num_bytes, uri, span.seconds)


def make_columns(batch: pa.RecordBatch | pa.Table, query: Query) -> pa.Table:
    """Return the result for rows that were read with the plan of a query."""
    made = (
        [_made(batch_part, query) for batch_part in batch.to_batches()]
        if isinstance(batch, pa.Table)
        else [_made(batch, query)]
    )
    return pa.Table.from_batches(made, schema=query.schema)


def _scanned(files: OpenFiles, fragments: Iterable[Fragment], query: Query) -> Iterator[pa.RecordBatch]:
    if not query.include_deleted_rows:
        return scan_fragments(files, fragments, query.plan, limit=query.limit, offset=query.offset)
    whole = (replace(fragment, deletion_file=None) for fragment in fragments)
    batches = scan_fragments(files, whole, query.plan, limit=query.limit, offset=query.offset, is_separate=True)
    return _without_ids(files, {fragment.id: fragment for fragment in fragments}, query.plan, batches)


def _without_ids(
    files: OpenFiles, fragments: Mapping[int, Fragment], plan: ScanPlan, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Deleted rows have no row id, and are not counted."""
    readers: dict[int, FragmentReader] = {}
    for batch in batches:
        addresses = np.asarray(batch.column(ROW_ADDRESS))
        if not len(addresses):
            continue
        number = int(addresses[0] >> np.uint64(_OFFSET_BITS))
        if number not in readers:
            readers = {number: FragmentReader(files, fragments[number])}
        offsets = addresses & np.uint64((1 << _OFFSET_BITS) - 1)
        is_deleted = np.isin(offsets, readers[number].deleted.astype(np.uint64))
        column_index = batch.schema.get_field_index(ROW_ID)
        ids = pa.array(np.asarray(batch.column(column_index)), mask=is_deleted)
        changed = batch.set_column(column_index, batch.schema.field(column_index), ids)
        column_index = batch.schema.get_field_index(ROW_OFFSET)
        if column_index >= 0 and plan.row_starts is not None:
            row_offsets = plan.row_starts.row_offsets(number, readers[number].deleted, offsets.astype(np.int64))
            changed = changed.set_column(column_index, batch.schema.field(column_index), numbers_array(row_offsets))
        yield changed


def _ordered(files: OpenFiles, fragments: Sequence[Fragment], query: Query) -> Iterator[pa.RecordBatch]:
    """Yield all rows in order; with a limit, only the columns to order by are read of most rows."""
    is_narrow = query.limit is not None and not query.include_deleted_rows
    plan = _order_plan(query) if is_narrow else query.plan
    count = None if query.limit is None else query.limit + query.offset
    sorter = Sorter(order=query.order, schema=plan.schema, count=count)
    for batch in _scanned(files, fragments, replace(query, plan=plan, limit=None, offset=0)):
        sorter.add(batch)
    rows = sorter.finish().slice(query.offset)
    if is_narrow and plan is not query.plan:
        addresses = numbers_of(rows.column(ROW_ADDRESS).combine_chunks())
        rows = take_addresses(files, fragments, addresses, replace(query.plan, predicate=None))
    yield from rows.combine_chunks().to_batches(max_chunksize=query.plan.batch_size)


def _ranked(
    files: OpenFiles, fragments: Sequence[Fragment], query: Query, ranking: Ranking
) -> Iterator[pa.RecordBatch]:
    """Yield rows that a search finds, with its columns; filter, order and limit come after it."""
    plan, fetched = query.plan, query.fetched
    assert fetched is not None  # noqa: S101 for the type checker: queries with a ranking have one
    ranked = ranking.rank(files, fragments)
    rows = take_addresses(files, fragments, ranked.addresses, replace(fetched, row_starts=plan.row_starts))
    columns = {**dict(zip(rows.schema.names, rows.columns, strict=True)), **ranked.columns}
    rows = pa.table(columns)
    if plan.predicate is not None:
        whole = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]
        rows = rows.filter(plan.predicate.mask(whole[0]))
    rows = rows.select(list(plan.columns)).cast(plan.schema)
    if query.order:
        rows = sorted_rows(rows, query.order)
    yield from rows.slice(query.offset, query.limit).combine_chunks().to_batches(max_chunksize=plan.batch_size)


def _order_plan(query: Query) -> ScanPlan:
    """Return the same scan with the columns to order by only."""
    names = tuple(dict.fromkeys([*(field.column_name for field in query.order), ROW_ADDRESS]))
    if set(query.plan.columns) <= set(names):
        return query.plan
    schema = query.plan.schema
    fields = [schema.field(name) if name in schema.names else pa.field(name, pa.uint64()) for name in names]
    stored = [name for name in names if name not in SYSTEM_COLUMNS]
    projection = query.plan.projection.select(stored)
    rest = rest_of(projection, query.plan.filter_projection)
    return replace(query.plan, columns=names, projection=projection, rest=rest, schema=pa.schema(fields))


def _made(batch: pa.RecordBatch, query: Query) -> pa.RecordBatch:
    if query.outputs is None:
        return batch
    columns = [
        batch.column(output.source) if output.expression is None else output.expression.evaluate(batch)
        for output in query.outputs
    ]
    return batch_of(columns, query.schema, batch.num_rows)


def _bounded(batches: Iterable[pa.RecordBatch], num_bytes: int) -> Iterator[pa.RecordBatch]:
    """Batches cut so that none has many more bytes than asked for."""
    for batch in batches:
        pieces = max(1, -(-batch.nbytes // num_bytes))
        rows = max(1, -(-batch.num_rows // pieces))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _even(batches: Iterable[pa.RecordBatch], rows: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of exactly so many rows, but for the last one."""
    pending: list[pa.RecordBatch] = []
    have = 0
    for batch in batches:
        pending.append(batch)
        have += batch.num_rows
        if have < rows:
            continue
        table = pa.Table.from_batches(pending, schema=schema).combine_chunks()
        full = have // rows * rows
        yield from table.slice(0, full).to_batches(max_chunksize=rows)
        pending, have = table.slice(full, have - full).to_batches(), have - full
    if have:
        yield from pa.Table.from_batches(pending, schema=schema).combine_chunks().to_batches()
