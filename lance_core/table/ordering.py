"""Rows in the order of some columns; with a limit only the first rows are kept in memory.

Nulls come last unless asked otherwise, NaN is larger than every number, rows that are equal keep their order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute

from lance_core.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

pc: Any = pyarrow.compute  # its functions are made when it is imported, type checkers do not see them

_SLACK_ROWS = 1 << 16
"""Rows beyond those wanted that are collected before they are sorted again."""


@dataclass(frozen=True, slots=True)
class ColumnOrdering:
    """One column to order by; as in pylance.

    Attributes:
        column_name: Name of the column.
        ascending: Smallest value first.
        nulls_first: Nulls before all values.
    """

    column_name: str
    ascending: bool = True
    nulls_first: bool = False


def check_sortable(kind: pa.DataType, name: str) -> None:
    """Refuse types without an order.

    Raises:
        UnsupportedError: A nested type, for example.
    """
    try:
        pc.array_sort_indices(pa.array([], kind))
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise UnsupportedError(f"order by column {name!r} of type {kind}") from error


def sorted_rows(table: pa.Table, order: Sequence[ColumnOrdering], count: int | None = None) -> pa.Table:
    """The rows in order, or the first ``count`` of them."""
    keys: dict[str, pa.ChunkedArray] = {}
    directions: list[tuple[str, str]] = []
    for number, one in enumerate(order):
        values = table.column(one.column_name)
        ranks = pc.cast(pc.is_null(values), pa.int8())
        keys[f"null{number}"] = ranks
        directions.append((f"null{number}", "descending" if one.nulls_first else "ascending"))
        direction = "ascending" if one.ascending else "descending"
        if pa.types.is_float16(values.type):
            values = values.cast(pa.float32())
        if pa.types.is_floating(values.type):
            keys[f"nan{number}"] = pc.cast(pc.fill_null(pc.is_nan(values), False), pa.int8())  # noqa: FBT003 a value
            directions.append((f"nan{number}", direction))
        keys[f"value{number}"] = values
        directions.append((f"value{number}", direction))
    places = pc.sort_indices(pa.table(keys), sort_keys=directions)
    return table.take(places if count is None else places.slice(0, count))


@dataclass(slots=True, kw_only=True)
class Sorter:
    """Collects rows and sorts them.

    Attributes:
        order: Columns to order by.
        schema: Schema of the batches.
        count: First rows that are wanted; None for all.
    """

    order: Sequence[ColumnOrdering]
    schema: pa.Schema
    count: int | None
    _batches: list[pa.RecordBatch] = field(default_factory=list[pa.RecordBatch])
    _num_rows: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows in."""
        self._batches.append(batch)
        self._num_rows += batch.num_rows
        if self.count is not None and self._num_rows > 2 * self.count + _SLACK_ROWS:
            self._batches = self.finish().to_batches()
            self._num_rows = sum(one.num_rows for one in self._batches)

    def finish(self) -> pa.Table:
        """The rows in order."""
        return sorted_rows(pa.Table.from_batches(self._batches, schema=self.schema), self.order, self.count)
