"""Deleted rows of a fragment as arrays, and arithmetic between live positions and row offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lance_core.format.table.deletion import bitmap_to_numpy
from lance_core.table import rebase

if TYPE_CHECKING:
    from lance_core.format.table.fragment import Fragment
    from lance_core.store.base import Store

Offsets = npt.NDArray[np.int64]
"""Row offsets in a fragment, ascending, without duplicates."""


def load_deletions(store: Store, fragment: Fragment) -> Offsets:
    """Offsets of a fragment's deleted rows, shape (num_deleted_rows,).

    Raises:
        CorruptDataError: The deletion file is damaged or does not fit the fragment.
        NotFoundError: It is not there.
    """
    if fragment.deletion_file is None:
        return np.empty(0, np.int64)
    return bitmap_to_numpy(rebase.load_deletions(store, fragment)).astype(np.int64)


def live_mask(deleted: Offsets, start: int, end: int) -> npt.NDArray[np.bool_] | None:
    """Return a mask of the rows of [start, end) that are not deleted, shape (end - start,); None if all are live."""
    first, last = np.searchsorted(deleted, (start, end))
    if first == last:
        return None
    live = np.ones(end - start, np.bool_)
    live[deleted[first:last] - start] = False
    return live


def offsets_of_live(deleted: Offsets, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Row offsets of live rows.

    Args:
        deleted: Deleted rows of the fragment.
        positions: Places among the rows that are left, from 0.
    """
    live_before = deleted - np.arange(len(deleted))
    return positions + np.searchsorted(live_before, positions, side="right")


def contains(ascending: Offsets, values: Offsets) -> npt.NDArray[np.bool_]:
    """Return for each value whether it is among some ascending and distinct numbers."""
    if not len(ascending):
        return np.zeros(len(values), np.bool_)
    if ascending[-1] - ascending[0] == len(ascending) - 1:
        return (values >= ascending[0]) & (values <= ascending[-1])
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return ascending[at] == values
