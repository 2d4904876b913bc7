import datetime as dt

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException

import lance_core
from lance_core.errors import DatasetNotFoundError, InvalidInputError, RefNotFoundError, VersionNotFoundError
from lance_core.spark import read_lance_changes

pytestmark = pytest.mark.spark

ROWS = pa.table({"id": pa.array([1, 2, 3, 4], pa.int64()), "s": ["a", "b", "c", "d"]})


def changes(spark, uri, *versions, **options):
    frame = read_lance_changes(spark, uri, *versions, **options)
    return sorted((row["_commit_version"], row["_change_type"], row["id"], row["s"]) for row in frame.collect())


@pytest.fixture
def table(uri):
    """Versions: 1 four rows, 2 delete, 3 update, 4 merge, 5 compaction, 6 overwrite."""

    def make(**options):
        dataset = lance_core.write_dataset(ROWS, uri, max_rows_per_file=2, **options)
        dataset.delete("id = 2")
        dataset.update({"s": "'new'"}, where="id = 3")
        upsert = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        upsert.execute(pa.table({"id": pa.array([4, 5], pa.int64()), "s": ["D", "E"]}))
        dataset = lance_core.dataset(uri)
        assert dataset.version == 4
        dataset.optimize.compact_files()
        lance_core.write_dataset(ROWS.slice(0, 1), uri, mode="overwrite")
        return uri

    return make


CREATED = [(1, "insert", 1, "a"), (1, "insert", 2, "b"), (1, "insert", 3, "c"), (1, "insert", 4, "d")]
DELETED = [(2, "delete", 2, "b")]


def overwritten(version):
    return [
        (version, "delete", 1, "a"),
        (version, "delete", 3, "new"),
        (version, "delete", 4, "D"),
        (version, "delete", 5, "E"),
        (version, "insert", 1, "a"),
    ]


def test_each_version_tells_what_it_changed(spark, table):
    uri = table(enable_stable_row_ids=True)
    last = lance_core.dataset(uri).version
    updated = [(3, "update_postimage", 3, "new"), (3, "update_preimage", 3, "c")]
    merged = [(4, "insert", 5, "E"), (4, "update_postimage", 4, "D"), (4, "update_preimage", 4, "d")]
    assert changes(spark, uri, 0) == [*CREATED, *DELETED, *updated, *merged, *overwritten(last)]
    assert changes(spark, uri, 2, 3) == updated
    assert changes(spark, uri, 4, last - 1) == []
    assert changes(spark, uri, 0, 4, filter="id = 4") == [(1, "insert", 4, "d"), *merged[1:]]


def test_without_stable_row_ids_an_update_is_a_delete_and_an_insert(spark, table):
    uri = table()
    last = lance_core.dataset(uri).version
    updated = [(3, "delete", 3, "c"), (3, "insert", 3, "new")]
    merged = [(4, "delete", 4, "d"), (4, "insert", 4, "D"), (4, "insert", 5, "E")]
    assert changes(spark, uri, 0) == [*CREATED, *DELETED, *updated, *merged, *overwritten(last)]


def test_names_and_types_are_those_of_delta(spark, table):
    uri = table()
    options = {"readChangeFeed": "true", "startingVersion": 2, "endingVersion": 2, "columns": '["s"]'}
    frame = spark.read.format("lance").options(**options).load(uri)
    assert frame.columns == ["s", "_change_type", "_commit_version", "_commit_timestamp"]
    (row,) = frame.collect()
    assert (row["s"], row["_change_type"], row["_commit_version"]) == ("b", "delete", 2)
    assert abs(row["_commit_timestamp"] - dt.datetime.now()) < dt.timedelta(hours=1)  # noqa: DTZ005 as Spark gives it
    counted = frame.groupBy("_change_type").count().collect()
    assert counted == [("delete", 1)]


def test_large_changes_are_cut(spark, uri):
    many = pa.table({"id": pa.array(range(1000), pa.int64()), "s": ["x"] * 1000})
    dataset = lance_core.write_dataset(many, uri, enable_stable_row_ids=True)
    dataset.delete("id % 2 = 0")
    frame = spark.read.format("lance").options(readChangeFeed=True, startingVersion=2, split_rows=100).load(uri)
    assert frame.rdd.getNumPartitions() > 5
    assert sorted(row["id"] for row in frame.collect()) == list(range(0, 1000, 2))


def test_the_version_before_the_first_change_must_be_there(spark, uri):
    for mode in ("create", "append", "append"):
        dataset = lance_core.write_dataset(pa.table({"id": [1]}), uri, mode=mode)
    dataset.cleanup_old_versions(older_than=dt.timedelta(0), retain_versions=1)
    with pytest.raises(VersionNotFoundError, match="need version 2, which has been cleaned up"):
        read_lance_changes(spark, uri, 2)


def test_what_cannot_be_told_is_refused(spark, table):
    uri = table()
    with pytest.raises(AnalysisException, match="'starting_version' must be a version number"):
        spark.read.format("lance").option("readChangeFeed", "true").load(uri)
    with pytest.raises(VersionNotFoundError, match="version 99"):
        read_lance_changes(spark, uri, 1, 99)
    with pytest.raises(InvalidInputError, match="no column 'nope'"):
        read_lance_changes(spark, uri, 1, columns=["nope"])
    with pytest.raises(RefNotFoundError, match="'trial'"):
        read_lance_changes(spark, uri, 1, branch="trial")
    with pytest.raises(DatasetNotFoundError, match="no Lance dataset"):
        read_lance_changes(spark, f"{uri}-other", 1)
    with pytest.raises(InvalidInputError, match="but the last version to read is 2"):
        read_lance_changes(spark, uri, 5, 2)
    with pytest.raises(AnalysisException, match="'tag' do not apply to a read of changes"):
        spark.read.format("lance").options(readChangeFeed="true", startingVersion=1, tag="x").load(uri)
    last = lance_core.dataset(uri).version
    lance_core.dataset(uri).drop_columns(["s"])
    lance_core.dataset(uri).add_columns({"s": "id"})
    with pytest.raises((AnalysisException, PythonException), match="no column 's' like that of version"):
        read_lance_changes(spark, uri, last - 1).collect()
