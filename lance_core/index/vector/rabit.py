"""RaBitQ codes of vectors, and the distances that they stand for.

A distance is estimated from the product of the rotated query and the code of a row. pylance rounds what the signs add
to it: sums of four items are looked up in a table of 256 levels. Only the last rows of a partition, fewer than 32, are
not rounded. The same is done here, so that both libraries show the same distances.

Few rows need all their bits: an estimate by the sign alone, with its error, shows that most are too far. pylance drops
those which are by 1.9 standard deviations of the error, and so misses some of the nearest at times; here it takes 4.75.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Never, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.frozen import mutable
from lance_core.errors import UnsupportedError
from lance_core.format.index.rabit import (
    BLOCK_ROWS,
    ERROR_FACTOR,
    EXTRA_COLUMN,
    EXTRA_FACTORS,
    SIGN_COLUMN,
    SIGN_FACTORS,
    decode_extra,
    decode_signs,
)
from lance_core.index.vector.comparisons import CodeComparison, OpenedPartition, RunRows, joined
from lance_core.index.vector.distances import DOT, products, squared_norms
from lance_core.index.vector.rounded_tables import RoundedTables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.format.index.rabit import RabitLayout
    from lance_core.index.vector.codes import Block
    from lance_core.index.vector.comparisons import Comparison
    from lance_core.index.vector.distances import Doubles, Int64s, Vectors

Bytes: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float32]

_LEVELS = 255
_SURE = 2.5
"""Error factors by which a row has to be too far by its signs: one row of a million errs so much."""
_EXACT_ROWS = 1 << 9
"""Rows up to which all bits take less time than the signs and what follows from them."""
_MOST_ALONE = 12
"""Queries of a partition up to which each is compared by itself; more are compared together, by all bits."""


@mutable(kw_only=True)
class RabitPartition(OpenedPartition):
    """RaBitQ codes of a partition, ready to be compared.

    Attributes:
        codes: Signs, eight in a byte, shape (bytes, rows).
        num_rounded: Rows, the first ones, whose products with the signs are rounded.
        terms: Shape (rows,), what is added to the estimate of each row.
        scales: Shape (rows,), what the product of each row and the query is multiplied by.
        extra: Extra bits, shape (rows, size); of no items if there are none.
        sign_factors: Shape (3, rows), for the estimate by the sign alone: 1, its term and its error, each divided by
            its scale. NaN if this is not negative.
    """

    num_rounded: int
    scales: Doubles
    extra: Bytes
    sign_factors: Doubles

    def chosen(self, rows: Int64s) -> RabitPartition:
        """Return some rows, by their ascending places."""
        return replace(
            self,
            codes=self.codes.take(rows, axis=1),
            terms=self.terms[rows],
            num_rounded=int(np.searchsorted(rows, self.num_rounded)),
            scales=self.scales[rows],
            extra=self.extra[rows],
            sign_factors=self.sign_factors.take(rows, axis=1),
        )

    @property
    def num_bytes(self) -> int:
        """Bytes in memory."""
        return sum(array.nbytes for array in (self.codes, self.terms, self.scales, self.extra, self.sign_factors))


class RabitCodes:
    """RaBitQ: the sign of each item of the rotated residual, and more bits of it.

    Args:
        layout: How they are stored.
        matrix: Shape (size, size), the rotation if it is no fast one.
        metric: Name of the metric.
    """

    def __init__(self, layout: RabitLayout, matrix: Vectors | None, metric: str) -> None:
        self.field = pa.field("codes", layout.columns)
        self._layout = layout
        self._matrix = matrix
        self._metric = metric

    @property
    def is_exact(self) -> bool:
        """False: some bits stand for each item."""
        return False

    def opened(self, values: Any, centroid: Vectors) -> OpenedPartition:
        """Return the signs, the extra bits and the factors of each row."""
        layout = self._layout
        signs = decode_signs(_matrix(values, SIGN_COLUMN), is_packed=layout.is_packed)
        extra = np.empty((len(values), 0), np.uint8)
        sign_terms, sign_scales = factors = [_numbers(values, name) for name in SIGN_FACTORS]
        errors = np.zeros(len(values))
        if layout.num_extra:
            extra = decode_extra(_matrix(values, EXTRA_COLUMN), layout.num_extra, layout.size)
            factors, errors = [_numbers(values, name) for name in EXTRA_FACTORS], _numbers(values, ERROR_FACTOR)
        terms, scales = factors
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            sign_factors = np.stack([np.ones(len(values)), sign_terms, errors])
            sign_factors /= np.where(sign_scales < 0, sign_scales, np.nan)
        return RabitPartition(
            codes=signs,
            row_axis=1,
            terms=terms,
            num_rounded=len(values) // BLOCK_ROWS * BLOCK_ROWS,
            scales=scales,
            extra=extra,
            sign_factors=sign_factors,
            centroid=centroid,
        )

    def compared(self, queries: Vectors) -> Comparison:
        """Return a comparison with estimated distances."""
        with np.errstate(over="ignore", invalid="ignore"):
            rotated = self._rotated(queries.astype(np.float32))
            estimate = _RabitEstimate(queries, rotated, self._layout.num_extra, self._metric)
        return CodeComparison(estimate, most_alone=_MOST_ALONE)

    def _rotated(self, vectors: Floats) -> Floats:
        flips = self._layout.flips
        return vectors @ np.asarray(self._matrix, np.float32).T if flips is None else rotated_fast(vectors, flips)

    def encode(self, vectors: Vectors, centroids: Vectors) -> Block:
        """Refuse: lance_core does not write these codes."""
        del vectors, centroids
        self._refuse()

    def column(self, codes: Block) -> Any:
        """Refuse: lance_core does not write these codes."""
        del codes
        self._refuse()

    def rows_of(self, values: Any) -> Block:
        """Refuse: lance_core does not write these codes."""
        del values
        self._refuse()

    @staticmethod
    def _refuse() -> Never:
        raise UnsupportedError("lance_core searches IVF_RQ indices, but does not write them; build one with pylance")


class _RabitEstimate:
    """Estimates the distances of rows to queries.

    The product of a query q and a row is that of q with ``2^bits sign + extra - (2^bits - 1/2)``, where bits is the
    number of extra bits. Scaled, and with a term of the row, it is the squared distance to the vector less that of q
    to the centroid, or what belongs to the residual in the product of vectors.

    Args:
        queries: Shape (n, dimensions).
        rotated: Shape (n, size), the same ones rotated.
        num_extra: Extra bits of an item.
        metric: Name of the metric.
    """

    def __init__(self, queries: Vectors, rotated: Floats, num_extra: int, metric: str) -> None:
        self._queries = queries.astype(np.float64)
        self._rotated = rotated
        self._factor = 1 << num_extra
        self._totals = rotated.sum(axis=1, dtype=np.float64)
        self._metric = metric
        self._tables, self._starts, self._widths = _levels(rotated)
        self._rounded: dict[int, RoundedTables] = {}

    def __call__(self, members: Int64s, opened: Sequence[OpenedPartition], limits: Doubles) -> Doubles:
        """Return the estimated distances, shape (n, rows); those above the limits of the queries may be infinite."""
        partitions = cast("Sequence[RabitPartition]", opened)
        lengths = [len(part.terms) for part in partitions]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if len(members) > 1 or not np.isfinite(limits[0]) or sum(lengths) <= _EXACT_ROWS:
                return self._estimates(members, partitions)
            near = self._near(int(members[0]), partitions, float(limits[0]))
            result = np.full((1, sum(lengths)), np.inf)
            if len(near):
                chosen = [partitions[number].chosen(rows) for number, rows in RunRows.at(near, lengths).of_each()]
                result[:, near] = self._estimates(members, chosen)
            return result

    def _estimates(self, members: Int64s, partitions: Sequence[RabitPartition]) -> Doubles:
        """Return the distances by all bits, shape (n, rows)."""
        totals = self._sign_products(members, partitions)
        totals *= self._factor
        if partitions[0].extra.shape[1]:
            rotated = self._rotated[members]
            totals += joined([products(part.extra, rotated).T for part in partitions])
        totals -= (self._factor - 0.5) * self._totals[members, None]
        totals *= np.concatenate([part.scales for part in partitions])
        weights, starts, _ = self._of_centroids(members, partitions)
        lengths = [len(part.terms) for part in partitions]
        totals += np.repeat(weights, lengths, axis=1) * np.concatenate([part.terms for part in partitions])
        totals += np.repeat(starts, lengths, axis=1)
        return totals

    def _near(self, query: int, partitions: Sequence[RabitPartition], limit: float) -> Int64s:
        """Return the places of rows whose distance to a query may be within the limit, by their signs.

        A row is near if its product with the signs, a sum of levels, reaches a bound. This is a sum of the factors of
        the row, in shares that its partition has.
        """
        codes, width = [part.codes for part in partitions], self._widths[query]
        ends = np.cumsum([stored.shape[1] for stored in codes])
        if not width:
            return np.arange(ends[-1])
        if (rounded := self._rounded.get(query)) is None:
            rounded = self._rounded[query] = RoundedTables(-self._tables[query : query + 1])
        (weights,), (starts,), (distances,) = self._of_centroids(np.array([query]), partitions)
        shares = np.stack([starts - limit, weights, -_SURE * distances], axis=1) / width
        bounds = np.empty(ends[-1])
        for part, of_part, bound in zip(partitions, shares, np.split(bounds, ends[:-1]), strict=True):
            np.dot(of_part, part.sign_factors, out=bound)
        # Sums of four items are off by half a level.
        num_bytes = len(codes[0])
        bounds += (2 * num_bytes * self._starts[query] - 0.5 * self._totals[query]) / width + num_bytes
        return rounded.near(codes, bounds)

    def _of_centroids(self, members: Int64s, partitions: Sequence[RabitPartition]) -> tuple[Doubles, Doubles, Doubles]:
        """Return what terms of rows are multiplied by, what is added to them, and the distances of the centroids.

        All have shape (n, partitions).
        """
        queries = self._queries[members]
        centroids = np.stack([part.centroid for part in partitions]).astype(np.float64)
        differences = queries[:, None] - centroids
        squares = np.einsum("ijk,ijk->ij", differences, differences)
        if self._metric != DOT:
            return np.ones_like(squares), squares, np.sqrt(squares)
        # The term of a row is of the centroid. It counts as far as the query points to the centroid.
        near = queries @ centroids.T
        weights = np.nan_to_num(near / squared_norms(centroids), posinf=0, neginf=0)
        return weights, 1 - near - weights, np.sqrt(squares)

    def _sign_products(self, members: Int64s, partitions: Sequence[RabitPartition]) -> Doubles:
        """Return the sum of the items of queries where the sign of a row is positive, rounded as pylance does."""
        codes = np.concatenate([part.codes for part in partitions], axis=1)
        num_bytes, num_rows = codes.shape
        levels = np.zeros((len(members), num_rows), np.float32)  # whole numbers far below 2^24 are exact
        for number in range(num_bytes):
            levels += self._tables[members, number].take(codes[number], axis=1)
        totals = levels * self._widths[members, None] + 2 * num_bytes * self._starts[members, None]
        ends = np.cumsum([part.codes.shape[1] for part in partitions]).tolist()
        exact = np.concatenate(
            [
                np.arange(end - part.codes.shape[1] + part.num_rounded, end)
                for part, end in zip(partitions, ends, strict=True)
            ]
        )
        if len(exact):
            signs = np.unpackbits(codes[:, exact], axis=0, bitorder="little", count=8 * num_bytes)
            totals[:, exact] = self._rotated[members].astype(np.float64) @ signs.reshape(8 * num_bytes, -1)
        return totals


def _levels(rotated: Floats) -> tuple[Floats, Doubles, Doubles]:
    """Return for each byte of signs the sum of its items in levels, and the start and the width of a level.

    Four items are rounded at a time. Levels have shape (n, bytes, 256), the others (n,).
    """
    count = len(rotated)
    fours = np.zeros((count, rotated.shape[1] // 4, 1), np.float32)
    for number in (3, 2, 1, 0):  # in the order of pylance, whose rounding errors decide about a sum between two levels
        fours = np.stack([fours, fours + rotated[:, number::4, None]], axis=3).reshape(count, -1, 2 * fours.shape[2])
    flat = fours.reshape(count, -1)
    starts, spans = flat.min(axis=1), np.ptp(flat, axis=1)
    rates = np.divide(np.float32(_LEVELS), spans, out=np.zeros_like(spans), where=spans > 0)
    levels = np.rint((fours - starts[:, None, None]) * rates[:, None, None])
    tables = levels[:, 0::2, None, :] + levels[:, 1::2, :, None]  # the first four items are the lower half of a byte
    return tables.reshape(count, -1, 256), starts.astype(np.float64), (spans / np.float32(_LEVELS)).astype(np.float64)


def rotated_fast(vectors: Floats, flips: npt.NDArray[np.bool_]) -> Floats:
    """Return rotated vectors: in each round some signs are turned, and all items are mixed.

    Where the number of items is no power of two, the first ones are mixed in even rounds and the last ones in odd
    rounds, as many as the largest power of two; then sums and differences of both halves of the vector follow.

    Args:
        vectors: Shape (n, size).
        flips: Shape (rounds, size).
    """
    size = vectors.shape[1]
    most = 1 << (size.bit_length() - 1)
    for number, flip in enumerate(flips):
        vectors = np.where(flip, -vectors, vectors)
        if most == size:
            vectors = _mixed(vectors)
            continue
        part = slice(size - most, size) if number % 2 else slice(0, most)
        vectors[:, part] = _mixed(vectors[:, part])
        left, right = np.hsplit(vectors, 2)
        vectors = np.concatenate([left + right, left - right], axis=1)
    return vectors if most == size else vectors * np.float32(0.5 ** (len(flips) / 2))


def _mixed(vectors: Floats) -> Floats:
    """Return the Walsh-Hadamard transform of vectors whose size is a power of two, of the same length."""
    count, size = vectors.shape
    width = 1
    while width < size:
        pairs = vectors.reshape(count, -1, 2, width)
        vectors = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        width *= 2
    return vectors.reshape(count, size) * np.float32(1 / np.sqrt(size))


def _numbers(values: Any, name: str) -> Doubles:
    return np.asarray(values.field(name)).astype(np.float64)


def _matrix(values: Any, name: str) -> Bytes:
    column = values.field(name)
    width = column.type.list_size
    return np.asarray(column.values.slice(column.offset * width, len(column) * width)).reshape(len(column), width)
