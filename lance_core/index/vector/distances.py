"""Distances between vectors, as pylance shows them.

L2 is the squared distance, dot is ``1 - q.v``, cosine is ``1 - cos``, hamming counts the bits that differ. For floats
there is a fast way, which multiplies matrices, and an exact one for the few vectors that may be among the nearest.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.errors import InvalidInputError

Vectors: TypeAlias = npt.NDArray[Any]
"""Shape (n, dimensions): float16, float32, float64 or uint8."""
Doubles: TypeAlias = npt.NDArray[np.float64]
Int64s: TypeAlias = npt.NDArray[np.int64]

L2, COSINE, DOT, HAMMING = "l2", "cosine", "dot", "hamming"
_METRICS = {"l2": L2, "euclidean": L2, "cosine": COSINE, "dot": DOT, "hamming": HAMMING}
_FLOATS = (pa.float16(), pa.float32(), pa.float64())
_PAIR_BYTES = 1 << 17
"""Bytes of vectors in double precision that are compared at a time: arrays of 1 MB get new pages of memory each time,
which took ten times as long as the work on them."""
_ONE_THREAD_PRODUCT, _ONE_THREAD_VECTOR = (1 << 18) - 1, 9000
"""Multiplications of a product of matrices, or of a matrix and a vector, up to which OpenBLAS takes one thread."""
_WIDENED_ITEMS, _WIDENED_BYTES = 1 << 16, 1 << 17
"""Half floats, and bytes, that become float32 at a time, for the processor's cache."""
_HALF_MAGNITUDE, _HALF_INFINITY = np.int16(0x7FFF), 0x7C00
_FLOAT_BITS = np.int32(-0x70002000)
"""Sign, exponent and fraction of a half float that was moved 13 bits up, without what its sign fills between them."""
_FEWEST_ROWS = 8
_MAX_UNTHREADED = 1 << 28
"""Multiplications from which on threads are worth their waits, if one thread would take less than 8 rows at a time."""


def metric_named(name: str) -> str:
    """Return a metric by its name, in upper or lower case.

    Raises:
        InvalidInputError: There is no such metric.
    """
    metric = _METRICS.get(str(name).lower())
    if metric is None:
        raise InvalidInputError(f"metric {name!r} is not one of {', '.join(_METRICS)}")
    return metric


def default_metric(item: pa.DataType) -> str:
    """Return the metric of a search that names none, by the type of the vectors' items."""
    return HAMMING if item == pa.uint8() else L2


def check_metric(metric: str, item: pa.DataType) -> None:
    """Check that vectors of a type have distances by a metric.

    Raises:
        InvalidInputError: They do not.
    """
    fitting = (HAMMING,) if item == pa.uint8() else (L2, COSINE, DOT)
    if metric not in fitting:
        raise InvalidInputError(f"vectors of {item} have distances by {', '.join(fitting)}, not by {metric}")


def is_vector(kind: pa.DataType) -> bool:
    """Return whether values of a type are vectors that can be searched."""
    return pa.types.is_fixed_size_list(kind) and (kind.value_type in _FLOATS or kind.value_type == pa.uint8())


def is_multivector(kind: pa.DataType) -> bool:
    """Return whether values of a type are lists of vectors of floats."""
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return is_list and is_vector(kind.value_type) and kind.value_type.value_type in _FLOATS


def vectors_of(values: Any, size: int) -> Vectors:
    """Return vectors as a matrix, without copying.

    Args:
        values: A ``FixedSizeListArray``; null vectors and null items become any numbers, mostly zeros.
        size: Dimensions.
    """
    items = values.values.slice(values.offset * size, len(values) * size)
    if items.null_count:
        items = items.fill_null(0)
    return np.asarray(items).reshape(len(values), size)


def squared_norms(vectors: Vectors) -> npt.NDArray[Any]:
    """Return the squared length of each vector."""
    return np.einsum("ij,ij->i", vectors, vectors)


def normalized(vectors: Vectors) -> Vectors:
    """Return vectors of length one; those of length zero become NaN."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return vectors / np.sqrt(squared_norms(vectors))[:, None]


def computable(vectors: Vectors) -> Vectors:
    """Return vectors in a type that matrices are multiplied in: half floats become float32."""
    return _widened(vectors) if vectors.dtype == np.float16 else vectors


def _widened(halves: Vectors) -> Vectors:
    """Return half floats as float32.

    Their bits, moved to where float32 has exponent and fraction, are those of a number that is 2^112 times too small.
    numpy takes each alone, four times as long.
    """
    result = np.empty(halves.shape, np.float32)
    given, items = np.ascontiguousarray(halves).reshape(-1), result.reshape(-1)
    for start in range(0, len(items), _WIDENED_ITEMS):
        part = slice(start, start + _WIDENED_ITEMS)
        stored, bits = given[part].view(np.int16), items[part].view(np.int32)
        if (stored & _HALF_MAGNITUDE).max() >= _HALF_INFINITY:
            items[part] = given[part]
            continue
        bits[:] = stored
        bits <<= 13
        bits &= _FLOAT_BITS
        items[part] *= np.float32(2.0**112)
    return result


def products(vectors: Vectors, factors: Vectors) -> npt.NDArray[Any]:
    """Return the products of all vectors and factors, mostly on one thread.

    Threads of BLAS wait for each other in loops. Where other processes have the cores, a product that takes 0.1 ms on
    one thread took 7 ms of CPU on two. So it is cut into pieces that are too small for threads.

    Args:
        vectors: Shape (n, dimensions), of a type that matrices are multiplied in; or unsigned, for factors of float32.
        factors: Shape (m, dimensions), of the same type.

    Returns:
        Shape (n, m).
    """
    if vectors.dtype.kind == "u":
        return _products_of_levels(vectors, factors)
    count, size = factors.shape
    step = _ONE_THREAD_VECTOR // size if count == 1 else _ONE_THREAD_PRODUCT // (count * size)
    most = _ONE_THREAD_PRODUCT // (_FEWEST_ROWS * size)
    if step < _FEWEST_ROWS and 1 < most < count and len(vectors) * count * size <= _MAX_UNTHREADED:
        parts = [products(vectors, factors[start : start + most]) for start in range(0, count, most)]
        return np.concatenate(parts, axis=1)
    if step < _FEWEST_ROWS or len(vectors) <= step:
        return vectors @ factors.T
    result = np.empty((len(vectors), count), np.result_type(vectors, factors))
    end = len(vectors) // step * step
    np.matmul(vectors[:end].reshape(-1, step, size), factors.T, out=result[:end].reshape(-1, step, count))
    np.matmul(vectors[end:], factors.T, out=result[end:])
    return result


def _products_of_levels(vectors: Vectors, factors: Vectors) -> npt.NDArray[np.float32]:
    """Return products as `products` does; some rows at a time become float32, in memory that is used again."""
    step = max(1, _WIDENED_BYTES // vectors.shape[1])
    memory = np.empty((min(step, len(vectors)), vectors.shape[1]), np.float32)
    result = np.empty((len(vectors), len(factors)), np.float32)
    for start in range(0, len(vectors), step):
        block = vectors[start : start + step]
        rows = memory[: len(block)]
        rows[:] = block
        result[start : start + step] = products(rows, factors)
    return result


def pair_distances(queries: Vectors, vectors: Vectors, metric: str) -> Doubles:
    """Return the exact distance of each query to the vector beside it.

    Args:
        queries: Shape (n, dimensions); or (1, dimensions), which stands beside all vectors.
        vectors: Shape (n, dimensions).
        metric: Name of the metric.
    """
    if metric == HAMMING:
        return np.bitwise_count(np.bitwise_xor(queries, vectors)).sum(axis=1, dtype=np.int64).astype(np.float64)
    distances = np.empty(len(vectors), np.float64)
    step = max(1, _PAIR_BYTES // (8 * max(1, vectors.shape[1])))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for start in range(0, len(vectors), step):
            part = slice(start, start + step)
            block = queries if len(queries) == 1 else queries[part]
            distances[part] = _exact(_doubles(block), _doubles(vectors[part]), metric)
    return distances


def _doubles(vectors: Vectors) -> Doubles:
    return vectors.astype(np.float64, copy=False)


def _exact(queries: Doubles, vectors: Doubles, metric: str) -> Doubles:
    if metric == L2:
        return squared_norms(queries - vectors)
    scores = np.einsum("ij,ij->i", np.broadcast_to(queries, vectors.shape), vectors)
    if metric == DOT:
        return 1 - scores
    return 1 - scores / np.sqrt(squared_norms(queries) * squared_norms(vectors))


def all_distances(queries: Vectors, vectors: Vectors, metric: str) -> Doubles:
    """Return the distance of each query to each vector, shape (queries, vectors), in double precision."""
    left, right = queries.astype(np.float64), vectors.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if metric == COSINE:
            left, right = normalized(left), normalized(right)
        scores = products(right, left).T
        if metric == L2:
            return np.maximum(squared_norms(left)[:, None] + squared_norms(right)[None] - 2 * scores, 0)
        return 1 - scores
