"""ByteStreamSplit: the first bytes of all values of a chunk, then the second bytes, and so on.

Source: message ``ByteStreamSplit``. Values have 32 or 64 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.encoding.codecs.flat import from_bytes, to_bytes, word_dtype
from lance_core.encoding.kernels import check_sizes, empty, gather, one_buffer, starts_of

if TYPE_CHECKING:
    from lance_core.encoding.values import Bytes, Chunks, FixedValues, Int64s


def decode_chunks(bits: int, chunks: Chunks) -> FixedValues:
    """All values of all chunks: chunks of one count are transposed together.

    Raises:
        CorruptDataError: A chunk is too short for its count.
    """
    width = word_dtype(bits).itemsize
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
    return from_bytes(out, bits)


def encode_chunks(values: FixedValues, counts: Int64s) -> Chunks:
    """Planes of bytes of each chunk.

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
