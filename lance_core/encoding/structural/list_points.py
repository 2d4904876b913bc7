"""Single rows out of mini-block chunks with lists, of several columns at once.

Where rows begin is known only when the repetition levels of a chunk are decoded. That is done for all columns that
encode their levels alike in one go; only the values that the rows hold are decoded then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lance_core.encoding import registry
from lance_core.encoding.arrow_values import take_values
from lance_core.encoding.physical.memory import aranges, starts_of
from lance_core.encoding.repdef import Levels, max_rep, max_visible_def
from lance_core.encoding.structural.mini_block import read_headers
from lance_core.encoding.values import Chunks
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.repdef import LevelArray, Mask
    from lance_core.encoding.structural.chunk_table import ChunkSelection
    from lance_core.encoding.values import Bytes, Int64s, Values
    from lance_core.format.page_layout import MiniBlockLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRun:
    """Chunks of one column that hold wanted rows, in memory.

    Attributes:
        layout: Layout of its pages.
        starts: Positions of the chunks in the memory.
        sizes: Bytes of the chunks.
        counts: Values in the chunks.
        selection: Which of the chunks' rows are wanted.
    """

    layout: MiniBlockLayout
    starts: Int64s
    sizes: Int64s
    counts: Int64s
    selection: ChunkSelection


@dataclass(frozen=True, slots=True)
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
    layout = runs[0].layout
    heads = [read_headers(memory, run.starts, run.sizes, run.layout) for run in runs]
    num_levels = np.concatenate([head[0] for head in heads])
    rep = _decode_levels(memory, layout, heads, num_levels, 0)
    definition = None if layout.definition is None else _decode_levels(memory, layout, heads, num_levels, 1)
    chunk_starts = starts_of(num_levels)
    rep = _begin_cut_rows(rep, chunk_starts, runs, max_rep(layout.layers))
    begins, ends = _row_bounds(rep, chunk_starts, runs, max_rep(layout.layers))
    entries = aranges(begins, ends - begins)
    num_rows = len(runs[0].selection.rows)
    bounds = starts_of(ends - begins)[::num_rows].tolist()
    slots, slot_bounds, first_slots = _slots(layout, definition, entries, bounds, chunk_starts)
    if (first_slots[1:] - first_slots[:-1] != np.concatenate([run.counts for run in runs])).any():
        raise CorruptDataError("the levels of a chunk call for another number of values than it has")
    picked = None if definition is None else definition[entries]
    found: list[RowValues] = []
    at_chunk = 0
    for number, (run, head) in enumerate(zip(runs, heads, strict=True)):
        low, high = bounds[number], bounds[number + 1]
        own = slots[slot_bounds[number] : slot_bounds[number + 1]] - first_slots[at_chunk]
        values, chunk_of = _decode_values(memory, run, head, own)
        levels = Levels(layout.layers, rep[entries[low:high]], None if picked is None else picked[low:high])
        found.append(RowValues(levels, values, chunk_of))
        at_chunk += len(run.starts)
    return found


def _decode_levels(
    memory: Bytes, layout: MiniBlockLayout, heads: Sequence[tuple[Int64s, Int64s, Int64s]], num_levels: Int64s, at: int
) -> LevelArray:
    encoding = layout.definition if at else layout.rep
    if encoding is None:
        raise CorruptDataError("a page with lists has no repetition levels")
    starts = np.concatenate([head[1][at] for head in heads])[None]
    sizes = np.concatenate([head[2][at] for head in heads])[None]
    return registry.decode_level_chunks(
        encoding, Chunks(buffers=(memory,), starts=starts, sizes=sizes, counts=num_levels)
    )


def _begin_cut_rows(rep: LevelArray, chunk_starts: Int64s, runs: Sequence[ListRun], new_row: int) -> LevelArray:
    """Let rows whose beginning is not there begin at their first level."""
    masks = [_no_cut(run) if run.selection.is_cut is None else run.selection.is_cut for run in runs]
    is_cut = np.concatenate(masks)
    if not is_cut.any():
        return rep
    rep = rep.copy()
    rep[chunk_starts[:-1][is_cut]] = new_row
    return rep


def _no_cut(run: ListRun) -> Mask:
    return np.zeros(len(run.starts), np.bool_)


def _row_bounds(rep: LevelArray, chunk_starts: Int64s, runs: Sequence[ListRun], new_row: int) -> tuple[Int64s, Int64s]:
    """Where the wanted rows of all columns begin and end, counted in levels."""
    row_starts = np.append(np.flatnonzero(rep == new_row), len(rep))
    chunk_bounds = starts_of(np.array([len(run.starts) for run in runs]))
    first_rows = row_starts.searchsorted(chunk_starts[chunk_bounds])
    held = np.array([run.selection.num_rows for run in runs])
    if (np.diff(first_rows) != held).any() or (len(rep) and int(row_starts[0]) != 0):
        raise CorruptDataError("chunks hold another number of rows than the repetition index tells")
    rows = np.concatenate(
        [first + np.asarray(run.selection.rows) for first, run in zip(first_rows, runs, strict=False)]
    )
    return row_starts[rows], row_starts[rows + 1]


def _slots(
    layout: MiniBlockLayout, definition: LevelArray | None, entries: Int64s, bounds: list[int], chunk_starts: Int64s
) -> tuple[Int64s, list[int], Int64s]:
    """Value slots of entries, where those of each column begin, and the slots before each chunk; all chunks count."""
    if definition is None:
        return entries, bounds, chunk_starts
    if len(definition) != chunk_starts[-1]:
        raise CorruptDataError("there are not as many repetition as definition levels")
    is_visible = definition <= max_visible_def(layout.layers)
    before = starts_of(is_visible)
    picked = is_visible[entries]
    return before[entries[picked]], starts_of(picked)[bounds].tolist(), before[chunk_starts]


def _decode_values(
    memory: Bytes, run: ListRun, head: tuple[Int64s, Int64s, Int64s], slots: Int64s
) -> tuple[Values, Int64s]:
    """Values in slots that are counted from the column's first chunk, and the chunk of each."""
    layout = run.layout
    if registry.num_buffers(layout.values) != layout.num_buffers:
        raise CorruptDataError(f"a page has {layout.num_buffers} value buffers, which its encoding does not need")
    first = 1 + (layout.definition is not None)
    buffers = (memory,) * layout.num_buffers
    chunks = Chunks(buffers=buffers, starts=head[1][first:], sizes=head[2][first:], counts=run.counts)
    bounds = starts_of(run.counts)
    if len(slots) and int(slots[-1]) >= bounds[-1]:
        raise CorruptDataError(f"levels call for value {int(slots[-1])} of chunks that hold {int(bounds[-1])}")
    chunk_of = bounds.searchsorted(slots, side="right") - 1
    values = registry.decode_points(layout.values, chunks, chunk_of, slots - bounds[chunk_of])
    if values is None:
        values = take_values(registry.decode_chunks(layout.values, chunks), slots)
    return values, chunk_of
