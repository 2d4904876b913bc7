"""Write a segment of a vector index: rows go to partitions, and partitions to the file one after the other."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from lance_core.format.index.vector_index import (
    CODEBOOK_BUFFER,
    FLAT_KEY,
    INDEX_KEY,
    IVF_KEY,
    METRIC_KEY,
    PARTITION_FILE,
    PARTITION_SCHEMA,
    ROW_FILE,
    STORAGE_KEY,
    Partitions,
    encode_json,
    encode_partitions,
    encode_tensor,
    storage_schema,
)
from lance_core.index.vector.codes import ProductCodes, ScalarCodes
from lance_core.index.vector.train import partitions_of, searchable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy.typing as npt

    from lance_core.index.files import SegmentFiles
    from lance_core.index.protocol import FragmentColumn
    from lance_core.index.vector.codes import Block
    from lance_core.index.vector.distances import Int64s
    from lance_core.index.vector.segment import Model

_MEMORY_BYTES = 256 << 20
"""Codes that are held in memory; more are held in a temporary file."""

_BLOCK_BYTES = 8 << 20


class PartitionedRows:
    """Rows and codes on the way to their partitions; a context, which removes temporary files.

    Args:
        model: The model of the index.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._numbers: list[npt.NDArray[np.int32]] = []
        self._rows: list[Int64s] = []
        self._blocks: list[Block] = []
        self._num_bytes = 0
        self._file: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, numbers: Int64s, rows: Int64s, codes: Block) -> None:
        """Take rows in.

        Args:
            numbers: Shape (n,), partition of each.
            rows: Shape (n,), number of each.
            codes: Shape (n, width), as codes encode them.
        """
        if not len(rows):
            return
        self._numbers.append(numbers.astype(np.int32))
        self._rows.append(rows)
        self._num_bytes += codes.nbytes
        self._blocks.append(np.ascontiguousarray(codes))
        if self._num_bytes > _MEMORY_BYTES:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 closed with the context
            for block in self._blocks:
                block.tofile(self._file)
            self._width, self._dtype = codes.shape[1], codes.dtype
            self._blocks.clear()

    def write(self, files: SegmentFiles, loss: float | None = None) -> None:
        """Write the files of the segment."""
        model = self._model
        numbers = np.concatenate([np.empty(0, np.int32), *self._numbers])
        rows = np.concatenate([np.empty(0, np.int64), *self._rows])
        self._numbers.clear()
        self._rows.clear()
        order = np.argsort(numbers, kind="stable")
        lengths = np.bincount(numbers, minlength=len(model.centroids)).astype(np.int64)
        partitions = Partitions(centroids=model.centroids[:0], starts=np.cumsum(lengths) - lengths, lengths=lengths)
        self._write_rows(files, partitions, rows[order], order)
        zeros = np.zeros(len(lengths), np.int64)
        ivf = encode_partitions(Partitions(centroids=model.centroids, starts=zeros, lengths=zeros), loss)
        metadata = {
            INDEX_KEY: encode_json({"type": model.index_type, METRIC_KEY: model.metric}),
            FLAT_KEY: encode_json([""] * len(lengths)),
        }
        files.write(PARTITION_FILE, PARTITION_SCHEMA, [], metadata=metadata, buffers={IVF_KEY: ivf})

    def _write_rows(self, files: SegmentFiles, partitions: Partitions, rows: Int64s, order: Int64s) -> None:
        codes = self._model.codes
        buffers = {IVF_KEY: encode_partitions(partitions)}
        details: dict[str, Any]
        match codes:
            case ProductCodes():
                details = {
                    "codebook_position": CODEBOOK_BUFFER,
                    "nbits": codes.num_bits,
                    "num_sub_vectors": codes.num_parts,
                    "dimension": self._model.centroids.shape[1],
                    "codebook_tensor": [],
                    "transposed": True,
                }
                book = codes.codebook.reshape(1 << codes.num_bits, -1)
                buffers["lance:codebook"] = encode_tensor(book)
            case ScalarCodes():
                bounds = {"start": codes.start, "end": codes.end}
                details = {"dim": self._model.centroids.shape[1], "num_bits": 8, "bounds": bounds}
            case _:
                details = {"dim": self._model.centroids.shape[1]}
        metadata = {METRIC_KEY: self._model.metric, STORAGE_KEY: encode_json([encode_json(details)])}
        schema = storage_schema(codes.field)
        batches = self._batches(schema, partitions, rows, order)
        files.write(ROW_FILE, schema, batches, metadata=metadata, buffers=buffers)

    def _batches(
        self, schema: pa.Schema, partitions: Partitions, rows: Int64s, order: Int64s
    ) -> Iterator[pa.RecordBatch]:
        every = self._codes()
        for start, length in zip(partitions.starts.tolist(), partitions.lengths.tolist(), strict=True):
            if length:
                part = slice(start, start + length)
                ids = pa.array(rows[part].astype(np.uint64))
                yield pa.RecordBatch.from_arrays([ids, self._model.codes.column(every[order[part]])], schema=schema)

    def _codes(self) -> Block:
        """Return the codes of all rows, in the order in which they came."""
        if self._file is None:
            return np.concatenate(self._blocks) if self._blocks else np.empty((0, 0), np.uint8)
        for block in self._blocks:
            block.tofile(self._file)
        self._blocks.clear()
        self._file.flush()
        return np.memmap(self._file, self._dtype, mode="r").reshape(-1, self._width)


def add_fragments(
    partitioned: PartitionedRows,
    model: Model,
    fragments: Iterable[FragmentColumn],
    *,
    by_row_id: bool,
) -> None:
    """Read the column of some fragments, and find the partition and code of each vector."""
    step = max(1, _BLOCK_BYTES // max(1, model.centroids.shape[1] * model.centroids.dtype.itemsize))
    for fragment in fragments:
        for numbered, values in fragment.batches(by_row_id=by_row_id):
            for start in range(0, len(numbered), step):
                part = values.slice(start, step)
                vectors, rows = searchable(part, numbered[start : start + step], model.metric)
                if len(rows):
                    numbers = partitions_of(vectors, model)
                    codes = model.codes.encode(vectors, model.centroids[numbers])
                    partitioned.add(numbers, rows, codes)


def add_segment(
    partitioned: PartitionedRows, number: int, rows: Int64s, codes: Block, relocate: Callable[[Int64s], Int64s]
) -> None:
    """Take in a partition of another segment of the same model; rows that are gone are left out."""
    moved = relocate(rows)
    keep = np.flatnonzero(moved >= 0)
    partitioned.add(np.full(len(keep), number), moved[keep], codes[keep])
