"""Aggregations whose first half runs in the scan: answers compared with Parquet, and what tasks return."""

import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import DecimalType, DoubleType, LongType, StructField, StructType

import lance_core
from lance_core.spark.common.read_options import ReadOptions
from lance_core.spark.reading import aggregates
from lance_core.spark.reading.aggregates import LanceAggregateReader, Partials
from tests.spark.test_planner import make_rows, plan

pytestmark = pytest.mark.spark

VALUES = ["i", "t", "id", "d", "e", "w", "d * (1 - d)", "d * e", "e + d - 2.5"]
FUNCTIONS = [
    *(f"{name}({value})" for name in ("sum", "avg", "count", "min", "max") for value in VALUES),
    *(f"{name}({value})" for name in ("min", "max", "count") for value in ("day", "at")),
    *("count(*)", "count(1)", "count(s)", "count(x)", "count(o)", "sum(id) / count(*)", "avg(d) + max(e)"),
]
"""Functions that a scan can begin."""
OTHERS = [
    "min(s)",
    "max(o)",
    "min(x)",
    "sum(id + 1)",
    "sum(d / 3)",
    "sum(d * w)",
    "count(i, t)",
    "sum(st.a)",
    "count(st)",
]
KEYS = ["i", "t", "s", "o", "d", "day", "at"]
CONDITIONS = ["true", "i > 2", "s LIKE 'a%'", "d IS NOT NULL AND o", "id < 0"]


@pytest.fixture(scope="module")
def tables(spark, tmp_path_factory):
    """The same rows as views ``l`` of Lance and ``p`` of Parquet."""
    folder = tmp_path_factory.mktemp("aggregates")
    pick = random.Random(3)
    rows = make_rows(400)
    more = {"e": pa.decimal128(15, 2), "w": pa.decimal128(30, 4)}
    for name, kind in more.items():
        digits = 10 ** (kind.precision - 1)
        numbers = [Decimal(pick.randint(-digits, digits)).scaleb(-kind.scale) for _ in range(400)]
        rows = rows.append_column(name, pa.array([pick.choice([None, number]) for number in numbers], kind))
    lance_core.write_dataset(rows, str(folder / "l"), max_rows_per_file=150).delete("id >= 390")
    pq.write_table(rows.slice(0, 390), folder / "p.parquet")
    spark.read.format("lance").load(str(folder / "l")).createOrReplaceTempView("l")
    spark.read.parquet(str(folder / "p.parquet")).createOrReplaceTempView("p")
    return str(folder / "l")


def answers(spark, text):
    """The rows over Lance and over Parquet, and whether the first scan aggregates."""
    frames = [spark.sql(text.replace("{t}", view)) for view in "lp"]
    mine, truth = (sorted(map(str, frame.collect())) for frame in frames)
    return mine, truth, " grouped" in plan(frames[0])


def random_query(pick, functions):
    chosen, keys = pick.sample(functions, 4), pick.sample(KEYS, pick.randint(0, 2))
    columns = ", ".join([*keys, *(f"{function} AS c{i}" for i, function in enumerate(chosen))])
    groups = f"GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {columns} FROM {{t}} WHERE {pick.choice(CONDITIONS)} {groups}"  # noqa: S608


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.usefixtures("tables")
def test_aggregations_begin_in_the_scan_with_the_same_answers(spark, ansi):
    pick = random.Random(int(ansi == "true"))
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for _ in range(16):
            query = random_query(pick, FUNCTIONS)
            mine, truth, is_grouped = answers(spark, query)
            assert (mine, is_grouped) == (truth, True), query
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.usefixtures("tables")
def test_other_aggregations_are_left_to_spark(spark, seed):
    pick = random.Random(seed)
    mine, truth, _ = answers(spark, random_query(pick, [*FUNCTIONS, *OTHERS]))
    assert mine == truth
    other = f"SELECT {pick.choice(OTHERS)}, count(*) FROM {{t}} GROUP BY s"  # noqa: S608
    mine, truth, is_grouped = answers(spark, other)
    assert (mine, is_grouped) == (truth, False), other


@pytest.mark.parametrize(
    ("query", "begins"),
    [
        ("SELECT DISTINCT s, o FROM {t}", True),
        ("SELECT s, sum(d) FROM {t} GROUP BY s HAVING count(*) > 40 ORDER BY 2", True),
        ("SELECT i, (SELECT max(id) FROM {t}) FROM {t} WHERE id < 5", True),
        ("SELECT a.id FROM {t} a WHERE a.id < (SELECT 2 * avg(b.id) FROM {t} b WHERE b.s = a.s)", True),
        ("SELECT s, try_sum(w), try_avg(d) FROM {t} GROUP BY s", True),
        ("SELECT s, sum(d) FILTER (WHERE o), count(*) FROM {t} GROUP BY s", False),
        ("SELECT count(DISTINCT i), sum(i) FROM {t}", False),
        ("SELECT s, count(*) FROM (SELECT * FROM {t} LIMIT 400) GROUP BY s", False),
        ("SELECT upper(s), sum(i) FROM {t} WHERE upper(s) = 'A' GROUP BY s", False),
        ("SELECT x, count(*) FROM {t} GROUP BY x", False),
        ("SELECT year(day), sum(i) FROM {t} GROUP BY year(day)", False),
        ("SELECT i, s, sum(d), grouping_id() FROM {t} GROUP BY CUBE (i, s)", False),
    ],
)
@pytest.mark.usefixtures("tables")
def test_only_plain_aggregations_begin_in_the_scan(spark, query, begins):
    mine, truth, is_grouped = answers(spark, query)
    assert (mine, is_grouped) == (truth, begins)


@pytest.mark.usefixtures("tables")
def test_a_sum_that_overflows_is_an_error_as_in_spark(spark, tmp_path):
    lance_core.write_dataset(pa.table({"n": pa.array([2**62, 2**62, 5], pa.int64())}), tmp_path / "t")
    frame = spark.read.format("lance").load(str(tmp_path / "t"))
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        frame.selectExpr("sum(n)").collect()
    assert frame.selectExpr("try_sum(n)", "avg(n)").collect()[0][:] == (None, 2**63 / 3)


def partial_rows(path, types, functions, arguments, groups=(), **options):
    """What the tasks of an aggregation return."""
    schema = StructType([StructField(name, kind) for name, kind in types.items()])
    columns = [*groups, *{text.strip("`") for text in arguments if text}]
    partials = Partials(groups=groups, columns=columns, functions=functions, arguments=arguments)
    reader = LanceAggregateReader(ReadOptions(path=str(path), **options), schema, partials)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_tasks_return_one_row_for_each_group(tmp_path):
    lance_core.write_dataset(pa.table({"k": [1, 1, None, 1, None], "n": [1, 2, 3, None, 5]}), tmp_path / "t")
    types = {"k": LongType(), "a": LongType(), "b": LongType(), "c": LongType(), "d": DoubleType()}
    functions, arguments = ["sum", "count", "count_all", "sum"], ["`n`", "`n`", "", "`n`"]
    rows = partial_rows(tmp_path / "t", types, functions, arguments, ["k"])
    assert rows == [{"k": 1, "a": 3, "b": 2, "c": 3, "d": 3.0}, {"k": None, "a": 8, "b": 2, "c": 2, "d": 8.0}]


@pytest.mark.parametrize(
    ("values", "target", "count"),
    [
        (pa.array([2**61, 2**61], pa.int64()), LongType(), 1),
        (pa.array([2**62, 2**62], pa.int64()), LongType(), 2),
        (pa.array([2**51, 2**51], pa.int64()), DoubleType(), 1),
        (pa.array([2**53, 1], pa.int64()), DoubleType(), 2),
        (pa.array([Decimal(10**36), Decimal(1)], pa.decimal128(38, 0)), DecimalType(38, 0), 1),
        (pa.array([Decimal(10**37), Decimal(1)], pa.decimal128(38, 0)), DecimalType(38, 0), 2),
    ],
)
def test_rows_whose_sum_might_not_fit_are_returned_one_by_one(tmp_path, values, target, count):
    lance_core.write_dataset(pa.table({"n": values}), tmp_path / "t")
    rows = partial_rows(tmp_path / "t", {"a": target}, ["sum"], ["`n`"])
    assert (len(rows), sum(int(row["a"]) for row in rows)) == (count, sum(map(int, values.to_pylist())))


def test_tasks_with_hardly_any_groups_of_rows_stop_grouping(tmp_path, monkeypatch):
    monkeypatch.setattr(aggregates, "_ROWS", 4)
    lance_core.write_dataset(pa.table({"k": [1, 2, 3, 4, 5, 5, 5, 5], "n": [1] * 8}), tmp_path / "t")
    types = {"k": LongType(), "a": LongType()}
    rows = partial_rows(tmp_path / "t", types, ["count_all"], [""], ["k"], batch_size=4)
    assert rows == [{"k": k, "a": 1} for k in (1, 2, 3, 4, 5, 5, 5, 5)]
