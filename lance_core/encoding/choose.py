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
    Rle,
    Variable,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Chunks, Int64s, Values
    from lance_core.format.encodings import Encoding, FixedSizeList

MAX_CHUNK_VALUES = 4096
_FLAT_CHUNK_BYTES = 1 << 14
_STRING_CHUNK_BYTES = 1 << 15  # below, LZ4 finds less
_MAX_LEVEL_BYTES = (1 << 16) - 1  # u16 in the chunk header

# A choice is taken if it leaves at most this part of the bytes of the faster one.
_PACKED_PAYS = 0.85
_RUNS_PAY = 0.75
_LZ4_PAYS = 0.75
_FLAT_LZ4_PAYS = 0.6
_LEVEL_RUNS_PAY = 0.5
_DICTIONARY_PAYS = 0.8

_MIN_COMPRESSED_BYTES = 1 << 12
_LZ4_SAMPLES = 8


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
    match values:
        case FixedValues():
            encoding, chunks = _encode_fixed(values)
        case VariableValues():
            encoding, chunks = _encode_variable(values)
        case FixedListValues():
            return _encode_lists(values)
    if compression == "none":
        return encoding, chunks
    if compression is None:
        compression = Compression.LZ4 if _lz4_pays(encoding, chunks) else None
    return (encoding, chunks) if compression is None else _compress(compression, encoding, chunks)


def _lz4_pays(encoding: Encoding, chunks: Chunks) -> bool:
    """Whether LZ4 saves enough of chunks that are fast to read without."""
    match encoding:
        case Variable():
            most = _LZ4_PAYS
        case Flat(bits) if bits > 1:
            most = _FLAT_LZ4_PAYS
        case _:
            return False
    if len(chunks.buffers[0]) < _MIN_COMPRESSED_BYTES:
        return False
    chosen = np.unique(np.linspace(0, len(chunks.counts) - 1, _LZ4_SAMPLES).astype(np.int64))
    starts = chunks.starts[0, chosen]
    ranges = zip(starts.tolist(), (starts + chunks.sizes[0, chosen]).tolist(), strict=True)
    return general.lz4_ratio(chunks.buffers[0][start:end] for start, end in ranges) <= most


def _compress(compression: Compression, encoding: Encoding, chunks: Chunks) -> tuple[Encoding, Chunks]:
    """Compress chunks, unless that makes them larger."""
    compressed = general.compress_chunks(compression, chunks)
    if len(compressed.buffers[0]) >= int(chunks.sizes[0].sum()):
        return encoding, chunks
    return General(compression, encoding), compressed


def _encode_fixed(values: FixedValues) -> tuple[Encoding, Chunks]:
    bits = flat.bits_of(values)
    if bits not in flat.WORD_BITS:
        return _encode_flat(values, bits)
    flat_bytes = values.data.nbytes
    widths = bitpack.inline_widths(values)
    packed_bytes = bitpack.inline_bytes(values, widths)
    best = min(flat_bytes, packed_bytes)
    if _may_have_runs(values.data, best):
        counts = chunk_counts(len(values), MAX_CHUNK_VALUES)
        runs = rle.find_runs(values.data, _bounds(counts))
        if runs.num_bytes <= best * _RUNS_PAY:
            return Rle(bits), rle.encode_chunks(runs, counts)
    if packed_bytes <= flat_bytes * _PACKED_PAYS:
        return InlineBitpacking(bits), bitpack.encode_inline(values, widths)
    return _encode_flat(values, bits)


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


def _encode_flat(values: FixedValues, bits: int) -> tuple[Encoding, Chunks]:
    count = fitting_count(bits / 8, _FLAT_CHUNK_BYTES, most=MAX_CHUNK_VALUES)
    return Flat(bits), flat.encode_chunks(values, chunk_counts(len(values), count))


def _encode_variable(values: VariableValues) -> tuple[Encoding, Chunks]:
    width = values.offsets.dtype.itemsize
    mean = int(values.offsets[-1] - values.offsets[0]) / max(1, len(values)) + width
    counts = chunk_counts(len(values), fitting_count(mean, _STRING_CHUNK_BYTES, most=MAX_CHUNK_VALUES))
    return Variable(width * 8), variable.encode_chunks(values, counts)


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
        if len(compressed) <= len(block) * _LZ4_PAYS:
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
    most = _plain_bytes(values) * _DICTIONARY_PAYS
    distinct = dictionary.sampled_distinct(values)
    if distinct is None or _index_bytes(len(values), distinct) > most:
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
