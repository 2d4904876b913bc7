"""Sparse layers of file version 2.3: from positions to levels, and damage that is told from values."""

import os
import random

import numpy as np
import pytest

from lance_core.encoding.arrow_values import spread_values
from lance_core.encoding.layouts import sparse
from lance_core.encoding.repdef import check_levels, unravel
from lance_core.encoding.values import FixedListValues, FixedValues, StructValues, VariableValues
from lance_core.errors import CorruptDataError, LanceError, UnsupportedError
from lance_core.format.file.encodings import Constant, Flat, Range, Variable
from lance_core.format.file.page_layout import FullZipLayout, Layer, MiniBlockLayout, SparseLayout
from lance_core.format.file.sparse_layers import SparseLayer, SparseLists, SparseValidity

WORDS = Flat(64)
ALL_VALID = SparseValidity(are_valid=False, positions=Constant(None), num_positions=0)
ALL_NULL = SparseValidity(are_valid=True, positions=Constant(None), num_positions=0)


def words(*numbers):
    return np.array(numbers, "<u8").view(np.uint8)


def nulls(count, encoding=WORDS):
    return SparseValidity(are_valid=False, positions=encoding, num_positions=count)


def lists(count, num_items, positions=WORDS, counts=WORDS):
    return SparseLists(positions, counts, count, num_items)


def decode(layers, buffers, num_rows):
    """Validity and offsets of each layer, from the leaf outwards."""
    levels = sparse.decode_levels(layers, buffers, num_rows)
    check_levels(levels)
    visible = num_rows if levels.rep is None else layers[-2].lists.num_items
    found = unravel(levels, visible)
    return [
        (
            None if one.validity is None else one.validity.tolist(),
            None if one.offsets is None else one.offsets.tolist(),
        )
        for one in found
    ]


def test_positions_of_nulls():
    assert decode([SparseLayer(nulls(2))], [words(1, 3)], 4) == [([True, False, True, False], None)]


def test_positions_of_values():
    layer = SparseLayer(SparseValidity(are_valid=True, positions=Range(64, 1, 2), num_positions=2))
    assert decode([layer], [], 4) == [([False, True, False, True], None)]


def test_nothing_is_null():
    assert decode([SparseLayer(ALL_VALID)], [], 2) == [(None, None)]


def test_lists_that_are_not_empty():
    layers = [SparseLayer(nulls(1), lists(2, 3)), SparseLayer(ALL_VALID)]
    buffers = [words(0, 3), words(2, 1), words(1)]
    assert decode(layers, buffers, 4) == [(None, None), ([True, False, True, True], [0, 2, 2, 2, 3])]


BAD = {
    "position beyond the slots": ([SparseLayer(nulls(1))], [words(4)], "go back or beyond"),
    "position beyond all slots": ([SparseLayer(nulls(1))], [words(2**63)], "slot 9223372036854775808"),
    "positions that go back": ([SparseLayer(nulls(2))], [words(3, 1)], "go back"),
    "position told twice": ([SparseLayer(nulls(2))], [words(1, 1)], "go back"),
    "more positions than slots": ([SparseLayer(nulls(5))], [words(0, 1, 2, 3, 4)], "5 positions"),
    "too few bytes": ([SparseLayer(nulls(2))], [words(1)], "bytes"),
    "no buffer": ([SparseLayer(nulls(1))], [], "fewer buffers"),
    "one buffer too many": ([SparseLayer(ALL_VALID)], [words(1)], "more buffers"),
    "counts that do not add up": (
        [SparseLayer(ALL_VALID, lists(2, 4)), SparseLayer(ALL_VALID)],
        [words(0, 3), words(2, 1)],
        "4 items",
    ),
    "an empty list among the others": (
        [SparseLayer(ALL_VALID, lists(2, 2)), SparseLayer(ALL_VALID)],
        [words(0, 3), words(2, 0)],
        "2 items",
    ),
    "counts that overflow": (
        [SparseLayer(ALL_VALID, lists(2, 0)), SparseLayer(ALL_VALID)],
        [words(0, 3), words(2**63, 2**63)],
        "slot",
    ),
    "a null list with items": (
        [SparseLayer(nulls(1), lists(1, 1)), SparseLayer(ALL_VALID)],
        [words(2), words(1), words(2)],
        "null has items",
    ),
    "lists of a length that rows do not fill": (
        [SparseLayer(ALL_VALID, dimension=3), SparseLayer(ALL_VALID)],
        [],
        "do not fill",
    ),
    "lists of a length beyond all words": (
        [SparseLayer(ALL_VALID, dimension=2**32), SparseLayer(ALL_VALID, dimension=2**32), SparseLayer(ALL_VALID)],
        [],
        "do not fill",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_damage_is_told(name):
    layers, buffers, message = BAD[name]
    with pytest.raises(CorruptDataError, match=message):
        sparse.decode_levels(layers, buffers, 4)


def test_no_memory_is_taken_for_slots_beyond_the_limit():
    huge = lists(1, 1 << 40, Constant(bytes(8)), Constant((1 << 40).to_bytes(8, "little")))
    for layers, num_rows in (
        ([SparseLayer(ALL_NULL)], 1 << 48),
        ([SparseLayer(ALL_VALID, lists(1 << 40, 1 << 40, Range(64, 0, 1), Range(64, 1, 0)))], 1 << 40),
        ([SparseLayer(ALL_VALID, huge), SparseLayer(ALL_VALID)], 1),
    ):
        with pytest.raises((UnsupportedError, CorruptDataError), match=r"MAX_DECOMPRESSED_BYTES|slot"):
            sparse.decode_levels(layers, [], num_rows)


ITEMS = (Layer.ALL_VALID_ITEM,)
BYTES = np.empty(0, np.uint8)


def chunked(layers, num_items=0):
    values = MiniBlockLayout(
        rep=None,
        definition=None,
        values=Flat(64),
        dictionary=None,
        num_dictionary_items=0,
        layers=ITEMS,
        num_buffers=1,
        has_repetition_index=False,
        num_items=num_items,
        has_large_chunk=True,
    )
    return SparseLayout(sparse=tuple(layers), values=values, indices=None, layers=ITEMS)


def zipped(layers, num_items, indices=None):
    values = FullZipLayout(
        bits_rep=0,
        bits_def=0,
        bits_per_value=None,
        bits_per_offset=32,
        num_items=num_items,
        num_visible_items=num_items,
        values=Variable(Flat(32)),
        layers=ITEMS,
    )
    return SparseLayout(sparse=tuple(layers), values=values, indices=indices, layers=ITEMS)


NULLS = [SparseLayer(nulls(2))]
LISTS = [SparseLayer(nulls(1), lists(2, 3)), SparseLayer(nulls(1))]
"""The second row is null, the third one empty: [value, null], None, [], [value]."""

LIST_BUFFERS = [words(0, 3), words(2, 1), words(1), words(1)]


def find_rows(layout, buffers, num_rows, rows):
    return sparse.decode_page(layout, buffers, num_rows).find(rows)


def test_buffers_of_values_stand_between_indices_and_layers():
    assert sparse.value_buffers(chunked(NULLS)) == range(2)
    assert sparse.data_buffer(chunked(NULLS)) == 1
    assert sparse.value_buffers(zipped(NULLS, 2)) == range(2)
    assert sparse.data_buffer(zipped(NULLS, 2)) == 0
    assert sparse.value_buffers(zipped(NULLS, 2, WORDS)) == range(1, 3)
    assert sparse.data_buffer(zipped(NULLS, 2, WORDS)) == 1
    assert sparse.data_buffer(zipped(NULLS, 2, Range(64, 0, 1))) == 0


@pytest.mark.parametrize("rows", [range(1, 4), np.array([1, 2, 3])])
def test_chunks_hold_a_value_for_each_slot(rows):
    found = find_rows(chunked(NULLS), [BYTES, BYTES, words(1, 3)], 4, rows)
    assert (list(found.values), found.num_slots) == ([1, 2, 3], 3)
    assert found.is_valid is None
    assert found.levels.definition.tolist() == [1, 0, 1]


@pytest.mark.parametrize("rows", [range(2, 5), np.array([2, 3, 4])])
def test_zipped_values_are_those_of_valid_slots(rows):
    found = find_rows(zipped(NULLS, 3), [BYTES, BYTES, words(1, 3)], 5, rows)
    assert (list(found.values), found.num_slots) == ([1, 2], 3)
    assert found.is_valid.tolist() == [True, False, True]
    values = VariableValues(np.array([0, 1, 3], np.int32), np.frombuffer(b"abb", np.uint8))
    assert found.join(values).values.offsets.tolist() == [0, 1, 1, 3]


def test_indexed_values_are_read_once():
    layout, buffers = zipped(NULLS, 9, WORDS), [words(7, 0, 2, 0, 7), BYTES, BYTES, words(1, 3)]
    found = find_rows(layout, buffers, 5, range(5))
    assert found.values.tolist() == [2, 7]
    values = VariableValues(np.array([0, 1, 3], np.int32), np.frombuffer(b"abb", np.uint8))
    decoded = found.join(values)
    assert decoded.values.offsets.tolist() == [0, 2, 2, 3, 3, 5]
    assert decoded.values.data.tobytes() == b"bbabb"


def test_indices_may_take_no_bytes():
    found = find_rows(zipped(NULLS, 9, Range(64, 2, 1)), [BYTES, BYTES, words(1, 3)], 5, range(1, 5))
    assert found.values.tolist() == [4, 6]


@pytest.mark.parametrize("rows", [range(1, 4), np.array([1, 2, 3])])
def test_values_of_lists_belong_to_their_rows(rows):
    found = find_rows(zipped(LISTS, 2), [BYTES, BYTES, *LIST_BUFFERS], 4, rows)
    assert (list(found.values), found.num_slots, found.is_valid.tolist()) == ([1], 1, [True])
    found = find_rows(chunked(LISTS), [BYTES, BYTES, *LIST_BUFFERS], 4, rows)
    assert list(found.values) == [2]


def test_rows_without_values_need_none():
    found = find_rows(zipped(LISTS, 2), [BYTES, BYTES, *LIST_BUFFERS], 4, range(1, 3))
    assert (list(found.values), found.num_slots) == ([], 0)
    assert found.join(None).values is None


def test_values_of_any_kind_are_spread():
    valid = np.array([False, True, False, True])
    two = FixedValues(np.array([7, 9], np.uint8))
    assert spread_values(two, valid).data.tolist() == [0, 7, 0, 9]
    pairs = FixedListValues(2, FixedValues(np.arange(4, dtype=np.uint8)), np.array([True, False, True, True]))
    spread = spread_values(pairs, valid)
    assert spread.items.data.tolist() == [0, 0, 0, 1, 0, 0, 2, 3]
    assert spread.validity.tolist() == [False, False, True, False, False, False, True, True]
    assert spread_values(StructValues((two, two)), valid).children[1].data.tolist() == [0, 7, 0, 9]
    assert spread_values(two, valid[[1, 3]]) is two
    with pytest.raises(CorruptDataError, match="2 values for 1 valid slots"):
        spread_values(two, valid[:2])


def test_wide_values_are_not_spread_beyond_the_limit():
    few = FixedValues(np.zeros((1, 1 << 20), np.uint8))
    valid = np.zeros(1 << 20, np.bool_)
    valid[0] = True
    with pytest.raises(UnsupportedError, match="MAX_DECOMPRESSED_BYTES"):
        spread_values(few, valid)


BAD_VALUES = {
    "more values than valid slots": (zipped(NULLS, 3), [BYTES, BYTES, words(1, 3)], "3 values for 2 valid slots"),
    "fewer values than slots": (chunked(NULLS, 3), [BYTES, BYTES, words(1, 3)], "3 values for 4 slots"),
    "an index beyond the items": (
        zipped(NULLS, 2, WORDS),
        [words(0, 9, 2, 9), BYTES, BYTES, words(1, 3)],
        "index 2 points beyond 2 values",
    ),
    "too few indices": (zipped(NULLS, 2, WORDS), [words(0, 1), BYTES, BYTES, words(1, 3)], "bytes"),
    "no buffer of layers": (zipped(NULLS, 2), [BYTES, BYTES], "fewer buffers"),
    "one buffer too many": (chunked(NULLS), [BYTES, BYTES, words(1, 3), BYTES], "more buffers"),
}


@pytest.mark.parametrize("name", BAD_VALUES)
def test_values_that_do_not_fit_their_layers_are_told(name):
    layout, buffers, message = BAD_VALUES[name]
    with pytest.raises(CorruptDataError, match=message):
        find_rows(layout, buffers, 4, range(4))


def test_any_layers_are_levels_or_one_of_our_errors():
    dice = random.Random(int(os.environ.get("LANCE_TESTS_SEED", "23")))
    encodings = [WORDS, WORDS, Constant(None), Constant(bytes(8)), Range(64, 0, 1), Range(64, 1, 2)]
    decoded = 0
    for _ in range(4000):

        def validity():
            return SparseValidity(dice.random() < 0.5, dice.choice(encodings), dice.choice([0, 1, 2, 1 << 60]))

        layers = [
            SparseLayer(validity(), lists(dice.choice([0, 1, 2]), dice.choice([0, 1, 2, 3]), dice.choice(encodings)))
            if dice.random() < 0.5
            else SparseLayer(validity(), dimension=dice.choice([1, 1, 1, 2]))
            for _ in range(dice.randrange(3))
        ]
        layers.append(SparseLayer(validity()))
        buffers = [words(*sorted(dice.choices(range(5), k=dice.randrange(4)))) for _ in range(dice.randrange(4))]
        num_rows = dice.choice([0, 1, 3, 4])
        try:
            levels = sparse.decode_levels(layers, buffers, num_rows)
            check_levels(levels)
        except LanceError:
            continue
        decoded += 1
        if levels.rep is not None:
            assert np.count_nonzero(levels.rep == levels.rep.max(initial=0)) >= min(1, num_rows)
        elif levels.definition is not None:
            assert len(levels.definition) == num_rows
    assert decoded > 100
