"""What people see: answers of the interface that Dagster's UI is made of, about a small project that has run."""

import importlib.util
from pathlib import Path

import dagster as dg
import pytest

import lance_core
from lance_dagster.versions.tags import run_tag

PROJECT = Path(__file__).with_name("graphql_project.py")
UPKEEP = ["orders/compaction", "orders/materialize_deletions", "orders/cleanup"]


class Story:
    """The project, its instance, and the runs that were made."""

    def __init__(self, project, instance, ask):
        self.job = project.defs.resolve_implicit_global_asset_job_def()
        self.root, self.instance, self.ask = project.ROOT, instance, ask

    def run(self, *assets, days=None, **tags):
        if days is not None:
            names = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
            tags |= {name: f"2026-11-0{day}" for name, day in zip(names, days, strict=True)}
        keys = [dg.AssetKey.from_user_string(asset) for asset in assets]
        return self.job.execute_in_process(
            instance=self.instance, asset_selection=keys, tags=tags, raise_on_error=False
        )

    def asset(self, key, fields):
        query = "query($key: AssetKeyInput!) {assetNodeOrError(assetKey: $key) {... on AssetNode {%s}}}"
        return self.ask(query % fields, key={"path": key.split("/")})["assetNodeOrError"]

    def entries(self, key, kind, field):
        """Metadata of one type: for each materialization, newest first, values by label."""
        fields = f"assetMaterializations {{metadataEntries {{__typename label ... on {kind} {{{field}}}}}}}"
        name = field.split("{")[0].strip()
        return [
            {entry["label"]: entry[name] for entry in event["metadataEntries"] if entry["__typename"] == kind}
            for event in self.asset(key, fields)["assetMaterializations"]
        ]

    def table(self):
        return lance_core.dataset(f"{self.root}/orders.lance")


@pytest.fixture(scope="module")
def story(tmp_path_factory, web_server):
    """Three days in one run, their total, one of the days again, and a day whose rows are of another day."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TABLES", str(tmp_path_factory.mktemp("tables")))
        patch.setenv("STORE_TOKEN", "hidden-token")
        spec = importlib.util.spec_from_file_location("graphql_project", PROJECT)
        project = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(project)
        folder = str(tmp_path_factory.mktemp("instance"))
        with (
            dg.DagsterInstance.local_temp(folder, overrides={"telemetry": {"enabled": False}}) as instance,
            web_server(instance, python_file=str(PROJECT), attribute="defs") as ask,
        ):
            story = Story(project, instance, ask)
            story.folder = Path(folder)
            story.runs = [
                story.run("orders", days=(1, 3)),
                story.run("totals", days=(1, 3)),
                story.run("orders", days=(2, 2), price="2"),
                story.run("orders", days=(4, 4), day="2026-12-24"),
            ]
            assert [run.success for run in story.runs] == [True, True, True, False]
            yield story


def test_the_lineage_graph(story):
    nodes = story.ask("{assetNodes {assetKey {path} groupName kinds dependencyKeys {path} dependedByKeys {path}}}")
    nodes = {"/".join(node.pop("assetKey")["path"]): node for node in nodes["assetNodes"]}
    edges = {name: ["/".join(key["path"]) for key in node["dependencyKeys"]] for name, node in nodes.items()}
    assert edges == {
        "orders": [],
        "totals": ["orders"],
        "orders/compaction": ["orders"],
        "orders/materialize_deletions": ["orders/compaction"],
        "orders/cleanup": ["orders/materialize_deletions"],
    }
    groups = {name: node["groupName"] for name, node in nodes.items()}
    assert groups == {"orders": "default", "totals": "default"} | dict.fromkeys(UPKEEP, "maintenance")
    assert all(node["kinds"] == ["lance"] for node in nodes.values())
    assert {"path": ["totals"]} in nodes["orders"]["dependedByKeys"]


def test_the_columns_on_definition_and_materialization(story):
    columns = "columns {name type description constraints {nullable} tags {key}} constraints {other}"
    declared = f"metadataEntries {{label ... on TableSchemaMetadataEntry {{schema {{{columns}}}}}}}"
    entries = story.asset("orders", declared)["metadataEntries"]
    (declared,) = [one["schema"] for one in entries if one["label"] == "dagster/column_schema"]
    stored = story.entries("orders", "TableSchemaMetadataEntry", f"schema {{{columns}}}")[0]["dagster/column_schema"]
    assert declared == stored
    assert declared["constraints"]["other"] == ["primary key: day, id"]
    assert [(c["name"], c["type"], c["description"], c["constraints"]["nullable"]) for c in stored["columns"]] == [
        ("day", "string", "Day of the order", True),
        ("id", "int64", "Number of the order", False),
        ("price", "double", "In euros", True),
    ]
    assert stored["columns"][2]["tags"] == [{"key": "money"}]


def test_the_storage_panel(story):
    found = story.asset(
        "orders", "storageAddress {storageKind tableName} metadataEntries {label ... on TextMetadataEntry {text}}"
    )
    assert found["storageAddress"] == {"storageKind": "lance", "tableName": "orders"}
    texts = {entry["label"]: entry.get("text") for entry in found["metadataEntries"]}
    assert texts["dagster/uri"] == f"{story.root}/orders.lance"


def test_column_lineage_and_its_table_for_people(story):
    deps = "lineage {columnName columnDeps {assetKey {path} columnName}}"
    found = story.entries("totals", "TableColumnLineageMetadataEntry", deps)[0]["dagster/column_lineage"]
    assert found == [{"columnName": "total", "columnDeps": [{"assetKey": {"path": ["orders"]}, "columnName": "price"}]}]
    shown = story.entries("totals", "MarkdownMetadataEntry", "mdStr")[0]["lance/column_lineage"]
    assert "| `total` | **orders**: `price` |" in shown


PLOTTED = {
    "dagster/row_count": [9, 9, 9, 9],
    "dagster/partition_row_count": [3, 3, 3, 3],
    "lance/version": [2, 1, 1, 1],
    "lance/rows_written": [3, 9, 9, 9],
    "lance/rows_deleted": [3, 0, 0, 0],
    "lance/fragments": [2, 1, 1, 1],
    "lance/deletion_files": [1, 0, 0, 0],
    "lance/commit_retries": [0, 0, 0, 0],
}


def test_numbers_are_numbers_and_can_be_plotted(story):
    events = story.entries("orders", "IntMetadataEntry", "intValue")
    assert {key: [event[key] for event in events] for key in PLOTTED} == PLOTTED
    assert all(event["lance/table_bytes"] >= event["lance/bytes_written"] > 0 for event in events)
    floats = story.entries("orders", "FloatMetadataEntry", "floatValue")
    assert [round(event["lance/deleted_fraction"], 2) for event in floats] == [0.25, 0, 0, 0]
    assert all(event["lance/write_seconds"] > 0 for event in floats)


def test_partitions(story):
    stats = "partitionStats {numPartitions numMaterialized numFailed}"
    fields = stats + " partitionKeys latestMaterializationByPartition {runId partition}"
    found = story.asset("orders", fields)
    assert found["partitionStats"] == {"numPartitions": 5, "numMaterialized": 3, "numFailed": 1}
    latest = {one["partition"]: one["runId"] for one in found["latestMaterializationByPartition"] if one}
    first, again = story.runs[0].run_id, story.runs[2].run_id
    assert latest == {"2026-11-01": first, "2026-11-02": again, "2026-11-03": first}


def test_why_a_partition_failed(story):
    fields = "... on ExecutionStepFailureEvent {error {message causes {message}}}"
    query = f"query($run: ID!) {{logsForRun(runId: $run) {{... on EventConnection {{events {{{fields}}}}}}}}}"
    events = story.ask(query, run=story.runs[3].run_id)["logsForRun"]["events"]
    (error,) = [event["error"] for event in events if event]
    assert "orders [2026-11-04]: 3 rows" in str(error)
    assert "2026-12-24" in str(error)


def test_tags_of_runs_and_of_the_versions_that_they_made(story):
    query = "query($run: ID!) {runOrError(runId: $run) {... on Run {status tags {key value} assets {key {path}}}}}"
    run = story.ask(query, run=story.runs[2].run_id)["runOrError"]
    assert run["status"] == "SUCCESS"
    assert {"key": "price", "value": "2"} in run["tags"]
    assert run["assets"] == [{"key": {"path": ["orders"]}}]
    shown = story.entries("orders", "TextMetadataEntry", "text")
    tags = [run_tag(story.runs[index].run_id) for index in (2, 0, 0, 0)]
    assert [event["lance/tag"] for event in shown] == tags
    assert [story.table().tags.get_version(tag) for tag in tags] == [2, 1, 1, 1]


def test_data_versions_are_those_of_the_table(story):
    fields = 'dataVersionByPartition(partitions: ["2026-11-01", "2026-11-02", "2026-11-04"])'
    assert story.asset("orders", fields) == {"dataVersionByPartition": ["1", "2", None]}
    tags = story.asset("orders", "assetMaterializations {tags {key value}}")["assetMaterializations"][0]["tags"]
    assert {"key": "dagster/code_version", "value": "7"} in tags
    assert {"key": "dagster/data_version", "value": "2"} in tags


DAYS = '(partitions: ["2026-11-01", "2026-11-02", "2026-11-03"])'
STALE = f"staleStatusByPartition{DAYS} staleCausesByPartition{DAYS} {{category reason dependency {{path}}}}"
FRESH = {"staleStatusByPartition": ["FRESH"] * 3, "staleCausesByPartition": [[], [], []]}


def test_what_is_stale_after_new_data_and_after_maintenance(story):
    stale = story.asset("totals", STALE)
    assert stale["staleStatusByPartition"] == ["FRESH", "STALE", "FRESH"]
    (cause,) = stale["staleCausesByPartition"][1]
    assert (cause["category"], cause["reason"]) == ("DATA", "has a new data version")
    assert story.run("totals", days=(2, 2)).success
    assert story.asset("totals", STALE) == FRESH
    version = story.table().version
    assert story.run(*UPKEEP).success
    assert story.table().version > version
    assert story.asset("totals", STALE) == FRESH
    numbers = story.entries("orders/compaction", "IntMetadataEntry", "intValue")[0]
    assert (numbers["lance/fragments_before"], numbers["lance/fragments"]) == (2, 1)


CHECKS = "assetChecksOrError {... on AssetChecks {checks {name description executionForLatestMaterialization {%s}}}}"


def test_checks(story):
    story.run("orders", days=(3, 3))  # a materialization begets its checks
    execution = "status evaluation {severity metadataEntries {label ... on IntMetadataEntry {intValue}}}"
    checks = story.asset("orders", CHECKS % execution)["assetChecksOrError"]["checks"]
    status = {check["name"]: check["executionForLatestMaterialization"]["status"] for check in checks}
    assert status == dict.fromkeys(["row_count", "unique", "deleted_fraction"], "SUCCEEDED")
    assert all(check["description"] for check in checks)


RESOURCE = """query($name: String!) {topLevelResourceDetailsOrError(resourceSelector: {
  repositoryName: "__repository__", repositoryLocationName: "location", resourceName: $name
}) {... on ResourceDetails {description configuredValues {key value type} configFields {name description isSecret}}}}"""


@pytest.mark.parametrize(
    ("resource", "fields"),
    [
        ("written_out", ["storage_options", "base_store_params"]),
        ("lance", ["storage_options", "base_store_params"]),
        ("spark", ["remote", "conf"]),
    ],
)
def test_secrets_are_masked_where_resources_are_shown(story, resource, fields):
    found = story.ask(RESOURCE, name=resource)["topLevelResourceDetailsOrError"]
    values = {one["key"]: (one["type"], one["value"]) for one in found["configuredValues"]}
    assert [values[field] for field in fields] == [("SECRET", "********")] * len(fields)
    assert "token" not in str(values)
    assert all(field["description"] for field in found["configFields"])


def test_secrets_are_not_in_the_launchpad(story):
    query = """{runConfigSchemaOrError(selector: {
      repositoryName: "__repository__", repositoryLocationName: "location", pipelineName: "all_orders"
    }) {... on RunConfigSchema {rootDefaultYaml}}}"""
    shown = story.ask(query)["runConfigSchemaOrError"]["rootDefaultYaml"]
    assert story.root in shown
    assert 'token": "' not in shown
    assert "hidden-token" not in shown
    assert "written-token" not in shown
