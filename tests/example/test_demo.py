"""The demo, run twice on two months of flights, in a process and folders of its own."""

import csv
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import dagster as dg
import lance
import pyarrow as pa
import pytest

import lance_core
from example_project import report, source

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

DAGSTER_YAML = Path(__file__).parents[2] / "example_project" / "dagster.yaml"
TWICE = "from example_project.demo import main; months = ['--months=2', '--backfill=1']; main(months); main(months)"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The folder of Dagster's history."""
    home = tmp_path_factory.mktemp("home")
    shutil.copy(DAGSTER_YAML, home)
    return home


@pytest.fixture(scope="module")
def output(example_lake, home, preloading):
    """What the demo prints."""
    environment = {**preloading, "EXAMPLE_LAKE": str(example_lake), "DAGSTER_HOME": str(home)}
    command = [sys.executable, "-c", TWICE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (home / ".dagster_home" / "history" / "runs.db").exists()
    return done.stdout


@pytest.fixture(scope="module")
def uri(output, example_lake):
    assert str(example_lake) in output
    return lambda table: str(example_lake / "tables" / f"{table}.lance")


@pytest.fixture(scope="module")
def statuses():
    """Number of flights of the two months by status, counted without Spark."""
    with source.csv_path("flights").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["month"] in {"1", "2"}]
    return Counter("flown" if row["arr_delay"] != "NA" else "other" for row in rows)


def test_all_checks_pass(output):
    counts = re.findall(r"(\d+) of (\d+) checks passed", output)
    assert len(counts) == 10
    assert sum(int(total) for _, total in counts) > 10
    assert all(passed == total for passed, total in counts)


def test_rows_arrived(uri, statuses):
    assert lance_core.dataset(uri("raw_flights")).count_rows() == statuses.total()
    flights = lance_core.dataset(uri("flights"))
    assert flights.count_rows("status = 'flown'") == statuses["flown"]
    assert flights.count_rows() == statuses.total()


def test_planes_are_updated_not_added_again(uri):
    planes = lance_core.dataset(uri("planes_seen"))
    enriched = lance_core.dataset(uri("enriched_flights")).to_table(columns=["tailnum"], filter="tailnum IS NOT NULL")
    found = planes.to_table(columns=["tailnum", "flights"]).to_pylist()
    assert {row["tailnum"]: row["flights"] for row in found} == Counter(enriched["tailnum"].to_pylist())
    assert len(found) == len({row["tailnum"] for row in found})


def test_late_corrections_removed_rows(uri, statuses):
    enriched = lance_core.dataset(uri("enriched_flights"))
    assert enriched.count_rows() == statuses["flown"]
    assert enriched.count_rows("status <> 'flown'") == 0


def test_second_run_leaves_tables_as_large_as_the_first(output):
    first, second = (
        {
            line.split()[0]: line.split()
            for line in block.splitlines()
            if line and not line.startswith(("Tables", "table"))
        }
        for block in re.findall(r"Tables in .*?\n\n", output, re.DOTALL)
    )
    assert first.keys() == second.keys()
    assert first["route_notes"] == second["route_notes"]
    del first["route_notes"]  # written once, by another program
    assert (first.pop("route_history")[1], second.pop("route_history")[1]) == ("1", "2")  # each run appends
    assert len(first) == 14
    for name, (_, *content, version, kept, tags, _files, _size, _unit) in first.items():
        # A merge leaves its rows in another order, and so not quite as well compressed.
        alike = content[:2] if name == "planes_seen" else content
        assert second[name][1 : 1 + len(alike)] == alike
        assert second[name][2] == "1"
        assert int(second[name][5]) > int(version)
        assert (second[name][6], second[name][7]) == (kept, tags)


def test_maintenance_left_no_deleted_rows(uri):
    state = report.read_state(uri("enriched_flights"))
    assert state.deleted == 0
    assert state.fragments == 1
    assert state.tags > 0


def test_vectors_are_fixed_size_lists(uri):
    kind = lance_core.dataset(uri("route_features")).schema.field("delay_profile").type
    assert str(kind.value_type) == "float"
    assert kind.list_size == 24


def test_an_index_finds_weather_that_is_alike_and_most_of_what_is_nearest(uri):
    embeddings = lance_core.dataset(uri("weather_embeddings"))
    (index,) = embeddings.describe_indices()
    assert (index.index_type, index.num_rows_indexed) == ("IVF_PQ", embeddings.count_rows())
    recall = lance_core.dataset(uri("weather_recall")).to_table().to_pydict()
    assert recall["refined"] == sorted(recall["refined"])
    assert recall["refined"][-1] > 0.95
    found = lance_core.dataset(uri("similar_weather")).to_table().to_pylist()
    assert Counter(row["rank"] for row in found) == dict.fromkeys(range(1, 6), 20)
    assert min(abs(row["time_hour"] - row["similar_hour"]).days for row in found) >= 2


# Every table, and some of its rows.
TABLES = {
    "airlines": "carrier = '9E'",
    "airports": "faa = '04G'",
    "daily_summary": "flight_date = date '2013-01-01'",
    "enriched_flights": "origin = 'EWR'",
    "flights": "origin = 'EWR'",
    "planes": "tailnum = 'N10156'",
    "planes_seen": "tailnum = 'N10156'",
    "raw_flights": "month = 1",
    "route_features": "origin = 'EWR'",
    "route_history": "flights > 0",
    "similar_routes": "origin = 'EWR'",
    "similar_weather": "rank = 1",
    "weather": "origin = 'EWR'",
    "weather_embeddings": "origin = 'EWR'",
    "weather_recall": "nprobes = 1",
}


def test_these_are_all_tables(uri):
    assert sorted(path.stem for path in Path(uri("flights")).parent.iterdir()) == sorted([*TABLES, "route_notes"])


@pytest.mark.parametrize("name", TABLES)
def test_pylance_sees_the_same(uri, name):
    ours, theirs = lance_core.dataset(uri(name)), lance.dataset(uri(name))
    assert theirs.schema.equals(ours.schema, check_metadata=True)
    assert theirs.to_table().equals(ours.to_table())
    assert [one["version"] for one in theirs.versions()] == [one["version"] for one in ours.versions()]
    tags = {tag: one["version"] for tag, one in theirs.tags.list().items()}
    assert tags == {tag: one["version"] for tag, one in ours.tags.list().items()}
    assert tags
    for tag in tags:
        old = lance.dataset(uri(name), version=tag).to_table()
        assert old.equals(lance_core.dataset(uri(name), version=tag).to_table())


@pytest.mark.parametrize(("name", "predicate"), TABLES.items())
def test_pylance_works_on_top_of_it(uri, name, predicate, tmp_path):
    copy = str(shutil.copytree(uri(name), tmp_path / "copy"))
    rows = lance_core.dataset(copy).to_table()

    more = rows.slice(0, 5)
    lance.write_dataset(more, copy, mode="append")
    assert lance_core.dataset(copy).to_table().equals(pa.concat_tables([rows, more]))

    theirs = lance.dataset(copy)
    matching = theirs.count_rows(predicate)
    theirs.delete(predicate)
    ours = lance_core.dataset(copy)
    assert 0 < matching == rows.num_rows + more.num_rows - ours.count_rows()
    assert ours.count_rows(predicate) == 0
    left = ours.to_table()
    assert left.equals(theirs.to_table())

    theirs.optimize.compact_files(materialize_deletions_threshold=0.0)
    ours = lance_core.dataset(copy)
    assert [ours.version, len(ours.get_fragments())] == [theirs.version, len(theirs.get_fragments())]
    assert ours.to_table().equals(left)
    ours.delete("true")
    assert lance.dataset(copy).count_rows() == 0


ASSETS = """{assetNodes {
  assetKey {path} groupName kinds staleStatus jobNames
  partitionStats {numMaterialized numFailed}
  assetChecksOrError {... on AssetChecks {checks {name executionForLatestMaterialization {status}}}}
  assetMaterializations(limit: 1) {tags {key} metadataEntries {
    label
    ... on IntMetadataEntry {intValue}
    ... on TableSchemaMetadataEntry {schema {columns {name description}}}
    ... on TableColumnLineageMetadataEntry {lineage {columnName columnDeps {assetKey {path} columnName}}}
    ... on TableMetadataEntry {table {records}}
  }}
}}"""


@pytest.fixture(scope="module")
def shown(output, home, web_server):
    """What the UI shows of each asset after the demo."""
    assert output
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        with (
            dg.DagsterInstance.from_config(str(home)) as instance,
            web_server(instance, location="example_project", module_name="example_project.definitions") as ask,
        ):
            nodes = ask(ASSETS)["assetNodes"]
    for node in nodes:
        for event in node["assetMaterializations"]:
            event["metadata"] = {entry.pop("label"): entry for entry in event["metadataEntries"]}
    return {"/".join(node["assetKey"]["path"]): node for node in nodes}


def test_the_ui_shows_what_each_column_is_made_from(shown):
    made_from = {
        name: {
            (one["columnName"], "/".join(dep["assetKey"]["path"]), dep["columnName"])
            for one in shown[name]["assetMaterializations"][0]["metadata"]["dagster/column_lineage"]["lineage"]
            for dep in one["columnDeps"]
        }
        for name in ("enriched_flights", "planes_seen")
    }
    assert made_from["planes_seen"] == {
        ("tailnum", "enriched_flights", "tailnum"),
        ("model", "enriched_flights", "plane"),
        ("last_day", "enriched_flights", "flight_date"),
    }
    assert {("airline", "airlines", "name"), ("weather", "weather", "temp")} <= made_from["enriched_flights"]


def test_the_ui_shows_columns_numbers_and_rows(shown, uri):
    for name in TABLES:
        metadata = shown[name]["assetMaterializations"][0]["metadata"]
        assert all(column["description"] for column in metadata["dagster/column_schema"]["schema"]["columns"]), name
        assert metadata["dagster/row_count"]["intValue"] >= lance_core.dataset(uri(name)).count_rows(), name
        assert metadata["lance/bytes_written"]["intValue"] > 0, name
        assert metadata["lance/preview"]["table"]["records"], name


def test_the_ui_shows_partitions_checks_and_maintenance(shown):
    stats = {name: node["partitionStats"] for name, node in shown.items() if node["partitionStats"]}
    assert stats.keys() == {"raw_flights", "flights", "enriched_flights", "daily_summary"}
    assert all(one == {"numMaterialized": 2, "numFailed": 0} for one in stats.values())
    checks = [check for node in shown.values() for check in node["assetChecksOrError"]["checks"]]
    done = [check["executionForLatestMaterialization"] for check in checks]
    assert {one["status"] for one in done if one is not None} == {"SUCCEEDED"}
    assert "only_flown_flights_remain" in {check["name"] for check in checks}
    upkeep = [node for node in shown.values() if node["groupName"] == "maintenance"]
    assert len(upkeep) == 30, [node["assetKey"] for node in upkeep]
    assert all("maintenance" in node["jobNames"] and node["assetMaterializations"] for node in upkeep)


def test_maintenance_makes_nothing_stale(shown):
    """The last thing that ran; partitions of time that feed a table without partitions are not compared by Dagster."""
    assert {name for name, node in shown.items() if node["staleStatus"] == "STALE"} == set()
