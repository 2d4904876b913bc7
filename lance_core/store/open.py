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
from lance_core.store.paths import check_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.store.base import Store
    from lance_core.store.s3 import S3Store

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def open_store(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> Store:
    """Open the place a dataset lies in; nothing is read or created yet.

    Args:
        uri: A path (relative to the working directory, or below ``~/``) or an address:

            - ``file://``
            - ``s3://bucket/path`` (also ``s3a://``): S3 and services like it; needs s3fs
            - ``memory://name``: this process only
            - others that fsspec knows (``gs://``, ``az://``, ``https://``, ...): for reading
        storage_options: Settings of the storage service: for S3 see `lance_core.store.s3_options.S3Options`, for
            fsspec the arguments of its file system. The local file system and memory have none and ignore them.

    Raises:
        UnsupportedError: There is no store for this kind of address, or a package is missing for it.
        InvalidInputError: Not an address, or wrong storage options.
    """
    address = os.fspath(uri)
    found = _SCHEME.match(address)
    scheme = "" if found is None else found[1].lower()
    match scheme:
        case "":
            return LocalStore(_absolute(address))
        case "file":
            return LocalStore(_path_of(address))
        case "s3" | "s3a":
            return _open_s3(address, storage_options)
        case "memory":
            return _open_memory(address)
        case "s3+ddb":
            raise UnsupportedError("lance_core cannot use s3+ddb:// (commits through DynamoDB) yet", path=address)
        case _:
            from lance_core.store.fsspec_store import FsspecStore  # noqa: PLC0415 rarely needed

            return FsspecStore(uri=address.rstrip("/"), scheme=scheme, options=storage_options or {})


def _path_of(address: str) -> str:
    parts = urlsplit(address)
    if parts.netloc not in {"", "localhost"}:
        raise InvalidInputError(f"a file:// address needs three slashes: {address!r} names a host", path=address)
    return _absolute(unquote(parts.path))


def _absolute(path: str) -> str:
    if not path or "\0" in path:
        raise InvalidInputError(f"{path!r} is not a path of a dataset", path=path)
    return os.path.abspath(os.path.expanduser(path))


def _open_s3(address: str, storage_options: Mapping[str, str] | None) -> S3Store:
    from lance_core.store.s3 import S3Store  # noqa: PLC0415 not needed for local datasets
    from lance_core.store.s3_options import parse_s3_options  # noqa: PLC0415 likewise

    place = _place_of(address)
    bucket, _, key = place.partition("/")
    root = unquote(key)
    if root:
        check_path(root)
    return S3Store(bucket=bucket, root=root, uri=f"s3://{place}", options=parse_s3_options(storage_options))


def _open_memory(address: str) -> Store:
    from lance_core.store.memory import memory_store  # noqa: PLC0415 rarely needed

    return memory_store(f"memory://{_place_of(address)}")


def _place_of(address: str) -> str:
    """What comes after the scheme, without slashes at the end."""
    place = address.partition("://")[2].rstrip("/")
    if not place or place.startswith("/"):
        raise InvalidInputError(f"{address!r} does not name a bucket", path=address)
    if "?" in place or "#" in place:
        raise InvalidInputError(f"{address!r} is no address: settings belong into storage_options", path=address)
    return place
