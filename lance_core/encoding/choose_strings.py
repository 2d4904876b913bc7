"""Choose the encoding for strings, in mini-block chunks and one by one.

Codecs are judged by samples. LZ4 costs next to nothing to read. zstd finds much more, the more the larger a chunk is,
while a single value costs as much to read as its whole chunk. FSST reads single values for nothing, but is no smaller
than zstd and takes two to three times as long to write in numpy; it is written only if the field asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.encoding.codecs import fsst, general, variable
from lance_core.encoding.codecs.zstd import WORDS_LEVEL
from lance_core.encoding.kernels import chunk_counts, fitting_count, one_buffer, starts_of
from lance_core.encoding.values import Chunks, VariableValues
from lance_core.format.encodings import Compression, Fsst, General, Variable

if TYPE_CHECKING:
    from lance_core.encoding.options import PageOptions
    from lance_core.encoding.values import Int64s
    from lance_core.format.encodings import Encoding

_PLAIN_CHUNK_BYTES = 1 << 14
_COMPRESSED_CHUNK_BYTES = 1 << 13
"""Log lines, where that comes to 5 KB. zstd: twice as much leaves 8 % less and takes 9/10 of the time to write and to
scan, but scattered rows cost 2/5 more. Half as much leaves 14 % more, which is as much as pylance's FSST does, and
takes half as long again to write. LZ4: twice as much leaves 6 % less and takes 9/10 of the time to write and to scan,
but scattered rows cost a third more. Half as much leaves 9 % more and costs a fifth more to scan."""
_MIN_COMPRESSED_BYTES = 1 << 12
_MIN_ZIPPED_BYTES = 1 << 15
_LZ4_PAYS = 0.75
_ZSTD_PAYS = 0.8
"""zstd must leave at most this part of what LZ4 or nothing leaves."""
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
    codec, level = options.codec, options.compression_level
    if options.compression is None and int(values.offsets[-1]) >= _MIN_COMPRESSED_BYTES:
        codec, level = _paying_codec(_sample(values))
    target = _PLAIN_CHUNK_BYTES if codec is None else _COMPRESSED_CHUNK_BYTES
    chunks = _chunks(values, target, options, max_values)
    if codec is None:
        return plain, chunks
    compressed = general.compress_chunks(codec, chunks, level=level)
    if len(compressed.buffers[0]) >= len(chunks.buffers[0]):
        return plain, chunks
    return General(codec, plain, general.stored_level(codec, level)), compressed


def _chunks(values: VariableValues, target: int, options: PageOptions, max_values: int) -> Chunks:
    count = fitting_count(variable.mean_bytes(values), options.chunk_bytes or target, most=max_values)
    return variable.encode_chunks(values, chunk_counts(len(values), count))


def paying_codec(values: VariableValues) -> Compression | None:
    """The codec that strings should be compressed with in chunks, if any, judged by a sample."""
    return _paying_codec(_sample(values))[0]


def _paying_codec(sample: Chunks) -> tuple[Compression | None, int | None]:
    """The codec that strings should be compressed with, if any, and its level (None for the codec's own)."""
    every = len(sample.counts)
    fast = general.sampled_ratio(Compression.LZ4, sample, every)
    small = general.sampled_ratio(Compression.ZSTD, sample, every)
    if small > _ZSTD_PAYS * min(1.0, fast):
        return (Compression.LZ4 if fast <= _LZ4_PAYS else None), None
    smaller = general.compress_chunks(Compression.ZSTD, sample, level=_HIGH_LEVEL)
    pays = len(smaller.buffers[0]) <= _HIGH_LEVEL_PAYS * small * len(sample.buffers[0])
    return Compression.ZSTD, _HIGH_LEVEL if pays else None


def _sample(values: VariableValues) -> Chunks:
    """Some chunks spread over all values."""
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
    if options.codec is None and not _pays_one_by_one(values):
        return plain, values
    compressed = general.compress_values(Compression.ZSTD, values, level=level)
    if int(compressed.offsets[-1]) >= int(values.offsets[-1]):
        return plain, values
    return General(Compression.ZSTD, plain, level), compressed


def _pays_one_by_one(values: VariableValues) -> bool:
    """Return whether zstd makes single values so much smaller that it should be used; judged by some values."""
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
    return general.sampled_ratio(Compression.ZSTD, sample, wanted) <= _LZ4_PAYS
