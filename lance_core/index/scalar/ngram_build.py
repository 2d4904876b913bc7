"""Build indices of trigrams."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.format.index.ngram_index import FILE_NAME, NGRAM_SCHEMA, NULL_TOKEN, VERSION, fold, trigrams
from lance_core.format.index.row_sets import encode_row_treemap
from lance_core.index.protocol import SegmentContent
from lance_core.index.scalar.posting_build import PostingSort
from lance_core.sql.kernels import pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lance_core.index.files import SegmentFiles
    from lance_core.index.protocol import Relocation

Int64s: TypeAlias = npt.NDArray[np.int64]
UInt32s: TypeAlias = npt.NDArray[np.uint32]

_TEXTS_AT_ONCE = 1 << 13
"""Texts whose trigrams are in memory together, with about a hundred bytes for each byte of text."""


def trigrams_of(texts: pa.Array, rows: Int64s) -> Iterator[tuple[UInt32s, Int64s]]:
    """Return the trigrams of texts and the row of each, every pair once; the null token stands for null."""
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        piece, numbers = texts.slice(start, _TEXTS_AT_ONCE), rows[start : start + _TEXTS_AT_ONCE]
        data, ends = _folded(piece)
        tokens, text_numbers = trigrams(data, ends)
        pairs = np.unique(tokens.astype(np.uint64) << np.uint64(32) | text_numbers)
        yield (pairs >> np.uint64(32)).astype(np.uint32), numbers[(pairs & np.uint64(0xFFFFFFFF)).astype(np.int64)]
        if piece.null_count:
            null = numbers[np.asarray(piece.is_null())]
            yield np.full(len(null), NULL_TOKEN, np.uint32), null


def write_ngrams(files: SegmentFiles, pairs: Iterable[tuple[UInt32s, Int64s]], max_memory_bytes: int) -> SegmentContent:
    """Write an index of trigrams.

    Args:
        files: Where it is written.
        pairs: Trigrams and the row of each, in any order.
        max_memory_bytes: Memory that sorting may take.
    """
    with PostingSort(pa.uint32(), max_memory_bytes) as postings:
        for tokens, rows in pairs:
            postings.add(pa.array(tokens), rows)
        files.write(FILE_NAME, NGRAM_SCHEMA, postings.batches(NGRAM_SCHEMA, encode_row_treemap), metadata={})
    return SegmentContent(index_version=VERSION, details=b"")


def relocated(
    parts: Sequence[tuple[Iterable[tuple[Int64s, Int64s]], Relocation]],
) -> Iterator[tuple[UInt32s, Int64s]]:
    """Read the trigrams and rows of indices, and where the rows are now; rows that are gone are left out."""
    for content, relocate in parts:
        for tokens, rows in content:
            moved = relocate(rows)
            left = moved >= 0
            yield tokens[left].astype(np.uint32), moved[left]


def _folded(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], Int64s]:
    """Return texts as trigrams are made of them, one behind the other, and where each ends; null is empty."""
    filled = pc.fill_null(texts, "").cast(pa.large_string())
    is_ascii = pc.all(pc.string_is_ascii(filled)).as_py() is not False
    folded = filled if is_ascii else pa.array([fold(text) for text in filled.to_pylist()], pa.large_binary())
    buffers = folded.buffers()
    offsets = np.frombuffer(buffers[1] or b"", np.int64)[folded.offset : folded.offset + len(folded) + 1]
    data = np.frombuffer(buffers[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    # Arrow's ascii_lower returns other bytes where the first offset is not zero, as in a slice that was cast.
    return np.frombuffer(data.tobytes().lower(), np.uint8) if is_ascii else data, offsets[1:] - offsets[0]
