"""What a write can be told besides its mode, and what it tells."""

import json
import logging
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

import lance_core
from lance_core.encoding.profiles import PROFILE_KEY
from lance_core.errors import InvalidInputError, RefNotFoundError, UnsupportedError
from lance_core.spark import read_lance, write_lance

pytestmark = pytest.mark.spark


@pytest.fixture
def numbers(spark):
    return spark.range(0, 100, numPartitions=2).selectExpr("id", "int(id % 4) p", "cast(id as string) s")


def test_columns_that_are_missing_are_null(numbers, uri):
    write_lance(numbers, uri)
    write_lance(numbers.select("s", "id").limit(3), uri)
    assert lance_core.dataset(uri).count_rows("p is null") == 3
    with pytest.raises(InvalidInputError, match="'q' does not exist"):
        write_lance(numbers.select(F.lit(1).alias("q"), "id"), uri)


def test_only_partitions_that_get_rows_are_replaced(numbers, uri):
    write_lance(numbers, uri)
    fresh = numbers.filter("p in (1, 2) and id < 20").withColumn("s", F.lit("new"))
    done = write_lance(fresh, uri, partition_overwrite_by=["p"])
    now = lance_core.dataset(uri)
    assert (done.num_deleted_rows, done.num_inserted_rows, now.version) == (50, 10, 2)
    assert now.count_rows("p in (1, 2)") == now.count_rows("s = 'new'") == 10
    with_null = numbers.limit(2).selectExpr("id", "cast(null as int) p", "'null' s")
    write_lance(with_null, uri, partition_overwrite_by=["p"])
    again = with_null.limit(1).union(numbers.filter("id = 3"))
    again.write.format("lance").mode("overwrite").option("partition_overwrite_by", '["p", "s"]').save(uri)
    now = lance_core.dataset(uri)
    assert (now.count_rows("p is null"), now.count_rows("p = 3"), now.version) == (1, 25, 4)
    nothing = write_lance(numbers.filter("id < 0"), uri, partition_overwrite_by=["p"])
    assert (nothing.version, nothing.num_deleted_rows) == (5, 0)


def test_partitions_by_something_else_are_refused(numbers, uri):
    with pytest.raises(InvalidInputError, match="'q'"):
        write_lance(numbers, uri, partition_overwrite_by=["q"])
    with pytest.raises(UnsupportedError, match="double"):
        write_lance(numbers.select(F.rand().alias("r")), uri, partition_overwrite_by=["r"])
    with pytest.raises(InvalidInputError, match="not both"):
        write_lance(numbers, uri, partition_overwrite_by=["p"], replace_where="p = 1")


def test_rows_outside_of_what_is_replaced_are_found_by_the_tasks(numbers, uri, data_files):
    write_lance(numbers, uri)
    before = data_files()
    with pytest.raises(Exception, match=r"1[0-9] of 25 rows .* do not match replace_where='p > 1'.*\{'p': 0\}"):
        write_lance(numbers.filter("p in (0, 2)"), uri, replace_where="p > 1")
    assert (data_files(), lance_core.dataset(uri).version) == (before, 1)
    done = write_lance(numbers.filter("p in (0, 2)"), uri, replace_where="p > 1", check_replace_where=False)
    assert (done.num_deleted_rows, done.num_rows, lance_core.dataset(uri).count_rows()) == (50, 50, 100)


def test_what_a_new_table_is_told(numbers, uri):
    write_lance(
        numbers,
        uri,
        data_storage_version="2.1",
        enable_stable_row_ids=True,
        table_config={"team": "ü"},
        commit_message="first",
        transaction_properties={"run": "7"},
    )
    made = lance_core.dataset(uri)
    properties = made.read_transaction(1).transaction_properties
    assert (made.data_storage_version, made.has_stable_row_ids, made.config()["team"]) == ("2.1", True, "ü")
    assert (properties["__lance_commit_message"], properties["run"]) == ("first", "7")
    with pytest.raises(InvalidInputError, match="table_config"):
        write_lance(numbers, uri, table_config={"team": "b"})
    write_lance(numbers, uri, mode="overwrite", table_config={"team": "b"})
    assert lance_core.dataset(uri).config()["team"] == "b"


def test_a_branch_is_written_and_the_main_line_stays(numbers, uri):
    write_lance(numbers, uri)
    lance_core.dataset(uri).create_branch("try")
    done = write_lance(numbers, uri, branch="try")
    numbers.write.format("lance").mode("append").option("branch", "try").save(uri)
    assert (lance_core.dataset(uri).count_rows(), lance_core.dataset(uri, branch="try").count_rows()) == (100, 300)
    assert done.version == 2
    with pytest.raises(RefNotFoundError, match="nope"):
        write_lance(numbers, uri, branch="nope")


def test_rows_are_sorted_and_moved_as_wanted(numbers, uri):
    shuffled = numbers.orderBy(F.rand(3)).repartition(4)
    write_lance(shuffled, uri, sort_by="id", distribution="range", num_tasks=3)
    parts = [one.to_table()["id"].to_pylist() for one in lance_core.dataset(uri).get_fragments()]
    assert len(parts) == 3
    assert [number for part in parts for number in part] == list(range(100))
    write_lance(shuffled, uri, mode="overwrite", sort_by=["p", "id"], num_tasks=1)
    rows = lance_core.dataset(uri).to_table()
    assert rows.equals(rows.sort_by([("p", "ascending"), ("id", "ascending")]))
    write_lance(shuffled, uri, mode="overwrite", distribution="balance")
    assert len(lance_core.dataset(uri).get_fragments()) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"distribution": "hash"}, "hash"),
        ({"distribution": "range"}, "sort_by"),
        ({"distribution": "balance", "num_tasks": 3}, "num_tasks"),
        ({"sort_by": "x"}, "x"),
        ({"num_tasks": 0}, "num_tasks"),
    ],
)
def test_arrangements_that_make_no_sense_are_refused(numbers, uri, given, message):
    with pytest.raises(InvalidInputError, match=message):
        write_lance(numbers, uri, **given)


def test_files_end_where_they_are_full(numbers, uri):
    done = write_lance(numbers, uri, max_rows_per_file=20)
    assert (done.num_files, done.num_fragments, done.num_rows) == (6, 6, 100)
    numbers.write.format("lance").mode("overwrite").option("max_row_per_file", 10).option("queue_depth", 8).save(uri)
    assert {one.physical_rows for one in lance_core.dataset(uri).get_fragments()} == {10}
    long = numbers.sparkSession.range(0, 30_000, numPartitions=1).selectExpr("id", "sha2(string(id), 256) s")
    assert write_lance(long, uri, mode="overwrite", max_bytes_per_file=1 << 19).num_files > 1


def test_one_line_tells_what_happened(numbers, uri, caplog):
    with caplog.at_level(logging.INFO, logger="lance_core.spark"):
        done = write_lance(numbers, uri, idempotency_key="k")
        write_lance(numbers, uri, idempotency_key="k")
    first, second = [one.getMessage() for one in caplog.records if one.name == "lance_core.spark"]
    assert f"append {uri}: version 1, 100 rows inserted (2 files, " in first
    assert "nothing to do, version 1 has it" in second
    assert done.seconds > 0
    assert done.attempts == 1


def test_tables_in_spark_s_catalog_are_refused_at_once(spark, numbers, uri):
    """Spark's catalog keeps no options for Python sources, so such tables could be neither read nor written."""
    write_lance(numbers, uri)
    for text in (f"OPTIONS (path '{uri}')", f"LOCATION '{uri}'", f"LOCATION '{uri}2' AS SELECT 1 a"):
        with pytest.raises(IllegalArgumentException, match="CREATE TEMPORARY VIEW"):
            spark.sql(f"CREATE TABLE lance_table USING lance {text}")
    assert not spark.catalog.tableExists("lance_table")
    assert lance_core.dataset(uri).version == 1


def test_inserts_into_temporary_views(spark, numbers, uri):
    write_lance(numbers, uri)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW lance_into USING lance OPTIONS (path '{uri}')")
    spark.sql("INSERT INTO lance_into SELECT id + 1000, p, s FROM lance_into")
    assert lance_core.dataset(uri).count_rows() == 200
    spark.sql("INSERT OVERWRITE lance_into VALUES (1, 1, 'x')")
    assert lance_core.dataset(uri).to_table().to_pylist() == [{"id": 1, "p": 1, "s": "x"}]
    for text in ("DELETE FROM lance_into WHERE id = 1", "UPDATE lance_into SET s = 'y'"):
        with pytest.raises(PySparkException, match="does not support"):
            spark.sql(text)
    assert lance_core.dataset(uri).version == 3


def test_options_of_partitions_travel_as_text(numbers, uri):
    options = {"table_config": json.dumps({"a": "b"}), "commitMessage": "hello", "data_storage_version": "2.0"}
    numbers.write.format("lance").mode("append").options(**options).save(uri)
    made = lance_core.dataset(uri)
    assert (made.config()["a"], made.data_storage_version) == ("b", "2.0")
    assert made.read_transaction(1).transaction_properties["__lance_commit_message"] == "hello"
    assert pa.types.is_int32(made.schema.field("p").type)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("parse_json('1')", "variant"),
        ("make_interval(1)", "(CalendarInterval|INTERVAL)"),
        ("INTERVAL '1' YEAR", "YearMonthInterval"),
        pytest.param(
            "st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')",
            "geometry",
            marks=pytest.mark.skipif(pyspark.__version__.startswith("4.1."), reason="pyspark 4.2 brought the type"),
        ),
    ],
)
def test_types_without_a_place_are_refused_by_name(spark, uri, value, kind):
    frame = spark.sql(f"SELECT 1 id, {value} odd")
    with pytest.raises(UnsupportedError, match=f"'odd'.*{kind}"):
        write_lance(frame, uri)
    with pytest.raises(AnalysisException, match=kind):
        frame.write.format("lance").mode("append").save(uri)
    assert not Path(uri).exists()


def test_texts_of_fixed_length_and_comments(spark, uri, tmp_path):
    """They come as other sources of Spark have them: CHAR is padded, both are strings in the table."""
    spark.sql("DROP TABLE IF EXISTS padded")
    spark.sql(
        f"CREATE TABLE padded (c CHAR(5), v VARCHAR(3) COMMENT 'short') USING parquet LOCATION '{tmp_path / 'p'}'"
    )
    try:
        spark.sql("INSERT INTO padded VALUES ('ab', 'cd')")
        write_lance(spark.table("padded"), uri)
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW lance_padded USING lance OPTIONS (path '{uri}')")
        spark.sql("INSERT INTO lance_padded SELECT * FROM padded")
    finally:
        spark.sql("DROP TABLE padded")
    table = lance_core.dataset(uri)
    assert table.schema.equals(pa.schema({"c": pa.string(), "v": pa.string()}))
    assert [field.metadata for field in table.schema] == [None, {b"comment": b"short"}]
    assert table.to_table().to_pylist() == [{"c": "ab   ", "v": "cd"}] * 2
    assert [row["comment"] for row in spark.sql("DESCRIBE lance_padded").collect()] == [None, "short"]


@pytest.mark.parametrize("schema", ["a int, A int", "s struct<x: int, X: int>", "l array<struct<x: int, X: int>>"])
def test_columns_that_differ_in_case_only_are_refused(spark, uri, schema):
    rows = spark.createDataFrame([], schema)
    with pytest.raises(InvalidInputError, match="differ only in case"):
        write_lance(rows, uri)
    with pytest.raises(AnalysisException, match="differ only in case"):
        rows.write.format("lance").mode("append").save(uri)
    assert not Path(uri).exists()
    rows.write.format("lance").mode("append").option("caseSensitive", "true").save(uri)


def test_a_case_sensitive_session_writes_and_reads_columns_that_differ_in_case_only(spark, uri):
    session = spark.newSession()
    session.conf.set("spark.sql.caseSensitive", "true")
    write_lance(session.createDataFrame([(1, 2)], "a int, A int"), uri)
    assert read_lance(session, uri).collect() == [(1, 2)]


def test_a_table_keeps_its_compression_profile(numbers, uri):
    write_lance(numbers, uri, compression_profile="small")
    write_lance(numbers, uri)
    numbers.write.format("lance").mode("append").option("compressionProfile", "small").save(uri)
    assert lance_core.dataset(uri).schema.metadata == {PROFILE_KEY.encode(): b"small"}
    with pytest.raises(InvalidInputError, match="that of the table is 'small'"):
        write_lance(numbers, uri, compression_profile="fast")
    with pytest.raises(AnalysisException, match="fast, balanced or small"):
        numbers.write.format("lance").mode("append").option("compression_profile", "tiny").save(uri)
    write_lance(numbers, uri, mode="overwrite")
    assert lance_core.dataset(uri).schema.metadata == {PROFILE_KEY.encode(): b"small"}
