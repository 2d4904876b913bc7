"""Texts as words.

The bounds of words are found in all texts of a batch at once, with numpy on their UTF-8. Filters - length, lower case,
stems, stop words, folding - see each distinct word once.
"""

from __future__ import annotations

from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.kernels import aranges, numbers_of, starts_of
from lance_core.format.arrow_kinds import is_text
from lance_core.index.text.characters import alphanumeric, fold, lower, not_space, stop_words
from lance_core.sql.kernels import pc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lance_core.format.index.inverted_index import TextOptions

Int64s: TypeAlias = npt.NDArray[np.int64]
UInt8s: TypeAlias = npt.NDArray[np.uint8]
Bools: TypeAlias = npt.NDArray[np.bool_]

_MOST_BYTES = 4 << 20
"""Bytes of texts that are cut together."""
_MOST_KNOWN = 1 << 20
"""Distinct words that an analyzer remembers."""


@frozen(kw_only=True)
class Tokens:
    """Words of texts, text after text.

    Attributes:
        terms: Distinct words.
        codes: Shape (n,), number of each word in ``terms``.
        owners: Shape (n,), number of its text, ascending.
        positions: Shape (n,), its place in the text; words that were left out leave gaps.
    """

    terms: list[str]
    codes: Int64s
    owners: Int64s
    positions: Int64s


@frozen
class _Cut:
    """Bytes of words, one behind the other, the number of bytes of each, its text, and its place in the text."""

    data: UInt8s
    sizes: Int64s
    owners: Int64s
    positions: Int64s


class Analyzer:
    """Turns texts into words. May be used by several threads.

    Args:
        options: The tokenizer and its filters.
    """

    def __init__(self, options: TextOptions) -> None:
        self.options = options
        tokens = options.custom_stop_words
        chosen = stop_words(options.language) if tokens is None else frozenset(tokens)
        self._stop_words: frozenset[str] = chosen if options.remove_stop_words else frozenset()
        self._stem: Callable[[str], str] | None = _stemmer(options.language) if options.stem else None
        self._terms: dict[bytes, str | None] = {}

    def tokens(self, text: str) -> list[tuple[str, int]]:
        """Return the words of a text and their places."""
        encoded = np.frombuffer(text.encode(), np.uint8)
        cut = self._cut(encoded, np.array([0, len(encoded)], np.int64), np.zeros(1, np.int64))
        data = cut.data.tobytes()
        spans = [data[start:end] for start, end in pairwise(starts_of(cut.sizes).tolist())]
        terms = zip(self._terms_of(spans), cut.positions.tolist(), strict=True)
        return [(term, position) for term, position in terms if term is not None]

    def prefix_length(self, token: str) -> int:
        """Return the number of characters before the word in a token of a query."""
        del token
        return 0

    def batches(self, texts: pa.Array) -> Iterator[tuple[int, Tokens]]:
        """Return the words of some texts at a time, with the number of the first text; lists count as one text."""
        texts = _joined(texts)
        for start, end in _pieces(texts):
            yield start, self.batch(texts.slice(start, end - start))

    def batch(self, texts: pa.Array) -> Tokens:
        """Return the words of texts; null has none."""
        owners = np.arange(len(texts))
        if self.options.base_tokenizer == "raw":  # an empty text is a word, null is none
            texts, owners = texts.drop_null(), np.flatnonzero(np.asarray(texts.is_valid()))
        cut = self._cut(*_buffers(texts), owners)
        spans = _binaries(cut).dictionary_encode()
        terms = pa.array(self._terms_of(spans.dictionary.to_pylist()), pa.large_string()).dictionary_encode()
        numbers = np.asarray(pc.fill_null(terms.indices.cast(pa.int64()), -1))
        codes = numbers[numbers_of(spans.indices)]
        selected = codes >= 0
        return Tokens(
            terms=terms.dictionary.to_pylist(),
            codes=codes[selected],
            owners=cut.owners[selected],
            positions=cut.positions[selected],
        )

    def _terms_of(self, spans: Sequence[bytes]) -> list[str | None]:
        """Return what becomes of each of some spans of texts; None if it is left out."""
        terms = self._terms
        new = [span for span in spans if span not in terms]
        if len(terms) + len(new) > _MOST_KNOWN:
            terms, new = {}, list(spans)
            self._terms = terms  # another thread goes on with those that it has
        terms.update(zip(new, map(self._filtered, new), strict=True))
        return list(map(terms.__getitem__, spans))

    def _filtered(self, word: bytes) -> str | None:
        options = self.options
        if options.max_token_length is not None and len(word) >= options.max_token_length:
            return None
        term = word.decode()
        if options.lower_case:
            term = lower(term)
        if self._stem is not None:
            term = self._stem(term)
        if term in self._stop_words:  # so a stop word whose stem is another word stays, as in pylance
            return None
        return fold(term) if options.ascii_folding else term

    def _cut(self, data: UInt8s, bounds: Int64s, owners: Int64s) -> _Cut:
        if self.options.base_tokenizer == "raw":
            return _whole(data, bounds, owners)
        if self.options.base_tokenizer == "ngram":
            return self._ngrams(data, bounds)
        return _runs(data, bounds, alphanumeric() if self.options.base_tokenizer == "simple" else not_space())

    def _ngrams(self, data: UInt8s, bounds: Int64s) -> _Cut:
        """Cut all n-grams, text after text, those of one begin by length."""
        begins = np.append(np.flatnonzero(data & 0xC0 != 0x80), len(data))
        firsts = np.searchsorted(begins, bounds)  # of each text, as number of a character
        count = len(begins) - 1
        owners = np.repeat(np.arange(len(bounds) - 1), np.diff(firsts))
        slots = np.arange(count)
        if self.options.prefix_only:
            slots = firsts[:-1][np.diff(firsts) > 0]
        sizes = np.arange(self.options.min_ngram_length, self.options.max_ngram_length + 1)
        behind = slots[:, None] + sizes
        fits = behind <= firsts[1:][owners[slots]][:, None]
        rows, _ = np.nonzero(fits)
        chosen = slots[rows]
        starts, ends = begins[chosen], begins[behind[fits]]
        return _Cut(data[aranges(starts, ends - starts)], ends - starts, owners[chosen], np.zeros_like(chosen))


def _stemmer(language: str) -> Callable[[str], str]:
    from snowballstemmer import stemmer  # noqa: PLC0415 rarely needed

    stem, lock = stemmer(language.lower()).stemWord, Lock()  # it keeps the word that it works on

    def stem_word(word: str) -> str:
        with lock:
            return stem(word)

    return stem_word


def holds_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are texts, or lists of texts."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    return is_text(kind)


def _joined(texts: pa.Array) -> pa.Array:
    """Return lists of texts as texts, as in pylance: items with a space between them.

    Null items are left out, and so are empty ones at the begin of a list. Null is an empty text.
    """
    if not pa.types.is_nested(texts.type):
        return texts
    items = pc.list_flatten(texts)
    lengths = np.asarray(pc.fill_null(pc.list_value_length(texts), 0), np.int64)
    ends = np.cumsum(lengths)
    counts = np.zeros(len(items) + 1, np.int64)
    np.cumsum(np.asarray(pc.fill_null(pc.binary_length(items), 0)) > 0, out=counts[1:])
    is_kept = np.asarray(items.is_valid()) & (counts[1:] > np.repeat(counts[ends - lengths], lengths))
    before = np.concatenate([[0], np.cumsum(is_kept)])
    offsets = pa.array(before[np.concatenate([[0], ends])].astype(np.int32))
    lists = pa.ListArray.from_arrays(offsets, items.filter(pa.array(is_kept)))
    return pc.binary_join(lists, pa.scalar(" ", items.type))


def _pieces(texts: pa.Array) -> Iterator[tuple[int, int]]:
    """Cut texts into pieces of a bounded number of bytes; one text is never cut."""
    _, bounds = _buffers(texts)
    start = 0
    while start < len(texts):
        end = int(np.searchsorted(bounds, bounds[start] + _MOST_BYTES, side="right")) - 1
        end = min(max(end, start + 1), len(texts))
        yield start, end
        start = end


def _buffers(texts: pa.Array) -> tuple[UInt8s, Int64s]:
    """Return the UTF-8 of texts, one behind the other, and the bounds of each; null is empty."""
    plain = (pc.fill_null(texts, "") if texts.null_count else texts).cast(pa.large_string())
    buffers = plain.buffers()
    bounds = np.frombuffer(buffers[1] or b"", np.int64)[plain.offset : plain.offset + len(plain) + 1]
    if not len(bounds):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    data = np.frombuffer(buffers[2] or b"", np.uint8)[bounds[0] : bounds[-1]]
    return data, bounds - bounds[0]


def _whole(data: UInt8s, bounds: Int64s, owners: Int64s) -> _Cut:
    """Return texts as words, empty ones too."""
    return _Cut(data, np.diff(bounds), owners, np.zeros(len(owners), np.int64))


def _runs(data: UInt8s, bounds: Int64s, table: Bools) -> _Cut:
    """Cut texts into runs of characters of a table."""
    inside = _of_characters(data, table)
    if not len(data):
        empty = np.empty(0, np.int64)
        return _Cut(data, empty, empty, empty)
    is_start, is_end = inside.copy(), inside.copy()
    is_start[1:] &= ~inside[:-1]
    is_end[:-1] &= ~inside[1:]
    firsts = bounds[:-1][bounds[:-1] < len(data)]  # words end where their text does
    lasts = bounds[1:][bounds[1:] > 0] - 1
    is_start[firsts] = inside[firsts]
    is_end[lasts] = inside[lasts]
    starts, ends = np.flatnonzero(is_start), np.flatnonzero(is_end) + 1
    counts = np.diff(np.searchsorted(starts, bounds))
    owners = np.repeat(np.arange(len(counts)), counts)
    return _Cut(data[inside], ends - starts, owners, aranges(np.zeros_like(counts), counts))


def _of_characters(data: UInt8s, table: Bools) -> Bools:
    """Return for each byte whether its character is in a table."""
    if not (data & 0x80).any():
        return table[:128][data]
    code_points = np.frombuffer(data.tobytes().decode().encode("utf-32-le"), np.uint32)
    begins = np.flatnonzero(data & 0xC0 != 0x80)
    return np.repeat(table[code_points], np.diff(np.append(begins, len(data))))


def _binaries(cut: _Cut) -> pa.Array:
    """Return words as an Arrow array."""
    offsets = starts_of(cut.sizes)
    return pa.Array.from_buffers(
        pa.large_binary(), len(cut.sizes), [None, pa.py_buffer(offsets), pa.py_buffer(cut.data)]
    )
