"""Which encoding the writer takes, from the data alone.

The judgement is by bytes, with a thumb on the scale for what is fast to read: a slower encoding must save a good part
of the bytes. All choices are within what file version 2.2 allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from lance_core.encoding.physical import bitpack, dictionary, fixed_size_list, flat, general, rle, variable
from lance_core.encoding.physical.memory import chunk_counts, fitting_count, one_buffer
from lance_core.encoding.values import FixedListValues, FixedValues, VariableValues
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.encodings import (
    Compression,
    Flat,
    General,
    InlineBitpacking,
    OutOfLineBitpacking,
    PackedStruct,
    Rle,
    Variable,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Chunks, Int64s, Values
    from lance_core.format.encodings import Encoding, FixedSizeList

MAX_CHUNK_VALUES = 4096
_FLAT_CHUNK_BYTES = 1 << 14
_STRING_CHUNK_BYTES = 1 << 14  # LZ4 finds 4 % more in twice as much, but one value costs twice as much to read
_MAX_LEVEL_BYTES = (1 << 16) - 1  # u16 in the chunk header

# A choice is taken if it leaves at most this part of the bytes of the faster one.
_PACKED_PAYS = 0.85
_RUNS_PAY = 0.75
_LEVEL_RUNS_PAY = 0.5
_DICTIONARY_PAYS = 0.8
_BLOCK_LZ4_PAYS = 0.75

# The same for codecs, tried in this order. zstd is slow to read, but not much slower than 64-bit values packed to many
# bits, for which it can do most.
_STRING_CODECS = {Compression.LZ4: 0.75}
_FIXED_CODECS = {Compression.LZ4: 0.6}
_LONG_CODECS = {Compression.LZ4: 0.6, Compression.ZSTD: 0.5}

_PACKED_WELL = 0.25  # of the flat bytes: not worth a look at codecs
_LONG_BITS = 64
_MIN_COMPRESSED_BYTES = 1 << 12
_CODEC_SAMPLES = 8


def encode_chunks(
    values: Values, *, version: str = "2.2", compression: Compression | Literal["none"] | None = None
) -> tuple[Encoding, Chunks]:
    """Encode the values of a mini-block page.

    Args:
        values: Any number of values.
        version: Data file version; only 2.2 can be written.
        compression: Codec to compress with, if that makes chunks smaller; "none" for none; None to judge by the data.

    Returns:
        The encoding, and chunks of 2 ** k values (k >= 1) but for the last one.

    Raises:
        UnsupportedError: Another version, or a fixed-size list of strings.
    """
    if version != "2.2":
        raise UnsupportedError(f"writing mini-block pages of file version {version}")
    is_free = compression is None
    match values:
        case FixedValues():
            encoding, chunks = _encode_fixed(values, may_compress=is_free)
        case VariableValues():
            encoding, chunks = _encode_variable(values, may_compress=is_free)
        case FixedListValues():
            return _encode_lists(values)
    if isinstance(compression, Compression):
        return _compress(compression, encoding, chunks)
    return encoding, chunks


def encode_packed(rows: FixedValues, field_bits: tuple[int, ...]) -> tuple[Encoding, Chunks]:
    """Encode packed structs of fixed width; pylance 14.0.2 neither packs nor compresses them.

    Args:
        rows: The structs.
        field_bits: Bits of each field.
    """
    bits = flat.bits_of(rows)
    count = fitting_count(bits / 8, _FLAT_CHUNK_BYTES, most=MAX_CHUNK_VALUES)
    return PackedStruct(field_bits, Flat(bits)), flat.encode_chunks(rows, chunk_counts(len(rows), count))


def _paying_codec(chunks: Chunks, best: float, limits: Mapping[Compression, float]) -> Compression | None:
    """The codec that saves enough of what is the best without one, if any.

    Args:
        chunks: Chunks to compress.
        best: Bytes that the best other encoding takes.
        limits: Part of the best that a codec may leave at most, in the order in which to try them.
    """
    size = int(chunks.sizes[0].sum())
    chosen = None
    if best < max(_MIN_COMPRESSED_BYTES, size * _PACKED_WELL):
        return None
    for codec, limit in limits.items():
        compressed = size * general.sampled_ratio(codec, chunks, _CODEC_SAMPLES)
        if compressed <= best * limit:
            chosen, best = codec, compressed
    return chosen


def _compress(compression: Compression, encoding: Encoding, chunks: Chunks) -> tuple[Encoding, Chunks]:
    """Compress chunks, unless that makes them larger."""
    compressed = general.compress_chunks(compression, chunks)
    if len(compressed.buffers[0]) >= int(chunks.sizes[0].sum()):
        return encoding, chunks
    return General(compression, encoding), compressed


def _encode_fixed(values: FixedValues, *, may_compress: bool) -> tuple[Encoding, Chunks]:
    bits, flat_bytes = flat.bits_of(values), values.data.nbytes
    if bits not in flat.WORD_BITS:
        return _encode_flat(values, flat_bytes, _FIXED_CODECS if may_compress and bits > 1 else {})
    widths = bitpack.inline_widths(values)
    packed_bytes = bitpack.inline_bytes(values, widths)
    best = min(flat_bytes, packed_bytes)
    if _may_have_runs(values.data, best):
        counts = chunk_counts(len(values), MAX_CHUNK_VALUES)
        runs = rle.find_runs(values.data, _bounds(counts))
        if runs.num_bytes <= best * _RUNS_PAY:
            return Rle(bits), rle.encode_chunks(runs, counts)
    codecs = (_LONG_CODECS if bits == _LONG_BITS else _FIXED_CODECS) if may_compress else {}
    encoding, chunks = _encode_flat(values, best, codecs)
    if isinstance(encoding, Flat) and packed_bytes <= flat_bytes * _PACKED_PAYS:
        return InlineBitpacking(bits), bitpack.encode_inline(values, widths)
    return encoding, chunks


def _bounds(counts: Int64s) -> Int64s:
    return np.append(np.int64(0), np.cumsum(counts))


def _sampled_runs(data: npt.NDArray[np.generic]) -> float:
    """Number of runs of equal values, judged by a sample."""
    positions = dictionary.sample_positions(len(data) - 1) if len(data) else np.empty(0, np.int64)
    changes = 1 + np.count_nonzero(data[positions] != data[positions + 1])
    return float(changes / max(1, len(positions)) * len(data))


def _may_have_runs(data: npt.NDArray[np.generic], best_bytes: int) -> bool:
    """Whether a sample has runs long enough to beat the best of the other encodings."""
    return len(data) > 0 and _sampled_runs(data) * (data.dtype.itemsize + 1) <= best_bytes


def _encode_flat(values: FixedValues, best: float, codecs: Mapping[Compression, float]) -> tuple[Encoding, Chunks]:
    """Flat, or a codec over it if that pays compared to the best other encoding."""
    bits = flat.bits_of(values)
    count = fitting_count(bits / 8, _FLAT_CHUNK_BYTES, most=MAX_CHUNK_VALUES)
    chunks = flat.encode_chunks(values, chunk_counts(len(values), count))
    codec = _paying_codec(chunks, best, codecs)
    return (Flat(bits), chunks) if codec is None else _compress(codec, Flat(bits), chunks)


def _encode_variable(values: VariableValues, *, may_compress: bool) -> tuple[Encoding, Chunks]:
    width = values.offsets.dtype.itemsize
    encoding = Variable(width * 8)
    mean = int(values.offsets[-1] - values.offsets[0]) / max(1, len(values)) + width
    counts = chunk_counts(len(values), fitting_count(mean, _STRING_CHUNK_BYTES, most=MAX_CHUNK_VALUES))
    chunks = variable.encode_chunks(values, counts)
    codec = _paying_codec(chunks, len(chunks.buffers[0]), _STRING_CODECS) if may_compress else None
    return (encoding, chunks) if codec is None else _compress(codec, encoding, chunks)


def _encode_lists(values: FixedListValues) -> tuple[FixedSizeList, Chunks]:
    encoding = fixed_size_list.encoding_of(values)
    levels, items = fixed_size_list.flatten(values)
    num_items = int(np.prod([level.dimension for level in levels]))
    has_bits = items.data.dtype == np.bool_ or any(level.validity is not None for level in levels)
    row_bytes = num_items * flat.bits_of(items) / 8
    count = fitting_count(row_bytes, _FLAT_CHUNK_BYTES, least=8 if has_bits else 2, most=MAX_CHUNK_VALUES)
    return encoding, fixed_size_list.encode_chunks(values, chunk_counts(len(values), count))


def encode_level_chunks(levels: npt.NDArray[np.uint16], bounds: Int64s) -> tuple[Encoding, Chunks]:
    """Encode repetition or definition levels, each chunk's as a block, all in one encoding.

    Args:
        levels: Shape (n,).
        bounds: Shape (chunks + 1,): where each chunk's levels start, and where the last ones end.

    Returns:
        The encoding, and one buffer for each chunk, of at most 65535 bytes.

    Raises:
        InvalidInputError: A chunk has more levels than its buffer can hold in any encoding; the page must be split.
    """
    return _encode_levels(levels, bounds, _MAX_LEVEL_BYTES)


def encode_levels(levels: npt.NDArray[np.uint16]) -> tuple[Encoding, Bytes]:
    """Encode any number of levels as one block (constant pages)."""
    encoding, chunks = _encode_levels(levels, np.array([0, len(levels)], np.int64), 1 << 62)
    return encoding, chunks.buffers[0][: int(chunks.sizes[0, 0])]


def _encode_levels(levels: npt.NDArray[np.uint16], bounds: Int64s, max_bytes: int) -> tuple[Encoding, Chunks]:
    counts = np.diff(bounds)
    width = max(1, int(levels.max()).bit_length()) if len(levels) else 1
    packed_sizes, _ = bitpack.out_of_line_bytes(counts, 16, width)
    candidates: list[tuple[Encoding, Int64s]] = [(Flat(16), counts * 2), (OutOfLineBitpacking(16, width), packed_sizes)]
    fitting = [(int(sizes.sum()), encoding) for encoding, sizes in candidates if (sizes <= max_bytes).all()]
    best = min(fitting, key=lambda pair: pair[0])[0] if fitting else 1 << 62
    if _may_have_runs(levels, best):
        runs = rle.find_runs(levels, bounds)
        chunks = rle.encode_blocks(runs, counts)
        if len(chunks.buffers[0]) <= best * _LEVEL_RUNS_PAY and (chunks.sizes <= max_bytes).all():
            return Rle(16), chunks
    if not fitting:
        raise InvalidInputError(f"{int(counts.max())} levels in one chunk; split the page")
    encoding = min(fitting, key=lambda pair: pair[0])[1]
    if isinstance(encoding, Flat):
        return encoding, one_buffer(np.ascontiguousarray(levels).view(np.uint8), bounds * 2, counts)
    return encoding, bitpack.encode_out_of_line(FixedValues(levels), bounds, width)


def encode_dictionary(items: Values) -> tuple[Encoding, Bytes]:
    """Encode the items of a dictionary as one block.

    Args:
        items: Values of fixed or variable width.

    Raises:
        UnsupportedError: Items of another kind.
    """
    match items:
        case FixedValues():
            encoding, block = Flat(flat.bits_of(items)), flat.to_bytes(items.data)
        case VariableValues():
            encoding, block = Variable(items.offsets.dtype.itemsize * 8), variable.encode_block(items)
        case FixedListValues():
            raise UnsupportedError("dictionary of fixed-size lists")
    if len(block) >= _MIN_COMPRESSED_BYTES:
        one = np.array([len(items)], np.int64)
        chunk = one_buffer(block, np.array([0, len(block)]), one)
        compressed = general.compress_chunks(Compression.LZ4, chunk).buffers[0]
        if len(compressed) <= len(block) * _BLOCK_LZ4_PAYS:
            return General(Compression.LZ4, encoding), compressed
    return encoding, block


def build_dictionary(values: Values) -> tuple[FixedValues, FixedValues | VariableValues] | None:
    """Split values into indices and items if that saves bytes.

    Args:
        values: Any values; only strings and values of 8 bytes and more are considered.

    Returns:
        Indices (uint32) and items, or None.
    """
    if isinstance(values, FixedListValues) or (isinstance(values, FixedValues) and flat.bits_of(values) < 64):
        return None
    distinct = dictionary.sampled_distinct(values)
    if distinct is None:
        return None
    most = _plain_bytes(values) * _DICTIONARY_PAYS
    if _index_bytes(len(values), distinct) > most:
        return None
    built = dictionary.build(values)
    if built is None:
        return None
    _, items = built
    item_bytes = items.data.nbytes + (items.offsets.nbytes if isinstance(items, VariableValues) else 0)
    return built if _index_bytes(len(values), len(items)) + item_bytes <= most else None


def _index_bytes(count: int, distinct: int) -> float:
    """Bytes of packed indices."""
    return count * max(1, (distinct - 1).bit_length()) / 8


def _plain_bytes(values: FixedValues | VariableValues) -> float:
    """Bytes without dictionary, by the cheapest guess: packed integers or runs, strings with 2 bytes of offset."""
    if isinstance(values, VariableValues):
        return int(values.offsets[-1] - values.offsets[0]) + 2 * len(values)
    data = values.data
    if data.ndim > 1 or len(data) == 0:
        return data.nbytes
    packed = bitpack.inline_bytes(values, bitpack.inline_widths(values))
    return min(data.nbytes, packed, _sampled_runs(data) * (data.dtype.itemsize + 1))
