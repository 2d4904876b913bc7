"""How the values of a page are compressed: the tree of ``CompressiveEncoding`` as frozen values.

Source: messages ``CompressiveEncoding`` and below of package ``lance.encodings21``; file version 2.3 adds ``Range``,
``Delta``, offsets that are compressed, and run lengths of more than 8 bits. Protobuf stays in this module; everything
else works on the values.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from lance_core._proto import encodings_v2_1_pb2 as pb
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Container


class Compression(IntEnum):
    """General-purpose codecs (``CompressionScheme``)."""

    LZ4 = 1
    ZSTD = 2


@frozen
class Flat:
    """Fixed-width little-endian values, ``bits`` each (1 = bit-packed booleans)."""

    bits: int


@frozen
class Variable:
    """Offsets of ``offset_bits`` (32 or 64), then the bytes."""

    offset_bits: int


@frozen
class Constant:
    """One value for all; None means null."""

    value: bytes | None


@frozen
class InlineBitpacking:
    """1024 values of ``bits`` packed to a width that stands in front of them."""

    bits: int


@frozen
class OutOfLineBitpacking:
    """Values of ``bits`` packed to ``packed_bits`` for the whole page."""

    bits: int
    packed_bits: int


@frozen
class Rle:
    """Run values of ``bits`` and run lengths of ``length_bits`` (8, in file version 2.3 also 16 and 32)."""

    bits: int
    length_bits: int = 8


@frozen
class BlockRle:
    """Run values and run lengths of a block, at least one of which is not `Flat` (file version 2.3)."""

    values: Encoding
    lengths: Encoding


@frozen
class Range:
    """``start``, ``start + delta``, ``start + 2 * delta`` and so on, without any bytes (file version 2.3)."""

    bits: int
    start: int
    delta: int


@frozen
class Delta:
    """The first value, and how much larger each of the others is than the one before (file version 2.3)."""

    bits: int
    start: int
    deltas: Encoding


@frozen
class Dictionary:
    """Places of the values of a block in a dictionary of ``num_items`` (file version 2.3)."""

    indices: Encoding
    items: Encoding
    num_items: int


@frozen
class PackedVariable:
    """Offsets of ``offset_bits`` from 0 that are not `Flat`, beside the bytes (file version 2.3)."""

    offset_bits: int
    offsets: Encoding


@frozen
class ByteStreamSplit:
    """Byte planes of values of ``bits`` (32 or 64)."""

    bits: int


@frozen
class Fsst:
    """Strings as codes of a symbol table of 2312 bytes."""

    symbol_table: bytes
    values: Variable | PackedVariable


@frozen
class General:
    """``values`` with its first buffer compressed."""

    compression: Compression
    values: Encoding
    level: int | None = None


@frozen
class FixedSizeList:
    """``dimension`` items per value, with or without a validity bitmap for the items."""

    dimension: int
    has_validity: bool
    values: Encoding


@frozen
class PackedStruct:
    """Structs as rows of bytes: fields of ``bits`` each, stored as one value."""

    bits: tuple[int, ...]
    values: Flat


@frozen
class PackedField:
    """One field of `VariablePackedStruct`.

    Attributes:
        values: How the bytes of each value are encoded.
        bits_per_value: Width of a field of fixed width, else None.
        bits_per_length: Width of the length in front of each value of a field of variable width, else None.
    """

    values: Encoding
    bits_per_value: int | None
    bits_per_length: int | None


@frozen
class VariablePackedStruct:
    """Structs as rows of bytes, with fields of fixed and of variable width."""

    fields: tuple[PackedField, ...]


Encoding = (
    Flat
    | Variable
    | Constant
    | InlineBitpacking
    | OutOfLineBitpacking
    | Rle
    | BlockRle
    | Range
    | Delta
    | Dictionary
    | PackedVariable
    | ByteStreamSplit
    | Fsst
    | General
    | FixedSizeList
    | PackedStruct
    | VariablePackedStruct
)

SequenceEncoding = Constant | Range | Delta | Dictionary | BlockRle
"""Integers in a block that are not read with those of other blocks."""

_SCHEMES = {
    Compression.LZ4: pb.COMPRESSION_ALGORITHM_LZ4,
    Compression.ZSTD: pb.COMPRESSION_ALGORITHM_ZSTD,
}
_BITPACKED = (8, 16, 32, 64)
_MAX_DEPTH = 16


def encode_encoding(encoding: Encoding) -> pb.CompressiveEncoding:
    """The message of an encoding."""
    match encoding:
        case Flat(bits):
            return pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=bits))
        case Variable(offset_bits):
            return pb.CompressiveEncoding(variable=pb.Variable(offsets=encode_encoding(Flat(offset_bits))))
        case Constant(value):
            return pb.CompressiveEncoding(constant=pb.Constant(value=value))
        case InlineBitpacking(bits):
            packing = pb.InlineBitpacking(uncompressed_bits_per_value=bits)
            return pb.CompressiveEncoding(inline_bitpacking=packing)
        case OutOfLineBitpacking(bits, packed_bits):
            packing = pb.OutOfLineBitpacking(
                uncompressed_bits_per_value=bits, values=encode_encoding(Flat(packed_bits))
            )
            return pb.CompressiveEncoding(out_of_line_bitpacking=packing)
        case Rle(bits, length_bits):
            rle = pb.Rle(values=encode_encoding(Flat(bits)), run_lengths=encode_encoding(Flat(length_bits)))
            return pb.CompressiveEncoding(rle=rle)
        case ByteStreamSplit(bits):
            return pb.CompressiveEncoding(byte_stream_split=pb.ByteStreamSplit(values=encode_encoding(Flat(bits))))
        case Fsst(symbol_table, values):
            return pb.CompressiveEncoding(fsst=pb.Fsst(symbol_table=symbol_table, values=encode_encoding(values)))
        case General(compression, values, level):
            scheme = pb.BufferCompression(scheme=_SCHEMES[compression], level=level)
            return pb.CompressiveEncoding(general=pb.General(compression=scheme, values=encode_encoding(values)))
        case FixedSizeList(dimension, has_validity, values):
            fixed = pb.FixedSizeList(
                items_per_value=dimension, has_validity=has_validity, values=encode_encoding(values)
            )
            return pb.CompressiveEncoding(fixed_size_list=fixed)
        case PackedStruct(bits, values):
            packed = pb.PackedStruct(bits_per_value=bits, values=encode_encoding(values))
            return pb.CompressiveEncoding(packed_struct=packed)
        case VariablePackedStruct(fields):
            packed_fields = [_encode_packed_field(one) for one in fields]
            return pb.CompressiveEncoding(variable_packed_struct=pb.VariablePackedStruct(fields=packed_fields))
        case BlockRle() | Range() | Delta() | Dictionary() | PackedVariable():
            raise UnsupportedError(f"encoding {type(encoding).__name__} of file version 2.3 cannot be written")


def _encode_packed_field(one: PackedField) -> pb.VariablePackedStruct.FieldEncoding:
    value = encode_encoding(one.values)
    if one.bits_per_value is not None:
        return pb.VariablePackedStruct.FieldEncoding(value=value, bits_per_value=one.bits_per_value)
    return pb.VariablePackedStruct.FieldEncoding(value=value, bits_per_length=one.bits_per_length)


def decode_encoding(message: pb.CompressiveEncoding, depth: int = 0) -> Encoding:
    """Read an encoding.

    Args:
        message: As found in a page layout.
        depth: Encodings around this one.

    Raises:
        UnsupportedError: An encoding that cannot be read; the message names it.
        CorruptDataError: No encoding, or parameters that make no sense.
    """
    kind = message.WhichOneof("compression")
    if depth > _MAX_DEPTH:
        raise CorruptDataError(f"encodings nested more than {_MAX_DEPTH} deep")
    match kind:
        case "flat":
            return Flat(message.flat.bits_per_value)
        case "variable":
            return _decode_variable(message.variable.offsets, depth)
        case "constant":
            return Constant(message.constant.value if message.constant.HasField("value") else None)
        case "inline_bitpacking":
            return InlineBitpacking(_checked(message.inline_bitpacking.uncompressed_bits_per_value))
        case "out_of_line_bitpacking":
            bits = _checked(message.out_of_line_bitpacking.uncompressed_bits_per_value)
            return OutOfLineBitpacking(
                bits, _flat_bits(message.out_of_line_bitpacking.values, range(bits + 1), "packed")
            )
        case "rle":
            return _decode_rle(message.rle, depth)
        case "range":
            return Range(_checked(message.range.bits_per_value), message.range.start, message.range.delta)
        case "delta":
            deltas = decode_encoding(message.delta.deltas, depth + 1)
            return Delta(_checked(message.delta.bits_per_value), message.delta.start, deltas)
        case "dictionary":
            indices, items = message.dictionary.indices, message.dictionary.items
            count = message.dictionary.num_dictionary_items
            return Dictionary(decode_encoding(indices, depth + 1), decode_encoding(items, depth + 1), count)
        case "byte_stream_split":
            return ByteStreamSplit(_flat_bits(message.byte_stream_split.values, (32, 64), "split value"))
        case "fsst":
            values = decode_encoding(message.fsst.values, depth + 1)
            if not isinstance(values, (Variable, PackedVariable)):
                raise CorruptDataError("FSST over values that are not strings")
            return Fsst(message.fsst.symbol_table, values)
        case "general":
            return _decode_general(message.general, depth)
        case "fixed_size_list":
            fixed = message.fixed_size_list
            if fixed.items_per_value == 0:
                raise CorruptDataError("fixed-size list of no items")
            return FixedSizeList(fixed.items_per_value, fixed.has_validity, decode_encoding(fixed.values, depth + 1))
        case "packed_struct":
            return _decode_packed(message.packed_struct)
        case "variable_packed_struct":
            fields = message.variable_packed_struct.fields
            return VariablePackedStruct(tuple(_decode_packed_field(one, depth) for one in fields))
        case _:
            raise CorruptDataError("a page layout lacks an encoding or has one that is unknown")


def _decode_variable(offsets: pb.CompressiveEncoding, depth: int) -> Variable | PackedVariable:
    encoding = decode_encoding(offsets, depth + 1)
    if isinstance(encoding, Flat):
        return Variable(_flat_bits(offsets, (32, 64), "offset"))
    bits = value_bits(encoding)
    if bits not in (32, 64):
        raise CorruptDataError(f"offsets of {bits} bits")
    return PackedVariable(bits, encoding)


def _decode_rle(message: pb.Rle, depth: int) -> Rle | BlockRle:
    values, lengths = decode_encoding(message.values, depth + 1), decode_encoding(message.run_lengths, depth + 1)
    if isinstance(values, Flat) and isinstance(lengths, Flat):
        if lengths.bits not in (8, 16, 32):
            raise CorruptDataError(f"run lengths of {lengths.bits} bits")
        return Rle(_flat_bits(message.values, _BITPACKED, "run value"), lengths.bits)
    return BlockRle(values, lengths)


def value_bits(encoding: Encoding) -> int:
    """Bits of a value of a sequence of integers, 0 if that is not what the encoding is for."""
    match encoding:
        case Flat() | InlineBitpacking() | OutOfLineBitpacking() | Rle() | Range() | Delta():
            return encoding.bits
        case Constant(value):
            return 0 if value is None else len(value) * 8
        case General() | BlockRle():
            return value_bits(encoding.values)
        case Dictionary():
            return value_bits(encoding.items)
        case _:
            return 0


def _decode_packed(message: pb.PackedStruct) -> PackedStruct:
    bits = tuple(message.bits_per_value)
    if not bits or any(one == 0 or one % 8 for one in bits):
        raise UnsupportedError("packed structs with fields that are not whole bytes are not supported")
    return PackedStruct(bits, Flat(_flat_bits(message.values, (sum(bits),), "packed struct")))


def _decode_packed_field(message: pb.VariablePackedStruct.FieldEncoding, depth: int) -> PackedField:
    values = decode_encoding(message.value, depth + 1)
    if message.WhichOneof("layout") == "bits_per_value":
        if message.bits_per_value == 0 or message.bits_per_value % 8:
            raise CorruptDataError(f"a packed struct has a field of {message.bits_per_value} bits")
        return PackedField(values, message.bits_per_value, None)
    if message.bits_per_length not in (32, 64):
        raise CorruptDataError(f"a packed struct has lengths of {message.bits_per_length} bits")
    return PackedField(values, None, message.bits_per_length)


def _decode_general(message: pb.General, depth: int) -> General:
    scheme = int(message.compression.scheme)
    if scheme not in (Compression.LZ4, Compression.ZSTD):
        raise UnsupportedError(f"compression scheme {scheme} is not supported")
    level = message.compression.level if message.compression.HasField("level") else None
    return General(Compression(scheme), decode_encoding(message.values, depth + 1), level)


def _flat_bits(message: pb.CompressiveEncoding, allowed: Container[int], what: str) -> int:
    if message.WhichOneof("compression") != "flat":
        raise UnsupportedError(f"{what}s that are not stored flat are not supported")
    bits = message.flat.bits_per_value
    if bits not in allowed:
        raise CorruptDataError(f"{what}s of {bits} bits")
    return bits


def _checked(bits: int) -> int:
    if bits not in _BITPACKED:
        raise CorruptDataError(f"bit-packing of values of {bits} bits")
    return bits
