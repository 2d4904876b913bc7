"""Versions that may still be in use by running steps, or that assets in Dagster were made from."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from lance_dagster.history import data_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    import lance_core
    from lance_dagster.maintenance.policies import CleanupPolicy

_IN_PROGRESS = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
_INPUT_TAG = "dagster/input_data_version/"


def versions_in_use(
    context: dg.AssetExecutionContext, table: dg.AssetKey, dataset: lance_core.LanceDataset
) -> dict[int, list[str]]:
    """Versions that must stay, and why.

    The last version that changed data stays, since Dagster compares its number with what assets downstream were made
    from; so do the versions that these were made from.
    """
    recorded = data_version(dataset)
    reasons = {version: ["data version of the table"] for version in range(recorded, dataset.version + 1)}
    for version, asset in input_versions(context.instance, table, branch=dataset.branch):
        reasons.setdefault(version, []).append(asset)
    return reasons


def input_versions(
    instance: dg.DagsterInstance, table: dg.AssetKey, *, branch: str | None = None
) -> list[tuple[int, str]]:
    """Versions of a branch that the newest materializations of assets were made from, with the assets.

    Those of all code locations count.
    """
    prefix = "" if branch is None else f"{branch}@"
    tag = f"{_INPUT_TAG}{table.to_user_string()}"
    versions: list[tuple[int, str]] = []
    for record in instance.get_asset_records():
        key, event = record.asset_entry.asset_key, record.asset_entry.last_materialization
        materialization = None if event is None else event.asset_materialization
        tags: Mapping[str, str] = (None if materialization is None else materialization.tags) or {}
        told = tags.get(tag, "")
        # Versions of other branches and of other IO managers are none of ours; maintenance needs no old version.
        version = told.removeprefix(prefix) if told.startswith(prefix) else ""
        if version.isdecimal() and key.path[: len(table.path)] != table.path:
            versions.append((int(version), key.to_user_string()))
    return sorted(versions)


def grace_period(context: dg.AssetExecutionContext, policy: CleanupPolicy) -> timedelta:
    """Return the age up to which a replaced version may be in use: the time since the oldest running run began."""
    now = datetime.now(UTC)
    runs = context.instance.get_run_records(dg.RunsFilter(statuses=_IN_PROGRESS))
    ages = [
        now - datetime.fromtimestamp(record.start_time, UTC)
        for record in runs
        if record.start_time is not None and record.dagster_run.run_id != context.run.run_id
    ]
    return max([policy.grace_period, *(age for age in ages if age <= policy.running_runs_for)])
