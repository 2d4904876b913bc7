"""Rows in the order of some columns; with a limit only the first rows are kept in memory.

Nulls come last unless asked otherwise, floats are in total order (`float_order`), rows that are equal keep their order.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.frozen import frozen, mutable
from lance_core.encoding.arrow_values import as_mask
from lance_core.encoding.kernels import numbers_array
from lance_core.errors import UnsupportedError
from lance_core.sql.float_order import order_keys
from lance_core.sql.kernels import nulls_as_false, pc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Int64s: TypeAlias = npt.NDArray[np.int64]

_NO_ROWS = np.empty(0, np.int64)
_SLACK_ROWS = 1 << 12
"""Rows beyond those wanted that are collected before they are sorted again."""


@frozen
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
        pc.sort_indices(pa.table({"key": _comparable(pa.nulls(0, kind))}), sort_keys=[("key", "ascending")])
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise UnsupportedError(f"order by column {name!r} of type {kind}") from error


def sorted_rows(table: pa.Table, order: Sequence[ColumnOrdering], count: int | None = None) -> pa.Table:
    """Return the rows in order, or the first ``count`` of them."""
    keys: dict[str, pa.ChunkedArray] = {}
    directions: list[tuple[str, str]] = []
    for number, ordering in enumerate(order):
        values = _comparable(table.column(ordering.column_name))
        direction = "ascending" if ordering.ascending else "descending"
        if values.null_count:
            keys[f"null{number}"] = pc.cast(pc.is_null(values), pa.int8())
            directions.append((f"null{number}", "descending" if ordering.nulls_first else "ascending"))
        keys[f"value{number}"] = values
        directions.append((f"value{number}", direction))
    sorted_indices = pc.sort_indices(pa.table(keys), sort_keys=directions)
    return table.take(sorted_indices if count is None else sorted_indices.slice(0, count))


def first_rows(batch: pa.RecordBatch, order: Sequence[ColumnOrdering], count: int) -> pa.RecordBatch:
    """Return the first ``count`` rows in order, as they stand; to sort all of them takes many times as long.

    Column by column, the value in the last place that is wanted parts the rows: those before it are chosen, and among
    those that are equal to it the next column decides.
    """
    rows, chosen = np.arange(batch.num_rows), [np.empty(0, np.int64)]
    for ordering in order:
        if len(rows) <= count or not count:
            break
        values = _comparable(batch.column(ordering.column_name))
        values = values if len(rows) == len(values) else values.take(numbers_array(rows))
        for part in _parted(values, ordering, count):
            if len(part) > count:
                rows = rows[part]
                break
            chosen.append(rows[part])
            count -= len(part)
    return batch.take(numbers_array(np.sort(np.concatenate([*chosen, rows[:count]]))))


def _parted(values: pa.Array, ordering: ColumnOrdering, count: int) -> Iterator[Int64s]:
    """Yield the positions of values in parts, of which each comes before the next, until ``count`` are in them."""
    nulls = np.flatnonzero(as_mask(values.is_null())) if values.null_count else _NO_ROWS
    if ordering.nulls_first:
        yield nulls
        count -= len(nulls)
    num_valid = len(values) - len(nulls)
    if count >= num_valid:
        yield np.flatnonzero(as_mask(values.is_valid())) if len(nulls) else np.arange(num_valid)
    else:
        at = count - 1 if ordering.ascending else num_valid - count
        bound = values[pc.partition_nth_indices(values, pivot=at)[at].as_py()]
        for is_before in (pc.less if ordering.ascending else pc.greater, pc.equal):
            mask = is_before(values, bound)
            yield np.flatnonzero(as_mask(nulls_as_false(mask)))
    if not ordering.nulls_first:
        yield nulls


def _comparable(values: Any) -> Any:
    """Return the values in a type that Arrow's kernels compare and that has their order."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return order_keys(values) if pa.types.is_floating(values.type) else values


@mutable(kw_only=True)
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
    _worst: pa.Scalar | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows in."""
        if self._worst is not None:
            batch = batch.filter(self._may_be_first(batch))
        if self.count is not None and batch.num_rows > self.count and not self._has_nested_keys:
            batch = first_rows(batch, self.order, self.count)
        self._batches.append(batch)
        self._num_rows += batch.num_rows
        if self.count and self._num_rows >= (self.count if self._worst is None else 2 * self.count + _SLACK_ROWS):
            smallest = self.finish()
            self._batches, self._num_rows = smallest.to_batches(), smallest.num_rows
            self._worst = _comparable(smallest.column(self.order[0].column_name))[-1]

    @property
    def _has_nested_keys(self) -> bool:
        return any(pa.types.is_nested(self.schema.field(key.column_name).type) for key in self.order)

    def _may_be_first(self, batch: pa.RecordBatch) -> pa.Array:
        """Return a mask of the rows that can be among the first, judged by the last known row and the first column."""
        first, worst = self.order[0], self._worst
        values = _comparable(batch.column(first.column_name))
        assert worst is not None  # noqa: S101 for the type checker: callers know it
        if not worst.is_valid or pa.types.is_nested(values.type):
            every = pa.repeat(pa.scalar(True), len(values))  # noqa: FBT003 a value
            return pc.is_null(values) if not worst.is_valid and first.nulls_first else every
        compared = (pc.less_equal if first.ascending else pc.greater_equal)(values, worst)
        return pc.fill_null(compared, first.nulls_first)

    def finish(self) -> pa.Table:
        """Return the rows in order."""
        return sorted_rows(pa.Table.from_batches(self._batches, schema=self.schema), self.order, self.count)
