"""Single levels out of many mini-block chunks, without decoding the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.encoding.physical import rle
from lance_core.encoding.physical.fastlanes import BLOCK, unpack_points
from lance_core.encoding.physical.memory import check_chunks, gather_words, starts_of
from lance_core.format.encodings import Flat, OutOfLineBitpacking, Rle

if TYPE_CHECKING:
    from lance_core.encoding.repdef import LevelArray
    from lance_core.encoding.values import Chunks, Int64s
    from lance_core.format.encodings import Encoding

_LEVEL = np.dtype("<u2")


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
    if not isinstance(encoding, (Flat, Rle, OutOfLineBitpacking)) or encoding.bits != _LEVEL.itemsize * 8:
        return None
    check_chunks(chunks, 1)
    memory, counts, sizes = chunks.buffers[0], chunks.counts, chunks.sizes[0]
    bounds = starts_of(counts)
    chunk_of = bounds.searchsorted(positions, side="right") - 1
    index = positions - bounds[chunk_of]
    starts = chunks.starts[0]
    match encoding:
        case Flat():
            is_there = (sizes >= 2 * counts).all()
            return gather_words(memory, starts[chunk_of] + 2 * index, _LEVEL) if is_there else None
        case Rle():
            return rle.decode_points(encoding.bits, rle.split_blocks(chunks), chunk_of, index).data.view(_LEVEL)
        case OutOfLineBitpacking():
            block_size = encoding.packed_bits * (BLOCK // 8)
            if block_size == 0 or (sizes < -(-counts // BLOCK) * block_size).any():
                return None  # not all packed: a raw tail, or damage
            firsts = starts[chunk_of] + index // BLOCK * block_size
            return unpack_points(memory, firsts, encoding.packed_bits, index % BLOCK, _LEVEL)
