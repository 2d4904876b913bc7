"""Partitioned assets beyond the matrix: rows outside, modes, self-dependence, counts."""

from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import dagster as dg
import pyarrow as pa
import pytest

from lance_core.errors import DatasetAlreadyExistsError, InvalidInputError, LanceError
from lance_dagster import LanceIOManager, write
from lance_dagster.column_schema import table_schema
from lance_dagster.handlers import stream

LETTERS = dg.StaticPartitionsDefinition(["a", "b", "c", "d"])
DAYS = dg.DailyPartitionsDefinition("2026-11-01", end_date="2026-11-08")


def letters_asset(values, *, definition=LETTERS, **metadata):
    """An asset whose rows are ``values`` whatever the partition."""

    @dg.asset(name="asset", partitions_def=definition, metadata={"partition_expr": "x", **metadata})
    def asset():
        return pa.table({"x": pa.array(values, pa.string()), "n": list(range(len(values)))})

    return asset


def rows(tables):
    return sorted(tables.dataset("asset").to_table()["x"].to_pylist(), key=str)


def test_rows_outside_are_an_error_and_nothing_is_written(run, tables):
    run(letters_asset(["a"]), partition_key="a")
    with pytest.raises(LanceError) as excinfo:
        run(letters_asset(["b", "c", None]), partition_key="b")
    error = excinfo.value
    assert isinstance(error, InvalidInputError)
    assert "2 rows" in str(error)
    assert "{'x': 'c'}, {'x': None}" in str(error)
    assert tables.dataset("asset").version == 1


def test_rows_outside_are_an_error_for_the_first_write_too(run, tables):
    with pytest.raises(LanceError):
        run(letters_asset(["b", "c"]), partition_key="b")
    assert not tables.exists("asset")


def test_rows_outside_are_dropped(run, tables):
    run(letters_asset(["b", "c", None], **{"lance/out_of_partition": "drop"}), partition_key="b")
    assert rows(tables) == ["b"]


def test_rows_outside_are_allowed(run, tables):
    run(letters_asset(["b", "c", None], **{"lance/out_of_partition": "allow"}), partition_key="b")
    assert rows(tables) == [None, "b", "c"] or rows(tables) == ["b", "c", None]


def test_a_partitioned_asset_without_an_expression_is_refused(run, tables):
    @dg.asset(partitions_def=LETTERS)
    def asset():
        return pa.table({"x": ["a"]})

    with pytest.raises(LanceError) as excinfo:
        run(asset, partition_key="a")
    assert "partition_expr" in str(excinfo.value)
    assert not tables.exists("asset")


def test_ignore_and_error_speak_of_the_partition(run, tables):
    run(letters_asset(["a"], mode="error"), partition_key="a")
    run(letters_asset(["b"], mode="error"), partition_key="b")
    with pytest.raises(LanceError) as excinfo:
        run(letters_asset(["b"], mode="error"), partition_key="b")
    assert isinstance(excinfo.value, DatasetAlreadyExistsError)
    run(letters_asset(["b"], mode="ignore"), partition_key="b")
    run(letters_asset(["c"], mode="ignore"), partition_key="c")
    assert rows(tables) == ["a", "b", "c"]


def test_a_failing_predicate_never_becomes_an_overwrite(run, tables):
    run(letters_asset(["a"]), partition_key="a")
    numbers = dg.StaticPartitionsDefinition(["1"])

    @dg.asset(name="asset", partitions_def=numbers, metadata={"partition_expr": "n"})
    def other():
        return pa.table({"n": [1]})

    with pytest.raises(LanceError):
        run(other, partition_key="1")
    assert rows(tables) == ["a"]


def test_counts_of_each_partition_of_a_range(run):
    result = run(letters_asset(["a", "b", "b"]), partition_range=("a", "c"))
    events = result.asset_materializations_for_node("asset")
    counts = {event.partition: event.metadata["dagster/partition_row_count"].value for event in events}
    assert counts == {"a": 1, "b": 2, "c": 0}
    assert {event.metadata["dagster/row_count"].value for event in events} == {3}
    assert {event.tags["dagster/data_version"] for event in events} == {"1"}


def test_the_count_of_one_partition(run, metadata_of):
    run(letters_asset(["a", "a"]), partition_key="a")
    metadata = metadata_of(run(letters_asset(["b"]), partition_key="b"))
    assert metadata["dagster/partition_row_count"] == 1
    assert metadata["dagster/row_count"] == 3
    assert metadata["lance/rows_written"] == 1


def self_dependent(seen, type_=pa.Table, **metadata):
    def asset(context, asset):
        seen.append(asset)
        return pa.table({"day": [context.partition_key], "total": pa.array([asset.num_rows], pa.int64())})

    asset.__annotations__ = {"asset": type_}
    mapping = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    return dg.asset(
        partitions_def=DAYS,
        metadata={"partition_expr": "day", **metadata},
        ins={"asset": dg.AssetIn(partition_mapping=mapping)},
    )(asset)


def test_a_self_dependent_asset_begins_with_an_empty_frame(run, tables):
    seen = []
    asset = self_dependent(seen)
    for key in ("2026-11-01", "2026-11-02", "2026-11-01"):
        run(asset, partition_key=key)
    assert [table.num_rows for table in seen] == [0, 1, 0]
    assert seen[2].schema == tables.dataset("asset").schema


def test_the_empty_frame_has_the_declared_columns(run):
    seen = []
    schema = pa.schema({"day": pa.string(), "total": pa.int64()})
    run(self_dependent(seen, **{"dagster/column_schema": table_schema(schema)}), partition_key="2026-11-01")
    assert seen[0].schema == schema


def test_a_self_dependent_asset_may_begin_later(run):
    seen = []
    run(self_dependent(seen), partition_key="2026-11-03")
    assert seen[0].num_rows == 0


def test_an_unpartitioned_asset_downstream_filters_too(run):
    seen = []

    @dg.asset(ins={"asset": dg.AssetIn(metadata={"filter": "n = 1", "columns": ["x"]})})
    def down(asset: pa.RecordBatchReader) -> None:
        seen.extend(asset.read_all().to_pylist())

    run(letters_asset(["a", "b"]), partition_range=("a", "b"))
    spec = dg.AssetSpec("asset", partitions_def=LETTERS, metadata={"partition_expr": "x"})
    run(spec.with_io_manager_key("io_manager"), down, selection=[down])
    assert seen == [{"x": "b"}]


def test_a_table_created_meanwhile_is_not_overwritten(run, root, tables, monkeypatch):
    """Two first runs at once: the one that comes second adds its partition."""
    original = write._operation
    calls = []

    def racing(target, existing):
        calls.append(existing)
        if len(calls) == 1:
            run(letters_asset(["a"]), partition_key="a", manager=LanceIOManager(root=root))
        return original(target, existing)

    monkeypatch.setattr(write, "_operation", racing)
    run(letters_asset(["b"]), partition_key="b")
    assert rows(tables) == ["a", "b"]


def test_a_table_created_while_the_rows_are_written_is_not_overwritten(run, root, tables, monkeypatch):
    """As above, but the other run commits after this run's rows and before its commit."""
    original, calls = stream._checked, []

    def racing(batches, target, request):
        yield from original(batches, target, request)
        calls.append(request.operation)
        if len(calls) == 1:
            run(letters_asset(["a"]), partition_key="a", manager=LanceIOManager(root=root))

    monkeypatch.setattr(stream, "_checked", racing)
    run(letters_asset(["b"]), partition_key="b")
    assert rows(tables) == ["a", "b"]
    assert calls == ["create", "create", "replace_where"]


def test_runs_of_different_partitions_at_the_same_time(root, tables):
    """As a backfill does it, the first run included: nobody loses rows, each run is one version."""
    keys = ["a", "b", "c", "d"]
    manager = LanceIOManager(root=root)
    contexts = []
    for key in keys:
        context = Mock(spec=dg.OutputContext)
        context.configure_mock(
            has_asset_key=True,
            asset_key=dg.AssetKey("asset"),
            has_asset_partitions=True,
            asset_partitions_def=LETTERS,
            asset_partition_keys=[key],
            definition_metadata={"partition_expr": "x"},
            output_metadata={},
            run_id=key * 32,
            step_key="asset",
            step_context=None,
            asset_spec=dg.AssetSpec("asset"),
        )
        contexts.append(context)

    def work(context):
        for number in range(3):
            (key,) = context.asset_partition_keys
            context.run_id = f"{number}{key * 31}"
            manager.handle_output(context, pa.table({"x": [key] * 5, "n": [number] * 5}))

    with ThreadPoolExecutor(len(keys)) as pool:
        list(pool.map(work, contexts))
    dataset = tables.dataset("asset")
    assert rows(tables) == sorted(keys * 5)
    assert set(dataset.to_table()["n"].to_pylist()) == {2}
    assert dataset.version == 12
