"""The bytes of pages that `small_page` writes: chunks of plain bytes between headers, levels and metadata."""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lance_core.common.frozen import NamedTuple
from lance_core.encoding.choose_dictionary import encode_dictionary
from lance_core.encoding.choose_levels import LEVEL_RUNS_PAY
from lance_core.encoding.codecs import fastlanes
from lance_core.encoding.codecs.fastlanes import BLOCK
from lance_core.encoding.kernels import chunk_counts
from lance_core.encoding.layouts.chunk_table import encode_repetition_index, level_bounds
from lance_core.encoding.layouts.page import EncodedPage
from lance_core.encoding.repdef import Levels, max_rep
from lance_core.format.file.encodings import Flat, InlineBitpacking, OutOfLineBitpacking, Variable
from lance_core.format.file.page_layout import FullZipLayout, Layer, MiniBlockLayout, encode_layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.encoding.repdef import LevelArray
    from lance_core.encoding.values import FixedValues, VariableValues
    from lance_core.format.file.encodings import Encoding

SMALL_VALUES = 4 * BLOCK
"""Up to so many values sizes are known, and codecs left to others."""

_MAX_CHUNK = 1 << 15
_ZIPPED_BITS = (32, 64)
"""Words that are stored as they are and have no levels need no chunks, see `mini_block`."""
_LEVEL_BITS = 16
_LEVEL_RUN_BYTES = 3
_PAD = b"\xfe"

Buffer: TypeAlias = bytes | memoryview


class EncodedValues(NamedTuple):
    """Encoded values of a page.

    Attributes:
        kind: How they are encoded, in one buffer for each chunk: `Flat`, `InlineBitpacking` or `Variable`.
        bits: The parameter of the encoding.
        num_values: How many they are.
        per_chunk: Values in each chunk but the last.
        buffers: The value buffer of each chunk.
        items: Items of the dictionary, if there is one.
        compressed: The encoding, if it is none of these.
    """

    kind: type[Flat | InlineBitpacking | Variable]
    bits: int
    num_values: int
    per_chunk: int
    buffers: Sequence[Buffer]
    items: FixedValues | VariableValues | None = None
    compressed: Encoding | None = None


def assemble_page(values: EncodedValues, levels: Levels, version: str) -> EncodedPage | None:
    """Put a page together; None if a chunk is too large for version 2.1."""
    is_large = version != "2.1"
    items, num_items = None, 0
    buffers: list[Any] = []
    if values.num_values > SMALL_VALUES:
        if levels.definition is not None and _has_runs(levels.definition):
            return None
        is_plain = values.kind is Flat and values.items is None and values.compressed is None
        if is_plain and levels.rep is None and levels.definition is None and values.bits in _ZIPPED_BITS:
            zipped, encoded = _zipped_layout(values.bits, values.num_values, levels.layers)
            return EncodedPage(layout=zipped, buffers=[b"".join(values.buffers)], encoded_layout=encoded)
    if values.items is not None:
        items, block = encode_dictionary(values.items)
        num_items, buffers = len(values.items), [block]
    if levels.rep is None and levels.definition is None:
        table, heads, pads = _frames(tuple(map(len, values.buffers)), values.per_chunk, is_large=is_large)
        chunks = b"".join([part for parts in zip(heads, values.buffers, pads, strict=True) for part in parts])
        layout, encoded = _layout_of(
            values.compressed or values.kind,
            values.bits,
            values.num_values,
            items,
            num_items,
            layers=levels.layers,
            is_large=is_large,
        )
        return EncodedPage(layout=layout, buffers=[table, chunks, *buffers], encoded_layout=encoded)
    counts = chunk_counts(values.num_values, values.per_chunk)
    bounds = level_bounds(levels, counts)
    encoded_levels = [_encode_levels(side, bounds.tolist()) for side in (levels.rep, levels.definition)]
    pieces = [side[1] for side in encoded_levels if side is not None]
    joined = _join_chunks(values, pieces, bounds.tolist(), is_large=is_large)
    if joined is None:
        return None
    if levels.rep is not None:
        buffers.append(encode_repetition_index(levels.rep, bounds, max_rep(levels.layers)))
    rep, definition = [None if side is None else side[0] for side in encoded_levels]
    layout = MiniBlockLayout(
        rep=rep,
        definition=definition,
        values=values.compressed or values.kind(values.bits),
        dictionary=items,
        num_dictionary_items=num_items,
        layers=levels.layers,
        num_buffers=1,
        has_repetition_index=levels.rep is not None,
        num_items=values.num_values,
        has_large_chunk=is_large,
    )
    return EncodedPage(layout=layout, buffers=[*joined, *buffers])


@lru_cache(maxsize=64)
def _layout_of(
    encoding: Encoding | type[Flat | InlineBitpacking | Variable],
    bits: int,
    count: int,
    items: Encoding | None,
    num_items: int,
    *,
    layers: tuple[Layer, ...],
    is_large: bool,
) -> tuple[MiniBlockLayout, bytes]:
    """Return the layout of a page without levels, as value and as bytes."""
    layout = MiniBlockLayout(
        rep=None,
        definition=None,
        values=encoding(bits) if isinstance(encoding, type) else encoding,
        dictionary=items,
        num_dictionary_items=num_items,
        layers=layers,
        num_buffers=1,
        has_repetition_index=False,
        num_items=count,
        has_large_chunk=is_large,
    )
    return layout, encode_layout(layout)


@lru_cache(maxsize=64)
def _zipped_layout(bits: int, count: int, layers: tuple[Layer, ...]) -> tuple[FullZipLayout, bytes]:
    """Return the layout of words that are stored as they are, as value and as bytes."""
    layout = FullZipLayout(
        bits_rep=0,
        bits_def=0,
        bits_per_value=bits,
        bits_per_offset=None,
        num_items=count,
        num_visible_items=count,
        values=Flat(bits),
        layers=layers,
    )
    return layout, encode_layout(layout)


@lru_cache(maxsize=256)
def _frames(sizes: tuple[int, ...], per_chunk: int, *, is_large: bool) -> tuple[bytes, list[bytes], list[bytes]]:
    """Make what stands around chunks without levels.

    Args:
        sizes: Bytes of the values of each chunk, all of which fit.
        per_chunk: Values in all chunks but the last.
        is_large: For version 2.2 and newer.

    Returns:
        Chunk metadata; for each chunk what stands before the bytes of its values, and behind them.
    """
    header = struct.Struct("<HI" if is_large else "<HH")
    heads = [header.pack(0, size).ljust(8, _PAD) for size in sizes]
    pads = [_PAD * (-size % 8) for size in sizes]
    whole = [8 + size + len(pad) for size, pad in zip(sizes, pads, strict=True)]
    return _chunk_words(whole, per_chunk, is_large=is_large), heads, pads


def _chunk_words(sizes: list[int], per_chunk: int, *, is_large: bool) -> bytes:
    """Chunk metadata; see `chunk_table.encode_words`."""
    log = per_chunk.bit_length() - 1
    entries = [(size // 8 - 1) << 4 | log for size in sizes[:-1]]
    entries.append((sizes[-1] // 8 - 1) << 4)
    return struct.pack(f"<{len(entries)}{'I' if is_large else 'H'}", *entries)


def _has_runs(levels: LevelArray) -> bool:
    """Return whether runs of levels may take few enough bytes to be worth a look, see `choose_levels`."""
    changes = int(np.count_nonzero(levels[1:] != levels[:-1]))
    packed_bytes = len(levels) * max(1, int(levels.max()).bit_length()) / 8
    return (1 + changes) * _LEVEL_RUN_BYTES <= packed_bytes * LEVEL_RUNS_PAY


def _encode_levels(levels: LevelArray | None, starts: list[int]) -> tuple[Encoding, list[Buffer]] | None:
    """Return levels of each chunk, packed to one width if that saves bytes; a last block may be raw."""
    if levels is None:
        return None
    width = max(1, int(levels.max()).bit_length())
    memory = np.ascontiguousarray(levels).data.cast("B")
    block_bytes = width * (BLOCK // 8)
    # Without lists chunks end where blocks do, so that the blocks of all chunks are packed together.
    whole_blocks = None if any(start % BLOCK for start in starts[:-1]) else _pack_levels(levels, width)
    pieces: list[Buffer] = []
    for start, end in pairwise(starts):
        whole, tail = divmod(end - start, BLOCK)
        packs_tail = width * (BLOCK - tail) < (_LEVEL_BITS - width) * tail
        stop = end if packs_tail else start + whole * BLOCK
        if whole_blocks is None:
            packed = _pack_levels(levels[start:stop], width)
        else:
            packed = whole_blocks[start // BLOCK * block_bytes : -(-stop // BLOCK) * block_bytes]
        pieces.append(packed + memory[stop * 2 : end * 2])
    if sum(map(len, pieces)) < len(memory):
        return OutOfLineBitpacking(_LEVEL_BITS, width), pieces
    return Flat(_LEVEL_BITS), [memory[start * 2 : end * 2] for start, end in pairwise(starts)]


def _pack_levels(levels: LevelArray, width: int) -> bytes:
    """Return blocks of levels, the last one filled up with zeros."""
    blocks = stack_columns([levels], levels.dtype)[0]
    if width == 1:  # bits, which only have to be put in order
        return np.packbits(blocks.astype(np.uint8)[:, _bit_order()], bitorder="little").tobytes()
    return fastlanes.pack(blocks, width).transpose(1, 0, 2).tobytes()


@cache
def _bit_order() -> npt.NDArray[Any]:
    """Return for each bit of a packed block which of its 1024 levels it holds: lane by lane, in each row by row."""
    lanes = np.arange(BLOCK) % (BLOCK // _LEVEL_BITS)
    return np.argsort(lanes * _LEVEL_BITS + fastlanes.ROWS_OF_VALUES[_LEVEL_BITS])


def _join_chunks(
    values: EncodedValues, levels: list[list[Buffer]], starts: list[int], *, is_large: bool
) -> list[bytes] | None:
    """Chunk metadata and chunks with levels; None if a chunk is too large for version 2.1.

    Args:
        values: Encoded values.
        levels: For repetition and definition levels, as far as there are any, those of each chunk.
        starts: The first level of each chunk, and the end.
        is_large: For version 2.2 and newer.
    """
    header = struct.Struct("<H" + "H" * len(levels) + ("I" if is_large else "H"))
    sizes: list[int] = []
    pieces: list[Buffer] = []
    for at, parts in enumerate(zip(*levels, values.buffers, strict=True)):
        head = header.pack(starts[at + 1] - starts[at], *map(len, parts))
        size = 0
        for part in (head, *parts):
            padding = -len(part) % 8
            pieces += (part, _PAD * padding)
            size += len(part) + padding
        sizes.append(size)
    if not is_large and max(sizes) > _MAX_CHUNK:
        return None
    return [_chunk_words(sizes, values.per_chunk, is_large=is_large), b"".join(pieces)]


def stack_columns(columns: Sequence[npt.NDArray[Any]], kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Columns of equally many values as one type, shape (columns, blocks, 1024), zero behind the last value."""
    count = len(columns[0])
    num_blocks = -(-count // BLOCK)
    padded = np.zeros((len(columns), num_blocks * BLOCK), kind)
    for row, values in zip(padded, columns, strict=True):
        row[:count] = values
    return padded.reshape(len(columns), num_blocks, BLOCK)
