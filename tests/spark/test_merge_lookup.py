"""Merges by Spark that look keys up in indices: the same rows change, and few of the table are read."""

import random

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

import lance_core
from lance_core.spark import merge_lance
from lance_core.spark.functions import merge, merge_lookup

pytestmark = pytest.mark.spark


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def table(request, uri):
    """Keys 0 to 399, of which an index knows the first 300; one is deleted."""
    rows = pa.table({"id": range(400), "v": [i * 10 for i in range(400)], "s": [f"old {i}" for i in range(400)]})
    made = lance_core.write_dataset(rows.slice(0, 300), uri, max_rows_per_file=150, enable_stable_row_ids=request.param)
    made.create_scalar_index("id", "BTREE")
    made.create_scalar_index("s", "ZONEMAP", rows_per_zone=10)
    made.delete("id = 50")
    return lance_core.write_dataset(rows.slice(300), uri, mode="append")


@pytest.fixture
def read(monkeypatch):
    """Rows of the table that merges read whose keys were looked up; None for those that read all."""
    counts = []
    original = merge.candidate_rows

    def candidate_rows(*given, **options):
        rows = original(*given, **options)
        counts.append(None if rows is None else rows.count())
        return rows

    monkeypatch.setattr(merge, "candidate_rows", candidate_rows)
    monkeypatch.setattr(merge_lookup, "MIN_TABLE_ROWS", 0)
    monkeypatch.setattr(merge_lookup, "MOST_SHARE", 1 / 16)
    monkeypatch.setattr("lance_core.change.merging.key_lookup.MOST_SHARE", 1 / 16)
    monkeypatch.setattr(merge_lookup, "_MOST_CANDIDATES", 1 / 2)
    return counts


def contents(table):
    rows = lance_core.dataset(table.uri).to_table(columns=["id", "v", "s"]).to_pylist()
    return sorted(((row["id"], row["v"], row["s"]) for row in rows), key=repr)


def test_an_upsert_reads_few_rows_and_those_that_no_index_knows(spark, table, read):
    expected = {row[0]: row for row in contents(table)}
    source = spark.createDataFrame([(7, 1), (50, 2), (299, 3), (350, 4), (900, 5)], "id long, v long")
    done = merge_lance(source, table.uri, "id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert (done.num_updated_rows, done.num_inserted_rows) == (3, 2)
    assert read == [3]
    expected |= {i: (i, v, f"old {i}") for i, v in ((7, 1), (299, 3), (350, 4))}
    expected |= {50: (50, 2, None), 900: (900, 5, None)}
    assert contents(table) == sorted(expected.values(), key=repr)
    assert lance_core.verify(table.uri, level="indices").is_ok


@pytest.mark.parametrize("table", [False], indirect=True)
def test_an_index_that_only_narrows_will_do(spark, table, read):
    source = spark.createDataFrame([("old 7", 1), ("old 255", 2)], "s string, v long")
    done = merge_lance(source, table.uri, "s", within="id < 260").when_matched_update_all().execute()
    assert done.num_updated_rows == 2
    assert 2 <= read[0] <= 150
    assert {row for row in contents(table) if row[1] in {1, 2}} == {(7, 1, "old 7"), (255, 2, "old 255")}


@pytest.mark.parametrize("table", [False], indirect=True)
def test_a_source_that_is_never_the_same_is_read_once(spark, table, read):
    key = F.udf(lambda i: 60 + 40 * i + random.randrange(40), "long", useArrow=False).asNondeterministic()
    source = spark.range(5).select(key("id").alias("id"), F.lit(-1).cast("long").alias("v"))
    done = merge_lance(source, table.uri, "id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert (done.num_inserted_rows, done.num_updated_rows) == (0, 5)
    assert len(read) == 1
    assert not source.is_cached


@pytest.mark.parametrize("kept", ["s", "nothing"])
def test_without_an_index_only_rows_with_a_key_are_read(spark, table, read, kept):
    ids = [*range(0, 400, 4), 1000, 1001] if kept == "nothing" else [3, 50, 399, 1000]
    source = spark.createDataFrame([(i * 10, i, "new") for i in ids], "v long, id long, s string")
    source = (source if kept == "nothing" else source.drop("s")).cache()
    expected = {row[1]: row for row in contents(table)}
    done = merge_lance(source, table.uri, "v").when_matched_update_all().when_not_matched_insert_all().execute()
    matched = {i for i in ids if i * 10 in expected}
    assert (done.num_updated_rows, done.num_inserted_rows) == (len(matched), len(ids) - len(matched))
    assert read == [len(matched)]
    for i in ids:
        text = "new" if kept == "nothing" else expected[i * 10][2] if i in matched else None
        expected[i * 10] = (i, i * 10, text)
    assert contents(table) == sorted(expected.values(), key=repr)


@pytest.mark.parametrize("table", [False], indirect=True)
def test_keys_that_repeat_in_the_source_are_refused(spark, table, read):
    twice = spark.createDataFrame([(77, 1), (77, 2)], "v long, id long").cache()
    with pytest.raises(PySparkException, match="more than one row of the DataFrame has the same new key"):
        merge_lance(twice, table.uri, "v").when_matched_update_all().when_not_matched_insert_all().execute()
    assert read == [0]


@pytest.mark.parametrize("table", [False], indirect=True)
def test_tables_are_read_whole_where_keys_cannot_be_looked_up(spark, table, read):
    few = spark.createDataFrame([(7, 1)], "id int, v long")
    merge_lance(few, table.uri, "id").when_matched_update_all().execute()
    many = spark.range(300).selectExpr("id", "0L v")
    merge_lance(many, table.uri, "id").when_matched_update_all().execute()
    assert read == [None] * 2
    merge_lance(few, table.uri, "id").when_not_matched_by_source_delete("target.id = 8").execute()
    assert len(read) == 2
    assert lance_core.dataset(table.uri).count_rows() == 398
