"""Learn the model of a vector index from a sample of the column: centroids, and codes of vectors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.index.vector.codes import FlatCodes, ProductCodes, ScalarCodes
from lance_core.index.vector.distances import (
    COSINE,
    DOT,
    HAMMING,
    check_metric,
    computable,
    metric_named,
    normalized,
    squared_norms,
    vectors_of,
)
from lance_core.index.vector.kmeans import nearest_centroids, train_centroids
from lance_core.index.vector.segment import Model

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lance_core.index.column import IndexedColumn
    from lance_core.index.protocol import FragmentColumn
    from lance_core.index.vector.codes import Codes
    from lance_core.index.vector.distances import Int64s, Vectors

INDEX_TYPES = ("IVF_FLAT", "IVF_PQ", "IVF_SQ")
_SEARCHED_TYPES = ("IVF_RQ", "IVF_HNSW_FLAT", "IVF_HNSW_PQ", "IVF_HNSW_SQ")
_COUNTS = ("num_partitions", "target_partition_size", "num_sub_vectors", "sample_rate", "max_iters")
_PARTITION_ROWS = {"IVF_FLAT": 4096}
_DEFAULT_PARTITION_ROWS = 8192
_SEED = 0
_MIN_SAMPLE = 1 << 12


def check_options(column: IndexedColumn, options: Mapping[str, Any]) -> None:
    """Check the options of a vector index.

    Raises:
        InvalidInputError: They contradict each other or the column.
        UnsupportedError: A type of index that lance_core only searches.
    """
    kind = options["index_type"]
    if kind in _SEARCHED_TYPES:
        raise UnsupportedError(
            f"lance_core searches {kind} indices, but does not build them; build an IVF_PQ or IVF_SQ, or use pylance"
        )
    if kind not in INDEX_TYPES:
        raise InvalidInputError(f"index type {kind!r} is not one of {', '.join(INDEX_TYPES)}")
    for name in _COUNTS:
        value = options[name]
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1):
            raise InvalidInputError(f"{name!r} must be a whole number of at least 1, not {value!r}")
    size = column.type.list_size
    metric = metric_named(options["metric"])
    check_metric(metric, column.type.value_type)
    if metric == HAMMING and kind != "IVF_FLAT":
        raise InvalidInputError(f"{kind} indices have no metric hamming; build an IVF_FLAT")
    bits, parts = options["num_bits"], options["num_sub_vectors"]
    if kind == "IVF_PQ":
        if bits not in {4, 8}:
            raise InvalidInputError(f"'num_bits' of an IVF_PQ index must be 4 or 8, not {bits}")
        if parts is None:
            raise InvalidInputError("an IVF_PQ index needs 'num_sub_vectors', a divisor of the number of dimensions")
        if size % parts or parts * bits % 8:
            raise InvalidInputError(f"'num_sub_vectors' of {parts} does not divide {size} dimensions into whole bytes")
    elif bits != 8:
        raise InvalidInputError(f"'num_bits' of an {kind} index must be 8, not {bits}")
    if options["ivf_centroids"] is not None:
        given_matrix("ivf_centroids", options["ivf_centroids"], (-1, size))
    if options["pq_codebook"] is not None and kind == "IVF_PQ":
        given_matrix("pq_codebook", options["pq_codebook"], (parts, 1 << bits, size // parts))


def given_matrix(name: str, given: Any, shape: tuple[int, ...]) -> Vectors:
    """Return numbers that the caller gave, as an array of a shape; -1 fits any size.

    Raises:
        InvalidInputError: They have another shape.
    """
    if isinstance(given, (pa.FixedSizeListArray, pa.FixedShapeTensorArray)):
        storage = given.storage if isinstance(given, pa.FixedShapeTensorArray) else given
        given = vectors_of(storage, storage.type.list_size)
    try:
        return np.asarray(given).reshape(shape)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name!r} must be numbers of shape {shape}: {error}") from error


def searchable(values: Any, rows: Int64s, metric: str) -> tuple[Vectors, Int64s]:
    """Return the vectors that are indexed, and their rows: without nulls, NaN, and those of infinite length.

    Args:
        values: A part of the column.
        rows: Number of the row of each.
        metric: Name of the metric; with cosine vectors are brought to length one, and those of length zero left out.
    """
    if values.null_count:
        is_valid = values.is_valid()
        values, rows = values.filter(is_valid), rows[np.asarray(is_valid)]
    vectors = vectors_of(values, values.type.list_size)
    if metric == HAMMING:
        return vectors, rows
    with np.errstate(over="ignore", invalid="ignore"):
        norms = squared_norms(computable(vectors))
    fits = np.isfinite(norms)  # numbers may be finite, and their squares not: no centroid could be worked out
    if metric == COSINE:
        fits &= norms > 0
    if not fits.all():
        vectors, rows = vectors[fits], rows[fits]
    if metric == COSINE:
        vectors = normalized(computable(vectors)).astype(vectors.dtype)
    return vectors, rows


def train_model(
    column: IndexedColumn, fragments: Iterable[FragmentColumn], options: Mapping[str, Any]
) -> tuple[Model, float]:
    """Learn a model.

    Args:
        column: The column.
        fragments: Its values; they are read once.
        options: As `check_options` takes them.

    Returns:
        The model, and the sum of squared distances of the sample to its centroids.

    Raises:
        InvalidInputError: There are no vectors to learn from.
    """
    kind, metric = options["index_type"], metric_named(options["metric"])
    given, size = options["ivf_centroids"], column.type.list_size
    dtype = column.type.value_type.to_pandas_dtype()
    asked = options["num_partitions"] if given is None else None
    rate = options["sample_rate"]
    entries = 1 << options["num_bits"]
    # Without a number of partitions it follows from the number of rows, which is known behind the sample.
    wanted = max((asked or 256) * rate, entries * rate if kind == "IVF_PQ" else 0, _MIN_SAMPLE)
    rng = np.random.default_rng(_SEED)
    sample, num_rows = _sample(column, fragments, metric, wanted, rng)
    if not len(sample):
        raise InvalidInputError(f"column {column.path!r} has no vectors to build an index of")
    if given is not None:
        centroids, loss = given_matrix("ivf_centroids", given, (-1, size)).astype(dtype), 0.0
        if metric == COSINE:
            centroids = normalized(computable(centroids)).astype(dtype)
    else:
        rows = options["target_partition_size"] or _PARTITION_ROWS.get(kind, _DEFAULT_PARTITION_ROWS)
        count = min(asked or max(num_rows // rows, 1), len(sample))
        part = _floats(sample[: max(count * rate, _MIN_SAMPLE)], metric)
        centroids, loss = train_centroids(part, count, max_rounds=options["max_iters"], rng=rng)
        centroids = _stored(centroids, metric, dtype)
    flat = FlatCodes(column.type.value_type, size, metric)
    model = Model(index_type=kind, metric=metric, centroids=centroids, codes=flat)
    return replace(model, codes=_codes(model, sample, options, rng)), loss


def partitions_of(vectors: Vectors, model: Model) -> Int64s:
    """Return the partition of each vector: that of the nearest centroid by the metric."""
    left, right = _floats(vectors, model.metric), _floats(model.centroids, model.metric)
    if model.metric == DOT:
        return (left @ right.astype(left.dtype).T).argmax(axis=1)
    return nearest_centroids(left, right.astype(left.dtype))[0]


def _floats(vectors: Vectors, metric: str) -> Vectors:
    """Return vectors for products of matrices: of bytes their bits, of which L2 counts those that differ."""
    if metric == HAMMING:
        return np.unpackbits(vectors, axis=1).astype(np.float32)
    return computable(vectors)


def _stored(centroids: Vectors, metric: str, dtype: Any) -> Vectors:
    return np.packbits(centroids >= 0.5, axis=1) if metric == HAMMING else centroids.astype(dtype)


def _sample(
    column: IndexedColumn, fragments: Iterable[FragmentColumn], metric: str, size: int, rng: np.random.Generator
) -> tuple[Vectors, int]:
    """Return vectors at random, in random order, and the number of all."""
    keys = np.empty(0)
    sample = np.empty((0, column.type.list_size), column.type.value_type.to_pandas_dtype())
    num_rows = 0
    for vectors in _vectors(fragments, metric):
        num_rows += len(vectors)
        new = rng.random(len(vectors))
        limit = np.inf if len(keys) < size else keys.max()
        chosen = np.flatnonzero(new < limit)
        keys, sample = np.concatenate([keys, new[chosen]]), np.concatenate([sample, vectors[chosen]])
        if len(keys) > size:
            smallest = np.argpartition(keys, size - 1)[:size]
            keys, sample = keys[smallest], sample[smallest]
    return sample[np.argsort(keys)], num_rows


def _vectors(fragments: Iterable[FragmentColumn], metric: str) -> Iterator[Vectors]:
    for fragment in fragments:
        for rows, values in fragment.batches():
            yield searchable(values, rows, metric)[0]


def _codes(model: Model, sample: Vectors, options: Mapping[str, Any], rng: np.random.Generator) -> Codes:
    """Train the codes of vectors; the model's own codes are flat."""
    size, metric = sample.shape[1], model.metric
    if model.index_type == "IVF_FLAT":
        return model.codes
    if model.index_type == "IVF_SQ":
        return ScalarCodes(size, float(sample.min()), float(sample.max()), metric)
    parts, entries = options["num_sub_vectors"], 1 << options["num_bits"]
    shape = (parts, entries, size // parts)
    if options["pq_codebook"] is not None:
        return ProductCodes(given_matrix("pq_codebook", options["pq_codebook"], shape).astype(sample.dtype), metric)
    residuals = computable(sample[: entries * options["sample_rate"]])
    if metric != DOT:
        residuals = residuals - computable(model.centroids)[partitions_of(residuals, model)]
    book = np.empty(shape, sample.dtype)
    for part in range(parts):
        values = np.ascontiguousarray(residuals[:, part * shape[2] : (part + 1) * shape[2]])
        book[part], _ = train_centroids(values, entries, max_rounds=options["max_iters"], rng=rng)
    return ProductCodes(book, metric)
