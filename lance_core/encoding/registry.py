"""Which codec decodes which encoding: the only place that asks.

Source: message ``CompressiveEncoding`` and its uses in mini-block chunks, blocks and full-zip values.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.encoding.arrow_values import take_values
from lance_core.encoding.codecs import (
    bitpack,
    byte_stream_split,
    fixed_size_list,
    flat,
    fsst,
    general,
    packed_struct,
    rle,
    sequences,
    variable,
)
from lance_core.encoding.kernels import MAX_CHUNK_VALUES, check_chunks, starts_of
from lance_core.encoding.values import Chunks, FixedValues, VariableValues
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.encodings import (
    BlockRle,
    ByteStreamSplit,
    Constant,
    Delta,
    Dictionary,
    FixedSizeList,
    Flat,
    Fsst,
    General,
    InlineBitpacking,
    OutOfLineBitpacking,
    PackedStruct,
    PackedVariable,
    Range,
    Rle,
    Variable,
    VariablePackedStruct,
    value_bits,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Int64s, StructValues, Values
    from lance_core.format.encodings import Encoding, SequenceEncoding

_SMALL_BYTES = 1 << 22
"""Blocks of so many bytes in all cost more for their steps than for laying them end to end."""


def _unsupported(encoding: Encoding, where: str) -> UnsupportedError:
    return UnsupportedError(f"{type(encoding).__name__} encoding in {where}")


def num_buffers(encoding: Encoding) -> int:
    """Value buffers of each mini-block chunk."""
    match encoding:
        case Rle():
            return 2
        case BlockRle():
            return max(1, sequences.has_bytes(encoding.values) + sequences.has_bytes(encoding.lengths))
        case FixedSizeList():
            return fixed_size_list.num_buffers(encoding)
        case General() | Fsst():
            return num_buffers(encoding.values)
        case PackedVariable():
            return 1 + sequences.has_bytes(encoding.offsets)
        case _:
            return 1


def decode_chunks(encoding: Encoding, chunks: Chunks) -> Values:
    """Values of many mini-block chunks of one encoding, end to end.

    Args:
        encoding: How all the chunks are encoded.
        chunks: The chunks, of one page or of several.

    Raises:
        CorruptDataError: Sizes, counts or contents that do not fit each other.
        UnsupportedError: An encoding that cannot be read here.
    """
    check_chunks(chunks, num_buffers(encoding))
    return _decode_chunks(encoding, chunks)


def _decode_chunks(encoding: Encoding, chunks: Chunks) -> Values:
    encoding, chunks = _plain(encoding, chunks)
    match encoding:
        case Flat():
            return flat.decode_chunks(encoding.bits, chunks)
        case InlineBitpacking():
            return bitpack.decode_inline(encoding.bits, chunks)
        case Variable():
            return variable.decode_chunks(encoding.offset_bits, chunks)
        case Fsst():
            return fsst.decode(encoding.symbol_table, variable.decode_chunks(encoding.values.offset_bits, chunks))
        case Rle():
            return rle.decode_chunks(encoding.bits, chunks, encoding.length_bits)
        case ByteStreamSplit():
            return byte_stream_split.decode_chunks(encoding.bits, chunks)
        case FixedSizeList():
            return fixed_size_list.decode_chunks(encoding, chunks)
        case PackedStruct():
            return _decode_chunks(encoding.values, chunks)
        case General():
            return _decode_chunks(encoding.values, general.decompress_chunks(encoding.compression, chunks))
        case _:
            raise _unsupported(encoding, "a mini-block chunk")


def decode_some(encoding: Encoding, chunks: Chunks, positions: Int64s) -> Values:
    """Many of the values of mini-block chunks.

    Args:
        encoding: How all the chunks are encoded.
        chunks: The chunks, of one page or of several.
        positions: Shape (n,), at least one, ascending: among the values of all chunks, and known to be there.

    Raises:
        CorruptDataError: Sizes, counts or contents that do not fit each other.
        UnsupportedError: An encoding that cannot be read here.
    """
    check_chunks(chunks, num_buffers(encoding))
    return _decode_some(encoding, chunks, positions)


def _decode_some(encoding: Encoding, chunks: Chunks, positions: Int64s) -> Values:
    encoding, chunks = _plain(encoding, chunks)
    match encoding:
        case General():
            plain = general.decompress_chunks(encoding.compression, chunks)
            return _decode_some(encoding.values, plain, positions)
        case Variable():
            found = variable.decode_some(encoding.offset_bits, chunks, positions)
        case Fsst():
            codes = variable.decode_some(encoding.values.offset_bits, chunks, positions)
            found = None if codes is None else fsst.decode(encoding.symbol_table, codes)
        case _:
            found = None
    return take_values(_decode_chunks(encoding, chunks), positions) if found is None else found


def decode_points(encoding: Encoding, chunks: Chunks, chunk_of: Int64s, index: Int64s) -> Values | None:
    """Some values of mini-block chunks without decoding the others.

    Args:
        encoding: How all the chunks are encoded.
        chunks: The chunks, of one page or of several.
        chunk_of: Shape (n,): the chunk of each value.
        index: Shape (n,): which of the chunk's values it is.

    Returns:
        The values; None if this encoding can only be decoded chunk by chunk.

    Raises:
        CorruptDataError: Sizes, counts or contents that do not fit each other.
        UnsupportedError: An encoding that cannot be read here.
    """
    check_chunks(chunks, num_buffers(encoding))
    if (index < 0).any() or (index >= chunks.counts[chunk_of]).any():
        raise CorruptDataError("values are wanted that their chunks do not hold")
    return _decode_points(encoding, chunks, chunk_of, index)


def _decode_points(encoding: Encoding, chunks: Chunks, chunk_of: Int64s, index: Int64s) -> Values | None:
    encoding, chunks = _plain(encoding, chunks)
    match encoding:
        case Flat():
            return flat.decode_points(encoding.bits, chunks, chunk_of, index)
        case InlineBitpacking():
            return bitpack.decode_inline_points(encoding.bits, chunks, chunk_of, index)
        case Variable():
            return variable.decode_points(encoding.offset_bits, chunks, chunk_of, index)
        case Fsst():
            codes = variable.decode_points(encoding.values.offset_bits, chunks, chunk_of, index)
            return fsst.decode(encoding.symbol_table, codes)
        case Rle():
            return rle.decode_points(encoding.bits, chunks, chunk_of, index, encoding.length_bits)
        case General():
            plain = general.decompress_chunks(encoding.compression, chunks)
            return _decode_points(encoding.values, plain, chunk_of, index)
        case FixedSizeList():
            return fixed_size_list.decode_points(encoding, chunks, chunk_of, index)
        case PackedStruct():
            return _decode_points(encoding.values, chunks, chunk_of, index)
        case _:
            return None


def decode_block(encoding: Encoding, data: Bytes, count: int) -> Values:
    """Values of one block (levels, dictionaries).

    Args:
        encoding: How the block is encoded.
        data: Exactly the block.
        count: Number of values.

    Raises:
        CorruptDataError: The block does not fit its encoding or count.
        UnsupportedError: An encoding that cannot be read here.
    """
    if count > MAX_CHUNK_VALUES:
        raise CorruptDataError(f"a block of {count} values")
    block = _one_block(data, count)
    check_chunks(block, 1)
    return _decode_blocks(encoding, block)


def _one_block(data: Bytes, count: int) -> Chunks:
    return Chunks(
        buffers=(data,),
        starts=np.zeros((1, 1), np.int64),
        sizes=np.full((1, 1), len(data), np.int64),
        counts=np.array([count], np.int64),
    )


def decode_blocks(encoding: Encoding, blocks: Sequence[Bytes], counts: Sequence[int]) -> list[Values]:
    """Decode several blocks of one encoding, small ones together; errors as `decode_block`.

    Args:
        encoding: How each block is encoded.
        blocks: Exactly the blocks.
        counts: Number of values of each.
    """
    is_small = sum(map(len, blocks)) <= _SMALL_BYTES
    if not isinstance(encoding, General) or len(blocks) == 1 or not is_small:
        return [decode_block(encoding, block, count) for block, count in zip(blocks, counts, strict=True)]
    bounds = starts_of(np.array([len(block) for block in blocks], np.int64))
    together = Chunks(
        buffers=(np.concatenate(blocks),),
        starts=bounds[None, :-1],
        sizes=np.diff(bounds)[None],
        counts=np.array(counts, np.int64),
    )
    check_chunks(together, 1)
    plain = general.decompress_chunks(encoding.compression, together)
    bounds = [*plain.starts[0].tolist(), len(plain.buffers[0])]
    return decode_blocks(encoding.values, [plain.buffers[0][low:high] for low, high in pairwise(bounds)], counts)


def decode_level_chunks(encoding: Encoding, chunks: Chunks) -> npt.NDArray[np.uint16]:
    """Repetition or definition levels of many mini-block chunks, end to end.

    Args:
        encoding: How the levels of each chunk are encoded.
        chunks: One buffer per chunk, a block of levels; counts are numbers of levels.

    Raises:
        CorruptDataError: A block does not fit its encoding or count.
        UnsupportedError: An encoding that cannot be read here.
    """
    check_chunks(chunks, 1)
    if len(chunks.counts) == 0:
        return np.empty(0, np.uint16)
    values = _decode_blocks(encoding, chunks)
    if not isinstance(values, FixedValues) or values.data.dtype != np.uint16:
        raise CorruptDataError(f"levels in {encoding}; they have 16 bits")
    levels: npt.NDArray[Any] = values.data
    return levels


def _decode_blocks(encoding: Encoding, blocks: Chunks) -> Values:
    match encoding:
        case Flat() | InlineBitpacking():
            return _decode_chunks(encoding, blocks)
        case OutOfLineBitpacking():
            return bitpack.decode_out_of_line(encoding.bits, encoding.packed_bits, blocks)
        case Rle():
            return rle.decode_chunks(encoding.bits, rle.split_blocks(blocks), encoding.length_bits)
        case General():
            return _decode_blocks(encoding.values, general.decompress_chunks(encoding.compression, blocks))
        case FixedSizeList() if num_buffers(encoding) == 1:
            return _decode_chunks(encoding, blocks)
        case FixedSizeList() if len(blocks.counts) == 1:
            return _decode_list_block(encoding, blocks)
        case Variable() if len(blocks.counts) == 1:
            start, size = int(blocks.starts[0, 0]), int(blocks.sizes[0, 0])
            data = blocks.buffers[0][start : start + size]
            return variable.decode_block(encoding.offset_bits, data, int(blocks.counts[0]))
        case Constant() | Range() | Delta() | Dictionary() | BlockRle():
            ends = blocks.starts[0] + blocks.sizes[0]
            bounds = zip(blocks.starts[0].tolist(), ends.tolist(), blocks.counts.tolist(), strict=True)
            several = [_decode_sequence(encoding, blocks.buffers[0][low:high], count) for low, high, count in bounds]
            return FixedValues(np.concatenate(several))
        case _:
            raise _unsupported(encoding, "a block")


def _decode_list_block(encoding: FixedSizeList, blocks: Chunks) -> Values:
    """Values of a block of fixed-size lists with validity: the rows of a full-zip page."""
    start, size, count = int(blocks.starts[0, 0]), int(blocks.sizes[0, 0]), int(blocks.counts[0])
    if count == 0 or size % count:
        raise CorruptDataError(f"a block of {size} bytes for {count} fixed-size lists")
    return fixed_size_list.decode_fixed_zip(encoding, blocks.buffers[0][start : start + size].reshape(count, -1))


def decode_integers(encoding: Encoding, data: Bytes, count: int) -> npt.NDArray[Any]:
    """Integers of one block, such as positions or offsets.

    Args:
        encoding: How the block is encoded.
        data: Exactly the block; empty for an encoding without bytes.
        count: Number of integers.

    Raises:
        CorruptDataError: The block does not fit its encoding or count.
        UnsupportedError: An encoding that cannot be read here.
    """
    values = decode_block(encoding, data, count)
    if not isinstance(values, FixedValues) or values.data.ndim != 1 or values.data.dtype == np.bool_:
        raise CorruptDataError(f"integers in {type(encoding).__name__} encoding that holds others")
    if len(values) != count:
        raise CorruptDataError(f"a block holds {len(values)} integers instead of {count}")
    return values.data


def _decode_sequence(encoding: SequenceEncoding, data: Bytes, count: int) -> npt.NDArray[Any]:
    match encoding:
        case Constant(value):
            return sequences.repeat(value, count)
        case Range():
            return sequences.spread(encoding, count)
        case Delta():
            return sequences.add_up(encoding, decode_integers(encoding.deltas, data, max(count - 1, 0)), count)
        case Dictionary():
            first, second = sequences.split_dictionary(encoding, data)
            items = decode_integers(encoding.items, second, encoding.num_items)
            return sequences.look_up(items, decode_integers(encoding.indices, first, count))
        case BlockRle():
            return sequences.expand(*_decode_runs(encoding, *sequences.split_runs(encoding, data), count), count)


def _decode_runs(
    encoding: BlockRle, first: Bytes, second: Bytes, count: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Values and lengths of the runs that stand for so many integers, from the block of each."""
    values, first = _decompressed(encoding.values, first)
    lengths, second = _decompressed(encoding.lengths, second)
    encoding = BlockRle(values, lengths)
    runs = sequences.num_runs(encoding, first, second, count)
    if runs is None:
        runs = _count_runs(encoding.lengths, second, count)
    return decode_integers(encoding.values, first, runs), decode_integers(encoding.lengths, second, runs)


def _decompressed(encoding: Encoding, data: Bytes) -> tuple[Encoding, Bytes]:
    """Return the block below compression, and how it is encoded."""
    while isinstance(encoding, General):
        plain = general.decompress_chunks(encoding.compression, _one_block(data, 0))
        start, size = int(plain.starts[0, 0]), int(plain.sizes[0, 0])
        encoding, data = encoding.values, plain.buffers[0][start : start + size]
    return encoding, data


def _count_runs(encoding: Encoding, data: Bytes, count: int) -> int:
    """Return how many packed run lengths add up to the count: padding is part of the last block."""
    if not isinstance(encoding, OutOfLineBitpacking) or encoding.packed_bits == 0:
        raise UnsupportedError("runs whose number neither values nor lengths tell are not supported")
    lengths = decode_integers(encoding, data, bitpack.most_values(encoding.bits, encoding.packed_bits, len(data)))
    ends = np.cumsum(lengths, dtype=np.uint64)
    return int(np.searchsorted(ends, np.uint64(count))) + 1 if count else 0


def _plain(encoding: Encoding, chunks: Chunks) -> tuple[Encoding, Chunks]:
    """Turn offsets and runs that are encoded themselves into plain ones; leave other chunks as they are."""
    match encoding:
        case BlockRle():
            return _unpack_runs(encoding, chunks)
        case PackedVariable():
            return Variable(encoding.offset_bits), _unpack_offsets(encoding, chunks)
        case Fsst(symbol_table, PackedVariable() as values):
            return Fsst(symbol_table, Variable(values.offset_bits)), _unpack_offsets(values, chunks)
        case _:
            return encoding, chunks


def _unpack_runs(encoding: BlockRle, chunks: Chunks) -> tuple[Rle, Chunks]:
    bits = value_bits(encoding.values)
    ends = chunks.starts + chunks.sizes
    values: list[npt.NDArray[Any]] = []
    lengths: list[npt.NDArray[Any]] = []
    for chunk, count in enumerate(chunks.counts.tolist()):
        blocks = [
            one[int(ends[number, chunk] - chunks.sizes[number, chunk]) : int(ends[number, chunk])]
            for number, one in enumerate(chunks.buffers)
        ]
        first = blocks.pop(0) if sequences.has_bytes(encoding.values) else np.empty(0, np.uint8)
        second = blocks.pop(0) if sequences.has_bytes(encoding.lengths) else np.empty(0, np.uint8)
        own, sizes = _decode_runs(encoding, first, second, count)
        if own.dtype.itemsize * 8 != bits or (len(sizes) and int(sizes.max()) > count):
            raise CorruptDataError(f"runs of a chunk do not fit its {count} values of {bits} bits")
        values.append(own)
        lengths.append(sizes.astype(np.uint32))
    sizes = np.array([[one.nbytes for one in part] for part in (values, lengths)], np.int64).reshape(2, -1)
    joined = [np.concatenate(part).view(np.uint8) if part else np.empty(0, np.uint8) for part in (values, lengths)]
    starts = np.stack([starts_of(one)[:-1] for one in sizes])
    return Rle(bits, 32), Chunks(buffers=(joined[0], joined[1]), starts=starts, sizes=sizes, counts=chunks.counts)


def _unpack_offsets(encoding: PackedVariable, chunks: Chunks) -> Chunks:
    nothing = np.empty(0, np.uint8)
    has_bytes = sequences.has_bytes(encoding.offsets)
    offsets: list[npt.NDArray[Any]] = []
    for chunk, count in enumerate(chunks.counts.tolist()):
        start, size = int(chunks.starts[0, chunk]), int(chunks.sizes[0, chunk])
        block = chunks.buffers[0][start : start + size] if has_bytes else nothing
        offsets.append(decode_integers(encoding.offsets, block, count + 1))
    return variable.with_offsets(encoding.offset_bits, offsets, chunks)


def decode_strings(encoding: Encoding, values: VariableValues) -> VariableValues:
    """Full-zip values of variable width, each of which was encoded on its own.

    Args:
        encoding: How the bytes of each value are encoded.
        values: The encoded bytes.

    Raises:
        CorruptDataError: Bytes that the encoding cannot have made.
        UnsupportedError: An encoding that cannot be read here.
    """
    match encoding:
        case Variable():
            return values
        case Fsst():
            return fsst.decode(encoding.symbol_table, values)
        case General(values=Variable() | Fsst()):
            return decode_strings(encoding.values, general.decompress_values(encoding.compression, values))
        case _:
            raise _unsupported(encoding, "full-zip values of variable width")


def decode_variable_zip(encoding: Encoding, values: VariableValues) -> VariableValues | StructValues:
    """Full-zip values of variable width: strings, or packed structs; errors as in `decode_strings`."""
    if isinstance(encoding, VariablePackedStruct):
        return packed_struct.decode_variable(encoding, values, decode_strings, decode_fixed_zip)
    return decode_strings(encoding, values)


def decode_fixed_zip(encoding: Encoding, rows: Bytes, kind: pa.DataType | None = None) -> Values:
    """Decode full-zip values of fixed width.

    Args:
        encoding: Flat, or fixed-size lists.
        rows: Shape (n, bytes per value).
        kind: Arrow type of the values, if known; booleans that are in no list take a byte each.

    Raises:
        CorruptDataError: Rows have another width than the encoding.
        UnsupportedError: An encoding that cannot be read here.
    """
    match encoding:
        case Flat() if encoding.bits % 8 == 0 and encoding.bits // 8 == rows.shape[1]:
            values = flat.from_bytes(np.ascontiguousarray(rows).reshape(-1), encoding.bits)
            return FixedValues(values.data != 0) if kind == pa.bool_() else values
        case Flat():
            raise CorruptDataError(f"full-zip value of {rows.shape[1]} bytes where {encoding.bits} bits are needed")
        case FixedSizeList():
            return fixed_size_list.decode_fixed_zip(encoding, rows, kind)
        case _:
            raise _unsupported(encoding, "full-zip values of fixed width")
