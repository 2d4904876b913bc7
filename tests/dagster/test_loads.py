"""Which version, rows and columns an input gets; what Dagster knows of versions."""

from datetime import UTC, datetime

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.definitions.observe import observe
from dagster._core.loader import LoadingContextForTest

import lance_core
from lance_core.errors import InvalidInputError, VersionNotFoundError
from lance_dagster import LanceIOManager, LanceResource, build_observable_table

LETTERS = dg.StaticPartitionsDefinition(["a", "b", "c"])


def source(value, **kwargs):
    @dg.asset(name="asset", **kwargs)
    def asset():
        return pa.table({"a": [value]})

    return asset


@pytest.fixture
def load(root, instance):
    """What an asset downstream gets, by the metadata of its input."""

    def values(metadata, *, upstream=None, manager=None, key=None):
        seen = []
        partitions = None if key is None else LETTERS

        @dg.asset(ins={"asset": dg.AssetIn(metadata=metadata)}, partitions_def=partitions)
        def down(asset: pa.Table) -> None:
            seen.extend(asset["a"].to_pylist())

        upstream = upstream or dg.AssetSpec("asset").with_io_manager_key("io_manager")
        resources = {"io_manager": manager or LanceIOManager(root=root), "lance": LanceResource(root=root)}
        dg.materialize([upstream, down], selection=[down], resources=resources, instance=instance, partition_key=key)
        return seen

    return values


def test_a_point_in_time(run, load):
    run(source(1))
    between = datetime.now(UTC)
    run(source(2))
    for given in (between.isoformat(), dg.MetadataValue.timestamp(between)):
        assert load({"as_of": given}) == [1]
    assert load({}) == [2]
    with pytest.raises(VersionNotFoundError, match="Loading asset"):
        load({"as_of": "2000-01-01T00:00:00+00:00"})


def test_a_version_of_a_branch(run, tables, load):
    run(source(1))
    branch = tables.dataset("asset").create_branch("audit")
    branch.delete("true")
    assert load({"branch": "audit"}) == []
    assert load({"branch": "audit", "version": 1}) == [1]
    assert load({}) == [1]


CONTRADICTIONS = [
    ({"version": 1, "as_of": "2026-01-01"}, "one of"),
    ({"tag": "x", "branch": "y"}, "branch"),
    ({"read": "materialized", "version": 1}, "materialized"),
    ({"read": "newest"}, "read is one of"),
]


@pytest.mark.parametrize(("metadata", "message"), CONTRADICTIONS)
def test_settings_that_contradict_each_other(run, load, metadata, message):
    run(source(1))
    with pytest.raises(InvalidInputError, match=message):
        load(metadata)


def test_the_version_that_dagster_recorded(run, tables, load, root):
    run(source(1))
    lance_core.write_dataset(pa.table({"a": [2]}), tables.uri("asset"), mode="append")
    assert load({}) == [1, 2]
    assert load({"read": "materialized"}) == [1]
    assert load({}, manager=LanceIOManager(root=root, read="materialized")) == [1]
    assert load({"version": 2}, manager=LanceIOManager(root=root, read="materialized")) == [1, 2]


def test_the_recorded_version_of_a_partition(run, tables, load):
    def letters():
        @dg.asset(name="asset", partitions_def=LETTERS, metadata={"partition_expr": "x"})
        def asset(context):
            return pa.table({"x": [context.partition_key], "a": [context.run.run_id]})

        return asset

    first = run(letters(), partition_key="a")
    run(letters(), partition_key="b")
    tables.dataset("asset").update({"a": "'changed elsewhere'"})
    assert load({"read": "materialized"}, upstream=letters(), key="a") == [first.run_id]
    assert load({}, upstream=letters(), key="a") == ["changed elsewhere"]


def test_nothing_was_recorded(tables, load):
    lance_core.write_dataset(pa.table({"a": [2]}), tables.uri("asset"))
    with pytest.raises(InvalidInputError, match="Loading asset: Dagster has no version"):
        load({"read": "materialized"})


def test_an_observed_version_is_recorded(root, instance, tables, load):
    lance_core.write_dataset(pa.table({"a": [1]}), tables.uri("asset"))
    table = build_observable_table("asset")
    observe([table], instance=instance, resources={"lance": LanceResource(root=root)})
    lance_core.write_dataset(pa.table({"a": [2]}), tables.uri("asset"), mode="append")
    assert load({"read": "materialized"}, upstream=table) == [1]


def test_errors_name_the_asset_and_the_partition(root):
    @dg.asset(partitions_def=LETTERS)
    def down(asset: pa.Table) -> None:
        raise AssertionError(asset)

    spec = dg.AssetSpec("asset", partitions_def=LETTERS, metadata={"partition_expr": "x"})
    with pytest.raises(FileNotFoundError, match=r"Loading asset \[b\]"):
        dg.materialize(
            [spec.with_io_manager_key("io_manager"), down],
            selection=[down],
            resources={"io_manager": LanceIOManager(root=root)},
            partition_key="b",
        )


def test_maintenance_makes_nothing_stale(run, root, instance, tables):
    @dg.asset
    def down(asset: pa.Table) -> pa.Table:
        return asset

    up = source(1, metadata={"mode": "append"})

    def status():
        graph = dg.Definitions(assets=[up, down]).resolve_asset_graph()
        return CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance)).get_status(
            dg.AssetKey("down")
        )

    run(up)
    run(up, down)
    assert status() == StaleStatus.FRESH
    dataset = tables.dataset("asset")
    dataset.optimize.compact_files()
    dataset.create_scalar_index("a", "ZONEMAP")
    spec = build_observable_table("asset")
    observe([spec], instance=instance, resources={"lance": LanceResource(root=root)})
    assert tables.dataset("asset").version > 2
    assert status() == StaleStatus.FRESH
    run(up)
    assert status() == StaleStatus.STALE
