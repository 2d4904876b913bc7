"""Maintenance of many tables: one asset per table or for all, health without edges, alerts."""

from datetime import timedelta
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from lance_dagster import (
    CleanupPolicy,
    CompactionPolicy,
    LanceResource,
    build_maintenance_alerts,
    build_maintenance_assets,
    build_maintenance_definitions,
    build_table_health,
    maintenance_needed,
)
from lance_dagster.maintenance.health import TableHealth, health_markdown

CLEANUP = CleanupPolicy(older_than=timedelta(0), retain_versions=1, grace_period=timedelta(0), keep_live_inputs=False)


@pytest.fixture
def busy(tables):
    """Two tables of three small fragments, and one of one."""
    for name, number in (("a", 3), ("b", 3), ("quiet", 1)):
        for value in range(number):
            tables.write(name, pa.table({"id": [value]}))
    return ["a", "b", "quiet"]


def metadata_of(result, key):
    (event,) = [event for event in result.get_asset_materialization_events() if event.asset_key.to_user_string() == key]
    return {name: value.value for name, value in event.materialization.metadata.items()}


def test_one_asset_per_table_tells_of_each_step(run, tables, busy):
    assets = build_maintenance_assets(busy, cleanup=CLEANUP, per="table")
    specs = [spec for asset in assets for spec in asset.specs]
    assert [spec.key.to_user_string() for spec in specs] == [f"{name}/maintenance" for name in busy]
    assert [[dep.asset_key.to_user_string() for dep in spec.deps] for spec in specs] == [[name] for name in busy]
    result = run(*assets)
    metadata = metadata_of(result, "a/maintenance")
    assert next(iter(metadata)) == "lance/summary"
    assert metadata["lance/summary"].startswith("3 fragments (")
    lines = metadata["lance/steps"].splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| compaction", "| materialize deletions", "| cleanup"]
    assert "no fragment has more than 10% deleted rows" in lines[3]
    assert "3 versions" in lines[4]
    assert (metadata["lance/fragments_before"], metadata["lance/fragments"]) == (3, 1)
    assert (metadata["lance/versions_removed"], metadata["lance/skipped"]) == (3, False)
    assert tables.dataset("a").count_rows() == 3
    assert metadata_of(result, "quiet/maintenance")["lance/skipped"] is True


def test_one_asset_for_all_tables_has_no_edges_and_tells_the_totals(run, busy):
    (asset,) = build_maintenance_assets([*busy, "missing"], cleanup=CLEANUP, per="group")
    assert asset.key.to_user_string() == "lance_maintenance/tables"
    assert not list(asset.specs_by_key[asset.key].deps)
    metadata = metadata_of(run(asset), "lance_maintenance/tables")
    assert metadata["lance/summary"].startswith("2 of 4 tables changed, 0 failed, ")
    assert (metadata["lance/tables"], metadata["lance/fragments_removed"], metadata["lance/versions_removed"]) == (
        4,
        6,
        6,
    )
    assert metadata["lance/steps"].count("fragments (") == 2


@pytest.mark.parametrize("per", ["table", "group"])
def test_a_table_that_fails_does_not_keep_others_from_maintenance(run, tables, busy, per):
    tables.dataset("a").tags.create("kept", 1)
    next(Path(tables.uri("a")).glob("data/*")).unlink()
    (asset,) = build_maintenance_assets(busy, cleanup=None, per=per)
    result = run(asset, check=False)
    assert not result.success
    (failure,) = result.get_step_failure_events()
    assert "Maintenance of 1 of 3 tables failed, first a" in failure.step_failure_data.error_display_string
    assert len(tables.dataset("b").get_fragments()) == 1


def test_health_has_no_edges_comes_last_and_says_whether_the_schedule_is_on(root, instance, busy):
    defs = dg.Definitions.merge(
        build_maintenance_definitions(busy, cleanup=CLEANUP, per="table"),
        dg.Definitions(resources={"lance": LanceResource(root=root)}),
    )
    result = defs.resolve_job_def("lance_maintenance").execute_in_process(instance=instance)
    events = [event.asset_key.to_user_string() for event in result.get_asset_materialization_events()]
    assert events[-1] == "lance_maintenance/table_health"
    metadata = metadata_of(result, "lance_maintenance/table_health")
    assert metadata["lance/summary"] == "0 of 3 tables need maintenance"
    assert metadata["lance/schedule"].startswith("lance_maintenance_schedule (0 3 * * *) is OFF: turn it on")
    assert (list(metadata)[:2], list(metadata)[-1]) == (["lance/summary", "lance/schedule"], "lance/needs")
    assert all(check.passed for check in result.get_asset_check_evaluations())
    graph = defs.resolve_asset_graph()
    assert not graph.get(dg.AssetKey(["lance_maintenance", "table_health"])).parent_keys


def test_checks_of_health_warn_of_tables_in_need_and_of_versions_that_tags_hold(run, tables, busy):
    tables.dataset("a").tags.create("quarter", 1)
    result = run(build_table_health(busy, cleanup=CLEANUP))
    checks = {check.check_name: check for check in result.get_asset_check_evaluations()}
    assert not checks["tables_in_need"].passed
    assert checks["versions_held"].metadata["lance/needs"].value == {"a": "quarter holds 1"}


def test_versions_that_clean_up_keeps_for_their_data_are_no_need(run, tables):
    """The table is as it was; what changed it last, and what assets were made from, is older than compactions."""

    @dg.asset
    def raw() -> pa.Table:
        return pa.table({"id": [1]})

    @dg.asset
    def report(raw: pa.Table) -> pa.Table:
        return raw

    run(raw, report)
    run(raw)
    dataset = tables.dataset("raw")
    for number in range(3):
        dataset.update_config({"note": str(number)})
    for tag in dataset.tags.list():
        dataset.tags.delete(tag)
    live = CleanupPolicy(older_than=timedelta(0), retain_versions=1, grace_period=timedelta(0))

    def needs(policy):
        return metadata_of(run(build_table_health("raw", cleanup=policy)), "maintenance/table_health")["lance/needs"]

    assert needs(live) == {}
    assert needs(CLEANUP) == {"raw": {"cleanup": "4 of 5 versions are older than 0 days"}}


def test_a_table_without_the_branch_of_the_environment_needs_nothing(root, instance, busy):
    lance = LanceResource(root=root, branch="trial")
    result = dg.materialize([build_table_health(busy, cleanup=CLEANUP)], instance=instance, resources={"lance": lance})
    assert metadata_of(result, "maintenance/table_health")["lance/tables_in_need"] == 0


def test_alerts_are_told_once_and_recorded_as_checks(root, instance, tables, busy):
    told = []
    sensor = build_maintenance_alerts(busy, cleanup=CLEANUP, notify=told.extend)
    tables.dataset("a").tags.create("quarter", 1)

    def tick(cursor=None):
        resources = {"lance": LanceResource(root=root)}
        with dg.build_sensor_context(instance=instance, resources=resources, cursor=cursor) as context:
            return sensor.evaluate_tick(context)

    first = tick()
    assert [(alert.kind, alert.subject) for alert in told] == [
        ("tables_in_need", "a"),
        ("versions_held", "a"),
        ("tables_in_need", "b"),
    ]
    assert [(event.check_name, event.passed) for event in first.asset_events] == [
        ("tables_in_need", False),
        ("versions_held", False),
    ]
    told.clear()
    failed = _failing.execute_in_process(instance=instance, raise_on_error=False)
    second = tick(first.cursor)
    assert [(alert.kind, alert.subject) for alert in told] == [("maintenance_failed", failed.run_id)]
    told.clear()
    tick(second.cursor)
    assert not told


@dg.op
def _fail():
    raise ValueError


@dg.job(name="lance_maintenance")
def _failing():
    _fail()


@pytest.mark.parametrize("per", ["table", "group"])
def test_plans_are_requested_when_any_step_is_needed(root, instance, busy, per):
    lance = LanceResource(root=root)
    policies = {"compaction": CompactionPolicy(min_fragments=3), "deletions": None}
    condition = maintenance_needed(lance, **policies, tables=[[name] for name in busy] if per == "group" else ())
    assets = build_maintenance_assets(busy, **policies, per=per, automation_condition=condition)
    defs = dg.Definitions(assets=assets, resources={"lance": lance})
    result = dg.evaluate_automation_conditions(defs=defs, instance=instance)
    requested = [key.to_user_string() for key in defs.resolve_all_asset_keys() if result.get_num_requested(key)]
    assert sorted(requested) == (["a/maintenance", "b/maintenance"] if per == "table" else ["lance_maintenance/tables"])


def test_of_many_tables_those_that_need_something_are_listed():
    tables = [
        TableHealth(table=f"t{n:02d}", needs={"cleanup": "old"} if n >= 70 else {}, numbers={}) for n in range(100)
    ]
    lines = health_markdown(tables).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:-1]] == [f"`t{n}`" for n in range(70, 95)]
    assert lines[-1].startswith("| and 75 more | 5 of them need something, see `lance/needs` | |")
