"""Full-text searches: the rows of a version that match a query, and their scores.

Segments of an index find the rows that they cover; their statistics together make the scores. Rows that no segment
covers are read and searched word by word; their scores also count these rows. Without an index words are compared as
they are. All of this is as in pylance.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial, reduce
from heapq import merge
from itertools import groupby, islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.errors import InvalidInputError
from lance_core.format.index_metadata import index_fields
from lance_core.format.inverted_index import DEFAULT_TEXT_OPTIONS, TYPE_URL, without_filters
from lance_core.frozen import frozen
from lance_core.index.answer import ADDRESS_SHIFT
from lance_core.index.column import column_to_index, path_of
from lance_core.index.inverted import INVERTED, InvertedSegment
from lance_core.index.inverted_words import NearPattern
from lance_core.index.moved import MovedSegment
from lance_core.index.text.analyzer import Analyzer
from lance_core.index.text.query import (
    BooleanQuery,
    BoostQuery,
    FullTextOperator,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
)
from lance_core.index.text.score import Corpus, Wanted, WordPostings, scored
from lance_core.scan.indexed import naming_index, open_segment, row_places
from lance_core.scan.text_rows import UnindexedRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lance_core.format.fragment import Fragment
    from lance_core.format.manifest import Manifest
    from lance_core.index.column import IndexedColumn
    from lance_core.index.inverted_partition import Partition
    from lance_core.index.protocol import Segment
    from lance_core.index.text.query import FullTextQuery
    from lance_core.scan.indexed import OpenSegment
    from lance_core.scan.open_files import OpenFiles

Int64s: TypeAlias = npt.NDArray[np.int64]
Float64s: TypeAlias = npt.NDArray[np.float64]


@frozen
class Hits:
    """Rows that match, by address, and their scores.

    Attributes:
        rows: Shape (n,), row addresses, ascending.
        scores: Shape (n,).
    """

    rows: Int64s
    scores: Float64s

    def scaled(self, factor: float) -> Hits:
        """Return the rows with scores times a factor."""
        return Hits(self.rows, self.scores * factor)

    def of(self, rows: Int64s) -> Float64s:
        """Return the scores of rows; 0 for those that do not match."""
        if not len(self.rows):
            return np.zeros(len(rows))
        slots = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.where(self.rows[slots] == rows, self.scores[slots], 0.0)

    def selected(self, mask: npt.NDArray[np.bool_]) -> Hits:
        """Return the rows of a mask."""
        return Hits(self.rows[mask], self.scores[mask])

    def best(self, count: int | None) -> Hits:
        """Return the rows by score, highest first, equal ones by address; the first ``count`` if it is not None."""
        chosen = self
        if count is not None and count < len(self.rows):
            threshold = np.partition(self.scores, len(self.scores) - count)[len(self.scores) - count] if count else 0.0
            chosen = (
                self.selected(self.scores >= threshold) if count else self.selected(np.zeros(len(self.rows), np.bool_))
            )
        order = np.lexsort((chosen.rows, -chosen.scores.astype(np.float32)))[:count]
        return Hits(chosen.rows[order], chosen.scores[order])


_NO_HITS = Hits(np.empty(0, np.int64), np.empty(0))


def indexed_columns(manifest: Manifest) -> list[str]:
    """Return the columns of a version that have full-text indices."""
    fields = [index_fields(index) for index in manifest.indices]
    ids = [
        item.fields[0] for item in fields if item.details is not None and item.details[0].lower() == TYPE_URL.lower()
    ]
    return list(dict.fromkeys(path_of(manifest.schema, field_id) for field_id in ids))


class TextSearch:
    """Searches the texts of a version.

    Args:
        manifest: The version.
        files: Its open files.
        fragments: Fragments to search.
        allowed: Addresses of rows to search, ascending; None for all.
        only_index: Leave out rows that no index covers.
    """

    def __init__(
        self,
        manifest: Manifest,
        files: OpenFiles,
        fragments: Sequence[Fragment],
        *,
        allowed: Int64s | None = None,
        only_index: bool = False,
    ) -> None:
        self._manifest = manifest
        self._files = files
        self._fragments = {fragment.id: fragment for fragment in fragments}
        self._allowed = allowed
        self._only_index = only_index
        self._columns: dict[str, _ColumnSearch] = {}

    def hits(self, query: FullTextQuery) -> Hits:
        """Return the rows that match a query.

        Raises:
            CorruptDataError: A file of an index is damaged.
            InvalidInputError: A column that holds no texts, or a phrase in an index without positions.
            UnsupportedError: An index with a tokenizer or layout that lance_core does not have.
        """
        match query:
            case MatchQuery():
                return self._of_column(query.column).match(query).scaled(query.boost)
            case PhraseQuery():
                return self._of_column(query.column).phrase(query)
            case MultiMatchQuery():
                return reduce(_best_of, [self.hits(part) for part in query.queries])
            case BoostQuery():
                positive, negative = self.hits(query.positive), self.hits(query.negative)
                return Hits(positive.rows, positive.scores - query.negative_boost * negative.of(positive.rows))
            case BooleanQuery():
                return self._combined(query)
            case _:
                raise InvalidInputError(f"queries of type {type(query).__name__} cannot be searched")

    def _combined(self, query: BooleanQuery) -> Hits:
        must, should, must_not = (
            [self.hits(part) for part in query.of(occur)] for occur in (Occur.MUST, Occur.SHOULD, Occur.MUST_NOT)
        )
        lists = [part.rows for part in must]
        rows = reduce(_intersection, lists) if must else reduce(np.union1d, [part.rows for part in should])
        scores = np.zeros(len(rows))
        for part in must + should:
            scores += part.of(rows)
        result = Hits(rows, scores)
        for part in must_not:
            result = result.selected(~np.isin(result.rows, part.rows, assume_unique=True))
        return result

    def _of_column(self, path: str) -> _ColumnSearch:
        if path not in self._columns:
            self._columns[path] = self._opened(path)
        return self._columns[path]

    def _opened(self, path: str) -> _ColumnSearch:
        column = column_to_index(self._manifest.schema, path)
        if not INVERTED.takes(column.type):
            raise InvalidInputError(f"column {path!r} has type {column.type}; full-text searches need texts")
        segments = _segments(self._manifest, self._files, column)
        covered = set[int]().union(*(segment.fragment_ids.tolist() for segment in segments))
        uncovered = [fragment for number, fragment in self._fragments.items() if number not in covered]
        with _naming(segments):
            return _ColumnSearch(
                self._manifest,
                self._files,
                column,
                segments,
                unindexed=[] if self._only_index else uncovered,
                fragment_ids=None if len(self._fragments) == len(self._manifest.fragments) else list(self._fragments),
                allowed=self._allowed,
            )


def _segments(manifest: Manifest, files: OpenFiles, column: IndexedColumn) -> list[OpenSegment]:
    """Return the segments of the first full-text index over a column."""
    result: dict[str, list[OpenSegment]] = {}
    for index in manifest.indices:
        fields = index_fields(index)
        if fields.details is None or fields.details[0].lower() != TYPE_URL.lower():
            continue
        if fields.fields != (column.leaf.id,):
            continue
        with naming_index(index.name):
            opened = open_segment(manifest, files, index)
        if opened is not None:
            result.setdefault(index.name, []).append(opened)
    return next(iter(result.values()), [])


def _naming(segments: Sequence[OpenSegment]) -> AbstractContextManager[None]:
    """Return a context whose errors about files name the index."""
    return naming_index(segments[0].index.name) if segments else nullcontext()


def _unmoved(segment: Segment) -> InvertedSegment:
    """Return a full-text segment as it was written, also if compactions moved its rows since."""
    original = segment.segment if isinstance(segment, MovedSegment) else segment
    assert isinstance(original, InvertedSegment)  # noqa: S101 for the type checker: the entry tells the kind
    return original


class _ColumnSearch:
    """Searches one column.

    Args:
        manifest: The version.
        files: Its open files.
        column: The column.
        segments: Segments of its index.
        unindexed: Fragments to search without an index.
        fragment_ids: Fragments to search; None for all.
        allowed: Addresses of rows to search, ascending; None for all.
    """

    def __init__(
        self,
        manifest: Manifest,
        files: OpenFiles,
        column: IndexedColumn,
        segments: Sequence[OpenSegment],
        *,
        unindexed: Sequence[Fragment],
        fragment_ids: Sequence[int] | None,
        allowed: Int64s | None,
    ) -> None:
        self._manifest = manifest
        self._files = files
        self._column = column
        self._unindexed = unindexed
        self._fragment_ids = fragment_ids
        self._allowed = allowed
        self._opened = segments
        self._segments = [_unmoved(opened.segment) for opened in segments]
        options = self._segments[0].layout.options if self._segments else DEFAULT_TEXT_OPTIONS
        self._plain_analyzer = Analyzer(without_filters(options))
        self._analyzer = self._segments[0].analyzer if self._segments else self._plain_analyzer

    def match(self, query: MatchQuery) -> Hits:
        """Return the rows that have the words of a query."""
        distance = query.fuzziness
        tokens = (self._plain_analyzer if distance else self._analyzer).tokens(query.query)
        patterns = [NearPattern(word, distance, query.prefix_length) if distance else word for word, _ in tokens]
        search = _WordSearch(
            patterns=patterns,
            most=query.max_expansions,
            offsets=[position for _, position in tokens],
            needs_all=query.operator is FullTextOperator.AND,
        )
        return self._search(search)

    def phrase(self, query: PhraseQuery) -> Hits:
        """Return the rows that have the words of a query one after the other.

        Raises:
            InvalidInputError: The index has no positions.
        """
        if any(not segment.layout.options.with_position for segment in self._segments):
            raise InvalidInputError(
                f"the full-text index over {self._column.path!r} has no positions, which phrases need; build it with "
                "with_position=True"
            )
        tokens = self._analyzer.tokens(query.query)
        search = _WordSearch(
            patterns=[word for word, _ in tokens],
            most=1,
            offsets=[position for _, position in tokens],
            needs_all=True,
            slop=query.slop,
        )
        return self._search(search)

    def _search(self, search: _WordSearch) -> Hits:
        if not search.patterns:
            return _NO_HITS
        with _naming(self._opened):
            hits, corpus, counts = self._of_segments(search)
        return _joined(hits, self._of_rows(search, corpus, counts)) if self._unindexed else hits

    def _of_segments(self, search: _WordSearch) -> tuple[Hits, Corpus, Mapping[str, int]]:
        """Search the rows that segments cover; also returns their statistics and the documents of each word."""
        partitions = [partition for segment in self._segments for partition in segment.partitions]
        wanted = search.within([partition.tokens.near for partition in partitions])
        looked_up = [_look_up(partition, wanted) for partition in partitions]
        corpus = Corpus(
            num_documents=sum(len(partition.rows) for partition in partitions),
            total_words=sum(int(partition.lengths.sum()) for partition in partitions),
        )
        counts: dict[str, int] = {}
        for postings in looked_up:
            _count(counts, postings)
        weights = {word: corpus.weight(count) for word, count in counts.items()}
        return self._of_index(wanted, looked_up, corpus, weights), corpus, counts

    def _of_index(
        self,
        wanted: Wanted,
        looked_up: Sequence[Mapping[str, WordPostings]],
        corpus: Corpus,
        weights: Mapping[str, float],
    ) -> Hits:
        result = [_NO_HITS]
        postings = iter(looked_up)
        for opened, segment in zip(self._opened, self._segments, strict=True):
            slots = segment.kept_for(self._manifest, partial(self._addresses_of, opened, segment))
            for partition, addresses in zip(segment.partitions, slots, strict=True):
                documents, scores = scored(wanted, next(postings), partition.lengths, corpus, weights)
                rows = addresses[documents]
                result.append(self._restricted(rows[rows >= 0], scores[rows >= 0]))
        return reduce(_joined, result)

    def _addresses_of(self, opened: OpenSegment, segment: InvertedSegment) -> list[Int64s]:
        """Return the address of each document of each partition; -1 if it is not there any more."""
        locate = row_places(self._manifest, self._files, opened)
        moves = opened.segment.moves if isinstance(opened.segment, MovedSegment) else None
        stored = [partition.rows for partition in segment.partitions]
        return [locate(rows if moves is None else moves(rows)) for rows in stored]

    def _restricted(self, rows: Int64s, scores: Float64s) -> Hits:
        selected = np.ones(len(rows), np.bool_)
        if self._fragment_ids is not None:
            selected &= np.isin(rows >> ADDRESS_SHIFT, np.array(self._fragment_ids, np.int64))
        if self._allowed is not None:
            selected &= np.isin(rows, self._allowed)
        order = np.argsort(rows[selected], kind="stable")
        return Hits(rows[selected][order], scores[selected][order])

    def _of_rows(self, search: _WordSearch, corpus: Corpus, counts: Mapping[str, int]) -> Hits:
        """Search the rows that no segment covers."""
        rows = UnindexedRows(self._files, self._column, self._unindexed, self._analyzer, self._allowed)
        texts = rows.read(search.patterns, with_position=search.slop is not None)
        tokens = [partition.tokens.near for segment in self._segments for partition in segment.partitions]
        wanted = search.within([*tokens, texts.near])
        everything = Corpus(
            num_documents=corpus.num_documents + texts.num_texts,
            total_words=corpus.total_words + texts.num_words,
        )
        together = dict(counts)
        _count(together, texts.postings)
        weights = {word: everything.weight(count) for word, count in together.items()}
        documents, scores = scored(wanted, texts.postings, texts.lengths, everything, weights)
        return Hits(texts.rows[documents], scores)


@frozen(kw_only=True)
class _WordSearch:
    """A search before the words of the index are looked up.

    Attributes:
        patterns: Words, or what they must be near to.
        most: Words at most that stand for words that are near to them, all words together.
        offsets: Position of each word of the query.
        needs_all: As in `Wanted`.
        slop: As in `Wanted`.
    """

    patterns: Sequence[str | NearPattern]
    most: int
    offsets: Sequence[int]
    needs_all: bool
    slop: int | None = None

    def within(self, near: Sequence[Callable[[NearPattern], Iterable[str]]]) -> Wanted:
        """Return the words that are searched.

        Args:
            near: Functions that return words which are near to one, in order.
        """
        groups: list[list[str]] = []
        left = self.most
        for pattern in self.patterns:
            group = [pattern] if isinstance(pattern, str) else _first_words(near, pattern, left)
            left -= 0 if isinstance(pattern, str) else len(group)
            groups.append(group)
        return Wanted(groups=groups, offsets=self.offsets, needs_all=self.needs_all, slop=self.slop)


def _first_words(near: Sequence[Callable[[NearPattern], Iterable[str]]], pattern: NearPattern, count: int) -> list[str]:
    """Return the first distinct words that are near to one."""
    tokens = merge(*(find(pattern) for find in near))
    return list(islice((word for word, _ in groupby(tokens)), count))


def _look_up(partition: Partition, wanted: Wanted) -> dict[str, WordPostings]:
    """Read the postings of words."""
    numbers = {word: partition.tokens.get(word) for group in wanted.groups for word in group}
    numbered = [(word, number) for word, number in numbers.items() if number is not None]
    if not numbered:
        return {}
    everything = partition.postings([number for _, number in numbered])
    ends = np.cumsum(everything.lengths).tolist()
    result: dict[str, WordPostings] = {}
    for (word, number), end, length in zip(numbered, ends, everything.lengths.tolist(), strict=True):
        documents, frequencies = everything.documents[end - length : end], everything.frequencies[end - length : end]
        result[word] = WordPostings(
            documents=documents,
            frequencies=frequencies,
            positions=partial(partition.positions, number, frequencies),
        )
    return result


def _count(counts: dict[str, int], postings: Mapping[str, WordPostings]) -> None:
    for word, result in postings.items():
        counts[word] = counts.get(word, 0) + len(result.documents)


def _intersection(left: Int64s, right: Int64s) -> Int64s:
    return np.intersect1d(left, right, assume_unique=True)


def _best_of(left: Hits, right: Hits) -> Hits:
    rows = np.union1d(left.rows, right.rows)
    return Hits(rows, np.maximum(left.of(rows), right.of(rows)))


def _joined(left: Hits, right: Hits) -> Hits:
    """Return the rows of both, which have none in common."""
    rows = np.concatenate([left.rows, right.rows])
    order = np.argsort(rows, kind="stable")
    return Hits(rows[order], np.concatenate([left.scores, right.scores])[order])
