"""Levels against the examples of the specification and a slow reference."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.encoding.arrow_values import from_values, to_values
from lance_core.encoding.leaves import check_nulls, join_leaves, leaf_paths, path_array, shred
from lance_core.encoding.repdef import (
    Levels,
    check_levels,
    level_numbers,
    max_def,
    max_rep,
    max_visible_def,
    merge_layers,
    unravel,
    widen,
)
from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.format.file.page_layout import Layer
from lance_core.format.schema import Schema

LISTS = (Layer.NULLABLE_ITEM, Layer.NULL_AND_EMPTY_LIST, Layer.ALL_VALID_ITEM)


def _field(kind):
    return Schema.from_arrow(pa.schema([pa.field("c", kind)])).fields[0]


def _shred(array):
    return shred(leaf_paths(_field(array.type))[0], array)


def test_numbers_grow_from_the_leaf_outwards():
    assert level_numbers((Layer.NULLABLE_ITEM, Layer.NULL_AND_EMPTY_LIST, Layer.EMPTYABLE_LIST)) == [
        (1, 0),
        (2, 3),
        (0, 4),
    ]
    assert (max_rep(LISTS), max_def(LISTS), max_visible_def(LISTS)) == (1, 3, 1)


def test_lists_of_the_specification():
    levels, leaf = _shred(pa.array([[1, 2], None, [], [3]], pa.list_(pa.int32())))
    assert levels.layers == (Layer.ALL_VALID_ITEM, Layer.NULL_AND_EMPTY_LIST)
    assert levels.rep.tolist() == [1, 0, 1, 1, 1]
    assert levels.definition.tolist() == [0, 0, 1, 2, 0]
    assert leaf.to_pylist() == [1, 2, 3]


def test_null_items_and_null_lists():
    levels, leaf = _shred(pa.array([[None], None, []], pa.list_(pa.int32())))
    assert levels.rep.tolist() == [1, 1, 1]
    assert levels.definition.tolist() == [1, 2, 3]
    assert len(leaf) == 1


def test_nothing_null_takes_no_levels():
    levels, _ = _shred(pa.array([1, 2, 3]))
    assert (levels.rep, levels.definition) == (None, None)
    levels, _ = _shred(pa.array([[1], [2, 3]]))
    assert levels.definition is None
    assert levels.rep.tolist() == [1, 1, 0]


def test_struct_above_a_list_is_always_declared_nullable():
    levels, _ = _shred(pa.array([{"l": [1]}], pa.struct([("l", pa.list_(pa.int8()))])))
    assert levels.layers == (Layer.ALL_VALID_ITEM, Layer.NULLABLE_LIST, Layer.NULLABLE_ITEM)


def _slow_levels(value, kinds, layers):
    """Entries (rep, def) of one row; ``kinds`` from the outside: "item" or "list"."""
    numbers = list(reversed(level_numbers(layers)))
    lists = [index for index, kind in enumerate(kinds) if kind == "list"]

    def walk(inside, depth, rep):
        if depth == len(kinds):
            return [(rep, 0)]
        null, empty = numbers[depth]
        # A null ends the walk, and begins the next list at or below it.
        below = [len(lists) - order for order, index in enumerate(lists) if index >= depth]
        if inside is None:
            return [(rep or max(below, default=0), null)]
        if kinds[depth] == "item":
            return walk(inside["x"] if isinstance(inside, dict) else inside, depth + 1, rep)
        own = below[0]
        if not inside:
            return [(rep or own, empty)]
        entries = walk(inside[0], depth + 1, rep or own)
        for item in inside[1:]:
            entries += walk(item, depth + 1, 0)
        return entries

    return walk(value, 0, len(lists))


def _random(kinds, rng):
    if not kinds or rng.random() < 0.2:
        return None if kinds else int(rng.integers(10))
    if kinds[0] == "list":
        return [_random(kinds[1:], rng) for _ in range(rng.integers(0, 4))]
    return {"x": _random(kinds[1:], rng)} if len(kinds) > 1 else _random(kinds[1:], rng)


def _arrow(kinds):
    if len(kinds) == 1:
        return pa.int32()
    inner = _arrow(kinds[1:])
    return pa.list_(inner) if kinds[0] == "list" else pa.struct([("x", inner)])


@pytest.mark.parametrize(
    "kinds",
    ["i", "li", "lli", "ii", "ili", "lii", "lili", "iilli", "llili"],
)
def test_levels_are_those_of_a_slow_reference_and_lead_back(kinds):
    names = ["list" if kind == "l" else "item" for kind in kinds]
    rng = np.random.default_rng(len(kinds))
    for count in (1, 2, 60):
        values = [_random(names, rng) for _ in range(count)]
        array = pa.array(values, _arrow(names))
        levels, leaf = _shred(array)
        check_levels(levels)
        entries = [entry for value in values for entry in _slow_levels(value, names, levels.layers)]
        if levels.rep is not None:
            assert levels.rep.tolist() == [rep for rep, _ in entries]
        if levels.definition is not None:
            assert levels.definition.tolist() == [definition for _, definition in entries]
        slots = unravel(levels, len(leaf))
        back = from_values(to_values(leaf), leaf.type, slots[0].validity, len(leaf))
        path = leaf_paths(_field(array.type))[0]
        again = path_array(path, slots, back)
        again.validate(full=True)
        assert again.equals(array)


def test_leaves_join_whatever_their_slices():
    kind = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.map_(pa.string(), pa.int8())), ("c", pa.string())]))
    row = [{"a": 1, "b": [("k", 2)], "c": None}, None, {"a": None, "b": None, "c": "z"}]
    array = pa.array([row, None, [], row, row] * 5, kind)
    field = _field(kind)
    parts = []
    for path in leaf_paths(field):
        levels, leaf = shred(path, array)
        slots = unravel(levels, len(leaf))
        values = from_values(to_values(leaf), leaf.type, slots[0].validity, len(leaf))
        parts.append(path_array(path, slots, values))
    for start, length in ((0, 25), (3, 9), (8, 1), (25, 0)):
        joined = join_leaves(field, kind, [part.slice(start, length) for part in parts])
        joined.validate(full=True)
        assert joined.equals(array.slice(start, length))


def test_merged_layers_and_renumbered_levels():
    ours = (Layer.ALL_VALID_ITEM, Layer.NULLABLE_LIST, Layer.ALL_VALID_ITEM)
    theirs = (Layer.NULLABLE_ITEM, Layer.EMPTYABLE_LIST, Layer.NULLABLE_ITEM)
    merged = merge_layers([ours, theirs, ours])
    assert merged == (Layer.NULLABLE_ITEM, Layer.NULL_AND_EMPTY_LIST, Layer.NULLABLE_ITEM)
    assert widen(Levels(ours, None, np.array([0, 1], np.uint16)), merged, 2).definition.tolist() == [0, 2]
    assert widen(Levels(theirs, None, np.array([0, 1, 2, 3], np.uint16)), merged, 4).definition.tolist() == [0, 1, 3, 4]
    assert widen(Levels((Layer.ALL_VALID_ITEM,), None, None), (Layer.NULLABLE_ITEM,), 3).definition.tolist() == [0] * 3
    with pytest.raises(CorruptDataError):
        merge_layers([ours, ours[:2]])
    with pytest.raises(CorruptDataError):
        merge_layers([ours, (Layer.ALL_VALID_ITEM,) * 3])


@pytest.mark.parametrize(
    ("rep", "definition"),
    [([0, 1], [0, 0]), ([1, 2], [0, 0]), ([1, 1], [0, 4]), ([1], [0, 0])],
)
def test_levels_that_cannot_be(rep, definition):
    levels = Levels(LISTS, np.array(rep, np.uint16), np.array(definition, np.uint16))
    with pytest.raises(CorruptDataError):
        check_levels(levels)


def test_levels_that_do_not_fit_the_values():
    with pytest.raises(CorruptDataError):
        unravel(Levels(LISTS, np.array([1, 1], np.uint16), None), 3)
    with pytest.raises(CorruptDataError):
        unravel(Levels((Layer.NULLABLE_ITEM,), None, np.array([0, 1], np.uint16)), 3)


def test_nulls_in_map_values_are_checked_where_they_count():
    kind = pa.map_(pa.string(), pa.field("v", pa.int8(), nullable=False))
    loose = pa.map_(pa.string(), pa.int8())
    check_nulls(_field(kind), pa.array([[("a", 1)], None], loose))
    with pytest.raises(InvalidInputError, match="'v'"):
        check_nulls(_field(kind), pa.array([[("a", None)]], loose))
