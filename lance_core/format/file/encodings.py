"""Encodings of the values of a page: the tree of ``CompressiveEncoding`` as frozen values.

Source: messages ``CompressiveEncoding`` and below of package ``lance.encodings21``; file version 2.3 adds ``Range``,
``Delta``, offsets that are compressed, and run lengths of more than 8 bits. Protobuf stays in this module; everything
else works on the values.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lance_core._proto import encodings_v2_1_pb2 as pb
from lance_core.common.frozen import frozen
from lance_core.errors import CorruptDataError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Container

_E = TypeVar("_E", bound="Encoding")


class Compression(IntEnum):
    """General-purpose codecs (``CompressionScheme``)."""

    LZ4 = 1
    ZSTD = 2


class Encoding:
    """Encoding of values: a frozen class with the parameters, and an entry in `MESSAGES`."""

    __slots__ = ()


@frozen
class Flat(Encoding):
    """Fixed-width little-endian values, ``bits`` each (1 = bit-packed booleans)."""

    bits: int


@frozen
class Variable(Encoding):
    """Offsets of ``offset_bits`` (32 or 64), then the bytes."""

    offset_bits: int


@frozen
class Constant(Encoding):
    """One value for all; None means null."""

    value: bytes | None


@frozen
class InlineBitpacking(Encoding):
    """1024 values of ``bits`` packed to a width that stands in front of them."""

    bits: int


@frozen
class OutOfLineBitpacking(Encoding):
    """Values of ``bits`` packed to ``packed_bits`` for the whole page."""

    bits: int
    packed_bits: int


@frozen
class Rle(Encoding):
    """Run values of ``bits`` and run lengths of ``length_bits`` (8, in file version 2.3 also 16 and 32)."""

    bits: int
    length_bits: int = 8


@frozen
class BlockRle(Encoding):
    """Run values and run lengths of a block, at least one of which is not `Flat` (file version 2.3)."""

    values: Encoding
    lengths: Encoding


@frozen
class Range(Encoding):
    """``start``, ``start + delta``, ``start + 2 * delta`` and so on, without any bytes (file version 2.3)."""

    bits: int
    start: int
    delta: int


@frozen
class Delta(Encoding):
    """The first value, and how much larger each of the others is than the one before (file version 2.3)."""

    bits: int
    start: int
    deltas: Encoding


@frozen
class Dictionary(Encoding):
    """Places of the values of a block in a dictionary of ``num_items`` (file version 2.3)."""

    indices: Encoding
    items: Encoding
    num_items: int


@frozen
class PackedVariable(Encoding):
    """Offsets of ``offset_bits`` from 0 that are not `Flat`, beside the bytes (file version 2.3)."""

    offset_bits: int
    offsets: Encoding


@frozen
class ByteStreamSplit(Encoding):
    """Byte planes of values of ``bits`` (32 or 64)."""

    bits: int


@frozen
class Fsst(Encoding):
    """Strings as codes of a symbol table of 2312 bytes."""

    symbol_table: bytes
    values: Variable | PackedVariable


@frozen
class General(Encoding):
    """``values`` with its first buffer compressed."""

    compression: Compression
    values: Encoding
    level: int | None = None


@frozen
class FixedSizeList(Encoding):
    """``dimension`` items per value, with or without a validity bitmap for the items."""

    dimension: int
    has_validity: bool
    values: Encoding


@frozen
class PackedStruct(Encoding):
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
class VariablePackedStruct(Encoding):
    """Structs as rows of bytes, with fields of fixed and of variable width."""

    fields: tuple[PackedField, ...]


_SCHEMES = {
    Compression.LZ4: pb.COMPRESSION_ALGORITHM_LZ4,
    Compression.ZSTD: pb.COMPRESSION_ALGORITHM_ZSTD,
}
_BITPACKED = (8, 16, 32, 64)
_MAX_DEPTH = 16


@frozen
class Message(Generic[_E]):
    """A field of the message ``CompressiveEncoding``.

    Attributes:
        kind: The class that is written as this field.
        decode: Makes an encoding of the message, found so many encodings deep; raises CorruptDataError and
            UnsupportedError for parameters that make no sense. A file may claim anything.
        encode: Makes the message.
    """

    kind: type[_E]
    decode: Callable[[Any, int], Encoding]
    encode: Callable[[_E], Any]


def encode_encoding(encoding: Encoding) -> pb.CompressiveEncoding:
    """Make the message of an encoding.

    Raises:
        UnsupportedError: An encoding of file version 2.3.
    """
    for name, message in MESSAGES.items():
        if message.kind is type(encoding):
            return pb.CompressiveEncoding(**{name: message.encode(encoding)})
    return _not_written(encoding)


def decode_encoding(message: pb.CompressiveEncoding, depth: int = 0) -> Encoding:
    """Read an encoding.

    Args:
        message: As found in a page layout.
        depth: Encodings around this one.

    Raises:
        UnsupportedError: An encoding that cannot be read; the message names it.
        CorruptDataError: No encoding, or parameters that make no sense.
    """
    if depth > _MAX_DEPTH:
        raise CorruptDataError(f"encodings nested more than {_MAX_DEPTH} deep")
    name = message.WhichOneof("compression")
    if name not in MESSAGES:
        raise CorruptDataError("a page layout lacks an encoding or has one that is unknown")
    return MESSAGES[name].decode(getattr(message, name), depth)


def differ_in_tables(ours: Encoding, theirs: Encoding) -> bool:
    """Return whether two encodings are FSST with codes that are encoded alike."""
    return isinstance(ours, Fsst) and isinstance(theirs, Fsst) and ours.values == theirs.values


def codes_of(encoding: Encoding) -> Encoding:
    """Return the encoding of the codes of FSST; of anything else that encoding itself."""
    return encoding.values if isinstance(encoding, Fsst) else encoding


def value_bits(encoding: Encoding) -> int:
    """Return the bits of a value of a sequence of integers, 0 if that is not what the encoding is for."""
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


def _decode_constant(message: pb.Constant, _: int) -> Constant:
    return Constant(message.value if message.HasField("value") else None)


def _decode_variable(message: pb.Variable, depth: int) -> Variable | PackedVariable:
    encoding = decode_encoding(message.offsets, depth + 1)
    if isinstance(encoding, Flat):
        return Variable(_flat_bits(message.offsets, (32, 64), "offset"))
    bits = value_bits(encoding)
    if bits not in (32, 64):
        raise CorruptDataError(f"offsets of {bits} bits")
    return PackedVariable(bits, encoding)


def _decode_out_of_line(message: pb.OutOfLineBitpacking, _: int) -> OutOfLineBitpacking:
    bits = _checked(message.uncompressed_bits_per_value)
    return OutOfLineBitpacking(bits, _flat_bits(message.values, range(bits + 1), "packed"))


def _encode_out_of_line(encoding: OutOfLineBitpacking) -> pb.OutOfLineBitpacking:
    values = encode_encoding(Flat(encoding.packed_bits))
    return pb.OutOfLineBitpacking(uncompressed_bits_per_value=encoding.bits, values=values)


def _decode_rle(message: pb.Rle, depth: int) -> Rle | BlockRle:
    values, lengths = decode_encoding(message.values, depth + 1), decode_encoding(message.run_lengths, depth + 1)
    if isinstance(values, Flat) and isinstance(lengths, Flat):
        if lengths.bits not in (8, 16, 32):
            raise CorruptDataError(f"run lengths of {lengths.bits} bits")
        return Rle(_flat_bits(message.values, _BITPACKED, "run value"), lengths.bits)
    return BlockRle(values, lengths)


def _encode_rle(encoding: Rle) -> pb.Rle:
    lengths = encode_encoding(Flat(encoding.length_bits))
    return pb.Rle(values=encode_encoding(Flat(encoding.bits)), run_lengths=lengths)


def _decode_range(message: pb.Range, _: int) -> Range:
    return Range(_checked(message.bits_per_value), message.start, message.delta)


def _decode_delta(message: pb.Delta, depth: int) -> Delta:
    deltas = decode_encoding(message.deltas, depth + 1)
    return Delta(_checked(message.bits_per_value), message.start, deltas)


def _decode_dictionary(message: pb.Dictionary, depth: int) -> Dictionary:
    indices, items = decode_encoding(message.indices, depth + 1), decode_encoding(message.items, depth + 1)
    return Dictionary(indices, items, message.num_dictionary_items)


def _decode_fsst(message: pb.Fsst, depth: int) -> Fsst:
    values = decode_encoding(message.values, depth + 1)
    if not isinstance(values, (Variable, PackedVariable)):
        raise CorruptDataError("FSST over values that are not strings")
    return Fsst(message.symbol_table, values)


def _decode_general(message: pb.General, depth: int) -> General:
    scheme = int(message.compression.scheme)
    if scheme not in (Compression.LZ4, Compression.ZSTD):
        raise UnsupportedError(f"compression scheme {scheme} is not supported")
    level = message.compression.level if message.compression.HasField("level") else None
    return General(Compression(scheme), decode_encoding(message.values, depth + 1), level)


def _encode_general(encoding: General) -> pb.General:
    scheme = pb.BufferCompression(scheme=_SCHEMES[encoding.compression], level=encoding.level)
    return pb.General(compression=scheme, values=encode_encoding(encoding.values))


def _decode_lists(message: pb.FixedSizeList, depth: int) -> FixedSizeList:
    if message.items_per_value == 0:
        raise CorruptDataError("fixed-size list of no items")
    return FixedSizeList(message.items_per_value, message.has_validity, decode_encoding(message.values, depth + 1))


def _encode_lists(encoding: FixedSizeList) -> pb.FixedSizeList:
    values = encode_encoding(encoding.values)
    return pb.FixedSizeList(items_per_value=encoding.dimension, has_validity=encoding.has_validity, values=values)


def _decode_packed(message: pb.PackedStruct, _: int) -> PackedStruct:
    bits = tuple(message.bits_per_value)
    if not bits or any(width == 0 or width % 8 for width in bits):
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


def _encode_packed_field(field: PackedField) -> pb.VariablePackedStruct.FieldEncoding:
    value = encode_encoding(field.values)
    if field.bits_per_value is not None:
        return pb.VariablePackedStruct.FieldEncoding(value=value, bits_per_value=field.bits_per_value)
    return pb.VariablePackedStruct.FieldEncoding(value=value, bits_per_length=field.bits_per_length)


def _not_written(encoding: Encoding) -> Any:
    raise UnsupportedError(f"encoding {type(encoding).__name__} of file version 2.3 cannot be written")


MESSAGES: dict[str, Message[Any]] = {
    "flat": Message(
        Flat, lambda message, _: Flat(message.bits_per_value), lambda encoding: pb.Flat(bits_per_value=encoding.bits)
    ),
    "variable": Message(
        Variable, _decode_variable, lambda encoding: pb.Variable(offsets=encode_encoding(Flat(encoding.offset_bits)))
    ),
    "constant": Message(Constant, _decode_constant, lambda encoding: pb.Constant(value=encoding.value)),
    "inline_bitpacking": Message(
        InlineBitpacking,
        lambda message, _: InlineBitpacking(_checked(message.uncompressed_bits_per_value)),
        lambda encoding: pb.InlineBitpacking(uncompressed_bits_per_value=encoding.bits),
    ),
    "out_of_line_bitpacking": Message(OutOfLineBitpacking, _decode_out_of_line, _encode_out_of_line),
    "rle": Message(Rle, _decode_rle, _encode_rle),
    "range": Message(Range, _decode_range, _not_written),
    "delta": Message(Delta, _decode_delta, _not_written),
    "dictionary": Message(Dictionary, _decode_dictionary, _not_written),
    "byte_stream_split": Message(
        ByteStreamSplit,
        lambda message, _: ByteStreamSplit(_flat_bits(message.values, (32, 64), "split value")),
        lambda encoding: pb.ByteStreamSplit(values=encode_encoding(Flat(encoding.bits))),
    ),
    "fsst": Message(
        Fsst,
        _decode_fsst,
        lambda encoding: pb.Fsst(symbol_table=encoding.symbol_table, values=encode_encoding(encoding.values)),
    ),
    "general": Message(General, _decode_general, _encode_general),
    "fixed_size_list": Message(FixedSizeList, _decode_lists, _encode_lists),
    "packed_struct": Message(
        PackedStruct,
        _decode_packed,
        lambda encoding: pb.PackedStruct(bits_per_value=encoding.bits, values=encode_encoding(encoding.values)),
    ),
    "variable_packed_struct": Message(
        VariablePackedStruct,
        lambda message, depth: VariablePackedStruct(
            tuple(_decode_packed_field(field, depth) for field in message.fields)
        ),
        lambda encoding: pb.VariablePackedStruct(fields=map(_encode_packed_field, encoding.fields)),
    ),
}
"""Each encoding by the name of its field in the message."""
