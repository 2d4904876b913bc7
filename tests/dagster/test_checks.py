"""Checks of a table in one step, and tables that are only looked at."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError
from lance_dagster import LanceChecks, LanceIOManager, LanceResource, build_lance_checks, build_observable_table


@pytest.fixture
def table(tables):
    data = pa.table({"id": pa.array([1, 2, 3, 4], pa.int64()), "name": ["a", None, "c", "d"]})
    return lance_core.write_dataset(data, tables.uri("raw/t"))


@pytest.fixture
def check(root, instance):
    """Outcome and metadata of each check, by name."""

    def run(**kwargs):
        checks = build_lance_checks("raw/t", **kwargs)
        result = dg.materialize(
            [dg.AssetSpec(["raw", "t"]), checks],
            instance=instance,
            resources={"lance": LanceResource(root=root)},
            selection=dg.AssetSelection.checks(checks),
        )
        return {one.check_name: one for one in result.get_asset_check_evaluations()}

    return run


@pytest.mark.parametrize(
    ("bounds", "passed"), [((4, 4), True), ((5, None), False), ((None, 3), False), ((None, 4), True)]
)
def test_row_count(table, check, bounds, passed):
    found = check(min_rows=bounds[0], max_rows=bounds[1])["row_count"]
    assert found.passed is passed
    assert found.metadata["dagster/row_count"].value == table.count_rows()


@pytest.mark.parametrize(
    ("columns", "passed"),
    [
        ({"id": "int64", "name": "string"}, True),
        ({"id": "int32", "name": "string"}, False),
        ({"id": "int64"}, False),
        ({"id": "int64", "name": "string", "more": "bool"}, False),
    ],
)
def test_column_schema(table, check, columns, passed):
    assert table.version == 1
    assert check(columns=columns)["column_schema"].passed is passed


def test_not_null(table, check):
    found = check(not_null=["id", "name"])["not_null"]
    assert not found.passed
    assert (found.metadata["nulls/id"].value, found.metadata["nulls/name"].value) == (0, 1)
    assert table.version == 1


def test_deleted_rows_are_a_warning(table, check):
    table.delete("id = 1")
    found = check(max_deleted_fraction=0.2, blocking=True)["deleted_fraction"]
    assert not found.passed
    assert found.severity is dg.AssetCheckSeverity.WARN
    assert found.metadata["lance/deleted_fraction"].value == 0.25


def test_all_checks_are_one_step(table, check):
    found = check(min_rows=1, columns={"id": "int64", "name": "string"}, not_null=["id"], max_deleted_fraction=0.5)
    assert {name: one.passed for name, one in found.items()} == dict.fromkeys(found, True)
    assert len(found) == 4
    assert {one.metadata["lance/version"].value for one in found.values()} == {table.version}


def test_no_check_is_refused():
    with pytest.raises(InvalidInputError):
        build_lance_checks("t")


@pytest.mark.parametrize(
    ("unique", "duplicates"),
    [
        (["id"], {"id": 0}),
        (["name"], {"name": 1}),
        (["id", "name"], {"id,name": 0}),
        ([["id"], ["name"]], {"id": 0, "name": 1}),
    ],
)
def test_unique(tables, check, unique, duplicates):
    data = pa.table({"id": [1, 2, 3, 4, 5], "name": ["a", "a", None, None, "b"]})
    lance_core.write_dataset(data, tables.uri("raw/t"))
    found = check(unique=unique)["unique"]
    assert found.passed is not any(duplicates.values())
    assert {name: found.metadata[f"duplicates/{name}"].value for name in duplicates} == duplicates
    if "name" in duplicates:
        assert found.metadata["examples/name"].value == '[{"name": "a", "count_all": 2}]'


@pytest.mark.parametrize("unique", ["id", ["id", ["name"]]])
def test_wrong_keys_are_refused(unique):
    with pytest.raises(InvalidInputError, match="unique"):
        build_lance_checks("t", unique=unique)


def test_schema_change(table, check):
    assert check(schema_change=True)["schema_change"].passed
    table.add_columns({"more": "id + 1"})
    found = check(schema_change=True)["schema_change"]
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert found.metadata["extra"].value == ["more"]
    table.update_config({"a": "b"})
    assert not check(schema_change=True)["schema_change"].passed
    table.delete("id = 1")
    assert check(schema_change=True)["schema_change"].passed


def test_freshness_is_of_the_data(table, check):
    assert check(max_age=timedelta(hours=1))["freshness"].passed
    later = datetime.now(UTC) + timedelta(hours=2)
    table.update_config({"a": "b"})
    (late,) = LanceChecks(max_age=timedelta(hours=1)).evaluate(table, dg.AssetKey("t"), now=later)
    assert not late.passed
    assert late.severity is dg.AssetCheckSeverity.WARN
    assert 7200 <= late.metadata["lance/age_seconds"].value < 7300


@pytest.mark.parametrize("level", ["quick", "full"])
def test_integrity(table, check, level):
    assert check(integrity=level)["integrity"].passed
    (path,) = Path(table.uri, "data").iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    found = check(integrity=level)["integrity"]
    assert not found.passed
    assert found.severity is dg.AssetCheckSeverity.ERROR
    assert path.name in found.metadata["lance/first_problems"].value


def test_an_asset_that_writes_its_table_checks_it_itself(table, root, instance):
    key = dg.AssetKey(["raw", "t"])
    checks = LanceChecks(min_rows=3, not_null=["name"])

    @dg.asset(key=key, check_specs=checks.specs(key, blocking=True))
    def corrected(lance: LanceResource):
        dataset = lance.dataset(key)
        dataset.delete("id = 1")
        return dg.MaterializeResult(check_results=checks.evaluate(dataset, key))

    resources = {"lance": LanceResource(root=root)}
    result = dg.materialize([corrected], instance=instance, resources=resources, raise_on_error=False)
    found = {one.check_name: (one.passed, one.blocking) for one in result.get_asset_check_evaluations()}
    assert found == {"row_count": (True, True), "not_null": (False, True)}
    assert table.latest_version == 2


def observed(root, instance):
    asset = build_observable_table("raw/t")
    from dagster._core.definitions.observe import observe  # noqa: PLC0415 - there is no public way

    result = observe([asset], instance=instance, resources={"lance": LanceResource(root=root)})
    (event,) = result.asset_observations_for_node(asset.op.name)
    return event.tags["dagster/data_version"]


def test_an_observed_table_changes_with_its_data_only(table, root, instance):
    assert observed(root, instance) == "1"
    more = pa.table({"id": pa.array([5], pa.int64()), "name": ["e"]})
    table = lance_core.write_dataset(more, table.uri, mode="append")
    assert observed(root, instance) == "2"
    table.optimize.compact_files()
    assert table.version == 3
    assert observed(root, instance) == "2"


def test_an_observed_table_can_be_loaded(table, root):
    seen = []

    @dg.asset(ins={"t": dg.AssetIn(["raw", "t"])})
    def down(t: pa.Table) -> None:
        seen.append(t.num_rows)

    resources = {"io_manager": LanceIOManager(root=root), "lance": LanceResource(root=root)}
    dg.materialize([build_observable_table("raw/t"), down], selection=[down], resources=resources)
    assert seen == [table.count_rows()]
