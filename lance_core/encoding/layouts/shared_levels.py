"""Levels that leaves of one field have in common: the lists around them are the same.

They are decoded once if their encoded bytes are the same, which costs a tenth of decoding them, and turned into offsets
once if they are the same when decoded: chunks of wide values hold fewer levels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.encoding.kernels import gather
from lance_core.encoding.repdef import check_levels, unravel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_core.encoding.repdef import Levels, Slots
    from lance_core.encoding.values import Chunks


class SharedLevels:
    """Levels of the previous leaf, for one read of some rows."""

    def __init__(self) -> None:
        self._key: object = None
        self._chunks: Sequence[Chunks] = ()
        self._levels: Levels | None = None
        self._slots: tuple[Levels, int, Sequence[int] | None, list[Slots]] | None = None

    def decode(self, key: object, chunks: Sequence[Chunks], decode: Callable[[], Levels]) -> Levels:
        """The levels in some chunks.

        Args:
            key: All that matters for decoding but the chunks.
            chunks: Repetition and definition levels, still encoded.
            decode: Decodes them.
        """
        before = self._levels
        if before is None or key != self._key or not all(map(_is_same, chunks, self._chunks)):
            self._key, self._chunks = key, chunks
            levels = decode()
            before = self._levels = before if before is not None and _are_same(levels, before) else levels
        return before

    def unravel(self, levels: Levels, num_slots: int, dimensions: Sequence[int] | None) -> list[Slots]:
        """Check levels, and turn them into validity and offsets; see `repdef.unravel`."""
        cached = self._slots
        if cached is None or cached[0] is not levels or cached[1:3] != (num_slots, dimensions):
            check_levels(levels)
            cached = self._slots = (levels, num_slots, dimensions, unravel(levels, num_slots, dimensions))
        return cached[3]


def _are_same(ours: Levels, theirs: Levels) -> bool:
    """True if levels are the same, though their chunks are cut or encoded otherwise."""
    pairs = (ours.rep, theirs.rep), (ours.definition, theirs.definition)
    return ours.layers == theirs.layers and all(
        first is second if first is None or second is None else np.array_equal(first, second) for first, second in pairs
    )


def _is_same(ours: Chunks, theirs: Chunks) -> bool:
    """True if chunks hold as many levels, in the same bytes."""
    if not (np.array_equal(ours.counts, theirs.counts) and np.array_equal(ours.sizes, theirs.sizes)):
        return False
    first, second = (
        gather(level_chunk.buffers[0], level_chunk.starts[0], level_chunk.sizes[0]) for level_chunk in (ours, theirs)
    )
    return np.array_equal(first, second)
