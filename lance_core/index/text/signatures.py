"""MinHash signatures of texts; see `lance_core.format.index.minhash`."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.format.index.bloom_filter import hash_rows, hash_values
from lance_core.format.index.minhash import SEED, SEPARATOR
from lance_core.index.text.analyzer import Analyzer
from lance_core.sql.kernels import pc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_core.format.index.minhash import MinHashOptions
    from lance_core.index.text.analyzer import Tokens

Int64s: TypeAlias = npt.NDArray[np.int64]
UInt64s: TypeAlias = npt.NDArray[np.uint64]
Signatures: TypeAlias = npt.NDArray[np.uint16]

_HASHES_AT_ONCE = 1 << 20
_MASK = (1 << 64) - 1
_KEY_BITS = np.uint64((1 << 56) - 1)


class Signer:
    """Makes signatures.

    Args:
        options: Options of the index.
    """

    def __init__(self, options: MinHashOptions) -> None:
        self._options = options
        self._analyzer = Analyzer(options.tokenizer)
        draws = _split_mix(3 * options.num_hashes)
        pairs = draws[: 2 * options.num_hashes]
        self._factors, self._addends = pairs[0::2] | np.uint64(1), pairs[1::2]
        self._last_factors = draws[2 * options.num_hashes :] | np.uint64(1)

    def signatures(self, texts: pa.Array) -> Iterator[tuple[Int64s, Signatures]]:
        """Return the numbers of texts that have words, ascending, and their signatures, some texts at a time."""
        for start, tokens in self._analyzer.batches(texts):
            owners, hashes = self._shingles(tokens)
            if len(owners):
                documents, begins = np.unique(owners, return_index=True)
                yield start + documents, self._signed(hashes, begins)

    def signature(self, text: str) -> Signatures | None:
        """Return the signature of one text, shape (1, numbers); None if it has no words."""
        return next((result for _, result in self.signatures(pa.array([text], pa.large_string()))), None)

    def band_keys(self, signatures: Signatures) -> UInt64s:
        """Return the keys of the bands of signatures, shape (n, bands)."""
        count, num_bands = len(signatures), self._options.num_bands
        data = np.ascontiguousarray(signatures.astype("<u2")).view(np.uint8).reshape(count * num_bands, -1)
        hashes = hash_rows(data, SEED).reshape(count, num_bands)
        return hashes & _KEY_BITS | np.arange(num_bands, dtype=np.uint64) << np.uint64(56)

    def _shingles(self, tokens: Tokens) -> tuple[Int64s, UInt64s]:
        """Return the number of the text of each shingle, ascending, and its hash."""
        size, count = self._options.shingle_size, len(tokens.codes)
        if not count:
            return tokens.owners, np.empty(0, np.uint64)
        terms = pa.array(tokens.terms, pa.large_string()).cast(pa.large_binary())
        is_begin = np.ones(count, np.bool_)
        is_begin[1:] = tokens.owners[1:] != tokens.owners[:-1]
        begins = np.flatnonzero(is_begin)
        ends = np.append(begins[1:], count)
        left = np.repeat(ends, ends - begins) - np.arange(count)  # words from here to the end of the text
        lengths = np.repeat(ends - begins, ends - begins)
        slots = np.flatnonzero((left >= size) | is_begin)  # short texts are one shingle of all their words
        widths = np.minimum(lengths[slots], size)
        hashes = np.empty(len(slots), np.uint64)
        for width in np.unique(widths).tolist():
            chosen = np.flatnonzero(widths == width)
            parts = [terms.take(pa.array(tokens.codes[slots[chosen] + offset])) for offset in range(width)]
            separator = pa.scalar(SEPARATOR, pa.large_binary())
            hashes[chosen] = hash_values(pc.binary_join_element_wise(*parts, separator), SEED)
        return tokens.owners[slots], hashes

    def _signed(self, hashes: UInt64s, begins: Int64s) -> Signatures:
        """Return the signatures of texts, whose hashes begin there."""
        result = np.empty((len(begins), self._options.num_hashes), np.uint16)
        ends = np.append(begins[1:], len(hashes))
        step = max(1, _HASHES_AT_ONCE // self._options.num_hashes)
        cuts = np.unique(np.append(np.searchsorted(begins, np.arange(0, len(hashes), step)), len(begins)))
        for low, high in pairwise(cuts.tolist()):
            least = np.full((high - low, self._options.num_hashes), _MASK, np.uint64)
            first, last = int(begins[low]), int(ends[high - 1])
            owners = np.repeat(np.arange(high - low), ends[low:high] - begins[low:high])
            for start in range(first, last, step):  # a text may have more hashes than are compared at once
                part = slice(start, min(start + step, last))
                values = hashes[part, None] * self._factors + self._addends
                inside = owners[part.start - first : part.stop - first]
                firsts = np.flatnonzero(np.diff(inside, prepend=-1))
                smallest = np.minimum.reduceat(values, firsts, axis=0)
                least[inside[firsts]] = np.minimum(least[inside[firsts]], smallest)
            result[low:high] = (least * self._last_factors) >> np.uint64(48)
        return result


def _split_mix(count: int) -> UInt64s:
    """Return numbers of the generator SplitMix64."""
    state, result = SEED, np.empty(count, np.uint64)
    for number in range(count):
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        value = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
        result[number] = value ^ value >> 31
    return result
