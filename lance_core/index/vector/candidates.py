"""Rows of partitions that may be among the nearest of some queries.

Rows are compared by keys: numbers that order the rows of a query as their distances do, up to a margin. A row is
dropped as soon as k others are nearer for sure, so that few rows are left for what takes long: their exact distances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.index.vector.distances import Doubles, Int64s, Vectors

Keys: TypeAlias = npt.NDArray[np.floating[Any]]

_PENDING_ROWS = 1 << 14


@frozen(kw_only=True)
class CandidateRows:
    """Rows that may be among the nearest.

    Attributes:
        queries: Shape (n,), numbers of queries.
        keys: Shape (n,).
        margins: Shape (n,): how far a key may be off.
        rows: Shape (n,), addresses of rows.
        vectors: Shape (n, dimensions), their vectors; of no dimensions where the key is the distance.
    """

    queries: Int64s
    keys: Doubles
    margins: Doubles
    rows: Int64s
    vectors: Vectors

    def chosen(self, at: npt.NDArray[Any]) -> CandidateRows:
        """Return some of the rows."""
        return CandidateRows(
            queries=self.queries[at],
            keys=self.keys[at],
            margins=self.margins[at],
            rows=self.rows[at],
            vectors=self.vectors[at],
        )

    @staticmethod
    def joined(parts: Sequence[CandidateRows]) -> CandidateRows:
        """Return the rows of all parts."""
        return CandidateRows(
            queries=np.concatenate([part.queries for part in parts]),
            keys=np.concatenate([part.keys for part in parts]),
            margins=np.concatenate([part.margins for part in parts]),
            rows=np.concatenate([part.rows for part in parts]),
            vectors=np.concatenate([part.vectors for part in parts]),
        )


class Candidates:
    """Keeps the rows that may be among the nearest of each query.

    Args:
        num_queries: Queries.
        k: Rows that are wanted for each; None for all.
    """

    def __init__(self, num_queries: int, k: int | None) -> None:
        self._k = k
        self.limits: Doubles = np.full(num_queries, np.inf)
        """Shape (queries,): k rows have a smaller key for sure."""
        self._parts: list[CandidateRows] = []
        self._num_pending = self._num_kept = 0

    def near(self, members: Int64s, keys: Keys, margins: Doubles) -> tuple[Int64s, Int64s]:
        """Return the rows of a partition that may be among the nearest.

        Args:
            members: Shape (n,), numbers of the queries that are compared.
            keys: Shape (n, rows); infinite for rows that are not searched.
            margins: Shape (n,).

        Returns:
            Places in ``members`` and in the rows, both of shape (rows found,).
        """
        limits = self.limits[members]
        k = self._k
        if k is not None and keys.shape[1] > k and np.isinf(limits).any():
            limits = np.fmin(limits, np.partition(keys, k - 1, axis=1)[:, k - 1] + margins)
            self.limits[members] = limits
        bounds = (limits + margins).astype(keys.dtype)
        if len(members) == 1:
            slots = np.flatnonzero(~(keys[0] > bounds[0]))
            return np.zeros(len(slots), np.int64), slots
        at, slots = np.nonzero(~(keys > bounds[:, None]))
        return at, slots

    def add(self, rows: CandidateRows) -> None:
        """Take rows in."""
        if not len(rows.rows):
            return
        self._parts.append(rows)
        self._num_pending += len(rows.rows)
        if self._num_pending > max(_PENDING_ROWS, self._num_kept):
            self._rank()

    def _rank(self) -> None:
        every = CandidateRows.joined(self._parts)
        if self._k is not None:
            with np.errstate(invalid="ignore"):  # infinite ones of damaged or extreme vectors stay candidates
                lower, upper = every.keys - every.margins, every.keys + every.margins
            order = np.lexsort((upper, every.queries))
            queries = every.queries[order]
            ranks = np.arange(len(queries)) - np.searchsorted(queries, queries)
            last = order[ranks == self._k - 1]
            self.limits[every.queries[last]] = np.fmin(self.limits[every.queries[last]], upper[last])
            every = every.chosen(~(lower > self.limits[every.queries]))
        self._parts, self._num_kept, self._num_pending = [every], len(every.rows), 0

    def finish(self) -> CandidateRows | None:
        """Take out the rows that are left; None if there are none."""
        if not self._parts:
            return None
        self._rank()
        (rows,), self._parts, self._num_kept = self._parts, [], 0
        return rows
