"""Merge a source into a table: update, insert and delete rows by their keys, in one commit.

The source is in memory; of the table the columns of the key are read, and the other columns of rows that are updated.
When other commits get in the way, only fragments that changed are looked at again, and rows that are written already
are used again if they are still right. Two merges never both insert a row of the same key.
"""

from __future__ import annotations

import uuid
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lance_core.change.column_files import check_drops_columns
from lance_core.change.ingest import fit_batch
from lance_core.change.merging.merge_match import Matcher
from lance_core.change.merging.merge_plan import WhenMatched, plan_merge
from lance_core.change.merging.merge_write import Rewriter, read_source
from lance_core.change.moved_rows import Departure, MovedRows
from lance_core.change.stage import remove_staged, stage_fragments
from lance_core.change.targets import DEFAULT_TARGETS
from lance_core.common.frozen import frozen, mutable, replace
from lance_core.errors import UnsupportedError
from lance_core.format.table.bitmap import encode_bitmap
from lance_core.format.table.operations import Update, UpdateMode
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.open_files import files_of
from lance_core.table.naming import naming
from lance_core.table.read_ahead import Work, chained

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from lance_core.change.ingest import RecordStream
    from lance_core.change.merging.merge_match import Match
    from lance_core.change.merging.merge_plan import MergeOptions, MergePlan
    from lance_core.change.stage import FileLimits
    from lance_core.change.targets import Targets
    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.operations import Operation
    from lance_core.scan.open_files import OpenFiles
    from lance_core.store.base import Store
    from lance_core.table.snapshot import Snapshot

    Positions = npt.NDArray[np.int64]


@frozen(kw_only=True)
class MergeStats:
    """Number of rows that a merge inserted, updated and deleted."""

    num_inserted_rows: int = 0
    num_updated_rows: int = 0
    num_deleted_rows: int = 0


@mutable(kw_only=True)
class MergeWork:
    """A merge on the way to its commit.

    Attributes:
        options: What to do.
        stream: The source; read once.
        limits: When a new file is full.
        data_storage_version: File version of new files.
        targets: Where new rows go.
        stats: What the last preparation found.
        files: The dataset's open files, if there are some.
        plan: What to do with the table, if that was worked out for one of its versions.
    """

    options: MergeOptions
    stream: RecordStream
    limits: FileLimits
    data_storage_version: str
    targets: Targets = DEFAULT_TARGETS
    stats: MergeStats = field(default_factory=MergeStats)
    files: OpenFiles | None = None
    plan: MergePlan | None = None
    _batches: list[pa.RecordBatch] | None = None
    _matcher: Matcher | None = None
    _staged: _Staged | None = None

    @property
    def sees_new_rows(self) -> bool:
        """Rows are inserted because nobody has their keys."""
        return self.options.inserts

    def prepare(self, snapshot: Snapshot) -> Operation:
        """Find the rows, and write the new ones unless that was done already."""
        with naming(snapshot.store):
            matcher = self._matcher_for(snapshot)
            files = self.files = files_of(snapshot.store, self.files)
            matches = matcher.look(files, snapshot.manifest)
            touched = [match for match in matches if match.touches]
            inserted = _only_in_source(matcher, matches) if self.options.inserts else np.empty(0, np.int64)
            if self._staged is None or not self._staged.is_for(touched, inserted):
                self.forget()
                matcher.check_inserted(inserted)
                rewriter = Rewriter(
                    plan=matcher.plan,
                    source=matcher.source,
                    given=self.stream.schema,
                    files=files,
                    data_storage_version=self.data_storage_version,
                )
                self._staged = self._stage(snapshot, rewriter, touched, inserted)
        self.stats = _stats(self.options, touched, inserted)
        return self._staged.operation

    def forget(self) -> None:
        """Remove the files written so far."""
        if self._staged is not None:
            self._staged.remove_files()
            self._staged = None

    def _matcher_for(self, snapshot: Snapshot) -> Matcher:
        schema = snapshot.manifest.schema
        if self._matcher is None or self._matcher.plan.table != schema:
            if self.plan is None or self.plan.table != schema:
                self.plan = plan_merge(self.options, schema, self.stream.schema)
            plan = self.plan
            self.forget()  # what was written has the old schema
            if self._batches is None:
                self._batches = list(self.stream.batches)
            source = read_source((fit_batch(batch, plan.fields) for batch in self._batches), plan.fields)
            self._matcher = Matcher(plan=plan, source=source)
        return self._matcher

    def _stage(self, snapshot: Snapshot, rewriter: Rewriter, touched: list[Match], inserted: Positions) -> _Staged:
        if rewriter.plan.rewrites_columns:
            check_drops_columns(self.data_storage_version)
            if self.targets != DEFAULT_TARGETS:
                raise UnsupportedError(
                    "write mode 'rewrite_columns' does not support 'target_bases'. Use 'rewrite_rows'"
                )
            return _stage_columns(snapshot, rewriter, touched)
        moved = MovedRows(with_row_ids=snapshot.manifest.uses_stable_row_ids)
        target = self.targets.of(snapshot)
        departure = Departure()

        def depart() -> None:
            nonlocal departure
            departure = moved.depart(snapshot.store, snapshot.version)

        try:
            fragments = stage_fragments(
                target,
                rewriter.plan.table,
                _new_rows(rewriter, touched, inserted, moved),
                limits=self.limits,
                data_storage_version=self.data_storage_version,
                new_uuid=lambda: uuid.uuid4().bytes,
                meanwhile=depart,
            )
        except BaseException:
            departure.remove_files(snapshot.store)
            raise
        fragments = moved.with_moved_ids(target.fragments(fragments))
        operation = Update(
            removed_fragment_ids=departure.removed_fragment_ids,
            updated_fragments=departure.updated_fragments,
            new_fragments=fragments,
            fields_for_preserving_frag_bitmap=rewriter.plan.given_field_ids,
        )
        return _Staged(
            store=snapshot.store,
            operation=operation,
            files=fragments,
            departure=departure,
            touched=touched,
            inserted=inserted,
        )


@frozen(kw_only=True)
class _Staged:
    """The files written for a merge, and the rows that they are for."""

    store: Store
    operation: Update
    files: Sequence[Fragment]
    departure: Departure
    touched: list[Match]
    inserted: Positions

    def is_for(self, touched: list[Match], inserted: Positions) -> bool:
        """Return whether these are the rows it was written for."""
        same = len(touched) == len(self.touched) and all(map(_is_same, touched, self.touched))
        return same and np.array_equal(inserted, self.inserted)

    def remove_files(self) -> None:
        """Remove what was written."""
        remove_staged(self.store, self.files)
        self.departure.remove_files(self.store)


def _is_same(match: Match, other: Match) -> bool:
    return match is other


def _only_in_source(matcher: Matcher, matches: list[Match]) -> Positions:
    is_new = np.ones(matcher.source.num_rows, np.bool_)
    for match in matches:
        is_new[match.hits] = False
    return np.flatnonzero(is_new)


def _stats(options: MergeOptions, touched: list[Match], inserted: Positions) -> MergeStats:
    matched, others = sum(len(match.pairs) for match in touched), sum(len(match.others) for match in touched)
    deletes = options.matched is WhenMatched.DELETE
    return MergeStats(
        num_inserted_rows=len(inserted),
        num_updated_rows=0 if deletes else matched,
        num_deleted_rows=others + (matched if deletes else 0),
    )


def _new_rows(
    rewriter: Rewriter, touched: list[Match], inserted: Positions, moved: MovedRows
) -> Iterator[pa.RecordBatch]:
    """Updated rows, then inserted ones; ``moved`` learns which rows leave their fragments."""
    readers = ((FragmentReader(rewriter.files, match.fragment), match) for match in touched)
    works = (Work(partial(_changes, rewriter, reader, match), reader.held_bytes) for reader, match in readers)
    for reader, offsets, updated in chained(rewriter.files.store, works):
        if updated is None:
            moved.delete(reader, offsets)
        else:
            moved.move(reader, offsets)
            yield from updated
    yield from rewriter.inserted_rows(inserted)


def _changes(
    rewriter: Rewriter, reader: FragmentReader, match: Match
) -> Iterator[tuple[FragmentReader, Positions, list[pa.RecordBatch] | None]]:
    """Yield the offsets of rows that leave a fragment, with the updated rows; None if they are deleted."""
    yield reader, match.others, None
    if rewriter.plan.options.matched is WhenMatched.DELETE:
        yield reader, match.pairs.target, None
    elif len(match.pairs):
        for offsets, updated in rewriter.updated_rows(reader, match):
            yield reader, offsets, updated


def _stage_columns(snapshot: Snapshot, rewriter: Rewriter, touched: list[Match]) -> _Staged:
    updated: list[Fragment] = []
    try:
        for matches in touched:
            updated.append(rewriter.with_new_columns(matches))  # noqa: PERF401 what is there is removed on an error
    except BaseException:
        remove_staged(snapshot.store, _new_files_only(updated))
        raise
    fields = rewriter.rewritten_fields()
    is_stable = snapshot.manifest.uses_stable_row_ids
    operation = Update(
        updated_fragments=tuple(updated),
        fields_modified=tuple(field.id for field in fields.walk()) if updated else (),
        update_mode=UpdateMode.REWRITE_COLUMNS,
        updated_fragment_offsets={match.fragment.id: encode_bitmap(match.pairs.target.tolist()) for match in touched}
        if is_stable
        else {},
    )
    return _Staged(
        store=snapshot.store,
        operation=operation,
        files=_new_files_only(updated),
        departure=Departure(),
        touched=touched,
        inserted=np.empty(0, np.int64),
    )


def _new_files_only(fragments: Sequence[Fragment]) -> list[Fragment]:
    """Return the fragments with the file that was written last, so that only that is removed."""
    return [replace(fragment, files=fragment.files[-1:]) for fragment in fragments]
