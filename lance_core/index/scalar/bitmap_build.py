"""Build bitmap indices."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.encoding.kernels import starts_of
from lance_core.format.index.bitmap_index import FILE_NAME, NULL_LISTS_KEY, STATISTICS_KEY, bitmap_schema
from lance_core.format.index.row_sets import encode_row_set, merged_parts, parts_of, parts_of_each
from lance_core.index.protocol import SegmentContent
from lance_core.index.scalar.posting_build import PostingSort
from lance_core.sql.kernels import pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lance_core.format.index.row_sets import Part
    from lance_core.index.files import SegmentFiles
    from lance_core.index.protocol import Relocation

Int64s: TypeAlias = npt.NDArray[np.int64]
Content: TypeAlias = "Iterable[tuple[pa.Array, list[Int64s]]]"
"""Keys in batches, and the rows of each."""


class NullLists:
    """Collects the rows whose list is null, while the items of the others are indexed."""

    def __init__(self) -> None:
        self._parts: Sequence[Part] = []

    def add(self, rows: Int64s) -> None:
        """Add rows whose list is null."""
        self._parts = merged_parts([*self._parts, *parts_of(rows)])

    def items(self, lists: pa.Array, rows: Int64s) -> tuple[pa.Array, Int64s]:
        """Return the items of lists and the row of each; note the rows whose list is null."""
        if lists.null_count:
            self.add(rows[np.asarray(lists.is_null())])
        lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0), np.int64)
        return pc.list_flatten(lists), np.repeat(rows, lengths)

    def encode(self) -> bytes:
        """Encode the rows."""
        return encode_row_set(self._parts)


def distinct_items(lists: pa.Array, rows: Int64s) -> tuple[pa.Array, Int64s]:
    """Return the items of lists and the row of each; an item that a list has twice comes once."""
    items, owners = NullLists().items(lists, rows)
    codes = pc.dictionary_encode(items, null_encoding="encode")
    pairs = np.stack([owners, codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)])
    _, first = np.unique(pairs, axis=1, return_index=True)
    return items.take(pa.array(first, pa.int64())), owners[first]


def write_bitmaps(
    files: SegmentFiles,
    kind: pa.DataType,
    max_memory_bytes: int,
    *,
    version: int,
    pairs: Iterable[tuple[pa.Array, Int64s]] = (),
    sets: Iterable[tuple[pa.Array, Sequence[Sequence[Part]]]] = (),
    nulls: NullLists | None = None,
) -> SegmentContent:
    """Write a bitmap index.

    Args:
        files: Where it is written.
        kind: Type of the keys.
        max_memory_bytes: Memory that sorting may take.
        version: Version of the layout.
        pairs: Keys and the row of each, in any order; a pair may come more than once.
        sets: Keys and the rows of each; a key may come more than once.
        nulls: Rows whose list is null, in indices of lists; complete when all pairs were read.
    """
    schema = bitmap_schema(kind)
    with PostingSort(kind, max_memory_bytes) as postings:
        for keys, rows in pairs:
            postings.add(keys, rows)
        for keys, parts in sets:
            postings.add_sets(keys, parts)
        buffers = {} if nulls is None else {NULL_LISTS_KEY: nulls.encode()}
        metadata: dict[str, str] = {}
        files.write(
            FILE_NAME,
            schema,
            _counting(postings.batches(schema, encode_row_set), metadata),
            metadata=metadata,
            buffers=buffers,
        )
    return SegmentContent(index_version=version, details=b"")


def _counting(batches: Iterable[pa.RecordBatch], metadata: dict[str, str]) -> Iterator[pa.RecordBatch]:
    """Pass batches on, and tell the metadata, which is written behind them, how many keys there were."""
    count = 0
    for batch in batches:
        count += batch.num_rows
        yield batch
    metadata[STATISTICS_KEY] = json.dumps({"num_bitmaps": count}, separators=(",", ":"))


def relocated(segments: Sequence[tuple[Content, Relocation]]) -> Iterator[tuple[pa.Array, list[list[Part]]]]:
    """Read the keys of indices, and where their rows are now; rows that are gone are left out."""
    for content, relocate in segments:
        for keys, sets in content:
            bounds = starts_of(np.array([len(rows) for rows in sets], np.int64))
            moved = relocate(np.concatenate([np.empty(0, np.int64), *sets]))
            is_left = moved >= 0
            if not is_left.all():
                moved, bounds = moved[is_left], starts_of(is_left)[bounds]
            yield keys, parts_of_each(moved, bounds)
