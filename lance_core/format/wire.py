"""Numbers out of many encoded protobuf messages at once.

A manifest of 100,000 fragments is opened to learn a handful of sums; decoding objects for that costs hundreds of
milliseconds. Here all messages advance together, one field per step, with numpy.

Byte layout of a message: ``key varint (number << 3 | wire type)`` then a varint (wire type 0), 8 bytes (1), a varint
length and as many bytes (2), or 4 bytes (5); source: the protobuf encoding guide.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
FrameBits: TypeAlias = npt.NDArray[np.uint64]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WORD_SIZE = 8
_CONTINUES = np.uint64(0x8080_8080_8080_8080)
_LAST_CONTINUES = np.uint64(0x80 << 56)
_BIT = np.uint64(1)

_BLOCK = 1 << 13
"""So many messages advance together: what is worked out for them stays in the cache."""

_FIRST_FRAMES, _FIRST_RUN = 32, 8
_FEWEST_A_RUN = 16
"""Below so many messages of one size in a row, it is cheaper to let protobuf find them."""
_PATIENCE = 256


def frame(messages: Sequence[bytes], number: int) -> tuple[bytes, Ints]:
    """Lay messages end to end as a repeated field is encoded.

    Args:
        messages: Encoded messages.
        number: Field number, below 16.

    Returns:
        The bytes, and where the first and the message behind each begin, shape (n + 1,).
    """
    if not messages:
        return b"", np.zeros(1, np.int64)
    parts = [field_of(message, number) for message in messages]
    return b"".join(parts), np.array([0, *accumulate(map(len, parts))], np.int64)


def field_of(content: bytes, number: int) -> bytes:
    """Return a field of bytes, or of a message, whose number is below 16."""
    return bytes((number << 3 | _BYTES,)) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Encode a number that is not negative."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields_between(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Go through one message.

    Args:
        data: Holds the message.
        start: Where it begins.
        end: Where it ends.

    Yields:
        Number of each field, and where its content begins and ends: that of bytes without their length.

    Raises:
        CorruptDataError: It does not end where it should, or holds something else than numbers and bytes.
    """
    while start < end:
        key, start = _varint_at(data, start, end)
        match key & 7:
            case 0:
                stop = _varint_at(data, start, end)[1]
            case 1 | 5 as kind:
                stop = start + (_WORD_SIZE if kind == _FIXED64 else _WORD_SIZE // 2)
            case 2:
                size, start = _varint_at(data, start, end)
                stop = start + size
            case kind:
                raise CorruptDataError(f"an encoded message has an unknown wire type {kind}")
        if stop > end:
            raise CorruptDataError("an encoded message runs past its end")
        yield key >> 3, start, stop
        start = stop


def _varint_at(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Return a number and the position behind it."""
    value = 0
    for at in range(start, min(end, start + 10)):
        value |= (data[at] & 0x7F) << 7 * (at - start)
        if data[at] < 0x80:
            return value, at + 1
    raise CorruptDataError("an encoded message runs past its end")


def skip_fields(data: Bytes, number: int) -> int | None:
    """Return the start of the first field of this number, if all fields before it are bytes; else None."""
    view: memoryview = data.data  # single bytes of it cost a tenth of those of an array
    position = 0
    while position + 1 < len(view):
        key, size = view[position], view[position + 1]
        if key == number << 3 | _BYTES:
            return position
        if key & 7 != _BYTES or key >= 0x80:
            return None
        if size < 0x80:
            position += 2 + size
            continue
        header = _header(data, position)
        if header is None:
            return None
        position += header[1]
    return None


def find_frames(data: Bytes, start: int, number: int) -> Ints | None:
    """Find the messages of a repeated field that follow each other, from their lengths.

    Each length tells only where the next one is; messages of one size in a row are found together.

    Args:
        data: What they are in.
        start: Where the first begins.
        number: Field number, below 16.

    Returns:
        Where the first begins and each ends, shape (n + 1,); None if the sizes differ so much that this takes long,
        or if a message runs past the end.
    """
    key = number << 3 | _BYTES
    first = _first_frames(data, start, key)
    if first is None:
        return None
    position = first[-1]
    if position == len(data) or data[position] != key:
        return np.array(first, np.int64)
    frames, count, depth = [np.array(first, np.int64)], len(first) - 1, 0
    run = _FIRST_RUN
    while position < len(data) and data[position] == key:
        header = _header(data, position)
        if header is None or depth > _PATIENCE + count // _FEWEST_A_RUN:
            return None
        head, size = header
        fitting = min((len(data) - position) // size, run)
        if not fitting:
            return None
        heads = data[position : position + fitting * size].reshape(fitting, size)
        # Each look at a column of all records waits for memory, so the last two bytes are compared at one go.
        last_two = int.from_bytes(data[position + head - 2 : position + head].tobytes(), "little")
        same = heads[:, head - 2 : head].view("<u2")[:, 0] == last_two
        for column in range(head - 2):
            same &= heads[:, column] == data[position + column]
        alike = fitting if same.all() else int(same.argmin())
        frames.append(np.arange(position + size, position + alike * size + 1, size))
        run = run * 4 if alike == run else _FIRST_RUN
        position += alike * size
        count, depth = count + alike, depth + 1
    return np.concatenate(frames)


def _first_frames(data: Bytes, start: int, key: int) -> list[int] | None:
    """As `find_frames`, for no more than the first few messages: arrays take longer for each step than these do."""
    view: memoryview = data.data
    frames = [start]
    for _ in range(_FIRST_FRAMES):
        position = frames[-1]
        if position + 1 >= len(view) or view[position] != key:
            break
        size = view[position + 1]
        end = position + 2 + size
        if size >= 0x80:
            header = _header(data, position)
            if header is None:
                return None
            end = position + header[1]
        if end > len(view):
            return None
        frames.append(end)
    return frames


def _header(data: Bytes, position: int) -> tuple[int, int] | None:
    """Return bytes of key and length, and bytes of the whole; None if there is no length."""
    length = 0
    for index, byte in enumerate(data[position + 1 : position + 6].tolist()):
        length |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return 2 + index, 2 + index + length
    return None


def header_size(data: Bytes, position: int) -> int:
    """Return bytes of key and length before a message that was laid down as by `frame`."""
    header = _header(data, position)
    if header is None:
        raise CorruptDataError("an encoded message has no length")
    return header[0]


def contents(data: Bytes, starts: Ints) -> Ints:
    """Return the start of the contents of messages whose keys begin at ``starts``, laid out as by `frame`."""
    lengths_ = np.empty(len(starts), np.int64)
    for first in range(0, len(starts), _BLOCK):
        lengths = starts[first : first + _BLOCK] + 1
        _, lengths_[first : first + _BLOCK] = _varints(_load_frames(data, lengths), data, lengths)
    return lengths_


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
    result = {number: (np.zeros(len(starts), np.int64), np.full(len(starts), -1, np.int64)) for number in numbers}
    for rows, keys, values, positions in walk_fields(data, starts, ends):
        for number, (all_values, all_positions) in result.items():
            hit = keys == number
            some = slice(None) if hit.all() else hit
            all_values[rows[some]] = values[some]
            all_positions[rows[some]] = positions[some]
    return result


def walk_fields(data: Bytes, starts: Ints, ends: Ints) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    """Go through many messages, some thousands at a time, one field of each per step.

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
    filled = np.flatnonzero((starts >= 0) & (starts < ends))
    for first in range(0, len(filled), _BLOCK):
        rows = filled[first : first + _BLOCK]
        yield from _walk(data, rows, starts[rows], ends[rows])


def _walk(data: Bytes, rows: Ints, positions: Ints, limits: Ints) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    while len(rows):
        frame_bits = _load_frames(data, positions)
        if (frame_bits & np.uint64(0x80)).any():
            keys, positions = _varints(frame_bits, data, positions)
            frame_bits = _load_frames(data, positions)
        else:  # numbers below 16, so that what follows is in the same word
            keys, positions = (frame_bits & np.uint64(0x7F)).astype(np.int64), positions + 1
            frame_bits = frame_bits >> np.uint64(8) | _LAST_CONTINUES
        wire_types = keys & 7
        values, positions = _values(frame_bits, data, positions, wire_types)
        yield rows, keys >> 3, values, positions
        sizes = np.where(wire_types == _BYTES, values, 0)
        # A size of 2^63 or more reads as negative here, and would lead back to where we have been.
        if (sizes < 0).any() or (sizes > limits - positions).any():
            raise CorruptDataError("an encoded message runs past its end")
        positions = positions + sizes
        unfinished = positions < limits
        if not unfinished.all():
            rows, positions, limits = rows[unfinished], positions[unfinished], limits[unfinished]


def _values(frame_bits: FrameBits, data: Bytes, positions: Ints, wire_types: Ints) -> tuple[Ints, Ints]:
    is_varint = (wire_types == _VARINT) | (wire_types == _BYTES)
    if is_varint.all():
        return _varints(frame_bits, data, positions)
    fixed = np.where(wire_types == _FIXED64, 8, np.where(wire_types == _FIXED32, 4, 0))
    if not (is_varint | (fixed > 0)).all():
        raise CorruptDataError("an encoded message has an unknown wire type")
    values = np.zeros(len(positions), np.int64)
    after = positions + fixed
    values[is_varint], after[is_varint] = _varints(frame_bits[is_varint], data, positions[is_varint])
    return values, after


def _load_frames(data: Bytes, positions: Ints) -> FrameBits:
    """Return the eight bytes from each position on; beyond the end are zeros."""
    if len(data) < _WORD_SIZE:
        data = np.append(data, np.zeros(_WORD_SIZE - len(data), np.uint8))
    last = len(data) - _WORD_SIZE
    everywhere = np.lib.stride_tricks.as_strided(data[:_WORD_SIZE].view("<u8"), (last + 1,), (1,), writeable=False)
    beyond = positions > last
    if not beyond.any():
        return everywhere[positions]
    frame_bits = everywhere[np.minimum(positions, last)]
    frame_bits[beyond] >>= (8 * (positions[beyond] - last)).astype(np.uint64)  # 64 and more leave nothing
    return frame_bits


def varints_at(data: Bytes, positions: Ints) -> tuple[Ints, Ints]:
    """Return the varints that begin at some positions, and the positions behind them.

    Raises:
        CorruptDataError: A varint is longer than ten bytes.
    """
    return _varints(_load_frames(data, positions), data, positions)


def _varints(frame_bits: FrameBits, data: Bytes, positions: Ints) -> tuple[Ints, Ints]:
    """Return values of varints and the positions behind them.

    Args:
        frame_bits: The eight bytes at each position; if all of them have the continuation bit, ``data`` has more.
        data: All messages.
        positions: Where the varints begin.

    Raises:
        CorruptDataError: A varint is longer than ten bytes.
    """
    stops = ~frame_bits & _CONTINUES
    lowest = stops & (~stops + _BIT)
    mask = lowest | (lowest - _BIT)  # of all bits, where no byte is the last
    frame_bits = frame_bits & mask
    values, sizes = frame_bits & np.uint64(0x7F), np.ones(len(frame_bits), np.int64)
    longest = int(mask.max(initial=0))
    for index in range(1, _WORD_SIZE):
        if not longest >> 8 * index:
            break
        values |= frame_bits >> np.uint64(index) & np.uint64(0x7F << 7 * index)
        sizes += mask >> np.uint64(8 * index) != 0
    signed = values.view(np.int64)
    after = positions + sizes
    if longest == 0xFFFF_FFFF_FFFF_FFFF:
        rows = np.flatnonzero(lowest == 0)
        signed[rows], after[rows] = _long_varints(data, positions[rows])
    return signed, after


def _long_varints(data: Bytes, positions: Ints) -> tuple[Ints, Ints]:
    """As `_varints`, for those that may be longer than seven bytes; byte by byte."""
    values, after = np.zeros(len(positions), np.int64), positions.copy()
    rows = np.arange(len(positions))
    for index in range(10):
        parts = (_load_frames(data, after[rows]) & np.uint64(0xFF)).astype(np.int64)
        values[rows] |= (parts & 0x7F) << (7 * index)
        after[rows] += 1
        rows = rows[parts >= 0x80]
    if len(rows):
        raise CorruptDataError("an encoded number is longer than 10 bytes")
    return values, after
