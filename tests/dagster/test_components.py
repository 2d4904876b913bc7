"""Tables declared in YAML: built in process, and by the real commands of `dg` in a project."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import NoneType
from typing import get_args

import dagster as dg
import pyarrow as pa
import pytest
import yaml
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.testing import create_defs_folder_sandbox

import lance_core
from lance_dagster import (
    CheckRules,
    LanceDiscoveryComponent,
    LanceIOManager,
    LanceMaintenanceComponent,
    LanceResource,
    LanceResourcesComponent,
    LanceSensorComponent,
    LanceTableComponent,
)

COMPONENTS = (
    LanceDiscoveryComponent,
    LanceMaintenanceComponent,
    LanceResourcesComponent,
    LanceSensorComponent,
    LanceTableComponent,
)

# Dagster's own use of pydantic, while it reads YAML.
pytestmark = pytest.mark.filterwarnings("ignore:`parse_obj_as`")

EVERYTHING = {
    "table": "raw/events",
    "description": "Written by the collector.",
    "group_name": "raw",
    "owners": ["team:data"],
    "tags": {"source": "web"},
    "columns": [{"name": "id", "type": "int64", "description": "Of the event.", "nullable": False}],
    "freshness": {"fail_after_hours": 36, "warn_after_hours": 24},
    "observe_cron": "@hourly",
    "sensor": {"target": "down", "report": "materialization", "running": True},
    "checks": {
        "min_rows": 1,
        "not_null": ["id"],
        "unique": [["id"]],
        "integrity": "quick",
        "blocking": True,
        "index_audit": "sample",
    },
    "maintenance": {"deletions": None, "indices": {"columns": {"id": "BTREE"}}, "cron_schedule": "@weekly"},
}


@dg.asset(ins={"events": dg.AssetIn(["raw", "events"])})
def down(events: pa.Table) -> pa.Table:
    return events


@pytest.fixture
def build(root):
    """Definitions of components, with one asset downstream and resources."""

    def make(*components):
        resources = {"lance": LanceResource(root=root), "io_manager": LanceIOManager(root=root)}
        merged = [dg.Definitions(assets=[down], resources=resources)]
        with create_defs_folder_sandbox() as sandbox:
            for attributes in components:
                path = sandbox.scaffold_component(
                    LanceTableComponent,
                    defs_yaml_contents={"type": "lance_dagster.LanceTableComponent", "attributes": attributes},
                )
                with sandbox.load_component_and_build_defs(defs_path=path) as (_, defs):
                    merged.append(defs)
            return dg.Definitions.merge(*merged)

    return make


def test_everything_there_is(build, tables):
    lance_core.write_dataset(pa.table({"id": [1, 2]}), tables.uri("raw/events"))
    defs = build(EVERYTHING)
    specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
    upkeep = {f"raw/events/{name}" for name in ("compaction", "cleanup", "indices")}
    assert specs.keys() == {"raw/events", "down"} | upkeep
    events = specs["raw/events"]
    assert (events.description, events.group_name, list(events.owners)) == (
        "Written by the collector.", "raw", ["team:data"],
    )  # fmt: skip
    assert events.freshness_policy == dg.FreshnessPolicy.time_window(
        fail_window=timedelta(hours=36), warn_window=timedelta(hours=24)
    )
    assert events.metadata["dagster/column_schema"].columns[0].description == "Of the event."
    assert events.automation_condition is not None
    assert defs.resolve_schedule_def("raw__events__maintenance_schedule").cron_schedule == "@weekly"
    sensor = defs.resolve_sensor_def("raw__events__versions")
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    job = defs.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(asset_selection=[dg.AssetKey("down")])
    assert result.output_for_node("down").num_rows == 2
    checks = job.get_subset(asset_check_selection=defs.resolve_asset_graph().asset_check_keys, asset_selection=set())
    found = checks.execute_in_process().get_asset_check_evaluations()
    assert {(one.check_name, one.passed) for one in found} == {
        ("index_audit", True),
        ("row_count", True), ("not_null", True), ("unique", True), ("integrity", True),
    }  # fmt: skip


def test_yaml_asks_for_every_rule():
    (checks,) = (
        kind for kind in get_args(LanceTableComponent.model_fields["checks"].annotation) if kind is not NoneType
    )
    assert set(checks.model_fields) - {"blocking"} == set(CheckRules.__annotations__) ^ {"max_age", "max_age_hours"}


def test_checks_and_upkeep_of_an_asset_in_python(build):
    defs = build(
        {"table": "raw/events"}, {"table": "down", "external": False, "checks": {"min_rows": 1}, "maintenance": {}}
    )
    keys = {spec.key.to_user_string() for spec in defs.resolve_all_asset_specs()}
    assert "down/indices" not in keys
    assert {"down", "down/compaction", "down/materialize_deletions", "down/cleanup"} <= keys
    assert [key.name for key in defs.resolve_asset_graph().asset_check_keys] == ["row_count"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"chekcs": {}}, "chekcs"),
        ({"checks": {}}, "has no rule"),
        ({"checks": {"min_rows": -1}}, "min_rows"),
        ({"checks": {"integrity": "deep"}}, "integrity"),
        ({"maintenance": {"deletions": {"threshold": 3}}}, "threshold"),
        ({"maintenance": {"indices": {"max_uncovered_fraction": 3}}}, "max_uncovered_fraction"),
        ({"freshness": {}}, "fail_after_hours"),
        ({"external": False}, "description, group_name"),
        ({"table": ""}, "table"),
    ],
)
def test_what_is_wrong_is_refused(build, wrong, message):
    with pytest.raises(ComponentTreeException) as excinfo:
        build({**EVERYTHING, **wrong})
    assert message in str(excinfo.value.__cause__)


# Runs `dg` with the arguments in each line, in a fork of this process: to import it takes longer than most commands.
COMMANDS = """
import json, os, sys, tempfile
import dagster._core.storage.sqlite_storage, dagster.components.list.list
import dagster_dg_cli.cli.check, dagster_dg_cli.cli.list, dagster_dg_cli.cli.scaffold
from dagster_dg_cli.cli import create_dg_cli
from lance_dagster import *

for line in sys.stdin:
    with tempfile.TemporaryFile("w+") as output:
        if not (child := os.fork()):
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            sys.argv = ["dg", *json.loads(line)]
            try:
                create_dg_cli()()
            except SystemExit as end:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(end.code or 0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        print(json.dumps([code, output.read()]), flush=True)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """An empty project of `dg`, and its commands."""
    folder = tmp_path_factory.mktemp("project")
    package = folder / "src" / "shop"
    (package / "defs").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "shop"\nversion = "1"\n[tool.dg]\ndirectory_type = "project"\n'
        '[tool.dg.project]\nroot_module = "shop"\n'
    )
    for module in (package, package / "defs"):
        (module / "__init__.py").touch()
    (package / "definitions.py").write_text(
        "from pathlib import Path\n\nimport dagster as dg\n\nfrom lance_dagster import LanceResource\n\n\n"
        "@dg.definitions\ndef defs():\n"
        "    found = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)\n"
        "    return dg.Definitions.merge(found, dg.Definitions(resources={'lance': LanceResource(root='lake')}))\n"
    )

    environment = {**os.environ, "PYTHONPATH": f"{folder / 'src'}{os.pathsep}{Path(__file__).parents[2]}"}
    environment["COLUMNS"] = "200"
    command = [sys.executable, "-c", COMMANDS]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes) as process:

        def run(*arguments):
            process.stdin.write(f"{json.dumps(arguments)}\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        run.defs = package / "defs"
        yield run
        process.stdin.close()


def test_dg_lists_the_components(project):
    code, output = project("list", "components", "--json")
    assert code == 0, output
    for component in COMPONENTS:
        assert f"lance_dagster.{component.__name__}" in output
        assert component.__doc__.splitlines()[0] in output


def test_dg_scaffolds_what_loads_and_shows_where_it_is_wrong(project):
    code, output = project("scaffold", "defs", "lance_dagster.LanceTableComponent", "events", "--table", "raw/events")
    assert code == 0, output
    code, output = project("scaffold", "defs", "lance_dagster.LanceMaintenanceComponent", "upkeep", "--tables", "a, b")
    assert code == 0, output
    path = project.defs / "events" / "defs.yaml"
    assert yaml.safe_load(path.read_text())["attributes"]["table"] == "raw/events"
    assert yaml.safe_load((project.defs / "upkeep" / "defs.yaml").read_text())["attributes"]["tables"] == ["a", "b"]
    code, output = project("list", "defs", "--json")
    assert code == 0, output
    for found in (
        "raw/events",
        "raw__events__versions",
        "lance_maintenance_schedule",
        "a/compaction",
    ):
        assert f'"{found}"' in output
    code, output = project("check", "yaml")
    assert code == 0, output
    path.write_text(path.read_text().replace("min_rows: 1", "min_row: 1"))
    code, output = project("check", "yaml")
    assert code == 1
    line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if "min_row:" in text)
    assert f"defs.yaml:{line} - lance_dagster.LanceTableComponent attributes.checks.min_row" in output
