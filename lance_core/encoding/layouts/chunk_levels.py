"""All levels of one mini-block chunk, in as few steps of numpy as possible; see `single_lists`."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.encoding import registry
from lance_core.encoding.codecs.fastlanes import BLOCK, row_start
from lance_core.encoding.values import Chunks
from lance_core.format.encodings import Flat, OutOfLineBitpacking

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Int64s
    from lance_core.format.encodings import Encoding

    Levels = npt.NDArray[np.unsignedinteger[Any]]

_LEVEL_BITS = 16
_BYTE_BITS = 8
_LANES = BLOCK // _LEVEL_BITS
_MANY = 64


def levels_of_chunk(encoding: Encoding, packed: bytes, count: int) -> Levels:
    """All levels of a chunk.

    Args:
        encoding: How they are encoded.
        packed: Their buffer.
        count: How many there are; 16 bits.

    Returns:
        Shape (count,), unsigned, of 8 or 16 bits.

    Raises:
        CorruptDataError: The buffer does not hold them.
    """
    match encoding:
        case Flat(bits) if bits == _LEVEL_BITS and len(packed) >= 2 * count:
            return np.frombuffer(packed, np.uint16, count)
        case OutOfLineBitpacking(bits, width) if bits == _LEVEL_BITS and 0 < width <= _BYTE_BITS and count:
            whole, rest = divmod(count, BLOCK)
            block_size = width * (BLOCK // 8)
            if len(packed) == whole * block_size + rest * 2:  # a raw tail, as is one whose size fits both
                tail = np.frombuffer(packed, np.uint16, rest, whole * block_size)
                return np.concatenate([_unpack(packed, width, whole * BLOCK), tail]) if whole else tail
            if len(packed) == (whole + (rest > 0)) * block_size:
                return _unpack(packed, width, count)
        case _:
            pass
    return registry.decode_level_chunks(encoding, one_chunk(memoryview(packed), count))


def one_chunk(buffer: memoryview, count: int) -> Chunks:
    """A chunk that is a memory of its own."""
    return Chunks(
        buffers=(np.frombuffer(buffer, np.uint8),),
        starts=np.zeros((1, 1), np.int64),
        sizes=np.array([[len(buffer)]]),
        counts=np.array([count]),
    )


def _unpack(packed: bytes, width: int, count: int) -> Levels:
    flags = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")
    first, *others = _places_of_bits(width, -(-count // BLOCK))
    levels = flags.take(first[:count])
    for bit, places in enumerate(others, 1):
        levels |= flags.take(places[:count]) << bit
    return levels


@lru_cache(maxsize=_MANY)
def _places_of_bits(width: int, num_blocks: int) -> tuple[Int64s, ...]:
    """For each bit of packed levels shape (blocks * 1024,): where in the blocks it stands, for each level."""
    rows = np.empty(BLOCK, np.int64)
    for row in range(_LEVEL_BITS):
        rows[row_start(row) : row_start(row) + _LANES] = row
    lanes = np.arange(BLOCK) % _LANES
    starts = np.arange(num_blocks)[:, None] * (width * BLOCK)
    places: list[Int64s] = []
    for bit in range(width):
        word, shift = np.divmod(rows * width + bit, _LEVEL_BITS)
        places.append((starts + (word * _LANES + lanes) * _LEVEL_BITS + shift).reshape(-1))
    return tuple(places)
