"""Levels that leaves of one field have in common: the lists around them are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.encoding.repdef import check_levels, unravel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.repdef import Levels, Slots


class SharedLevels:
    """Validity and offsets of the previous leaf, for one read of some rows: to compare levels costs less than these."""

    def __init__(self) -> None:
        self._key: tuple[Levels, int, Sequence[int] | None] | None = None
        self._slots: list[Slots] = []

    def unravel(self, levels: Levels, num_slots: int, dimensions: Sequence[int] | None) -> list[Slots]:
        """Check levels, and turn them into validity and offsets; see `repdef.unravel`."""
        key = self._key
        if key is None or key[1:] != (num_slots, dimensions) or not _are_same(levels, key[0]):
            check_levels(levels)
            self._slots = unravel(levels, num_slots, dimensions)
            self._key = (levels, num_slots, dimensions)
        return self._slots


def _are_same(ours: Levels, theirs: Levels) -> bool:
    pairs = (ours.rep, theirs.rep), (ours.definition, theirs.definition)
    return ours.layers == theirs.layers and all(
        first is second if first is None or second is None else np.array_equal(first, second) for first, second in pairs
    )
