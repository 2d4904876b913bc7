"""Single levels out of many mini-block chunks, without decoding the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.encoding import registry
from lance_core.encoding.codecs import rle
from lance_core.encoding.codecs.fastlanes import BLOCK, unpack_points
from lance_core.encoding.kernels import check_chunks, gather_words, starts_of
from lance_core.format.encodings import Flat, OutOfLineBitpacking, Rle

if TYPE_CHECKING:
    from lance_core.encoding.repdef import LevelArray
    from lance_core.encoding.values import Chunks, Int64s
    from lance_core.format.encodings import Encoding

_LEVEL = np.dtype("<u2")


def decode_level_points(encoding: Encoding, chunks: Chunks, chunk_of: Int64s, index: Int64s) -> LevelArray:
    """Some levels.

    Args:
        encoding: How the levels of all chunks are encoded.
        chunks: One buffer for each chunk; counts are numbers of levels.
        chunk_of: Shape (n,): the chunk of each level.
        index: Shape (n,): which of the chunk's levels it is; there are as many.

    Raises:
        CorruptDataError: Buffers that leave their page or do not hold their levels.
    """
    check_chunks(chunks, 1)
    found = _decode_points(encoding, chunks, chunk_of, index)
    if found is not None:
        return found
    return registry.decode_level_chunks(encoding, chunks)[starts_of(chunks.counts)[chunk_of] + index]


def _decode_points(encoding: Encoding, chunks: Chunks, chunk_of: Int64s, index: Int64s) -> LevelArray | None:
    """The levels; None if they must be decoded chunk by chunk, or are damaged."""
    if not isinstance(encoding, (Flat, Rle, OutOfLineBitpacking)) or encoding.bits != _LEVEL.itemsize * 8:
        return None
    memory, counts, sizes, starts = chunks.buffers[0], chunks.counts, chunks.sizes[0], chunks.starts[0]
    match encoding:
        case Flat():
            is_there = (sizes >= 2 * counts).all()
            return gather_words(memory, starts[chunk_of] + 2 * index, _LEVEL) if is_there else None
        case Rle():
            runs = rle.split_blocks(chunks)
            return rle.decode_points(encoding.bits, runs, chunk_of, index, encoding.length_bits).data.view(_LEVEL)
        case OutOfLineBitpacking():
            return _packed_points(encoding.packed_bits, chunks, chunk_of, index)


def _packed_points(width: int, chunks: Chunks, chunk_of: Int64s, index: Int64s) -> LevelArray | None:
    memory, counts, sizes, starts = chunks.buffers[0], chunks.counts, chunks.sizes[0], chunks.starts[0]
    block_size = width * (BLOCK // 8)
    if not 0 < width <= _LEVEL.itemsize * 8:
        return None
    whole = counts // BLOCK
    is_raw = sizes == whole * block_size + (counts - whole * BLOCK) * _LEVEL.itemsize  # the tail is not packed
    if not (is_raw | (sizes == -(-counts // BLOCK) * block_size)).all():
        return None
    block = index // BLOCK
    firsts = starts[chunk_of] + block * block_size
    in_tail = (is_raw & (counts > whole * BLOCK))[chunk_of] & (block == whole[chunk_of])
    if not in_tail.any():
        return unpack_points(memory, firsts, width, index % BLOCK, _LEVEL)
    levels = np.empty(len(index), _LEVEL)
    levels[in_tail] = gather_words(memory, (firsts + index % BLOCK * _LEVEL.itemsize)[in_tail], _LEVEL)
    packed = ~in_tail
    if packed.any():
        levels[packed] = unpack_points(memory, firsts[packed], width, index[packed] % BLOCK, _LEVEL)
    return levels
