"""What has to be known of mini-block pages before their chunks can be read; what is known of several, put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from lance_core.encoding.arrow_values import join_values, num_bytes_of, own_values
from lance_core.encoding.kernels import starts_of
from lance_core.encoding.layouts.chunk_table import ChunkTable, join_tables
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.layouts.sparse import SparsePage
    from lance_core.encoding.values import Bytes, Int64s, Values
    from lance_core.file.read.plan import Column
    from lance_core.format.page_layout import FullZipLayout, MiniBlockLayout

_MAX_JOINED = 8
"""So many groups of pages of a column stay put together."""

_Joined = TypeVar("_Joined", "MiniBlockIndex", "Values", "JoinedChunks")


@dataclass(frozen=True, slots=True)
class MiniBlockIndex:
    """What has to be known of mini-block pages before their chunks can be read.

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


@dataclass(frozen=True, slots=True)
class SparseIndex:
    """What has to be known of a page of different values below sparse layers before its values can be read.

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
        chunks = 0 if self.chunks is None else _num_bytes(self.chunks)
        return self.page.num_bytes + chunks + (0 if self.rows is None else self.rows.nbytes)


JoinedChunks: TypeAlias = "tuple[ChunkTable, Int64s]"
"""The chunks of some pages, and shape (pages + 1,) the first chunk of each."""


class Held:
    """Bytes of chunk tables and dictionaries that are kept for later readers of a file."""

    __slots__ = ("num_bytes",)

    def __init__(self) -> None:
        self.num_bytes = 0

    def keep(self, index: MiniBlockIndex) -> MiniBlockIndex:
        """The same index in memory of its own, which does not keep the file mapped."""
        if index.dictionary is not None:
            dictionary = own_values(index.dictionary)
            index = MiniBlockIndex(index.layouts, index.bounds, index.table, dictionary, index.kind)
        self.num_bytes += _num_bytes(index)
        return index


def _num_bytes(joined: MiniBlockIndex | Values | JoinedChunks) -> int:
    if isinstance(joined, tuple):
        return joined[0].grid.nbytes
    if isinstance(joined, MiniBlockIndex):
        return joined.table.grid.nbytes + (0 if joined.dictionary is None else num_bytes_of(joined.dictionary))
    return num_bytes_of(joined)


def join_indexes(column: Column, numbers: tuple[int, ...], *, is_kept: bool) -> MiniBlockIndex:
    """What is known of some pages, as one; what was joined last is kept, if that is wanted."""
    known = column.joined.get(numbers)
    if known is not None:
        return known
    indexes = [column.indexes[number] for number in numbers]
    made = indexes[0] if len(indexes) == 1 else _joined(indexes)
    return _kept(column, column.joined, numbers, made) if is_kept and len(indexes) > 1 else made


def _joined(indexes: Sequence[MiniBlockIndex]) -> MiniBlockIndex:
    dictionaries = [one.dictionary for one in indexes if one.dictionary is not None]
    return MiniBlockIndex(
        layouts=tuple(one.layouts[0] for one in indexes),
        bounds=starts_of(np.array([one.bounds[-1] for one in indexes])),
        table=join_tables([one.table for one in indexes]),
        dictionary=join_values(dictionaries) if dictionaries else None,
        kind=indexes[0].kind,
    )


def join_dictionaries(column: Column, numbers: tuple[int, ...]) -> Values:
    """Items of the dictionaries of some pages, one after the other; what was joined last is kept."""
    joined = column.dictionaries.get(numbers)
    if joined is not None:
        return joined
    found = [column.indexes[number].dictionary for number in numbers]
    items = [one for one in found if one is not None]
    if not items:
        raise CorruptDataError("a dictionary page without dictionary")
    return items[0] if len(found) == 1 else _kept(column, column.dictionaries, numbers, join_values(items))


def join_chunks(column: Column, numbers: tuple[int, ...]) -> JoinedChunks:
    """The chunks of some pages; what was joined last is kept."""
    known = column.tables.get(numbers)
    if known is not None:
        return known
    tables = [column.indexes[number].table for number in numbers]
    made = (join_tables(tables), starts_of(np.array([len(one.starts) for one in tables])))
    return made if len(tables) == 1 else _kept(column, column.tables, numbers, made)


def _kept(column: Column, known: dict[tuple[int, ...], _Joined], numbers: tuple[int, ...], made: _Joined) -> _Joined:
    """What was put together, kept for the next who asks."""
    held = column.held
    if len(known) >= _MAX_JOINED:
        gone = list(known.values())
        known.clear()
        if held is not None:
            held.num_bytes -= sum(map(_num_bytes, gone))
    known[numbers] = made
    if held is not None:
        held.num_bytes += _num_bytes(made)
    return made
