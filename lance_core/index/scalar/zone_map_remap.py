"""Make a zone map of others: to merge them, or after rows moved.

Zones stay valid when they lose rows or are cut at a new fragment: smallest and largest value hold for each part. Nulls
are counted again from the null bitmap.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.errors import UnsupportedError
from lance_core.index.answer import ADDRESS_SHIFT, OFFSET_MASK
from lance_core.index.order import sort_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_core.index.protocol import Relocation
    from lance_core.index.scalar.zone_table import ZoneTable

Int64s: TypeAlias = npt.NDArray[np.int64]
_BATCH_ROWS = 1 << 20


@frozen(kw_only=True)
class MovedZones:
    """Zones where their rows are now, in any order.

    Attributes:
        first: Shape (zones,), address of the first row of each.
        length: Shape (zones,).
        nan_count: Shape (zones,).
        minimum: One value for each zone.
        maximum: Likewise.
        nulls: Addresses of the null rows, ascending.
    """

    first: Int64s
    length: Int64s
    nan_count: Int64s
    minimum: pa.Array
    maximum: pa.Array
    nulls: Int64s

    @property
    def null_count(self) -> Int64s:
        """Shape (zones,)."""
        starts, ends = (np.searchsorted(self.nulls, rows) for rows in (self.first, self.first + self.length))
        return ends - starts


def moved_zones(table: ZoneTable, nulls: Int64s | None, relocate: Relocation) -> MovedZones:
    """Return the zones of a segment where their rows are now.

    Args:
        table: The zones.
        nulls: Addresses of the null rows; None if the file does not tell.
        relocate: New address of each row address, -1 if the row is gone.

    Raises:
        UnsupportedError: The nulls or NaN of the new zones cannot be counted without reading the column.
    """
    if nulls is None and table.null_count.any():
        raise UnsupportedError("the zone map does not tell which rows are null; build it again")
    base = table.fragment_ids << ADDRESS_SHIFT
    zone, first, length = moved_runs(base + table.starts, base + table.ends, relocate)
    moved_nulls = np.empty(0, np.int64) if nulls is None else relocate(nulls)
    moved_nulls = np.sort(moved_nulls[moved_nulls >= 0])
    whole = length == (table.ends - table.starts)[zone]
    values = length - (np.searchsorted(moved_nulls, first + length) - np.searchsorted(moved_nulls, first))
    before = (table.ends - table.starts - table.null_count)[zone]
    nans = table.nan_count[zone]
    has_some = (nans > 0) & (nans < before) & ~whole
    if (has_some & (values == 1)).any():
        raise UnsupportedError("the zone map does not tell which rows are NaN; build it again")
    # NaN and numbers may be left: a count between none and all claims neither.
    nans = np.where(has_some, np.clip(nans, 1, np.maximum(values - 1, 1)), np.minimum(nans, values))
    nans[values == 0] = 0
    indices = pa.array(zone)
    return MovedZones(
        first=first,
        length=length,
        nan_count=nans,
        minimum=table.minimum.take(indices),
        maximum=table.maximum.take(indices),
        nulls=moved_nulls,
    )


def moved_runs(starts: Int64s, ends: Int64s, relocate: Relocation) -> tuple[Int64s, Int64s, Int64s]:
    """Return the runs of rows of zones that are side by side where they are now.

    Args:
        starts: Shape (zones,), address of the first row of each.
        ends: Shape (zones,), behind the last one.
        relocate: New address of each row address, -1 if the row is gone.

    Returns:
        Zone, address of the first row, and length of each run.
    """
    parts = list(_runs(starts, ends - starts, relocate))
    zone, first, length = (np.concatenate([np.empty(0, np.int64), *(part[at] for part in parts)]) for at in range(3))
    return zone, first, length


def _runs(begins: Int64s, lengths: Int64s, relocate: Relocation) -> Iterator[tuple[Int64s, Int64s, Int64s]]:
    # All rows of some zones are numbered through and relocated at once. A run of new addresses ends where the next one
    # is not larger by 1, or belongs to another zone; deleted rows (negative addresses) are left out first.
    edges = np.searchsorted(np.cumsum(lengths), np.arange(_BATCH_ROWS, lengths.sum() + _BATCH_ROWS, _BATCH_ROWS))
    cuts = np.unique(np.concatenate([[0], np.minimum(edges + 1, len(lengths))])).tolist()
    for low, high in pairwise(cuts):
        size = lengths[low:high]
        zones = np.repeat(np.arange(low, high), size)
        rows = np.arange(size.sum()) + np.repeat(begins[low:high] - (np.cumsum(size) - size), size)
        after = relocate(rows)
        left = after >= 0
        after, zones = after[left], zones[left]
        if not len(after):
            continue
        is_start = np.ones(len(after), np.bool_)
        is_start[1:] = (np.diff(after) != 1) | (np.diff(zones) != 0)
        starts = np.flatnonzero(is_start)
        yield zones[starts], after[starts], np.diff(starts, append=len(after))


def joined(parts: list[MovedZones], kind: pa.DataType) -> MovedZones:
    """Return the zones of several segments as one, in order."""
    empty = np.empty(0, np.int64)
    first = np.concatenate([empty, *(part.first for part in parts)])
    order = np.argsort(first)
    indices = pa.array(order)
    return MovedZones(
        first=first[order],
        length=np.concatenate([empty, *(part.length for part in parts)])[order],
        nan_count=np.concatenate([empty, *(part.nan_count for part in parts)])[order],
        minimum=pa.concat_arrays([pa.array([], kind), *(part.minimum for part in parts)]).take(indices),
        maximum=pa.concat_arrays([pa.array([], kind), *(part.maximum for part in parts)]).take(indices),
        nulls=np.sort(np.concatenate([empty, *(part.nulls for part in parts)])),
    )


def widened(zones: MovedZones, rows_per_zone: int) -> MovedZones:
    """Return the same with neighbours as one zone, as long as it has no more than ``rows_per_zone`` rows."""
    groups = first_of_groups(zones.first, zones.length, rows_per_zone)
    if len(groups) == len(zones.first):
        return zones
    return MovedZones(
        first=zones.first[groups],
        length=np.add.reduceat(zones.length, groups),
        nan_count=np.add.reduceat(zones.nan_count, groups),
        minimum=_extreme(zones.minimum, groups, largest=False),
        maximum=_extreme(zones.maximum, groups, largest=True),
        nulls=zones.nulls,
    )


def first_of_groups(first: Int64s, length: Int64s, rows_per_zone: int) -> Int64s:
    """Return the first zone of each group of neighbours with at most ``rows_per_zone`` rows together.

    Args:
        first: Shape (zones,), address of the first row of each, ascending.
        length: Shape (zones,).
        rows_per_zone: Most rows.
    """
    begins: list[int] = []
    end, rows = -1, 0
    for number, (start, count) in enumerate(zip(first.tolist(), length.tolist(), strict=True)):
        if start != end or rows + count > rows_per_zone or not start & OFFSET_MASK:
            begins.append(number)
            rows = 0
        rows += count
        end = start + count
    return np.array(begins, np.int64)


def _extreme(values: pa.Array, groups: Int64s, *, largest: bool) -> pa.Array:
    """Return the smallest or largest value of each group; null if all are null."""
    order = np.asarray(sort_order(values))
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.arange(len(values))
    if not largest:  # nulls come first in the order
        ranks[np.asarray(values.is_null())] = len(values)
    kernel = np.maximum if largest else np.minimum
    firsts = kernel.reduceat(ranks, groups)
    is_null = firsts == len(values)
    return values.take(pa.array(order[np.where(is_null, 0, firsts)], mask=is_null))
