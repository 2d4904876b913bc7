"""Put the bytes of blobs where they belong while a data file is written: into it, or into blob files beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.arrow_values import buffer_view, null_mask, pack_bits
from lance_core.encoding.kernels import gather, join_ranges, starts_of
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.blobs import (
    DEDICATED_THRESHOLD_KEY,
    DEFAULT_DEDICATED_BYTES,
    DEFAULT_INLINE_BYTES,
    DEFAULT_PACK_BYTES,
    INLINE_THRESHOLD_KEY,
    PACK_THRESHOLD_KEY,
    BlobKind,
    described,
    threshold,
)
from lance_core.format.file.blob_checksums import BLOB_BLOCK_SIZE, encode_blob_sums
from lance_core.format.file.checksums import RunningSums
from lance_core.format.file.file_metadata import PAD_BYTE, PAGE_ALIGNMENT

if TYPE_CHECKING:
    from lance_core.encoding.repdef import Mask
    from lance_core.encoding.values import Bytes, Int64s
    from lance_core.file.write.field_writer import Put
    from lance_core.format.schema import Field
    from lance_core.store.base import ObjectWriter


class BlobPlaces(Protocol):
    """Destinations of blobs that are not stored in the data file."""

    def open(self, blob_id: int, /) -> ObjectWriter:
        """Begin a blob file."""
        ...

    def locate(self, uri: str, /) -> tuple[int, str]:
        """Base path (0 for none) and address below it, for the address of an external blob; refused ones raise."""
        ...


class BlobFiles:
    """The blob files of one data file.

    Args:
        places: Where they go; None if the data file stands alone.
    """

    def __init__(self, locations: BlobPlaces | None) -> None:
        self._locations = locations
        self._checksums: list[RunningSums] = []
        self._pack: tuple[int, ObjectWriter] | None = None

    def locate(self, uri: str) -> tuple[int, str]:
        """See `BlobPlaces.locate`."""
        return self._locations_or_error().locate(uri)

    def dedicate(self, data: memoryview) -> int:
        """Write a blob into a file of its own; the file's number."""
        number, sink = self._open()
        self._write(number, sink, data)
        sink.commit()
        return number

    def pack(self, data: memoryview, limit: int) -> tuple[int, int]:
        """Append a blob to a shared file; the file's number, and the blob's position."""
        if self._pack is not None and self._checksums[self._pack[0] - 1].size + len(data) > limit:
            self.finish()
        if self._pack is None:
            self._pack = self._open()
        number, sink = self._pack
        position = self._checksums[number - 1].size
        self._write(number, sink, data)
        return number, position

    def finish(self) -> None:
        """Finish the shared file."""
        if self._pack is not None:
            self._pack[1].commit()
        self._pack = None

    def checksums(self) -> bytes:
        """Checksums of all blob files, as their data file keeps them; nothing if there are none."""
        return encode_blob_sums(self._checksums) if self._checksums else b""

    def abort(self) -> None:
        """Give up the shared file."""
        if self._pack is not None:
            self._pack[1].abort()
        self._pack = None

    def _open(self) -> tuple[int, ObjectWriter]:
        """Begin the next file; its number."""
        sink = self._locations_or_error().open(len(self._checksums) + 1)
        self._checksums.append(RunningSums(BLOB_BLOCK_SIZE))
        return len(self._checksums), sink

    def _write(self, number: int, sink: ObjectWriter, data: memoryview) -> None:
        sink.write(data)
        self._checksums[number - 1].add(data)

    def _locations_or_error(self) -> BlobPlaces:
        if self._locations is None:
            raise UnsupportedError("a blob of a data file without a dataset is too large, or external")
        return self._locations


def put_blobs(array: pa.Array, put: Put) -> tuple[Int64s, Int64s]:
    """Write the values of a binary array into the data file.

    Returns:
        Position and size of each; 0 for nulls. Empty values have a position, but no bytes.
    """
    dtype = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    if not len(array):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    _, offset_buffer, data = array.buffers()
    offsets = buffer_view(offset_buffer, dtype)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    is_null = null_mask(array)
    sizes = np.diff(offsets)
    if is_null is not None:
        sizes[is_null] = 0
    padding = -sizes % PAGE_ALIGNMENT
    payload: Bytes = gather(buffer_view(data, np.uint8), offsets[:-1], sizes)
    pads = np.frombuffer(PAD_BYTE * int(padding.sum()), np.uint8)
    joined, bounds = join_ranges((payload, starts_of(sizes)), (pads, starts_of(padding)))
    position, _ = put(joined[: int(bounds[-1])])
    return bounds[:-1] + position, sizes


@frozen
class _Limits:
    """Up to how many bytes a blob is kept where; how large a shared blob file may become."""

    inline: int
    packed: int
    pack_file: int


def _limits(field: Field) -> _Limits:
    return _Limits(
        inline=threshold(field, INLINE_THRESHOLD_KEY, DEFAULT_INLINE_BYTES),
        packed=threshold(field, DEDICATED_THRESHOLD_KEY, DEFAULT_DEDICATED_BYTES),
        pack_file=threshold(field, PACK_THRESHOLD_KEY, DEFAULT_PACK_BYTES),
    )


def check_blobs(field: Field, array: pa.StructArray) -> None:
    """Raise InvalidInputError unless each blob that is not null has either bytes or an address."""
    is_valid = np.asarray(array.is_valid())
    data, uri = (np.asarray(array.field(name).is_valid()) for name in ("data", "uri"))
    if (is_valid & (data == uri)).any():
        raise InvalidInputError(f"field {field.name!r}: a blob has either data or a uri")
    if array.type.num_fields == 2:
        return
    position, size = (np.asarray(array.field(name).is_valid()) for name in ("position", "size"))
    if (is_valid & ((position != size) | (position & ~uri))).any():
        raise InvalidInputError(f"field {field.name!r}: position and size stand together, and with a uri")


def place_blobs(field: Field, array: pa.StructArray, put: Put, files: BlobFiles) -> pa.StructArray:
    """Write blobs of version 2.

    Args:
        field: The column.
        array: The blobs (`check_blobs`): struct ``data``, ``uri`` [, ``position``, ``size``].
        put: Writes into the data file.
        files: Takes what does not go there.

    Returns:
        Their descriptions.
    """
    limits = _limits(field)
    is_null = null_mask(array)
    payload = array.field("data")
    sizes = np.asarray(_lengths(payload))
    live = np.ones(len(array), np.bool_) if is_null is None else ~is_null
    has_data = live & np.asarray(payload.is_valid())
    kinds = np.where(sizes > limits.inline, BlobKind.PACKED, BlobKind.INLINE).astype(np.uint8)
    kinds[sizes > limits.packed] = BlobKind.DEDICATED
    kinds[~has_data] = BlobKind.INLINE
    columns = _Columns(len(array))
    columns.kind[:] = kinds
    columns.size[:] = np.where(has_data, sizes, 0)
    inline = has_data & (kinds == BlobKind.INLINE)
    if inline.any():
        columns.position[inline], _ = put_blobs(payload.filter(pa.array(inline)), put)
    for row in np.flatnonzero(has_data & ~inline).tolist():
        data = memoryview(payload[row].as_buffer())
        if kinds[row] == BlobKind.DEDICATED:
            columns.blob_id[row] = files.dedicate(data)
        else:
            columns.blob_id[row], columns.position[row] = files.pack(data, limits.pack_file)
    for row in np.flatnonzero(live & ~has_data).tolist():
        columns.name_external(row, array, files)
    return columns.to_arrow(described(field).to_arrow().type, is_null)


def _lengths(array: pa.Array) -> Int64s:
    offsets = buffer_view(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    return np.diff(offsets) if len(array) else np.empty(0, np.int64)


class _Columns:
    """Descriptions being made."""

    def __init__(self, count: int) -> None:
        self.kind, self.blob_id = np.zeros(count, np.uint8), np.zeros(count, np.uint32)
        self.position, self.size = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
        self.blob_uri = [""] * count

    def name_external(self, row: int, array: pa.StructArray, files: BlobFiles) -> None:
        self.kind[row] = BlobKind.EXTERNAL
        self.blob_id[row], self.blob_uri[row] = files.locate(array.field("uri")[row].as_py())
        if array.type.num_fields > 2:
            self.position[row] = array.field("position")[row].as_py() or 0
            self.size[row] = array.field("size")[row].as_py() or 0

    def to_arrow(self, kind: pa.StructType, is_null: Mask | None) -> pa.StructArray:
        numbers = [pa.array(column) for column in (self.kind, self.position, self.size, self.blob_id)]
        children = [*numbers, pa.array(self.blob_uri, pa.string())]
        bitmap = None if is_null is None else pack_bits(~is_null)
        return pa.Array.from_buffers(kind, len(self.kind), [bitmap], children=children)
