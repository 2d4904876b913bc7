"""The example is complete: everything loads, and everything is explained."""

from pathlib import Path

import dagster as dg
import pytest
from example_project.definitions import defs as load_defs

# Dagster calls observable assets of this kind beta.
pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

ROOT = Path(__file__).parents[2] / "example_project"
TABLES = {
    "airlines", "airports", "planes", "weather",
    "raw_flights", "flights", "enriched_flights",
    "daily_summary", "route_features", "similar_routes", "planes_seen", "route_history",
    "weather_embeddings", "similar_weather", "weather_recall",
}  # fmt: skip
MONTHLY = {"raw_flights", "flights", "enriched_flights", "daily_summary"}


@pytest.fixture(scope="module")
def defs():
    return load_defs()


@pytest.fixture(scope="module")
def specs(defs):
    return {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}


def test_all_definitions_are_valid(defs):
    dg.Definitions.validate_loadable(defs)


def test_groups(specs):
    groups = {}
    for name, spec in specs.items():
        groups.setdefault(spec.group_name, set()).add(name)
    assert groups.keys() == {"reference", "flights", "insights", "retrieval", "maintenance"}
    assert set().union(*groups.values()) - groups["maintenance"] == TABLES | {"flight_corrections", "route_notes"}
    cleanups = {f"{table}/cleanup" for table in TABLES}
    growing = MONTHLY | {"planes_seen", "route_history"}
    others = {f"{table}/{kind}" for table in growing for kind in ("compaction", "materialize_deletions")}
    assert groups["maintenance"] == cleanups | others | {
        "flights/indices",
        "planes_seen/indices",
        "weather_embeddings/indices",
    }


def test_every_asset_is_explained(specs):
    for name, spec in specs.items():
        assert spec.description, name
        assert "lance" in spec.kinds, name
        assert spec.owners or spec.group_name == "maintenance", name


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_column_is_explained(specs, name):
    schema = specs[name].metadata["dagster/column_schema"]
    schema = getattr(schema, "value", schema)
    assert [column.name for column in schema.columns if not column.description] == []


def test_monthly_tables_replace_months(specs):
    monthly = {name for name, spec in specs.items() if spec.partitions_def is not None}
    assert monthly == MONTHLY
    for name in monthly:
        assert specs[name].metadata["partition_expr"] == "flight_date"
        assert len(specs[name].partitions_def.get_partition_keys()) == 12


def test_late_corrections_come_before_what_uses_them(specs):
    upstream = {dep.asset_key.to_user_string() for dep in specs["route_features"].deps}
    assert upstream == {"enriched_flights", "flight_corrections"}


def test_jobs_and_schedules(defs):
    jobs = {job.name for job in defs.resolve_all_job_defs()} - {"__ASSET_JOB"}
    assert jobs == {"reference_tables", "monthly_flights", "insights", "retrieval", "maintenance"}
    repository = defs.get_repository_def()
    assert {schedule.job_name for schedule in repository.schedule_defs} == jobs


def test_a_table_written_elsewhere_is_told_by_a_sensor(defs, specs):
    sensor = defs.resolve_sensor_def("route_notes__versions")
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    assert specs["route_notes"].freshness_policy is not None
    assert all(column.description for column in specs["route_notes"].metadata["dagster/column_schema"].columns)


def test_instance_settings_are_valid(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # the history goes below the working directory
    with dg.DagsterInstance.from_config(str(ROOT)) as instance:
        assert not instance.telemetry_enabled
        assert not instance.nux_enabled
        assert instance.get_runs_count() == 0
    assert (tmp_path / ".dagster_home" / "history").is_dir()
