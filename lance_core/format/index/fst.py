"""Sorted maps of words to numbers as finite state transducers, the layout of the Rust crate ``fst``, version 3.

    uint64 version, uint64 type, nodes, uint64 number of words, uint64 address of the root, uint32 checksum

A node is read backwards from the byte at its address. The two highest bits of that byte tell its form:

    11      one transition to the node right before this one; its input is behind, unless the six low bits name it
    10      one transition: input as above, sizes, distance to the target, output
    01, 00  many transitions, 01 is the end of a word: their number in the six low bits or the byte behind, sizes, an
            index of 256 bytes if there are more than 32, inputs, distances, outputs, output of the end

``sizes`` are two numbers of four bits: bytes of each distance, bytes of each output. Address 0 is the end of a word
without transitions. The value of a word is the sum of the outputs on its way.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Protocol

    class Pattern(Protocol):
        """Decides character by character which words to return."""

        @property
        def prefix(self) -> str:
            """Begin that all words must have."""
            ...

        def start(self) -> Any:
            """Return the state behind the prefix."""
            ...

        def step(self, state: Any, character: str) -> Any:
            """Return the state behind a further character; None if no word goes on like this."""
            ...

        def accepts(self, state: Any) -> bool:
            """Return whether a word may end in a state."""
            ...


_VERSIONS = (1, 2, 3)
_HEADER = struct.Struct("<QQ")
_FOOTER = struct.Struct("<QQ")
_CHECKSUM_BYTES = 4
_INDEX_BYTES = 256
_MOST_WITHOUT_INDEX = 32
_END = 0
_MOST_BYTES = 1 << 16
"""Length of a word at most, so that damage does not lead into endless words."""

_MOST_SHARED = 1 << 14
"""Nodes that are remembered while all words are read: words share their ends."""

_COMMON_INPUTS = b"te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHG"
"""Inputs by their number in the six low bits, from 1."""


class Fst:
    """A map of words to numbers.

    Args:
        data: The bytes.
        path: File that they come from, for errors.

    Raises:
        CorruptDataError: No such map.
    """

    def __init__(self, data: bytes, *, path: str) -> None:
        self._data = data
        self._path = path
        if len(data) < _HEADER.size + _FOOTER.size:
            raise self._damage("is too short")
        version = _HEADER.unpack_from(data)[0]
        if version not in _VERSIONS:
            raise self._damage(f"has version {version}")
        self._has_index = version > 1
        end = len(data) - (_CHECKSUM_BYTES if version > 2 else 0)
        self.count, self._root = _FOOTER.unpack_from(data, end - _FOOTER.size)
        if self._root >= end - _FOOTER.size:
            raise self._damage("has no root")

    def get(self, word: bytes) -> int | None:
        """Return the number of a word; None if the map does not have it."""
        address, value = self._root, 0
        for letter in word:
            _, _, transitions = self._node(address)
            transition = transitions.get(letter)
            if transition is None:
                return None
            value += transition[0]
            address = transition[1]
        is_end, final, _ = self._node(address)
        return value + final if is_end else None

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Return all words and their numbers, in the order of their bytes."""
        pending = [(self._root, 0, b"")]
        nodes: dict[int, tuple[bool, int, list[tuple[bytes, int, int]]]] = {}
        while pending:
            address, value, word = pending.pop()
            node = nodes.get(address)
            if node is None:
                if len(nodes) >= _MOST_SHARED:
                    nodes.clear()
                node = nodes[address] = self._descending(address)
            is_end, final, transitions = node
            if is_end:
                yield word, value + final
            if len(word) > _MOST_BYTES:
                raise self._damage("has words without end")
            for letter, output, target in transitions:
                pending.append((target, value + output, word + letter))

    def _descending(self, address: int) -> tuple[bool, int, list[tuple[bytes, int, int]]]:
        """Return whether a word ends in a node, the output for that, and its transitions, the last letter first."""
        is_end, final, transitions = self._node(address)
        inputs = sorted(transitions.items(), reverse=True)
        return is_end, final, [(bytes((letter,)), output, target) for letter, (output, target) in inputs]

    def near(self, pattern: Pattern) -> Iterator[str]:
        """Return the words that a pattern accepts, in the order of their bytes; begins that lead nowhere are left."""
        address = self._root
        for letter in pattern.prefix.encode():
            transition = self._node(address)[2].get(letter)
            if transition is None:
                return
            address = transition[1]
        pending = [(address, pattern.start(), pattern.prefix, b"")]
        while pending:
            address, state, word, rest = pending.pop()
            is_end, _, transitions = self._node(address)
            if is_end and not rest and pattern.accepts(state):
                yield word
            for letter, (_, target) in sorted(transitions.items(), reverse=True):
                character = rest + bytes((letter,))
                if len(character) < _character_bytes(character[0]):
                    pending.append((target, state, word, character))
                    continue
                text = character.decode(errors="replace")
                following = pattern.step(state, text)
                if following is not None and len(word) < _MOST_BYTES:
                    pending.append((target, following, word + text, b""))

    def _node(self, address: int) -> tuple[bool, int, dict[int, tuple[int, int]]]:
        """Return whether a word ends here, the output for that, and output and target of each input."""
        if address == _END:
            return True, 0, {}
        try:
            state = self._data[address]
            if state >> 6 == 3:
                letter, start = self._letter(state, address)
                return False, 0, {letter: (0, self._checked(start - 1, address))}
            return self._single(state, address) if state >> 6 == 2 else self._many(state, address)
        except IndexError as error:
            raise self._damage("points behind its end") from error

    def _letter(self, state: int, address: int) -> tuple[int, int]:
        """Return the input of a single transition, and the address of the last byte read."""
        number = state & 63
        if number:
            return _COMMON_INPUTS[number - 1], address
        return self._data[address - 1], address - 1

    def _single(self, state: int, address: int) -> tuple[bool, int, dict[int, tuple[int, int]]]:
        letter, at = self._letter(state, address)
        sizes = self._data[at - 1]
        target_bytes, output_bytes = sizes >> 4, sizes & 15
        targets = at - 1 - target_bytes
        start = targets - output_bytes
        output = self._number(start, output_bytes)
        return False, 0, {letter: (output, self._target(start, self._number(targets, target_bytes), address))}

    def _many(self, state: int, address: int) -> tuple[bool, int, dict[int, tuple[int, int]]]:
        is_end, count, at = state >> 6 == 1, state & 63, address
        if not count:
            at -= 1
            count = self._data[at]
            count = _INDEX_BYTES if count == 1 else count  # one transition needs no byte of its own
        sizes = self._data[at - 1]
        target_bytes, output_bytes = sizes >> 4, sizes & 15
        at -= 1
        inputs = at - (_INDEX_BYTES if self._has_index and count > _MOST_WITHOUT_INDEX else 0) - count
        targets = inputs - count * target_bytes
        outputs = targets - count * output_bytes
        start = outputs - (output_bytes if is_end else 0)
        if start < 0:
            raise self._damage("has a node before its begin")
        transitions: dict[int, tuple[int, int]] = {}
        for number in range(count):
            back = count - 1 - number
            distance = self._number(targets + back * target_bytes, target_bytes)
            transitions[self._data[inputs + back]] = (
                self._number(outputs + back * output_bytes, output_bytes),
                self._target(start, distance, address),
            )
        return is_end, self._number(start, output_bytes) if is_end else 0, transitions

    def _number(self, start: int, length: int) -> int:
        return int.from_bytes(self._data[start : start + length], "little")

    def _target(self, start: int, distance: int, address: int) -> int:
        return self._checked(start - distance, address) if distance else _END

    def _checked(self, target: int, address: int) -> int:
        if not 0 <= target < address:
            raise self._damage("has a transition that does not lead back")
        return target

    def _damage(self, what: str) -> CorruptDataError:
        return CorruptDataError(f"the transducer of an index's words {what}", path=self._path)


def _character_bytes(first: int) -> int:
    """Return the length of a character in UTF-8 by its first byte."""
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
