"""Asset factories: one small asset per table and kind of maintenance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from lance_core.errors import UnsupportedError
from lance_dagster.maintenance.policies import (
    DEFAULT_CLEANUP,
    DEFAULT_COMPACTION,
    DEFAULT_DELETIONS,
    CleanupPolicy,
    CompactionPolicy,
    DeletionPolicy,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class MaintenanceConfig(dg.Config):
    """Run configuration of every maintenance asset."""

    dry_run: bool = Field(default=False, description="Say what would be done; change nothing.")


def build_maintenance_assets(
    tables: dg.CoercibleToAssetKey | dg.AssetsDefinition | dg.AssetSpec | Iterable[object],
    *,
    compaction: CompactionPolicy | None = DEFAULT_COMPACTION,
    deletions: DeletionPolicy | None = DEFAULT_DELETIONS,
    cleanup: CleanupPolicy | None = DEFAULT_CLEANUP,
    resource_key: str = "lance",
    group_name: str = "maintenance",
    pool: str | None = None,
    kinds: Iterable[str] = ("lance",),
    tags: Mapping[str, str] | None = None,
    owners: Sequence[str] | None = None,
    automation_condition: dg.AutomationCondition | None = None,
    max_attempts: int = 5,
) -> list[dg.AssetsDefinition]:
    """Maintenance assets for tables: ``<table>/compaction``, ``<table>/materialize_deletions``, ``<table>/cleanup``.

    They depend on the table and on one another in this order, never change its rows, and never make anything
    downstream of it stale. With nothing to do they materialize with ``lance/skipped`` and ``lance/reason`` and commit
    nothing. Each needs a ``LanceResource`` under ``resource_key``.

    Args:
        tables: One asset key, asset or spec, or several.
        compaction: When to merge fragments; None leaves the asset out.
        deletions: When to rewrite fragments with deleted rows; None leaves the asset out.
        cleanup: Which versions stay; None leaves the asset out.
        resource_key: Where the ``LanceResource`` is.
        group_name: Asset group.
        pool: Concurrency pool; default ``lance/<table>`` (one writer of a table at a time if the pool's limit is 1).
        kinds: Kinds shown on the asset.
        tags: Asset tags.
        owners: Asset owners.
        automation_condition: For example ``dg.AutomationCondition.on_cron("0 3 * * *")`` instead of a schedule.
        max_attempts: Plans made anew after conflicts with other writers before giving up.

    Returns:
        Assets, ready for ``dg.Definitions(assets=[*yours, *these])``.
    """
    raise UnsupportedError("maintenance assets")
