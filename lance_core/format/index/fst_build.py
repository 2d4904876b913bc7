"""Write sorted maps of words to numbers as finite state transducers.

The layout is described, and read, in `lance_core.format.index.fst`.

A word's number stands on the first transition that no word before it takes, less what stands on the way there. Nodes
that are alike are written once, so that words share their ends, too.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_VERSION = 3
_PAIR = struct.Struct("<QQ")
_CHECKSUM = struct.Struct("<I")
_POLYNOMIAL, _MASK_DELTA = 0x82F63B78, 0xA282EAD8
_MOST_WITHOUT_INDEX, _MOST_IN_STATE, _MOST_LETTERS = 32, 63, 256
_END_OF_WORD = 1 << 6
_MOST_SHARED = 1 << 17
"""Nodes that are remembered to be shared."""


def encode_fst(terms: Iterable[bytes]) -> bytes:
    """Return the bytes of a map in which each word has its position as its number.

    Args:
        terms: Distinct words, ordered by their bytes.
    """
    writer = _Writer()
    path = [_Node(0)]
    before = b""
    count = 0
    for number, word in enumerate(terms):
        count += 1
        shared = 0
        for left, right in zip(before, word, strict=False):
            if left != right:
                break
            shared += 1
        _close(path, shared, writer)
        for at in range(shared, len(word)):
            parent = path[-1]
            parent.letters.append(word[at])
            parent.outputs.append(number - parent.number)
            path.append(_Node(number))
        path[-1].is_end = True
        before = word
    _close(path, 0, writer)
    root = writer.write(path[0])
    writer.data += _PAIR.pack(count, root)
    return bytes(writer.data + _CHECKSUM.pack(_checksum(writer.data)))


class _Node:
    """A node while words are added: what it leads to is written, but for the last letter."""

    __slots__ = ("is_end", "letters", "number", "outputs", "targets")

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_end = False
        self.letters = bytearray()
        self.outputs: list[int] = []
        self.targets: list[int] = []


def _close(path: list[_Node], depth: int, writer: _Writer) -> None:
    """Write the nodes below a depth: no further word goes through them."""
    while len(path) > depth + 1:
        node = path.pop()
        path[-1].targets.append(writer.write(node))


class _Writer:
    """Writes nodes."""

    def __init__(self) -> None:
        self.data = bytearray(_PAIR.pack(_VERSION, 0))
        self._shared: dict[tuple[bool, bytes, tuple[int, ...], tuple[int, ...]], int] = {}

    def write(self, node: _Node) -> int:
        """Return the address of a node, which is written if none like it was."""
        if node.is_end and not node.letters:
            return 0
        key = node.is_end, bytes(node.letters), tuple(node.outputs), tuple(node.targets)
        address = self._shared.get(key)
        if address is None:
            self._append(node)
            address = len(self.data) - 1
            if len(self._shared) >= _MOST_SHARED:
                self._shared.clear()
            self._shared[key] = address
        return address

    def _append(self, node: _Node) -> None:
        data, start, count = self.data, len(self.data), len(node.letters)
        distances = [start - target if target else 0 for target in node.targets]
        target_bytes = _num_bytes(max(distances, default=0)) if count else 0
        output_bytes = _num_bytes(max(node.outputs)) if any(node.outputs) else 0
        data += bytes(output_bytes if node.is_end else 0)
        for output in reversed(node.outputs):
            data += output.to_bytes(output_bytes, "little")
        for distance in reversed(distances):
            data += distance.to_bytes(target_bytes, "little")
        data += node.letters[::-1]
        if count > _MOST_WITHOUT_INDEX:
            index = bytearray(b"\xff" * _MOST_LETTERS)
            for number, letter in enumerate(node.letters):
                index[letter] = number
            data += index
        data.append(target_bytes << 4 | output_bytes)
        in_state = count if count <= _MOST_IN_STATE else 0
        if not in_state:
            data.append(1 if count == _MOST_LETTERS else count)
        data.append((_END_OF_WORD if node.is_end else 0) | in_state)


def _num_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 7) // 8)


def _table() -> list[int]:
    table: list[int] = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


def _checksum(data: bytearray) -> int:
    """Return the masked CRC-32C of bytes."""
    table, value = _table(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 255] ^ value >> 8
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF
