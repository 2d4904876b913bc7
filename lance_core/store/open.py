# An address is text, and pathlib would also resolve symbolic links.
# ruff: noqa: PTH100, PTH111
"""From an address to a store."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.store.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.store.base import Store

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def open_store(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> Store:
    """Open the place a dataset lies in; nothing is read or created yet.

    Args:
        uri: A path (relative to the working directory, or below ``~/``) or ``file://`` address.
        storage_options: Settings of the storage service; the local file system has none and ignores them.

    Raises:
        UnsupportedError: There is no store for this kind of address.
        InvalidInputError: Not an address.
    """
    del storage_options
    address = os.fspath(uri)
    scheme = _SCHEME.match(address)
    if scheme is None:
        return LocalStore(_absolute(address))
    if scheme[1].lower() != "file":
        raise UnsupportedError(
            f"lance_core cannot open {scheme[1]}:// addresses yet; use a path on a local file system", path=address
        )
    parts = urlsplit(address)
    if parts.netloc not in {"", "localhost"}:
        raise InvalidInputError(f"a file:// address needs three slashes: {address!r} names a host", path=address)
    return LocalStore(_absolute(unquote(parts.path)))


def _absolute(path: str) -> str:
    if not path or "\0" in path:
        raise InvalidInputError(f"{path!r} is not a path of a dataset", path=path)
    return os.path.abspath(os.path.expanduser(path))
