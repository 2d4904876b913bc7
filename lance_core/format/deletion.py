"""Deletion files: the offsets of a fragment's deleted rows.

    .arrow  an Arrow IPC file: one column ``row_id: uint32 not null``, one record batch, ZSTD; any order
    .bin    a portable 32-bit roaring bitmap

Always the full set. pylance 14.0.2 writes the bitmap from 5000 deleted rows on; so do we.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lance_core.errors import CorruptDataError
from lance_core.format.fragment import DeletionFileType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_core.format.fragment import DeletionFile

_BITMAP_MIN_ROWS = 5000
_SCHEMA = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])


def encode_deletions(offsets: BitMap) -> tuple[DeletionFileType, bytes]:
    """Encode row offsets in the layout that fits their number.

    Returns:
        The layout and the content of the file.
    """
    if len(offsets) >= _BITMAP_MIN_ROWS:
        return DeletionFileType.BITMAP, offsets.serialize()
    batch = pa.record_batch([pa.array(bitmap_to_numpy(offsets))], schema=_SCHEMA)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, _SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    return DeletionFileType.ARROW_ARRAY, sink.getvalue().to_pybytes()


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
    decode = _decode_bitmap if file.file_type is DeletionFileType.BITMAP else _decode_arrow
    offsets = decode(data, path)
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
    """Rows in any of the bitmaps."""
    return BitMap().union(*bitmaps)


def _decode_arrow(data: bytes, path: str | None) -> BitMap:
    try:
        reader = pa.ipc.open_file(pa.py_buffer(data))
        if not reader.schema.equals(_SCHEMA) or reader.num_record_batches != 1:
            raise CorruptDataError("not one batch with the single column row_id: uint32 not null", path=path)
        batch = reader.get_batch(0)
        batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise CorruptDataError(f"the deletion file cannot be decoded: {error}", path=path) from error
    return bitmap_from_numpy(batch.column(0).to_numpy(zero_copy_only=False))


def _decode_bitmap(data: bytes, path: str | None) -> BitMap:
    try:
        return BitMap.deserialize(data)
    except ValueError as error:
        raise CorruptDataError("the deletion file is not a roaring bitmap", path=path) from error
