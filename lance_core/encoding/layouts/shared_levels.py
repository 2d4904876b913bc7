"""Levels that leaves of one field have in common: the lists around them are the same.

Leaves below one list repeat its repetition levels, and if no value of theirs is null also the definition levels of the
struct that they are in. What begins with the same row is therefore unpacked for one of them; that a leaf has as many
values as the levels call for is checked for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
        self.decoded: dict[Hashable, tuple[LevelArray, dict[Hashable, LevelArray]]] = {}
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


class LeafLevels:
    """Levels of one leaf from some row on, of the leaves of its field."""

    def __init__(self, shared: SharedLevels, path: LeafPath, first_row: int, *, is_cut: bool) -> None:
        """Make it.

        Args:
            shared: Holds the levels of the leaves of the field.
            path: The leaf.
            first_row: The first row that begins in the chunks.
            is_cut: True if the rest of the row before it precedes it.
        """
        self._shared, self._path, self._is_cut = shared, path, is_cut
        lists = tuple(id(field) for field in path.fields if is_list_field(field))
        self._key = lists, first_row, is_cut
        self._definitions: dict[Hashable, LevelArray] = {}

    def decode_rep(
        self, top: int, count: int, decode_head: Callable[[], LevelArray], decode: Callable[[], LevelArray]
    ) -> LevelArray:
        """Return the repetition levels, which all leaves below the innermost list have in common.

        Args:
            top: Level that begins a row.
            count: How many there are.
            decode_head: Decodes the first of them: if a row begins there in the same place, all others are the same.
            decode: Decodes all of them.
        """
        rep, definitions = self._shared.decoded.get(self._key, (None, self._definitions))
        if rep is None or len(rep) < count or (self._is_cut and not _begins_with(rep, decode_head(), top)):
            rep, definitions = self._shared.decoded[self._key] = decode(), {}
        self._definitions = definitions
        return rep[:count]

    def decode_definition(self, layers: Layers, count: int, decode: Callable[[], LevelArray]) -> LevelArray:
        """Return the definition levels, which leaves of a struct have in common if no value of theirs is null."""
        if layers[:1] != (Layer.ALL_VALID_ITEM,):
            return decode()
        key = tuple(map(id, self._path.fields[:-1])), layers
        definition = self._definitions.get(key)
        if definition is None or len(definition) < count:
            definition = self._definitions[key] = decode()
        return definition[:count]


def _begins_with(levels: LevelArray, head: LevelArray, top: int) -> bool:
    return bool((head == top).any()) and np.array_equal(levels[: len(head)], head)


def _are_same(ours: Levels, theirs: Levels) -> bool:
    pairs = (ours.rep, theirs.rep), (ours.definition, theirs.definition)
    return ours.layers == theirs.layers and all(
        first is second or (first is not None and second is not None and np.array_equal(first, second))
        for first, second in pairs
    )
