"""Resources, the registration with Dagster, and the component."""

import os

import dagster as dg
import pyarrow as pa
import pytest
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.testing import create_defs_folder_sandbox
from dagster_shared.libraries import DagsterLibraryRegistry

import lance_core
import lance_dagster
from lance_dagster import LanceMaintenanceComponent, LanceResource, SparkSessionResource


def test_a_resource_opens_tables(tables):
    lance_core.write_dataset(pa.table({"a": [1, 2]}), tables.uri("p/t"))
    lance_core.write_dataset(pa.table({"a": [3]}), tables.uri("p/t"), mode="append")
    for key in ("p/t", ["p", "t"], dg.AssetKey(["p", "t"])):
        assert tables.dataset(key).count_rows() == 3
    assert tables.dataset("p/t", version=1).count_rows() == 2
    numbers = tables.statistics("p/t")
    assert (numbers["lance/fragments"], numbers["lance/data_files"], numbers["lance/deleted_fraction"]) == (2, 2, 0.0)
    assert numbers["lance/table_bytes"] == sum(
        os.path.getsize(os.path.join(tables.uri("p/t"), "data", name))  # noqa: PTH118,PTH202 - one line
        for name in os.listdir(os.path.join(tables.uri("p/t"), "data"))  # noqa: PTH118,PTH208 - one line
    )


def test_the_share_of_deleted_rows(tables):
    lance_core.write_dataset(pa.table({"a": list(range(8))}), tables.uri("t")).delete("a < 2")
    numbers = tables.statistics("t")
    assert (numbers["lance/deleted_rows"], numbers["lance/deleted_fraction"]) == (2, 0.25)
    assert numbers["lance/deletion_files"] == 1


def test_a_root_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TABLES", str(tmp_path))

    @dg.asset
    def asset(lance: LanceResource) -> None:
        assert lance.uri("a") == str(tmp_path / "a.lance")

    assert dg.materialize([asset], resources={"lance": LanceResource(root=dg.EnvVar("TABLES"))}).success


def test_a_spark_session_starts_when_asked_for_only():
    @dg.asset
    def asset(spark: SparkSessionResource) -> None:
        assert not spark.is_started

    assert dg.materialize([asset], resources={"spark": SparkSessionResource()}).success


def test_dagster_knows_the_library():
    assert DagsterLibraryRegistry.get()["lance-dagster"] == lance_dagster.__version__


def test_every_public_name_is_there():
    assert all(hasattr(lance_dagster, name) for name in lance_dagster.__all__)


ATTRIBUTES = {
    "tables": ["raw/events", "users"],
    "compaction": {"min_fragments": 4},
    "deletions": None,
    "cleanup": {"older_than_days": 1.5},
    "cron_schedule": "0 2 * * *",
    "schedule_running": True,
}


# Dagster's own use of pydantic, while it reads YAML.
in_yaml = pytest.mark.filterwarnings("ignore:`parse_obj_as`")


@in_yaml
def test_the_component_builds_assets_job_and_schedule(root):
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            LanceMaintenanceComponent,
            defs_yaml_contents={"type": "lance_dagster.LanceMaintenanceComponent", "attributes": ATTRIBUTES},
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, defs):
            assert isinstance(component, LanceMaintenanceComponent)
            merged = dg.Definitions.merge(defs, dg.Definitions(resources={"lance": LanceResource(root=root)}))
            keys = {key.to_user_string() for key in merged.resolve_asset_graph().materializable_asset_keys}
            upkeep = {f"{t}/{name}" for t in ("raw/events", "users") for name in ("compaction", "cleanup")}
            assert keys == {*upkeep, "lance_maintenance/table_health"}
            schedule = merged.resolve_schedule_def("lance_maintenance_schedule")
            assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING
            assert merged.resolve_job_def("lance_maintenance").execute_in_process().success


@in_yaml
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"crom_schedule": "x"}, "crom_schedule"),
        ({"compaction": {"min": 1}}, "min"),
        ({"deletions": {"threshold": 2}}, "threshold"),
        ({"tables": []}, "tables"),
    ],
)
def test_the_component_refuses_what_it_does_not_know(wrong, message):
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            LanceMaintenanceComponent,
            defs_yaml_contents={
                "type": "lance_dagster.LanceMaintenanceComponent",
                "attributes": {**ATTRIBUTES, **wrong},
            },
        )
        with (
            pytest.raises(ComponentTreeException) as excinfo,
            sandbox.load_component_and_build_defs(defs_path=path),
        ):
            pass
    assert message in str(excinfo.value.__cause__)


def test_a_table_without_the_io_manager(tables):
    made = tables.write("p/t", pa.table({"a": [1, 2]}), transaction_properties={"why": "test"})
    tables.write("p/t", pa.table({"a": [3]}))
    made.tags.create("first", 1)
    assert tables.dataset("p/t").to_table().to_pydict() == {"a": [1, 2, 3]}
    assert tables.dataset("p/t", version="first").count_rows() == 2
    newest, oldest = tables.history("p/t")
    assert (newest["version"], newest["operation"], newest["rows"]) == (2, "Append", 3)
    assert (oldest["version"], oldest["rows"], oldest["properties"]["why"]) == (1, 2, "test")
    assert tables.history("p/t", limit=1) == [newest]
    assert tables.compact("p/t").fragments_removed == 2
    tables.dataset("p/t").create_branch("audit")
    assert tables.dataset("p/t", branch="audit").branch == "audit"
    made.tags.delete("first")
    tables.dataset("p/t").branches.delete("audit")
    tables.cleanup("p/t", retain_versions=1)
    assert len(tables.history("p/t")) == 1
