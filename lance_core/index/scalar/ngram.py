"""Indices of trigrams: the kind that narrows searches in texts.

The numbers of all trigrams are in memory; the rows of those that a question needs are read. Rows that have all of them
may match and are asked. The layout of the file is described in `lance_core.format.index.ngram_index`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from lance_core.common.limits import check_limit
from lance_core.errors import CorruptDataError
from lance_core.format.arrow_kinds import is_text
from lance_core.format.index.ngram_index import FILE_NAME, NGRAM_SCHEMA, TYPE_URL, VERSION, certain_trigrams
from lance_core.format.index.row_sets import decode_row_treemap, rows_of_treemap
from lance_core.index import answer as answers
from lance_core.index.external_sort import DEFAULT_MEMORY, MEMORY_OPTION
from lance_core.index.files import check_columns, read_columns
from lance_core.sql.pruning import Comparison, Contains, Prefix, Question
from lance_core.sql.ternary import FALSE, NULL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lance_core.file.read.reader import DataFileReader
    from lance_core.index.answer import RowAnswer
    from lance_core.index.column import IndexedColumn
    from lance_core.index.files import SegmentFiles
    from lance_core.index.protocol import FragmentColumn, Relocation, Segment, SegmentContent, SegmentTarget

Int64s: TypeAlias = npt.NDArray[np.int64]

_MOST_TRIGRAMS = 32
"""Trigrams that are read for one question; more hardly narrow the answer."""

_BATCH_TOKENS = 1 << 10


class NGramSegment:
    """One index of trigrams, opened.

    Args:
        reader: The file.
        path: Its name, for errors.
    """

    def __init__(self, reader: DataFileReader, path: str) -> None:
        check_columns(reader, NGRAM_SCHEMA, path=path)
        check_limit("max_zones", reader.num_rows, "trigrams of an index", path=path)
        (tokens,) = read_columns(reader, ["tokens"], 0, reader.num_rows)
        self._tokens = tokens.to_numpy(zero_copy_only=False)
        if tokens.null_count or (self._tokens[1:] <= self._tokens[:-1]).any():
            raise CorruptDataError("the trigrams of an index are not in order", path=path)
        self._reader = reader
        self._path = path

    @property
    def options(self) -> Mapping[str, int]:
        """Options that it was built with: none."""
        return {}

    @property
    def statistics(self) -> Mapping[str, int]:
        """Number of distinct trigrams."""
        return {"num_ngrams": len(self._tokens)}

    def answer(self, question: Question, *, tells_null: bool) -> RowAnswer | None:
        """Look up the rows that have all trigrams of the texts that a question needs."""
        del tells_null
        tokens = sorted({token for text in _needed_texts(question) for token in certain_trigrams(text)})
        if not tokens:
            return None
        wanted = np.array(tokens[:_MOST_TRIGRAMS], np.uint32)
        positions = np.searchsorted(self._tokens, wanted)
        if positions[-1] >= len(self._tokens) or (self._tokens[positions] != wanted).any():
            return answers.of_rows(elsewhere=FALSE | NULL)
        projection = self._reader.schema.select(["posting_list"])
        column = self._reader.take(projection, self._reader.column_numbers, positions.astype(np.int64)).column(0)
        sets = [decode_row_treemap(data, path=self._path) for data in column.to_pylist()]
        rows = rows_of_treemap(BitMap64.intersection(*sets))
        return answers.of_rows(undecided=rows, elsewhere=FALSE | NULL)

    def entries(self) -> Iterator[tuple[pa.Array, Int64s]]:
        """Read all trigrams, one for each of its rows."""
        for tokens, rows in self.content():
            yield pa.array(tokens.astype(np.uint32)), rows

    def expected_entries(self, values: pa.Array, rows: Int64s) -> Iterator[tuple[pa.Array, Int64s]]:
        """Return the distinct trigrams of each text."""
        from lance_core.index.scalar.ngram_build import trigrams_of  # noqa: PLC0415 rarely needed

        for tokens, owners in trigrams_of(values, rows):
            yield pa.array(tokens), owners

    def content(self) -> Iterator[tuple[Int64s, Int64s]]:
        """Read all trigrams, in batches, with each of their rows."""
        for start in range(0, len(self._tokens), _BATCH_TOKENS):
            end = min(start + _BATCH_TOKENS, len(self._tokens))
            (data,) = read_columns(self._reader, ["posting_list"], start, end)
            sets = [rows_of_treemap(decode_row_treemap(posting, path=self._path)) for posting in data.to_pylist()]
            counts = np.array([len(rows) for rows in sets], np.int64)
            yield np.repeat(self._tokens[start:end], counts), np.concatenate([np.empty(0, np.int64), *sets])


class NGramKind:
    """The kind ``NGRAM``."""

    name = "NGRAM"
    type_url = TYPE_URL
    index_versions = frozenset({VERSION})
    default_options: Mapping[str, int] = {MEMORY_OPTION: DEFAULT_MEMORY}

    def takes(self, kind: pa.DataType) -> bool:
        """Return whether values are texts."""
        return is_text(kind)

    def open(self, files: SegmentFiles, column: IndexedColumn) -> Segment:
        """Read the trigrams of a segment."""
        del column
        return NGramSegment(files.open(FILE_NAME), files.path(FILE_NAME))

    def build(
        self, target: SegmentTarget, fragments: Iterable[FragmentColumn], options: Mapping[str, int]
    ) -> SegmentContent:
        """Read the column and write the rows of each trigram."""
        from lance_core.index.scalar.ngram_build import trigrams_of, write_ngrams  # noqa: PLC0415 rarely needed

        batches = (pair for fragment in fragments for pair in fragment.batches(by_row_id=target.with_stable_row_ids))
        pairs = (pair for rows, texts in batches for pair in trigrams_of(texts, rows))
        return write_ngrams(target.files, pairs, options[MEMORY_OPTION])

    def rewrite(self, target: SegmentTarget, segments: Sequence[tuple[Segment, Relocation]]) -> SegmentContent:
        """Merge the rows of each trigram and write them where they are now."""
        from lance_core.index.scalar.ngram_build import relocated, write_ngrams  # noqa: PLC0415 rarely needed

        parts = [(segment.content(), relocate) for segment, relocate in segments if isinstance(segment, NGramSegment)]
        return write_ngrams(target.files, relocated(parts), DEFAULT_MEMORY)


NGRAM = NGramKind()


def _needed_texts(question: Question) -> Sequence[str]:
    """Return texts that each value contains for which a question is true."""
    match question:
        case Contains():
            return question.texts
        case Prefix():
            return [question.text]
        case Comparison(operator="equal"):
            value = question.value.as_py()
            return [value] if isinstance(value, str) else []
        case _:
            return []
