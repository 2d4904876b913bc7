"""RaBitQ codes of vectors, and the distances that they stand for.

A distance is estimated from the product of the rotated query and the code of a row. pylance rounds what the signs add
to it: sums of four items are looked up in a table of 256 levels. Only the last rows of a partition, fewer than 32, are
not rounded. The same is done here, so that both libraries show the same distances; but only for the few rows that may
be among the nearest by products of matrices, which are not rounded. pylance finds these rows by their signs alone, and
so misses some of the nearest at times.
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
from lance_core.index.vector.comparisons import OpenedPartition, joined
from lance_core.index.vector.distances import DOT, products, squared_norms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.format.index.rabit import RabitLayout
    from lance_core.index.vector.candidates import CandidateRows
    from lance_core.index.vector.codes import Block
    from lance_core.index.vector.comparisons import Comparison, Keys, RunRows
    from lance_core.index.vector.distances import Doubles, Int64s, Vectors

Bytes: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float32]

_LEVELS = 255
_BLOCK_ITEMS = 1 << 16
"""Items of rows that get their distances at a time, for the processor's cache."""


@mutable(kw_only=True)
class RabitPartition(OpenedPartition):
    """RaBitQ codes of a partition, ready to be compared.

    Attributes:
        codes: All bits of each item, the sign above the others, shape (rows, size).
        terms: Shape (rows,), what is added to the estimate of each row.
        scales: Shape (rows,), what the product of each row and the query is multiplied by.
        num_rounded: Rows, the first ones, whose products with the signs are rounded.
        largest: The largest scale and the largest term, without their signs.
    """

    scales: Floats
    num_rounded: int
    largest: tuple[float, float]

    def chosen(self, rows: Int64s) -> RabitPartition:
        """Return some rows, by their ascending places."""
        return replace(
            self,
            codes=self.codes.take(rows, axis=0),
            terms=self.terms[rows],
            scales=self.scales[rows],
            num_rounded=int(np.searchsorted(rows, self.num_rounded)),
        )

    @property
    def num_bytes(self) -> int:
        """Bytes in memory."""
        return sum(array.nbytes for array in (self.codes, self.terms, self.scales))


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
        """Return all bits and the factors of each row."""
        layout = self._layout
        num_extra = layout.num_extra
        signs = decode_signs(_matrix(values, SIGN_COLUMN), is_packed=layout.is_packed)
        codes: npt.NDArray[Any] = np.unpackbits(np.ascontiguousarray(signs.T), axis=1, bitorder="little")
        if num_extra:
            codes = codes.astype(np.uint8 if num_extra < 8 else np.uint16, copy=False)
            codes <<= num_extra
            codes |= decode_extra(_matrix(values, EXTRA_COLUMN), num_extra, layout.size)
        terms, scales = (_numbers(values, name) for name in (EXTRA_FACTORS if num_extra else SIGN_FACTORS))
        return RabitPartition(
            codes=codes,
            terms=terms,
            scales=scales,
            num_rounded=len(values) // BLOCK_ROWS * BLOCK_ROWS,
            largest=(_largest(scales), _largest(terms)),
            centroid=centroid,
        )

    def compared(self, queries: Vectors) -> Comparison:
        """Return a comparison with estimated distances."""
        with np.errstate(over="ignore", invalid="ignore"):
            rotated = self._rotated(queries.astype(np.float32))
            return RabitComparison(queries, rotated, self._layout.num_extra, self._metric)

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


class RabitComparison:
    """Compares codes of RaBitQ.

    The product of a query q and a row is that of q with its code less ``2^bits - 1/2``, where bits is the number of
    extra bits. Scaled, and with a term of the row, it is the squared distance to the vector less that of q to the
    centroid, or what belongs to the residual in the product of vectors.

    Args:
        queries: Shape (n, dimensions).
        rotated: Shape (n, size), the same ones rotated.
        num_extra: Extra bits of an item.
        metric: Name of the metric.
    """

    def __init__(self, queries: Vectors, rotated: Floats, num_extra: int, metric: str) -> None:
        self._queries = queries.astype(np.float64)
        self._rotated = rotated
        self._num_extra = num_extra
        self._metric = metric
        self._offsets = ((1 << num_extra) - 0.5) * rotated.sum(axis=1, dtype=np.float64)
        self._tables, self._starts, self._widths = _levels(rotated)
        # A product may be off by half a level for each four signs, and by the rounding errors of sums of its items.
        size = rotated.shape[1]
        self._error = (size + 32) * float(np.finfo(np.float32).eps)
        lengths = np.sqrt(squared_norms(rotated.astype(np.float64)) * size) * (2 << num_extra)
        self._errors = (1 << num_extra) * self._widths * size / 8 + 2 * self._error * lengths

    def keys(self, members: Int64s, opened: Sequence[OpenedPartition], limits: Doubles, /) -> tuple[Keys, Doubles]:
        """Return distances without the rounding of signs, and how far they may be off."""
        del limits
        partitions = cast("Sequence[RabitPartition]", opened)
        factors, offsets = self._rotated[members], self._offsets[members, None].astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            weights, starts = self._of_centroids(members, partitions)
            parts: list[Keys] = []
            for part, of_part, start in zip(partitions, weights.T.astype(np.float32), starts.T, strict=True):
                scores = np.ascontiguousarray(products(part.codes, factors).T)
                scores -= offsets
                scores *= part.scales
                scores += part.terms if self._metric != DOT else np.multiply.outer(of_part, part.terms)
                scores += start[:, None].astype(np.float32)
                parts.append(scores)
            scale, term = np.max([part.largest for part in partitions], axis=0)
            margins = scale * self._errors[members]
            margins += self._error * (np.abs(weights).max(axis=1) * term + np.abs(starts).max(axis=1))
        return joined(parts), margins

    def is_by_query(self, mean_queries: float, /) -> bool:
        """Return whether partitions have one query each."""
        return mean_queries <= 1

    def candidates(self, hits: CandidateRows, opened: Sequence[OpenedPartition], rows: RunRows, /) -> CandidateRows:
        """Return the rows with the distances that pylance shows as keys."""
        partitions = cast("Sequence[RabitPartition]", opened)
        chosen = [
            (
                part.codes.take(positions, axis=0),
                part.scales[positions],
                part.terms[positions],
                positions < part.num_rounded,
            )
            for part, positions in ((partitions[number], positions) for number, positions in rows.of_each())
        ]
        codes, scales, terms, is_rounded = map(np.concatenate, zip(*chosen, strict=True))
        queries = hits.queries
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            totals = np.empty(len(codes))
            step = max(1, _BLOCK_ITEMS // codes.shape[1])
            for start in range(0, len(codes), step):
                part = slice(start, start + step)
                totals[part] = self._products(queries[part], codes[part], is_rounded[part])
            totals *= scales
            members, at = np.unique(queries, return_inverse=True)
            weights, starts = self._of_centroids(members, partitions)
            totals += weights[at, rows.owners] * terms
            totals += starts[at, rows.owners]
        return replace(hits, keys=totals, margins=np.zeros(len(totals)))

    def distances(self, candidates: CandidateRows) -> Doubles:
        """Return the keys."""
        return candidates.keys

    def _products(self, queries: Int64s, codes: npt.NDArray[Any], is_rounded: npt.NDArray[np.bool_]) -> Doubles:
        """Return the product of each row and the query beside it, rounded as pylance does."""
        rotated = self._rotated[queries].astype(np.float64)
        signs = codes >> self._num_extra
        exact = np.einsum("ij,ij->i", signs, rotated)
        packed = np.packbits(signs.astype(np.bool_), axis=1, bitorder="little")
        num_bytes = packed.shape[1]
        levels = self._tables[queries[:, None], np.arange(num_bytes), packed].sum(axis=1, dtype=np.float64)
        rounded = levels * self._widths[queries] + 2 * num_bytes * self._starts[queries]
        totals = np.einsum("ij,ij->i", codes, rotated) - self._offsets[queries]
        totals += np.where(is_rounded, rounded - exact, 0) * (1 << self._num_extra)
        return totals

    def _of_centroids(self, members: Int64s, partitions: Sequence[RabitPartition]) -> tuple[Doubles, Doubles]:
        """Return what terms of rows are multiplied by and what is added to them, both of shape (n, partitions)."""
        queries = self._queries[members]
        centroids = np.stack([part.centroid for part in partitions]).astype(np.float64)
        if self._metric != DOT:
            differences = queries[:, None] - centroids
            squares = np.einsum("ijk,ijk->ij", differences, differences)
            return np.ones_like(squares), squares
        # The term of a row is of the centroid. It counts as far as the query points to the centroid.
        near = queries @ centroids.T
        weights = np.nan_to_num(near / squared_norms(centroids), posinf=0, neginf=0)
        return weights, 1 - near - weights


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


def _numbers(values: Any, name: str) -> Floats:
    return np.asarray(values.field(name))


def _largest(numbers: Floats) -> float:
    """Return the largest of some numbers without their signs, leaving out those that are NaN."""
    return float(np.fmax.reduce(np.abs(numbers), initial=0))


def _matrix(values: Any, name: str) -> Bytes:
    column = values.field(name)
    width = column.type.list_size
    return np.asarray(column.values.slice(column.offset * width, len(column) * width)).reshape(len(column), width)
