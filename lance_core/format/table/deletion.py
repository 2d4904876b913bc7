"""Deletion files: the offsets of a fragment's deleted rows.

    .arrow  an Arrow IPC file: one column ``row_id: uint32 not null``, one record batch, perhaps compressed; any order
    .bin    a portable 32-bit roaring bitmap

Always the full set. A section of checksums (`lance_core.format.file.checksums`) lies before the footer of the Arrow
file, and behind the bitmap; other readers pass over it. pylance 14.0.2 writes the bitmap from 5000 deleted rows on; so
do we.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lance_core.errors import CorruptDataError
from lance_core.format.file.checksums import SECTION_SIZE, check_section, with_section
from lance_core.format.table.bitmap import decode_bitmap
from lance_core.format.table.fragment import DeletionFileType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_core.format.table.fragment import DeletionFile

_BITMAP_MIN_ROWS = 5000
_MAGIC = b"ARROW1"
_MESSAGE_START = b"\xff\xff\xff\xff"
_CLAIM_SIZE = 8
_FOOTER_SIZE = struct.Struct("<i")
_SCHEMA = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])


def encode_deletions(offsets: BitMap) -> tuple[DeletionFileType, bytes]:
    """Encode row offsets in the layout that fits their number.

    Returns:
        The layout and the content of the file.
    """
    if len(offsets) >= _BITMAP_MIN_ROWS:
        data = offsets.serialize()
        return DeletionFileType.BITMAP, with_section(data, len(data))
    rows = pa.py_buffer(bitmap_to_numpy(offsets))
    column = pa.Array.from_buffers(pa.uint32(), len(offsets), [None, rows])  # pa.array would import pandas
    batch = pa.record_batch([column], schema=_SCHEMA)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, _SCHEMA) as writer:  # to compress 20 KB at most takes 5 times as long, and saves a third
        writer.write_batch(batch)
    data = sink.getvalue().to_pybytes()
    return DeletionFileType.ARROW_ARRAY, with_section(data, _footer_start(data))


def decode_deletions(data: bytes, file: DeletionFile, *, physical_rows: int, path: str | None = None) -> BitMap:
    """Decode a deletion file and hold it against what the manifest says about it.

    Args:
        data: Content of the file.
        file: The manifest's entry.
        physical_rows: Rows of the fragment.
        path: The file, for errors.

    Raises:
        CorruptDataError: Not a deletion file, or not the one the manifest describes.
    """
    is_bitmap = file.file_type == DeletionFileType.BITMAP
    check_section(data, (len(data) if is_bitmap else _footer_start(data)) - SECTION_SIZE, path=path)
    offsets = decode_bitmap(data, "deleted rows", path=path) if is_bitmap else _decode_arrow(data, physical_rows, path)
    if file.num_deleted_rows and len(offsets) != file.num_deleted_rows:
        raise CorruptDataError(
            f"the deletion file lists {len(offsets)} rows, the manifest says {file.num_deleted_rows}", path=path
        )
    if offsets and offsets.max() >= physical_rows:
        raise CorruptDataError(f"row {offsets.max()} is deleted, the fragment has {physical_rows} rows", path=path)
    return offsets


def bitmap_from_numpy(offsets: npt.NDArray[np.integer]) -> BitMap:
    """Turn an array of row offsets into a bitmap."""
    # pyroaring takes arrays of C unsigned ints without touching each number.
    return BitMap(array("I", np.ascontiguousarray(offsets, np.uint32).tobytes()))


def bitmap_to_numpy(offsets: BitMap) -> npt.NDArray[np.uint32]:
    """Turn a bitmap into ascending row offsets."""
    return np.frombuffer(offsets.to_array(), np.uint32)


def union(bitmaps: Iterable[BitMap]) -> BitMap:
    """Return rows in any of the bitmaps."""
    return BitMap().union(*bitmaps)


def _footer_start(data: bytes) -> int:
    """Return the start of an Arrow file's footer, whose size precedes the magic at the end; 0 if there is none."""
    end = len(data) - len(_MAGIC) - _FOOTER_SIZE.size
    size: int = _FOOTER_SIZE.unpack_from(data, end)[0] if end >= 0 else 0
    return end - size if 0 < size <= end else 0


def _decode_arrow(data: bytes, physical_rows: int, path: str | None) -> BitMap:
    try:
        source = pa.BufferReader(data)
        source.seek(max(0, data.find(_MESSAGE_START)))  # writers pad the magic differently
        message = pa.ipc.read_message(source)
        if message.type != "schema":  # which Arrow does not look at: it would read outside of memory
            raise CorruptDataError("the deletion file has no schema", path=path)
        schema = pa.ipc.read_schema(message)
        message = pa.ipc.read_message(source)
        _check_claims(message, physical_rows, path)
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        is_only = _is_at_end(source)
    except (pa.ArrowException, OSError, EOFError, ValueError, struct.error) as error:
        raise CorruptDataError(f"the deletion file cannot be decoded: {error}", path=path) from error
    if not is_only or not schema.equals(_SCHEMA) or batch.column(0).null_count or data[-len(_MAGIC) :] != _MAGIC:
        raise CorruptDataError(
            "not an Arrow file with one batch of the single column row_id: uint32 not null", path=path
        )
    column = batch.column(0)  # whose `to_numpy` would import pandas
    offsets = np.frombuffer(column.buffers()[1], np.uint32) if len(column) else np.empty(0, np.uint32)
    return bitmap_from_numpy(offsets[column.offset :][: len(column)])


def _is_at_end(source: pa.NativeFile) -> bool:
    try:
        pa.ipc.read_message(source)
    except EOFError:
        return True
    return False


def _check_claims(message: pa.Message, physical_rows: int, path: str | None) -> None:
    """Arrow allocates whatever a compressed buffer claims to hold: look at the claims first."""
    body = message.body
    if message.type != "record batch" or body is None:
        raise CorruptDataError("the deletion file has no batch", path=path)
    for offset, size in _compressed_buffers(message.metadata):
        claimed = int.from_bytes(body[offset : offset + _CLAIM_SIZE].to_pybytes(), "little", signed=True)
        if size and claimed > max(4 * physical_rows, _CLAIM_SIZE):
            raise CorruptDataError(
                f"the deletion file claims {claimed} bytes of offsets for {physical_rows} rows", path=path
            )


def _compressed_buffers(metadata: pa.Buffer) -> list[tuple[int, int]]:
    """Offset and size of the buffers of a batch, from its flatbuffer (tables ``Message`` and ``RecordBatch``).

    None if they are not compressed; then they cannot be larger than the file.
    """
    raw = memoryview(metadata)

    def field(table: int, number: int) -> int:
        """Return the position that an offset field refers to; 0 if the field is missing."""
        (back,) = struct.unpack_from("<i", raw, table)
        at = 4 + 2 * number
        (size,) = struct.unpack_from("<H", raw, table - back)
        slot = struct.unpack_from("<H", raw, table - back + at)[0] if at < size else 0
        return table + slot + struct.unpack_from("<I", raw, table + slot)[0] if slot else 0

    batch = field(struct.unpack_from("<I", raw)[0], 2)
    vector = field(batch, 2)
    if not vector or not field(batch, 3):
        return []
    (count,) = struct.unpack_from("<I", raw, vector)
    return [struct.unpack_from("<qq", raw, vector + 4 + 16 * number) for number in range(count)]
