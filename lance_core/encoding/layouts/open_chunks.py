"""Chunks of mini-block pages, taken apart: the headers of chunks of many columns are read at one go.

See `mini_block` for what a chunk holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import NamedTuple, replace
from lance_core.encoding import registry
from lance_core.encoding.kernels import MAX_CHUNK_VALUES, gather_windows
from lance_core.encoding.layouts.chunk_bytes import pad8
from lance_core.encoding.values import Chunks
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.values import Bytes, Int64s
    from lance_core.format.file.page_layout import MiniBlockLayout


class PageChunks(NamedTuple):
    """Chunks of pages that are encoded alike, in memory.

    Attributes:
        layout: Layout of the pages.
        starts: Shape (chunks,): positions in the memory.
        sizes: Shape (chunks,): bytes.
        counts: Shape (chunks,): values.
    """

    layout: MiniBlockLayout
    starts: Int64s
    sizes: Int64s
    counts: Int64s


class OpenChunks(NamedTuple):
    """The parts of chunks, still encoded.

    Attributes:
        num_levels: Shape (chunks,): levels of each chunk, or values if it has no levels.
        rep: Repetition levels; None without lists.
        definition: Definition levels; None if nothing is null or empty.
        values: The values.
    """

    num_levels: Int64s
    rep: Chunks | None
    definition: Chunks | None
    values: Chunks


class _Header(NamedTuple):
    """Parts that the header of a chunk tells of.

    Attributes:
        has_rep: True if the chunk has repetition levels.
        has_definition: True if it has definition levels.
        num_buffers: Its value buffers.
        size_bytes: Bytes of the size of each of them.
    """

    has_rep: bool
    has_definition: bool
    num_buffers: int
    size_bytes: int


def open_chunks(memory: Bytes, pages: Sequence[PageChunks]) -> list[OpenChunks]:
    """Find the parts of chunks; of those whose headers are alike all at one go.

    Args:
        memory: Holds all chunks.
        pages: Chunks of pages of any columns.

    Returns:
        The parts of the chunks of each, which are known to lie in the memory.

    Raises:
        CorruptDataError: A part leaves its chunk, or there are not as many parts or levels as there must be.
    """
    headers = [_header_of(page.layout) for page in pages]
    alike: dict[_Header, list[PageChunks]] = {}
    for page, header in zip(pages, headers, strict=True):
        alike.setdefault(header, []).append(page)
    opened = {header: iter(_open_alike(memory, members, header)) for header, members in alike.items()}
    return [next(opened[header]) for header in headers]


def _header_of(layout: MiniBlockLayout) -> _Header:
    if registry.num_buffers(layout.values) != layout.num_buffers:
        raise CorruptDataError(f"a page has {layout.num_buffers} value buffers, which its encoding does not need")
    has_rep, has_definition = layout.rep is not None, layout.definition is not None
    return _Header(has_rep, has_definition, layout.num_buffers, 4 if layout.has_large_chunk else 2)


def _open_alike(memory: Bytes, pages: Sequence[PageChunks], header: _Header) -> list[OpenChunks]:
    """Return the parts of chunks with the same kind of header."""
    starts, sizes, counts = (
        column[0] if len(column) == 1 else np.concatenate(column)
        for column in ([page.starts for page in pages], [page.sizes for page in pages], [page.counts for page in pages])
    )
    _check_inside(memory, starts, sizes, counts)
    num_levels, part_starts, part_sizes = _read_headers(memory, starts, sizes, header)
    if not header.has_rep:
        if header.has_definition and np.count_nonzero(num_levels != counts):
            raise CorruptDataError("a chunk without lists has another number of levels than of values")
        num_levels = counts
    opened: list[OpenChunks] = []
    first, num_kinds = 0, header.has_rep + header.has_definition
    buffers = (memory,) * header.num_buffers
    for page in pages:
        last = first + len(page.counts)
        levels = num_levels[first:last]
        kinds = [
            Chunks(
                buffers=(memory,),
                starts=part_starts[at : at + 1, first:last],
                sizes=part_sizes[at : at + 1, first:last],
                counts=levels,
                is_inside=True,
            )
            for at in range(num_kinds)
        ]
        values = Chunks(
            buffers=buffers,
            starts=part_starts[num_kinds:, first:last],
            sizes=part_sizes[num_kinds:, first:last],
            counts=page.counts,
            is_inside=True,
        )
        rep, definition = kinds[0] if header.has_rep else None, kinds[-1] if header.has_definition else None
        opened.append(OpenChunks(levels, rep, definition, values))
        first = last
    return opened


def _check_inside(memory: Bytes, starts: Int64s, sizes: Int64s, counts: Int64s) -> None:
    """Make sure that chunks lie in the memory, and have as many values as chunks may have."""
    if not len(starts):
        return
    # Of two numbers the bits of either are in both together: they are negative if one of them is. So is, read without a
    # sign, a negative count a large one.
    ends = starts.view(np.uint64) + sizes.view(np.uint64)
    if np.minimum.reduce(starts | sizes) < 0 or np.maximum.reduce(ends) > len(memory):
        raise CorruptDataError("a chunk reaches beyond the end of its page")
    if np.maximum.reduce(counts.view(np.uint64)) > MAX_CHUNK_VALUES:
        raise CorruptDataError("chunk with an impossible number of values")


def _read_headers(memory: Bytes, starts: Int64s, sizes: Int64s, header: _Header) -> tuple[Int64s, Int64s, Int64s]:
    """Return levels per chunk, and position and size of each buffer: shape (buffers, chunks), levels first."""
    widths = [2] * (header.has_rep + header.has_definition) + [header.size_bytes] * header.num_buffers
    header_size = pad8(2 + sum(widths))
    if len(starts) and np.minimum.reduce(sizes) < header_size:
        raise CorruptDataError("a chunk is too small for its header")
    header_words = gather_windows(memory, starts, header_size).view("<u2").T.astype(np.int64)
    buffer_starts = np.empty((len(widths), len(starts)), np.int64)
    buffer_sizes = np.empty((len(widths), len(starts)), np.int64)
    word, cursor = 1, starts + header_size
    for index, width in enumerate(widths):
        size = header_words[word] if width == 2 else header_words[word] | header_words[word + 1] << 16
        buffer_starts[index], buffer_sizes[index] = cursor, size
        word += width // 2
        cursor = cursor + (size + 7 & ~7)
    if np.count_nonzero(buffer_starts[-1] + buffer_sizes[-1] > starts + sizes):
        raise CorruptDataError("a buffer reaches beyond the end of its chunk")
    return header_words[0], buffer_starts, buffer_sizes


def together(chunks: Sequence[Chunks | None]) -> Chunks:
    """Return chunks of several kinds of levels, or of several columns, that are encoded alike; at least one."""
    parts = [part for part in chunks if part is not None]
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        starts=np.concatenate([part.starts for part in parts], axis=1),
        sizes=np.concatenate([part.sizes for part in parts], axis=1),
        counts=np.concatenate([part.counts for part in parts]),
    )


def some_chunks(chunks: Chunks, chosen: slice) -> Chunks:
    """Return consecutive ones of some chunks."""
    return replace(chunks, starts=chunks.starts[:, chosen], sizes=chunks.sizes[:, chosen], counts=chunks.counts[chosen])
