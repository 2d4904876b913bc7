import numpy as np
import pytest

from lance_core._proto import table_pb2
from lance_core.errors import CorruptDataError
from lance_core.format import wire


def random_fragment(rng):
    pb = table_pb2.DataFragment(physical_rows=int(rng.integers(0, 1 << 40)))
    if rng.random() < 0.8:
        pb.id = int(rng.integers(0, 1 << rng.integers(1, 40)))
    for _ in range(rng.integers(0, 3)):
        pb.files.add(
            path="x" * int(rng.integers(0, 300)), fields=[0, -2, 5], file_size_bytes=int(rng.integers(0, 1 << 50))
        )
    if rng.random() < 0.5:
        pb.deletion_file.num_deleted_rows = int(rng.integers(0, 1 << 20))
        pb.deletion_file.id = int(rng.integers(0, 1 << 63))
    if rng.random() < 0.2:
        pb.inline_row_ids = b"\x00\xff" * 200
    if rng.random() < 0.2:
        pb.metadata["key"] = "value"  # field 16: a key of two bytes
    return pb


def scan(records, numbers):
    frames, bounds = wire.frame(records, 2)
    data = np.frombuffer(frames, np.uint8)
    return wire.scan_fields(data, wire.contents(data, bounds[:-1]), bounds[1:], numbers=numbers)


def test_finds_the_same_numbers_as_protobuf():
    rng = np.random.default_rng(1)
    messages = [random_fragment(rng) for _ in range(500)]
    found = scan([pb.SerializeToString() for pb in messages], (1, 3, 4))
    assert found[1][0].tolist() == [pb.id for pb in messages]
    assert found[4][0].tolist() == [pb.physical_rows for pb in messages]
    assert (found[3][1] >= 0).tolist() == [pb.HasField("deletion_file") for pb in messages]
    assert found[3][0].tolist() == [
        pb.deletion_file.ByteSize() if pb.HasField("deletion_file") else 0 for pb in messages
    ]


def test_fixed_width_fields_are_skipped():
    # field 20 as 8 bytes, field 21 as 4 bytes, then field 1 = 7
    record = b"\xa1\x01" + b"\x08" * 8 + b"\xad\x01" + b"\x08" * 4 + b"\x08\x07"
    assert scan([record, b"\x08\x01"], (1,))[1][0].tolist() == [7, 1]


def test_no_messages():
    assert scan([], (1,))[1][0].tolist() == []
    assert scan([b"", b""], (1,))[1][0].tolist() == [0, 0]


@pytest.mark.parametrize(
    "record",
    [
        b"\x08",
        b"\x08\x80",
        b"\x12\x05abc",
        b"\x0b\x01",
        b"\x08" + b"\xff" * 12,
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x12\xf5\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a size of -11: back to the start,
    ],
)
def test_garbage_is_an_error(record):
    with pytest.raises(CorruptDataError):
        scan([b"\x08\x01", record], (1,))


def test_random_garbage_raises_nothing_else():
    rng = np.random.default_rng(2)
    outcomes = set()
    for _ in range(2000):
        try:
            scan([rng.bytes(int(rng.integers(1, 5)))], (1, 3))
            outcomes.add("read")
        except CorruptDataError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def framed(sizes, *, number=2):
    return wire.frame([b"x" * size for size in sizes], number)


@pytest.mark.parametrize(
    "sizes",
    [
        [5],
        [0, 0, 0],
        [120] * 1000,
        [127, 128, 127, 16384, 128],
        [77] * 300 + [78] * 4000 + [79],
        np.repeat(np.random.default_rng(3).integers(0, 300, 40), 50).tolist(),
    ],
)
def test_records_of_a_repeated_field_are_found_from_their_lengths(sizes):
    frames, bounds = framed(sizes)
    for before, behind in ((b"", b""), (b"\x0a\x03abc", b"\x18\x07"), (b"\x0a\x00", b"\x1a\x02\x12\x00")):
        data = np.frombuffer(before + frames + behind, np.uint8)
        start = wire.skip_fields(data, 2)
        assert start == len(before)
        assert wire.find_frames(data, start, 2).tolist() == (bounds + start).tolist()
    assert np.diff(bounds).tolist() == [table_pb2.Manifest(fragments=[b"x" * size]).ByteSize() for size in sizes]


def test_the_search_for_records_gives_up_where_protobuf_is_faster_or_knows_better():
    frames, _ = framed(np.random.default_rng(4).integers(0, 200, 5000).tolist())
    assert wire.find_frames(np.frombuffer(frames, np.uint8), 0, 2) is None
    frames, _ = framed([9, 9])
    for cut in range(1, 11):
        assert wire.find_frames(np.frombuffer(frames[:-cut], np.uint8), 0, 2) is None
    assert wire.find_frames(np.frombuffer(b"\x12" + b"\xff" * 9, np.uint8), 0, 2) is None


def test_only_fields_of_bytes_are_skipped():
    for message in (b"\x08\x01\x12\x00", b"\x82\x01\x00\x12\x00", b"\x0a", b"\x0a\x05abc", b""):
        assert wire.skip_fields(np.frombuffer(message, np.uint8), 2) is None
