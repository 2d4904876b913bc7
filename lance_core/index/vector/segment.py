"""One segment of a vector index, opened: its partitions are ranked for each query, and the best ones are searched.

Graphs (HNSW) are not walked: they lead to rows of a partition, all of which are compared here.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.errors import CorruptDataError, NotFoundError, UnsupportedError
from lance_core.format.vector_index import (
    CODEBOOK_BUFFER,
    INDEX_KEY,
    IVF_BUFFER,
    METRIC_KEY,
    PARTITION_FILE,
    ROW_COLUMN,
    ROW_FILE,
    STORAGE_KEY,
    decode_json,
    decode_partitions,
    decode_tensor,
)
from lance_core.frozen import frozen
from lance_core.index.files import read_columns
from lance_core.index.protocol import MODEL
from lance_core.index.vector.codes import FlatCodes, ProductCodes, ScalarCodes
from lance_core.index.vector.distances import COSINE, HAMMING, L2, all_distances, normalized, pair_distances

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lance_core.file.read.reader import DataFileReader
    from lance_core.format.vector_index import Partitions
    from lance_core.index.answer import RowAnswer
    from lance_core.index.column import IndexedColumn
    from lance_core.index.files import SegmentFiles
    from lance_core.index.vector.codes import Block, Codes
    from lance_core.index.vector.distances import Int64s, Vectors
    from lance_core.index.vector.top_rows import TopRows
    from lance_core.sql.pruning import Question

_CACHED_BYTES = 256 << 20
"""Bytes of partitions that a segment keeps in memory."""

_ENOUGH = 5
"""Without a number of partitions, more are searched until so many times as many rows as wanted were compared."""


@frozen(kw_only=True)
class Probes:
    """Number of partitions of an index that are searched.

    Attributes:
        minimum: Partitions that are searched in any case.
        maximum: Partitions at most; None for all.
        effort: From 0 to 1: the share, on a geometric scale, of the partitions that are searched at first.
    """

    minimum: int
    maximum: int | None
    effort: float


@frozen(kw_only=True)
class Model:
    """Model of a vector index, trained before vectors are indexed.

    Attributes:
        index_type: Such as ``IVF_PQ``.
        metric: Name of the metric.
        centroids: Shape (partitions, dimensions).
        codes: How vectors are stored.
    """

    index_type: str
    metric: str
    centroids: Vectors
    codes: Codes


@frozen(kw_only=True)
class _Opened:
    model: Model
    partitions: Partitions
    reader: DataFileReader


class VectorSegment:
    """One segment; its files are opened when they are needed first.

    Args:
        files: Its files.
        column: The column.
    """

    def __init__(self, files: SegmentFiles, column: IndexedColumn) -> None:
        self._files = files
        self._column = column
        self._content: _Opened | None = None
        self._blocks: OrderedDict[int, tuple[Int64s, Block]] = OrderedDict()
        self._num_bytes = 0
        self._lock = Lock()

    @property
    def path(self) -> str:
        """Path of the rows, for errors."""
        return self._files.path(ROW_FILE)

    @property
    def model(self) -> Model:
        """Centroids and codes."""
        return self._opened.model

    @property
    def partitions(self) -> Partitions:
        """First row and number of rows of each partition."""
        return self._opened.partitions

    @property
    def options(self) -> Mapping[str, Any]:
        """Options that it was built with, and its model, so that rows added to the index get the same partitions."""
        model = self.model
        given: dict[str, Any] = {"index_type": model.index_type, "metric": model.metric, MODEL: model}
        given["num_partitions"] = max(len(model.centroids), 1)
        if isinstance(model.codes, ProductCodes):
            given |= {"num_sub_vectors": model.codes.num_parts, "num_bits": model.codes.num_bits}
        return given

    @property
    def statistics(self) -> Mapping[str, Any]:
        """Type, metric, number of partitions, and rows of each."""
        lengths = self.partitions.lengths
        return {
            "index_type": self.model.index_type,
            "metric_type": self.model.metric,
            "num_partitions": len(lengths),
            "partitions": [{"size": size} for size in lengths.tolist()],
            "imbalance": float(lengths.max() * len(lengths) / lengths.sum()) if lengths.sum() else 0.0,
        }

    def answer(self, question: Question, *, tells_null: bool) -> RowAnswer | None:  # noqa: ARG002 as in the protocol
        """Conditions are not answered."""
        return None

    # -------------------------------------------------------------------------------------------------------- search

    def search(
        self, queries: Vectors, probes: Probes, k: int, top: TopRows, locate: Callable[[Int64s], Int64s | None]
    ) -> None:
        """Find the nearest rows.

        Args:
            queries: Shape (queries, dimensions).
            probes: Partitions to search.
            k: Rows that are wanted for each query.
            top: Where the nearest rows are kept; its queries have the numbers of these.
            locate: Returns the address of each row number, -1 for rows that are not searched; None if the numbers are
                the addresses of rows that all are.

        Raises:
            CorruptDataError: A file is damaged.
        """
        model = self.model
        if model.metric == COSINE:
            queries = normalized(queries.astype(np.float64)).astype(queries.dtype)
        order = self._ranked(queries)
        total = order.shape[1]
        most = total if probes.maximum is None else min(probes.maximum, total)
        # A tiny step below, lest a power that is whole is rounded up.
        first = min(max(int(np.ceil(total**probes.effort - 1e-9)), probes.minimum), most) if total else 0
        compared = np.zeros(len(queries), np.int64)
        self._search_partitions(queries, order[:, :first], top, locate, compared)
        for at in range(first, most):
            lacking = np.flatnonzero(compared < _ENOUGH * k)
            if not len(lacking):
                return
            column = np.full((len(queries), 1), -1)
            column[lacking, 0] = order[lacking, at]
            self._search_partitions(queries, column, top, locate, compared)

    def _ranked(self, queries: Vectors) -> Int64s:
        """Return the partitions of each query, the nearest first; shape (queries, partitions)."""
        centroids, metric = self.model.centroids, self.model.metric
        if metric == HAMMING:
            distances = np.stack([pair_distances(query[None], centroids, HAMMING) for query in queries])
        else:
            distances = all_distances(queries, centroids, L2 if metric == COSINE else metric)
        return np.argsort(distances, axis=1, kind="stable")

    def _search_partitions(
        self,
        queries: Vectors,
        chosen: Int64s,
        top: TopRows,
        locate: Callable[[Int64s], Int64s | None],
        compared: Int64s,
    ) -> None:
        """Search partitions for the queries that chose them; -1 is none."""
        model = self.model
        asking, _ = np.nonzero(chosen >= 0)
        flat = chosen[chosen >= 0]
        order = np.argsort(flat, kind="stable")
        numbers, starts = np.unique(flat[order], return_index=True)
        for number, members in zip(numbers.tolist(), np.split(asking[order], starts[1:]), strict=True):
            rows, block = self._partition(number)
            addresses = locate(rows)
            if addresses is not None:
                keep = np.flatnonzero(addresses >= 0)
                rows, block = _searched_rows(model.codes, addresses, block, keep)
            compared[members] += len(rows)
            if len(rows):
                model.codes.search(queries[members], members, model.centroids[number], block, rows, top=top)

    def _partition(self, number: int) -> tuple[Int64s, Block]:
        """Read the rows and codes of a partition; those used last are kept."""
        with self._lock:
            cached = self._blocks.get(number)
            if cached is not None:
                self._blocks.move_to_end(number)
                return cached
        ids, values = self.read(number)
        made = (ids, self.model.codes.block(values))
        num_bytes = ids.nbytes + made[1].nbytes
        with self._lock:
            if number not in self._blocks and num_bytes <= _CACHED_BYTES:
                self._blocks[number] = made
                self._num_bytes += num_bytes
                while self._num_bytes > _CACHED_BYTES:
                    _, (old_ids, old_block) = self._blocks.popitem(last=False)
                    self._num_bytes -= old_ids.nbytes + old_block.nbytes
        return made

    def read(self, number: int) -> tuple[Int64s, Any]:
        """Read the row numbers and the column of codes of a partition.

        Raises:
            CorruptDataError: The file is damaged.
        """
        opened = self._opened
        start = int(opened.partitions.starts[number])
        end = start + int(opened.partitions.lengths[number])
        ids, values = read_columns(opened.reader, [ROW_COLUMN, opened.model.codes.field.name], start, end)
        if ids.null_count or values.null_count:
            raise CorruptDataError("a vector index has rows without a number or code", path=self.path)
        return np.asarray(ids).astype(np.int64), values

    # -------------------------------------------------------------------------------------------------------- opening

    @property
    def _opened(self) -> _Opened:
        if self._content is None:
            self._content = self._open()
        return self._content

    def _open(self) -> _Opened:
        path = self._files.path(PARTITION_FILE)
        index = self._files.open(PARTITION_FILE)
        header = index.schema.metadata.get(INDEX_KEY)
        try:
            rows = self._files.open(ROW_FILE)
        except NotFoundError as error:
            if header is not None:
                raise
            raise UnsupportedError(f"vector index {path} has a layout older than V3; build it again") from error
        storage = rows.schema.metadata.get(STORAGE_KEY)
        if header is None or storage is None:
            raise CorruptDataError("the vector index has no metadata", path=path)
        described, details = decode_json(header, path=path), decode_json(storage, path=path)
        centroids = decode_partitions(index.global_buffer(IVF_BUFFER), path=path).centroids
        partitions = decode_partitions(rows.global_buffer(IVF_BUFFER), path=self.path)
        try:
            kind, metric = str(described["type"]), str(described.get(METRIC_KEY, "l2"))
            codes = self._codes(kind, metric, details, rows)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise CorruptDataError(f"the vector index has wrong metadata: {error!r}", path=path) from error
        self._check(partitions, centroids, rows, codes)
        model = Model(index_type=kind, metric=metric, centroids=centroids, codes=codes)
        return _Opened(model=model, partitions=partitions, reader=rows)

    def _codes(self, kind: str, metric: str, details: Mapping[str, Any], rows: DataFileReader) -> Codes:
        item, size = self._column.type.value_type, self._column.type.list_size
        suffix = kind.rpartition("_")[2]
        if suffix == "FLAT":
            return FlatCodes(item, size, metric)
        if suffix == "SQ":
            bounds = details["bounds"]
            return ScalarCodes(size, float(bounds["start"]), float(bounds["end"]), metric)
        if suffix == "PQ":
            tensor = decode_tensor(
                rows.global_buffer(int(details.get("codebook_position", CODEBOOK_BUFFER))), path=self.path
            )
            parts, bits = int(details["num_sub_vectors"]), int(details["nbits"])
            book = tensor.reshape(parts, 1 << bits, size // parts)
            return ProductCodes(book, metric, is_transposed=bool(details.get("transposed")))
        raise UnsupportedError(
            f"lance_core does not search vector indices of type {kind}, only of FLAT, PQ and SQ codes; build one of "
            "these, or compare all vectors with use_index=False"
        )

    def _check(self, partitions: Partitions, centroids: Vectors, rows: DataFileReader, codes: Codes) -> None:
        size = self._column.type.list_size
        column = rows.schema.to_arrow().field(codes.field.name) if codes.field.name in rows.schema.names else None
        ends = partitions.starts + partitions.lengths
        if (
            column is None
            or column.type != codes.field.type
            or ROW_COLUMN not in rows.schema.names
            or len(centroids) != len(partitions.lengths)
            or (len(centroids) and centroids.shape[1] != size)
            or (partitions.starts < 0).any()
            or (ends > rows.num_rows).any()
        ):
            raise CorruptDataError("the vector index does not fit its column, or contradicts itself", path=self.path)


def _searched_rows(codes: Codes, addresses: Int64s, block: Block, keep: Int64s) -> tuple[Int64s, Block]:
    """Return the rows of a partition that are searched."""
    if len(keep) == len(addresses):
        return addresses, block
    return addresses[keep], codes.chosen(block, keep)
