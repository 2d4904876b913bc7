"""How many tasks write a DataFrame: the planner rule puts tiny partitions together."""

import pytest
from pyspark.sql import functions as F  # noqa: N812

import lance_core
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.spark import write_lance
from lance_core.spark.common.options import WriteOptions, parse_options

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]


def files(uri):
    return len(lance_core.dataset(uri).get_fragments())


@pytest.fixture
def tiny(spark):
    return spark.range(0, 240, numPartitions=24)


def test_tiny_partitions_are_put_together(tiny, uri, spark):
    assert write_lance(tiny, uri).num_fragments == 8
    tiny.write.format("lance").mode("append").save(uri)
    assert files(uri) == 16
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW tiny USING lance OPTIONS (path '{uri}')")
    tiny.createOrReplaceTempView("more")
    spark.sql("INSERT INTO tiny SELECT * FROM more WHERE id >= 0")
    assert (files(uri), lance_core.dataset(uri).count_rows()) == (24, 720)


def test_tasks_stay_as_they_are_if_asked_for_or_made_by_the_user(tiny, uri):
    assert write_lance(tiny, uri, mode="overwrite", distribution="none").num_fragments == 24
    assert write_lance(tiny.repartition(12), uri, mode="overwrite").num_fragments == 12
    python = F.udf(lambda number: number, "bigint")
    assert write_lance(tiny.select(python("id").alias("id")), uri, mode="overwrite").num_fragments == 24


def test_rows_stay_sorted_within_the_tasks_that_are_left(tiny, uri):
    assert write_lance(tiny, uri, sort_by="id").num_fragments == 8
    for fragment in lance_core.dataset(uri).get_fragments():
        ids = fragment.to_table()["id"].to_pylist()
        assert ids == sorted(ids)


def test_an_option_balances_the_rows_of_appends_and_overwrites(tiny, uri):
    for mode in ("append", "overwrite"):
        tiny.write.format("lance").mode(mode).option("Distribution", "balance").save(uri)
        assert files(uri) <= 2
    assert lance_core.dataset(uri).count_rows() == 240


def test_balance_is_an_error_where_no_rule_takes_it(uri):
    with pytest.raises(UnsupportedError, match="classic session"):
        parse_options(WriteOptions, {"path": uri, "distribution": "balance"})
    with pytest.raises(InvalidInputError, match="auto, none or balance"):
        parse_options(WriteOptions, {"path": uri, "distribution": "range"})


@pytest.mark.parametrize("text", ["targetFileSize", "target_file_size", "target-file-size-bytes"])
def test_the_size_of_files_has_the_names_of_other_formats_and_units(uri, text):
    assert parse_options(WriteOptions, {"path": uri, text: "64MB"}).max_bytes_per_file == 64 << 20
    with pytest.raises(InvalidInputError, match="such as 134217728 or 128m"):
        parse_options(WriteOptions, {"path": uri, text: "64 apples"})
