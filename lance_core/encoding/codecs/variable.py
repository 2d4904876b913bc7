"""Variable: offsets, then bytes.

In mini-block chunks (n + 1) offsets of 32 or 64 bits count from the start of the buffer. As a block (dictionaries) a
header comes first and offsets count from 0: for 32 bits ``u32 32, u32 start, (n + 1) u32, bytes at start``, for 64 bits
the same in u64. Source: message ``Variable``.
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.encoding.codecs.codec import Codec, Scalar, decode_integers, has_bytes, not_in_blocks
from lance_core.encoding.codecs.flat import from_bytes
from lance_core.encoding.kernels import (
    check_sizes,
    empty,
    gather,
    gather_windows,
    join_ranges,
    one_buffer,
    starts_of,
    take_inside,
    view_buffer,
)
from lance_core.encoding.values import VariableValues
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.file.encodings import PackedVariable, Variable

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Chunks, Int64s

MAX_INT32 = (1 << 31) - 1
_PAD = 72
_BACK = "Variable: offsets go back"
_MORE_ROOM = 1.02
"""Room for scattered strings beside what as many take on average."""
_LEAST_RUN = 4
"""From so many chunks with as many values as their neighbours on average, neighbours are decoded together."""


def offset_width(offset_bits: int) -> int:
    """Return bytes of an offset.

    Raises:
        CorruptDataError: Not 32 or 64 bits.
    """
    if offset_bits not in (32, 64):
        raise CorruptDataError(f"Variable encoding with offsets of {offset_bits} bits; the format knows 32 and 64")
    return offset_bits // 8


def decode(encoding: Variable, chunks: Chunks) -> VariableValues:
    """Decode all values of all chunks. Offsets come back as int32 if they fit and were so, else as int64.

    Raises:
        CorruptDataError: Offsets that go back or leave their chunk.
    """
    offset_bits = encoding.offset_bits
    raw, begins, ends = _read_offsets(offset_bits, chunks)
    if len(chunks.counts) == 0:
        return VariableValues(np.zeros(1, np.int32), chunks.buffers[0][:0])
    data = gather(chunks.buffers[0], chunks.starts[0] + begins, ends - begins)
    wide = len(data) > MAX_INT32 or offset_bits == 64
    bases = starts_of(ends - begins)
    out = empty(int(chunks.counts.sum()) + 1, np.int64 if wide else np.int32)
    _shift_offsets(raw, chunks.counts, bases[:-1] - begins, out[:-1], has_last=False)
    out[-1] = bases[-1]
    if np.count_nonzero(out[1:] < out[:-1]):
        raise CorruptDataError(_BACK)
    return VariableValues(out, data)


def decode_some(encoding: Variable, chunks: Chunks, positions: Int64s) -> VariableValues | None:
    """Decode many of the values of all chunks, without laying the others end to end first.

    Args:
        encoding: Tells the width of an offset.
        chunks: The chunks.
        positions: Shape (n,), at least one, ascending: among the values of all chunks, and known to be there.

    Returns:
        The values; None if the chunks do not follow each other in a memory that their offsets can count.

    Raises:
        CorruptDataError: Offsets that go back or leave their chunk.
    """
    offset_bits = encoding.offset_bits
    memory, starts, counts = chunks.buffers[0], chunks.starts[0], chunks.counts
    dtype, kind = (np.int64, pa.large_binary()) if offset_bits == 64 else (np.int32, pa.binary())
    if len(memory) > np.iinfo(dtype).max or (starts[1:] < starts[:-1] + chunks.sizes[0][:-1]).any():
        return None
    raw, begins, ends = _read_offsets(offset_bits, chunks)
    out = empty(len(raw) + 1, dtype)
    _shift_offsets(raw, counts, starts, out[:-1], has_last=True)
    out[-1] = out[-2]
    if np.count_nonzero(out[1:] < out[:-1]):
        raise CorruptDataError(_BACK)
    # Between two chunks stands one value that nobody wants: what lies between their bytes. The last one is empty, and
    # is taken so often that Arrow makes room once: it makes room for as many elements of mean size as are taken.
    array = pa.Array.from_buffers(kind, len(out) - 1, [None, pa.py_buffer(out), pa.py_buffer(memory)])
    of_each = positions.searchsorted(starts_of(counts))
    mean = int((ends - begins).sum()) / int(counts.sum())
    room = int(len(positions) * _MORE_ROOM * mean * len(array) / max(1, int(out[-1]) - int(out[0])))
    indices = np.full(max(room, len(positions)), len(array) - 1)
    indices[: len(positions)] = np.repeat(np.arange(len(counts)), of_each[1:] - of_each[:-1])
    np.add(indices[: len(positions)], positions, out=indices[: len(positions)])
    _, bounds, data = take_inside(array, indices).buffers()
    offsets: npt.NDArray[Any] = np.frombuffer(bounds, dtype, len(positions) + 1)
    return VariableValues(offsets, view_buffer(data))


def _read_offsets(offset_bits: int, chunks: Chunks) -> tuple[npt.NDArray[Any], Int64s, Int64s]:
    """Offsets as they are stored, one more than values in each chunk; and the first and last one of each chunk."""
    width = offset_width(offset_bits)
    needed = (chunks.counts + 1) * width
    check_sizes(chunks.sizes[0], needed, "Variable")
    raw = from_bytes(gather(chunks.buffers[0], chunks.starts[0], needed), offset_bits).data
    firsts = starts_of(chunks.counts + 1)
    begins, ends = raw[firsts[:-1]].astype(np.int64), raw[firsts[1:] - 1].astype(np.int64)
    _check_bounds(begins, ends, needed, chunks.sizes[0])
    return raw, begins, ends


def decode_at(encoding: Variable, chunks: Chunks, chunk_of: Int64s, index: Int64s) -> VariableValues:
    """Decode value ``index[i]`` of chunk ``chunk_of[i]``.

    Raises:
        CorruptDataError: Offsets that go back or leave their chunk.
    """
    width = offset_width(encoding.offset_bits)
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
    if np.count_nonzero((begins < needed) | (ends < begins) | (ends > sizes)):
        raise CorruptDataError("Variable: offsets of a chunk point outside of its bytes")


def _shift_offsets(
    raw: npt.NDArray[Any], counts: Int64s, shifts: Int64s, out: npt.NDArray[Any], *, has_last: bool
) -> None:
    """Move the offsets of each chunk, with or without its last one; neighbours with as many values at one go."""
    # Offsets count from the start of their chunk, so that each chunk adds one number to all of its own. Neighbours with
    # as many values are the rows of a matrix, to which a column of such numbers is added.
    source = raw.view(out.dtype) if raw.itemsize == out.itemsize else raw
    moves = shifts.astype(out.dtype)
    ends = [*((counts[1:] != counts[:-1]).nonzero()[0] + 1).tolist(), len(counts)]
    firsts = starts_of(counts + 1)
    if len(ends) * _LEAST_RUN > len(counts) > _LEAST_RUN:
        moved = source + np.repeat(moves, counts + 1)
        out[:] = moved if has_last else np.delete(moved, firsts[1:] - 1)
        return
    at = 0
    for low, high in pairwise([0, *ends]):
        chunks = source[int(firsts[low]) : int(firsts[high])].reshape(high - low, -1)
        wanted = chunks if has_last else chunks[:, :-1]
        into = out[at : at + wanted.size].reshape(wanted.shape)
        np.add(wanted, moves[low:high, None], out=into, casting="unsafe")
        at += wanted.size


def unpack_offsets(encoding: PackedVariable, chunks: Chunks) -> tuple[Variable, Chunks]:
    """Put offsets that are encoded themselves, apart from the bytes, as plain ones in front of the bytes.

    Raises:
        CorruptDataError: Offsets go back, do not begin with 0 or leave the bytes of their chunk.
    """
    width = offset_width(encoding.offset_bits)
    parts: list[Bytes] = []
    sizes: list[int] = []
    is_stored = has_bytes(encoding.offsets)
    for chunk, count in enumerate(chunks.counts.tolist()):
        start, size = int(chunks.starts[0, chunk]), int(chunks.sizes[0, chunk])
        block = chunks.buffers[0][start : start + size if is_stored else start]
        offsets_of_chunk = decode_integers(encoding.offsets, block, count + 1)
        start, size = int(chunks.starts[-1, chunk]), int(chunks.sizes[-1, chunk])
        if (
            offsets_of_chunk[0] != 0
            or (offsets_of_chunk[1:] < offsets_of_chunk[:-1]).any()
            or int(offsets_of_chunk[-1]) > size
        ):
            raise CorruptDataError("Variable: packed offsets of a chunk point outside of its bytes")
        head = (
            (offsets_of_chunk + offsets_of_chunk.dtype.type(len(offsets_of_chunk) * width))
            .astype(f"<u{width}")
            .view(np.uint8)
        )
        parts += [head, chunks.buffers[-1][start : start + size]]
        sizes.append(len(head) + size)
    memory = np.concatenate(parts) if parts else np.empty(0, np.uint8)
    plain = one_buffer(memory, starts_of(np.array(sizes, np.int64)), chunks.counts)
    return Variable(encoding.offset_bits), plain


def decode_one(encoding: Variable) -> Scalar | None:
    """Make the reader of single values; None for offsets of another width than 32 and 64 bits."""
    if encoding.offset_bits not in (32, 64):
        return None
    pair = Struct("<2I" if encoding.offset_bits == 32 else "<2Q")
    width = encoding.offset_bits // 8

    def read(memory: memoryview, start: int, size: int, count: int, index: int) -> bytes:
        needed = (count + 1) * width
        if size < needed:
            raise CorruptDataError(f"Variable: a chunk has {size} bytes where {needed} are needed")
        begin, end = pair.unpack_from(memory, start + index * width)
        if not needed <= begin <= end <= size:
            raise CorruptDataError("Variable: offsets of a chunk point outside of its bytes")
        return bytes(memory[start + begin : start + end])

    return Scalar(read, ("strings", 0))


def decode_blocks(encoding: Variable, blocks: Chunks) -> VariableValues:
    """Decode blocks with header, end to end.

    Raises:
        CorruptDataError: Header or offsets do not fit the block.
        UnsupportedError: The header of very old writers.
    """
    memory, starts, sizes, counts = blocks.buffers[0], blocks.starts[0], blocks.sizes[0], blocks.counts
    width = offset_width(encoding.offset_bits)
    heads = (counts + 3) * width
    check_sizes(sizes, heads, "Variable block")
    header_words: Int64s = from_bytes(gather(memory, starts, heads), encoding.offset_bits).data.astype(np.int64)
    # A header of two words stands before the offsets of each block: there is one more than there are values.
    headers = starts_of(counts + 3)[:-1]
    if (header_words[headers] != encoding.offset_bits).any():
        raise UnsupportedError(
            f"Variable block that starts with {int(header_words[headers][0])} (a header of early Lance versions)"
        )
    bodies = header_words[headers + 1]
    if (bodies < heads).any() or (bodies > sizes).any():
        raise CorruptDataError("Variable block: bytes start outside of the block")
    lengths = np.diff(header_words)
    ends = header_words[headers + counts + 2]
    lengths[headers[1:] - 1] = lengths[headers] = lengths[headers + 1] = 0  # these are no values
    if header_words[headers + 2].any() or (lengths < 0).any() or (ends > sizes - bodies).any():
        raise CorruptDataError("Variable block: offsets go back or beyond the end")
    is_value = np.ones(len(lengths), np.bool_)
    is_value[headers[1:] - 1] = is_value[headers] = is_value[headers + 1] = False
    offsets = starts_of(lengths[is_value])
    if width == np.dtype(np.int32).itemsize and offsets[-1] <= MAX_INT32:
        offsets = offsets.astype(np.int32)
    return VariableValues(offsets, gather(memory, starts + bodies, ends))


def encode_chunks(values: VariableValues, counts: Int64s) -> Chunks:
    """Encode offsets and bytes of each chunk, padded to whole offsets as pylance does.

    Args:
        values: The values; int64 offsets are written as 64 bits, int32 as 32.
        counts: Values per chunk, all equal but the last.
    """
    # All chunks but the last have as many values: their offsets are rows of a matrix, each with one column more for the
    # end of the chunk. A row is shifted by the size of the offsets less where its first string starts.
    width = values.offsets.dtype.itemsize
    firsts = starts_of(counts)
    bounds = values.offsets[firsts].astype(np.int64)
    heads = offset_bytes(values, counts)
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


def offset_bytes(values: VariableValues, counts: Int64s) -> Int64s:
    """Return the bytes of the offsets in front of each chunk of so many values."""
    return (counts + 1) * values.offsets.dtype.itemsize


def mean_bytes(values: VariableValues) -> float:
    """Return the mean bytes of a value and its offset."""
    return int(values.offsets[-1] - values.offsets[0]) / max(1, len(values)) + values.offsets.dtype.itemsize


def encode_block(values: VariableValues) -> Bytes:
    """Encode a block: header, offsets from 0, bytes."""
    begin, end = int(values.offsets[0]), int(values.offsets[-1])
    offsets = values.offsets - begin
    width = offsets.dtype.itemsize
    head = np.array([width * 8, (len(offsets) + 2) * width], offsets.dtype)
    return np.concatenate((head.view(np.uint8), offsets.view(np.uint8), values.data[begin:end]))


VARIABLE = Codec(
    serves=Variable,
    decode=decode,
    decode_at=decode_at,
    decode_one=decode_one,
    decode_some=decode_some,
    decode_blocks=decode_blocks,
    decode_strings=lambda _, values: values,
)
PACKED_VARIABLE = Codec(
    serves=PackedVariable,
    num_buffers=lambda encoding: 1 + has_bytes(encoding.offsets),
    unwrap=unpack_offsets,
    decode_blocks=not_in_blocks,
)
