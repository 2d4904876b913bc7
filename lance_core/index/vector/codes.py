"""Codes of vectors in an inverted file: the vectors themselves, or product- or scalar-quantized."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.format.vector_index import FLAT_COLUMN, PQ_COLUMN, SQ_COLUMN, SQ_LEVELS
from lance_core.index.vector.distances import DOT, computable, squared_norms
from lance_core.index.vector.top_rows import ExactSearch

if TYPE_CHECKING:
    from lance_core.index.vector.distances import Int64s, Vectors
    from lance_core.index.vector.top_rows import TopRows

Bytes: TypeAlias = npt.NDArray[np.uint8]
Block: TypeAlias = "npt.NDArray[Any]"
"""Codes of a partition, as they are searched."""


class Codes(Protocol):
    """Codes of vectors: they store the vectors of an index, and compare them with queries."""

    @property
    def field(self) -> pa.Field:
        """Column of the codes."""
        ...

    def block(self, values: Any) -> Block:
        """Return the codes of a whole partition, for `search`; `values` are the column's."""
        ...

    def chosen(self, block: Block, rows: Int64s) -> Block:
        """Return the codes of some rows of a block."""
        ...

    def search(
        self, queries: Vectors, numbers: Int64s, centroid: Vectors, block: Block, rows: Int64s, *, top: TopRows
    ) -> None:
        """Compare queries with the vectors of a partition.

        Args:
            queries: Shape (n, dimensions); with cosine of length one.
            numbers: Shape (n,), their numbers in ``top``.
            centroid: Centroid of the partition.
            block: Codes of its rows.
            rows: Numbers of its rows.
            top: Where the nearest rows are kept.
        """
        ...

    def encode(self, vectors: Vectors, centroids: Vectors) -> Block:
        """Return the codes of vectors, one row for each.

        Args:
            vectors: Shape (n, dimensions); with cosine of length one.
            centroids: Shape (n, dimensions), centroid of the partition of each.
        """
        ...

    def column(self, codes: Block) -> Any:
        """Return the column of a whole partition, from codes of `encode`."""
        ...

    def rows_of(self, values: Any) -> Block:
        """Return the codes of a whole partition as `encode` made them."""
        ...


def _fixed(values: Any) -> npt.NDArray[Any]:
    size = values.type.list_size
    return np.asarray(values.values.slice(values.offset * size, len(values) * size)).reshape(len(values), size)


def _listed(codes: Block, field: pa.Field) -> Any:
    return pa.FixedSizeListArray.from_arrays(
        pa.array(np.ascontiguousarray(codes).reshape(-1), field.type.value_type), field.type.list_size
    )


class FlatCodes:
    """The vectors themselves.

    Args:
        item: Type of their items.
        size: Dimensions.
        metric: Name of the metric.
    """

    def __init__(self, item: pa.DataType, size: int, metric: str) -> None:
        self.field = pa.field(FLAT_COLUMN, pa.list_(item, size), nullable=False)
        self._metric = metric

    def block(self, values: Any) -> Block:
        """Return the vectors."""
        return _fixed(values)

    def chosen(self, block: Block, rows: Int64s) -> Block:
        """Return some vectors."""
        return block[rows]

    def search(
        self, queries: Vectors, numbers: Int64s, centroid: Vectors, block: Block, rows: Int64s, *, top: TopRows
    ) -> None:
        """Compare queries with vectors."""
        del centroid
        ExactSearch(queries.astype(block.dtype, copy=False), self._metric, top, numbers).add(block, rows)

    def encode(self, vectors: Vectors, centroids: Vectors) -> Block:
        """Return the vectors."""
        del centroids
        return vectors

    def column(self, codes: Block) -> Any:
        """Return them as a column."""
        return _listed(codes, self.field)

    def rows_of(self, values: Any) -> Block:
        """Return the vectors."""
        return _fixed(values)


class ProductCodes:
    """Product quantization: each part of a vector is the nearest entry of a codebook.

    Args:
        codebook: Shape (parts, entries, dimensions of a part).
        metric: Name of the metric.
        is_transposed: Partitions are stored part after part.
    """

    def __init__(self, codebook: Vectors, metric: str, *, is_transposed: bool = True) -> None:
        self.codebook = codebook
        self._book = computable(codebook).astype(np.float64)
        self._norms = np.einsum("mjd,mjd->mj", self._book, self._book)
        self._metric = metric
        self._is_transposed = is_transposed
        self.num_parts, entries, self._part_size = codebook.shape
        self.num_bits = entries.bit_length() - 1
        self._num_bytes = self.num_parts * self.num_bits // 8
        self.field = pa.field(PQ_COLUMN, pa.list_(pa.uint8(), self._num_bytes))

    def block(self, values: Any) -> Block:
        """Return the numbers of entries, shape (parts, rows)."""
        stored = _fixed(values)
        stored = stored.reshape(self._num_bytes, len(stored)) if self._is_transposed else stored.T
        if self.num_bits == 8:
            return np.ascontiguousarray(stored)
        halves = np.empty((self.num_parts, stored.shape[1]), np.uint8)
        halves[0::2], halves[1::2] = stored & 15, stored >> 4
        return halves

    def chosen(self, block: Block, rows: Int64s) -> Block:
        """Return the numbers of some rows."""
        return block[:, rows]

    def search(
        self, queries: Vectors, numbers: Int64s, centroid: Vectors, block: Block, rows: Int64s, *, top: TopRows
    ) -> None:
        """Add up distances of parts, from one table for each query."""
        residuals = queries if self._metric == DOT else queries - centroid  # of half floats: rounded, as in pylance
        tables = self._tables(residuals.astype(np.float64))
        for number, table in zip(numbers.tolist(), tables, strict=True):
            totals = table[0].take(block[0])
            for part in range(1, self.num_parts):
                totals += table[part].take(block[part])
            distances = 1 - totals if self._metric == DOT else totals
            top.add_for(number, distances, rows)

    def _tables(self, queries: Vectors) -> npt.NDArray[np.float32]:
        """Return the products, or squared distances, of the parts of queries and all entries."""
        parts = queries.reshape(len(queries), self.num_parts, self._part_size)
        products = np.matmul(parts.transpose(1, 0, 2), self._book.transpose(0, 2, 1)).transpose(1, 0, 2)
        if self._metric == DOT:
            return products.astype(np.float32)
        squares = np.einsum("qmd,qmd->qm", parts, parts)
        return (squares[:, :, None] + self._norms[None] - 2 * products).astype(np.float32)

    def encode(self, vectors: Vectors, centroids: Vectors) -> Block:
        """Return the bytes of each vector, shape (n, bytes)."""
        residuals = computable(vectors) if self._metric == DOT else computable(vectors) - computable(centroids)
        parts = residuals.reshape(len(residuals), self.num_parts, self._part_size)
        numbers = np.empty((len(residuals), self.num_parts), np.uint8)
        for part in range(self.num_parts):
            book = self._book[part].astype(residuals.dtype)
            scores = parts[:, part] @ book.T
            scores -= 0.5 * squared_norms(book)[None]
            numbers[:, part] = scores.argmax(axis=1)
        return numbers if self.num_bits == 8 else numbers[:, 0::2] | numbers[:, 1::2] << 4

    def column(self, codes: Block) -> Any:
        """Return the bytes part after part, as a column."""
        return _listed(codes.T if self._is_transposed else codes, self.field)

    def rows_of(self, values: Any) -> Block:
        """Return the bytes of each vector, shape (n, bytes)."""
        stored = _fixed(values)
        return stored.reshape(self._num_bytes, len(stored)).T if self._is_transposed else stored


class ScalarCodes:
    """Scalar quantization: each item is one of 256 levels between two bounds.

    Args:
        size: Dimensions.
        start: Lower bound.
        end: Upper bound.
        metric: Name of the metric.
    """

    def __init__(self, size: int, start: float, end: float, metric: str) -> None:
        self.field = pa.field(SQ_COLUMN, pa.list_(pa.uint8(), size))
        self.start, self.end = start, end
        self._metric = metric
        self._step = (end - start) / SQ_LEVELS

    def block(self, values: Any) -> Block:
        """Return the levels."""
        return _fixed(values)

    def chosen(self, block: Block, rows: Int64s) -> Block:
        """Return the levels of some rows."""
        return block[rows]

    def search(
        self, queries: Vectors, numbers: Int64s, centroid: Vectors, block: Block, rows: Int64s, *, top: TopRows
    ) -> None:
        """Compare levels; with dot the query is not quantized."""
        levels = block.astype(np.float32)
        if self._metric == DOT:
            factors = queries.astype(np.float32)
            offsets = queries.astype(np.float64).sum(axis=1) * self.start
            distances = 1 - (offsets[None] + self._step * (levels @ factors.T).astype(np.float64))
        else:
            factors = self.encode(queries, centroid).astype(np.float32)
            products = (levels @ factors.T).astype(np.float64)
            distances = squared_norms(levels)[:, None] + squared_norms(factors)[None] - 2 * products
            distances = np.maximum(distances, 0) * self._step**2
        for number, column in zip(numbers.tolist(), distances.T, strict=True):
            top.add_for(number, column, rows)

    def encode(self, vectors: Vectors, centroids: Vectors) -> Block:
        """Return the levels."""
        del centroids
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = (vectors.astype(np.float64) - self.start) * SQ_LEVELS / (self.end - self.start)
        return np.clip(np.nan_to_num(scaled), 0, SQ_LEVELS).astype(np.uint8)

    def column(self, codes: Block) -> Any:
        """Return the levels as a column."""
        return _listed(codes, self.field)

    def rows_of(self, values: Any) -> Block:
        """Return the levels."""
        return _fixed(values)
