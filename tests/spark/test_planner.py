"""The planner rule: what it pushes into scans, and answers of queries compared with Parquet."""

import datetime as dt
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lance_core
from lance_core.spark import read_lance

pytestmark = pytest.mark.spark

UTC = dt.UTC
MOMENTS = [dt.datetime(2020, 3, 1, hour, 30, tzinfo=UTC) for hour in range(12)]
ODD = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.5, -2.25, None]
TEXTS = ["", "a", "ab", "a%b", "it's", "é", "b\\c", None, "_x", "ab\nc"]


def make_rows(count):
    pick = random.Random(7)
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "i": pa.array([pick.choice([None, *range(-3, 9)]) for _ in range(count)], pa.int32()),
            "t": pa.array([pick.choice([None, -128, 0, 1, 127]) for _ in range(count)], pa.int8()),
            "x": pa.array([pick.choice(ODD) for _ in range(count)], pa.float64()),
            "f": pa.array([pick.choice(ODD) for _ in range(count)], pa.float32()),
            "s": pa.array([pick.choice(TEXTS) for _ in range(count)], pa.string()),
            "o": pa.array([pick.choice([True, False, None]) for _ in range(count)], pa.bool_()),
            "d": pa.array(
                [pick.choice([None, Decimal("1.23"), Decimal("-7.00")]) for _ in range(count)], pa.decimal128(9, 2)
            ),
            "day": pa.array([pick.choice([None, *(m.date() for m in MOMENTS)]) for _ in range(count)], pa.date32()),
            "at": pa.array([pick.choice([None, *MOMENTS]) for _ in range(count)], pa.timestamp("us", "UTC")),
            "st": pa.array(
                [
                    pick.choice([None, {"a": None, "b": None}, {"a": i % 5, "b": {"c": str(i % 3)}}])
                    for i in range(count)
                ],
                pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))]),
            ),
        }
    )


LEAVES = [
    *(f"i {op} {n}" for op in ("=", "<>", "<", "<=", ">", ">=", "<=>") for n in (-1, 4)),
    *(f"{c} {op} {n}" for c in "xf" for op in ("=", "<>", "<", "<=", ">", ">=") for n in ("0.0D", "1.5D", "-0.0D")),
    *(f"s {op} '{t}'" for op in ("=", "<", ">=") for t in ("ab", "a%b", "é")),
    *("x = double('nan')", "x > double('inf')", "f < float(1.5)", "5 > i", "t = 127", "t < 1", "t > 300"),
    *("s LIKE 'a%'", "s LIKE '%b'", "s LIKE '%a%'", "s LIKE 'a_b'", "s LIKE 'a\\\\%b'", "s = 'it\\'s'", "s = 'b\\\\c'"),
    *("startswith(s, 'a')", "contains(s, '%')", "s IN ('a', 'é')", "s NOT IN ('a', 'ab')", "s IN ('a', NULL)"),
    *("i IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)", "i IN (1, NULL)", "i NOT IN (1, NULL)", "i NOT IN (1, 2)"),
    *("o", "NOT o", "o IS NULL", "o = false", "o <=> NULL", "i IS NULL", "x IS NOT NULL", "st IS NULL"),
    *("d = 1.23", "d < 0", "d >= -7.00", "d > 1.234", "d IN (1.23, 5)", "d BETWEEN -8 AND 1"),
    *(
        "day = DATE '2020-03-01'",
        "day > '2020-02-29'",
        "at < TIMESTAMP '2020-03-01 01:00:00'",
        "at <= '2020-03-01 05:30:00'",
    ),
    *("at = TIMESTAMP '2020-03-01 04:30:00Z'", "year(at) = 2020", "at >= day", "upper(s) = 'AB'", "i + 1 > 3"),
    *(
        "st.a = 3",
        "st.a < 2",
        "st.b.c = '1'",
        "st.b IS NOT NULL",
        "st.b.c IS NULL",
        "i < t",
        "i = st.a",
        "x > f",
        "i <=> t",
    ),
    *("CAST(NULL AS BOOLEAN)", "true", "false", "i = 1 OR NULL", "NOT (i = 1 AND NULL)"),
]


def conditions(count):
    pick = random.Random(1)
    yield from LEAVES
    for _ in range(count - len(LEAVES)):
        first, second, third = (pick.choice(LEAVES) for _ in range(3))
        shape = pick.choice(
            ["{0} AND {1}", "{0} OR {1}", "NOT ({0} AND {1})", "({0} OR {1}) AND {2}", "NOT ({0}) OR {1}"]
        )
        yield shape.format(f"({first})", f"({second})", f"({third})")


@pytest.fixture(scope="module")
def tables(spark, tmp_path_factory):
    """The same rows as views: ``lance`` and ``parquet``."""
    folder = tmp_path_factory.mktemp("planner")
    rows = make_rows(400)
    lance_core.write_dataset(rows, str(folder / "l"), max_rows_per_file=150)
    dataset = lance_core.dataset(str(folder / "l"))
    dataset.delete("id >= 390")
    pq.write_table(rows.slice(0, 390), folder / "p.parquet")
    spark.read.format("lance").load(str(folder / "l")).createOrReplaceTempView("lance")
    spark.read.parquet(str(folder / "p.parquet")).createOrReplaceTempView("parquet")
    # Spark loses rows that are NaN when it pushes a comparison with NaN into Parquet.
    spark.conf.set("spark.sql.parquet.filterPushdown", "false")
    yield str(folder / "l")
    spark.conf.unset("spark.sql.parquet.filterPushdown")


def plan(frame):
    return frame._jdf.queryExecution().toString()


def both(spark, query):
    frames = [spark.sql(query.format(t=name)) for name in ("lance", "parquet")]
    mine, truth = (sorted(map(str, frame.collect())) for frame in frames)
    assert mine == truth, query
    return frames[0]


def in_batches(items, size):
    items = list(items)
    return [items[start : start + size] for start in range(0, len(items), size)]


SUMMARY = ("count(*)", "sum(id)", "sum(i)", "count(a)")


def of_scans(spark, conditions):
    """Summaries of the rows that scans return, each with its condition."""
    scans = [f"SELECT {q} AS q, id, i, st.a FROM lance WHERE {text}" for q, text in enumerate(conditions)]  # noqa: S608
    rows = spark.sql(f"SELECT q, {', '.join(SUMMARY)} FROM ({' UNION ALL '.join(scans)}) GROUP BY q").collect()  # noqa: S608
    found = {q: values for q, *values in rows}
    return [found.get(q, [0, None, None, 0]) for q in range(len(conditions))]


def without_source(spark, conditions):
    """The same summaries: Spark finds the conditions true or not in rows that it has read."""
    values = [f"{one} FILTER (WHERE {text})" for text in conditions for one in SUMMARY]
    (row,) = spark.sql(f"SELECT {', '.join(values)} FROM (SELECT *, st.a FROM parquet)").collect()  # noqa: S608
    return [list(part) for part in in_batches(row, len(SUMMARY))]


@pytest.mark.parametrize("batch", range(8))
@pytest.mark.usefixtures("tables")
def test_conditions_keep_the_rows_that_spark_keeps(spark, batch):
    parts = in_batches(conditions(240), 30)[batch]
    mine, truth = of_scans(spark, parts), without_source(spark, parts)
    assert [one for one in zip(parts, mine, truth, strict=True) if one[1] != one[2]] == []
    assert len({str(one) for one in truth}) > 3


QUERIES = [
    "SELECT count(*), count(1) + 1, count('x') FROM {t}",
    "SELECT count(*), sum(id) FROM {t}",
    "SELECT count(*) FROM {t} WHERE i > 3",
    "SELECT count(*) FROM {t} WHERE upper(s) = 'AB' AND i > 3",
    "SELECT count(*) FROM (SELECT * FROM {t} WHERE i > 3 LIMIT 5)",
    "SELECT count(DISTINCT i), count(s) FROM {t}",
    "SELECT i, count(*) FROM {t} WHERE s IS NOT NULL GROUP BY i",
    "SELECT st.a, st.b.c FROM {t} WHERE st.b.c = '1'",
    "SELECT st.b, st.b.c, st.a FROM {t}",
    "SELECT st, st.a FROM {t} WHERE id < 9",
    "SELECT a.id FROM {t} a JOIN {t} b ON a.id = b.id AND a.i > 3 WHERE b.s LIKE 'a%'",
    "SELECT a.id, b.s FROM {t} a LEFT JOIN {t} b ON a.id = b.id AND b.i > 5 WHERE a.t = 1",
    "SELECT id FROM {t} WHERE id IN (SELECT max(id) FROM {t} WHERE t = 1 GROUP BY i)",
    "SELECT id FROM {t} a WHERE EXISTS (SELECT 1 FROM {t} b WHERE b.i = a.t AND b.id > a.id AND b.o)",
    "SELECT id FROM {t} WHERE i NOT IN (SELECT i FROM {t} WHERE i > 6)",
    "SELECT id, (SELECT count(*) FROM {t}), (SELECT max(i) FROM {t} WHERE o) FROM {t} WHERE id < 5",
    "WITH c AS (SELECT i, id FROM {t} WHERE o) SELECT x.id FROM c x JOIN c y ON x.id = y.id + 1",
    "SELECT id FROM {t} WHERE i = 2 UNION SELECT id FROM {t} WHERE t = 1",
    "SELECT id, row_number() OVER (PARTITION BY i ORDER BY id) FROM {t} WHERE o",
    "SELECT id FROM {t} WHERE i > 1 ORDER BY id DESC LIMIT 7",
    "SELECT id FROM (SELECT * FROM {t} ORDER BY id LIMIT 20) WHERE i > 1",
    "SELECT sum(id) FROM {t} HAVING count(*) > 3",
    "SELECT i, grouping(i), count(*) FROM {t} WHERE id < 50 GROUP BY ROLLUP (i)",
    "SELECT explode(array(i, t)), id FROM {t} WHERE id < 20",
]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.usefixtures("tables")
def test_queries_have_the_same_answers_as_over_parquet(spark, query):
    both(spark, query)


@pytest.mark.usefixtures("tables")
def test_scans_have_the_columns_conditions_and_limits_of_the_query(spark):
    assert "RelationV2[id#" in plan(spark.sql("SELECT sum(id) FROM lance WHERE i > 3 AND s LIKE 'a%'"))
    text = plan(spark.sql("SELECT id FROM lance WHERE i > 3 AND upper(s) = 'A'"))
    assert "Filter (upper(s" in text
    assert "(`i` > 3)" in text
    nested = plan(spark.sql("SELECT st.b.c FROM lance"))
    assert "RelationV2[st.b.c#" in nested
    assert "OneRowRelation" in plan(spark.sql("SELECT count(*) FROM lance"))


@pytest.mark.usefixtures("tables")
def test_small_tables_are_broadcast(spark):
    frame = spark.sql("SELECT a.id FROM lance a JOIN lance b ON a.id = b.id")
    assert "BroadcastHashJoin" in plan(frame)


@pytest.mark.parametrize(
    ("values", "threshold", "is_broadcast"),
    [
        (np.random.default_rng(0).integers(0, 1 << 60, 4000), 48_000, True),  # stored: 32 KB, as rows: 64 KB
        (np.zeros(4000, np.int64), 12_000, False),  # stored: hardly anything
    ],
)
def test_tables_are_broadcast_by_their_stored_size(spark, tmp_path, values, threshold, is_broadcast):
    """As Spark does with Parquet; but a table that packs well is not taken for tiny, since it is held as rows."""
    lance_core.write_dataset(pa.table({"id": values}), tmp_path / "t")
    frame = spark.range(1 << 40).join(spark.read.format("lance").load(str(tmp_path / "t")), "id")
    before = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", threshold)
    try:
        assert ("BroadcastHashJoin" in plan(frame)) == is_broadcast
    finally:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", before)


def test_an_option_and_a_setting_turn_the_rule_off(spark, tables):
    off = spark.read.format("lance").option("pushdown", "false").load(tables).where("i > 3").select("id")
    assert "Filter" in plan(off).split("== Optimized Logical Plan ==")[1]
    spark.conf.set("spark.lance.pushdown", "false")
    try:
        assert "OneRowRelation" not in plan(spark.sql("SELECT count(*) FROM lance"))
    finally:
        spark.conf.unset("spark.lance.pushdown")


def test_frames_with_columns_a_filter_or_a_limit_keep_them(spark, tables):
    frame = read_lance(spark, tables, columns=["id", "st.a"], filter="id < 100")
    assert frame.where("`st.a` = 3").count() == spark.sql("SELECT 1 FROM parquet WHERE id < 100 AND st.a = 3").count()
    limited = read_lance(spark, tables, limit=10)
    assert (limited.count(), limited.where("id >= 5").count(), limited.limit(3).count()) == (10, 5, 3)


@pytest.mark.usefixtures("tables")
def test_a_cached_frame_and_a_repeated_one_are_right(spark):
    frame = spark.table("lance").where("i > 3")
    count = spark.table("parquet").where("i > 3").count()
    cached = frame.cache()
    assert [cached.count(), frame.where("id = 3").count(), frame.count()] == [
        count,
        spark.sql("SELECT 1 FROM parquet WHERE i > 3 AND id = 3").count(),
        count,
    ]
    cached.unpersist()
