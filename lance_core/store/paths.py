"""Paths relative to a store's root."""

from __future__ import annotations

import re

from lance_core.errors import InvalidInputError

_LEADS_OUT = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)|[\\\0]")


def check_path(path: str) -> None:
    """Refuse a path that could lead out of the store, or to different places on different systems.

    Raises:
        InvalidInputError: The path is absolute or empty, or has an empty, ``.`` or ``..`` part, a backslash or a NUL.
    """
    if _LEADS_OUT.search(path):
        raise InvalidInputError(f"{path!r} is not a path below the dataset", path=path)
