"""Checks of partitions look at the rows of the run's partitions, and read no data of others."""

from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from lance_core.errors import InvalidInputError
from lance_dagster import build_lance_checks

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")
KEYS = ["2026-01-01", "2026-01-02", "2026-01-03"]


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def events(context: dg.AssetExecutionContext) -> pa.Table:
    key = context.partition_key
    rows = {"2026-01-01": [1, 2, 3], "2026-01-02": [1, 1], "2026-01-03": [None]}[key]
    return pa.table({"day": [int(key.replace("-", ""))] * len(rows), "id": pa.array(rows, pa.int64())})


CHECKS = build_lance_checks(events, min_rows=2, unique=["id"], not_null=["id"], partitioned=True)


@pytest.fixture
def results(run):
    def of(**kwargs):
        result = run(events, CHECKS, selection=dg.AssetSelection.checks(CHECKS), **kwargs)
        evaluations = result.get_asset_check_evaluations()
        return {check.check_name: check.passed for check in evaluations}, {
            check.check_name: check.metadata for check in evaluations
        }

    return of


@pytest.fixture
def written(run):
    for key in KEYS:
        run(events, partition_key=key)


def test_an_asset_has_checks_of_the_table_beside_those_of_partitions(run):
    whole = build_lance_checks(events, max_rows=10, integrity="quick", blocking=True)
    nulls = build_lance_checks(events, not_null=["id"], partitioned=True)
    evaluations = run(events, whole, nulls, partition_key=KEYS[0]).get_asset_check_evaluations()
    assert {check.check_name: check.passed for check in evaluations} == {
        "row_count": True,
        "integrity": True,
        "not_null": True,
    }


@pytest.mark.usefixtures("written")
def test_each_partition_is_judged_by_itself(results):
    passed, metadata = results(partition_range=("2026-01-01", "2026-01-01"))
    assert passed == {"row_count": True, "unique": True, "not_null": True}
    assert metadata["row_count"]["dagster/partition_row_count"].value == 3
    assert results(partition_range=("2026-01-02", "2026-01-02"))[0] == {
        "row_count": True,
        "unique": False,
        "not_null": True,
    }
    assert results(partition_range=("2026-01-03", "2026-01-03"))[0] == {
        "row_count": False,
        "unique": True,
        "not_null": False,
    }


@pytest.mark.usefixtures("written")
def test_a_range_of_partitions_is_judged_as_one(results):
    passed, metadata = results(partition_range=("2026-01-01", "2026-01-02"))
    assert passed == {"row_count": True, "unique": False, "not_null": True}
    assert metadata["row_count"]["dagster/partition_row_count"].value == 5


@pytest.mark.usefixtures("written")
def test_with_a_zone_map_only_the_fragments_of_the_partition_are_read(results, tables):
    dataset = tables.dataset("events")
    dataset.create_scalar_index("day", "ZONEMAP")
    for fragment in dataset.get_fragments():
        days = fragment.to_table(columns=["day"])["day"].unique().to_pylist()
        if days != [20260101]:
            for file in fragment.data_files():
                (Path(dataset.uri) / "data" / file.path).unlink()
    assert results(partition_range=("2026-01-01", "2026-01-01"))[0] == {
        "row_count": True,
        "unique": True,
        "not_null": True,
    }


def test_partitioned_checks_need_a_partitioned_asset():
    @dg.asset
    def whole() -> pa.Table:
        return pa.table({"a": [1]})

    with pytest.raises(InvalidInputError, match="whole has no partitions"):
        build_lance_checks(whole, min_rows=1, partitioned=True)
    with pytest.raises(InvalidInputError, match="need the asset itself"):
        build_lance_checks("whole", min_rows=1, partitioned=True)
