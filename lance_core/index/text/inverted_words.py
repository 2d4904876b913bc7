"""The words of one partition of a full-text index: look-ups, and words that are nearly spelt like another."""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from lance_core.format.index.fst import Fst

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_LAST = "\U0010ffff"


class WordSet(Protocol):
    """Words of a partition and their numbers."""

    def get(self, word: str) -> int | None:
        """Return the number of a word; None if it is not there."""
        ...

    def items(self) -> Iterator[tuple[str, int]]:
        """Return all words and their numbers, in the order of their code points."""
        ...

    def near(self, pattern: NearPattern) -> Iterator[str]:
        """Return the words that match, in the order of their code points."""
        ...


class NearPattern:
    """A word and how far others may be from it: in Levenshtein's distance, behind a prefix that must be equal.

    Args:
        word: The word.
        distance: Insertions, deletions and replacements of characters at most.
        prefix: Characters at the begin that must be equal.
    """

    def __init__(self, word: str, distance: int, prefix: int) -> None:
        self.prefix = word[:prefix]
        self._rest = word[prefix:]
        self._distance = distance

    def start(self) -> tuple[int, ...]:
        """Return the state behind the prefix: the distance of nothing to each begin of the word."""
        return tuple(range(len(self._rest) + 1))

    def step(self, state: tuple[int, ...], character: str) -> tuple[int, ...] | None:
        """Return the state behind a further character; None if no word that goes on like this matches."""
        row = [state[0] + 1]
        for slot, expected in enumerate(self._rest):
            row.append(min(row[-1] + 1, state[slot + 1] + 1, state[slot] + (expected != character)))
        return tuple(row) if min(row) <= self._distance else None

    def accepts(self, state: tuple[int, ...]) -> bool:
        """Return whether a word that ends here matches."""
        return state[-1] <= self._distance

    def matches(self, word: str) -> bool:
        """Return whether a word matches."""
        return word.startswith(self.prefix) and next(near_words([word], self), None) is not None


class Texts(Protocol):
    """Sorted words by place."""

    def __len__(self) -> int:
        """Return their number."""
        ...

    def __getitem__(self, slot: int, /) -> str:
        """Return a word."""
        ...


def near_words(tokens: Texts, pattern: NearPattern) -> Iterator[str]:
    """Return the words of a sorted sequence that match.

    States of the characters that a word shares with the one before are kept, and words that go on where nothing can
    match are passed over by a binary search.
    """
    number = bisect_left(tokens, pattern.prefix)
    before, states = pattern.prefix, [pattern.start()]
    skip = len(pattern.prefix)
    while number < len(tokens):
        word = tokens[number]
        if not word.startswith(pattern.prefix):
            return
        shared = _shared(before, word, len(states) - 1 + skip)
        del states[shared - skip + 1 :]
        before = word
        for character in islice(word, shared, None):
            state = pattern.step(states[-1], character)
            if state is None:
                break
            states.append(state)
        else:
            if pattern.accepts(states[-1]):
                yield word
            number += 1
            continue
        dead = word[: len(states) + skip]
        number = bisect_left(tokens, dead + _LAST, lo=number + 1)


def _shared(left: str, right: str, most: int) -> int:
    count = 0
    for item, other in zip(left[:most], right, strict=False):
        if item != other:
            break
        count += 1
    return count


class ColumnWords:
    """Words as sorted columns.

    Args:
        tokens: The words, sorted.
        numbers: Their numbers.
    """

    def __init__(self, tokens: pa.Array, numbers: pa.Array) -> None:
        self._tokens = _Texts(tokens)
        self._numbers = numbers

    def get(self, word: str) -> int | None:
        """Return the number of a word; None if it is not there."""
        slot = bisect_left(self._tokens, word)
        return self._numbers[slot].as_py() if slot < len(self._tokens) and self._tokens[slot] == word else None

    def items(self) -> Iterator[tuple[str, int]]:
        """Return all words and their numbers."""
        return zip(self._tokens.array.to_pylist(), self._numbers.to_pylist(), strict=True)

    def near(self, pattern: NearPattern) -> Iterator[str]:
        """Return the words that match."""
        return near_words(self._tokens, pattern)


class _Texts:
    """A column of texts as a sequence."""

    def __init__(self, array: pa.Array) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, slot: int) -> str:
        return self.array[slot].as_py()


class TransducerWords:
    """Words as a transducer.

    Args:
        data: Its bytes.
        path: The file, for errors.
    """

    def __init__(self, data: bytes, *, path: str) -> None:
        self._fst = Fst(data, path=path)

    def get(self, word: str) -> int | None:
        """Return the number of a word; None if it is not there."""
        return self._fst.get(word.encode())

    def items(self) -> Iterator[tuple[str, int]]:
        """Return all words and their numbers."""
        return ((word.decode(errors="replace"), number) for word, number in self._fst.items())

    def near(self, pattern: NearPattern) -> Iterator[str]:
        """Return the words that match."""
        yield from self._fst.near(pattern)
