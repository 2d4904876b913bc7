"""A sensor for tables that are written elsewhere: what each new version changed, once and in order.

No ``from __future__ import annotations`` here: Dagster reads the annotations of the sensor function as types.

Nothing is missed: the cursor is the last version that was dealt with, and versions that clean-up took away in between
count as a change of the next one that is left. Nothing is told twice: runs have a key made from the version, and the
event log is asked before an event is reported, because a daemon may stop between the events and the cursor.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg

from lance_core.errors import DatasetNotFoundError, InvalidInputError
from lance_dagster.identity import RUN_ID
from lance_dagster.located import lance_of
from lance_dagster.metadata import STORAGE_KIND
from lance_dagster.versions.changes import Change, Seen, changes_since

if TYPE_CHECKING:
    import lance_core

Report = Literal["materialization", "observation"]
_EVENTS: dict[Report, Any] = {"materialization": dg.AssetMaterialization, "observation": dg.AssetObservation}
_TRANSACTION = "lance/transaction"


def build_table_sensor(
    asset_key: dg.AssetKey | Sequence[str] | str,
    *,
    target: Any = None,
    report: Report | None = None,
    start: Literal["newest", "first"] = "newest",
    max_versions: int = 50,
    uri: str | None = None,
    name: str | None = None,
    resource_key: str = "lance",
    minimum_interval_seconds: int | None = None,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Return a sensor that tells each version of a table that changed data.

    Compactions, indices and settings are passed over, and so are commits made by runs of this Dagster instance, which
    knows of them already. A table that was deleted and made anew is told from its first version.

    Args:
        asset_key: Names the table, as everywhere (``"raw/events"``).
        target: What to run for each such version: assets, a selection or a job. The run has the tags ``lance/table``
            and ``lance/version``.
        report: Report the version as an event of the asset; ``materialization`` if there is no ``target``. Its data
            version is the table's version, so that assets downstream become stale.
        start: Where a sensor without a cursor begins: with the newest state of the table, or with its first version.
        max_versions: Most versions looked at in one evaluation; the others follow in the next.
        uri: The table, if it is not where the resource would look for it.
        name: Name of the sensor; ``<key parts>__versions`` if not given.
        resource_key: Where the ``LanceResource`` is.
        minimum_interval_seconds: As in ``dg.sensor``.
        default_status: RUNNING starts it with the deployment.
    """
    if max_versions < 1:
        raise InvalidInputError(f"max_versions must be at least 1, not {max_versions}.")
    key = (
        dg.AssetKey.from_user_string(asset_key) if isinstance(asset_key, str) else dg.AssetKey.from_coercible(asset_key)
    )
    event = report or ("materialization" if target is None else None)

    @dg.sensor(
        name=name or "__".join([*key.path, "versions"]),
        target=target,
        description=f"Looks for new versions of the table {key.to_user_string()}.",
        required_resource_keys={resource_key},
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
    )
    def table_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        lance = lance_of(context, resource_key)
        try:
            dataset = lance.tables.open(uri or lance.uri(key))
        except DatasetNotFoundError:
            return dg.SkipReason(f"There is no table {key.to_user_string()} yet.")
        seen = Seen.of(context.cursor)
        changes, seen = changes_since(dataset, seen, limit=max_versions, only_newest=start == "newest" and seen is None)
        changes = [change for change in changes if not _made_here(context.instance, change)]
        if not changes:
            return dg.SensorResult(skip_reason=f"Nothing changed up to version {seen.version}.", cursor=str(seen))
        told = set[str]() if event is None else _reported(context.instance, key, event, limit=4 * max_versions)
        return dg.SensorResult(
            run_requests=[] if target is None else [_run(key, change) for change in changes],
            asset_events=[
                _event(key, event, dataset, change)
                for change in changes
                if event is not None and change.identity not in told
            ],
            cursor=str(seen),
        )

    return table_sensor


def _made_here(instance: dg.DagsterInstance, change: Change) -> bool:
    """Return whether a run of this instance made the version; its materialization is in the event log, then."""
    run_id = change.properties.get(RUN_ID)
    return run_id is not None and instance.get_run_by_id(run_id) is not None


def _reported(instance: dg.DagsterInstance, key: dg.AssetKey, event: Report, *, limit: int) -> set[str]:
    """Changes that are in the event log already."""
    fetch = instance.fetch_materializations if event == "materialization" else instance.fetch_observations
    events = [
        record.asset_materialization if event == "materialization" else record.asset_observation
        for record in fetch(key, limit=limit).records
    ]
    return {str(event.metadata[_TRANSACTION].value) for event in events if event and _TRANSACTION in event.metadata}


def _run(key: dg.AssetKey, change: Change) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=f"{key.to_user_string()}@{change.version}:{change.identity}",
        tags={"lance/table": key.to_user_string(), "lance/version": str(change.version)},
    )


def _event(
    key: dg.AssetKey, event: Report, dataset: "lance_core.LanceDataset", change: Change
) -> dg.AssetMaterialization | dg.AssetObservation:
    metadata: dict[str, Any] = {
        "dagster/uri": dataset.uri,
        "dagster/storage_kind": STORAGE_KIND,
        "dagster/row_count": change.num_rows,
        "lance/version": change.version,
        "lance/operation": change.operation,
        "lance/committed_at": dg.MetadataValue.timestamp(change.timestamp),
        _TRANSACTION: change.identity,
    }
    if change.num_lost:
        metadata["lance/versions_cleaned_up"] = change.num_lost
    return _EVENTS[event](asset_key=key, metadata=metadata, tags={"dagster/data_version": str(change.version)})
