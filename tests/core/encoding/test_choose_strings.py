"""What strings are compressed with, and how large their chunks are."""

import numpy as np
import pytest

from lance_core.encoding import registry
from lance_core.encoding.choose_strings import encode_strings, is_compressible
from lance_core.encoding.codecs import fsst, general, variable
from lance_core.encoding.kernels import chunk_counts
from lance_core.encoding.options import PageOptions
from lance_core.encoding.values import VariableValues
from lance_core.format.file.encodings import Compression, Fsst, General, Variable

WORDS = ["connection", "accepted", "from", "worker", "timeout", "retry", "queue", "flushed", "error", "user"]
PHRASES = [
    "Finished task in stage, result sent to driver",
    "Connection reset by peer while reading response",
    "Retrying request after backoff",
    "Heartbeat timed out, marking node dead",
]


def values_of(texts):
    offsets = np.append(0, np.cumsum([len(text) for text in texts])).astype(np.int32)
    return VariableValues(offsets, np.frombuffer(b"".join(texts), np.uint8))


def random_words(count):
    rows = np.random.default_rng(1).integers(0, len(WORDS), (count, 10)).tolist()
    return values_of([" ".join(WORDS[one] for one in row).encode() for row in rows])


def log_lines(count):
    rng = np.random.default_rng(2)
    picks, numbers = rng.integers(0, len(PHRASES), count).tolist(), rng.integers(0, 5000, count).tolist()
    return values_of(
        [
            f"2026-01-01 00:{number % 60:02}:00 INFO com.example.Gateway {PHRASES[pick]} took={number}ms".encode()
            for pick, number in zip(picks, numbers, strict=True)
        ]
    )


def keys(count, size=12):
    numbers = np.random.default_rng(3).integers(0, 10, (count, size), np.uint8) + ord("0")
    return values_of([b"key-" + row.tobytes() for row in numbers])


def noise(count):
    return values_of([np.random.default_rng(one).bytes(60) for one in range(count)])


def same(ours, theirs):
    first, last = ours.offsets[0], ours.offsets[-1]
    return np.array_equal(ours.offsets - first, theirs.offsets) and np.array_equal(
        ours.data[first:last], theirs.data[: theirs.offsets[-1]]
    )


@pytest.mark.parametrize(
    ("make", "profile", "codec", "level"),
    [
        (random_words, "small", Compression.ZSTD, 3),
        (random_words, "balanced", Compression.LZ4, None),
        (log_lines, "small", Compression.ZSTD, None),
        (log_lines, "balanced", Compression.LZ4, None),
        (log_lines, "fast", None, None),
        (noise, "small", None, None),
        (noise, "balanced", None, None),
    ],
)
def test_samples_and_profile_choose_codec_and_level(make, profile, codec, level):
    values = make(6000)
    encoding, chunks = encode_strings(values, PageOptions(profile=profile), 4096)
    if codec is None:
        assert encoding == Variable(32)
    else:
        assert encoding == General(codec, Variable(32), level)
    assert same(values, registry.decode_chunks(encoding, chunks))


@pytest.mark.parametrize(("profile", "codec"), [("small", Compression.ZSTD), ("balanced", None), ("fast", None)])
@pytest.mark.parametrize("size", [40, 300])
def test_few_strings_are_compressed_in_profile_small_only(profile, codec, size):
    few, many = (values_of([b"the same words " * (size // 15)] * count) for count in (12_000 // size, 90_000 // size))
    encoding, _ = encode_strings(few, PageOptions(profile=profile), 4096)
    assert getattr(encoding, "compression", None) is codec
    assert is_compressible(few, PageOptions(profile=profile)) == (codec is not None)
    assert is_compressible(many, PageOptions(profile=profile)) == (profile != "fast")


@pytest.mark.parametrize(("profile", "is_plain"), [("balanced", True), ("small", False)])
def test_zstd_stores_offsets_as_they_are_where_it_finds_next_to_nothing_in_them(profile, is_plain):
    values = keys(6000)
    encoding, chunks = encode_strings(values, PageOptions(profile=profile), 4096)
    assert encoding.compression is Compression.ZSTD
    plain = general.decompress_chunks(encoding.compression, chunks)
    offsets = plain.buffers[0][: (int(plain.counts[0]) + 1) * 4].tobytes()
    assert (offsets in chunks.buffers[0][: int(chunks.sizes[0, 0])].tobytes()) == is_plain
    assert same(values, registry.decode_chunks(encoding, chunks))


def test_the_level_that_is_chosen_leaves_the_least():
    for make in (random_words, log_lines):
        values = make(6000)
        sizes = {
            level: len(
                encode_strings(values, PageOptions(compression="zstd", compression_level=level, profile="small"), 4096)[
                    1
                ].buffers[0]
            )
            for level in (1, 3)
        }
        free = len(encode_strings(values, PageOptions(profile="small"), 4096)[1].buffers[0])
        assert free == sizes[3 if make is random_words else 1]
        assert free <= min(sizes.values()) * 1.03


@pytest.mark.parametrize(
    ("options", "most"),
    [
        (PageOptions(), 1 << 13),
        (PageOptions(compression="lz4"), 1 << 13),
        (PageOptions(compression="zstd"), 1 << 14),
        (PageOptions(compression="zstd", profile="small"), 1 << 15),
        (PageOptions(profile="small", version="2.1"), 1 << 14),
    ],
)
def test_chunks_stay_small_enough_to_read_single_values(options, most):
    encoding, chunks = encode_strings(log_lines(6000), options, 4096)
    plain = general.decompress_chunks(encoding.compression, chunks)
    assert int(plain.sizes[0, :-1].min()) >= most // 2
    assert int(plain.sizes.max()) <= most


def test_the_same_strings_give_the_same_bytes():
    first, second = (encode_strings(random_words(4000), PageOptions(), 4096) for _ in range(2))
    assert first[0] == second[0]
    assert np.array_equal(first[1].buffers[0], second[1].buffers[0])


@pytest.mark.parametrize("codec", [Compression.ZSTD, Compression.LZ4])
def test_compressed_symbols_are_read_as_a_whole_and_one_by_one(codec):
    """No writer makes them by itself, but pylance reads them."""
    values = random_words(3000)
    table, codes = fsst.encode(values)
    plain = variable.encode_chunks(codes, chunk_counts(len(codes), 256))
    encoding = General(codec, Fsst(table, Variable(32)), None)
    chunks = general.compress_chunks(codec, plain)
    assert same(values, registry.decode_chunks(encoding, chunks))
    wanted = np.array([0, 255, 256, 1999, 2999])
    found = registry.decode_points(encoding, chunks, wanted // 256, wanted % 256)
    bounds = values.offsets
    texts = [values.data[bounds[one] : bounds[one + 1]].tobytes() for one in wanted.tolist()]
    assert found.data[: found.offsets[-1]].tobytes() == b"".join(texts)
