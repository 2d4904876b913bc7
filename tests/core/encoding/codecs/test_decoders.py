"""Each decoder against bytes that were put together by hand, in the plainest way."""

import struct
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_core.encoding import registry
from lance_core.encoding.codecs import bitpack, byte_stream_split, rle
from lance_core.encoding.kernels import chunk_counts
from lance_core.encoding.values import FixedListValues, FixedValues
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.file.encodings import (
    ByteStreamSplit,
    Compression,
    Delta,
    FixedSizeList,
    Flat,
    Fsst,
    General,
    InlineBitpacking,
    OutOfLineBitpacking,
    PackedVariable,
    Range,
    Rle,
    Variable,
    VariablePackedStruct,
)

few = settings(derandomize=True, deadline=None, max_examples=60)
texts = st.lists(st.binary(max_size=12), max_size=20)


def variable_chunk(items, width=4):
    offsets = np.cumsum([(len(items) + 1) * width] + [len(item) for item in items]).astype(f"<u{width}")
    data = offsets.tobytes() + b"".join(items)
    return data + b"H" * (-len(data) % width)


@few
@given(st.lists(st.lists(st.integers(0, 2**16 - 1), max_size=9), max_size=6))
def test_flat_words(as_page, chunks_of, lists):
    pieces = [struct.pack(f"<{len(x)}H", *x) for x in lists]
    got = registry.decode_chunks(Flat(16), as_page(chunks_of(pieces, [len(x) for x in lists])))
    assert got.data.dtype == np.uint16
    assert got.data.tolist() == [x for part in lists for x in part]


@few
@given(st.lists(st.lists(st.booleans(), max_size=20), max_size=6))
def test_flat_booleans_start_each_chunk_at_a_byte(as_page, chunks_of, lists):
    pieces = [np.packbits(np.array(x, bool), bitorder="little").tobytes() for x in lists]
    got = registry.decode_chunks(Flat(1), as_page(chunks_of(pieces, [len(x) for x in lists])))
    assert got.data.dtype == np.bool_
    assert got.data.tolist() == [x for part in lists for x in part]


def test_flat_wide_values(as_page, chunks_of):
    got = registry.decode_chunks(Flat(24), as_page(chunks_of([b"abcdef", b"ghi"], [2, 1])))
    assert got.data.tolist() == [[97, 98, 99], [100, 101, 102], [103, 104, 105]]


@few
@given(st.lists(texts, max_size=6), st.sampled_from([4, 8]))
def test_variable(as_page, chunks_of, items, lists, width):
    chunks = as_page(chunks_of([variable_chunk(x, width) for x in lists], [len(x) for x in lists]))
    got = registry.decode_chunks(Variable(width * 8), chunks)
    assert items(got) == [x for part in lists for x in part]


def test_variable_of_even_chunks(as_page, chunks_of, items):
    lists = [[b"a", b"bb"], [b"", b"c"], [b"dd", b""], [b"e"]]
    got = registry.decode_chunks(Variable(32), as_page(chunks_of([variable_chunk(x) for x in lists], [2, 2, 2, 1])))
    assert got.offsets.dtype == np.int32
    assert items(got) == [b"a", b"bb", b"", b"c", b"dd", b"", b"e"]


@few
@given(st.lists(st.lists(st.tuples(st.integers(0, 255), st.integers(0, 255)), max_size=5), max_size=5))
def test_rle(as_page, chunks_of, lists):
    values = chunks_of([bytes(v for v, _ in runs) for runs in lists], [sum(n for _, n in runs) for runs in lists])
    lengths = chunks_of([bytes(n for _, n in runs) for runs in lists], values.counts)
    both = type(values)(
        buffers=(*values.buffers, *lengths.buffers),
        starts=np.concatenate((values.starts, lengths.starts)),
        sizes=np.concatenate((values.sizes, lengths.sizes)),
        counts=values.counts,
    )
    got = registry.decode_chunks(Rle(8), as_page(both))
    assert got.data.tolist() == [v for runs in lists for v, n in runs for _ in range(n)]


def one_chunk_of_runs(chunks_of, words, lengths):
    values = chunks_of([words.tobytes()], [int(lengths.sum())])
    counted = chunks_of([lengths.tobytes()], values.counts)
    return type(values)(
        buffers=(*values.buffers, *counted.buffers),
        starts=np.concatenate((values.starts, counted.starts)),
        sizes=np.concatenate((values.sizes, counted.sizes)),
        counts=values.counts,
    )


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("longest", [1, 4, 30])
@pytest.mark.parametrize("least", [0, 1])
def test_many_runs(chunks_of, monkeypatch, bits, longest, least):
    monkeypatch.setattr(rle, "_LEAST_VALUES", 100)
    rng = np.random.default_rng(5)
    words = rng.integers(0, 200, 3000).astype(f"<u{bits // 8}")
    lengths = rng.integers(least, longest + 1, 3000).astype(np.uint8)
    got = registry.decode_chunks(Rle(bits), one_chunk_of_runs(chunks_of, words, lengths))
    assert got.data.dtype == words.dtype
    assert got.data.tolist() == [word for word, times in zip(words, lengths, strict=True) for _ in range(times)]


@pytest.mark.parametrize(("length", "is_numbered"), [(2, True), (50, False)])
def test_short_runs_are_numbered(chunks_of, monkeypatch, length, is_numbered):
    numbered = []

    def counted(values, places):
        numbered.append(len(places))
        return take_inside(values, places)

    take_inside = rle.take_inside
    monkeypatch.setattr(rle, "take_inside", counted)
    words, lengths = np.arange(10_000, dtype="<u8"), np.full(10_000, length, np.uint8)
    got = registry.decode_chunks(Rle(64), one_chunk_of_runs(chunks_of, words, lengths))
    assert len(got.data) == 10_000 * length
    assert bool(numbered) == is_numbered


@pytest.mark.parametrize("bits", [32, 64])
def test_byte_stream_split(as_page, chunks_of, bits):
    lists = [[1, 2, 3], [70000], [], [5, 2**31], [6, 7]]
    width = bits // 8
    planes = [b"".join(bytes(x.to_bytes(width, "little")[k] for x in part) for k in range(width)) for part in lists]
    got = registry.decode_chunks(ByteStreamSplit(bits), as_page(chunks_of(planes, [len(x) for x in lists])))
    assert got.data.tolist() == [x for part in lists for x in part]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("top", [8, 9, 16, 17, 32, 33, 64])
def test_byte_stream_split_of_any_width(bits, top):
    words = np.random.default_rng(top).integers(0, 1 << min(top, bits), 64 * 50 + 7, np.uint64, endpoint=False)
    words = words.astype(f"<u{bits // 8}")
    words[:50] %= 200  # a chunk whose upper bytes are zero beside others
    chunks = byte_stream_split.encode_chunks(FixedValues(words), chunk_counts(len(words), 50))
    encoding = ByteStreamSplit(bits)
    assert np.array_equal(registry.decode_chunks(encoding, chunks).data, words)
    chosen = np.array([0, 49, 50, 1999, len(words) - 1, 3])
    assert np.array_equal(registry.decode_points(encoding, chunks, chosen // 50, chosen % 50).data, words[chosen])
    read = registry.scalar_of(encoding).read
    memory = chunks.buffers[0].data
    for place in chosen.tolist():
        chunk, index = divmod(place, 50)
        start, size, count = int(chunks.starts[0, chunk]), int(chunks.sizes[0, chunk]), int(chunks.counts[chunk])
        assert read(memory, start, size, count, index) == words[place].tobytes()
        with pytest.raises(CorruptDataError, match="ByteStreamSplit"):
            read(memory, start, size - 1, count, index)


def lz4(data):
    return struct.pack("<I", len(data)) + pa.compress(data, "lz4_raw", asbytes=True)


def zstd(data):
    return struct.pack("<Q", len(data)) + pa.compress(data, "zstd", asbytes=True)


def bare_zstd(data):
    return pa.compress(data, "zstd", asbytes=True)


CODECS = [(lz4, Compression.LZ4), (zstd, Compression.ZSTD), (bare_zstd, Compression.ZSTD)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("repeats", [1, 9000])
def test_general(as_page, chunks_of, items, codec, repeats):
    compress, scheme = codec
    lists = [[b"one", b"two" * repeats], [], [b"x" * repeats, b""]]
    chunks = as_page(chunks_of([compress(variable_chunk(x)) for x in lists], [len(x) for x in lists]))
    got = registry.decode_chunks(General(scheme, Variable(32)), chunks)
    assert items(got) == [x for part in lists for x in part]


def test_general_over_the_first_buffer_only(chunks_of):
    values, lengths = chunks_of([lz4(b"ab")], [5]), chunks_of([b"\x02\x03"], [5])
    both = type(values)(
        buffers=(*values.buffers, *lengths.buffers),
        starts=np.concatenate((values.starts, lengths.starts)),
        sizes=np.concatenate((values.sizes, lengths.sizes)),
        counts=values.counts,
    )
    got = registry.decode_chunks(General(Compression.LZ4, Rle(8)), both)
    assert got.data.tobytes() == b"aabbb"


def test_general_beyond_the_largest_lz4_frame_block():
    data = np.arange(1 << 20, dtype="<u8").tobytes()
    got = registry.decode_block(General(Compression.LZ4, Flat(64)), np.frombuffer(lz4(data), np.uint8), 1 << 20)
    assert got.data.tobytes() == data


@pytest.mark.parametrize("size", [1000, 5 << 20])
@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize(("compress", "scheme"), [(lz4, Compression.LZ4), (zstd, Compression.ZSTD)])
def test_general_checks_the_announced_size(compress, scheme, change, size):
    block = np.frombuffer(bytearray(compress(b"\x07" * size)), np.uint8).copy()
    block[:4].view("<i4")[0] += change
    with pytest.raises(CorruptDataError):
        registry.decode_block(General(scheme, Flat(8)), block, size)


@pytest.mark.parametrize(("compress", "scheme"), [(lz4, Compression.LZ4), (zstd, Compression.ZSTD)])
def test_general_refuses_bombs_before_it_allocates(compress, scheme):
    block = np.frombuffer(bytearray(compress(b"a" * 100)), np.uint8).copy()
    block[3] = 0x7F
    with pytest.raises(CorruptDataError, match=r"more bytes than it can hold|would need"):
        registry.decode_block(General(scheme, Flat(8)), block, 100)


def test_fixed_size_lists_with_nested_validity(as_page, chunks_of, assert_same):
    encoding = FixedSizeList(2, has_validity=True, values=FixedSizeList(3, has_validity=True, values=Flat(8)))
    outer = chunks_of([b"\x0e", b"\x01"], [2, 1])
    inner = chunks_of([b"\xff\x0f", b"\x2a"], [2, 1])
    data = chunks_of([bytes(range(12)), bytes(range(12, 18))], [2, 1])
    chunks = type(data)(
        buffers=outer.buffers + inner.buffers + data.buffers,
        starts=np.concatenate((outer.starts, inner.starts, data.starts)),
        sizes=np.concatenate((outer.sizes, inner.sizes, data.sizes)),
        counts=data.counts,
    )
    expected = FixedListValues(
        2,
        FixedListValues(
            3,
            FixedValues(np.arange(18, dtype=np.uint8)),
            np.array([True] * 12 + [False, True, False, True, False, True]),
        ),
        np.array([False, True, True, True, True, False]),
    )
    assert registry.num_buffers(encoding) == 3
    assert_same(registry.decode_chunks(encoding, as_page(chunks)), expected)


def test_fixed_size_lists_of_booleans_start_each_chunk_at_a_byte(chunks_of):
    encoding = FixedSizeList(3, has_validity=False, values=Flat(1))
    got = registry.decode_chunks(encoding, chunks_of([b"\x2a", b"\x05"], [2, 1]))
    assert got.items.data.tolist() == [bool(x) for x in (0, 1, 0, 1, 0, 1, 1, 0, 1)]


# Symbols: 0 = "ab", 1 = "c", ... of different lengths.
WORDS = [b"ab", b"c", b"defghijk", b"lmn"]


def symbol_table(words, switch=1):
    table = bytes((len(words), 0, 0, switch)) + b"TSSF" + b"".join(w.ljust(8, b"\0") for w in words)
    return (table + bytes(len(w) for w in words)).ljust(2312, b"\0")


def slow_fsst(codes, words):
    out, position = b"", 0
    while position < len(codes):
        if codes[position] == 255:
            out += codes[position + 1 : position + 2]
            position += 2
        else:
            out += words[codes[position]]
            position += 1
    return out


code = st.one_of(
    st.integers(0, len(WORDS) - 1).map(lambda c: bytes((c,))),
    st.sampled_from([0, 1, 65, 254, 255]).map(lambda b: bytes((255, b))),
)


@few
@given(st.lists(st.lists(code, max_size=8).map(b"".join), max_size=8), st.sampled_from([4, 255]), st.booleans())
def test_fsst(strings, items, values, num_words, many):
    words = WORDS + [bytes((n, n))[: 1 + n % 2] for n in range(4, num_words)]
    values = values * 30_000 if many else values
    encoding = Fsst(symbol_table(words), Variable(32))
    got = registry.decode_strings(encoding, strings(values[:80_000]))
    once = [slow_fsst(value, words) for value in values[:8]]
    assert items(got)[: len(once)] == once
    assert items(got)[-len(once) :] == [slow_fsst(value, words) for value in values[:80_000][-len(once) :]]


def test_fsst_literals_when_no_code_is_left_for_them(strings, items):
    words = [bytes((n, n)) for n in range(255)]
    value = b"\x03\xffz\xff\xff\xfe"
    got = registry.decode_strings(Fsst(symbol_table(words), Variable(32)), strings([value, b"", value] * 60_000))
    assert items(got) == [b"\x03\x03z\xff\xfe\xfe", b"", b"\x03\x03z\xff\xfe\xfe"] * 60_000


def test_fsst_in_chunks(as_page, chunks_of, items):
    lists = [[b"\x00\x01", b""], [b"\xff\xff\x02"]]
    chunks = as_page(chunks_of([variable_chunk(x) for x in lists], [2, 1]))
    got = registry.decode_chunks(Fsst(symbol_table(WORDS), Variable(32)), chunks)
    assert items(got) == [b"abc", b"", b"\xffdefghijk"]


def test_fsst_over_several_blocks_of_codes(strings, items, monkeypatch):
    monkeypatch.setattr("lance_core.encoding.codecs.fsst._TEXTS_IN_CACHE", 1 << 16)
    values = [b"\x00\x01\x02", b"", b"\xffz\x03", b"\x01"] * 100_000
    got = registry.decode_strings(Fsst(symbol_table(WORDS), Variable(32)), strings(values))
    assert items(got) == [b"abcdefghijk", b"", b"zlmn", b"c"] * 100_000


def test_fsst_that_is_switched_off(strings, items):
    table = symbol_table([], switch=0)
    assert items(registry.decode_strings(Fsst(table, Variable(32)), strings([b"\xffq", b""]))) == [b"\xffq", b""]


@pytest.mark.parametrize(
    ("table", "value"),
    [
        (symbol_table(WORDS)[:-1], b""),
        (symbol_table(WORDS).replace(b"TSSF", b"TSSG"), b""),
        (symbol_table(WORDS, switch=2), b""),
        (symbol_table([b"a", b""]), b""),
        (symbol_table(WORDS), b"\x04"),
        (symbol_table(WORDS), b"\x00\xff"),
        (symbol_table(WORDS), b"\xff\xff\xff"),
        (symbol_table([]), b"\x00"),
    ],
)
def test_bad_fsst(strings, table, value):
    with pytest.raises(CorruptDataError, match="FSST"):
        registry.decode_strings(Fsst(table, Variable(32)), strings([value, b"\xffa"]))


def test_full_zip_strings(strings, items):
    values = [b"abc" * 100, b"", b"d"]
    assert items(registry.decode_strings(Variable(32), strings(values))) == values
    compressed = strings([zstd(value) if value else b"" for value in values])
    assert items(registry.decode_strings(General(Compression.ZSTD, Variable(32)), compressed)) == values


def test_full_zip_fixed_width():
    rows = np.arange(24, dtype=np.uint8).reshape(3, 8)
    assert registry.decode_rows(Flat(64), rows).data.tobytes() == rows.tobytes()
    assert registry.decode_rows(Flat(16), rows[:, 3:5]).data.tolist() == [0x0403, 0x0C0B, 0x1413]
    flags = registry.decode_rows(Flat(8), rows[:, :1] % 16, pa.bool_())
    assert flags.data.tolist() == [False, True, False]
    with pytest.raises(CorruptDataError):
        registry.decode_rows(Flat(32), rows)


def test_full_zip_lists():
    rows = np.array([[0b101, 1, 0, 2, 0, 3, 0], [0b010, 4, 0, 5, 0, 6, 0]], np.uint8)
    got = registry.decode_rows(FixedSizeList(3, has_validity=True, values=Flat(16)), rows)
    assert got.items.data.tolist() == [1, 2, 3, 4, 5, 6]
    assert got.validity.tolist() == [True, False, True, False, True, False]
    flags = registry.decode_rows(FixedSizeList(8, has_validity=False, values=Flat(1)), rows[:, :1])
    assert flags.items.data.tolist() == [True, False, True] + [False] * 6 + [True] + [False] * 6
    with pytest.raises(CorruptDataError):
        registry.decode_rows(FixedSizeList(3, has_validity=True, values=Flat(32)), rows)


def test_blocks(items):
    def decode(encoding, data, count):
        return registry.decode_block(encoding, np.frombuffer(data, np.uint8), count)

    assert decode(Flat(32), struct.pack("<2I", 7, 8), 2).data.tolist() == [7, 8]
    assert decode(Rle(16), struct.pack("<QHH", 4, 5, 6) + b"\x02\x01", 3).data.tolist() == [5, 5, 6]
    strings32 = struct.pack("<5I", 32, 20, 0, 1, 3) + b"abc"
    assert items(decode(Variable(32), strings32, 2)) == [b"a", b"bc"]
    assert items(decode(General(Compression.LZ4, Variable(32)), lz4(strings32), 2)) == [b"a", b"bc"]
    strings64 = struct.pack("<5Q", 64, 40, 0, 1, 3) + b"abc"
    assert items(decode(Variable(64), strings64, 2)) == [b"a", b"bc"]
    assert decode(OutOfLineBitpacking(16, 0), b"", 5).data.tolist() == [0] * 5
    assert decode(InlineBitpacking(16), b"\0\0", 5).data.tolist() == [0] * 5


def string_block(strings):
    bounds = np.cumsum([0, *map(len, strings)]).astype("<u4")
    return struct.pack("<2I", 32, 8 + bounds.nbytes) + bounds.tobytes() + b"".join(strings)


@few
@given(st.lists(st.lists(st.binary(max_size=9), min_size=1, max_size=9), min_size=1, max_size=5), st.booleans())
def test_blocks_decoded_together_are_those_decoded_one_by_one(blocks, is_compressed):
    plain = Variable(32)
    encoding = General(Compression.LZ4, plain) if is_compressed else plain
    packed = [string_block(block) for block in blocks]
    packed = [np.frombuffer(lz4(data), np.uint8) if is_compressed else np.frombuffer(data, np.uint8) for data in packed]
    for values, block in zip(registry.decode_blocks(encoding, packed, [*map(len, blocks)]), blocks, strict=True):
        bounds = values.offsets.tolist()
        assert (bounds[0], bounds[-1]) == (0, len(values.data))
        assert [values.data[low:high].tobytes() for low, high in pairwise(bounds)] == block


def test_out_of_line_tails_are_raw_or_packed(as_page, chunks_of):
    packed = np.zeros(64 * 2, "<u2")
    packed[0] = 0b11
    block = packed[:64].tobytes()
    pieces = [block, block + struct.pack("<2H", 1, 0), block + block, b"", struct.pack("<H", 9)]
    chunks = as_page(chunks_of(pieces, [1024, 1026, 1030, 0, 1]))
    got = registry.decode_level_chunks(OutOfLineBitpacking(16, 1), chunks)
    # Bits 0 and 1 of the first lane's stream are rows 0 and 1: values 0 and 128.
    one_block = [int(i in (0, 128)) for i in range(1024)]
    assert got.tolist() == one_block + one_block + [1, 0] + one_block + one_block[:6] + [9]


@pytest.mark.parametrize("tail", [0, 1, 600])
def test_sequences_of_whole_blocks_are_packed_as_they_lie(monkeypatch, tail):
    values = FixedValues(np.random.default_rng(tail).integers(0, 8, 5 * 1024 + tail).astype("<u2"))
    bounds = np.array([0, 2048, 4096, 5120 + tail])
    bound_by_bound = [bitpack.encode_out_of_line(values, bounds[at : at + 2], 3) for at in range(3)]
    monkeypatch.setattr(bitpack, "_blocks_at", None)  # which picks blocks one by one
    chunks = bitpack.encode_out_of_line(values, bounds, 3)
    assert chunks.buffers[0].tobytes() == b"".join(part.buffers[0].tobytes() for part in bound_by_bound)
    assert np.array_equal(registry.decode_level_chunks(OutOfLineBitpacking(16, 3), chunks), values.data)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_runs_of_packed_blocks_are_unpacked_to_where_they_belong(as_page, chunks_of, monkeypatch, bits):
    """Blocks of columns one after the other: each column has its width, and ends with a block that is not full."""
    rng = np.random.default_rng(bits)
    parts, pieces, counts = [], [], []
    for width, length in ((7, 20 * 1024 + 5), (3, 40 * 1024), (0, 1), (bits - 1, 80 * 1024 - 1), (7, 18 * 1024)):
        values = rng.integers(0, 2**width, length, f"<u{bits // 8}")
        values[::1024] = 2**width - 1
        chunks = bitpack.encode_inline(FixedValues(values), bitpack.inline_widths(FixedValues(values)))
        for start, size, count in zip(chunks.starts[0], chunks.sizes[0], chunks.counts, strict=True):
            pieces.append(chunks.buffers[0][start : start + size].tobytes())
            counts.append(int(count))
        parts.append(values)
    expected = np.concatenate(parts)
    page = as_page(chunks_of(pieces, counts))
    assert np.array_equal(bitpack.decode_inline(InlineBitpacking(bits), page).data, expected)
    copies = []
    compact = bitpack.compact
    monkeypatch.setattr(bitpack, "compact", lambda *given: copies.append(1) or compact(*given))
    bitpack.decode_inline(InlineBitpacking(bits), page)
    assert not copies
    monkeypatch.setattr(bitpack, "_LEAST_RUN", 1000)
    assert np.array_equal(bitpack.decode_inline(InlineBitpacking(bits), page).data, expected)
    assert copies


@pytest.mark.parametrize(
    "encoding", [PackedVariable(32, Range(32, 0, 1)), Fsst(b"", Variable(32)), VariablePackedStruct(())]
)
def test_blocks_that_cannot_be_read_are_named(encoding):
    with pytest.raises(UnsupportedError, match=type(encoding).__name__):
        registry.decode_block(encoding, np.zeros(8, np.uint8), 1)


def test_encodings_that_cannot_be_in_chunks_are_named(chunks_of):
    with pytest.raises(UnsupportedError, match="Delta"):
        registry.decode_chunks(Delta(16, 1, Flat(16)), chunks_of([b""], [0]))
    with pytest.raises(UnsupportedError, match="3 bits"):
        registry.decode_chunks(Flat(3), chunks_of([b""], [0]))
    with pytest.raises(UnsupportedError, match="Variable"):
        registry.decode_chunks(FixedSizeList(2, has_validity=False, values=Variable(32)), chunks_of([b""], [0]))
