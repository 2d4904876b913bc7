"""Single rows out of mini-block chunks with lists, of several columns at once.

Where rows begin is known only when the repetition levels of a chunk are decoded. That is done for all columns that
encode their levels alike in one go; only the values that the rows hold are decoded then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from lance_core.encoding import registry
from lance_core.encoding.arrow_values import take_values
from lance_core.encoding.physical.memory import aranges, gather, starts_of
from lance_core.encoding.repdef import Levels, max_rep, max_visible_def
from lance_core.encoding.structural.mini_block import read_headers
from lance_core.encoding.values import Chunks
from lance_core.errors import CorruptDataError
from lance_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.repdef import LevelArray, Mask
    from lance_core.encoding.structural.chunk_table import ChunkSelection
    from lance_core.encoding.values import Bytes, Int64s, Values
    from lance_core.format.page_layout import MiniBlockLayout


_MANY_CHUNKS = 1 << 7

_Head: TypeAlias = "tuple[Int64s, Int64s, Int64s]"
"""Levels per chunk, and position and size of each buffer; see `read_headers`."""


@frozen(kw_only=True)
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
    heads = [read_headers(memory, run.starts, run.sizes, run.layout) for run in runs]
    origins = _origins(memory, runs, heads)
    distinct = sorted(set(origins))
    picked = _pick_levels(memory, [runs[at] for at in distinct], [heads[at] for at in distinct])
    known = dict(zip(distinct, picked, strict=True))
    found: list[RowValues] = []
    for run, head, origin in zip(runs, heads, origins, strict=True):
        levels, slots = known[origin]
        values, chunk_of = _decode_values(memory, run, head, slots)
        found.append(RowValues(levels, values, chunk_of))
    return found


def _origins(memory: Bytes, runs: Sequence[ListRun], heads: Sequence[_Head]) -> list[int]:
    """For each run the first one with the same levels: leaves of one field mostly have the same."""
    origins = list(range(len(runs)))
    if sum(len(run.starts) for run in runs) < _MANY_CHUNKS:
        return origins  # it costs as much to look as to decode
    for number in range(1, len(runs)):
        for earlier in sorted(set(origins[:number])):
            if _has_same_levels(memory, (runs[number], heads[number]), (runs[earlier], heads[earlier])):
                origins[number] = earlier
                break
    return origins


def _has_same_levels(memory: Bytes, ours: tuple[ListRun, _Head], theirs: tuple[ListRun, _Head]) -> bool:
    (run, head), (other, other_head) = ours, theirs
    num_short = 1 + (run.layout.definition is not None)
    pairs = [
        (run.counts, other.counts),
        (np.asarray(run.selection.rows), np.asarray(other.selection.rows)),
        (_cuts(run), _cuts(other)),
        (head[0], other_head[0]),
        (head[2][:num_short], other_head[2][:num_short]),
    ]
    if not all(np.array_equal(one, two) for one, two in pairs):
        return False
    sizes = head[2][:num_short].reshape(-1)
    one, two = (gather(memory, starts[1][:num_short].reshape(-1), sizes) for starts in (head, other_head))
    return np.array_equal(one, two)


def _pick_levels(memory: Bytes, runs: Sequence[ListRun], heads: Sequence[_Head]) -> list[tuple[Levels, Int64s]]:
    """For each run the levels of the wanted rows, and their value slots, counted from the run's first chunk."""
    layout = runs[0].layout
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
    found: list[tuple[Levels, Int64s]] = []
    at_chunk = 0
    for number, run in enumerate(runs):
        low, high = bounds[number], bounds[number + 1]
        own = slots[slot_bounds[number] : slot_bounds[number + 1]] - first_slots[at_chunk]
        found.append((Levels(layout.layers, rep[entries[low:high]], None if picked is None else picked[low:high]), own))
        at_chunk += len(run.starts)
    return found


def _decode_levels(
    memory: Bytes, layout: MiniBlockLayout, heads: Sequence[_Head], num_levels: Int64s, at: int
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
    is_cut = np.concatenate([_cuts(run) for run in runs])
    if not is_cut.any():
        return rep
    rep = rep.copy()
    rep[chunk_starts[:-1][is_cut]] = new_row
    return rep


def _cuts(run: ListRun) -> Mask:
    is_cut = run.selection.is_cut
    return np.zeros(len(run.starts), np.bool_) if is_cut is None else is_cut


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
    limit = max_visible_def(layout.layers)
    hidden = np.flatnonzero(definition > limit)  # few, so that finding them beats counting all others
    is_visible = definition[entries] <= limit
    slots = entries[is_visible]
    first_slots = chunk_starts - hidden.searchsorted(chunk_starts)
    return slots - hidden.searchsorted(slots), starts_of(is_visible)[bounds].tolist(), first_slots


def _decode_values(memory: Bytes, run: ListRun, head: _Head, slots: Int64s) -> tuple[Values, Int64s]:
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
