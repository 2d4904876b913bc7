"""Paths relative to a store's root."""

from __future__ import annotations

from functools import lru_cache

from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.format.table.paths import (
    BASE_PREFIX,
    DATA_FOLDER,
    DELETIONS_FOLDER,
    INDICES_FOLDER,
    TRANSACTIONS_FOLDER,
    VERSIONS_FOLDER,
)

_MANY_PATHS = 256
"""Paths that need no second look: those of a table's versions are asked for again and again."""
_PREFIX_SIZE = len(BASE_PREFIX)
_NO_NAMES = frozenset({"", ".", ".."})
_UNIQUE_FOLDERS = frozenset({DATA_FOLDER, DELETIONS_FOLDER, TRANSACTIONS_FOLDER, INDICES_FOLDER})
"""Names of files in them, or of the folders in `INDICES_FOLDER`, are random."""


@lru_cache(maxsize=_MANY_PATHS)
def check_path(path: str) -> None:
    """Refuse a path that could lead out of the store, or to different places on different systems.

    Raises:
        InvalidInputError: The path is absolute or empty, or has an empty, ``.`` or ``..`` part, a backslash or a NUL.
        CorruptDataError: The path lies below a base path that nobody could resolve.
    """
    if path[:_PREFIX_SIZE] == BASE_PREFIX:
        number, _, inner = path.removeprefix(BASE_PREFIX).partition("/")
        raise CorruptDataError(f"'{inner}' is below base path {number}, which the manifest does not list")
    if "\\" in path or "\0" in path or not _NO_NAMES.isdisjoint(path.split("/")):
        raise InvalidInputError(f"{path!r} is not a path below the dataset", path=path)


def is_written_once(path: str) -> bool:
    """Return whether nobody but its writer ever writes a file of this name, so that late requests do no harm."""
    above, folder, _ = ["", "", *path.split("/")][-3:]
    return folder in _UNIQUE_FOLDERS or (above == INDICES_FOLDER and folder != VERSIONS_FOLDER)
