"""Plan of a streaming read: the rows that each version added, and the end of each micro-batch.

A position is a version and a number of rows (deleted ones counted) of those it added. It is written down in the
query's checkpoint, so that the same rows are read again after a failure. A stream that begins without a version reads
the whole table first; the version of that snapshot counts as if it had added all its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from lance_core.errors import InvalidInputError, UnsupportedError, VersionNotFoundError
from lance_core.format.table.operations import (
    Append,
    Clone,
    CreateIndex,
    Delete,
    Merge,
    Overwrite,
    Project,
    ReserveFragments,
    Rewrite,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMemWalState,
    UpdateMode,
    operation_name,
)
from lance_core.spark.reading.read_plan import LancePartition, RowRange, check_same_columns, plan_tasks
from lance_core.table.refs import resolve
from lance_core.table.snapshot import load_manifest, load_manifests, load_transaction, newest_version, open_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from lance_core.format.schema import Schema
    from lance_core.format.table.fragment import Fragment
    from lance_core.spark.common.read_options import ReadOptions
    from lance_core.store.base import Store
    from lance_core.table.snapshot import Snapshot

WITHOUT_ROWS = (
    Clone,
    CreateIndex,
    Merge,
    Project,
    ReserveFragments,
    Rewrite,
    UpdateBases,
    UpdateConfig,
    UpdateMemWalState,
)
"""Operations that neither add nor change rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Progress of a stream: everything before it has been read.

    Attributes:
        version: The version whose rows are read next; it may not exist yet.
        row: Rows of it that are read already.
        is_snapshot: All rows of the version count, not only those it added.
    """

    version: int
    row: int = 0
    is_snapshot: bool = False

    def to_json(self) -> dict[str, Any]:
        """As Spark writes it into the checkpoint."""
        return {"version": self.version, "row": self.row, "is_snapshot": self.is_snapshot}

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> Position:
        """Of an offset that Spark read from a checkpoint.

        Raises:
            InvalidInputError: Another source wrote it.
        """
        try:
            return cls(version=int(offset["version"]), row=int(offset["row"]), is_snapshot=bool(offset["is_snapshot"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"The checkpoint holds {dict(offset)!r}, which is not an offset of a Lance stream."
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on one micro-batch; None for no limit."""

    max_rows: int | None = None
    max_bytes: int | None = None


def first_position(branch_root: Store, options: ReadOptions) -> Position:
    """Return the start of a new stream.

    Raises:
        InvalidInputError: A version that neither exists nor is the next one.
        RefNotFoundError: There is no such tag.
        VersionNotFoundError: The version was cleaned up.
    """
    newest = newest_version(branch_root)
    if options.starting_timestamp is not None:
        moment = datetime.fromisoformat(options.starting_timestamp)
        matches = (
            manifest.version
            for manifest in load_manifests(branch_root)
            if manifest.timestamp is not None and manifest.timestamp >= moment
        )
        return Position(version=next(matches, newest + 1))
    match options.starting_version:
        case None:
            return Position(version=newest, is_snapshot=True)
        case "latest":
            return Position(version=newest + 1)
        case "earliest":
            return Position(version=next(manifest.version for manifest in load_manifests(branch_root)))
        case text:
            version = int(text) if text.isdecimal() else _tagged(branch_root, text)
    if not 1 <= version <= newest + 1:
        raise InvalidInputError(f"The option 'starting_version' is {version}, but the newest version is {newest}.")
    if version <= newest:
        load_manifest(branch_root, version)
    return Position(version=version)


def _tagged(branch_root: Store, tag: str) -> int:
    tagged_line, version = resolve(branch_root, tag)
    if tagged_line.uri != branch_root.uri:
        raise InvalidInputError(f"The tag {tag!r} is on another branch. Pass the option 'branch' and a version number.")
    if version is None:
        raise InvalidInputError(f"The tag {tag!r} does not exist.")
    return version


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """Plan of a streaming read of a table.

    Attributes:
        branch_root: The branch.
        fields: Columns that are read, as they were when the stream was made.
        schema_version: The version they are from.
        options: What to do with versions that change rows.
    """

    branch_root: Store
    fields: Schema
    schema_version: int
    options: ReadOptions

    def latest(self, start: Position, limits: Limits, newest: int | None = None) -> Position:
        """Return the end of a micro-batch that begins at a position.

        Args:
            start: The position.
            limits: How much it may read; at least one row is read if there is one.
            newest: The last version to read; the newest there is if None.

        Raises:
            VersionNotFoundError: A version that was not read yet has been cleaned up.
            UnsupportedError: A version changed or deleted rows, and the options do not say what to do.
        """
        newest = newest_version(self.branch_root) if newest is None else newest
        rows, num_bytes, position = 0, 0, start
        while position.version <= newest:
            _, ranges = self._ranges(position)
            for row_range in ranges:
                size = sum(file.file_size_bytes for file in row_range.fragment.files) / max(
                    row_range.fragment.physical_rows, 1
                )
                room = row_range.end - row_range.start
                if limits.max_rows is not None:
                    room = min(room, limits.max_rows - rows)
                if limits.max_bytes is not None and size:
                    room = min(room, max(int((limits.max_bytes - num_bytes) / size), 0 if rows else 1))
                rows, num_bytes = rows + room, num_bytes + int(room * size)
                position = replace(position, row=position.row + room)
                if room < row_range.end - row_range.start:
                    return position
            position = Position(version=position.version + 1)
        return position

    def tasks(self, start: Position, end: Position) -> list[LancePartition]:
        """Return the work between two positions; errors as `latest`."""
        partitions: list[LancePartition] = []
        pending: list[RowRange] = []
        last: Snapshot | None = None
        position = start
        while (position.version, position.row) < (end.version, end.row):
            snapshot, ranges = self._ranges(position)
            if position.version == end.version:
                ranges = _first(ranges, end.row - position.row)
            if last is not None and pending and snapshot.manifest.base_paths != last.manifest.base_paths:
                partitions += plan_tasks(last, pending, self.options)
                pending = []
            last = snapshot
            pending += ranges
            position = end if position.version == end.version else Position(version=position.version + 1)
        return partitions if last is None or not pending else [*partitions, *plan_tasks(last, pending, self.options)]

    def _ranges(self, position: Position) -> tuple[Snapshot, list[RowRange]]:
        """Return a position's version, and its rows that are not read yet."""
        snapshot = self._snapshot(position.version)
        fragments = list(snapshot.manifest.fragments) if position.is_snapshot else self._added(snapshot)
        if fragments:
            check_same_columns(self.fields, self.schema_version, snapshot)
        ranges: list[RowRange] = []
        skip = position.row
        for candidate in fragments:
            if skip < candidate.physical_rows:
                ranges.append(RowRange(fragment=candidate, start=skip, end=candidate.physical_rows))
            skip = max(skip - candidate.physical_rows, 0)
        return snapshot, ranges

    def _snapshot(self, version: int) -> Snapshot:
        try:
            return open_snapshot(self.branch_root, version)
        except VersionNotFoundError as error:
            raise VersionNotFoundError(
                f"version {version}, the next one of this stream, has been cleaned up; rows may be lost. "
                "Start a new query with a new checkpoint, and keep versions longer",
                path=self.branch_root.uri,
            ) from error

    def _added(self, snapshot: Snapshot) -> Sequence[Fragment]:
        """Return the fragments with the rows that a version added."""
        options = self.options
        transaction = load_transaction(self.branch_root, snapshot.manifest)
        operation = None if transaction is None else transaction.operation
        fragments = list(snapshot.manifest.fragments)
        if isinstance(operation, Append):
            return _last(fragments, len(operation.fragments))
        if isinstance(operation, Overwrite) and snapshot.version == 1:
            return fragments
        if isinstance(operation, WITHOUT_ROWS) or options.skip_change_commits:
            return ()
        if isinstance(operation, Delete) and (options.ignore_deletes or options.ignore_changes):
            return ()
        if isinstance(operation, Update) and not _changes(operation):
            return _last(fragments, len(operation.new_fragments))
        if isinstance(operation, Overwrite) and options.ignore_changes:
            return fragments
        is_rewritten = isinstance(operation, Update) and operation.update_mode is not UpdateMode.REWRITE_COLUMNS
        if isinstance(operation, Update) and is_rewritten and options.ignore_changes:
            return _last(fragments, len(operation.new_fragments))
        what = "something unknown" if operation is None else operation_name(operation)
        raise UnsupportedError(
            f"version {snapshot.version} changed or deleted rows ({what}), but a stream only reads new rows. "
            "Skip such versions with 'skip_change_commits', or read changed rows as new ones with "
            "'ignore_changes'",
            path=self.branch_root.uri,
        )


def _changes(operation: Update) -> bool:
    """Return whether an update touched rows that were there before."""
    return bool(operation.removed_fragment_ids or operation.updated_fragments or operation.fields_modified)


def _last(fragments: Sequence[Fragment], count: int) -> Sequence[Fragment]:
    """New fragments come last."""
    return fragments[len(fragments) - count :]


def _first(ranges: Sequence[RowRange], num_rows: int) -> list[RowRange]:
    ranges_: list[RowRange] = []
    for row_range in ranges:
        if num_rows <= 0:
            break
        ranges_.append(replace(row_range, end=min(row_range.end, row_range.start + num_rows)))
        num_rows -= row_range.end - row_range.start
    return ranges_
