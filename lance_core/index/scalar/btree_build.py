"""Build B-trees: sort the values of a column and write them in pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.encoding.arrow_values import mask_array
from lance_core.encoding.kernels import numbers_array
from lance_core.format.index.btree import (
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
from lance_core.index.external_sort import DEFAULT_MEMORY, ExternalSort, merge_runs
from lance_core.index.protocol import SegmentContent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lance_core.index.protocol import Relocation, SegmentTarget

Int64s: TypeAlias = npt.NDArray[np.int64]
Entries: TypeAlias = "Iterable[tuple[pa.Array, Int64s]]"
"""Values, and the row of each."""


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
            rows.add(_batch(schema, values, addresses))
        return _write(target, rows.batches())


def merge_btrees(target: SegmentTarget, trees: Sequence[tuple[Entries, Relocation]]) -> SegmentContent:
    """Write one B-tree from others; some pages of each are in memory.

    Args:
        target: Where it is written.
        trees: The values of each in order, nulls first, with their rows; and where these rows are now.
    """
    schema = page_schema(target.column.type)
    return _write(target, merge_runs([_run(schema, entries, relocate) for entries, relocate in trees], schema))


def _run(schema: pa.Schema, entries: Entries, relocate: Relocation) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a tree that are left, where they are now."""
    for values, rows in entries:
        moved = relocate(rows)
        left = moved >= 0
        yield (
            _batch(schema, values, moved)
            if left.all()
            else _batch(schema, values.filter(mask_array(left)), moved[left])
        )


def _batch(schema: pa.Schema, values: pa.Array, rows: Int64s) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([values, numbers_array(rows.view(np.uint64))], schema=schema)


def _write(target: SegmentTarget, pages: Iterable[pa.RecordBatch]) -> SegmentContent:
    """Write rows that are in order; nulls come first."""
    files, kind = target.files, target.column.type
    schema, lookup = page_schema(kind), _Lookup(kind)

    def noted() -> Iterator[pa.RecordBatch]:
        for batch in pages:
            lookup.add(batch.column(0))
            yield batch

    files.write(PAGE_FILE, schema, noted(), metadata={})
    files.write(
        LOOKUP_FILE,
        lookup_schema(kind),
        [lookup.batch()],
        metadata={ROWS_PER_PAGE_KEY: str(ROWS_PER_PAGE), RANGE_PARTITIONED_KEY: "false"},
    )
    version = VERSION_WITH_STABLE_ROW_IDS if target.with_stable_row_ids else VERSION
    return SegmentContent(index_version=version, details=b"")


class _Lookup:
    """The lookup file of values that come in order: first value, last value and nulls of each page.

    Args:
        kind: Type of the column.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._first = [pa.nulls(0, kind)]
        self._last = [pa.nulls(0, kind)]
        self._num_rows = 0
        self._num_nulls = 0
        self._newest = pa.nulls(1, kind)

    def add(self, values: pa.Array) -> None:
        """Add the values that come next."""
        if not len(values):
            return
        starts = np.arange(-self._num_rows % ROWS_PER_PAGE, len(values), ROWS_PER_PAGE)
        ends = np.arange((-self._num_rows - 1) % ROWS_PER_PAGE, len(values), ROWS_PER_PAGE)
        self._first.append(values.take(numbers_array(starts)))
        self._last.append(values.take(numbers_array(ends)))
        self._num_rows += len(values)
        self._num_nulls += values.null_count
        self._newest = values.slice(len(values) - 1)

    def batch(self) -> pa.RecordBatch:
        """Return the rows of the file."""
        edges = np.minimum(np.arange(-(-self._num_rows // ROWS_PER_PAGE) + 1) * ROWS_PER_PAGE, self._num_rows)
        last = [*self._last, self._newest] if self._num_rows % ROWS_PER_PAGE else self._last
        columns = [
            pa.concat_arrays(self._first),
            pa.concat_arrays(last),
            numbers_array(np.diff(np.minimum(edges, self._num_nulls)).astype(np.uint32)),
            numbers_array(np.arange(len(edges) - 1, dtype=np.uint32)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=lookup_schema(self._kind))
