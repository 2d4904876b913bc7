"""Full-text searches: the rows of a version that match a query, and their scores.

Segments of an index find the rows that they cover; their statistics together make the scores. Rows that no segment
covers are read and searched word by word; their scores also count these rows. Without an index words are compared as
they are. All of this is as in pylance.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property, partial, reduce
from heapq import merge
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import frozen
from lance_core.errors import InvalidInputError
from lance_core.format.index.inverted_index import DEFAULT_TEXT_OPTIONS, TYPE_URL, without_filters
from lance_core.format.table.fragment_list import ids_of, without_ids
from lance_core.format.table.index_metadata import index_fields
from lance_core.index.answer import ADDRESS_SHIFT
from lance_core.index.column import column_to_index, path_of
from lance_core.index.moved import original_segment
from lance_core.index.text.fields import FieldCollector, RowNumbers, combined_scores
from lance_core.index.text.inverted import INVERTED, InvertedSegment
from lance_core.index.text.inverted_words import NearPattern
from lance_core.index.text.json_analyzer import make_analyzer
from lance_core.index.text.query import (
    BooleanQuery,
    BoostQuery,
    CombinedFieldsQuery,
    FullTextOperator,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
)
from lance_core.index.text.score import Corpus, DocumentNorms, Wanted, WordPostings, largest, scored
from lance_core.scan.deletions import contains
from lance_core.scan.indexed import document_rows, naming_index, segments_over
from lance_core.scan.search.text_rows import UnindexedRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lance_core.format.index.inverted_index import TextOptions
    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.index.column import IndexedColumn
    from lance_core.index.protocol import Segment
    from lance_core.index.text.analyzer import Analyzer
    from lance_core.index.text.fields import Field
    from lance_core.index.text.inverted_partition import Partition
    from lance_core.index.text.query import FullTextQuery
    from lance_core.scan.indexed import OpenSegment
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.search.row_mask import RowMask

Int64s: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.floating[Any]]

_MORE_FACTOR = 2
"""So many times as many documents as rows are looked at first, because some may be deleted or not searched."""


@frozen
class Hits:
    """Rows that match, by address, and their scores.

    Attributes:
        rows: Shape (n,), row addresses, ascending.
        scores: Shape (n,).
    """

    rows: Int64s
    scores: Floats

    def scaled(self, factor: float) -> Hits:
        """Return the rows with scores times a factor."""
        return Hits(self.rows, self.scores * factor)

    def of(self, rows: Int64s) -> Floats:
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
        rows, scores = self.rows, self.scores.astype(np.float32)
        if count is not None and count < len(rows):
            least = largest(scores, count) if count else np.inf
            above = np.flatnonzero(scores > least)
            chosen = np.concatenate([above, np.flatnonzero(scores == least)[: count - len(above)]])
            rows, scores = rows[chosen], scores[chosen]
        order = np.lexsort((rows, -scores))
        return Hits(rows[order], scores[order])


_NO_HITS = Hits(np.empty(0, np.int64), np.empty(0, np.float32))


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
        allowed: Rows to search; None for all.
        only_index: Leave out rows that no index covers.
    """

    def __init__(
        self,
        manifest: Manifest,
        files: OpenFiles,
        fragments: Sequence[Fragment],
        *,
        allowed: RowMask | None = None,
        only_index: bool = False,
    ) -> None:
        self._manifest = manifest
        self._files = files
        self._fragments = fragments
        self._allowed = allowed
        self._only_index = only_index
        self._columns: dict[str, _ColumnSearch] = {}

    def hits(self, query: FullTextQuery, count: int | None = None) -> Hits:
        """Return the rows that match a query.

        Args:
            query: The query.
            count: Rows with smaller scores than so many others may be left out; None for all.

        Raises:
            CorruptDataError: A file of an index is damaged.
            InvalidInputError: A column that holds no texts, a phrase in an index without positions, or columns that
                cannot be searched as one text.
            UnsupportedError: An index with a tokenizer or layout that lance_core does not have.
        """
        match query:
            case MatchQuery():
                return self._of_column(query.column).match(query, count).scaled(query.boost)
            case PhraseQuery():
                return self._of_column(query.column).phrase(query, count)
            case MultiMatchQuery():  # the best rows are among those of the column that they have their score from
                return reduce(_best_of, [self.hits(part, count) for part in query.queries])
            case CombinedFieldsQuery():
                return self._of_fields(query)
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

    def _of_fields(self, query: CombinedFieldsQuery) -> Hits:
        columns = [self._of_column(path) for path in query.columns]
        options = {path: column.options for path, column in zip(query.columns, columns, strict=True) if column.options}
        if not options:
            raise InvalidInputError(
                f"none of the columns {', '.join(query.columns)} has a full-text index, which tells how texts are cut "
                "into words; build one with create_scalar_index(column, 'INVERTED')"
            )
        if len({replace(chosen, with_position=False) for chosen in options.values()}) > 1:
            raise InvalidInputError(
                f"the full-text indices over {', '.join(options)} have different options; columns are searched as one "
                "text if their words are cut alike"
            )
        analyzer = make_analyzer(next(iter(options.values())))
        tokens = list(dict.fromkeys(word for word, _ in analyzer.tokens(query.query)))
        if not tokens:
            return _NO_HITS
        fields = [column.field(tokens, analyzer) for column in columns]
        return Hits(*combined_scores(fields, query.boosts, needs_all=query.operator is FullTextOperator.AND))

    def _of_column(self, path: str) -> _ColumnSearch:
        if path not in self._columns:
            self._columns[path] = self._opened(path)
        return self._columns[path]

    def _opened(self, path: str) -> _ColumnSearch:
        column = column_to_index(self._manifest.schema, path)
        if not INVERTED.takes(column.type):
            raise InvalidInputError(f"column {path!r} has type {column.type}; full-text searches need texts")
        segments = segments_over(self._manifest, self._files, column, TYPE_URL)
        ids = np.sort(ids_of(self._fragments))
        covered = [segment.fragment_ids for segment in segments]
        is_whole = len(ids) == len(self._manifest.fragments)
        with _naming(segments):
            return _ColumnSearch(
                self._manifest,
                self._files,
                column,
                segments,
                unindexed=[] if self._only_index else without_ids(self._fragments, covered),
                fragment_ids=None if is_whole else ids,
                allowed=self._allowed,
            )


def _naming(segments: Sequence[OpenSegment]) -> AbstractContextManager[None]:
    """Return a context whose errors about files name the index."""
    return naming_index(segments[0].index.name) if segments else nullcontext()


def _unmoved(segment: Segment) -> InvertedSegment:
    """Return a full-text segment as it was written, also if compactions moved its rows since."""
    original = original_segment(segment)
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
        fragment_ids: Fragments to search, ascending; None for all.
        allowed: Rows to search; None for all.
    """

    def __init__(
        self,
        manifest: Manifest,
        files: OpenFiles,
        column: IndexedColumn,
        segments: Sequence[OpenSegment],
        *,
        unindexed: Sequence[Fragment],
        fragment_ids: Int64s | None,
        allowed: RowMask | None,
    ) -> None:
        self._manifest = manifest
        self._files = files
        self._column = column
        self._unindexed = unindexed
        self._fragment_ids = fragment_ids
        self._allowed = allowed
        self._opened = segments
        self._segments = [_unmoved(opened.segment) for opened in segments]
        self._analyzer = self._segments[0].analyzer if self._segments else self._plain_analyzer

    @cached_property
    def _plain_analyzer(self) -> Analyzer:
        """Turns texts into words as they are."""
        return make_analyzer(without_filters(self.options or DEFAULT_TEXT_OPTIONS))

    def match(self, query: MatchQuery, count: int | None) -> Hits:
        """Return the rows that have the words of a query; ``count`` as in `TextSearch.hits`."""
        distance = query.fuzziness
        analyzer = self._plain_analyzer if distance else self._analyzer
        tokens = analyzer.tokens(query.query)
        patterns = [
            NearPattern(word, distance, analyzer.prefix_length(word) + query.prefix_length) if distance else word
            for word, _ in tokens
        ]
        search = _WordSearch(
            patterns=patterns,
            most=query.max_expansions,
            offsets=[position for _, position in tokens],
            needs_all=query.operator is FullTextOperator.AND,
        )
        return self._search(search, count)

    def phrase(self, query: PhraseQuery, count: int | None) -> Hits:
        """Return the rows that have the words of a query one after the other; ``count`` as in `TextSearch.hits`.

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
        return self._search(search, count)

    @property
    def options(self) -> TextOptions | None:
        """Options of the index; None if there is none."""
        return self._segments[0].layout.options if self._segments else None

    def field(self, tokens: Sequence[str], analyzer: Analyzer) -> Field:
        """Return what the column tells about words.

        Args:
            tokens: Distinct words.
            analyzer: Cuts texts into words where there is no index.
        """
        collected = FieldCollector(tokens)
        with _naming(self._opened):
            for opened, segment in zip(self._opened, self._segments, strict=True):
                documents = self._document_rows(opened, segment)
                collected.add_lengths(documents.lengths)
                for partition in segment.partitions:
                    collected.add_corpus(partition.num_documents, partition.total_words)
                    for word, postings in partition.postings(tokens).items():
                        rows = documents.locate(partition.rows_of(postings.documents))
                        hits = self._restricted(rows, postings.frequencies.astype(np.float64))
                        collected.add_word(word, len(rows), RowNumbers(hits.rows, hits.scores))
        if self._unindexed:
            unindexed = UnindexedRows(self._files, self._column, self._unindexed, analyzer, self._allowed)
            texts = unindexed.read(tokens, keeps_all=True)
            collected.add_lengths(RowNumbers(texts.rows, texts.lengths))
            collected.add_corpus(texts.num_texts, texts.num_words)
            for word, postings in texts.postings.items():
                rows = texts.rows[postings.documents]
                collected.add_word(word, len(rows), RowNumbers(rows, postings.frequencies))
        return collected.finish()

    def _search(self, search: _WordSearch, count: int | None) -> Hits:
        if not search.patterns:
            return _NO_HITS
        with _naming(self._opened):
            hits, corpus, counts = self._of_segments(search, count)
        return _joined(hits, self._of_rows(search, corpus, counts)) if self._unindexed else hits

    def _of_segments(self, search: _WordSearch, count: int | None) -> tuple[Hits, Corpus, Mapping[str, int]]:
        """Search the rows that segments cover; also returns their statistics and the documents of each word."""
        partitions = [partition for segment in self._segments for partition in segment.partitions]
        wanted = search.within([partition.tokens.near for partition in partitions] if search.is_fuzzy else [])
        looked_up = [partition.postings(wanted.tokens) for partition in partitions]
        corpus = Corpus(
            num_documents=sum(partition.num_documents for partition in partitions),
            total_words=sum(partition.total_words for partition in partitions),
        )
        counts: dict[str, int] = {}
        for postings in looked_up:
            _count(counts, postings)
        return self._of_index(wanted, looked_up, corpus, counts, count), corpus, counts

    def _of_index(
        self,
        wanted: Wanted,
        looked_up: Sequence[Mapping[str, WordPostings]],
        corpus: Corpus,
        counts: Mapping[str, int],
        count: int | None,
    ) -> Hits:
        weights = {word: corpus.weight(number) for word, number in counts.items()}
        result: list[Hits] = []
        postings = iter(looked_up)
        for opened, segment in zip(self._opened, self._segments, strict=True):
            locate = self._document_rows(opened, segment).locate
            for partition, mine in zip(segment.partitions, postings, strict=False):
                find = partial(scored, wanted, mine, partition.norms(corpus), weights)
                result.append(self._of_partition(partition, find, locate, count))
        return reduce(_joined, result) if result else _NO_HITS

    def _of_partition(
        self,
        partition: Partition,
        find: Callable[..., tuple[Int64s, Floats]],
        locate: Callable[[Int64s], Int64s],
        count: int | None,
    ) -> Hits:
        """Return the rows of a partition that match; of rows that are not searched more documents are looked at."""
        documents, scores = find(count=None if count is None else _MORE_FACTOR * count)
        hits = self._restricted(locate(partition.rows_of(documents)), scores)
        if count is None or len(hits.rows) >= count or len(hits.rows) == len(documents):
            return hits
        documents, scores = find()
        return self._restricted(locate(partition.rows_of(documents)), scores)

    def _document_rows(self, opened: OpenSegment, segment: InvertedSegment) -> _DocumentRows:
        def make() -> _DocumentRows:
            return _DocumentRows(segment.partitions, document_rows(self._manifest, self._files, opened))

        return segment.kept_for(self._manifest, make)

    def _restricted(self, rows: Int64s, scores: Floats) -> Hits:
        selected = rows >= 0
        if self._fragment_ids is not None:
            selected &= contains(self._fragment_ids, rows >> ADDRESS_SHIFT)
        if self._allowed is not None:
            selected &= self._allowed.has(rows)
        if not selected.all():
            rows, scores = rows[selected], scores[selected]
        return _ordered(rows, scores)

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
        documents, scores = scored(wanted, texts.postings, DocumentNorms(everything, texts.lengths), weights)
        return Hits(texts.rows[documents], scores)


class _DocumentRows:
    """Finds the documents of a segment in a version.

    Args:
        partitions: Its partitions.
        locate: Returns the rows of entries; -1 for those that are not there any more.
    """

    def __init__(self, partitions: Sequence[Partition], locate: Callable[[Int64s], Int64s]) -> None:
        self._partitions = partitions
        self.locate = locate

    @cached_property
    def lengths(self) -> RowNumbers:
        """Number of words of each document."""
        rows = np.concatenate([np.empty(0, np.int64), *(self.locate(part.rows) for part in self._partitions)])
        numbers = np.concatenate([np.empty(0, np.uint32), *(part.lengths for part in self._partitions)])
        order = np.argsort(rows, kind="stable")
        return RowNumbers(rows[order], numbers[order])


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

    @property
    def is_fuzzy(self) -> bool:
        """True if words are looked for that are near to others."""
        return any(isinstance(pattern, NearPattern) for pattern in self.patterns)

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
    return _ordered(np.concatenate([left.rows, right.rows]), np.concatenate([left.scores, right.scores]))


def _ordered(rows: Int64s, scores: Floats) -> Hits:
    """Return rows and their scores by address."""
    if (rows[1:] > rows[:-1]).all():
        return Hits(rows, scores)
    order = np.argsort(rows, kind="stable")
    return Hits(rows[order], scores[order])
