"""Who wants to be told how far a write is. Names as in pylance, where this is a class to inherit from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from lance_core.fragment import FragmentMetadata, to_metadata
from lance_core.frozen import frozen

if TYPE_CHECKING:
    from lance_core.format.fragment import Fragment


class FragmentWriteProgress(Protocol):
    """Is told of each fragment that is written; what it raises ends the write, and nothing is left behind."""

    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """A fragment begins: it has a number, from 0 in each write, but no files and rows yet."""
        ...

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """A fragment is finished; its file is there."""
        ...


@frozen
class Progress:
    """Tells it in the public form of a fragment."""

    public: FragmentWriteProgress

    def begin(self, fragment: Fragment, /) -> None:
        """A fragment begins."""
        self.public.begin(to_metadata(fragment))

    def complete(self, fragment: Fragment, /) -> None:
        """A fragment is finished."""
        self.public.complete(to_metadata(fragment))


def staging_progress(public: FragmentWriteProgress | None) -> Progress | None:
    """What the layers below take."""
    return None if public is None else Progress(public)
