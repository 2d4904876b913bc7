"""Which version a query reads through a view or a DataFrame that names none."""

import logging
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

import lance_core
from lance_core.spark import planner, read_lance, register
from lance_core.spark.source import LanceDataSource

pytestmark = pytest.mark.spark


@pytest.fixture
def table(uri):
    dataset = lance_core.write_dataset(pa.table({"id": range(10)}), uri, max_rows_per_file=4)
    dataset.tags.create("first", 1)
    return uri


def append(uri, *numbers):
    lance_core.write_dataset(pa.table({"id": pa.array(numbers, pa.int64())}), uri, mode="append")


def view(spark, name, path, **options):
    texts = ", ".join(f"{key} '{value}'" for key, value in {"path": path, **options}.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} USING lance OPTIONS ({texts})")


def count(spark, name):
    return spark.table(name).count()


def test_a_view_sees_what_is_inserted_through_it_and_what_others_commit(spark, table):
    view(spark, "v", table)
    assert count(spark, "v") == 10
    spark.sql("INSERT INTO v SELECT id + 10 FROM range(5)")
    assert count(spark, "v") == 15
    spark.sql("INSERT INTO v SELECT id + 100 FROM v WHERE id < 3")
    assert count(spark, "v") == 18
    lance_core.dataset(table).delete("id >= 5")
    assert count(spark, "v") == 5
    spark.sql("INSERT OVERWRITE v SELECT id FROM range(2)")
    assert count(spark, "v") == 2


def test_views_of_a_version_a_tag_and_a_time_stay_there(spark, table):
    moment = lance_core.dataset(table).versions()[0]["timestamp"].astimezone().isoformat()
    pins = {"a": {"version": 1}, "b": {"tag": "first"}, "c": {"versionAsOf": 1}, "d": {"timestamp": moment}}
    for name, options in pins.items():
        view(spark, name, table, **options)
    append(table, 10)
    lance_core.dataset(table).tags.update("first", 2)
    assert [count(spark, name) for name in pins] == [10] * 4


def test_each_action_of_a_frame_without_a_version_reads_the_newest_one(spark, table):
    frame, fixed = spark.read.format("lance").load(table), read_lance(spark, table)
    assert (frame.count(), fixed.count()) == (10, 10)
    append(table, 10, 11)
    assert (frame.count(), fixed.count()) == (12, 10)
    assert frame.where("id > 8").count() == 3


class Growing(LanceDataSource):
    """A source whose table gets a row whenever a reader of it was made."""

    def reader(self, schema):
        made = super().reader(schema)
        append(self.options["path"], -1)
        return made


def test_one_query_reads_one_version_in_all_its_places(spark, table):
    view(spark, "v", table, split_rows=2)
    spark.dataSource.register(Growing)
    try:
        query = "SELECT count(*), (SELECT count(*) FROM v) FROM v a JOIN v b ON a.id = b.id WHERE EXISTS (FROM v)"
        assert spark.sql(query).first() == (10, 10)
        version = lance_core.dataset(table).version
        assert version > 1
        assert count(spark, "v") == 9 + version
    finally:
        register(spark)


class Counting(LanceDataSource):
    """A source that writes down each time that a version was looked for."""

    def schema(self):
        with open(self.options["path"] + " calls", "a") as file:  # noqa: PTH123 it runs in another process
            file.write("1")
        return super().schema()


@pytest.fixture
def indexed(spark, table):
    """A table whose ids have an index, and a view of it."""
    lance_core.dataset(table).create_scalar_index("id", "BTREE")
    view(spark, "v", table)
    spark.dataSource.register(Counting)
    yield table
    register(spark)


def look_up(spark, number):
    return [row["id"] for row in spark.table("v").where(f"id = {number}").collect()]


def test_look_ups_in_an_index_do_not_look_for_the_version_first(spark, indexed):
    calls = Path(indexed + " calls")
    assert look_up(spark, 3) == [3]
    before = calls.read_text()
    assert [look_up(spark, number) for number in (4, 4, 50)] == [[4], [4], []]
    assert calls.read_text() == before != ""


def test_look_ups_in_an_index_see_what_others_commit(spark, indexed):
    assert look_up(spark, 50) == []
    append(indexed, 50)
    assert look_up(spark, 50) == [50]
    lance_core.dataset(indexed).delete("id = 3")
    assert look_up(spark, 3) == []
    append(indexed, 51)
    twice = "SELECT a.id, b.id, (SELECT max(id) FROM v) FROM v a JOIN v b ON a.id = b.id WHERE a.id = 51"
    assert spark.sql(twice).collect() == [(51, 51, 51)]
    append(indexed, 52)
    assert count(spark, "v") == 12
    lance_core.dataset(indexed, 1).restore()
    assert [look_up(spark, number) for number in (3, 50)] == [[3], []]


def test_look_ups_in_an_index_see_a_table_that_was_made_anew(spark, indexed):
    assert look_up(spark, 3) == [3]
    version = lance_core.dataset(indexed).version
    shutil.rmtree(indexed)
    with pytest.raises(AnalysisException, match="DatasetNotFoundError"):
        look_up(spark, 3)
    lance_core.write_dataset(pa.table({"id": [7]}), indexed)
    lance_core.dataset(indexed).create_scalar_index("id", "BTREE")
    assert lance_core.dataset(indexed).version == version
    assert [look_up(spark, number) for number in (3, 7)] == [[], [7]]
    lance_core.dataset(indexed).alter_columns({"path": "id", "data_type": pa.int32()})
    with pytest.raises(AnalysisException, match="make it again"):
        look_up(spark, 7)


def test_a_view_ignores_new_columns_and_refuses_changed_ones(spark, table):
    view(spark, "v", table)
    view(spark, "fixed", table, version=1)
    lance_core.dataset(table).add_columns({"twice": "id * 2"})
    assert spark.sql("SELECT * FROM v WHERE id = 3").collect() == [(3,)]
    lance_core.dataset(table).alter_columns({"path": "id", "data_type": pa.int32()})
    with pytest.raises(AnalysisException, match=r"InvalidInputError: .*column 'id' is int, not bigint.*make it again"):
        count(spark, "v")
    assert count(spark, "fixed") == 10
    view(spark, "v", table)
    assert count(spark, "v") == 10


def test_a_view_of_values_without_nulls_refuses_nulls_that_came_later(spark, uri):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    lance_core.write_dataset(pa.table({"id": [1]}, schema=schema), uri)
    view(spark, "v", uri)
    lance_core.dataset(uri).alter_columns({"path": "id", "nullable": True})
    append(uri, None)
    with pytest.raises(AnalysisException, match="column 'id' may have nulls"):
        count(spark, "v")


def test_a_view_of_changes_has_those_of_later_versions(spark, table):
    view(spark, "v", table, read_change_feed="true", starting_version=1)
    assert count(spark, "v") == 10
    append(table, 10)
    assert count(spark, "v") == 11


def test_the_rule_is_installed_once_in_a_session(spark):
    register(spark)
    register(spark)
    rules = spark._jsparkSession.experimental().extraOptimizations()
    assert rules.size() == 1


def test_a_session_that_cannot_have_the_rule_works_without_it(new_session, table, monkeypatch, caplog):
    monkeypatch.setattr(planner, "_source", lambda _: "package lance_core; class Broken extends nowhere.Rule {}")
    session = new_session()
    with caplog.at_level(logging.WARNING):
        register(session)
    assert "does not accept the planner rule" in caplog.text
    frame = session.read.format("lance").load(table)
    append(table, 10)
    assert frame.count() == 10
