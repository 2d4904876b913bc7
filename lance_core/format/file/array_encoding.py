"""Encoding of a page of a file of version 2.0: the tree of ``ArrayEncoding`` as frozen values.

Source: message ``ArrayEncoding`` of package ``lance.encodings``, wrapped in a ``google.protobuf.Any``. What says that
nothing is null says nothing: ``Nullable.no_nulls`` is left out of the tree.

Not supported: buffers of columns and of the file (no writer is known).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError

from lance_core._proto import encodings_v2_0_pb2 as pb
from lance_core.common.frozen import frozen
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.file.encodings import Compression

_TYPE_NAME = "lance.encodings.ArrayEncoding"
_MANY_ENCODINGS = 256
_MAX_DEPTH = 16
_MAX_BITS = 1 << 30
MAX_ITEMS = 1 << 48
"""More items in one page are taken for damage."""

_SCHEMES = {"": None, "none": None, "lz4": Compression.LZ4, "zstd": Compression.ZSTD}
_SCHEME_NAMES = {Compression.LZ4: "lz4", Compression.ZSTD: "zstd"}
_WIDTHS = (8, 16, 32, 64)


@frozen
class Flat:
    """Little-endian values of ``bits`` each; 1 for a bitmap."""

    bits: int
    buffer: int
    compression: Compression | None = None


@frozen
class AllNulls:
    """Nothing but nulls."""


@frozen
class SomeNulls:
    """Values, and a bitmap that has 1 for each one that is there."""

    validity: Flat
    values: ArrayEncoding


@frozen
class FixedSizeList:
    """``dimension`` items per value."""

    dimension: int
    items: ArrayEncoding


@frozen
class ListOffsets:
    """Ends of lists, counted from the page's first item; those of null lists have ``null_adjustment`` added."""

    ends: Flat
    null_adjustment: int
    num_items: int


@frozen
class StructHeader:
    """A struct, which has nothing of its own."""


@frozen
class Binary:
    """Ends of strings, counted from the page's first byte; those of null strings have ``null_adjustment`` added."""

    ends: Flat
    data: Flat
    null_adjustment: int


@frozen
class Dictionary:
    """Indices and items. For columns that are no dictionaries, index 0 is null and 1 the first item."""

    indices: ArrayEncoding
    items: ArrayEncoding
    num_items: int


@frozen
class Fsst:
    """Strings as codes of a symbol table of 2312 bytes."""

    symbol_table: bytes
    values: Binary


@frozen
class PackedStruct:
    """The fields of a struct, row by row; how each is encoded follows from its type, ``inner`` is only written."""

    buffer: int
    inner: tuple[Flat, ...] = ()


@frozen
class Bitpacked:
    """Values of ``bits`` packed to ``packed_bits`` in one stream."""

    packed_bits: int
    bits: int
    buffer: int
    is_signed: bool


@frozen
class FastLanes:
    """Values of ``bits`` packed to ``packed_bits`` in blocks of 1024 (``BitpackedForNonNeg``)."""

    packed_bits: int
    bits: int
    buffer: int


@frozen
class FixedSizeBinary:
    """Strings of ``width`` bytes, none of which is null."""

    data: Flat
    width: int


ArrayEncoding: TypeAlias = (
    Flat
    | AllNulls
    | SomeNulls
    | FixedSizeList
    | ListOffsets
    | StructHeader
    | Binary
    | Dictionary
    | Fsst
    | PackedStruct
    | Bitpacked
    | FastLanes
    | FixedSizeBinary
)


def encode_array_encoding(encoding: ArrayEncoding) -> bytes:
    """Return the serialized Any of a page's encoding; those that no writer uses are left out.

    Raises:
        UnsupportedError: Such an encoding.
    """
    wrapped = AnyMessage(type_url="/" + _TYPE_NAME, value=_encode(encoding).SerializeToString(deterministic=True))
    return wrapped.SerializeToString(deterministic=True)


def _encode(encoding: ArrayEncoding) -> pb.ArrayEncoding:
    match encoding:
        case Flat():
            return _without_nulls(_encode_flat(encoding))
        case AllNulls():
            return pb.ArrayEncoding(nullable=pb.Nullable(all_nulls=pb.Nullable.AllNull()))
        case SomeNulls():
            values = _encode(encoding.values)
            inner = values.nullable.no_nulls.values if values.HasField("nullable") else values
            some = pb.Nullable.SomeNull(validity=_encode_flat(encoding.validity), values=inner)
            return pb.ArrayEncoding(nullable=pb.Nullable(some_nulls=some))
        case FixedSizeList():
            lists = pb.FixedSizeList(dimension=encoding.dimension, items=_encode(encoding.items))
            return _without_nulls(pb.ArrayEncoding(fixed_size_list=lists))
        case ListOffsets():
            ends = _encode(encoding.ends)
            adjustment = encoding.null_adjustment
            lists = pb.List(offsets=ends, null_offset_adjustment=adjustment, num_items=encoding.num_items)
            return pb.ArrayEncoding(list=lists)
        case StructHeader():
            return pb.ArrayEncoding(struct=pb.SimpleStruct())
        case Binary():
            ends, data = _encode(encoding.ends), _encode_flat(encoding.data)
            strings = pb.Binary(indices=ends, bytes=data, null_adjustment=encoding.null_adjustment)
            return pb.ArrayEncoding(binary=strings)
        case Dictionary():
            indices, items = _encode(encoding.indices), _encode(encoding.items)
            encoded = pb.Dictionary(indices=indices, items=items, num_dictionary_items=encoding.num_items)
            return pb.ArrayEncoding(dictionary=encoded)
        case Fsst():
            return pb.ArrayEncoding(fsst=pb.Fsst(binary=_encode(encoding.values), symbol_table=encoding.symbol_table))
        case PackedStruct():
            buffer = pb.Buffer(buffer_index=encoding.buffer)
            packed = pb.PackedStruct(inner=[_encode(child) for child in encoding.inner], buffer=buffer)
            return pb.ArrayEncoding(packed_struct=packed)
        case _:
            raise UnsupportedError(f"pages of {type(encoding).__name__} are not written")


def _encode_flat(flat: Flat) -> pb.ArrayEncoding:
    message = pb.Flat(bits_per_value=flat.bits, buffer=pb.Buffer(buffer_index=flat.buffer))
    if flat.compression is not None:
        message.compression.scheme = _SCHEME_NAMES[flat.compression]
    return pb.ArrayEncoding(flat=message)


def _without_nulls(values: pb.ArrayEncoding) -> pb.ArrayEncoding:
    return pb.ArrayEncoding(nullable=pb.Nullable(no_nulls=pb.Nullable.NoNull(values=values)))


@lru_cache(maxsize=_MANY_ENCODINGS)
def decode_array_encoding(data: bytes) -> ArrayEncoding:
    """Read the encoding of a page; the columns of a wide table have few different ones.

    Args:
        data: Serialized Any.

    Raises:
        CorruptDataError: Not an array encoding, or parameters that make no sense.
        UnsupportedError: An encoding that cannot be read; the message names it.
    """
    try:
        wrapped = AnyMessage.FromString(data)
        message = pb.ArrayEncoding.FromString(wrapped.value)
    except DecodeError as error:
        raise CorruptDataError(f"a page encoding cannot be parsed: {error}") from error
    if wrapped.type_url.rpartition("/")[2] != _TYPE_NAME:
        raise CorruptDataError(f"a page is encoded as {wrapped.type_url[:100]!r} in a file of version 2.0")
    return _decode(message, 0)


def _decode(message: pb.ArrayEncoding, depth: int) -> ArrayEncoding:
    if depth > _MAX_DEPTH:
        raise CorruptDataError(f"encodings nested more than {_MAX_DEPTH} deep")
    kind = message.WhichOneof("array_encoding")
    match kind:
        case "flat":
            return _decode_flat(message.flat)
        case "nullable":
            return _decode_nullable(message.nullable, depth)
        case "fixed_size_list":
            lists = message.fixed_size_list
            if not 0 < lists.dimension < 2**31:
                raise CorruptDataError(f"fixed-size list of {lists.dimension} items")
            return FixedSizeList(lists.dimension, _decode(lists.items, depth + 1))
        case "list":
            ends = _flat_below(message.list.offsets, 64, "list offsets")
            return ListOffsets(ends, _count(message.list.null_offset_adjustment), _count(message.list.num_items))
        case "struct":
            return StructHeader()
        case "binary":
            return _decode_binary(message.binary)
        case "dictionary":
            dictionary = message.dictionary
            return Dictionary(
                _decode(dictionary.indices, depth + 1),
                _decode(dictionary.items, depth + 1),
                dictionary.num_dictionary_items,
            )
        case "fsst":
            if message.fsst.binary.WhichOneof("array_encoding") != "binary":
                raise CorruptDataError("FSST over values that are not strings")
            return Fsst(message.fsst.symbol_table, _decode_binary(message.fsst.binary.binary))
        case "packed_struct":
            return PackedStruct(_buffer(message.packed_struct.buffer))
        case "bitpacked" | "bitpacked_for_non_neg":
            return _decode_packed(message.bitpacked_for_non_neg if kind.endswith("neg") else message.bitpacked)
        case "fixed_size_binary":
            width = message.fixed_size_binary.byte_width
            return FixedSizeBinary(_flat_below(message.fixed_size_binary.bytes, 8, "bytes"), width)
        case _:
            raise CorruptDataError("a page lacks an encoding or has one that no file of version 2.0 can have")


def _decode_flat(message: pb.Flat) -> Flat:
    if message.compression.scheme not in _SCHEMES:
        raise UnsupportedError(f"compression scheme {message.compression.scheme[:40]!r} is not supported")
    bits = message.bits_per_value
    if not (bits == 1 or (bits % 8 == 0 and 0 < bits < _MAX_BITS)):
        raise CorruptDataError(f"flat values of {bits} bits")
    return Flat(bits, _buffer(message.buffer), _SCHEMES[message.compression.scheme])


def _decode_nullable(message: pb.Nullable, depth: int) -> ArrayEncoding:
    match message.WhichOneof("nullability"):
        case "no_nulls":
            return _decode(message.no_nulls.values, depth + 1)
        case "some_nulls":
            validity = _flat_below(message.some_nulls.validity, 1, "validity")
            return SomeNulls(validity, _decode(message.some_nulls.values, depth + 1))
        case "all_nulls":
            return AllNulls()
        case _:
            raise CorruptDataError("a page does not say what is null")


def _decode_binary(message: pb.Binary) -> Binary:
    ends = _flat_below(message.indices, 64, "string offsets")
    return Binary(ends, _flat_below(message.bytes, 8, "bytes"), _count(message.null_adjustment))


def _decode_packed(message: pb.Bitpacked | pb.BitpackedForNonNeg) -> Bitpacked | FastLanes:
    packed, bits = message.compressed_bits_per_value, message.uncompressed_bits_per_value
    if bits not in _WIDTHS or packed > bits:
        raise CorruptDataError(f"values of {bits} bits packed to {packed}")
    if isinstance(message, pb.Bitpacked):
        return Bitpacked(packed, bits, _buffer(message.buffer), message.signed)
    return FastLanes(packed, bits, _buffer(message.buffer))


def _flat_below(message: pb.ArrayEncoding, bits: int, what: str) -> Flat:
    """Return the flat values that others are made of; nothing in them is null."""
    if message.WhichOneof("array_encoding") == "nullable" and message.nullable.WhichOneof("nullability") == "no_nulls":
        return _flat_below(message.nullable.no_nulls.values, bits, what)
    if message.WhichOneof("array_encoding") != "flat":
        raise UnsupportedError(f"{what} that are not stored flat are not supported")
    flat = _decode_flat(message.flat)
    if flat.bits != bits:
        raise CorruptDataError(f"{what} of {flat.bits} bits")
    return flat


def _buffer(message: pb.Buffer) -> int:
    if message.buffer_type != pb.Buffer.page:
        raise UnsupportedError("pages with buffers of the column or of the file are not supported")
    return message.buffer_index


def _count(number: int) -> int:
    if number > MAX_ITEMS:
        raise CorruptDataError(f"a page claims {number} items or bytes")
    return number
