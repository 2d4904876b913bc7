"""A version of a table as the driver has read it, for tasks that get their fragments with their work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lance_core.format.fragment_list import FragmentList
from lance_core.table.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_core.format.fragment import Fragment
    from lance_core.format.manifest import Manifest
    from lance_core.table.open_table import LineAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskVersion:
    """What all tasks have to know of a version, so that none of them reads its manifest.

    Attributes:
        line: The line of versions.
        manifest: The manifest without its fragments, which are many, and without its transaction.
    """

    line: LineAddress
    manifest: Manifest

    @staticmethod
    def of(line: LineAddress, snapshot: Snapshot) -> TaskVersion:
        """The version of a snapshot.

        Args:
            line: Where it is.
            snapshot: The version.
        """
        manifest = replace(snapshot.manifest, fragments=FragmentList(), transaction_section=None)
        return TaskVersion(line=line, manifest=manifest)

    def open(self, fragments: Iterable[Fragment]) -> Snapshot:
        """The version as if it consisted of some of its fragments only, opened in this process."""
        manifest = replace(self.manifest, fragments=FragmentList.of(fragments))
        return Snapshot(store=self.line.open(), manifest=manifest)
