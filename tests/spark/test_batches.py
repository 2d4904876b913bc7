"""How many rows a batch has that a writing task gets: the planner rule bounds those of small rows by rows alone."""

import json

import pytest
from pyspark.sql import functions as F  # noqa: N812

from lance_core.spark import write_lance
from lance_core.spark.writing.sink import LanceWriter

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
NAME = "lance_staging_sizes"


@pytest.fixture
def sizes(spark, swapped, uri, tmp_path):
    """Writes a DataFrame of one partition; returns the rows of each batch."""
    path = tmp_path / "sizes"

    def write(self, iterator):
        got = []

        def noted():
            for batch in iterator:
                got.append(batch.num_rows)
                yield batch

        message = LanceWriter.write(self, noted())
        path.write_text(json.dumps(got))
        return message

    spark.dataSource.register(swapped(name=NAME, writer={"write": write}))

    def sizes(frame):
        frame.write.format(NAME).mode("append").save(uri)
        assert spark.sparkContext.getLocalProperty(BYTES) is None
        assert spark.sparkContext.getLocalProperty(ROWS) is None
        return json.loads(path.read_text())

    return sizes


@pytest.fixture
def numbers(spark):
    return spark.range(0, 5000, numPartitions=1)


def test_texts_come_in_batches_of_so_many_rows_that_long_ones_fit(numbers, sizes):
    got = sizes(numbers.selectExpr("id", "string(id) text", "struct(string(id) text) pair"))
    assert (max(got), sum(got)) == (2047, 5000)


def test_rows_of_one_width_come_in_batches_as_large_as_spark_allows(numbers, sizes, spark):
    fixed = numbers.selectExpr("id", "cast(id as decimal(20, 2)) price", "date'2020-01-01' day")
    assert sizes(fixed) == [5000]
    spark.conf.set(ROWS, "1000")
    try:
        assert sizes(fixed) == [1000] * 5
    finally:
        spark.conf.unset(ROWS)


def test_rows_that_come_from_memory_are_no_different(numbers, sizes):
    cached = numbers.selectExpr("id", "string(id) text").cache()
    assert max(sizes(cached.orderBy("text"))) == 2047
    cached.unpersist()


def test_the_users_limit_of_bytes_stays(numbers, sizes, spark):
    spark.conf.set(BYTES, "65536")
    try:
        assert max(sizes(numbers.selectExpr("id", "repeat('x', 1000) text"))) < 100
    finally:
        spark.conf.unset(BYTES)


@pytest.mark.parametrize("column", ["binary(string(id))", "array(id)", "map(id, id)"])
def test_batches_of_values_of_any_size_are_bounded_by_bytes(numbers, sizes, column):
    assert sizes(numbers.selectExpr("string(id) text", f"{column} value")) == [5000]


def test_batches_of_functions_that_run_in_the_same_tasks_stay_bounded_by_bytes(numbers, sizes):
    python = F.udf(lambda number: f"{number}", "string")
    made = numbers.select("id", python("id").alias("text"))
    assert sizes(made) == [5000]
    assert sizes(made.cache()) == [5000]
    made.unpersist()


def test_a_write_that_fails_changes_nothing_for_later_jobs(numbers, spark, uri):
    write_lance(numbers, uri)
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        numbers.selectExpr("1 DIV (id - 3) AS id").write.format("lance").mode("append").save(uri)
    assert spark.sparkContext.getLocalProperty(BYTES) is None
