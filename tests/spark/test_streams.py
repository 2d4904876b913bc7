from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import lance_core
from tests.streams import run_stream

pytestmark = pytest.mark.spark


def rows(*numbers):
    return pa.table({"id": pa.array(numbers, pa.int64()), "s": [f"row {number}" for number in numbers]})


@pytest.fixture
def copy(spark, uri, tmp_path):
    """A query that copies what a stream reads into another table; it goes on where it stopped."""
    target = str(tmp_path / "copy")

    def run(mode="append", **options):
        stream = spark.readStream.format("lance").options(**options).load(uri)
        chosen = stream.select("id") if mode == "append" else stream.groupBy("s").count()
        writer = (
            chosen.writeStream.format("lance").outputMode(mode).option("checkpointLocation", tmp_path / "checkpoint")
        )
        query = run_stream(lambda: writer.trigger(availableNow=True).start(target))
        copied = lance_core.dataset(target)
        return copied, [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]

    return run


def ids(dataset):
    return sorted(dataset.to_table()["id"].to_pylist())


def test_rows_arrive_once_even_if_a_batch_is_replayed(uri, copy, tmp_path):
    lance_core.write_dataset(rows(*range(10)), uri, max_rows_per_file=4)
    copied, sizes = copy(maxRowsPerBatch=7, startingVersion="earliest")
    assert (ids(copied), sizes, copied.version) == (list(range(10)), [7, 3], 2)
    for mark in Path(tmp_path, "checkpoint", "commits").glob("*1*"):
        mark.unlink()  # as if Spark had been killed after the sink's commit
    lance_core.write_dataset(rows(10), uri, mode="append")
    copied, sizes = copy(maxRowsPerBatch=7)
    assert (ids(copied), sizes, copied.version) == (list(range(11)), [3, 1], 3)
    assert copied.read_transaction(3).transaction_properties["lance.streaming.epochId"] == "2"
    assert len(list(Path(copied.uri, "data").iterdir())) == sum(len(one.data_files()) for one in copied.get_fragments())
    lance_core.dataset(uri).delete("id = 1")
    with pytest.raises(StreamingQueryException, match="version 3 changed or deleted rows"):
        copy()


def test_a_complete_result_replaces_the_last_one(uri, copy):
    lance_core.write_dataset(pa.table({"s": ["a", "b", "a"]}), uri)
    copied, _ = copy("complete")
    assert sorted((row["s"], row["count"]) for row in copied.to_table().to_pylist()) == [("a", 2), ("b", 1)]
    lance_core.write_dataset(pa.table({"s": ["b", "c"]}), uri, mode="append")
    copied, _ = copy("complete")
    assert sorted((row["s"], row["count"]) for row in copied.to_table().to_pylist()) == [("a", 2), ("b", 2), ("c", 1)]
