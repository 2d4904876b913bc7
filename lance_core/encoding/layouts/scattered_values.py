"""Single values out of mini-block chunks without lists, whichever pages and columns they are of.

The price of a numpy call is paid once for all columns that are encoded alike, not once for each: a table of 500
columns has few encodings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.encoding import registry
from lance_core.encoding.arrow_values import take_values
from lance_core.encoding.kernels import gather_words, starts_of
from lance_core.encoding.layouts.chunk_bytes import pad8
from lance_core.encoding.layouts.mini_block import open_chunks
from lance_core.encoding.plans import ByteRanges
from lance_core.encoding.strategy import SCATTERED_VALUES_SHARE
from lance_core.encoding.values import FixedValues
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.repdef import LevelArray
    from lance_core.encoding.values import Bytes, Int64s, Values
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


def find_all(grids: Sequence[Int64s]) -> Scattered:
    """Return all values of some chunks of pages; see `find_scattered`."""
    grid = grids[0] if len(grids) == 1 else np.concatenate(grids, axis=1)
    nothing = np.empty(0, np.int64)
    return Scattered(grid[:3], nothing, nothing)


def decode_points(
    memory: Bytes, starts: Int64s, scattered: Scattered, layout: MiniBlockLayout
) -> tuple[LevelArray | None, Values]:
    """Definition levels and values, or places in a dictionary.

    Args:
        memory: Holds the chunks.
        starts: Shape (chunks,): where they lie in the memory.
        scattered: What is wanted.
        layout: Layout of the pages, none of which has lists.

    Raises:
        CorruptDataError: Chunks that do not fit their page.
    """
    _, sizes, counts = scattered.chunks
    opened = open_chunks(memory, starts, sizes, counts, layout)
    definition, chunks = None, opened.values
    if opened.definition is not None and layout.definition is not None:
        definition = registry.decode_levels_at(
            layout.definition, opened.definition, scattered.chunk_of, scattered.index
        )
    if len(scattered.index) <= int(chunks.counts.sum()) * SCATTERED_VALUES_SHARE:
        return definition, registry.decode_points(layout.values, chunks, scattered.chunk_of, scattered.index)
    if not _is_inside(scattered):
        raise CorruptDataError("values are wanted that their chunks do not hold")
    positions = starts_of(chunks.counts)[scattered.chunk_of] + scattered.index
    return definition, take_values(registry.decode_chunks(layout.values, chunks), positions)


def decode_all(
    memory: Bytes, starts: Int64s, chunks: Int64s, layout: MiniBlockLayout
) -> tuple[LevelArray | None, Values]:
    """As `decode_points`, for all values of the chunks: shape (3, n), as in `Scattered`."""
    _, sizes, counts = chunks
    opened = open_chunks(memory, starts, sizes, counts, layout)
    definition = None
    if opened.definition is not None and layout.definition is not None:
        definition = registry.decode_level_chunks(layout.definition, opened.definition)
    return definition, registry.decode_chunks(layout.values, opened.values)
