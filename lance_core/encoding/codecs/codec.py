"""The codec: one object that knows all about one physical encoding.

A codec serves values, repetition and definition levels, and dictionaries alike. It needs no more than `Codec.decode`;
everything else makes it faster, or is there because the format stores that encoding in another form somewhere.

`lance_core.encoding.registry` fills `CODECS`. Encodings around others ask here for the codec of what is inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np

from lance_core.common.frozen import NamedTuple, frozen
from lance_core.encoding.kernels import MAX_CHUNK_VALUES, check_chunks
from lance_core.encoding.values import Chunks, FixedValues, VariableValues
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.file.encodings import Encoding

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    import pyarrow as pa

    from lance_core.encoding.values import Bytes, Int64s, LeafValues, Values

_E = TypeVar("_E", bound=Encoding)

Read: TypeAlias = "Callable[[memoryview, int, int, int, int], bytes]"
"""Returns the bytes of a value. Takes memory, position and size of a chunk's buffer, its values, and which of them."""

Shape: TypeAlias = tuple[str, int]
"""Kind of the values ("bits", "words", "lists" or "strings"), and the bytes of each; 0 if they vary."""


class Scalar(NamedTuple):
    """Reads single values of chunks without numpy, whose calls cost as much for one value as for a thousand.

    Attributes:
        read: Reads a value.
        shape: What values are.
        open: Makes one buffer to read from of those of a chunk, as by decompressing it; None if its only buffer can be
            read as it is.
    """

    read: Read
    shape: Shape
    open: Callable[..., memoryview] | None = None


@frozen(kw_only=True)
class Codec(Generic[_E]):
    """One physical encoding.

    The first four functions are what a new codec is made of; `decode` alone is enough. Functions get the encoding, as
    it stands in the page layout, as first argument. They check sizes before they trust them and raise CorruptDataError;
    ranges that leave the memory, and values that chunks do not hold, are refused before they are called.

    Attributes:
        serves: Class of the encoding in `lance_core.format.file.encodings`.
        decode: Decodes all values of many chunks, end to end. Blocks of levels or of a dictionary come as chunks, too.
        decode_at: Decodes value ``index[i]`` of chunk ``chunk_of[i]`` without the others; None if it cannot.
        decode_one: Makes the reader of single values; None if there is none for these parameters.
        encode: Encodes values for fields that ask for `name`, given the bytes that a chunk should aim at (None for the
            codec's choice) and the most values of a chunk, whose numbers are powers of two but for the last. None
            leaves values to the other encodings.
        name: Value of the field metadata ``lance-encoding:compression`` that asks for the codec.
        num_buffers: Returns the value buffers of a chunk; None for one. 0 for encodings without bytes.
        unwrap: Turns chunks into those of the encoding inside; None if they can be decoded as they are.
        decode_some: Decodes many of the values, ascending positions among all; None if it cannot.
        decode_blocks: Decodes blocks, where these have another form than chunks.
        value_bytes: Returns the bytes of a value where values lie one after the other, as they are; 0 for bits.
        decode_levels: Decodes one short block of 16-bit levels, given its bytes and their number, to 8 or 16 bits in
            fewer steps than `decode`; None if it cannot.
        decode_rows: Decodes full-zip values of one width, shape (n, width), of an Arrow type, if that is known.
        decode_strings: Decodes full-zip values of variable width, each of which was encoded on its own.
    """

    serves: type[_E]
    decode: Callable[[_E, Chunks], Values] | None = None
    decode_at: Callable[[_E, Chunks, Int64s, Int64s], Values | None] | None = None
    decode_one: Callable[[_E], Scalar | None] | None = None
    encode: Callable[[Values, int | None, int], tuple[Encoding, Chunks] | None] | None = None
    name: str | None = None
    num_buffers: Callable[[_E], int] | None = None
    unwrap: Callable[[_E, Chunks], tuple[Encoding, Chunks] | None] | None = None
    decode_some: Callable[[_E, Chunks, Int64s], Values | None] | None = None
    decode_blocks: Callable[[_E, Chunks], Values] | None = None
    value_bytes: Callable[[_E], int] | None = None
    decode_levels: Callable[[_E, bytes, int], npt.NDArray[np.unsignedinteger[Any]] | None] | None = None
    decode_rows: Callable[[_E, Bytes, pa.DataType | None], Values] | None = None
    decode_strings: Callable[[_E, VariableValues], LeafValues] | None = None


class Codecs(dict[type[Encoding], Codec[Any]]):
    """Codecs by the class of their encoding; others raise UnsupportedError."""

    def __missing__(self, kind: type[Encoding]) -> Codec[Any]:
        raise UnsupportedError(f"{kind.__name__} encoding")


CODECS = Codecs()
"""The codec of each encoding."""


def unsupported(encoding: Encoding, where: str) -> UnsupportedError:
    """Return the error for an encoding where it cannot be read."""
    return UnsupportedError(f"{type(encoding).__name__} encoding in {where}")


def not_in_blocks(encoding: Encoding, blocks: Chunks) -> Values:  # noqa: ARG001 - see `Codec.decode_blocks`
    """Refuse to decode blocks of an encoding whose block form is not known."""
    raise unsupported(encoding, "a block")


def num_buffers(encoding: Encoding) -> int:
    """Return the buffers that hold values in this encoding: 0 for those without bytes."""
    count = CODECS[type(encoding)].num_buffers
    return 1 if count is None else count(encoding)


def has_bytes(encoding: Encoding) -> bool:
    """Return whether a block of this encoding has a buffer."""
    return num_buffers(encoding) > 0


def unwrap(encoding: Encoding, chunks: Chunks) -> tuple[Codec[Any], Encoding, Chunks]:
    """Remove the encodings around values.

    Returns:
        The codec that decodes what is inside, its encoding, and its chunks.
    """
    codec = CODECS[type(encoding)]
    while codec.unwrap is not None:
        inside = codec.unwrap(encoding, chunks)
        if inside is None:
            break
        encoding, chunks = inside
        codec = CODECS[type(encoding)]
    return codec, encoding, chunks


def decode_blocks_of(encoding: Encoding, blocks: Chunks) -> Values:
    """Decode blocks (levels, dictionaries) that are known to lie inside of their memory, end to end."""
    codec = CODECS[type(encoding)]
    if codec.decode_blocks is None:
        if codec.unwrap is not None:
            inside = codec.unwrap(encoding, blocks)
            if inside is not None:
                return decode_blocks_of(*inside)
        if codec.decode is not None:
            return codec.decode(encoding, blocks)
        raise unsupported(encoding, "a block")
    return codec.decode_blocks(encoding, blocks)


def one_block(data: Bytes, count: int) -> Chunks:
    """Return a block as a chunk that is a memory of its own."""
    return Chunks(
        buffers=(data,),
        starts=np.zeros((1, 1), np.int64),
        sizes=np.full((1, 1), len(data), np.int64),
        counts=np.array([count], np.int64),
    )


def decode_block(encoding: Encoding, data: Bytes, count: int) -> Values:
    """Decode one block (levels, dictionaries).

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
    block = one_block(data, count)
    check_chunks(block, 1)
    return decode_blocks_of(encoding, block)


def decode_integers(encoding: Encoding, data: Bytes, count: int) -> npt.NDArray[Any]:
    """Decode integers of one block, such as positions or offsets.

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


def block_by_block(decode: Callable[[_E, Bytes, int], npt.NDArray[Any]]) -> Callable[[_E, Chunks], Values]:
    """Make a decoder of many blocks of integers from that of one."""

    def decode_each(encoding: _E, blocks: Chunks) -> Values:
        ends = blocks.starts[0] + blocks.sizes[0]
        bounds = zip(blocks.starts[0].tolist(), ends.tolist(), blocks.counts.tolist(), strict=True)
        return FixedValues(
            np.concatenate([decode(encoding, blocks.buffers[0][low:high], n) for low, high, n in bounds])
        )

    return decode_each


def decode_rows(encoding: Encoding, rows: Bytes, kind: pa.DataType | None = None) -> Values:
    """Decode full-zip values of one width.

    Args:
        encoding: How the values are encoded.
        rows: Shape (n, bytes per value).
        kind: Arrow type of the values, if known; booleans that are in no list take a byte each.

    Raises:
        CorruptDataError: Rows have another width than the encoding.
        UnsupportedError: An encoding that cannot be read here.
    """
    codec = CODECS[type(encoding)]
    if codec.decode_rows is None:
        raise unsupported(encoding, "full-zip values of fixed width")
    return codec.decode_rows(encoding, rows, kind)


def decode_strings(encoding: Encoding, values: VariableValues) -> LeafValues:
    """Decode full-zip values of variable width: strings, or packed structs.

    Args:
        encoding: How the bytes of each value are encoded.
        values: The encoded bytes.

    Raises:
        CorruptDataError: Bytes that the encoding cannot have made.
        UnsupportedError: An encoding that cannot be read here.
    """
    codec = CODECS[type(encoding)]
    if codec.decode_strings is None:
        raise unsupported(encoding, "full-zip values of variable width")
    return codec.decode_strings(encoding, values)
