"""Decide which places a table may name, and which settings are sent there.

Whoever can write to a table can write any address into it: of a base path, or of an external blob. So each such address
goes through `PlaceSettings.resolve`, which nothing else does in its place. docs/security.md says the same for users.
"""

from __future__ import annotations

import os
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING

from lance_core.common.frozen import frozen
from lance_core.errors import UnsupportedError, UntrustedPlaceError
from lance_core.store.addresses import LOCAL, MEMORY, Address, parse_address, parse_dataset
from lance_core.store.open import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lance_core.store.base import ObjectReader, Store

BASE_PATHS_VARIABLE = "LANCE_CORE_BASE_PATHS"
WRITABLE = frozenset({LOCAL, MEMORY, "s3", "az", "gs"})
FOLLOWED = WRITABLE | {"http", "https"}
"""Services that a table may name. All others are followed only on the dataset's own host."""
WITHOUT_SETTINGS = frozenset({LOCAL, MEMORY})


class Use(Enum):
    """Purpose for which a place is read."""

    TABLE_FILES = "table files"
    """Files that are decoded: what is no Lance file, deletion file or index is an error."""
    RAW_BYTES = "external blobs"
    """Bytes that are handed out as they are, whatever they are."""


@frozen(kw_only=True)
class PlaceSettings:
    """Settings that open the places a table names.

    Attributes:
        storage_options: Settings of the dataset's storage service. They are sent to the dataset's own host or bucket
            only.
        base_store_params: Settings of other places, by address. An address here also allows the place and all below
            it; the longest one that fits counts. An empty entry adds no settings.
    """

    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    base_store_params: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)

    def open(self, address: str, *, dataset: str, use: Use = Use.TABLE_FILES) -> Store:
        """Open a folder that a table names; arguments and errors as `resolve`."""
        address_ = parse_address(address)
        return _open(address_, self.resolve(address_, dataset=dataset, use=use))

    def open_object(self, address: Address, *, dataset: str) -> ObjectReader:
        """Open an object that a table names and whose bytes are handed out; arguments and errors as `resolve`."""
        options = self.resolve(address, dataset=dataset, use=Use.RAW_BYTES)
        folder, name = address.split()
        return _open(folder, options).reader(name)

    def resolve(self, target: Address, *, dataset: str, use: Use) -> Mapping[str, str]:
        """Decide about a place that a table names.

        Args:
            target: Address of the place.
            dataset: Address of the dataset, as the caller gave it.
            use: What it is read for.

        Returns:
            The settings to open it with.

        Raises:
            UnsupportedError: A service that a table must not make its readers call.
            UntrustedPlaceError: The place is not allowed; the message says how to allow it.
        """
        dataset_address = parse_dataset(dataset)
        is_own_origin = dataset_address is not None and dataset_address.origin == target.origin
        if target.service not in FOLLOWED and not is_own_origin:
            raise UnsupportedError(
                f"the table refers to {target.text!r}: lance_core does not follow {target.service}:// "
                "addresses in a table"
            )
        own_options = self.storage_options if is_own_origin else {}
        if dataset_address is not None and target.is_below(dataset_address):
            return own_options
        is_listed = _is_listed(target)
        given = self._given(target)
        if not is_listed and given is None and (use is Use.RAW_BYTES or not is_own_origin):
            raise _not_allowed(target, use)
        return given or own_options

    def _given(self, address: Address) -> Mapping[str, str] | None:
        """Return the entry of `base_store_params` for a place; None if there is none."""
        fitting = [
            (len(base.path), options)
            for base, options in ((parse_address(base), options) for base, options in self.base_store_params.items())
            if address.is_below(base)
        ]
        return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def _open(folder: Address, options: Mapping[str, str]) -> Store:
    """Open a folder whose table of versions, if it has one, is not asked."""
    plain = {name: value for name, value in options.items() if name.lower() != "dynamodb_endpoint"}
    return open_store(folder.text, plain if folder.service == "s3" else options)


def allowing(
    base_store_params: Mapping[str, Mapping[str, str]] | None, addresses: Iterable[str]
) -> dict[str, dict[str, str]]:
    """Add places that the caller names himself, if they need no settings; others need an entry of their own."""
    allowed: dict[str, dict[str, str]] = {}
    for text in addresses:
        if parse_address(text).service in WITHOUT_SETTINGS:
            allowed[text] = {}
    return allowed | {text: dict(options) for text, options in (base_store_params or {}).items()}


def _is_listed(address: Address) -> bool:
    """Return whether the environment lists a place; False if it lists none at all.

    Raises:
        UntrustedPlaceError: The environment lists others.
    """
    listed = os.environ.get(BASE_PATHS_VARIABLE)
    if listed is None:
        return False
    if any(address.is_below(parse_address(text)) for text in (part.strip() for part in listed.split(",")) if text):
        return True
    raise UntrustedPlaceError(
        f"the table refers to '{address.text}', which the environment variable {BASE_PATHS_VARIABLE} does not list; "
        "add the address there if you trust it",
        path=address.text,
    )


def _not_allowed(address: Address, use: Use) -> UntrustedPlaceError:
    what = (
        "has external blobs outside of its own folder"
        if use is Use.RAW_BYTES
        else "has files at another host or bucket than its own"
    )
    settings = "{}" if address.service in WITHOUT_SETTINGS else "{...its own storage options...}"
    folder = address.split()[0] if use is Use.RAW_BYTES else address
    return UntrustedPlaceError(
        f"the table {what}, in {folder.text!r}; if you trust that place, open the table with "
        f"base_store_params={{{folder.text!r}: {settings}}}, or list it in the environment variable "
        f"{BASE_PATHS_VARIABLE}",
        path=address.text,
    )
