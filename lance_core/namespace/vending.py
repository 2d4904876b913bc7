"""Namespaces by name and properties, and the credentials that they vend for a table."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import lance_namespace as ln

from lance_core.errors import InvalidInputError
from lance_core.namespace.directory import DirectoryNamespace
from lance_core.namespace.rest import RestNamespace
from lance_core.values.table_id import EXPIRY

if TYPE_CHECKING:
    from collections.abc import Mapping

_IMPLEMENTATIONS: dict[str, Any] = {"dir": DirectoryNamespace, "rest": RestNamespace}


def connect(impl: str, properties: Mapping[str, str]) -> Any:
    """Open a namespace.

    Args:
        impl: ``dir`` or ``rest``, or a name that `lance_namespace.connect` knows, such as the full name of a class.
        properties: Its properties.

    Returns:
        A `lance_namespace.LanceNamespace`.

    Raises:
        InvalidInputError: There is no such implementation, or a property is wrong.

    Examples:
        >>> connect("dir", {"root": "shop"}).namespace_id()
        "DirectoryNamespace(root='shop')"
    """
    if impl in _IMPLEMENTATIONS:
        return _IMPLEMENTATIONS[impl](**properties)
    try:
        return ln.connect(impl, dict(properties))
    except ValueError as error:
        names = f"{', '.join(_IMPLEMENTATIONS)}, those of lance-namespace, and full names of classes"
        raise InvalidInputError(f"there is no namespace {impl!r} ({error}); there are: {names}") from error


def vended_options(namespace: str) -> tuple[dict[str, str], datetime | None]:
    """Ask a namespace for the storage options of a table.

    Args:
        namespace: Storage option ``namespace``, made by `lance_core.values.table_id`.

    Returns:
        The options, and when they expire.
    """
    asked = json.loads(namespace)
    client = _client(asked["impl"], json.dumps(asked["properties"]))
    options = dict(client.describe_table(ln.DescribeTableRequest(id=asked["table_id"])).storage_options or {})
    expiry = options.pop(EXPIRY, None)
    return options, None if expiry is None else datetime.fromtimestamp(int(expiry) / 1000, UTC)


@lru_cache
def _client(impl: str, properties: str) -> Any:
    return connect(impl, json.loads(properties))
