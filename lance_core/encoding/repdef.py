"""Repetition and definition levels: the nesting of one leaf as two arrays of small integers.

The layers of a leaf go from the leaf outwards: one item layer for the leaf and each struct around it, one list layer
for each list or map. Level 0 is the innermost, "valid", one (the opposite of Parquet).

* Definition: each null or empty that can occur takes one level, counted from the leaf outwards; an entry carries the
  level of the outermost thing that is null or empty.
* Repetition: with n list layers, an entry that begins a new top-level row has n, one that continues the innermost list
  has 0.
* An entry has a value slot ("is visible") unless a list around it is null or empty.

Source: sections "repetition / definition levels" of the file format; message ``RepDefLayer``.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import NamedTuple, frozen
from lance_core.encoding.kernels import aranges, starts_of
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.file.page_layout import Layer, Layers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.values import Int64s

LevelArray: TypeAlias = npt.NDArray[np.uint16]
Mask: TypeAlias = npt.NDArray[np.bool_]

_LISTS = (Layer.ALL_VALID_LIST, Layer.NULLABLE_LIST, Layer.EMPTYABLE_LIST, Layer.NULL_AND_EMPTY_LIST)
_NUM_LEVELS = {
    Layer.ALL_VALID_ITEM: 0,
    Layer.ALL_VALID_LIST: 0,
    Layer.NULLABLE_ITEM: 1,
    Layer.NULLABLE_LIST: 1,
    Layer.EMPTYABLE_LIST: 1,
    Layer.NULL_AND_EMPTY_LIST: 2,
}


@frozen
class Levels:
    """Levels of some rows of one leaf.

    Attributes:
        layers: From the leaf outwards.
        rep: Repetition levels, None without list layers.
        definition: Definition levels, None if no layer takes one; as long as ``rep``.
    """

    layers: Layers
    rep: LevelArray | None
    definition: LevelArray | None


NO_LEVELS = Levels((Layer.ALL_VALID_ITEM,), None, None)
"""Those of values that nothing is around, and of which none is null."""


@frozen
class Slots:
    """One layer as Arrow stores it.

    Attributes:
        length: Slots of the layer.
        validity: Shape (length,), None if all are valid.
        offsets: Shape (length + 1,) for a list layer, None for an item layer.
    """

    length: int
    validity: Mask | None
    offsets: Int64s | None = None


def is_list(layer: Layer) -> bool:
    """True for a list layer, False for an item layer."""
    return layer in _LISTS


def list_layer(*, has_null: bool, has_empty: bool) -> Layer:
    """Return the list layer in which these occur."""
    if has_null:
        return Layer.NULL_AND_EMPTY_LIST if has_empty else Layer.NULLABLE_LIST
    return Layer.EMPTYABLE_LIST if has_empty else Layer.ALL_VALID_LIST


@lru_cache(maxsize=256)
def max_rep(layers: Layers) -> int:
    """Return the repetition level of a new row: the number of list layers."""
    return sum(map(is_list, layers))


@lru_cache(maxsize=256)
def max_def(layers: Layers) -> int:
    """Return the largest definition level that can occur."""
    return sum(_NUM_LEVELS[layer] for layer in layers)


@lru_cache(maxsize=256)
def max_visible_def(layers: Layers) -> int:
    """Return the largest definition level of an entry that has a value slot."""
    total = 0
    for layer in layers:
        if is_list(layer):
            break
        total += _NUM_LEVELS[layer]
    return total


def null_slots(levels: Levels) -> Mask | None:
    """Return the value slots that hold nothing; None if all hold something."""
    definition = levels.definition
    if definition is None:
        return None
    if levels.rep is not None:
        definition = definition[definition <= max_visible_def(levels.layers)]
    is_null = definition != 0
    return is_null if np.count_nonzero(is_null) else None


def level_numbers(layers: Layers) -> list[tuple[int, int]]:
    """For each layer the definition levels that mean null and empty; 0 where it takes none."""
    numbers: list[tuple[int, int]] = []
    used = 0
    for layer in layers:
        null = used + 1 if layer in (Layer.NULLABLE_ITEM, Layer.NULLABLE_LIST, Layer.NULL_AND_EMPTY_LIST) else 0
        empty = used + _NUM_LEVELS[layer] if layer in (Layer.EMPTYABLE_LIST, Layer.NULL_AND_EMPTY_LIST) else 0
        numbers.append((null, empty))
        used += _NUM_LEVELS[layer]
    return numbers


class LayerLevels(NamedTuple):
    """Meaning of definition levels for one layer.

    Attributes:
        is_list: Whether it is one of lists.
        consumed: The largest level that belongs to a layer inside of it.
        null: Level of its nulls, 0 if there are none.
        empty: Level of its empty lists, 0 if there are none.
        upper: The largest level that belongs to this layer or to one inside of it.
        with_slot: The largest level of an entry that has a slot in it.
    """

    is_list: bool
    consumed: int
    null: int
    empty: int
    upper: int
    with_slot: int


class LayersLevels(NamedTuple):
    """Meaning of levels for some layers.

    Attributes:
        layers: From the leaf outwards.
        max_rep: Repetition level of a new row: the number of list layers.
        max_def: The largest definition level that can occur.
    """

    layers: tuple[LayerLevels, ...]
    max_rep: int
    max_def: int


@lru_cache(maxsize=256)
def levels_of(layers: Layers) -> LayersLevels:
    """Return the meaning of levels for layers; cached, so that the same layers give the same object."""
    uppers = [max_def(layers[: index + 1]) for index in range(len(layers))]
    meanings: list[LayerLevels] = []
    for index, (layer, (null, empty), upper) in enumerate(zip(layers, level_numbers(layers), uppers, strict=True)):
        # Levels grow outwards; those of a list around this layer tell of entries that have no slot here.
        lists_around = [outer for outer in range(index + 1, len(layers)) if is_list(layers[outer])]
        with_slot = uppers[lists_around[0] - 1] if lists_around else uppers[-1]
        consumed = uppers[index - 1] if index else 0
        meanings.append(LayerLevels(is_list(layer), consumed, null, empty, upper, with_slot))
    return LayersLevels(tuple(meanings), max_rep(layers), max_def(layers))


def check_levels(levels: Levels) -> None:
    """Raise CorruptDataError if levels are out of range or do not begin with a new row."""
    rep, definition = levels.rep, levels.definition
    if rep is not None and len(rep):
        top = levels_of(levels.layers).max_rep
        if int(rep[0]) != top:
            raise CorruptDataError("repetition levels do not begin with a new row")
        if int(np.maximum.reduce(rep)) > top:
            raise CorruptDataError("a repetition level is larger than the nesting allows")
    if rep is not None and definition is not None and len(rep) != len(definition):
        raise CorruptDataError("there are not as many repetition as definition levels")
    _check_definition(levels)


def _check_definition(levels: Levels) -> None:
    definition = levels.definition
    if definition is None or not len(definition):
        return
    if int(np.maximum.reduce(definition)) > levels_of(levels.layers).max_def:
        raise CorruptDataError("a definition level is larger than the layers allow")


def merge_layers(layers_of_pages: Sequence[Layers]) -> Layers:
    """Return the layers that allow whatever one of ``layers_of_pages`` allows."""
    merged = layers_of_pages[0]
    for layers in layers_of_pages[1:]:
        if layers == merged:
            continue
        if len(layers) != len(merged):
            raise CorruptDataError("pages of one column have different numbers of layers")
        merged = tuple(_merge_layer(ours, theirs) for ours, theirs in zip(merged, layers, strict=True))
    return merged


def _merge_layer(ours: Layer, theirs: Layer) -> Layer:
    if is_list(ours) != is_list(theirs):
        raise CorruptDataError("pages of one column disagree about what is a list")
    if not is_list(ours):
        return max(ours, theirs)
    nulls, empties = (Layer.NULLABLE_LIST, Layer.NULL_AND_EMPTY_LIST), (Layer.EMPTYABLE_LIST, Layer.NULL_AND_EMPTY_LIST)
    return list_layer(
        has_null=ours in nulls or theirs in nulls,
        has_empty=ours in empties or theirs in empties,
    )


def widen(levels: Levels, layers: Layers, num_entries: int) -> Levels:
    """Renumber definition levels for layers that allow more (`merge_layers`).

    Args:
        levels: Levels.
        layers: What to number for.
        num_entries: Entries, in case there are neither repetition nor definition levels.

    Raises:
        CorruptDataError: A level is larger than the layers allow.
    """
    if levels.layers == layers:
        return levels
    _check_definition(levels)
    if levels.definition is None:
        definition = np.zeros(num_entries, np.uint16) if max_def(layers) else None
        return Levels(layers, levels.rep, definition)
    table = np.zeros(max_def(levels.layers) + 1, np.uint16)
    for ours, theirs in zip(level_numbers(levels.layers), level_numbers(layers), strict=True):
        table[list(ours)] = theirs
    table[0] = 0
    return Levels(layers, levels.rep, table[levels.definition])


def rows_of_levels(levels: Levels, rows: range | Int64s) -> tuple[Levels, range | Int64s]:
    """Return the levels of some rows, which ascend, and the positions of their values.

    Raises:
        CorruptDataError: There are fewer rows.
    """
    if not isinstance(rows, range):
        return pick_levels(levels, rows)
    start, stop = rows.start, rows.stop
    rep, definition = levels.rep, levels.definition
    if rep is not None:
        row_starts = np.append((rep == max_rep(levels.layers)).nonzero()[0], len(rep))
        if stop >= len(row_starts):
            raise CorruptDataError(f"a page holds {len(row_starts) - 1} rows, not {stop}")
        start, stop = int(row_starts[start]), int(row_starts[stop])
        rep = rep[start:stop]
    if definition is None:
        return Levels(levels.layers, rep, None), range(start, stop)
    visible = definition[:stop] <= max_visible_def(levels.layers)
    slots = range(int(np.count_nonzero(visible[:start])), int(np.count_nonzero(visible)))
    return Levels(levels.layers, rep, definition[start:stop]), slots


def pick_levels(levels: Levels, rows: Int64s) -> tuple[Levels, Int64s]:
    """Return the levels of some rows, and the positions of their values."""
    rep, definition = levels.rep, levels.definition
    if rep is None:
        return Levels(levels.layers, None, None if definition is None else definition[rows]), rows
    row_starts = np.append((rep == max_rep(levels.layers)).nonzero()[0], len(rep))
    if int(rows[-1]) + 1 >= len(row_starts):
        raise CorruptDataError(f"chunks hold {len(row_starts) - 1} rows where the repetition index tells more")
    begins = row_starts[rows]
    entries = aranges(begins, row_starts[rows + 1] - begins)
    if definition is None:
        return Levels(levels.layers, rep[entries], None), entries
    limit = max_visible_def(levels.layers)
    picked = definition[entries]
    slots = entries[picked <= limit]
    slots = slots - (definition > limit).nonzero()[0].searchsorted(slots)
    return Levels(levels.layers, rep[entries], picked), slots


def unravel(levels: Levels, num_slots: int, dimensions: Sequence[int] | None = None) -> list[Slots]:
    """Turn levels into validity and offsets.

    Args:
        levels: Checked levels of whole rows.
        num_slots: Value slots.
        dimensions: For each layer how many slots of the layer inside each of its own has, which is 1 but for
            fixed-size lists of structs; None if it is 1 for all.

    Returns:
        One entry for each layer, from the leaf outwards.

    Raises:
        CorruptDataError: The levels do not have as many visible entries as there are value slots.
        UnsupportedError: Lists around or in fixed-size lists of structs.
    """
    rep, definition = levels.rep, levels.definition
    if rep is None:
        return _unravel_items(levels.layers, definition, num_slots, dimensions or [1] * len(levels.layers))
    if dimensions is not None:
        raise UnsupportedError("lists around or in fixed-size lists of structs are not supported")
    slots: list[Slots] = []
    layers, num_lists, top = levels_of(levels.layers)
    for layer in layers:
        if layer.is_list:
            num_lists -= 1
            unraveled, rep, definition = _unravel_list(layer, rep, definition, is_outermost=not num_lists)
            slots.append(unraveled)
        else:
            slots.append(Slots(len(rep), None) if definition is None else _unravel_item(layer, definition, top))
    for inner, outer in pairwise(slots):
        contained = outer.length if outer.offsets is None else int(outer.offsets[-1])
        if contained != inner.length:
            raise CorruptDataError("the levels of a column contradict each other")
    if slots[0].length != num_slots:
        raise CorruptDataError(f"levels call for {slots[0].length} values, but there are {num_slots}")
    return slots


def outside_of_leaf(levels: Levels) -> Levels:
    """Return the levels of what is around a leaf: those of its nulls count as valid."""
    definition, num_nulls = levels.definition, _NUM_LEVELS[levels.layers[0]]
    if definition is not None and num_nulls:
        least = definition.dtype.type(num_nulls)
        definition = None if max_def(levels.layers) == num_nulls else np.maximum(definition, least) - least
    return Levels(levels.layers[1:], levels.rep, definition)


def leaf_slots(levels: Levels, num_slots: int) -> Slots:
    """Return the slots of a leaf, of checked levels that have so many."""
    (layer, *_), _, top = levels_of(levels.layers)
    if levels.definition is None:
        return Slots(num_slots, None)
    return _unravel_item(layer, levels.definition, top)


def value_validity(layers: Layers, definition: LevelArray | None, num_values: int) -> Mask | None:
    """Return which values of a column without structs and lists are valid, None if all are: `unravel` for one layer.

    Args:
        layers: The layer of the items.
        definition: Definition levels, None if there are none.
        num_values: Number of values.

    Returns:
        Shape (values,), True for those that are not null.

    Raises:
        CorruptDataError: Too large levels, or not as many as values.
    """
    if definition is None:
        return None
    _check_count(definition, num_values)
    top = int(np.maximum.reduce(definition, initial=0))
    if top > levels_of(layers).max_def:
        raise CorruptDataError("a definition level is larger than the layers allow")
    return definition == 0 if top else None


def _check_count(definition: LevelArray, num_values: int) -> None:
    if len(definition) != num_values:
        raise CorruptDataError(f"there are {len(definition)} levels for {num_values} values")


def _unravel_items(
    layers: Layers, definition: LevelArray | None, num_slots: int, dimensions: Sequence[int]
) -> list[Slots]:
    """No lists: every entry has a slot in every layer, but for fixed-size lists, whose first item tells of all."""
    if definition is not None:
        _check_count(definition, num_slots)
    slots: list[Slots] = []
    for layer, dimension in zip(levels_of(layers).layers, dimensions, strict=True):
        if num_slots % dimension:
            raise CorruptDataError(f"{num_slots} structs do not fill lists of {dimension}")
        num_slots //= dimension
        validity = None
        if definition is not None:
            definition = definition[::dimension]
            validity = _up_to(definition, layer.consumed) if layer.null else None
        slots.append(Slots(num_slots, validity))
    return slots


def _up_to(definition: LevelArray, level: int) -> Mask | None:
    """Mark the levels that are at most ``level``; None if they are everywhere."""
    mask = definition <= level
    return None if mask.all() else mask


def _unravel_item(layer: LayerLevels, definition: LevelArray, top: int) -> Slots:
    has_slot = None if layer.with_slot == top else definition <= layer.with_slot
    if not layer.null:
        return Slots(len(definition) if has_slot is None else int(np.count_nonzero(has_slot)), None)
    here = definition if has_slot is None else definition[has_slot]
    return Slots(len(here), _up_to(here, layer.consumed))


def _unravel_list(
    layer: LayerLevels, rep: LevelArray, definition: LevelArray | None, *, is_outermost: bool
) -> tuple[Slots, LevelArray, LevelArray | None]:
    starts = (rep > 0).nonzero()[0]  # booleans are looked through several times as fast
    # What is around the outermost list repeats nothing: only how many levels are left is asked there.
    next_rep = rep[: len(starts)] if is_outermost else rep[starts] - np.uint16(1)
    total = len(rep)
    if definition is None:
        return Slots(len(starts), None, np.append(starts, total)), next_rep, None
    levels = definition[starts]
    is_null = levels > layer.upper  # masked by a null struct, or without a slot at all
    if layer.null:
        is_null |= levels == layer.null
    is_special = is_null | (levels == layer.empty) if layer.empty else is_null
    if not is_special.any():
        return Slots(len(starts), None, np.append(starts, total)), next_rep, levels
    offsets = starts_of(is_special)
    np.subtract(starts, offsets[:-1], out=offsets[:-1])
    offsets[-1] = total - offsets[-1]
    visible = levels <= layer.with_slot
    if visible.all():
        return Slots(len(starts), ~is_null if is_null.any() else None, offsets), next_rep, levels
    offsets = offsets[np.append(visible, True)]
    return Slots(len(offsets) - 1, ~is_null[visible], offsets), next_rep, levels
