"""Hash join of table rows with the rows of a source that have the same keys; the source is held in memory.

Keys are compared as pylance compares them: null equals nothing, floating-point numbers are equal if their bits are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.change.number_index import NumberIndex
from lance_core.common.frozen import frozen
from lance_core.encoding.arrow_values import words_of
from lance_core.encoding.kernels import distinct
from lance_core.errors import InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    Positions = npt.NDArray[np.int64]

_WORD_BITS = (8, 16, 32, 64)
_FLOAT_BITS = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}


@frozen(kw_only=True)
class Pairs:
    """Rows with the same key.

    Attributes:
        target: Places in the target, ascending; a place stands once for each source row it meets.
        source: Places in the source, of the same length.
    """

    target: Positions
    source: Positions

    def __len__(self) -> int:
        return len(self.target)

    def where(self, keep: npt.NDArray[np.bool_]) -> Pairs:
        """Return some of the pairs."""
        return Pairs(target=self.target[keep], source=self.source[keep])

    def repeated_target(self) -> int | None:
        """Return the index of a pair whose target row met another source row just before; None if there is none."""
        again = np.flatnonzero(self.target[1:] == self.target[:-1])
        return int(again[0]) + 1 if len(again) else None


class KeyJoin:
    """The keys of a source, ready to be looked up.

    Args:
        columns: One column for each part of the key, all equally long.

    Raises:
        UnsupportedError: A type that cannot be a key.
    """

    def __init__(self, columns: Sequence[pa.ChunkedArray]) -> None:
        self._sets: list[_Numbers | _Values] = []
        self._levels: list[Positions] = []
        codes: Positions | None = None
        for column in columns:
            numbers, positions = _distinct(_comparable(column))
            self._sets.append(numbers)
            codes = self._combine(codes, positions)
        codes = np.empty(0, np.int64) if codes is None else codes
        order = np.argsort(codes, kind="stable")
        self._rows = order[np.searchsorted(codes[order], 0) :]
        counts = np.bincount(codes[codes >= 0]) if len(self._rows) else np.empty(0, np.int64)
        self._counts = counts
        self._starts = np.cumsum(counts) - counts
        self._is_unique = bool((counts <= 1).all())

    def match(self, columns: Sequence[pa.ChunkedArray | pa.Array]) -> Pairs:
        """Pairs of target rows, whose keys these are, and source rows.

        Raises:
            InvalidInputError: Keys of another type.
        """
        codes: Positions | None = None
        for number, (column, key_set) in enumerate(zip(columns, self._sets, strict=True)):
            positions = key_set.find(_comparable(column))
            codes = positions if codes is None else self._step(codes, positions, number - 1)
        codes = np.empty(0, np.int64) if codes is None else codes
        target = np.flatnonzero(codes >= 0)
        hits = codes[target]
        if self._is_unique:
            return Pairs(target=target, source=self._rows[self._starts[hits]])
        counts = self._counts[hits]
        total = int(counts.sum())
        within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        source = self._rows[np.repeat(self._starts[hits], counts) + within]
        return Pairs(target=np.repeat(target, counts), source=source)

    def repeated(self) -> Positions:
        """One row of the source for each key that several of its rows have, ascending; null is no key."""
        return np.sort(self._rows[self._starts[self._counts > 1]])

    def _combine(self, codes: Positions | None, left: Positions) -> Positions:
        """Codes of the key so far together with the next column: dense again, so that they never overflow."""
        if codes is None:
            return left
        width = len(self._sets[-1])
        both = np.where((codes >= 0) & (left >= 0), codes * width + left, -1)
        self._levels.append(distinct(both[both >= 0]))
        return self._step(codes, left, len(self._levels) - 1)

    def _step(self, codes: Positions, left: Positions, number: int) -> Positions:
        keys, width = self._levels[number], len(self._sets[number + 1])
        both = np.where((codes >= 0) & (left >= 0), codes * width + left, -1)
        positions = np.minimum(np.searchsorted(keys, both), max(len(keys) - 1, 0))
        return np.where(keys[positions] == both, positions, -1) if len(keys) else np.full(len(both), -1)


def _comparable(column: pa.ChunkedArray | pa.Array) -> Any:
    """Return the column in a type that Arrow can look up by its bytes."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
        column = column.cast(kind)
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_floating(kind):
        return column.view(_FLOAT_BITS[kind.bit_width]) if isinstance(column, pa.Array) else _viewed(column, kind)
    if pa.types.is_nested(kind):
        raise UnsupportedError(f"cannot join on a key of type {kind}. Choose columns that hold single values")
    return column


def _viewed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    bits = _FLOAT_BITS[kind.bit_width]
    return pa.chunked_array([chunk.view(bits) for chunk in column.chunks], bits)


@frozen
class _Values:
    """Distinct values of any type."""

    values: pa.Array

    def __len__(self) -> int:
        return len(self.values)

    def find(self, column: pa.ChunkedArray | pa.Array) -> Positions:
        """Place of each value among the known ones; -1 for others and for null."""
        import pyarrow.compute as pc  # noqa: PLC0415 keeps `import lance_core` light

        functions: Any = pc  # they are made when the module is imported, type checkers do not see them
        return _filled(functions.index_in(column, value_set=self.values))


def _filled(array: pa.ChunkedArray | pa.Array) -> Positions:
    """Places as numbers, -1 where there is none."""
    return array.fill_null(-1).to_numpy().astype(np.int64)


@frozen
class _Numbers:
    """Values that are words of up to 64 bits, without nulls."""

    index: NumberIndex
    kind: pa.DataType

    def __len__(self) -> int:
        return len(self.index.codes)

    def find(self, column: pa.ChunkedArray | pa.Array) -> Positions:
        """As `_Values.find`, with a place of an equal value in the column that this was made from.

        Raises:
            InvalidInputError: Values of another type.
        """
        if column.type != self.kind:
            raise InvalidInputError(f"the keys have different types: {column.type} and {self.kind}")
        numbers, is_null = _numbers_of(column)
        codes = self.index.find(numbers)
        if is_null is not None:
            codes[is_null] = -1
        return codes


def _distinct(column: pa.ChunkedArray) -> tuple[_Numbers | _Values, Positions]:
    """Return the values of a column ready to be looked up, and the place of each of its own."""
    kind = column.type
    if len(column) and not column.null_count and _is_word(kind):
        index = NumberIndex(_numbers_of(column)[0])
        if index.is_complete:
            return _Numbers(index, kind), index.codes
    chunks = column.dictionary_encode().chunks  # with one dictionary for all
    if not chunks:
        return _Values(pa.nulls(0, kind)), np.empty(0, np.int64)
    return _Values(chunks[-1].dictionary), np.concatenate([_filled(chunk.indices) for chunk in chunks])


def _is_word(kind: pa.DataType) -> bool:
    return pa.types.is_primitive(kind) and kind.bit_width in _WORD_BITS


def _numbers_of(column: pa.ChunkedArray | pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]:
    """Words as numbers, equal where the words are; and which are null."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    all_words = [words_of(chunk) for chunk in chunks]
    numbers = [
        chunk_words.view(chunk_words.dtype.str.replace("u", "i")).astype(np.int64, copy=False)
        for chunk_words in all_words
    ]
    is_null = np.asarray(column.is_null()) if column.null_count else None
    return numbers[0] if len(numbers) == 1 else np.concatenate([np.empty(0, np.int64), *numbers]), is_null
