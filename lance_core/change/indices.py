"""Changes to the indices of a table, of all kinds: build, extend and merge, drop."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from lance_core.errors import AlreadyExistsError, InvalidInputError, NotFoundError, UnsupportedError
from lance_core.format.index_metadata import IndexFields, holds_row_ids, index_kind, make_index
from lance_core.format.operations import CreateIndex
from lance_core.format.paths import INDICES_FOLDER
from lance_core.frozen import frozen
from lance_core.index.answer import ADDRESS_SHIFT
from lance_core.index.column import column_to_index, path_of
from lance_core.index.files import SegmentFiles
from lance_core.index.kinds import KINDS, check_build, kind_named, kind_of_index
from lance_core.index.protocol import RewritableKind
from lance_core.scan.indexed import ColumnOfFragment
from lance_core.scan.open_files import OpenFiles

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lance_core.format.fragment import Fragment
    from lance_core.format.index_metadata import IndexMetadata
    from lance_core.format.operations import Operation
    from lance_core.index.column import IndexedColumn
    from lance_core.index.protocol import IndexKind, Int64s, Relocation, Segment, SegmentContent
    from lance_core.table.snapshot import Snapshot

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(slots=True, kw_only=True)
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
    options: Mapping[str, int] = field(default_factory=dict[str, int])
    fragment_ids: Collection[int] | None = None
    uuid: bytes | None = None
    sees_new_rows: bool = False
    _written: list[SegmentFiles] = field(default_factory=list[SegmentFiles])

    def prepare(self, snapshot: Snapshot) -> Operation:
        """Read the column and write the index."""
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
        target = _Target.of(snapshot, kind, column, self.name, self.uuid)
        self._written.append(target.files)
        fragments = _chosen(snapshot, self.fragment_ids)
        return CreateIndex(new_indices=(target.build(fragments, options),), removed_indices=old)

    def forget(self) -> None:
        """Remove the files written so far."""
        _forget(self._written)


@dataclass(slots=True, kw_only=True)
class ExtendIndices:
    """Indices that shall cover all fragments again, each in one segment.

    Attributes:
        names: Names of the indices; all of known kinds if None.
        extended: Names of those that the last preparation wrote.
    """

    names: Collection[str] | None = None
    sees_new_rows: bool = False
    extended: tuple[str, ...] = ()
    _written: list[SegmentFiles] = field(default_factory=list[SegmentFiles])

    def prepare(self, snapshot: Snapshot) -> Operation:
        """Write those that do not cover all fragments, or cover some that are gone, or have several segments."""
        self.forget()
        new: list[IndexMetadata] = []
        removed: list[IndexMetadata] = []
        for entries in stale_indices(snapshot, self.names):
            new.append(self._extend(snapshot, entries))
            removed += entries
        self.extended = tuple(index.name for index in new)
        return CreateIndex(new_indices=tuple(new), removed_indices=tuple(removed))

    def _extend(self, snapshot: Snapshot, entries: list[IndexMetadata]) -> IndexMetadata:
        first = entries[0]
        kind = kind_of_index(first)
        assert kind is not None  # noqa: S101 for the type checker: stale indices are of known kinds
        column = column_to_index(snapshot.manifest.schema, path_of(snapshot.manifest.schema, first.fields[0]))
        segments = [kind.open(SegmentFiles.of(snapshot.store, entry), column) for entry in entries]
        options = {**kind.default_options, **segments[0].options}
        target = _Target.of(snapshot, kind, column, first.name)
        self._written.append(target.files)
        has_row_ids = snapshot.manifest.uses_stable_row_ids and any(map(holds_row_ids, entries))
        if has_row_ids or not isinstance(kind, RewritableKind) or any(entry.fragment_ids is None for entry in entries):
            return target.build(snapshot.manifest.fragments, options)
        live = snapshot.manifest.fragments.ids.astype(np.int64)
        coverage = [np.intersect1d(live, sorted(entry.fragment_ids or ())) for entry in entries]
        missing = np.setdiff1d(live, np.concatenate(coverage))
        parts = [(segment, _staying(ids)) for segment, ids in zip(segments, coverage, strict=True)]
        if not len(missing):
            return target.rewrite(kind, parts, live)
        newest = _Target.of(snapshot, kind, column, first.name)
        self._written.append(newest.files)
        newest.build(snapshot.manifest.fragments.select(missing.tolist()), options)
        parts.append((kind.open(newest.files, column), _staying(missing)))
        made = target.rewrite(kind, parts, live)
        newest.files.remove()
        return made

    def forget(self) -> None:
        """Remove the files written so far."""
        _forget(self._written)


@dataclass(slots=True, kw_only=True)
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


def index_options(**given: int | None) -> dict[str, int]:
    """Return the options of a kind that the caller gave."""
    return {name: value for name, value in given.items() if value is not None}


def stale_indices(snapshot: Snapshot, names: Collection[str] | None) -> list[list[IndexMetadata]]:
    """Return the entries of indices that do not cover all fragments, cover some that are gone, or could be merged.

    Args:
        snapshot: The version.
        names: Names of indices; all of known kinds if None.

    Raises:
        NotFoundError: There is no index of one of these names.
        UnsupportedError: One of these is of a kind that lance_core does not build.
    """
    live = set(snapshot.manifest.fragments.ids.tolist())
    by_name: dict[str, list[IndexMetadata]] = {}
    for index in snapshot.manifest.indices:
        by_name.setdefault(index.name, []).append(index)
    _check_names(snapshot, by_name, names)
    chosen = [entries for name, entries in by_name.items() if names is None or name in names]
    return [
        entries
        for entries in chosen
        if _can_extend(entries)
        and (len(entries) > 1 or {number for entry in entries for number in entry.fragment_ids or ()} != live)
    ]


def _can_extend(entries: list[IndexMetadata]) -> bool:
    kinds = [kind_of_index(entry) for entry in entries]
    return all(kind is not None and kind is kinds[0] for kind in kinds)


@frozen(kw_only=True)
class _Target:
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
        cls, snapshot: Snapshot, kind: IndexKind, column: IndexedColumn, name: str, unique: bytes | None = None
    ) -> _Target:
        identity = uuid.UUID(bytes=unique) if unique else uuid.uuid4()
        files = SegmentFiles(snapshot.store, f"{INDICES_FOLDER}/{identity}")
        return cls(snapshot=snapshot, kind=kind, column=column, name=name, uuid=identity.bytes, files=files)

    def build(self, fragments: Iterable[Fragment], options: Mapping[str, int]) -> IndexMetadata:
        """Read the column of some fragments."""
        covered: list[int] = []
        files = OpenFiles(self.snapshot.store)

        def columns() -> Iterable[ColumnOfFragment]:
            for fragment in fragments:
                covered.append(fragment.id)
                yield ColumnOfFragment(files, fragment, self.column)

        stable = self.snapshot.manifest.uses_stable_row_ids
        content = self.kind.build(self.files, self.column, columns(), options, with_stable_row_ids=stable)
        return self._entry(content, covered)

    def rewrite(
        self, kind: RewritableKind, segments: list[tuple[Segment, Relocation]], fragment_ids: Int64s
    ) -> IndexMetadata:
        """Merge segments that together cover some fragments."""
        stable = self.snapshot.manifest.uses_stable_row_ids
        content = kind.rewrite(self.files, self.column, segments, with_stable_row_ids=stable)
        return self._entry(content, fragment_ids.tolist())

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


def _staying(fragment_ids: Int64s) -> Relocation:
    """Return the relocation by which rows of some fragments stay where they are and all others are gone."""

    def relocate(addresses: Int64s) -> Int64s:
        return np.where(np.isin(addresses >> ADDRESS_SHIFT, fragment_ids), addresses, -1)

    return relocate


def _chosen(snapshot: Snapshot, fragment_ids: Collection[int] | None) -> Iterable[Fragment]:
    fragments = snapshot.manifest.fragments
    if fragment_ids is None:
        return fragments
    found = {number: fragments.find(number) for number in fragment_ids}
    unknown = [number for number, fragment in found.items() if fragment is None]
    if unknown:
        raise InvalidInputError(f"version {snapshot.version} has no fragments {sorted(unknown)}")
    return [fragment for fragment in found.values() if fragment is not None]


def _check_names(snapshot: Snapshot, by_name: dict[str, list[IndexMetadata]], names: Collection[str] | None) -> None:
    for name in names or ():
        if name not in by_name:
            raise NotFoundError(f"there is no index {name!r}", path=snapshot.store.uri)
        if not _can_extend(by_name[name]):
            raise UnsupportedError(
                f"index {name!r} is of type {index_kind(by_name[name][0])}; lance_core extends {', '.join(KINDS)} only"
            )


def _forget(written: list[SegmentFiles]) -> None:
    while written:
        written.pop().remove()
