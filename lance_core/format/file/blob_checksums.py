"""Checksums (CRC-32, as in zlib) of the blob files of a data file that lance_core writes; the format itself has none.

They are in a global buffer of the data file, right before that of its own checksums, which are of this buffer, too (see
`lance_core.format.file.checksums`):

    u32 for each block of the first blob file            (the last block of a file may be shorter)
    u32 for each block of the second one, and so on
    u64 bytes in each blob file
    u32 bytes in a block, u32 number of blob files, "LNCblobs"

All integers are little-endian. Blob files are numbered from 1 without gaps. Other readers do not notice the buffer; a
data file without blob files has none.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.errors import CorruptDataError
from lance_core.format.file.checksums import crc32

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.format.file.checksums import RunningSums

BLOB_BLOCK_SIZE = 1 << 16
"""Bytes of a blob file that one checksum stands for. Blobs that have files are larger, unless thresholds are lower."""

_MAGIC = b"LNCblobs"
_TRAILER = struct.Struct("<II8s")
_MAX_BLOCK_SIZE = 1 << 26


def encode_blob_sums(files: Sequence[RunningSums]) -> bytes:
    """Return the buffer, from the checksums of each blob file; their blocks are `BLOB_BLOCK_SIZE`."""
    sum_bytes = [np.array(file.all(), "<u4").tobytes() for file in files]
    sizes = np.array([file.size for file in files], "<u8").tobytes()
    return b"".join([*sum_bytes, sizes, _TRAILER.pack(BLOB_BLOCK_SIZE, len(files), _MAGIC)])


@frozen
class BlobSums:
    """Checksums of the blob files of one data file.

    Attributes:
        block_size: Bytes in a block.
        sizes: Shape (files,): bytes in each blob file.
        checksums: Shape (blocks,): checksums of the blocks of all of them.
        firsts: Shape (files,): first block of each.
    """

    block_size: int
    sizes: npt.NDArray[np.int64]
    checksums: npt.NDArray[np.uint32]
    firsts: npt.NDArray[np.int64]

    @property
    def num_files(self) -> int:
        """Blob files; they are numbered from 1."""
        return len(self.sizes)

    def widened(self, blob_id: int, start: int, end: int) -> tuple[int, int]:
        """Return a range of a blob file with all of the blocks that it touches; nothing stays nothing."""
        if start >= end:
            return start, end
        width, size = self.block_size, int(self.sizes[blob_id - 1])
        return start // width * width, min(-(-end // width) * width, size)

    def check(self, blob_id: int, data: memoryview, *, at: int) -> None:
        """Hold whole blocks of a blob file against their checksums.

        Args:
            blob_id: The blob file.
            data: The blocks.
            at: Where in the blob file they begin.

        Raises:
            CorruptDataError: One is not what was written.
        """
        width = self.block_size
        first = int(self.firsts[blob_id - 1]) + at // width
        for number, begin in enumerate(range(0, len(data), width), first):
            if crc32(data[begin : begin + width]) != int(self.checksums[number]):
                raise CorruptDataError(
                    f"the file is damaged: bytes {at + begin} and on do not match their checksum", offset=at + begin
                )


def decode_blob_sums(data: bytes) -> BlobSums | None:
    """Return the checksums in a global buffer; None if it is another buffer.

    Raises:
        CorruptDataError: They contradict each other.
    """
    if len(data) < _TRAILER.size or not data.endswith(_MAGIC):
        return None
    width, count, _ = _TRAILER.unpack_from(data, len(data) - _TRAILER.size)
    sums_end = len(data) - _TRAILER.size - 8 * count
    if sums_end < 0 or not 0 < width <= _MAX_BLOCK_SIZE:
        raise CorruptDataError("the checksums of blob files are damaged")
    sizes = np.frombuffer(data, "<i8", count, offset=sums_end)
    blocks = -(-sizes // width)
    if (sizes < 0).any() or sums_end != 4 * sum(blocks.tolist()):
        raise CorruptDataError("the checksums of blob files do not fit their sizes")
    values = np.frombuffer(data, "<u4", sums_end // 4)
    return BlobSums(width, sizes, values, np.cumsum(blocks) - blocks)
