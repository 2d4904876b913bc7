import struct
import zlib
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from lance_core._proto import table_pb2
from lance_core.errors import CorruptDataError, LanceError, UnsupportedError
from lance_core.format.dictionary_values import LegacyDictionary
from lance_core.format.schema import Schema, decode_fields
from lance_core.format.table import manifest as manifest_module
from lance_core.format.table.base_path import BasePath
from lance_core.format.table.feature_flags import Feature
from lance_core.format.table.fragment import DataFile, Fragment, encode_fragment
from lance_core.format.table.fragment_list import FragmentList
from lance_core.format.table.legacy_dictionaries import with_values
from lance_core.format.table.manifest import (
    MAX_INLINE_TRANSACTION_SIZE,
    Manifest,
    decode_manifest_file,
    encode_manifest_pieces,
    with_transaction,
)
from lance_core.format.table.operations import Append, Delete
from lance_core.format.table.transaction import Transaction, encode_transaction, encode_transaction_file

SCHEMA = Schema.from_arrow(pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.list_(pa.string()))], {"k": "v"}))
FILE = DataFile(path="a.lance", fields=(0,), column_indices=(0,), file_major_version=2, file_minor_version=2)
MANIFEST = Manifest(
    version=3,
    schema=SCHEMA,
    fragments=FragmentList.of([Fragment(id=0, files=(FILE,), physical_rows=10)]),
    data_storage_version="2.2",
    timestamp=datetime(2026, 5, 1, 12, 30, 15, 123456, tzinfo=UTC),
    max_fragment_id=0,
    next_row_id=17,
    reader_feature_flags=Feature.BASE_PATHS,
    writer_feature_flags=Feature.BASE_PATHS | Feature.CONFIG,
    config={"x": "y"},
    table_metadata={"about": "it"},
    base_paths=(BasePath(id=1, path="/elsewhere", name="n", is_dataset_root=True),),
    branch="b",
    tag="t",
    transaction_file="2-u.txn",
    index_section=table_pb2.IndexSection(indices=[table_pb2.IndexMetadata(name="i")]).SerializeToString(),
    transaction_section=b"\x08\x02",
)


def with_message(change):
    """A manifest file whose message was changed by hand."""
    pb = table_pb2.Manifest(version=3, fields=[{"name": "a", "logical_type": "int64", "parent_id": -1}])
    change(pb)
    message = pb.SerializeToString()
    return struct.pack("<I", len(message)) + message + struct.pack("<qHH4s", 0, 0, 2, b"LANC")


def test_round_trip():
    assert decode_manifest_file(b"".join(encode_manifest_pieces(MANIFEST)), version=3) == MANIFEST


@pytest.mark.parametrize("number", [10, 10_000])
def test_a_commit_copies_no_record_that_it_does_not_change(number):
    """Of a large manifest; a small one costs less as one piece."""
    read = decode_manifest_file(b"".join(encode_manifest_pieces(replace(MANIFEST, fragments=with_ids(range(number))))))
    longer = replace(read, version=4, fragments=read.fragments.extended([*with_ids([number])]))
    pieces = encode_manifest_pieces(longer)
    shared = [np.shares_memory(np.frombuffer(piece, "u1"), read.fragments._bytes()) for piece in pieces]
    assert shared == [False] if number == 10 else any(shared)
    written = decode_manifest_file(b"".join(pieces), version=4)
    assert written.fragments == with_ids(range(number + 1))
    assert written == replace(longer, fragments=written.fragments)


def test_a_list_that_gets_more_fragments_is_in_order_whatever_it_was_before():
    for before in ([], [4], [7, 2, 5]):
        longer = with_ids(before).extended([*with_ids([8, 9])])
        assert [one.id for one in longer] == longer.ids.tolist() == [*sorted(before), 8, 9]
        assert longer.highest_id == 9
    known = with_ids([7]).extended([*with_ids([8])])
    assert [one.id for one in known.extended([*with_ids([3])])] == [3, 7, 8]
    assert [one.id for one in known.extended([*with_ids([12, 11])]).extended([*with_ids([13])])] == [7, 8, 11, 12, 13]
    assert with_ids([]).highest_id == -1
    assert [one.id for one in with_ids([7, 2, 5]).extended([])] == [2, 5, 7]


def with_ids(numbers):
    return FragmentList.of(Fragment(id=number, files=(FILE,), physical_rows=10) for number in numbers)


def test_layout_of_the_file():
    data = b"".join(encode_manifest_pieces(MANIFEST))
    position, major, minor, magic = struct.unpack("<qHH4s", data[-16:])
    assert (major, minor, magic) == (0, 2, b"LANC")
    (size,) = struct.unpack_from("<I", data, position)
    assert position + 4 + size + 16 == len(data)
    pb = table_pb2.Manifest.FromString(data[position + 4 : position + 4 + size])
    assert pb.index_section == 0
    assert pb.transaction_section == 4 + len(MANIFEST.index_section)
    section = pb.transaction_section + 4 + len(MANIFEST.transaction_section)
    assert position == section + 16
    before, behind = zlib.crc32(data[:section]), zlib.crc32(data[position:])
    assert data[section:position] == struct.pack("<8sII", b"LNCcrc32", before, behind)


def test_position_zero_is_written_when_there_is_no_index():
    data = b"".join(encode_manifest_pieces(replace(MANIFEST, index_section=None)))
    (position,) = struct.unpack_from("<q", data, len(data) - 16)
    pb = table_pb2.Manifest.FromString(data[position + 4 : -16])
    assert pb.HasField("transaction_section")
    assert pb.transaction_section == 0
    assert not pb.HasField("index_section")


def test_every_truncation_is_corrupt():
    data = b"".join(encode_manifest_pieces(MANIFEST))
    for size in range(len(data)):
        with pytest.raises(CorruptDataError):
            decode_manifest_file(data[:size], version=3)


def test_damage_raises_our_errors_only():
    rng = np.random.default_rng(3)
    data = b"".join(encode_manifest_pieces(MANIFEST))
    refused = 0
    for _ in range(1500):
        damaged = bytearray(data)
        damaged[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        try:
            manifest = decode_manifest_file(bytes(damaged), version=3)
            assert manifest.version == 3
            _ = (list(manifest.fragments), manifest.num_rows, manifest.indices, manifest.inline_transaction())
        except LanceError:
            refused += 1
    assert refused > 300


def test_version_must_be_that_of_the_name():
    with pytest.raises(CorruptDataError, match="version 4 contains version 3"):
        decode_manifest_file(b"".join(encode_manifest_pieces(MANIFEST)), version=4)


def test_empty_message_is_not_an_empty_table():
    data = struct.pack("<I", 0) + struct.pack("<qHH4s", 0, 0, 2, b"LANC")
    with pytest.raises(CorruptDataError):
        decode_manifest_file(data, version=0)


def test_manifest_without_fields_is_corrupt():
    with pytest.raises(CorruptDataError, match="no fields"):
        decode_manifest_file(with_message(lambda pb: pb.ClearField("fields")), version=3)


def test_unknown_features_are_refused_by_name():
    def overlays(pb):
        pb.reader_feature_flags = 64 | 1 << 40

    with pytest.raises(UnsupportedError, match=r"64 \(DATA_OVERLAYS\), 1099511627776"):
        decode_manifest_file(with_message(overlays))


def test_contradicting_flags_are_corrupt():
    def unpaired(pb):
        pb.reader_feature_flags = 256

    with pytest.raises(CorruptDataError, match="contradict"):
        decode_manifest_file(with_message(unpaired))


def test_fragment_tree_is_refused():
    with pytest.raises(UnsupportedError, match="fragment_tree"):
        decode_manifest_file(with_message(lambda pb: pb.fragment_tree.SetInParent()))


@pytest.mark.parametrize("position", [-1, 1 << 40, -(1 << 62)])
def test_positions_outside_the_file_are_corrupt(position):
    data = b"".join(encode_manifest_pieces(MANIFEST))
    with pytest.raises(CorruptDataError):
        decode_manifest_file(data[:-16] + struct.pack("<q", position) + data[-8:])


def test_transaction_position_of_older_writers():
    def old_field(pb):
        pb.transaction_section_deprecated = 0  # read as a section: the message itself, good enough for bytes

    assert decode_manifest_file(with_message(old_field)).transaction_section


@pytest.mark.parametrize(("major", "minor", "expected"), [(2, 1, "2.1"), (0, 2, "0.1")])
def test_missing_data_format_follows_the_files(major, minor, expected):
    def old(pb):
        file = table_pb2.DataFile(path="x", file_major_version=major, file_minor_version=minor)
        pb.fragments.append(table_pb2.DataFragment(files=[file]).SerializeToString())

    assert decode_manifest_file(with_message(old)).data_storage_version == expected


def test_large_transactions_are_only_in_their_own_file():
    small = Transaction(read_version=2, uuid="u", operation=Append(fragments=()))
    record = encode_transaction(small)
    manifest = with_transaction(MANIFEST, small, record)
    assert manifest.transaction_section == record
    file = encode_transaction_file(record)
    assert (file[:-20], file[-20:-8]) == (record, b"\xea\xff\x07\x10LNCcrc32")
    assert manifest.transaction_file == "2-u.txn"
    large = replace(small, operation=Delete(predicate="x" * MAX_INLINE_TRANSACTION_SIZE))
    record = encode_transaction(large)
    assert len(record) > MAX_INLINE_TRANSACTION_SIZE
    assert with_transaction(MANIFEST, large, record).transaction_section is None


def test_dictionaries_of_version_0_1_move_along():
    kinds = [pa.dictionary(pa.int8(), kind) for kind in (pa.string(), pa.int64(), pa.large_binary())]
    schema = Schema.from_arrow(pa.schema([("id", pa.int64()), *((f"d{i}", kind) for i, kind in enumerate(kinds))]))
    ends = np.array([0, 1, 1, 3], "<i8").tobytes()
    known = {
        1: LegacyDictionary(3, b"xzz", ends),
        2: LegacyDictionary(2, np.array([7, 8], "<i8").tobytes(), None),
        3: LegacyDictionary(0, b"", bytes(8)),
    }
    schema = with_values(schema, lambda field: known[field.id])
    manifest = Manifest(version=1, schema=schema, fragments=FragmentList.of([]), data_storage_version="0.1")
    data = b"".join(encode_manifest_pieces(manifest))
    again = decode_manifest_file(data)
    assert [field.values for field in again.schema.fields] == [None, *known.values()]
    assert [field.dictionary for field in again.schema.fields] == [None, (3, 3), (35, 2), (51, 0)]
    assert data[:3] == b"xzz"
    assert np.frombuffer(data, "<i8", 4, 3).tolist() == [0, 1, 1, 3]
    assert decode_manifest_file(b"".join(encode_manifest_pieces(again))).schema == again.schema
    newer = decode_manifest_file(b"".join(encode_manifest_pieces(replace(manifest, data_storage_version="2.0"))))
    assert [field.values for field in newer.schema.fields] == [None] * 4


@pytest.mark.parametrize("place", [(-1, 1), (0, -1), (1 << 40, 1), (0, 1 << 40), (5, 3)])
def test_dictionaries_outside_of_the_manifest_are_damage(place):
    schema = Schema.from_arrow(pa.schema([("d", pa.dictionary(pa.int8(), pa.string()))]))
    field = replace(schema.fields[0], dictionary=place)
    manifest = Manifest(version=1, schema=Schema((field,)), fragments=FragmentList.of([]), data_storage_version="0.1")
    with pytest.raises(CorruptDataError, match="'d'"):
        decode_manifest_file(b"".join(encode_manifest_pieces(manifest)))


def test_fragments_may_lie_anywhere_in_the_message_and_have_any_size():
    records = [table_pb2.DataFragment(id=number, physical_rows=1).SerializeToString() for number in range(3)]
    records += [
        table_pb2.DataFragment(id=number, physical_rows=1 << number % 60, inline_row_ids=b"x" * (number % 61))
        for number in range(3, 3000)
    ]
    records = [one if isinstance(one, bytes) else one.SerializeToString() for one in records]
    fields = table_pb2.Manifest(version=3, fields=[{"name": "a", "logical_type": "int64", "parent_id": -1}])
    rest = [table_pb2.Manifest(fragments=[one]).SerializeToString() for one in records]
    for message in (
        fields.SerializeToString() + b"".join(rest),  # behind the version
        b"".join(rest[:5]) + fields.SerializeToString() + b"".join(rest[5:]),  # in two places
        b"".join(rest[:3]) + fields.SerializeToString(),
        table_pb2.Manifest(fields=fields.fields).SerializeToString() + b"".join(rest) + b"\x18\x03",
    ):
        file = struct.pack("<I", len(message)) + message + struct.pack("<qHH4s", 0, 0, 2, b"LANC")
        manifest = decode_manifest_file(file, version=3)
        expected = tuple(table_pb2.Manifest.FromString(message).fragments)
        assert manifest.fragments.records == expected
        assert manifest.fragments.ids.tolist() == list(range(len(expected)))
        assert decode_manifest_file(b"".join(encode_manifest_pieces(manifest))) == manifest


def test_fields_may_lie_before_and_behind_the_fragments_and_beside_other_things():
    def field(number):
        return table_pb2.Manifest(
            fields=[{"name": f"f{number}", "logical_type": "int64", "id": number, "parent_id": -1}]
        )

    fragment = table_pb2.Manifest(fragments=[encode_fragment(Fragment(id=0, files=(FILE,), physical_rows=10))])
    metadata = table_pb2.Manifest(schema_metadata={"k": b"v"})
    rest = table_pb2.Manifest(version=3)
    for parts in (
        [field(1), fragment, field(2), rest],
        [field(1), field(2), metadata, fragment, rest],
        [metadata, field(1), fragment, rest, field(2)],
        [fragment, field(1), field(2), metadata, rest],
        [field(1), field(2), fragment, metadata, rest],
    ):
        message = b"".join(part.SerializeToString() for part in parts)
        for _ in range(2):  # the second time, what lies before the fragments is known
            data = struct.pack("<I", len(message)) + message + struct.pack("<qHH4s", 0, 0, 2, b"LANC")
            manifest = decode_manifest_file(data, version=3)
            assert [one.name for one in manifest.schema.fields] == ["f1", "f2"]
            assert dict(manifest.schema.metadata) == ({"k": b"v"} if metadata in parts else {})
            assert len(manifest.fragments) == 1


def test_what_lies_before_the_fragments_is_decoded_once(monkeypatch):
    calls = []
    monkeypatch.setattr(manifest_module, "decode_fields", lambda *given: calls.append(1) or decode_fields(*given))
    schema = Schema.from_arrow(pa.schema([(f"only here {number}", pa.int64()) for number in range(300)]))
    for version in range(3, 8):
        written = replace(MANIFEST, version=version, schema=schema, config={"version": str(version)})
        assert decode_manifest_file(b"".join(encode_manifest_pieces(written)), version=version) == written
    assert len(calls) == 1
