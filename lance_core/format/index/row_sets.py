"""Sets of rows in index files, by address or stable row id.

Little endian; the upper half of a row number is the id of its fragment, or the upper half of its stable id:

    u32 entries, then for each: u32 upper half, u32 size, portable 32-bit Roaring bitmap of the lower halves

A size of 0 stands for all rows of a fragment, which no index writes. Indices of trigrams have a Roaring treemap
instead: ``u64 entries``, and no sizes. Source: what pylance 14.0.2 writes.
"""

from __future__ import annotations

import array
import struct
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, BitMap64

from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Int64s: TypeAlias = npt.NDArray[np.int64]
Part: TypeAlias = "tuple[int, bytes]"
"""Upper half of some row numbers, and the portable bitmap of their lower halves."""

_SHIFT = 32
_LOW = (1 << _SHIFT) - 1
_COUNT = struct.Struct("<I")
_LONG_COUNT = struct.Struct("<Q")
_PAIR = struct.Struct("<II")
_BUFFER_MIN = 16
"""Numbers of a set from which on it pays to work on them as arrays."""


def parts_of(rows: Int64s) -> list[Part]:
    """Split row numbers, in any order, into their parts, ascending."""
    if len(rows) < _BUFFER_MIN:
        lows: dict[int, list[int]] = {}
        for row in rows.tolist():
            lows.setdefault(row >> _SHIFT, []).append(row & _LOW)
        return [(number, BitMap(low).serialize()) for number, low in sorted(lows.items())]
    high = rows >> _SHIFT
    if (high == high[0]).all():
        return [(int(high[0]), _bitmap(rows & _LOW).serialize())]
    if (high[1:] < high[:-1]).any():
        order = np.argsort(high, kind="stable")
        rows, high = rows[order], high[order]
    edges = [0, *(np.flatnonzero(np.diff(high)) + 1).tolist(), len(rows)]
    return [(int(high[start]), _bitmap(rows[start:end] & _LOW).serialize()) for start, end in pairwise(edges)]


def merged_parts(parts: Iterable[Part]) -> list[Part]:
    """Return parts in ascending order, those with the same upper half as one."""
    merged: dict[int, bytes] = {}
    for high, bitmap in parts:
        same = merged.get(high)
        joined = bitmap if same is None else (BitMap.deserialize(same) | BitMap.deserialize(bitmap)).serialize()
        merged[high] = joined
    return sorted(merged.items())


def encode_row_set(parts: Sequence[Part]) -> bytes:
    """Encode parts, which are ascending."""
    pieces = [_COUNT.pack(len(parts))]
    for high, bitmap in parts:
        pieces += [_PAIR.pack(high, len(bitmap)), bitmap]
    return b"".join(pieces)


def encode_row_treemap(parts: Sequence[Part]) -> bytes:
    """Encode parts, which are ascending, as a Roaring treemap."""
    return b"".join([_LONG_COUNT.pack(len(parts)), *(_COUNT.pack(high) + bitmap for high, bitmap in parts)])


def row_set_of(rows: Int64s) -> BitMap64:
    """Return row numbers, in any order, as a set."""
    return BitMap64(array.array("Q", np.sort(rows).astype(np.uint64).tobytes()))


def decode_row_set(data: bytes, *, path: str) -> BitMap64:
    """Decode a set of rows.

    Raises:
        CorruptDataError: It is damaged, or stands for all rows of a fragment.
    """
    try:
        parts = _split(data)
    except (ValueError, struct.error) as error:
        raise CorruptDataError(f"a set of rows of an index cannot be decoded: {error}", path=path) from error
    return decode_row_treemap(encode_row_treemap(parts), path=path)


def decode_row_treemap(data: bytes, *, path: str) -> BitMap64:
    """Decode a Roaring treemap.

    Raises:
        CorruptDataError: It is damaged.
    """
    try:
        rows = BitMap64.deserialize(data)
    except ValueError as error:
        raise CorruptDataError(f"a set of rows of an index cannot be decoded: {error}", path=path) from error
    if len(rows) and rows.max() >= 1 << 63:
        raise CorruptDataError("a set of rows of an index has row ids above 2^63", path=path)
    return rows


def rows_of_treemap(rows: BitMap64) -> Int64s:
    """Return row numbers, ascending."""
    return np.frombuffer(rows.to_array(), np.uint64).astype(np.int64)


def _split(data: bytes) -> list[Part]:
    (count,) = _COUNT.unpack_from(data)
    at, before = _COUNT.size, -1
    parts: list[Part] = []
    for _ in range(count):
        high, size = _PAIR.unpack_from(data, at)
        at += _PAIR.size
        if not before < high < 1 << 31 or not 0 < size <= len(data) - at:
            raise ValueError(f"entry {high} has {size} bytes")
        parts.append((high, data[at : at + size]))
        at, before = at + size, high
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes are behind its end")
    return parts


def _bitmap(numbers: Int64s) -> BitMap:
    if len(numbers) < _BUFFER_MIN:
        return BitMap(numbers.tolist())
    return BitMap(array.array("I", numbers.astype(np.uint32).tobytes()))
