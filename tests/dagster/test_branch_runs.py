"""A run on a branch leaves Dagster's picture of the main branch alone: no automation, no other data version."""

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster._core.loader import LoadingContextForTest

from lance_dagster import LanceIOManager, LanceResource, _compat

AUDIT = {"lance/branch": "audit"}
DAYS = dg.StaticPartitionsDefinition(["a", "b"])


@dg.asset
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    return pa.table({"price": [float(context.run.tags.get("price", 1))]})


@dg.asset(automation_condition=dg.AutomationCondition.eager())
def total(orders: pa.Table) -> pa.Table:
    return pa.table({"total": [sum(orders["price"].to_pylist())]})


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def daily(context: dg.AssetExecutionContext) -> pa.Table:
    return pa.table({"day": list(context.partition_keys)})


@dg.asset(automation_condition=dg.AutomationCondition.eager())
def days(daily: pa.Table) -> pa.Table:
    return daily


@dg.asset(deps=[orders])
def published(context: dg.AssetExecutionContext, lance: LanceResource) -> None:
    lance.publish("orders", "audit", context=context)


@dg.asset(partitions_def=DAYS, deps=[daily])
def published_days(context: dg.AssetExecutionContext, lance: LanceResource) -> None:
    lance.publish("daily", "audit", where=f"day = '{context.partition_key}'", context=context)


ASSETS = [orders, total, daily, days, published, published_days]


def resources_of(root):
    return {"io_manager": LanceIOManager(root=root), "lance": LanceResource(root=root)}


@pytest.fixture
def go(root, instance):
    def materialize(*selection, tags=None, manager=None, **kwargs):
        resources = resources_of(root) | ({} if manager is None else {"io_manager": manager})
        return dg.materialize(
            ASSETS, instance=instance, resources=resources, tags=tags, selection=list(selection), **kwargs
        )

    return materialize


@pytest.fixture
def picture(instance, root):
    """What Dagster knows of the main branch: data versions and staleness of all assets."""

    graph = dg.Definitions(assets=ASSETS, resources=resources_of(root)).resolve_asset_graph()

    def look():
        resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        events = {name: instance.get_latest_materialization_event(dg.AssetKey(name)) for name in ("orders", "total")}
        return {
            name: (
                event and event.asset_materialization.tags["dagster/data_version"],
                resolver.get_status(dg.AssetKey(name)).name,
            )
            for name, event in events.items()
        }

    return look


@pytest.fixture
def evaluate(instance, root):
    """Evaluate all automation conditions, each time with the cursor of the last."""
    cursors = [None]
    defs = dg.Definitions(assets=ASSETS, resources=resources_of(root))

    def requested():
        result = dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=cursors[0])
        cursors[0] = result.cursor
        return result.total_requested

    return requested


def test_no_automation_fires_and_nothing_becomes_stale(go, evaluate, picture, tables):
    assert go("orders", "total").success
    evaluate()
    assert evaluate() == 0
    before = picture()
    assert before["total"][1] == "FRESH"
    trial = go("orders", tags={**AUDIT, "price": "7"})
    assert trial.success
    assert evaluate() == 0
    assert picture() == before
    # The same change of the main branch does what it should.
    assert go("orders", tags={"price": "8"}).success
    assert evaluate() == 1
    assert picture()["total"][1] == "STALE"
    assert tables.dataset("orders", branch="audit").to_table().to_pydict() == {"price": [7]}


def test_publishing_materializes_the_asset_of_the_main_line(go, evaluate, picture, tables):
    go("orders", "total")
    go("orders", tags={**AUDIT, "price": "7"})
    evaluate()
    assert evaluate() == 0
    done = go("published")
    (event,) = [
        one.materialization for one in done.get_asset_materialization_events() if one.asset_key.path == ["orders"]
    ]
    assert (event.metadata["lance/version"].value, event.tags["dagster/data_version"]) == (2, "2")
    assert evaluate() == 1
    assert picture()["total"][1] == "STALE"
    assert tables.dataset("orders").to_table().to_pydict() == {"price": [7]}


def test_publishing_materializes_the_partitions_of_the_run(go, instance):
    both = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "b"}
    go("daily", tags=both)
    go("daily", tags={**AUDIT, **both})
    go("published_days", partition_key="b")
    (newest,) = instance.fetch_materializations(dg.AssetKey("daily"), limit=1).records
    assert (newest.partition_key, newest.asset_materialization.tags["dagster/data_version"]) == ("b", "2")


def test_the_output_is_observed_with_all_its_metadata(go):
    go("orders")
    trial = go("orders", tags=AUDIT)
    assert trial.asset_materializations_for_node("orders") == []
    (event,) = trial.asset_observations_for_node("orders")
    assert (event.metadata["lance/branch"].value, event.metadata["lance/version"].value) == ("audit", 2)
    assert event.metadata["dagster/row_count"].value == 1
    assert "dagster/data_version" not in event.tags


def test_downstream_assets_of_the_run_read_the_branch(go, tables, picture):
    go("orders", "total")
    before = picture()
    tables.dataset("total").create_branch("audit")
    trial = go("orders", "total", tags={**AUDIT, "price": "7"})
    assert tables.dataset("total", branch="audit").to_table().to_pydict() == {"total": [7]}
    assert tables.dataset("total").to_table().to_pydict() == {"total": [1]}
    assert trial.get_asset_materialization_events() == []
    assert picture() == before


def test_partitions_are_observed_one_by_one(go, instance, evaluate):
    everything = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "b"}
    go("daily", tags=everything)
    go("days")
    evaluate()
    evaluate()
    trial = go("daily", tags={**AUDIT, **everything})
    events = trial.asset_observations_for_node("daily")
    assert [(one.partition, one.metadata["dagster/partition_row_count"].value) for one in events] == [
        ("a", 1),
        ("b", 1),
    ]
    assert evaluate() == 0
    assert len(instance.fetch_materializations(dg.AssetKey("daily"), limit=10).records) == 2


def test_a_branch_that_was_never_recorded_stays_missing_on_main(go, instance, evaluate, tables):
    tables.write("orders", pa.table({"price": [1.0]}))
    evaluate()
    go("orders", tags=AUDIT)
    assert instance.get_latest_materialization_event(dg.AssetKey("orders")) is None
    assert evaluate() == 0


def test_recorded_versions_of_main_and_branch_are_kept_apart(go, root, tables):
    recorded = LanceIOManager(root=root, read="materialized")
    go("orders", "total", tags={"price": "3"})
    go("orders", tags={**AUDIT, "price": "7"})
    tables.dataset("orders").delete("true")
    go("total", manager=recorded)
    assert tables.dataset("total").to_table().to_pydict() == {"total": [3]}
    tables.dataset("orders", branch="audit").delete("true")
    go("total", manager=recorded, tags=AUDIT)
    assert tables.dataset("total", branch="audit").to_table().to_pydict() == {"total": [7]}


def test_a_re_executed_step_on_a_branch_appends_again_only_if_it_was_not_recorded(root, instance, tables):
    """Its observation tells that the first run was complete, as a materialization does on the main branch."""
    resources = {"io_manager": LanceIOManager(root=root)}
    defs = dg.Definitions(assets=[orders], resources=resources, executor=dg.in_process_executor)
    job = defs.resolve_implicit_global_asset_job_def()
    job.execute_in_process(instance=instance)
    first = job.execute_in_process(instance=instance, tags={**AUDIT, "lance/mode": "append"})
    run = instance.create_run_for_job(
        job,
        parent_run_id=first.run_id,
        root_run_id=first.run_id,
        tags={**AUDIT, "lance/mode": "append"},
    )
    assert execute_run(InMemoryJob(job), run, instance=instance).success
    assert tables.dataset("orders", branch="audit").count_rows() == 3


def test_the_branch_of_the_io_manager_is_the_home_of_its_assets(go, root):
    go("orders")
    own = LanceIOManager(root=root, branch="audit")
    (event,) = go("orders", manager=own).asset_materializations_for_node("orders")
    assert event.tags["dagster/data_version"] == "audit@2"
    (event,) = go("orders", manager=own, tags=AUDIT).asset_materializations_for_node("orders")
    assert event.tags["dagster/data_version"] == "audit@3"
    beside = go("orders", manager=own, tags={"lance/branch": "main"})
    assert beside.asset_materializations_for_node("orders") == []


def test_a_dagster_that_cannot_withhold_keeps_the_data_version(go, monkeypatch, picture):
    go("orders", "total")
    before = picture()
    monkeypatch.setattr(_compat, "withhold_materialization", lambda _: False)
    trial = go("orders", tags={**AUDIT, "price": "7"})
    assert len(trial.asset_materializations_for_node("orders")) == 1
    assert picture() == before
