"""Hybrid searches: one result of several, such as the nearest vectors and the best matching texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RELEVANCE", "reciprocal_rank_fusion"]

RELEVANCE = "_relevance_score"
"""Column that the fusion adds; named as in LanceDB."""


def reciprocal_rank_fusion(
    results: Sequence[pa.Table], *, on: str = "_rowid", k: int = 60, limit: int | None = None
) -> pa.Table:
    """Join results of searches: the rows of all, ordered by the sum of ``1 / (k + rank)`` over the results.

    Distances and scores are not compared, only the order of each result; this is what LanceDB's ``RRFReranker`` does.

    Args:
        results: Results of searches, each with its best row first. Columns that several have are taken from the first
            that has the row; a row that is not in a result has null in the columns of that result only.
        on: Column that names a row, such as ``_rowid``, for which searches take ``with_row_id=True``.
        k: Weight of the first ranks: the larger, the less they count; at least 1.
        limit: Rows at most; all if None.

    Returns:
        The rows with ``_relevance_score`` (float32), the best first; equal ones in the order of the results.

    Raises:
        InvalidInputError: No results, one without the column, with null in it or with a row twice, columns of one name
            and two types, or a number out of range.

    Examples:
        >>> import pyarrow as pa
        >>> near, matching = pa.table({"_rowid": [3, 1]}), pa.table({"_rowid": [1, 2]})
        >>> reciprocal_rank_fusion([near, matching])["_rowid"].to_pylist()
        [1, 3, 2]
    """
    if k < 1 or (limit is not None and limit < 0):
        raise InvalidInputError(f"'k' must be at least 1 and 'limit' at least 0, not {k} and {limit}")
    if not results or any(on not in table.schema.names for table in results):
        raise InvalidInputError(f"reciprocal_rank_fusion needs results that have the column {on!r}")
    keys = _joined(on, [table[on] for table in results])
    if keys.null_count:
        raise InvalidInputError(f"column {on!r} names rows, so that it must not have nulls")
    encoded = keys.combine_chunks().dictionary_encode()
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    codes, count = encoded.indices.to_numpy(), len(encoded.dictionary)
    scores, positions, start = np.zeros(count), [], 0
    for table in results:
        rows = codes[start : start + len(table)]
        start += len(table)
        if len(np.unique(rows)) < len(rows):
            raise InvalidInputError(f"a result has the same {on!r} twice; give each search its own result")
        scores[rows] += 1 / (k + np.arange(1, len(rows) + 1))
        position = np.full(count, -1)
        position[rows] = np.arange(len(rows))
        positions.append(position)
    order = np.argsort(-scores, kind="stable")[:limit]
    columns = _columns(results, [position[order] for position in positions])
    columns.pop(RELEVANCE, None)
    return pa.table({**columns, RELEVANCE: pa.array(scores[order].astype(np.float32))})


def _columns(results: Sequence[pa.Table], positions: Sequence[np.ndarray]) -> dict[str, pa.ChunkedArray]:
    """Return the columns of all results, each value from the first result that has column and row."""
    columns: dict[str, pa.ChunkedArray] = {}
    for name in dict.fromkeys(name for table in results for name in table.schema.names):
        parts = [
            (table[name], position)
            for table, position in zip(results, positions, strict=True)
            if name in table.schema.names
        ]
        whole = _joined(name, [values for values, _ in parts])
        indices, start = np.full(len(positions[0]), -1), 0
        for values, position in parts:
            indices = np.where((indices < 0) & (position >= 0), position + start, indices)
            start += len(values)
        columns[name] = whole.take(pa.array(indices, mask=indices < 0))
    return columns


def _joined(name: str, columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Return the values of columns of one name, one behind the other."""
    types = list(dict.fromkeys(column.type for column in columns))
    if len(types) > 1:
        raise InvalidInputError(f"column {name!r} has types {types[0]} and {types[1]} in two results; cast one of them")
    return pa.chunked_array([chunk for column in columns for chunk in column.chunks], types[0])
