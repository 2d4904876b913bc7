"""Components of a whole project: resources, sensors, tables that are found by themselves."""

import asyncio
import json

import dagster as dg
import pyarrow as pa
import pytest
from dagster.components.testing import create_defs_folder_sandbox

import lance_core
from lance_core.errors import InvalidInputError
from lance_core.reports.listing import find_tables
from lance_dagster import (
    LanceDiscoveryComponent,
    LanceIndexComponent,
    LanceIOManager,
    LanceMaintenanceComponent,
    LanceResource,
    LanceResourcesComponent,
    LanceSensorComponent,
    LanceTableComponent,
    SparkSessionResource,
)

pytestmark = pytest.mark.filterwarnings("ignore:`parse_obj_as`")


def load(component, attributes):
    with create_defs_folder_sandbox() as sandbox:
        contents = {"type": f"lance_dagster.{component.__name__}", "attributes": attributes}
        path = sandbox.scaffold_component(component, defs_yaml_contents=contents)
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, defs):
            return defs


def test_resources_are_declared_once(root, monkeypatch):
    monkeypatch.setenv("LANCE_TEST_KEY", "secret")
    attributes = {
        "root": root,
        "storage_options": {"aws_region": "eu"},
        "storage_options_from_env": {"aws_secret_access_key": "LANCE_TEST_KEY"},
        "spark": {"master": "local[1]"},
        "mode": "append",
    }
    resources = load(LanceResourcesComponent, attributes).resources
    manager, lance, spark = (resources[key] for key in ("io_manager", "lance", "spark"))
    assert (type(manager), type(lance), type(spark)) == (LanceIOManager, LanceResource, SparkSessionResource)
    assert manager.mode == "append"
    assert lance.storage_options["aws_secret_access_key"] == dg.EnvVar("LANCE_TEST_KEY")


def test_resources_of_a_component_store_assets(root, instance):
    @dg.asset
    def orders() -> pa.Table:
        return pa.table({"id": [1, 2]})

    resources = load(LanceResourcesComponent, {"root": root}).resources
    assert dg.materialize([orders], instance=instance, resources=resources).success
    assert lance_core.dataset(f"{root}/orders.lance").count_rows() == 2


def test_an_option_that_is_given_twice_is_refused(root):
    component = LanceResourcesComponent(root=root, storage_options={"a": "1"}, storage_options_from_env={"a": "B"})
    with pytest.raises(InvalidInputError, match=r"\['a'\] are given both"):
        component.storage()


def test_sensors_of_many_tables():
    defs = load(LanceSensorComponent, {"tables": ["raw/events", "raw/users"], "running": True})
    assert sorted(sensor.name for sensor in defs.sensors) == ["raw__events__versions", "raw__users__versions"]
    assert {sensor.default_status for sensor in defs.sensors} == {dg.DefaultSensorStatus.RUNNING}


def test_maintenance_per_table_with_alerts():
    defs = load(LanceMaintenanceComponent, {"tables": ["a", "b"], "per": "table", "alerts": True})
    keys = sorted(key.to_user_string() for asset in defs.assets for key in asset.keys)
    assert keys == ["a/maintenance", "b/maintenance", "lance_maintenance/table_health"]
    assert [sensor.name for sensor in defs.sensors] == ["lance_maintenance_alerts"]


def test_indices_of_many_tables(root, tables, instance):
    tables.write("users", pa.table({"id": [1, 2]}))
    defs = load(LanceIndexComponent, {"tables": ["users"], "columns": {"id": "BTREE"}})
    defs = dg.Definitions.merge(defs, dg.Definitions(resources={"lance": LanceResource(root=root)}))
    assert defs.resolve_job_def("lance_indices").execute_in_process(instance=instance).success
    assert [(index.field_names, index.index_type) for index in tables.dataset("users").describe_indices()] == [
        (["id"], "BTree")
    ]


@pytest.mark.parametrize(
    ("component", "params"),
    [
        (LanceResourcesComponent, {"root": "lake", "spark": True}),
        (LanceSensorComponent, {"tables": "a, b"}),
        (LanceMaintenanceComponent, {"tables": "a, b"}),
        (LanceIndexComponent, {"tables": "a, b", "column": "id", "type": "BITMAP"}),
        (LanceDiscoveryComponent, {"root": "lake"}),
    ],
)
def test_what_is_scaffolded_loads(component, params, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(component, scaffold_params=params)
        with sandbox.load_component_and_build_defs(defs_path=path) as (made, _):
            assert type(made) is component


def discover(tmp_path, **attributes):
    component = LanceDiscoveryComponent(**attributes)
    state = tmp_path / "state.json"
    component.write_state_to_path(state)
    return state, component.build_defs_from_state(None, state)


def test_tables_below_a_root_become_external_assets(root, tables, tmp_path):
    tables.write("raw/events", pa.table({"id": [1], "name": ["x"]}))
    for value in range(3):
        tables.write("users", pa.table({"id": [value]}))
    tables.write("hidden", pa.table({"id": [1]}))
    _, defs = discover(tmp_path, root=root, exclude=["hidden"], maintenance={"per": "table"})
    defs = dg.Definitions.merge(defs, dg.Definitions(resources={"lance": LanceResource(root=root)}))
    specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
    events = specs["raw/events"]
    assert {"raw/events", "users", "users/maintenance"} < specs.keys()
    assert "hidden" not in specs
    assert events.kinds == {"lance"}
    assert [column.name for column in events.metadata["dagster/column_schema"].columns] == ["id", "name"]
    assert specs["users"].metadata["lance/summary"] == "compaction: 3 small fragments can be merged"
    assert specs["users"].metadata["lance/rows"] == 3


@pytest.mark.filterwarnings("ignore:Function `load_definitions_from_module")
def test_tables_of_the_project_itself_are_left_to_it(root, tables):
    for name in ("orders", "raw/clicks", "raw/events", "users"):
        tables.write(name, pa.table({"id": [1]}))
    with create_defs_folder_sandbox() as sandbox:
        (sandbox.defs_folder_path / "own.py").write_text(
            "import dagster as dg\n\n\n@dg.asset\ndef orders(): ...\n\n\nclicks = dg.AssetSpec(['raw', 'clicks'])\n"
        )
        for component, attributes in (
            (LanceResourcesComponent, {"root": root}),
            (LanceTableComponent, {"table": "raw/events"}),
            (LanceMaintenanceComponent, {"tables": ["users"]}),
            (LanceDiscoveryComponent, {"root": root}),
            (LanceDiscoveryComponent, {"root": f"{root}/raw", "key_prefix": ["again"]}),
        ):
            contents = {"type": f"lance_dagster.{component.__name__}", "attributes": attributes}
            path = sandbox.scaffold_component(component, defs_yaml_contents=contents)
            if component is LanceDiscoveryComponent:
                with sandbox.load_component_and_build_defs(defs_path=path) as (discovery, _):
                    asyncio.run(discovery.refresh_state(sandbox.project_root))
        with sandbox.build_all_defs() as defs:
            specs = {spec.key.to_user_string(): spec.group_name for spec in defs.resolve_all_asset_specs()}
    assert sorted(key for key, group in specs.items() if group == "discovered") == [
        "again/clicks",
        "again/events",
        "users",
    ]
    assert {"orders", "raw/clicks", "raw/events", "users/cleanup"} < specs.keys()


def test_discovered_tables_are_loaded_downstream(root, tables, tmp_path, instance):
    tables.write("users", pa.table({"id": [1, 2]}))
    _, defs = discover(tmp_path, root=root, key_prefix=["lake"])

    @dg.asset(ins={"users": dg.AssetIn(["lake", "users"])})
    def count(users: pa.Table) -> pa.Table:
        return pa.table({"rows": [users.num_rows]})

    own = dg.Definitions(assets=[count], resources={"io_manager": LanceIOManager(root=root)})
    job = dg.Definitions.merge(defs, own).resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=instance).success
    assert tables.dataset("count").to_table().to_pylist() == [{"rows": 2}]


def test_a_table_that_cannot_be_read_is_told(root, tables, tmp_path):
    tables.write("broken", pa.table({"id": [1]}))
    for manifest in (tmp_path / "tables" / "broken.lance" / "_versions").glob("*.manifest"):
        manifest.write_bytes(b"nonsense")
    state, defs = discover(tmp_path, root=root)
    assert json.loads(state.read_text())[0]["key"] == ["broken"]
    (spec,) = defs.resolve_all_asset_specs()
    assert spec.description.startswith("This table cannot be read: ")


def test_tables_are_found_at_any_depth_but_not_inside_of_tables(tmp_path):
    for name in ("a.lance", "deep/er/b.lance", "no_suffix"):
        lance_core.write_dataset(pa.table({"id": [1]}), tmp_path / "root" / name)
    (tmp_path / "root" / "file.txt").write_text("no table")
    names = [address.removeprefix(f"{tmp_path}/root/") for address in find_tables(f"{tmp_path}/root/")]
    assert names == ["a.lance", "deep/er/b.lance", "no_suffix"]
    assert find_tables(str(tmp_path / "missing")) == []
    with pytest.raises(InvalidInputError, match="below a folder of a bucket"):
        find_tables("s3://bucket")
