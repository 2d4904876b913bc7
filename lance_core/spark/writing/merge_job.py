"""The job that writes the rows of a merge, and notes which rows of the table they replace."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_core.change.moved_rows import write_departure
from lance_core.change.stage import FileLimits, remove_staged, stage_fragments
from lance_core.errors import CommitOutcomeUnknownError, InvalidInputError
from lance_core.format.table.deletion import bitmap_from_numpy
from lance_core.format.table.operations import Update
from lance_core.format.table.row_ids import encode_row_ids
from lance_core.spark.common.cast import cast_batches
from lance_core.spark.common.task_names import TaskNames
from lance_core.spark.writing.blob_columns import fit_blob_columns
from lance_core.spark.writing.merge_clauses import Action
from lance_core.spark.writing.rows_job import matching
from lance_core.spark.writing.staged_transactions import stage_transaction
from lance_core.sql.predicate import make_predicate
from lance_core.table.open_table import open_version
from lance_core.table.read_ahead import each
from lance_core.table.rebase import load_deletions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from lance_core.change.moved_rows import Departure
    from lance_core.format.schema import Schema
    from lance_core.format.table.fragment import Fragment
    from lance_core.spark.writing.blob_columns import KeptBlobs
    from lance_core.spark.writing.sink import JobTarget
    from lance_core.table.snapshot import Snapshot

ACTION, ROW_ADDRESS, ROW_ID = "_action", "_rowaddr", "_rowid"
"""Columns of the rows that the job gets, before those of the table."""

REPEATED = "_repeated"
"""Column of the joined rows: the source has the row's key more than once."""

NUMBERS: tuple[str, ...] = ("inserted", "updated", "deleted")
"""What is handed over besides the files."""

_SHIFT = 32
_OFFSET_MASK = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePart:
    """The files that one task staged.

    Attributes:
        fragments: With the new rows; on tables with stable row ids, updated rows come first and bring theirs.
        departures: Offsets of rows that leave their fragments, as bitmaps by fragment id.
        counts: Rows by action.
    """

    fragments: tuple[Fragment, ...]
    departures: Mapping[int, bytes]
    counts: tuple[int, int, int]

    @property
    def files(self) -> Sequence[Fragment]:
        """Fragments that hold the new files."""
        return self.fragments


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeJob:
    """Writes the rows of a merge.

    Attributes:
        job_target: Where.
        read_version: Version that the addresses are of.
        fields: Schema of the table.
        data_storage_version: Version of the data files.
        limits: When a file is full.
        with_row_ids: The table has stable row ids.
        changed_field_ids: Ids of the fields that may have other values in updated rows.
        within: SQL text that all written rows must match.
        kept_blobs: Blobs that rows keep.
    """

    job_target: JobTarget
    read_version: int
    fields: Schema
    data_storage_version: str
    limits: FileLimits
    with_row_ids: bool
    changed_field_ids: tuple[int, ...]
    within: str | None = None
    kept_blobs: KeptBlobs | None = None

    def stage(self, batches: Iterator[pa.RecordBatch], names: TaskNames) -> MergePart:
        """Write the new rows of one task.

        Raises:
            InvalidInputError: A row that must not be there, or several rows for one.
        """
        noted = _Noted()
        store = self.job_target.open()
        rows = noted.written(batches)
        if self.kept_blobs is not None:
            rows = self.kept_blobs.put_in(rows)
        rows = cast_batches(fit_blob_columns(rows, self.fields), self.fields.to_arrow())
        if self.within is not None:
            rows = matching(rows, make_predicate(self.within, self.fields.to_arrow()), "within")
        fragments = stage_fragments(
            store,
            self.fields,
            rows,
            limits=self.limits,
            data_storage_version=self.data_storage_version,
            new_uuid=names.ids.data_file,
        )
        try:
            departures = {number: rows.serialize() for number, rows in noted.departures().items()}
        except BaseException:
            remove_staged(store, fragments)
            raise
        if self.with_row_ids:
            fragments = _with_ids(fragments, noted.row_ids())
        inserted, updated, deleted = noted.counts.tolist()
        return MergePart(fragments=fragments, departures=departures, counts=(inserted, updated, deleted))

    def finish(self, parts: Sequence[MergePart]) -> None:
        """Write the deletion files and hand all of it over."""
        store = self.job_target.open()
        fragments = tuple(fragment for part in parts for fragment in part.fragments)
        try:
            snapshot = open_version(store, self.read_version)
            departure = self._depart(snapshot, _joined(parts))
        except Exception:
            remove_staged(store, fragments)
            raise
        operation = Update(
            removed_fragment_ids=departure.removed_fragment_ids,
            updated_fragments=departure.updated_fragments,
            new_fragments=fragments,
            fields_for_preserving_frag_bitmap=self.changed_field_ids,
        )
        counts = np.sum([part.counts for part in parts], axis=0) if parts else np.zeros(3)
        numbers = {name: int(count) for name, count in zip(NUMBERS, counts, strict=True)}
        try:
            self.hand_over(snapshot, operation, numbers)
        except CommitOutcomeUnknownError:
            raise
        except Exception:
            remove_staged(store, fragments)
            departure.remove_files(store)
            raise

    def hand_over(self, snapshot: Snapshot, operation: Update, numbers: Mapping[str, int]) -> None:
        """Leave the change to the caller, who commits it."""
        del snapshot
        stage_transaction(self.job_target.open(), self.job_target.job, operation, numbers=numbers)

    def _depart(self, snapshot: Snapshot, departures: Mapping[int, BitMap]) -> Departure:
        names = TaskNames(job=self.job_target.job, task=-1, attempt=0)
        fragments = snapshot.manifest.fragments.select(list(departures))
        before = each(snapshot.store, (partial(load_deletions, snapshot.store, fragment) for fragment in fragments))
        deleted = [(fragment, departures[fragment.id] | rows) for fragment, rows in zip(fragments, before, strict=True)]
        return write_departure(snapshot.store, deleted, version=self.read_version, ids=names.ids)


@dataclass(slots=True)
class _Noted:
    """Facts about the rows of a task, besides their values."""

    addresses: list[npt.NDArray[np.int64]] = field(default_factory=list)
    ids: list[npt.NDArray[np.int64]] = field(default_factory=list)
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(3, np.int64))

    def written(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows to write."""
        for batch in batches:
            actions = np.asarray(batch.column(ACTION))
            if (actions == Action.FAIL).any():
                raise InvalidInputError(
                    "the table already has a row with the key of a row of the DataFrame; nothing was written"
                )
            if (actions == Action.REPEATED).any():
                raise InvalidInputError(
                    "more than one row of the DataFrame has the same new key; nothing was written. Remove "
                    "the duplicates"
                )
            self.counts += np.bincount(actions, minlength=3)
            leaves = actions != Action.INSERT
            if leaves.any():
                self.addresses.append(_numbers(batch, ROW_ADDRESS, leaves))
            if ROW_ID in batch.schema.names:
                self.ids.append(_numbers(batch, ROW_ID, actions == Action.UPDATE))
            stays = actions != Action.DELETE
            yield batch if stays.all() else batch.filter(pa.array(stays))

    def departures(self) -> dict[int, BitMap]:
        """Offsets of the rows that leave, by fragment.

        Raises:
            InvalidInputError: A row leaves twice.
        """
        every = np.sort(np.concatenate([np.empty(0, np.int64), *self.addresses]))
        if (every[1:] == every[:-1]).any():
            raise _ambiguous()
        fragments, starts = np.unique(every >> _SHIFT, return_index=True)
        offsets = np.split(every & _OFFSET_MASK, starts[1:]) if len(fragments) else []
        return {number: bitmap_from_numpy(part) for number, part in zip(fragments.tolist(), offsets, strict=True)}

    def row_ids(self) -> npt.NDArray[np.uint64]:
        """Stable ids of the updated rows, in their order."""
        return np.concatenate([np.empty(0, np.int64), *self.ids]).astype(np.uint64)


def _numbers(batch: pa.RecordBatch, name: str, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    return np.asarray(batch.column(name).filter(pa.array(mask)))


def _ambiguous() -> InvalidInputError:
    return InvalidInputError(
        "several rows of the DataFrame change one row of the table, so it is not clear what becomes of it; nothing was "
        "written. Remove duplicate keys from the DataFrame"
    )


def _with_ids(fragments: Sequence[Fragment], ids: npt.NDArray[np.uint64]) -> tuple[Fragment, ...]:
    """Fragments with the ids of the moved rows, which are their first rows; new rows have none yet."""
    numbered: list[Fragment] = []
    start = 0
    for fragment in fragments:
        mine = ids[start : start + fragment.physical_rows]
        start += fragment.physical_rows
        numbered.append(replace(fragment, row_id_sequence=encode_row_ids(mine)) if len(mine) else fragment)
    return tuple(numbered)


def _joined(parts: Sequence[MergePart]) -> dict[int, BitMap]:
    """Rows that leave, of all tasks.

    Raises:
        InvalidInputError: A row leaves in two tasks.
    """
    joined: dict[int, BitMap] = {}
    for part in parts:
        for number, data in part.departures.items():
            rows = BitMap.deserialize(data)
            matched = joined.setdefault(number, BitMap())
            if rows & matched:
                raise _ambiguous()
            joined[number] = matched | rows
    return joined
