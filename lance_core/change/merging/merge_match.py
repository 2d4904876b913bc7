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
from lance_core.encoding.kernels import numbers_array
from lance_core.errors import InvalidInputError
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.fragments import matching_offsets
from lance_core.scan.pick import pick_rows
from lance_core.scan.plan import default_batch_size
from lance_core.table.read_ahead import Work, chained

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_core.change.merging.key_lookup import Candidates, Ranges
    from lance_core.change.merging.merge_plan import MergePlan
    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.scan.open_files import OpenFiles

    Positions = npt.NDArray[np.int64]

_MAX_BATCH_ROWS = 1 << 20
_MIN_ROWS_TO_COMPARE = 2
"""Rows among which two can have the same key."""
_SOURCES_PER_BATCH = 4
"""Rows to look up for each row of the source that a hash table is built of."""


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
        if self.source.num_rows:
            self._keys()  # made before threads need it
        readers = (FragmentReader(files, fragment) for fragment in manifest.fragments)
        works = (
            Work(partial(self._matched, reader, previous.get(reader.fragment.id)), reader.held_bytes)
            for reader in readers
        )
        for matched in chained(files.store, works):
            self._looked_up[matched.fragment.id] = matched
        return list(self._looked_up.values())

    def _matched(self, reader: FragmentReader, previous: Match | None) -> Iterator[Match]:
        yield previous if previous is not None and previous.fragment == reader.fragment else self._look(reader)

    def _look(self, reader: FragmentReader) -> Match:
        parts = list(self._matches(reader))
        target = np.concatenate([np.empty(0, np.int64), *(part.target for part in parts)])
        source = np.concatenate([np.empty(0, np.int64), *(part.source for part in parts)])
        pairs = Pairs(target=target, source=source)
        matched = self.plan.options.matched
        if matched is WhenMatched.FAIL and len(pairs):
            raise InvalidInputError(
                f"the table already has a row with {self._key(int(source[0]))}; nothing was written"
            )
        others = self._others(reader, target)
        is_hit = np.zeros(self.source.num_rows, np.bool_)
        is_hit[source] = True
        if matched is WhenMatched.KEEP:
            pairs = pairs.where(np.zeros(len(pairs), np.bool_))
        elif self.plan.condition is not None:
            pairs = pairs.where(self._meets(reader, pairs))
        self._check_unambiguous(pairs)
        return Match(fragment=reader.fragment, pairs=pairs, others=others, hits=np.flatnonzero(is_hit))

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

    def _keys(self) -> KeyJoin:
        if self._join is None:
            self._join = KeyJoin([self.source.column(name) for name in self.plan.on.names])
        return self._join

    def _matches(self, reader: FragmentReader) -> Iterator[Pairs]:
        """Row offsets and source rows with the same key; deleted rows are left out."""
        plan = self.plan
        if not self.source.num_rows:
            return
        row_keys = None if self._candidates is None else self._candidates.of(reader)
        ranges, offsets = self._ranges(reader) if row_keys is None else ([], row_keys[0])
        if offsets is not None and not len(offsets):
            return
        join = self._keys()
        near = None if plan.within is None else self._within(reader)
        if near is not None and not near.any():
            return
        # Arrow builds hash tables of text in the source for each batch.
        wanted = max(default_batch_size(plan.on.to_arrow()), _SOURCES_PER_BATCH * self.source.num_rows)
        batch_size = min(wanted, _MAX_BATCH_ROWS)
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

    def _others(self, reader: FragmentReader, matched: Positions) -> Positions:
        """Live rows without a partner that the merge deletes."""
        if not self.plan.options.deletes_others:
            return np.empty(0, np.int64)
        if self.plan.others is not None:
            candidates = matching_offsets(reader, self.plan.others)
        else:
            candidates = reader.offsets_of_live(np.arange(reader.fragment.num_rows))
        is_other = np.zeros(reader.fragment.physical_rows, np.bool_)
        is_other[candidates] = True
        is_other[matched] = False
        return np.flatnonzero(is_other if self.plan.within is None else is_other & self._within(reader))

    def _within(self, reader: FragmentReader) -> npt.NDArray[np.bool_]:
        """For each row offset whether the merge looks at the row."""
        assert self.plan.within is not None  # noqa: S101 for the type checker: callers have one
        near = np.zeros(reader.fragment.physical_rows, np.bool_)
        near[matching_offsets(reader, self.plan.within)] = True
        return near

    def _meets(self, reader: FragmentReader, pairs: Pairs) -> npt.NDArray[np.bool_]:
        """For which pairs the condition of the update is true."""
        step = default_batch_size(pa.schema([*self.plan.condition_target.to_arrow(), *self.plan.fields.to_arrow()]))
        parts = [
            self._meets_batch(reader, Pairs(target=pairs.target[at : at + step], source=pairs.source[at : at + step]))
            for at in range(0, len(pairs), step)
        ]
        return np.concatenate([np.empty(0, np.bool_), *parts])

    def _meets_batch(self, reader: FragmentReader, pairs: Pairs) -> npt.NDArray[np.bool_]:
        plan = self.plan
        assert plan.condition is not None  # noqa: S101 for the type checker: callers have one
        source = self.source.select(plan.condition_source).take(numbers_array(pairs.source))
        sides = [_struct(source, len(pairs))]
        offsets, positions = np.unique(pairs.target, return_inverse=True)
        if plan.condition_target.fields:
            batches = list(pick_rows(reader, plan.condition_target, offsets, batch_size=max(len(offsets), 1)))
            target = pa.Table.from_batches(batches, schema=plan.condition_target.to_arrow())
            sides.append(_struct(target.take(numbers_array(positions)), len(pairs)))
        else:
            sides.append(pa.nulls(len(pairs)))
        return plan.condition.mask(pa.RecordBatch.from_arrays(sides, names=[SOURCE, TARGET])).to_numpy(
            zero_copy_only=False
        )

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


def _struct(table: pa.Table, num_rows: int) -> pa.Array:
    if not table.num_columns:
        return pa.nulls(num_rows)
    columns = [
        pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type) for column in table.columns
    ]
    return pa.StructArray.from_arrays(columns, fields=list(table.schema))
