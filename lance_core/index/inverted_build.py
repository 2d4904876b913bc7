"""Build full-text indices in bounded memory: when the words of some documents fill it, they become a partition."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.format.inverted_index import (
    DOCS_SCHEMA,
    EMPTY_BITMAP,
    METADATA_FILE,
    METADATA_SCHEMA,
    POSITIONS_SCHEMA,
    POSTINGS_SCHEMA,
    TOKENS_SCHEMA,
    VERSION,
    encode_details,
    file_names,
    index_metadata,
    posting_metadata,
)
from lance_core.format.posting_blocks import BLOCK, encode_positions, encode_postings
from lance_core.index.protocol import SegmentContent
from lance_core.index.text.analyzer import Analyzer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_core.format.inverted_index import TextOptions
    from lance_core.index.files import SegmentFiles
    from lance_core.index.inverted_partition import Partition
    from lance_core.index.protocol import Relocation

Int64s: TypeAlias = npt.NDArray[np.int64]
UInt32s: TypeAlias = npt.NDArray[np.uint32]

_PAIR_BYTES = 64
"""Memory of a pair of word and document, held and put in order."""
_WORD_BYTES = 200
_DOCUMENTS_AT_ONCE = 1 << 20
"""Postings that are encoded together."""

_LARGEST_SCORE = 2.2 * math.log(1 + 2**32)
"""No word scores more, in any table. Readers pass over blocks by their largest scores; scores depend on all segments
of an index, so that the largest one of a segment may be exceeded when others join."""


@dataclass(slots=True)
class _Run:
    """Pairs of word and document, by word and then by document."""

    words: Int64s
    documents: Int64s
    frequencies: UInt32s
    positions: Int64s | None


@dataclass(slots=True)
class _Pending:
    """What will be the next partition."""

    words: dict[str, int] = field(default_factory=dict[str, int])
    rows: list[Int64s] = field(default_factory=list[Int64s])
    lengths: list[Int64s] = field(default_factory=list[Int64s])
    runs: list[_Run] = field(default_factory=list[_Run])
    num_documents: int = 0
    num_bytes: int = 0

    def numbers_of(self, terms: list[str]) -> Int64s:
        """Return the numbers of words, which get one when they come first."""
        words = self.words
        return np.array([words.setdefault(term, len(words)) for term in terms], np.int64)

    def add(self, rows: Int64s, lengths: Int64s) -> int:
        """Add documents; returns the number of the first one."""
        first = self.num_documents
        self.rows.append(rows)
        self.lengths.append(lengths)
        self.num_documents += len(rows)
        return first

    def add_run(self, run: _Run) -> None:
        """Add pairs."""
        self.runs.append(run)
        self.num_bytes += _PAIR_BYTES * len(run.words)
        if run.positions is not None:
            self.num_bytes += 3 * run.positions.nbytes


class InvertedBuilder:
    """Writes a segment of a full-text index.

    Args:
        files: Where it is written.
        options: How texts become words.
        max_memory_bytes: Memory that it may take, roughly.
    """

    def __init__(self, files: SegmentFiles, options: TextOptions, max_memory_bytes: int) -> None:
        self._files = files
        self._options = options
        self._analyzer = Analyzer(options)
        self._most = max_memory_bytes
        self._pending = _Pending()
        self._partitions: list[int] = []

    def add_texts(self, rows: Int64s, texts: pa.Array) -> None:
        """Add texts and the row of each; those without words are left out."""
        for start, words in self._analyzer.batches(texts):
            numbers = self._pending.numbers_of(words.terms)
            documents, owners, lengths = np.unique(words.owners, return_inverse=True, return_counts=True)
            first = self._pending.add(rows[start + documents], lengths)
            order = np.argsort(numbers[words.codes], kind="stable") if len(words.codes) else words.codes
            codes = numbers[words.codes[order]] if len(order) else order
            self._pending.add_run(self._run(codes, owners[order] + first, words.positions[order]))
            self._flush_if_full()

    def _run(self, words: Int64s, documents: Int64s, positions: Int64s) -> _Run:
        """Count equal pairs, which are next to each other."""
        is_first = np.ones(len(words), np.bool_)
        is_first[1:] = (words[1:] != words[:-1]) | (documents[1:] != documents[:-1])
        firsts = np.flatnonzero(is_first)
        frequencies = np.diff(np.append(firsts, len(words))).astype(np.uint32)
        kept = positions if self._options.with_position else None
        return _Run(words[firsts], documents[firsts], frequencies, kept)

    def add_partition(self, partition: Partition, relocate: Relocation) -> None:
        """Add the documents of another partition whose rows are still there."""
        rows = relocate(partition.rows)
        kept = rows >= 0
        if not kept.any():
            return
        first = self._pending.add(rows[kept], partition.lengths[kept])
        moved = np.where(kept, np.cumsum(kept) - 1 + first, -1)
        texts = {number: word for word, number in partition.words.items()}
        for numbers, postings, positions in partition.all_postings(with_position=self._options.with_position):
            codes = self._pending.numbers_of([texts.get(number, "") for number in numbers.tolist()])
            words, documents = np.repeat(codes, postings.lengths), moved[postings.documents]
            is_kept = documents >= 0
            if positions is not None:
                positions = positions[np.repeat(is_kept, postings.frequencies)]
            run = _Run(words[is_kept], documents[is_kept], postings.frequencies[is_kept], positions)
            self._pending.add_run(run)
        self._flush_if_full()

    def _flush_if_full(self) -> None:
        if self._pending.num_bytes + _WORD_BYTES * len(self._pending.words) > self._most:
            self._flush()

    def finish(self) -> SegmentContent:
        """Write what is left, and what the segment consists of."""
        if self._pending.num_documents or not self._partitions:
            self._flush()
        self._files.write(
            METADATA_FILE,
            METADATA_SCHEMA,
            [pa.record_batch([pa.array([EMPTY_BITMAP], pa.binary())], schema=METADATA_SCHEMA)],
            metadata=index_metadata(self._options, self._partitions),
        )
        return SegmentContent(index_version=VERSION, details=encode_details(self._options))

    # --------------------------------------------------------------------------------------------------------- writing

    def _flush(self) -> None:
        """Write a partition."""
        pending, self._pending = self._pending, _Pending()
        number = len(self._partitions)
        self._partitions.append(number)
        tokens_file, docs_file, postings_file = file_names(number)
        rows = np.concatenate([np.empty(0, np.int64), *pending.rows])
        lengths = np.concatenate([np.empty(0, np.int64), *pending.lengths])
        order = np.argsort(rows, kind="stable")
        self._write_documents(docs_file, rows[order], lengths[order])
        renumbered = np.empty(len(order), np.int64)
        renumbered[order] = np.arange(len(order))
        counts = np.zeros(len(pending.words), np.int64)
        for run in pending.runs:
            counts += np.bincount(run.words, minlength=len(counts))
        terms = sorted(term for term, code in pending.words.items() if counts[code])
        ranks = np.full(len(pending.words), -1, np.int64)
        codes = np.array([pending.words[term] for term in terms], np.int64)
        ranks[codes] = np.arange(len(terms))
        pending.words.clear()
        batch = pa.record_batch([pa.array(terms, pa.string()), pa.array(range(len(terms)), pa.uint32())], schema=TOKENS_SCHEMA)
        self._files.write(tokens_file, TOKENS_SCHEMA, [batch], metadata={})
        merged = _merged(pending.runs, ranks, renumbered)
        pending.runs.clear()
        schema = POSITIONS_SCHEMA if self._options.with_position else POSTINGS_SCHEMA
        batches = _posting_batches(merged, counts[codes], schema)
        self._files.write(postings_file, schema, batches, metadata=posting_metadata(self._options))

    def _write_documents(self, name: str, rows: Int64s, lengths: Int64s) -> None:
        columns = [pa.array(rows.astype(np.uint64)), pa.array(lengths.astype(np.uint32))]
        batch = pa.record_batch(columns, schema=DOCS_SCHEMA)
        self._files.write(name, DOCS_SCHEMA, [batch], metadata={"total_tokens": str(int(lengths.sum()))})


def _merged(runs: list[_Run], ranks: Int64s, renumbered: Int64s) -> _Run:
    """Return all pairs in order."""
    empty = np.empty(0, np.int64)
    words = np.concatenate([empty, *(ranks[run.words] for run in runs)])
    documents = np.concatenate([empty, *(renumbered[run.documents] for run in runs)])
    frequencies = np.concatenate([np.empty(0, np.uint32), *(run.frequencies for run in runs)])
    order = np.argsort(words << 32 | documents, kind="stable")
    positions = None
    if runs and runs[0].positions is not None:
        every = np.concatenate([run.positions for run in runs if run.positions is not None])
        ends = np.cumsum(frequencies, dtype=np.int64)
        sizes = frequencies[order].astype(np.int64)
        places = np.repeat((ends - frequencies)[order] - (np.cumsum(sizes) - sizes), sizes)
        positions = every[places + np.arange(len(places))]
    return _Run(words[order], documents[order], frequencies[order], positions)


def _posting_batches(merged: _Run, lengths: Int64s, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Encode postings, some words at a time."""
    ends = np.cumsum(lengths)
    starts = ends - lengths
    sums = np.concatenate([[0], np.cumsum(merged.frequencies, dtype=np.int64)])
    first = 0
    while first < len(lengths):
        last = max(int(np.searchsorted(ends, starts[first] + _DOCUMENTS_AT_ONCE, side="right")), first + 1)
        low, high = int(starts[first]), int(ends[last - 1])
        positions = None if merged.positions is None else merged.positions[sums[low] : sums[high]]
        part = _Run(merged.words[low:high], merged.documents[low:high], merged.frequencies[low:high], positions)
        yield _posting_batch(part, lengths[first:last], schema)
        first = last


def _posting_batch(part: _Run, lengths: Int64s, schema: pa.Schema) -> pa.RecordBatch:
    score = struct.pack("<f", _LARGEST_SCORE)
    blocks = encode_postings(part.documents, part.frequencies, lengths, score)
    counts = -(-lengths // BLOCK)
    columns = [
        _lists(pa.array(blocks, pa.large_binary()), counts),
        pa.array(np.full(len(lengths), _LARGEST_SCORE, np.float32)),
        pa.array(lengths.astype(np.uint32)),
    ]
    if part.positions is not None:
        columns += _position_columns(part, lengths, counts)
    return pa.RecordBatch.from_arrays(
        [column.cast(one.type) for column, one in zip(columns, schema, strict=True)], schema=schema
    )


def _position_columns(part: _Run, lengths: Int64s, counts: Int64s) -> list[pa.Array]:
    assert part.positions is not None  # noqa: S101 for the type checker: callers have them
    owners = np.repeat(np.arange(len(lengths)), counts)
    places = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    sizes = np.minimum(lengths[owners] - places * BLOCK, BLOCK)
    blocks = encode_positions(part.positions, part.frequencies, sizes)
    block_bytes = np.array([len(block) for block in blocks], np.int64)
    ends = np.concatenate([[0], np.cumsum(block_bytes)])
    firsts = np.concatenate([[0], np.cumsum(counts)])
    data = b"".join(blocks)
    cuts = ends[firsts].tolist()
    offsets = (ends[:-1] - ends[firsts[owners]]).astype(np.uint32)
    joined = [data[low:high] for low, high in zip(cuts[:-1], cuts[1:], strict=True)]
    return [pa.array(joined, pa.large_binary()), _lists(pa.array(offsets), counts)]


def _lists(values: pa.Array, counts: Int64s) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)
