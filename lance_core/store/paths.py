"""Paths relative to a store's root."""

from __future__ import annotations

from lance_core.errors import InvalidInputError

_NO_NAMES = frozenset({"", ".", ".."})


def check_path(path: str) -> None:
    """Refuse a path that could lead out of the store, or to different places on different systems.

    Raises:
        InvalidInputError: The path is absolute or empty, or has an empty, ``.`` or ``..`` part, a backslash or a NUL.
    """
    if "\\" in path or "\0" in path or not _NO_NAMES.isdisjoint(path.split("/")):
        raise InvalidInputError(f"{path!r} is not a path below the dataset", path=path)
