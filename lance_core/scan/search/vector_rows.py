"""Compare the vectors of rows with queries: blocks of rows stream through, the nearest are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.format.schema import Schema
from lance_core.index.answer import ADDRESS_SHIFT, OFFSET_MASK
from lance_core.index.vector.distances import all_distances, vectors_of
from lance_core.index.vector.top_rows import ExactSearch
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.fragments import scan_fragments, take_offsets
from lance_core.scan.plan import ROW_ADDRESS, plan_scan
from lance_core.sql.kernels import pc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.index.column import IndexedColumn
    from lance_core.index.vector.distances import Int64s, Vectors
    from lance_core.index.vector.top_rows import TopRows
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.plan import ScanPlan
    from lance_core.scan.search.nearest import Nearest


def search_rows(
    files: OpenFiles, fragments: Sequence[Fragment], nearest: Nearest, prefilter: ScanPlan | None, top: TopRows
) -> None:
    """Search all rows of some fragments.

    Args:
        files: The dataset's open files.
        fragments: The fragments.
        nearest: What is asked for.
        prefilter: Plan that asks which rows to search; None for all.
        top: Where the nearest rows are kept; they are numbered by address.
    """
    batches = _values(files, fragments, nearest.column, prefilter)
    if nearest.is_multivector:
        for values, rows in batches:
            _add_lists(nearest, values, rows, top)
        return
    search = ExactSearch(nearest.queries, nearest.exact_metric, top)
    size = nearest.column.type.list_size
    for values, rows in batches:
        search.add(vectors_of(values, size), rows)


def take_vectors(manifest: Manifest, files: OpenFiles, column: IndexedColumn, addresses: Int64s) -> Vectors:
    """Read vectors of live rows; a null vector becomes one of NaN.

    Args:
        manifest: The version.
        files: The dataset's open files.
        column: The column.
        addresses: Addresses, ascending and distinct.
    """
    plan = _plan(column.projection, column.path)
    owners = addresses >> ADDRESS_SHIFT
    parts = [np.empty((0, column.type.list_size), column.type.value_type.to_pandas_dtype())]
    for fragment in sorted(manifest.fragments.select(np.unique(owners).tolist()), key=lambda fragment: fragment.id):
        offsets = addresses[owners == fragment.id] & OFFSET_MASK
        values = take_offsets(FragmentReader(files, fragment), plan, offsets).column(0)
        vectors = vectors_of(values, column.type.list_size)
        if values.null_count and vectors.dtype.kind == "f":
            vectors = np.where(np.asarray(values.is_null())[:, None], np.nan, vectors)
        parts.append(vectors)
    return np.concatenate(parts)


def _values(
    files: OpenFiles, fragments: Sequence[Fragment], column: IndexedColumn, prefilter: ScanPlan | None
) -> Iterator[tuple[Any, Int64s]]:
    """Read the values of live rows that are not null, and the address of each row."""
    plan = _plan(column.projection, column.path)
    if prefilter is not None:
        needed = prefilter.filter_projection
        rest = tuple(field for field in plan.projection.fields if field not in needed.fields)
        plan = replace(
            prefilter,
            columns=plan.columns,
            projection=plan.projection,
            schema=plan.schema,
            rest=Schema(rest),
            batch_size=plan.batch_size,
        )
    for batch in scan_fragments(files, fragments, plan):
        values, rows = batch.column(0), np.asarray(batch.column(1)).astype(np.int64)
        if values.null_count:
            is_valid = values.is_valid()
            values, rows = values.filter(is_valid), rows[np.asarray(is_valid)]
        yield values, rows


def _plan(schema: Schema, path: str) -> ScanPlan:
    return plan_scan(
        schema, columns=[path, ROW_ADDRESS], filter=None, batch_size=None, with_row_id=False, with_row_address=False
    )


def _add_lists(nearest: Nearest, values: pa.Array, rows: Int64s, top: TopRows) -> None:
    """Take in lists of vectors: the distance is the sum of the least distances of each vector of the query."""
    lengths = np.asarray(pc.list_value_length(values), np.int64)
    values, rows, lengths = (
        values.filter(pc.greater(pc.list_value_length(values), 0)),
        rows[lengths > 0],
        lengths[lengths > 0],
    )
    if not len(rows):
        return
    starts = np.cumsum(lengths) - lengths
    vectors = vectors_of(pc.list_flatten(values), nearest.queries.shape[1])
    distances = all_distances(nearest.queries, vectors, nearest.exact_metric)
    distances = np.minimum.reduceat(distances, starts, axis=1).sum(axis=0)
    top.add(np.zeros(len(rows), np.int64), distances, rows)
