"""Floats in queries of Spark: NaN equals NaN and is the largest, -0.0 equals 0.0, whatever bits the table has."""

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.spark import merge_lance, read_lance

pytestmark = pytest.mark.spark

VALUES = np.array([-np.nan, -np.inf, -1.5, -0.0, 0.0, 1.5, np.inf, np.nan, 7.0])
NAN, ZERO = "double('NaN')", "-0.0D"
CONDITIONS = [
    *(
        f"x {operator} {value}"
        for operator in ("=", "<>", "<", "<=", ">", ">=", "<=>")
        for value in (NAN, ZERO, "1.5D")
    ),
    f"x IN ({NAN}, {ZERO})",
    f"x NOT IN ({NAN}, {ZERO})",
    f"x BETWEEN {ZERO} AND {NAN}",
    f"x NOT BETWEEN -1.5D AND {ZERO}",
    f"NOT (x > {ZERO}) OR x IS NULL",
    "x IS NULL",
    "x IS NOT NULL AND isnan(x)",
    f"y < float('NaN') AND x >= {ZERO}",
    f"st.x = {NAN}",
]


@pytest.fixture(params=["filters are pushed down", "filters are not pushed down"])
def pushdown(request, spark):
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, str(request.param == "filters are pushed down").lower())
    yield
    spark.conf.set(name, "false")


@pytest.fixture
def rows():
    x = pa.array(VALUES, mask=np.arange(9) == 8)
    struct = pa.StructArray.from_arrays([x], names=["x"])
    return pa.table({"i": range(9), "x": x, "y": x.cast(pa.float32()), "st": struct})


@pytest.mark.usefixtures("pushdown")
def test_conditions_of_spark_choose_the_rows_that_they_choose_without_a_source(spark, uri, rows):
    dataset = lance_core.write_dataset(rows, uri, max_rows_per_file=4)
    dataset.create_scalar_index("x", "ZONEMAP")
    spark.createDataFrame(rows).createOrReplaceTempView("plain")
    spark.read.format("lance").load(uri).createOrReplaceTempView("newest")
    read_lance(spark, uri).createOrReplaceTempView("fixed")

    flags = [f"({condition}) AS c{number}" for number, condition in enumerate(CONDITIONS)]
    found = spark.table("plain").selectExpr("i", *flags).collect()
    expected = {text: sorted(row.i for row in found if row[f"c{n}"]) for n, text in enumerate(CONDITIONS)}

    def chosen(view):
        parts = [
            spark.table(view).where(condition).selectExpr(f"{number} AS n", "i")
            for number, condition in enumerate(CONDITIONS)
        ]
        every = parts[0]
        for part in parts[1:]:
            every = every.union(part)
        found = {condition: [] for condition in CONDITIONS}
        for number, i in every.collect():
            found[CONDITIONS[number]].append(i)
        return {condition: sorted(ids) for condition, ids in found.items()}

    assert expected[f"x = {NAN}"] == [0, 7]
    assert expected[f"x >= {ZERO}"] == [0, 3, 4, 5, 6, 7]
    assert chosen("newest") == chosen("fixed") == expected


def test_the_option_filter_compares_as_lance_does(spark, uri, rows):
    lance_core.write_dataset(rows, uri)
    found = {text: read_lance(spark, uri, filter=text).select("i").collect() for text in ("x > 1.5", "x >= 0.0")}
    assert {text: sorted(row.i for row in ids) for text, ids in found.items()} == {
        text: lance_core.dataset(uri).to_table(columns=["i"], filter=text)["i"].to_pylist() for text in found
    }


@pytest.mark.parametrize("stable", [False, True])
def test_merges_match_float_keys_as_spark_does(spark, uri, rows, stable):
    table = rows.select(["i", "x"]).slice(0, 8)
    lance_core.write_dataset(table, uri, enable_stable_row_ids=stable)
    source = spark.sql(f"SELECT explode(array({NAN}, 0.0D, 2.5D)) AS x, 100L AS i")
    done = merge_lance(source, uri, "x").when_matched_update({"i": "target.i + source.i"}).when_not_matched_insert_all()
    result = done.execute()
    assert (result.num_updated_rows, result.num_inserted_rows) == (4, 1)
    kept = lance_core.dataset(uri).to_table().sort_by("i")
    assert kept["i"].to_pylist() == [1, 2, 5, 6, 100, 100, 103, 104, 107]
    bits = {
        i: int(x.view(np.uint64)) for i, x in zip(kept["i"].to_pylist(), kept["x"].to_numpy(), strict=True) if i > 100
    }
    assert bits == {i + 100: int(VALUES[i].view(np.uint64)) for i in (3, 4, 7)}
