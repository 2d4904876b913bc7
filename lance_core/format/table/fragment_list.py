"""The fragments of a manifest: one stretch of encoded records, decoded one at a time when asked for.

A table may have 100,000 fragments. Nothing here is made for each of them unless it is asked for: where the records
lie and the numbers in them are arrays, and a list in which some fragments changed shares the bytes of the others.

Source: field ``fragments`` of message ``Manifest`` of package ``lance.table``.
"""

from __future__ import annotations

from operator import lt
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from lance_core._proto import table_pb2
from lance_core.errors import CorruptDataError
from lance_core.format import wire
from lance_core.format.table import fragment_numbers
from lance_core.format.table.fragment import Fragment, decode_fragment, encode_fragment
from lance_core.format.table.fragment_numbers import (
    HAS_DELETIONS,
    HAS_EXTERNAL_SEQUENCE,
    HAS_ROW_IDS,
    ID,
    LINEAGE,
    NUM_DELETED_ROWS,
    NUM_ROWS_OF_SCAN,
    PHYSICAL_ROWS,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

FRAGMENTS_FIELD = 2
"""Number of the field in ``Manifest``."""

_MOST_PARTS = 64
_SMALL_LIST_BYTES = 1 << 15
"""A list of more pieces, or of so few bytes, is laid together, so that a long row of appends does not become slow."""
_BLOCK = 1 << 13
_SMALL_LIST = 1 << 6
"""Up to so many fragments, parsing them costs less than a look at the bytes of all at once."""
_FILES, _SIZE = 2, 6


class FragmentList:
    """The fragments of a manifest.

    Behaves as an immutable sequence of ``Fragment``. Nobody outside sees the records, except the manifest, which
    copies those that did not change.
    """

    __slots__ = (
        "_ascends",
        "_bounds",
        "_checked_for",
        "_data",
        "_highest_id",
        "_incomplete",
        "_numbers",
        "_parts",
        "_starts",
    )

    def __init__(self, records: Iterable[bytes] = ()) -> None:
        """Wrap encoded ``DataFragment`` messages."""
        frames, self._bounds = wire.frame(list(records), FRAGMENTS_FIELD)
        self._parts: tuple[bytes | memoryview, ...] = (frames,)
        self._data: wire.Bytes | None = None
        self._starts: wire.Ints | None = None
        self._numbers: tuple[npt.NDArray[np.int64], ...] = ()
        self._highest_id: int | None = None
        self._ascends = False  # unless that is known
        self._checked_for: bool | None = None
        self._incomplete: wire.Ints | None = None

    @classmethod
    def of(cls, fragments: Iterable[Fragment]) -> FragmentList:
        """Encode fragments."""
        return cls(encode_fragment(fragment) for fragment in fragments)

    @classmethod
    def framed(
        cls,
        parts: Iterable[bytes | memoryview],
        bounds: wire.Ints,
        *,
        numbers: tuple[npt.NDArray[np.int64], ...] = (),
        highest_id: int | None = None,
        ascends: bool = False,
        checked_for: bool | None = None,
        incomplete: wire.Ints | None = None,
    ) -> FragmentList:
        """Wrap records as they are in a manifest, each behind its key and length.

        Args:
            parts: Bytes that are the records when laid end to end.
            bounds: Where the first begins (0) and each ends, shape (n + 1,).
            numbers: What a scan would find, side by side, if it is known.
            highest_id: The highest fragment id, if it is known.
            ascends: Whether ids are known to ascend.
            checked_for: What `check` has found nothing wrong for.
            incomplete: What `incomplete` returns, if it is known.
        """
        fragments = cls()
        pieces = tuple(parts)
        is_joined = len(pieces) > _MOST_PARTS or (len(pieces) > 1 and bounds[-1] <= _SMALL_LIST_BYTES)
        fragments._parts = (b"".join(pieces),) if is_joined else pieces
        fragments._bounds, fragments._numbers, fragments._highest_id = bounds, numbers, highest_id
        fragments._ascends, fragments._checked_for, fragments._incomplete = ascends, checked_for, incomplete
        return fragments

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, index: int) -> Fragment:
        return decode_fragment(self._record(index))

    def __iter__(self) -> Iterator[Fragment]:
        view = self._view()
        for first in range(0, len(self), _BLOCK):
            starts, ends = self._contents()[first : first + _BLOCK], self._bounds[1:][first : first + _BLOCK]
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                yield decode_fragment(bytes(view[start:end]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FragmentList) or len(self) != len(other):
            return False
        return np.array_equal(self._bounds, other._bounds) and np.array_equal(self._bytes(), other._bytes())

    def __hash__(self) -> int:
        return hash(self._bytes().tobytes())

    def __repr__(self) -> str:
        return f"FragmentList({len(self)} fragments)"

    def __reduce__(self) -> tuple[object, ...]:
        return (FragmentList.framed, ((self._bytes().tobytes(),), self._bounds))

    @property
    def parts(self) -> tuple[bytes | memoryview, ...]:
        """The records as they are in a manifest, each behind its key and length, when laid end to end."""
        return self._parts

    @property
    def records(self) -> tuple[bytes, ...]:
        """The encoded messages."""
        data = self._bytes().tobytes()
        starts, ends = self._contents().tolist(), self._bounds[1:].tolist()
        return tuple([data[start:end] for start, end in zip(starts, ends, strict=True)])

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """Fragment ids, shape (n,)."""
        return self._scanned()[ID]

    @property
    def highest_id(self) -> int:
        """The highest fragment id; -1 if there is no fragment."""
        if self._highest_id is None:
            self._highest_id = max([int(piece[ID].max(initial=-1)) for piece in self._pieces()])
        return self._highest_id

    @property
    def highest_field_id(self) -> int:
        """The highest id of a field in any data file; -1 if there is none."""
        try:
            messages = [table_pb2.DataFragment.FromString(record) for record in self.records]
        except DecodeError as error:
            raise CorruptDataError(f"a fragment record cannot be decoded: {error}") from error
        return max([max(file.fields, default=-1) for pb in messages for file in pb.files], default=-1)

    @property
    def physical_rows(self) -> npt.NDArray[np.int64]:
        """Rows in the data files of each fragment, shape (n,)."""
        return self._scanned()[PHYSICAL_ROWS]

    @property
    def num_deleted_rows(self) -> npt.NDArray[np.int64]:
        """Deleted rows of each fragment, shape (n,)."""
        return self._scanned()[NUM_DELETED_ROWS]

    @property
    def num_rows(self) -> npt.NDArray[np.int64]:
        """Rows left in each fragment, shape (n,)."""
        return self.physical_rows - self.num_deleted_rows

    @property
    def total_num_rows(self) -> int:
        """Rows left in all fragments."""
        return sum(int(piece[PHYSICAL_ROWS].sum() - piece[NUM_DELETED_ROWS].sum()) for piece in self._pieces())

    @property
    def num_deletion_files(self) -> int:
        """Fragments that have a deletion file."""
        return sum(int(piece[HAS_DELETIONS].sum()) for piece in self._pieces())

    @property
    def has_deletions(self) -> bool:
        """True if any fragment has a deletion file."""
        return any(piece[HAS_DELETIONS].any() for piece in self._pieces())

    def incomplete(self) -> npt.NDArray[np.int64]:
        """Places of the fragments that leave out what only other files tell, ascending.

        That is how many rows there are or are deleted, as in manifests of pylance before 0.8, or ids or versions of
        rows.
        """
        if self._incomplete is None:
            is_incomplete = [
                (piece[PHYSICAL_ROWS] == 0)
                | (piece[HAS_DELETIONS] > (piece[NUM_DELETED_ROWS] > 0))
                | (piece[LINEAGE] > HAS_EXTERNAL_SEQUENCE)  # both bits
                for piece in self._pieces()
            ]
            self._incomplete = np.flatnonzero(
                is_incomplete[0] if len(is_incomplete) == 1 else np.concatenate(is_incomplete)
            )
        return self._incomplete

    def check(self, *, uses_stable_row_ids: bool) -> None:
        """Refuse what would be read as something else than was written.

        Args:
            uses_stable_row_ids: True if the rows of the table have ids of their own: then all fragments have them,
                else none.

        Raises:
            CorruptDataError: Two fragments have the same id, row ids are missing or must not be there, or more rows
                are deleted than there are.
        """
        if self._checked_for == uses_stable_row_ids:
            return
        if not self._is_ascending():
            ids, counts = np.unique(self.ids, return_counts=True)
            if len(ids) < len(self):
                raise CorruptDataError(
                    f"{counts.max()} fragments have the id {ids[counts.argmax()]}, as Lance 0.16 and earlier could "
                    "write it: row addresses mean several rows. Restore a version without it"
                )
        for piece in self._pieces():
            is_wrong = (piece[LINEAGE] & HAS_ROW_IDS) != uses_stable_row_ids
            if is_wrong.any():
                what, has = ("no row ids", "has") if uses_stable_row_ids else ("row ids", "has no")
                raise CorruptDataError(
                    f"fragment {piece[ID][is_wrong.argmax()]} has {what}, but the table {has} stable row ids (feature "
                    "flag 2)"
                )
            rows, deleted = piece[PHYSICAL_ROWS], piece[NUM_DELETED_ROWS]
            is_wrong = deleted > rows
            if is_wrong.any():
                index = int(is_wrong.argmax())
                raise CorruptDataError(
                    f"fragment {piece[ID][index]} has {rows[index]} rows, of which {deleted[index]} are deleted"
                )
        self._checked_for = uses_stable_row_ids

    def data_file_totals(self) -> tuple[int, int]:
        """Number of data files, and their bytes as far as writers recorded them; nothing is decoded one by one."""
        messages = self._as_messages()
        if messages is not None:
            sizes = [file.file_size_bytes for record in messages for file in record.files]
            return len(sizes), sum(sizes)
        data, count, size = self._bytes(), 0, 0
        for _, numbers, lengths, positions in wire.walk_fields(data, self._contents(), self._bounds[1:]):
            is_file = numbers == _FILES
            files = positions[is_file]
            file_sizes = wire.scan_fields(data, files, files + lengths[is_file], numbers=(_SIZE,))
            count += len(files)
            size += int(file_sizes[_SIZE][0].sum())
        return count, size

    def find(self, fragment_id: int) -> Fragment | None:
        """Return the fragment with this id, or None."""
        positions = self.positions([fragment_id])
        return self[positions[0]] if positions else None

    def select(self, fragment_ids: Collection[int]) -> list[Fragment]:
        """Return the fragments with these ids, in the order of the list; ids that are not there are left out."""
        return [self[index] for index in self.positions(fragment_ids)]

    def replaced(
        self,
        *,
        removed: Collection[int] = (),
        updated: Mapping[int, Fragment] | None = None,
        added: Iterable[Fragment] = (),
    ) -> FragmentList:
        """Return a list in which some fragments changed; the records of all others are copied as they are.

        Args:
            removed: Ids that leave.
            updated: New content by id.
            added: Fragments that join, with their final ids.

        Returns:
            The new list, ascending by id.
        """
        changed = updated or {}
        ids, positions = self.ids, self.positions(changed)
        new: dict[int, Fragment | None] = {position: changed[int(ids[position])] for position in positions}
        new |= dict.fromkeys(self.positions(removed))
        joining = list(added)
        return (self._spliced(new, joining) if new or joining else self).ascending()

    def with_changed(self, fragments: Mapping[int, Fragment]) -> FragmentList:
        """Return a list with other content at some positions, in the same order."""
        return self._spliced(fragments, []) if fragments else self

    def extended(self, joining: Sequence[Fragment]) -> FragmentList:
        """A list with more fragments, whose ids are higher and ascend; what is there is neither copied nor looked at.

        Args:
            joining: The fragments.
        """
        return (self._spliced({}, joining) if joining else self).ascending()

    def _spliced(self, new: Mapping[int, Fragment | None], joining: Sequence[Fragment]) -> FragmentList:
        """Return a list with new content at some positions, where None drops what is there, and more at the end."""
        positions = sorted(new)
        stays = [position for position in positions if new[position] is not None]
        coming = [*(fragment for position in stays if (fragment := new[position]) is not None), *joining]
        frames, bounds = wire.frame([encode_fragment(fragment) for fragment in coming], FRAGMENTS_FIELD)
        of_each = [fragment_numbers.of_fragment(fragment) for fragment in coming]
        numbers = np.array(of_each, np.int64).reshape(-1, NUM_ROWS_OF_SCAN).T
        parts: list[bytes | memoryview] = []
        before = after = 0  # positions of the old list that are done; coming fragments that are
        for position in positions:
            parts += self._slice(before, position)
            if new[position] is not None:
                parts.append(frames[int(bounds[after]) : int(bounds[after + 1])])
                after += 1
            before = position + 1
        parts += [*self._slice(before, len(self)), frames[int(bounds[after]) :]]
        if positions:
            order = self._order(positions, stays, len(coming))
            sizes = np.concatenate((self._bounds[1:] - self._bounds[:-1], bounds[1:] - bounds[:-1]))[order]
            ends = np.concatenate(([0], sizes.cumsum()))
            pieces = (np.concatenate((self._scanned(), numbers), axis=1)[:, order],)
        else:
            ends, pieces = np.concatenate((self._bounds, bounds[1:] + self._bounds[-1])), (self._scanned(), numbers)
        ids = [fragment.id for fragment in joining]
        ascends = self._ascends and all(map(lt, [self.highest_id, *ids], ids))
        # Who appends to 100,000 fragments, or deletes a row of one, does not check all of them again.
        is_sound = ascends and all(_is_sound(of_fragment, self._checked_for) for of_fragment in of_each)
        stay_incomplete = self._incomplete is not None and not (positions and len(self._incomplete))
        return FragmentList.framed(
            [part for part in parts if len(part)],
            ends,
            numbers=pieces,
            highest_id=None if len(stays) < len(positions) else max([self.highest_id, *ids]),
            ascends=ascends,
            checked_for=self._checked_for if is_sound else None,
            incomplete=self._incomplete if is_sound and stay_incomplete else None,
        )

    def _order(self, positions: list[int], stays: list[int], num_coming: int) -> npt.NDArray[np.intp]:
        """Return where the fragments of a spliced list are in this one followed by those that come."""
        order = np.arange(len(self) + num_coming)
        is_left = np.ones(len(order), np.bool_)
        is_left[positions] = is_left[len(self) : len(self) + len(stays)] = False
        is_left[stays] = True
        order[stays] = order[len(self) : len(self) + len(stays)]
        return order[is_left]

    def _slice(self, first: int, behind: int) -> list[bytes | memoryview]:
        """Return the frames of some positions."""
        if first >= behind:
            return []
        if not first and behind == len(self):
            return list(self._parts)
        start, end = int(self._bounds[first]), int(self._bounds[behind])
        return [self._view()[start:end]]

    def ascending(self) -> FragmentList:
        """Return the same fragments, ordered by id (itself if they are)."""
        if self._is_ascending():
            return self
        order = np.argsort(self.ids, kind="stable")
        records = self.records
        frames, bounds = wire.frame([records[index] for index in order.tolist()], FRAGMENTS_FIELD)
        return FragmentList.framed((frames,), bounds, numbers=(self._scanned()[:, order],))

    def _is_ascending(self) -> bool:
        """Return whether each id is higher than the one before it."""
        behind = -1
        for piece in () if self._ascends else self._pieces():
            ids = piece[ID]
            if (len(ids) and ids[0] <= behind) or not (ids[1:] > ids[:-1]).all():
                return False
            behind = ids[-1] if len(ids) else behind
        self._ascends = True
        return True

    def positions(self, fragment_ids: Collection[int]) -> list[int]:
        """Return the positions of the fragments with these ids, ascending; ids that are not there are left out."""
        if not len(fragment_ids) or not len(self):
            return []
        ids, wanted = self.ids, np.array(sorted(set(fragment_ids)), np.int64)
        if not self._is_ascending():
            return np.flatnonzero(np.isin(ids, wanted)).tolist()
        positions = ids.searchsorted(wanted)  # `np.isin` takes four times as long for few fragments
        return positions[ids.take(positions, mode="clip") == wanted].tolist()

    def _record(self, index: int) -> bytes:
        number = range(len(self))[index]
        start, end = int(self._bounds[number]), int(self._bounds[number + 1])
        return self._bytes()[start + wire.header_size(self._bytes(), start) : end].tobytes()

    def _view(self) -> memoryview:
        """Return all frames, laid together if they were not."""
        if len(self._parts) != 1:
            self._parts = (b"".join(self._parts),)
        return memoryview(self._parts[0])

    def _bytes(self) -> wire.Bytes:
        if self._data is None:
            self._data = np.frombuffer(self._view(), np.uint8)
        return self._data

    def _contents(self) -> wire.Ints:
        """Return the start of the content of each frame."""
        if self._starts is None:
            self._starts = wire.contents(self._bytes(), self._bounds[:-1])
        return self._starts

    def _scanned(self) -> npt.NDArray[np.int64]:
        pieces = self._pieces()
        joined = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1)
        self._numbers = (joined,)
        return joined

    def _pieces(self) -> tuple[npt.NDArray[np.int64], ...]:
        """As `_scanned`, side by side: a commit that adds a fragment need not lay its numbers beside all others."""
        if not self._numbers:
            messages = self._as_messages()
            if messages is None:
                self._numbers = (fragment_numbers.scan(self._bytes(), self._bounds),)
            else:
                numbers = [fragment_numbers.of_message(record) for record in messages]
                self._numbers = (
                    np.array(numbers, np.uint64).view(np.int64).reshape(len(messages), NUM_ROWS_OF_SCAN).T,
                )
        return self._numbers

    def _as_messages(self) -> list[table_pb2.DataFragment] | None:
        """The fragments as messages, if they are so few that this costs less than a look at all bytes at once."""
        if len(self) > _SMALL_LIST:
            return None
        try:
            records = table_pb2.Manifest.FromString(bytes(self._view())).fragments
            return [table_pb2.DataFragment.FromString(record) for record in records]
        except DecodeError:
            return None


def _is_sound(numbers: tuple[int, ...], uses_stable_row_ids: bool | None) -> bool:
    """Return whether nothing is wrong with a fragment and nothing lacking: `check` and `incomplete` for one of them."""
    _, rows, deleted, is_deleted, lineage = numbers
    has_right_ids = lineage == (HAS_ROW_IDS if uses_stable_row_ids else 0)
    return 0 < rows >= deleted >= is_deleted and has_right_ids


def ids_of(fragments: Sequence[Fragment]) -> npt.NDArray[np.int64]:
    """Return the ids of some fragments, of which those of a table are not decoded."""
    if isinstance(fragments, FragmentList):
        return fragments.ids
    return np.array([fragment.id for fragment in fragments], np.int64)


def with_ids(fragments: Sequence[Fragment], ids: Collection[int]) -> list[Fragment]:
    """Return those of some fragments that have one of some ids, in their order; no others are decoded."""
    if not len(ids):
        return []
    if isinstance(fragments, FragmentList):
        return fragments.select(ids)
    wanted = set(ids)
    return [fragment for fragment in fragments if fragment.id in wanted]


def without_ids(fragments: Sequence[Fragment], covered: Iterable[npt.NDArray[np.int64]]) -> list[Fragment]:
    """Return those of some fragments whose ids are in none of some arrays, in their order; no others are decoded."""
    ids = ids_of(fragments)
    for covered_ids in covered:
        if len(covered_ids):  # `np.isin` takes four times as long for few fragments
            ordered = np.sort(covered_ids)
            ids = ids[ordered.take(np.searchsorted(ordered, ids), mode="clip") != ids]
    return with_ids(fragments, ids.tolist())
