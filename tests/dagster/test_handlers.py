"""Lazy frames, frames of DuckDB, tables that an asset wrote itself, and types of others."""

from collections import UserList

import dagster as dg
import duckdb
import polars as pl
import pyarrow as pa
import pytest

import lance_core
from lance_core import LanceDataset
from lance_core.errors import InvalidInputError
from lance_core.scanner import LanceScanner
from lance_dagster import LanceIOManager, LanceResource
from lance_dagster.handlers import ArrowBridge
from lance_dagster.handlers.polars import Scan

ROWS = pa.table({"a": [1, 2, 3, 4], "b": ["w", "x", "y", "z"], "c": [0.5, None, 1.5, 2.5]})


def asset_of(value, **kwargs):
    @dg.asset(name="asset", **kwargs)
    def asset():
        return value() if callable(value) else value

    return asset


def loading(type_, look, **metadata):
    """An asset that looks at its input."""

    def down(asset):
        look(asset)

    down.__annotations__ = {"asset": type_, "return": None}
    return dg.asset(down, ins={"asset": dg.AssetIn(metadata=metadata)})


def test_duckdb_relations(run, tables):
    seen = []

    def look(relation):
        seen.append(relation.filter("c > 1").aggregate("sum(a) AS s").fetchall())
        seen.append(sorted(relation.fetchall()))  # once more, from the table

    relation = duckdb.sql("select range AS a, 'x' || range AS b, range * 0.5::double AS c from range(4)")
    run(asset_of(relation), loading(duckdb.DuckDBPyRelation, look, columns=["a", "c"], filter="a > 0"))
    assert seen == [[(3,)], [(1, 0.5), (2, 1.0), (3, 1.5)]]
    assert tables.dataset("asset").schema.names == ["a", "b", "c"]


def test_lazy_frames_read_what_a_query_needs(run, monkeypatch):
    asked, original = [], Scan.to_batches

    def spying(self, columns=None, filter=None, **options):  # noqa: A002 - pyarrow's name
        asked.append((columns, filter is not None))
        return original(self, columns, filter, **options)

    monkeypatch.setattr(Scan, "to_batches", spying)
    seen = []

    def look(frame):
        assert not asked
        seen.append(frame.filter(pl.col("a") > 2).select("b").collect()["b"].to_list())
        seen.append(frame.select("c").head(2).collect()["c"].to_list())

    run(asset_of(ROWS), loading(pl.LazyFrame, look))
    assert seen == [["y", "z"], [0.5, None]]
    assert [sorted(columns) for columns, _ in asked] in ([["a", "b"], ["c"]], [["b"], ["c"]])
    assert asked[0][1]


def test_lazy_frames_of_some_rows(run):
    seen = []

    def look(frame):
        seen.append(frame.filter(pl.col("a") < 4).select("b", "a").collect().rows())

    run(asset_of(ROWS), loading(pl.LazyFrame, look, filter="c > 1", columns=["b", "a"]))
    assert seen == [[("y", 3)]]


def test_scanners_are_lazy_and_restricted(run):
    seen = []
    run(
        asset_of(ROWS),
        loading(LanceScanner, lambda s: seen.append(s.to_table().to_pydict()), columns=["a"], filter="a > 3"),
    )
    assert seen == [{"a": [4]}]


def test_a_table_that_the_asset_wrote_is_not_written_again(run, tables, metadata_of):
    @dg.asset
    def asset(lance: LanceResource):
        dataset = lance_core.write_dataset(ROWS, lance.uri("asset"), mode="overwrite")
        lance_core.write_dataset(ROWS, lance.uri("asset"), mode="append")  # this one is not meant
        return dataset

    result = run(asset)
    metadata = metadata_of(result)
    assert tables.dataset("asset").version == 2
    assert (metadata["lance/version"], metadata["lance/operation"], metadata["dagster/row_count"]) == (1, "register", 4)
    (event,) = result.asset_materializations_for_node("asset")
    assert event.tags["dagster/data_version"] == "1"


def test_a_branch_that_the_asset_wrote(run, tables):
    run(asset_of(ROWS))

    @dg.asset
    def asset(lance: LanceResource):
        branch = lance.dataset("asset").create_branch("audit")
        branch.delete("a > 1")
        return branch

    (event,) = run(asset).asset_observations_for_node("asset")
    assert (event.metadata["lance/branch"].value, event.metadata["dagster/row_count"].value) == ("audit", 1)
    assert tables.dataset("asset").count_rows() == 4


def test_an_old_version_stored_elsewhere_is_copied(run, tables):
    run(asset_of(ROWS))
    run(asset_of(ROWS.slice(0, 1)))

    @dg.asset(ins={"asset": dg.AssetIn(metadata={"version": 1})})
    def copy(asset: LanceDataset):
        return asset

    spec = dg.AssetSpec("asset").with_io_manager_key("io_manager")
    run(spec, copy, selection=[copy])
    assert tables.dataset("copy").to_table() == ROWS


class Rows(UserList):
    """Somebody's own frame: a list of dicts."""


class WithRows(LanceIOManager):
    def type_handlers(self):
        return [
            ArrowBridge(
                types=(f"{Rows.__module__.partition('.')[0]}.Rows",),
                schema=lambda rows: pa.Table.from_pylist(list(rows)).schema,
                to_arrow=lambda rows: pa.Table.from_pylist(list(rows)),
                from_table=lambda table: Rows(table.to_pylist()),
            )
        ]


def test_types_of_others(run, root, tables):
    seen = []
    run(asset_of(Rows([{"a": 1}])), loading(Rows, seen.extend), manager=WithRows(root=root))
    assert seen == [{"a": 1}]
    assert tables.dataset("asset").to_table().to_pylist() == [{"a": 1}]
    with pytest.raises(NotImplementedError, match="Rows"):
        run(asset_of(Rows([{"a": 1}])))


COLLECT = {pl.LazyFrame: pl.LazyFrame.collect, duckdb.DuckDBPyRelation: duckdb.DuckDBPyRelation.pl}


def test_the_first_partition_of_a_lazy_frame_is_empty(run):
    seen = []
    days = dg.DailyPartitionsDefinition("2026-11-01", end_date="2026-11-04")
    schema = dg.TableSchema([dg.TableColumn("day", "string"), dg.TableColumn("n", "int64")])

    for type_ in COLLECT:

        def asset(context, asset):
            frame = COLLECT[type(asset)](asset)
            seen.append((frame.columns, frame.height))
            return pl.DataFrame({"day": [context.partition_key], "n": [frame.height]})

        asset.__annotations__ = {"asset": type_}
        mapping = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
        made = dg.asset(
            asset,
            name=type_.__name__,
            partitions_def=days,
            ins={"asset": dg.AssetIn(key=type_.__name__, partition_mapping=mapping)},
            metadata={"partition_expr": "day", "dagster/column_schema": schema},
        )
        for key in ("2026-11-01", "2026-11-02"):
            run(made, partition_key=key)
    assert seen == [(["day", "n"], 0), (["day", "n"], 1)] * 2


def test_a_dataset_of_a_partition_says_what_to_do(run):
    with pytest.raises(InvalidInputError, match="LanceScanner"):
        run(asset_of(ROWS), loading(LanceDataset, print, filter="a > 1"))
