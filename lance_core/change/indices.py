"""Changes to the indices of a table, of all kinds: build and drop. `index_upkeep` extends and merges them."""

from __future__ import annotations

import uuid
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lance_core.change.completion import Completion
from lance_core.common.frozen import frozen, mutable, replace
from lance_core.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from lance_core.format.table.index_metadata import IndexFields, make_index
from lance_core.format.table.operations import CreateIndex
from lance_core.format.table.paths import INDICES_FOLDER
from lance_core.index.column import column_to_index
from lance_core.index.files import SegmentFiles
from lance_core.index.kinds import check_build, kind_named
from lance_core.index.protocol import MODEL, SegmentTarget, TrainedKind, ZonedKind
from lance_core.scan.fragment_columns import FragmentColumns
from lance_core.scan.open_files import OpenFiles

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.index_metadata import IndexMetadata
    from lance_core.format.table.operations import Operation
    from lance_core.index.column import IndexedColumn
    from lance_core.index.files import Ends
    from lance_core.index.protocol import IndexKind, Relocation, RewritableKind, Segment, SegmentContent
    from lance_core.table.snapshot import Snapshot

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@mutable(kw_only=True)
class BuildIndex:
    """A new index on the way to its commit.

    Attributes:
        kind: Name of the kind, in upper or lower case.
        column: Name, or dotted path inside structs.
        name: Name of the index.
        replace: Take the place of an index of that name.
        options: Options of the kind.
        fragment_ids: Fragments to cover; all if None.
        uuid: 16 bytes for the first attempt; random if None.
    """

    kind: str
    column: str
    name: str
    replace: bool
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fragment_ids: Collection[int] | None = None
    uuid: bytes | None = None
    sees_new_rows: bool = False
    _written: list[SegmentFiles] = field(default_factory=list[SegmentFiles])
    _completion: Completion | None = None

    def prepare(self, snapshot: Snapshot) -> Operation:
        """Read the column and write the index; its files may be on their way when this returns."""
        self.forget()
        kind, column = kind_named(self.kind), column_to_index(snapshot.manifest.schema, self.column)
        options = check_build(kind, column, self.options)
        old = tuple(index for index in snapshot.manifest.indices if index.name == self.name)
        if old and not self.replace:
            raise AlreadyExistsError(f"there is an index {self.name!r} already", path=snapshot.store.uri)
        if any(index.fields != (column.leaf.id,) for index in old):
            raise AlreadyExistsError(
                f"index {self.name!r} is over another column; give another name", path=snapshot.store.uri
            )
        self._completion = Completion(snapshot.store)
        target = IndexTarget.of(snapshot, kind, column, self.name, self.uuid, ends=self._completion)
        self._written.append(target.files)
        fragments = chosen_fragments(snapshot, self.fragment_ids)
        return CreateIndex(new_indices=(target.build(fragments, options),), removed_indices=old)

    def finish(self) -> None:
        """Wait until all files are there; raises what one failed with."""
        if self._completion is not None:
            self._completion.wait()

    def forget(self) -> None:
        """Remove the files written so far."""
        forget_files(self._written)


def with_model(index: BuildIndex, snapshot: Snapshot) -> BuildIndex:
    """Return a build whose parts may be worked out apart: a model is learned now, on all fragments that it covers."""
    kind, column = kind_named(index.kind), column_to_index(snapshot.manifest.schema, index.column)
    if not isinstance(kind, TrainedKind):
        return index
    options = check_build(kind, column, index.options)
    columns = FragmentColumns(OpenFiles(snapshot.store), chosen_fragments(snapshot, index.fragment_ids), column)
    return replace(index, options={**index.options, MODEL: kind.train(column, columns, options)})


@mutable(kw_only=True)
class DropIndex:
    """An index that shall go, whatever its kind; its files stay until the versions that have it are cleaned up."""

    name: str
    sees_new_rows: bool = False

    def prepare(self, snapshot: Snapshot) -> Operation:
        """Find its entries."""
        removed = tuple(index for index in snapshot.manifest.indices if index.name == self.name)
        if not removed:
            raise NotFoundError(f"there is no index {self.name!r}", path=snapshot.store.uri)
        return CreateIndex(removed_indices=removed)

    def forget(self) -> None:
        """Nothing was written."""


def index_options(**given: int | None) -> dict[str, Any]:
    """Return the options of a kind that the caller gave."""
    return {name: value for name, value in given.items() if value is not None}


@frozen(kw_only=True)
class IndexTarget:
    """A segment that is to be written.

    Attributes:
        snapshot: The version that it is built on.
        kind: Its kind.
        column: Its column.
        name: Name of the index.
        uuid: 16 bytes.
        files: Its files.
    """

    snapshot: Snapshot
    kind: IndexKind
    column: IndexedColumn
    name: str
    uuid: bytes
    files: SegmentFiles

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        kind: IndexKind,
        column: IndexedColumn,
        name: str,
        unique: bytes | None = None,
        *,
        ends: Ends | None = None,
    ) -> IndexTarget:
        """Return a target with a folder of its own; ``ends`` as of `SegmentFiles`."""
        identity = uuid.UUID(bytes=unique) if unique else uuid.uuid4()
        files = SegmentFiles(snapshot.store, f"{INDICES_FOLDER}/{identity}", ends)
        return cls(snapshot=snapshot, kind=kind, column=column, name=name, uuid=identity.bytes, files=files)

    def build(self, fragments: Iterable[Fragment], options: Mapping[str, Any]) -> IndexMetadata:
        """Read the column of some fragments."""
        files, needs_deletions = OpenFiles(self.snapshot.store), not isinstance(self.kind, ZonedKind)
        columns = FragmentColumns(files, fragments, self.column, needs_deletions=needs_deletions)
        content = self.kind.build(self._segment, columns, options)
        return self._entry(content, [fragment.id for fragment in fragments])

    def rewrite(
        self, kind: RewritableKind, segments: list[tuple[Segment, Relocation]], fragment_ids: Iterable[int]
    ) -> IndexMetadata:
        """Merge segments that together cover some fragments."""
        return self._entry(kind.rewrite(self._segment, segments), fragment_ids)

    @property
    def _segment(self) -> SegmentTarget:
        stable = self.snapshot.manifest.uses_stable_row_ids
        return SegmentTarget(files=self.files, column=self.column, with_stable_row_ids=stable)

    def _entry(self, content: SegmentContent, fragment_ids: Iterable[int]) -> IndexMetadata:
        return make_index(
            IndexFields(
                uuid=self.uuid,
                name=self.name,
                fields=(self.column.leaf.id,),
                dataset_version=self.snapshot.version,
                fragment_ids=frozenset(fragment_ids),
                index_version=content.index_version,
                created_at=(datetime.now(UTC) - _EPOCH) // _MILLISECOND,
                files=tuple(self.files.written.items()),
                details=(self.kind.type_url, content.details),
            )
        )


def chosen_fragments(snapshot: Snapshot, fragment_ids: Collection[int] | None) -> Iterable[Fragment]:
    """Return the fragments of an index.

    Args:
        snapshot: The version.
        fragment_ids: Their ids; all if None.

    Raises:
        InvalidInputError: There is no such fragment.
    """
    fragments = snapshot.manifest.fragments
    if fragment_ids is None:
        return fragments
    chosen = {number: fragments.find(number) for number in fragment_ids}
    unknown = [number for number, fragment in chosen.items() if fragment is None]
    if unknown:
        raise InvalidInputError(f"version {snapshot.version} has no fragments {sorted(unknown)}")
    return [fragment for fragment in chosen.values() if fragment is not None]


def forget_files(written: list[SegmentFiles]) -> None:
    """Remove files that will not be committed."""
    while written:
        written.pop().remove()
