"""Documents that match the words of a query, and their BM25 scores."""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Int64s: TypeAlias = npt.NDArray[np.int64]
Float64s: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

K1, B = 1.2, 0.75
_DENSE_SHARE = 1 / 16
"""From this share of postings among all documents on, scores are added in an array of all documents."""
_DOCUMENT_SHIFT = 33
_POSITION_BASE = 1 << 32


@frozen(kw_only=True)
class WordPostings:
    """Postings of one word in one partition.

    Attributes:
        documents: Documents that have it, ascending.
        frequencies: How often.
        positions: Returns where it is in some of them: takes places in ``documents``, ascending, and returns for each
            position the place among these, and the position.
    """

    documents: Int64s
    frequencies: npt.NDArray[np.uint32]
    positions: Callable[[Int64s], tuple[Int64s, Int64s]]


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


@frozen(kw_only=True)
class Corpus:
    """Statistics of all documents.

    Attributes:
        num_documents: Documents.
        total_words: Words in them.
    """

    num_documents: int
    total_words: int

    @property
    def average(self) -> float:
        """Average number of words of a document."""
        return self.total_words / self.num_documents if self.num_documents else 0.0

    def weight(self, num_documents: int) -> float:
        """Return the weight of a word that so many documents have."""
        rarity = (self.num_documents - num_documents + 0.5) / (num_documents + 0.5)
        return math.log(rarity + 1) * (K1 + 1)


def scored(
    wanted: Wanted,
    postings: Mapping[str, WordPostings],
    lengths: Int64s,
    corpus: Corpus,
    weights: Mapping[str, float],
) -> tuple[Int64s, Float64s]:
    """Return the documents that match, ascending, and their scores.

    Args:
        wanted: What is searched.
        postings: Postings of the words that the partition has.
        lengths: Number of words of each document.
        corpus: Statistics.
        weights: Weight of each word.
    """
    groups = [[word for word in group if word in postings] for group in wanted.groups]
    if not groups or (wanted.needs_all and not all(groups)):
        return np.empty(0, np.int64), np.empty(0, np.float64)
    tokens = [word for group in groups for word in group]
    allowed = _with_all(groups, postings) if wanted.needs_all else None
    if allowed is not None and wanted.slop is not None:
        allowed = allowed[_is_phrase(wanted, groups, postings, allowed)]
    if allowed is None and sum(len(postings[word].documents) for word in tokens) > _DENSE_SHARE * len(lengths):
        return _dense(tokens, postings, lengths, corpus, weights)
    documents: list[Int64s] = [np.empty(0, np.int64)]
    scores: list[Float64s] = [np.empty(0, np.float64)]
    for word in tokens:
        result = postings[word]
        selected = slice(None) if allowed is None else np.isin(result.documents, allowed, assume_unique=True)
        documents.append(result.documents[selected])
        scores.append(_scores(result.frequencies[selected], lengths[documents[-1]], corpus, weights[word]))
    unique, order = np.unique(np.concatenate(documents), return_inverse=True)
    return unique, np.bincount(order, np.concatenate(scores), minlength=len(unique)).astype(np.float64)


def _dense(
    tokens: Sequence[str],
    postings: Mapping[str, WordPostings],
    lengths: Int64s,
    corpus: Corpus,
    weights: Mapping[str, float],
) -> tuple[Int64s, Float64s]:
    totals = np.zeros(len(lengths))
    for word in tokens:
        result = postings[word]
        totals[result.documents] += _scores(result.frequencies, lengths[result.documents], corpus, weights[word])
    documents = np.flatnonzero(totals)
    return documents, totals[documents]


def _scores(frequencies: npt.NDArray[np.uint32], lengths: Int64s, corpus: Corpus, weight: float) -> Float64s:
    return weight * frequencies / (frequencies + K1 * (1 - B + B * lengths / corpus.average))


def _with_all(groups: Sequence[Sequence[str]], postings: Mapping[str, WordPostings]) -> Int64s:
    """Return the documents that have a word of each group."""
    every = [reduce(np.union1d, [postings[word].documents for word in group]) for group in groups]
    every.sort(key=len)
    return reduce(lambda left, right: np.intersect1d(left, right, assume_unique=True), every)


def _is_phrase(
    wanted: Wanted, groups: Sequence[Sequence[str]], postings: Mapping[str, WordPostings], documents: Int64s
) -> Bools:
    """Return for documents that have all words whether they have them one after the other.

    A place is one number, document and position. Places of a word are kept if a kept place of the word before is so far
    before them as in the query, or up to ``slop`` farther: so what is left of the last word ends a phrase.
    """
    assert wanted.slop is not None  # noqa: S101 for the type checker: callers have one
    selected: Int64s | None = None
    for number, group in enumerate(groups):
        result = postings[group[0]]
        owners, positions = result.positions(np.searchsorted(result.documents, documents))
        slots = (owners << _DOCUMENT_SHIFT) + _POSITION_BASE + positions
        if selected is not None:
            gap = wanted.offsets[number] - wanted.offsets[number - 1]
            first = np.searchsorted(selected, slots - gap - wanted.slop, side="left")
            slots = slots[first < np.searchsorted(selected, slots - gap, side="right")]
        selected = slots
    matches = np.zeros(len(documents), np.bool_)
    if selected is not None:
        matches[selected >> _DOCUMENT_SHIFT] = True
    return matches
