"""Hash join of table rows with the rows of a source that have the same keys; the source is held in memory.

Keys are compared as pylance compares them: null equals nothing, floating-point numbers are equal if their bits are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.change.number_index import NumberIndex
from lance_core.common.frozen import frozen
from lance_core.encoding.arrow_values import words_of
from lance_core.encoding.kernels import WORD_BYTES, leading_words, numbers_array, take_inside, view_buffer
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.arrow_kinds import is_bytes, is_text
from lance_core.sql.kernels import pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    Positions = npt.NDArray[np.int64]

_WORD_BITS = (8, 16, 32, 64)
_SEED, _FACTOR, _HALF = np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
_HASHED_TOGETHER = 1 << 13
"""Texts that are hashed together: what is made on the way stays in the cache."""
_HASHED_BYTES = 1 << 9
"""Bytes of a text that are hashed, as its size is, eight in a step. Arrow looks up texts that differ behind them."""
_MANY_TIMES = 4
"""Arrow builds a hash table of all texts of the source each time, and is faster if so many times as many are looked up:
of a million 20 instead of 40 ms. If they are as many, it takes 140 instead of 80 ms."""
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
        self._sets: list[_KeySet] = []
        self._levels: list[NumberIndex | None] = []
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

    def _combine(self, codes: Positions | None, right: Positions) -> Positions:
        """Codes of the key so far together with the next column: places again, so that they never overflow."""
        if codes is None:
            return right
        _, keys = self._joined(codes, right, len(self._sets) - 1)
        self._levels.append(NumberIndex(keys) if len(keys) else None)
        return self._step(codes, right, len(self._levels) - 1)

    def _step(self, codes: Positions, right: Positions, number: int) -> Positions:
        index, joined = self._levels[number], np.full(len(codes), -1)
        rows, keys = self._joined(codes, right, number + 1)
        if index is not None:
            joined[rows] = index.find(keys)
        return joined

    def _joined(self, codes: Positions, right: Positions, number: int) -> tuple[Positions, Positions]:
        """Return the rows that the source may have, and their codes together with those of the next column."""
        rows = np.flatnonzero((codes >= 0) & (right >= 0))
        return rows, codes[rows] * len(self._sets[number]) + right[rows]


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


class _KeySet(Protocol):
    """Distinct values of one column of the source, each with a number of its own below `__len__`."""

    def __len__(self) -> int: ...

    def find(self, column: pa.ChunkedArray | pa.Array) -> Positions:
        """Return the number of each value; -1 for those that the source does not have, and for null.

        Raises:
            InvalidInputError: Values of another type.
        """
        ...


def _distinct(column: pa.ChunkedArray) -> tuple[_KeySet, Positions]:
    """Return the values of a column ready to be looked up, and the number of each of its own."""
    if column.null_count < len(column):
        if _is_word(column.type):
            numbers = _Numbers(column)
            return numbers, numbers.codes
        if _is_bytes(column.type):
            texts = _Texts(column)
            if texts.codes is not None:
                return texts, texts.codes
    chunks = column.dictionary_encode().chunks  # with one dictionary for all
    if not chunks:
        return _Values(pa.nulls(0, column.type)), np.empty(0, np.int64)
    return _Values(chunks[-1].dictionary), np.concatenate([_filled(chunk.indices) for chunk in chunks])


@frozen
class _Values:
    """Distinct values of any type, which Arrow looks up."""

    values: pa.Array

    def __len__(self) -> int:
        return len(self.values)

    def find(self, column: pa.ChunkedArray | pa.Array) -> Positions:
        return _filled(pc.index_in(column, value_set=self.values))


def _filled(array: pa.ChunkedArray | pa.Array) -> Positions:
    """Places as numbers, -1 where there is none."""
    return array.fill_null(-1).to_numpy().astype(np.int64)


class _Numbers:
    """Values of up to 64 bits.

    Args:
        column: At least one value that is not null.

    Attributes:
        codes: Numbers of the values of the column.
    """

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._kind = column.type
        numbers, is_null = _numbers_of(column)
        self._index = NumberIndex(numbers if is_null is None else numbers[~is_null])
        self.codes = _where_valid(self._index.codes, is_null)

    def __len__(self) -> int:
        return len(self._index.codes)

    def find(self, column: pa.ChunkedArray | pa.Array) -> Positions:
        _check_type(column, self._kind)
        numbers, is_null = _numbers_of(column)
        codes = self._index.find(numbers)
        if is_null is not None:
            codes[is_null] = -1
        return codes


class _Texts:
    """Texts, or bytes: looked up by a hash, and compared with the text that has it.

    Args:
        column: At least one value that is not null.

    Attributes:
        codes: Numbers of the values of the column; None if two that differ have one hash.
    """

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._kind = column.type
        texts = _as_bytes(column)
        is_null = np.asarray(texts.is_null()) if texts.null_count else None
        self._texts: pa.Array = texts if is_null is None else texts.drop_null()
        self._index = NumberIndex(text_hashes(self._texts))
        is_one = bool(self._has_text(self._texts, self._index.codes).all())
        self.codes = _where_valid(self._index.codes, is_null) if is_one else None

    def __len__(self) -> int:
        return len(self._index.codes)

    def find(self, column: pa.ChunkedArray | pa.Array) -> Positions:
        _check_type(column, self._kind)
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        return np.concatenate([np.empty(0, np.int64), *(self._find(_as_bytes(chunk)) for chunk in chunks)])

    def _find(self, texts: pa.Array) -> Positions:
        if len(texts) > _MANY_TIMES * len(self._texts):
            positions = _filled(pc.index_in(texts, value_set=self._texts, skip_nulls=True))
            return np.where(positions < 0, -1, self._index.codes[positions])
        codes = self._index.find(text_hashes(texts))
        if texts.null_count:
            codes[np.asarray(texts.is_null())] = -1
        rows = np.flatnonzero(codes >= 0)
        hits = texts if len(rows) == len(texts) else texts.take(numbers_array(rows))
        codes[rows[~self._has_text(hits, codes[rows])]] = -1  # no other text of the source has this hash
        return codes

    def _has_text(self, texts: pa.Array, codes: Positions) -> npt.NDArray[np.bool_]:
        """Return for each text whether it is the one of a code."""
        return np.asarray(pc.equal(texts, take_inside(self._texts, codes)))


def text_hashes(texts: pa.Array) -> npt.NDArray[np.int64]:
    """Return 64 bits of each text that differ if what is hashed does, almost always; those of nulls are any.

    Args:
        texts: Of type large_binary.
    """
    memory, offsets = view_buffer(texts.buffers()[2]), view_buffer(texts.buffers()[1]).view(np.int64)
    offsets = offsets[texts.offset : texts.offset + len(texts) + 1]
    parts = [
        _hashes_between(memory, offsets[at : at + _HASHED_TOGETHER + 1])
        for at in range(0, len(texts), _HASHED_TOGETHER)
    ]
    return np.concatenate([np.empty(0, np.uint64), *parts]).view(np.int64)


def _hashes_between(memory: npt.NDArray[np.uint8], offsets: Positions) -> npt.NDArray[np.uint64]:
    starts, sizes = offsets[:-1], np.diff(offsets)
    hashes = sizes.astype(np.uint64) * _SEED
    left: Positions | None = None  # texts that have more bytes, None for all
    for at in range(0, min(int(sizes.max(initial=0)), _HASHED_BYTES), WORD_BYTES):
        if at and sizes.min() <= at:
            left = np.flatnonzero(sizes > at)
        if left is None:
            hashes ^= leading_words(memory, starts + at, sizes - at)
            hashes *= _FACTOR
            hashes ^= hashes >> _HALF
        else:
            mixed = (hashes[left] ^ leading_words(memory, starts[left] + at, sizes[left] - at)) * _FACTOR
            hashes[left] = mixed ^ (mixed >> _HALF)
    return hashes


def _where_valid(codes: Positions, is_null: npt.NDArray[np.bool_] | None) -> Positions:
    """Return codes of values that are not null in their places, -1 in those of nulls."""
    if is_null is None:
        return codes
    all_codes = np.full(len(is_null), -1)
    all_codes[~is_null] = codes
    return all_codes


def _check_type(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> None:
    if column.type != kind:
        raise InvalidInputError(f"the keys have different types: {column.type} and {kind}")


def _is_word(kind: pa.DataType) -> bool:
    return pa.types.is_primitive(kind) and kind.bit_width in _WORD_BITS


def _is_bytes(kind: pa.DataType) -> bool:
    return is_text(kind) or is_bytes(kind) or pa.types.is_fixed_size_binary(kind)


def _as_bytes(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return texts as one array with offsets of 64 bits, so that any number of them fits."""
    values = column.cast(pa.large_binary())
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


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
