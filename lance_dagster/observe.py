"""Tables that are written elsewhere, seen by Dagster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.errors import UnsupportedError

if TYPE_CHECKING:
    import dagster as dg


def build_observable_table(
    asset_key: dg.CoercibleToAssetKey,
    *,
    resource_key: str = "lance",
    io_manager_key: str = "io_manager",
    group_name: str | None = None,
    automation_condition: dg.AutomationCondition | None = None,
) -> dg.AssetsDefinition:
    """An observable source asset: its data version is the last version that changed data.

    Args:
        asset_key: Names the table, as everywhere.
        resource_key: Where the ``LanceResource`` is.
        io_manager_key: Loads the table in assets downstream.
        group_name: Asset group.
        automation_condition: For example ``dg.AutomationCondition.on_cron("@hourly")``.
    """
    raise UnsupportedError("observe")
