"""Changes to the indices of a table: make and renew zone maps, remove indices of any kind."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lance_core.errors import AlreadyExistsError, InvalidInputError, NotFoundError, UnsupportedError
from lance_core.format.index_metadata import index_kind
from lance_core.format.operations import CreateIndex
from lance_core.format.zone_map import DEFAULT_ROWS_PER_ZONE
from lance_core.index.zone_map_build import build_zone_map, indexed_column, rows_per_zone_of
from lance_core.index.zone_maps import is_zone_map, path_of, zone_map_path
from lance_core.scan.open_files import OpenFiles

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from lance_core.format.fragment import Fragment
    from lance_core.format.index_metadata import IndexMetadata
    from lance_core.format.operations import Operation
    from lance_core.store.base import Store
    from lance_core.table.snapshot import Snapshot

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(slots=True, kw_only=True)
class CreateZoneMap:
    """A new zone map on the way to its commit.

    Attributes:
        column: Name, or dotted path inside structs.
        name: Name of the index.
        replace: Take the place of an index of that name.
        rows_per_zone: Rows in each zone.
        fragment_ids: Fragments to cover; all if None.
        uuid: 16 bytes for the first attempt; random if None.
    """

    column: str
    name: str
    replace: bool
    rows_per_zone: int
    fragment_ids: Collection[int] | None = None
    uuid: bytes | None = None
    sees_new_rows: bool = False
    _written: list[tuple[Store, str]] = field(default_factory=list[tuple["Store", str]])

    def prepare(self, snapshot: Snapshot) -> Operation:
        """Read the column and write the index."""
        self.forget()
        manifest = snapshot.manifest
        column = indexed_column(manifest.schema, self.column)
        old = tuple(index for index in manifest.indices if index.name == self.name)
        if old and not self.replace:
            raise AlreadyExistsError(f"there is an index {self.name!r} already", path=snapshot.store.uri)
        if any(index.fields != (column.leaf.id,) for index in old):
            raise AlreadyExistsError(
                f"index {self.name!r} is over another column; give another name", path=snapshot.store.uri
            )
        new = _build(
            snapshot,
            _chosen(snapshot, self.fragment_ids),
            path=self.column,
            name=self.name,
            rows_per_zone=self.rows_per_zone,
            unique=self.uuid,
        )
        self._written.append((snapshot.store, zone_map_path(new)))
        return CreateIndex(new_indices=(new,), removed_indices=old)

    def forget(self) -> None:
        """Remove the file written so far."""
        _forget(self._written)


@dataclass(slots=True, kw_only=True)
class RenewZoneMaps:
    """Zone maps that shall cover all fragments again.

    Attributes:
        names: Names of the indices; all zone maps if None.
        renewed: Names of those that the last preparation made anew.
    """

    names: Collection[str] | None = None
    sees_new_rows: bool = False
    renewed: tuple[str, ...] = ()
    _written: list[tuple[Store, str]] = field(default_factory=list[tuple["Store", str]])

    def prepare(self, snapshot: Snapshot) -> Operation:
        """Write those that do not cover all fragments, or cover some that are gone."""
        self.forget()
        new: list[IndexMetadata] = []
        removed: list[IndexMetadata] = []
        for entries in stale_zone_maps(snapshot, self.names):
            new.append(self._renew(snapshot, entries))
            removed += entries
        self.renewed = tuple(index.name for index in new)
        return CreateIndex(new_indices=tuple(new), removed_indices=tuple(removed))

    def _renew(self, snapshot: Snapshot, entries: list[IndexMetadata]) -> IndexMetadata:
        first = entries[0]
        path = path_of(snapshot.manifest.schema, first.fields[0])
        rows_per_zone = rows_per_zone_of(snapshot.store, zone_map_path(first)) or DEFAULT_ROWS_PER_ZONE
        made = _build(
            snapshot, snapshot.manifest.fragments, path=path, name=first.name, rows_per_zone=rows_per_zone, unique=None
        )
        self._written.append((snapshot.store, zone_map_path(made)))
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


def stale_zone_maps(snapshot: Snapshot, names: Collection[str] | None) -> list[list[IndexMetadata]]:
    """Entries of zone maps that do not cover all fragments, or cover some that are gone.

    Args:
        snapshot: The version.
        names: Names of indices; all zone maps if None.

    Raises:
        NotFoundError: There is no index of one of these names.
        UnsupportedError: One of these is no zone map.
    """
    live = set(snapshot.manifest.fragments.ids.tolist())
    by_name: dict[str, list[IndexMetadata]] = {}
    for index in snapshot.manifest.indices:
        by_name.setdefault(index.name, []).append(index)
    _check_names(snapshot, by_name, names)
    asked = [entries for name, entries in by_name.items() if names is None or name in names]
    return [
        entries
        for entries in asked
        if all(map(is_zone_map, entries))
        and (len(entries) > 1 or {one for entry in entries for one in entry.fragment_ids or ()} != live)
    ]


def _build(
    snapshot: Snapshot,
    fragments: Iterable[Fragment],
    *,
    path: str,
    name: str,
    rows_per_zone: int,
    unique: bytes | None,
) -> IndexMetadata:
    return build_zone_map(
        OpenFiles(snapshot.store),
        fragments,
        indexed_column(snapshot.manifest.schema, path),
        name=name,
        uuid=unique or uuid.uuid4().bytes,
        rows_per_zone=rows_per_zone,
        dataset_version=snapshot.version,
        now_ms=(datetime.now(UTC) - _EPOCH) // _MILLISECOND,
    )


def _chosen(snapshot: Snapshot, fragment_ids: Collection[int] | None) -> Iterable[Fragment]:
    fragments = snapshot.manifest.fragments
    if fragment_ids is None:
        return fragments
    found = {one: fragments.find(one) for one in fragment_ids}
    unknown = [one for one, fragment in found.items() if fragment is None]
    if unknown:
        raise InvalidInputError(f"version {snapshot.version} has no fragments {sorted(unknown)}")
    return [fragment for fragment in found.values() if fragment is not None]


def _check_names(snapshot: Snapshot, by_name: dict[str, list[IndexMetadata]], names: Collection[str] | None) -> None:
    for name in names or ():
        if name not in by_name:
            raise NotFoundError(f"there is no index {name!r}", path=snapshot.store.uri)
        if not all(map(is_zone_map, by_name[name])):
            kind = index_kind(by_name[name][0])
            raise UnsupportedError(f"index {name!r} is of kind {kind}; lance_core brings only zone maps up to date")


def _forget(written: list[tuple[Store, str]]) -> None:
    while written:
        store, path = written.pop()
        store.delete([path])
