"""Documents that match the words of a query, and their BM25 scores."""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Int64s: TypeAlias = npt.NDArray[np.int64]
UInt32s: TypeAlias = npt.NDArray[np.uint32]
Float32s: TypeAlias = npt.NDArray[np.float32]
Bools: TypeAlias = npt.NDArray[np.bool_]

K1, B = 1.2, 0.75
_DENSE_FACTOR = 64
"""With so many documents for each posting, there are no arrays of all documents."""
_FLAG_FACTOR = 16
"""With so many postings of a word for each document that is looked for, documents are found by binary searches."""
_FIRST_LOOK, _LOOK_FACTOR = 256, 2
"""Documents at least of which positions are read first, and how many times more each time."""
_GROUPS, _GROUP_SIZE = 1 << 10, 4
"""Groups of scores whose largest are compared first, and scores at least in each."""
_DOCUMENT_SHIFT = 33
_POSITION_BASE = 1 << 32
_NO_DOCUMENTS = np.empty(0, np.int64), np.empty(0, np.float32)


class WordPostings:
    """Postings of one word in one partition.

    Args:
        documents: Documents that have it, ascending.
        frequencies: How often.
        positions: Returns where it is in some of them: takes places in ``documents``, ascending, and returns for each
            position the place among these, and the position.
    """

    def __init__(
        self, documents: Int64s, frequencies: UInt32s, positions: Callable[[Int64s], tuple[Int64s, Int64s]]
    ) -> None:
        self.documents = documents
        self.frequencies = frequencies
        self.positions = positions
        self._impacts: tuple[DocumentNorms, Float32s] | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes in memory, with those of the impacts."""
        return self.documents.nbytes + 2 * self.frequencies.nbytes

    def impacts(self, norms: DocumentNorms) -> Float32s:
        """Return the score of each document, divided by the weight of the word; those of the last norms are kept.

        Args:
            norms: Those of the partition.
        """
        cached = self._impacts
        if cached is None or cached[0] is not norms:
            frequencies = self.frequencies.astype(np.float32)
            total = frequencies + norms.of(self.documents)
            cached = self._impacts = norms, np.divide(frequencies, total, dtype=np.float32)
        return cached[1]


@frozen(kw_only=True)
class Wanted:
    """Words of a query in one partition.

    Attributes:
        groups: For each word of the query, the words of the partition that stand for it.
        offsets: Position of each word of the query.
        needs_all: All words must be there.
        slop: Other words at most between two words of a phrase; None if it is no phrase.
    """

    groups: Sequence[Sequence[str]]
    offsets: Sequence[int]
    needs_all: bool
    slop: int | None = None

    @property
    def tokens(self) -> list[str]:
        """Words of all groups."""
        return [word for group in self.groups for word in group]


@frozen(kw_only=True)
class Corpus:
    """Statistics of all documents.

    Attributes:
        num_documents: Documents.
        total_words: Words in them; a fraction where columns have factors.
    """

    num_documents: int
    total_words: float

    @property
    def average(self) -> float:
        """Average number of words of a document."""
        return self.total_words / self.num_documents if self.num_documents else 0.0

    def weight(self, num_documents: int) -> float:
        """Return the weight of a word that so many documents have."""
        rarity = (self.num_documents - num_documents + 0.5) / (num_documents + 0.5)
        return math.log(rarity + 1) * (K1 + 1)


class DocumentNorms:
    """Terms that are added to the frequency of a word below the line, by the number of words of a document.

    Args:
        corpus: All documents.
        lengths: Number of words of each document of a partition.
    """

    def __init__(self, corpus: Corpus, lengths: npt.NDArray[np.integer[Any]]) -> None:
        self.average = corpus.average
        self._lengths = lengths

    def __len__(self) -> int:
        return len(self._lengths)

    def of(self, documents: Int64s) -> Float32s:
        """Return those of some documents."""
        if not len(documents):
            return np.empty(0, np.float32)
        norms = np.multiply(self._lengths[documents], np.float32(K1 * B / self.average), dtype=np.float32)
        norms += np.float32(K1 * (1 - B))
        return norms


def scored(
    wanted: Wanted,
    postings: Mapping[str, WordPostings],
    norms: DocumentNorms,
    weights: Mapping[str, float],
    count: int | None = None,
) -> tuple[Int64s, Float32s]:
    """Return the documents that match, ascending, and their scores.

    Args:
        wanted: What is searched.
        postings: Postings of the words that the partition has.
        norms: Those of the partition.
        weights: Weight of each word.
        count: Documents with smaller scores than so many others may be left out; None for all.
    """
    groups = [[word for word in group if word in postings] for group in wanted.groups]
    if not groups or (wanted.needs_all and not all(groups)):
        return _NO_DOCUMENTS
    tokens = [word for group in groups for word in group]
    if wanted.needs_all and len(tokens) > 1:
        documents, slots = _with_all(groups, postings, len(norms))
        scores = _scores_of(documents, tokens, postings, norms, weights, slots=slots)
        if wanted.slop is None:
            return documents, scores
        matches = _best_first(scores, count, lambda chosen: _is_phrase(wanted, groups, postings, slots, chosen))
        return documents[matches], scores[matches]
    lists = [postings[word].documents for word in tokens]
    if len(lists) == 1:
        return lists[0], np.float32(weights[tokens[0]]) * postings[tokens[0]].impacts(norms)
    if sum(map(len, lists)) * _DENSE_FACTOR < len(norms):
        documents = np.unique(np.concatenate([*lists, _NO_DOCUMENTS[0]]))
        return documents, _scores_of(documents, tokens, postings, norms, weights, slots={})
    totals = np.zeros(len(norms), np.float32)
    for word, documents in zip(tokens, lists, strict=True):
        totals[documents] += np.float32(weights[word]) * postings[word].impacts(norms)
    least = 0.0 if count is None else _bound(totals, lists, count)
    documents = np.flatnonzero(totals >= least if least else totals)
    return documents, totals[documents]


def _bound(totals: Float32s, lists: Sequence[Int64s], count: int) -> float:
    """Return a score that so many documents have, or more: those of the rarest word with so many documents."""
    long_enough = [documents for documents in lists if len(documents) >= count > 0]
    if not long_enough:
        return 0.0
    return largest(totals[min(long_enough, key=len)], count)


def largest(scores: Float32s, count: int) -> float:
    """Return the ``count``-th largest of at least as many scores.

    Scores of a word are few numbers that many documents have: ten times as slow for numpy to part as different ones. So
    the largest of some groups give a bound first, which few scores pass.
    """
    if len(scores) >= _GROUPS * _GROUP_SIZE and count <= _GROUPS // 2:
        groups = scores[: len(scores) // _GROUPS * _GROUPS].reshape(-1, _GROUPS).max(axis=0)
        least = np.partition(groups, _GROUPS - count)[_GROUPS - count]
        above = scores[scores > least]
        if len(above) < count:
            return float(least)
        scores = above
    return float(np.partition(scores, len(scores) - count)[len(scores) - count])


def _scores_of(
    documents: Int64s,
    tokens: Sequence[str],
    postings: Mapping[str, WordPostings],
    norms: DocumentNorms,
    weights: Mapping[str, float],
    *,
    slots: Mapping[str, Int64s],
) -> Float32s:
    """Return the scores of some documents, ascending; slots as of `_with_all`, for as many words as are known."""
    totals = np.zeros(len(documents), np.float32)
    for word in tokens:
        weight, impacts = np.float32(weights[word]), postings[word].impacts(norms)
        if word in slots:
            totals += weight * impacts[slots[word]]
        else:
            here, there = _common(documents, postings[word].documents, len(norms))
            totals[here] += weight * impacts[there]
    return totals


def _common(left: Int64s, right: Int64s, num_documents: int) -> tuple[Int64s, Int64s]:
    """Return the places of common documents in both of two ascending lists."""
    short, long = (left, right) if len(left) <= len(right) else (right, left)
    if len(long) < _FLAG_FACTOR * len(short) and num_documents < _DENSE_FACTOR * len(long):
        return np.flatnonzero(_flags(right, num_documents)[left]), np.flatnonzero(_flags(left, num_documents)[right])
    if not len(short):
        return short, short
    at = np.minimum(np.searchsorted(long, short), len(long) - 1)
    slots = np.flatnonzero(long[at] == short)
    return (slots, at[slots]) if short is left else (at[slots], slots)


def _flags(documents: Int64s, num_documents: int) -> Bools:
    flags = np.zeros(num_documents, np.bool_)
    flags[documents] = True
    return flags


def _with_all(
    groups: Sequence[Sequence[str]], postings: Mapping[str, WordPostings], num_documents: int
) -> tuple[Int64s, dict[str, Int64s]]:
    """Return the documents that have a word of each group, ascending.

    Returns:
        The documents; and for each word that is alone in its group, the place of each document in its postings.
    """
    by_size = sorted(groups, key=lambda group: sum([len(postings[word].documents) for word in group]))
    lists = [[postings[word].documents for word in group] for group in by_size]
    documents, slots = reduce(np.union1d, lists[0]), dict[str, Int64s]()
    if len(by_size[0]) == 1:
        slots[by_size[0][0]] = np.arange(len(documents))
    for group, others in zip(by_size[1:], lists[1:], strict=True):
        new = dict[str, Int64s]()
        if len(group) == 1:
            here, new[group[0]] = _common(documents, others[0], num_documents)
        else:
            here = np.flatnonzero(_is_in_any(documents, others, num_documents))
        documents = documents[here]
        slots = {word: of_word[here] for word, of_word in slots.items()} | new
    return documents, slots


def _is_in_any(documents: Int64s, lists: Sequence[Int64s], num_documents: int) -> Bools:
    """Return for each of some documents whether it is in one of several lists."""
    result = np.zeros(len(documents), np.bool_)
    for others in lists:
        result[_common(documents, others, num_documents)[0]] = True
    return result


def _best_first(scores: Float32s, count: int | None, is_match: Callable[[Int64s], Bools]) -> Int64s:
    """Return which of some documents match, ascending; with ``count`` those of large scores are looked at first.

    Positions are most of what a phrase costs, and words that many documents have are in most blocks of them.
    """
    rest, matches = np.arange(len(scores)), np.empty(0, np.int64)
    size = len(rest) if count is None else max(_FIRST_LOOK, _LOOK_FACTOR * count)
    while len(rest):
        left = max(len(rest) - size, 0)
        order = np.argpartition(scores[rest], left)
        slots, rest = np.sort(rest[order[left:]]), rest[order[:left]]
        matches = np.append(matches, slots[is_match(slots)])
        if count is not None and len(matches) >= count > 0:
            reached = largest(scores[matches], count)
            rest = rest[scores[rest] >= reached]
        size *= _LOOK_FACTOR
    return np.sort(matches)


def _is_phrase(
    wanted: Wanted,
    groups: Sequence[Sequence[str]],
    postings: Mapping[str, WordPostings],
    slots: Mapping[str, Int64s],
    chosen: Int64s,
) -> Bools:
    """Return for some of the documents that have all words whether they have them one after the other.

    A place is one number, document and position. Places of a word are kept if a kept place of the word before is so far
    before them as in the query, or up to ``slop`` farther: so what is left of the last word ends a phrase.
    """
    assert wanted.slop is not None  # noqa: S101 for the type checker: callers have one
    selected: Int64s | None = None
    for number, (word,) in enumerate(groups):
        owners, positions = postings[word].positions(slots[word][chosen])
        starts = (owners << _DOCUMENT_SHIFT) + _POSITION_BASE + positions
        if selected is not None:
            gap = wanted.offsets[number] - wanted.offsets[number - 1]
            first = np.searchsorted(selected, starts - gap - wanted.slop, side="left")
            starts = starts[first < np.searchsorted(selected, starts - gap, side="right")]
        selected = starts
    matches = np.zeros(len(chosen), np.bool_)
    if selected is not None:
        matches[selected >> _DOCUMENT_SHIFT] = True
    return matches
