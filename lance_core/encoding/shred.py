"""Build levels: from the nesting of Arrow arrays to repetition and definition levels of one leaf."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.encoding.repdef import LevelArray, Levels, Mask, is_list, level_numbers, list_layer, max_def
from lance_core.format.file.page_layout import Layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.values import Int64s


@frozen(kw_only=True)
class Nesting:
    """One layer of nesting over the slots of the layer around it.

    Attributes:
        length: Slots.
        is_null: Shape (length,), None if nothing is null. For a list, also True below a null struct.
        sizes: Shape (length,) for a list: items, 0 where null; None for an item layer.
        is_nullable: Declare the layer nullable even if nothing is null.
        dimension: Slots of the next layer in each slot of this one; more than 1 for fixed-size lists of structs.
    """

    length: int
    is_null: Mask | None
    sizes: Int64s | None = None
    is_nullable: bool = False
    dimension: int = 1


@frozen
class _Entries:
    """Levels under construction; ``live`` are the positions of entries that are neither null lists nor empty ones."""

    count: int
    rep: LevelArray | None
    definition: LevelArray | None
    live: Int64s | None


def build_levels(nestings: Sequence[Nesting]) -> Levels:
    """Return levels of one leaf.

    Args:
        nestings: From the outermost layer to the leaf. A list's sizes add up to the length of the next one.
    """
    layers = tuple(_layer_of(nesting) for nesting in reversed(nestings))
    numbers = level_numbers(layers)
    entries = _Entries(nestings[0].length, None, None, None)
    lists_left = sum(map(is_list, layers))
    definition = np.zeros(entries.count, np.uint16) if max_def(layers) else None
    entries = replace(entries, definition=definition)
    for nesting, (null, empty) in zip(nestings, reversed(numbers), strict=True):
        if nesting.sizes is None:
            _mark_null_items(entries, nesting.is_null, null)
            entries = _multiply(entries, nesting.dimension)
        else:
            entries = _expand(entries, nesting, lists_left, null, empty)
            lists_left -= 1
    return Levels(layers, entries.rep, entries.definition)


def _layer_of(nesting: Nesting) -> Layer:
    has_null = nesting.is_nullable or nesting.is_null is not None
    if nesting.sizes is None:
        return Layer.NULLABLE_ITEM if has_null else Layer.ALL_VALID_ITEM
    empty = nesting.sizes == 0
    has_empty = bool(empty.any() if nesting.is_null is None else (empty & ~nesting.is_null).any())
    return list_layer(has_null=has_null, has_empty=has_empty)


def _multiply(entries: _Entries, dimension: int) -> _Entries:
    """Return an entry for each item of fixed-size lists; there are no other lists around or in them."""
    if dimension == 1:
        return entries
    definition = None if entries.definition is None else np.repeat(entries.definition, dimension)
    return replace(entries, count=entries.count * dimension, definition=definition)


def _mark_null_items(entries: _Entries, is_null: Mask | None, level: int) -> None:
    """Give null items their level, unless something around them is null already."""
    if is_null is None or entries.definition is None:
        return
    at = np.flatnonzero(is_null) if entries.live is None else entries.live[is_null]
    at = at[entries.definition[at] == 0]
    entries.definition[at] = level


def _expand(entries: _Entries, nesting: Nesting, rep_level: int, null: int, empty: int) -> _Entries:
    """Replace each list by its items, or by one entry if it has none."""
    sizes = nesting.sizes if nesting.sizes is not None else np.zeros(nesting.length, np.int64)
    counts = np.maximum(sizes, 1)
    if entries.live is not None:
        all_counts = np.ones(entries.count, np.int64)
        all_counts[entries.live] = counts
        counts = all_counts
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    starts = ends - counts
    rep = np.zeros(total, np.uint16)
    rep[starts] = rep_level if entries.rep is None else _restart(entries, rep_level)
    if entries.definition is None:
        return _Entries(total, rep, None, None)
    levels = entries.definition.copy()
    at = slice(None) if entries.live is None else entries.live
    levels[at] = _list_levels(levels[at], nesting, sizes, null, empty)
    definition = np.zeros(total, np.uint16)
    definition[starts] = levels
    # Every level set so far is that of a null or empty thing at or above this list: no items below.
    live = np.flatnonzero(definition == 0) if levels.any() else None
    return _Entries(total, rep, definition, live)


def _restart(entries: _Entries, rep_level: int) -> LevelArray:
    """First entries of lists that begin nothing larger begin this list."""
    rep = entries.rep if entries.rep is not None else np.zeros(entries.count, np.uint16)
    restarted = np.where(rep == 0, np.uint16(rep_level), rep)
    if entries.live is None:
        return restarted
    merged = rep.copy()
    merged[entries.live] = restarted[entries.live]
    return merged


def _list_levels(levels: LevelArray, nesting: Nesting, sizes: Int64s, null: int, empty: int) -> LevelArray:
    levels_here = np.zeros(nesting.length, np.uint16)
    if empty:
        levels_here[sizes == 0] = empty
    if nesting.is_null is not None:
        levels_here[nesting.is_null] = null
    return np.where(levels != 0, levels, levels_here)
