"""The tables of a code location: where its assets say that they are (``lance/uri``), else where their keys say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_dagster import _compat
from lance_dagster.settings import find_setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    import dagster as dg

    from lance_dagster.resource import LanceResource


def lance_of(
    context: Any, resource_key: str, metadata: Mapping[dg.AssetKey, Mapping[str, Any]] | None = None
) -> LanceResource:
    """Return the ``LanceResource`` of a step or a sensor.

    Unlike the one that users get, it knows the metadata ``lance/uri`` of the assets of the code location.

    Args:
        context: Of an asset, a check, an op or a sensor.
        resource_key: Where the ``LanceResource`` is.
        metadata: Metadata of definitions, for jobs that run without their code location.
    """
    return located(getattr(context.resources, resource_key), _compat.asset_graphs(context), metadata or {})


def located(
    lance: LanceResource, graphs: list[Any], metadata: Mapping[dg.AssetKey, Mapping[str, Any]] | None = None
) -> LanceResource:
    """Return a resource that knows the metadata ``lance/uri`` of some assets and of those of some graphs."""

    def address_of(key: dg.AssetKey) -> str | None:
        return find_setting("uri", (metadata or {}).get(key, {}), _compat.asset_metadata(graphs, key))

    return lance.with_addresses(address_of)
