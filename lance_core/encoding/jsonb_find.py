"""Find one value in each of many JSONB documents; see `lance_core.encoding.jsonb` for the form.

All documents are walked together, and of each level of nesting only what a path leads through is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.jsonb_arrays import (
    ARRAY,
    BLOCK_BYTES,
    CONTAINER,
    SCALAR,
    Level,
    NotPlainError,
    find_level,
    to_bitmap,
    values_of,
)
from lance_core.encoding.kernels import aranges, gather_words, starts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.values import Bytes, Int64s


@frozen
class Step:
    """A step from a value to one inside of it.

    Attributes:
        name: Key of the member if the value is an object; None if objects have no such value.
        index: Place of the item if it is an array; None if arrays have no such value.
        is_last: The index counts from the last item.
    """

    name: str | None = None
    index: int | None = None
    is_last: bool = False


def find_values(array: pa.Array, path: Sequence[Step]) -> pa.Array | None:
    """Return the value at the end of some steps.

    Args:
        array: Large binary of JSONB.
        path: At least one.

    Returns:
        As many values, as JSONB; null where a document is, or has no such value. None if a document is not quite as it
        should be, which is left to the functions for one document.
    """
    rows = max(1, BLOCK_BYTES // max(1, array.nbytes // max(1, len(array))))
    try:
        parts = [_find(array.slice(row, rows), path) for row in range(0, len(array), rows)]
    except NotPlainError:
        return None
    return pa.concat_arrays(parts) if parts else pa.array([], pa.large_binary())


def lengths(values: pa.Array) -> pa.Array:
    """Return the number of items of arrays; 0 for other values, null for nulls."""
    memory, starts, _, is_valid = values_of(values)
    selection = slice(None) if is_valid is None else np.flatnonzero(is_valid)
    num_elements = np.zeros(len(values), np.int64)
    headers = gather_words(memory, starts[selection], ">u4").astype(np.int64)
    num_elements[selection] = np.where(headers >> 29 == ARRAY, headers & (1 << 29) - 1, 0)
    return pa.array(num_elements, mask=None if is_valid is None else ~is_valid)


def _find(array: pa.Array, path: Sequence[Step]) -> pa.Array:
    memory, starts, sizes, is_valid = values_of(array)
    rows: Int64s = np.arange(len(array)) if is_valid is None else np.flatnonzero(is_valid)
    starts, sizes, types = starts[rows], sizes[rows], np.full(len(rows), CONTAINER)
    for step in path:
        inner = types == CONTAINER
        level = find_level(memory, starts[inner], sizes[inner])
        hits = _hits(level, memory, step)
        rows = rows[inner][level.owners[hits]]
        starts, sizes, types = level.starts[hits], level.sizes[hits], level.types[hits]
    order = np.argsort(rows)
    return _documents(memory, len(array), *(array_part[order] for array_part in (rows, starts, sizes, types)))


def _hits(level: Level, memory: Bytes, step: Step) -> Int64s:
    """Return the elements to which a step leads, at most one of each value."""
    hit_rows: list[Int64s] = []
    if step.name is not None:
        name = np.frombuffer(step.name.encode(), np.uint8)
        keys = np.flatnonzero(level.is_key & (level.sizes == len(name)))
        for byte_index, byte in enumerate(name.tolist()):
            keys = keys[memory[level.starts[keys] + byte_index] == byte]
        hit_rows.append(keys + 1)  # each value follows its key
    if step.index is not None:
        counts = np.diff(level.firsts)
        wanted_indices = counts - 1 + step.index if step.is_last else np.full(len(counts), step.index)
        is_there = (level.kinds == ARRAY) & (wanted_indices >= 0) & (wanted_indices < counts)
        hit_rows.append((level.firsts[:-1] + wanted_indices)[is_there])
    return np.concatenate(hit_rows) if hit_rows else np.empty(0, np.int64)


def _documents(memory: Bytes, num_rows: int, *elements: Int64s) -> pa.Array:
    """Return elements as documents of their own: arrays and objects as they are, others behind a header."""
    rows, starts, sizes, types = elements
    # The size of each document is known before, and with it where each begins: headers and contents of all rows are
    # then written by one assignment each. Rows without an element keep a length of 0 and are null.
    is_alone = types != CONTAINER
    all_lengths = np.zeros(num_rows, np.int64)
    all_lengths[rows] = sizes + 8 * is_alone
    offsets = starts_of(all_lengths)
    at = offsets[:-1][rows]
    out = np.empty(int(offsets[-1]), np.uint8)
    headers = np.empty((int(is_alone.sum()), 2), ">u4")
    headers[:, 0] = SCALAR << 29
    headers[:, 1] = types[is_alone] << 28 | sizes[is_alone]
    out[at[is_alone, None] + np.arange(8)] = headers.view(np.uint8).reshape(len(headers), 8)
    out[aranges(at + 8 * is_alone, sizes)] = memory[aranges(starts, sizes)]
    is_found = np.zeros(num_rows, np.bool_)
    is_found[rows] = True
    buffers = [to_bitmap(is_found), pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.large_binary(), num_rows, buffers)
