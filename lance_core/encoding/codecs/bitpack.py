"""Bit-packed integers, each chunk to its own width (inline) or a page to one (out of line).

InlineBitpacking: a chunk of up to 1024 values is one word with the width W, then 1024 * W / T words.
OutOfLineBitpacking: n // 1024 packed blocks, then the rest either raw (as many words as values) or as one more packed
block; W stands in the page's description and may be 0.

Source: messages ``InlineBitpacking`` and ``OutOfLineBitpacking``.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.encoding.codecs import fastlanes
from lance_core.encoding.codecs.codec import Codec, Scalar
from lance_core.encoding.codecs.fastlanes import BLOCK
from lance_core.encoding.codecs.flat import WORD_BITS, from_bytes, word_dtype
from lance_core.encoding.kernels import (
    Scratch,
    aranges,
    check_sizes,
    chunk_counts,
    empty,
    gather,
    gather_words,
    one_buffer,
    starts_of,
)
from lance_core.encoding.values import FixedValues
from lance_core.errors import CorruptDataError
from lance_core.format.file.encodings import InlineBitpacking, OutOfLineBitpacking

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Chunks, Int64s

_MAX_SLICED_SEQUENCES, _MAX_SLICED_VALUES = 16, 1 << 15
_MAX_MIXED_BLOCKS = 8
"""With fewer blocks for each width than these, all widths at once are faster than one by one."""
_BLOCKS_AT_ONCE = 256
"""Blocks of one width among others are unpacked in the cache, so many at once, and then put to their places."""
_LEAST_RUN = 16
"""From so many blocks of one width on average, neighbours are unpacked to where they belong."""

_LEVEL_BITS, _BYTE_BITS = 16, 8
_UNPACKED = Scratch()


def _aligned_words(
    memory: Bytes, starts: Int64s, sizes: Int64s, dtype: np.dtype[Any]
) -> tuple[npt.NDArray[Any], Int64s]:
    """Memory as words, and where in it each range starts; copies only what is not aligned."""
    width = dtype.itemsize
    if memory.ctypes.data % width or (starts % width).any():
        sizes = sizes // width * width
        memory = gather(memory, starts, sizes)
        memory = memory.copy() if memory.ctypes.data % width else memory
        starts = starts_of(sizes)[:-1]
    return memory[: len(memory) // width * width].view(dtype), starts // width


def compact(blocks: npt.NDArray[Any], counts: Int64s) -> npt.NDArray[Any]:
    """Return the first ``counts[i]`` values of each block, end to end."""
    flat = blocks.reshape(-1)
    short = (counts != BLOCK).nonzero()[0]
    if len(short) == 0:
        return flat
    if short[0] == len(counts) - 1:
        return flat[: (len(counts) - 1) * BLOCK + int(counts[-1])]
    return gather(flat.view(np.uint8), np.arange(len(counts)) * (BLOCK * flat.itemsize), counts * flat.itemsize).view(
        flat.dtype
    )


def decode_inline(encoding: InlineBitpacking, chunks: Chunks) -> FixedValues:
    """Decode all values of all chunks, each of which has its own width.

    Raises:
        CorruptDataError: More than 1024 values, a width above that of the values, a chunk too short for its width.
    """
    bits = encoding.bits
    widths = _read_widths(bits, chunks)
    memory_words, firsts = _aligned_words(chunks.buffers[0], chunks.starts[0], chunks.sizes[0], word_dtype(bits))
    firsts = firsts + 1
    runs = _unpack_runs(memory_words, firsts, widths, chunks.counts)
    return FixedValues(compact(_unpack_widths(memory_words, firsts, widths), chunks.counts) if runs is None else runs)


def decode_inline_at(encoding: InlineBitpacking, chunks: Chunks, chunk_of: Int64s, index: Int64s) -> FixedValues:
    """Decode value ``index[i]`` of chunk ``chunk_of[i]``; errors as in `decode_inline`."""
    widths, dtype = _read_widths(encoding.bits, chunks), word_dtype(encoding.bits)
    starts = chunks.starts[0][chunk_of] + dtype.itemsize
    return FixedValues(fastlanes.unpack_points(chunks.buffers[0], starts, widths[chunk_of], index, dtype))


def decode_inline_one(encoding: InlineBitpacking) -> Scalar | None:
    """Make the reader of single values; None for values that are no words."""
    bits = encoding.bits
    if bits not in WORD_BITS:
        return None
    word_bytes, row_bytes, unpack = bits // 8, BLOCK // 8, fastlanes.value_reader(bits)

    def read(memory: memoryview, start: int, size: int, count: int, index: int) -> bytes:
        if size < word_bytes or count > BLOCK:
            raise CorruptDataError(f"bit-packed chunk of {count} values in {size} bytes")
        width = int.from_bytes(memory[start : start + word_bytes], "little")
        if width > bits or size < word_bytes + width * row_bytes:
            raise CorruptDataError(f"bit-packed chunk of width {width} in {size} bytes, for values of {bits} bits")
        return unpack(memory, start + word_bytes, width, index) if width else bytes(word_bytes)

    return Scalar(read, ("words", word_bytes))


def _read_widths(bits: int, chunks: Chunks) -> Int64s:
    """Return each chunk's width; its packed words follow."""
    dtype = word_dtype(bits)
    starts, sizes, counts = chunks.starts[0], chunks.sizes[0], chunks.counts
    if np.maximum.reduce(counts, initial=0) > BLOCK:
        raise CorruptDataError(f"bit-packed chunk of {int(counts.max())} values; {BLOCK} is the limit")
    check_sizes(sizes, dtype.itemsize, "InlineBitpacking")
    memory_words = gather_words(chunks.buffers[0], starts, dtype)
    if np.maximum.reduce(memory_words, initial=0) > bits:
        raise CorruptDataError(f"bit-packed chunk of width {int(memory_words.max())} for values of {bits} bits")
    widths: Int64s = memory_words.astype(np.int64)
    check_sizes(sizes, dtype.itemsize + widths * (BLOCK // 8), "InlineBitpacking")
    return widths


def _unpack_runs(
    memory_words: npt.NDArray[Any], firsts: Int64s, widths: Int64s, counts: Int64s
) -> npt.NDArray[Any] | None:
    """Return the values of blocks, run by run to where they belong; None if runs are short.

    A run has one width, and only its last block may not be full: what that leaves over is overwritten by the next run.
    """
    if len(widths) < _LEAST_RUN:  # a long row is in one block or two
        return None
    is_last = np.ones(len(widths), np.bool_)
    np.not_equal(widths[1:], widths[:-1], out=is_last[:-1])
    is_last |= counts != BLOCK
    ends = is_last.nonzero()[0] + 1
    if len(ends) * _LEAST_RUN > len(widths):
        return None
    bounds_of_values = starts_of(counts)
    out = empty(int(bounds_of_values[-1]) + BLOCK, memory_words.dtype)
    for low, high in pairwise([0, *ends.tolist()]):
        at = int(bounds_of_values[low])
        into = out[at : at + (high - low) * BLOCK].reshape(-1, BLOCK)
        fastlanes.unpack_into(memory_words, firsts[low:high], int(widths[low]), into)
    return out[: int(bounds_of_values[-1])]


def _unpack_widths(memory_words: npt.NDArray[Any], firsts: Int64s, widths: Int64s) -> npt.NDArray[Any]:
    """Unpack blocks of several widths, shape (n, 1024)."""
    out = empty(len(widths) * BLOCK, memory_words.dtype).reshape(-1, BLOCK)
    if len(widths) and not np.count_nonzero(widths != widths[0]):
        fastlanes.unpack_into(memory_words, firsts, int(widths[0]), out)
        return out
    distinct = np.bincount(widths).nonzero()[0].tolist()
    if len(distinct) > 1 and len(distinct) * _MAX_MIXED_BLOCKS > len(widths):
        fastlanes.unpack_mixed(memory_words, firsts, widths, out)
        return out
    for width in distinct:
        blocks = (widths == width).nonzero()[0]
        for low in range(0, len(blocks), _BLOCKS_AT_ONCE):
            some = blocks[low : low + _BLOCKS_AT_ONCE]
            unpacked = _UNPACKED.array(len(some) * BLOCK, memory_words.dtype).reshape(-1, BLOCK)
            fastlanes.unpack_into(memory_words, firsts[some], width, unpacked)
            out[some] = unpacked
    return out


def decode_out_of_line(encoding: OutOfLineBitpacking, chunks: Chunks) -> FixedValues:
    """Decode all values of all sequences of packed blocks.

    Raises:
        CorruptDataError: A width above that of the values, or a sequence whose size fits neither a raw nor a packed
            tail.
    """
    dtype, width, counts = word_dtype(encoding.bits), encoding.packed_bits, chunks.counts
    is_raw = _has_raw_tail(encoding, chunks)
    if width == 0:
        return FixedValues(np.zeros(_checked_total(counts), dtype))
    if len(counts) <= _MAX_SLICED_SEQUENCES and int(counts.sum()) <= _MAX_SLICED_VALUES:
        return FixedValues(_unpack_few(chunks, dtype, width, is_raw.tolist()))
    return FixedValues(_unpack_sequences(chunks, dtype, width, is_raw & (counts % BLOCK > 0)))


def _has_raw_tail(encoding: OutOfLineBitpacking, chunks: Chunks) -> npt.NDArray[np.bool_]:
    """Tell sequences with values behind the last whole block that are not packed, by their sizes."""
    dtype, width = word_dtype(encoding.bits), encoding.packed_bits
    if not 0 <= width <= encoding.bits:
        raise CorruptDataError(f"bit-packed width {width} for values of {encoding.bits} bits")
    counts, sizes = chunks.counts, chunks.sizes[0]
    block_bytes = width * (BLOCK // 8)
    is_raw = sizes == counts // BLOCK * block_bytes + counts % BLOCK * dtype.itemsize
    is_right = is_raw | (sizes == -(-counts // BLOCK) * block_bytes)
    if width and np.count_nonzero(is_right) != len(counts):
        at = int((~is_right).nonzero()[0][0])
        raise CorruptDataError(f"{int(sizes[at])} bytes cannot hold {int(counts[at])} values packed to {width} bits")
    return is_raw


def decode_out_of_line_at(
    encoding: OutOfLineBitpacking, chunks: Chunks, chunk_of: Int64s, index: Int64s
) -> FixedValues:
    """Decode value ``index[i]`` of sequence ``chunk_of[i]``; errors as in `decode_out_of_line`."""
    dtype, width, memory = word_dtype(encoding.bits), encoding.packed_bits, chunks.buffers[0]
    is_raw = _has_raw_tail(encoding, chunks)
    if width == 0:
        return FixedValues(np.zeros(len(index), dtype))
    block = index // BLOCK
    starts = chunks.starts[0][chunk_of] + block * (width * (BLOCK // 8))
    in_tail = is_raw[chunk_of] & (block == (chunks.counts // BLOCK)[chunk_of])
    if not in_tail.any():
        return FixedValues(fastlanes.unpack_points(memory, starts, width, index % BLOCK, dtype))
    values = np.empty(len(index), dtype)
    values[in_tail] = gather_words(memory, (starts + index % BLOCK * dtype.itemsize)[in_tail], dtype)
    packed = ~in_tail
    if packed.any():
        values[packed] = fastlanes.unpack_points(memory, starts[packed], width, index[packed] % BLOCK, dtype)
    return FixedValues(values)


def decode_out_of_line_one(encoding: OutOfLineBitpacking) -> Scalar | None:
    """Make the reader of single values; None for values that are no words, or all 0."""
    bits, width = encoding.bits, encoding.packed_bits
    if bits not in WORD_BITS or not 0 < width <= bits:
        return None
    block_size, word_bytes, unpack = width * (BLOCK // 8), bits // 8, fastlanes.value_reader(bits)

    def read(memory: memoryview, start: int, size: int, count: int, index: int) -> bytes:
        whole, tail = divmod(count, BLOCK)
        block, offset = divmod(index, BLOCK)
        if size == whole * block_size + tail * word_bytes:
            if block == whole:  # the tail is not packed
                at = start + whole * block_size + offset * word_bytes
                return bytes(memory[at : at + word_bytes])
        elif size != (whole + (tail > 0)) * block_size:
            raise CorruptDataError(f"{size} bytes cannot hold {count} values packed to {width} bits")
        return unpack(memory, start + block * block_size, width, offset)

    return Scalar(read, ("words", word_bytes))


def most_values(bits: int, width: int, size: int) -> int:
    """Return the largest number of values that so many bytes of packed blocks can hold.

    Args:
        bits: Bits of a value.
        width: Bits that it is packed to, at least 1.
        size: Bytes of the blocks.
    """
    blocks, tail = divmod(size, width * (BLOCK // 8))
    return blocks * BLOCK + tail // (bits // 8)


def _checked_total(counts: Int64s) -> int:
    """Return number of values that no byte stands for, within reason."""
    total = int(counts.sum())
    if total > 1 << 31:
        raise CorruptDataError(f"{total} values packed to 0 bits")
    return total


def _unpack_few(chunks: Chunks, dtype: np.dtype[Any], width: int, is_raw: list[bool]) -> npt.NDArray[Any]:
    """As `_unpack_sequences`; for a few, slices cost less than arrays of positions."""
    memory, block_bytes = chunks.buffers[0], width * (BLOCK // 8)
    packed: list[Bytes] = []
    ends: list[tuple[int, int, int]] = []
    for start, count, has_raw in zip(chunks.starts[0].tolist(), chunks.counts.tolist(), is_raw, strict=True):
        rest = count % BLOCK if has_raw else 0
        num_blocks = -(-(count - rest) // BLOCK)
        end = start + num_blocks * block_bytes
        packed.append(memory[start:end])
        ends.append((num_blocks * BLOCK, end, rest))
    memory_words = np.concatenate(packed).view(dtype).reshape(-1, width, BLOCK // 8 // dtype.itemsize)
    values = fastlanes.unpack_blocks(memory_words).reshape(-1)
    parts: list[npt.NDArray[Any]] = []
    first = 0
    for (length, end, rest), count in zip(ends, chunks.counts.tolist(), strict=True):
        parts.append(values[first : first + count - rest])
        if rest:
            parts.append(memory[end : end + rest * dtype.itemsize].copy().view(dtype))
        first += length
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _unpack_sequences(chunks: Chunks, dtype: np.dtype[Any], width: int, is_raw: npt.NDArray[np.bool_]) -> Any:
    """Unpack all blocks of all sequences in one go, then put raw tails in between."""
    # Blocks of a sequence lie at even distances, so that the words of all blocks of all sequences are known at once.
    # A raw tail takes the place of a block, too; `compact` then drops what fills up last blocks.
    counts, starts = chunks.counts, chunks.starts[0]
    memory_words, firsts = _aligned_words(chunks.buffers[0], starts, chunks.sizes[0], dtype)
    num_blocks = -(-counts // BLOCK)
    block_words = width * (BLOCK // 8 // dtype.itemsize)
    positions = aranges(np.zeros_like(counts), num_blocks)
    at = np.repeat(firsts, num_blocks) + positions * block_words
    used = np.minimum(np.repeat(counts, num_blocks) - positions * BLOCK, BLOCK)
    if not is_raw.any():
        return compact(fastlanes.unpack(memory_words, at, width), used)
    raw_counts = counts[is_raw] % BLOCK
    raw = gather(
        chunks.buffers[0], (starts + chunks.sizes[0])[is_raw] - raw_counts * dtype.itemsize, raw_counts * dtype.itemsize
    )
    tails = (starts_of(num_blocks)[1:] - 1)[is_raw]
    is_packed = np.ones(len(at), np.bool_)
    is_packed[tails] = False
    blocks = empty(len(at) * BLOCK, dtype)
    blocks.reshape(-1, BLOCK)[is_packed] = fastlanes.unpack(memory_words, at[is_packed], width)
    blocks[aranges(tails * BLOCK, raw_counts)] = from_bytes(raw, dtype.itemsize * 8).data
    return compact(blocks.reshape(-1, BLOCK), used)


def decode_out_of_line_levels(encoding: OutOfLineBitpacking, data: bytes, count: int) -> npt.NDArray[Any] | None:
    """Decode a short block of levels of up to 8 bits; None for others, and for damage, which `decode` names."""
    width = encoding.packed_bits
    if encoding.bits != _LEVEL_BITS or not 0 < width <= _BYTE_BITS or not count:
        return None
    whole, rest = divmod(count, BLOCK)
    block_size = width * (BLOCK // 8)
    if len(data) == whole * block_size + rest * 2:  # a raw tail, as is one whose size fits both
        tail = np.frombuffer(data, np.uint16, rest, whole * block_size)
        return np.concatenate([_unpack_levels(data, width, whole * BLOCK), tail]) if whole else tail
    return _unpack_levels(data, width, count) if len(data) == (whole + (rest > 0)) * block_size else None


def _unpack_levels(packed: bytes, width: int, count: int) -> npt.NDArray[np.uint8]:
    # All bits become bytes; bit k of all levels is then one gather, whose positions are the same for all blocks of one
    # width. That takes three calls of numpy for each bit, where the rows of a block would take dozens.
    flags = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")
    first, *others = _positions_of_bits(width, -(-count // BLOCK))
    levels = flags.take(first[:count])
    for bit, positions in enumerate(others, 1):
        levels |= flags.take(positions[:count]) << bit
    return levels


@lru_cache(maxsize=64)
def _positions_of_bits(width: int, num_blocks: int) -> tuple[Int64s, ...]:
    """For each bit of packed levels its positions in the blocks, shape (blocks * 1024,)."""
    rows, lane_count = fastlanes.ROWS_OF_VALUES[_LEVEL_BITS], BLOCK // _LEVEL_BITS
    lanes = np.arange(BLOCK) % lane_count
    starts = np.arange(num_blocks)[:, None] * (width * BLOCK)
    positions: list[Int64s] = []
    for bit in range(width):
        word, shift = np.divmod(rows * width + bit, _LEVEL_BITS)
        positions.append((starts + (word * lane_count + lanes) * _LEVEL_BITS + shift).reshape(-1))
    return tuple(positions)


def inline_widths(values: FixedValues) -> Int64s:
    """Packed width of each run of 1024 values (the last may be shorter)."""
    data = values.data
    whole = len(data) // BLOCK * BLOCK
    widths = fastlanes.bit_widths(data[:whole].reshape(-1, BLOCK))
    return widths if whole == len(data) else np.append(widths, fastlanes.bit_widths(data[None, whole:]))


def inline_bytes(values: FixedValues, widths: Int64s) -> int:
    """Return bytes that ``encode_inline`` writes."""
    return int((widths * (BLOCK // 8) + values.data.dtype.itemsize).sum())


def encode_inline(values: FixedValues, widths: Int64s) -> Chunks:
    """Pack chunks of 1024 values, each to its own width.

    Args:
        values: Unsigned words.
        widths: From ``inline_widths``.
    """
    # A chunk is a word with its width and the packed words, all of known size, so that chunks of one width are packed
    # at once to where they belong. Only the last chunk is filled up with zeros, which fit any width.
    data = values.data
    counts = chunk_counts(len(data), BLOCK)
    lanes = BLOCK // 8 // data.dtype.itemsize
    bounds = starts_of(1 + widths * lanes)
    memory_words = np.zeros(int(bounds[-1]), data.dtype)
    memory_words[bounds[:-1]] = widths
    whole = len(data) // BLOCK
    blocks = data[: whole * BLOCK].reshape(-1, BLOCK)
    _pack_widths(blocks, widths[:whole], memory_words, bounds[:whole] + 1)
    if whole < len(counts):
        tail = np.zeros((1, BLOCK), data.dtype)
        tail[0, : len(data) - whole * BLOCK] = data[whole * BLOCK :]
        _pack_widths(tail, widths[whole:], memory_words, bounds[whole:-1] + 1)
    return one_buffer(memory_words.view(np.uint8), bounds * data.dtype.itemsize, counts)


def _pack_widths(blocks: npt.NDArray[Any], widths: Int64s, memory_words: npt.NDArray[Any], firsts: Int64s) -> None:
    """Pack blocks of several widths to where their words, now zero, start."""
    for width in np.bincount(widths).nonzero()[0].tolist():
        chosen = (widths == width).nonzero()[0]
        part = blocks if len(chosen) == len(widths) else blocks[chosen]
        fastlanes.pack_into(part, width, memory_words, firsts[chosen])


def out_of_line_bytes(counts: Int64s, bits: int, width: int) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Return bytes of each sequence that ``encode_out_of_line`` writes, and whether its tail is packed."""
    whole, tails = counts // BLOCK, counts % BLOCK
    packs_tail = width * (BLOCK - tails) < (bits - width) * tails
    sizes = (whole + packs_tail) * (width * (BLOCK // 8)) + np.where(packs_tail, 0, tails * (bits // 8))
    return sizes, packs_tail


def encode_out_of_line(values: FixedValues, bounds: Int64s, width: int) -> Chunks:
    """Pack sequences of values to one width.

    Args:
        values: Unsigned words below ``2 ** width``.
        bounds: Shape (n + 1,): where each sequence starts, and where the last one ends.
        width: Bits per packed value, at least 1.
    """
    # The size of each sequence is known before, and with it where each of its blocks goes: one call packs all of them.
    # Tails that are not packed are copied behind the blocks of their sequence.
    data, counts = values.data, bounds[1:] - bounds[:-1]
    word_bytes = data.dtype.itemsize
    sizes, packs_tail = out_of_line_bytes(counts, word_bytes * 8, width)
    out_bounds = starts_of(sizes)
    memory_words = empty(int(out_bounds[-1]) // word_bytes, data.dtype)
    num_blocks = counts // BLOCK + packs_tail
    positions = aranges(np.zeros_like(counts), num_blocks)
    targets = np.repeat(out_bounds[:-1] // word_bytes, num_blocks) + positions * (width * (BLOCK // 8) // word_bytes)
    if (counts[:-1] % BLOCK == 0).all():  # only the last sequence may have a block that is not full
        blocks = _blocks_of(data[int(bounds[0]) : int(bounds[-1])], len(positions))
    else:
        sources, ends = np.repeat(bounds[:-1], num_blocks) + positions * BLOCK, np.repeat(bounds[1:], num_blocks)
        blocks = _blocks_at(data, sources, ends)
    fastlanes.pack_into(blocks, width, memory_words, targets)
    raw = np.where(packs_tail, 0, counts % BLOCK)
    memory_words[aranges(out_bounds[1:] // word_bytes - raw, raw)] = data[aranges(bounds[1:] - raw, raw)]
    return one_buffer(memory_words.view(np.uint8), out_bounds, counts)


def _blocks_of(data: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Return the first blocks of 1024 values, with zeros behind the last value."""
    whole = data[: count * BLOCK]
    if len(whole) < count * BLOCK:
        whole = np.zeros(count * BLOCK, data.dtype)
        whole[: len(data)] = data
    return whole.reshape(count, BLOCK)


def _blocks_at(data: npt.NDArray[Any], sources: Int64s, ends: Int64s) -> npt.NDArray[Any]:
    """Blocks of 1024 values from given positions, zeros beyond their sequence's end."""
    windows = np.lib.stride_tricks.sliding_window_view(np.append(data, np.zeros(BLOCK, data.dtype)), BLOCK)
    blocks = windows[sources]
    used = ends - sources
    short = (used < BLOCK).nonzero()[0]
    blocks[short] *= np.arange(BLOCK) < used[short, None]
    return blocks


INLINE_BITPACKING = Codec(
    serves=InlineBitpacking, decode=decode_inline, decode_at=decode_inline_at, decode_one=decode_inline_one
)
OUT_OF_LINE_BITPACKING = Codec(
    serves=OutOfLineBitpacking,
    decode=decode_out_of_line,
    decode_at=decode_out_of_line_at,
    decode_one=decode_out_of_line_one,
    decode_levels=decode_out_of_line_levels,
)
