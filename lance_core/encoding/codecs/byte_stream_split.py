"""ByteStreamSplit: the first bytes of all values of a chunk, then the second bytes, and so on.

Source: message ``ByteStreamSplit``. Values have 32 or 64 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.encoding.codecs.codec import Codec
from lance_core.encoding.codecs.flat import from_bytes, to_bytes, word_dtype
from lance_core.encoding.kernels import check_sizes, empty, gather, one_buffer, starts_of
from lance_core.format.file.encodings import ByteStreamSplit

if TYPE_CHECKING:
    from lance_core.encoding.values import Bytes, Chunks, FixedValues, Int64s


def decode(encoding: ByteStreamSplit, chunks: Chunks) -> FixedValues:
    """Decode all values of all chunks.

    Raises:
        CorruptDataError: A chunk is too short for its count.
    """
    # A chunk is a matrix of planes x values, and its values are the transposed one. Chunks of one count that follow
    # each other are one matrix with another axis, so that numpy transposes all of them at once.
    width = word_dtype(encoding.bits).itemsize
    needed = chunks.counts * width
    check_sizes(chunks.sizes[0], needed, "ByteStreamSplit")
    data = gather(chunks.buffers[0], chunks.starts[0], needed)
    out = empty(len(data), np.uint8)
    bounds = np.flatnonzero(np.diff(chunks.counts, prepend=-1, append=-1))
    positions = starts_of(needed)
    for first, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        part = slice(int(positions[first]), int(positions[end]))
        count = int(chunks.counts[first])
        planes = data[part].reshape(end - first, width, count)
        out[part].reshape(end - first, count, width)[...] = planes.transpose(0, 2, 1)
    return from_bytes(out, encoding.bits)


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


BYTE_STREAM_SPLIT = Codec(serves=ByteStreamSplit, decode=decode)
