"""Single values out of mini-block chunks without lists, whichever pages and columns they are of.

The price of a numpy call is paid once for all columns that are encoded alike, not once for each: a table of 500
columns has few encodings.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.encoding import registry
from lance_core.encoding.arrow_values import take_values
from lance_core.encoding.kernels import gather_words, starts_of
from lance_core.encoding.layouts.chunk_bytes import pad8
from lance_core.encoding.layouts.open_chunks import open_chunks, together
from lance_core.encoding.plans import ByteRanges
from lance_core.encoding.strategy import SCATTERED_VALUES_SHARE
from lance_core.encoding.values import FixedValues
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.layouts.open_chunks import OpenChunks, PageChunks
    from lance_core.encoding.repdef import LevelArray
    from lance_core.encoding.values import Bytes, Chunks, Int64s, Values
    from lance_core.format.file.encodings import Encoding
    from lance_core.format.file.page_layout import MiniBlockLayout


_WORD_BYTES = (1, 2, 4, 8)


@frozen
class Scattered:
    """Wanted values and the chunks that hold them.

    Attributes:
        chunks: Shape (3, chunks): positions in the file, bytes and numbers of values; each chunk once.
        chunk_of: Shape (n,): the chunk of each value.
        index: Shape (n,): which of the chunk's values it is.
    """

    chunks: Int64s
    chunk_of: Int64s
    index: Int64s


def find_scattered(grids: Sequence[Int64s], rows: Sequence[Int64s]) -> Scattered:
    """Return the points of some rows.

    Args:
        grids: For each page what the chunk table says of the chunk of each row, shape (5, n); see `ChunkTable.grid`.
        rows: For each page the ascending rows, shape (n,).
    """
    grid = grids[0] if len(grids) == 1 else np.concatenate(grids, axis=1)
    wanted = rows[0] if len(rows) == 1 else np.concatenate(rows)
    index = wanted - grid[3]
    is_new = np.empty(len(index), np.bool_)
    is_new[:1] = True
    np.not_equal(grid[0, 1:], grid[0, :-1], out=is_new[1:])
    if is_new.all():
        return Scattered(grid[:3], np.arange(len(index)), index)
    return Scattered(grid[:3, is_new], np.cumsum(is_new) - 1, index)


def find_fixed_width(scattered: Scattered, layout: MiniBlockLayout) -> Int64s | None:
    """Return the positions of fixed-width values that are neither packed nor compressed, shape (n,).

    Nothing stands before them in their chunks but a header, the size of which the layout tells.

    Returns:
        None if they are not such words, or their chunks are not as large as they would have to be.
    """
    width = _word_width(layout)
    if not width:
        return None
    starts, sizes, counts = scattered.chunks
    header_size = pad8(2 + (4 if layout.has_large_chunk else 2))
    if not _is_inside(scattered) or (sizes != header_size + pad8(counts * width)).any():
        return None
    return starts[scattered.chunk_of] + header_size + scattered.index * width


def _is_inside(scattered: Scattered) -> bool:
    counts = scattered.chunks[2]
    return bool((scattered.index >= 0).all() and (scattered.index < counts[scattered.chunk_of]).all())


def decode_fixed_width(memory: Bytes, offsets: Int64s, layout: MiniBlockLayout) -> FixedValues:
    """Return the words at some places of a memory; see `find_fixed_width`."""
    return FixedValues(gather_words(memory, offsets, f"<u{_word_width(layout)}"))


def value_ranges(word_indices: Int64s, layout: MiniBlockLayout) -> ByteRanges:
    """Return the bytes of words; see `find_fixed_width`."""
    return ByteRanges(word_indices, word_indices + _word_width(layout))


def _word_width(layout: MiniBlockLayout) -> int:
    """Return bytes of each value of chunks that hold nothing else; 0 if they do."""
    if layout.rep is not None or layout.definition is not None or layout.num_buffers != 1:
        return 0
    width = registry.value_bytes(layout.values)
    return width if width in _WORD_BYTES else 0


def find_all(grids: Sequence[Int64s]) -> Int64s:
    """Return the chunks of pages, as `Scattered` has them; see `find_scattered`."""
    return (grids[0] if len(grids) == 1 else np.concatenate(grids, axis=1))[:3]


def decode_values(
    memory: Bytes, wanted: Sequence[tuple[PageChunks, Scattered | None]]
) -> list[tuple[LevelArray | None, Values]]:
    """Decode values of pages of any columns, none of which has lists.

    Args:
        memory: Holds all chunks.
        wanted: Chunks of pages that are alike, each with which of their values are wanted; None for all.

    Returns:
        Definition levels, None if there are none, and values or places in a dictionary, for each.

    Raises:
        CorruptDataError: Chunks that do not fit their page.
    """
    opened = open_chunks(memory, [page for page, _ in wanted])
    return [
        (definition, _decode_values(page.layout, parts.values, scattered))
        for (page, scattered), parts, definition in zip(wanted, opened, _definitions(wanted, opened), strict=True)
    ]


def _definitions(
    wanted: Sequence[tuple[PageChunks, Scattered | None]], opened: Sequence[OpenChunks]
) -> list[LevelArray | None]:
    """Return the definition levels of each; those that are encoded alike are decoded together."""
    alike: dict[tuple[Encoding, bool], list[int]] = {}
    for number, (page, scattered) in enumerate(wanted):
        if page.layout.definition is not None:
            alike.setdefault((page.layout.definition, scattered is None), []).append(number)
    definitions: list[LevelArray | None] = [None] * len(wanted)
    for (encoding, _), numbers in alike.items():
        chunks = together([opened[number].definition for number in numbers])
        parts = [scattered for number in numbers if (scattered := wanted[number][1]) is not None]
        if parts:
            firsts = accumulate([part.chunks.shape[1] for part in parts], initial=0)
            chunk_of = np.concatenate([part.chunk_of + first for part, first in zip(parts, firsts, strict=False)])
            index = np.concatenate([part.index for part in parts])
            levels = registry.decode_levels_at(encoding, chunks, chunk_of, index)
            sizes = [len(part.index) for part in parts]
        else:
            levels = registry.decode_level_chunks(encoding, chunks)
            sizes = [int(np.add.reduce(wanted[number][0].counts)) for number in numbers]
        for number, (low, high) in zip(numbers, pairwise(accumulate(sizes, initial=0)), strict=True):
            definitions[number] = levels[low:high]
    return definitions


def _decode_values(layout: MiniBlockLayout, chunks: Chunks, scattered: Scattered | None) -> Values:
    if scattered is None:
        return registry.decode_chunks(layout.values, chunks)
    if len(scattered.index) <= int(chunks.counts.sum()) * SCATTERED_VALUES_SHARE:
        return registry.decode_points(layout.values, chunks, scattered.chunk_of, scattered.index)
    if not _is_inside(scattered):
        raise CorruptDataError("values are wanted that their chunks do not hold")
    positions = starts_of(chunks.counts)[scattered.chunk_of] + scattered.index
    return take_values(registry.decode_chunks(layout.values, chunks), positions)
