"""Numbers out of many encoded protobuf messages at once.

A manifest of 100,000 fragments is opened to learn a handful of sums; decoding objects for that costs hundreds of
milliseconds. Here all messages advance together, one field per step, with numpy.

Byte layout of a message: ``key varint (number << 3 | wire type)`` then a varint (wire type 0), 8 bytes (1), a varint
length and as many bytes (2), or 4 bytes (5); source: the protobuf encoding guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_SIZE = 10


def join(messages: Sequence[bytes]) -> tuple[Bytes, Ints, Ints]:
    """Lay messages end to end.

    Returns:
        The bytes, and start and end of each message within them.
    """
    sizes = np.fromiter(map(len, messages), np.int64, len(messages))
    ends = np.cumsum(sizes)
    return np.frombuffer(b"".join(messages), np.uint8), ends - sizes, ends


def scan_fields(data: Bytes, starts: Ints, ends: Ints, *, numbers: Sequence[int]) -> dict[int, tuple[Ints, Ints]]:
    """Find fields in many messages.

    Args:
        data: All messages.
        starts: Start of each message; -1 for one that is absent.
        ends: End of each message.
        numbers: Field numbers asked for.

    Returns:
        For each number, two arrays as long as ``starts``: the value (a varint's value, or the length of bytes; 0 if
        absent) and the position behind the key and length (-1 if absent). The last occurrence wins.

    Raises:
        CorruptDataError: A message does not end where it should.
    """
    found = {number: (np.zeros(len(starts), np.int64), np.full(len(starts), -1, np.int64)) for number in numbers}
    for rows, keys, values, positions in walk_fields(data, starts, ends):
        for number, (all_values, all_positions) in found.items():
            hit = keys == number
            all_values[rows[hit]] = values[hit]
            all_positions[rows[hit]] = positions[hit]
    return found


def walk_fields(data: Bytes, starts: Ints, ends: Ints) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    """Go through many messages, one field of each at a time.

    Args:
        data: All messages.
        starts: Start of each message; -1 for one that is absent.
        ends: End of each message.

    Yields:
        For the messages that have one more field: their index, and the field's number, value and position (as in
        `scan_fields`).

    Raises:
        CorruptDataError: A message does not end where it should.
    """
    rows = np.flatnonzero((starts >= 0) & (starts < ends))
    positions = starts[rows]
    while len(rows):
        keys, positions = _read_varints(data, positions)
        wire_types = keys & 7
        values, positions = _read_values(data, positions, wire_types)
        yield rows, keys >> 3, values, positions
        sizes = np.where(wire_types == _BYTES, values, 0)
        # A size of 2^63 or more reads as negative here, and would lead back to where we have been.
        if (sizes < 0).any() or (sizes > ends[rows] - positions).any():
            raise CorruptDataError("an encoded message runs past its end")
        positions = positions + sizes
        unfinished = positions < ends[rows]
        rows, positions = rows[unfinished], positions[unfinished]


def _read_values(data: Bytes, positions: Ints, wire_types: Ints) -> tuple[Ints, Ints]:
    is_varint = (wire_types == _VARINT) | (wire_types == _BYTES)
    if is_varint.all():
        return _read_varints(data, positions)
    fixed = np.where(wire_types == _FIXED64, 8, np.where(wire_types == _FIXED32, 4, 0))
    if not (is_varint | (fixed > 0)).all():
        raise CorruptDataError("an encoded message has an unknown wire type")
    values = np.zeros(len(positions), np.int64)
    after = positions + fixed
    values[is_varint], after[is_varint] = _read_varints(data, positions[is_varint])
    return values, after


def _read_varints(data: Bytes, positions: Ints) -> tuple[Ints, Ints]:
    first = _bytes_at(data, positions)
    values, after = first & 0x7F, positions + 1
    rows = np.flatnonzero(first >= 0x80)  # most numbers have one byte
    for index in range(1, _MAX_VARINT_SIZE):
        if not len(rows):
            return values, after
        parts = _bytes_at(data, after[rows])
        values[rows] |= (parts & 0x7F) << (7 * index)
        after[rows] += 1
        rows = rows[parts >= 0x80]
    if len(rows):
        raise CorruptDataError("an encoded number is longer than 10 bytes")
    return values, after


def _bytes_at(data: Bytes, positions: Ints) -> Ints:
    if len(positions) and positions.max() >= len(data):
        raise CorruptDataError("an encoded message is cut off")
    return data[positions].astype(np.int64)
