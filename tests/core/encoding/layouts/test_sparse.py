"""Sparse layers of file version 2.3: from positions to levels, and damage that is told from values."""

import os
import random

import numpy as np
import pytest

from lance_core.encoding.layouts import sparse
from lance_core.encoding.repdef import check_levels, unravel
from lance_core.errors import CorruptDataError, LanceError, UnsupportedError
from lance_core.format.encodings import Constant, Flat, Range
from lance_core.format.sparse_layers import SparseLayer, SparseLists, SparseValidity

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
