"""Bytes and messages changed at random, and which lines of lance_core they lead through."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from types import CodeType, FrameType

_PACKAGE = str(Path(__file__).parent.parent)
_NUMBERS = [0, 1, 2, 7, 8, 127, 128, 255, 256, 4095, 65535, 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, -1]


def mutate(data: bytearray, at: int, rng: random.Random) -> None:
    """Change some bytes at a position: a bit, a number, garbage, fewer bytes, others of the same file, or the end."""
    kind = rng.randrange(6)
    if kind == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        width = rng.choice([1, 2, 4, 8])
        data[at : at + width] = (rng.choice(_NUMBERS) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    elif kind == 2:
        data[at : at + rng.randrange(1, 16)] = rng.randbytes(rng.randrange(1, 16))
    elif kind == 3:
        del data[at : at + rng.randrange(1, 64)]
    elif kind == 4:
        source = rng.randrange(len(data))
        data[at : at + 16] = data[source : source + 16]
    else:
        del data[max(at, 1) :]


def mutate_message(data: bytes, rng: random.Random) -> bytes:
    """Change one field of a protobuf message, or of a message in it: what is around it stays a sound message.

    A field goes, comes twice, takes the value of another one, or another value.
    """
    fields = _fields(data)
    if not fields:
        return rng.randbytes(rng.randrange(1, 4))
    at = rng.randrange(len(fields))
    tag, value = fields[at]
    kind = rng.randrange(8)
    if kind == 0:
        del fields[at]
    elif kind == 1:
        fields.insert(rng.randrange(len(fields) + 1), fields[at])
    elif kind == 2:
        fields[at] = (tag, rng.choice([other for its_tag, other in fields if its_tag & 7 == tag & 7]))
    elif isinstance(value, int):
        fields[at] = (tag, rng.choice([*_NUMBERS, value - 1, value + 1]) & ((1 << 64) - 1))
    elif tag & 7 == 2 and _fields(value):
        fields[at] = (tag, mutate_message(value, rng))
    else:
        changed = bytearray(value or b"?")
        mutate(changed, rng.randrange(len(changed)), rng)
        fields[at] = (tag, bytes(changed) if tag & 7 == 2 else bytes(changed).ljust(len(value), b"\xff")[: len(value)])
    return b"".join(_encode(*field) for field in fields)


def _fields(data: bytes) -> list[tuple[int, int | bytes]] | None:
    """Tags and values of a message; None if these bytes are none."""
    fields: list[tuple[int, int | bytes]] = []
    at = 0
    try:
        while at < len(data):
            tag, at = _varint(data, at)
            if tag & 7 == 0:
                value, at = _varint(data, at)
            else:
                size, at = _varint(data, at) if tag & 7 == 2 else ({1: 8, 5: 4}[tag & 7], at)
                value, at = data[at : at + size], at + size
            fields.append((tag, value))
    except (IndexError, KeyError):
        return None
    return fields if at == len(data) and all(tag >> 3 for tag, _ in fields) else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while data[at] >= 128:
        number |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
    return number | data[at] << shift, at + 1


def _encode(tag: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _encode_varint(tag) + _encode_varint(value)
    return _encode_varint(tag) + (_encode_varint(len(value)) if tag & 7 == 2 else b"") + value


def _encode_varint(number: int) -> bytes:
    parts = bytearray()
    while number >= 128:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


class LineTrace:
    """The steps from line to line of lance_core that this thread takes while it is entered.

    Attributes:
        taken: Code, line before and line of each; 0 before the first line.
    """

    def __init__(self) -> None:
        self.taken: set[tuple[CodeType, int, int]] = set()

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        code, last = frame.f_code, 0
        if not code.co_filename.startswith(_PACKAGE):
            return None

        def step(frame: FrameType, _event: str, _argument: Any) -> Any:
            nonlocal last
            self.taken.add((code, last, frame.f_lineno))
            last = frame.f_lineno
            return step

        return step
