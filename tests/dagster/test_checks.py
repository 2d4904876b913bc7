"""Checks of a table in one step, and tables that are only looked at."""

import dagster as dg
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError
from lance_dagster import LanceIOManager, LanceResource, build_lance_checks, build_observable_table


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
