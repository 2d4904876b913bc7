"""Tags: names for versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_core.table import refs

if TYPE_CHECKING:
    from lance_core.format.refs import Tag
    from lance_core.table.snapshot import Snapshot


class Tags:
    """The tags of a dataset. Made by `LanceDataset.tags`. A tagged version survives clean-up."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._store = snapshot.store

    def create(self, tag: str, reference: int | str | None = None) -> None:
        """Give a version a name.

        Args:
            tag: Letters, digits, ``.``, ``-`` and ``_``.
            reference: Version number or another tag; the version of the dataset object if None.

        Raises:
            RefAlreadyExistsError: There is a tag of this name.
            VersionNotFoundError: There is no such version.
            InvalidInputError: The name is not allowed.
        """
        refs.create_tag(self._store, tag, self._version(reference))

    def update(self, tag: str, reference: int | str | None = None) -> None:
        """Let a tag name another version.

        Raises:
            RefNotFoundError: There is no such tag.
            VersionNotFoundError: There is no such version.
        """
        refs.update_tag(self._store, tag, self._version(reference))

    def delete(self, tag: str) -> None:
        """Remove a tag; its version stays.

        Raises:
            RefNotFoundError: There is no such tag.
        """
        refs.delete_tag(self._store, tag)

    def list(self) -> dict[str, dict[str, Any]]:
        """All tags: name to version, branch, created_at, updated_at, manifest_size and metadata."""
        return {name: _to_dict(tag) for name, tag in refs.list_tags(self._store).items()}

    def get_version(self, tag: str) -> int:
        """The version a tag names.

        Raises:
            RefNotFoundError: There is no such tag.
        """
        return refs.get_tag(self._store, tag).version

    def _version(self, reference: int | str | None) -> int:
        if reference is None:
            return self._snapshot.version
        return reference if isinstance(reference, int) else self.get_version(reference)


def _to_dict(tag: Tag) -> dict[str, Any]:
    return {
        "branch": tag.branch,
        "version": tag.version,
        "created_at": tag.created_at,
        "updated_at": tag.updated_at,
        "manifest_size": tag.manifest_size,
        "metadata": {},
    }
