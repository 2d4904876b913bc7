"""JSON as Lance keeps it; the bytes are those that pylance 14.0.2 wrote for the same text."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_core.encoding.jsonb import decode_text, encode_text
from lance_core.errors import CorruptDataError, InvalidInputError, LanceError, UnsupportedError

KNOWN = {
    "null": "20000000 00000000",
    "true": "20000000 40000000",
    "false": "20000000 30000000",
    "0": "20000000 20000001 00",
    "-129": "20000000 20000003 40ff7f",
    "255": "20000000 20000002 50ff",
    "65536": "20000000 20000005 5000010000",
    "1.5": "20000000 20000009 603ff8000000000000",
    '"é"': "20000000 10000002 c3a9",
    "[]": "80000000",
    '{"a":1}': "40000001 10000001 20000002 61 5001",
    '[1,[2,{"a":null,"b":[]}],"x"]': "80000003 20000002 50000028 10000001 5001 80000002 20000002 5000001a 5002 40000002"
    " 10000001 10000001 00000000 50000004 6162 80000000 78",
}
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=4)),
    max_leaves=12,
)


@pytest.mark.parametrize("text", KNOWN)
def test_known_bytes(text):
    data = bytes.fromhex(KNOWN[text])
    assert encode_text(text) == data
    assert decode_text(data) == text


@pytest.mark.slow
@given(VALUES)
def test_values_come_back(value):
    assert json.loads(decode_text(encode_text(json.dumps(value)))) == value


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("1e-5", "0.00001"),
        ("1e-6", "1e-6"),
        ("-1.5e-5", "-0.000015"),
        ("1e16", "1e+16"),
        ("1e400", "null"),
        ("1e2", "100.0"),
    ],
)
def test_numbers_are_written_as_pylance_writes_them(text, kept):
    assert decode_text(encode_text(text)) == kept


@pytest.mark.parametrize("text", ["", "{", "NaN", "[1,]", '{"a":1,"a":2}', "[" * 300 + "]" * 300, "'a'", "Infinity"])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(InvalidInputError, match="no JSON"):
        encode_text(text)


@given(st.one_of(st.binary(max_size=40), st.sampled_from(list(KNOWN.values())).map(bytes.fromhex)), st.data())
def test_garbage_gives_our_errors(data, choice):
    damaged = bytearray(data)
    if damaged:
        damaged[choice.draw(st.integers(0, len(damaged) - 1))] = choice.draw(st.integers(0, 255))
    with contextlib.suppress(LanceError):
        decode_text(bytes(damaged))


def test_damage_and_unknown_types_are_told_apart():
    with pytest.raises(CorruptDataError):
        decode_text(bytes.fromhex("80000001 20000002 50"))
    with pytest.raises(UnsupportedError, match="type 6"):
        decode_text(bytes.fromhex("20000000 60000001 00"))
    with pytest.raises(UnsupportedError, match="0x70"):
        decode_text(bytes.fromhex("20000000 20000002 7001"))
    deep = bytes.fromhex("80000000")
    for _ in range(300):
        deep = (0x80000001).to_bytes(4, "big") + (0x50000000 | len(deep)).to_bytes(4, "big") + deep
    with pytest.raises(CorruptDataError, match="deep"):
        decode_text(deep)


@pytest.mark.parametrize(
    "text", ["[", "{", '{"a":', "[1,", '{"a":1}x', "[1] 2", " [1", '{"a":1,"a":2}', '[{"a":1,"a":1}]']
)
def test_what_only_begins_like_json(text):
    with pytest.raises(InvalidInputError, match="is no JSON"):
        encode_text(text)


def test_spaces_around_mean_nothing():
    assert encode_text(' \n{"a": [ 1 , 2 ]}\t') == encode_text('{"a":[1,2]}')


@given(st.permutations(["b", "a", "aa", "\u00e9", "z"]))
def test_the_order_of_keys_means_nothing(keys):
    """Objects with the same keys share what they have in common, but not with those that have them in another order."""
    first = json.dumps({key: keys.index(key) for key in sorted(keys)}, ensure_ascii=False)
    assert encode_text(json.dumps({key: keys.index(key) for key in keys}, ensure_ascii=False)) == encode_text(first)
    assert json.loads(decode_text(encode_text(first))) == json.loads(first)


def test_long_keys_are_not_kept():
    shape = encode_text.__globals__["_shape"]
    encode_text('{"short":1}')
    assert shape.cache_info().currsize >= 1
    encode_text(json.dumps({"k" * 100_000: 1}))
    assert shape.cache_info().currsize == 0


def test_as_deep_as_allowed_and_one_deeper():
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        deepest = opening * 200 + "[]" + closing * 200
        assert decode_text(encode_text(deepest)) == deepest
        with pytest.raises(InvalidInputError, match="nested more than 200 deep"):
            encode_text(opening + deepest + closing)
