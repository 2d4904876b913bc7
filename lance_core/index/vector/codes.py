"""Codes of vectors in an inverted file: the vectors themselves, or product- or scalar-quantized."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.format.index.vector_index import FLAT_COLUMN, PQ_COLUMN, SQ_COLUMN, SQ_LEVELS
from lance_core.index.vector.comparisons import (
    FlatComparison,
    OpenedPartition,
    compare_bits,
    compare_levels,
    flat_terms,
)
from lance_core.index.vector.distances import COSINE, DOT, HAMMING, computable, squared_norms
from lance_core.index.vector.entries import EntryComparison, squares_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.index.vector.comparisons import Comparison
    from lance_core.index.vector.distances import Vectors

Bytes: TypeAlias = npt.NDArray[np.uint8]
Block: TypeAlias = "npt.NDArray[Any]"
"""Codes of vectors, one row for each."""


class Codes(Protocol):
    """Codes of vectors: they store the vectors of an index, and compare them with queries."""

    @property
    def field(self) -> pa.Field:
        """Column of the codes; a struct stands for several columns."""
        ...

    @property
    def is_exact(self) -> bool:
        """True if distances are those of the vectors."""
        ...

    def opened(self, values: Any, centroid: Vectors) -> OpenedPartition:
        """Return a whole partition, ready to be compared; ``values`` are the column's."""
        ...

    def compared(self, queries: Vectors) -> Comparison:
        """Return a comparison with queries, shape (n, dimensions); with cosine of length one."""
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


def columns_of(field: pa.Field) -> list[pa.Field]:
    """Return the columns of codes."""
    return list(field.type) if pa.types.is_struct(field.type) else [field]


def joined_columns(field: pa.Field, columns: Sequence[Any]) -> Any:
    """Return the columns of codes as one array."""
    if pa.types.is_struct(field.type):
        return pa.StructArray.from_arrays(columns, fields=list(field.type))
    return columns[0]


def bytes_of_row(field: pa.Field) -> int:
    """Return the bytes of the codes of one row."""
    kinds = [column.type for column in columns_of(field)]
    return sum(
        kind.list_size * kind.value_type.bit_width // 8 if pa.types.is_fixed_size_list(kind) else kind.bit_width // 8
        for kind in kinds
    )


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

    @property
    def is_exact(self) -> bool:
        """True but for cosine: vectors of length one are stored then, which are rounded."""
        return self._metric != COSINE

    def opened(self, values: Any, centroid: Vectors) -> OpenedPartition:
        """Return the vectors."""
        del centroid
        vectors = _fixed(values)
        return OpenedPartition(codes=vectors) if self._metric == HAMMING else flat_terms(vectors, self._metric)

    def compared(self, queries: Vectors) -> Comparison:
        """Return a comparison of vectors, or bits."""
        if self._metric == HAMMING:
            return compare_bits(queries)
        return FlatComparison(queries.astype(self.field.type.value_type.to_pandas_dtype(), copy=False), self._metric)

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
        self._book = computable(codebook)
        self._squares = squares_of(self._book)
        self._metric = metric
        self._is_transposed = is_transposed
        self.num_parts, entries, self._part_size = codebook.shape
        self.num_bits = entries.bit_length() - 1
        self._num_bytes = self.num_parts * self.num_bits // 8
        self.field = pa.field(PQ_COLUMN, pa.list_(pa.uint8(), self._num_bytes))

    @property
    def is_exact(self) -> bool:
        """False: entries stand for vectors."""
        return False

    def opened(self, values: Any, centroid: Vectors) -> OpenedPartition:
        """Return the numbers of entries as they are stored, shape (bytes, rows)."""
        stored = _fixed(values)
        stored = stored.reshape(self._num_bytes, len(stored)) if self._is_transposed else np.ascontiguousarray(stored.T)
        return OpenedPartition(codes=stored, row_axis=1, centroid=centroid)

    def compared(self, queries: Vectors) -> Comparison:
        """Return a comparison of entries."""
        return EntryComparison(queries, self._book, self._squares, self._metric)

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

    @property
    def is_exact(self) -> bool:
        """False: levels stand for items."""
        return False

    def opened(self, values: Any, centroid: Vectors) -> OpenedPartition:
        """Return the levels."""
        del centroid
        levels = _fixed(values)
        return OpenedPartition(codes=levels, terms=squared_norms(levels.astype(np.float32)))

    def compared(self, queries: Vectors) -> Comparison:
        """Return a comparison of levels; with dot the queries are not quantized."""
        return compare_levels(queries, self.encode(queries, queries), self._metric, self.start, self._step)

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
