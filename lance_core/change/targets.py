"""Write the data files of a dataset into several places in turn."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from lance_core.common.frozen import frozen, mutable, replace
from lance_core.errors import InvalidInputError
from lance_core.format.table.paths import DATA_FOLDER, base_prefix
from lance_core.store.trust import PlaceSettings
from lance_core.table.locations import BasedStore, objects_at_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_core.format.table.base_path import BasePath
    from lance_core.format.table.fragment import Fragment
    from lance_core.store.base import ObjectInfo, ObjectReader, ObjectWriter, Store
    from lance_core.table.snapshot import Snapshot


@mutable
class TargetStore:
    """A dataset whose new data files go to base paths, one after the other; what belongs to a file goes with it.

    Attributes:
        bases: The dataset with its base paths.
        targets: Numbers of base paths; None is the dataset itself.
    """

    bases: Store
    targets: Sequence[int | None]
    _chosen: dict[str, int | None] = field(default_factory=dict[str, "int | None"])

    @property
    def uri(self) -> str:
        """Address of the dataset."""
        return self.bases.uri

    @property
    def at_once(self) -> int:
        """Objects that may be written at the same time."""
        return objects_at_once(self.bases)

    def fragments(self, staged: Sequence[Fragment]) -> tuple[Fragment, ...]:
        """Staged fragments that say where their files are."""
        if self.targets == [None]:
            return tuple(staged)
        return tuple(
            replace(
                fragment, files=tuple(replace(file, base_id=self._chosen[_stem(file.path)]) for file in fragment.files)
            )
            for fragment in staged
        )

    def reader(self, path: str, /) -> ObjectReader:
        """Open an object."""
        return self.bases.reader(self._at(path))

    def get(self, path: str, /) -> bytes:
        """Read a whole object."""
        return self.bases.get(self._at(path))

    def writer(self, path: str, /) -> ObjectWriter:
        """Begin an object."""
        return self.bases.writer(self._at(path))

    def put(self, path: str, data: bytes, /) -> None:
        """Write a whole object."""
        self.bases.put(self._at(path), data)

    def put_if_absent(self, path: str, data: bytes, /) -> bool:
        """Create an object."""
        return self.bases.put_if_absent(self._at(path), data)

    def names(self, folder: str, /) -> list[str]:
        """Names in a folder."""
        return self.bases.names(self._at(folder))

    def list(self, prefix: str, /) -> Iterator[ObjectInfo]:
        """Return all objects below a folder."""
        return self.bases.list(self._at(prefix))

    def delete(self, paths: Sequence[str], /) -> None:
        """Delete objects."""
        self.bases.delete([self._at(path) for path in paths])

    def _at(self, path: str) -> str:
        folder, _, name = path.partition("/")
        if folder != DATA_FOLDER or not name:
            return path
        stem = _stem(name)
        if stem not in self._chosen:
            self._chosen[stem] = self.targets[len(self._chosen) % len(self.targets)]
        return f"{base_prefix(self._chosen[stem])}{path}"


def target_store(
    store: Store,
    existing: Snapshot | None,
    new_bases: Sequence[BasePath],
    names: Sequence[str] | None,
    *,
    all_bases: bool,
    include_primary: bool = True,
) -> TargetStore:
    """Return the destination of new data files.

    Args:
        store: The dataset.
        existing: Its newest version, if there is one.
        new_bases: Base paths that a new dataset begins with.
        names: Names or addresses of base paths; None for the dataset itself.
        all_bases: The dataset itself and all base paths.
        include_primary: The dataset itself is one of all.

    Raises:
        InvalidInputError: There is no such base path, or none at all, or both were asked for.
    """
    bases = (*(() if existing is None else existing.manifest.base_paths), *new_bases)
    if all_bases and names:
        raise InvalidInputError("pass either 'target_bases' or 'target_all_bases', not both")
    targets: list[int | None] = [None]
    if all_bases:
        targets = [*targets[: int(include_primary)], *(base.id for base in bases)]
    if not targets:
        raise InvalidInputError("cannot write to base paths: the dataset has none")
    if names:
        targets = [_find(bases, name) for name in names]
    if bases:
        if not isinstance(store, BasedStore):
            store = BasedStore(store, PlaceSettings())
        store = BasedStore(store.branch_root, store.settings, bases, commit_lock=store.commit_lock)
    return TargetStore(store, targets)


@frozen(kw_only=True)
class Targets:
    """Destination of new data files of a dataset; arguments of `target_store`."""

    names: tuple[str, ...] | None = None
    all_bases: bool = False
    include_primary: bool = True

    def of(self, snapshot: Snapshot) -> TargetStore:
        """These places of a version."""
        return target_store(
            snapshot.store,
            snapshot,
            (),
            self.names,
            all_bases=self.all_bases,
            include_primary=self.include_primary,
        )


DEFAULT_TARGETS = Targets()


def _find(bases: Sequence[BasePath], name: str) -> int:
    for base in bases:
        if name in {base.name, base.path}:
            return base.id
    names = ", ".join(base.name or base.path for base in bases) or "none"
    raise InvalidInputError(f"there is no base path {name!r}; the base paths are: {names}")


def _stem(name: str) -> str:
    """Return the common name of a data file and the files that belong to it."""
    return name.partition("/")[0].removesuffix(".lance")
