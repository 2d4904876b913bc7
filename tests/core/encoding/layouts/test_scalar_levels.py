"""Levels of a few rows in plain numbers mean what they mean as arrays."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_core.encoding.layouts.scalar_levels import unravel_scalar
from lance_core.encoding.leaves import leaf_paths, shred
from lance_core.encoding.repdef import levels_of, unravel
from lance_core.errors import CorruptDataError
from lance_core.format.schema import Schema

_KIND = pa.list_(pa.struct([("inner", pa.list_(pa.int32()))]))
_INNER = st.none() | st.lists(st.none() | st.integers(0, 9), max_size=4)
_OUTER = st.none() | st.lists(st.none() | st.fixed_dictionaries({"inner": _INNER}), max_size=4)
_NO_NULLS = st.lists(st.fixed_dictionaries({"inner": st.lists(st.integers(0, 9), min_size=1, max_size=4)}), min_size=1)


def _levels(values):
    array = pa.array(values, _KIND)
    path = leaf_paths(Schema.from_arrow(pa.schema([pa.field("c", _KIND)])).fields[0])[0]
    levels, leaf = shred(path, array)
    return levels, len(leaf)


def _plain(levels):
    return None if levels is None else bytearray(levels.tolist())


def _nulls(valid):
    return None if valid is None or all(valid) else list(valid)


@given(st.lists(_OUTER, min_size=1, max_size=30) | st.lists(_NO_NULLS, min_size=1, max_size=5))
def test_equal_to_arrays(values):
    levels, num_slots = _levels(values)
    slots = unravel_scalar(levels_of(levels.layers), _plain(levels.rep), _plain(levels.definition), num_slots)
    for plain, array in zip(slots, unravel(levels, num_slots), strict=True):
        assert plain.length == array.length
        assert _nulls(plain.valid) == _nulls(array.validity)
        assert plain.offsets == (None if array.offsets is None else array.offsets.tolist())


@pytest.mark.parametrize(("rep", "definition"), [([2, 0, 3], [0, 0, 0]), ([2, 0, 1], [0, 0, 9]), ([1, 0, 0], [0] * 3)])
def test_levels_that_the_layers_do_not_allow_are_refused(rep, definition):
    levels, _ = _levels([[{"inner": [1, None]}, None], None])
    with pytest.raises(CorruptDataError, match=r"larger than|begin with a new row"):
        unravel_scalar(levels_of(levels.layers), bytearray(rep), bytearray(definition), 3)
