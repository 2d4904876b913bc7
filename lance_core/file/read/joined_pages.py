"""Chunks of many pages as one table: the places of scattered rows are looked up in it at one go; pure."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lance_core.encoding.kernels import starts_of
from lance_core.encoding.layouts.chunk_table import ChunkTable, join_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.values import Int64s
    from lance_core.file.read.page_indexes import MiniBlockIndex
    from lance_core.file.read.plan import Column, Part

_GROWTH = 2
"""Pages are put together once more when so many times as many are known, or all: in the end each was copied twice."""


class JoinedPages(NamedTuple):
    """Pages of a column without lists that are alike, and their chunks."""

    pages: frozenset[int]
    table: ChunkTable


def chunks_of(column: Column, parts: Sequence[Part], rows: Int64s) -> Int64s:
    """What is known of the chunk of each of some rows.

    Args:
        column: The column.
        parts: The rows by page; the pages are alike, and their indexes known.
        rows: Shape (n,): the same rows, counted from the first of the column.

    Returns:
        Shape (5, n), as `ChunkTable.grid`.
    """
    table = _joined(column, parts) if len(parts) > 1 else column.indexes[parts[0].number].table
    if table is not None:
        return grid_of(table, rows)
    ends = np.cumsum([len(part.rows) for part in parts[:-1]])
    each = zip(parts, np.split(rows, ends), strict=True)
    return np.concatenate([chunks_of(column, [part], some) for part, some in each], axis=1)


def grid_of(table: ChunkTable, rows: Int64s) -> Int64s:
    """As `chunks_of`, of a table that has all of the rows."""
    return table.grid.take(_places_in(table.first_rows, rows), axis=1)


def known_chunks(column: Column) -> tuple[MiniBlockIndex, ChunkTable] | None:
    """What is known of one of the pages and the chunks of all of them, if they are alike and were put together."""
    if len(column.pages) == 1:
        index = column.indexes.get(0)
        return None if index is None else (index, index.table)
    if len(column.joined_pages) != 1:
        return None
    (known,) = column.joined_pages.values()
    return (column.indexes[0], known.table) if len(known.pages) == len(column.pages) else None


def _places_in(firsts: Int64s, rows: Int64s) -> Int64s:
    """Which chunk each row is in: both ascend, and what is fewer is looked for among what is more."""
    if len(rows) < len(firsts):
        return firsts.searchsorted(rows, side="right") - 1
    begins = rows.searchsorted(firsts)
    return np.repeat(np.arange(len(firsts)), np.diff(begins, append=len(rows)))


def _joined(column: Column, parts: Sequence[Part]) -> ChunkTable | None:
    """The chunks of these pages and of others that are alike; None if it does not pay yet to put them together."""
    kind = column.indexes[parts[0].number].kind
    known = column.joined_pages.get(id(kind))
    if known is None or not known.pages.issuperset([part.number for part in parts]):
        alike = sorted(number for number, index in list(column.indexes.items()) if index.kind is kind)
        is_all = len(column.indexes) == len(column.pages)
        if known is not None and not is_all and len(alike) < _GROWTH * len(known.pages):
            return None
        known = column.joined_pages[id(kind)] = _join(column, alike)
    return known.table


def _join(column: Column, numbers: Sequence[int]) -> JoinedPages:
    indexes = [column.indexes[number] for number in numbers]
    grid = _around([one.table.grid for one in indexes])
    if grid is None:
        grid = join_tables([one.table for one in indexes]).grid
        bounds = starts_of(np.array([one.table.grid.shape[1] for one in indexes]))
        for number, index, (low, high) in zip(numbers, indexes, pairwise(bounds.tolist()), strict=True):
            own = ChunkTable(grid=grid[:, low:high], has_preamble=None)
            column.indexes[number] = replace(index, table=own)  # nothing is kept twice
    return JoinedPages(frozenset(numbers), ChunkTable(grid=grid, has_preamble=None))


def _around(grids: Sequence[Int64s]) -> Int64s | None:
    """What the grids are neighbouring parts of, as those of pages that were read together are; None if they are not."""
    whole = grids[0].base
    if not isinstance(whole, np.ndarray) or whole.ndim < 2 or any(one.base is not whole for one in grids):
        return None
    places = [(one.ctypes.data - whole.ctypes.data) // whole.itemsize for one in grids]
    ends = [place + one.shape[1] for place, one in zip(places, grids, strict=True)]
    return whole[:, places[0] : ends[-1]] if places[1:] == ends[:-1] else None
