"""Alerts: tables in need, versions that cannot go, maintenance that failed.

No ``from __future__ import annotations`` here: Dagster reads the annotations of the sensor function as types.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from lance_dagster.located import lance_of
from lance_dagster.maintenance.health import TableHealth, health_checks, look_at_all
from lance_dagster.maintenance.policies import (
    DEFAULT_CLEANUP,
    DEFAULT_COMPACTION,
    DEFAULT_DELETIONS,
    CleanupPolicy,
    CompactionPolicy,
    DeletionPolicy,
    IndexPolicy,
)
from lance_dagster.maintenance.tables import Table, index_policy, table_keys_and_indices

_MAX_RUNS = 50
_SINCE, _TOLD = "since", "told"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceAlert:
    """Something that people should look at.

    Args:
        kind: ``tables_in_need``, ``versions_held`` or ``maintenance_failed``.
        subject: The table, or the id of the run that failed.
        text: What is wrong with it.
    """

    kind: str
    subject: str
    text: str


def build_maintenance_alerts(
    tables: Table | Iterable[Table],
    *,
    notify: Callable[[Sequence[MaintenanceAlert]], object] | None = None,
    compaction: CompactionPolicy | None = DEFAULT_COMPACTION,
    deletions: DeletionPolicy | None = DEFAULT_DELETIONS,
    cleanup: CleanupPolicy | None = DEFAULT_CLEANUP,
    indices: IndexPolicy | Mapping[str, str] | None = None,
    name: str = "lance_maintenance",
    resource_key: str = "lance",
    branch: str | None = None,
    minimum_interval_seconds: int = 3600,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Build a sensor ``<name>_alerts`` that tells each problem once, until it is gone and comes back.

    It looks at tables that need maintenance or cannot be read, at old versions that tags and pins hold, and at failed
    runs of the maintenance job and of its automation. It records the checks of the health asset
    ``<name>/table_health`` in Dagster, so that they turn red without a run.

    Args:
        tables: As in ``build_maintenance_assets``, like the next four.
        notify: Is told of new problems: sends them by mail or chat. If it raises, they are told again at the next tick.
        compaction: What is judged by; None looks for nothing of this kind.
        deletions: Likewise.
        cleanup: Likewise.
        indices: Likewise.
        name: As in ``build_maintenance_definitions``: names the job and the health asset.
        resource_key: Where the ``LanceResource`` is.
        branch: Look at this branch of the tables.
        minimum_interval_seconds: Seconds between two looks.
        default_status: RUNNING starts it with the deployment.
    """
    keys, declared = table_keys_and_indices(tables)
    policies = {key: index_policy(indices, declared.get(key)) for key in keys}
    health_key = dg.AssetKey([name, "table_health"])

    @dg.sensor(
        name=f"{name}_alerts",
        description="Tells of tables that need maintenance, versions that cannot go, and maintenance that failed.",
        required_resource_keys={resource_key},
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
    )
    def alerts(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        lance = lance_of(context, resource_key)
        results = look_at_all(
            lance,
            policies,
            context.instance,
            branch=branch,
            compaction=compaction,
            deletions=deletions,
            cleanup=cleanup,
        )
        now, cursor = datetime.now(UTC), _cursor(context.cursor)
        since = cursor.get(_SINCE, now.timestamp() - minimum_interval_seconds)
        current = [*_alerts(results), *_failures(context.instance, name, since=since)]
        told = {tuple(entry) for entry in cursor.get(_TOLD, ())}
        new = [alert for alert in current if (alert.kind, alert.subject) not in told]
        for alert in new:
            context.log.warning("%s: %s: %s", alert.kind, alert.subject, alert.text)
        if new and notify is not None:
            notify(new)
        return dg.SensorResult(
            skip_reason=f"{len(new)} new problems, {len(current)} in all.",
            cursor=json.dumps({_SINCE: now.timestamp(), _TOLD: [[alert.kind, alert.subject] for alert in current]}),
            asset_events=_evaluations(results, health_key),
        )

    return alerts


def _cursor(text: str | None) -> dict[str, Any]:
    return {} if not text else json.loads(text)


def _alerts(results: Sequence[TableHealth]) -> list[MaintenanceAlert]:
    alerts: list[MaintenanceAlert] = []
    for table in results:
        if table.problem or table.needs:
            text = table.problem or "; ".join(f"{name}: {why}" for name, why in table.needs.items())
            alerts.append(MaintenanceAlert(kind="tables_in_need", subject=table.table, text=text))
        if table.blocking_tags:
            text = ", ".join(f"{name} holds version {version}" for name, version in table.blocking_tags.items())
            alerts.append(MaintenanceAlert(kind="versions_held", subject=table.table, text=text))
    return alerts


def _failures(instance: dg.DagsterInstance, name: str, *, since: float) -> list[MaintenanceAlert]:
    """Runs of the maintenance job, and of the sensor that requests maintenance when needed, that failed lately."""
    after = datetime.fromtimestamp(since, UTC)
    failed = [dg.DagsterRunStatus.FAILURE]
    filters = (
        dg.RunsFilter(job_name=name, statuses=failed, updated_after=after),
        dg.RunsFilter(tags={"dagster/sensor_name": f"{name}_when_needed"}, statuses=failed, updated_after=after),
    )
    run_ids = [record.dagster_run.run_id for runs in filters for record in instance.get_run_records(runs, _MAX_RUNS)]
    return [
        MaintenanceAlert(kind="maintenance_failed", subject=run_id, text="see the log of the run")
        for run_id in dict.fromkeys(run_ids)
    ]


def _evaluations(results: Sequence[TableHealth], health_key: dg.AssetKey) -> list[dg.AssetCheckEvaluation]:
    return [
        dg.AssetCheckEvaluation(
            asset_key=health_key,
            check_name=str(result.check_name),
            passed=result.passed,
            severity=result.severity,
            description=result.description,
            metadata=result.metadata,
        )
        for result in health_checks(results, health_key)
    ]
