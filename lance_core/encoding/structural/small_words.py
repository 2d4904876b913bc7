"""Small pages of words without nulls, of many columns at once.

What `small_page` does for one column costs dozens of steps, whatever its size. Here columns of one length and width
take the steps together. The pages are the same.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.encoding.physical import fastlanes
from lance_core.encoding.physical.fastlanes import BLOCK
from lance_core.encoding.physical.memory import chunk_counts
from lance_core.encoding.structural import small_page
from lance_core.encoding.structural.page import EncodedPage
from lance_core.format.encodings import Flat, InlineBitpacking
from lance_core.format.page_layout import Layer, MiniBlockLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.format.encodings import Encoding

_AT_ONCE = 64
"""Columns; with more, they leave the cache."""


def encode_words(columns: Sequence[npt.NDArray[Any]], version: str) -> list[EncodedPage | None]:
    """Encode pages as `small_page.encode` does, without options.

    Args:
        columns: Unsigned words of one type, at least one and at most `small_page.MAX_VALUES`; all equally many.
        version: Version of the file, by name.

    Returns:
        The page of each column; None if another encoding than packed or plain words is better.
    """
    pages: list[EncodedPage | None] = []
    for low in range(0, len(columns), _AT_ONCE):
        pages += _encode(np.stack(columns[low : low + _AT_ONCE]), is_large=version != "2.1")
    return pages


def _encode(data: npt.NDArray[Any], *, is_large: bool) -> list[EncodedPage | None]:
    """As `encode_words`, for columns of shape (n, values)."""
    num_columns, count = data.shape
    width = data.dtype.itemsize
    num_blocks = -(-count // BLOCK)
    padded = np.zeros((num_columns, num_blocks * BLOCK), data.dtype)
    padded[:, :count] = data
    blocks = padded.reshape(-1, BLOCK)
    bits = np.array([one.bit_length() for one in np.bitwise_or.reduce(blocks, axis=1).tolist()], np.int64)
    packed_bytes = bits.reshape(num_columns, -1).sum(axis=1) * (BLOCK // 8) + num_blocks * width
    changes = np.count_nonzero(data[:, 1:] != data[:, :-1], axis=1)
    best = np.minimum(packed_bytes, count * width)
    is_other = (1 + changes) * (width + 1) <= best * small_page.RUNS_PAY
    if width == small_page.DICTIONARY_WIDTH:
        is_other |= small_page.repeats(data)
    is_other &= best > count * width * small_page.PACKED_WELL
    is_other |= changes == 0
    is_packed = best <= count * width * small_page.PACKED_PAYS
    packed = _pack(blocks, np.where(np.repeat(is_packed & ~is_other, num_blocks), bits, 0))
    even = small_page.words_per_chunk(width)
    layouts = [
        _layout(encoding, count, is_large=is_large) for encoding in (Flat(width * 8), InlineBitpacking(width * 8))
    ]
    counts = [chunk_counts(count, even), chunk_counts(count, BLOCK)]
    pages: list[EncodedPage | None] = []
    for at, (other, packs) in enumerate(zip(is_other.tolist(), is_packed.tolist(), strict=True)):
        if other:
            pages.append(None)
            continue
        if packs:
            own = range(at * num_blocks, (at + 1) * num_blocks)
            buffers = [int(bits[one]).to_bytes(width, "little") + packed[one] for one in own]
        else:
            buffers = small_page.cut(data[at].data.cast("B"), counts[0], width)
        chunks = small_page.join_chunks(buffers, counts[packs], [], [0] * (len(buffers) + 1), is_large=is_large)
        pages.append(None if chunks is None else EncodedPage(layout=layouts[packs], buffers=chunks))
    return pages


def _pack(blocks: npt.NDArray[Any], bits: npt.NDArray[np.int64]) -> list[bytes]:
    """The packed words of each block; blocks of one width are packed together."""
    packed = [b""] * len(blocks)
    for width in np.flatnonzero(np.bincount(bits)).tolist():
        if width:
            chosen = np.flatnonzero(bits == width)
            words = np.ascontiguousarray(fastlanes.pack(blocks[chosen], width).transpose(1, 0, 2))
            for at, one in zip(chosen.tolist(), words.reshape(len(chosen), -1), strict=True):
                packed[at] = one.tobytes()
    return packed


@lru_cache(maxsize=64)
def _layout(encoding: Encoding, count: int, *, is_large: bool) -> MiniBlockLayout:
    return MiniBlockLayout(
        rep=None,
        definition=None,
        values=encoding,
        dictionary=None,
        num_dictionary_items=0,
        layers=(Layer.ALL_VALID_ITEM,),
        num_buffers=1,
        has_repetition_index=False,
        num_items=count,
        has_large_chunk=is_large,
    )
