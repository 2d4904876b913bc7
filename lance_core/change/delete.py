"""Changes to a table: add, replace and delete rows, each in one commit.

What a change depends on is read from a snapshot; if another commit touches it meanwhile, the change is worked out anew
on the newest version. Data files that are already written are kept for that; files of a change that certainly did not
happen are removed, files of one whose fate is unknown stay.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

from lance_core.change.completion import Completion, Uploads
from lance_core.change.retries import commit_work
from lance_core.change.stage import remove_staged
from lance_core.change.stage_ahead import OutdatedError
from lance_core.common.frozen import frozen, mutable, replace
from lance_core.errors import CommitOutcomeUnknownError
from lance_core.format.table.deletion import bitmap_from_numpy
from lance_core.format.table.operations import Delete, Update
from lance_core.format.table.paths import deletion_file_path
from lance_core.scan.candidates import candidate_fragments
from lance_core.scan.fragments import each_match, matches_all
from lance_core.scan.indexed import with_index_answer
from lance_core.scan.open_files import files_of
from lance_core.scan.plan import plan_filter, with_row_starts
from lance_core.table.naming import naming
from lance_core.table.new_ids import RANDOM_IDS
from lance_core.table.rebase import encode_deletion_file

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from pyarrow.compute import Expression

    from lance_core.change.retries import CommitOptions
    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.fragment_list import FragmentList
    from lance_core.format.table.operations import Operation
    from lance_core.scan.fragments import FragmentMatches
    from lance_core.scan.open_files import OpenFiles
    from lance_core.store.base import Store
    from lance_core.table.new_ids import NewIds
    from lance_core.table.snapshot import Snapshot


@frozen(kw_only=True)
class MarkedRows:
    """Deletions that were worked out on one version.

    Attributes:
        updated_fragments: Fragments with new deletion files.
        removed_fragment_ids: Fragments of which no row is left.
        num_rows: Rows that are newly deleted.
    """

    updated_fragments: tuple[Fragment, ...]
    removed_fragment_ids: tuple[int, ...]
    num_rows: int


@frozen(kw_only=True)
class _Mark:
    """The effect of a condition on one fragment: ``after`` is None if no row is left of it."""

    before: Fragment
    after: Fragment | None
    num_rows: int


@contextmanager
def removing_staged(
    store: Store, fragments: Sequence[Fragment], completion: Completion | None = None
) -> Generator[None]:
    """Remove staged files if what happens inside fails for certain; keep them if that is unknown.

    Args:
        store: Where they are.
        fragments: The files.
        completion: Completes those that are not there yet.
    """
    try:
        yield
    except (CommitOutcomeUnknownError, OutdatedError):
        raise
    except Exception:
        if completion is not None:
            completion.close()
        remove_staged(store, fragments)
        raise


@mutable(kw_only=True)
class Marker:
    """Finds the rows that match a condition and writes deletion files for them; nothing is committed.

    Marking a newer version looks again only at fragments that are new or changed since.

    Attributes:
        store: The dataset.
        condition: SQL text or pyarrow expression.
        ids: Names of new files.
        files: The dataset's open files, if there are some.
    """

    store: Store
    condition: str | Expression
    ids: NewIds = RANDOM_IDS
    files: OpenFiles | None = None
    _deletions: dict[int, _Mark] = field(default_factory=dict[int, "_Mark"])
    _looked_at: FragmentList | None = None
    _uploads: Uploads = field(init=False)

    def __post_init__(self) -> None:
        self._uploads = Uploads(self.store)

    def mark(self, snapshot: Snapshot) -> MarkedRows:
        """Mark the matching rows of a version; see `finish`. If all rows match, no fragment is looked at.

        Raises:
            InvalidInputError: The condition does not fit the schema.
        """
        files = self.files = files_of(self.store, self.files)
        with naming(self.store):
            plan = with_row_starts(plan_filter(snapshot.manifest.schema, self.condition), snapshot.manifest)
            plan = with_index_answer(plan, snapshot.manifest, files)
        fragments: FragmentList = snapshot.manifest.fragments
        if matches_all(plan):
            num_rows = fragments.num_rows
            removed = fragments.ids[num_rows > 0].tolist()
            return MarkedRows(updated_fragments=(), removed_fragment_ids=tuple(removed), num_rows=int(num_rows.sum()))
        previous, self._deletions = self._deletions, {}
        looked_at, self._looked_at = self._looked_at, None
        try:
            left: Iterable[Fragment] = fragments
            if looked_at is not None:
                left = [fragment for fragment in fragments if looked_at.find(fragment.id) != fragment]
                gone = {fragment.id for fragment in left}
                unchanged = [number for number in fragments.ids.tolist() if number in previous and number not in gone]
                self._deletions = {number: previous.pop(number) for number in unchanged}
            do = partial(self._mark, version=snapshot.version)
            for _ in each_match(files, candidate_fragments(left, plan), plan, do):
                pass
        finally:
            if previous:
                self._uploads.end()
                _remove_deletion_files(self.store, previous.values())
        self._looked_at = fragments
        changed = [self._deletions[number] for number in fragments.ids.tolist() if number in self._deletions]
        return MarkedRows(
            updated_fragments=tuple(mark.after for mark in changed if mark.after is not None),
            removed_fragment_ids=tuple(mark.before.id for mark in changed if mark.after is None),
            num_rows=sum(mark.num_rows for mark in changed),
        )

    def finish(self) -> None:
        """Wait until all deletion files are there: on object stores some are on their way when rows are marked."""
        self._uploads.wait()

    def forget(self) -> None:
        """Remove the deletion files written so far."""
        self._uploads.end()
        _remove_deletion_files(self.store, self._deletions.values())
        self._deletions, self._looked_at = {}, None

    def _mark(self, matches: Iterable[FragmentMatches], *, version: int) -> None:
        """Write the deletion files of fragments. They are remembered before: some may be there if others fail."""
        contents: list[tuple[str, bytes]] = []
        for reader, offsets in matches:
            fragment, after = reader.fragment, None
            if len(offsets) < fragment.num_rows:
                rows = bitmap_from_numpy(reader.deleted) | bitmap_from_numpy(offsets)
                new_id = partial(self.ids.deletion_file, fragment.id)
                file, path, data = encode_deletion_file(fragment.id, rows, read_version=version, new_id=new_id)
                contents.append((path, data))
                after = replace(fragment, deletion_file=file)
            self._deletions[fragment.id] = _Mark(before=fragment, after=after, num_rows=len(offsets))
        if contents:
            self._uploads.put(contents)


@mutable(kw_only=True)
class MarkWork:
    """Mark the rows that match, then make an operation of that.

    Attributes:
        marker: Finds the rows.
        operation: Makes an operation of what it found.
        sees_new_rows: Whether it depends on which rows there are.
        num_rows: Rows that the last preparation found.
    """

    marker: Marker
    operation: Callable[[MarkedRows], Operation]
    sees_new_rows: bool = False
    num_rows: int = 0

    def prepare(self, snapshot: Snapshot) -> Operation:
        """Find the rows and write deletion files."""
        marked = self.marker.mark(snapshot)
        self.num_rows = marked.num_rows
        return self.operation(marked)

    def finish(self) -> None:
        """Wait until all deletion files are there."""
        self.marker.finish()

    def forget(self) -> None:
        """Remove the files written so far."""
        self.marker.forget()


def deleting(
    store: Store, condition: str | Expression, ids: NewIds = RANDOM_IDS, files: OpenFiles | None = None
) -> MarkWork:
    """Return the work of deleting the rows that match a condition.

    Args:
        store: The dataset.
        condition: SQL text or pyarrow expression.
        ids: Names of new files.
        files: The dataset's open files, if there are some.
    """

    def operation(marked: MarkedRows) -> Delete:
        return Delete(
            updated_fragments=marked.updated_fragments,
            deleted_fragment_ids=marked.removed_fragment_ids,
            predicate=str(condition),
        )

    return MarkWork(marker=Marker(store=store, condition=condition, ids=ids, files=files), operation=operation)


def delete_rows(
    snapshot: Snapshot, condition: str | Expression, options: CommitOptions, files: OpenFiles
) -> tuple[Snapshot, int]:
    """Delete the rows that match a condition.

    Args:
        snapshot: Version to begin with.
        condition: SQL text or pyarrow expression.
        options: How to commit.
        files: The dataset's open files.

    Returns:
        The new version, and how many rows were deleted.

    Raises:
        CommitConflictError: Other commits touched the same fragments each time.
    """
    work = deleting(snapshot.store, condition, files=files)
    return commit_work(snapshot, work, options, writes_files=True), work.num_rows


def replace_rows(
    snapshot: Snapshot, condition: str | Expression, fragments: Sequence[Fragment], options: CommitOptions
) -> tuple[Snapshot, int]:
    """Delete the rows that match a condition and add staged fragments, in one commit; otherwise as `delete_rows`.

    Rows that other commits add before this one lands are looked at as well, so that of two writers which replace the
    same rows the later one wins, and not both.
    """

    def operation(marked: MarkedRows) -> Update:
        return Update(
            removed_fragment_ids=marked.removed_fragment_ids,
            updated_fragments=marked.updated_fragments,
            new_fragments=tuple(fragments),
        )

    marker = Marker(store=snapshot.store, condition=condition)
    work = MarkWork(marker=marker, operation=operation, sees_new_rows=True)
    return commit_work(snapshot, work, options), work.num_rows


def _remove_deletion_files(store: Store, files: Iterable[_Mark]) -> None:
    written = [mark.after for mark in files if mark.after is not None]
    store.delete(
        [deletion_file_path(mark.id, mark.deletion_file) for mark in written if mark.deletion_file is not None]
    )
