"""Integers in blocks of file version 2.3: constants, ranges, differences, and dictionaries.

| encoding   | block                                                                                      |
|------------|--------------------------------------------------------------------------------------------|
| Constant   | nothing                                                                                    |
| Range      | nothing                                                                                    |
| Delta      | the block of the differences                                                               |
| Dictionary | u64 bytes of the indices, u64 bytes of the items, indices, items; nothing if neither has any |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.common.limits import check_limit
from lance_core.encoding.codecs.codec import Codec, block_by_block, decode_integers, has_bytes
from lance_core.encoding.codecs.flat import WORD_BITS, word_dtype
from lance_core.errors import CorruptDataError
from lance_core.format.file.encodings import Constant, Delta, Dictionary, Range

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Bytes


def _check_count(count: int) -> None:
    """Refuse more integers than memory may be taken for: no byte stands for them."""
    check_limit("max_decompressed_bytes", 8 * count, "bytes of integers")


def _repeat(encoding: Constant, _: Bytes, count: int) -> npt.NDArray[Any]:
    """Repeat the little-endian value; there need not be one for no integers."""
    _check_count(count)
    value = encoding.value
    if value is None:
        if count:
            raise CorruptDataError(f"{count} integers that are null")
        return np.empty(0, np.uint64)
    if len(value) * 8 not in WORD_BITS:
        raise CorruptDataError(f"a constant integer of {len(value)} bytes")
    return np.full(count, int.from_bytes(value, "little"), word_dtype(len(value) * 8))


def _spread(encoding: Range, _: Bytes, count: int) -> npt.NDArray[Any]:
    """Make integers at equal distances."""
    _check_count(count)
    if count and encoding.start + encoding.delta * (count - 1) >= 1 << encoding.bits:
        raise CorruptDataError(f"a range of {count} integers does not fit into {encoding.bits} bits")
    sequence = np.arange(count, dtype=np.uint64) * np.uint64(encoding.delta) + np.uint64(encoding.start)
    return sequence.astype(word_dtype(encoding.bits))


def _add_up(encoding: Delta, data: Bytes, count: int) -> npt.NDArray[Any]:
    """Add up the differences."""
    deltas = decode_integers(encoding.deltas, data, max(count - 1, 0))
    if count == 0:
        return np.empty(0, word_dtype(encoding.bits))
    if encoding.start >= 1 << encoding.bits or (len(deltas) and int(deltas.max()) >= 1 << encoding.bits):
        raise CorruptDataError(f"an integer or a difference does not fit into {encoding.bits} bits")
    out = np.empty(count, word_dtype(encoding.bits))
    out[0] = encoding.start
    out[1:] = deltas
    return np.cumsum(out, dtype=out.dtype)


def _look_up(encoding: Dictionary, data: Bytes, count: int) -> npt.NDArray[Any]:
    """Look up the items; the block holds the sizes of indices and items, and these."""
    first = second = data[:0]
    if has_bytes(encoding):
        head = 16
        sizes = read_words(data, 2)
        if head + sum(sizes) > len(data):
            raise CorruptDataError("a dictionary of integers reaches beyond the end of its block")
        first, second = data[head : head + sizes[0]], data[head + sizes[0] : head + sum(sizes)]
    items = decode_integers(encoding.items, second, encoding.num_items)
    indices = decode_integers(encoding.indices, first, count)
    if len(indices) and int(indices.max()) >= len(items):
        raise CorruptDataError(f"an index points beyond {len(items)} integers")
    return items[indices]


def read_words(data: Bytes, count: int) -> list[int]:
    """Read the sizes that a block begins with, u64 each."""
    if len(data) < 8 * count:
        raise CorruptDataError(f"a block of {len(data)} bytes has no room for its sizes")
    return np.ascontiguousarray(data[: 8 * count]).view("<u8").tolist()


CONSTANT = Codec(serves=Constant, num_buffers=lambda _: 0, decode_blocks=block_by_block(_repeat))
RANGE = Codec(serves=Range, num_buffers=lambda _: 0, decode_blocks=block_by_block(_spread))
DELTA = Codec(
    serves=Delta,
    num_buffers=lambda encoding: int(has_bytes(encoding.deltas)),
    decode_blocks=block_by_block(_add_up),
)
DICTIONARY = Codec(
    serves=Dictionary,
    num_buffers=lambda encoding: int(has_bytes(encoding.indices) or has_bytes(encoding.items)),
    decode_blocks=block_by_block(_look_up),
)
