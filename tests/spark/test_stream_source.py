import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import lance_core
from lance_core.spark import write_lance

pytestmark = pytest.mark.spark


def rows(*numbers):
    return pa.table({"id": pa.array(numbers, pa.int64()), "s": [f"row {number}" for number in numbers]})


class Follower:
    """A query that copies what a stream reads into a Lance table; it goes on where it stopped."""

    def __init__(self, spark, source, tmp_path, **options):
        self.spark, self.source, self.options = spark, source, options
        self.sink = str(tmp_path / "copy")
        self.checkpoint = str(tmp_path / "checkpoint")
        self.sizes = []

    def run(self):
        stream = self.spark.readStream.format("lance").options(**self.options).load(self.source)
        query = (
            stream.select("id")
            .writeStream.format("lance")
            .option("checkpointLocation", self.checkpoint)
            .trigger(availableNow=True)
            .start(self.sink)
        )
        query.awaitTermination(240)
        self.sizes += [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
        return self

    def ids(self):
        try:
            return sorted(lance_core.dataset(self.sink).to_table()["id"].to_pylist())
        except lance_core.errors.DatasetNotFoundError:
            return []


@pytest.fixture
def follow(spark, uri, tmp_path):
    def make(**options):
        return Follower(spark, uri, tmp_path, **options)

    return make


def test_the_table_first_then_what_is_added(uri, follow):
    lance_core.write_dataset(rows(1, 2, 3), uri, max_rows_per_file=2)
    lance_core.dataset(uri).delete("id = 2")
    query = follow().run()
    assert query.ids() == [1, 3]
    lance_core.write_dataset(rows(4), uri, mode="append")
    lance_core.dataset(uri).optimize.compact_files()  # changes no rows
    lance_core.dataset(uri).update_config({"a": "b"})
    lance_core.write_dataset(rows(5, 6), uri, mode="append")
    assert query.run().ids() == [1, 3, 4, 5, 6]
    assert query.run().ids() == [1, 3, 4, 5, 6]
    properties = lance_core.dataset(query.sink).read_transaction(2).transaction_properties
    assert properties["lance.streaming.epochId"] == "1"


def test_micro_batches_have_as_many_rows_as_allowed(uri, follow):
    lance_core.write_dataset(rows(*range(10)), uri, max_rows_per_file=4)
    lance_core.write_dataset(rows(*range(10, 13)), uri, mode="append")
    query = follow(maxRowsPerBatch=5, startingVersion="earliest").run()
    assert query.sizes == [5, 5, 3]
    assert query.ids() == list(range(13))


def test_a_stream_begins_at_a_version_a_tag_or_now(uri, follow, tmp_path):
    lance_core.write_dataset(rows(1), uri)
    lance_core.write_dataset(rows(2), uri, mode="append")
    lance_core.dataset(uri).tags.create("second", 2)
    lance_core.write_dataset(rows(3), uri, mode="append")
    query = follow(starting_version="second").run()
    assert query.ids() == [2, 3]
    late = Follower(query.spark, uri, tmp_path / "late", starting_version="latest")
    late.run()
    lance_core.write_dataset(rows(4), uri, mode="append")
    assert late.run().ids() == [4]


@pytest.mark.parametrize(
    ("change", "options", "expected"),
    [
        (lambda table: table.delete("id = 1"), {"ignoreDeletes": "true"}, [1, 2, 9]),
        (lambda table: table.update({"s": "'new'"}, where="id = 1"), {"ignoreChanges": "true"}, [1, 1, 2, 9]),
        (lambda table: table.update({"s": "'new'"}, where="id = 1"), {"skipChangeCommits": "true"}, [1, 2, 9]),
    ],
)
def test_changes_of_rows_stop_a_stream_unless_it_is_said_what_to_do(uri, follow, change, options, expected):
    lance_core.write_dataset(rows(1, 2), uri)
    query = follow().run()
    change(lance_core.dataset(uri))
    lance_core.write_dataset(rows(9), uri, mode="append")
    with pytest.raises(StreamingQueryException, match="version 2 changed or deleted rows"):
        query.run()
    query.options = options
    assert query.run().ids() == expected


def test_versions_that_were_cleaned_up_are_missed(uri, follow):
    lance_core.write_dataset(rows(1), uri)
    query = follow().run()
    for number in (2, 3):
        lance_core.write_dataset(rows(number), uri, mode="append")
    lance_core.dataset(uri).cleanup_old_versions(retain_versions=1, older_than=None, delete_unverified=True)
    with pytest.raises(
        StreamingQueryException, match="version 2, which this stream was to read next, has been cleaned"
    ):
        query.run()


def test_a_new_schema_needs_a_new_query(uri, follow):
    lance_core.write_dataset(rows(1), uri)
    lance_core.dataset(uri).add_columns({"more": "id + 1"})
    query = follow(starting_version="1").run()
    assert query.ids() == [1]
    lance_core.dataset(uri).drop_columns(["id"])
    with pytest.raises(Exception, match="id"):
        query.run()


def test_options_for_batches_are_refused(spark, uri):
    write_lance(spark.range(1), uri)
    stream = spark.readStream.format("lance").option("version", 1).load(uri)
    with pytest.raises(StreamingQueryException, match="version mean nothing for a stream"):
        stream.writeStream.format("noop").option("checkpointLocation", uri + "-c").start().processAllAvailable()
