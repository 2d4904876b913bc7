"""Compare queries with the rows of a partition, by the vectors themselves or by codes that stand for them.

Rows get keys: numbers that order them as their distances to a query do, up to a margin. Only rows that may be among the
nearest get distances; see `lance_core.index.vector.candidates`.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import NamedTuple, mutable
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
    from collections.abc import Callable, Iterator, Sequence

    from lance_core.index.vector.candidates import CandidateRows
    from lance_core.index.vector.distances import Doubles, Int64s, Vectors

Bytes: TypeAlias = npt.NDArray[np.uint8]
Keys: TypeAlias = npt.NDArray[np.floating[Any]]


@mutable(kw_only=True)
class OpenedPartition:
    """Codes of a partition, ready to be compared.

    Attributes:
        codes: Vectors or levels, shape (rows, dimensions); or entries of a codebook or signs as they are stored, shape
            (bytes, rows).
        row_axis: The axis of the rows in ``codes``.
        terms: What comparisons need of each row besides, shape (rows,); of no rows if they need nothing, or not yet.
        longest: Length of the longest vector; 0 for codes.
        centroid: Centroid of the partition, where entries of a codebook are differences from it; else zeros.
        is_compared: It was compared before.
    """

    codes: npt.NDArray[Any]
    row_axis: int = 0
    terms: Keys = field(default_factory=lambda: np.empty(0))
    longest: float = 0.0
    centroid: Vectors = field(default_factory=lambda: np.empty(0))
    is_compared: bool = False

    @property
    def num_bytes(self) -> int:
        """Bytes in memory, with those of the terms."""
        return self.codes.nbytes + self.codes.shape[self.row_axis] * np.dtype(np.float64).itemsize

    def chosen(self, rows: Int64s) -> OpenedPartition:
        """Return some rows, by their places."""
        terms = self.terms[rows] if len(self.terms) else self.terms
        return replace(self, codes=self.codes.take(rows, axis=self.row_axis), terms=terms)


class RunRows(NamedTuple):
    """Some rows of a run of partitions.

    Attributes:
        owners: Shape (n,), ascending numbers of partitions in the run.
        rows: Shape (n,), places in them.
    """

    owners: Int64s
    rows: Int64s

    @staticmethod
    def at(positions: Int64s, lengths: Sequence[int]) -> RunRows:
        """Return rows by their ascending positions in the run, whose partitions have so many rows each."""
        ends = np.cumsum(lengths, dtype=np.int64)
        starts: Int64s = np.concatenate([[0], ends[:-1]])
        owners = np.searchsorted(ends, positions, side="right")
        return RunRows(owners, positions - starts[owners])

    def of_each(self) -> Iterator[tuple[int, Int64s]]:
        """Return the number of each partition that has some of the rows, and their places in it."""
        numbers, starts = np.unique(self.owners, return_index=True)
        return zip(numbers.tolist(), np.split(self.rows, starts[1:]), strict=True)

    def codes(self, opened: Sequence[OpenedPartition]) -> npt.NDArray[Any]:
        """Return the codes of the rows, as partitions have them."""
        parts = [opened[number].chosen(rows).codes for number, rows in self.of_each()]
        return np.concatenate(parts, axis=opened[0].row_axis)


class Comparison(Protocol):
    """Queries that are compared with partitions."""

    def is_by_query(self, mean_queries: float, /) -> bool:
        """Return whether queries are best compared one after the other, each with all its partitions.

        Args:
            mean_queries: Queries that are compared with a partition, on average.
        """
        ...

    def keys(self, members: Int64s, opened: Sequence[OpenedPartition], limits: Doubles, /) -> tuple[Keys, Doubles]:
        """Return numbers that order the rows of partitions as their distances do.

        Args:
            members: Shape (n,), numbers of the queries to compare.
            opened: The partitions; their rows come one after the other.
            limits: Shape (n,): keys that are larger for sure may be infinite.

        Returns:
            Keys of shape (n, rows), and how far those of each query may be off, shape (n,).
        """
        ...

    def candidates(self, hits: CandidateRows, opened: Sequence[OpenedPartition], rows: RunRows, /) -> CandidateRows:
        """Return rows of partitions with better keys, or with the vectors that `distances` needs.

        Args:
            hits: The rows, with their keys and no vectors; at least one.
            opened: The partitions.
            rows: Where they are.
        """
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

    def keys(self, members: Int64s, opened: Sequence[OpenedPartition], limits: Doubles, /) -> tuple[Keys, Doubles]:
        """Return half of the squared distance less that of the query to the origin, or the product's negative.

        They may be off by the largest rounding errors of one product of vectors, and of the sum with a norm.
        """
        del limits
        norms, longest = self._norms[members], max(partition.longest for partition in opened)
        error = (self._factors.shape[1] + 16) * float(np.finfo(self._factors.dtype).eps)
        margins = error * (norms if self._metric == COSINE else (norms + longest) ** 2)
        factors = self._factors[members]
        with np.errstate(over="ignore", invalid="ignore"):
            return joined([self._keys(factors, partition) for partition in opened]), margins

    def _keys(self, factors: Vectors, opened: OpenedPartition) -> Keys:
        keys = products(computable(opened.codes), factors).T
        if self._metric == L2:
            return np.subtract(opened.terms, keys, out=keys)
        if self._metric == COSINE:
            keys *= opened.terms
        return np.negative(keys, out=keys)

    def is_by_query(self, mean_queries: float, /) -> bool:
        """Return whether partitions have one query each."""
        return mean_queries <= 1

    def candidates(self, hits: CandidateRows, opened: Sequence[OpenedPartition], rows: RunRows, /) -> CandidateRows:
        """Return the rows with their vectors."""
        return replace(hits, vectors=rows.codes(opened))

    def distances(self, candidates: CandidateRows) -> Doubles:
        """Return the distances of the vectors."""
        return pair_distances(self._queries[candidates.queries], candidates.vectors, self._metric)


def joined(parts: Sequence[Keys]) -> Keys:
    """Return keys of partitions, each of shape (n, rows), as one array."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


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
        keys: Returns distances of the rows of partitions, as `Comparison.keys`.
    """

    def __init__(self, keys: Callable[[Int64s, Sequence[OpenedPartition], Doubles], Keys]) -> None:
        self._keys = keys

    def keys(self, members: Int64s, opened: Sequence[OpenedPartition], limits: Doubles, /) -> tuple[Keys, Doubles]:
        """Return distances, which are exact."""
        return self._keys(members, opened, limits), np.zeros(len(members))

    def is_by_query(self, mean_queries: float, /) -> bool:
        """Return whether partitions have one query each."""
        return mean_queries <= 1

    def candidates(self, hits: CandidateRows, opened: Sequence[OpenedPartition], rows: RunRows, /) -> CandidateRows:
        """Return the rows as they are."""
        del opened, rows
        return hits

    def distances(self, candidates: CandidateRows) -> Doubles:
        """Return the keys."""
        return candidates.keys


def compare_bits(queries: Vectors) -> CodeComparison:
    """Return a comparison of bits, by the number of those that differ; shape (n, bytes)."""

    def keys(members: Int64s, opened: Sequence[OpenedPartition], limits: Doubles) -> Keys:
        del limits
        bits = np.concatenate([partition.codes for partition in opened])
        return np.stack([pair_distances(query[None], bits, HAMMING) for query in queries[members]])

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

    def keys(members: Int64s, opened: Sequence[OpenedPartition], limits: Doubles) -> Keys:
        del limits
        mine = factors[members]
        scores = joined([products(partition.codes, mine).T for partition in opened])
        scores = scores.astype(np.float64)
        if metric == DOT:
            return 1 - (offsets[members, None] + step * scores)
        terms = np.concatenate([partition.terms for partition in opened])
        return np.maximum(squared_norms(mine)[:, None] + terms - 2 * scores, 0) * step**2

    return CodeComparison(keys)
