"""A whole project of another domain: partitions of every kind, modes, checks, sensors, Pipes, branches, maintenance.

Jobs run with the multiprocess executor where it matters that each step has a process of its own.
"""

import importlib
import os
import sys
from collections import Counter
from multiprocessing import forkserver
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.reconstruct import ReconstructableJob

import lance_core

# Dagster's own code for Pipes uses both.
pytestmark = [
    pytest.mark.filterwarnings("ignore:AssetExecutionContext.run_id is deprecated"),
    pytest.mark.filterwarnings("ignore:Function `PipesMessageReader"),
]
MODULE = "shop_project"
REGIONS = ["asia", "eu", "us"]


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Folder of the tables; steps are forks of a server that keeps the environment in which it started."""
    monkeypatch.setenv("SHOP_TABLES", str(tmp_path / "tables"))
    # Dagster takes the first entry away when it imports code; the server knows the environment only.
    here = str(Path(__file__).parent)
    monkeypatch.setattr(sys, "path", [*sys.path, here])
    monkeypatch.setenv("PYTHONPATH", here, prepend=os.pathsep)
    sys.modules.pop(MODULE, None)
    forkserver._forkserver._stop()
    yield tmp_path / "tables"
    forkserver._forkserver._stop()
    sys.modules.pop(MODULE, None)


@pytest.fixture
def defs(shop):  # noqa: ARG001 - the environment
    return importlib.import_module(MODULE).DEFINITIONS


def range_of(first, last):
    return {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}


def told(result):
    """Materializations and results of checks by name."""
    events = [event.materialization for event in result.get_asset_materialization_events()]
    evaluations = result.get_asset_check_evaluations()
    checks = {f"{check.asset_key.path[-1]}: {check.check_name}": check.passed for check in evaluations}
    return {event.asset_key.to_user_string().removeprefix("shop/"): event for event in events}, checks


@pytest.fixture
def run(defs, instance):
    """Run a job by its name in this process."""

    def execute(name, *, tags=None, **kwargs):
        return told(defs.resolve_job_def(name).execute_in_process(instance=instance, tags=tags, **kwargs))

    return execute


@pytest.fixture
def run_apart(shop, tmp_path):  # noqa: ARG001 - the environment
    """Run a job by its name, each step in a process of its own."""
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:

        def execute(name, *, tags=None):
            with dg.execute_job(ReconstructableJob.for_module(MODULE, name), instance, tags=tags) as result:
                failures = [
                    event.event_specific_data.error_display_string for event in result.get_step_failure_events()
                ]
                assert result.success, "\n".join(failures)
                events, checks = told(result)
            # The result has events in the order in which they came from the processes, the log that in which they were.
            written = instance.all_logs(result.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
            keys = [one.dagster_event.asset_key.to_user_string().removeprefix("shop/") for one in written]
            return {key: events[key] for key in dict.fromkeys(keys)}, checks

        yield execute


@pytest.fixture
def rows(shop):
    def read(name, **options):
        return lance_core.dataset(shop / "shop" / f"{name}.lance").to_table(**options).to_pylist()

    return read


@pytest.fixture
def suppliers(shop):
    uri = shop / "shop" / "suppliers.lance"
    return lance_core.write_dataset(pa.table({"name": ["Chairs & Co"], "city": ["Oslo"]}), uri)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("suppliers")
def test_steps_of_a_shop_in_processes_of_their_own(shop, run_apart, rows):
    events, checks = run_apart("whole")
    assert checks == {
        "discounts: row_count": True,
        "products: unique": True,
        "products: integrity": True,
        "products: index_coverage": True,
    }
    assert rows("contacts") == [{"name": "Chairs & Co"}]
    assert lance_core.dataset(shop / "elsewhere" / "discounts").count_rows() == 2
    # Reported by a process that knows no Dagster, although somebody committed after it.
    assert events["refunds"].tags["dagster/data_version"] == "1"
    refunded = events["refunds"].metadata
    assert [refunded[key].value for key in ("dagster/row_count", "lance/version", "rows_refunded")] == [1, 1, 1]
    assert [column.name for column in refunded["dagster/column_schema"].value.columns] == ["order_id", "amount"]

    days = range_of("2026-11-01", "2026-11-03")
    events, checks = run_apart("by_day", tags=days)
    assert checks == {"events: row_count": True, "events: not_null": True}
    assert sorted(rows("funnel"), key=lambda row: row["day"]) == [
        {"day": day, "events": 4, "kinds": 2} for day in (20261101, 20261102, 20261103)
    ]
    assert [row["events"] for row in rows("trend")] == [12, 12, 12]

    events, checks = run_apart("lance_maintenance")
    # It waited for the maintenance of the tables, although it depends on none of it.
    assert list(events)[-1] == "lance_maintenance/table_health"
    assert events["products/maintenance"].metadata["lance/summary"].value == "indices brought up to date"
    assert events["discounts/maintenance"].metadata["lance/version"].value == 1
    assert rows("products", filter="title = 'blue chair 1'")[0]["sku"] == "sku-1"


@pytest.mark.usefixtures("suppliers")
def test_partitions_of_every_kind(run, rows, instance):
    run("whole")
    run("by_region", tags=range_of("asia", "us"))
    assert Counter(row["region"] for row in rows("prices")) == dict.fromkeys(REGIONS, 3)
    _, checks = run("by_day_and_region", tags=range_of("2026-11-01|asia", "2026-11-02|us"))
    assert checks == {"orders: unique": True}
    run("by_day_and_region", partition_key="2026-11-02|eu")
    assert Counter((row["day"], row["region"]) for row in rows("orders")) == {
        (day, region): 2 for day in ("2026-11-01", "2026-11-02") for region in REGIONS
    }
    for region in ("eu", "us"):
        run("revenue", partition_key=region)
    assert rows("revenue") == [{"region": "eu", "revenue": 37.8}, {"region": "us", "revenue": 33.6}]
    run("by_day", tags=range_of("2026-11-01", "2026-11-02"))
    run("report")
    assert rows("report") == [{"revenue": pytest.approx(71.4), "days": 2}]
    for day in ("2026-11-01", "2026-11-02"):
        run("stock", partition_key=day)
    assert [row["left"] for row in rows("stock")] == [99, 98]
    instance.add_dynamic_partitions("tenants", ["it's", "b"])
    for tenant in ("it's", "b", "it's"):
        events, _ = run("feedback", partition_key=tenant)
    assert events["feedback"].metadata["dagster/partition_row_count"].value == 2
    run("shop__orders__wipe_partitions", run_config=wipe(["2026-11-01|asia", "2026-11-02|us"]))
    assert len(rows("orders")) == 8


def wipe(partitions):
    return {"ops": {"shop__orders__wipe_partitions": {"config": {"partitions": partitions}}}}


def config_of(op, **config):
    return {"ops": {op: {"config": config}}}


@pytest.mark.usefixtures("suppliers")
def test_a_branch_of_the_shop_is_tried_published_and_dropped(run, rows, shop, instance, monkeypatch):
    run("whole")
    monkeypatch.setenv("LANCE_BRANCH", "trial")
    trial = importlib.reload(sys.modules[MODULE]).DEFINITIONS
    for name in ("whole", "lance_maintenance"):
        trial.resolve_job_def(name).execute_in_process(instance=instance, tags={"delivery": "2"})
    assert len(rows("products")) == 3
    assert lance_core.dataset(shop / "shop" / "products.lance", branch="trial").count_rows() == 5
    assert lance_core.dataset(shop / "elsewhere" / "discounts").branches.list().keys() == {"trial"}
    run("publish_branch", run_config=config_of("publish_branch", branch="trial"))
    assert len(rows("products")) == 5
    assert len(rows("deliveries")) == 2
    run("drop_branch", run_config=config_of("drop_branch", branch="trial"))
    assert not lance_core.dataset(shop / "shop" / "products.lance").branches.list()
    assert not lance_core.dataset(shop / "elsewhere" / "discounts").branches.list()


def test_sensors_of_the_shop(run, defs, suppliers, instance):
    def tick(name, cursor=None):
        given = {"instance": instance, "cursor": cursor, "resources": defs.resources, "definitions": defs}
        with dg.build_sensor_context(**given) as context:
            return defs.resolve_sensor_def(name).evaluate_tick(context)

    # A code location with jobs whose ops and graphs share a name would not load.
    assert {"publish_branch", "shop__orders__wipe_partitions"} < {job.name for job in defs.resolve_all_job_defs()}
    first = tick("shop__suppliers__versions")
    suppliers.insert(pa.table({"name": ["Tables Ltd"], "city": ["Bern"]}))
    second = tick("shop__suppliers__versions", first.cursor)
    assert [request.tags["lance/version"] for request in second.run_requests] == ["2"]
    run("whole")
    run("whole")
    (needs,) = [
        event for event in tick("lance_maintenance_alerts").asset_events if event.check_name == "tables_in_need"
    ]
    tables = needs.metadata["lance/needs"].value
    assert tables["shop/deliveries"] == "compaction"
    assert tables["shop/products"] == "indices"
    assert "shop/discounts" not in tables
