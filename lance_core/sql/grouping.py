"""Groups of rows that have the same keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.encoding.arrow_values import null_mask
from lance_core.encoding.kernels import numbers_array

if TYPE_CHECKING:
    from collections.abc import Sequence

_BITS = 64


def grouped(table: pa.Table, keys: Sequence[str], tasks: Sequence[tuple[Any, ...]] = ()) -> pa.Table:
    """Return a row for each group of rows that have the same keys, as `pyarrow.TableGroupBy.aggregate` in one thread.

    Arrow takes numbers of 64 bits with zeros at their end for nearly the same when it looks for their group: 500,000
    rows of 5,000 whole numbers as floats took 2.3 s instead of 3 ms. So the upper half of each number is mixed into the
    lower one, which is undone in the groups.

    Args:
        table: The rows.
        keys: Names of columns, none of which is aggregated.
        tasks: What is aggregated: columns, a function and perhaps its options.

    Returns:
        The keys of each group, then the results of the tasks.

    Raises:
        pa.ArrowNotImplementedError: A key or a column of another type than Arrow groups or aggregates.
    """
    kinds = {name: table.schema.field(name).type for name in keys}
    mixed = {name: kind for name, kind in kinds.items() if pa.types.is_primitive(kind) and kind.bit_width == _BITS}
    for name in mixed:
        table = table.set_column(table.schema.get_field_index(name), name, _mixed(table.column(name), pa.int64()))
    groups = table.group_by(list(keys), use_threads=False).aggregate(list(tasks))
    for name, kind in mixed.items():
        groups = groups.set_column(groups.schema.get_field_index(name), name, _mixed(groups.column(name), kind))
    return groups


def _mixed(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return numbers, or times, of 64 bits whose lower halves are combined with their upper ones; twice undoes it."""
    chunks: list[pa.Array] = []
    for chunk in [chunk for chunk in values.chunks if len(chunk)]:
        bits = np.frombuffer(chunk.buffers()[1], np.uint64, len(chunk), chunk.offset * (_BITS // 8))
        numbers = (bits ^ (bits >> np.uint64(_BITS // 2))).view(np.int64)
        chunks.append(numbers_array(numbers, null_mask(chunk)).view(kind))
    return pa.chunked_array(chunks, kind)
