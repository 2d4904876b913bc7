"""Commands that print rows: head, sample and query."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from lance_core.cli import output
from lance_core.cli.command import Answer, Command, argument
from lance_core.cli.opening import BRANCH, TABLE, VERSION, count, names, open_table

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

_SHOWN = 1_000
"""Rows that are shown to people; programs get all."""
_SAMPLE_SEED = 0


def head(arguments: Namespace) -> Answer:
    """Print the first rows."""
    table = open_table(arguments)
    scanner = table.scanner(columns=arguments.columns, filter=arguments.filter, limit=arguments.rows)
    return _rows(scanner.projected_schema, scanner.to_batches())


def sample(arguments: Namespace) -> Answer:
    """Print rows chosen at random."""
    table = open_table(arguments)
    chosen = table.sample(min(arguments.rows, table.count_rows()), columns=arguments.columns, seed=arguments.seed)
    return _rows(chosen.schema, chosen.to_batches())


def query(arguments: Namespace) -> Answer:
    """Run a query."""
    reader = open_table(arguments).sql(arguments.sql).build().to_stream_reader()
    return _rows(reader.schema, reader)


def _rows(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Answer:
    each = (row for batch in batches for row in zip(*map(_values, batch.columns), strict=True))
    return Answer(
        lines=_lines(schema.names, each), document=(dict(zip(schema.names, row, strict=True)) for row in each)
    )


def _values(array: pa.Array) -> list[Any]:
    return array.to_pylist()


def _lines(columns: list[str], rows: Iterator[tuple[Any, ...]]) -> Iterator[str]:
    """Yield a table; it is read only when it is printed."""
    yield from output.table(columns, list(islice(rows, _SHOWN)))
    more = next(rows, None)
    if more is not None:
        yield f"... and {sum(1 for _ in chain([more], rows)):,} more rows; --json prints all"


_COLUMNS = argument("--columns", "names with commas between them", type=names, metavar="A,B")
_ROWS = argument("--rows", "how many", type=count, default=10)

COMMANDS = (
    Command(
        name="head",
        summary="print the first rows",
        run=head,
        arguments=(TABLE, _ROWS, _COLUMNS, argument("--filter", "condition in SQL"), VERSION, BRANCH),
    ),
    Command(
        name="sample",
        summary="print rows chosen at random",
        run=sample,
        arguments=(
            TABLE,
            _ROWS,
            _COLUMNS,
            argument("--seed", "another number chooses other rows", type=int, default=_SAMPLE_SEED),
            VERSION,
            BRANCH,
        ),
    ),
    Command(
        name="query",
        summary="run a query in SQL, in which the table is called dataset",
        run=query,
        arguments=(TABLE, argument("sql", "such as 'SELECT count(*) FROM dataset'"), VERSION, BRANCH),
    ),
)
