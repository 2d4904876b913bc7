"""Search texts that no index covers: read them and keep what the words of a query need."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import frozen
from lance_core.index.text.inverted_words import NearPattern, near_words
from lance_core.index.text.score import WordPostings
from lance_core.scan.fragment_columns import FragmentColumns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lance_core.format.table.fragment import Fragment
    from lance_core.index.column import IndexedColumn
    from lance_core.index.text.analyzer import Analyzer, Tokens
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.search.row_mask import RowMask

Int64s: TypeAlias = npt.NDArray[np.int64]


@frozen(kw_only=True)
class SearchedTexts:
    """Texts that were searched, as one partition of an index.

    Attributes:
        num_texts: Texts that have words.
        num_words: Words in them.
        rows: Addresses of the texts that have one of the words, or of all that have words.
        lengths: Number of words of each of these.
        postings: Postings of the words that were found.
    """

    num_texts: int
    num_words: int
    rows: Int64s
    lengths: Int64s
    postings: Mapping[str, WordPostings]

    def near(self, pattern: NearPattern) -> Iterator[str]:
        """Return the words that match, in order."""
        return near_words(sorted(self.postings), pattern)


@frozen
class _Matches:
    """Words that were found: number of the text, of the word, and its position."""

    texts: Int64s
    tokens: Int64s
    positions: Int64s


class UnindexedRows:
    """Rows of some fragments whose texts are read.

    Args:
        files: The dataset's open files.
        column: The column.
        fragments: The fragments.
        analyzer: Turns texts into words.
        allowed: Rows to search; None for all.
    """

    def __init__(
        self,
        files: OpenFiles,
        column: IndexedColumn,
        fragments: Sequence[Fragment],
        analyzer: Analyzer,
        allowed: RowMask | None,
    ) -> None:
        self._files = files
        self._column = column
        self._fragments = fragments
        self._analyzer = analyzer
        self._allowed = allowed

    def read(
        self, patterns: Sequence[str | NearPattern], *, with_position: bool = False, keeps_all: bool = False
    ) -> SearchedTexts:
        """Read the texts.

        Args:
            patterns: Words, or what they must be near to.
            with_position: Keep the positions of words.
            keeps_all: Keep the lengths of all texts that have words, not only of those that match.
        """
        numbers: dict[str, int] = {}
        rows: list[Int64s] = [np.empty(0, np.int64)]
        lengths: list[Int64s] = [np.empty(0, np.int64)]
        result: list[_Matches] = []
        num_texts = num_words = num_kept = 0
        for addresses, texts in self._texts():
            for start, tokens in self._analyzer.batches(texts):
                with_words = np.unique(tokens.owners)
                num_texts += len(with_words)
                num_words += len(tokens.codes)
                here, selected = _matches(tokens, patterns, numbers, with_words if keeps_all else None)
                rows.append(addresses[start + selected])
                lengths.append(np.bincount(tokens.owners)[selected] if len(selected) else selected)
                result.append(_Matches(here.texts + num_kept, here.tokens, here.positions))
                num_kept += len(selected)
        return SearchedTexts(
            num_texts=num_texts,
            num_words=num_words,
            rows=np.concatenate(rows),
            lengths=np.concatenate(lengths),
            postings=_postings(numbers, result, with_position=with_position),
        )

    def _texts(self) -> Iterator[tuple[Int64s, pa.Array]]:
        import pyarrow as pa  # noqa: PLC0415 its types are all that the rest needs

        for column in FragmentColumns(self._files, self._fragments, self._column):
            for addresses, texts in column.batches():
                if self._allowed is None:
                    yield addresses, texts
                    continue
                selected = self._allowed.has(addresses)
                yield addresses[selected], texts.filter(pa.array(selected))


def _matches(
    tokens: Tokens, patterns: Sequence[str | NearPattern], numbers: dict[str, int], chosen: Int64s | None
) -> tuple[_Matches, Int64s]:
    """Return what was found in a batch, by number among the texts that are kept, and which texts these are.

    Args:
        tokens: Words of the batch.
        patterns: What is searched.
        numbers: Number of each word found so far; new ones are added.
        chosen: Texts that are kept, ascending; None for those that have something.
    """
    exact = {pattern for pattern in patterns if isinstance(pattern, str)}
    near = [pattern for pattern in patterns if isinstance(pattern, NearPattern)]
    codes = np.full(len(tokens.terms), -1, np.int64)
    for code, term in enumerate(tokens.terms):
        if term in exact or any(pattern.matches(term) for pattern in near):
            codes[code] = numbers.setdefault(term, len(numbers))
    is_found = codes[tokens.codes] >= 0
    matching = tokens.owners[is_found]
    selected = np.unique(matching) if chosen is None else chosen
    owners = np.searchsorted(selected, matching)
    return _Matches(owners, codes[tokens.codes[is_found]], tokens.positions[is_found]), selected


def _postings(
    numbers: Mapping[str, int], result: Sequence[_Matches], *, with_position: bool
) -> dict[str, WordPostings]:
    """Return postings by word; the numbers of texts ascend from batch to batch."""
    if not numbers:
        return {}
    texts = np.concatenate([part.texts for part in result])
    tokens = np.concatenate([part.tokens for part in result])
    positions = np.concatenate([part.positions for part in result])
    postings: dict[str, WordPostings] = {}
    for word, number in numbers.items():
        mine = tokens == number
        documents, owners, frequencies = np.unique(texts[mine], return_inverse=True, return_counts=True)
        slots = positions[mine] if with_position else np.empty(0, np.int64)
        postings[word] = WordPostings(documents, frequencies.astype(np.uint32), _Positions(owners, slots).of)
    return postings


@frozen
class _Positions:
    """Positions of a word, and the place of the document of each."""

    owners: Int64s
    slots: Int64s

    def of(self, chosen: Int64s) -> tuple[Int64s, Int64s]:
        """Return the positions in some documents; see `WordPostings`."""
        if not len(chosen):
            return chosen, chosen
        at = np.minimum(np.searchsorted(chosen, self.owners), len(chosen) - 1)
        is_chosen = chosen[at] == self.owners
        return at[is_chosen], self.slots[is_chosen]
