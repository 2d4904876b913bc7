"""Progress of a write. Names as in pylance, where the protocol is a class to inherit from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lance_core.common.frozen import frozen
from lance_core.common.unsupported import late_names
from lance_core.values.fragment_metadata import FragmentMetadata, to_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.format.table.fragment import Fragment


class FragmentWriteProgress(Protocol):
    """Is told of each fragment that is written; what it raises ends the write, and nothing is left behind."""

    def begin(self, fragment: FragmentMetadata) -> None:
        """A fragment begins: it has a number, from 0 in each write, but no files and rows yet."""
        ...

    def complete(self, fragment: FragmentMetadata) -> None:
        """A fragment is finished; its file is there."""
        ...


class NoopFragmentWriteProgress:
    """Is told of each fragment, and does nothing."""

    def begin(self, fragment: FragmentMetadata) -> None:
        """A fragment begins."""

    def complete(self, fragment: FragmentMetadata) -> None:
        """A fragment is finished."""


class FileSystemFragmentWriteProgress:
    """Writes two small files for each fragment into a local folder: one when it begins, one with what it is.

    Args:
        base_uri: The folder; it is created.
        metadata: Text that goes into the first file.
    """

    PROGRESS_EXT = ".in_progress"

    def __init__(self, base_uri: str, metadata: Mapping[str, str] | None = None) -> None:
        self._folder = Path(base_uri.removeprefix("file://"))
        self._metadata = dict(metadata or {})

    def begin(self, fragment: FragmentMetadata) -> None:
        """A fragment begins."""
        content = {"fragment_id": fragment.id, "metadata": self._metadata}
        self._write(f"fragment_{fragment.id}{self.PROGRESS_EXT}", content)

    def complete(self, fragment: FragmentMetadata) -> None:
        """A fragment is finished."""
        self._write(f"fragment_{fragment.id}.json", fragment.to_json())

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / name).write_text(json.dumps(content))


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
    """Convert the public progress object to the form that the layers below take."""
    return None if public is None else Progress(public)


__getattr__ = late_names(__name__)
