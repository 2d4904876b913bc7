"""Packed structs: rows of bytes that hold all fields."""

import numpy as np
import pytest

from lance_core.encoding import registry
from lance_core.encoding.codecs import packed_struct
from lance_core.encoding.values import FixedListValues, FixedValues, StructValues, VariableValues
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.file.encodings import Flat, PackedField, Variable, VariablePackedStruct

NUMBERS = FixedValues(np.array([1, 2, 3], np.uint16))
TEXTS = VariableValues(np.array([0, 1, 1, 4], np.int32), np.frombuffer(b"abcd", np.uint8))
VECTORS = FixedListValues(2, FixedValues(np.arange(6, dtype=np.uint8)), None)


def _decode(encoding, rows):
    return registry.decode_strings(encoding, rows)


def test_fixed_fields_stand_side_by_side():
    bits, rows = packed_struct.encode_fixed(StructValues((NUMBERS, FixedValues(np.array([7, 8, 9], np.uint8)))))
    assert bits == (16, 8)
    assert rows.data.tobytes().hex(" ", 3) == "010007 020008 030009"
    numbers, others = packed_struct.split_rows(rows, [2, 1])
    assert numbers.data.tolist() == [1, 2, 3]
    assert others.data.tolist() == [7, 8, 9]
    with pytest.raises(CorruptDataError):
        packed_struct.split_rows(rows, [2, 2])


def test_other_fields_have_no_fixed_rows():
    assert packed_struct.encode_fixed(StructValues((NUMBERS, TEXTS))) is None
    assert packed_struct.encode_fixed(StructValues((FixedValues(np.ones(3, np.bool_)),))) is None


def test_variable_fields_stand_behind_their_lengths():
    encoding, rows = packed_struct.encode_variable(StructValues((NUMBERS, TEXTS, VECTORS)))
    assert rows.data[: rows.offsets[1]].tobytes().hex() == "010001000000610001"
    back = _decode(encoding, rows)
    assert back.children[0].data.tolist() == [1, 2, 3]
    assert back.children[1].offsets.tolist() == [0, 1, 1, 4]
    assert back.children[1].data.tobytes() == b"abcd"
    assert back.children[2].items.data.tolist() == list(range(6))


def test_rows_of_nulls_are_empty():
    encoding, rows = packed_struct.encode_variable(StructValues((NUMBERS, TEXTS)))
    offsets = np.insert(rows.offsets, 1, rows.offsets[1])
    back = _decode(encoding, VariableValues(offsets, rows.data))
    assert back.children[0].data.tolist() == [1, 0, 2, 3]
    assert back.children[1].offsets.tolist() == [0, 1, 1, 1, 4]


@pytest.mark.parametrize("cut", range(1, 7))
def test_rows_that_end_early_are_damage(cut):
    encoding = VariablePackedStruct((PackedField(Flat(16), 16, None), PackedField(Variable(32), None, 32)))
    data = np.frombuffer(bytes.fromhex("01000100000061"), np.uint8)
    with pytest.raises(CorruptDataError):
        _decode(encoding, VariableValues(np.array([0, cut], np.int64), data))


def test_rows_that_are_too_long_are_damage():
    encoding = VariablePackedStruct((PackedField(Flat(16), 16, None),))
    with pytest.raises(CorruptDataError, match="behind"):
        _decode(encoding, VariableValues(np.array([0, 3], np.int64), np.zeros(3, np.uint8)))


def test_fields_that_cannot_be_packed_are_refused():
    with pytest.raises(UnsupportedError, match="booleans"):
        packed_struct.encode_variable(StructValues((TEXTS, FixedValues(np.ones(3, np.bool_)))))
