"""Row addresses before and after fragments were rewritten."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.index.answer import ADDRESS_SHIFT
from lance_core.scan.fragment_reader import FragmentReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.format.operations import RewriteGroup
    from lance_core.scan.open_files import OpenFiles

Int64s: TypeAlias = npt.NDArray[np.int64]
_NO_ROWS = np.empty(0, np.int64)
_MOST_IDS_IN_TABLE = 1 << 16
_OFFSET_MASK = (1 << ADDRESS_SHIFT) - 1


class RowMoves:
    """New addresses of the rows of rewritten fragments; rows of all other fragments stay where they are.

    The live rows of the old fragments and the rows of the new ones are in the same order. So a row is known by its
    position among all live rows of the rewrite: its offset less the deleted rows before it.

    Args:
        files: The dataset's open files.
        groups: The old fragments, and the new ones with their ids.

    Raises:
        InvalidInputError: A group has another number of rows before and after.
    """

    def __init__(self, files: OpenFiles, groups: Sequence[RewriteGroup]) -> None:
        for group in groups:
            before = sum(fragment.num_rows for fragment in group.old_fragments)
            after = sum(fragment.physical_rows for fragment in group.new_fragments)
            if before != after:
                raise InvalidInputError(f"a rewrite replaces {before:,} rows by {after:,}; both must be the same rows")
        old = [fragment for group in groups for fragment in group.old_fragments]
        new = [fragment for group in groups for fragment in group.new_fragments]
        ids = np.array([fragment.id for fragment in old], np.int64)
        positions = _starts([fragment.num_rows for fragment in old])
        order = np.argsort(ids)
        self._ids = ids[order]
        deleted = [FragmentReader(files, old[at]).deleted for at in order.tolist()]
        self._deleted = np.concatenate(
            [_NO_ROWS, *(rows + (first << ADDRESS_SHIFT) for rows, first in zip(deleted, self._ids, strict=True))]
        )
        counts = np.array([fragment.num_rows for fragment in old], np.int64)[order]
        firsts = positions[order]
        # What turns the address of a live row into its position, but for the deleted rows before it in all fragments.
        self._to_position = firsts + _starts([len(rows) for rows in deleted]) - (self._ids << ADDRESS_SHIFT)
        self._num_rows = np.array([fragment.physical_rows for fragment in old], np.int64)[order]
        self._new_starts = _starts([fragment.physical_rows for fragment in new])
        new_ids = np.array([fragment.id for fragment in new], np.int64)
        self._to_address = (new_ids << ADDRESS_SHIFT) - self._new_starts
        self._owners = FragmentPlaces(self._ids)
        begins, ends = self._new_fragment(firsts), self._new_fragment(firsts + np.maximum(counts, 1) - 1)
        self._shifts = self._to_position + self._to_address[begins] if (begins == ends).all() else None
        """What turns an address into the new one, if no fragment was split."""

    def __call__(self, addresses: Int64s) -> Int64s:
        """Return the new address of each row address; -1 if the row was deleted.

        Raises:
            CorruptDataError: An address is behind the last row of a fragment.
        """
        numbers = self._owners.of(addresses)
        is_moved = numbers >= 0
        if is_moved.all():
            return self._moved(addresses, numbers)
        after = addresses.copy()
        after[is_moved] = self._moved(addresses[is_moved], numbers[is_moved])
        return after

    def _moved(self, addresses: Int64s, numbers: Int64s) -> Int64s:
        if ((addresses & _OFFSET_MASK) >= self._num_rows[numbers]).any():
            raise CorruptDataError("an index has rows behind the last one of a fragment")
        if not len(self._deleted):
            return self._placed(addresses, numbers, None)
        before = np.searchsorted(self._deleted, addresses)
        is_deleted = self._deleted[np.minimum(before, len(self._deleted) - 1)] == addresses
        return np.where(is_deleted, -1, self._placed(addresses, numbers, before))

    def _placed(self, addresses: Int64s, numbers: Int64s, before: Int64s | None) -> Int64s:
        """Return the new addresses of live rows; ``before`` are the deleted rows before each."""
        if self._shifts is not None:
            after = addresses + self._shifts[numbers]
            return after if before is None else after - before
        positions = addresses + self._to_position[numbers]
        if before is not None:
            positions -= before
        return positions + self._to_address[self._new_fragment(positions)]

    def _new_fragment(self, positions: Int64s) -> Int64s:
        return np.searchsorted(self._new_starts, positions, side="right") - 1


class FragmentPlaces:
    """Finds the place of a row's fragment among some fragments.

    Args:
        ids: Their ids, ascending.
    """

    def __init__(self, ids: Int64s) -> None:
        self._ids = ids
        self._first = int(ids[0])
        span = int(ids[-1]) - self._first + 1
        self._table: Int64s | None = None
        if span <= _MOST_IDS_IN_TABLE:  # three times as fast as a search, and the ids are mostly close together
            self._table = np.full(span + 2, -1, np.int64)
            self._table[ids - self._first + 1] = np.arange(len(ids))

    def of(self, addresses: Int64s) -> Int64s:
        """Return the place of the fragment of each row address; -1 for other fragments."""
        owners = addresses >> ADDRESS_SHIFT
        if self._table is not None:
            return self._table[np.clip(owners - self._first + 1, 0, len(self._table) - 1)]
        numbers = np.minimum(np.searchsorted(self._ids, owners), len(self._ids) - 1)
        return np.where(self._ids[numbers] == owners, numbers, -1)


def _starts(lengths: list[int]) -> Int64s:
    return np.cumsum([0, *lengths], dtype=np.int64)[:-1]
