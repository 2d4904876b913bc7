"""Maintenance as a whole: Spark, health, automation by need, what clean-up spares."""

import time
from datetime import UTC, datetime, timedelta

import dagster as dg
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError
from lance_dagster import LanceIOManager, LanceResource
from lance_dagster.maintenance import (
    CleanupPolicy,
    CompactionPolicy,
    DeletionPolicy,
    ExecutionPolicy,
    build_maintenance_assets,
    build_maintenance_definitions,
    build_table_health,
    execution,
    maintenance_needed,
)
from lance_dagster.maintenance.live import grace_period

NOTHING = timedelta(0)
AT_ONCE = {"older_than": NOTHING, "retain_versions": 1, "grace_period": NOTHING}


@pytest.fixture
def table(tables):
    """A table of five fragments of ten rows, made in five commits."""
    uri = tables.uri("events")
    for start in range(0, 50, 10):
        part = pa.table({"id": pa.array(range(start, start + 10), pa.int64())})
        lance_core.write_dataset(part, uri, mode="append" if start else "create")
    return lambda: tables.dataset("events")


@pytest.fixture
def maintain(root, instance):
    """Run one maintenance asset of the table; returns its metadata."""

    def run(name, *, dry_run=False, resources=(), **options):
        asset = next(one for one in build_maintenance_assets("events", **options) if one.key.path[-1] == name)
        result = dg.materialize(
            [asset],
            instance=instance,
            resources={"lance": LanceResource(root=root), **dict(resources)},
            run_config={"ops": {asset.op.name: {"config": {"dry_run": dry_run}}}},
        )
        (event,) = result.asset_materializations_for_node(asset.op.name)
        return {key: value.value for key, value in event.metadata.items()}

    return run


class Session:
    """Stands for a resource with a Spark session; counts how often it is asked for."""

    started = 0

    @property
    def spark_session(self):
        self.started += 1
        return "session"


@pytest.mark.parametrize(("threshold", "engine"), [(0, "spark"), (1 << 40, "in-process")])
def test_spark_is_for_large_tables(table, maintain, monkeypatch, threshold, engine):
    def in_tasks(session, dataset, plan, *, storage_options):
        assert (session, storage_options) == ("session", {})
        return lance_core.Compaction.run(dataset, plan)

    monkeypatch.setattr("lance_core.spark.execute_compaction_plan", in_tasks)
    session = Session()
    metadata = maintain(
        "compaction",
        compaction=CompactionPolicy(target_rows_per_fragment=20),
        execution=ExecutionPolicy(spark_from_bytes=threshold),
        spark_resource_key="spark",
        resources={"spark": session},
    )
    assert (metadata["lance/engine"], session.started) == (engine, int(engine == "spark"))
    assert (metadata["lance/tasks"], metadata["lance/version_made"], metadata["lance/read_version"]) == (2, 6, 5)
    assert metadata["lance/seconds"] > 0
    assert sorted(table().to_table()["id"].to_pylist()) == list(range(50))


def test_spark_is_not_started_for_nothing(table, maintain):
    assert table().version == 5
    session = Session()
    options = {"spark_resource_key": "spark", "resources": {"spark": session}}
    one_task = maintain("compaction", execution=ExecutionPolicy(spark_from_bytes=0), **options)
    assert one_task["lance/engine"] == "in-process"
    assert maintain("compaction", **options)["lance/skipped"] is True
    assert session.started == 0


def test_a_session_is_its_own_resource():
    assert execution.spark_session("a session") == "a session"


def test_a_run_rewrites_no_more_than_it_may(table, maintain):
    fragment = table().get_fragments()[0].metadata.files[0].file_size_bytes
    policy = CompactionPolicy(target_rows_per_fragment=20, max_source_bytes=2 * fragment)
    assert maintain("compaction", compaction=policy)["lance/fragments_removed"] == 2
    assert len(table().get_fragments()) == 4


def test_a_preview_of_clean_up(table, maintain):
    metadata = maintain("cleanup", dry_run=True, cleanup=CleanupPolicy(**AT_ONCE))
    assert metadata["lance/files_planned"] == 8  # four manifests and their transactions
    assert metadata["lance/preview"].count("| manifest |") == 4
    assert len(table().versions()) == 5


def test_what_assets_downstream_were_made_from_stays(root, instance, tables, maintain):
    @dg.asset(metadata={"mode": "append"})
    def events():
        return pa.table({"id": [1]})

    @dg.asset
    def report(events: pa.Table) -> None:
        pass

    resources = {"io_manager": LanceIOManager(root=root)}
    dg.materialize([events, report], instance=instance, resources=resources)
    for _ in range(3):
        dg.materialize([events], instance=instance, resources=resources)
    for name in tables.dataset("events").tags.list():
        tables.dataset("events").tags.delete(name)
    maintain("compaction")
    metadata = maintain("cleanup", cleanup=CleanupPolicy(**AT_ONCE))
    assert [one["version"] for one in tables.dataset("events").versions()] == [1, 4, 5]
    assert metadata["lance/versions_in_use"] == {
        "1": ["report"],
        "4": ["data version of the table"],
        "5": ["data version of the table"],
    }
    assert metadata["lance/versions_kept"] == 3
    maintain("cleanup", cleanup=CleanupPolicy(**AT_ONCE, keep_live_inputs=False))
    assert [one["version"] for one in tables.dataset("events").versions()] == [5]


def test_versions_that_were_the_newest_a_moment_ago_stay(table, maintain):
    rules = {**AT_ONCE, "keep_live_inputs": False}
    maintain("cleanup", cleanup=CleanupPolicy(**{**rules, "grace_period": timedelta(hours=1)}))
    assert len(table().versions()) == 5
    maintain("cleanup", cleanup=CleanupPolicy(**rules))
    assert len(table().versions()) == 1


class Instance:
    def __init__(self, ages):
        self.records = [
            type("Record", (), {"start_time": time.time() - age, "dagster_run": type("Run", (), {"run_id": str(age)})})
            for age in ages
        ]

    def get_run_records(self, _filter):
        return self.records


@pytest.mark.parametrize(("ages", "hours"), [([], 1), ([10], 1), ([7200, 10_800], 3), ([7200, 9_999_999], 2)])
def test_runs_in_progress_lengthen_the_grace_period(ages, hours):
    own = type("Run", (), {"run_id": "own"})
    context = type("Context", (), {"instance": Instance(ages), "run": own})
    found = grace_period(context, CleanupPolicy())
    assert timedelta(0) <= found - timedelta(hours=hours) < timedelta(minutes=1)


def test_health_says_what_needs_maintenance_and_why(root, instance, table):
    table().delete("id < 6")
    lance_core.write_dataset(pa.table({"id": [1]}), LanceResource(root=root).uri("fine"))
    asset = build_table_health(
        ["events", "fine", "missing"], cleanup=CleanupPolicy(older_than=NOTHING, retain_versions=2)
    )
    result = dg.materialize([asset], instance=instance, resources={"lance": LanceResource(root=root)})
    (event,) = result.asset_materializations_for_node(asset.op.name)
    metadata = {key: value.value for key, value in event.metadata.items()}
    assert metadata["lance/needs"] == {
        "events": {
            "compaction": "5 small fragments can be merged",
            "materialize_deletions": "1 fragment has more than 10% deleted rows",
            "cleanup": "4 of 6 versions are older than 0 days",
        }
    }
    assert (metadata["lance/tables"], metadata["lance/tables_in_need"]) == (3, 2)
    lines = metadata["lance/health"].splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["`missing`", "`events`", "`fine`"]
    assert lines[3].startswith("| `events` | **compaction**: 5 small fragments can be merged; ")
    assert " | 44 | 5 | 5 | 12.0% | " in lines[3]
    assert lines[4].startswith("| `fine` | nothing |")


def requested(defs, instance, at):
    result = dg.evaluate_automation_conditions(defs=defs, instance=instance, evaluation_time=at)
    keys = [key for key in defs.resolve_all_asset_keys() if result.get_num_requested(key)]
    return sorted(key.path[-1] for key in keys)


def test_maintenance_is_requested_when_it_is_needed(root, instance, table):
    lance = LanceResource(root=root)
    policies = {"compaction": CompactionPolicy(min_fragments=3), "deletions": DeletionPolicy(threshold=0.2)}
    assets = build_maintenance_assets(
        ["events", "missing"], **policies, automation_condition=maintenance_needed(lance, **policies)
    )
    defs = dg.Definitions(assets=assets, resources={"lance": lance})
    at = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
    assert requested(defs, instance, at) == ["compaction"]
    table().delete("id < 6")
    assert requested(defs, instance, at) == ["compaction", "materialize_deletions"]
    table().optimize.compact_files(materialize_deletions_threshold=0.1)
    assert requested(defs, instance, at) == []


def test_definitions_bring_a_sensor_that_can_evaluate_the_condition(root):
    defs = build_maintenance_definitions("events", when_needed=LanceResource(root=root), cron_schedule=None)
    merged = dg.Definitions.merge(defs, dg.Definitions(resources={"lance": LanceResource(root=root)}))
    (sensor,) = merged.sensors
    assert sensor.name == "lance_maintenance_when_needed"
    assert sensor.sensor_type.name == "AUTOMATION"  # what is called AUTO_MATERIALIZE is evaluated by the daemon
    job = merged.resolve_job_def("lance_maintenance")
    assert dg.AssetKey(["lance_maintenance", "table_health"]) in job.asset_layer.executable_asset_keys


@pytest.mark.parametrize("options", [{"num_threads": 0}, {"max_memory_bytes": 5}, {"spark_from_bytes": -1}])
def test_executions_that_make_no_sense(options):
    with pytest.raises(InvalidInputError):
        ExecutionPolicy(**options)
