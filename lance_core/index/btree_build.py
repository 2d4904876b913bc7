"""Build B-trees: sort the values of a column and write them in pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.format.btree import (
    LOOKUP_FILE,
    PAGE_FILE,
    RANGE_PARTITIONED_KEY,
    ROWS_PER_PAGE,
    ROWS_PER_PAGE_KEY,
    VERSION,
    VERSION_WITH_STABLE_ROW_IDS,
    lookup_schema,
    page_schema,
)
from lance_core.index.external_sort import DEFAULT_MEMORY, ExternalSort
from lance_core.index.protocol import SegmentContent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lance_core.index.protocol import Relocation, SegmentTarget

Int64s: TypeAlias = npt.NDArray[np.int64]


def write_btree(
    target: SegmentTarget, parts: Iterable[tuple[pa.Array, Int64s]], *, max_memory_bytes: int = DEFAULT_MEMORY
) -> SegmentContent:
    """Write a B-tree.

    Args:
        target: Where it is written.
        parts: Values, and the row address of each, in any order.
        max_memory_bytes: Memory that sorting may take; more rows are sorted in temporary files.
    """
    schema = page_schema(target.column.type)
    with ExternalSort(schema, max_memory_bytes) as rows:
        for values, addresses in parts:
            columns = [values, pa.array(addresses.view(np.uint64))]
            rows.add(pa.RecordBatch.from_arrays(columns, schema=schema))
        batches = ((batch.column(0), batch.column(1).to_numpy().view(np.int64)) for batch in rows.batches())
        return write_sorted(target, batches)


def write_sorted(target: SegmentTarget, batches: Iterable[tuple[pa.Array, Int64s]]) -> SegmentContent:
    """Write a B-tree of values that are in order already, in bounded memory.

    Args:
        target: Where it is written.
        batches: Values in order, nulls first, and the row address of each.
    """
    files, kind = target.files, target.column.type
    schema, lookup = page_schema(kind), _Lookup(kind)

    def pages() -> Iterator[pa.RecordBatch]:
        for values, rows in batches:
            lookup.add(values)
            yield pa.RecordBatch.from_arrays([values, pa.array(rows.view(np.uint64))], schema=schema)

    files.write(PAGE_FILE, schema, pages(), metadata={})
    files.write(
        LOOKUP_FILE,
        lookup_schema(kind),
        [lookup.batch()],
        metadata={ROWS_PER_PAGE_KEY: str(ROWS_PER_PAGE), RANGE_PARTITIONED_KEY: "false"},
    )
    version = VERSION_WITH_STABLE_ROW_IDS if target.with_stable_row_ids else VERSION
    return SegmentContent(index_version=version, details=b"")


def relocated(values: pa.Array, rows: Int64s, relocate: Relocation) -> tuple[pa.Array, Int64s]:
    """Return the values of the rows that are left, and where these rows are now."""
    moved = relocate(rows)
    left = moved >= 0
    return (values, moved) if left.all() else (values.filter(pa.array(left)), moved[left])


class _Lookup:
    """The lookup file of values that come in order: first value, last value and nulls of each page.

    Args:
        kind: Type of the column.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._first = [pa.array([], kind)]
        self._last = [pa.array([], kind)]
        self._num_rows = 0
        self._num_nulls = 0
        self._newest = pa.nulls(1, kind)

    def add(self, values: pa.Array) -> None:
        """Add the values that come next."""
        if not len(values):
            return
        starts = np.arange(-self._num_rows % ROWS_PER_PAGE, len(values), ROWS_PER_PAGE)
        ends = np.arange((-self._num_rows - 1) % ROWS_PER_PAGE, len(values), ROWS_PER_PAGE)
        self._first.append(values.take(pa.array(starts)))
        self._last.append(values.take(pa.array(ends)))
        self._num_rows += len(values)
        self._num_nulls += values.null_count
        self._newest = values.take(pa.array([len(values) - 1]))

    def batch(self) -> pa.RecordBatch:
        """Return the rows of the file."""
        edges = np.minimum(np.arange(-(-self._num_rows // ROWS_PER_PAGE) + 1) * ROWS_PER_PAGE, self._num_rows)
        last = [*self._last, self._newest] if self._num_rows % ROWS_PER_PAGE else self._last
        columns = [
            pa.concat_arrays(self._first),
            pa.concat_arrays(last),
            pa.array(np.diff(np.minimum(edges, self._num_nulls)).astype(np.uint32)),
            pa.array(np.arange(len(edges) - 1, dtype=np.uint32)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=lookup_schema(self._kind))
