"""Compare queries with the entries of a codebook that stand for the rows of a partition (product quantization)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lance_core.index.vector.comparisons import joined
from lance_core.index.vector.distances import DOT, L2, pair_distances, products, squared_norms
from lance_core.index.vector.rounded_tables import RoundedTables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_core.index.vector.candidates import CandidateRows
    from lance_core.index.vector.comparisons import Bytes, Keys, OpenedPartition, RunRows
    from lance_core.index.vector.distances import Doubles, Int64s, Vectors

_ENTRIES_OF_BYTE = 256
_EXACT_ROWS = 1 << 9
"""Rows up to which exact distances take less than tables, or products, that choose which rows get them."""
_MANY = 12
"""Queries of a partition from which on vectors are put together from entries."""
_BLOCK_ITEMS = 1 << 18
"""Items of vectors that are put together from entries at a time, for the processor's cache."""


def squares_of(book: Vectors) -> Vectors:
    """Return the squared length of each entry of a codebook; shape (parts, entries)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return squared_norms(book.reshape(-1, book.shape[2])).reshape(book.shape[:2])


class EntryComparison:
    """Compares entries of a codebook.

    The distance of a query q to centroid c and entries e is the sum of ``|q - c|^2`` and, over the parts of a vector,
    of ``|e|^2 - 2 (q - c).e``. Keys are hits in one of two ways:

    - For few queries, each on its own, what is summed is looked up in a table of the query for the partition, rounded
      to 256 levels: Python maps bytes to bytes twice as fast as numpy looks numbers up. A partition that is compared
      again has the sum of ``|e|^2 + 2 c.e`` of each row, so that one table of ``-2 q.e`` serves all.
    - For many queries, entries are put together to vectors, which are multiplied with those of all queries.

    Args:
        queries: Shape (n, dimensions).
        book: Shape (parts, entries, dimensions of a part), of a type that matrices are multiplied in.
        squares: Shape (parts, entries), from `squares_of`.
        metric: Name of the metric.
    """

    def __init__(self, queries: Vectors, book: Vectors, squares: Vectors, metric: str) -> None:
        self._queries = queries
        self._book = book
        self._squares = squares
        self._metric = metric
        self._longest = float(np.sqrt(squares.max(axis=1).sum(dtype=np.float64)))
        self._tables: dict[int, RoundedTables] = {}

    def _shared(self, query: int) -> RoundedTables:
        """Return tables of a query that serve all partitions."""
        tables = self._tables.get(query)
        if tables is None:
            products_of_parts = _part_products(self._queries[query : query + 1].astype(self._book.dtype), self._book)
            products_of_parts *= -1 if self._metric == DOT else -2
            tables = self._tables[query] = RoundedTables(_of_bytes(products_of_parts))
        return tables

    def keys(self, members: Int64s, opened: Sequence[OpenedPartition], limits: Doubles, /) -> tuple[Keys, Doubles]:
        """Return distances with the errors of rounded tables, or of products of matrices."""
        count = sum([partition.codes.shape[1] for partition in opened])
        if count <= _EXACT_ROWS:  # they get exact distances as candidates, which takes less than tables
            return np.zeros((len(members), count)), np.full(len(members), np.inf)
        centroids = np.stack([partition.centroid for partition in opened])
        with np.errstate(over="ignore", invalid="ignore"):
            keys = None
            if len(members) == 1:
                keys = self._looked_up(int(members[0]), centroids, opened, float(limits[0]))
            return keys or self._multiplied(members, centroids, opened)

    def _errors(self, norms: Doubles) -> Doubles:
        """Return the largest rounding errors of products of entries and vectors of these lengths, with sums."""
        error = (self._queries.shape[1] + 32) * float(np.finfo(self._book.dtype).eps)
        return error * ((norms + self._longest) ** 2 + (1 if self._metric == DOT else 0))

    def _multiplied(
        self, members: Int64s, centroids: Vectors, opened: Sequence[OpenedPartition]
    ) -> tuple[Keys, Doubles]:
        parts: list[Keys] = []
        longest = np.zeros(len(members))
        for centroid, partition in zip(centroids, opened, strict=True):
            vectors = self._residuals(members, centroid)
            squares, factors = squared_norms(vectors), vectors.astype(self._book.dtype)
            np.fmax(longest, np.sqrt(squares), out=longest)
            scores = np.empty((partition.codes.shape[1], len(vectors)), factors.dtype)
            for part, entries in self._entries(partition.codes):
                block = scores[part]
                block[:] = products(entries, factors)
                if self._metric == DOT:
                    np.subtract(1, block, out=block)
                else:
                    block *= -2
                    block += squared_norms(entries)[:, None]
                    block += squares.astype(factors.dtype)
            parts.append(scores.T)
        return joined(parts), self._errors(longest)

    def _looked_up(
        self, query: int, centroids: Vectors, opened: Sequence[OpenedPartition], limit: float
    ) -> tuple[Keys, Doubles] | None:
        """Return the keys of one query; None if they are too large for tables."""
        vectors, terms = self._residuals(query, centroids), None
        squares = squared_norms(vectors)
        is_new = any(not partition.is_compared for partition in opened)
        if self._metric != DOT and (is_new or self._queries.dtype == np.float16):
            tables = _part_products(vectors.astype(self._book.dtype), self._book)
            tables *= -2
            tables += self._squares
            rounded, errors = RoundedTables(_of_bytes(tables)), self._errors(np.sqrt(squares.max(keepdims=True)))
            for partition in opened:
                partition.is_compared = True
        else:
            norms = np.sqrt(squared_norms(self._queries[query : query + 1].astype(np.float64)))
            rounded, errors = self._shared(query), self._errors(norms)
            if self._metric != DOT:
                terms = np.concatenate([self._terms(partition) for partition in opened])
                errors += self._errors(np.sqrt(squared_norms(centroids.astype(np.float64)).max(keepdims=True)))
        margins = errors + rounded.margin
        if not np.isfinite(margins[0]):
            return None
        fixed, codes = np.ones(len(opened)) if self._metric == DOT else squares, [part.codes for part in opened]
        return rounded.totals(codes, fixed, terms, limit + float(margins[0]))[None], margins

    def _terms(self, opened: OpenedPartition) -> Keys:
        """Return ``|e|^2 + 2 c.e`` of each row of a partition."""
        if not len(opened.terms):
            of_rows = self._squares + 2 * _part_products(opened.centroid[None].astype(self._book.dtype), self._book)
            (tables,) = _of_bytes(of_rows.astype(np.float64))
            terms = np.zeros(opened.codes.shape[1])
            for table, codes in zip(tables, opened.codes, strict=True):
                terms += table.take(codes)
            opened.terms = terms.astype(self._book.dtype)
        return opened.terms

    def _residuals(self, numbers: Int64s | int, centroids: Vectors) -> Doubles:
        """Return queries less centroids; half floats are rounded to such, as in pylance. With dot return the queries.

        Args:
            numbers: Shape (n,), or the number of one query.
            centroids: Shape (n, dimensions), or one for all queries.
        """
        queries = self._queries[numbers]
        if self._metric == DOT:
            return np.broadcast_to(queries.astype(np.float64), np.broadcast_shapes(queries.shape, centroids.shape))
        if queries.dtype == np.float16:
            return (queries - centroids.astype(np.float16)).astype(np.float64)
        return queries.astype(np.float64) - centroids

    def _entries(self, codes: Bytes) -> Iterator[tuple[slice, Vectors]]:
        """Put the entries of rows together, some rows at a time.

        Args:
            codes: Shape (bytes, rows).

        Returns:
            Places of rows, and their entries, shape (some rows, dimensions), in memory that is used again.
        """
        book, size = self._book, self._queries.shape[1]
        num_parts, num_entries, width = book.shape
        step = min(max(1, _BLOCK_ITEMS // size), codes.shape[1])
        memory, chosen = np.empty((step, num_parts, width), book.dtype), np.empty((step, num_parts), np.intp)
        firsts = num_entries * np.arange(num_parts)
        for start in range(0, codes.shape[1], step):
            numbers = codes[:, start : start + step]
            count = numbers.shape[1]
            if len(numbers) < num_parts:  # two in a byte
                numbers = np.stack([numbers & 15, numbers >> 4], axis=1).reshape(num_parts, -1)
            np.add(numbers.T, firsts, out=chosen[:count])
            rows = memory[:count]
            # Without a mode there is one copy more.
            book.reshape(-1, width).take(chosen[:count], axis=0, out=rows, mode="clip")
            yield slice(start, start + count), rows.reshape(count, size)

    def is_by_query(self, mean_queries: float, /) -> bool:
        """Return whether tables of each query take less time than vectors that serve all queries."""
        return mean_queries < _MANY

    def candidates(self, hits: CandidateRows, opened: Sequence[OpenedPartition], rows: RunRows, /) -> CandidateRows:
        """Return the rows with their exact distances as keys."""
        exact = np.empty(len(hits.rows))
        centroids = np.stack([partition.centroid for partition in opened])
        for part, entries in self._entries(rows.codes(opened)):
            residuals = self._residuals(hits.queries[part], centroids[rows.owners[part]])
            exact[part] = pair_distances(residuals, entries, DOT if self._metric == DOT else L2)
        return replace(hits, keys=exact, margins=np.zeros(len(exact)))

    def distances(self, candidates: CandidateRows) -> Doubles:
        """Return the keys."""
        return candidates.keys


def _part_products(vectors: Vectors, book: Vectors) -> Vectors:
    """Return the products of the parts of vectors and all entries; shape (n, parts, entries)."""
    parts = vectors.reshape(len(vectors), len(book), -1)
    return np.matmul(parts.transpose(1, 0, 2), book.transpose(0, 2, 1)).transpose(1, 0, 2)


def _of_bytes(tables: Vectors) -> Vectors:
    """Return tables of bytes: those of parts of 8 bits, or sums of two of 4 bits, the first in the lower bits."""
    count, _, entries = tables.shape
    if entries == _ENTRIES_OF_BYTE:
        return tables
    return (tables[:, 0::2, None, :] + tables[:, 1::2, :, None]).reshape(count, -1, entries * entries)
