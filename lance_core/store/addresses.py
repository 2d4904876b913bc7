"""Addresses as text, taken apart. Nothing is opened here."""

# An address is text, and pathlib would also resolve symbolic links.
# ruff: noqa: PTH100, PTH111

from __future__ import annotations

import os
import re
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

from lance_core.common.frozen import frozen
from lance_core.errors import InvalidInputError
from lance_core.store.paths import check_path

LOCAL, MEMORY = "file", "memory"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_DECODED = {"s3", "gs", "az"}
"""Services in whose addresses names are percent-encoded."""

_SAME_SERVICE = {"s3a": "s3", "s3+ddb": "s3", "abfs": "az", "abfss": "az", "gcs": "gs"}
_MANY_PATHS = 128
_DECODINGS = 3


@frozen(kw_only=True)
class Address:
    """Location of an object or folder, in one spelling.

    Attributes:
        service: Scheme; all schemes of one service are one (``s3a`` is ``s3``). ``file`` for local paths.
        host: Host, bucket or container; empty for local paths and for memory, which are one place each.
        path: Path without a slash at its end, decoded where the service decodes it.
        text: The address as `lance_core.store.open.open_store` takes it.
    """

    service: str
    host: str
    path: str
    text: str

    @property
    def origin(self) -> tuple[str, str]:
        """The service and host that settings may be sent to."""
        return self.service, self.host

    def is_below(self, folder: Address) -> bool:
        """Return whether this is a folder or lies in it; names are compared as wholes."""
        inside = self.path == folder.path or self.path.startswith(f"{folder.path.rstrip('/')}/")
        return self.origin == folder.origin and (inside or not folder.path)

    def split(self) -> tuple[Address, str]:
        """Return the folder of an object, and its name in it.

        Raises:
            InvalidInputError: The address names no object in a folder.
        """
        folder, slash, name = self.path.rpartition("/")
        if not name or (self.service == MEMORY and not folder):
            raise InvalidInputError(f"address {self.text!r} does not name an object in a folder", path=self.text)
        if self.service == LOCAL:
            return _local(folder or slash), name
        text = self._text_of(folder) if self.service in _DECODED else self.text[: -len(name) - 1]
        return Address(service=self.service, host=self.host, path=folder, text=text), name

    def joined(self, path: str) -> Address:
        """Return an object or folder below this one.

        Args:
            path: Relative and not percent-encoded.

        Raises:
            InvalidInputError: The path is absolute or leads up.
        """
        check_path(path)
        if self.service == LOCAL:
            return _local(f"{self.path.rstrip('/')}/{path}")
        return parse_address(f"{self.text}/{quote(path) if self.service in _DECODED else path}")

    def _text_of(self, path: str) -> str:
        """Return the address of another path in the same bucket."""
        return _cloud_text(scheme_of(self.text), self.text.split("/", 3)[2], path)


def scheme_of(text: str) -> str:
    """Return the scheme of an address in lower case; empty for a plain path."""
    match = _SCHEME.match(text)
    return "" if match is None else match[1].lower()


def local_path(text: str) -> str:
    """Return the absolute path of a ``file://`` address, or of a path that is relative or below ``~/``.

    Raises:
        InvalidInputError: The address names a host, or nothing.
    """
    if not text.startswith(os.sep) and scheme_of(text) == LOCAL:
        parts = urlsplit(text)
        if parts.netloc not in {"", "localhost"}:
            raise InvalidInputError(f"a file:// address needs three slashes: {text!r} names a host", path=text)
        text = unquote(parts.path)
    if not text or "\0" in text:
        raise InvalidInputError(f"{text!r} is not the address of a dataset", path=text)
    return _normal(text) if text.startswith(os.sep) else os.path.abspath(os.path.expanduser(text))


@lru_cache(maxsize=_MANY_PATHS)
def _normal(path: str) -> str:
    """Return an absolute path as it is spelled in one way only."""
    return os.path.abspath(path)


def _local(path: str) -> Address:
    return Address(service=LOCAL, host="", path=path, text=path)


def _cloud_text(scheme: str, host: str, path: str) -> str:
    return f"{scheme}://{host}/{quote(path)}".rstrip("/")


def parse_dataset(text: str) -> Address | None:
    """Take apart the address of a dataset that is open; None for one that only fsspec understands."""
    if scheme_of(text) in {"", LOCAL}:
        return _local(local_path(text))
    try:
        return parse_address(text)
    except InvalidInputError:
        return None


def parse_address(text: str) -> Address:
    """Take apart an address that somebody else wrote; stricter than `lance_core.store.open.open_store`.

    Raises:
        InvalidInputError: Empty, with control characters or backslashes, a chain of addresses (``::``), with settings
            behind ``?`` or ``#`` (but for the table of ``s3+ddb://``), with a password in it, with ``..`` in its path
            (plain local paths are resolved instead), or on another machine (``//host/share``).
    """
    scheme = scheme_of(text)
    problem = _problem(text, scheme)
    if problem is not None:
        raise InvalidInputError(f"a table must not refer to {without_password(text)!r}: {problem}")
    if scheme in {"", LOCAL}:
        path = local_path(text)
        if path.startswith(("//", "\\\\")):
            raise InvalidInputError(f"a table must not refer to {text!r}: it names another machine")
        return _local(path)
    rest = text.partition("://")[2].partition("?")[0].rstrip("/")
    host, _, path = rest.partition("/")
    service = _SAME_SERVICE.get(scheme, scheme)
    if service in _DECODED:
        path = unquote(path)
        if service == "s3":  # files of a base path are read without asking a table of versions
            scheme = service
        else:
            host = host.lower()
        return Address(service=service, host=host, path=path, text=_cloud_text(scheme, host, path))
    if service == MEMORY:
        host, path = "", rest
    return Address(service=service, host=host.lower(), path=path, text=f"{scheme}://{rest}")


def without_password(text: str) -> str:
    """Return the address, with what stands before ``@`` in its host replaced if that may hold a password."""
    return re.sub(r"://[^/@]*:[^/]*@", "://***@", text)


def _problem(text: str, scheme: str) -> str | None:
    """Return the fault of an address; None if it has none."""
    if not text.strip() or any(ord(character) < ord(" ") for character in text):
        return "it is empty or has control characters"
    if "\\" in text and os.sep != "\\":
        return "it has a backslash"
    if "::" in text.partition("/")[0] or (scheme not in {"", LOCAL} and "::" in text):
        return "it chains addresses"
    if not scheme:
        return None
    rest, mark, settings = text.partition("://")[2].partition("?")
    if "#" in text or (mark and not (scheme == "s3+ddb" and settings.startswith("ddbTableName="))):
        return "it has settings behind '?' or '#'; percent-encode these characters in names"
    host, _, path = rest.rstrip("/").partition("/")
    if "@" in host and (_SAME_SERVICE.get(scheme, scheme) != "az" or ":" in host.rpartition("@")[0]):
        return "it has credentials in it; give them as storage options"
    if scheme != LOCAL and not host:
        return "it does not name a host or bucket"
    if scheme != LOCAL and path and _leads_elsewhere(path):
        return "it has empty, '.' or '..' parts in its path"
    return None


def _leads_elsewhere(path: str) -> bool:
    """Return whether a path, decoded as often as a server on the way might do it, has a part that is none or leads up.

    Local paths need no such check: they are resolved before it is decided about them.
    """
    for _ in range(_DECODINGS):
        try:
            check_path(path)
        except InvalidInputError:
            return True
        path = unquote(path)
    return False
