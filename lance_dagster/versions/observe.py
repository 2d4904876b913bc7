"""Tables that are written elsewhere, seen by Dagster.

No ``from __future__ import annotations`` here: Dagster reads the annotations of the observation function as types.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from lance_dagster.located import lance_of
from lance_dagster.metadata import STORAGE_KIND
from lance_dagster.setting_keys import check_metadata, warn_of
from lance_dagster.versions.history import data_version


def build_observable_table(
    asset_key: dg.AssetKey | Sequence[str] | str,
    *,
    resource_key: str = "lance",
    io_manager_key: str = "io_manager",
    group_name: str | None = None,
    description: str | None = None,
    owners: Sequence[str] | None = None,
    tags: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    freshness_policy: dg.FreshnessPolicy | None = None,
    automation_condition: dg.AutomationCondition | None = None,
) -> dg.AssetsDefinition:
    """An observable source asset: its data version is the last version that changed data.

    Args:
        asset_key: Names the table, as everywhere (``"raw/events"``).
        resource_key: Where the ``LanceResource`` is.
        io_manager_key: Loads the table in assets downstream.
        group_name: Asset group.
        description: Shown in the catalog.
        owners: Asset owners.
        tags: Asset tags.
        metadata: Further metadata, such as ``dagster/column_schema``.
        freshness_policy: How old the newest materialization may be; ``build_table_sensor`` reports them.
        automation_condition: For example ``dg.AutomationCondition.on_cron("@hourly")``.
    """
    key = (
        dg.AssetKey.from_user_string(asset_key) if isinstance(asset_key, str) else dg.AssetKey.from_coercible(asset_key)
    )

    warn_of(f"Asset {key.to_user_string()}", check_metadata, metadata or {})

    @dg.multi_observable_source_asset(
        name="__".join([*key.path, "observe"]),
        specs=[
            dg.AssetSpec(
                key,
                group_name=group_name,
                kinds={"lance"},
                description=description,
                owners=owners,
                tags=tags,
                freshness_policy=freshness_policy,
                automation_condition=automation_condition,
                metadata={
                    **(metadata or {}),
                    "dagster/io_manager_key": io_manager_key,
                    "dagster/storage_kind": STORAGE_KIND,
                },
            )
        ],
        required_resource_keys={resource_key},
    )
    def observe(context: dg.AssetExecutionContext):  # noqa: ANN202 - Dagster refuses the annotation it names itself
        lance = lance_of(context, resource_key)
        dataset = lance.dataset(key)
        yield dg.ObserveResult(
            asset_key=key,
            data_version=dg.DataVersion(str(data_version(dataset))),
            metadata={"lance/version": dataset.version, "dagster/row_count": dataset.count_rows()},
        )

    return observe
