"""RaBitQ codes of vectors, and the distances that they stand for.

A distance is estimated from the product of the rotated query and the code of a row. pylance rounds what the signs add
to it: sums of four items are looked up in a table of 256 levels. Only the last rows of a partition, fewer than 32, are
not rounded. The same is done here, so that both libraries show the same distances. pylance leaves out rows whose
estimate by the sign alone is bad, and so misses some of the nearest at times; here all rows are compared.
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
    EXTRA_COLUMN,
    EXTRA_FACTORS,
    SIGN_COLUMN,
    SIGN_FACTORS,
    decode_extra,
    decode_signs,
)
from lance_core.index.vector.comparisons import CodeComparison, OpenedPartition, joined
from lance_core.index.vector.distances import DOT, products, squared_norms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.format.index.rabit import RabitLayout
    from lance_core.index.vector.codes import Block
    from lance_core.index.vector.comparisons import Comparison
    from lance_core.index.vector.distances import Doubles, Int64s, Vectors

Bytes: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float32]

_LEVELS = 255


@mutable(kw_only=True)
class RabitPartition(OpenedPartition):
    """RaBitQ codes of a partition, ready to be compared.

    Attributes:
        codes: Signs, eight in a byte, shape (bytes, rows).
        num_rounded: Rows, the first ones, whose products with the signs are rounded.
        terms: Shape (rows,), what is added to the estimate of each row.
        scales: Shape (rows,), what the product of each row and the query is multiplied by.
        extra: Extra bits, shape (rows, size); of no items if there are none.
    """

    num_rounded: int
    scales: Doubles
    extra: Bytes

    def chosen(self, rows: Int64s) -> RabitPartition:
        """Return some rows, by their ascending places."""
        return replace(
            self,
            codes=self.codes.take(rows, axis=1),
            terms=self.terms[rows],
            num_rounded=int(np.searchsorted(rows, self.num_rounded)),
            scales=self.scales[rows],
            extra=self.extra[rows],
        )

    @property
    def num_bytes(self) -> int:
        """Bytes in memory."""
        return sum(array.nbytes for array in (self.codes, self.terms, self.scales, self.extra))


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
        if layout.num_extra:
            extra = decode_extra(_matrix(values, EXTRA_COLUMN), layout.num_extra, layout.size)
        terms, scales = (
            np.asarray(values.field(name)).astype(np.float64)
            for name in (EXTRA_FACTORS if layout.num_extra else SIGN_FACTORS)
        )
        return RabitPartition(
            codes=signs,
            row_axis=1,
            terms=terms,
            num_rounded=len(values) // BLOCK_ROWS * BLOCK_ROWS,
            scales=scales,
            extra=extra,
            centroid=centroid,
        )

    def compared(self, queries: Vectors) -> Comparison:
        """Return a comparison with estimated distances."""
        with np.errstate(over="ignore", invalid="ignore"):
            rotated = self._rotated(queries.astype(np.float32))
            return CodeComparison(_RabitEstimate(queries, rotated, self._layout.num_extra, self._metric))

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

    def __call__(self, members: Int64s, opened: Sequence[OpenedPartition]) -> Doubles:
        """Return the estimated distances, shape (n, rows)."""
        partitions = cast("Sequence[RabitPartition]", opened)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            totals = self._sign_products(members, partitions)
            totals *= self._factor
            if partitions[0].extra.shape[1]:
                rotated = self._rotated[members]
                totals += joined([products(part.extra, rotated).T for part in partitions])
            totals -= (self._factor - 0.5) * self._totals[members, None]
            totals *= np.concatenate([part.scales for part in partitions])
            terms, lengths = (
                np.concatenate([part.terms for part in partitions]),
                [len(part.terms) for part in partitions],
            )
            queries = self._queries[members]
            centroids = np.stack([part.centroid for part in partitions]).astype(np.float64)
            if self._metric != DOT:
                squares = np.stack([squared_norms(queries - centroid) for centroid in centroids], axis=1)
                return totals + terms + np.repeat(squares, lengths, axis=1)
            # The term of a row is of the centroid. It counts as far as the query points to the centroid.
            near = queries @ centroids.T
            share = np.nan_to_num(near / squared_norms(centroids), posinf=0, neginf=0)
            return totals + np.repeat(share, lengths, axis=1) * (terms - 1) + np.repeat(1 - near, lengths, axis=1)

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


def _matrix(values: Any, name: str) -> Bytes:
    column = values.field(name)
    width = column.type.list_size
    return np.asarray(column.values.slice(column.offset * width, len(column) * width)).reshape(len(column), width)
