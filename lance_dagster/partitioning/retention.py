"""Old partitions: a retention policy with preview, and partitions wiped as a commit.

No ``from __future__ import annotations`` here: Dagster reads the annotations of the op functions as types.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from lance_core.common.hints import did_you_mean
from lance_core.errors import DatasetNotFoundError, InvalidInputError
from lance_dagster import _compat
from lance_dagster.located import lance_of
from lance_dagster.metadata import storage_metadata
from lance_dagster.partitioning.partitions import TablePartitions
from lance_dagster.units import age_text, count_text

if TYPE_CHECKING:
    from lance_dagster.resource import LanceResource

_SHOWN = 5


class RetentionConfig(dg.Config):
    """Run configuration of a retention asset."""

    dry_run: bool = Field(default=False, description="Say which partitions would be deleted; change nothing.")


class WipeConfig(dg.Config):
    """Run configuration of the job that wipes partitions."""

    partitions: list[str] = Field(description="Partition keys.")
    dry_run: bool = Field(default=False, description="Say how many rows would be deleted; change nothing.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """Delete partitions that ended long ago; give one of the two.

    Args:
        older_than: Delete partitions whose time window ended longer ago than this.
        keep: Delete all but the newest so many partitions.
    """

    older_than: timedelta | None = None
    keep: int | None = None

    def __post_init__(self) -> None:
        if (self.older_than is None) == (self.keep is None):
            raise InvalidInputError("A retention policy has either 'older_than' or 'keep': give one of them.")
        if self.older_than is not None and self.older_than < timedelta(0):
            raise InvalidInputError(f"A retention policy needs an age of at least 0, not {self.older_than}.")
        if self.keep is not None and self.keep < 1:
            raise InvalidInputError(f"A retention policy keeps at least 1 partition, not {self.keep}.")

    @property
    def text(self) -> str:
        """Return the partitions that are deleted, for people."""
        if self.older_than is not None:
            return f"that ended {age_text(self.older_than)} ago"
        return f"but the newest {self.keep}"

    def expired(self, definition: dg.TimeWindowPartitionsDefinition, now: datetime) -> list[str]:
        """Return the partition keys to delete, oldest first.

        Args:
            definition: The partitions.
            now: The time, with zone.
        """
        keys = list(definition.get_partition_keys(current_time=now))
        if self.keep is not None:
            return keys[: -self.keep]
        assert self.older_than is not None  # noqa: S101 - states the contract
        before = now - self.older_than
        return [key for key in keys if definition.time_window_for_partition_key(key).end <= before]


def build_retention_asset(
    asset: dg.AssetsDefinition,
    policy: RetentionPolicy,
    *,
    resource_key: str = "lance",
    group_name: str = "maintenance",
    automation_condition: dg.AutomationCondition | None = None,
) -> dg.AssetsDefinition:
    """Return an asset ``<table>/retention`` that deletes old partitions of a table in one commit.

    With the run configuration ``dry_run: true`` it says which partitions and how many rows would go. Dagster keeps the
    events of partitions that it cannot forget; they show the last data that was written.

    Args:
        asset: The asset, with time partitions and the metadata ``partition_expr``.
        policy: Partitions to delete.
        resource_key: Where the ``LanceResource`` is.
        group_name: Asset group.
        automation_condition: For example ``dg.AutomationCondition.on_cron("0 4 * * *")``.

    Raises:
        InvalidInputError: The asset has no time partitions.
    """
    partitions = TablePartitions.of(asset)
    definition = partitions.definition
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        raise InvalidInputError(f"The asset {asset.key.to_user_string()} needs time partitions to have a retention.")

    def retention(context: dg.AssetExecutionContext, config: RetentionConfig) -> dg.MaterializeResult:
        lance = lance_of(context, resource_key, asset.metadata_by_key)
        keys = policy.expired(definition, datetime.now(UTC))
        metadata = _delete(context, lance, asset.key, partitions, keys, dry_run=config.dry_run)
        return dg.MaterializeResult(metadata=metadata)

    return dg.asset(
        key=[*asset.key.path, "retention"],
        deps=[asset.key],
        group_name=group_name,
        kinds={"lance"},
        dagster_type=_compat.NOTHING,
        description=f"Deletes partitions {policy.text}.",
        required_resource_keys={resource_key},
        automation_condition=automation_condition,
    )(retention)


def build_wipe_job(asset: dg.AssetsDefinition, *, resource_key: str = "lance") -> dg.JobDefinition:
    """Return a job ``<table>__wipe_partitions`` that deletes the rows of partitions in one commit.

    Dagster's own storages cannot forget partitions: the UI goes on to show them as materialized, with an observation
    that they have no rows.

    Args:
        asset: The asset, with partitions and the metadata ``partition_expr``.
        resource_key: Where the ``LanceResource`` is.

    Raises:
        InvalidInputError: The asset has no partitions.
    """
    partitions, name = TablePartitions.of(asset), "__".join([*asset.key.path, "wipe_partitions"])

    def wipe_partitions(context: dg.OpExecutionContext, config: WipeConfig) -> None:
        lance = lance_of(context, resource_key, asset.metadata_by_key)
        existing = partitions.definition.get_partition_keys(dynamic_partitions_store=context.instance)
        unknown = sorted(set(config.partitions).difference(existing))
        if unknown:
            ends = f"{existing[0]} to {existing[-1]}" if existing else "none yet"
            msg = f"The asset {asset.key.to_user_string()} has no partitions {unknown}. Its partitions are: {ends}."
            raise InvalidInputError(f"{msg}{did_you_mean(unknown[0], existing)}")
        told = _delete(context, lance, asset.key, partitions, config.partitions, dry_run=config.dry_run)
        for key in [] if told["lance/skipped"] else config.partitions:
            metadata = {"lance/summary": "wiped: no rows", "dagster/partition_row_count": 0, **told}
            context.log_event(dg.AssetObservation(asset.key, partition=key, metadata=metadata))

    op = dg.op(name=name, required_resource_keys={resource_key})(wipe_partitions)
    # An op and a graph of one name would not load in one code location.
    graph = dg.GraphDefinition(name=f"{name}_graph", node_defs=[op])
    return graph.to_job(name=name, executor_def=dg.in_process_executor)


def _delete(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    lance: "LanceResource",
    key: dg.AssetKey,
    partitions: TablePartitions,
    keys: Sequence[str],
    *,
    dry_run: bool,
) -> dict[str, Any]:
    """Delete the rows of partitions, and let Dagster forget them; returns metadata."""
    try:
        dataset = lance.dataset(key)
    except DatasetNotFoundError:
        return {"lance/skipped": True, "lance/reason": "there is no table yet"}
    where = partitions.filter(dataset, keys) if keys else "false"
    rows = dataset.count_rows(filter=where) if keys else 0
    shown = ", ".join(keys[:_SHOWN]) + (f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else "")
    metadata: dict[str, Any] = {"lance/rows_deleted": rows, "lance/partitions": dg.MetadataValue.json(list(keys))}
    metadata |= storage_metadata(key, dataset.uri)
    if rows == 0 or dry_run:
        reason = f"dry run: {count_text(rows, 'row')} would be deleted" if rows else "no rows to delete"
        context.log.info("%s: %s, partitions %s.", key.to_user_string(), reason, shown or "none")
        return {**metadata, "lance/skipped": True, "lance/reason": reason}
    dataset = lance.writable(key)
    dataset.delete(where, transaction_properties={"dagster/run_id": context.run.run_id, "lance/wiped": shown})
    context.log.info(
        "Deleted %s of the partitions %s of %s: version %d.",
        count_text(rows, "row"),
        shown,
        key.to_user_string(),
        dataset.version,
    )
    if dataset.branch is None and not _compat.forget_partitions(context.instance, key, keys):
        context.log.info("Dagster's storage cannot forget partitions: the UI goes on to show them as materialized.")
    return {**metadata, "lance/version": dataset.version, "lance/skipped": False}
