"""Indexes of pages: the bytes that locate their rows, and how they are decoded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import NamedTuple, frozen
from lance_core.common.late_module import LateModule
from lance_core.encoding.arrow_values import buffer_view, join_values, num_bytes_of
from lance_core.encoding.kernels import starts_of
from lance_core.encoding.layouts import chunk_table, full_zip, mini_block
from lance_core.encoding.layouts.chunk_table import PageWords, join_tables
from lance_core.errors import CorruptDataError
from lance_core.format.file.page_layout import ConstantLayout, FullZipLayout, MiniBlockLayout, SparseLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.layouts import sparse
    from lance_core.encoding.layouts.chunk_table import ChunkTable
    from lance_core.encoding.layouts.sparse import SparsePage
    from lance_core.encoding.plans import Ranges
    from lance_core.encoding.values import Bytes, Int64s, Values
    from lance_core.file.read.column import PageSlice
    from lance_core.format.file.page_layout import PageLayout
else:  # pages of file version 2.3
    sparse = LateModule("lance_core.encoding.layouts.sparse")


@frozen
class MiniBlockIndex:
    """Index of mini-block pages: their chunks and dictionaries.

    Attributes:
        layouts: Layouts of the pages.
        bounds: Shape (pages + 1,): the first chunk of each page, and the end.
        table: Their chunks.
        dictionary: Items of their dictionaries, one after the other; None if they have none.
        kind: The same object for pages of one file whose chunks can be decoded together.
    """

    layouts: tuple[MiniBlockLayout, ...]
    bounds: Int64s
    table: ChunkTable
    dictionary: Values | None
    kind: object

    @property
    def is_simple(self) -> bool:
        """True if each value, or place in a dictionary, is a row."""
        layout = self.layouts[0]
        return layout.rep is None and layout.blob_layers is None

    @property
    def num_bytes(self) -> int:
        """Bytes that it takes."""
        return self.table.grid.nbytes + (0 if self.dictionary is None else num_bytes_of(self.dictionary))


@frozen
class SparseIndex:
    """Index of a page of different values below sparse layers.

    Attributes:
        page: Its levels, and which value belongs to which slot.
        layout: Layout of the page of values.
        chunks: Index of the page of values, if that has mini-blocks.
        rows: Repetition index of the page of values, if that has one.
    """

    page: SparsePage
    layout: MiniBlockLayout | FullZipLayout
    chunks: MiniBlockIndex | None
    rows: Bytes | None

    @property
    def num_bytes(self) -> int:
        """Bytes that it takes."""
        chunks = 0 if self.chunks is None else self.chunks.num_bytes
        return self.page.num_bytes + chunks + (0 if self.rows is None else self.rows.nbytes)


JoinedChunks: TypeAlias = "tuple[ChunkTable, Int64s]"
"""The chunks of some pages, and shape (pages + 1,) the first chunk of each."""


class PageRead(NamedTuple):
    """A page whose index is decoded.

    Attributes:
        part: The page.
        first_row: Its first row.
        buffers: What `index_ranges` asked for.
        kinds: What pages of the file are alike in; takes new ones.
    """

    part: PageSlice
    first_row: int
    buffers: Sequence[pa.Buffer]
    kinds: dict[object, object]


def check_page(num_buffers: int, layout: PageLayout) -> None:
    """Raise CorruptDataError if a page has another number of buffers than its layout needs."""
    match layout:
        case MiniBlockLayout():
            is_right = num_buffers == 2 + (layout.dictionary is not None) + layout.has_repetition_index
        case FullZipLayout():
            is_right = num_buffers == 1 + full_zip.has_index(layout)
        case ConstantLayout():
            is_right = num_buffers <= 3 or layout.sparse is not None
        case SparseLayout():
            is_right = num_buffers >= sparse.value_buffers(layout).stop
    if not is_right:
        raise CorruptDataError(f"a page has {num_buffers} buffers, which does not fit its layout")


def index_ranges(part: PageSlice) -> Ranges:
    """Return the byte ranges that tell which bytes hold the rows of a page."""
    match part.layout:
        case MiniBlockLayout():
            return [part.range_of(buffer) for buffer in range(len(part.page.buffers)) if buffer != 1]
        case FullZipLayout():
            if not full_zip.has_index(part.layout):
                return []
            width = full_zip.index_width(part.page.buffers[1][1], part.page.num_rows)
            return [part.range_of(1, *ends) for ends in full_zip.index_ranges(part.rows, width)]
        case ConstantLayout():
            return [part.range_of(buffer) for buffer in range(len(part.page.buffers))]
        case SparseLayout():
            data = sparse.data_buffer(part.layout)
            return [part.range_of(buffer) for buffer in range(len(part.page.buffers)) if buffer != data]


def decode_indexes(pages: Sequence[PageRead]) -> list[MiniBlockIndex]:
    """Decode the indexes of mini-block pages, those of pages that are alike at one go.

    Args:
        pages: The pages with their buffers.

    Raises:
        CorruptDataError: Buffers that do not fit their page.
    """
    alike: dict[tuple[bool, bool], list[tuple[int, MiniBlockLayout, list[Bytes]]]] = {}
    for number, (part, _, buffers, _) in enumerate(pages):
        layout = mini_block_layout(part.layout)
        if layout.rep is not None and not layout.has_repetition_index:
            raise CorruptDataError("a page with lists has no repetition index")
        views = [buffer_view(buffer, np.uint8) for buffer in buffers]
        alike.setdefault((layout.has_large_chunk, layout.rep is None), []).append((number, layout, views))
    indexes: dict[int, MiniBlockIndex] = {}
    alone: dict[int, tuple[tuple[MiniBlockLayout, ...], object]] = {}  # columns of a wide table share their layouts
    all_bounds: dict[int, Int64s] = {}  # and have as many chunks
    last: dict[object, object] | None = None
    for group in alike.values():
        parts = [pages[number] for number, _, _ in group]
        chunk_words = _page_words(parts, [layout for _, layout, _ in group], [views for _, _, views in group])
        tables = chunk_table.split_table(*chunk_table.page_tables(chunk_words))
        items = mini_block.decode_dictionaries(
            [(layout, views[layout.dictionary is not None]) for _, layout, views in group]
        )
        for (number, layout, _), table, dictionary in zip(group, tables, items, strict=True):
            num_chunks, file_kinds = table.grid.shape[1], pages[number].kinds
            if file_kinds is not last:
                alone, last = {}, file_kinds
            if id(layout) not in alone:
                alone[id(layout)] = ((layout,), _kind(layout, file_kinds))
            layouts, kind = alone[id(layout)]
            if num_chunks not in all_bounds:
                all_bounds[num_chunks] = np.array([0, num_chunks])
            indexes[number] = MiniBlockIndex(layouts, all_bounds[num_chunks], table, dictionary, kind)
    return [indexes[number] for number in range(len(pages))]


def mini_block_layout(layout: PageLayout) -> MiniBlockLayout:
    """Return a layout that is known to be one of mini-blocks."""
    assert isinstance(layout, MiniBlockLayout)  # noqa: S101 - callers ask for nothing else
    return layout


def _page_words(
    pages: Sequence[PageRead], layouts: Sequence[MiniBlockLayout], buffers: Sequence[list[Bytes]]
) -> PageWords:
    """Return the chunk words of pages that are alike."""
    chunk_words = [page_buffers[0] for page_buffers in buffers]
    index = [page_buffers[-1] for page_buffers in buffers]
    positions, data_sizes = np.array([page.part.page.buffers[1] for page in pages], np.int64).T
    return PageWords(
        chunk_words=chunk_words[0] if len(chunk_words) == 1 else np.concatenate(chunk_words),
        word_bytes=np.array([len(view) for view in chunk_words], np.int64),
        is_large=layouts[0].has_large_chunk,
        index=None if layouts[0].rep is None else np.concatenate(index),
        index_bytes=np.array([len(view) for view in index], np.int64),
        num_items=chunk_table.counts_of_items([layout.num_items for layout in layouts]),
        num_rows=np.array([page.part.page.num_rows for page in pages], np.int64),
        data_sizes=data_sizes,
        positions=positions,
        first_rows=np.array([page.first_row for page in pages], np.int64),
    )


def _kind(layout: MiniBlockLayout, kinds: dict[object, object]) -> object:
    key = (layout.values, layout.definition, layout.layers, layout.dictionary is None, layout.has_large_chunk)
    key = (*key, layout.num_buffers, layout.rep, layout.blob_layers)
    kind = kinds.get(key)
    return kinds.setdefault(key, _Kind(key)) if kind is None else kind


class _Kind:
    """Properties that pages have in common; their hash is made once, not anew for each column of a read."""

    __slots__ = ("_hash", "_key")

    def __init__(self, key: tuple[object, ...]) -> None:
        self._key, self._hash = key, hash(key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kind) and self._key == other._key


def decode_sparse_index(page: PageRead, layout: SparseLayout) -> SparseIndex:
    """Decode the index of a page with sparse layers, from all its buffers but that of the values."""
    part, _, buffers, kinds = page
    value_buffers, data = sparse.value_buffers(layout), sparse.data_buffer(layout)
    buffers = [*buffers[:data], pa.py_buffer(b""), *buffers[data:]]
    levels = sparse.decode_page(layout, [buffer_view(buffer, np.uint8) for buffer in buffers], part.page.num_rows)
    values = replace(layout.values, num_items=levels.num_values)
    of_values = [buffers[at] for at in value_buffers if at != data]
    if isinstance(values, MiniBlockLayout):
        (chunks,) = decode_indexes([PageRead(values_slice(part, layout, values), 0, of_values, kinds)])
        return SparseIndex(levels, values, chunks, None)
    rows = buffer_view(of_values[0], np.uint8).copy() if of_values else None  # without the file's memory
    return SparseIndex(levels, values, None, rows)


def values_slice(part: PageSlice, layout: SparseLayout, values: MiniBlockLayout | FullZipLayout) -> PageSlice:
    """Return the page of values of a page with sparse layers, with no rows selected."""
    value_buffers = sparse.value_buffers(layout)
    page = replace(
        part.page, buffers=part.page.buffers[value_buffers.start : value_buffers.stop], num_rows=values.num_items
    )
    return part._replace(number=0, page=page, layout=values, rows=range(0))


def join_indexes(indexes: Sequence[MiniBlockIndex]) -> MiniBlockIndex:
    """Put the indexes of pages that are alike together."""
    dictionaries = [index.dictionary for index in indexes if index.dictionary is not None]
    return MiniBlockIndex(
        layouts=tuple(index.layouts[0] for index in indexes),
        bounds=starts_of(np.array([index.bounds[-1] for index in indexes])),
        table=join_tables([index.table for index in indexes]),
        dictionary=join_values(dictionaries) if dictionaries else None,
        kind=indexes[0].kind,
    )
