"""Rle: values and how often each is repeated (1 to 255 in one byte; in file version 2.3 also in two or four bytes).

In mini-block chunks run values and run lengths are two buffers; as a block (levels, dictionaries) they are one:
u64 bytes of run values, run values, run lengths. Source: message ``Rle``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.encoding.codecs.bitpack import most_values
from lance_core.encoding.codecs.codec import Codec, Scalar, block_by_block, decode_integers, has_bytes, one_block
from lance_core.encoding.codecs.flat import WORD_BITS, from_bytes, word_dtype
from lance_core.encoding.codecs.general import decompress_chunks
from lance_core.encoding.codecs.sequences import read_words
from lance_core.encoding.kernels import (
    aranges,
    check_sizes,
    empty,
    gather,
    gather_words,
    join_ranges,
    numbers_array,
    one_buffer,
    starts_of,
    take_inside,
    view_buffer,
)
from lance_core.encoding.values import Chunks, FixedValues
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.file.encodings import (
    BlockRle,
    Constant,
    Flat,
    General,
    OutOfLineBitpacking,
    Range,
    Rle,
    value_bits,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Int64s
    from lance_core.format.file.encodings import Encoding

_HEADER = 8
_MAX_RUN = 255
_BYTE_BITS = 8
_LEVEL_RUNS = Rle(16, 8)
_SHORT_RUN = 6
"""Runs of fewer values on average are short."""
_LEAST_VALUES = 1 << 14
_SELDOM = 16
"""Share of the values that are not the most frequent one, turned over, up to which they are put in afterwards."""


def decode(encoding: Rle, chunks: Chunks) -> FixedValues:
    """Decode all values of all chunks, or of all blocks: one repeat over all runs.

    Raises:
        CorruptDataError: Runs that do not add up to the chunk's count, or a length without value.
    """
    return FixedValues(_expand(*_read_runs(encoding, chunks)))


def _expand(runs: npt.NDArray[Any], lengths: Bytes | Int64s, ends: Int64s) -> npt.NDArray[Any]:
    """Repeat each value as often as its run is long."""
    total = int(ends[-1]) if len(ends) else 0
    if total < _LEAST_VALUES:
        return np.repeat(runs, lengths)
    if len(runs) * _SHORT_RUN < total or not lengths.all():
        return _expand_long(runs, lengths, ends)
    # numpy repeats one run after the other. Short runs are numbered instead: the sum of the marks up to a value, one at
    # the first value of each run but the first, is the number of its run. That takes two thirds of the time.
    begins_run, numbers = empty(total, np.uint8), empty(total, np.uint32)
    begins_run.fill(0)
    begins_run[ends[:-1]] = 1
    numbers[:] = begins_run
    np.add.accumulate(numbers, out=numbers)
    values = view_buffer(take_inside(numbers_array(runs), numbers).buffers()[1])
    return values[: total * runs.dtype.itemsize].view(runs.dtype)


def _expand_long(runs: npt.NDArray[Any], lengths: Bytes | Int64s, ends: Int64s) -> npt.NDArray[Any]:
    # Where nearly all values are one, as levels of long lists are, the others are put among them in Arrow's pool. The
    # memory of `repeat` comes from the system, page by page, every time.
    common = runs[lengths.argmax()]
    others = (runs != common).nonzero()[0]
    sizes = lengths[others].astype(np.int64)
    if int(sizes.sum()) * _SELDOM > ends[-1]:
        return np.repeat(runs, lengths)
    values: npt.NDArray[Any] = empty(int(ends[-1]), runs.dtype)
    values.fill(common)
    values[aranges(ends[others] - sizes, sizes)] = np.repeat(runs[others], sizes)
    return values


def decode_at(encoding: Rle, chunks: Chunks, chunk_of: Int64s, index: Int64s) -> FixedValues:
    """Decode value ``index[i]`` of chunk ``chunk_of[i]``; errors as in `decode`."""
    runs, _, ends = _read_runs(encoding, chunks)
    return FixedValues(runs[np.searchsorted(ends, starts_of(chunks.counts)[chunk_of] + index, side="right")])


def _read_runs(encoding: Rle, chunks: Chunks) -> tuple[npt.NDArray[Any], Bytes | Int64s, Int64s]:
    """Run values of all chunks, the lengths of the runs, and where each ends, counted in values of all chunks."""
    if len(chunks.buffers) == 1:
        chunks = split_blocks(chunks)
    bits, length_bits = encoding.bits, encoding.length_bits
    width, length_width = word_dtype(bits).itemsize, length_bits // 8
    value_sizes, length_sizes = chunks.sizes
    num_runs = length_sizes if length_width == 1 else length_sizes // length_width
    if (value_sizes != num_runs * width).any():
        raise CorruptDataError("Rle: a chunk has a different number of run values and run lengths")
    lengths: Bytes | Int64s = gather(chunks.buffers[1], chunks.starts[1], num_runs * length_width)
    if length_width > 1:
        lengths = from_bytes(lengths, length_bits).data.astype(np.int64)
    totals = starts_of(lengths)
    run_totals = totals[starts_of(num_runs)]
    if (run_totals[1:] - run_totals[:-1] != chunks.counts).any():
        raise CorruptDataError("Rle: run lengths of a chunk do not add up to its number of values")
    return from_bytes(gather(chunks.buffers[0], chunks.starts[0], value_sizes), bits).data, lengths, totals[1:]


def decode_one(encoding: Rle) -> Scalar | None:
    """Return what reads single values; None for longer runs than lance_core writes."""
    if encoding.length_bits != _BYTE_BITS:
        return None
    width = word_dtype(encoding.bits).itemsize

    def read(memory: memoryview, at: int, size: int, count: int, index: int) -> bytes:
        first = at + _HEADER
        lengths_at = first + int.from_bytes(memory[at:first], "little")
        ends = list(accumulate(memory[lengths_at : at + size]))
        if len(ends) * width != lengths_at - first:
            raise CorruptDataError("Rle: a chunk has a different number of run values and run lengths")
        if not ends or ends[-1] != count:
            raise CorruptDataError("Rle: run lengths of a chunk do not add up to its number of values")
        value_at = first + bisect_right(ends, index) * width
        return bytes(memory[value_at : value_at + width])

    return Scalar(read, ("words", width), _as_block)


def _as_block(values: memoryview, lengths: memoryview) -> memoryview:
    """Return run values and run lengths in the form of a block."""
    return memoryview(b"".join((len(values).to_bytes(_HEADER, "little"), values, lengths)))


def decode_levels(encoding: Rle, data: bytes, count: int) -> npt.NDArray[np.uint8] | None:
    """Decode a block of levels below 256; None for others, for long runs, and for damage, which `decode` names."""
    if encoding != _LEVEL_RUNS or len(data) < _HEADER:
        return None
    size = int.from_bytes(data[:_HEADER], "little")
    num_runs = len(data) - _HEADER - size
    if size != 2 * num_runs or data[_HEADER + 1 : _HEADER + size : 2].strip(b"\0"):
        return None
    lengths = np.frombuffer(data, np.uint8, num_runs, _HEADER + size)
    levels = np.frombuffer(data, np.uint8, size, _HEADER)[::2].repeat(lengths)
    return levels if len(levels) == count else None


def split_blocks(blocks: Chunks) -> Chunks:
    """Turn blocks into chunks of two buffers.

    Raises:
        CorruptDataError: A block is shorter than it says.
    """
    starts, sizes = blocks.starts[0], blocks.sizes[0]
    check_sizes(sizes, _HEADER, "Rle")
    claimed = gather_words(blocks.buffers[0], starts, "<u8")
    if (claimed > (sizes - _HEADER).astype(np.uint64)).any():
        raise CorruptDataError("Rle: run values reach beyond the end of their block")
    value_sizes = claimed.astype(np.int64)
    starts = starts + _HEADER
    return Chunks(
        buffers=(blocks.buffers[0], blocks.buffers[0]),
        starts=np.array((starts, starts + value_sizes)),
        sizes=np.array((value_sizes, sizes - _HEADER - value_sizes)),
        counts=blocks.counts,
    )


@frozen
class Runs:
    """Runs of equal values of adjoining sequences; no run is longer than 255 or crosses from one to the next.

    Attributes:
        values: Shape (runs,).
        lengths: Shape (runs,), uint8.
        bounds: Shape (sequences + 1,): first run of each sequence, and the end.
    """

    values: npt.NDArray[Any]
    lengths: Bytes
    bounds: Int64s

    @property
    def num_bytes(self) -> int:
        """Bytes of values and lengths."""
        return self.values.nbytes + self.lengths.nbytes


def find_runs(data: npt.NDArray[Any], bounds: Int64s) -> Runs:
    """Split values into runs.

    Args:
        data: Shape (n,).
        bounds: Shape (sequences + 1,), ascending, from 0 to n: where each sequence starts, and the end.
    """
    # A run begins where a value differs from the one before, and where a sequence begins. Runs of more than 255 values
    # are cut into pieces of 255; only the last piece of a run has another length, namely what is left.
    begins = np.zeros(len(data) + 1, np.bool_)
    np.not_equal(data[1:], data[:-1], out=begins[1:-1])
    begins[bounds] = True
    starts = begins[:-1].nonzero()[0]
    lengths = np.diff(starts, append=len(data))
    pieces = -(-lengths // _MAX_RUN)
    firsts = starts_of(pieces)
    sizes = np.full(int(firsts[-1]), _MAX_RUN, np.uint8)
    sizes[firsts[1:] - 1] = lengths - (pieces - 1) * _MAX_RUN
    values = data[starts] if len(sizes) == len(starts) else np.repeat(data[starts], pieces)
    return Runs(values, sizes, firsts[np.searchsorted(starts, bounds)])


def encode_chunks(runs: Runs, counts: Int64s) -> Chunks:
    """Runs as the two buffers of each chunk."""
    width = runs.values.dtype.itemsize
    return Chunks(
        buffers=(runs.values.view(np.uint8), runs.lengths),
        starts=np.stack((runs.bounds[:-1] * width, runs.bounds[:-1])),
        sizes=np.stack((np.diff(runs.bounds) * width, np.diff(runs.bounds))),
        counts=counts,
    )


def encode_blocks(runs: Runs, counts: Int64s) -> Chunks:
    """Runs as one block for each sequence."""
    width = runs.values.dtype.itemsize
    value_sizes = (np.diff(runs.bounds) * width).astype("<u8")
    memory, bounds = join_ranges(
        (value_sizes.view(np.uint8), np.arange(len(counts) + 1) * _HEADER),
        (runs.values.view(np.uint8), runs.bounds * width),
        (runs.lengths, runs.bounds),
    )
    return one_buffer(memory, bounds, counts)


def _decode_runs(
    encoding: BlockRle, first: Bytes, second: Bytes, count: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Decode values and lengths of the runs that stand for so many integers, from the block of each."""
    values, first = _decompress(encoding.values, first)
    lengths, second = _decompress(encoding.lengths, second)
    runs = _count_runs(BlockRle(values, lengths), first, second, count)
    return decode_integers(values, first, runs), decode_integers(lengths, second, runs)


def _decompress(encoding: Encoding, data: Bytes) -> tuple[Encoding, Bytes]:
    """Return the block below compression, and how it is encoded."""
    while isinstance(encoding, General):
        plain = decompress_chunks(encoding.compression, one_block(data, 0))
        start, size = int(plain.starts[0, 0]), int(plain.sizes[0, 0])
        encoding, data = encoding.values, plain.buffers[0][start : start + size]
    return encoding, data


def _count_runs(encoding: BlockRle, values: Bytes, lengths: Bytes, count: int) -> int:
    """Return the number of runs that stand for so many integers.

    Args:
        encoding: How the runs are encoded.
        values: Block of the run values.
        lengths: Block of the run lengths.
        count: How many integers the runs stand for.

    Raises:
        CorruptDataError: Run lengths without bytes do not add up to the count.
        UnsupportedError: Nothing tells the number.
    """
    for part, block in ((encoding.values, values), (encoding.lengths, lengths)):
        if isinstance(part, Flat) and part.bits in WORD_BITS:
            return len(block) // (part.bits // 8)
    match encoding.lengths:
        case Constant(bytes() as value):
            start, step = int.from_bytes(value, "little"), 0
        case Range(_, start, step):
            pass
        case OutOfLineBitpacking(bits, width) as packed if width:
            # Padding is part of the last block, so that lengths count up to where they reach the number of integers.
            ends = np.cumsum(decode_integers(packed, lengths, most_values(bits, width, len(lengths))), dtype=np.uint64)
            return int(np.searchsorted(ends, np.uint64(count))) + 1 if count else 0
        case _:
            raise UnsupportedError("runs whose number neither values nor lengths tell are not supported")
    num_runs = bisect_left(range(count), count, key=lambda runs: _total(start, step, runs))
    if _total(start, step, num_runs) != count:
        raise CorruptDataError(f"run lengths of a block do not add up to {count} integers")
    return num_runs


def _total(start: int, step: int, count: int) -> int:
    """Return the sum of ``count`` integers at equal distances."""
    return count * start + step * (count * (count - 1) // 2)


def _decode_block(encoding: BlockRle, data: Bytes, count: int) -> npt.NDArray[Any]:
    """Decode a block: u64 bytes of the run values, run values, run lengths; nothing if neither has any."""
    first = second = data[:0]
    if has_bytes(encoding):
        (size,) = read_words(data, 1)
        if 8 + size > len(data):
            raise CorruptDataError("run values reach beyond the end of their block")
        first, second = data[8 : 8 + size], data[8 + size :]
    values, lengths = _decode_runs(encoding, first, second, count)
    if (len(lengths) and int(lengths.max()) > count) or int(lengths.sum(dtype=np.uint64)) != count:
        raise CorruptDataError("run lengths of a block do not add up to its number of integers")
    return np.repeat(values, lengths.astype(np.int64))


def _unpack_runs(encoding: BlockRle, chunks: Chunks) -> tuple[Rle, Chunks]:
    """Turn runs that are encoded themselves into plain ones."""
    bits = value_bits(encoding.values)
    nothing = np.empty(0, np.uint8)
    parts: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = []
    for chunk, count in enumerate(chunks.counts.tolist()):
        bounds = zip(chunks.buffers, chunks.starts[:, chunk].tolist(), chunks.sizes[:, chunk].tolist(), strict=True)
        blocks = [memory[start : start + size] for memory, start, size in bounds]
        first = blocks.pop(0) if has_bytes(encoding.values) else nothing
        second = blocks.pop(0) if has_bytes(encoding.lengths) else nothing
        values, lengths = _decode_runs(encoding, first, second, count)
        if values.dtype.itemsize * 8 != bits or (len(lengths) and int(lengths.max()) > count):
            raise CorruptDataError(f"runs of a chunk do not fit its {count} values of {bits} bits")
        parts.append((values, lengths.astype(np.uint32)))
    sizes = np.array([[part.nbytes for part in pair] for pair in parts], np.int64).reshape(-1, 2).T
    buffers = tuple([np.concatenate(part).view(np.uint8) for part in zip(*parts, strict=True)]) or (nothing, nothing)
    starts = np.stack([starts_of(row)[:-1] for row in sizes])
    return Rle(bits, 32), Chunks(buffers=buffers, starts=starts, sizes=sizes, counts=chunks.counts)


RLE = Codec(
    serves=Rle,
    decode=decode,
    decode_at=decode_at,
    decode_one=decode_one,
    decode_levels=decode_levels,
    num_buffers=lambda _: 2,
)
BLOCK_RLE = Codec(
    serves=BlockRle,
    num_buffers=lambda encoding: has_bytes(encoding.values) + has_bytes(encoding.lengths),
    unwrap=_unpack_runs,
    decode_blocks=block_by_block(_decode_block),
)
