"""What the IO manager does with unpartitioned assets: modes, types, loads, what it reports."""

import dagster as dg
import lance
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lance_core
from lance_core import LanceDataset
from lance_core.errors import (
    DatasetAlreadyExistsError,
    DatasetNotFoundError,
    InvalidInputError,
    LanceError,
    RefNotFoundError,
    UnsupportedError,
    VersionNotFoundError,
)
from lance_dagster import LanceIOManager, lance_asset_metadata
from lance_dagster.metadata import preview


def asset_of(value, **kwargs):
    @dg.asset(name="asset", **kwargs)
    def asset():
        return value() if callable(value) else value

    return asset


def test_the_table_lies_where_the_key_says(run, tables):
    run(asset_of(pa.table({"a": [1]}), key_prefix=["silver", "x"]))
    assert tables.exists(dg.AssetKey(["silver", "x", "asset"]))
    assert tables.uri("silver/x/asset").endswith("/tables/silver/x/asset.lance")


def test_overwrite_is_the_default(run, tables):
    run(asset_of(pa.table({"a": [1, 2]})))
    run(asset_of(pa.table({"b": ["x"]})))
    assert tables.dataset("asset").to_table().to_pydict() == {"b": ["x"]}
    assert tables.dataset("asset", version=1).to_table().to_pydict() == {"a": [1, 2]}


def test_append(run, tables):
    asset = asset_of(pa.table({"a": [1]}), metadata={"mode": "append"})
    run(asset)
    run(asset)
    assert tables.dataset("asset").to_table().to_pydict() == {"a": [1, 1]}


def test_tables_of_file_version_0_1_are_appended_to_merged_and_overwritten(run, tables):
    uri = tables.uri("asset")
    lance.write_dataset(pa.table({"a": [1, 2], "s": ["x", None]}), uri, data_storage_version="legacy")
    run(asset_of(pa.table({"a": [3], "s": ["y"]}), metadata={"mode": "append"}))
    run(asset_of(pa.table({"a": [3, 4], "s": ["z", "w"]}), metadata={"mode": "merge", "merge_keys": ["a"]}))
    theirs = lance.dataset(uri)
    assert theirs.to_table().sort_by("a").to_pydict() == {"a": [1, 2, 3, 4], "s": ["x", None, "z", "w"]}
    run(asset_of(pa.table({"b": [1.5]})))
    assert lance.dataset(uri).to_table().to_pydict() == {"b": [1.5]}
    assert theirs.data_storage_version == lance.dataset(uri).data_storage_version == "0.1"
    with pytest.raises(LanceError, match=r"'b' has 1 nulls.*0\.1"):
        run(asset_of(pa.table({"b": pa.nulls(1, pa.float64())}), metadata={"mode": "append"}))


def test_append_takes_columns_in_any_order_and_width(run, tables):
    run(asset_of(pa.table({"a": pa.array([1]), "b": ["x"]})))
    more = pa.table({"b": pa.array(["y"], pa.large_string()), "a": pa.array([2], pa.int32())})
    run(asset_of(more, metadata={"mode": "append"}))
    assert tables.dataset("asset").to_table().to_pydict() == {"a": [1, 2], "b": ["x", "y"]}


def test_append_of_other_columns_is_refused(run, tables):
    run(asset_of(pa.table({"a": [1]})))
    with pytest.raises(LanceError) as excinfo:
        run(asset_of(pa.table({"b": [1]}), metadata={"mode": "append"}))
    assert isinstance(excinfo.value, InvalidInputError)
    assert "missing ['a'], extra ['b']" in str(excinfo.value)
    assert tables.dataset("asset").version == 1


def test_append_of_values_that_do_not_fit_is_refused(run, tables):
    run(asset_of(pa.table({"a": pa.array([1], pa.int8())})))
    with pytest.raises(InvalidInputError, match="'a' is int64"):
        run(asset_of(pa.table({"a": [300]}), metadata={"mode": "append"}))
    assert tables.dataset("asset").version == 1


def test_error_if_there_is_a_table(run, tables):
    asset = asset_of(pa.table({"a": [1]}), metadata={"mode": "error"})
    run(asset)
    with pytest.raises(LanceError) as excinfo:
        run(asset)
    assert isinstance(excinfo.value, DatasetAlreadyExistsError)
    assert tables.dataset("asset").version == 1


def test_ignore_if_there_is_a_table(run, tables, metadata_of):
    run(asset_of(pa.table({"a": [1]}), metadata={"mode": "ignore"}))
    result = run(asset_of(pa.table({"a": [2]}), metadata={"mode": "ignore"}))
    assert tables.dataset("asset").to_table().to_pydict() == {"a": [1]}
    metadata = metadata_of(result)
    assert metadata["lance/skipped"] is True
    assert metadata["dagster/row_count"] == 1


@pytest.mark.parametrize(("mode", "error"), [("replace_partitions", InvalidInputError), ("upsert", InvalidInputError)])
def test_other_modes_are_refused_by_name(run, mode, error):
    with pytest.raises(LanceError) as excinfo:
        run(asset_of(pa.table({"a": [1]}), metadata={"mode": mode}))
    assert isinstance(excinfo.value, error)
    assert mode in str(excinfo.value)


def test_metadata_of_the_run_wins_over_the_definition(run, tables):
    @dg.asset(metadata={"mode": "overwrite"})
    def asset(context):
        context.add_output_metadata({"lance/mode": "append"})
        return pa.table({"a": [1]})

    run(asset)
    run(asset)
    assert tables.dataset("asset").count_rows() == 2


def test_none_is_refused_with_a_way_out(run):
    with pytest.raises(LanceError) as excinfo:
        run(asset_of(lambda: None))
    assert "MaterializeResult" in str(excinfo.value)


def test_an_unknown_type_is_refused_by_name(run):
    with pytest.raises(LanceError) as excinfo:
        run(asset_of({"a": [1]}))
    assert isinstance(excinfo.value, UnsupportedError)
    assert "dict is no frame" in str(excinfo.value)


def test_an_asset_without_a_value_writes_nothing(run, tables):
    @dg.asset
    def asset() -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata={"mine": 1})

    run(asset)
    assert not tables.exists("asset")


FRAMES = {
    "table": (pa.Table, lambda t: t),
    "record_batch": (pa.RecordBatch, lambda t: t.to_batches()[0]),
    "reader": (pa.RecordBatchReader, lambda t: t.to_reader(max_chunksize=1)),
    "pandas": (pd.DataFrame, lambda t: t.to_pandas()),
    "polars": (pl.DataFrame, pl.from_arrow),
    "polars_lazy": (pl.LazyFrame, lambda t: pl.from_arrow(t).lazy()),
}


def rows_of(frame):
    if isinstance(frame, pa.RecordBatchReader):
        return frame.read_all().to_pylist()
    if isinstance(frame, pd.DataFrame):
        return frame.to_dict("records")
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    return frame.to_dicts() if isinstance(frame, pl.DataFrame) else frame.to_pylist()


@pytest.mark.parametrize("name", FRAMES)
def test_frames_round_trip(run, name):
    type_, make = FRAMES[name]
    table = pa.table({"a": [1, 2], "b": ["x", "y"]})
    seen = []

    def down(asset):
        assert isinstance(asset, type_)
        seen.extend(rows_of(asset))

    down.__annotations__ = {"asset": type_, "return": None}
    run(asset_of(lambda: make(table)), dg.asset(down))
    assert seen == table.to_pylist()


def test_without_an_annotation_and_without_spark_it_is_arrow(run):
    @dg.asset
    def down(asset) -> None:
        assert type(asset) is pa.Table

    assert run(asset_of(pa.table({"a": [1]})), down).success


def test_a_dataset_is_handed_out_at_its_version(run, root):
    seen = []

    @dg.asset(ins={"asset": dg.AssetIn(metadata={"version": 1})})
    def down(asset: LanceDataset) -> None:
        seen.append((asset.version, asset.count_rows()))

    run(asset_of(pa.table({"a": [1]})))
    run(asset_of(pa.table({"a": [1, 2]})))
    spec = dg.AssetSpec("asset").with_io_manager_key("io_manager")
    dg.materialize([spec, down], selection=[down], resources={"io_manager": LanceIOManager(root=root)})
    assert seen == [(1, 1)]


def test_a_dataset_cannot_stand_for_some_of_its_rows(run):
    @dg.asset(ins={"asset": dg.AssetIn(metadata={"filter": "a > 1"})})
    def down(asset: LanceDataset) -> None:
        raise AssertionError(asset)

    with pytest.raises(LanceError) as excinfo:
        run(asset_of(pa.table({"a": [1]})), down)
    assert "RecordBatchReader" in str(excinfo.value)


def load_with(run, metadata, *, column="a"):
    seen = []

    @dg.asset(ins={"asset": dg.AssetIn(metadata=metadata)})
    def down(asset: pa.Table) -> None:
        seen.append((asset.column_names, asset[column].to_pylist()))

    run(asset_of(pa.table({"a": [1, 2, 3], "b": [True, False, True], "c": ["x", "y", "z"]})), down)
    return seen[0]


def test_load_some_columns_in_order(run):
    assert load_with(run, {"columns": ["c", "a"]}) == (["c", "a"], [1, 2, 3])


def test_load_some_rows(run):
    assert load_with(run, {"filter": "a >= 2 AND c <> 'z'"}) == (["a", "b", "c"], [2])


def test_load_filters_by_a_column_that_is_not_loaded(run):
    assert load_with(run, {"columns": ["a"], "filter": "c = 'y'"}) == (["a"], [2])


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"columns": "a"}, InvalidInputError),
        ({"columns": ["nope"]}, (InvalidInputError, ValueError)),
        ({"version": 7}, (VersionNotFoundError, ValueError)),
        ({"tag": "nope"}, (RefNotFoundError, ValueError)),
        ({"version": 1, "tag": "x"}, InvalidInputError),
        ({"version": "x"}, InvalidInputError),
    ],
)
def test_loads_that_cannot_be(run, metadata, error):
    with pytest.raises(error):
        load_with(run, metadata)


def test_load_by_tag(run, tables, root):
    run(asset_of(pa.table({"a": [1]})))
    run(asset_of(pa.table({"a": [2]})))
    tables.dataset("asset").tags.create("good", 1)
    seen = []

    @dg.asset(ins={"asset": dg.AssetIn(metadata={"tag": "good"})})
    def down(asset: pa.Table) -> None:
        seen.extend(asset["a"].to_pylist())

    spec = dg.AssetSpec("asset").with_io_manager_key("io_manager")
    dg.materialize([spec, down], selection=[down], resources={"io_manager": LanceIOManager(root=root)})
    assert seen == [1]


def test_a_missing_table_is_named(root):
    @dg.asset
    def down(asset: pa.Table) -> None:
        raise AssertionError(asset)

    spec = dg.AssetSpec("asset").with_io_manager_key("io_manager")
    with pytest.raises(LanceError) as excinfo:
        dg.materialize([spec, down], selection=[down], resources={"io_manager": LanceIOManager(root=root)})
    assert isinstance(excinfo.value, DatasetNotFoundError)
    assert "materialize it first" in str(excinfo.value)


def test_load_asset_value_needs_no_step(run, root, instance):
    asset = asset_of(pa.table({"a": [1, 2]}))
    run(asset)
    defs = dg.Definitions(assets=[asset], resources={"io_manager": LanceIOManager(root=root)})
    assert defs.load_asset_value("asset", instance=instance).to_pydict() == {"a": [1, 2]}
    assert defs.load_asset_value("asset", python_type=pd.DataFrame)["a"].tolist() == [1, 2]


def test_contexts_made_by_hand(root):
    manager = LanceIOManager(root=root)
    context = dg.build_output_context(asset_key=dg.AssetKey("asset"), step_key="asset", run_id="a" * 32)
    manager.handle_output(context, pa.table({"a": [1]}))
    loaded = manager.load_input(
        dg.build_input_context(asset_key=dg.AssetKey("asset"), dagster_type=dg.PythonObjectDagsterType(pa.Table))
    )
    assert loaded.to_pydict() == {"a": [1]}


def test_an_op_output_is_refused(root):
    @dg.op
    def make():
        return pa.table({"a": [1]})

    @dg.job(resource_defs={"io_manager": LanceIOManager(root=root)})
    def job():
        make()

    with pytest.raises(LanceError) as excinfo:
        job.execute_in_process()
    assert "stores assets" in str(excinfo.value)


def test_what_a_materialization_says(run, tables):
    schema = pa.schema(
        [pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string(), metadata={"comment": "Hi"})]
    )
    result = run(asset_of(pa.table({"a": [1, 2], "b": ["x", None]}, schema=schema), key_prefix="p"))
    (event,) = result.asset_materializations_for_node("p__asset")
    metadata = {name: value.value for name, value in event.metadata.items()}
    assert metadata["dagster/row_count"] == 2
    assert metadata["dagster/table_name"] == "p.asset"
    assert metadata["dagster/uri"] == tables.uri("p/asset")
    assert metadata["dagster/storage_kind"] == "lance"
    assert metadata["lance/version"] == 1
    assert metadata["lance/rows_written"] == 2
    assert metadata["lance/operation"] == "overwrite"
    assert metadata["lance/tag"] == f"run-{result.run_id[:8]}"
    columns = metadata["dagster/column_schema"].columns
    assert [(c.name, c.type, c.constraints.nullable, c.description) for c in columns] == [
        ("a", "int64", False, None),
        ("b", "string", True, "Hi"),
    ]
    assert event.tags["dagster/data_version"] == "1"


def test_what_the_user_says_wins(run, metadata_of):
    @dg.asset
    def asset(context):
        context.add_output_metadata({"dagster/row_count": 5, "mine": "x"})
        return dg.Output(pa.table({"a": [1]}), metadata={"lance/version": "mine"}, data_version=dg.DataVersion("v7"))

    result = run(asset)
    metadata = metadata_of(result)
    assert (metadata["dagster/row_count"], metadata["lance/version"], metadata["mine"]) == (5, "mine", "x")
    (event,) = result.asset_materializations_for_node("asset")
    assert event.tags["dagster/data_version"] == "v7"


def test_the_outputs_of_a_multi_asset_are_tables_of_their_own(run, tables):
    @dg.multi_asset(outs={"one": dg.AssetOut(), "two": dg.AssetOut()})
    def both():
        return pa.table({"a": [1]}), pa.table({"a": [2]})

    run(both)
    assert [tables.dataset(key).to_table()["a"].to_pylist() for key in ("one", "two")] == [[1], [2]]


def test_versions_read_are_told_with_what_is_written(run, tables, metadata_of):
    @dg.asset
    def down(asset: pa.Table) -> pa.Table:
        return asset

    up = asset_of(pa.table({"a": [1]}))
    run(up)
    result = run(up, down)
    assert metadata_of(result, "down")["lance/inputs"] == {"asset": 2}
    assert "lance/inputs" not in metadata_of(result, "asset")
    properties = tables.dataset("down").read_transaction(1).transaction_properties
    assert properties["lance/inputs"] == '{"asset": 2}'


def test_what_the_commit_says(run, tables):
    result = run(asset_of(pa.table({"a": [1]}), code_version="3"))
    properties = tables.dataset("asset").read_transaction(1).transaction_properties
    assert properties["dagster/run_id"] == properties["dagster/root_run_id"] == result.run_id
    assert properties["dagster/asset_key"] == "asset"
    assert properties["dagster/step_key"] == "asset"
    assert properties["dagster/code_version"] == "3"


def test_preview(run, root):
    manager = LanceIOManager(root=root, preview_rows=2)
    result = run(asset_of(pa.table({"a": [1, 2, 3], "b": [[1], None, []]})), manager=manager)
    (event,) = result.asset_materializations_for_node("asset")
    assert [record.data for record in event.metadata["lance/preview"].records] == [
        {"a": 1, "b": "[1]"},
        {"a": 2, "b": None},
    ]


def test_a_preview_cuts_long_text():
    (record,) = preview(pa.table({"a": ["x" * 1000]})).records
    assert len(record.data["a"]) == 203


def test_an_asset_may_choose_its_place(run, tmp_path):
    place = str(tmp_path / "elsewhere" / "t.lance")
    seen = []

    @dg.asset
    def down(asset: pa.Table) -> None:
        seen.extend(asset["a"].to_pylist())

    run(asset_of(pa.table({"a": [1]}), metadata={"lance/uri": place}), down)
    assert seen == [1]
    assert (tmp_path / "elsewhere" / "t.lance" / "_versions").is_dir()


def test_metadata_for_the_definition(root, tables):
    schema = pa.schema({"a": pa.int64()})
    metadata = lance_asset_metadata(["p", "t"], root=root, schema=schema, partition_expr="a", primary_key=["a"])
    asset = asset_of(pa.table({"a": [1]}), metadata=metadata)
    shown = asset.metadata_by_key[dg.AssetKey("asset")]
    assert shown["dagster/uri"] == tables.uri("p/t")
    assert shown["dagster/table_name"] == "p.t"
    assert shown["dagster/column_schema"].constraints.other == ["primary key: a"]


def test_a_failing_stream_leaves_nothing(run, tables):
    def batches():
        yield pa.record_batch({"a": [1]})
        message = "source broke"
        raise RuntimeError(message)

    run(asset_of(pa.table({"a": [0]})))
    reader = pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), batches())
    with pytest.raises(RuntimeError, match="source broke"):
        run(asset_of(reader))
    assert tables.dataset("asset").to_table().to_pydict() == {"a": [0]}


def test_what_the_definition_says_of_columns_is_kept(run, metadata_of):
    declared = dg.TableSchema(
        columns=[
            dg.TableColumn(
                "a",
                "BIGINT",
                description="The key",
                tags={"pii": ""},
                constraints=dg.TableColumnConstraints(unique=True),
            ),
            dg.TableColumn("gone", "STRING"),
        ],
        constraints=dg.TableConstraints(other=["primary key: a"]),
    )
    asset = asset_of(pa.table({"a": [1], "b": ["x"]}), metadata={"dagster/column_schema": declared})
    shown = metadata_of(run(asset))["dagster/column_schema"]
    assert [(c.name, c.type, c.description, c.constraints.unique, dict(c.tags)) for c in shown.columns] == [
        ("a", "int64", "The key", True, {"pii": ""}),
        ("b", "string", None, False, {}),
    ]
    assert shown.constraints == declared.constraints


def test_metadata_that_is_only_called_like_a_setting_changes_nothing(run, tables):
    run(asset_of(pa.table({"a": [1]}), metadata={"uri": "https://example.org/docs", "out_of_partition": "?"}))
    assert tables.exists("asset")


def test_a_skipped_output_does_not_look_changed(run, tables):
    asset = asset_of(pa.table({"a": [1]}), metadata={"mode": "ignore"})
    run(asset)
    lance_core.write_dataset(pa.table({"a": [2]}), tables.uri("asset"), mode="append")
    tables.dataset("asset").optimize.compact_files()
    assert tables.dataset("asset").version == 3
    (event,) = run(asset).asset_materializations_for_node("asset")
    assert event.tags["dagster/data_version"] == "2"


def test_a_dataset_can_be_stored_as_another_asset(run, tables):
    @dg.asset
    def copy(asset: LanceDataset):
        return asset

    run(asset_of(pa.table({"a": [1, 2]})), copy)
    assert tables.dataset("copy").to_table().to_pydict() == {"a": [1, 2]}
