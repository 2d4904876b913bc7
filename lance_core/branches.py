"""Branches of a dataset: independent histories that share files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_core.methods.arguments import ordered
from lance_core.table import branches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.format.table.refs import Branch
    from lance_core.table.snapshot import Snapshot


class Branches:
    """The branches of a dataset. Made by `LanceDataset.branches`. The version a branch comes from survives clean-up."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._store = snapshot.store

    def list(self) -> dict[str, dict[str, Any]]:
        """Return all branches: name to what is known of it.

        Keys are parent_branch, parent_version, branch_identifier, create_at (Unix seconds), manifest_size, metadata.

        Examples:
            >>> branch = table.create_branch("trial")
            >>> list(table.branches.list())
            ['trial']
        """
        return {branch.name: _to_dict(branch) for branch in branches.list_branches(self._store)}

    def list_ordered(self, order: str | None = None) -> list[tuple[str, dict[str, Any]]]:
        """Return all branches by the version they come from, then by name.

        Args:
            order: ``asc`` or ``desc`` (default).
        """
        return ordered(self.list(), "parent_version", order)

    def delete(self, branch: str) -> None:
        """Delete a branch with all its versions and files.

        Raises:
            RefNotFoundError: There is no such branch.
            InvalidInputError: Another branch comes from it, or a tag names one of its versions.

        Examples:
            >>> branch = table.create_branch("trial")
            >>> table.branches.delete("trial")
            >>> table.branches.list()
            {}
        """
        branches.delete_branch(self._store, branch)

    def replace_metadata(self, branch: str, metadata: Mapping[str, str]) -> None:
        """Replace the free text of a branch.

        Raises:
            RefNotFoundError: There is no such branch.
        """
        branches.describe_branch(self._store, branch, metadata)


def _to_dict(branch: Branch) -> dict[str, Any]:
    return {
        "parent_branch": branch.parent_branch,
        "branch_identifier": [*branch.identifier],
        "parent_version": branch.parent_version,
        "create_at": branch.created_at,
        "manifest_size": branch.manifest_size,
        "metadata": dict(branch.metadata),
    }
