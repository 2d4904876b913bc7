"""The nearest rows of some queries, while vectors come in blocks: memory is bounded by the number of rows wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.index.vector.distances import (
    COSINE,
    HAMMING,
    L2,
    computable,
    pair_distances,
    products,
    squared_norms,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.index.vector.distances import Doubles, Int64s, Vectors

_BLOCK_ITEMS = 1 << 20
"""Products of queries and vectors that are held at a time."""
_PENDING_ROWS = 1 << 10
_MIN_BLOCK, _MAX_BLOCK = 1 << 8, 1 << 13


class TopRows:
    """Keeps the rows of the smallest distances of each query; rows of equal distance by their number.

    Args:
        num_queries: Queries.
        k: Rows to keep for each.
        lower: Smallest distance to keep.
        upper: Distance from which on rows are left out.
    """

    def __init__(self, num_queries: int, k: int, *, lower: float = -np.inf, upper: float = np.inf) -> None:
        self.k = k
        self.lower, self._upper = lower, upper
        self._queries: Int64s = np.empty(0, np.int64)
        self._distances: Doubles = np.empty(0, np.float64)
        self._rows: Int64s = np.empty(0, np.int64)
        self.bounds: Doubles = np.full(num_queries, upper)
        """Shape (queries,): no row of a larger distance is kept any more."""
        self._pending: list[tuple[Int64s, Doubles, Int64s]] = []
        self._num_pending = 0

    def add(self, queries: Int64s, distances: Doubles, rows: Int64s) -> None:
        """Take rows in; they are ranked with those before once they are many.

        Args:
            queries: Shape (n,), number of the query.
            distances: Shape (n,); rows whose distance is NaN are left out.
            rows: Shape (n,), number of the row.
        """
        keep = (distances >= self.lower) & (distances <= self.bounds[queries])
        if self._upper < np.inf:
            keep &= distances < self._upper
        if not keep.any():
            return
        self._pending.append((queries[keep], distances[keep], rows[keep]))
        self._num_pending += int(np.count_nonzero(keep))
        if self._num_pending > max(len(self._rows), _PENDING_ROWS):
            self._rank()

    def _rank(self) -> None:
        parts = [(self._queries, self._distances, self._rows), *self._pending]
        queries, distances, rows = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        self._pending.clear()
        self._num_pending = 0
        order = np.lexsort((rows, distances, queries))
        queries = queries[order]
        ranks = np.arange(len(queries)) - np.searchsorted(queries, queries)
        is_kept = ranks < self.k
        order, queries = order[is_kept], queries[is_kept]
        self._queries, self._distances, self._rows = queries, distances[order], rows[order]
        is_last = ranks[is_kept] == self.k - 1
        self.bounds[queries[is_last]] = self._distances[is_last]

    def finish(self) -> tuple[Int64s, Doubles, Int64s]:
        """Return the query, distance and number of each row, ordered by query, distance and number."""
        self._rank()
        return self._queries, self._distances, self._rows


class ExactSearch:
    """Finds the nearest of vectors that come in blocks.

    A product of matrices gives distances with rounding errors. Rows that may be among the nearest in spite of the
    largest error get an exact distance; all others are dropped.

    Args:
        queries: Shape (queries, dimensions), of the vectors' type.
        metric: Name of the metric.
        top: Where the nearest rows are kept.
    """

    def __init__(self, queries: Vectors, metric: str, top: TopRows) -> None:
        self._queries = queries
        self._metric = metric
        self._top = top
        self._numbers = np.arange(len(queries))
        if metric == HAMMING:
            return
        self._factors = computable(queries)
        with np.errstate(over="ignore", invalid="ignore"):
            self._norms = np.sqrt(squared_norms(queries.astype(np.float64)))
        is_finite = np.isfinite(self._norms)
        if not is_finite.all():  # a query with NaN has no nearest rows
            is_nan = np.isnan(self._norms)
            self._numbers, self._factors = self._numbers[~is_nan], self._factors[~is_nan]
            self._queries, self._norms = queries[~is_nan], self._norms[~is_nan]
        self._error = (queries.shape[1] + 16) * float(np.finfo(self._factors.dtype).eps)

    def add(self, vectors: Vectors, rows: Int64s) -> None:
        """Take vectors in.

        Args:
            vectors: Shape (n, dimensions).
            rows: Shape (n,), numbers of the rows.
        """
        if not len(self._numbers):
            return
        step = min(max(_BLOCK_ITEMS // len(self._numbers), _MIN_BLOCK), _MAX_BLOCK)
        for start in range(0, len(vectors), step):
            part = slice(start, start + step)
            if self._metric == HAMMING:
                self._add_bits(vectors[part], rows[part])
            else:
                self._add_floats(vectors[part], rows[part])

    def _add_bits(self, vectors: Vectors, rows: Int64s) -> None:
        for number, query in zip(self._numbers.tolist(), self._queries, strict=True):
            distances = pair_distances(query[None], vectors, HAMMING)
            self._top.add(np.full(len(rows), number), distances, rows)

    def _add_floats(self, vectors: Vectors, rows: Int64s) -> None:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            block = computable(vectors)
            norms = squared_norms(block)
            is_nan = np.isnan(norms)
            if is_nan.any():
                block, norms, rows, vectors = block[~is_nan], norms[~is_nan], rows[~is_nan], vectors[~is_nan]
            if not len(rows):
                return
            scores = products(block, self._factors)
            if self._metric == L2:
                scores -= 0.5 * norms[:, None]
            elif self._metric == COSINE:
                scores /= np.sqrt(norms)[:, None]
            least = self._least_scores(scores, float(np.sqrt(norms.max()))).astype(scores.dtype)
            at, queries = np.nonzero(~(scores < least[None]))
        distances = pair_distances(self._queries[queries], vectors[at], self._metric)
        self._top.add(self._numbers[queries], distances, rows[at])

    def _least_scores(self, scores: npt.NDArray[np.floating], longest: float) -> Doubles:
        """Return the score from which on a row may be among the nearest of each query."""
        norms = self._norms
        # A score is off by the rounding errors of one product of vectors, and of the sum with a norm.
        errors = self._error * (norms if self._metric == COSINE else (norms + longest) ** 2)
        bounds = self._top.bounds[self._numbers]
        limit = np.full(len(norms), -np.inf)
        is_open, k = np.isinf(bounds), self._top.k
        if is_open.any() and len(scores) > k and self._top.lower == -np.inf:
            kth = -np.partition(-scores[:, is_open], k - 1, axis=0)[k - 1]  # NaN come last
            limit[is_open] = np.where(np.isnan(kth), -np.inf, kth) - errors[is_open]
        if self._metric == L2:
            limits = (norms**2 - bounds) / 2
        else:
            limits = (1 - bounds) * (norms if self._metric == COSINE else 1)
        return np.fmax(limit, limits) - errors
