"""A table as an object with Delta's methods, and conditions in Spark's SQL and columns."""

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

import lance_core
from lance_core.errors import DatasetNotFoundError, InvalidInputError, UnsupportedError
from lance_core.spark import (
    LanceMergeBuilder,
    LanceOptimizeBuilder,
    LanceTable,
    delete_lance,
    read_lance,
    update_lance,
    write_lance,
)
from lance_core.spark.functions.delta_names import REFUSED

pytestmark = pytest.mark.spark


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def table(request, uri):
    """Twelve days in three fragments."""
    days = pa.array([date(2020, 1, i + 1) for i in range(12)])
    times = pa.array([datetime(2020, 1, i + 1, tzinfo=UTC) for i in range(12)], pa.timestamp("us", "UTC"))
    rows = pa.table({"id": range(12), "s": [f"{i % 3}" for i in range(12)], "day": days, "at": times})
    return lance_core.write_dataset(rows, uri, max_rows_per_file=4, enable_stable_row_ids=request.param)


def ids(table, column="id"):
    return sorted(lance_core.dataset(table.uri).to_table(columns=[column])[column].to_pylist())


def test_a_table_tells_about_itself_in_dataframes(spark, uri, table):
    table.delete("id = 3")
    table.tags.create("first", 1)
    table.create_branch("trial")
    lance = LanceTable.forPath(spark, uri)
    assert lance.toDF().count() == 11
    history = lance.history().collect()
    assert [(row.version, row.operation) for row in history] == [(2, "Delete"), (1, "Overwrite")]
    assert [row.version for row in lance.history(1).collect()] == [2]
    detail = lance.detail().first()
    assert (detail.num_rows, detail.num_deleted_rows, detail.num_fragments, detail.version) == (11, 1, 3, 2)
    assert [tuple(row)[2:5] for row in lance.files().collect()] == [(["id", "s", "day", "at"], 4, n) for n in (1, 0, 0)]
    assert [(row.tag, row.version) for row in lance.tags().collect()] == [("first", 1)]
    assert [(row.branch, row.parent_version) for row in lance.branches().collect()] == [("trial", 2)]
    assert LanceTable.for_path(spark, uri, branch="trial").delete().num_deleted_rows == 11
    assert lance.restoreToVersion("first") == 3
    assert lance.toDF().count() == 12
    with pytest.raises(DatasetNotFoundError):
        LanceTable.forPath(spark, uri + " 2")


def test_a_table_is_changed_and_maintained_with_deltas_methods(spark, uri, table):
    lance = LanceTable.forPath(spark, uri)
    assert lance.update("id < 2", {"s": F.concat("s", F.lit("!"))}).num_updated_rows == 2
    assert lance.delete(F.col("id") == 11).num_deleted_rows == 1
    changes = spark.range(10, 14).selectExpr("id AS number", "'new' AS word").alias("c")
    merge = lance.alias("t").merge(changes, "t.id = c.number AND t.s <> '2'")
    merge = merge.whenMatchedUpdate(set={"s": "concat(t.s, c.word)"}, condition=F.col("c.number") > 9)
    done = merge.whenNotMatchedInsert(values={"id": F.col("c.number"), "s": "word"}).execute()
    assert (done.num_updated_rows, done.num_inserted_rows) == (1, 3)
    rows = lance.toDF().where("id > 9 or s like '%!'").orderBy("id").select("id", "s").collect()
    assert [tuple(row) for row in rows] == [(0, "0!"), (1, "1!"), (10, "1new"), (11, "new"), (12, "new"), (13, "new")]
    keys = lance.alias("t").merge(changes.selectExpr("number AS id").alias("c"), "c.id = t.id AND true")
    with pytest.raises(InvalidInputError, match="no action"):
        keys.execute()
    assert lance.create_index("id", "BTREE").version == 5
    assert lance.optimize().executeCompaction(target_rows_per_fragment=100).fragments_removed > 1
    assert [tuple(row)[:5] for row in lance.indices().collect()] == [("id_idx", "BTree", ["id"], 14, 0)]
    assert lance.vacuum(0, retain_versions=1).old_versions > 1
    assert ids(table) == list(range(14))


OWNERS = (LanceTable, LanceOptimizeBuilder, LanceMergeBuilder)


@pytest.mark.parametrize("name", REFUSED)
def test_methods_of_delta_that_are_not_supported_say_what_to_use(name):
    method = next(getattr(owner, name) for owner in OWNERS if hasattr(owner, name))
    with pytest.raises(UnsupportedError, match=f"{name} is not supported for Lance tables: {REFUSED[name]}"):
        method()


CONDITIONS = ["day < '2020-01-03'", "at < '2020-01-03'", "year(`day`) = 2020 AND id % 5 = 1", "id div 4 = 2"]


def test_conditions_of_spark_choose_the_same_rows_in_reads_and_deletes(spark, uri, table):
    plain = {row.id: row for row in read_lance(spark, uri).collect()}
    for condition in (*CONDITIONS, (F.col("id") / 4 > 1) & (F.dayofweek("day") == 1)):
        expected = sorted(row.id for row in read_lance(spark, uri).where(condition).collect())
        assert sorted(row.id for row in read_lance(spark, uri, columns=["id"], filter=condition).collect()) == expected
        assert 0 < len(expected) < len(plain)
    limited = read_lance(spark, uri, columns=["s"], filter=CONDITIONS[0], limit=1, with_row_id=True)
    assert (limited.columns, limited.count()) == (["s", "_rowid"], 1)
    done = delete_lance(spark, uri, CONDITIONS[1], commit_message="gone")
    assert (done.num_deleted_rows, ids(table)) == (3, list(range(3, 12)))
    operation = lance_core.dataset(uri).read_transaction(2).operation
    assert (type(operation).__name__, operation.predicate) == ("Delete", CONDITIONS[1])
    before = lance_core.dataset(uri).to_table(columns=["id"], with_row_id=True).to_pylist()
    done = update_lance(spark, uri, {"s": "date_format(day, 'EEE')"}, "weekday(day) < 5")
    assert done.num_updated_rows == 5
    after = lance_core.dataset(uri).to_table(columns=["id"], with_row_id=True).to_pylist()
    assert not table.has_stable_row_ids or sorted(map(str, after)) == sorted(map(str, before))


def test_what_is_replaced_may_be_a_condition_of_spark(spark, uri, table):
    new = spark.range(100, 102).selectExpr("id", "'x' s", "DATE '2020-01-02' day", "TIMESTAMP '2020-01-02' at")
    done = write_lance(new, uri, replace_where=(F.col("day") < F.lit("2020-01-04")) & (F.col("id") != 1))
    assert (done.num_deleted_rows, ids(table)) == (2, [1, *range(3, 12), 100, 101])
    lance_core.dataset(uri).create_scalar_index("id", "BTREE")
    done = write_lance(new.limit(1), uri, replace_where=(F.col("id") == 100) | F.col("id").isin(101, 11))
    assert (done.num_deleted_rows, ids(table)) == (3, [1, *range(3, 11), 100])
    with pytest.raises(UnsupportedError, match="weekday"):
        write_lance(new, uri, replace_where="id = 3 AND weekday(day) = 1")
    for call in (read_lance, delete_lance):
        name = "filter" if call is read_lance else "predicate"
        with pytest.raises(InvalidInputError, match="nope"):
            call(spark, uri, **{name: "nope(id) = 1"})
