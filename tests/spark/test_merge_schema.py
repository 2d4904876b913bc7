"""Appends that bring new columns: the option mergeSchema."""

from importlib.util import find_spec

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

import lance_core
from lance_core.errors import CommitConflictError, InvalidInputError, UnsupportedError
from lance_core.spark import read_lance_changes, write_lance
from lance_core.spark.functions import write as write_module
from lance_core.spark.writing import commit as commit_module
from tests.streams import run_stream

pytestmark = pytest.mark.spark


@pytest.fixture
def table(uri):
    """Two rows; what a DataFrame lacks of its columns is null."""

    def make(**options):
        rows = pa.table({"id": pa.array([1, 2], pa.int64()), "s": ["a", "b"]})
        lance_core.write_dataset(rows, uri, **options)
        return uri

    return make


@pytest.fixture
def wider(spark):
    """A row with a new column, and without an old one."""
    return spark.sql("SELECT 3L id, 7 n")


def rows(uri):
    """By both libraries, which must agree."""
    found = lance.dataset(uri).to_table().sort_by("id").to_pylist()
    assert lance_core.dataset(uri).to_table().sort_by("id").to_pylist() == found
    return found


WIDER_ROWS = [{"id": 1, "s": "a", "n": None}, {"id": 2, "s": "b", "n": None}, {"id": 3, "s": None, "n": 7}]


@pytest.mark.parametrize("option", ["mergeSchema", "merge-schema", "merge_schema"])
def test_new_columns_are_null_in_rows_that_exist(wider, table, option):
    uri = table()
    wider.write.format("lance").mode("append").option(option, "true").save(uri)
    assert rows(uri) == WIDER_ROWS
    assert lance_core.dataset(uri).version == 3  # the columns, then the rows
    wider.write.format("lance").mode("append").option(option, "true").save(uri)
    assert lance_core.dataset(uri).version == 4


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("stable", [False, True])
def test_columns_of_many_types(spark, table, version, stable):
    uri = table(data_storage_version=version, enable_stable_row_ids=stable)
    frame = spark.sql(
        "SELECT 3L id, 'c' s, array(float(1), float(2)) v, named_struct('a', 1, 'b', array('x')) t, X'0102' y, "
        "TIMESTAMP_NTZ '2026-01-31 12:00:00' m, 1.25 d"
    ).withMetadata("v", {"arrow.fixed-size-list.size": 2})
    if version == "2.0":
        with pytest.raises(UnsupportedError, match="cannot add 't': null structs need data files"):
            write_lance(frame, uri, merge_schema=True)
        frame = frame.withColumn("t", F.col("t.b"))
    done = write_lance(frame, uri, merge_schema=True)
    first, _, last = rows(uri)
    assert [first[name] for name in "vtymd"] == [None] * 5
    struct = ["x"] if version == "2.0" else {"a": 1, "b": ["x"]}
    assert (last["v"], last["t"], last["y"], str(last["d"])) == ([1.0, 2.0], struct, b"\1\2", "1.25")
    assert lance_core.dataset(uri).schema.field("v").type == pa.list_(pa.float32(), 2)
    assert (done.version, done.num_rows) == (3, 1)
    lance.dataset(uri).optimize.compact_files()
    assert rows(uri)[2] == last


def test_new_blobs(spark, table):
    uri = table()
    write_lance(
        spark.sql("SELECT 3L id, X'0102' y").withMetadata("y", {"lance-encoding:blob": "true"}), uri, merge_schema=True
    )
    assert [one.read() for one in lance.dataset(uri).take_blobs("y", indices=[2])] == [b"\1\2"]
    assert lance_core.dataset(uri).count_rows("y is null") == 2


def test_new_fields_of_structs(spark, uri):
    write_lance(spark.sql("SELECT 1L id, named_struct('a', 1, 'in', named_struct('x', 1)) t"), uri)
    wider = spark.sql("SELECT 2L id, named_struct('b', 'new', 'in', named_struct('y', 2, 'x', 3), 'a', 4) t")
    with pytest.raises(InvalidInputError, match="column 't' is struct<"):
        write_lance(wider, uri)
    write_lance(wider, uri, merge_schema=True)
    assert [row["t"] for row in rows(uri)] == [
        {"a": 1, "in": {"x": 1, "y": None}, "b": None},
        {"a": 4, "in": {"x": 3, "y": 2}, "b": "new"},
    ]
    write_lance(wider, uri, mode="overwrite", data_storage_version="2.1")
    with pytest.raises(UnsupportedError, match="cannot add fields to column 't'"):
        write_lance(spark.sql("SELECT 1L id, named_struct('c', 1) t"), uri, merge_schema=True)
    assert lance_core.dataset(uri).version == 4


def test_without_the_option_unknown_columns_are_refused(wider, table, data_files):
    uri = table()
    before = data_files()
    with pytest.raises(InvalidInputError, match=r"'n' does not exist in the table; .* option mergeSchema \(merge_sch"):
        write_lance(wider, uri)
    with pytest.raises(AnalysisException, match="option mergeSchema"):
        wider.write.format("lance").mode("append").save(uri)
    assert (lance_core.dataset(uri).version, data_files()) == (1, before)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 3L id, 5 s, 7 n", "column 's' is int, the table has string"),
        ("SELECT 'x' id, 7 n", "column 'id' is string, the table has int64"),
        ("SELECT 3L id, 7 N, 8 S", "column 's' is int, the table has string"),
        ("SELECT 3L id, 7 _rowid", "'_rowid' is reserved"),
        ("SELECT 7 n", "column 'id' is missing"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(spark, uri, data_files, query, message):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("s", pa.string())])
    lance_core.write_dataset(pa.table({"id": [1], "s": ["a"]}, schema), uri)
    before = data_files()
    with pytest.raises(InvalidInputError, match=message):
        write_lance(spark.sql(query), uri, merge_schema=True)
    with pytest.raises(AnalysisException, match=message):
        spark.sql(query).write.format("lance").mode("append").option("mergeSchema", "true").save(uri)
    assert (lance_core.dataset(uri).version, data_files()) == (1, before)


def test_a_failed_task_leaves_the_columns_as_they_were(spark, table, data_files):
    uri = table()
    before = data_files()
    with pytest.raises(Exception, match="no, not this"):
        write_lance(spark.sql("SELECT 3L id, raise_error('no, not this') n"), uri, merge_schema=True)
    assert (lance_core.dataset(uri).version, data_files()) == (1, before)


def test_killed_between_the_columns_and_the_rows(wider, table, monkeypatch):
    uri = table()

    class Killed(BaseException):
        pass

    def killed(*_args, **_options):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(commit_module, "_commit_operation", killed)
        with pytest.raises(Killed):
            write_lance(wider, uri, merge_schema=True, idempotency_key="k")
    assert rows(uri) == WIDER_ROWS[:2]
    assert write_lance(wider, uri, merge_schema=True, idempotency_key="k").written
    assert not write_lance(wider, uri, merge_schema=True, idempotency_key="k").written
    assert (rows(uri), lance_core.dataset(uri).version) == (WIDER_ROWS, 3)


@pytest.fixture
def meanwhile(monkeypatch):
    """Lets something happen when all rows are staged, and nothing is committed."""

    def meanwhile(call):
        publish = write_module.publish

        def later(*args):
            call()
            return publish(*args)

        monkeypatch.setattr(write_module, "publish", later)

    return meanwhile


def test_others_append_or_add_the_same_column_meanwhile(wider, table, meanwhile):
    uri = table()

    def others():
        lance_core.write_dataset(pa.table({"id": [0], "s": ["z"]}), uri, mode="append")
        lance.dataset(uri).add_columns(pa.field("n", pa.int32()))

    meanwhile(others)
    write_lance(wider, uri, merge_schema=True)
    assert rows(uri) == [{"id": 0, "s": "z", "n": None}, *WIDER_ROWS]
    assert lance_core.dataset(uri).version == 4


@pytest.mark.parametrize("kind", [pa.int32(), pa.string()])
def test_others_add_another_column_meanwhile(wider, table, meanwhile, data_files, kind):
    uri = table()
    before = data_files()
    meanwhile(lambda: lance_core.dataset(uri).add_columns(pa.field("n" if kind == pa.string() else "m", kind)))
    with pytest.raises(CommitConflictError, match="another writer changed the columns"):
        write_lance(wider, uri, merge_schema=True)
    assert (lance_core.dataset(uri).version, data_files()) == (2, before)


def test_new_columns_while_some_rows_are_replaced(spark, table):
    uri = table()
    with pytest.raises(InvalidInputError, match="'merge_schema' does not apply to mode 'overwrite'"):
        write_lance(spark.sql("SELECT 2L id, 7 n"), uri, mode="overwrite", merge_schema=True)
    write_lance(spark.sql("SELECT 2L id, 7 n"), uri, replace_where="id = 2", merge_schema=True)
    assert rows(uri) == [WIDER_ROWS[0], {"id": 2, "s": None, "n": 7}]
    write_lance(spark.sql("SELECT 1L id, 'x' m"), uri, partition_overwrite_by=["id"], merge_schema=True)
    assert rows(uri)[0] == {"id": 1, "s": None, "n": None, "m": "x"}


def test_readers_of_changes_see_the_new_rows_only(spark, wider, table):
    uri = table()
    write_lance(wider, uri, merge_schema=True)
    assert [row.asDict() for row in read_lance_changes(spark, uri, 1).select("id", "n", "_change_type").collect()] == [
        {"id": 3, "n": 7, "_change_type": "insert"}
    ]


@pytest.mark.skipif(find_spec("pyspark.sql.streaming.datasource") is None, reason="streaming reads need pyspark 4.2")
def test_streams_add_columns_with_their_first_rows(spark, table, tmp_path):
    uri = table()
    source = str(tmp_path / "source")
    lance_core.write_dataset(pa.table({"id": pa.array([3], pa.int64()), "n": pa.array([7], pa.int32())}), source)
    lance_core.write_dataset(
        pa.table({"id": pa.array([4], pa.int64()), "n": pa.array([8], pa.int32())}), source, mode="append"
    )
    stream = spark.readStream.format("lance").option("maxRowsPerBatch", 1).option("startingVersion", "earliest")
    writer = stream.load(source).writeStream.format("lance").option("checkpointLocation", tmp_path / "checkpoint")
    run_stream(lambda: writer.option("mergeSchema", "true").trigger(availableNow=True).start(uri))
    assert rows(uri) == [*WIDER_ROWS, {"id": 4, "s": None, "n": 8}]
    assert lance_core.dataset(uri).version == 4
