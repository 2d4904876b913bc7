"""Levels that leaves of one field have in common: the lists around them are the same.

Leaves below one list repeat its repetition levels, and if no value of theirs is null also the definition levels of the
struct that they are in. What begins with the same row is therefore unpacked for one of them; that a leaf has as many
values as the levels call for is checked for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lance_core.encoding.leaves import is_list_field
from lance_core.encoding.repdef import check_levels, unravel
from lance_core.format.file.page_layout import Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from lance_core.encoding.leaves import LeafPath
    from lance_core.encoding.repdef import LevelArray, Levels, Slots
    from lance_core.format.file.page_layout import Layers


class SharedLevels:
    """Levels of the leaves of one field, for one read of some rows, and validity and offsets of the previous leaf."""

    def __init__(self) -> None:
        self._decoded: dict[Hashable, LevelArray] = {}
        self._key: tuple[Levels, int, Sequence[int] | None] | None = None
        self._slots: list[Slots] = []

    def decode(self, key: Hashable, count: int, decode: Callable[[], LevelArray]) -> LevelArray:
        """Return the first levels of what leaves have in common, decoded if they are not there yet."""
        levels = self._decoded.get(key)
        if levels is None or len(levels) < count:
            levels = self._decoded[key] = decode()
        return levels[:count]

    def unravel(self, levels: Levels, num_slots: int, dimensions: Sequence[int] | None) -> list[Slots]:
        """Check levels, and turn them into validity and offsets; see `repdef.unravel`."""
        key = self._key
        if key is None or key[1:] != (num_slots, dimensions) or not _are_same(levels, key[0]):
            check_levels(levels)
            self._slots = unravel(levels, num_slots, dimensions)
            self._key = (levels, num_slots, dimensions)
        return self._slots


class LeafLevels(NamedTuple):
    """Levels of one leaf from the beginning of a row on.

    Attributes:
        shared: Those of the leaves of its field.
        path: The leaf.
        first_row: The row.
    """

    shared: SharedLevels
    path: LeafPath
    first_row: int

    def decode_rep(self, count: int, decode: Callable[[], LevelArray]) -> LevelArray:
        """Return the repetition levels, which all leaves below the innermost list have in common."""
        lists = tuple(id(field) for field in self.path.fields if is_list_field(field))
        return self.shared.decode((lists, self.first_row), count, decode)

    def decode_definition(self, layers: Layers, count: int, decode: Callable[[], LevelArray]) -> LevelArray:
        """Return the definition levels, which leaves of a struct have in common if no value of theirs is null."""
        if layers[:1] != (Layer.ALL_VALID_ITEM,):
            return decode()
        around = tuple(map(id, self.path.fields[:-1]))
        return self.shared.decode((around, layers, self.first_row), count, decode)


def _are_same(ours: Levels, theirs: Levels) -> bool:
    pairs = (ours.rep, theirs.rep), (ours.definition, theirs.definition)
    return ours.layers == theirs.layers and all(
        first is second or (first is not None and second is not None and np.array_equal(first, second))
        for first, second in pairs
    )
