"""Two assets on one table: each run of one would replace what the other stored."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lance_core.errors import InvalidInputError
from lance_dagster.settings import MAIN, find_setting, own_branch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import dagster as dg

    from lance_dagster.tables import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAddress:
    """Table of one asset.

    Args:
        asset: Asset key, parts joined by ``/``.
        uri: Address of the table.
        branch: Branch that the asset is stored on.
        is_shared: The definition says that other assets write the table, too.
    """

    asset: str
    uri: str
    branch: str
    is_shared: bool

    @classmethod
    def of(cls, key: dg.AssetKey, metadata: Mapping[str, Any], tables: Tables, *, branch: str | None) -> TableAddress:
        """Return the table address of an asset, by the metadata of its definition and the fields of its IO manager."""
        return cls(
            asset=key.to_user_string(),
            uri=tables.address(key, given=find_setting("uri", metadata)),
            branch=own_branch(metadata, branch) or MAIN,
            is_shared=str(find_setting("shared", metadata)).lower() == "true",
        )


def stored_addresses(
    assets: Mapping[dg.AssetKey, Mapping[str, Any]], tables: Tables, *, branch: str | None
) -> list[TableAddress]:
    """Return the table addresses of assets; those that cannot have a table fail when they are stored, not here."""
    addresses: list[TableAddress] = []
    for key, metadata in assets.items():
        with suppress(InvalidInputError):
            addresses.append(TableAddress.of(key, metadata, tables, branch=branch))
    return addresses


def refuse_shared(addresses: Iterable[TableAddress]) -> None:
    """Refuse two assets that write one table without saying so.

    Raises:
        InvalidInputError: Two assets write one table, or tables whose names differ in case only.
    """
    writers: dict[str, TableAddress] = {}
    for address in addresses:
        target = f"{address.uri}@{address.branch}"
        other = writers.setdefault(target.lower(), address)
        if other.asset == address.asset or (address.is_shared and other.is_shared):
            continue
        is_same = (other.uri, other.branch) == (address.uri, address.branch)
        what = "both write the table" if is_same else "write tables whose names differ only in case,"
        advice = " If they are meant to share it, set 'lance/shared' to true on both." if is_same else ""
        first, second = sorted((other.asset, address.asset))
        msg = (
            f"The assets {first!r} and {second!r} {what} {address.uri!r}. Rename one of them, or choose "
            f"another place by the metadata 'lance/uri'.{advice}"
        )
        raise InvalidInputError(msg, path=address.uri)
