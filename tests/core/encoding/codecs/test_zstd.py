"""zstd frames by the package and by Arrow; the same bytes whatever the number of threads."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from lance_core.encoding import thread_pool
from lance_core.encoding.codecs import general
from lance_core.encoding.codecs.zstd import WORDS_LEVEL, ArrowZstd, PackageZstd, best_zstd
from lance_core.encoding.kernels import one_buffer, starts_of
from lance_core.errors import CorruptDataError
from lance_core.format.file.encodings import Compression

KINDS = [ArrowZstd(), PackageZstd(zstandard)]
WORDS = [b"connection ", b"accepted ", b"from ", b"worker ", b"timeout ", b"retry ", b"queue ", b"flushed "]


@pytest.fixture(params=KINDS, ids=["arrow", "package"])
def zstd(request, monkeypatch):
    monkeypatch.setattr(general.zstd, "ZSTD", request.param)
    return request.param


@pytest.fixture
def threads():
    before = pa.cpu_count()
    yield pa.set_cpu_count
    pa.set_cpu_count(before)


def text(num_bytes, seed=0):
    picks = np.random.default_rng(seed).integers(0, len(WORDS), num_bytes // 5 + 1)
    return np.frombuffer(b"".join(WORDS[one] for one in picks.tolist())[:num_bytes], np.uint8)


def chunks_of(data, sizes):
    return one_buffer(data, starts_of(np.array(sizes, np.int64)), np.ones(len(sizes), np.int64))


def frames_of(zstd, *contents):
    compress = zstd.compressor(None, max(map(len, contents)))
    return np.frombuffer(b"".join(compress(np.frombuffer(one, np.uint8)) for one in contents), np.uint8)


def test_the_package_is_taken_where_it_is_there(monkeypatch):
    assert isinstance(best_zstd(), PackageZstd)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert isinstance(best_zstd(), ArrowZstd)


@pytest.mark.parametrize("level", [None, 1, WORDS_LEVEL, 22, -5])
@pytest.mark.parametrize("size", [1, 1 << 14, 1 << 17])
@pytest.mark.parametrize("reader", KINDS)
def test_each_reads_what_the_other_writes(zstd, reader, size, level):
    data = text(size)
    frame = zstd.compressor(level, size)(data)
    assert zstandard.get_frame_parameters(frame).content_size == size  # pylance's files say it, too
    out = np.zeros(size, np.uint8)
    reader.decompress(np.frombuffer(frame, np.uint8), out)
    assert np.array_equal(out, data)


@pytest.mark.parametrize("room", [0, 1, 199, 201, 1 << 20])
def test_frames_fill_their_room(zstd, room):
    frames = frames_of(zstd, bytes(100), text(100).tobytes())
    with pytest.raises(CorruptDataError, match="zstd"):
        zstd.decompress(frames, np.zeros(room, np.uint8))


@pytest.mark.parametrize("cut", [1, 3, 9, 20, -1, -4])
def test_frames_that_are_cut_off(zstd, cut):
    frames = frames_of(zstd, text(1000).tobytes(), text(1000, 1).tobytes())
    with pytest.raises(CorruptDataError, match="zstd"):
        zstd.decompress(frames[:cut], np.zeros(2000, np.uint8))


def test_what_is_no_frame(zstd):
    for seed in range(20):
        with pytest.raises(CorruptDataError, match="zstd"):
            zstd.decompress(np.frombuffer(np.random.default_rng(seed).bytes(100), np.uint8), np.zeros(200, np.uint8))


def test_a_bad_frame_does_no_harm_to_the_next_one(zstd):
    good = frames_of(zstd, text(1000).tobytes())
    bad = good.copy()
    bad[10:] ^= 0xFF
    for _ in range(3):
        with pytest.raises(CorruptDataError):
            zstd.decompress(bad, np.zeros(1000, np.uint8))
        out = np.zeros(1000, np.uint8)
        zstd.decompress(good, out)
        assert np.array_equal(out, text(1000))


def test_frames_that_do_not_tell_their_size(zstd):
    data = text(100_000)
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    out = np.zeros(len(data), np.uint8)
    zstd.decompress(np.frombuffer(frame, np.uint8), out)
    assert np.array_equal(out, data)


def test_a_bomb_fills_its_room_and_no_more(zstd):
    frame = zstandard.ZstdCompressor().compress(bytes(1 << 26))
    before = pa.total_allocated_bytes()
    memory = np.zeros(3 << 10, np.uint8)
    with pytest.raises(CorruptDataError):
        zstd.decompress(np.frombuffer(frame, np.uint8), memory[1 << 10 : 2 << 10])
    assert not memory[: 1 << 10].any()
    assert not memory[2 << 10 :].any()
    assert pa.total_allocated_bytes() == before


def test_contexts_that_were_used_make_the_same_frames():
    data = [text(1 << 14, seed) for seed in range(4)]
    fresh = [PackageZstd(zstandard).compressor(1, 1 << 14)(one) for one in data]
    kept = PackageZstd(zstandard)
    for _ in range(2):
        for one, frame in zip(reversed(data), reversed(fresh), strict=True):
            assert kept.compressor(1, 1 << 14)(one) == frame


def test_each_thread_has_contexts_of_its_own():
    kept = PackageZstd(zstandard)
    mine = kept.compressor(1, 100).__self__
    assert kept.compressor(None, 100).__self__ is mine
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: kept.compressor(1, 100).__self__).result() is not mine


def test_small_chunks_of_words_take_small_tables():
    data = text(1 << 14)
    package = PackageZstd(zstandard)
    small, large = (len(package.compressor(WORDS_LEVEL, size)(data)) for size in (1 << 14, 1 << 20))
    assert small != large
    assert max(small, large) < len(package.compressor(1, 1 << 14)(data)) * 0.98


@pytest.mark.parametrize("level", [1, WORDS_LEVEL])
def test_small_tables_leave_as_little_as_large_ones(level):
    data = text(1 << 13)
    package = PackageZstd(zstandard)
    small = package.compressor(level, len(data))(data)
    assert package.compressor(level, 1 << 20).__self__ is not package.compressor(level, len(data)).__self__
    assert len(small) <= len(zstandard.ZstdCompressor(level=level).compress(data)) * 1.03


@pytest.mark.parametrize("codec", [Compression.ZSTD, Compression.LZ4])
@pytest.mark.usefixtures("zstd")
def test_threads_make_the_same_bytes(threads, monkeypatch, codec):
    data = text(300_000)
    sizes = [20_000, 0, 1, 40_000, *[9_999] * 20, 40_019]
    plain = chunks_of(data, sizes)
    assert sum(sizes) == len(data)
    monkeypatch.setattr(thread_pool, "_LEAST_BYTES", 10_000)
    found = []
    for number in (1, 2, 7):
        threads(number)
        packed = general.compress_chunks(codec, plain, level=WORDS_LEVEL)
        found.append(packed.buffers[0].tobytes())
        filled = np.flatnonzero(plain.sizes[0])
        ranges = packed.starts[:, filled], packed.sizes[:, filled], packed.counts[filled]
        again = type(packed)(buffers=packed.buffers, starts=ranges[0], sizes=ranges[1], counts=ranges[2])
        assert np.array_equal(general.decompress_chunks(codec, again).buffers[0], data)
    assert len(set(found)) == 1


@pytest.mark.usefixtures("zstd")
def test_damage_is_told_by_any_thread(threads, monkeypatch):
    packed = general.compress_chunks(Compression.ZSTD, chunks_of(text(100_000), [10_000] * 10))
    monkeypatch.setattr(thread_pool, "_LEAST_BYTES", 10_000)
    threads(4)
    for at in range(10):
        damaged = packed.buffers[0].copy()
        start = int(packed.starts[0, at]) + 8
        damaged[start : start + 4] ^= 0xFF
        with pytest.raises(CorruptDataError):
            general.decompress_chunks(
                Compression.ZSTD,
                type(packed)(buffers=(damaged,), starts=packed.starts, sizes=packed.sizes, counts=packed.counts),
            )


@pytest.mark.parametrize("number", [1, 3, 16, 40])
def test_parts_are_neighbours_of_like_size(threads, monkeypatch, number):
    monkeypatch.setattr(thread_pool, "_LEAST_BYTES", 100)
    threads(number)
    sizes = np.random.default_rng(0).integers(0, 10, 2000)
    parts = thread_pool.run_parts(lambda part: (part.start, part.stop), sizes)
    assert len(parts) == min(number, 16)
    assert [low for low, _ in parts] == [0, *[high for _, high in parts[:-1]]]
    assert parts[-1][1] == len(sizes)
    each = [int(sizes[low:high].sum()) for low, high in parts]
    assert max(each) - min(each) < 20


def test_little_is_done_in_one_part(threads):
    threads(8)
    assert thread_pool.run_parts(lambda part: (part.start, part.stop), np.full(10, 100)) == [(0, 10)]
    assert thread_pool.run_parts(lambda part: (part.start, part.stop), np.empty(0, np.int64)) == [(0, 0)]


def both_ways(codec, data):
    """One range alone, and as the only chunk of many; None where it is refused."""
    found = []
    for read in (
        lambda: bytes(general.decompress_one(codec, memoryview(data))),
        lambda: general.decompress_chunks(codec, chunks_of(np.frombuffer(data, np.uint8), [len(data)])).buffers[0],
    ):
        try:
            found.append(bytes(read()))
        except CorruptDataError:
            found.append(None)
    return found


@pytest.mark.parametrize("codec", [Compression.ZSTD, Compression.LZ4])
@pytest.mark.usefixtures("zstd")
def test_one_range_is_read_as_many_are(codec):
    plain = text(3000)
    whole = general.compress_block(codec, plain).tobytes()
    assert both_ways(codec, whole) == [plain.tobytes()] * 2
    head = 4 if codec is Compression.LZ4 else 8
    claims = (0, 2999, 3001, 1 << 17, 1 << 23, 1 << 31, 2**32 - 1, 1 << 35, 1 << 40, 1 << 63, 2**64 - 1)
    huge = [claim.to_bytes(8, "little")[:head] + whole[head:] for claim in claims]
    cut = [whole[:size] for size in (0, 3, 5, 7, 8, 9, 20, len(whole) - 1)]
    random = [np.random.default_rng(seed).bytes(seed + 1) for seed in range(40)]
    for data in [*huge, *cut, *random]:
        alone, among = both_ways(codec, data)
        assert alone == among
    assert both_ways(Compression.ZSTD, zstandard.compress(plain.tobytes())) == [plain.tobytes()] * 2  # a bare frame


@pytest.mark.parametrize("size", [1, 1 << 16, (1 << 16) + 1, 1 << 22, (1 << 22) + 1])
def test_one_range_of_lz4_may_be_of_any_size(size):
    plain = bytes(size)
    whole = general.compress_block(Compression.LZ4, np.frombuffer(plain, np.uint8)).tobytes()
    assert both_ways(Compression.LZ4, whole) == [plain] * 2


@pytest.mark.parametrize(("codec", "most"), [(Compression.ZSTD, 25), (Compression.LZ4, 30)])
def test_one_range_takes_few_steps(calls_of, codec, most):
    data = memoryview(general.compress_block(codec, text(3000)))
    one = chunks_of(np.frombuffer(data, np.uint8), [len(data)])
    assert calls_of(lambda: general.decompress_one(codec, data)) <= most
    assert calls_of(lambda: general.decompress_chunks(codec, one)) <= most + 15


@pytest.mark.parametrize("level", [None, WORDS_LEVEL, 22, -5])
@pytest.mark.parametrize("sizes", [[300], [10_000, 300, 9_999], [200_000, 4], [140_000]])
@pytest.mark.usefixtures("zstd")
def test_heads_of_chunks_are_stored_as_they_are(sizes, level):
    data = text(sum(sizes))
    plain = chunks_of(data, sizes)
    for most in (0, 4, 1 << 17):
        heads = np.minimum(sizes, most)
        packed = general.compress_chunks(Compression.ZSTD, plain, level=level, heads=heads)
        for codec in KINDS:
            out = np.zeros(len(data), np.uint8)
            frames = [packed.buffers[0][start + 8 : start + size] for start, size in zip(*_ranges(packed), strict=True)]
            codec.decompress(np.concatenate(frames), out)
            assert np.array_equal(out, data)
        for start, head, (at, size) in zip(plain.starts[0], heads, zip(*_ranges(packed), strict=True), strict=True):
            assert data[start : start + head].tobytes() in packed.buffers[0][at : at + size].tobytes()
        assert np.array_equal(general.decompress_chunks(Compression.ZSTD, packed).buffers[0], data)


def _ranges(chunks):
    return chunks.starts[0].tolist(), chunks.sizes[0].tolist()
