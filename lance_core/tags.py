"""Tags: names for versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_core.methods.arguments import ordered
from lance_core.table import refs
from lance_core.table.open_table import open_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.format.table.refs import Tag
    from lance_core.store.base import Store
    from lance_core.table.refs import Reference
    from lance_core.table.snapshot import Snapshot


class Tags:
    """The tags of a dataset. Made by `LanceDataset.tags`. A tagged version survives clean-up."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._store = snapshot.store

    def create(self, tag: str, reference: Reference = None) -> None:
        """Give a version a name.

        Args:
            tag: Letters, digits, ``.``, ``-`` and ``_``.
            reference: Version number on the branch of the dataset object, another tag, or a tuple of branch (None: the
                main branch) and number (None: the newest); the version of the dataset object if None.

        Raises:
            RefAlreadyExistsError: There is a tag of this name.
            VersionNotFoundError: There is no such version.
            InvalidInputError: The name is not allowed.

        Examples:
            >>> table.tags.create("first")
            >>> lance_core.dataset("cities.lance", version="first").version
            1
        """
        branch_root, version = self._named(reference)
        refs.create_tag(branch_root, tag, version)

    def update(self, tag: str, reference: Reference = None) -> None:
        """Let a tag name another version; ``reference`` as in `create`.

        Raises:
            RefNotFoundError: There is no such tag.
            VersionNotFoundError: There is no such version.

        Examples:
            >>> table.tags.create("best", 1)
            >>> table.delete("id = 1")
            {'num_deleted_rows': 1}
            >>> table.tags.update("best", 2)
            >>> table.tags.get_version("best")
            2
        """
        branch_root, version = self._named(reference)
        refs.update_tag(branch_root, tag, version)

    def delete(self, tag: str) -> None:
        """Remove a tag; its version stays.

        Raises:
            RefNotFoundError: There is no such tag.

        Examples:
            >>> table.tags.create("first")
            >>> table.tags.delete("first")
            >>> table.tags.list()
            {}
        """
        refs.delete_tag(self._store, tag)

    def list(self) -> dict[str, dict[str, Any]]:
        """Return all tags: name to version, branch, created_at, updated_at, manifest_size and metadata.

        Examples:
            >>> table.tags.create("first")
            >>> table.tags.list()["first"]["version"]
            1
        """
        return {name: _to_dict(tag) for name, tag in refs.list_tags(self._store).items()}

    def list_ordered(self, order: str | None = None) -> list[tuple[str, dict[str, Any]]]:
        """Return all tags by the version they name, then by name.

        Args:
            order: ``asc`` or ``desc`` (default).
        """
        return ordered(self.list(), "version", order)

    def replace_metadata(self, tag: str, metadata: Mapping[str, str]) -> None:
        """Replace the free text of a tag.

        Raises:
            RefNotFoundError: There is no such tag.
        """
        refs.describe_tag(self._store, tag, metadata)

    def get_version(self, tag: str) -> int:
        """Return the version a tag names.

        Raises:
            RefNotFoundError: There is no such tag.
        """
        return refs.get_tag(self._store, tag).version

    def _named(self, reference: Reference) -> tuple[Store, int]:
        """Return the branch, and the number."""
        if reference is None:
            return self._store, self._snapshot.version
        branch_root, version = refs.resolve(self._store, reference)
        return branch_root, open_version(branch_root).version if version is None else version


def _to_dict(tag: Tag) -> dict[str, Any]:
    names = ("branch", "version", "created_at", "updated_at", "manifest_size")
    return {**{name: getattr(tag, name) for name in names}, "metadata": dict(tag.metadata)}
