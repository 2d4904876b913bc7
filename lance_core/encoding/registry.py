"""The codec of each encoding, and what layouts ask of them: the only place that asks which encoding it is.

Source: message ``CompressiveEncoding`` and its uses in mini-block chunks, blocks and full-zip values.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lance_core.common.late_module import LateModule
from lance_core.encoding.arrow_values import own_values, slice_values, take_values
from lance_core.encoding.codecs import bitpack, fixed_size_list, flat, general, packed_struct, variable
from lance_core.encoding.codecs.codec import (
    CODECS,
    decode_block,
    decode_blocks_of,
    decode_integers,
    decode_rows,
    decode_strings,
    has_bytes,
    one_block,
    unsupported,
    unwrap,
)
from lance_core.encoding.kernels import check_chunks, starts_of
from lance_core.encoding.values import Chunks, FixedValues
from lance_core.errors import CorruptDataError
from lance_core.format.file.encodings import BlockRle, ByteStreamSplit, Constant, Delta, Dictionary, Fsst, Range, Rle

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.encoding.codecs.codec import Codec, Scalar
    from lance_core.encoding.repdef import LevelArray
    from lance_core.encoding.values import Bytes, Int64s, Values
    from lance_core.format.file.encodings import Encoding

__all__ = ["CODECS", "decode_block", "decode_integers", "decode_rows", "decode_strings", "has_bytes"]

CODECS.update(
    (entry.serves, entry)
    for entry in (
        flat.FLAT,
        bitpack.INLINE_BITPACKING,
        bitpack.OUT_OF_LINE_BITPACKING,
        variable.VARIABLE,
        variable.PACKED_VARIABLE,
        general.GENERAL,
        fixed_size_list.FIXED_SIZE_LIST,
        packed_struct.PACKED_STRUCT,
        packed_struct.VARIABLE_PACKED_STRUCT,
    )
)
CODECS.update(
    (kind, cast("Codec[Any]", LateModule(f"lance_core.encoding.codecs.{module}", name)))
    for kind, module, name in (
        (ByteStreamSplit, "byte_stream_split", "BYTE_STREAM_SPLIT"),
        (Rle, "rle", "RLE"),
        (BlockRle, "rle", "BLOCK_RLE"),
        (Fsst, "fsst", "FSST"),
        (Constant, "sequences", "CONSTANT"),
        (Range, "sequences", "RANGE"),
        (Delta, "sequences", "DELTA"),
        (Dictionary, "sequences", "DICTIONARY"),
    )
)
"""These are imported when a file has them: most have none."""

_SMALL_BYTES = 1 << 22
"""Blocks of so many bytes in all cost more for their steps than for laying them end to end."""

_LEVEL = np.dtype(np.uint16)


def codec_named(name: str) -> Codec[Encoding] | None:
    """Return the codec that fields ask for by this name, None if there is none."""
    return next((entry for entry in CODECS.values() if entry.name == name), None)


def num_buffers(encoding: Encoding) -> int:
    """Return the value buffers of each mini-block chunk; there is always one."""
    count = CODECS[type(encoding)].num_buffers
    return 1 if count is None else max(1, count(encoding))


def decode_chunks(encoding: Encoding, chunks: Chunks) -> Values:
    """Decode the values of many mini-block chunks of one encoding, end to end.

    Args:
        encoding: How all the chunks are encoded.
        chunks: The chunks, of one page or of several.

    Raises:
        CorruptDataError: Sizes, counts or contents that do not fit each other.
        UnsupportedError: An encoding that cannot be read here.
    """
    check_chunks(chunks, num_buffers(encoding))
    codec, encoding, chunks = unwrap(encoding, chunks)
    if codec.decode is None:
        raise unsupported(encoding, "a mini-block chunk")
    return codec.decode(encoding, chunks)


def decode_some(encoding: Encoding, chunks: Chunks, positions: Int64s) -> Values:
    """Decode many of the values of mini-block chunks.

    Args:
        encoding: How all the chunks are encoded.
        chunks: The chunks, of one page or of several.
        positions: Shape (n,), at least one, ascending: among the values of all chunks, and known to be there.

    Raises:
        CorruptDataError: Sizes, counts or contents that do not fit each other.
        UnsupportedError: An encoding that cannot be read here.
    """
    check_chunks(chunks, num_buffers(encoding))
    codec, inner, plain = unwrap(encoding, chunks)
    some = None if codec.decode_some is None else codec.decode_some(inner, plain, positions)
    return take_values(decode_chunks(inner, plain), positions) if some is None else some


def decode_points(encoding: Encoding, chunks: Chunks, chunk_of: Int64s, index: Int64s) -> Values:
    """Decode some values of mini-block chunks, without the others where the encoding allows it.

    Args:
        encoding: How all the chunks are encoded.
        chunks: The chunks, of one page or of several.
        chunk_of: Shape (n,): the chunk of each value.
        index: Shape (n,): which of the chunk's values it is.

    Raises:
        CorruptDataError: Sizes, counts or contents that do not fit each other.
        UnsupportedError: An encoding that cannot be read here.
    """
    check_chunks(chunks, num_buffers(encoding))
    if (index < 0).any() or (index >= chunks.counts[chunk_of]).any():
        raise CorruptDataError("values are wanted that their chunks do not hold")
    codec, encoding, chunks = unwrap(encoding, chunks)
    picked = None if codec.decode_at is None else codec.decode_at(encoding, chunks, chunk_of, index)
    if picked is None:
        return take_values(decode_chunks(encoding, chunks), starts_of(chunks.counts)[chunk_of] + index)
    return picked


def value_bytes(encoding: Encoding) -> int:
    """Return the bytes of a value if buffers hold nothing but values, one after the other; else 0."""
    measure = CODECS[type(encoding)].value_bytes
    return 0 if measure is None else measure(encoding)


def scalar_of(encoding: Encoding) -> Scalar | None:
    """Return what reads single values of chunks; None if that takes more than a look at a few bytes."""
    make = CODECS[type(encoding)].decode_one
    return None if make is None else make(encoding)


def decode_blocks(encoding: Encoding, blocks: Sequence[Bytes], counts: Sequence[int]) -> list[Values]:
    """Decode blocks of one encoding to memory of their own, small ones together; errors as `decode_block`.

    Args:
        encoding: How each block is encoded.
        blocks: Exactly the blocks.
        counts: Number of values of each.
    """
    if len(blocks) == 1 or sum(map(len, blocks)) > _SMALL_BYTES:
        parts = [decode_block(encoding, block, count) for block, count in zip(blocks, counts, strict=True)]
        return list(map(own_values, parts))
    bounds = starts_of(np.array([len(block) for block in blocks], np.int64))
    together = Chunks(
        buffers=(np.concatenate(blocks),),
        starts=bounds[None, :-1],
        sizes=np.diff(bounds)[None],
        counts=np.array(counts, np.int64),
    )
    values = decode_joined(encoding, together)
    return [own_values(slice_values(values, *ends)) for ends in pairwise(accumulate(counts, initial=0))]


def decode_joined(encoding: Encoding, blocks: Chunks) -> Values:
    """Decode several blocks of one encoding end to end; errors as `decode_block`."""
    check_chunks(blocks, 1)
    values, num_values = decode_blocks_of(encoding, blocks), int(blocks.counts.sum())
    if len(values) != num_values:
        raise CorruptDataError(f"blocks of {len(values)} values where there are {num_values}")
    return values


def decode_levels(encoding: Encoding, data: bytes, count: int) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Decode the levels of one chunk, in as few steps as possible.

    Args:
        encoding: How they are encoded.
        data: Their buffer.
        count: How many there are.

    Returns:
        Shape (count,), unsigned, of 8 or 16 bits.

    Raises:
        CorruptDataError: The buffer does not hold them.
        UnsupportedError: An encoding that cannot be read here.
    """
    decode = CODECS[type(encoding)].decode_levels
    levels = None if decode is None else decode(encoding, data, count)
    return decode_level_chunks(encoding, one_block(np.frombuffer(data, np.uint8), count)) if levels is None else levels


def decode_level_chunks(encoding: Encoding, chunks: Chunks) -> LevelArray:
    """Decode repetition or definition levels of many mini-block chunks, end to end.

    Args:
        encoding: How the levels of each chunk are encoded.
        chunks: One buffer per chunk, a block of levels; counts are numbers of levels.

    Raises:
        CorruptDataError: A block does not fit its encoding or count.
        UnsupportedError: An encoding that cannot be read here.
    """
    check_chunks(chunks, 1)
    if len(chunks.counts) == 0:
        return np.empty(0, _LEVEL)
    return _levels(decode_blocks_of(encoding, chunks), encoding)


def decode_levels_at(encoding: Encoding, chunks: Chunks, chunk_of: Int64s, index: Int64s) -> LevelArray:
    """Decode some levels of mini-block chunks.

    Args:
        encoding: How the levels of all chunks are encoded.
        chunks: One buffer for each chunk; counts are numbers of levels.
        chunk_of: Shape (n,): the chunk of each level.
        index: Shape (n,): which of the chunk's levels it is; there are as many.

    Raises:
        CorruptDataError: Buffers that leave their page or do not hold their levels.
        UnsupportedError: An encoding that cannot be read here.
    """
    check_chunks(chunks, 1)
    codec = CODECS[type(encoding)]
    picked = None if codec.decode_at is None else codec.decode_at(encoding, chunks, chunk_of, index)
    if picked is None:
        return decode_level_chunks(encoding, chunks)[starts_of(chunks.counts)[chunk_of] + index]
    return _levels(picked, encoding)


def _levels(values: Values, encoding: Encoding) -> LevelArray:
    if not isinstance(values, FixedValues) or values.data.dtype != _LEVEL:
        raise CorruptDataError(f"levels in {encoding}; they have 16 bits")
    levels: LevelArray = values.data.view(_LEVEL)
    return levels
