"""Compare queries with the rows of a partition, by the vectors themselves or by codes that stand for them.

Rows get keys: numbers that order them as their distances to a query do, up to a margin. Only rows that may be among the
nearest get distances; see `lance_core.index.vector.candidates`.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.frozen import frozen
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

_AT_ONCE = 1 << 15
"""Entries of codebooks that are looked up at once."""


@frozen(kw_only=True)
class OpenedPartition:
    """Codes of a partition, ready to be compared.

    Attributes:
        codes: Vectors or levels, shape (rows, dimensions); entries of a codebook, shape (parts, rows).
        terms: What comparisons need besides: of each row, shape (rows,), or of each entry, shape (parts, entries); of
            no rows if they need nothing.
        longest: Length of the longest vector; 0 for codes.
    """

    codes: npt.NDArray[Any]
    terms: Keys = field(default_factory=lambda: np.empty(0))
    longest: float = 0.0

    @property
    def num_bytes(self) -> int:
        """Bytes in memory."""
        return self.codes.nbytes + self.terms.nbytes


class Comparison(Protocol):
    """Queries that are compared with partitions."""

    def keys(self, members: Int64s, centroid: Vectors, opened: OpenedPartition, /) -> Keys:
        """Return numbers that order the rows of a partition as their distances do.

        Args:
            members: Shape (n,), numbers of the queries to compare.
            centroid: Shape (dimensions,), centroid of the partition.
            opened: Its rows.

        Returns:
            Shape (n, rows).
        """
        ...

    def margins(self, members: Int64s, opened: OpenedPartition) -> Doubles:
        """Return how far the keys of each query may be off; shape (n,)."""
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

    def keys(self, members: Int64s, centroid: Vectors, opened: OpenedPartition, /) -> Keys:
        """Return half of the squared distance less that of the query to the origin, or the product's negative."""
        del centroid
        block = computable(opened.codes)
        with np.errstate(over="ignore", invalid="ignore"):
            keys = products(block, self._factors[members]).T
            if self._metric == L2:
                return np.subtract(opened.terms, keys, out=keys)
            if self._metric == COSINE:
                keys *= opened.terms
            return np.negative(keys, out=keys)

    def margins(self, members: Int64s, opened: OpenedPartition) -> Doubles:
        """Return the largest rounding errors of one product of vectors, and of the sum with a norm."""
        norms = self._norms[members]
        error = (self._factors.shape[1] + 16) * float(np.finfo(self._factors.dtype).eps)
        return error * (norms if self._metric == COSINE else (norms + opened.longest) ** 2)

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

    def __init__(self, keys: Callable[[Int64s, Vectors, OpenedPartition], Keys]) -> None:
        self._keys = keys

    def keys(self, members: Int64s, centroid: Vectors, opened: OpenedPartition, /) -> Keys:
        """Return distances."""
        return self._keys(members, centroid, opened)

    def margins(self, members: Int64s, opened: OpenedPartition) -> Doubles:
        """Return zeros."""
        del opened
        return np.zeros(len(members))

    def distances(self, candidates: CandidateRows) -> Doubles:
        """Return the keys."""
        return candidates.keys


def compare_bits(queries: Vectors) -> CodeComparison:
    """Return a comparison of bits, by the number of those that differ; shape (n, bytes)."""

    def keys(members: Int64s, centroid: Vectors, opened: OpenedPartition) -> Keys:
        del centroid
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

    def keys(members: Int64s, centroid: Vectors, opened: OpenedPartition) -> Keys:
        del centroid
        rows, mine = opened.codes.astype(np.float32), factors[members]
        scores = products(rows, mine).T.astype(np.float64)
        if metric == DOT:
            return 1 - (offsets[members, None] + step * scores)
        return np.maximum(squared_norms(mine)[:, None] + opened.terms - 2 * scores, 0) * step**2

    return CodeComparison(keys)


def compare_entries(queries: Vectors, book: Doubles, metric: str) -> CodeComparison:
    """Return a comparison of entries of a codebook (product quantization).

    The distance of a query q to centroid c and entries e is ``|q - c|^2 + sum(|e|^2 + 2 c.e - 2 q.e)``, the sum over
    the parts of a vector. What is summed is looked up in a table: that of the partition less that of the query.

    Args:
        queries: Shape (n, dimensions).
        book: Shape (parts, entries, dimensions of a part).
        metric: Name of the metric.
    """
    tables = _part_products(queries, book)

    def keys(members: Int64s, centroid: Vectors, opened: OpenedPartition) -> Keys:
        if metric != DOT and queries.dtype == np.float16:
            return _of_residuals(queries[members] - centroid, book, opened.codes)
        if metric == DOT:
            return 1 - _looked_up(tables[members], opened.codes)
        totals = _looked_up(opened.terms - 2 * tables[members], opened.codes)
        totals += squared_norms(queries[members].astype(np.float64) - centroid)[:, None]
        return totals

    return CodeComparison(keys)


def entry_terms(book: Doubles, squares: Doubles, centroid: Vectors) -> Doubles:
    """Return the table of a partition in `compare_entries`, shape (parts, entries).

    Args:
        book: Shape (parts, entries, dimensions of a part).
        squares: Squared lengths of its entries, shape (parts, entries).
        centroid: Centroid of the partition.
    """
    return squares + 2 * _part_products(centroid[None], book)[0]


def _of_residuals(residuals: Vectors, book: Doubles, codes: Bytes) -> Doubles:
    """Return distances from residuals that are rounded to half floats, as in pylance."""
    norms = squared_norms(residuals.astype(np.float64))
    squares = np.einsum("mjd,mjd->mj", book, book)
    return norms[:, None] + _looked_up(squares - 2 * _part_products(residuals, book), codes)


def _part_products(vectors: Vectors, book: Doubles) -> Doubles:
    """Return the products of the parts of vectors and all entries; shape (n, parts, entries)."""
    parts = vectors.astype(np.float64).reshape(len(vectors), len(book), -1)
    return np.matmul(parts.transpose(1, 0, 2), book.transpose(0, 2, 1)).transpose(1, 0, 2)


def _looked_up(tables: Doubles, codes: Bytes) -> Doubles:
    """Add up the entry of each part; tables of shape (n, parts, entries), codes of shape (parts, rows)."""
    if len(tables) * codes.size <= _AT_ONCE:  # two calls instead of two for each part
        slots = codes + np.arange(len(codes))[:, None] * tables.shape[2]
        return tables.reshape(len(tables), -1).take(slots, axis=1).sum(axis=1)
    totals = tables[:, 0].take(codes[0], axis=1)
    for part in range(1, len(codes)):
        totals += tables[:, part].take(codes[part], axis=1)
    return totals
