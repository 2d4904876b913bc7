"""Build B-trees: sort the values of a column and write them in pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.errors import UnsupportedError
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
from lance_core.index.order import sort_order
from lance_core.index.protocol import SegmentContent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_core.index.files import SegmentFiles
    from lance_core.index.protocol import Relocation

Int64s: TypeAlias = npt.NDArray[np.int64]
_BATCH_ROWS = 1 << 16


def write_btree(
    files: SegmentFiles, kind: pa.DataType, parts: Sequence[tuple[pa.Array, Int64s]], *, with_stable_row_ids: bool
) -> SegmentContent:
    """Write a B-tree.

    Args:
        files: Where it is written.
        kind: Type of the column.
        parts: Values, and the row address of each, in any order; all of them are sorted in memory.
        with_stable_row_ids: The table has stable row ids.

    Raises:
        UnsupportedError: The values have more bytes than one Arrow array can hold.
    """
    values = _joined([part for part, _ in parts], kind)
    rows = np.concatenate([np.empty(0, np.int64), *(part for _, part in parts)])
    order = sort_order(values)
    values, ids = values.take(order), pa.array(rows[np.asarray(order)].astype(np.uint64))
    schema = page_schema(kind)
    files.write(PAGE_FILE, schema, _batches(schema, values, ids), metadata={})
    files.write(
        LOOKUP_FILE,
        lookup_schema(kind),
        [_lookup(values)],
        metadata={ROWS_PER_PAGE_KEY: str(ROWS_PER_PAGE), RANGE_PARTITIONED_KEY: "false"},
    )
    version = VERSION_WITH_STABLE_ROW_IDS if with_stable_row_ids else VERSION
    return SegmentContent(index_version=version, details=b"")


def relocated(values: pa.Array, rows: Int64s, relocate: Relocation) -> tuple[pa.Array, Int64s]:
    """Return the values of the rows that are left, and where these rows are now."""
    moved = relocate(rows)
    left = moved >= 0
    return (values, moved) if left.all() else (values.filter(pa.array(left)), moved[left])


def _joined(parts: list[pa.Array], kind: pa.DataType) -> pa.Array:
    try:
        return pa.concat_arrays([pa.array([], kind), *parts])
    except pa.ArrowInvalid as error:
        raise UnsupportedError(
            f"the column is too large for one B-tree segment ({error}); build segments with fragment_ids"
        ) from error


def _batches(schema: pa.Schema, values: pa.Array, ids: pa.Array) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(values), _BATCH_ROWS):
        columns = [values.slice(start, _BATCH_ROWS), ids.slice(start, _BATCH_ROWS)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _lookup(values: pa.Array) -> pa.RecordBatch:
    """Return the rows of the lookup file for sorted values."""
    edges = np.minimum(np.arange(-(-len(values) // ROWS_PER_PAGE) + 1) * ROWS_PER_PAGE, len(values))
    null_counts = np.diff(np.minimum(edges, values.null_count))
    columns = [
        values.take(pa.array(edges[:-1])),
        values.take(pa.array(edges[1:] - 1)),
        pa.array(null_counts.astype(np.uint32)),
        pa.array(np.arange(len(edges) - 1, dtype=np.uint32)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=lookup_schema(values.type))
