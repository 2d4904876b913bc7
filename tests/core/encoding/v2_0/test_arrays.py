"""Array encodings of version 2.0 on hand-made bytes: every way to ask for rows gives the same values."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.any_pb2 import Any

from lance_core._proto import encodings_v2_0_pb2 as pb
from lance_core.encoding.plans import ByteRanges, bridge, range_buffers
from lance_core.encoding.v2_0.arrays import read_array
from lance_core.encoding.v2_0.buffers import Wanted
from lance_core.encoding.v2_0.ends import read_ends
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.file.scattered import in_order
from lance_core.format.file import array_encoding as e
from lance_core.format.file.encodings import Compression

U64 = np.dtype("<u8")
RNG = np.random.default_rng(2)


def run(steps, memory):
    """What a store would do."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send([_answer(one, memory) for one in wanted])
    except StopIteration as stop:
        return stop.value


def _answer(one, memory):
    ranges = bridge(*in_order([one])) if isinstance(one, ByteRanges) else [one]
    assert all(0 <= start <= end <= len(memory) for start, end in ranges)
    buffers = [pa.py_buffer(memory[start:end]) for start, end in ranges]
    return range_buffers(ranges, buffers) if isinstance(one, ByteRanges) else buffers[0]


def read(encoding, buffers, kind, rows):
    """Lay the buffers out as in a file, and read."""
    memory, places = b"in front", []
    for data in buffers:
        places.append((len(memory), len(data)))
        memory += data + b"pad"
    array = run(read_array(encoding, Wanted(tuple(places), rows), kind), memory)
    array.validate(full=True)
    assert array.type == kind
    assert array.offset == 0
    return array.to_pylist()


def check(encoding, buffers, kind, values):
    n = len(values)
    for start, end in itertools.combinations(range(n + 1), 2) if n < 12 else [(0, n), (9, n), (3, n - 1), (n // 2, n)]:
        assert read(encoding, buffers, kind, range(start, end)) == values[start:end]
    runs = [row for row in range(n) if row % 12 != 4 and row % 12 != 5]
    for rows in ([0], [n - 1], list(range(0, n, 2)), [0, n - 1] if n > 1 else [0], runs):
        assert read(encoding, buffers, kind, np.array(rows)) == [values[row] for row in rows]


def words(*numbers):
    return np.array(numbers, U64).tobytes()


FLAT64, BYTES = e.Flat(64, 0), e.Flat(8, 1)


def test_flat():
    check(e.Flat(32, 0), [np.arange(50, dtype="<i4").tobytes()], pa.int32(), list(range(50)))
    check(e.Flat(1, 0), [b"\x65\x01"], pa.bool_(), [True, False, True, False, False, True, True, False, True])
    check(e.AllNulls(), [], pa.string(), [None] * 3)


def test_rows_that_adjoin_are_one_range():
    buffer = ((5, 8 * 50),)
    rows = np.array([*range(3, 23), 30, *range(40, 50)])
    (asked,) = next(read_array(e.Flat(64, 0), Wanted(buffer, rows), pa.int64()))
    assert asked.starts.tolist() == [5 + 8 * 3, 5 + 8 * 30, 5 + 8 * 40]
    assert asked.ends.tolist() == [5 + 8 * 23, 5 + 8 * 31, 5 + 8 * 50]


def test_some_nulls():
    encoding = e.SomeNulls(e.Flat(1, 0), e.Flat(16, 1))
    check(encoding, [b"\x05", np.array([7, 8, 9], "<i2").tobytes()], pa.int16(), [7, None, 9])


def test_fixed_size_lists():
    encoding = e.SomeNulls(e.Flat(1, 0), e.FixedSizeList(2, e.SomeNulls(e.Flat(1, 1), e.Flat(16, 2))))
    buffers = [b"\x05", b"\x31", bytes.fromhex("010000000000000003000400")]
    check(encoding, buffers, pa.list_(pa.int16(), 2), [[1, None], None, [3, 4]])


def test_strings():
    check(e.Binary(FLAT64, BYTES, 4), [words(1, 5, 3), b"xzz"], pa.string(), ["x", None, "zz"])
    check(
        e.Binary(FLAT64, BYTES, 7),
        [words(7, 3, 6, 13, 13, 13), b"foofoo"],
        pa.large_string(),
        [None, "foo", "foo", None, None, None],
    )
    check(e.Binary(FLAT64, BYTES, 7), [words(2, 11, 6), b"abcdef"], pa.binary(), [b"ab", None, b"ef"])


def test_strings_of_one_length():
    check(e.FixedSizeBinary(e.Flat(8, 0), 2), [b"aabbcc"], pa.string(), ["aa", "bb", "cc"])
    check(e.FixedSizeBinary(e.Flat(8, 0), 0), [b""], pa.binary(), [b"", b""])


@pytest.mark.parametrize(("codec", "scheme", "prefix"), [("zstd", 2, "<u8"), ("lz4_raw", 1, "<u4"), ("zstd", 2, None)])
def test_compressed(codec, scheme, prefix):
    data = np.arange(40, dtype="<u8").tobytes()
    packed = pa.Codec(codec).compress(data, asbytes=True)
    packed = packed if prefix is None else np.array([len(data)], prefix).tobytes() + packed
    check(e.Flat(64, 0, Compression(scheme)), [packed], pa.uint64(), list(range(40)))


def test_symbols():
    symbols, texts = [b"abc", b"d"], [b"abcd", None, b"xd", b""]
    header = (0x46535354 << 32 | 1 << 24 | len(symbols)).to_bytes(8, "little")
    table = header + b"".join(one.ljust(8, b"\0") for one in symbols) + bytes(map(len, symbols))
    encoding = e.Fsst(table.ljust(2312, b"\0"), e.Binary(FLAT64, BYTES, 6))
    check(encoding, [words(2, 8, 5, 5), b"\x00\x01\xff" + b"x\x01"], pa.binary(), texts)


def test_small_dictionaries():
    items = e.Binary(e.Flat(64, 1), e.Flat(8, 2), 4)
    buffers = [bytes([1, 0, 2, 2]), words(1, 3), b"xzz"]
    check(e.Dictionary(e.Flat(8, 0), items, 2), buffers, pa.string(), ["x", None, "zz", "zz"])
    with pytest.raises(CorruptDataError, match="beyond"):
        read(e.Dictionary(e.Flat(8, 0), items, 1), buffers, pa.string(), range(4))


def test_dictionary_types():
    items = e.SomeNulls(e.Flat(1, 1), e.Flat(64, 2))
    kind = pa.dictionary(pa.int8(), pa.int64())
    values = [10, None, 30, 30]
    for width in ("<u1", "<u4"):
        indices = np.array([0, 1, 2, 2], width)
        encoding = e.Dictionary(e.Flat(indices.itemsize * 8, 0), items, 3)
        check(encoding, [indices.tobytes(), b"\x05", words(10, 0, 30)], kind, values)


def test_packed_structs():
    kind = pa.struct([("a", pa.int16()), ("v", pa.list_(pa.int8(), 2))])
    buffer = b"".join(bytes([row, 0, row, row + 1]) for row in range(9))
    check(e.PackedStruct(0), [buffer], kind, [{"a": row, "v": [row, row + 1]} for row in range(9)])
    with pytest.raises(UnsupportedError, match="string"):
        read(e.PackedStruct(0), [buffer], pa.struct([("s", pa.string())]), range(1))


@pytest.mark.parametrize("width", [1, 3, 8, 13, 16])
@pytest.mark.parametrize("is_signed", [False, True])
def test_bitpacked(width, is_signed):
    values = RNG.integers(0, 1 << width, 100).tolist()
    bits = np.array([[value >> bit & 1 for bit in range(width)] for value in values], np.uint8).reshape(-1)
    data = np.packbits(bits, bitorder="little").tobytes()
    expected = [value - (1 << width) if is_signed and value >> (width - 1) else value for value in values]
    kind = pa.int16() if is_signed else pa.uint16()
    check(e.Bitpacked(width, 16, 0, is_signed), [data], kind, expected)


@pytest.mark.parametrize("width", [0, 1, 5, 16])
def test_fast_lanes(width):
    n = 2500
    values = RNG.integers(0, 1 << width, n)
    data = b"".join(_pack(values[start : start + 1024], width) for start in range(0, n, 1024))
    check(e.FastLanes(width, 16, 0), [data], pa.uint16(), values.tolist())


def _pack(values, width):
    """One block of 1024 values of 16 bits, bit by bit as the format tells."""
    order, lanes = (0, 4, 2, 6, 1, 5, 3, 7), 64
    padded = np.append(values, np.zeros(1024 - len(values), np.int64))
    streams = np.zeros((lanes, width * 16), np.uint8)
    for row, bit in itertools.product(range(16), range(width)):
        start = order[row // 8] * 16 + row % 8 * 128
        streams[:, row * width + bit] = padded[start : start + lanes] >> bit & 1
    return np.packbits(streams, axis=1, bitorder="little").view("<u2").T.tobytes()


def test_ends_of_lists():
    memory = words(2, 8, 2, 5)  # [A, B], null, [], [C, D, E]
    spans = run(read_ends(((0, 32),), FLAT64, range(4), 6), memory)
    assert spans.starts.tolist() == [0, 2, 2, 2]
    assert spans.ends.tolist() == [2, 2, 2, 5]
    assert spans.validity.tolist() == [True, False, True, True]
    some = run(read_ends(((0, 32),), FLAT64, np.array([0, 3]), 6), memory)
    assert (some.starts.tolist(), some.ends.tolist(), some.validity) == ([0, 2], [2, 5], None)
    with pytest.raises(CorruptDataError, match="ascend"):
        run(read_ends(((0, 32),), FLAT64, range(4), 6), words(4, 3, 3, 3))


@pytest.mark.parametrize(
    ("encoding", "kind"),
    [
        (e.Flat(32, 0), pa.int64()),  # width
        (e.Flat(64, 1), pa.int64()),  # no such buffer
        (e.Flat(64, 0), pa.string()),
        (e.Binary(FLAT64, e.Flat(8, 0), 1 << 40), pa.int64()),
        (e.Binary(FLAT64, e.Flat(8, 0), 1 << 40), pa.string()),  # ends beyond the bytes
        (e.FixedSizeList(3, e.Flat(64, 0)), pa.list_(pa.int64(), 2)),
        (e.FixedSizeList(2, e.Flat(64, 0)), pa.list_(pa.int64(), 2)),  # too short
        (e.PackedStruct(0), pa.int64()),
    ],
)
def test_what_does_not_fit(encoding, kind):
    with pytest.raises(CorruptDataError):
        read(encoding, [words(1, 200, 300)], kind, range(3))


def _wrapped(message, url="/lance.encodings.ArrayEncoding"):
    return Any(type_url=url, value=message.SerializeToString()).SerializeToString()


def test_messages():
    flat = pb.ArrayEncoding(flat=pb.Flat(bits_per_value=64, buffer=pb.Buffer(buffer_index=3)))
    no_nulls = pb.ArrayEncoding(nullable=pb.Nullable(no_nulls=pb.Nullable.NoNull(values=flat)))
    assert e.decode_array_encoding(_wrapped(no_nulls)) == e.Flat(64, 3)
    lists = pb.ArrayEncoding(list=pb.List(offsets=no_nulls, null_offset_adjustment=8, num_items=7))
    assert e.decode_array_encoding(_wrapped(lists)) == e.ListOffsets(e.Flat(64, 3), 8, 7)
    packed = pb.ArrayEncoding(bitpacked=pb.Bitpacked(compressed_bits_per_value=3, uncompressed_bits_per_value=8))
    assert e.decode_array_encoding(_wrapped(packed)) == e.Bitpacked(3, 8, 0, is_signed=False)
    for bad in (pb.ArrayEncoding(), pb.ArrayEncoding(flat=pb.Flat(bits_per_value=7)), pb.ArrayEncoding(nullable={})):
        with pytest.raises(CorruptDataError):
            e.decode_array_encoding(_wrapped(bad))
    with pytest.raises(CorruptDataError, match="PageLayout"):
        e.decode_array_encoding(_wrapped(flat, "/lance.encodings21.PageLayout"))
    column = pb.Flat(bits_per_value=8, buffer=pb.Buffer(buffer_type=pb.Buffer.column))
    with pytest.raises(UnsupportedError, match="column"):
        e.decode_array_encoding(_wrapped(pb.ArrayEncoding(flat=column)))
    with pytest.raises(UnsupportedError, match="snappy"):
        e.decode_array_encoding(
            _wrapped(pb.ArrayEncoding(flat=pb.Flat(bits_per_value=8, compression=pb.Compression(scheme="snappy"))))
        )
