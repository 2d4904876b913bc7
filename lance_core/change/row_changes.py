"""Rows that differ between two versions of a table, for change feeds.

Rows are known by their stable ids. Without them a row is known by its address, which it keeps until it is rewritten:
then an updated row is one deleted and one inserted.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import frozen
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.open_files import OpenFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lance_core.format.table.fragment import Fragment
    from lance_core.table.snapshot import Snapshot

    Int64s = npt.NDArray[np.int64]
    UInt64s = npt.NDArray[np.uint64]

_ADDRESS_SHIFT = 32

Number = TypeVar("Number", np.int64, np.uint64)


class ChangeType(StrEnum):
    """Kind of change to a row; named as in Delta's change data feed."""

    INSERT = "insert"
    DELETE = "delete"
    UPDATE_PREIMAGE = "update_preimage"
    UPDATE_POSTIMAGE = "update_postimage"


@frozen(kw_only=True)
class ChangedRows:
    """Rows of one fragment to which the same happened.

    Attributes:
        change: What happened.
        fragment: Of the newer version; of the older one for deleted rows and preimages.
        offsets: Their offsets, ascending; None for all rows of the fragment that are left.
    """

    change: ChangeType
    fragment: Fragment
    offsets: Int64s | None = None


def compare_rows(begin: Snapshot, end: Snapshot) -> list[ChangedRows]:
    """List the changes to the rows of a table between two versions.

    Values are not compared: a row differs if its row version does. Fragments that both versions have alike are not
    looked at. Ids and row versions of the others are held in memory.

    Args:
        begin: The older version.
        end: The newer one.
    """
    is_stable = begin.manifest.uses_stable_row_ids and end.manifest.uses_stable_row_ids
    older = {fragment.id: fragment for fragment in begin.manifest.fragments}
    newer = {fragment.id: fragment for fragment in end.manifest.fragments}
    before = _Rows(
        [fragment for fragment in older.values() if newer.get(fragment.id) != fragment], begin, is_stable=is_stable
    )
    after = _Rows(
        [fragment for fragment in newer.values() if older.get(fragment.id) != fragment], end, is_stable=is_stable
    )
    _, mine, theirs = np.intersect1d(before.ids, after.ids, assume_unique=True, return_indices=True)
    changed = before.versions[mine] != after.versions[theirs]
    return [
        *before.pick(np.setdiff1d(np.arange(len(before.ids)), mine, assume_unique=True), ChangeType.DELETE),
        *before.pick(np.sort(mine[changed]), ChangeType.UPDATE_PREIMAGE),
        *after.pick(np.sort(theirs[changed]), ChangeType.UPDATE_POSTIMAGE),
        *after.pick(np.setdiff1d(np.arange(len(after.ids)), theirs, assume_unique=True), ChangeType.INSERT),
    ]


def all_rows(fragments: Iterable[Fragment], change: ChangeType) -> list[ChangedRows]:
    """Return the same happened to all rows of some fragments."""
    return [ChangedRows(change=change, fragment=owner) for owner in fragments if owner.num_rows]


class _Rows:
    """The rows that are left in some fragments, one after another.

    Attributes:
        ids: Shape (rows,), stable ids, or addresses.
        versions: Shape (rows,), version that last changed each row; 0 if nothing tells.
    """

    def __init__(self, fragments: Sequence[Fragment], snapshot: Snapshot, *, is_stable: bool) -> None:
        files = OpenFiles(snapshot.store)
        self._fragments = fragments
        parts = [_left(FragmentReader(files, fragment), is_stable=is_stable) for fragment in fragments]
        self._offsets = _joined([part[0] for part in parts], np.int64)
        self.ids = _joined([part[1] for part in parts], np.uint64)
        self.versions = _joined([part[2] for part in parts], np.uint64)
        self._ends = np.cumsum([len(part[0]) for part in parts], dtype=np.int64)

    def pick(self, rows: Int64s, change: ChangeType) -> list[ChangedRows]:
        """Return some of the rows, by fragment; ``rows`` ascend."""
        cuts = np.searchsorted(rows, self._ends)
        changes: list[ChangedRows] = []
        for fragment, fragment_rows in zip(self._fragments, np.split(rows, cuts), strict=False):
            if len(fragment_rows):
                changes.append(ChangedRows(change=change, fragment=fragment, offsets=self._offsets[fragment_rows]))
        return changes


def _left(reader: FragmentReader, *, is_stable: bool) -> tuple[Int64s, UInt64s, UInt64s]:
    """Offsets, ids and versions of the rows that are left in a fragment."""
    num_rows = reader.fragment.physical_rows
    live = reader.live_mask(0, num_rows)
    offsets = np.arange(num_rows) if live is None else np.flatnonzero(live)
    if not is_stable:
        ids = offsets.astype(np.uint64) + np.uint64(reader.fragment.id << _ADDRESS_SHIFT)
        return offsets, ids, np.zeros(len(offsets), np.uint64)
    return offsets, reader.stable_row_ids[offsets], reader.updated_versions[offsets]


def _joined(parts: Sequence[npt.NDArray[Number]], dtype: type[Number]) -> npt.NDArray[Number]:
    return np.concatenate(parts) if parts else np.empty(0, dtype)
