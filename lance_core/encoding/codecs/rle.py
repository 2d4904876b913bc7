"""Rle: values and how often each is repeated (1 to 255 in one byte; in file version 2.3 also in two or four bytes).

In mini-block chunks run values and run lengths are two buffers; as a block (levels, dictionaries) they are one:
u64 bytes of run values, run values, run lengths. Source: message ``Rle``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.encoding.codecs.flat import from_bytes, word_dtype
from lance_core.encoding.kernels import (
    add_up,
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
from lance_core.errors import CorruptDataError
from lance_core.frozen import frozen

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Int64s

_HEADER = 8
_MAX_RUN = 255
_SHORT_RUN = 6
"""Runs of fewer values on average are short."""
_FEW_VALUES = 1 << 14


def decode_chunks(bits: int, chunks: Chunks, length_bits: int = 8) -> FixedValues:
    """All values of all chunks: one repeat over all runs.

    Raises:
        CorruptDataError: Runs that do not add up to the chunk's count, or a length without value.
    """
    return FixedValues(_expand(*_read_runs(bits, chunks, length_bits)))


def _expand(runs: npt.NDArray[Any], lengths: Bytes | Int64s, ends: Int64s) -> npt.NDArray[Any]:
    """Each value as often as its run is long.

    numpy repeats one run after the other; where they are short, to number them by adding up a mark at the first value
    of each takes two thirds of the time.
    """
    total = int(ends[-1]) if len(ends) else 0
    if total < _FEW_VALUES or len(runs) * _SHORT_RUN < total or not lengths.all():
        return np.repeat(runs, lengths)
    marks, numbers = empty(total, np.uint8), empty(total, np.uint32)
    marks.fill(0)
    marks[ends[:-1]] = 1
    numbers[:] = marks
    add_up(numbers)
    values = view_buffer(take_inside(numbers_array(runs), numbers).buffers()[1])
    return values[: total * runs.dtype.itemsize].view(runs.dtype)


def decode_points(bits: int, chunks: Chunks, chunk_of: Int64s, index: Int64s, length_bits: int = 8) -> FixedValues:
    """Single values: value ``index[i]`` of chunk ``chunk_of[i]``.

    Raises:
        CorruptDataError: As ``decode_chunks``.
    """
    runs, _, ends = _read_runs(bits, chunks, length_bits)
    return FixedValues(runs[np.searchsorted(ends, starts_of(chunks.counts)[chunk_of] + index, side="right")])


def _read_runs(bits: int, chunks: Chunks, length_bits: int) -> tuple[npt.NDArray[Any], Bytes | Int64s, Int64s]:
    """Run values of all chunks, the lengths of the runs, and where each ends, counted in values of all chunks."""
    width, length_width = word_dtype(bits).itemsize, length_bits // 8
    value_sizes, length_sizes = chunks.sizes
    num_runs = length_sizes if length_width == 1 else length_sizes // length_width
    if (value_sizes != num_runs * width).any():
        raise CorruptDataError("Rle: a chunk has a different number of run values and run lengths")
    lengths: Bytes | Int64s = gather(chunks.buffers[1], chunks.starts[1], num_runs * length_width)
    if length_width > 1:
        lengths = from_bytes(lengths, length_bits).data.astype(np.int64)
    totals = starts_of(lengths)
    found = totals[starts_of(num_runs)]
    if (found[1:] - found[:-1] != chunks.counts).any():
        raise CorruptDataError("Rle: run lengths of a chunk do not add up to its number of values")
    return from_bytes(gather(chunks.buffers[0], chunks.starts[0], value_sizes), bits).data, lengths, totals[1:]


def split_blocks(blocks: Chunks) -> Chunks:
    """Block form to the two buffers of chunks.

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
    begins = np.zeros(len(data) + 1, np.bool_)
    np.not_equal(data[1:], data[:-1], out=begins[1:-1])
    begins[bounds] = True
    starts = np.flatnonzero(begins[:-1])
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
