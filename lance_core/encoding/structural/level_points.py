"""Single levels out of many mini-block chunks, without decoding the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.encoding.physical.fastlanes import unpack_points
from lance_core.encoding.physical.memory import check_chunks, gather_words, starts_of
from lance_core.format.encodings import Flat, OutOfLineBitpacking

if TYPE_CHECKING:
    from lance_core.encoding.repdef import LevelArray
    from lance_core.encoding.values import Chunks, Int64s
    from lance_core.format.encodings import Encoding

_BLOCK = 1024


def decode_level_points(encoding: Encoding | None, chunks: Chunks, positions: Int64s) -> LevelArray | None:
    """Some levels: ``decode_level_chunks(...)[positions]``.

    Args:
        encoding: How the levels of all chunks are encoded.
        chunks: One buffer for each chunk; counts are numbers of levels.
        positions: Which levels to return, counted over all chunks.

    Returns:
        The levels; None if they must be decoded chunk by chunk.

    Raises:
        CorruptDataError: Buffers that leave their page.
    """
    is_packed = isinstance(encoding, OutOfLineBitpacking) and encoding.bits == 16 and encoding.packed_bits > 0
    if not is_packed and encoding != Flat(16):
        return None
    check_chunks(chunks, 1)
    memory, counts, sizes = chunks.buffers[0], chunks.counts, chunks.sizes[0]
    bounds = starts_of(counts)
    chunk_of = bounds.searchsorted(positions, side="right") - 1
    index = positions - bounds[chunk_of]
    starts = chunks.starts[0]
    if not isinstance(encoding, OutOfLineBitpacking):
        return gather_words(memory, starts[chunk_of] + 2 * index, "<u2") if (sizes >= 2 * counts).all() else None
    block_size = encoding.packed_bits * (_BLOCK // 8)
    if (sizes < -(-counts // _BLOCK) * block_size).any() or (starts % 2).any():
        return None  # not all packed: a raw tail, or damage
    firsts = (starts[chunk_of] + index // _BLOCK * block_size) // 2
    words = memory[: len(memory) // 2 * 2].view("<u2")
    return unpack_points(words, firsts, np.full(len(index), encoding.packed_bits), index % _BLOCK)
