"""JSONB: the binary form in which Lance keeps JSON (columns of type ``json``, extension ``lance.json``).

All words are big-endian. A value is a header (u32: kind in the upper 3 bits, number of elements in the others), one
entry (u32: type in bits 28 to 30, bytes of data in the lower 28) for each element, then the data of all elements. A
scalar has one element; an object first the entries of its keys, in ascending order, then those of its values.

| header   | kind   | | entry | element                                                                                |
|----------|--------|-|-------|----------------------------------------------------------------------------------------|
| 2 << 29  | object | | 0     | null                                                                                   |
| 4 << 29  | array  | | 1     | string, UTF-8                                                                          |
| 1 << 29  | scalar | | 2     | number                                                                                 |
|          |        | | 3, 4  | false, true                                                                            |
|          |        | | 5     | array or object, itself a value                                                        |

The first byte of a number is its kind: 0x00 zero, 0x10, 0x20 and 0x30 not a number and infinities, 0x40, 0x50 and 0x60
signed, unsigned and floating-point, of as many bytes as follow.

Source: the Rust crate ``jsonb`` that Lance uses, and files written by pylance 14.0.2. Not supported: decimals and the
extension types of that crate, which JSON text cannot express.
"""

from __future__ import annotations

import json
import struct
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from lance_core.common.frozen import frozen
from lance_core.errors import CorruptDataError, InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SCALAR, _OBJECT, _ARRAY = 1, 2, 4
_NULL, _STRING, _NUMBER, _FALSE, _TRUE, _CONTAINER = range(6)
_KIND_SHIFT, _TYPE_SHIFT = 29, 28
_COUNT_MASK, _SIZE_MASK = (1 << 29) - 1, (1 << 28) - 1
MAX_DEPTH = 200
_MAX_INT64, _MAX_UINT64 = 2**63, 2**64
_INTEGERS = {1: "b", 2: "h", 4: "i", 8: "q"}
_OFFSET_FLAG = 1 << 31
_WORD_BYTES = [next(size for size in (1, 2, 4, 8) if bits <= 8 * size) for bits in range(65)]
"""Bytes of the smallest word that has so many bits."""

_NULL_ENTRY, _STRING_ENTRY, _NUMBER_ENTRY, _FALSE_ENTRY, _TRUE_ENTRY, _CONTAINER_ENTRY = (
    kind << _TYPE_SHIFT for kind in range(6)
)
_FLOAT = struct.Struct(">Bd")
_TOO_LARGE = "a string or an object of more than 256 MiB"
_MOST_KEPT_SHAPES, _MOST_KEPT_KEYS = 256, 64
_LONG_TEXT = 1 << 16


def encode_text(text: str) -> bytes:
    """JSON text as JSONB.

    Raises:
        InvalidInputError: Not JSON, an object with a key twice, more nesting or longer strings than can be kept.
    """
    try:
        value = _parse(text)
        if type(value) is list:
            value = _array(cast("list[Any]", value))
        if type(value) is tuple:
            return cast("_Container", value)[0]
        entries, parts, _ = _elements((value,))
        return struct.pack(">II", _SCALAR << _KIND_SHIFT, entries[0]) + b"".join(parts)
    except (ValueError, RecursionError) as error:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise InvalidInputError(f"{shown!r} is no JSON: {error}") from error
    finally:
        if len(text) > _LONG_TEXT:
            _shape.cache_clear()  # its keys may be long


def _parse(text: str) -> Any:
    """Return the value of a text; a parser that also looks for spaces around it takes its time."""
    if text[:1] in ("{", "["):
        value, end = _DECODER.raw_decode(text)
        if end == len(text):
            return value
    return _DECODER.decode(text)


_Container: TypeAlias = tuple[bytes, int]
"""JSONB of an array or object, and how deep it is nested. No value of the parser is a tuple."""


def _object(pairs: list[tuple[str, Any]]) -> _Container:
    """Called by the parser for each object, the innermost first."""
    if not pairs:
        return _EMPTY_OBJECT, 0
    keys, values = zip(*pairs, strict=True)
    shape = _shape(keys) if len(keys) <= _MOST_KEPT_KEYS else _new_shape(keys)
    entries, parts, depth = _elements(values if shape.order is None else shape.order(values))
    return b"".join((shape.head, shape.entries.pack(*entries), shape.keys, *parts)), depth


def _array(values: list[Any]) -> _Container:
    entries, parts, depth = _elements(values)
    head = struct.pack(f">{len(entries) + 1}I", _ARRAY << _KIND_SHIFT | len(entries), *entries)
    return b"".join((head, *parts)), depth


@frozen
class _Shape:
    """The common part of objects with the same keys in the same order have in common.

    Attributes:
        order: Puts their values into the order of the sorted keys; None if they are.
        head: Header and entries of the keys.
        entries: Packs the entries of the values.
        keys: The keys.
    """

    order: Callable[[Sequence[Any]], tuple[Any, ...]] | None
    head: bytes
    entries: struct.Struct
    keys: bytes


def _new_shape(keys: tuple[str, ...]) -> _Shape:
    key_order = sorted(range(len(keys)), key=keys.__getitem__)
    if len(set(keys)) < len(keys):
        raise ValueError("an object has a key twice")
    parts = [keys[key_index].encode() for key_index in key_order]
    if max(map(len, parts)) > _SIZE_MASK:
        raise ValueError(_TOO_LARGE)
    entries = (_OBJECT << _KIND_SHIFT | len(keys), *[_STRING_ENTRY | len(data) for data in parts])
    return _Shape(
        None if key_order == list(range(len(keys))) else itemgetter(*key_order),
        struct.pack(f">{len(entries)}I", *entries),
        struct.Struct(f">{len(keys)}I"),
        b"".join(parts),
    )


_shape = lru_cache(_MOST_KEPT_SHAPES)(_new_shape)


def _elements(values: Sequence[Any]) -> tuple[list[int], list[bytes], int]:
    """Entries and data of the elements of an array or object, and how deep it is nested."""
    entries: list[int] = []
    parts: list[bytes] = []
    depth = 0
    for value in values:
        kind: type[Any] = type(value)
        if kind is str:
            data = value.encode()
            entries.append(_STRING_ENTRY | len(data))
        elif kind is int or kind is float:
            data = _number(value)
            entries.append(_NUMBER_ENTRY | len(data))
        elif kind is tuple or kind is list:
            data, inner = value if kind is tuple else _array(value)
            entries.append(_CONTAINER_ENTRY | len(data))
            depth = max(depth, inner + 1)
        else:
            entries.append(_NULL_ENTRY if value is None else _TRUE_ENTRY if value else _FALSE_ENTRY)
            continue
        parts.append(data)
        if len(data) > _SIZE_MASK:
            raise ValueError(_TOO_LARGE)
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    return entries, parts, depth


def _number(value: float) -> bytes:
    if type(value) is int and -_MAX_INT64 <= value < _MAX_UINT64:
        if value > 0:
            return b"\x50" + value.to_bytes(_WORD_BYTES[value.bit_length()], "big")
        if value < 0:
            return b"\x40" + value.to_bytes(_WORD_BYTES[(~value).bit_length() + 1], "big", signed=True)
        return b"\x00"
    number = float(value)
    if number in (float("inf"), float("-inf")):
        return b"\x20" if number > 0 else b"\x30"
    return _FLOAT.pack(0x60, number)


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant)
CONSTANTS = {0x10: "NaN", 0x20: "Infinity", 0x30: "-Infinity"}
"""Kinds of numbers that are not finite, as Python's parser reads them."""
_NO_CONSTANTS = dict.fromkeys(CONSTANTS, "null")
"""The same as JSON, and as pylance 14.0.2 writes them."""
_EMPTY_OBJECT = struct.pack(">I", _OBJECT << _KIND_SHIFT)


def decode_text(data: bytes, *, with_constants: bool = False) -> str:
    """Decode JSONB to JSON text, without spaces.

    Args:
        data: The JSONB value.
        with_constants: Write numbers that are not finite as `json.loads` reads them; by default as null.

    Raises:
        CorruptDataError: Not JSONB.
        UnsupportedError: Types that JSON text cannot express.
    """
    try:
        return _decode(memoryview(data), 0, CONSTANTS if with_constants else _NO_CONSTANTS)
    except (struct.error, UnicodeDecodeError, OverflowError) as error:
        raise CorruptDataError(f"a JSON value cannot be read: {error}") from error


def _decode(data: memoryview, depth: int, constants: Mapping[int, str]) -> str:
    if depth > MAX_DEPTH:
        raise CorruptDataError(f"a JSON value is nested more than {MAX_DEPTH} deep")
    (header,) = struct.unpack_from(">I", data)
    kind, count = header >> _KIND_SHIFT, header & _COUNT_MASK
    num_entries = {_SCALAR: 1, _ARRAY: count, _OBJECT: 2 * count}.get(kind)
    if num_entries is None or 4 + 4 * num_entries > len(data):
        raise CorruptDataError("a JSON value has an unknown header, or more elements than bytes")
    at = 4 + 4 * num_entries
    texts: list[str] = []
    for entry in struct.unpack_from(f">{num_entries}I", data, 4):
        size = entry & _SIZE_MASK
        if entry & _OFFSET_FLAG or at + size > len(data):
            raise CorruptDataError("an element of a JSON value reaches beyond its end")
        texts.append(_decode_element(entry >> _TYPE_SHIFT, data[at : at + size], depth, constants))
        at += size
    if at != len(data):
        raise CorruptDataError("a JSON value has bytes behind its last element")
    if kind == _SCALAR:
        return texts[0]
    if kind == _ARRAY:
        return f"[{','.join(texts)}]"
    pairs = zip(texts[:count], texts[count:], strict=True)
    return f"{{{','.join(f'{key}:{value}' for key, value in pairs)}}}"


def _decode_element(entry: int, data: memoryview, depth: int, constants: Mapping[int, str]) -> str:
    match entry:
        case 0:
            return "null"
        case 1:
            return json.dumps(str(data, "utf-8"), ensure_ascii=False)
        case 2:
            return _decode_number(data, constants)
        case 3:
            return "false"
        case 4:
            return "true"
        case 5:
            return _decode(data, depth + 1, constants)
        case _:
            raise UnsupportedError(f"JSON values with elements of type {entry} are not supported")


def _decode_number(data: memoryview, constants: Mapping[int, str]) -> str:
    if not data:
        raise CorruptDataError("a number of a JSON value has no bytes")
    kind, size = data[0], len(data) - 1
    if kind == 0x00:
        return "0"
    if kind in constants:
        return constants[kind]
    if kind in (0x40, 0x50) and size in _INTEGERS:
        code = _INTEGERS[size] if kind == 0x40 else _INTEGERS[size].upper()
        return str(struct.unpack_from(f">{code}", data, 1)[0])
    if kind == 0x60 and size == 8:
        return float_text(struct.unpack_from(">d", data, 1)[0])
    raise UnsupportedError(f"JSON values with numbers of kind {kind:#04x} are not supported")


def float_text(value: float) -> str:
    """Return the shortest text, with exponents as pylance writes them."""
    if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - not a number
        return "null"
    digits, mark, exponent = repr(value).partition("e")
    if exponent == "-05":
        sign = "-" if value < 0 else ""
        return f"{sign}0.0000{digits.lstrip('-').replace('.', '')}"
    return f"{digits}e{exponent[0]}{exponent[1:].lstrip('0')}" if mark else digits
