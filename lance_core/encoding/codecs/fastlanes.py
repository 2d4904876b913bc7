"""The FastLanes bit order: 1024 values of T bits packed to W bits, many blocks at once.

A block has L = 1024 / T lanes and W * L words. Words ``lane, L + lane, 2 L + lane, ...`` are one little-endian stream
of bits; row r (0..T-1) of a lane holds value ``ORDER[r // 8] * 16 + r % 8 * 128 + lane``. The order is that of the
Rust crate ``fastlanes``.

The kernels below work on rows of many blocks at a time, so that numpy's price per call is spread over thousands of
values, and on few enough to stay in the cache.
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lance_core.common.frozen import frozen
from lance_core.encoding.kernels import Scratch, empty, gather_words

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Int64s

BLOCK = 1024
ORDER = (0, 4, 2, 6, 1, 5, 3, 7)
_WORD_CODES = {8: "<B", 16: "<H", 32: "<I", 64: "<Q"}
_ROW = np.dtype("V128")
"""The words of all lanes, or the values that they hold in one row: 128 bytes, whatever the words."""
_BLOCKS_AT_ONCE = 512
_MAX_BLOCKS_AT_ONCE = 64
_MAX_PACKED_AT_ONCE = 3
"""Up to so many blocks (for packing, for each byte of a word), all rows at once are faster than one after the other."""
_MAX_NUMPY_ROWS = 1 << 9
"""Up to so many rows numpy's own memory is cheaper; from 128 KiB on it may be mapped anew, page by page, every time."""

_PACKED, _ROWS = Scratch(), Scratch()


def row_start(row: int) -> int:
    """Index of the value that lane 0 holds in a row."""
    return ORDER[row // 8] * 16 + row % 8 * 128


def bit_widths(blocks: npt.NDArray[Any]) -> Int64s:
    """Bits that the largest value of each block needs.

    Args:
        blocks: Shape (n, values), unsigned.

    Returns:
        Shape (n,).
    """
    return _powers(blocks.dtype).searchsorted(np.bitwise_or.reduce(blocks, axis=1), side="right")


@cache
def _powers(dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the least word of each number of bits."""
    return np.left_shift(dtype.type(1), np.arange(dtype.itemsize * 8, dtype=dtype))


def unpack(packed_words: npt.NDArray[Any], starts: Int64s, width: int) -> npt.NDArray[Any]:
    """Unpack blocks of one width.

    Args:
        packed_words: Shape (m,), unsigned, of the type to unpack to.
        starts: Shape (n,): index of each block's first word; ``width * lanes`` words must follow.
        width: Bits per packed value, 0 to T.

    Returns:
        Shape (n, 1024), same dtype.
    """
    out = np.empty((len(starts), BLOCK), packed_words.dtype)
    unpack_into(packed_words, starts, width, out)
    return out


def unpack_into(packed_words: npt.NDArray[Any], starts: Int64s, width: int, out: npt.NDArray[Any]) -> None:
    """As ``unpack``, into given contiguous memory of shape (n, 1024)."""
    if width == 0 or len(starts) == 0:
        out[...] = 0
        return
    if len(starts) <= _MAX_BLOCKS_AT_ONCE:
        _unpack_at_once(_packed_rows(packed_words, starts, width), width, out)
        return
    for low in range(0, len(starts), _BLOCKS_AT_ONCE):
        packed = _packed_rows(packed_words, starts[low : low + _BLOCKS_AT_ONCE], width)
        _unpack_rows(packed, width, out[low : low + _BLOCKS_AT_ONCE])


def _rows_of_words(packed_words: npt.NDArray[Any]) -> npt.NDArray[np.void]:
    """Return the row that begins at each word."""
    size = packed_words.dtype.itemsize
    return np.ndarray((len(packed_words) - _ROW.itemsize // size + 1,), _ROW, packed_words.data, 0, (size,))


def _packed_rows(packed_words: npt.NDArray[Any], starts: Int64s, width: int) -> npt.NDArray[Any]:
    """Return the words of blocks of one width, shape (W, n, lanes), until the next ones are asked for."""
    size, lanes = packed_words.dtype.itemsize, _ROW.itemsize // packed_words.dtype.itemsize
    step = int(starts[1] - starts[0]) if len(starts) > 1 else 1
    if step > 0 and not np.count_nonzero(starts[1:] - starts[:-1] != step):
        # Blocks at even distances are transposed, which takes half the time of picking their rows.
        strides = (_ROW.itemsize, step * size)
        rows = _PACKED.array(width * len(starts), _ROW).reshape(width, len(starts))
        rows[...] = np.ndarray(rows.shape, _ROW, packed_words.data, int(starts[0]) * size, strides)
    else:
        rows = _rows_of_words(packed_words)[starts + np.arange(width)[:, None] * lanes]
    return rows.view(packed_words.dtype).reshape(width, len(starts), lanes)


def _put_in_order(rows: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
    """Rows of blocks, shape (T, n, lanes), to the places of their values, shape (n, 1024).

    `ORDER` reverses the three bits of a number, and a row starts a multiple of its size from its block's start. So with
    an axis for each bit of ``row // 8``, all that there is to do is to transpose.
    """
    digits = (2,) * (len(rows).bit_length() - 4)
    sources = rows.view(_ROW).reshape(*digits, 8, rows.shape[1])
    out.view(_ROW).reshape(len(out), 8, *digits)[...] = sources.T


def _in_rows(blocks: npt.NDArray[Any], rows: npt.NDArray[Any]) -> None:
    """Values of blocks, shape (n, 1024), to rows that adjoin, shape (T, n, lanes): the reverse of `_put_in_order`."""
    digits = (2,) * (len(rows).bit_length() - 4)
    sources = np.ascontiguousarray(blocks).view(_ROW).reshape(len(blocks), 8, *digits)
    rows.view(_ROW).reshape(*digits, 8, rows.shape[1])[...] = sources.T


def unpack_blocks(packed_words: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Unpack a few adjoining blocks.

    Args:
        packed_words: Shape (n, width, lanes), unsigned, of the type to unpack to; the width is not 0.

    Returns:
        Shape (n, 1024), same dtype.
    """
    out = np.empty((len(packed_words), BLOCK), packed_words.dtype)
    _unpack_at_once(packed_words.transpose(1, 0, 2), packed_words.shape[1], out)
    return out


def _unpack_at_once(packed: npt.NDArray[Any], width: int, out: npt.NDArray[Any]) -> None:
    """As `_unpack_rows`, all rows in each step."""
    bits, dtype = packed.dtype.itemsize * 8, packed.dtype
    layout = _places_of_rows(bits, width)
    rows = _pick(packed, layout.word_numbers)
    np.right_shift(rows, layout.shifts, out=rows)
    if len(layout.split):
        high = _pick(packed, layout.following)
        np.left_shift(high, layout.rest, out=high)
        np.bitwise_or(high, _pick(rows, layout.split), out=high)
        rows[layout.split] = high
    np.bitwise_and(rows, dtype.type((1 << width) - 1), out=rows)
    _put_in_order(rows, out)


def _pick(rows: npt.NDArray[Any], layout: Int64s) -> npt.NDArray[Any]:
    """Return some rows of shape (m, n, lanes), all of which are there; many of them in Arrow's memory pool."""
    if len(layout) * rows.shape[1] <= _MAX_NUMPY_ROWS:
        return rows[layout]
    out = empty(len(layout) * rows[0].size, rows.dtype).reshape(len(layout), *rows.shape[1:])
    return np.take(rows, layout, axis=0, out=out, mode="clip")  # with the mode that raises it would fill a copy first


def _unpack_rows(packed: npt.NDArray[Any], width: int, out: npt.NDArray[Any]) -> None:
    """Unpack words of shape (W, n, lanes) into (n, 1024).

    Rows are unpacked to where they adjoin and put in order at the end: numpy takes as long for each of 1,000 strips of
    128 bytes as for what is done in them.
    """
    _, num_blocks, lanes = packed.shape
    bits = packed.dtype.itemsize * 8
    mask = (1 << width) - 1
    rows = _ROWS.array(num_blocks * BLOCK, packed.dtype).reshape(bits, num_blocks, lanes)
    high = np.empty((num_blocks, lanes), packed.dtype)
    for row, target in enumerate(rows):
        word, shift = divmod(row * width, bits)
        if shift + width > bits:
            np.right_shift(packed[word], shift, out=target)
            np.left_shift(packed[word + 1], bits - shift, out=high)
            np.bitwise_or(target, high, out=target)
            np.bitwise_and(target, mask, out=target)
        elif shift + width == bits:
            np.right_shift(packed[word], shift, out=target)
        elif shift:
            np.right_shift(packed[word], shift, out=target)
            np.bitwise_and(target, mask, out=target)
        else:
            np.bitwise_and(packed[word], mask, out=target)
    _put_in_order(rows, out)


def unpack_mixed(packed_words: npt.NDArray[Any], starts: Int64s, widths: Int64s, out: npt.NDArray[Any]) -> None:
    """As ``unpack_into``, for few blocks of many widths: each block has its own shifts.

    Args:
        packed_words: Shape (m,).
        starts: Shape (n,).
        widths: Shape (n,), 0 to T each.
        out: Shape (n, 1024).
    """
    if not widths.any():
        out[...] = 0
        return
    sources = _rows_of_words(packed_words)
    for low in range(0, len(starts), _MAX_BLOCKS_AT_ONCE):
        some = slice(low, low + _MAX_BLOCKS_AT_ONCE)
        _unpack_some_mixed(sources, np.where(widths[some] == 0, 0, starts[some]), widths[some], out[some])


def _unpack_some_mixed(sources: npt.NDArray[np.void], starts: Int64s, widths: Int64s, out: npt.NDArray[Any]) -> None:
    """As `unpack_mixed`, all rows of all blocks in each step: row r of a block of width w begins at bit r * w."""
    dtype, bits = out.dtype, out.dtype.itemsize * 8
    lanes = BLOCK // bits
    first_bits = np.arange(bits)[:, None] * widths
    shifts = first_bits & (bits - 1)
    first_words = starts + first_bits // bits * lanes
    rows = sources[first_words].view(dtype).reshape(bits, len(starts), lanes)
    np.right_shift(rows, shifts.astype(dtype)[:, :, None], out=rows)
    split = np.nonzero(shifts + widths > bits)
    if len(split[0]):
        high = sources[first_words[split] + lanes].view(dtype).reshape(-1, lanes)
        np.left_shift(high, (bits - shifts[split]).astype(dtype)[:, None], out=high)
        rows[split] |= high
    np.bitwise_and(rows, _masks(widths, dtype), out=rows)
    _put_in_order(rows, out)


def _rows_of_values(bits: int) -> Int64s:
    """Return an array of shape (1024,): the row that holds each value of a block."""
    rows = np.empty(BLOCK, np.int64)
    for row in range(bits):
        rows[row_start(row) : row_start(row) + BLOCK // bits] = row
    return rows


ROWS_OF_VALUES = {bits: _rows_of_values(bits) for bits in (8, 16, 32, 64)}
_LOW_BITS = {bits: np.array([(1 << n) - 1 for n in range(bits + 1)], f"<u{bits // 8}") for bits in (8, 16, 32, 64)}


def unpack_points(
    memory: Bytes, starts: Int64s, widths: Int64s | int, index: Int64s, dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    """Single values of many blocks.

    Args:
        memory: Holds the blocks, at any byte; at least one word.
        starts: Shape (n,): position of the block of each value.
        widths: Shape (n,), or one for all: bits per packed value in that block.
        index: Shape (n,): number of the value in its block.
        dtype: Unsigned word.

    Returns:
        Shape (n,).
    """
    bits = dtype.itemsize * 8
    # A value lies in lane index % lanes, from bit row * width of the lane on; the words of a lane are 128 bytes apart.
    # The first word gives the low bits of all values, the next one the high bits of those that cross its border.
    bit = ROWS_OF_VALUES[bits][index] * widths
    used = bit & (bits - 1)
    shift = used.astype(dtype)
    row_bytes = BLOCK // 8
    lane = index & (BLOCK // bits - 1)
    first = starts + (bit // bits * row_bytes + lane * dtype.itemsize)
    # Behind a block of width 0 there may be nothing; all others hold the words that their values are in.
    low = gather_words(memory, np.minimum(first, len(memory) - dtype.itemsize), dtype) >> shift
    split = (used + widths > bits).nonzero()[0]
    if len(split):
        high = gather_words(memory, first[split] + row_bytes, dtype)
        low[split] |= high << (dtype.type(bits) - shift[split])
    return low & _LOW_BITS[bits][widths]


@cache
def value_reader(bits: int) -> Callable[[memoryview, int, int, int], bytes]:
    """Make the reader of single values of words of so many bits.

    Returns:
        Takes memory, where the block begins in it, bits per packed value, and which of the block's values is wanted.
    """
    word, lanes, row_bytes, rows = (
        Struct(_WORD_CODES[bits]),
        BLOCK // bits - 1,
        BLOCK // 8,
        ROWS_OF_VALUES[bits].tolist(),
    )
    word_bytes = word.size

    def read(memory: memoryview, start: int, width: int, index: int) -> bytes:
        number, shift = divmod(rows[index] * width, bits)
        at = start + number * row_bytes + (index & lanes) * word_bytes
        (value,) = word.unpack_from(memory, at)
        value >>= shift
        if shift + width > bits:
            value |= word.unpack_from(memory, at + row_bytes)[0] << bits - shift
        return word.pack(value & (1 << width) - 1)

    return read


def _masks(widths: Int64s, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return an array of shape (n, 1): as many low bits set as each width says."""
    bits = dtype.itemsize * 8
    ones = np.full(len(widths), (1 << bits) - 1, dtype)
    return np.right_shift(ones, (bits - widths).astype(dtype))[:, None]  # numpy shifts by T to 0


def pack_into(blocks: npt.NDArray[Any], width: int, packed_words: npt.NDArray[Any], starts: Int64s) -> None:
    """Pack blocks of one width.

    Args:
        blocks: Shape (n, 1024), unsigned, all below ``2 ** width``.
        width: Bits per packed value.
        packed_words: Shape (m,), same dtype; takes the packed words.
        starts: Shape (n,): index in ``packed_words`` of each block's first word.
    """
    if width == 0 or len(starts) == 0:
        return
    lanes = BLOCK // (packed_words.dtype.itemsize * 8)
    windows = as_strided(packed_words, (len(packed_words) - lanes + 1, lanes), packed_words.strides * 2)
    columns = np.arange(width)[:, None] * lanes
    for low in range(0, len(starts), _BLOCKS_AT_ONCE):
        windows[starts[low : low + _BLOCKS_AT_ONCE] + columns] = pack(blocks[low : low + _BLOCKS_AT_ONCE], width)


def pack(blocks: npt.NDArray[Any], width: int) -> npt.NDArray[Any]:
    """Pack blocks that the cache holds: a few of them all rows in each step, more of them row by row.

    Args:
        blocks: Shape (n, 1024), unsigned, all below ``2 ** width``.
        width: Bits per packed value.

    Returns:
        Shape (width, n, lanes), same dtype.
    """
    bits, dtype = blocks.dtype.itemsize * 8, blocks.dtype
    lanes = BLOCK // bits
    if width == 0 or len(blocks) == 0:
        return np.empty((width, len(blocks), lanes), dtype)
    if len(blocks) > _MAX_PACKED_AT_ONCE * dtype.itemsize:
        return _pack_rows(blocks, width)
    layout = _places_of_rows(bits, width)
    rows = np.empty((bits, len(blocks), lanes), dtype)
    _in_rows(blocks, rows)
    packed = np.bitwise_or.reduceat(rows << layout.shifts, layout.firsts, axis=0)
    if len(layout.split):
        packed[layout.following] |= rows[layout.split] >> layout.rest
    return packed


@frozen
class _Layout:
    """Positions of the values of each row in the words of a lane.

    Attributes:
        word_numbers: Shape (bits,): word of each row.
        shifts: Shape (bits, 1, 1): bit in that word.
        firsts: Shape (width,): first row of each word.
        split: Rows that reach into the next word.
        following: That word.
        rest: Shape (split, 1, 1): how many of their bits are in the first word.
    """

    word_numbers: Int64s
    shifts: npt.NDArray[Any]
    firsts: Int64s
    split: Int64s
    following: Int64s
    rest: npt.NDArray[Any]


@cache
def _places_of_rows(bits: int, width: int) -> _Layout:
    """Return the places for words of 8, 16, 32 or 64 bits and values of 1 bit to as many."""
    word_indices, bit = np.divmod(np.arange(bits) * width, bits)
    shifts = bit.astype(f"<u{bits // 8}")[:, None, None]
    split = (bit + width > bits).nonzero()[0]
    rest = shifts.dtype.type(bits) - shifts[split]
    return _Layout(
        word_indices, shifts, word_indices.searchsorted(np.arange(width)), split, word_indices[split] + 1, rest
    )


def _pack_rows(blocks: npt.NDArray[Any], width: int) -> npt.NDArray[Any]:
    """Pack values of shape (n, 1024) into words of shape (W, n, lanes); rows adjoin first, as in `_unpack_rows`."""
    bits = blocks.dtype.itemsize * 8
    lanes = BLOCK // bits
    packed = np.empty((width, len(blocks), lanes), blocks.dtype)
    shifted = np.empty((len(blocks), lanes), blocks.dtype)
    rows = _ROWS.array(len(blocks) * BLOCK, blocks.dtype).reshape(bits, len(blocks), lanes)
    _in_rows(blocks, rows)
    for row, values in enumerate(rows):
        word, shift = divmod(row * width, bits)
        if shift == 0:
            packed[word] = values
        else:
            np.left_shift(values, shift, out=shifted)
            np.bitwise_or(packed[word], shifted, out=packed[word])
        if shift + width > bits:
            np.right_shift(values, bits - shift, out=packed[word + 1])
    return packed
