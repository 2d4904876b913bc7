"""Levels that leaves of one field have in common: the lists around them are the same.

Leaves below one list repeat its repetition levels, and if no value of theirs is null also the definition levels of the
struct that they are in. What is read from the same row on is therefore unpacked for one of them, wherever chunks begin;
that a leaf has as many values as the levels call for is checked for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.encoding.leaves import is_list_field
from lance_core.encoding.repdef import Levels, check_levels, leaf_slots, outside_of_leaf, unravel
from lance_core.format.file.page_layout import Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from lance_core.encoding.leaves import LeafPath
    from lance_core.encoding.repdef import LevelArray, Slots
    from lance_core.format.file.page_layout import Layers


class SharedLevels:
    """Levels of the leaves of one field, for one read of some rows, and validity and offsets of the previous leaf."""

    def __init__(self) -> None:
        self.decoded: dict[Hashable, tuple[LevelArray, dict[Hashable, LevelArray | None]]] = {}
        self._key: tuple[Levels, int, Sequence[int] | None] | None = None
        self._slots: list[Slots] = []

    def unravel(self, levels: Levels, num_slots: int, dimensions: Sequence[int] | None) -> list[Slots]:
        """Check levels, and turn them into validity and offsets; see `repdef.unravel`."""
        outer = outside_of_leaf(levels) if dimensions is None else levels
        key = self._key
        if key is None or key[1:] != (num_slots, dimensions) or not _are_same(outer, key[0]):
            check_levels(levels)
            self._slots = unravel(levels, num_slots, dimensions)
            self._key = (outer, num_slots, dimensions)
        elif dimensions is None:
            self._slots = [leaf_slots(levels, num_slots), *self._slots[1:]]
        return self._slots


class LeafLevels:
    """Levels of consecutive rows of one leaf, of the leaves of its field.

    Attributes:
        num_before: Rows that begin before these, in the chunks that hold them.
        num_behind: Likewise behind them.
    """

    def __init__(self, shared: SharedLevels, path: LeafPath, rows: range, num_before: int, num_behind: int) -> None:
        """Make it.

        Args:
            shared: Holds the levels of the leaves of the field.
            path: The leaf.
            rows: The rows of the column.
            num_before: See above.
            num_behind: See above.
        """
        self.num_before, self.num_behind = num_before, num_behind
        self._shared, self._structs = shared, tuple(map(id, path.fields[:-1]))
        self._key = tuple(id(field) for field in path.fields if is_list_field(field)), rows

    @property
    def rep(self) -> LevelArray | None:
        """The repetition levels, which all leaves below the innermost list have in common; None if none told them."""
        return self._shared.decoded.get(self._key, (None,))[0]

    def keep(self, levels: Levels) -> None:
        """Keep the levels for the leaves that follow."""
        if levels.rep is not None:
            self._shared.decoded[self._key] = levels.rep, {}
            self.decode_definition(levels.layers, lambda: levels.definition)

    def decode_definition(self, layers: Layers, decode: Callable[[], LevelArray | None]) -> LevelArray | None:
        """Return the definition levels, which leaves of a struct have in common if no value of theirs is null.

        Args:
            layers: Those of the leaf.
            decode: Decodes the levels, if no other leaf has told them.
        """
        if layers[:1] != (Layer.ALL_VALID_ITEM,):
            return decode()
        definitions, key = self._shared.decoded[self._key][1], (self._structs, layers)
        if key not in definitions:
            definitions[key] = decode()
        return definitions[key]


def _are_same(ours: Levels, theirs: Levels) -> bool:
    pairs = (ours.rep, theirs.rep), (ours.definition, theirs.definition)
    return ours.layers == theirs.layers and all(
        first is second or (first is not None and second is not None and np.array_equal(first, second))
        for first, second in pairs
    )
