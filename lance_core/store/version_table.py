"""Protocol of an external manifest store.

Some object stores cannot create an object atomically. A table elsewhere then decides which of several writers gets a
version: one row for each version of each dataset, which exactly one of them can create.

    base_uri   dataset
    version    number
    path       where the manifest is: staged (``{final}-{uuid}``) or final
    size       its bytes

Source: section "External Manifest Store" of the table format.
"""

from __future__ import annotations

from typing import Protocol

from lance_core.common.frozen import frozen


@frozen(kw_only=True)
class VersionRow:
    """One version of one dataset.

    Attributes:
        version: Its number.
        path: Where its manifest is, relative to the dataset.
        size: Bytes in it.
    """

    version: int
    path: str
    size: int


class VersionTable(Protocol):
    """Rows of all versions of some datasets; ``base`` names one of them."""

    def create(self, base: str, row: VersionRow, /) -> bool:
        """Create a row in one step; False if the version has one. Another error leaves open whether it was created."""
        ...

    def settle(self, base: str, row: VersionRow, /, *, staged: str) -> None:
        """Replace a row if its path is still ``staged``; nothing happens otherwise."""
        ...

    def find(self, base: str, version: int | None, /) -> VersionRow | None:
        """Return the row of a version, or of the newest one; None if there is none. Never an old state."""
        ...

    def remove(self, base: str, row: VersionRow, /) -> None:
        """Remove a row if its path is still the same; nothing happens otherwise."""
        ...
