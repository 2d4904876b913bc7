"""The FastLanes bit order: 1024 values of T bits packed to W bits, many blocks at once.

A block has L = 1024 / T lanes and W * L words. Words ``lane, L + lane, 2 L + lane, ...`` are one little-endian stream
of bits; row r (0..T-1) of a lane holds value ``ORDER[r // 8] * 16 + r % 8 * 128 + lane``. The order is that of the
Rust crate ``fastlanes``.

The kernels below work on rows of many blocks at a time, so that numpy's price per call is spread over thousands of
values, and on few enough to stay in the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Int64s

BLOCK = 1024
ORDER = (0, 4, 2, 6, 1, 5, 3, 7)
_BLOCKS_AT_ONCE = 256


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
    bits = blocks.dtype.itemsize * 8
    powers = np.left_shift(blocks.dtype.type(1), np.arange(bits, dtype=blocks.dtype))
    return np.searchsorted(powers, np.bitwise_or.reduce(blocks, axis=1), side="right").astype(np.int64)


def unpack(words: npt.NDArray[Any], starts: Int64s, width: int) -> npt.NDArray[Any]:
    """Unpack blocks of one width.

    Args:
        words: Shape (m,), unsigned, of the type to unpack to.
        starts: Shape (n,): index of each block's first word; ``width * lanes`` words must follow.
        width: Bits per packed value, 0 to T.

    Returns:
        Shape (n, 1024), same dtype.
    """
    out = np.empty((len(starts), BLOCK), words.dtype)
    unpack_into(words, starts, width, out)
    return out


def unpack_into(words: npt.NDArray[Any], starts: Int64s, width: int, out: npt.NDArray[Any]) -> None:
    """As ``unpack``, into given memory of shape (n, 1024)."""
    if width == 0 or len(starts) == 0:
        out[...] = 0
        return
    lanes = BLOCK // (words.dtype.itemsize * 8)
    windows = as_strided(words, (len(words) - lanes + 1, lanes), words.strides * 2, writeable=False)
    columns = np.arange(width)[:, None] * lanes
    for low in range(0, len(starts), _BLOCKS_AT_ONCE):
        packed = windows[starts[low : low + _BLOCKS_AT_ONCE] + columns]
        _unpack_rows(packed, width, out[low : low + _BLOCKS_AT_ONCE])


def _unpack_rows(packed: npt.NDArray[Any], width: int, out: npt.NDArray[Any]) -> None:
    """Unpack words of shape (W, n, lanes) into (n, 1024)."""
    _, num_blocks, lanes = packed.shape
    bits = packed.dtype.itemsize * 8
    mask = (1 << width) - 1
    low, high = np.empty((2, num_blocks, lanes), packed.dtype)
    for row in range(bits):
        word, shift = divmod(row * width, bits)
        target = out[:, row_start(row) : row_start(row) + lanes]
        if shift + width > bits:
            np.right_shift(packed[word], shift, out=low)
            np.left_shift(packed[word + 1], bits - shift, out=high)
            np.bitwise_or(low, high, out=low)
            np.bitwise_and(low, mask, out=target)
        elif shift + width == bits:
            np.right_shift(packed[word], shift, out=target)
        elif shift:
            np.right_shift(packed[word], shift, out=low)
            np.bitwise_and(low, mask, out=target)
        else:
            np.bitwise_and(packed[word], mask, out=target)


def pack_into(blocks: npt.NDArray[Any], width: int, words: npt.NDArray[Any], starts: Int64s) -> None:
    """Pack blocks of one width.

    Args:
        blocks: Shape (n, 1024), unsigned, all below ``2 ** width``.
        width: Bits per packed value.
        words: Shape (m,), same dtype; takes the packed words.
        starts: Shape (n,): index in ``words`` of each block's first word.
    """
    if width == 0 or len(starts) == 0:
        return
    lanes = BLOCK // (words.dtype.itemsize * 8)
    windows = as_strided(words, (len(words) - lanes + 1, lanes), words.strides * 2)
    columns = np.arange(width)[:, None] * lanes
    for low in range(0, len(starts), _BLOCKS_AT_ONCE):
        windows[starts[low : low + _BLOCKS_AT_ONCE] + columns] = _pack_rows(blocks[low : low + _BLOCKS_AT_ONCE], width)


def _pack_rows(blocks: npt.NDArray[Any], width: int) -> npt.NDArray[Any]:
    """Pack values of shape (n, 1024) into words of shape (W, n, lanes)."""
    bits = blocks.dtype.itemsize * 8
    lanes = BLOCK // bits
    packed = np.empty((width, len(blocks), lanes), blocks.dtype)
    shifted = np.empty((len(blocks), lanes), blocks.dtype)
    for row in range(bits):
        word, shift = divmod(row * width, bits)
        values = blocks[:, row_start(row) : row_start(row) + lanes]
        if shift == 0:
            packed[word] = values
        else:
            np.left_shift(values, shift, out=shifted)
            np.bitwise_or(packed[word], shifted, out=packed[word])
        if shift + width > bits:
            np.right_shift(values, bits - shift, out=packed[word + 1])
    return packed
