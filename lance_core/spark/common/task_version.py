"""A version of a table as the driver has read it, for tasks, so that none of them reads its manifest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lance_core.format.table.fragment_list import FragmentList
from lance_core.table.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.table.open_table import BranchAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskVersion:
    """The parts of a version that all tasks need.

    Attributes:
        branch_address: The branch.
        manifest: The manifest without its transaction; also without its fragments, which may be many, if the tasks get
            theirs with their work.
    """

    branch_address: BranchAddress
    manifest: Manifest

    @staticmethod
    def of(branch_address: BranchAddress, snapshot: Snapshot) -> TaskVersion:
        """Return the version of a snapshot without its fragments.

        Args:
            branch_address: Where it is.
            snapshot: The version.
        """
        manifest = replace(snapshot.manifest, fragments=FragmentList(), transaction_section=None)
        return TaskVersion(branch_address=branch_address, manifest=manifest)

    @staticmethod
    def whole(branch_address: BranchAddress, snapshot: Snapshot) -> TaskVersion:
        """Return the version of a snapshot with all of its fragments, for tasks that may need any of them.

        Args:
            branch_address: Where it is.
            snapshot: The version.
        """
        return TaskVersion(branch_address=branch_address, manifest=replace(snapshot.manifest, transaction_section=None))

    def open(self, fragments: Iterable[Fragment] | None = None) -> Snapshot:
        """Return the version, as if it consisted of some of its fragments only, opened in this process.

        Args:
            fragments: These; those that came with it if None.
        """
        fragments_ = self.manifest.fragments if fragments is None else FragmentList.of(fragments)
        return Snapshot(store=self.branch_address.open(), manifest=replace(self.manifest, fragments=fragments_))
