"""Levels of a handful of entries as validity and offsets, in plain numbers.

What `lance_core.encoding.repdef.unravel` does with arrays; for a few entries each of its steps costs more than all of
these together. Levels are bytes, which Python copies, compares, searches and translates at one go.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import NamedTuple
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from lance_core.encoding.repdef import LayerLevels, LayersLevels

MAX_LEVEL = 255
"""More do not fit into a byte."""

_ALL_LEVELS = bytes(range(MAX_LEVEL + 1))
_ONE_LESS = bytes((0, *range(MAX_LEVEL)))


class ScalarSlots(NamedTuple):
    """Arrow form of one layer.

    Attributes:
        length: Slots of the layer.
        valid: For each whether it is valid; None if all are.
        offsets: Length + 1 numbers for a list layer, None for an item layer.
    """

    length: int
    valid: list[bool] | None
    offsets: list[int] | None


def unravel_scalar(
    layers: LayersLevels, rep: bytearray | None, definition: bytearray | None, num_slots: int
) -> list[ScalarSlots]:
    """Turn levels into validity and offsets.

    Args:
        layers: What the levels mean.
        rep: Repetition levels of whole rows, at least one; None without lists.
        definition: As many definition levels, None if nothing is null or empty.
        num_slots: Value slots.

    Returns:
        One entry for each layer, from the leaf outwards.

    Raises:
        CorruptDataError: Levels that the layers do not allow, that contradict each other or the number of slots.
    """
    if definition is None and len(layers.layers) == 1:
        return [ScalarSlots(num_slots, None, None)]
    _check(layers, rep, definition)
    if definition is not None and definition.count(0) == len(definition):
        if rep is None and len(definition) != num_slots:
            raise CorruptDataError(f"levels call for {len(definition)} values, but there are {num_slots}")
        definition = None  # nothing is null or empty
    slots: list[ScalarSlots] = []
    for layer in layers.layers:
        if layer.is_list:
            if rep is None:
                raise CorruptDataError("a page with lists has no repetition levels")
            unraveled, rep, definition = _unravel_list(layer, rep, definition)
            slots.append(unraveled)
        elif definition is None:
            slots.append(ScalarSlots(num_slots if rep is None else len(rep), None, None))
        else:
            here = [level for level in definition if level <= layer.with_slot]
            valid = [level <= layer.consumed for level in here] if layer.null else None
            slots.append(ScalarSlots(len(here), _unless_all(valid), None))
    for inner, outer in pairwise(slots):
        if (outer.length if outer.offsets is None else outer.offsets[-1]) != inner.length:
            raise CorruptDataError("the levels of a column contradict each other")
    if slots[0].length != num_slots:
        raise CorruptDataError(f"levels call for {slots[0].length} values, but there are {num_slots}")
    return slots


def _check(layers: LayersLevels, rep: bytearray | None, definition: bytearray | None) -> None:
    if rep is not None:
        if rep[0] != layers.max_rep:
            raise CorruptDataError("repetition levels do not begin with a new row")
        if _has_above(layers.max_rep, rep):
            raise CorruptDataError("a repetition level is larger than the nesting allows")
        if definition is not None and len(rep) != len(definition):
            raise CorruptDataError("there are not as many repetition as definition levels")
    if definition is not None and _has_above(layers.max_def, definition):
        raise CorruptDataError("a definition level is larger than the layers allow")


def _has_above(limit: int, levels: bytearray) -> bool:
    """Return whether a level is above a limit: one is left when those up to it are deleted."""
    return bool(levels.translate(None, _ALL_LEVELS[: limit + 1]))


def _unless_all(valid: list[bool] | None) -> list[bool] | None:
    return None if valid is None or all(valid) else valid


def _unravel_list(
    layer: LayerLevels, rep: bytearray, definition: bytearray | None
) -> tuple[ScalarSlots, bytearray, bytearray | None]:
    """Return the lists of a layer, and the levels of what is around it."""
    starts: list[int] = np.frombuffer(rep, np.uint8).nonzero()[0].tolist()
    outer_rep = rep.translate(_ONE_LESS, b"\0")
    if definition is None:
        return ScalarSlots(len(starts), None, [*starts, len(rep)]), outer_rep, None
    offsets: list[int] = []
    valid: list[bool] = []
    num_special = 0
    outer = bytearray([definition[at] for at in starts])
    for at, level in zip(starts, outer, strict=True):
        # A null list, one without a slot at all, and an empty one have an entry, but no item.
        is_null = level > layer.upper or (layer.null > 0 and level == layer.null)
        if level <= layer.with_slot:
            offsets.append(at - num_special)
            valid.append(not is_null)
        num_special += is_null or (layer.empty > 0 and level == layer.empty)
    offsets.append(len(rep) - num_special)
    return ScalarSlots(len(valid), _unless_all(valid), offsets), outer_rep, outer
