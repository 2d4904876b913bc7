"""Variable: offsets, then bytes.

In mini-block chunks (n + 1) offsets of 32 or 64 bits count from the start of the buffer. As a block (dictionaries) a
header comes first and offsets count from 0: for 32 bits ``u32 32, u32 start, (n + 1) u32, bytes at start``, for 64 bits
the same in u64. Source: message ``Variable``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.encoding.physical.flat import from_bytes
from lance_core.encoding.physical.memory import (
    check_sizes,
    empty,
    gather,
    gather_windows,
    join_ranges,
    one_buffer,
    starts_of,
)
from lance_core.encoding.values import VariableValues
from lance_core.errors import CorruptDataError, UnsupportedError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Chunks, Int64s

MAX_INT32 = (1 << 31) - 1
_PAD = 72


def offset_width(offset_bits: int) -> int:
    """Bytes of an offset.

    Raises:
        CorruptDataError: Not 32 or 64 bits.
    """
    if offset_bits not in (32, 64):
        raise CorruptDataError(f"Variable encoding with offsets of {offset_bits} bits; the format knows 32 and 64")
    return offset_bits // 8


def decode_chunks(offset_bits: int, chunks: Chunks) -> VariableValues:
    """All values of all chunks. Offsets come back as int32 if they fit and were so, else as int64.

    Raises:
        CorruptDataError: Offsets that go back or leave their chunk.
    """
    width = offset_width(offset_bits)
    memory, starts, sizes, counts = chunks.buffers[0], chunks.starts[0], chunks.sizes[0], chunks.counts
    needed = (counts + 1) * width
    check_sizes(sizes, needed, "Variable")
    if len(counts) == 0:
        return VariableValues(np.zeros(1, np.int32), memory[:0])
    raw = from_bytes(gather(memory, starts, needed), offset_bits).data
    firsts = starts_of(counts + 1)
    begins, ends = raw[firsts[:-1]].astype(np.int64), raw[firsts[1:] - 1].astype(np.int64)
    _check_bounds(begins, ends, needed, sizes)
    data = gather(memory, starts + begins, ends - begins)
    wide = len(data) > MAX_INT32 or offset_bits == 64
    return VariableValues(_join_offsets(raw, counts, begins, ends, wide=wide), data)


def decode_points(offset_bits: int, chunks: Chunks, chunk_of: Int64s, index: Int64s) -> VariableValues:
    """Single values: value ``index[i]`` of chunk ``chunk_of[i]``.

    Raises:
        CorruptDataError: Offsets that go back or leave their chunk.
    """
    width = offset_width(offset_bits)
    needed = (chunks.counts + 1) * width
    check_sizes(chunks.sizes[0], needed, "Variable")
    starts = chunks.starts[0][chunk_of]
    bounds = gather_windows(chunks.buffers[0], starts + index * width, 2 * width).view(f"<u{width}").astype(np.int64)
    begins, ends = bounds[:, 0], bounds[:, 1]
    _check_bounds(begins, ends, needed[chunk_of], chunks.sizes[0][chunk_of])
    lengths = ends - begins
    data = gather(chunks.buffers[0], starts + begins, lengths)
    offsets: npt.NDArray[Any] = starts_of(lengths)
    return VariableValues(offsets.astype(f"<i{width}") if len(data) <= MAX_INT32 else offsets, data)


def _check_bounds(begins: Int64s, ends: Int64s, needed: Int64s, sizes: Int64s) -> None:
    """First and last offset of each chunk must lie between its offsets and its end."""
    if (begins < needed).any() or (ends < begins).any() or (ends > sizes).any():
        raise CorruptDataError("Variable: offsets of a chunk point outside of its bytes")


def _join_offsets(
    raw: npt.NDArray[Any], counts: Int64s, begins: Int64s, ends: Int64s, *, wide: bool
) -> npt.NDArray[Any]:
    """Offsets of all chunks as one ascending row: those of a chunk are shifted, its last is the next one's first."""
    lengths = ends - begins
    bases = starts_of(lengths)
    out = empty(int(counts.sum()) + 1, np.int64 if wide else np.int32)
    if (counts[:-1] == counts[0]).all() and len(counts) > 1:
        count, inner = int(counts[0]), len(counts) - 1
        shifts = (bases[:inner] - begins[:inner]).astype(out.dtype)
        matrix = raw[: inner * (count + 1)].view(out.dtype if raw.itemsize == out.itemsize else raw.dtype)
        np.add(
            matrix.reshape(inner, count + 1)[:, :-1],
            shifts[:, None],
            out=out[: inner * count].reshape(inner, count),
            casting="unsafe",
        )
        out[inner * count :] = raw[inner * (count + 1) :].astype(np.int64) + (bases[inner] - begins[inner])
    else:
        keep = np.ones(len(raw), np.bool_)
        keep[starts_of(counts + 1)[1:-1] - 1] = False
        shifts = np.repeat(bases[:-1] - begins, counts + 1)[keep]
        kept = raw[keep]
        np.add(kept.view(np.int64) if kept.itemsize == 8 else kept, shifts, out=out, casting="unsafe")
    if (out[1:] < out[:-1]).any() or out[0] != 0 or out[-1] != bases[-1]:
        raise CorruptDataError("Variable: offsets go back")
    return out


def decode_block(offset_bits: int, data: Bytes, count: int) -> VariableValues:
    """Values of a block with header.

    Raises:
        CorruptDataError: Header or offsets do not fit the block.
        UnsupportedError: The header of very old writers.
    """
    width = offset_width(offset_bits)
    start = (count + 3) * width
    if len(data) < start:
        raise CorruptDataError(f"Variable block: {len(data)} bytes are too few for {count} values")
    words: npt.NDArray[Any] = from_bytes(data[:start], offset_bits).data
    if words[0] != offset_bits:
        raise UnsupportedError(f"Variable block that starts with {int(words[0])} (a header of early Lance versions)")
    if words[1] < start or words[1] > len(data):
        raise CorruptDataError(f"Variable block: bytes start at {int(words[1])} of {len(data)}")
    body = data[int(words[1]) :]
    offsets = words[2:]
    if offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any() or offsets[-1] > len(body):
        raise CorruptDataError("Variable block: offsets go back or beyond the end")
    if width == 4 and offsets[-1] > MAX_INT32:
        return VariableValues(offsets.astype(np.int64), body)
    return VariableValues(offsets.view(f"<i{width}"), body)


def encode_chunks(values: VariableValues, counts: Int64s) -> Chunks:
    """Offsets and bytes of each chunk, padded to whole offsets as pylance does.

    Args:
        values: The values; int64 offsets are written as 64 bits, int32 as 32.
        counts: Values per chunk, all equal but the last.
    """
    width = values.offsets.dtype.itemsize
    firsts = starts_of(counts)
    bounds = values.offsets[firsts].astype(np.int64)
    heads = (counts + 1) * width
    offsets = np.empty(len(values) + len(counts), values.offsets.dtype)
    if len(counts) > 1:
        count, inner = int(counts[0]), len(counts) - 1
        source = values.offsets[: inner * count].reshape(inner, count)
        matrix = offsets[: inner * (count + 1)].reshape(inner, count + 1)
        shifts = (heads[:inner] - bounds[:inner]).astype(offsets.dtype)
        np.add(source, shifts[:, None], out=matrix[:, :-1])
        np.add(bounds[1:-1], shifts, out=matrix[:, -1], casting="unsafe")
    if len(counts):
        offsets[-int(counts[-1]) - 1 :] = values.offsets[firsts[-2] :] + int(heads[-1] - bounds[-2])
    pads = starts_of(-np.diff(bounds) % width)
    memory, ends = join_ranges(
        (offsets.view(np.uint8), starts_of(heads)),
        (values.data, bounds),
        (np.full(int(pads[-1]), _PAD, np.uint8), pads),
    )
    return one_buffer(memory, ends, counts)


def encode_block(values: VariableValues) -> Bytes:
    """The block form: header, offsets from 0, bytes."""
    begin, end = int(values.offsets[0]), int(values.offsets[-1])
    offsets = values.offsets - begin
    width = offsets.dtype.itemsize
    head = np.array([width * 8, (len(offsets) + 2) * width], offsets.dtype)
    return np.concatenate((head.view(np.uint8), offsets.view(np.uint8), values.data[begin:end]))
