"""Vector indices: inverted files (IVF) of the vectors of one column, flat or quantized.

An index folder holds two Lance files. Rows belong to the partition of the centroid that is nearest to their vector;
rows without a vector, or with NaN in it, are in none.

    index.idx       the partitions: global buffer 1 is an ``IVF`` message with the centroids. Schema metadata:
                    ``lance:index`` (JSON with ``type`` and ``distance_type``), ``lance:ivf`` = "1", ``lance:flat``
                    (a JSON list with "" for each partition); with a graph (HNSW) its rows are the graph's
    auxiliary.idx   the rows, partition after partition: ``_rowid`` uint64 and a column of codes. Global buffer 1 is an
                    ``IVF`` message with the first row and the number of rows of each partition. Schema metadata:
                    ``distance_type``, ``lance:ivf`` = "1", ``storage_metadata`` (a JSON list of one JSON text)

Codes by type, ``d`` dimensions:

    FLAT   ``flat``, the vectors; with cosine of length one
    PQ     ``__pq_code``, bytes ``[sub-vectors][rows]`` of each partition: number of the nearest entry of the codebook
           for each part of the residual (vector - centroid; with dot the vector). 4 bits: the low half of a byte is
           the even part. Global buffer 2 is the codebook, a ``Tensor`` of declared shape ``[2^bits, d]`` whose numbers
           are ``[sub-vectors][2^bits][d / sub-vectors]``
    SQ     ``__sq_code``, a byte for each item: ``(item - start) * 255 / (end - start)``, cut off
    RQ     several columns, see `lance_core.format.index.rabit`

With cosine everything is as with L2, of vectors of length one. Source: what pylance 14.0.2 writes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError

from lance_core._proto import vector_pb2
from lance_core.common.frozen import frozen
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Mapping

Int64s: TypeAlias = npt.NDArray[np.int64]
Vectors: TypeAlias = npt.NDArray[Any]

TYPE_URL = "/lance.index.pb.VectorIndexDetails"
VERSION = 1
LAST_VERSION = 2
PARTITION_FILE, ROW_FILE = "index.idx", "auxiliary.idx"
INDEX_KEY, IVF_KEY, FLAT_KEY = "lance:index", "lance:ivf", "lance:flat"
METRIC_KEY, STORAGE_KEY = "distance_type", "storage_metadata"
IVF_BUFFER, CODEBOOK_BUFFER = 1, 2
ROW_COLUMN, FLAT_COLUMN, PQ_COLUMN, SQ_COLUMN = "_rowid", "flat", "__pq_code", "__sq_code"
PARTITION_SCHEMA = pa.schema([pa.field("__flat_marker", pa.uint64(), nullable=False)])
SQ_LEVELS = 255

_DTYPES: dict[int, Any] = {
    vector_pb2.Tensor.FLOAT16: np.dtype("<f2"),
    vector_pb2.Tensor.FLOAT32: np.dtype("<f4"),
    vector_pb2.Tensor.FLOAT64: np.dtype("<f8"),
    vector_pb2.Tensor.UINT8: np.dtype("u1"),
}


@frozen(kw_only=True)
class Partitions:
    """The partitions of an inverted file.

    Attributes:
        centroids: Shape (partitions, dimensions); of no rows where the file has none.
        starts: Shape (partitions,), first row of each.
        lengths: Shape (partitions,), rows of each.
    """

    centroids: Vectors
    starts: Int64s
    lengths: Int64s


@frozen(kw_only=True)
class VectorDetails:
    """Description of a vector index in its entry.

    Attributes:
        index_type: ``IVF_FLAT``, ``IVF_PQ``, ``IVF_SQ``, ``IVF_RQ`` or one with a graph, such as ``IVF_HNSW_SQ``; None
            if it does not tell.
        metric: Name of the metric.
    """

    index_type: str | None
    metric: str


def decode_tensor(data: bytes, *, path: str) -> Vectors:
    """Decode a ``Tensor`` message.

    Raises:
        CorruptDataError: It is damaged.
    """
    return _decoded(vector_pb2.Tensor, data, path, _array)


def encode_tensor(values: Vectors) -> bytes:
    """Encode a ``Tensor`` message."""
    return _tensor(values).SerializeToString()


def decode_partitions(data: bytes, *, path: str) -> Partitions:
    """Decode an ``IVF`` message.

    Raises:
        CorruptDataError: It is damaged.
    """
    return _decoded(vector_pb2.IVF, data, path, _partitions)


def encode_partitions(partitions: Partitions, loss: float | None = None) -> bytes:
    """Encode an ``IVF`` message."""
    pb = vector_pb2.IVF(offsets=partitions.starts.tolist(), lengths=partitions.lengths.tolist(), loss=loss)
    if len(partitions.centroids):
        pb.centroids_tensor.CopyFrom(_tensor(partitions.centroids))
    return pb.SerializeToString()


def decode_details(data: bytes) -> VectorDetails:
    """Decode a ``VectorIndexDetails`` message; one that is damaged, or of a metric that is not known, tells nothing."""
    try:
        pb = vector_pb2.VectorIndexDetails.FromString(data)
        metric = vector_pb2.VectorIndexDetails.VectorMetricType.Name(pb.metric_type).lower()
    except (DecodeError, ValueError):
        return VectorDetails(index_type=None, metric="")
    codes = pb.WhichOneof("compression")
    graph = "HNSW_" if pb.HasField("hnsw_index_config") else ""
    return VectorDetails(
        index_type=None if codes is None else f"IVF_{graph}{codes.upper()}",
        metric=metric,
    )


def encode_details(
    index_type: str,
    metric: str,
    *,
    num_bits: int,
    num_sub_vectors: int,
    target_partition_size: int,
    hints: Mapping[str, str],
) -> bytes:
    """Encode a ``VectorIndexDetails`` message.

    Args:
        index_type: ``IVF_FLAT``, ``IVF_PQ`` or ``IVF_SQ``.
        metric: Name of the metric.
        num_bits: Bits of a code.
        num_sub_vectors: Parts of a vector in an ``IVF_PQ``.
        target_partition_size: Rows of a partition that were asked for; 0 if none were.
        hints: What the index was built with.
    """
    kinds = vector_pb2.VectorIndexDetails
    pb = kinds(
        metric_type=metric.upper(),
        target_partition_size=target_partition_size,
        runtime_hints=dict(hints),
    )
    if index_type == "IVF_PQ":
        pb.pq.num_bits, pb.pq.num_sub_vectors = num_bits, num_sub_vectors
    elif index_type == "IVF_SQ":
        pb.sq.num_bits = num_bits
    else:
        pb.flat.SetInParent()
    return pb.SerializeToString(deterministic=True)


def decode_json(text: bytes, *, path: str) -> Any:
    """Decode JSON of the schema metadata; a list of one text is decoded to what the text holds.

    Raises:
        CorruptDataError: It is damaged.
    """
    try:
        value = json.loads(text)
        return json.loads(value[0]) if isinstance(value, list) else value
    except (ValueError, IndexError, TypeError, RecursionError) as error:
        raise CorruptDataError(f"the metadata of the vector index cannot be decoded: {error}", path=path) from error


def encode_json(value: Any) -> str:
    """Encode JSON of the schema metadata."""
    return json.dumps(value, separators=(",", ":"))


def storage_schema(code: pa.Field) -> pa.Schema:
    """Return the schema of the rows, with a column of codes."""
    return pa.schema([pa.field(ROW_COLUMN, pa.uint64()), code])


def _decoded(kind: Any, data: bytes, path: str, convert: Any) -> Any:
    try:
        return convert(kind.FromString(data))
    except (DecodeError, ValueError, KeyError, OverflowError) as error:
        raise CorruptDataError(f"the partitions of the vector index cannot be decoded: {error}", path=path) from error


def _array(pb: vector_pb2.Tensor) -> Vectors:
    dtype = _DTYPES[pb.data_type]
    return np.frombuffer(pb.data, dtype).reshape([int(size) for size in pb.shape])


def _tensor(values: Vectors) -> vector_pb2.Tensor:
    number = next(number for number, dtype in _DTYPES.items() if dtype == values.dtype)
    name = vector_pb2.Tensor.DataType.Name(number)  # pyright: ignore[reportArgumentType] an enum there, an int at runtime
    return vector_pb2.Tensor(data_type=name, shape=values.shape, data=np.ascontiguousarray(values).tobytes())


def _partitions(pb: vector_pb2.IVF) -> Partitions:
    starts, lengths = np.array(pb.offsets, np.int64), np.array(pb.lengths, np.int64)
    if len(lengths) != len(starts) or (lengths < 0).any():
        raise ValueError("offsets and lengths differ in number")
    centroids = _array(pb.centroids_tensor) if pb.HasField("centroids_tensor") else np.empty((0, 0), np.float32)
    if centroids.ndim != 2:
        raise ValueError("centroids are not a matrix")
    return Partitions(centroids=centroids, starts=starts, lengths=lengths)
