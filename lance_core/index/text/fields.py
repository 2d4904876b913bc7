"""Scores of rows whose texts are in several columns, as if these were one text (BM25F)."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import frozen
from lance_core.index.text.score import K1, B, Corpus

if TYPE_CHECKING:
    from collections.abc import Sequence

Int64s: TypeAlias = npt.NDArray[np.int64]
Doubles: TypeAlias = npt.NDArray[np.float64]


@frozen
class RowNumbers:
    """Numbers of rows.

    Attributes:
        rows: Shape (n,), row addresses, ascending.
        numbers: Shape (n,).
    """

    rows: Int64s
    numbers: npt.NDArray[np.number[Any]]

    def of(self, rows: Int64s) -> Doubles:
        """Return the numbers of some rows; 0 for those that have none."""
        if not len(self.rows):
            return np.zeros(len(rows))
        slots = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.where(self.rows[slots] == rows, self.numbers[slots], 0).astype(np.float64)


@frozen(kw_only=True)
class Field:
    """Statistics and rows of the words of a query in one column.

    Attributes:
        corpus: All its texts.
        counts: Shape (words,), number of texts that have each word.
        frequencies: For each word, how often the rows have it that are searched; each row is in one part.
        lengths: Number of words of each text; each row is in one part at most.
    """

    corpus: Corpus
    counts: Int64s
    frequencies: Sequence[Sequence[RowNumbers]]
    lengths: Sequence[RowNumbers]


class FieldCollector:
    """Collects what the parts of a column tell about words.

    Args:
        tokens: The words, each once.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        self._numbers = {word: number for number, word in enumerate(tokens)}
        self._counts = np.zeros(len(tokens), np.int64)
        self._frequencies: list[list[RowNumbers]] = [[] for _ in tokens]
        self._lengths: list[RowNumbers] = []
        self._num_documents = self._total_words = 0

    def add_corpus(self, num_documents: int, total_words: int) -> None:
        """Count texts and their words."""
        self._num_documents += num_documents
        self._total_words += total_words

    def add_lengths(self, lengths: RowNumbers) -> None:
        """Add the numbers of words of texts."""
        self._lengths.append(lengths)

    def add_word(self, word: str, count: int, frequencies: RowNumbers) -> None:
        """Add rows that have a word.

        Args:
            word: The word.
            count: Texts that have it, those that are not searched too.
            frequencies: How often the rows have it.
        """
        self._counts[self._numbers[word]] += count
        self._frequencies[self._numbers[word]].append(frequencies)

    def finish(self) -> Field:
        """Return all of it."""
        return Field(
            corpus=Corpus(num_documents=self._num_documents, total_words=self._total_words),
            counts=self._counts,
            frequencies=self._frequencies,
            lengths=self._lengths,
        )


def combined_scores(fields: Sequence[Field], factors: Sequence[float], *, needs_all: bool) -> tuple[Int64s, Doubles]:
    """Return the rows that have the words of a query in some of the columns, ascending, and their scores.

    Words and lengths of a row are added up over the columns, times their factors. A word is as rare as in the column
    that has it most often.

    Args:
        fields: The columns.
        factors: Factor of each column.
        needs_all: Rows must have all words, in any of the columns; else at least one.
    """
    counts = np.max([field.counts for field in fields], axis=0)
    corpus = Corpus(
        num_documents=max(field.corpus.num_documents for field in fields),
        total_words=sum(factor * field.corpus.total_words for field, factor in zip(fields, factors, strict=True)),
    )
    lists = [
        reduce(np.union1d, [part.rows for field in fields for part in field.frequencies[word]], np.empty(0, np.int64))
        for word in range(len(counts))
    ]
    rows = reduce(np.intersect1d if needs_all else np.union1d, lists)
    if not len(rows):
        return rows, np.empty(0)
    lengths = _total([field.lengths for field in fields], factors, rows)
    norms = K1 * (1 - B + B * lengths / corpus.average)
    scores = np.zeros(len(rows))
    for word, count in enumerate(counts.tolist()):
        frequencies = _total([field.frequencies[word] for field in fields], factors, rows)
        scores += corpus.weight(count) * frequencies / (frequencies + norms)
    return rows, scores


def _total(fields: Sequence[Sequence[RowNumbers]], factors: Sequence[float], rows: Int64s) -> Doubles:
    """Add up the numbers of rows over columns, times their factors."""
    total = np.zeros(len(rows))
    for parts, factor in zip(fields, factors, strict=True):
        for part in parts:
            total += factor * part.of(rows)
    return total
