"""Bitmaps of the levels of mini-block chunks that exceed a limit.

Where rows begin and which entries have no value is all that it takes to find rows among lists. Bits tell it in a
sixteenth of the memory of levels, most of which nobody wants, and are counted 64 at once.

A position is a number of blocks of 1024 levels times 1024, plus the level's index in its block; each chunk begins at a
block.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.encoding import registry
from lance_core.encoding.codecs.fastlanes import BLOCK, ORDER, unpack
from lance_core.encoding.kernels import aranges, check_chunks, gather, gather_windows, starts_of
from lance_core.format.file.encodings import OutOfLineBitpacking

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.repdef import LevelArray, Mask
    from lance_core.encoding.values import Bytes, Chunks, Int64s
    from lance_core.format.file.encodings import Encoding

    BitmapWords = npt.NDArray[np.uint64]

_LEVEL = np.dtype("<u2")
_LEVEL_BITS = 16
_WORD = 64
_BLOCK_WORDS = BLOCK // _WORD
_BLOCK_BYTES = BLOCK // 8
_TARGETS = np.array([ORDER[row // 8] // 4 + row % 8 * 2 for row in range(_LEVEL_BITS)])
"""Which of a block's words of 64 marks are those of each row of levels."""

_BLOCKS_AT_ONCE = 512
"""Few enough to stay in the cache."""

_LOW_BITS = np.array([(1 << bits) - 1 for bits in range(_WORD + 1)], np.uint64)


def _places_of_ones() -> npt.NDArray[np.uint8]:
    """Return an array of shape (256, 8): where in a byte its first, second, ... bit stands that is set."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return np.argsort(1 - bits, axis=1, kind="stable").astype(np.uint8)


_ONES = _places_of_ones()


@frozen
class Bitmap:
    """The levels above a limit.

    Attributes:
        bitmap_words: Shape (blocks * 16,): a bit for each position, the lowest first.
        before: Shape (blocks * 16 + 1,): marks before each word, and all of them.
    """

    bitmap_words: BitmapWords
    before: Int64s

    def count_before(self, positions: Int64s) -> Int64s:
        """Return an array of shape (n,): marks before each position."""
        word = positions >> 6
        return self.before[word] + np.bitwise_count(self.bitmap_words[word] & _LOW_BITS[positions & 63])

    def is_at(self, positions: Int64s) -> Mask:
        """Return an array of shape (n,): True where there is a mark."""
        return (self.bitmap_words[positions >> 6] >> (positions & 63).astype(np.uint64) & np.uint64(1)).view(
            np.int64
        ) > 0

    def find(self, numbers: Int64s) -> Int64s:
        """Return shape (n,), the positions of marks, each given by how many stand before it; there must be more."""
        # A search finds the word, running bit counts find the byte in it, and a table the bit in that: in each step the
        # marks that are passed are subtracted, so that `left` is how many stand before the mark in what remains.
        word = self.before.searchsorted(numbers, side="right") - 1
        left = (numbers - self.before[word]).astype(np.uint8)
        word_bytes = self.bitmap_words[word].view(np.uint8).reshape(-1, 8)
        ends = np.add.accumulate(np.bitwise_count(word_bytes), axis=1, dtype=np.uint8)
        byte = np.add.reduce(ends <= left[:, None], axis=1)
        at = np.arange(len(word)) * 8 + byte
        byte_values = word_bytes.reshape(-1)[at]
        left -= ends.reshape(-1)[at] - np.bitwise_count(byte_values)
        return (word << 6) + (byte << 3) + _ONES[byte_values, left]

    def follow(self, positions: Int64s) -> Int64s:
        """Return an array of shape (n,): for positions with a mark those of the next marks; -1 behind the last one."""
        word = positions >> 6
        # A shift of one more than 63 bits would be one of none.
        rest = self.bitmap_words[word] >> (positions & 63).astype(np.uint64) >> np.uint64(1)
        next_positions = positions + 1 + np.bitwise_count((rest & (~rest + np.uint64(1))) - np.uint64(1))
        elsewhere = (rest == 0).nonzero()[0]
        if len(elsewhere):
            numbers = self.before[word[elsewhere] + 1]
            next_positions[elsewhere] = -1
            is_there = numbers < self.before[-1]
            next_positions[elsewhere[is_there]] = self.find(numbers[is_there])
        return next_positions


def bitmap_of(bitmap_words: BitmapWords) -> Bitmap:
    """Count the marks in words, shape (blocks * 16,)."""
    return Bitmap(bitmap_words, starts_of(np.bitwise_count(bitmap_words)))


def count_blocks(counts: Int64s) -> Int64s:
    """Blocks of chunks that hold so many levels."""
    return -(-counts // BLOCK)


def above(limit: int, encoding: Encoding, chunks: Chunks) -> BitmapWords:
    """Mark the levels of chunks that exceed a limit.

    Args:
        limit: The limit.
        encoding: How the levels of each chunk are encoded.
        chunks: One buffer for each chunk; counts are numbers of levels.

    Returns:
        Shape (blocks * 16,).

    Raises:
        CorruptDataError: A buffer does not fit its encoding or count.
    """
    check_chunks(chunks, 1)
    counts = chunks.counts
    num_blocks = count_blocks(counts)
    bitmap_words = _packed_above(limit, encoding, chunks, num_blocks)
    if bitmap_words is None:
        return _mark(registry.decode_level_chunks(encoding, chunks) > limit, counts, num_blocks * _BLOCK_WORDS)
    # Behind a chunk's last level its last block holds anything.
    has_rest = counts % BLOCK > 0
    bitmap_words[np.add.accumulate(num_blocks)[has_rest] - 1] &= _first_bits()[(counts % BLOCK)[has_rest]]
    return bitmap_words.reshape(-1)


@cache
def _first_bits() -> BitmapWords:
    """Return an array of shape (1024, 16): words in which as many bits are set."""
    used = np.arange(BLOCK)[:, None] - np.arange(_BLOCK_WORDS) * _WORD
    return _LOW_BITS[np.minimum(np.maximum(used, 0), _WORD)]


def _mark(is_above: Mask, counts: Int64s, num_words: Int64s) -> BitmapWords:
    """Bits for levels of chunks end to end, each chunk with as many words as told."""
    sizes = num_words * _WORD
    is_marked = np.zeros(int(sizes.sum()), np.bool_)
    bounds = starts_of(counts).tolist()
    for at, low, high in zip(starts_of(sizes).tolist(), bounds, bounds[1:], strict=False):  # chunks are few and large
        is_marked[at : at + high - low] = is_above[low:high]
    return np.packbits(is_marked, bitorder="little").view(np.uint64)


def _packed_above(limit: int, encoding: Encoding, chunks: Chunks, num_blocks: Int64s) -> BitmapWords | None:
    """Return an array of shape (blocks, 16); None for levels that are not packed, or damaged."""
    if not isinstance(encoding, OutOfLineBitpacking) or encoding.bits != _LEVEL_BITS:
        return None
    width, counts, starts = encoding.packed_bits, chunks.counts, chunks.starts[0]
    if not 0 < width <= _LEVEL_BITS or len(counts) == 0:
        return None
    block_size, rest = width * _BLOCK_BYTES, counts % BLOCK
    is_packed = chunks.sizes[0] == num_blocks * block_size
    is_raw = chunks.sizes[0] == counts // BLOCK * block_size + rest * _LEVEL.itemsize
    if not (is_packed | is_raw).all():
        return None
    blocks = aranges(np.zeros_like(counts), num_blocks) * block_size + np.repeat(starts, num_blocks)
    is_raw &= rest > 0  # a tail whose size fits both is raw
    if not is_raw.any():
        return _unpack_above(limit, chunks.buffers[0], blocks, width)
    bitmap_words = np.zeros((len(blocks), _BLOCK_WORDS), np.uint64)
    tails = np.add.accumulate(num_blocks)[is_raw] - 1
    is_whole = np.ones(len(blocks), np.bool_)
    is_whole[tails] = False
    bitmap_words[is_whole] = _unpack_above(limit, chunks.buffers[0], blocks[is_whole], width)
    levels = gather(chunks.buffers[0], blocks[tails], rest[is_raw] * _LEVEL.itemsize).view(_LEVEL)
    num_words = -(-int(rest[is_raw].max()) // _WORD)
    tail_words = _mark(levels > limit, rest[is_raw], np.full(len(tails), num_words))
    bitmap_words[tails, :num_words] = tail_words.reshape(-1, num_words)
    return bitmap_words


def _unpack_above(limit: int, memory: Bytes, starts: Int64s, width: int) -> BitmapWords:
    """Return an array of shape (n, 16), for blocks of packed levels."""
    if limit >= (1 << width) - 1:
        return np.zeros((len(starts), _BLOCK_WORDS), np.uint64)
    bitmap_words = np.empty((len(starts), _BLOCK_WORDS), np.uint64)
    for low in range(0, len(starts), _BLOCKS_AT_ONCE):
        packed = gather_windows(memory, starts[low : low + _BLOCKS_AT_ONCE], width * _BLOCK_BYTES)
        if 8 % width:
            firsts = np.arange(len(packed)) * (width * _WORD)
            levels: LevelArray = unpack(packed.reshape(-1).view(_LEVEL), firsts, width)
            packed_bits = np.packbits(levels.reshape(-1) > limit, bitorder="little")
            bitmap_words[low : low + _BLOCKS_AT_ONCE] = packed_bits.view(np.uint64).reshape(-1, _BLOCK_WORDS)
        else:
            _mark_packed(limit, packed, width, bitmap_words[low : low + _BLOCKS_AT_ONCE])
    return bitmap_words


def _mark_packed(limit: int, packed: Bytes, width: int, bitmap_words: BitmapWords) -> None:
    """Mark levels none of which lies in two bytes.

    What the same byte of all words of 16 bits holds is put side by side; 64 levels with one place in their words are 64
    levels in a row.
    """
    rows = np.ascontiguousarray(packed.reshape(-1, width, _WORD, 2).transpose(1, 3, 0, 2))
    shifts = range(0, 8, width)
    masks = np.array([((1 << width) - 1) << shift for shift in shifts], np.uint8)[:, None, None]
    level_bits = rows.reshape(-1, 1, len(packed), _WORD) & masks
    if limit:
        level_bits = level_bits > np.array([limit << shift for shift in shifts], np.uint8)[:, None, None]
    packed_bits = np.packbits(level_bits.reshape(-1), bitorder="little").view(np.uint64).reshape(_LEVEL_BITS, -1)
    bitmap_words[:, _TARGETS] = packed_bits.T
