"""Compare queries with the rows of a partition, by the vectors themselves or by codes that stand for them.

Rows get keys: numbers that order them as their distances to a query do, up to a margin. Only rows that may be among the
nearest get distances; see `lance_core.index.vector.candidates`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.index.vector.distances import (
    COSINE,
    DOT,
    HAMMING,
    L2,
    computable,
    pair_distances,
    products,
    squared_norms,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_core.index.vector.candidates import CandidateRows
    from lance_core.index.vector.distances import Doubles, Int64s, Vectors

Bytes: TypeAlias = npt.NDArray[np.uint8]
Keys: TypeAlias = npt.NDArray[np.floating[Any]]

_LEVELS = 255


@dataclass(kw_only=True, slots=True)
class OpenedPartition:
    """Codes of a partition, ready to be compared.

    Attributes:
        codes: Vectors or levels, shape (rows, dimensions); or entries of a codebook as they are stored, shape
            (bytes, rows).
        terms: What comparisons need of each row besides, shape (rows,); of no rows if they need nothing, or not yet.
        longest: Length of the longest vector; 0 for codes.
        centroid: Centroid of the partition, where entries of a codebook are differences from it; else zeros.
        is_compared: It was compared before.
    """

    codes: npt.NDArray[Any]
    terms: Keys = field(default_factory=lambda: np.empty(0))
    longest: float = 0.0
    centroid: Vectors = field(default_factory=lambda: np.empty(0))
    is_compared: bool = False

    @property
    def num_bytes(self) -> int:
        """Bytes in memory, with those of the terms."""
        return self.codes.nbytes + max(self.codes.shape) * np.dtype(np.float64).itemsize


class Comparison(Protocol):
    """Queries that are compared with partitions."""

    def keys(self, members: Int64s, opened: OpenedPartition, /) -> tuple[Keys, Doubles]:
        """Return numbers that order the rows of a partition as their distances do.

        Args:
            members: Shape (n,), numbers of the queries to compare.
            opened: The rows of the partition.

        Returns:
            Keys of shape (n, rows), and how far those of each query may be off, shape (n,).
        """
        ...

    def vectors(self, opened: OpenedPartition, rows: Int64s, /) -> Vectors:
        """Return what `distances` needs of some rows, one line for each; of no items if it needs only keys."""
        ...

    def distances(self, candidates: CandidateRows) -> Doubles:
        """Return the distances of rows, from their keys or vectors."""
        ...


class FlatComparison:
    """Compares vectors: products of matrices make keys, which have rounding errors.

    Args:
        queries: Shape (n, dimensions), of floats.
        metric: Name of the metric.
    """

    def __init__(self, queries: Vectors, metric: str) -> None:
        self._queries = queries
        self._metric = metric
        self._factors = computable(queries)
        with np.errstate(over="ignore", invalid="ignore"):
            self._norms = np.sqrt(squared_norms(queries.astype(np.float64)))

    def keys(self, members: Int64s, opened: OpenedPartition, /) -> tuple[Keys, Doubles]:
        """Return half of the squared distance less that of the query to the origin, or the product's negative.

        They may be off by the largest rounding errors of one product of vectors, and of the sum with a norm.
        """
        block, norms = computable(opened.codes), self._norms[members]
        error = (self._factors.shape[1] + 16) * float(np.finfo(self._factors.dtype).eps)
        margins = error * (norms if self._metric == COSINE else (norms + opened.longest) ** 2)
        with np.errstate(over="ignore", invalid="ignore"):
            keys = products(block, self._factors[members]).T
            if self._metric == L2:
                return np.subtract(opened.terms, keys, out=keys), margins
            if self._metric == COSINE:
                keys *= opened.terms
            return np.negative(keys, out=keys), margins

    def vectors(self, opened: OpenedPartition, rows: Int64s, /) -> Vectors:
        """Return the vectors."""
        return opened.codes[rows]

    def distances(self, candidates: CandidateRows) -> Doubles:
        """Return the distances of the vectors."""
        return pair_distances(self._queries[candidates.queries], candidates.vectors, self._metric)


def flat_terms(vectors: Vectors, metric: str) -> OpenedPartition:
    """Return vectors with what `FlatComparison` needs of each: half the squared length, or one by the length."""
    norms = squared_norms(computable(vectors))
    longest = float(np.sqrt(norms.max(initial=0)))
    if metric == DOT:
        return OpenedPartition(codes=vectors, longest=longest)
    with np.errstate(divide="ignore"):
        terms = 0.5 * norms if metric == L2 else 1 / np.sqrt(norms)
    return OpenedPartition(codes=vectors, terms=terms, longest=longest)


class CodeComparison:
    """Compares codes: keys are distances.

    Args:
        keys: Returns distances, as `Comparison.keys`.
    """

    def __init__(self, keys: Callable[[Int64s, OpenedPartition], Keys]) -> None:
        self._keys = keys

    def keys(self, members: Int64s, opened: OpenedPartition, /) -> tuple[Keys, Doubles]:
        """Return distances, which are exact."""
        return self._keys(members, opened), np.zeros(len(members))

    def vectors(self, opened: OpenedPartition, rows: Int64s, /) -> Vectors:
        """Return nothing."""
        del opened
        return np.empty((len(rows), 0))

    def distances(self, candidates: CandidateRows) -> Doubles:
        """Return the keys."""
        return candidates.keys


def compare_bits(queries: Vectors) -> CodeComparison:
    """Return a comparison of bits, by the number of those that differ; shape (n, bytes)."""

    def keys(members: Int64s, opened: OpenedPartition) -> Keys:
        return np.stack([pair_distances(query[None], opened.codes, HAMMING) for query in queries[members]])

    return CodeComparison(keys)


def compare_levels(queries: Vectors, levels: Bytes, metric: str, start: float, step: float) -> CodeComparison:
    """Return a comparison of levels (scalar quantization).

    Args:
        queries: Shape (n, dimensions).
        levels: Shape (n, dimensions), the queries quantized; with dot the queries themselves are compared.
        metric: Name of the metric.
        start: Lower bound of the items.
        step: Size of a level.
    """
    offsets = queries.astype(np.float64).sum(axis=1) * start
    factors = (queries if metric == DOT else levels).astype(np.float32)

    def keys(members: Int64s, opened: OpenedPartition) -> Keys:
        rows, mine = opened.codes.astype(np.float32), factors[members]
        scores = products(rows, mine).T.astype(np.float64)
        if metric == DOT:
            return 1 - (offsets[members, None] + step * scores)
        return np.maximum(squared_norms(mine)[:, None] + opened.terms - 2 * scores, 0) * step**2

    return CodeComparison(keys)


class EntryComparison:
    """Compares entries of a codebook (product quantization): sums from a table make keys.

    The distance of a query q to centroid c and entries e is the sum of ``|q - c|^2`` and, over the parts of a vector,
    of ``|e|^2 - 2 (q - c).e``. What is summed is looked up in a table of the query for the partition. A partition that
    is compared again has the sum of ``|e|^2 + 2 c.e`` of each row, so that one table of ``-2 q.e`` serves all.

    For one query tables are rounded to 256 levels: Python maps bytes to bytes twice as fast as numpy looks numbers up.

    Args:
        queries: Shape (n, dimensions).
        book: Shape (parts, entries, dimensions of a part).
        metric: Name of the metric.
    """

    def __init__(self, queries: Vectors, book: Doubles, metric: str) -> None:
        self._queries = queries
        self._book = book
        self._metric = metric
        self._squares = np.einsum("mjd,mjd->mj", book, book)
        with np.errstate(over="ignore", invalid="ignore"):
            self._tables = _of_bytes(_part_products(queries, book) * (-1 if metric == DOT else -2))
        is_rounded = len(queries) == 1 and bool(np.isfinite(self._tables).all())
        self._rounded = _RoundedTables(self._tables[0]) if is_rounded else None

    def keys(self, members: Int64s, opened: OpenedPartition, /) -> tuple[Keys, Doubles]:
        """Return distances, with the errors of the rounded tables."""
        if self._metric == DOT:
            keys, margins = self._totals(members, opened)
            keys += 1
            return keys, margins
        with np.errstate(over="ignore", invalid="ignore"):
            residuals = self._residuals(members, opened.centroid)
            is_first, opened.is_compared = len(members) == 1 and not opened.is_compared, True
            if is_first or self._queries.dtype == np.float16:
                tables = _of_bytes(self._squares - 2 * _part_products(residuals, self._book))
                if self._rounded is not None:
                    keys, margins = _RoundedTables(tables[0]).totals(opened.codes)
                else:
                    keys, margins = _looked_up(tables, opened.codes), np.zeros(len(members))
            else:
                if not len(opened.terms):
                    of_rows = self._squares + 2 * _part_products(opened.centroid[None], self._book)
                    opened.terms = _looked_up(_of_bytes(of_rows), opened.codes)[0]
                keys, margins = self._totals(members, opened)
                keys += opened.terms
            keys += squared_norms(residuals)[:, None]
        return keys, margins

    def _totals(self, members: Int64s, opened: OpenedPartition) -> tuple[Doubles, Doubles]:
        """Return sums from the tables of queries that serve all partitions."""
        if self._rounded is not None:
            return self._rounded.totals(opened.codes)
        return _looked_up(self._tables[members], opened.codes), np.zeros(len(members))

    def _residuals(self, numbers: Int64s, centroids: Vectors) -> Doubles:
        """Return queries less centroids; those of half floats are rounded to half floats, as in pylance."""
        queries = self._queries[numbers]
        if queries.dtype == np.float16:
            return (queries - centroids.astype(np.float16)).astype(np.float64)
        return queries.astype(np.float64) - centroids

    def vectors(self, opened: OpenedPartition, rows: Int64s, /) -> Vectors:
        """Return the entries of rows, each with the centroid behind it; nothing if keys are distances."""
        if self._rounded is None:
            return np.empty((len(rows), 0))
        book, codes = self._book, opened.codes[:, rows]
        if len(codes) < len(book):  # two in a byte
            codes = np.stack([codes & 15, codes >> 4], axis=1).reshape(len(book), -1)
        entries = (
            book[np.arange(len(book))[:, None], codes].transpose(1, 0, 2).reshape(len(rows), self._queries.shape[1])
        )
        return np.concatenate([entries, np.broadcast_to(opened.centroid, entries.shape)], axis=1, dtype=np.float64)

    def distances(self, candidates: CandidateRows) -> Doubles:
        """Return the distances of entries and centroids, or the keys."""
        if self._rounded is None:
            return candidates.keys
        entries, centroids = np.hsplit(candidates.vectors, 2)
        if self._metric == DOT:
            return pair_distances(self._queries[candidates.queries], entries, DOT)
        return pair_distances(self._residuals(candidates.queries, centroids), entries, L2)


class _RoundedTables:
    """Tables of one query for each byte of codes, rounded to levels.

    Args:
        tables: Shape (bytes, 256).
    """

    def __init__(self, tables: Doubles) -> None:
        least = tables.min(axis=1)
        self._step = float((tables.max(axis=1) - least).max(initial=0)) / _LEVELS or 1.0
        levels = ((tables - least[:, None]) / self._step).astype(np.uint8)  # rounded down
        self._levels = [line.tobytes() for line in levels]
        self._start = float(least.sum()) + self._step * len(tables) / 2
        self._margins = np.array([self._step * (len(tables) / 2 + 1e-6)])

    def totals(self, codes: Bytes) -> tuple[Doubles, Doubles]:
        """Return the sum for each row of codes, shape (bytes, rows), and by how much these may be off.

        The sums have shape (1, rows), the errors (1,).
        """
        mapped = [line.tobytes().translate(levels) for line, levels in zip(codes, self._levels, strict=True)]
        levels = np.frombuffer(b"".join(mapped), np.uint8).reshape(codes.shape)
        kind = np.uint16 if len(codes) * _LEVELS < 1 << 16 else np.uint32
        totals = np.add.reduce(levels, axis=0, dtype=kind) * self._step
        totals += self._start
        return totals[None], self._margins


def _part_products(vectors: Vectors, book: Doubles) -> Doubles:
    """Return the products of the parts of vectors and all entries; shape (n, parts, entries)."""
    parts = vectors.astype(np.float64).reshape(len(vectors), len(book), -1)
    return np.matmul(parts.transpose(1, 0, 2), book.transpose(0, 2, 1)).transpose(1, 0, 2)


def _of_bytes(tables: Doubles) -> Doubles:
    """Return tables of bytes: those of parts of 8 bits, or sums of two of 4 bits, the first in the lower bits."""
    count, _, entries = tables.shape
    if entries == _LEVELS + 1:
        return tables
    return (tables[:, 0::2, None, :] + tables[:, 1::2, :, None]).reshape(count, -1, entries * entries)


def _looked_up(tables: Doubles, codes: Bytes) -> Doubles:
    """Add up one number of each table; tables of shape (n, bytes, 256), codes of shape (bytes, rows)."""
    totals = tables[:, 0].take(codes[0], axis=1)
    for number in range(1, len(codes)):
        totals += tables[:, number].take(codes[number], axis=1)
    return totals
