"""Row addresses before and after fragments were rewritten."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import frozen
from lance_core.common.limits import check_limit
from lance_core.encoding.kernels import distinct
from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.format.index.row_sets import decode_row_treemap, rows_of_treemap
from lance_core.index.answer import ADDRESS_SHIFT, OFFSET_MASK, RowAnswer, of_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lance_core.format.table.fragment_reuse import ReuseGroup

Int64s: TypeAlias = npt.NDArray[np.int64]
_NO_ROWS = np.empty(0, np.int64)
_MOST_IDS_IN_TABLE = 1 << 16


@frozen(kw_only=True)
class MovedGroup:
    """Fragments that were rewritten together.

    Attributes:
        ids: Fragments before, in the order of their rows.
        num_rows: Physical rows of each.
        deleted: Offsets of the deleted rows of each, ascending.
        new_ids: Fragments after, in the order of their rows.
        new_num_rows: Rows of each.
    """

    ids: Sequence[int]
    num_rows: Sequence[int]
    deleted: Sequence[Int64s]
    new_ids: Sequence[int]
    new_num_rows: Sequence[int]


class RowMoves:
    """New addresses of the rows of rewritten fragments; rows of all other fragments stay where they are.

    The live rows of the old fragments and the rows of the new ones are in the same order. So a row is known by its
    position among all live rows of the rewrite: its offset less the deleted rows before it.

    Args:
        groups: The old fragments, and the new ones with their ids.

    Raises:
        InvalidInputError: A group has another number of rows before and after, or two have the same fragment.
    """

    def __init__(self, groups: Sequence[MovedGroup]) -> None:
        for group in groups:
            before = sum(group.num_rows) - sum(map(len, group.deleted))
            after = sum(group.new_num_rows)
            if before != after:
                raise InvalidInputError(f"a rewrite replaces {before:,} rows by {after:,}; both must be the same rows")
        ids = np.array([fragment_id for group in groups for fragment_id in group.ids], np.int64)
        if len(distinct(ids)) < len(ids):
            raise InvalidInputError("a rewrite replaces a fragment twice")
        num_rows = np.array([count for group in groups for count in group.num_rows], np.int64)
        deleted = [rows for group in groups for rows in group.deleted]
        live = num_rows - np.array([len(rows) for rows in deleted], np.int64)
        order = np.argsort(ids)
        self._ids, self._num_rows, counts = ids[order], num_rows[order], live[order]
        firsts = _starts(live)[order]
        deleted = [deleted[at] for at in order.tolist()]
        self._deleted = np.concatenate(
            [_NO_ROWS, *(rows + (first << ADDRESS_SHIFT) for rows, first in zip(deleted, self._ids, strict=True))]
        )
        # What turns the address of a live row into its position, but for the deleted rows before it in all fragments.
        self._to_position = firsts + _starts([len(rows) for rows in deleted]) - (self._ids << ADDRESS_SHIFT)
        new_num_rows = [count for group in groups for count in group.new_num_rows]
        self._new_starts = _starts(new_num_rows)
        self._num_live = sum(new_num_rows)
        new_ids = np.array([fragment_id for group in groups for fragment_id in group.new_ids], np.int64)
        self._to_address = (new_ids << ADDRESS_SHIFT) - self._new_starts
        self._owners = FragmentPlaces(self._ids)
        self._shifts = self._common_shifts(firsts, counts)
        """What turns an address into the new one, if no fragment was split."""

    def _common_shifts(self, firsts: Int64s, counts: Int64s) -> Int64s | None:
        if not self._num_live:
            return np.zeros(len(firsts), np.int64)
        firsts = np.minimum(firsts, self._num_live - 1)
        begins, ends = self._new_fragment(firsts), self._new_fragment(firsts + np.maximum(counts, 1) - 1)
        return self._to_position + self._to_address[begins] if (begins == ends).all() else None

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
        if ((addresses & OFFSET_MASK) >= self._num_rows[numbers]).any():
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
        return positions + self._to_address[self._new_fragment(np.minimum(positions, self._num_live - 1))]

    def _new_fragment(self, positions: Int64s) -> Int64s:
        return np.searchsorted(self._new_starts, positions, side="right") - 1

    # ------------------------------------------------------------------------------------------------------- answers

    def answer(self, answer: RowAnswer) -> RowAnswer:
        """Return an answer by old addresses as one by new addresses.

        An index may hold old and new addresses of different rows. The code of rows that it does not name is that
        behind all rows, see `lance_core.index.answer.of_rows`; a row has the other code if either address has.
        """
        elsewhere = int(answer.codes[-1])
        starts = self._ids << ADDRESS_SHIFT
        ends = starts + self._num_rows
        bounds = distinct(np.concatenate([answer.bounds, starts, ends]))
        codes, owners = answer.at(bounds), self._owners.of(bounds)
        is_old = np.zeros(len(bounds), np.bool_)
        owned = np.flatnonzero(owners >= 0)
        is_old[owned] = bounds[owned] < ends[owners[owned]]
        chosen = np.flatnonzero(is_old & (codes != elsewhere))
        moved = self._ranges(bounds[chosen], bounds[np.minimum(chosen + 1, len(bounds) - 1)], codes[chosen], elsewhere)
        every = distinct(np.concatenate([bounds, moved.bounds]))
        stayed = answer.at(every)
        owners = self._owners.of(every)
        stayed[(owners >= 0) & (every < ends[owners])] = elsewhere
        moved_codes = moved.at(every)
        merged = np.where(moved_codes != elsewhere, moved_codes, stayed)
        return RowAnswer(bounds=every, codes=np.concatenate([answer.codes[:1], merged]), is_exact=answer.is_exact)

    def _ranges(self, starts: Int64s, ends: Int64s, codes: npt.NDArray[np.uint8], elsewhere: int) -> RowAnswer:
        """Return ranges of rows of old fragments, each in one of them, at their new addresses."""
        # Live rows are numbered through in the order of the old fragments, without deleted ones: ranges stay ranges
        # there. They are cut where new fragments begin, since only inside of one do addresses follow each other.
        shift = self._to_position[self._owners.of(starts)]
        lows = starts + shift - np.searchsorted(self._deleted, starts)
        highs = ends + shift - np.searchsorted(self._deleted, ends)
        order = np.argsort(lows, kind="stable")
        order = order[lows[order] < highs[order]]
        positions = of_ranges(lows[order], highs[order], codes[order], elsewhere=elsewhere)
        cuts = distinct(np.concatenate([positions.bounds, self._new_starts, [self._num_live]]))
        new_codes = positions.at(cuts[:-1])
        named = np.flatnonzero(new_codes != elsewhere)
        firsts = cuts[named] + self._to_address[self._new_fragment(cuts[named])]
        order = np.argsort(firsts)
        behind = firsts + cuts[named + 1] - cuts[named]
        return of_ranges(firsts[order], behind[order], new_codes[named][order], elsewhere=elsewhere)


def moves_of_reuse(groups: Iterable[ReuseGroup]) -> RowMoves | None:
    """Return the moves of one version of a fragment reuse index; None if it replaced no fragment.

    Raises:
        CorruptDataError: Its sets of rows and its fragments contradict each other.
    """
    made = [_of_reuse(group, "the fragment reuse index") for group in groups]
    try:
        return RowMoves(made) if any(group.ids for group in made) else None
    except InvalidInputError as error:
        raise CorruptDataError(f"the fragment reuse index is damaged: {error.message}") from error


def _of_reuse(group: ReuseGroup, path: str) -> MovedGroup:
    live = rows_of_treemap(decode_row_treemap(group.live_rows, path=path)) if group.live_rows else _NO_ROWS
    old = sorted(group.old_fragments, key=lambda fragment: fragment.id)
    deleted: list[Int64s] = []
    count = 0
    for fragment in old:
        first = fragment.id << ADDRESS_SHIFT
        check_limit("max_decompressed_bytes", fragment.physical_rows, "rows of a fragment", path=path)
        low, high = np.searchsorted(live, [first, first + fragment.physical_rows]).tolist()
        is_deleted = np.ones(fragment.physical_rows, np.bool_)
        is_deleted[live[low:high] - first] = False
        deleted.append(np.flatnonzero(is_deleted))
        count += high - low
    if count != len(live):
        raise CorruptDataError("the fragment reuse index has rows behind the last one of a fragment", path=path)
    return MovedGroup(
        ids=[fragment.id for fragment in old],
        num_rows=[fragment.physical_rows for fragment in old],
        deleted=deleted,
        new_ids=[fragment.id for fragment in group.new_fragments],
        new_num_rows=[fragment.physical_rows for fragment in group.new_fragments],
    )


class RowPositions:
    """Positions of rows among those of some fragments, which follow one another.

    Args:
        ids: Shape (n,), the fragments, ascending.
        num_rows: Shape (n,), physical rows of each.
    """

    def __init__(self, ids: Int64s, num_rows: Int64s) -> None:
        self._owners = FragmentPlaces(ids)
        self._ids = ids
        self._num_rows = num_rows
        self.starts = np.cumsum(num_rows) - num_rows
        """Shape (n,), position of the first row of each fragment."""
        self.total = int(num_rows.sum())
        """Rows of all fragments."""

    def of(self, addresses: Int64s) -> Int64s:
        """Return the position of each row; -1 for rows of other fragments and behind the last one of a fragment."""
        numbers, offsets = self._owners.of(addresses), addresses & OFFSET_MASK
        is_there = (numbers >= 0) & (offsets < self._num_rows[numbers])
        return np.where(is_there, self.starts[numbers] + offsets, -1)

    def start(self, fragment_id: int) -> int:
        """Return the position of the first row of a fragment, which must be there."""
        return int(self.starts[np.searchsorted(self._ids, fragment_id)])

    def addresses(self, positions: Int64s) -> Int64s:
        """Return the address of each row, from positions of 0 and more."""
        numbers = np.searchsorted(self.starts, positions, side="right") - 1
        return (self._ids[numbers] << ADDRESS_SHIFT) + positions - self.starts[numbers]


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


def _starts(lengths: Sequence[int] | Int64s) -> Int64s:
    return np.cumsum(np.concatenate([[0], lengths]), dtype=np.int64)[:-1]
