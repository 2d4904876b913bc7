"""Random queries over Lance and over Parquet: joins, subqueries, unions, windows, caches and micro-batches.

LANCE_TESTS=deep runs ten times as many.
"""

import os
import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lance_core
from lance_core.spark.common.options import parse_options
from lance_core.spark.common.read_options import ReadOptions
from lance_core.spark.reading.reader import LanceReader
from lance_core.spark.source import resolve
from tests.spark.test_planner import LEAVES, make_rows

pytestmark = pytest.mark.spark

NUM_BATCHES, BATCH = (40 if os.environ.get("LANCE_TESTS") == "deep" else 4), 10

# Conditions that mean the same with the name of a table before each column.
CONDITIONS = [text for text in LEAVES if not any(word in text for word in ("st.", "double(", "float(", "x ", "f "))]


# Where a name in angle brackets stands, a random text is put; "{t}" is the table. The answers have no order.
SHAPES = [
    "SELECT <columns> FROM <a> <kind> <b> ON a.id = b.id AND a.<key> <=> b.<key>",
    "SELECT a.<key>, count(*) AS n, max(b.id) AS m FROM <a> JOIN <b> ON a.i = b.t GROUP BY a.<key>",
    "SELECT id, <key> FROM {t} WHERE <one> UNION SELECT id, <key> FROM {t} WHERE <two>",
    "SELECT id FROM {t} WHERE <one> EXCEPT SELECT id FROM {t} WHERE <two>",
    "SELECT id, s FROM {t} WHERE (<one>) AND id IN (SELECT id FROM {t} WHERE <two>)",
    "SELECT id FROM {t} a WHERE EXISTS (SELECT 1 FROM {t} b WHERE a.<key> = b.<key> AND b.id > a.id + 300)",
    "SELECT id, (SELECT count(*) FROM {t} WHERE <two>) AS n FROM {t} WHERE <one>",
    "SELECT <column> AS c, count(*) AS n, sum(id) AS m FROM {t} WHERE <one> GROUP BY <column>",
    "SELECT id, rank() OVER (PARTITION BY <key> ORDER BY id) AS r FROM {t} WHERE <one>",
    "SELECT id, <column> AS c FROM {t} WHERE <one> ORDER BY id DESC LIMIT <limit>",
    "WITH c AS (SELECT * FROM {t} WHERE <one>) SELECT x.id, y.<key> FROM c x JOIN c y ON x.id = y.id + 1",
    "SELECT count(*) AS n, count(DISTINCT <key>) AS m FROM {t} WHERE <one>",
]
KINDS = {
    **dict.fromkeys(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"], "a.id, b.id AS other, b.s, a.st.a"),
    **dict.fromkeys(["LEFT SEMI JOIN", "LEFT ANTI JOIN"], "a.id, a.s"),
}


def make_query(pick):
    kind = pick.choice(list(KINDS))
    texts = {
        "a": "(SELECT * FROM {t} WHERE <one>) a",
        "b": "(SELECT * FROM {t} WHERE <two>) b",
        "one": pick.choice(CONDITIONS),
        "two": pick.choice(CONDITIONS),
        "kind": kind,
        "columns": KINDS[kind],
        "key": pick.choice(["id", "i", "t", "s", "day", "d"]),
        "column": pick.choice(["i", "t", "s", "o", "day", "st.a", "st.b.c"]),
        "limit": str(pick.randint(1, 40)),
    }
    query = pick.choice(SHAPES)
    for name, text in texts.items():
        query = query.replace(f"<{name}>", text)
    return query


def hashes(number, query):
    return f"SELECT {number} AS q, CAST(xxhash64(*) AS DECIMAL(38, 0)) AS h FROM ({query})"  # noqa: S608


@pytest.fixture(scope="module")
def tables(spark, tmp_path_factory):
    """The same rows as views ``l`` of Lance, with an index, and ``p`` of Parquet."""
    folder = tmp_path_factory.mktemp("queries")
    rows = make_rows(400)
    dataset = lance_core.write_dataset(rows, str(folder / "l"), max_rows_per_file=150)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("i", "BITMAP")
    dataset.delete("id >= 390")
    pq.write_table(rows.slice(0, 390), folder / "p.parquet")
    spark.read.format("lance").load(str(folder / "l")).createOrReplaceTempView("l")
    spark.read.parquet(str(folder / "p.parquet")).createOrReplaceTempView("p")
    return str(folder / "l")


def answers(spark, view, queries):
    """Number of rows of each query, and the sum of their hashes."""
    text = " UNION ALL ".join(hashes(number, query.replace("{t}", view)) for number, query in enumerate(queries))
    rows = spark.sql(f"SELECT q, count(*) AS n, sum(h) AS h FROM ({text}) GROUP BY q").collect()  # noqa: S608
    return {row.q: (row.n, row.h) for row in rows}


@pytest.mark.parametrize("batch", range(NUM_BATCHES))
@pytest.mark.usefixtures("tables")
def test_random_queries_have_the_same_answers_as_over_parquet(spark, batch):
    pick = random.Random(batch)
    queries = [make_query(pick) for _ in range(BATCH)]
    mine, truth = answers(spark, "l", queries), answers(spark, "p", queries)
    assert [(queries[q], mine.get(q), truth.get(q)) for q in range(BATCH) if mine.get(q) != truth.get(q)] == []
    assert truth


@pytest.mark.usefixtures("tables")
def test_queries_over_cached_views_are_right(spark):
    pick = random.Random(99)
    queries = [make_query(pick) for _ in range(4)]
    truth = answers(spark, "p", queries)
    spark.sql("CACHE TABLE cached_l AS SELECT * FROM l")
    try:
        assert answers(spark, "cached_l", queries) == answers(spark, "l", queries) == truth
    finally:
        spark.sql("UNCACHE TABLE cached_l")


@pytest.mark.usefixtures("tables")
def test_queries_within_micro_batches_are_right(spark, tmp_path):
    seen = []

    def look(frame, _):
        for view in "lp":
            table = frame.sparkSession.table(view).where("i > 3")
            seen.append(sorted(map(str, frame.join(table, "id").select("id", "s").collect())))

    spark.range(60).write.parquet(str(tmp_path / "arriving"))
    stream = spark.readStream.schema("id bigint").parquet(str(tmp_path / "arriving"))
    writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(look)
    writer.trigger(availableNow=True).start().awaitTermination()
    assert seen[0] == seen[1] != []


def test_few_rows_that_an_index_finds_are_read_once(tables, tmp_path):
    uri = shutil.copytree(tables, tmp_path / "l")
    condition = "(`id` = 7) AND (`i` IS NULL OR `i` IS NOT NULL)"
    options, schema = resolve(parse_options(ReadOptions, {"path": str(uri), "filter": condition}))
    reader = LanceReader(options, schema)
    (task,) = reader.partitions()
    shutil.rmtree(uri / "data")
    assert [row["id"] for batch in reader.read(task) for row in batch.to_pylist()] == [7]


def test_the_rule_understands_conditions_over_tables_without_indices(spark, uri, understands):
    lance_core.write_dataset(pa.table({"id": range(9), "a?": range(9)}), uri)
    lance_core.write_dataset(pa.table({"a?": range(9)}), uri + " odd")
    for path in (uri, uri + " odd"):
        frame = spark.read.format("lance").load(path)
        assert frame.where("`a?` > 6").count() == 2
    assert spark.read.format("lance").load(uri).where("id > 6").count() == 2
    assert understands()


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("SELECT * FROM $ WHERE id = 7", True),
        ("SELECT s, i + 1 FROM $ WHERE id IN (7, 8, 9) AND i IS NOT NULL LIMIT 5", True),
        ("SELECT count(*) FROM $ WHERE id = 7", True),
        ("SELECT s FROM $ WHERE id >= 0 AND s > 'a'", False),
    ],
)
@pytest.mark.usefixtures("tables")
def test_few_rows_that_an_index_finds_are_in_the_plan(spark, text, is_found):
    frame = spark.sql(text.replace("$", "l"))
    assert sorted(map(str, frame.collect())) == sorted(map(str, spark.sql(text.replace("$", "p")).collect()))
    assert ("LocalRelation" in frame._jdf.queryExecution().optimizedPlan().toString()) == is_found
