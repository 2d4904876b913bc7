"""Bloom filters: which values of one column may occur in each run of rows of some fragments.

An index folder holds one Lance file, ``bloomfilter.lance``, with one row for each zone; no column is nullable:

    fragment_id, zone_start, zone_length    uint64, as in `lance_core.format.index.zone_map`
    has_null                                bool
    bloom_filter_data                       binary, Parquet's split block Bloom filter: blocks of eight uint32

Its metadata has ``bloomfilter_item``, rows of a zone and values that a filter is made for,
``bloomfilter_probability`` of false positives, and ``null_bitmap``: number of a global buffer with the set of null
rows, as in `lance_core.format.index.row_sets`. Values are hashed by xxHash64 with seed 0: numbers and times as
little-endian bytes, texts and binaries as they are. The details are an empty message. Source: what pylance 14.0.2
writes.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.format.arrow_kinds import is_bytes, is_text

FILE_NAME = "bloomfilter.lance"
TYPE_URL = "/lance.index.pb.BloomFilterIndexDetails"
VERSION = 0
ITEMS_KEY, PROBABILITY_KEY, NULL_BITMAP_KEY = "bloomfilter_item", "bloomfilter_probability", "null_bitmap"
DEFAULT_ITEMS, PROBABILITY = 8192, 0.00057
BLOCK_BYTES = 32
MAX_FILTER_BYTES = 128 << 20
BLOOM_SCHEMA = pa.schema(
    [
        pa.field("fragment_id", pa.uint64(), nullable=False),
        pa.field("zone_start", pa.uint64(), nullable=False),
        pa.field("zone_length", pa.uint64(), nullable=False),
        pa.field("has_null", pa.bool_(), nullable=False),
        pa.field("bloom_filter_data", pa.binary(), nullable=False),
    ]
)

UInt64s: TypeAlias = npt.NDArray[np.uint64]
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
_BLOCK_WORDS, _WORD_BITS = 8, 32
_MOST_BITS_SET = 0.42
"""Share of the bits of a filter that are set where it holds as many values as it is made for: 0.00057 ** (1 / 8) is
0.39, and sizes are rounded up."""


def has_bloom_filter(kind: pa.DataType) -> bool:
    """Return whether pylance makes filters of values of a type."""
    types = pa.types
    return (
        types.is_integer(kind)
        or kind in (pa.float32(), pa.float64())
        or is_text(kind)
        or is_bytes(kind)
        or types.is_date(kind)
        or types.is_time(kind)
        or types.is_timestamp(kind)
    )


def filter_bytes(num_items: int) -> int:
    """Return the size of the filters for so many values: a power of two."""
    bits = -_BLOCK_WORDS * num_items / math.log(1 - PROBABILITY ** (1 / _BLOCK_WORDS))
    return min(max(BLOCK_BYTES, 1 << (math.ceil(bits / 8) - 1).bit_length()), MAX_FILTER_BYTES)


def make_filter(hashes: UInt64s, num_bytes: int) -> bytes:
    """Return the filter of values with some hashes."""
    blocks, bits = _bits(hashes, num_bytes)
    num_blocks = num_bytes // BLOCK_BYTES
    filter_words = np.empty((num_blocks, _BLOCK_WORDS), "<u4")
    homes = blocks * _WORD_BITS
    for word in range(_BLOCK_WORDS):
        is_set = np.zeros(num_blocks * _WORD_BITS, np.bool_)
        is_set[homes + bits[:, word]] = True  # several values may set one bit, which plain indexing does not mind
        filter_words[:, word] = np.packbits(is_set, bitorder="little").view("<u4")
    return filter_words.tobytes()


def may_contain(data: bytes, hashes: UInt64s) -> npt.NDArray[np.bool_]:
    """Return for each hash whether its value may be in a filter."""
    blocks, bits = _bits(hashes, len(data))
    filter_words = np.frombuffer(data, "<u4").reshape(-1, _BLOCK_WORDS)[blocks]
    return ((filter_words >> bits & np.uint32(1)) == 1).all(axis=1)


def union(left: bytes, right: bytes) -> bytes | None:
    """Return the filter of the values of two; None if they differ in size."""
    if len(left) != len(right):
        return None
    return (np.frombuffer(left, np.uint8) | np.frombuffer(right, np.uint8)).tobytes()


def is_crowded(data: bytes) -> bool:
    """Return whether a filter holds more values than filters are made for, so that it leaves few values out."""
    return bool(np.unpackbits(np.frombuffer(data, np.uint8)).mean() > _MOST_BITS_SET)


def _bits(hashes: UInt64s, num_bytes: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Return the block of each hash, and which bit of each of its words is set, shape (n, 8)."""
    num_blocks = np.uint64(num_bytes // BLOCK_BYTES)
    blocks = ((hashes >> np.uint64(32)) * num_blocks) >> np.uint64(32)
    low = hashes.astype(np.uint32)
    return blocks.astype(np.int64), (low[:, None] * _SALTS) >> np.uint32(27)


# ----------------------------------------------------------------------------------------------------------- xxHash64

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_STRIPE = 32


def hash_values(values: pa.Array, seed: int = 0) -> UInt64s:
    """Return the xxHash64 of each value; none of them is null."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hash_texts(values, np.int32, seed)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _hash_texts(values, np.int64, seed)
    width = kind.bit_width // 8
    data = np.frombuffer(values.buffers()[1] or b"", np.uint8)[values.offset * width :][: len(values) * width]
    return hash_rows(data.reshape(len(values), width), seed)


def _hash_texts(values: pa.Array, offset_type: type[np.int32 | np.int64], seed: int) -> UInt64s:
    buffers = values.buffers()
    offsets = np.frombuffer(buffers[1] or b"\0" * 8, offset_type)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(buffers[2] or b"", np.uint8)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    hashes = np.empty(len(values), np.uint64)
    order = np.argsort(lengths, kind="stable")
    edges = [0, *(np.flatnonzero(np.diff(lengths[order])) + 1).tolist(), len(order)]
    for low, high in pairwise(edges):
        if low < high:
            rows = order[low:high]
            hashes[rows] = hash_rows(_windows(data, int(lengths[rows[0]]))[starts[rows]], seed)
    return hashes


def _windows(data: npt.NDArray[np.uint8], width: int) -> npt.NDArray[np.uint8]:
    """Return as many bytes from each position on; they overlap, nothing is copied."""
    if not width:
        return np.empty((len(data) + 1, 0), np.uint8)
    return np.lib.stride_tricks.sliding_window_view(data, width)


def hash_rows(data: npt.NDArray[np.uint8], seed: int = 0) -> UInt64s:
    """Return the xxHash64 of each row of bytes, shape (n, length), all rows at once."""
    num_rows, length = data.shape
    at, start = 0, np.uint64(seed)
    with np.errstate(over="ignore"):
        if length >= _STRIPE:
            lanes = [np.full(num_rows, start + term, np.uint64) for term in (_P1 + _P2, _P2, np.uint64(0), -_P1)]
            while at + _STRIPE <= length:
                lanes = [_round(lane, _word(data, at + 8 * lane_index, 8)) for lane_index, lane in enumerate(lanes)]
                at += _STRIPE
            hashes = _turned(lanes[0], 1) + _turned(lanes[1], 7) + _turned(lanes[2], 12) + _turned(lanes[3], 18)
            for lane in lanes:
                hashes = (hashes ^ _round(np.zeros(num_rows, np.uint64), lane)) * _P1 + _P4
        else:
            hashes = np.full(num_rows, start + _P5, np.uint64)
        hashes = hashes + np.uint64(length)
        while at + 8 <= length:
            hashes = hashes ^ _round(np.zeros(num_rows, np.uint64), _word(data, at, 8))
            hashes = _turned(hashes, 27) * _P1 + _P4
            at += 8
        if at + 4 <= length:
            hashes = _turned(hashes ^ (_word(data, at, 4) * _P1), 23) * _P2 + _P3
            at += 4
        for lane_index in range(at, length):
            hashes = _turned(hashes ^ (data[:, lane_index].astype(np.uint64) * _P5), 11) * _P1
        hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
        hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
        return hashes ^ (hashes >> np.uint64(32))


def _word(data: npt.NDArray[np.uint8], at: int, size: int) -> UInt64s:
    piece = np.ascontiguousarray(data[:, at : at + size])
    return piece.view(f"<u{size}").reshape(-1).astype(np.uint64)


def _turned(values: UInt64s, bits: int) -> UInt64s:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _round(lane: UInt64s, word: UInt64s) -> UInt64s:
    return _turned(lane + word * _P2, 31) * _P1
