"""Read the bytes of blobs, from their descriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen, replace
from lance_core.encoding.arrow_values import batch_of, null_mask, pack_bits
from lance_core.encoding.kernels import empty, gather, starts_of
from lance_core.encoding.plans import bridge, join
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.file.source import CheckedReader
from lance_core.file.write.blob_checks import CheckedBlobFile, blob_sums
from lance_core.format.blobs import BlobKind, blob_file_path, is_described, is_second_version
from lance_core.format.table.paths import data_file_path
from lance_core.table.locations import open_external
from lance_core.table.once import once

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Int64s
    from lance_core.format.file.blob_checksums import BlobSums
    from lance_core.format.schema import Field, Schema
    from lance_core.format.table.fragment import DataFile
    from lance_core.store.base import ObjectReader, Store

BATCH_BYTES = 64 << 20
"""Bytes of blobs in one batch, unless a row has more."""


@frozen
class BlobPlace:
    """Location of one blob.

    Attributes:
        kind: Kind of place; blobs of version 1 are all inline.
        position: First byte in the object that holds it.
        size: Bytes; 0 for all of an external object.
        blob_id: Number of the blob file, or of the base path.
        uri: Address of an external blob.
    """

    kind: BlobKind
    position: int
    size: int
    blob_id: int = 0
    uri: str = ""

    @property
    def is_whole(self) -> bool:
        """True if the blob is all of its object, however long that is."""
        return self.kind is BlobKind.EXTERNAL and self.size == 0


@frozen
class Descriptions:
    """Descriptions of many blobs, column by column.

    Attributes:
        kinds: Shape (n,).
        positions: Shape (n,).
        sizes: Shape (n,), 0 for nulls.
        blob_ids: Shape (n,).
        uris: Addresses; empty if there are no external blobs.
        is_null: Shape (n,).
    """

    kinds: npt.NDArray[np.uint8]
    positions: Int64s
    sizes: Int64s
    blob_ids: npt.NDArray[np.uint32]
    uris: Sequence[str | None]
    is_null: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, array: pa.StructArray) -> Descriptions:
        """Take an array of descriptions apart.

        Raises:
            CorruptDataError: A kind of place that is not known.
        """
        mask = null_mask(array)
        is_null = np.zeros(len(array), np.bool_) if mask is None else mask
        columns: dict[str, Any] = {child.name: array.field(index) for index, child in enumerate(array.type)}
        position, size = (_numbers(columns[name]).astype(np.int64) for name in ("position", "size"))
        if (position < 0).any() or (size < 0).any():
            raise CorruptDataError("a blob has an impossible position or size")
        kinds, ids = np.zeros(len(array), np.uint8), np.zeros(len(array), np.uint32)
        uris: Sequence[str | None] = ()
        if "kind" in columns:
            kinds = np.where(is_null, 0, _numbers(columns["kind"])).astype(np.uint8)
            ids = _numbers(columns["blob_id"])
            if len(kinds) and int(kinds.max()) > max(BlobKind):
                raise CorruptDataError(f"a blob is in a place of kind {int(kinds.max())}, which is not known")
            if (kinds == BlobKind.EXTERNAL).any():
                uris = columns["blob_uri"].to_pylist()
        return cls(kinds, position, np.where(is_null, 0, size), ids, uris, is_null)

    def locate(self, row: int) -> BlobPlace | None:
        """Return the location of one blob; None for null."""
        if self.is_null[row]:
            return None
        uri = (self.uris[row] or "") if self.uris else ""
        numbers = (int(numbers_of_column[row]) for numbers_of_column in (self.positions, self.sizes, self.blob_ids))
        position, size, blob_id = numbers
        return BlobPlace(BlobKind(int(self.kinds[row])), position, size, blob_id, uri)


def _numbers(array: pa.Array) -> npt.NDArray[Any]:
    return np.asarray(array.fill_null(0) if array.null_count else array)


class BlobSources:
    """The objects that hold the blobs of one data file; opened when they are needed.

    Args:
        store: The dataset.
        file: The data file.
    """

    def __init__(self, store: Store, file: DataFile) -> None:
        self._store = store
        self._path = data_file_path(file)
        self._readers: dict[tuple[int, int, str], ObjectReader] = {}

    def reader(self, blob: BlobPlace) -> ObjectReader:
        """Return the object that holds a blob."""
        key = (blob.kind, blob.blob_id, blob.uri)
        cached = self._readers.get(key)
        if cached is None:
            cached = self._readers[key] = self._open(blob)
        return cached

    def _open(self, blob: BlobPlace) -> ObjectReader:
        match blob.kind:
            case BlobKind.INLINE:
                return self._data_file
            case BlobKind.PACKED | BlobKind.DEDICATED:
                path = blob_file_path(self._path, blob.blob_id)
                reader, checksums = self._store.reader(path), self._checksums
                return reader if checksums is None else CheckedBlobFile(reader, checksums, blob.blob_id, path=path)
            case BlobKind.EXTERNAL:
                return open_external(self._store, blob.blob_id, blob.uri)

    @once
    def _data_file(self) -> CheckedReader:
        return CheckedReader(self._store.reader(self._path), path=self._path)

    @once
    def _checksums(self) -> BlobSums | None:
        file = self._data_file.file
        return None if file is None else blob_sums(file, path=self._path)

    def bounds(self, blob: BlobPlace) -> tuple[int, int]:
        """First byte, and the one behind the last, in the object.

        Raises:
            CorruptDataError: The object is shorter.
        """
        size = self.reader(blob).size
        end = size if blob.is_whole else blob.position + blob.size
        if not blob.position <= end <= size:
            raise CorruptDataError(f"a blob ends at byte {end} of an object of {size} bytes", path=self._path)
        return blob.position, end

    def read(self, descriptions: Descriptions) -> pa.Array:
        """Return the bytes of blobs as ``large_binary``; all in memory."""
        is_external = (descriptions.kinds == BlobKind.EXTERNAL) & ~descriptions.is_null
        data, sizes = self._read_each(descriptions) if is_external.any() else self._read_groups(descriptions)
        bitmap = pack_bits(~descriptions.is_null) if descriptions.is_null.any() else None
        buffers = [bitmap, pa.py_buffer(starts_of(sizes)), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.large_binary(), len(sizes), buffers)

    def _read_groups(self, descriptions: Descriptions) -> tuple[Bytes, Int64s]:
        """Blobs of known places end to end, and their sizes: few requests for the blobs of one object."""
        sizes, positions = descriptions.sizes, descriptions.positions
        objects = descriptions.kinds.astype(np.int64) << 32 | descriptions.blob_ids
        read_parts: list[tuple[Int64s, Bytes]] = []
        for object_id in np.unique(objects[sizes > 0]).tolist():
            rows = np.flatnonzero((objects == object_id) & (sizes > 0))
            rows = rows[np.argsort(positions[rows], kind="stable")]
            blob = descriptions.locate(int(rows[-1]))
            assert blob is not None  # noqa: S101 - nulls have no size
            starts, ends = positions[rows], positions[rows] + sizes[rows]
            if (starts[1:] < ends[:-1]).any():  # blobs that share bytes, which no writer makes
                return self._read_each(descriptions)
            reader = self.reader(blob)
            if int(ends.max()) > reader.size:
                raise CorruptDataError(
                    f"a blob ends at byte {int(ends.max())} of an object of {reader.size} bytes", path=self._path
                )
            ranges = bridge(starts, ends)
            memory = join(reader.read_ranges(ranges))
            read_parts.append((rows, gather(memory, _memory_positions(ranges, starts), sizes[rows])))
        if len(read_parts) == 1 and (np.diff(read_parts[0][0]) > 0).all():
            return np.ascontiguousarray(read_parts[0][1]), sizes
        bounds = starts_of(sizes)
        out: Bytes = empty(int(bounds[-1]), np.uint8)
        for rows, data in read_parts:
            at = starts_of(sizes[rows]).tolist()
            for number, row in enumerate(rows.tolist()):
                out[bounds[row] : bounds[row + 1]] = data[at[number] : at[number + 1]]
        return out, sizes

    def _read_each(self, descriptions: Descriptions) -> tuple[Bytes, Int64s]:
        """Return the same for blobs whose size may have to be found out."""
        count = len(descriptions.kinds)
        groups: dict[int, list[tuple[int, BlobPlace]]] = {}
        for row in range(count):
            blob = descriptions.locate(row)
            if blob is not None and (blob.size or blob.is_whole):
                groups.setdefault(id(self.reader(blob)), []).append((row, blob))
        pieces: list[pa.Buffer | None] = [None] * count
        for group in groups.values():
            ranges = [self.bounds(blob) for _, blob in group]
            for (row, _), piece in zip(group, self.reader(group[0][1]).read_ranges(ranges), strict=True):
                pieces[row] = piece
        sizes = np.array([0 if piece is None else piece.size for piece in pieces], np.int64)
        data = [np.frombuffer(piece, np.uint8) for piece in pieces if piece is not None and piece.size]
        return (np.concatenate(data) if data else np.empty(0, np.uint8)), sizes

    def values(self, descriptions: Descriptions, kind: pa.StructType) -> pa.Array:
        """Blobs as they were written: bytes, but external ones as address, position and size."""
        is_external = (descriptions.kinds == BlobKind.EXTERNAL) & ~descriptions.is_null
        inside = replace(descriptions, is_null=descriptions.is_null | is_external)
        blobs = [descriptions.locate(row) if is_external[row] else None for row in range(len(is_external))]
        columns: dict[str, pa.Array] = {
            "data": self.read(inside),
            "uri": pa.array([blob and self._address(blob) for blob in blobs], pa.string()),
            "position": pa.array([blob and _part(blob, blob.position) for blob in blobs], pa.uint64()),
            "size": pa.array([blob and _part(blob, blob.size) for blob in blobs], pa.uint64()),
        }
        children = [columns[child.name] for child in kind]
        bitmap = pack_bits(~descriptions.is_null) if descriptions.is_null.any() else None
        return pa.Array.from_buffers(kind, len(blobs), [bitmap], children=children)

    @staticmethod
    def _address(blob: BlobPlace) -> str:
        if not blob.blob_id:
            return blob.uri
        raise UnsupportedError(f"blobs below base path {blob.blob_id} cannot be written again; read them as bytes")


def _memory_positions(ranges: Sequence[tuple[int, int]], positions: Int64s) -> Int64s:
    """Map positions inside ascending ranges to positions in the ranges laid end to end."""
    starts = np.array([start for start, _ in ranges], np.int64)
    shifts = starts_of(np.array([end - start for start, end in ranges], np.int64))[:-1] - starts
    return positions + shifts[np.searchsorted(starts, positions, side="right") - 1]


def _part(blob: BlobPlace, number: int) -> int | None:
    return None if blob.is_whole else number


def fill_batches(schema: Schema, batches: Iterator[pa.RecordBatch], sources: BlobSources) -> Iterator[pa.RecordBatch]:
    """Put blobs in the place of their descriptions.

    Args:
        schema: What is wanted.
        batches: The same with descriptions.
        sources: Where the blobs are.

    Yields:
        The same rows, in batches of at most `BATCH_BYTES` of blobs.
    """
    target = schema.to_arrow()
    for batch in batches:
        sizes = np.zeros(batch.num_rows, np.int64)
        for field, array in zip(schema.fields, batch.columns, strict=True):
            sizes += row_bytes(field, array)
        start = 0
        ends = np.cumsum(sizes)
        while start < batch.num_rows:
            before = int(ends[start - 1]) if start else 0
            end = max(start + 1, int(np.searchsorted(ends, before + BATCH_BYTES, side="right")))
            part = batch.slice(start, end - start)
            arrays = [_fill(field, array, sources) for field, array in zip(schema.fields, part.columns, strict=True)]
            yield batch_of(arrays, target, len(part))
            start = end


def row_bytes(field: Field, array: pa.Array) -> Int64s | int:
    """Return bytes of the blobs in each row, as far as they are told.

    Args:
        field: What is wanted.
        array: The same with descriptions; shape (n,).
    """
    if is_described(field) or not any(descendant.is_blob for descendant in field.walk()):
        return 0
    if field.is_blob:
        return Descriptions.of(array).sizes
    if field.logical_type == "struct":
        return sum(
            (row_bytes(child, array.field(index)) for index, child in enumerate(field.children)),
            np.zeros(len(array), np.int64),
        )
    offsets = np.asarray(array.offsets).astype(np.int64)
    items = array.values
    inner = np.zeros(len(items), np.int64) + row_bytes(field.children[0], items)
    bounds = starts_of(inner)
    return bounds[offsets[1:]] - bounds[offsets[:-1]]


def _fill(field: Field, array: pa.Array, sources: BlobSources) -> pa.Array:
    if is_described(field) or not any(descendant.is_blob for descendant in field.walk()):
        return array
    if field.is_blob:
        descriptions = Descriptions.of(array)
        if is_second_version(field) and field.children:
            return sources.values(descriptions, field.to_arrow().type)
        return sources.read(descriptions)
    kind = field.to_arrow().type
    mask = null_mask(array)
    bitmap = None if mask is None else pack_bits(~mask)
    if field.logical_type == "struct":
        children = [_fill(child, array.field(index), sources) for index, child in enumerate(field.children)]
        return pa.Array.from_buffers(kind, len(array), [bitmap], children=children)
    offsets = np.asarray(array.offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    items = _fill(field.children[0], array.values.slice(first, last - first), sources)
    buffer = pa.py_buffer(np.ascontiguousarray(offsets - offsets[0]))
    return pa.Array.from_buffers(kind, len(array), [bitmap, buffer], children=[items])
