"""The bytes of mini-block chunks that are written: a header and padded parts, see `mini_block`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.encoding.kernels import gather, join_ranges, starts_of
from lance_core.encoding.values import Chunks

if TYPE_CHECKING:
    from lance_core.encoding.options import PageOptions
    from lance_core.encoding.values import Bytes, Int64s

PAD_BYTE = 0xFE
_UNIT = 8
"""Each part of a chunk takes whole units of so many bytes."""


def _header_bytes(level_chunks: list[Chunks], chunks: Chunks, options: PageOptions) -> list[int]:
    """Return bytes of the size of each buffer."""
    return [2] * len(level_chunks) + [4 if options.has_large_chunks else 2] * len(chunks.buffers)


def chunk_sizes(level_chunks: list[Chunks], chunks: Chunks, options: PageOptions) -> Int64s:
    """Return bytes of each chunk; arguments as in `assemble`."""
    header = pad8(2 + sum(_header_bytes(level_chunks, chunks, options)))
    sizes = np.full(len(chunks.counts), header, np.int64)
    for chunks_of_level in level_chunks:
        sizes += pad8(chunks_of_level.sizes[0])
    return sizes + pad8(chunks.sizes).sum(axis=0)


def assemble(bounds: Int64s, level_chunks: list[Chunks], chunks: Chunks, options: PageOptions) -> Bytes:
    """Return the chunks end to end.

    Args:
        bounds: Shape (chunks + 1,): first level of each chunk, and the end.
        level_chunks: Encoded repetition levels, if any, and definition levels, if any.
        chunks: Encoded values.
        options: How to write.
    """
    sources = [*level_chunks, *[_one_buffer(chunks, index) for index in range(len(chunks.buffers))]]
    widths = _header_bytes(level_chunks, chunks, options)
    header = np.full((len(chunks.counts), pad8(2 + sum(widths))), PAD_BYTE, np.uint8)
    header[:, :2] = _as_bytes(bounds[1:] - bounds[:-1], 2)
    parts = [(header.reshape(-1), np.arange(len(header) + 1) * header.shape[1])]
    at = 2
    for source, width in zip(sources, widths, strict=True):
        sizes = source.sizes[0]
        header[:, at : at + width] = _as_bytes(sizes, width)
        at += width
        pads = starts_of(-sizes % _UNIT)
        parts.append((gather(source.buffers[0], source.starts[0], sizes), starts_of(sizes)))
        if pads[-1]:
            parts.append((np.full(int(pads[-1]), PAD_BYTE, np.uint8), pads))
    return join_ranges(*parts)[0]


def _one_buffer(chunks: Chunks, index: int) -> Chunks:
    return Chunks(
        buffers=(chunks.buffers[index],),
        starts=chunks.starts[index : index + 1],
        sizes=chunks.sizes[index : index + 1],
        counts=chunks.counts,
    )


def _as_bytes(numbers: Int64s, width: int) -> Bytes:
    return numbers.astype(f"<u{width}").view(np.uint8).reshape(-1, width)


def pad8(size: Any) -> Any:
    """Return a size, or an array of sizes, in whole units."""
    return (size + _UNIT - 1) // _UNIT * _UNIT
