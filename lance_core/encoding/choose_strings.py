"""Choose the encoding for strings, in mini-block chunks and one by one.

Codecs are judged by samples, and the profile says what they must save. LZ4 costs next to nothing to read. zstd finds
much more, the more the larger a chunk is, while a single value costs as much to read as its whole chunk. FSST reads
single values for nothing, but is no smaller than zstd and takes two to three times as long to write in numpy; it is
written only if the field asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.encoding.codecs import fsst, general, variable
from lance_core.encoding.codecs.zstd import WORDS_LEVEL
from lance_core.encoding.kernels import chunk_counts, fitting_count, one_buffer, starts_of
from lance_core.encoding.values import Chunks, VariableValues
from lance_core.format.file.encodings import Compression, Fsst, General, Variable

if TYPE_CHECKING:
    from lance_core.encoding.options import PageOptions
    from lance_core.encoding.values import Int64s
    from lance_core.format.file.encodings import Encoding

_PLAIN_CHUNK_BYTES = 1 << 14
_MIN_ZIPPED_BYTES = 1 << 15
_HIGH_LEVEL = WORDS_LEVEL
_HIGH_LEVEL_PAYS = 0.97
"""The same for the higher level and the codec's own: texts of few words gain, and are also faster to read."""
_SAMPLE_BYTES = 1 << 14
_MAX_SAMPLES = 4
_SAMPLED_PART = 1 / 24


def encode_strings(values: VariableValues, options: PageOptions, max_values: int) -> tuple[Encoding, Chunks]:
    """Encode strings as mini-block chunks.

    Args:
        values: Any number of values.
        options: How to write.
        max_values: Values in a chunk at most.
    """
    plain = Variable(values.offsets.dtype.itemsize * 8)
    codec, level, plain_offsets = options.codec, options.compression_level, False
    if options.compression is None:
        codec, level, plain_offsets = _paying_codec(values, options)
    target = _PLAIN_CHUNK_BYTES if codec is None else options.fitting(options.codecs.string_chunk_bytes[codec])
    chunks = _chunks(values, target, options, max_values)
    if codec is None:
        return plain, chunks
    heads = variable.offset_bytes(values, chunks.counts) if plain_offsets else None
    compressed = general.compress_chunks(codec, chunks, level=level, heads=heads)
    if len(compressed.buffers[0]) >= len(chunks.buffers[0]):
        return plain, chunks
    return General(codec, plain, general.stored_level(codec, level)), compressed


def may_be_compressed(num_bytes: int, options: PageOptions) -> bool:
    """Return whether the profile tries codecs on so many bytes of strings."""
    return num_bytes > options.codecs.least_string_bytes


def _chunks(values: VariableValues, target: int, options: PageOptions, max_values: int) -> Chunks:
    count = fitting_count(variable.mean_bytes(values), options.chunk_bytes or target, most=max_values)
    return variable.encode_chunks(values, chunk_counts(len(values), count))


def is_compressible(values: VariableValues, options: PageOptions) -> bool:
    """Return whether the profile compresses strings in chunks, judged by a sample."""
    return _paying_codec(values, options)[0] is not None


def _paying_codec(values: VariableValues, options: PageOptions) -> tuple[Compression | None, int | None, bool]:
    """Return how strings should be compressed, judged by a sample.

    Returns:
        The codec, if any; its level, None for the codec's own; True if zstd should store offsets as they are.
    """
    if not may_be_compressed(int(values.offsets[-1] - values.offsets[0]), options):
        return None, None, False
    sample = _sample(values)
    every = len(sample.counts)
    chosen, best = None, 1.0
    for codec, limit in options.codecs.strings.items():
        ratio = general.sampled_ratio(codec, sample, every)
        if ratio <= best * limit:
            chosen, best = codec, ratio
    if chosen is not Compression.ZSTD:
        return chosen, None, False
    size = best * len(sample.buffers[0])
    smaller = general.compress_chunks(Compression.ZSTD, sample, level=_HIGH_LEVEL)
    level = _HIGH_LEVEL if len(smaller.buffers[0]) <= _HIGH_LEVEL_PAYS * size else None
    heads = variable.offset_bytes(values, sample.counts)
    faster = general.compress_chunks(Compression.ZSTD, sample, level=level, heads=heads)
    limit = options.codecs.plain_offsets * (size if level is None else len(smaller.buffers[0]))
    return Compression.ZSTD, level, len(faster.buffers[0]) <= limit


def _sample(values: VariableValues) -> Chunks:
    """Return some chunks spread over all values."""
    total = int(values.offsets[-1] - values.offsets[0]) + values.offsets.nbytes
    count = fitting_count(variable.mean_bytes(values), _SAMPLE_BYTES, least=1, most=len(values))
    wanted = max(1, min(_MAX_SAMPLES, int(total * _SAMPLED_PART) // _SAMPLE_BYTES))
    firsts = np.unique(np.linspace(0, max(0, len(values) - count), wanted).astype(np.int64))
    parts = [_part(values, first, count) for first in firsts.tolist()]
    chunks = [variable.encode_chunks(part, np.array([len(part)])) for part in parts]
    bounds = starts_of(np.array([len(part_chunks.buffers[0]) for part_chunks in chunks], np.int64))
    memory = np.concatenate([part_chunks.buffers[0] for part_chunks in chunks])
    return one_buffer(memory, bounds, np.array([len(part) for part in parts], np.int64))


def _part(values: VariableValues, first: int, count: int) -> VariableValues:
    offsets = values.offsets[first : first + count + 1]
    begin, end = int(offsets[0]), int(offsets[-1])
    return VariableValues(offsets - offsets[0], values.data[begin:end])


def encode_zipped(values: VariableValues, options: PageOptions) -> tuple[Encoding, VariableValues]:
    """Encode strings one by one for a full-zip page.

    Args:
        values: The values; those of nulls are empty.
        options: How to write.

    Returns:
        The encoding, and what stands for each value.
    """
    plain = Variable(values.offsets.dtype.itemsize * 8)
    if options.compression == "none":
        return plain, values
    if options.compression == "fsst":
        table, codes = fsst.encode(values)
        return (plain, values) if table is None else (Fsst(table, plain), codes)
    # pylance 14.0.2 cannot read LZ4 here, and writes zstd where LZ4 is asked for.
    level = options.compression_level if options.compression == "zstd" else None
    if options.codec is None and not _pays_one_by_one(values, options.codecs.separate_strings):
        return plain, values
    compressed = general.compress_values(Compression.ZSTD, values, level=level)
    if int(compressed.offsets[-1]) >= int(values.offsets[-1]):
        return plain, values
    return General(Compression.ZSTD, plain, level), compressed


def _pays_one_by_one(values: VariableValues, limit: float | None) -> bool:
    """Return whether zstd leaves at most this part of single values; judged by some of them."""
    if limit is None:
        return False
    sizes: Int64s = np.diff(values.offsets).astype(np.int64)
    filled = np.flatnonzero(sizes)
    if int(sizes.sum()) < _MIN_ZIPPED_BYTES:
        return False
    wanted = min(_MAX_SAMPLES, len(filled))
    chosen = filled[np.linspace(0, len(filled) - 1, wanted).astype(np.int64)]
    sample = Chunks(
        buffers=(values.data,),
        starts=values.offsets[chosen].astype(np.int64)[None, :],
        sizes=np.minimum(sizes[chosen], _SAMPLE_BYTES)[None, :],
        counts=np.ones(wanted, np.int64),
    )
    return general.sampled_ratio(Compression.ZSTD, sample, wanted) <= limit
