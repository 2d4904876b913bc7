"""Build full-text indices in bounded memory: when the words of some documents fill it, they become a partition."""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from dataclasses import field
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.frozen import mutable
from lance_core.format.index.fst_build import encode_fst
from lance_core.format.index.inverted_index import (
    DOCS_SCHEMA,
    EMPTY_BITMAP,
    METADATA_FILE,
    METADATA_SCHEMA,
    POSITIONS_SCHEMA,
    POSTINGS_SCHEMA,
    TRANSDUCER_SCHEMA,
    VERSION,
    encode_details,
    file_names,
    index_metadata,
    posting_metadata,
)
from lance_core.format.index.posting_blocks import BLOCK, encode_positions, encode_postings
from lance_core.index.order import order_of_numbers
from lance_core.index.protocol import SegmentContent
from lance_core.index.text.json_analyzer import make_analyzer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_core.format.index.inverted_index import TextOptions
    from lance_core.index.files import SegmentFiles
    from lance_core.index.protocol import Relocation
    from lance_core.index.text.inverted_partition import Partition

Int64s: TypeAlias = npt.NDArray[np.int64]
UInt8s: TypeAlias = npt.NDArray[np.uint8]
UInt32s: TypeAlias = npt.NDArray[np.uint32]

_PAIR_BYTES = 64
"""Memory of a pair of word and document, held and put in order."""
_WORD_BYTES = 200
_DOCUMENTS_AT_ONCE = 1 << 20
"""Postings that are encoded together."""

_LARGEST_SCORE = 2.2 * math.log(1 + 2**32)
"""No word scores more, in any table. Readers pass over blocks by their largest scores; scores depend on all segments
of an index, so that the largest one of a segment may be exceeded when others join."""


@mutable
class _Run:
    """Pairs of word and document, by word and then by document."""

    tokens: Int64s
    documents: Int64s
    frequencies: UInt32s
    positions: Int64s | None


@mutable
class _Pending:
    """Content of the next partition."""

    tokens: defaultdict[str, int] = field(default_factory=lambda: defaultdict(count().__next__))
    rows: list[Int64s] = field(default_factory=list[Int64s])
    lengths: list[Int64s] = field(default_factory=list[Int64s])
    runs: list[_Run] = field(default_factory=list[_Run])
    num_documents: int = 0
    num_bytes: int = 0

    def numbers_of(self, terms: list[str]) -> Int64s:
        """Return the numbers of words, which get one when they come first."""
        return np.fromiter(map(self.tokens.__getitem__, terms), np.int64, len(terms))

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
        self.num_bytes += _PAIR_BYTES * len(run.tokens)
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
        self._analyzer = make_analyzer(options)
        self._most = max_memory_bytes
        self._pending = _Pending()
        self._partitions: list[int] = []

    def add_texts(self, rows: Int64s, texts: pa.Array) -> None:
        """Add texts and the row of each; those without words are left out."""
        for start, tokens in self._analyzer.batches(texts):
            numbers = self._pending.numbers_of(tokens.terms)
            is_first = _is_first(tokens.owners)
            firsts = np.flatnonzero(is_first)
            lengths = np.diff(np.append(firsts, len(is_first)))
            first = self._pending.add(rows[start + tokens.owners[firsts]], lengths)
            documents = np.cumsum(is_first) + (first - 1)
            codes = numbers[tokens.codes]
            order = order_of_numbers(codes)
            self._pending.add_run(self._run(codes[order], documents[order], tokens.positions[order]))
            self._flush_if_full()

    def _run(self, tokens: Int64s, documents: Int64s, positions: Int64s) -> _Run:
        """Count equal pairs, which are next to each other."""
        firsts = np.flatnonzero(_is_first(tokens) | _is_first(documents))
        frequencies = np.diff(np.append(firsts, len(tokens))).astype(np.uint32)
        selected = positions if self._options.with_position else None
        return _Run(tokens[firsts], documents[firsts], frequencies, selected)

    def add_partition(self, partition: Partition, relocate: Relocation) -> None:
        """Add the documents of another partition whose rows are still there."""
        rows = relocate(partition.rows)
        selected = rows >= 0
        if not selected.any():
            return
        first = self._pending.add(rows[selected], partition.lengths[selected].astype(np.int64))
        moved = np.where(selected, np.cumsum(selected) - 1 + first, -1)
        texts = {number: word for word, number in partition.tokens.items()}
        for numbers, postings, slots in partition.all_postings(with_position=self._options.with_position):
            codes = self._pending.numbers_of([texts.get(number, "") for number in numbers.tolist()])
            tokens, documents = np.repeat(codes, postings.lengths), moved[postings.documents]
            is_kept = documents >= 0
            positions = None if slots is None else slots[np.repeat(is_kept, postings.frequencies)]
            run = _Run(tokens[is_kept], documents[is_kept], postings.frequencies[is_kept], positions)
            self._pending.add_run(run)
        self._flush_if_full()

    def _flush_if_full(self) -> None:
        if self._pending.num_bytes + _WORD_BYTES * len(self._pending.tokens) > self._most:
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
        counts = np.zeros(len(pending.tokens), np.int64)
        for run in pending.runs:
            counts += np.bincount(run.tokens, minlength=len(counts))
        terms = sorted(term for term, code in pending.tokens.items() if counts[code])
        ranks = np.full(len(pending.tokens), -1, np.int64)
        codes = np.array([pending.tokens[term] for term in terms], np.int64)
        ranks[codes] = np.arange(len(terms))
        pending.tokens.clear()
        self._write_words(tokens_file, [term.encode() for term in terms])
        merged = _merged(pending.runs, ranks, renumbered)
        pending.runs.clear()
        schema = POSITIONS_SCHEMA if self._options.with_position else POSTINGS_SCHEMA
        batches = _posting_batches(merged, counts[codes], schema)
        self._files.write(postings_file, schema, batches, metadata=posting_metadata(self._options))

    def _write_words(self, name: str, terms: Sequence[bytes]) -> None:
        values = encode_fst(terms), len(terms), sum(map(len, terms))
        columns = [pa.array([value], item.type) for value, item in zip(values, TRANSDUCER_SCHEMA, strict=True)]
        self._files.write(name, TRANSDUCER_SCHEMA, [pa.record_batch(columns, schema=TRANSDUCER_SCHEMA)], metadata={})

    def _write_documents(self, name: str, rows: Int64s, lengths: Int64s) -> None:
        columns = [pa.array(rows.astype(np.uint64)), pa.array(lengths.astype(np.uint32))]
        batch = pa.record_batch(columns, schema=DOCS_SCHEMA)
        self._files.write(name, DOCS_SCHEMA, [batch], metadata={"total_tokens": str(int(lengths.sum()))})


def _is_first(numbers: Int64s) -> npt.NDArray[np.bool_]:
    """Return which of some numbers differ from those before them."""
    is_first = np.ones(len(numbers), np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=is_first[1:])
    return is_first


def _merged(runs: list[_Run], ranks: Int64s, renumbered: Int64s) -> _Run:
    """Return all pairs in order."""
    # Word and document share one number, word first, so that one sort brings pairs into order. The positions of a pair
    # stay together: each moves by as much as the first of its pair.
    empty = np.empty(0, np.int64)
    tokens = np.concatenate([empty, *(ranks[run.tokens] for run in runs)])
    documents = np.concatenate([empty, *(renumbered[run.documents] for run in runs)])
    frequencies = np.concatenate([np.empty(0, np.uint32), *(run.frequencies for run in runs)])
    order = np.argsort(tokens << 32 | documents, kind="stable")
    positions = None
    if runs and runs[0].positions is not None:
        every = np.concatenate([run.positions for run in runs if run.positions is not None])
        ends = np.cumsum(frequencies, dtype=np.int64)
        sizes = frequencies[order].astype(np.int64)
        slots = np.repeat((ends - frequencies)[order] - (np.cumsum(sizes) - sizes), sizes)
        positions = every[slots + np.arange(len(slots))]
    return _Run(tokens[order], documents[order], frequencies[order], positions)


def _posting_batches(merged: _Run, lengths: Int64s, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Encode postings, some words at a time."""
    ends = np.cumsum(lengths)
    starts = ends - lengths
    running_sums = np.concatenate([[0], np.cumsum(merged.frequencies, dtype=np.int64)])
    first = 0
    while first < len(lengths):
        last = max(int(np.searchsorted(ends, starts[first] + _DOCUMENTS_AT_ONCE, side="right")), first + 1)
        low, high = int(starts[first]), int(ends[last - 1])
        positions = None if merged.positions is None else merged.positions[running_sums[low] : running_sums[high]]
        part = _Run(merged.tokens[low:high], merged.documents[low:high], merged.frequencies[low:high], positions)
        yield _posting_batch(part, lengths[first:last], schema)
        first = last


def _posting_batch(part: _Run, lengths: Int64s, schema: pa.Schema) -> pa.RecordBatch:
    score = struct.pack("<f", _LARGEST_SCORE)
    blocks = _binaries(*encode_postings(part.documents, part.frequencies, lengths, score))
    counts = -(-lengths // BLOCK)
    columns = [
        _lists(blocks, counts),
        pa.array(np.full(len(lengths), _LARGEST_SCORE, np.float32)),
        pa.array(lengths.astype(np.uint32)),
    ]
    if part.positions is not None:
        columns += _position_columns(part, lengths, counts)
    return pa.RecordBatch.from_arrays(
        [column.cast(item.type) for column, item in zip(columns, schema, strict=True)], schema=schema
    )


def _position_columns(part: _Run, lengths: Int64s, counts: Int64s) -> list[pa.Array]:
    assert part.positions is not None  # noqa: S101 for the type checker: callers have them
    owners = np.repeat(np.arange(len(lengths)), counts)
    slots = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    sizes = np.minimum(lengths[owners] - slots * BLOCK, BLOCK)
    data, block_bytes = encode_positions(part.positions, part.frequencies, sizes)
    ends = np.concatenate([[0], np.cumsum(block_bytes)])
    firsts = np.concatenate([[0], np.cumsum(counts)])
    offsets = (ends[:-1] - ends[firsts[owners]]).astype(np.uint32)
    return [_binaries(data, np.diff(ends[firsts])), _lists(pa.array(offsets), counts)]


def _binaries(data: UInt8s, sizes: Int64s) -> pa.Array:
    """Return bytes, which lie one behind the other, as values of these sizes."""
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return pa.Array.from_buffers(pa.large_binary(), len(sizes), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _lists(values: pa.Array, counts: Int64s) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)
