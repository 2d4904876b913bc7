"""Consecutive rows of a column, of which only some are wanted, or only what is asked of them; pure.

Items of dictionaries are looked up late: what is left out costs no look-up, and what is asked of values can be asked of
each item once.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lance_core.encoding.arrow_values import from_values, settled
from lance_core.encoding.coded import Coded
from lance_core.encoding.kernels import empty, starts_of
from lance_core.encoding.layouts.page import pick, to_arrow
from lance_core.encoding.repdef import check_levels, unravel
from lance_core.encoding.values import DictionaryValues
from lance_core.errors import CorruptDataError
from lance_core.file.read.plan import ConstantGroup, MiniBlockGroup, items_of, plan_groups

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_core.encoding.layouts.shared_levels import SharedLevels
    from lance_core.encoding.plans import Found, Plan, Steps
    from lance_core.encoding.values import Int64s
    from lance_core.file.read.plan import Column, Group


def plan_kept(column: Column, rows: range, kept: Int64s, shared: SharedLevels | None = None) -> Plan:
    """Read consecutive rows of a column, and leave out some as early as that is cheap.

    Args:
        column: The column.
        rows: The rows.
        kept: Which of them are wanted: counted from the first, ascending.
        shared: Knows the levels of other leaves of the same field.

    Returns:
        Arrays (`page.to_arrow`) that hold the rows that are kept, one after the other.
    """
    groups = yield from plan_groups(column, rows)
    places = items_of(kept, column.path.items_per_row)
    bounds = starts_of(np.array([group.count for group, _ in groups]))
    ends = places.searchsorted(bounds)
    return [
        _decode_kept(group, found, places[low:high], first, shared)
        for (group, found), first, (low, high) in zip(groups, bounds[:-1].tolist(), pairwise(ends), strict=True)
    ]


def _decode_kept(group: Group, found: Found, kept: Int64s, first: int, shared: SharedLevels | None) -> pa.Array:
    """Some rows of a group, counted from where it begins: at ``first``."""
    if isinstance(group, ConstantGroup) and len(kept):
        return group.of(_moved(kept, -first)).decode(found)
    if not isinstance(group, MiniBlockGroup) or group.has_lists or not len(kept):
        per_row = group.column.path.items_per_row  # other pages than mini-blocks hold whole rows
        rows = _moved(kept, -first)
        return pick(settled(group.decode(found, shared)), rows if per_row == 1 else rows[::per_row] // per_row)
    decoded = group.decode_values(found, _moved(kept, int(group.selection.rows[0]) - first))
    return to_arrow(decoded, group.column.path, group.column.kind, len(kept))


def _moved(places: Int64s, by: int) -> Int64s:
    return np.add(places, by, out=empty(len(places), np.int64)) if by else places


def plan_coded(column: Column, rows: range) -> Steps[list[pa.Array | Coded]]:
    """Read consecutive rows of a column with nothing around its leaf.

    Returns:
        The rows, one after the other: arrays, and places among the items of dictionaries.
    """
    return [_decode_coded(group, found) for group, found in (yield from plan_groups(column, rows))]


def _decode_coded(group: Group, found: Found) -> pa.Array | Coded:
    column = group.column
    if not isinstance(group, MiniBlockGroup) or not group.has_dictionary or column.is_dictionary:
        return group.decode(found)
    decoded, here = group.decode_values(found, None, keeps_dictionary=True), slice(*group.bounds)
    values = decoded.values
    if not isinstance(values, DictionaryValues):
        raise CorruptDataError(f"field {column.path.leaf.name!r}: a page with a dictionary has none")
    check_levels(decoded.levels)
    validity = unravel(decoded.levels, decoded.num_slots)[0].validity
    items = from_values(values.items, column.kind, None, len(values.items))
    return Coded(items, values.indices.data[here], None if validity is None else validity[here])
