"""Flat: values of one width as they are; booleans as bits, least significant first.

Source: message ``Flat``. One buffer per chunk; ``bits`` is 1 or a multiple of 8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.encoding.codecs.codec import Codec, Scalar
from lance_core.encoding.kernels import (
    MAX_VALUE_BITS,
    aranges,
    check_sizes,
    gather,
    gather_windows,
    one_buffer,
    starts_of,
)
from lance_core.encoding.values import FixedValues
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.file.encodings import Flat

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.codecs.codec import Read
    from lance_core.encoding.values import Bytes, Chunks, Int64s

WORD_BITS = (8, 16, 32, 64)


def word_dtype(bits: int) -> np.dtype[Any]:
    """Return the unsigned little-endian type of 8, 16, 32 or 64 bits.

    Raises:
        CorruptDataError: No encoding of the format packs words of this width.
    """
    if bits not in WORD_BITS:
        raise CorruptDataError(f"words of {bits} bits; the format knows 8, 16, 32 and 64")
    return np.dtype(f"<u{bits // 8}")


def check_bits(bits: int) -> None:
    """Refuse widths that are neither one bit nor whole bytes.

    Raises:
        UnsupportedError: The width is something else.
    """
    if bits != 1 and (bits <= 0 or bits % 8 or bits > MAX_VALUE_BITS):
        raise UnsupportedError(f"Flat encoding with {bits} bits per value")


def from_bytes(data: Bytes, bits: int) -> FixedValues:
    """Adjoining values of whole bytes as values; a view where alignment allows."""
    width = bits // 8
    if bits not in WORD_BITS:
        return FixedValues(data.reshape(-1, width))
    if not data.flags.c_contiguous or data.ctypes.data % width:
        data = data.copy()
    return FixedValues(data.view(word_dtype(bits)))


def to_bytes(data: npt.NDArray[np.generic]) -> Bytes:
    """Memory of values of whole bytes, shape (n * width,)."""
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)


def bits_of(values: FixedValues) -> int:
    """Bits per value in Flat encoding."""
    if values.data.dtype == np.bool_:
        return 1
    return values.data.dtype.itemsize * 8 * (values.data.shape[1] if values.data.ndim > 1 else 1)


def decode(encoding: Flat, chunks: Chunks) -> FixedValues:
    """Decode all values of all chunks.

    Raises:
        CorruptDataError: A chunk is too short for its count.
        UnsupportedError: A width that is neither 1 nor whole bytes.
    """
    bits = encoding.bits
    check_bits(bits)
    needed = (chunks.counts * bits + 7) // 8
    check_sizes(chunks.sizes[0], needed, "Flat")
    data = gather(chunks.buffers[0], chunks.starts[0], needed)
    return FixedValues(unpack_bits(data, chunks.counts)) if bits == 1 else from_bytes(data, bits)


def unpack_bits(data: Bytes, counts: Int64s) -> npt.NDArray[np.bool_]:
    """Booleans of adjoining bitmaps, each of which starts at a whole byte.

    Args:
        data: The bitmaps.
        counts: Shape (chunks,), bits used in each.
    """
    # Each bitmap starts at a whole byte, so that all of them unpack at one go, with the bits that fill up last bytes.
    # Those are dropped: by a slice if only the last bitmap has some, else by a mask.
    slots = (counts + 7) // 8 * 8
    flags = np.unpackbits(data, count=int(slots.sum()), bitorder="little").view(np.bool_)
    padded = np.flatnonzero(slots != counts)
    if len(padded) == 0:
        return flags
    starts = starts_of(slots)[:-1]
    if padded[-1] == padded[0] == len(counts) - 1:
        return flags[: int(starts[-1] + counts[-1])]
    keep = np.ones(len(flags), np.bool_)
    keep[aranges((starts + counts)[padded], (slots - counts)[padded])] = False
    return flags[keep]


def decode_at(encoding: Flat, chunks: Chunks, chunk_of: Int64s, index: Int64s) -> FixedValues:
    """Decode value ``index[i]`` of chunk ``chunk_of[i]``.

    Raises:
        CorruptDataError: A chunk is too short for its count.
        UnsupportedError: A width that is neither 1 nor whole bytes.
    """
    bits = encoding.bits
    check_bits(bits)
    check_sizes(chunks.sizes[0], (chunks.counts * bits + 7) // 8, "Flat")
    starts = chunks.starts[0][chunk_of]
    if bits == 1:
        return FixedValues((chunks.buffers[0][starts + index // 8] >> (index % 8).astype(np.uint8) & 1).view(np.bool_))
    return from_bytes(gather_windows(chunks.buffers[0], starts + index * (bits // 8), bits // 8).reshape(-1), bits)


def encode_chunks(values: FixedValues, counts: Int64s) -> Chunks:
    """Lay values out as chunks without copying them (booleans are packed).

    Args:
        values: The values.
        counts: Values per chunk; for booleans multiples of 8 but for the last.
    """
    bits = bits_of(values)
    data = np.packbits(values.data.view(np.uint8), bitorder="little") if bits == 1 else to_bytes(values.data)
    return one_buffer(data, starts_of((counts * bits + 7) // 8), counts)


def decode_one(encoding: Flat) -> Scalar | None:
    """Make the reader of single values; None for widths that are neither 1 nor whole bytes."""
    if encoding.bits == 1:
        return Scalar(_read_bit, ("bits", 1))
    if encoding.bits <= 0 or encoding.bits % 8:
        return None
    return Scalar(read_width(encoding.bits // 8), ("words", encoding.bits // 8))


def _read_bit(memory: memoryview, start: int, size: int, count: int, index: int) -> bytes:
    if size * 8 < count:
        raise CorruptDataError(f"Flat: a chunk has {size} bytes for {count} bits")
    return b"\1" if memory[start + index // 8] >> index % 8 & 1 else b"\0"


def read_width(width: int) -> Read:
    """Make the reader of single values of so many bytes."""

    def read(memory: memoryview, start: int, size: int, count: int, index: int) -> bytes:
        if size < count * width:
            raise CorruptDataError(f"Flat: a chunk has {size} bytes where {count * width} are needed")
        at = start + index * width
        return bytes(memory[at : at + width])

    return read


def decode_rows(encoding: Flat, rows: Bytes, kind: pa.DataType | None) -> FixedValues:
    """Decode full-zip rows; booleans take a byte each there."""
    if encoding.bits % 8 or encoding.bits // 8 != rows.shape[1]:
        raise CorruptDataError(f"full-zip value of {rows.shape[1]} bytes where {encoding.bits} bits are needed")
    values = from_bytes(np.ascontiguousarray(rows).reshape(-1), encoding.bits)
    return FixedValues(values.data != 0) if kind == pa.bool_() else values


def decode_levels(encoding: Flat, data: bytes, count: int) -> npt.NDArray[np.uint16] | None:
    """View the levels of a short block; None for damage, which `decode` names."""
    return np.frombuffer(data, np.uint16, count) if encoding.bits == 16 and len(data) >= 2 * count else None


FLAT = Codec(
    serves=Flat,
    decode=decode,
    decode_at=decode_at,
    decode_one=decode_one,
    decode_rows=decode_rows,
    value_bytes=lambda encoding: 0 if encoding.bits % 8 else encoding.bits // 8,
    decode_levels=decode_levels,
)
