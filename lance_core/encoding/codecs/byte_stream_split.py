"""ByteStreamSplit: the first bytes of all values of a chunk, then the second bytes, and so on.

Source: message ``ByteStreamSplit``. Values have 32 or 64 bits.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.encoding.codecs.codec import Codec, Scalar
from lance_core.encoding.codecs.flat import from_bytes, to_bytes, word_dtype
from lance_core.encoding.kernels import check_sizes, empty, gather, one_buffer, starts_of
from lance_core.encoding.values import FixedValues
from lance_core.errors import CorruptDataError
from lance_core.format.file.encodings import ByteStreamSplit

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Chunks, Int64s

_CHUNKS_AT_ONCE = 32
"""Chunks whose bytes are put together at once: what is made on the way stays in the cache."""


def decode(encoding: ByteStreamSplit, chunks: Chunks) -> FixedValues:
    """Decode all values of all chunks.

    Raises:
        CorruptDataError: A chunk is too short for its count.
    """
    dtype = word_dtype(encoding.bits)
    width = dtype.itemsize
    needed = chunks.counts * width
    check_sizes(chunks.sizes[0], needed, "ByteStreamSplit")
    data = gather(chunks.buffers[0], chunks.starts[0], needed)
    out = empty(int(chunks.counts.sum()), dtype)
    positions = starts_of(chunks.counts)
    ends = (chunks.counts[1:] != chunks.counts[:-1]).nonzero()[0] + 1
    for first, end in pairwise([0, *ends.tolist(), len(chunks.counts)] if len(chunks.counts) else []):
        start, stop, count = int(positions[first]), int(positions[end]), int(chunks.counts[first])
        planes = data[start * width : stop * width].reshape(end - first, width, count)
        values = out[start:stop].reshape(end - first, count)
        for at in range(0, end - first, _CHUNKS_AT_ONCE):
            _join(planes[at : at + _CHUNKS_AT_ONCE], values[at : at + _CHUNKS_AT_ONCE])
    return FixedValues(out)


def _join(planes: Bytes, out: npt.NDArray[Any]) -> None:
    """Put the bytes of words together, which takes half the time of a transposition, and less for small numbers.

    Args:
        planes: Shape (chunks, bytes of a word, values).
        out: Shape (chunks, values), to be filled.
    """
    # Neighbouring bytes become words of two, those become words of four, and so on. The upper half of small numbers
    # is zero in all of them.
    parts: npt.NDArray[Any] = planes
    while parts.shape[1] > 1 and not parts[:, parts.shape[1] // 2 :].any():
        parts = parts[:, : parts.shape[1] // 2]
    while parts.shape[1] > 1:
        bits = parts.dtype.itemsize * 8
        upper = parts[:, 1::2].astype(f"<u{bits // 4}")
        upper <<= bits
        upper |= parts[:, 0::2]
        parts = upper
    out[...] = parts[:, 0]


def decode_at(encoding: ByteStreamSplit, chunks: Chunks, chunk_of: Int64s, index: Int64s) -> FixedValues:
    """Decode value ``index[i]`` of chunk ``chunk_of[i]``.

    Raises:
        CorruptDataError: A chunk is too short for its count.
    """
    width = word_dtype(encoding.bits).itemsize
    check_sizes(chunks.sizes[0], chunks.counts * width, "ByteStreamSplit")
    # Byte by byte: the positions of all bytes of all values together would take eight times the memory of the values.
    positions, step = chunks.starts[0][chunk_of] + index, chunks.counts[chunk_of]
    out = np.empty((len(index), width), np.uint8)
    for byte in range(width):
        out[:, byte] = chunks.buffers[0][positions]
        positions += step
    return from_bytes(out.reshape(-1), encoding.bits)


def decode_one(encoding: ByteStreamSplit) -> Scalar:
    """Make the reader of single values."""
    width = encoding.bits // 8

    def read(memory: memoryview, start: int, size: int, count: int, index: int) -> bytes:
        if size < count * width:
            raise CorruptDataError(f"ByteStreamSplit: a chunk has {size} bytes where {count * width} are needed")
        return bytes(memory[start + index : start + count * width : count])

    return Scalar(read, ("words", width))


def encode_chunks(values: FixedValues, counts: Int64s) -> Chunks:
    """Encode planes of bytes of each chunk.

    Args:
        values: Words of 32 or 64 bits.
        counts: Values per chunk, all equal but the last.
    """
    width = values.data.dtype.itemsize
    data = to_bytes(values.data).reshape(-1, width)
    out: Bytes = empty(len(values) * width, np.uint8)
    whole = len(values) // int(counts[0]) if len(counts) else 0
    done = whole * int(counts[0]) if whole else 0
    if whole:
        shape = (whole, int(counts[0]), width)
        out[: done * width].reshape(whole, width, -1)[...] = data[:done].reshape(shape).transpose(0, 2, 1)
    out[done * width :].reshape(width, -1)[...] = data[done:].T
    return one_buffer(out, starts_of(counts * width), counts)


BYTE_STREAM_SPLIT = Codec(serves=ByteStreamSplit, decode=decode, decode_at=decode_at, decode_one=decode_one)
