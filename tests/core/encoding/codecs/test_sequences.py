"""Integers in blocks of file version 2.3: known bytes, and damage that is told from values."""

import os
import random

import numpy as np
import pytest

from lance_core.encoding import registry
from lance_core.encoding.values import Chunks
from lance_core.errors import CorruptDataError, LanceError, UnsupportedError
from lance_core.format.file.encodings import (
    BlockRle,
    Constant,
    Delta,
    Dictionary,
    Flat,
    InlineBitpacking,
    OutOfLineBitpacking,
    PackedVariable,
    Range,
)


def words(*numbers, dtype="<u8"):
    return np.array(numbers, dtype).tobytes()


def decode(encoding, data, count):
    return registry.decode_integers(encoding, np.frombuffer(data, np.uint8), count)


BYTES = Flat(8)
PACKED = OutOfLineBitpacking(8, 4)
RUNS = BlockRle(Range(64, 0, 1), BYTES)
PACKED_LENGTHS = bytes([0x21]) + bytes(511)  # value i of the first 128 in the low half of byte i, 1 and then 0
GOOD = {
    "constant": (Constant(words(7)), b"", 4, [7, 7, 7, 7]),
    "constant of none": (Constant(None), b"", 0, []),
    "range": (Range(32, 5, 3), b"", 3, [5, 8, 11]),
    "delta": (Delta(64, 3, BYTES), bytes([1, 0, 9]), 4, [3, 4, 4, 13]),
    "delta of one": (Delta(64, 3, Constant(b"\1")), b"", 1, [3]),
    "delta of none": (Delta(64, 3, BYTES), b"", 0, []),
    "dictionary": (Dictionary(BYTES, Flat(64), 2), words(3, 16) + bytes([1, 0, 1]) + words(5, 6), 3, [6, 5, 6]),
    "dictionary without bytes": (Dictionary(Range(8, 0, 1), Range(64, 9, 1), 3), b"", 3, [9, 10, 11]),
    "runs": (RUNS, words(0) + bytes([2, 1]), 3, [0, 0, 1]),
    "runs without bytes": (BlockRle(Range(64, 0, 1), Range(32, 10, 1)), b"", 21, [0] * 10 + [1] * 11),
    "runs of one length": (BlockRle(Range(64, 4, 1), Constant(b"\2")), b"", 4, [4, 4, 5, 5]),
    "runs of packed lengths": (BlockRle(Range(64, 4, 1), PACKED), words(0) + bytes([3, 1]), 4, [4, 4, 4, 5]),
    "no runs": (BlockRle(Range(64, 0, 1), Constant(b"\2")), b"", 0, []),
}


@pytest.mark.parametrize("name", GOOD)
def test_integers_are_decoded(name):
    encoding, data, count, expected = GOOD[name]
    assert decode(encoding, data, count).tolist() == expected


BAD = {
    "nulls": (Constant(None), b"", 1, "null"),
    "constant of three bytes": (Constant(b"abc"), b"", 1, "3 bytes"),
    "range beyond its bits": (Range(8, 250, 3), b"", 3, "8 bits"),
    "range of the largest steps": (Range(64, 1, 2**64 - 1), b"", 2, "64 bits"),
    "first beyond its bits": (Delta(8, 256, BYTES), b"\1", 2, "8 bits"),
    "difference beyond its bits": (Delta(8, 1, Flat(64)), words(256), 2, "8 bits"),
    "too few differences": (Delta(64, 1, BYTES), b"\1", 3, "bytes"),
    "dictionary without sizes": (Dictionary(BYTES, BYTES, 1), b"\1", 1, "sizes"),
    "dictionary beyond its block": (Dictionary(BYTES, BYTES, 1), words(2**63, 2**63) + b"ab", 1, "beyond"),
    "index beyond the items": (Dictionary(BYTES, Range(8, 0, 1), 2), words(1, 0) + b"\2", 1, "index"),
    "index into no items": (Dictionary(BYTES, Range(8, 0, 1), 0), words(1, 0) + b"\0", 1, "index"),
    "run values beyond their block": (BlockRle(BYTES, Range(8, 1, 1)), words(2**64 - 1), 3, "beyond"),
    "runs that are too long": (RUNS, words(0) + bytes([2, 2]), 3, "add up"),
    "runs that are too short": (RUNS, words(0) + bytes([2]), 3, "add up"),
    "more runs than values": (BlockRle(Flat(64), BYTES), words(8, 1) + bytes([2, 1]), 3, "add up"),
    "lengths that do not divide": (BlockRle(Range(64, 0, 1), Constant(b"\2")), b"", 5, "add up"),
    "lengths of zero": (BlockRle(Range(64, 0, 1), Constant(b"\0")), b"", 5, "add up"),
    "lengths that pass the count": (BlockRle(Range(64, 0, 1), Range(32, 10, 1)), b"", 20, "add up"),
    "packed lengths that are too short": (BlockRle(Range(64, 4, 1), PACKED), words(0) + b"\3", 4, "packed to 4 bits"),
    "damage inside of another": (Delta(64, 1, Dictionary(BYTES, BYTES, 1)), words(1, 1), 2, "beyond"),
}


@pytest.mark.parametrize("name", BAD)
def test_damage_is_told(name):
    encoding, data, count, message = BAD[name]
    with pytest.raises(CorruptDataError, match=message):
        decode(encoding, data, count)


def test_runs_whose_number_nothing_tells_are_refused():
    with pytest.raises(UnsupportedError, match="runs"):
        decode(BlockRle(Range(64, 0, 1), InlineBitpacking(8)), words(0) + bytes(9), 3)


@pytest.mark.parametrize(
    "encoding",
    [
        Constant(words(0)),
        Range(64, 0, 1),
        Delta(64, 0, Range(64, 0, 0)),
        Dictionary(Constant(b"\0"), Constant(b"\0"), 1),
        Dictionary(Constant(b"\0"), Constant(b"\0"), 3 << 30),
        BlockRle(Constant(b"\0"), Constant(b"\1")),
    ],
)
def test_no_memory_is_taken_for_integers_without_bytes_beyond_the_limit(encoding):
    with pytest.raises(UnsupportedError, match="LANCE_CORE_MAX_DECOMPRESSED_BYTES"):
        decode(encoding, b"", 3 << 30)


def test_a_number_of_items_beyond_all_words_is_damage():
    with pytest.raises(CorruptDataError, match="values"):
        decode(Dictionary(BYTES, BYTES, 2**64 - 1), words(1, 1) + b"ab", 1)


def chunk(*buffers, count):
    data = np.frombuffer(b"".join(buffers), np.uint8)
    sizes = np.array([[len(one)] for one in buffers], np.int64)
    starts = np.cumsum(sizes, axis=0) - sizes
    return Chunks(buffers=(data,) * len(buffers), starts=starts, sizes=sizes, counts=np.array([count], np.int64))


def test_chunks_may_hold_runs_whose_lengths_are_packed():
    encoding = BlockRle(Flat(16), OutOfLineBitpacking(8, 4))
    lengths = bytes([2, 3, 1])  # a tail that is not packed
    chunks = chunk(words(7, 8, 9, dtype="<u2"), lengths, count=6)
    assert registry.decode_chunks(encoding, chunks).data.tolist() == [7, 7, 8, 8, 8, 9]
    picked = registry.decode_points(encoding, chunks, np.array([0, 0]), np.array([1, 5]))
    assert picked.data.tolist() == [7, 9]
    for damaged in (
        chunk(words(7, 8, 9, dtype="<u2"), lengths, count=5),
        chunk(words(7, 8, dtype="<u2"), lengths, count=6),
        chunk(words(7, 8, 9, dtype="<u2"), lengths[:2], count=6),
    ):
        with pytest.raises(CorruptDataError):
            registry.decode_chunks(encoding, damaged)


def test_packed_offsets_must_lie_in_their_chunk():
    good = PackedVariable(32, Range(32, 0, 2))
    assert registry.decode_chunks(good, chunk(b"aabbcc", count=3)).data.tobytes() == b"aabbcc"
    for offsets in (Range(32, 1, 2), Range(32, 0, 3), Constant(b"\1\0\0\0"), Constant(None)):
        with pytest.raises(CorruptDataError):
            registry.decode_chunks(PackedVariable(32, offsets), chunk(b"aabbcc", count=3))


def random_encoding(dice, depth=2):
    kinds = ["flat", "constant", "range", "packed"] + ["delta", "dictionary", "runs"] * (depth > 0)
    match dice.choice(kinds):
        case "flat":
            return Flat(dice.choice([8, 16, 32, 64]))
        case "constant":
            return Constant(dice.choice([None, b"\1", words(3), b"abc"]))
        case "range":
            return Range(dice.choice([8, 64]), dice.choice([0, 1, 255, 2**64 - 1]), dice.choice([0, 1, 3, 2**63]))
        case "packed":
            return OutOfLineBitpacking(*dice.choice([(8, 3), (16, 16), (64, 1), (32, 0)]))
        case "delta":
            return Delta(dice.choice([8, 64]), dice.choice([0, 200, 2**40]), random_encoding(dice, depth - 1))
        case "dictionary":
            indices, items = random_encoding(dice, depth - 1), random_encoding(dice, depth - 1)
            return Dictionary(indices, items, dice.choice([0, 1, 3, 2**60]))
        case _:
            return BlockRle(random_encoding(dice, depth - 1), random_encoding(dice, depth - 1))


def test_any_bytes_are_integers_or_one_of_our_errors():
    dice = random.Random(int(os.environ.get("LANCE_TESTS_SEED", "23")))
    decoded = 0
    for _ in range(5000):
        encoding, count = random_encoding(dice), dice.choice([0, 1, 2, 5, 40, 1 << 50])
        sizes = [dice.choice([0, 1, 8, 24]) for _ in range(4)]
        data = words(*sizes[:2]) + dice.randbytes(dice.choice([0, 1, 8, 40, 300]))
        data = dice.choice([data, data[8:], data[16:], b""])
        try:
            found = decode(encoding, data, count)
        except LanceError:
            continue
        decoded += 1
        assert len(found) == count
    assert decoded > 500
