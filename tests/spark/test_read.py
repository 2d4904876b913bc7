import datetime as dt

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import types as st

import lance_core
from lance_core.errors import DatasetNotFoundError, InvalidInputError, RefNotFoundError, VersionNotFoundError
from lance_core.spark import read_lance, write_lance

pytestmark = pytest.mark.spark

TABLE = pa.table(
    {
        "id": pa.array(range(1000)),
        "s": pa.array([None if i % 7 == 0 else f"row {i}" for i in range(1000)]),
        "v": pa.array([[float(i), 1.0] for i in range(1000)], pa.list_(pa.float32(), 2)),
        "t": pa.array([dt.datetime(2013, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=i) for i in range(1000)]),
    }
)


@pytest.fixture
def table(uri):
    lance_core.write_dataset(TABLE, uri, max_rows_per_file=300)
    return uri


def ids(frame):
    return sorted(row["id"] for row in frame.select("id").collect())


def test_everything_arrives(spark, table):
    frame = spark.read.format("lance").load(table)
    assert frame.schema.names == ["id", "s", "v", "t"]
    assert frame.orderBy("id").toArrow().to_pylist() == TABLE.to_pylist()


def test_small_fragments_share_a_task_and_big_ones_are_cut(spark, table):
    assert spark.read.format("lance").load(table).rdd.getNumPartitions() == 1
    cut = spark.read.format("lance").option("split_rows", 150).load(table)
    assert cut.rdd.getNumPartitions() == 7
    assert ids(cut) == list(range(1000))
    filtered = spark.read.format("lance").option("split_rows", 150).option("filter", "id % 100 = 99").load(table)
    assert ids(filtered) == list(range(99, 1000, 100))


def test_deleted_rows_stay_away(spark, table):
    lance_core.dataset(table).delete("id < 350 OR id = 999")
    assert ids(read_lance(spark, table)) == list(range(350, 999))
    assert ids(spark.read.format("lance").option("split_rows", 100).load(table)) == list(range(350, 999))


def test_columns_in_the_order_asked_for(spark, table):
    frame = read_lance(spark, table, columns=["t", "id"])
    assert frame.columns == ["t", "id"]
    assert frame.orderBy("id").first().asDict() == {"id": 0, "t": frame.orderBy("id").first()["t"]}
    with pytest.raises(InvalidInputError, match=r"no column .nope"):
        read_lance(spark, table, columns=["nope"])


def test_a_filter_may_need_columns_that_are_not_read(spark, table):
    frame = read_lance(spark, table, columns=["s"], filter="id BETWEEN 5 AND 8")
    assert [row[0] for row in frame.collect()] == ["row 5", "row 6", None, "row 8"]
    with pytest.raises(InvalidInputError, match="nope"):
        read_lance(spark, table, filter="nope > 1")
    with pytest.raises(InvalidInputError, match="cannot parse the predicate"):
        read_lance(spark, table, filter="id >")


def test_a_schema_of_the_user_selects_columns(spark, table):
    frame = spark.read.format("lance").schema("s string, id bigint").load(table)
    assert frame.filter("id = 1").collect() == [("row 1", 1)]
    with pytest.raises(AnalysisException, match="'id' is bigint, not string"):
        spark.read.format("lance").schema("id string").load(table).collect()
    with pytest.raises(AnalysisException, match="'nope' does not exist"):
        spark.read.format("lance").schema("nope int").load(table).collect()


def test_versions_and_tags(spark, table):
    dataset = lance_core.dataset(table)
    dataset.tags.create("first", 1)
    write_lance(spark.range(5), str(table) + " 2")
    lance_core.write_dataset(TABLE.slice(0, 1), table, mode="append")
    assert read_lance(spark, table).count() == 1001
    assert read_lance(spark, table, version=1).count() == 1000
    assert read_lance(spark, table, tag="first").count() == 1000
    with pytest.raises(VersionNotFoundError, match="version 9"):
        read_lance(spark, table, version=9)
    with pytest.raises(RefNotFoundError, match="'second'"):
        read_lance(spark, table, tag="second")
    with pytest.raises(RefNotFoundError, match="'trial'"):
        read_lance(spark, table, branch="trial")


def test_a_frame_stays_at_its_version(spark, table):
    frame = read_lance(spark, table, columns=["id"])
    lance_core.dataset(table).delete("id >= 10")
    assert frame.count() == 1000
    assert read_lance(spark, table).count() == 10


def test_row_ids_and_addresses(spark, table):
    frame = read_lance(spark, table, columns=["id"], with_row_id=True, with_row_address=True, filter="id in (1, 301)")
    assert frame.columns == ["id", "_rowid", "_rowaddr"]
    assert sorted(map(tuple, frame.collect())) == [(1, 1, 1), (301, (1 << 32) + 1, (1 << 32) + 1)]


def test_an_empty_table(spark, uri):
    lance_core.write_dataset(TABLE.slice(0, 0), uri)
    assert read_lance(spark, uri).collect() == []


def test_there_is_no_dataset(spark, uri):
    with pytest.raises(DatasetNotFoundError, match="no Lance dataset"):
        read_lance(spark, uri)
    with pytest.raises(AnalysisException, match="no Lance dataset"):
        spark.read.format("lance").load(uri)
    with pytest.raises(AnalysisException, match="The path is missing"):
        spark.read.format("lance").load()
    with pytest.raises(AnalysisException, match="Unknown option 'versoin'"):
        spark.read.format("lance").option("versoin", 1).load(uri)


def test_filters_of_spark_do_not_stick_to_a_frame(spark, table):
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read_lance(spark, table)
        assert ids(frame.filter("id in (1, 2, 999) AND s LIKE 'row%' AND NOT id = 2")) == [1, 999]
        assert frame.count() == 1000
        assert frame.filter("id < 3").union(frame.filter("id < 5")).count() == 8
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
def test_points_in_time_do_not_depend_on_the_session(spark, uri, zone):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        write_lance(spark.sql("SELECT timestamp'2013-07-04 12:00:00Z' t, timestamp_ntz'2013-07-04 12:00:00' n"), uri)
        noon = dt.datetime(2013, 7, 4, 12, tzinfo=dt.UTC)
        assert lance_core.dataset(uri).to_table().to_pylist() == [{"t": noon, "n": noon.replace(tzinfo=None)}]
        hit = read_lance(spark, uri).filter("t = timestamp'2013-07-04 12:00:00Z'")
        assert hit.select("n").first()[0] == noon.replace(tzinfo=None)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_nullability_reaches_spark(spark, uri):
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.list_(pa.int64()))])
    lance_core.write_dataset(pa.table({"a": [1], "b": [[1, None]]}, schema=schema), uri)
    frame = read_lance(spark, uri)
    assert frame.schema == st.StructType(
        [st.StructField("a", st.LongType(), nullable=False), st.StructField("b", st.ArrayType(st.LongType()))]
    )
    assert frame.collect() == [(1, [1, None])]


def test_branches_and_files_in_other_places(spark, tmp_path):
    uri = str(tmp_path / "t")
    hot = lance_core.DatasetBasePath(str(tmp_path / "hot"), "hot")
    dataset = lance_core.write_dataset(
        pa.table({"id": range(10)}), uri, initial_bases=[hot], target_bases=["hot"], max_rows_per_file=5
    )
    branch = lance_core.write_dataset(pa.table({"id": range(10, 20)}), dataset.create_branch("b"), mode="append")
    branch.tags.create("t")
    assert ids(spark.read.format("lance").load(uri)) == list(range(10))
    assert ids(read_lance(spark, uri, tag="t")) == list(range(20))
    assert ids(spark.read.format("lance").load(branch.uri)) == list(range(20))
