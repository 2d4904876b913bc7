import pytest
from pyroaring import BitMap

from lance_core._proto import table_pb2, vector_pb2
from lance_core.errors import CorruptDataError
from lance_core.format.index.vector_index import decode_details
from lance_core.format.table.index_metadata import decode_index_section, encode_index_section, with_changed_coverage

UNKNOWN_FIELD = b"\xfa\x07\x03abc"  # field 127


def section(bitmap):
    pb = table_pb2.IndexMetadata(name="i", fields=[1, 2], covering_fields=[2], fragment_bitmap=bitmap)
    pb.uuid.uuid = bytes(range(16))
    record = pb.SerializeToString() + UNKNOWN_FIELD
    return b"\x0a" + bytes([len(record)]) + record


def test_entries_survive_with_what_we_do_not_know():
    data = section(BitMap([1, 2]).serialize())
    (index,) = decode_index_section(data)
    assert (index.name, index.fields, index.covering_fields) == ("i", (1, 2), (2,))
    assert index.uuid_text == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert index.fragment_ids == {1, 2}
    assert UNKNOWN_FIELD in encode_index_section((index,))


def test_fragments_are_taken_out():
    (index,) = decode_index_section(section(BitMap([1, 2, 7]).serialize()))
    assert with_changed_coverage(index, removed=[2, 5]).fragment_ids == {1, 7}
    assert with_changed_coverage(index, removed=[5]) is index
    assert UNKNOWN_FIELD in with_changed_coverage(index, removed=[1, 2]).record


def test_empty_and_unknown_coverage_differ():
    (index,) = decode_index_section(section(BitMap([1]).serialize()))
    assert with_changed_coverage(index, removed=[1]).fragment_ids == frozenset()
    (unknown,) = decode_index_section(section(b""))
    assert unknown.fragment_ids is None
    assert with_changed_coverage(unknown, removed=[1]) is unknown


@pytest.mark.parametrize("data", [b"\xff", section(b"not a bitmap")])
def test_damage_is_corrupt(data):
    with pytest.raises(CorruptDataError):
        with_changed_coverage(decode_index_section(data)[0], removed=[1])


def test_vector_indices_of_metrics_that_are_not_known_are_left_alone():
    details = vector_pb2.VectorIndexDetails(flat={})
    assert decode_details(details.SerializeToString()).index_type == "IVF_FLAT"
    unknown = b"\x08\x63" + details.SerializeToString()
    assert decode_details(unknown).index_type is None
