"""One partition of a full-text index: words, documents and postings of some rows."""

from __future__ import annotations

from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import frozen
from lance_core.common.limits import check_limit
from lance_core.errors import CorruptDataError
from lance_core.format.index.inverted_index import DOCS_SCHEMA, POSITIONS_SCHEMA, TOKENS_SCHEMA, file_names
from lance_core.format.index.posting_blocks import BLOCK, decode_positions, decode_positions_of, decode_postings
from lance_core.index.files import check_columns, read_columns
from lance_core.index.text.inverted_words import ColumnWords, TransducerWords
from lance_core.index.text.score import DocumentNorms, WordPostings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from lance_core.file.read.reader import DataFileReader
    from lance_core.index.cache import BoundedCache
    from lance_core.index.files import SegmentFiles
    from lance_core.index.text.inverted_words import WordSet
    from lance_core.index.text.score import Corpus

Int64s: TypeAlias = npt.NDArray[np.int64]
UInt32s: TypeAlias = npt.NDArray[np.uint32]

_WORDS_AT_ONCE = 1 << 15
_TAKE_COST, _TAKEN_ROW_COST = 1 << 16, 1 << 8
"""What it costs to read some row numbers one by one, and each of them, counted in rows that are read as a whole."""


@frozen(kw_only=True)
class Postings:
    """Postings of some words, word after word.

    Attributes:
        lengths: Shape (words,), documents of each word.
        documents: Numbers of documents, ascending in each word.
        frequencies: How often each has the word.
    """

    lengths: Int64s
    documents: Int64s
    frequencies: UInt32s


@frozen(kw_only=True)
class PostingsCache:
    """Postings and positions that searches of a segment used last.

    Attributes:
        postings: Those of words, by partition and word.
        positions: Encoded positions of words, and where their blocks begin, by partition and number of the word.
    """

    postings: BoundedCache[tuple[int, str], WordPostings]
    positions: BoundedCache[tuple[int, int], tuple[npt.NDArray[np.uint8], Int64s]]


class Partition:
    """One partition, opened; its files are read when they are needed.

    Args:
        files: Files of the segment.
        number: Number of the partition.
        cached: That of the segment.
        has_transducer: Words are a transducer; else they are columns.
    """

    def __init__(
        self,
        files: SegmentFiles,
        number: int,
        cached: PostingsCache,
        *,
        has_transducer: bool,
    ) -> None:
        self._files = files
        self._number = number
        self._cached = cached
        self._tokens_file, self._docs_file, self._postings_file = file_names(number)
        self._has_transducer = has_transducer
        self._norms: DocumentNorms | None = None
        self._taken = 0

    @cached_property
    def tokens(self) -> WordSet:
        """The words."""
        path, reader = self._files.path(self._tokens_file), self._files.open(self._tokens_file)
        if self._has_transducer:
            if "_token_fst_bytes" not in reader.schema.names or reader.num_rows != 1:
                raise CorruptDataError("a full-text index has no transducer of its words", path=path)
            (data,) = read_columns(reader, ["_token_fst_bytes"], 0, 1)
            return TransducerWords(data[0].as_py() or b"", path=path)
        check_columns(reader, TOKENS_SCHEMA, path=path)
        check_limit("max_zones", reader.num_rows, "words of an index", path=path)
        return ColumnWords(*read_columns(reader, ["_token", "_token_id"], 0, reader.num_rows))

    @cached_property
    def _documents(self) -> DataFileReader:
        reader = self._files.open(self._docs_file)
        check_columns(reader, DOCS_SCHEMA, path=self._files.path(self._docs_file))
        return reader

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return self._documents.num_rows

    @cached_property
    def rows(self) -> Int64s:
        """Row address, or row id, of each document."""
        (rows,) = read_columns(self._documents, ["_rowid"], 0, self.num_documents)
        return rows.to_numpy().view(np.int64)

    def rows_of(self, documents: Int64s) -> Int64s:
        """Return `rows` of some documents, ascending; the first ones are read one by one."""
        if "rows" not in self.__dict__:
            self._taken += _TAKE_COST + _TAKEN_ROW_COST * len(documents)
            if self._taken < self.num_documents:
                projection = self._documents.schema.select(["_rowid"])
                batch = self._documents.take(projection, self._documents.column_numbers, documents)
                return batch.column(0).to_numpy().view(np.int64)
        return self.rows[documents]

    @cached_property
    def lengths(self) -> UInt32s:
        """Number of words of each document."""
        (lengths,) = read_columns(self._documents, ["_num_tokens"], 0, self.num_documents)
        return lengths.to_numpy()

    @cached_property
    def total_words(self) -> int:
        """Number of words of all documents."""
        return int(self.lengths.sum())

    def norms(self, corpus: Corpus) -> DocumentNorms:
        """Return the norms of all documents; those of the last corpus are kept."""
        cached = self._norms
        if cached is None or cached.average != corpus.average:
            cached = self._norms = DocumentNorms(corpus, self.lengths)
        return cached

    @cached_property
    def num_words(self) -> int:
        """Number of distinct words."""
        return self._reader.num_rows

    @cached_property
    def _reader(self) -> DataFileReader:
        reader = self._files.open(self._postings_file)
        missing = {"_posting", "_length"} - set(reader.schema.names)
        if missing:
            raise CorruptDataError(
                f"a full-text index has no column {min(missing)!r}", path=self._files.path(self._postings_file)
            )
        return reader

    def postings(self, terms: Iterable[str]) -> dict[str, WordPostings]:
        """Return the postings of words, of those that the partition has; they are kept.

        Raises:
            CorruptDataError: They are damaged.
        """
        distinct = list(dict.fromkeys(terms))
        result = {word: self._cached.postings.get((self._number, word)) for word in distinct}
        missing = [word for word in distinct if result[word] is None]
        numbered = [(word, number) for word in missing if (number := self.tokens.get(word)) is not None]
        if numbered:
            result |= self._read(numbered)
        return {word: postings for word, postings in result.items() if postings is not None}

    def _read(self, numbered: Sequence[tuple[str, int]]) -> dict[str, WordPostings]:
        """Read the postings of words with their numbers."""
        every = self._decoded(*self._take(["_posting", "_length"], [number for _, number in numbered]))
        ends = np.cumsum(every.lengths).tolist()
        result: dict[str, WordPostings] = {}
        for (word, number), (start, end) in zip(numbered, pairwise([0, *ends]), strict=True):
            # A part of an array would keep the whole in memory.
            documents, frequencies = every.documents[start:end].copy(), every.frequencies[start:end].copy()
            result[word] = WordPostings(documents, frequencies, partial(self.positions, number, frequencies))
            self._cached.postings.put((self._number, word), result[word], result[word].num_bytes)
        return result

    def positions(self, number: int, frequencies: UInt32s, chosen: Int64s) -> tuple[Int64s, Int64s]:
        """Read where a word is in some of its documents.

        Args:
            number: Number of the word.
            frequencies: How often each of its documents has it.
            chosen: Places of documents among these, ascending, without repeats.

        Returns:
            For each position, the place of its document in ``chosen``; and the positions.

        Raises:
            CorruptDataError: They are damaged.
        """
        data, starts = self._position_blocks(number)
        path = self._files.path(self._postings_file)
        positions = decode_positions_of(data, starts, frequencies, chosen, path=path)
        return np.repeat(np.arange(len(chosen)), frequencies[chosen]), positions

    def _position_blocks(self, number: int) -> tuple[npt.NDArray[np.uint8], Int64s]:
        cached = self._cached.positions.get((self._number, number))
        if cached is None:
            cached = self._read_position_blocks(number)
            self._cached.positions.put((self._number, number), cached, sum(array.nbytes for array in cached))
        return cached

    def _read_position_blocks(self, number: int) -> tuple[npt.NDArray[np.uint8], Int64s]:
        columns = POSITIONS_SCHEMA.names[-2:]
        if any(name not in self._reader.schema.names for name in columns):
            raise CorruptDataError("a full-text index has no positions", path=self._files.path(self._postings_file))
        data, offsets = self._take(columns, [number])
        content = np.frombuffer(data[0].as_buffer(), np.uint8)
        starts = np.append(offsets[0].values.to_numpy(zero_copy_only=False).astype(np.int64), len(content))
        if starts[0] < 0 or (starts[1:] < starts[:-1]).any():
            path = self._files.path(self._postings_file)
            raise CorruptDataError("blocks of positions of a full-text index are not in order", path=path)
        return content, starts

    def all_postings(self, *, with_position: bool) -> Iterator[tuple[Int64s, Postings, Int64s | None]]:
        """Read all postings, in the order of the words' numbers: the numbers, postings, and positions."""
        names = ["_posting", "_length", *(POSITIONS_SCHEMA.names[-2:] if with_position else [])]
        for start in range(0, self._reader.num_rows, _WORDS_AT_ONCE):
            end = min(start + _WORDS_AT_ONCE, self._reader.num_rows)
            blocks, lengths, *rest = read_columns(self._reader, names, start, end)
            postings = self._decoded(blocks, lengths)
            positions = self._all_positions(postings, *rest) if rest else None
            yield np.arange(start, end), postings, positions

    def _all_positions(self, postings: Postings, data: pa.Array, offsets: pa.Array) -> Int64s:
        content, ends = _flat_bytes(data)
        counts = np.diff(np.asarray(offsets.offsets).astype(np.int64))
        inner = offsets.flatten().to_numpy(zero_copy_only=False).astype(np.int64)
        starts = np.append(inner + np.repeat(ends[:-1], counts), ends[-1])
        owners = np.repeat(np.arange(len(counts)), counts)
        slots = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        sizes = np.minimum(postings.lengths[owners] - slots * BLOCK, BLOCK)
        path = self._files.path(self._postings_file)
        if sizes.sum() != len(postings.documents) or (sizes <= 0).any():
            raise CorruptDataError("a full-text index has positions of other documents", path=path)
        return decode_positions(content, starts, postings.frequencies, sizes, path=path)

    def _take(self, names: Sequence[str], numbers: Sequence[int]) -> list[pa.Array]:
        import pyarrow as pa  # noqa: PLC0415 its types are all that the rest needs

        slots = np.array(numbers, np.int64)
        if len(slots) and (slots.min() < 0 or slots.max() >= self._reader.num_rows):
            raise CorruptDataError("a word of a full-text index has no postings", path=self._files.path("part"))
        unique, order = np.unique(slots, return_inverse=True)
        projection = self._reader.schema.select(list(names))
        batch = self._reader.take(projection, self._reader.column_numbers, unique)
        chosen = pa.array(order)
        return [batch.column(batch.schema.get_field_index(name)).take(chosen) for name in names]

    def _decoded(self, blocks: pa.Array, lengths: pa.Array) -> Postings:
        path = self._files.path(self._postings_file)
        data, starts = _flat_bytes(blocks.flatten())
        counts = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
        documents, frequencies = decode_postings(data, starts, counts, path=path)
        if len(documents) and documents.max() >= self.num_documents:
            raise CorruptDataError("a word of a full-text index is in a document that is not there", path=path)
        return Postings(lengths=counts, documents=documents, frequencies=frequencies)


def _flat_bytes(values: pa.Array) -> tuple[npt.NDArray[np.uint8], Int64s]:
    """Return the bytes of large binaries, one behind the other, and where each begins and the last ends."""
    buffers = values.buffers()
    if not len(values):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(buffers[1], np.int64)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(buffers[2] or b"", np.uint8)
    return data[offsets[0] : offsets[-1]], offsets - offsets[0]
