"""A branch for each environment: begun by the first write, read through to the main branch, published and dropped."""

import shutil

import dagster as dg
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import DatasetNotFoundError, InvalidInputError
from lance_dagster import LanceIOManager, LanceResource, build_branch_jobs, build_maintenance_assets, deployment_branch

DAYS = dg.StaticPartitionsDefinition(["a", "b"])


@dg.asset
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    return pa.table({"price": [float(context.run.tags.get("price", 1))]})


@dg.asset(automation_condition=dg.AutomationCondition.eager())
def total(orders: pa.Table) -> pa.Table:
    return pa.table({"total": [sum(orders["price"].to_pylist())]})


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def daily(context: dg.AssetExecutionContext) -> pa.Table:
    return pa.table({"day": [context.partition_key]})


ASSETS = [orders, total, daily]
PUBLISH, DROP = build_branch_jobs(ASSETS)


@pytest.fixture
def trial(root):
    """Resources of an environment on the branch ``trial``, in the instance of production."""
    return {
        "io_manager": LanceIOManager(root=root, branch="trial", branch_outputs="observation"),
        "lance": LanceResource(root=root, branch="trial"),
    }


@pytest.fixture
def go(root, instance):
    main = {"io_manager": LanceIOManager(root=root), "lance": LanceResource(root=root)}

    def materialize(*selection, resources=None, **kwargs):
        return dg.materialize(ASSETS, instance=instance, resources=resources or main, selection=selection, **kwargs)

    return materialize


@pytest.fixture
def job(root, instance):
    def execute(which, **config):
        run_config = {"ops": {which.name: {"config": {"branch": "trial", **config}}}}
        resources = {"lance": LanceResource(root=root)}
        return which.execute_in_process(
            run_config=run_config, resources=resources, instance=instance, raise_on_error=False
        )

    return execute


def test_the_first_write_of_a_table_begins_its_branch_and_leaves_main_missing(go, trial, tables, root):
    for mode in ("overwrite", "append", "merge", "error"):
        tags = {"lance/mode": mode, "lance/merge_keys": "price"}
        asset = f"{root}/orders.lance"
        assert go("orders", resources=trial, tags=tags).success
        assert lance_core.dataset(asset, branch="trial").count_rows() == 1
        assert not tables.exists("orders")
        with pytest.raises(DatasetNotFoundError, match="no table of the asset orders yet"):
            go("total")
        assert go("orders", tags=tags).success
        assert tables.dataset("orders").to_table().to_pydict() == {"price": [1]}
        shutil.rmtree(asset)


def test_partitions_of_a_new_table_are_written_to_the_branch_and_then_to_main(go, trial, tables):
    for key in ("a", "b"):
        assert go("daily", resources=trial, partition_key=key).success
    assert tables.dataset("daily", branch="trial").count_rows() == 2
    assert go("daily", partition_key="b").success
    assert tables.dataset("daily").to_table().to_pydict() == {"day": ["b"]}


def test_tables_without_the_branch_are_read_from_main(go, trial, tables):
    go("orders", tags={"price": "3"})
    go("total", resources=trial)
    assert tables.dataset("total", branch="trial").to_table().to_pydict() == {"total": [3]}
    assert not tables.exists("total")
    lance = trial["lance"]
    assert lance.dataset("orders").branch is None
    lance.writable("orders").delete("true")
    assert (lance.dataset("orders").count_rows(), tables.dataset("orders").count_rows()) == (0, 1)
    lance.write("orders", pa.table({"price": [9.0]}))
    assert (lance.dataset("orders").count_rows(), tables.dataset("orders").count_rows()) == (1, 1)
    assert lance.write("new", pa.table({"x": [1]}), mode="create").count_rows() == 1
    assert not tables.exists("new")


def test_an_environment_in_the_instance_of_production_records_observations(go, trial, instance):
    go("orders", "total")
    defs = dg.Definitions(assets=ASSETS, resources=trial)
    cursor = dg.evaluate_automation_conditions(defs=defs, instance=instance).cursor
    before = instance.get_latest_materialization_event(dg.AssetKey("orders")).asset_materialization.tags
    result = go("orders", resources=trial)
    assert result.asset_materializations_for_node("orders") == []
    (event,) = result.asset_observations_for_node("orders")
    assert event.metadata["lance/branch"].value == "trial"
    assert event.metadata["dagster/table_name"].value == "orders@trial"
    after = instance.get_latest_materialization_event(dg.AssetKey("orders")).asset_materialization.tags
    assert after == before
    assert dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=cursor).total_requested == 0


def test_a_branch_that_looks_like_production_warns(go, root, instance):
    go("orders")
    result = go("orders", resources={"io_manager": LanceIOManager(root=root, branch="trial")})
    warnings = [record.user_message for record in instance.all_logs(result.run_id) if record.level == 30]
    assert len(warnings) == 1
    assert "branch_outputs='observation'" in warnings[0]


def test_the_run_log_says_what_is_written_and_committed(go, trial, root, instance):
    result = go("orders", resources=trial)
    lines = [record.user_message for record in instance.all_logs(result.run_id) if record.level == 20]
    assert f"Storing orders in {root}/orders.lance/tree/trial (mode overwrite)." in lines
    (committed,) = [line for line in lines if line.startswith("Committed version 2 of ")]
    assert "1 row and" in committed


def test_recorded_versions_are_those_of_the_environment(go, trial, tables):
    go("orders", tags={"price": "3"})
    go("orders", resources=trial, tags={"price": "7"})
    recorded = trial | {"io_manager": trial["io_manager"].model_copy(update={"read": "materialized"})}
    go("total", resources=recorded)
    assert tables.dataset("total", branch="trial").to_table().to_pydict() == {"total": [7]}


def test_publishing_makes_the_branch_the_main_branch_and_tells_dagster(go, trial, job, tables, instance):
    go("orders")
    go("orders", "total", resources=trial, tags={"price": "7"})
    assert job(PUBLISH, dry_run=True).success
    assert tables.dataset("orders").to_table().to_pydict() == {"price": [1]}
    assert job(PUBLISH).success
    assert tables.dataset("orders").to_table().to_pydict() == {"price": [7]}
    assert tables.dataset("total").to_table().to_pydict() == {"total": [7]}
    event = instance.get_latest_materialization_event(dg.AssetKey("total")).asset_materialization
    assert event.metadata["lance/published_from"].value == "trial"
    assert job(DROP).success
    assert tables.dataset("orders").branches.list() == {}
    assert tables.dataset("orders").to_table().to_pydict() == {"price": [7]}


def test_nothing_is_published_if_one_main_branch_moved_on(go, trial, job, tables):
    go("orders", "total")
    go("orders", "total", resources=trial, tags={"price": "7"})
    go("total")
    assert not job(PUBLISH).success
    assert tables.dataset("orders").to_table().to_pydict() == {"price": [1]}
    assert not job(PUBLISH, tables=["elsewhere"]).success
    assert job(PUBLISH, tables=["orders"]).success
    assert tables.dataset("orders").to_table().to_pydict() == {"price": [7]}


def test_dropping_leaves_tables_without_the_branch_alone(go, trial, job, tables):
    go("orders")
    go("total", resources=trial)
    assert job(DROP, dry_run=True).success
    assert tables.dataset("total", branch="trial").count_rows() == 1
    assert job(DROP).success
    assert not tables.exists("total")
    assert tables.dataset("orders").version == 1


def test_maintenance_of_an_environment_never_touches_main(go, trial, tables, instance):
    go("orders")
    tables.write("orders", pa.table({"price": [2.0]}))
    maintenance = build_maintenance_assets("orders")
    result = dg.materialize(maintenance, instance=instance, resources=trial)
    events = result.get_asset_materialization_events()
    reasons = {event.materialization.metadata["lance/reason"].value for event in events}
    assert reasons == {"there is no branch 'trial'"}
    assert tables.dataset("orders").version == 2


@pytest.mark.parametrize(
    ("variables", "branch"),
    [
        ({}, None),
        ({"LANCE_BRANCH": ""}, None),
        ({"LANCE_BRANCH": "main"}, None),
        ({"LANCE_BRANCH": "staging"}, "staging"),
        ({"DAGSTER_CLOUD_IS_BRANCH_DEPLOYMENT": "1", "DAGSTER_CLOUD_GIT_BRANCH": "fix/a b#1"}, "fix/a-b-1"),
        ({"DAGSTER_CLOUD_IS_BRANCH_DEPLOYMENT": "0", "DAGSTER_CLOUD_GIT_BRANCH": "main2"}, None),
    ],
)
def test_the_branch_comes_from_the_environment(monkeypatch, variables, branch):
    for name in ("LANCE_BRANCH", "DAGSTER_CLOUD_IS_BRANCH_DEPLOYMENT", "DAGSTER_CLOUD_GIT_BRANCH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert deployment_branch() == branch


def test_a_branch_deployment_without_a_name_is_refused(monkeypatch):
    monkeypatch.delenv("LANCE_BRANCH", raising=False)
    monkeypatch.setenv("DAGSTER_CLOUD_IS_BRANCH_DEPLOYMENT", "1")
    monkeypatch.delenv("DAGSTER_CLOUD_GIT_BRANCH", raising=False)
    with pytest.raises(InvalidInputError, match="DAGSTER_CLOUD_GIT_BRANCH is empty"):
        deployment_branch()
