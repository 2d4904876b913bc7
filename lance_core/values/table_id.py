"""Addresses of tables that are given by their name in a namespace (see `lance_core.namespace`)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lance_core.errors import (
    DatasetAlreadyExistsError,
    DatasetNotFoundError,
    InvalidInputError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EXPIRY = "expires_at_millis"
"""Storage option that says when vended credentials end; no store knows it."""
NAMESPACE = "namespace"
"""Storage option that tells stores, in any process, how to ask for credentials again."""


def find_table(
    uri: object, client: Any, table_id: Sequence[str] | None, storage_options: Mapping[str, str] | None
) -> tuple[str, dict[str, str]]:
    """Ask a namespace for a table.

    Args:
        uri: Must be None: the namespace gives the address.
        client: A `lance_namespace.LanceNamespace`.
        table_id: Names of the namespaces from the root, and that of the table.
        storage_options: Settings of the storage service; those of the namespace go before them.

    Returns:
        Address and storage options.

    Raises:
        DatasetNotFoundError: The namespace has no such table.
        InvalidInputError: Only one of client and name is given.
        UnsupportedError: The namespace commits versions itself.
    """
    names = _checked(uri, client, table_id)
    from lance_namespace import DescribeTableRequest, TableNotFoundError  # noqa: PLC0415 an extra

    try:
        response = client.describe_table(DescribeTableRequest(id=names))
    except TableNotFoundError as error:
        raise DatasetNotFoundError(f"the namespace has no table {'.'.join(names)!r}") from error
    return _answer(client, response, names, storage_options)


def declare_table(
    uri: object, client: Any, table_id: Sequence[str] | None, storage_options: Mapping[str, str] | None
) -> tuple[str, dict[str, str]]:
    """Register a table that is about to be written; arguments and result as those of `find_table`.

    A table that was declared and never written may be declared again.

    Raises:
        DatasetAlreadyExistsError: The namespace has such a table.
        InvalidInputError: Only one of client and name is given.
        UnsupportedError: The namespace commits versions itself.
    """
    names = _checked(uri, client, table_id)
    from lance_namespace import DeclareTableRequest, DescribeTableRequest, TableAlreadyExistsError  # noqa: PLC0415

    try:
        response = client.declare_table(DeclareTableRequest(id=names))
    except TableAlreadyExistsError as error:
        response = client.describe_table(DescribeTableRequest(id=names, check_declared=True))
        if not response.is_only_declared:
            raise DatasetAlreadyExistsError(
                f"the namespace has a table {'.'.join(names)!r} already. Use mode 'append' or 'overwrite'"
            ) from error
    return _answer(client, response, names, storage_options)


def table_to_write(
    uri: object, client: Any, table_id: Sequence[str] | None, mode: str, storage_options: Mapping[str, str] | None
) -> tuple[str, dict[str, str]]:
    """Return address and storage options of a table to write; it is declared if it is to be created."""
    if mode != "create":
        try:
            return find_table(uri, client, table_id, storage_options)
        except DatasetNotFoundError:
            pass
    return declare_table(uri, client, table_id, storage_options)


def _checked(uri: object, client: Any, table_id: Sequence[str] | None) -> list[str]:
    if uri is not None:
        raise InvalidInputError("give either the address of the dataset, or namespace_client and table_id")
    if client is None or table_id is None or isinstance(table_id, str) or not table_id:
        raise InvalidInputError(
            "give the address of the dataset, or namespace_client and table_id, the latter as a list of names; "
            f"table_id is {table_id!r}"
        )
    return list(table_id)


def _answer(
    client: Any, response: Any, names: Sequence[str], given: Mapping[str, str] | None
) -> tuple[str, dict[str, str]]:
    name = ".".join(names)
    if response.managed_versioning:
        raise UnsupportedError(f"the namespace commits the versions of {name!r} itself, which lance_core does not do")
    if not response.location:
        raise InvalidInputError(f"the namespace names no location for {name!r}")
    options = {**(given or {}), **(response.storage_options or {})}
    if options.pop(EXPIRY, None) is not None and hasattr(client, "spec"):
        options[NAMESPACE] = json.dumps({**client.spec(), "table_id": list(names)}, sort_keys=True)
    return response.location, options
