"""General: the first value buffer of each chunk, a whole block, or each value, compressed by LZ4 or zstd.

LZ4: u32 uncompressed size, LZ4 block. zstd: u64 uncompressed size, zstd frame; old files hold the bare frame.

Thousands of small buffers are decompressed in one call for each thread: zstd frames may follow each other, and the size
in front of each LZ4 block leaves exactly the room that an LZ4 frame needs for the block's compressed size.

Source: message ``General``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import replace
from lance_core.common.late_module import LateModule
from lance_core.common.limits import check_limit
from lance_core.encoding.codecs.codec import CODECS, Codec, Scalar, decode_strings, num_buffers
from lance_core.encoding.kernels import (
    MAX_OUTPUT_BYTES,
    check_sizes,
    empty,
    gather,
    gather_between,
    gather_words,
    put_words,
    starts_of,
    view_buffer,
)
from lance_core.encoding.thread_pool import run_parts
from lance_core.encoding.values import VariableValues
from lance_core.errors import CorruptDataError
from lance_core.format.file.encodings import Compression, General

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.codecs import zstd
    from lance_core.encoding.codecs.zstd import Compress
    from lance_core.encoding.values import Bytes, Chunks, Int64s, LeafValues
    from lance_core.format.file.encodings import Encoding
else:  # it imports the package, which few tables need
    zstd = LateModule("lance_core.encoding.codecs.zstd")

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_RESERVED_BIT = 0x10
_TOO_MUCH = "compressed buffer announces more bytes than it can hold"
_LZ4_MAX_RATIO = 255
_ZSTD_MAX_RATIO = 1 << 17
_LZ4_FRAME_MAGIC = bytes.fromhex("04224d18")
_LZ4_FRAME_FLAGS = 0x68  # version 1, independent blocks, content size, no checksums
_LZ4_BLOCK_64K, _LZ4_BLOCK_4M = 0x40, 0x70
_LZ4_END = bytes(4)
_LZ4_LARGEST_BLOCK = 1 << 22
_LZ4_RAW = pa.Codec("lz4_raw")
_LZ4_HEAD, _ZSTD_HEAD = 4, 8
"""Bytes of the uncompressed size in front."""


def decompress_chunks(compression: Compression, chunks: Chunks) -> Chunks:
    """Return the same chunks with their first value buffer uncompressed.

    Raises:
        CorruptDataError: Sizes or bytes that no compressor makes.
    """
    memory, starts, sizes = chunks.buffers[0], chunks.starts[0], chunks.sizes[0]
    if len(starts) == 1:
        start = int(starts[0])
        data = np.frombuffer(decompress_one(compression, memory[start : start + int(sizes[0])].data), np.uint8)
        sizes = np.array([len(data)], np.int64)
    else:
        data, sizes = _decompress(compression, memory, starts, sizes)
    return replace(
        chunks,
        buffers=(data, *chunks.buffers[1:]),
        starts=np.concatenate((starts_of(sizes)[None, :-1], chunks.starts[1:])),
        sizes=np.concatenate((sizes[None, :], chunks.sizes[1:])),
    )


def decompress_one(compression: Compression, data: memoryview) -> memoryview:
    """One range, uncompressed: as `decompress_chunks`, in plain numbers, which cost a fifth of arrays of one number.

    Raises:
        CorruptDataError: Sizes or bytes that no compressor makes.
    """
    size, is_lz4 = len(data), compression is Compression.LZ4
    claim = int.from_bytes(data[: 4 if is_lz4 else 8], "little")
    if is_lz4:
        is_plain = size > _LZ4_HEAD and max(size, claim) <= _LZ4_LARGEST_BLOCK
    else:  # a bare frame begins with its magic
        is_plain = size >= _ZSTD_HEAD and (claim & 0xFFFFFFFF != _ZSTD_MAGIC or bool(data[4] & _ZSTD_RESERVED_BIT))
    if not is_plain:
        memory = np.frombuffer(data, np.uint8)
        return _decompress(compression, memory, np.zeros(1, np.int64), np.array([size], np.int64))[0].data
    if claim > min((size + 16) * (_LZ4_MAX_RATIO if is_lz4 else _ZSTD_MAX_RATIO), MAX_OUTPUT_BYTES):
        raise CorruptDataError(_TOO_MUCH)
    check_limit("max_decompressed_bytes", claim, "decompressed bytes")
    if is_lz4:
        header = _lz4_frame_header(max(size, claim), claim)
        framed = b"".join((header, (size - _LZ4_HEAD).to_bytes(4, "little"), data[_LZ4_HEAD:], _LZ4_END))
        return memoryview(_decode_lz4("lz4", framed, claim) or b"")
    out: Bytes = empty(claim, np.uint8)
    if claim:
        zstd.ZSTD.decompress(np.frombuffer(data, np.uint8)[_ZSTD_HEAD:], out)
    return out.data


def decompress_values(compression: Compression, values: VariableValues) -> VariableValues:
    """Return values that were compressed one by one; empty ones stay empty.

    Raises:
        CorruptDataError: Sizes or bytes that no compressor makes.
    """
    offsets = values.offsets.astype(np.int64)
    data, sizes = _decompress(compression, values.data, offsets[:-1], np.diff(offsets))
    bounds: npt.NDArray[Any] = starts_of(sizes)
    if bounds[-1] < 1 << 31:
        bounds = bounds.astype(values.offsets.dtype)
    return VariableValues(bounds, data)


def _decompress(compression: Compression, memory: Bytes, starts: Int64s, sizes: Int64s) -> tuple[Bytes, Int64s]:
    """Uncompressed ranges end to end, and their sizes; empty ranges give empty ranges."""
    filled = sizes.nonzero()[0]
    out_sizes = np.zeros(len(sizes), np.int64)
    if len(filled) == 0:
        return memory[:0], out_sizes
    decompress = _decompress_lz4 if compression is Compression.LZ4 else _decompress_zstd
    data, out_sizes[filled] = decompress(memory, starts[filled], sizes[filled])
    if len(data) != out_sizes.sum():
        raise CorruptDataError(f"{compression.name}: {len(data)} bytes where {int(out_sizes.sum())} were announced")
    return data, out_sizes


def _check_claims(sizes: Int64s, claims: Int64s, max_ratio: int) -> None:
    """Refuse uncompressed sizes that so few bytes cannot stand for, before anything is allocated."""
    if np.count_nonzero((claims < 0) | (claims > (sizes + 16) * max_ratio)) or claims.sum() > MAX_OUTPUT_BYTES:
        raise CorruptDataError(_TOO_MUCH)
    check_limit("max_decompressed_bytes", int(claims.sum()), "decompressed bytes")


def _decompress_lz4(memory: Bytes, starts: Int64s, sizes: Int64s) -> tuple[Bytes, Int64s]:
    check_sizes(sizes, 5, "LZ4")
    claims = gather_words(memory, starts, "<u4").astype(np.int64)
    _check_claims(sizes, claims, _LZ4_MAX_RATIO)
    largest = max(int(claims.max()), int(sizes.max()))
    if largest > _LZ4_LARGEST_BLOCK:
        return _decompress_large_lz4(memory, starts + 4, sizes - 4, claims), claims
    header = _lz4_frame_header(largest, int(claims.sum()))
    framed = gather_between(memory, starts, sizes, header, _LZ4_END)
    slots = len(header) + starts_of(sizes)
    put_words(framed, slots[:-1], (sizes - 4).astype("<u4"))
    return view_buffer(_decode_lz4("lz4", framed, int(claims.sum()))), claims


def _lz4_frame_header(largest_block: int, content_size: int) -> bytes:
    """Header of an LZ4 frame that makes the decoder check the size of the content."""
    block = _LZ4_BLOCK_64K if largest_block <= 1 << 16 else _LZ4_BLOCK_4M
    descriptor = bytes((_LZ4_FRAME_FLAGS, block)) + content_size.to_bytes(8, "little")
    checksum = _xxh32(descriptor) >> 8 & 0xFF
    return _LZ4_FRAME_MAGIC + descriptor + bytes((checksum,))


def _xxh32(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes."""
    primes = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
    whole = len(data) // 4 * 4
    state = primes[4] + len(data)
    for at in range(0, whole, 4):
        state = _rotate(state + int.from_bytes(data[at : at + 4], "little") * primes[2], 17) * primes[3]
    for byte in data[whole:]:
        state = _rotate(state + byte * primes[4], 11) * primes[0]
    for shift, prime in ((15, primes[1]), (13, primes[2]), (16, 1)):
        state &= 0xFFFFFFFF
        state = (state ^ state >> shift) * prime
    return state & 0xFFFFFFFF


def _rotate(word: int, bits: int) -> int:
    word &= 0xFFFFFFFF
    return (word << bits | word >> 32 - bits) & 0xFFFFFFFF


def _decompress_large_lz4(memory: Bytes, starts: Int64s, sizes: Int64s, claims: Int64s) -> Bytes:
    """LZ4 blocks too large for a frame, one by one.

    Arrow does not tell how much a block yielded. One byte of room less must be too little.
    """
    codec = pa.Codec("lz4_raw")
    blocks: list[Bytes] = []
    for start, end, claim in zip(starts.tolist(), (starts + sizes).tolist(), claims.tolist(), strict=True):
        block = memory[start:end]
        blocks.append(view_buffer(_decode_lz4("lz4_raw", block, claim)))
        if claim and _yields(codec, block, claim - 1):
            raise CorruptDataError(f"LZ4 block that announces {claim} bytes and holds less")
    return np.concatenate(blocks)


def _yields(codec: pa.Codec, block: Bytes, room: int) -> bool:
    """Return whether a block can be decompressed into so little room."""
    try:
        codec.decompress(pa.py_buffer(block), decompressed_size=room)
    except (OSError, pa.ArrowException):
        return False
    return True


def _decompress_zstd(memory: Bytes, starts: Int64s, sizes: Int64s) -> tuple[Bytes, Int64s]:
    check_sizes(sizes, np.full_like(sizes, 5), "zstd")
    magic = gather_words(memory, starts, "<u4")
    is_bare = (magic == _ZSTD_MAGIC) & (memory[starts + 4] & _ZSTD_RESERVED_BIT == 0)
    is_bare |= sizes < 8
    if is_bare.any():
        if not is_bare.all():
            raise CorruptDataError("zstd: some buffers of a page have a length in front and some have not")
        return _decompress_bare(memory, starts, sizes)
    claims = gather_words(memory, starts, "<u8").astype(np.int64)
    _check_claims(sizes, claims, _ZSTD_MAX_RATIO)
    bounds = starts_of(claims)
    out: Bytes = empty(int(bounds[-1]), np.uint8)

    def fill(part: slice) -> None:
        target = out[int(bounds[part.start]) : int(bounds[part.stop])]
        if len(target):
            zstd.ZSTD.decompress(gather(memory, starts[part] + 8, sizes[part] - 8), target)

    run_parts(fill, claims)
    return out, claims


def _decompress_bare(memory: Bytes, starts: Int64s, sizes: Int64s) -> tuple[Bytes, Int64s]:
    """Frames of unknown size, as old writers left them."""
    frames: list[Bytes] = []
    for start, end in zip(starts.tolist(), (starts + sizes).tolist(), strict=True):
        source = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(memory[start:end])), "zstd")
        try:
            frames.append(view_buffer(source.read_buffer()))
        except (OSError, pa.ArrowException) as error:
            raise CorruptDataError(f"zstd: {error}") from error
    return np.concatenate(frames), np.array([len(frame) for frame in frames], np.int64)


def _decode_lz4(codec: str, data: Bytes | bytes, size: int) -> pa.Buffer | None:
    """One call of an Arrow codec, which must yield exactly ``size`` bytes."""
    if size == 0:
        return None
    try:
        return pa.Codec(codec).decompress(pa.py_buffer(data), decompressed_size=size)
    except (OSError, pa.ArrowException, MemoryError) as error:
        raise CorruptDataError(f"{codec}: {error}") from error


_HEADS = {Compression.LZ4: "<u4", Compression.ZSTD: "<u8"}


def _compressor(compression: Compression, level: int | None, largest: int) -> Compress:
    """Return what compresses ranges of at most so many bytes in this thread."""
    if compression is Compression.ZSTD:
        return zstd.ZSTD.compressor(level, largest)
    return _compress_lz4


def _compress_lz4(data: Bytes) -> bytes:
    return _LZ4_RAW.compress(pa.py_buffer(data), asbytes=True)


def stored_level(compression: Compression, level: int | None) -> int | None:
    """Return the level that matters: LZ4 has none."""
    return level if compression is Compression.ZSTD else None


def compress_block(compression: Compression, data: Bytes, level: int | None = None) -> Bytes:
    """One block with its length in front.

    Args:
        compression: Codec.
        data: At least one byte.
        level: Effort; None for the codec's own choice.
    """
    packed = _compressor(compression, level, len(data))(data)
    return np.frombuffer(np.array([len(data)], _HEADS[compression]).tobytes() + packed, np.uint8)


def compress_chunks(
    compression: Compression, chunks: Chunks, *, level: int | None = None, heads: Int64s | None = None
) -> Chunks:
    """Return the same chunks with their first value buffer compressed.

    Args:
        compression: Codec.
        chunks: The chunks.
        level: Effort; None for the codec's own choice.
        heads: Bytes, up to 128 KiB, in front of each buffer that a zstd frame stores as they are.
    """
    data, bounds = _compress(
        compression, chunks.buffers[0], chunks.starts[0], chunks.sizes[0], level=level, heads=heads
    )
    return replace(
        chunks,
        buffers=(data, *chunks.buffers[1:]),
        starts=np.concatenate((bounds[None, :-1], chunks.starts[1:])),
        sizes=np.concatenate((np.diff(bounds)[None, :], chunks.sizes[1:])),
    )


def compress_values(compression: Compression, values: VariableValues, *, level: int | None = None) -> VariableValues:
    """Return values compressed one by one; empty ones stay empty."""
    offsets = values.offsets.astype(np.int64)
    sizes = np.diff(offsets)
    filled = np.flatnonzero(sizes)
    if len(filled) == 0:
        return values
    data, bounds = _compress(compression, values.data, offsets[:-1][filled], sizes[filled], level=level)
    sizes[filled] = np.diff(bounds)
    ends: npt.NDArray[Any] = starts_of(sizes)
    if ends[-1] < 1 << 31:
        ends = ends.astype(values.offsets.dtype)
    return VariableValues(ends, data)


def _compress(
    compression: Compression,
    memory: Bytes,
    starts: Int64s,
    sizes: Int64s,
    *,
    level: int | None,
    heads: Int64s | None = None,
) -> tuple[Bytes, Int64s]:
    """Ranges compressed one by one, each behind its length, and where each of them starts."""
    largest = int(sizes.max(initial=0))  # of all: the same bytes whatever the number of threads

    def compress(part: slice) -> list[bytes]:
        compress_one = _compressor(compression, level, largest)
        if heads is None:
            return _frames(memory, starts[part], sizes[part], compress_one)
        bodies, body_sizes = starts[part] + heads[part], sizes[part] - heads[part]
        frames = _frames(memory, bodies, body_sizes, compress_one)
        bounds = zip(starts[part].tolist(), bodies.tolist(), frames, body_sizes.tolist(), strict=True)
        return [zstd.with_plain_head(memory[start:body], frame, size) for start, body, frame, size in bounds]

    claims = sizes.astype(_HEADS[compression])
    frames = [frame for part in run_parts(compress, sizes) for frame in part]
    pieces: list[bytes] = [b""] * (2 * len(frames))
    pieces[0::2] = claims.view(f"V{claims.itemsize}").tolist()
    pieces[1::2] = frames
    packed = np.fromiter(map(len, frames), np.int64, len(frames)) + claims.itemsize
    return np.frombuffer(b"".join(pieces), np.uint8), starts_of(packed)


def _frames(memory: Bytes, starts: Int64s, sizes: Int64s, compress: Compress) -> list[bytes]:
    """Return each of some ranges, compressed."""
    ends = starts + sizes
    return [compress(memory[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def sampled_ratio(compression: Compression, chunks: Chunks, samples: int) -> float:
    """Return the share that compression leaves of the first value buffers, judged by some chunks."""
    last = len(chunks.counts) - 1
    chosen = sorted({number * last // max(1, samples - 1) for number in range(samples)})
    starts, sizes = chunks.starts[0, chosen], chunks.sizes[0, chosen]
    compress = _compressor(compression, None, int(sizes.max(initial=0)))
    frames = _frames(chunks.buffers[0], starts, sizes, compress)
    after = len(frames) * np.dtype(_HEADS[compression]).itemsize + sum(map(len, frames))
    return after / max(1, int(sizes.sum()))


def _unwrap(encoding: General, chunks: Chunks) -> tuple[Encoding, Chunks]:
    return encoding.values, decompress_chunks(encoding.compression, chunks)


def _decode_one(encoding: General) -> Scalar | None:
    make = CODECS[type(encoding.values)].decode_one
    scalar = None if make is None else make(encoding.values)
    if scalar is None or scalar.open is not None:
        return None
    return scalar._replace(open=partial(decompress_one, encoding.compression))


def _decode_strings(encoding: General, values: VariableValues) -> LeafValues:
    return decode_strings(encoding.values, decompress_values(encoding.compression, values))


GENERAL = Codec(
    serves=General,
    decode_one=_decode_one,
    num_buffers=lambda encoding: max(1, num_buffers(encoding.values)),
    unwrap=_unwrap,
    decode_strings=_decode_strings,
)
