"""Many JSON values at once are what they are one by one."""

import json
import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_core.encoding import jsonb_arrays
from lance_core.encoding.jsonb import decode_text, encode_text
from lance_core.encoding.jsonb_arrays import decode_texts
from lance_core.errors import LanceError

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"

pytestmark = pytest.mark.slow

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-300, 300),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0, -0.0, 1e-5, 1e16, -1.5e-7, 1e300, 5e-324, 1e400]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.sampled_from(['"', "\\", "\n", "\x00", "\x7f", "é", "𝄞", ""]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(VALUES, st.just(...)), min_size=17, max_size=60), st.booleans(), st.integers(0, 5))
def test_same_as_one_by_one(values, is_large, skipped):
    data = [None if value is ... else encode_text(json.dumps(value).replace("Infinity", "1e400")) for value in values]
    array = pa.array(data, pa.large_binary() if is_large else pa.binary()).slice(skipped)
    texts = jsonb_arrays._decode_together(array, jsonb_arrays._NO_CONSTANTS)
    texts.validate(full=True)
    assert texts.to_pylist() == [None if one is None else decode_text(one) for one in data[skipped:]]


@settings(max_examples=1500 if IS_DEEP else 50, deadline=None)
@given(st.lists(VALUES, min_size=17, max_size=20), st.data())
def test_damage_gives_the_same_or_our_error(values, choice):
    data = [bytearray(encode_text(json.dumps(value).replace("Infinity", "1e400"))) for value in values]
    hit = data[choice.draw(st.integers(0, len(data) - 1))]
    hit[choice.draw(st.integers(0, len(hit) - 1))] = choice.draw(st.integers(0, 255))
    if choice.draw(st.booleans()):
        del hit[choice.draw(st.integers(0, len(hit) - 1)) :]
    try:
        expected = [decode_text(bytes(one)) for one in data]
    except LanceError as error:
        with pytest.raises(type(error)):
            decode_texts(pa.array([bytes(one) for one in data]))
    else:
        assert decode_texts(pa.array([bytes(one) for one in data])).to_pylist() == expected


def test_many_blocks():
    rng = np.random.default_rng(3)
    texts = [
        json.dumps({"n": int(n), "t": "x" * int(n % 700)}, separators=(",", ":"))
        for n in rng.integers(0, 1 << 40, 9000)
    ]
    array = pa.array([encode_text(text) for text in texts])
    assert array.nbytes > 2 * jsonb_arrays.BLOCK_BYTES
    assert decode_texts(array).to_pylist() == texts


@pytest.mark.parametrize("count", [0, 1, 40])
def test_nothing_but_nulls(count):
    assert decode_texts(pa.nulls(count, pa.binary())).equals(pa.nulls(count, pa.string()))


def test_deep_values():
    deep = encode_text("[" * 190 + "]" * 190)
    assert decode_texts(pa.array([deep] * 20)).to_pylist() == ["[" * 190 + "]" * 190] * 20
