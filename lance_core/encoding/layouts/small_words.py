"""Small pages of words without nulls, of many columns at once.

What `small_page` does for one column costs dozens of steps, whatever its size. Here columns of one length and width
take the steps together. The pages are the same.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.encoding.codecs import fastlanes
from lance_core.encoding.codecs.fastlanes import BLOCK
from lance_core.encoding.layouts import small_page
from lance_core.encoding.layouts.page import PlacelessPage
from lance_core.format.encodings import Flat, InlineBitpacking
from lance_core.format.page_layout import Layer, MiniBlockLayout, encode_layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.format.encodings import Encoding

AT_ONCE = 64
"""Columns; with more, they leave the cache."""


def encode_words(columns: Sequence[npt.NDArray[Any]], version: str) -> list[PlacelessPage | None]:
    """Encode pages as `small_page.encode` does, without options.

    Args:
        columns: Unsigned words of one type, at least one and at most `small_page.MAX_VALUES`; all equally many.
        version: Version of the file, by name.

    Returns:
        The page of each column; None if another encoding than packed or plain words is better.
    """
    pages: list[PlacelessPage | None] = []
    for low in range(0, len(columns), AT_ONCE):
        pages += _encode_words(columns[low : low + AT_ONCE], is_large=version != "2.1")
    return pages


def _encode_words(columns: Sequence[npt.NDArray[Any]], *, is_large: bool) -> list[PlacelessPage | None]:
    count, width = len(columns[0]), columns[0].itemsize
    blocks = stack(columns, columns[0].dtype)
    data = blocks.reshape(len(columns), -1)[:, :count]
    bits = bits_of(blocks)
    changes = (data[:, 1:] != data[:, :-1]).sum(axis=1).tolist()
    repeats = small_page.repeats(data).tolist() if width == small_page.DICTIONARY_WIDTH else [False] * len(columns)
    # Plain numbers: what is decided for each column takes less time than a dozen arrays of so few.
    is_other, is_packed, plain = list[bool](), list[bool](), count * width
    for widths, changing, repeating in zip(bits.tolist(), changes, repeats, strict=True):
        best = min(sum(widths) * (BLOCK // 8) + len(widths) * width, plain)
        may_pay = repeating or (1 + changing) * (width + 1) <= best * small_page.RUNS_PAY
        is_other.append(not changing or (may_pay and best > plain * small_page.PACKED_WELL))
        is_packed.append(not is_other[-1] and best <= plain * small_page.PACKED_PAYS)
    packed = pack_chunks(blocks, bits, is_packed, is_large=is_large)
    layout = _layout_of_words(width * 8, count, is_packed=True, is_large=is_large)
    pages: list[PlacelessPage | None] = []
    for row, other, found in zip(data, is_other, packed, strict=True):
        if other:
            pages.append(None)
        else:
            pages.append(_flat(row, is_large=is_large) if found is None else PlacelessPage(layout, found))
    return pages


def _flat(data: npt.NDArray[Any], *, is_large: bool) -> PlacelessPage:
    """Words as they are."""
    width, memory = data.itemsize, data.data.cast("B")
    even = small_page.words_per_chunk(width)
    starts = range(0, data.nbytes, even * width)
    pieces = [memory[start : start + starts.step] for start in starts]
    words, heads, pads = small_page.frames(tuple(map(len, pieces)), even, is_large=is_large)
    chunks = b"".join([part for parts in zip(heads, pieces, pads, strict=True) for part in parts])
    return PlacelessPage(_layout_of_words(width * 8, len(data), is_packed=False, is_large=is_large), [words, chunks])


def stack(columns: Sequence[npt.NDArray[Any]], kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Columns of equally many values in blocks of 1024, zero behind the last.

    Args:
        columns: Unsigned words.
        kind: The type that they get.

    Returns:
        Shape (columns, blocks, 1024).
    """
    count = len(columns[0])
    padded = np.zeros((len(columns), -(-count // BLOCK) * BLOCK), kind)
    for row, words in zip(padded, columns, strict=True):
        row[:count] = words
    return padded.reshape(len(columns), -1, BLOCK)


def bits_of(blocks: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Shape (columns, blocks): the bits that each block needs."""
    largest = np.bitwise_or.reduce(blocks, axis=2)
    return np.array([one.bit_length() for one in largest.ravel().tolist()], np.int64).reshape(largest.shape)


def pack_chunks(
    blocks: npt.NDArray[Any], bits: npt.NDArray[np.int64], wanted: Sequence[bool], *, is_large: bool
) -> list[list[bytes] | None]:
    """Chunks of one packed block each.

    Args:
        blocks: From `stack`.
        bits: From `bits_of`.
        wanted: One for each column.
        is_large: For version 2.2 and newer.

    Returns:
        Chunk metadata and chunks of each column that is wanted, None for the others.
    """
    columns, width = [at for at, one in enumerate(wanted) if one], blocks.itemsize
    found: list[list[bytes] | None] = [None] * len(wanted)
    if len(columns) < len(blocks):
        blocks, bits = blocks[columns], bits[columns]
    pieces = iter(_pack(blocks.reshape(-1, BLOCK), bits.ravel()))
    for column, widths in zip(columns, bits.tolist(), strict=True):
        sizes = tuple([width + one * (BLOCK // 8) for one in widths])
        words, heads, pads = small_page.frames(sizes, BLOCK, is_large=is_large)
        parts: list[bytes] = []
        for one, head, pad in zip(widths, heads, pads, strict=True):
            parts += (head, one.to_bytes(width, "little"), next(pieces), pad)
        found[column] = [words, b"".join(parts)]
    return found


def _pack(blocks: npt.NDArray[Any], bits: npt.NDArray[np.int64]) -> list[bytes]:
    """The packed words of each block; blocks of one width are packed together."""
    packed = [b""] * len(blocks)
    for width in {*bits.tolist()} - {0}:
        chosen = (bits == width).nonzero()[0]
        some = blocks if len(chosen) == len(blocks) else blocks[chosen]
        words = np.ascontiguousarray(fastlanes.pack(some, width).transpose(1, 0, 2))
        for at, one in zip(chosen.tolist(), words.reshape(len(chosen), -1), strict=True):
            packed[at] = one.tobytes()
    return packed


@lru_cache(maxsize=64)
def _layout_of_words(bits: int, count: int, *, is_packed: bool, is_large: bool) -> bytes:
    return layout_of(InlineBitpacking(bits) if is_packed else Flat(bits), count, is_large=is_large)


@lru_cache(maxsize=64)
def layout_of(
    encoding: Encoding, count: int, items: Encoding | None = None, num_items: int = 0, *, is_large: bool
) -> bytes:
    """The encoded layout of a page without levels, whose values have one buffer."""
    return encode_layout(
        MiniBlockLayout(
            rep=None,
            definition=None,
            values=encoding,
            dictionary=items,
            num_dictionary_items=num_items,
            layers=(Layer.ALL_VALID_ITEM,),
            num_buffers=1,
            has_repetition_index=False,
            num_items=count,
            has_large_chunk=is_large,
        )
    )
