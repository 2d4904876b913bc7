"""Lineage to the outside: materializations as events of OpenLineage, with the versions of tables.

The events are plain JSON, so no client library is needed. A table is named by its asset key in a namespace of yours.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.request import Request, urlopen
from uuid import UUID, uuid5

import dagster as dg

from lance_core.errors import InvalidInputError
from lance_dagster import _compat
from lance_dagster.maintenance.tables import Table, table_keys

Send = Callable[[Mapping[str, Any]], object]

_PRODUCER = "https://pypi.org/project/lance-dagster"
_SPEC = "https://openlineage.io/spec"
_EVENT_SCHEMA = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = {
    "columnLineage": "1-2-0/ColumnLineageDatasetFacet",
    "dataSource": "1-0-1/DatasourceDatasetFacet",
    "outputStatistics": "1-0-2/OutputStatisticsOutputDatasetFacet",
    "parent": "1-1-0/ParentRunFacet",
    "schema": "1-1-1/SchemaDatasetFacet",
    "version": "1-0-1/DatasetVersionDatasetFacet",
}
_MAX_EVENTS = 200
_TIMEOUT_S = 10.0


def build_openlineage_sensor(
    tables: Table | Iterable[Table],
    *,
    url: str | None = None,
    send: Send | None = None,
    namespace: str = "dagster",
    name: str = "lance_openlineage",
    start: str = "newest",
    minimum_interval_seconds: int = 60,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Build a sensor that sends each new materialization of tables to a collector of OpenLineage.

    An event tells the job (the asset), the tables that were read and the one that was written, each with its version
    (the facet ``version``), and of the latter columns, column lineage, address, rows and bytes. Each is sent at least
    once; an event that is sent again has the same run id. If the collector cannot be reached, the tick fails, and the
    next one tries again.

    Args:
        tables: Asset keys, assets or specs.
        url: Collector, such as ``http://marquez:5000``; events are posted to its ``/api/v1/lineage``.
        send: Is given each event instead, for collectors that want credentials, and for queues.
        namespace: Namespace of jobs and tables.
        name: Name of the sensor.
        start: Where a sensor without a cursor begins: ``newest`` sends what comes from now on, ``oldest`` all.
        minimum_interval_seconds: As in ``dg.sensor``.
        default_status: RUNNING starts it with the deployment.

    Raises:
        InvalidInputError: Not exactly one of ``url`` and ``send``, or another ``start``.
    """
    if (url is None) == (send is None):
        raise InvalidInputError("Give either 'url' or 'send'.")
    if start not in ("newest", "oldest"):
        raise InvalidInputError(f"'start' must be 'newest' or 'oldest', not {start!r}.")
    keys, deliver = table_keys(tables), send or http_sender(url or "")

    @dg.sensor(
        name=name,
        description="Sends materializations of Lance tables to a collector of OpenLineage.",
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
    )
    def openlineage(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        newest = _compat.newest_materializations(context.instance, keys)
        if context.cursor is None and start == "newest":
            context.update_cursor(str(max(newest.values(), default=0)))
            return dg.SkipReason("Events are sent from now on.")
        after = int(context.cursor or 0)
        changed = [key for key, storage_id in newest.items() if storage_id > after]
        records = _records_since(context.instance, changed, after)
        for record in records:
            deliver(openlineage_event(record, namespace=namespace))
        if records:
            context.update_cursor(str(records[-1].storage_id))
        return dg.SkipReason(f"Sent {len(records)} events.")

    return openlineage


def http_sender(url: str) -> Send:
    """Return a function that posts an event to a collector."""
    if not url.startswith(("http://", "https://")):
        raise InvalidInputError(f"The address of a collector begins with http:// or https://, not {url!r}.")

    def send(event: Mapping[str, Any]) -> None:
        request = Request(  # noqa: S310 - the address was checked
            f"{url.rstrip('/')}/api/v1/lineage",
            data=json.dumps(event).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urlopen(request, timeout=_TIMEOUT_S):  # noqa: S310
            pass

    return send


def _records_since(instance: dg.DagsterInstance, keys: Iterable[dg.AssetKey], after: int) -> list[dg.EventLogRecord]:
    """Return materializations in order, without a gap: those of an asset with too many hold the others back."""
    records: list[dg.EventLogRecord] = []
    horizon: int | None = None
    for key in keys:
        since = dg.AssetRecordsFilter(asset_key=key, after_storage_id=after)
        batch = instance.fetch_materializations(since, limit=_MAX_EVENTS, ascending=True).records
        records += batch
        if len(batch) == _MAX_EVENTS:
            horizon = batch[-1].storage_id if horizon is None else min(horizon, batch[-1].storage_id)
    records.sort(key=lambda record: record.storage_id)
    return [record for record in records if horizon is None or record.storage_id <= horizon]


def openlineage_event(record: dg.EventLogRecord, *, namespace: str) -> dict[str, Any]:
    """Return a materialization as an event of OpenLineage.

    Args:
        record: From Dagster's event log.
        namespace: Namespace of the job and the tables.

    Raises:
        InvalidInputError: The record is of no materialization.
    """
    made = record.asset_materialization
    if made is None:
        raise InvalidInputError("The record is of no materialization.")
    metadata: dict[str, Any] = {key: value.value for key, value in made.metadata.items()}
    asset = made.asset_key.to_user_string()
    run_id = record.event_log_entry.run_id
    lineage = metadata.get("dagster/column_lineage")
    versions: Mapping[str, int] = metadata.get("lance/inputs") or {}
    inputs = {*versions, *_upstream(lineage)} - {asset}
    parent = {
        "run": {"runId": run_id},
        "job": {"namespace": namespace, "name": record.event_log_entry.job_name or asset},
    }
    return {
        "eventType": "COMPLETE",
        "eventTime": datetime.fromtimestamp(record.timestamp, UTC).isoformat(),
        "producer": _PRODUCER,
        "schemaURL": _EVENT_SCHEMA,
        "run": {
            "runId": str(uuid5(_uuid(run_id), f"{asset}|{made.partition or ''}")),
            "facets": {"parent": _facet("parent", parent)},
        },
        "job": {"namespace": namespace, "name": asset},
        "inputs": [
            {"namespace": namespace, "name": table, "facets": _version_facet(versions.get(table))}
            for table in sorted(inputs)
        ],
        "outputs": [_output(asset, metadata, lineage, namespace)],
    }


def _output(asset: str, metadata: Mapping[str, Any], lineage: Any, namespace: str) -> dict[str, Any]:
    """Return the table that was written."""
    facets = _version_facet(metadata.get("lance/version"))
    schema = metadata.get("dagster/column_schema")
    if isinstance(schema, dg.TableSchema):
        columns = [
            {"name": column.name, "type": column.type, "description": column.description} for column in schema.columns
        ]
        facets["schema"] = _facet("schema", {"fields": columns})
    if isinstance(lineage, dg.TableColumnLineage):
        fields = {
            column: {
                "inputFields": [
                    {"namespace": namespace, "name": dep.asset_key.to_user_string(), "field": dep.column_name}
                    for dep in deps
                ]
            }
            for column, deps in lineage.deps_by_column.items()
        }
        facets["columnLineage"] = _facet("columnLineage", {"fields": fields})
    if metadata.get("dagster/uri"):
        source = {"name": str(metadata.get("dagster/table_name", asset)), "uri": str(metadata["dagster/uri"])}
        facets["dataSource"] = _facet("dataSource", source)
    numbers = {"rowCount": metadata.get("lance/rows_written"), "size": metadata.get("lance/bytes_written")}
    statistics = {key: value for key, value in numbers.items() if value is not None}
    more = {"outputStatistics": _facet("outputStatistics", statistics)} if statistics else {}
    return {"namespace": namespace, "name": asset, "facets": facets, "outputFacets": more}


def _upstream(lineage: Any) -> set[str]:
    if not isinstance(lineage, dg.TableColumnLineage):
        return set()
    return {dep.asset_key.to_user_string() for deps in lineage.deps_by_column.values() for dep in deps}


def _version_facet(version: object) -> dict[str, Any]:
    return {} if version is None else {"version": _facet("version", {"datasetVersion": str(version)})}


def _facet(name: str, content: Mapping[str, Any]) -> dict[str, Any]:
    version, title = _FACETS[name].split("/")
    return {
        "_producer": _PRODUCER,
        "_schemaURL": f"{_SPEC}/facets/{version}/{title}.json#/$defs/{title}",
        **content,
    }


def _uuid(run_id: str) -> UUID:
    """Return a run id as UUID; events that were reported without a run have an empty one."""
    try:
        return UUID(run_id)
    except ValueError:
        return UUID(int=0)
