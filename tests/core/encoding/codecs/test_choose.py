"""What the writer chooses, and that every choice reads back as what was written."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_core.encoding import choose, choose_dictionary, choose_levels, registry
from lance_core.encoding.codecs import dictionary
from lance_core.encoding.options import PageOptions
from lance_core.encoding.values import FixedListValues, FixedValues, VariableValues
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.file.encodings import (
    ByteStreamSplit,
    Compression,
    FixedSizeList,
    Flat,
    General,
    InlineBitpacking,
    OutOfLineBitpacking,
    Rle,
    Variable,
)

SIZES = [0, 1, 2, 7, 1023, 1024, 1025, 4096, 9001]
some = settings(derandomize=True, deadline=None, max_examples=80)


def places(counts, positions):
    """The chunk of each position, and which of its values it is."""
    bounds = np.append(0, np.cumsum(np.clip(counts, 0, 1 << 32)))
    chunk_of = np.clip(np.searchsorted(bounds, positions, side="right") - 1, 0, max(0, len(counts) - 1))
    return chunk_of, positions - bounds[chunk_of]


def rng(seed=0):
    return np.random.default_rng(seed)


@st.composite
def fixed_values(draw):
    size = draw(st.sampled_from(SIZES))
    bits = draw(st.sampled_from([8, 16, 32, 64]))
    top = draw(st.integers(0, bits))
    run = draw(st.sampled_from([1, 1, 3, 300, 5000]))
    data = rng(size).integers(0, 1 << top, size // run + 1, dtype=np.uint64, endpoint=top == 0)
    wobble = draw(st.booleans())
    if wobble:  # a width of its own for each block
        data >>= np.repeat(rng(1).integers(0, 64, len(data) // 1024 + 1), 1024)[: len(data)].astype(np.uint64)
    return FixedValues(np.repeat(data, run)[:size].astype(f"<u{bits // 8}"))


@st.composite
def strings(draw):
    size = draw(st.sampled_from(SIZES))
    longest = draw(st.sampled_from([0, 1, 20, 255]))
    lengths = rng(size).integers(0, longest + 1, size)
    offsets = np.append(0, np.cumsum(lengths)).astype(draw(st.sampled_from([np.int32, np.int64])))
    letters = draw(st.sampled_from([1, 2, 256]))
    return VariableValues(offsets, rng(1).integers(0, letters, int(offsets[-1])).astype(np.uint8))


@st.composite
def lists(draw):
    size = draw(st.sampled_from(SIZES))
    outer, inner = draw(st.sampled_from([(1, 1), (3, 1), (2, 5)]))
    count = size * outer * inner
    items = rng(size).integers(0, 256, count).astype(draw(st.sampled_from(["<u1", "<u8"])))
    validity = rng(1).random(count) < 0.5 if draw(st.booleans()) else None
    if draw(st.booleans()):
        items = items % 2 == 1
    values = FixedListValues(inner, FixedValues(items), validity)
    if inner == 1:
        return FixedListValues(outer, values.items, validity)
    return FixedListValues(outer, values, rng(2).random(size * outer) < 0.5 if draw(st.booleans()) else None)


wide = st.sampled_from(SIZES).map(lambda n: FixedValues(rng(n).integers(0, 256, (n, 16)).astype(np.uint8)))
booleans = st.sampled_from(SIZES).map(lambda n: FixedValues(rng(n).random(n) < 0.5))


@some
@given(st.one_of(fixed_values(), strings(), lists(), wide, booleans))
def test_what_is_written_reads_back(as_page, assert_same, values):
    encoding, chunks = choose.encode_chunks(values)
    assert chunks.counts.sum() == len(values)
    assert all(count > 1 and count & (count - 1) == 0 for count in chunks.counts[:-1].tolist())
    assert (chunks.counts <= choose.MAX_CHUNK_VALUES).all()
    assert len(chunks.buffers) == registry.num_buffers(encoding)
    if len(values):
        assert_same(registry.decode_chunks(encoding, as_page(chunks)), values)
        assert_same(registry.decode_chunks(encoding, as_page(chunks, gap=3, shift=1)), values)


def pick(values, positions):
    match values:
        case FixedValues():
            return FixedValues(values.data[positions])
        case VariableValues():
            lengths = np.diff(values.offsets)[positions]
            data = [values.data[values.offsets[p] : values.offsets[p + 1]] for p in positions.tolist()]
            offsets = np.append(0, np.cumsum(lengths)).astype(values.offsets.dtype)
            return VariableValues(offsets, np.concatenate([*data, np.empty(0, np.uint8)]))
        case FixedListValues():
            inside = (positions[:, None] * values.dimension + np.arange(values.dimension)).reshape(-1)
            validity = None if values.validity is None else values.validity[inside]
            return FixedListValues(values.dimension, pick(values.items, inside), validity)


@some
@given(st.one_of(fixed_values(), strings(), lists(), wide, booleans), st.integers(0, 9), st.booleans())
def test_points_are_what_all_the_chunks_hold_there(as_page, assert_same, values, count, in_order):
    positions = rng(count).integers(0, len(values), count) if len(values) else np.empty(0, np.int64)
    positions = np.sort(positions) if in_order else positions
    encoding, chunks = choose.encode_chunks(values)
    points = registry.decode_points(encoding, as_page(chunks), *places(chunks.counts, positions))
    if points is None:
        assert isinstance(encoding, Rle | General | FixedSizeList)
    else:
        assert_same(points, pick(values, positions))


@some
@given(st.one_of(fixed_values(), strings(), lists(), wide, booleans), st.integers(0, 9), st.sampled_from([0, 3]))
def test_some_are_what_all_the_chunks_hold_there(as_page, assert_same, values, count, gap):
    positions = np.flatnonzero(rng(count).random(len(values)) < count / 9)
    if len(positions):
        encoding, chunks = choose.encode_chunks(values)
        assert_same(registry.decode_some(encoding, as_page(chunks, gap=gap), positions), pick(values, positions))


forced = st.builds(
    PageOptions,
    version=st.sampled_from(["2.1", "2.2"]),
    compression=st.sampled_from([None, "lz4", "zstd", "fsst", "none"]),
    compression_level=st.sampled_from([None, 1, 9]),
    rle_threshold=st.sampled_from([None, 0.0, 0.5, 1.0]),
    bss=st.sampled_from(["on", "off", "auto"]),
    minichunk_size=st.sampled_from([None, 1, 1000, 1 << 20]),
)


@some
@given(st.one_of(fixed_values(), strings(), lists(), wide, booleans), forced, st.sampled_from([8, 256, 4096]))
def test_whatever_is_asked_for_reads_back(as_page, assert_same, values, options, max_values):
    encoding, chunks = choose.encode_chunks(values, options, max_values=max_values)
    assert all(1 < count <= max_values and count & (count - 1) == 0 for count in chunks.counts[:-1].tolist())
    if len(values):
        assert_same(registry.decode_chunks(encoding, as_page(chunks)), values)
    plain, plain_chunks = choose.encode_chunks(values, PageOptions(compression="none"))
    assert plain_chunks.sizes.sum() == len(values) == 0 or isinstance(plain, Flat | Variable | FixedSizeList)
    if isinstance(encoding, General):
        assert encoding.compression.name.lower() == options.compression or options.compression is None


@some
@given(st.one_of(fixed_values(), strings(), wide))
def test_dictionaries_read_back(assert_same, values):
    built = choose_dictionary.build_dictionary(values)
    if built is None:
        return
    indices, items = built
    encoding, block = choose_dictionary.encode_dictionary(items)
    assert_same(registry.decode_block(encoding, block, len(items)), items)
    assert indices.data.dtype == (np.uint8 if len(items) <= 256 else np.uint16)
    if isinstance(values, FixedValues):
        assert np.array_equal(items.data[indices.data], values.data)
    else:
        lengths = np.diff(items.offsets)[indices.data]
        assert np.array_equal(lengths, np.diff(values.offsets))


@pytest.mark.parametrize(("num_items", "dtype"), [(256, "u1"), (257, "u2"), (65_536, "u2"), (65_537, "u4")])
def test_places_in_dictionaries_are_as_narrow_as_they_can(num_items, dtype):
    words = rng().permutation(num_items).astype("<u8") << 40
    indices, items = dictionary.build(FixedValues(np.tile(words, 2)), most=num_items)
    assert (len(items), indices.data.dtype) == (num_items, dtype)
    assert np.array_equal(items.data[indices.data], np.tile(words, 2))


@some
@given(
    st.sampled_from([1, 5, 1000, 1024, 5000, 40_000]),
    st.sampled_from([0, 0.001, 0.1, 0.9]),
    st.sampled_from([1, 2, 9]),
    st.sampled_from([60, 1024, 1327, 4096, 50_000]),
)
def test_levels_read_back(as_page, size, share, highest, step):
    levels = ((rng(size).random(size) < share) * highest).astype(np.uint16)
    bounds = np.append(np.arange(0, size, step), size)
    encoding, chunks = choose_levels.encode_level_chunks(levels, bounds)
    assert np.array_equal(chunks.counts, np.diff(bounds))
    assert (chunks.sizes < 1 << 16).all()
    assert np.array_equal(registry.decode_level_chunks(encoding, as_page(chunks)), levels)
    for chunk in (0, len(bounds) - 2):
        start = int(chunks.starts[0, chunk])
        block = chunks.buffers[0][start : start + int(chunks.sizes[0, chunk])]
        one = registry.decode_block(encoding, block, int(chunks.counts[chunk]))
        assert np.array_equal(one.data, levels[bounds[chunk] : bounds[chunk + 1]])


def test_chunks_without_levels_between_others():
    levels = np.array([1, 0, 1], np.uint16)
    encoding, chunks = choose_levels.encode_level_chunks(levels, np.array([0, 0, 2, 2, 3]))
    assert registry.decode_level_chunks(encoding, chunks).tolist() == [1, 0, 1]


def encoding_of(data):
    return choose.encode_chunks(FixedValues(data))[0]


def test_choices_for_numbers():
    n = 20_000
    assert encoding_of(rng().integers(0, 1 << 64, n, dtype=np.uint64)) == Flat(64)
    assert encoding_of(rng().integers(0, 1000, n).astype("<u4")) == InlineBitpacking(32)
    assert encoding_of(np.repeat(rng().integers(0, 1 << 40, n // 50), 50).astype("<u8")) == Rle(64)
    assert encoding_of(np.arange(n) % 2 == 0) == Flat(1)
    assert encoding_of(rng().random(n).view("<u8")) == Flat(64)  # 62 of 64 bits are not worth the time


@pytest.mark.parametrize(
    ("num_items", "expected"),
    [(200, InlineBitpacking(16)), (1000, InlineBitpacking(16)), (1500, Flat(16)), (3000, Flat(16))],
)
def test_words_of_16_bits_are_packed_up_to_10_bits(num_items, expected):
    assert encoding_of(rng().integers(0, num_items, 20_000).astype("<u2")) == expected


def test_choices_for_strings(strings):
    log = [f"2024-01-{i % 28:02} GET /items/{i % 997} 200".encode() for i in range(5000)]
    encoding, chunks = choose.encode_chunks(strings(log))
    assert isinstance(encoding, General)
    assert encoding.values == Variable(32)
    assert chunks.sizes.sum() < sum(map(len, log))
    noise = [rng(i).bytes(30) for i in range(2000)]
    assert choose.encode_chunks(strings(noise))[0] == Variable(32)
    assert choose.encode_chunks(strings(noise, np.int64))[0] == Variable(64)


def test_long_values_are_compressed_where_packing_fails():
    seconds = (1_700_000_000 + np.sort(rng().integers(0, 100_000, 20_000))) * 1_000_000
    assert encoding_of(seconds.view("<u8")) == General(Compression.ZSTD, Flat(64))
    prices = np.round(rng().random(20_000) * 100_000, 2).view("<u8") | 1 << 63
    cheap = np.repeat(rng().random(300), 3).view("<u8")[rng(1).integers(0, 900, 20_000)]
    assert encoding_of(prices) == Flat(64)
    assert encoding_of(cheap) == General(Compression.LZ4, Flat(64))
    assert choose.encode_chunks(FixedValues(cheap), PageOptions(compression="none"))[0] == Flat(64)


def test_long_values_that_rise_are_split_where_that_is_nearly_as_small_as_zstd():
    keys = (1 << 20) + np.cumsum(rng().integers(1, 11, 100_000))
    far_apart = (1 << 30) + np.cumsum(rng().integers(1, 101, 100_000))
    split, zstd = General(Compression.LZ4, ByteStreamSplit(64)), General(Compression.ZSTD, Flat(64))
    assert encoding_of(np.arange(1 << 20, 1_200_000).view("<u8")) == split
    assert encoding_of(keys.view("<u8")) == split
    assert encoding_of(far_apart.view("<u8")) == zstd
    small = PageOptions(profile="small")  # where a tenth more is too much
    assert choose.encode_chunks(FixedValues(keys.view("<u8")), small)[0] == zstd


def test_choices_for_lists():
    values = FixedListValues(4, FixedValues(np.zeros(400, "<u4")), np.ones(400, bool))
    assert choose.encode_chunks(values)[0] == FixedSizeList(4, has_validity=True, values=Flat(32))


def test_choices_for_levels():
    few = np.zeros(10_000, np.uint16)
    few[::500] = 1
    many = (rng().random(10_000) < 0.3).astype(np.uint16)
    bounds = np.array([0, 4096, 8192, 10_000])
    assert choose_levels.encode_level_chunks(few, bounds)[0] == Rle(16)
    assert choose_levels.encode_level_chunks(many, bounds)[0] == OutOfLineBitpacking(16, 1)
    assert choose_levels.encode_level_chunks(many[:10], np.array([0, 10]))[0] == Flat(16)


def test_choices_for_dictionaries(strings):
    repeated = strings([b"alpha", b"beta", b"gamma delta"] * 500)
    indices, items = choose_dictionary.build_dictionary(repeated)
    assert len(items) == 3
    assert indices.data[:4].tolist() == [0, 1, 2, 0]
    assert choose_dictionary.build_dictionary(strings([str(i).encode() for i in range(3000)])) is None
    assert choose_dictionary.build_dictionary(strings([b"a"] * 50)) is None
    far = FixedValues(rng().integers(0, 1 << 63, 50).astype("<u8")[rng(1).integers(0, 50, 5000)])
    assert len(choose_dictionary.build_dictionary(far)[1]) == 50
    assert (
        choose_dictionary.build_dictionary(FixedValues(np.arange(5000, dtype="<u8") % 50)) is None
    )  # packing is as good
    assert choose_dictionary.build_dictionary(FixedValues(np.repeat(far.data[:50], 100))) is None  # runs are better
    assert choose_dictionary.build_dictionary(FixedValues(far.data.astype("<u4"))) is None


@pytest.mark.parametrize(("distinct", "pays"), [(300, True), (15_000, True), (30_000, True), (250_000, False)])
def test_words_get_dictionaries_of_many_items(distinct, pays):
    """Prices: no codec finds anything in doubles that come again now and then."""
    prices = np.round(rng().random(distinct) * 1e6, 2)
    values = FixedValues(prices[rng(1).integers(0, distinct, 400_000)].view("<u8"))
    built = choose_dictionary.build_dictionary(values)
    assert (built is not None) == pays
    if built is not None:
        assert np.array_equal(built[1].data[built[0].data], values.data)


@pytest.mark.parametrize("distinct", [100, 5_000, 20_000, 30_000])
def test_few_values_tell_how_many_there_are(distinct):
    values = FixedValues(rng().integers(0, distinct, 500_000).astype("<u8"))
    assert dictionary.sampled_distinct(values) == pytest.approx(distinct, rel=0.05)


def test_values_that_repeat_often_are_known_by_few_of_them(monkeypatch):
    monkeypatch.setattr(dictionary, "to_arrow", None)  # whatever looks at more values needs them as Arrow data
    assert dictionary.sampled_distinct(FixedValues(rng().integers(0, 8, 50_000).astype("<u8"))) == 8


def test_words_of_their_own_are_not_searched_for_items(monkeypatch):
    """A dictionary that fails costs more than all the rest."""
    monkeypatch.setattr(dictionary, "build", None)
    assert choose_dictionary.build_dictionary(FixedValues(rng().random(500_000).view("<u8"))) is None
    assert choose_dictionary.build_dictionary(FixedValues(rng().integers(0, 200_000, 500_000).astype("<u8"))) is None


def test_strings_need_not_start_at_offset_zero(strings, items):
    whole = strings([b"skipped", b"one", b"two", b"three"])
    values = VariableValues(whole.offsets[1:], whole.data)
    encoding, chunks = choose.encode_chunks(values)
    assert items(registry.decode_chunks(encoding, chunks)) == [b"one", b"two", b"three"]
    encoding, block = choose_dictionary.encode_dictionary(values)
    assert items(registry.decode_block(encoding, block, 3)) == [b"one", b"two", b"three"]


def test_input_that_may_not_be_written_to():
    data = np.arange(5000, dtype="<u4") % 7
    data.flags.writeable = False
    encoding, chunks = choose.encode_chunks(FixedValues(data))
    assert np.array_equal(registry.decode_chunks(encoding, chunks).data, data)


def test_input_with_strides(assert_same):
    data = np.arange(10_000, dtype="<u4")[::2]
    for values in (FixedValues(data % 9), FixedValues(data << 17), FixedValues(np.repeat(data, 40)[::3])):
        encoding, chunks = choose.encode_chunks(values)
        assert_same(registry.decode_chunks(encoding, chunks), values)


def test_too_many_levels_for_one_chunk():
    levels = rng().integers(0, 1 << 16, 65_000).astype(np.uint16)
    with pytest.raises(InvalidInputError, match="split the page"):
        choose_levels.encode_level_chunks(levels, np.array([0, 65_000]))


def test_lists_of_strings_are_refused(strings):
    with pytest.raises(UnsupportedError, match="strings"):
        choose.encode_chunks(FixedListValues(2, strings([b"a", b"b"]), None))


def _choice(data, *, is_small, run_bytes=1 << 40):
    values = FixedValues(data)
    packed_bytes = choose.bitpack.inline_bytes(values, choose.bitpack.inline_widths(values))
    return choose.choose_words(data, packed_bytes, run_bytes, PageOptions(), is_small=is_small)


def test_small_pages_are_packed_for_less():
    data = rng().integers(1 << 25, 1 << 26, 4096, dtype=np.uint32)  # 0.81 of the bytes
    assert [_choice(data, is_small=is_small) for is_small in (False, True)] == [choose.Way.PLAIN, choose.Way.PACKED]


def test_small_pages_have_no_runs_of_less_than_512_bytes():
    data = rng().integers(0, 1 << 32, 160, dtype=np.uint32)
    assert [_choice(data, is_small=is_small, run_bytes=400) for is_small in (False, True)] == [
        choose.Way.RUNS,
        choose.Way.PLAIN,
    ]


def test_small_pages_have_no_codec():
    data = rng().choice(rng().integers(0, 1 << 32, 50, dtype=np.uint32), 4096)
    data.sort()
    encoding, _ = _choice(data, is_small=False)
    assert isinstance(encoding, General)
    assert _choice(data, is_small=True) is choose.Way.PLAIN
