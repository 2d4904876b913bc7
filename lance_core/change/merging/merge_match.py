"""Find out which rows of a table a merge touches, one fragment after the other."""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.change.key_join import KeyJoin, Pairs
from lance_core.change.merging.key_lookup import candidates_of, find_candidates, indexed_key_rows, key_rows
from lance_core.change.merging.merge_plan import SOURCE, TARGET, WhenMatched
from lance_core.common.frozen import frozen, mutable
from lance_core.encoding.kernels import distinct, numbers_array
from lance_core.errors import InvalidInputError
from lance_core.scan.candidates import answered_fragments
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.fragment_run import FragmentRun, runs_of_columns
from lance_core.scan.fragments import matching_offsets
from lance_core.scan.pick import pick_rows
from lance_core.scan.plan import default_batch_size
from lance_core.table.read_ahead import Work, chained

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lance_core.change.merging.key_lookup import Candidates, Ranges
    from lance_core.change.merging.merge_plan import MergePlan
    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.scan.fragment_run import RowSource
    from lance_core.scan.open_files import OpenFiles

    Positions = npt.NDArray[np.int64]

_MIN_ROWS_TO_COMPARE = 2
"""Rows among which two can have the same key."""


@frozen(kw_only=True)
class Match:
    """The effect of a merge on one fragment.

    Attributes:
        fragment: The fragment as it was looked at.
        pairs: Row offsets, each with the source row that updates or deletes it.
        others: Offsets of rows to delete because the source does not have them, ascending.
        hits: Source rows whose key is in the fragment.
    """

    fragment: Fragment
    pairs: Pairs
    others: Positions
    hits: Positions

    @property
    def touches(self) -> bool:
        """Return whether the fragment changes."""
        return bool(len(self.pairs) or len(self.others))


@mutable(kw_only=True)
class Matcher:
    """Looks at fragments; those that did not change since are not looked at again.

    Attributes:
        plan: What to look for.
        source: The whole source, in the types of the table.
    """

    plan: MergePlan
    source: pa.Table
    _join: KeyJoin | None = None
    _candidates: Candidates | None = None
    _looked_up: dict[int, Match] = field(default_factory=dict[int, Match])

    def look(self, files: OpenFiles, manifest: Manifest) -> list[Match]:
        """Return the effect of the merge on each of the fragments.

        Raises:
            InvalidInputError: Rows that must not match, or that more than one source row would change.
        """
        previous, self._looked_up = self._looked_up, {}
        self._candidates = find_candidates(files, manifest, self.plan.on, self.source)
        fragments: Iterable[Fragment] = manifest.fragments
        if self._candidates is not None and not self.plan.options.deletes_others:
            fragments = answered_fragments(fragments, self._candidates.answer)
        left: list[Fragment] = []
        for fragment in fragments:
            match = previous.get(fragment.id)
            if match is not None and match.fragment == fragment:
                self._looked_up[fragment.id] = match
            else:
                left.append(fragment)
        if self.source.num_rows:
            self._keys()  # made before threads need it
        works = (Work(partial(self._matched, source), source.held_bytes) for source in self._sources(files, left))
        for matched in chained(files.store, works):
            self._looked_up[matched.fragment.id] = matched
        return [self._looked_up[number] for number in manifest.fragments.ids.tolist() if number in self._looked_up]

    def _sources(self, files: OpenFiles, fragments: Sequence[Fragment]) -> Iterator[RowSource]:
        """Return the fragments, small neighbours as runs if all of their keys are read."""
        if self._candidates is None and self.plan.within is None and self.source.num_rows:
            return runs_of_columns(files, fragments, self.plan.on, self._batch_size)
        return (FragmentReader(files, fragment) for fragment in fragments)

    def _matched(self, source: RowSource) -> Iterator[Match]:
        """Yield the effect on a fragment, or on each of a run of small ones."""
        pairs = _joined(self._matches(source))
        matched = self.plan.options.matched
        if matched is WhenMatched.FAIL and len(pairs):
            raise InvalidInputError(
                f"the table already has a row with {self._key(int(pairs.source[0]))}; nothing was written"
            )
        others = self._others(source, pairs.target)
        changed = pairs
        if matched is WhenMatched.KEEP:
            changed = pairs.where(np.zeros(len(pairs), np.bool_))
        elif self.plan.condition is not None:
            changed = pairs.where(self._meets(source, pairs))
        self._check_unambiguous(changed)
        parts = (_parts(source, offsets) for offsets in (pairs.target, changed.target, others))
        for (reader, first, hits), (_, _, rows), (_, _, rest) in zip(*parts, strict=True):
            yield Match(
                fragment=reader.fragment,
                pairs=Pairs(target=changed.target[rows] - first, source=changed.source[rows]),
                others=others[rest] - first,
                hits=distinct(pairs.source[hits]),
            )

    def check_inserted(self, inserted: Positions) -> None:
        """Refuse to insert several rows of one key, which every later merge of that key would refuse to change.

        pylance inserts them, and then refuses the same merge when it is repeated. Where rows that match are kept, a
        source may repeat keys: nothing there depends on which row is the one of its key.

        Args:
            inserted: Source rows to insert, ascending.

        Raises:
            InvalidInputError: Two of them have the same key.
        """
        if self.plan.options.matched is WhenMatched.KEEP or len(inserted) < _MIN_ROWS_TO_COMPARE:
            return
        again = self._keys().repeated()
        again = again[np.isin(again, inserted)]
        if len(again):
            raise InvalidInputError(
                f"more than one row of the source has {self._key(int(again[0]))}; nothing was written. "
                "Remove the duplicates"
            )

    @property
    def _batch_size(self) -> int:
        return default_batch_size(self.plan.on.to_arrow())

    def _keys(self) -> KeyJoin:
        if self._join is None:
            self._join = KeyJoin([self.source.column(name) for name in self.plan.on.names])
        return self._join

    def _matches(self, source: RowSource) -> Iterator[Pairs]:
        """Row offsets and source rows with the same key; deleted rows are left out."""
        if not self.source.num_rows:
            return
        if not isinstance(source, FragmentRun):
            yield from self._matches_in(source)
            return
        end = source.physical_rows
        for rows in source.scan(self.plan.on, start=0, end=end, batch_size=end):
            pairs = self._keys().match(rows.columns)
            live = source.live_mask(0, end)
            yield pairs if live is None else pairs.where(live[pairs.target])

    def _matches_in(self, reader: FragmentReader) -> Iterator[Pairs]:
        plan = self.plan
        row_keys = None if self._candidates is None else self._candidates.of(reader)
        ranges, offsets = self._ranges(reader) if row_keys is None else ([], row_keys[0])
        if offsets is not None and not len(offsets):
            return
        join = self._keys()
        near = None if plan.within is None else self._within(reader)
        if near is not None and not near.any():
            return
        batch_size = self._batch_size
        batches = (
            key_rows(reader, plan.on, ranges, offsets, batch_size=batch_size)
            if row_keys is None
            else indexed_key_rows(reader, plan.on, *row_keys, batch_size=batch_size)
        )
        for rows, columns in batches:
            pairs = join.match(columns)
            pairs = Pairs(target=rows[pairs.target], source=pairs.source)
            if offsets is None and len(reader.deleted):
                pairs = pairs.where(~np.isin(pairs.target, reader.deleted))
            yield pairs if near is None else pairs.where(near[pairs.target])

    def _ranges(self, reader: FragmentReader) -> tuple[Ranges, Positions | None]:
        """Return the rows whose keys are read; see `candidates_of`."""
        return candidates_of(reader, None if self._candidates is None else self._candidates.answer)

    def _others(self, source: RowSource, matched: Positions) -> Positions:
        """Live rows without a partner that the merge deletes."""
        if not self.plan.options.deletes_others:
            return np.empty(0, np.int64)
        if self.plan.others is not None:
            is_other = np.zeros(source.physical_rows, np.bool_)
            is_other[matching_offsets(source, self.plan.others)] = True
        else:
            live = source.live_mask(0, source.physical_rows)
            is_other = np.ones(source.physical_rows, np.bool_) if live is None else live
        is_other[matched] = False
        if self.plan.within is not None and not isinstance(source, FragmentRun):
            is_other &= self._within(source)
        return np.flatnonzero(is_other)

    def _within(self, reader: FragmentReader) -> npt.NDArray[np.bool_]:
        """For each row offset whether the merge looks at the row."""
        assert self.plan.within is not None  # noqa: S101 for the type checker: callers have one
        near = np.zeros(reader.fragment.physical_rows, np.bool_)
        near[matching_offsets(reader, self.plan.within)] = True
        return near

    def _meets(self, source: RowSource, pairs: Pairs) -> npt.NDArray[np.bool_]:
        """For which pairs the condition of the update is true."""
        step = default_batch_size(pa.schema([*self.plan.condition_target.to_arrow(), *self.plan.fields.to_arrow()]))
        parts = [
            self._meets_batch(source, Pairs(target=pairs.target[at : at + step], source=pairs.source[at : at + step]))
            for at in range(0, len(pairs), step)
        ]
        return np.concatenate([np.empty(0, np.bool_), *parts])

    def _meets_batch(self, source: RowSource, pairs: Pairs) -> npt.NDArray[np.bool_]:
        plan = self.plan
        assert plan.condition is not None  # noqa: S101 for the type checker: callers have one
        given = self.source.select(plan.condition_source).take(numbers_array(pairs.source))
        sides = [_struct(given, len(pairs))]
        offsets, positions = np.unique(pairs.target, return_inverse=True)
        if plan.condition_target.fields:
            target = self._condition_rows(source, offsets)
            sides.append(_struct(target.take(numbers_array(positions)), len(pairs)))
        else:
            sides.append(pa.nulls(len(pairs)))
        return plan.condition.mask(pa.RecordBatch.from_arrays(sides, names=[SOURCE, TARGET])).to_numpy(
            zero_copy_only=False
        )

    def _condition_rows(self, source: RowSource, offsets: Positions) -> pa.Table:
        fields = self.plan.condition_target
        if isinstance(source, FragmentRun):
            return pa.Table.from_arrays(source.take(fields, offsets), schema=fields.to_arrow())
        batches = pick_rows(source, fields, offsets, batch_size=max(len(offsets), 1))
        return pa.Table.from_batches(list(batches), schema=fields.to_arrow())

    def _check_unambiguous(self, pairs: Pairs) -> None:
        again = pairs.repeated_target()
        if again is not None:
            raise InvalidInputError(
                f"more than one row of the source has {self._key(int(pairs.source[again]))}, which is in the "
                "table; nothing was written. Remove the duplicates"
            )

    def _key(self, number: int) -> str:
        row = self.source.select(self.plan.on.names).slice(number, 1).to_pylist()[0]
        return ", ".join(f"{name} = {value!r}" for name, value in row.items())


def _parts(source: RowSource, offsets: Positions) -> Iterable[tuple[FragmentReader, int, slice]]:
    """Return for each fragment the offset of its first row, and which of ascending row offsets lie in it."""
    return source.parts(offsets) if isinstance(source, FragmentRun) else [(source, 0, slice(None))]


def _joined(parts: Iterable[Pairs]) -> Pairs:
    target, source = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for part in parts:
        target.append(part.target)
        source.append(part.source)
    return Pairs(target=np.concatenate(target), source=np.concatenate(source))


def _struct(table: pa.Table, num_rows: int) -> pa.Array:
    if not table.num_columns:
        return pa.nulls(num_rows)
    columns = [
        pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type) for column in table.columns
    ]
    return pa.StructArray.from_arrays(columns, fields=list(table.schema))
