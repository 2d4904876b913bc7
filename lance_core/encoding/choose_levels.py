"""Choose the encoding for repetition and definition levels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.encoding.choose import sampled_run_bytes
from lance_core.encoding.codecs import bitpack, rle
from lance_core.encoding.kernels import one_buffer
from lance_core.encoding.values import FixedValues
from lance_core.errors import InvalidInputError
from lance_core.format.file.encodings import Flat, OutOfLineBitpacking, Rle

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Chunks, Int64s
    from lance_core.format.file.encodings import Encoding

_MAX_LEVEL_BYTES = (1 << 16) - 1  # u16 in the chunk header
LEVEL_RUNS_PAY = 0.5
"""Runs are slower to read; they are taken if they leave at most this part of the bytes."""


def encode_level_chunks(levels: npt.NDArray[np.uint16], bounds: Int64s) -> tuple[Encoding, Chunks]:
    """Encode repetition or definition levels, each chunk's as a block, all in one encoding.

    Args:
        levels: Shape (n,).
        bounds: Shape (chunks + 1,): where each chunk's levels start, and where the last ones end.

    Returns:
        The encoding, and one buffer for each chunk, of at most 65535 bytes.

    Raises:
        InvalidInputError: A chunk has more levels than its buffer can hold in any encoding; the page must be split.
    """
    counts = np.diff(bounds)
    width = max(1, int(levels.max()).bit_length()) if len(levels) else 1
    packed_sizes, _ = bitpack.out_of_line_bytes(counts, 16, width)
    candidates: list[tuple[Encoding, Int64s]] = [(Flat(16), counts * 2), (OutOfLineBitpacking(16, width), packed_sizes)]
    fitting = [(int(sizes.sum()), encoding) for encoding, sizes in candidates if (sizes <= _MAX_LEVEL_BYTES).all()]
    best = min(fitting, key=lambda pair: pair[0])[0] if fitting else 1 << 62
    if sampled_run_bytes(levels) <= best:
        runs = rle.find_runs(levels, bounds)
        chunks = rle.encode_blocks(runs, counts)
        if len(chunks.buffers[0]) <= best * LEVEL_RUNS_PAY and (chunks.sizes <= _MAX_LEVEL_BYTES).all():
            return Rle(16), chunks
    if not fitting:
        raise InvalidInputError(f"{int(counts.max())} levels in one chunk; split the page")
    encoding = min(fitting, key=lambda pair: pair[0])[1]
    if isinstance(encoding, Flat):
        return encoding, one_buffer(np.ascontiguousarray(levels).view(np.uint8), bounds * 2, counts)
    return encoding, bitpack.encode_out_of_line(FixedValues(levels), bounds, width)
