"""Choose the encoding for the values of a page.

What a field's metadata asks for goes first (`PageOptions`). The rest is judged by bytes, with a thumb on the scale for
what is fast to read: a slower encoding must save a good part of the bytes.

Small pages, those of a commit of a thousand rows, are a parameter of these choices: they pay for steps, not for bytes,
so no codec is tried on them, and runs only where they may save some.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lance_core.encoding import registry
from lance_core.encoding.choose_strings import encode_strings
from lance_core.encoding.codecs import (
    bitpack,
    byte_stream_split,
    dictionary,
    fastlanes,
    fixed_size_list,
    flat,
    general,
    rle,
)
from lance_core.encoding.kernels import chunk_counts, fitting_count, starts_of
from lance_core.encoding.options import PageOptions
from lance_core.encoding.values import FixedListValues, FixedValues, VariableValues
from lance_core.format.file.encodings import (
    ByteStreamSplit,
    Compression,
    Flat,
    General,
    InlineBitpacking,
    PackedStruct,
    Rle,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from lance_core.encoding.values import Chunks, Values
    from lance_core.format.file.encodings import Encoding, FixedSizeList

MAX_CHUNK_VALUES = 4096
LARGE_VALUE_BYTES = 256
"""Values from this size on are zipped with their levels, so that one can be read without its neighbours."""
SMALL_CHUNK_BYTES = 1 << 13
"""Bytes that plain chunks of small pages aim at."""
LEAST_RUN_BYTES = 512
"""Runs of a small page that take less than this are not worth the time."""

_FLAT_CHUNK_BYTES = {"2.1": 1 << 13, "2.2": 1 << 14}
_FREE = PageOptions()

# A choice is taken if it leaves at most this part of the bytes of the faster one. To unpack a value takes longer the
# wider its word is: 0.15 ns for 8 bits, 0.5 for 16, 1 for 32, 3 for 64. So bits must save the same part of words of any
# width, up to 6 of 8 or 48 of 64, and then half a byte or more for each nanosecond. Words of 16 bits are places in
# dictionaries of 1,000 items and more: to unpack them takes longer than to look up what is there, so up to 10 bits.
_PACKED_PAYS = {8: 0.76, 16: 0.65, 32: 0.76, 64: 0.76}
_PACKED_PAYS_IF_SMALL = 0.85
_PACKED_WELL_IF_SMALL = 0.125  # of the flat bytes: nothing else saves much on a small page
_RUNS_PAY = 0.75

_NOISE = 0.95  # what LZ4 leaves of bytes in which zstd will not find much either
_PACKED_WELL = 0.25  # of the flat bytes: not worth a look at codecs
_LONG_BITS = 64
_SPLIT_BITS = (32, 64)
_MIN_COMPRESSED_BYTES = 1 << 12
_CHUNKS_A_SAMPLE = 8
_MAX_SAMPLES = 8


class Way(Enum):
    """Storage of words that no codec saves enough on."""

    PLAIN = "as they are"
    PACKED = "without the upper bits, which are zero"
    RUNS = "as runs of equal values, if these take as few bytes as they seem to"


Choice: TypeAlias = "Way | tuple[Encoding, Chunks]"


def encode_chunks(
    values: Values, options: PageOptions = _FREE, *, max_values: int = MAX_CHUNK_VALUES
) -> tuple[Encoding, Chunks]:
    """Encode the values of a mini-block page.

    Args:
        values: Any number of values.
        options: How to write.
        max_values: Values in a chunk at most.

    Returns:
        The encoding, and chunks of 2 ** k values (k >= 1) but for the last one.

    Raises:
        UnsupportedError: A fixed-size list of strings.
    """
    asked = None if options.compression is None else registry.codec_named(options.compression)
    if asked is not None and asked.encode is not None:
        encoded = asked.encode(values, options.chunk_bytes, max_values)
        if encoded is not None:
            return encoded
    match values:
        case FixedValues():
            return _encode_fixed(values, options, max_values)
        case VariableValues():
            return encode_strings(values, options, max_values)
        case FixedListValues():
            return _encode_lists(values, options, max_values)


def encode_packed(
    rows: FixedValues, field_bits: tuple[int, ...], options: PageOptions, max_values: int
) -> tuple[Encoding, Chunks]:
    """Encode packed structs of fixed width; pylance 14.0.2 neither packs nor compresses them.

    Args:
        rows: The structs.
        field_bits: Bits of each field.
        options: How to write.
        max_values: Values in a chunk at most.
    """
    encoding, chunks = _encode_flat(rows, options, max_values)
    return PackedStruct(field_bits, encoding), chunks


def _encode_fixed(values: FixedValues, options: PageOptions, max_values: int) -> tuple[Encoding, Chunks]:
    if options.codec is not None:
        return _encode_compressed(values, options.codec, options, max_values)
    bits, flat_bytes = flat.bits_of(values), values.data.nbytes
    if options.compression == "none":
        return _encode_flat(values, options, max_values)
    if bits not in flat.WORD_BITS:
        codecs = options.codecs.fixed if bits > 1 and options.compression is None else {}
        return _maybe_compressed(*_encode_flat(values, options, max_values), flat_bytes, codecs)
    widths = bitpack.inline_widths(values)
    packed_bytes = bitpack.inline_bytes(values, widths)
    run_bytes = sampled_run_bytes(values.data)
    choice = choose_words(values.data, packed_bytes, run_bytes, options, max_values=max_values)
    if choice is Way.RUNS:
        runs = _encode_runs(values, _most_run_bytes(flat_bytes, packed_bytes), options, max_values)
        if runs is not None:
            return runs
        choice = choose_words(values.data, packed_bytes, math.inf, options, max_values=max_values)
    if choice is Way.PACKED:
        return InlineBitpacking(bits), bitpack.encode_inline(values, widths)
    return _encode_flat(values, options, max_values) if isinstance(choice, Way) else choice


def choose_words(
    data: npt.NDArray[Any],
    packed_bytes: int,
    run_bytes: float,
    options: PageOptions,
    *,
    max_values: int = MAX_CHUNK_VALUES,
    is_small: bool = False,
) -> Choice:
    """Choose how words of 8, 16, 32 or 64 bits are stored.

    Args:
        data: Shape (n,), unsigned.
        packed_bytes: Bytes that they take if blocks of 1024 are packed.
        run_bytes: Bytes that they take as runs of any length; may be a guess.
        options: How to write; any codec that is asked for was tried before.
        max_values: Values in a chunk at most.
        is_small: The page is small.

    Returns:
        The way; encoding and chunks if a codec saves enough.
    """
    bits, plain_bytes = data.itemsize * 8, data.nbytes
    if run_bytes <= _most_run_bytes(plain_bytes, packed_bytes, is_small=is_small):
        return Way.RUNS
    if not is_small:
        codecs = _codecs_for(bits, options) if options.compression is None else {}
        flat_chunks = _encode_flat(FixedValues(data), options, max_values)
        best = min(plain_bytes, packed_bytes)
        encoding, chunks = _maybe_compressed(*flat_chunks, best, codecs, split_pays=options.codecs.split_long)
        if not isinstance(encoding, Flat):
            return encoding, chunks
    pays = _PACKED_PAYS_IF_SMALL if is_small else _PACKED_PAYS[bits]
    return Way.PACKED if packed_bytes <= plain_bytes * pays and max_values >= fastlanes.BLOCK else Way.PLAIN


def is_packed_well(plain_bytes: int, packed_bytes: int) -> bool:
    """Return whether nothing saves much on a small page of words that are packed."""
    return packed_bytes <= plain_bytes * _PACKED_WELL_IF_SMALL


def _most_run_bytes(plain_bytes: int, packed_bytes: int, *, is_small: bool = False) -> int:
    """Return the bytes that runs may take at most; 0 if they are not worth a look."""
    most = int(min(plain_bytes, packed_bytes) * _RUNS_PAY)
    if is_small and (most < LEAST_RUN_BYTES or packed_bytes <= plain_bytes * _PACKED_WELL_IF_SMALL):
        return 0
    return most


def _codecs_for(bits: int, options: PageOptions) -> Mapping[Compression, float]:
    """Return the codecs that may be tried on words of so many bits, see `_maybe_compressed`."""
    return options.codecs.long if bits == _LONG_BITS else options.codecs.fixed


def _encode_flat(values: FixedValues, options: PageOptions, max_values: int) -> tuple[Flat, Chunks]:
    bits = flat.bits_of(values)
    counts = chunk_counts(len(values), flat_count(bits, options, max_values))
    return Flat(bits), flat.encode_chunks(values, counts)


def flat_count(bits: int, options: PageOptions, max_values: int = MAX_CHUNK_VALUES, *, is_small: bool = False) -> int:
    """Return the values of a chunk that are stored as they are."""
    least = 2 if bits % 8 == 0 else 8
    target = SMALL_CHUNK_BYTES if is_small else _FLAT_CHUNK_BYTES[options.version]
    return fitting_count(bits / 8, target, least=least, most=max_values)


def _encode_runs(
    values: FixedValues, most: int, options: PageOptions, max_values: int
) -> tuple[Encoding, Chunks] | None:
    """Runs of equal values, if they take at most so many bytes."""
    counts = chunk_counts(len(values), max_values)
    runs = rle.find_runs(values.data, starts_of(counts))
    limit = options.rle_threshold
    if runs.num_bytes > most or (limit is not None and len(runs.values) > limit * len(values)):
        return None
    return Rle(flat.bits_of(values)), rle.encode_chunks(runs, counts)


def sampled_run_bytes(data: npt.NDArray[np.generic]) -> float:
    """Return the bytes of runs of equal values, judged by a sample; infinite if there are no values."""
    if not len(data):
        return math.inf
    positions = dictionary.sample_positions(len(data) - 1)
    if len(positions) == len(data) - 1:
        changes = 1 + np.count_nonzero(data[:-1] != data[1:])
    else:
        changes = 1 + np.count_nonzero(data[positions] != data[1:][positions])
    return float(changes / max(1, len(positions)) * len(data)) * (data.dtype.itemsize + 1)


def _maybe_compressed(
    encoding: Encoding, chunks: Chunks, best: float, limits: Mapping[Compression, float], *, split_pays: float = 0.0
) -> tuple[Encoding, Chunks]:
    """Chunks under the codec that saves enough of what is the best without one, if any does.

    Args:
        encoding: Encoding of the chunks.
        chunks: Chunks to compress.
        best: Bytes that the best other encoding takes.
        limits: Part of the best that a codec may leave at most, in the order in which to try them.
        split_pays: Part of what zstd leaves of words of 64 bits that LZ4 may leave of their planes of bytes.
    """
    size = int(chunks.sizes[0].sum())
    if best < max(_MIN_COMPRESSED_BYTES, size * _PACKED_WELL):
        return encoding, chunks
    chosen = None
    for codec, limit in limits.items():
        ratio = general.sampled_ratio(codec, chunks, num_samples(len(chunks.counts)))
        if size * ratio <= best * limit:
            chosen, best = codec, size * ratio
        if ratio > _NOISE:
            break
    if chosen is None:
        return encoding, chunks
    if chosen is Compression.ZSTD and encoding == Flat(_LONG_BITS):
        split = byte_stream_split.encode_chunks(flat.from_bytes(chunks.buffers[0], _LONG_BITS), chunks.counts)
        if size * general.sampled_ratio(Compression.LZ4, split, num_samples(len(split.counts))) <= best * split_pays:
            return _compress(Compression.LZ4, ByteStreamSplit(_LONG_BITS), split, None)
    return _compress(chosen, encoding, chunks, None)


def num_samples(num_chunks: int) -> int:
    """Chunks to look at before a codec is used on all: few enough to cost little."""
    return min(_MAX_SAMPLES, -(-num_chunks // _CHUNKS_A_SAMPLE))


def _compress(
    compression: Compression, encoding: Encoding, chunks: Chunks, level: int | None
) -> tuple[Encoding, Chunks]:
    """Compress chunks, unless that makes them larger."""
    compressed = general.compress_chunks(compression, chunks, level=level)
    if len(compressed.buffers[0]) >= int(chunks.sizes[0].sum()):
        return encoding, chunks
    return General(compression, encoding, general.stored_level(compression, level)), compressed


def _encode_compressed(
    values: FixedValues, codec: Compression, options: PageOptions, max_values: int
) -> tuple[Encoding, Chunks]:
    """Return values under a codec that was asked for, in the order of bytes that it can do most with."""
    candidates: list[tuple[Encoding, Chunks]] = [_encode_flat(values, options, max_values)]
    bits = flat.bits_of(values)
    if bits in _SPLIT_BITS and options.bss != "off":
        split = ByteStreamSplit(bits), byte_stream_split.encode_chunks(values, candidates[0][1].counts)
        candidates = [split] if options.bss == "on" else [*candidates, split]
    if bits in flat.WORD_BITS and options.bss != "on":
        plain_bytes, widths = values.data.nbytes, bitpack.inline_widths(values)
        most = _most_run_bytes(plain_bytes, plain_bytes)
        if sampled_run_bytes(values.data) <= most and (runs := _encode_runs(values, most, options, max_values)):
            candidates.append(runs)
        is_worth_it = bitpack.inline_bytes(values, widths) <= plain_bytes * _PACKED_PAYS[bits]
        if is_worth_it and max_values >= fastlanes.BLOCK:
            candidates.append((InlineBitpacking(bits), bitpack.encode_inline(values, widths)))
    if len(candidates) > 1:
        candidates.sort(key=lambda pair: _compressed_bytes(codec, pair[1]))
    return _compress(codec, *candidates[0], options.compression_level)


def _compressed_bytes(codec: Compression, chunks: Chunks) -> float:
    """Bytes of chunks if their first buffers were compressed, judged by a sample; a codec is left if it cannot help."""
    ratio = general.sampled_ratio(codec, chunks, num_samples(len(chunks.counts)))
    return int(chunks.sizes[0].sum()) * min(1.0, ratio) + int(chunks.sizes[1:].sum())


def _encode_lists(values: FixedListValues, options: PageOptions, max_values: int) -> tuple[FixedSizeList, Chunks]:
    encoding = fixed_size_list.encoding_of(values)
    levels, items = fixed_size_list.flatten(values)
    num_items = int(np.prod([level.dimension for level in levels]))
    has_bits = items.data.dtype == np.bool_ or any(level.validity is not None for level in levels)
    row_bytes = num_items * flat.bits_of(items) / 8
    least = 8 if has_bits else 2
    count = fitting_count(row_bytes, _FLAT_CHUNK_BYTES[options.version], least=least, most=max_values)
    return encoding, fixed_size_list.encode_chunks(values, chunk_counts(len(values), count))
