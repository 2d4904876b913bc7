"""A reader that returns partial aggregates of its rows: the first half of an aggregation, before rows go to the JVM.

Spark aggregates what the tasks return, so a group may come several times. This is what happens to rows whose sum would
not fit, and to those of tasks in which most groups have one row: they are returned one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute

from lance_core.scan.plan import ROW_ADDRESS
from lance_core.spark.common.cast import cast_batches
from lance_core.spark.common.types import arrow_schema
from lance_core.spark.reading.read_plan import readable_schema, scan_plan
from lance_core.spark.reading.reader import LanceReader
from lance_core.sql.expression import make_expression
from lance_core.sql.grouping import grouped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.types import StructType

    from lance_core.scan.plan import ScanPlan
    from lance_core.spark.common.read_options import ReadOptions

pc: Any = pyarrow.compute  # its functions are made when it is imported, type checkers do not see them

_ROWS, _BYTES = 1 << 20, 1 << 26
"""Rows, and bytes of them, that are grouped together."""

_FEWEST_ROWS = 2
"""Rows of a group on average, below which grouping costs more than it saves."""

_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Partials:
    """Aggregates that the planner rule pushed into a scan.

    Attributes:
        groups: Columns by which rows are grouped.
        columns: Columns that are read.
        functions: ``sum``, ``count``, ``count_all``, ``min`` or ``max``; one for each column after the groups.
        arguments: SQL of what each function is about; empty for ``count_all``.
    """

    groups: Sequence[str]
    columns: Sequence[str]
    functions: Sequence[str]
    arguments: Sequence[str]


class LanceAggregateReader(LanceReader):
    """Reads partial aggregates of one version.

    Args:
        options: What to read; without a version the newest.
        schema: Columns of the groups, and the partial aggregates.
        partials: What they are.
    """

    def __init__(self, options: ReadOptions, schema: StructType, partials: Partials) -> None:
        self.partials = partials
        super().__init__(options, schema)

    def plan(self) -> ScanPlan:
        """Return the scan of the columns that are aggregated."""
        return scan_plan(self.fields, self.options, self.partials.columns or [ROW_ADDRESS])

    def answer(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return partial aggregates of rows."""
        source = arrow_schema(readable_schema(self.plan()))
        rows = cast_batches(batches, source, truncate_nanoseconds=self.options.truncate_nanoseconds)
        return _Aggregation(self.partials, source, arrow_schema(self.schema)).run(rows)


class _Aggregation:
    """The work of one task."""

    def __init__(self, partials: Partials, source: pa.Schema, target: pa.Schema) -> None:
        self.partials = partials
        self.target = target
        # SQL of a plain column is not parsed: the parser takes a while to import.
        columns = {f"`{name}`": name for name in source.names}
        self.expressions = {
            text: columns.get(text) or make_expression(text, source) for text in partials.arguments if text
        }
        self.is_grouping = True

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Group as many rows together as memory allows."""
        waiting: list[pa.RecordBatch] = []
        num_rows = num_bytes = 0
        for batch in batches:
            waiting.append(self._inputs(batch))
            num_rows += batch.num_rows
            num_bytes += batch.nbytes
            if num_rows >= _ROWS or num_bytes >= _BYTES:
                yield from self._aggregated(waiting)
                waiting, num_rows, num_bytes = [], 0, 0
        if num_rows:
            yield from self._aggregated(waiting)

    def _inputs(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of the groups and the value of each argument; nulls if there are neither."""
        arrays = {f"key {i}": batch.column(name) for i, name in enumerate(self.partials.groups)}
        for text, expression in self.expressions.items():
            arrays[text] = batch.column(expression) if isinstance(expression, str) else expression.evaluate(batch)
        return pa.RecordBatch.from_pydict(arrays or {"row": pa.nulls(batch.num_rows)})

    def _aggregated(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches)
        keys = [f"key {i}" for i in range(len(self.partials.groups))]
        if self.is_grouping and self._sums_fit(rows):
            functions = zip(self.partials.functions, self.partials.arguments, strict=True)
            asked = [(text or [], function) for function, text in functions]
            columns = grouped(rows, keys, asked).columns
            self.is_grouping = not keys or len(columns[0]) * _FEWEST_ROWS <= rows.num_rows
        else:
            columns = [rows.column(key) for key in keys] + self._of_each_row(rows)
        # Types become wider; an integer that a double does not hold exactly is rounded, as Spark does.
        arrays = [column.cast(field.type, safe=False) for column, field in zip(columns, self.target, strict=True)]
        yield from pa.Table.from_arrays(arrays, schema=self.target).combine_chunks().to_batches(_BATCH_ROWS)

    def _of_each_row(self, rows: pa.Table) -> list[pa.ChunkedArray]:
        """Partial aggregates of groups of one row."""
        ones = pa.chunked_array([pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)])
        columns: list[pa.ChunkedArray] = []
        for function, text in zip(self.partials.functions, self.partials.arguments, strict=True):
            if function == "count":
                columns.append(rows.column(text).is_valid())
            else:
                columns.append(rows.column(text) if text else ones)
        return columns

    def _sums_fit(self, rows: pa.Table) -> bool:
        """Return whether no sum of some of the rows can be too large for its type."""
        fields = [*self.target][len(self.partials.groups) :]
        functions = zip(self.partials.functions, self.partials.arguments, fields, strict=True)
        return all(_sum_fits(rows.column(text), field.type) for function, text, field in functions if function == "sum")


def _sum_fits(values: pa.ChunkedArray, kind: pa.DataType) -> bool:
    limit = 10**kind.precision if pa.types.is_decimal(kind) else 1 << (53 if pa.types.is_floating(kind) else 63)
    is_decimal = pa.types.is_decimal(values.type)
    largest = 10**values.type.precision if is_decimal else 1 << (values.type.bit_width - 1)
    return largest * len(values) < limit or _largest(values) * len(values) < limit


def _largest(values: pa.ChunkedArray) -> int:
    """Return a number that no value exceeds, without its sign and the point."""
    bounds = [value for value in pc.min_max(values).as_py().values() if value is not None]
    return max((10 ** len(b.as_tuple().digits) if isinstance(b, Decimal) else abs(b) for b in bounds), default=0)
