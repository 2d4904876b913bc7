"""Rle: values and how often each is repeated (1 to 255, one byte).

In mini-block chunks run values and run lengths are two buffers; as a block (levels, dictionaries) they are one:
u64 bytes of run values, run values, run lengths. Source: message ``Rle``.
"""

from __future__ import annotations

import numpy as np

from lance_core.encoding.physical.flat import from_bytes, word_dtype
from lance_core.encoding.physical.memory import check_sizes, gather, gather_words, starts_of
from lance_core.encoding.values import Chunks, FixedValues
from lance_core.errors import CorruptDataError

_HEADER = 8
_MAX_RUN = 255


def decode_chunks(bits: int, chunks: Chunks) -> FixedValues:
    """All values of all chunks: one repeat over all runs.

    Raises:
        CorruptDataError: Runs that do not add up to the chunk's count, or a length without value.
    """
    width = word_dtype(bits).itemsize
    value_sizes, num_runs = chunks.sizes
    if (value_sizes != num_runs * width).any():
        raise CorruptDataError("Rle: a chunk has a different number of run values and run lengths")
    lengths = gather(chunks.buffers[1], chunks.starts[1], num_runs)
    totals = starts_of(lengths)
    bounds = starts_of(num_runs)
    if (np.diff(totals[bounds]) != chunks.counts).any():
        raise CorruptDataError("Rle: run lengths of a chunk do not add up to its number of values")
    values = from_bytes(gather(chunks.buffers[0], chunks.starts[0], value_sizes), bits)
    return FixedValues(np.repeat(values.data, lengths))


def split_blocks(blocks: Chunks) -> Chunks:
    """Block form to the two buffers of chunks.

    Raises:
        CorruptDataError: A block is shorter than it says.
    """
    starts, sizes = blocks.starts[0], blocks.sizes[0]
    check_sizes(sizes, np.full_like(sizes, _HEADER), "Rle")
    claimed = gather_words(blocks.buffers[0], starts, "<u8")
    if (claimed > (sizes - _HEADER).astype(np.uint64)).any():
        raise CorruptDataError("Rle: run values reach beyond the end of their block")
    value_sizes = claimed.astype(np.int64)
    starts = starts + _HEADER
    return Chunks(
        buffers=(blocks.buffers[0], blocks.buffers[0]),
        starts=np.stack((starts, starts + value_sizes)),
        sizes=np.stack((value_sizes, sizes - _HEADER - value_sizes)),
        counts=blocks.counts,
    )
