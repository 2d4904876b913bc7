"""Versions that may still be in use by running steps, or that assets in Dagster were made from."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import dagster as dg

from lance_dagster.versions.history import data_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import lance_core
    from lance_dagster.maintenance.policies import CleanupPolicy

_IN_PROGRESS = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
_INPUT_TAG = "dagster/input_data_version/"
_FRESH_S = 60.0
_T = TypeVar("_T")


def versions_in_use(
    instance: dg.DagsterInstance, table: dg.AssetKey, dataset: lance_core.LanceDataset, *, run_id: str = ""
) -> dict[int, list[str]]:
    """Versions that must stay, and why.

    The last version that changed data stays, since Dagster compares its number with what assets downstream were made
    from; so do the versions that these were made from.

    Args:
        instance: Dagster's, which has the events of all code locations.
        table: Asset key of the table.
        dataset: The table, newest version.
        run_id: The run that asks; answers of the instance count for a minute within it.
    """
    reasons = {version: ["data version of the table"] for version in current_data(dataset)}
    for version, asset in _input_versions(instance, run_id, table, branch=dataset.branch):
        reasons.setdefault(version, []).append(asset)
    return reasons


def current_data(dataset: lance_core.LanceDataset) -> range:
    """Return the versions from the last that changed data to the newest."""
    return range(data_version(dataset), dataset.version + 1)


def _input_versions(
    instance: dg.DagsterInstance, run_id: str, table: dg.AssetKey, *, branch: str | None
) -> list[tuple[int, str]]:
    """Versions of a branch that the newest materializations of assets were made from, with the assets."""
    prefix = "" if branch is None else f"{branch}@"
    versions: list[tuple[int, str]] = []
    for key, told in _recorded_inputs(instance, run_id).get(table.to_user_string(), ()):
        # Versions of other branches and of other IO managers are none of ours; maintenance needs no old version.
        version = told.removeprefix(prefix) if told.startswith(prefix) else ""
        if version.isdecimal() and key.path[: len(table.path)] != table.path:
            versions.append((int(version), key.to_user_string()))
    return sorted(versions)


def _recorded_inputs(instance: dg.DagsterInstance, run_id: str) -> Mapping[str, Sequence[tuple[dg.AssetKey, str]]]:
    """Inputs of the newest materializations of all assets, with their data versions, by table.

    Maintenance of a thousand tables would ask for a thousand assets each time, so answers count for a minute. What is
    read meanwhile is younger than the grace period of a clean-up.
    """

    def load() -> Mapping[str, Sequence[tuple[dg.AssetKey, str]]]:
        inputs: dict[str, list[tuple[dg.AssetKey, str]]] = {}
        for record in instance.get_asset_records():
            event = record.asset_entry.last_materialization
            materialization = None if event is None else event.asset_materialization
            for tag, told in ((None if materialization is None else materialization.tags) or {}).items():
                if tag.startswith(_INPUT_TAG):
                    inputs.setdefault(tag.removeprefix(_INPUT_TAG), []).append((record.asset_entry.asset_key, told))
        return inputs

    return _lately(instance, run_id, "inputs", load)


@dataclass(slots=True)
class _Answer:
    """The last answer of an instance, with the run that asked and the time."""

    run_id: str
    asked_at_s: float
    value: Any


_lock = threading.Lock()
_answers: WeakKeyDictionary[Any, dict[str, _Answer]] = WeakKeyDictionary()


def _lately(instance: dg.DagsterInstance, run_id: str, what: str, load: Callable[[], _T]) -> _T:
    """Return what was loaded in this run within the last minute, or load it."""
    with _lock:
        answers = _answers.setdefault(instance, {})
        answer = answers.get(what)
        if answer is None or answer.run_id != run_id or time.monotonic() - answer.asked_at_s > _FRESH_S:
            answer = answers[what] = _Answer(run_id, time.monotonic(), load())
        return answer.value


def grace_period(context: dg.AssetExecutionContext, policy: CleanupPolicy) -> timedelta:
    """Return the age up to which a replaced version may be in use: the time since the oldest running run began."""
    now, instance = datetime.now(UTC), context.instance
    filters = dg.RunsFilter(statuses=_IN_PROGRESS)
    runs = _lately(instance, context.run.run_id, "runs", lambda: instance.get_run_records(filters))
    ages = [
        now - datetime.fromtimestamp(record.start_time, UTC)
        for record in runs
        if record.start_time is not None and record.dagster_run.run_id != context.run.run_id
    ]
    return max([policy.grace_period, *(age for age in ages if age <= policy.running_runs_for)])
