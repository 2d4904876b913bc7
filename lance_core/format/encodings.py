"""How the values of a page are compressed: the tree of ``CompressiveEncoding`` as frozen values.

Source: messages ``CompressiveEncoding`` and below of package ``lance.encodings21``. Protobuf stays in this module;
everything else works on the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Compression(IntEnum):
    """General-purpose codecs (``CompressionScheme``)."""

    LZ4 = 1
    ZSTD = 2


@dataclass(frozen=True, slots=True)
class Flat:
    """Fixed-width little-endian values, ``bits`` each (1 = bit-packed booleans)."""

    bits: int


@dataclass(frozen=True, slots=True)
class Variable:
    """Offsets of ``offset_bits`` (32 or 64), then the bytes."""

    offset_bits: int


@dataclass(frozen=True, slots=True)
class Constant:
    """One value for all; None means null."""

    value: bytes | None


@dataclass(frozen=True, slots=True)
class InlineBitpacking:
    """1024 values of ``bits`` packed to a width that stands in front of them."""

    bits: int


@dataclass(frozen=True, slots=True)
class OutOfLineBitpacking:
    """Values of ``bits`` packed to ``packed_bits`` for the whole page."""

    bits: int
    packed_bits: int


@dataclass(frozen=True, slots=True)
class Rle:
    """Run values of ``bits`` and run lengths of 8 bits."""

    bits: int


@dataclass(frozen=True, slots=True)
class ByteStreamSplit:
    """Byte planes of values of ``bits`` (32 or 64)."""

    bits: int


@dataclass(frozen=True, slots=True)
class Fsst:
    """Strings as codes of a symbol table of 2312 bytes."""

    symbol_table: bytes
    values: Variable


@dataclass(frozen=True, slots=True)
class General:
    """``values`` with its first buffer compressed."""

    compression: Compression
    values: Encoding
    level: int | None = None


@dataclass(frozen=True, slots=True)
class FixedSizeList:
    """``dimension`` items per value, with or without a validity bitmap for the items."""

    dimension: int
    has_validity: bool
    values: Encoding


Encoding = (
    Flat
    | Variable
    | Constant
    | InlineBitpacking
    | OutOfLineBitpacking
    | Rle
    | ByteStreamSplit
    | Fsst
    | General
    | FixedSizeList
)
