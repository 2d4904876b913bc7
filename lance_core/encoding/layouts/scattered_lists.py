"""Single rows out of mini-block chunks with lists, of several columns at once.

Where rows begin is known only when the repetition levels of a chunk are looked through. That is done for all columns
that encode their levels alike in one go (`level_bitmap`); only the levels and values that the rows hold are decoded.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.encoding import registry
from lance_core.encoding.codecs.fastlanes import BLOCK
from lance_core.encoding.kernels import aranges, starts_of
from lance_core.encoding.layouts.level_bitmap import above, bitmap_of, count_blocks
from lance_core.encoding.layouts.open_chunks import open_chunks, together
from lance_core.encoding.repdef import Levels, max_rep, max_visible_def
from lance_core.errors import CorruptDataError
from lance_core.format.file.encodings import OutOfLineBitpacking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.layouts.chunk_table import ChunkSelection
    from lance_core.encoding.layouts.open_chunks import OpenChunks, PageChunks
    from lance_core.encoding.repdef import LevelArray, Mask
    from lance_core.encoding.values import Bytes, Chunks, Int64s, Values
    from lance_core.format.file.encodings import Encoding
    from lance_core.format.file.page_layout import MiniBlockLayout


_ONE_BIT = OutOfLineBitpacking(16, 1)


@frozen(kw_only=True)
class ListRun:
    """Chunks of one column that hold wanted rows, in memory.

    Attributes:
        chunks: The chunks.
        selection: Which of their rows are wanted.
    """

    chunks: PageChunks
    selection: ChunkSelection


@frozen
class RowValues:
    """Wanted rows of one column.

    Attributes:
        levels: Their levels.
        values: Values that have a slot, or places in a dictionary.
        chunk_of: Shape (slots,): which of the run's chunks each value was in.
    """

    levels: Levels
    values: Values
    chunk_of: Int64s


def shares_levels(ours: MiniBlockLayout, theirs: MiniBlockLayout) -> bool:
    """True if the levels of two columns can be decoded together."""
    return (ours.rep, ours.definition, ours.layers) == (theirs.rep, theirs.definition, theirs.layers)


def decode_rows(memory: Bytes, runs: Sequence[ListRun]) -> list[RowValues]:
    """Decode the wanted rows of columns that share the encoding of levels (`shares_levels`).

    Args:
        memory: Holds all chunks.
        runs: One for each column; each wants as many rows.

    Raises:
        CorruptDataError: Chunks that do not fit their page.
    """
    opened = open_chunks(memory, [run.chunks for run in runs])
    row_values: list[RowValues] = []
    for run, parts, picked in zip(runs, opened, _pick_levels(runs, opened), strict=True):
        values = registry.decode_points(run.chunks.layout.values, parts.values, picked.chunk_of, picked.index)
        row_values.append(RowValues(picked.levels, values, picked.chunk_of))
    return row_values


@frozen
class _Picked:
    """Levels of the wanted rows of a run, and which of its chunks each value slot is in, and where there."""

    levels: Levels
    chunk_of: Int64s
    index: Int64s


class _Frame:
    """Positions of the levels of chunks, counted through (entries) and in whole blocks (`level_bitmap`)."""

    __slots__ = ("_shift_of_block", "bounds", "first_words", "shifts")

    def __init__(self, num_levels: Int64s) -> None:
        num_blocks = count_blocks(num_levels)
        blocks = starts_of(num_blocks)
        self.bounds = starts_of(num_levels)
        self.first_words = blocks * (BLOCK // 64)
        self.shifts = blocks[:-1] * BLOCK - self.bounds[:-1]
        self._shift_of_block = np.repeat(self.shifts, num_blocks)

    def entries(self, positions: Int64s) -> Int64s:
        """Return an array of shape (n,): which of all levels stands at a position."""
        return positions - self._shift_of_block[positions // BLOCK]


def _pick_levels(runs: Sequence[ListRun], opened: Sequence[OpenChunks]) -> list[_Picked]:
    """For each run the levels of the wanted rows, and where their values are."""
    layout = runs[0].chunks.layout
    rep = together([parts.rep for parts in opened])
    frame = _Frame(rep.counts)
    chunk_bounds = starts_of(np.array([len(run.chunks.starts) for run in runs]))
    begins, ends = _row_bounds(layout, rep, runs, frame, chunk_bounds)
    entries = aranges(begins, ends - begins)
    chunk_of = np.repeat(np.arange(len(rep.counts)), np.diff(entries.searchsorted(frame.bounds)))
    index = entries - frame.bounds[chunk_of]
    firsts = starts_of(ends - begins)
    picked = _repetition(layout, rep, chunk_of, index, firsts[:-1])
    definition, is_visible = None, np.ones(len(entries), np.bool_)
    num_hidden = np.zeros_like(rep.counts)
    if layout.definition is not None:
        levels = together([parts.definition for parts in opened])
        limit = max_visible_def(layout.layers)
        hidden = bitmap_of(above(limit, layout.definition, levels))
        positions = entries + frame.shifts[chunk_of]
        is_visible = ~hidden.is_at(positions)
        definition = _definition(layout.definition, levels, chunk_of, index, None if limit else ~is_visible)
        before = hidden.before[frame.first_words]
        num_hidden = np.diff(before)
        index = index - (hidden.count_before(positions) - before[chunk_of])
    if (rep.counts - num_hidden != np.concatenate([run.chunks.counts for run in runs])).any():
        raise CorruptDataError("the levels of a chunk call for another number of values than it has")
    picked_levels: list[_Picked] = []
    num_rows = len(runs[0].selection.rows)
    for first, (low, high) in zip(chunk_bounds.tolist(), pairwise(firsts[::num_rows].tolist()), strict=False):
        levels = Levels(layout.layers, picked[low:high], None if definition is None else definition[low:high])
        visible_in_row = is_visible[low:high]
        picked_levels.append(
            _Picked(levels, chunk_of[low:high][visible_in_row] - first, index[low:high][visible_in_row])
        )
    return picked_levels


def _row_bounds(
    layout: MiniBlockLayout, rep: Chunks, runs: Sequence[ListRun], frame: _Frame, chunk_bounds: Int64s
) -> tuple[Int64s, Int64s]:
    """Return the starts and ends of the wanted rows of all runs, counted in levels."""
    if layout.rep is None or not rep.counts.all():
        raise CorruptDataError("a page with lists has no repetition levels")
    row_bitmap = above(max_rep(layout.layers) - 1, layout.rep, rep)
    is_cut = np.concatenate([_cuts(run) for run in runs])
    if is_cut.any():  # a row whose beginning is not there begins at its first level
        row_bitmap[frame.first_words[:-1][is_cut]] |= np.uint64(1)
    rows = bitmap_of(row_bitmap)
    run_words = frame.first_words[chunk_bounds]
    first_rows = rows.before[run_words]
    rows_per_run = np.array([run.selection.num_rows for run in runs])
    if (np.diff(first_rows) != rows_per_run).any() or not (row_bitmap[run_words[:-1]] & np.uint64(1)).all():
        raise CorruptDataError("chunks hold another number of rows than the repetition index tells")
    wanted = np.concatenate(
        [first + np.asarray(run.selection.rows) for first, run in zip(first_rows, runs, strict=False)]
    )
    begins = rows.find(wanted)
    ends = rows.follow(begins)
    return frame.entries(begins), np.where(ends < 0, frame.bounds[-1], frame.entries(ends))


def _cuts(run: ListRun) -> Mask:
    is_cut = run.selection.is_cut
    return np.zeros(len(run.chunks.starts), np.bool_) if is_cut is None else is_cut


def _repetition(layout: MiniBlockLayout, rep: Chunks, chunk_of: Int64s, index: Int64s, begins: Int64s) -> LevelArray:
    """Return the repetition levels of some entries, among which rows begin as told."""
    top = max_rep(layout.layers)
    if layout.rep is None or layout.rep == _ONE_BIT:
        levels = np.zeros(len(index), np.uint16)
    else:
        levels = registry.decode_levels_at(layout.rep, rep, chunk_of, index)
    levels[begins] = np.maximum(levels[begins], top)  # more where the first level was cut off
    return levels


def _definition(
    encoding: Encoding, levels: Chunks, chunk_of: Int64s, index: Int64s, is_above: Mask | None
) -> LevelArray:
    """Return the definition levels of some entries; all others are 0 if it is known which are above."""
    if is_above is None:
        return registry.decode_levels_at(encoding, levels, chunk_of, index)
    definition = is_above.astype(np.uint16)
    if encoding != _ONE_BIT:
        definition[is_above] = registry.decode_levels_at(encoding, levels, chunk_of[is_above], index[is_above])
    return definition
