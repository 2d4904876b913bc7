"""Checksums (CRC-32, as in zlib) of the files that lance_core writes; the format itself has none.

Other readers do not notice them. A data file has them in its last global buffer, which lies right before the file
descriptor; from there on it is the tail:

    u32 for each block of the file before the buffer     (the last block may be shorter)
    u32 for each block of the tail
    u32 of the first list, u32 of all that follows but these four bytes (the second list, then this trailer)
    u32 bytes in a block, u32 number of blocks in the tail, "LNCcrc32"

All integers are little-endian. The table of global buffers ends where the footer begins, so the entry of the last
buffer is found without looking at anything that could be damaged; if it does not lead to the magic, the file has no
checksums. So each byte of a file is covered, or says only where checksums are (or is padding behind the buffer).

Files of version 0.1 have no such table and a shorter footer; their writer puts the same entry at the same distance from
the end of the file, between their metadata and their footer.

Manifests, transactions and deletion files have a section of 16 bytes at a place that other readers skip:

    "LNCcrc32", u32 of what lies before the section, u32 of what lies behind it
"""

from __future__ import annotations

import importlib
import struct
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import frozen
from lance_core.common.limits import check_limit
from lance_core.errors import CorruptDataError
from lance_core.format.file.file_metadata import PAGE_ALIGNMENT
from lance_core.format.file.footer import FOOTER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

MAGIC = b"LNCcrc32"
SMALLEST_BLOCK, LARGEST_BLOCK = 1 << 12, 1 << 14
"""Bytes of a data file that one checksum stands for: little enough to be looked at for the sake of a single row."""
_MOST_SUMS = 1 << 14
"""So many, or half as many, are the checksums of a file until its blocks are as large as they get: who takes a row has
to read them, too."""

_TRAILER = struct.Struct("<IIII8s")
_TRAILER_END = struct.Struct("<II8s")
_ENTRY = struct.Struct("<QQ")
_SECTION = struct.Struct("<8sII")
SECTION_SIZE = _SECTION.size
_MAX_BLOCK_SIZE = 1 << 26


def _fastest() -> Callable[..., int]:
    """Return the same function ten times as fast where isal is there."""
    try:
        crc32: Callable[..., int] = importlib.import_module("isal.isal_zlib").crc32
    except ImportError:
        return zlib.crc32
    return crc32


crc32 = _fastest()
"""Checksum of bytes; a second argument goes on from the checksum of what lies before them."""


class RunningSums:
    """Checksums of the blocks of a file that is being written. A file of many blocks gets larger ones.

    Args:
        block_size: Bytes in a block.
        largest: Bytes that a block may get.
    """

    def __init__(self, block_size: int = SMALLEST_BLOCK, largest: int = LARGEST_BLOCK) -> None:
        self._checksums: list[int] = []
        self._sum = 0
        self._block_size = self._room = block_size
        self._largest = largest

    @property
    def size(self) -> int:
        """Bytes so far."""
        return (len(self._checksums) + 1) * self._block_size - self._room

    @property
    def block_size(self) -> int:
        """Bytes in a block."""
        return self._block_size

    def add(self, data: bytes | memoryview) -> None:
        """Go on with bytes."""
        view = memoryview(data).cast("B") if not isinstance(data, bytes) else memoryview(data)
        while self._block_size < self._largest:
            left = _MOST_SUMS * self._block_size - self.size
            if len(view) < left:
                break
            self._go_on(view[:left])
            self._double()
            view = view[left:]
        self._go_on(view)

    def all(self) -> list[int]:
        """One for each block."""
        return [*self._checksums, self._sum] if self._room < self._block_size else list(self._checksums)

    def _go_on(self, view: memoryview) -> None:
        size, block_size = len(view), self._block_size
        at = 0
        if self._room < block_size:  # a block was begun
            at = min(self._room, size)
            self._sum = crc32(view[:at], self._sum)
            self._room -= at
            if self._room:
                return
            self._checksums.append(self._sum)
        end = size - (size - at) % block_size
        self._checksums += [crc32(view[start : start + block_size]) for start in range(at, end, block_size)]
        self._sum, self._room = crc32(view[end:]), block_size - (size - end)

    def _double(self) -> None:
        """Let each block be two; all are whole."""
        pairs = np.array(self._checksums, np.uint32).reshape(-1, 2)
        self._checksums = join_sums(pairs, self._block_size).tolist()
        self._block_size = self._room = 2 * self._block_size


def join_sums(checksums: npt.NDArray[np.uint32], block_size: int) -> npt.NDArray[np.uint32]:
    """Checksums of runs of blocks, from those of the blocks.

    Args:
        checksums: Shape (runs, n), where n is a power of two; all blocks are whole.
        block_size: Bytes in a block.

    Returns:
        Shape (runs,).
    """
    for table in _shifts(block_size, checksums.shape[1].bit_length() - 1):
        checksums = _shifted(np.ascontiguousarray(checksums[:, ::2]), table) ^ checksums[:, 1::2]
    return checksums[:, 0]


@lru_cache(maxsize=4)
def _shifts(block_size: int, count: int) -> list[npt.NDArray[np.uint32]]:
    """Return tables of shape (4, 256) that advance a checksum by 1, 2, 4, ... blocks, one entry for each byte value.

    A checksum is linear: that of A and B is that of B, xor that of A shifted by B's length, whatever B is.
    """
    zeros = bytes(block_size)
    bits = np.array([crc32(zeros, 1 << bit) ^ crc32(zeros) for bit in range(32)], np.uint32)
    tables: list[npt.NDArray[np.uint32]] = []
    for _ in range(count):
        table = np.zeros((4, 256), np.uint32)
        for bit in range(8):
            table[:, 1 << bit : 2 << bit] = table[:, : 1 << bit] ^ bits.reshape(4, 8)[:, bit : bit + 1]
        tables.append(table)
        bits = _shifted(bits, table)
    return tables


def _shifted(checksums: npt.NDArray[np.uint32], table: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    octets = checksums.astype("<u4", copy=False).view(np.uint8).reshape(*checksums.shape, 4)
    return np.bitwise_xor.reduce(table[np.arange(4), octets], axis=-1)


def sums_size(before: RunningSums, tail_size: int) -> int:
    """Size of the buffer for what lies before it, and so many bytes in the tail."""
    return 4 * (_count(before.size, before.block_size) + _count(tail_size, before.block_size)) + _TRAILER.size


def encode_sums(before: RunningSums, tail: bytes) -> bytes:
    """Return the buffer.

    Args:
        before: Of what lies before it.
        tail: All that comes behind it and the padding.
    """
    first = _pack(before.all())
    view, block_size = memoryview(tail), before.block_size
    second = _pack([crc32(view[at : at + block_size]) for at in range(0, len(tail), block_size)])
    end = _TRAILER_END.pack(block_size, len(second) // 4, MAGIC)
    return b"".join([first, second, struct.pack("<II", crc32(first), crc32(end, crc32(second))), end])


def _pack(checksums: list[int]) -> bytes:
    return struct.pack(f"<{len(checksums)}I", *checksums)


@frozen(kw_only=True)
class SumsBuffer:
    """Location of the checksums of a data file.

    Attributes:
        start: Position of the buffer.
        end: Position behind it.
        tail_start: Where what follows begins.
        block_size: Bytes in a block.
        num_blocks: Blocks before the buffer.
        num_tail_blocks: Blocks behind it.
        first_sum: Checksum of the first list of checksums.
    """

    start: int
    end: int
    tail_start: int
    block_size: int
    num_blocks: int
    num_tail_blocks: int
    first_sum: int

    @property
    def first_range(self) -> tuple[int, int]:
        """Return the byte range of the checksums of the blocks before the buffer."""
        return self.start, self.start + 4 * self.num_blocks

    def decode_first(self, data: bytes | pa.Buffer) -> npt.NDArray[np.uint32]:
        """Checksums of the blocks before the buffer.

        Raises:
            CorruptDataError: They are damaged themselves.
        """
        if crc32(data) != self.first_sum:
            raise CorruptDataError("the checksums of the file are damaged", offset=self.start)
        return np.frombuffer(data, "<u4")


def find_sums(tail: memoryview, size: int) -> tuple[int, int] | None:
    """Find the last global buffer, which may hold checksums.

    Args:
        tail: End of the file.
        size: Bytes in the file.
    """
    at = len(tail) - FOOTER_SIZE - _ENTRY.size
    if at < 0:
        return None
    start, length = _ENTRY.unpack_from(tail, at)
    end = start + length
    return (start, end) if _TRAILER.size <= length and end <= size - FOOTER_SIZE - _ENTRY.size else None


def decode_trailer(data: memoryview, position: tuple[int, int], size: int) -> SumsBuffer | None:
    """Decode the end of the checksum buffer; None if it is another buffer.

    Args:
        data: Its last bytes, as many as `TRAILER_SIZE`, or more.
        position: Start and end of the buffer in the file.
        size: Bytes in the file.

    Raises:
        CorruptDataError: It is damaged.
    """
    first_sum, _, block_size, num_tail_blocks, magic = _TRAILER.unpack_from(data, len(data) - _TRAILER.size)
    if magic != MAGIC:
        return None
    start, end = position
    is_size = SMALLEST_BLOCK <= block_size <= _MAX_BLOCK_SIZE
    num_blocks = _count(start, block_size) if is_size else 0
    expected = (num_blocks + num_tail_blocks) * 4 + _TRAILER.size
    tail_start = align(end)
    if not is_size or num_tail_blocks != _count(size - tail_start, block_size) or expected != end - start:
        raise CorruptDataError("the checksums of the file do not fit its size", offset=start)
    check_limit("max_checksum_bytes", end - start, "bytes of checksums")
    return SumsBuffer(
        start=start,
        end=end,
        tail_start=tail_start,
        block_size=block_size,
        num_blocks=num_blocks,
        num_tail_blocks=num_tail_blocks,
        first_sum=first_sum,
    )


def is_intact(content: memoryview, start: int, end: int) -> bool:
    """Return whether a file is what its checksums say; False if they are not at this place.

    Args:
        content: All of a small file.
        start: Where the buffer of checksums begins.
        end: Where it ends.
    """
    if not 0 <= start <= end - _TRAILER.size <= len(content) - _TRAILER.size:
        return False
    block_size, _, magic = _TRAILER_END.unpack_from(content, end - _TRAILER_END.size)
    if magic != MAGIC or not SMALLEST_BLOCK <= block_size <= _MAX_BLOCK_SIZE:
        return False
    first = _pack([crc32(content[at : min(at + block_size, start)]) for at in range(0, start, block_size)])
    tail = range(align(end), len(content), block_size)
    second = _pack([crc32(content[at : at + block_size]) for at in tail])
    trailer = _TRAILER_END.pack(block_size, len(tail), MAGIC)
    of_both = struct.pack("<II", crc32(first), crc32(trailer, crc32(second)))
    return bytes(content[start:end]) == b"".join((first, second, of_both, trailer))


def encode_place(start: int, size: int, footer_size: int) -> bytes:
    """Encode where checksums are, for a file without a table of global buffers.

    Args:
        start: Position of the buffer.
        size: Bytes in it.
        footer_size: Bytes of the footer, which follows; zeros fill up to where readers look for the place.
    """
    return _ENTRY.pack(start, size) + bytes(FOOTER_SIZE - footer_size)


TRAILER_SIZE = _TRAILER.size


def decode_tail_sums(data: memoryview, location: SumsBuffer) -> npt.NDArray[np.uint32]:
    """Checksums of the blocks behind the buffer.

    Args:
        data: End of the buffer: ``4 * num_tail_blocks`` and ``TRAILER_SIZE`` bytes.
        location: The parsed trailer.

    Raises:
        CorruptDataError: They are damaged themselves.
    """
    second, trailer = data[: 4 * location.num_tail_blocks], data[-_TRAILER.size :]
    if crc32(trailer[8:], crc32(second)) != struct.unpack_from("<I", trailer, 4)[0]:
        raise CorruptDataError("the checksums of the file are damaged", offset=location.start)
    return np.frombuffer(second, "<u4")


def encode_section(before: int, behind: int) -> bytes:
    """Return a section of checksums.

    Args:
        before: Checksum of what lies before it.
        behind: Of what lies behind it.
    """
    return _SECTION.pack(MAGIC, before, behind)


def with_section(data: bytes, at: int) -> bytes:
    """Return bytes with a section of checksums at a place that their readers pass over."""
    before, behind = data[:at], data[at:]
    return b"".join([before, encode_section(crc32(before), crc32(behind)), behind])


def check_section(data: bytes, at: int, *, path: str | None) -> bool:
    """Compare the bytes around a section with it.

    Args:
        data: The whole file.
        at: Where the section would begin.
        path: The file, for errors.

    Returns:
        False if there is no section.

    Raises:
        CorruptDataError: The bytes have changed since they were written.
    """
    if not 0 <= at <= len(data) - SECTION_SIZE:
        return False
    magic, before, behind = _SECTION.unpack_from(data, at)
    if magic != MAGIC:
        return False
    view = memoryview(data)
    if crc32(view[:at]) != before or crc32(view[at + SECTION_SIZE :]) != behind:
        raise CorruptDataError("the file is damaged: its bytes do not match their checksum", path=path)
    return True


def align(position: int) -> int:
    """Return the first position at which the next buffer may begin."""
    return position + -position % PAGE_ALIGNMENT


def _count(size: int, block_size: int) -> int:
    return -(-size // block_size)
