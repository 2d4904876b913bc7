"""Merges that Spark works out, compared with what each clause means for each row."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

import lance_core
from lance_core.errors import InvalidInputError
from lance_core.spark import merge_lance
from lance_core.spark.functions import staged_work

pytestmark = pytest.mark.spark


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def table(request, uri):
    rows = pa.table({"id": range(100), "v": [i * 10 for i in range(100)], "s": [f"old {i}" for i in range(100)]})
    made = lance_core.write_dataset(rows, uri, max_rows_per_file=30, enable_stable_row_ids=request.param)
    made.delete("id = 50")
    return made


@pytest.fixture
def source(spark):
    """Keys 90 to 109 and no key at all; lacks the column s."""
    rows = spark.range(90, 110, numPartitions=2).selectExpr("id", "id * 1000 v")
    return rows.union(spark.sql("select cast(null as bigint), 5L"))


def contents(table):
    now = lance_core.dataset(table.uri)
    return {row["id"]: (row["v"], row["s"]) for row in now.to_table().to_pylist()}


def files(table):
    return sorted(str(path) for path in Path(table.uri).rglob("*") if path.is_file())


def test_an_upsert_keeps_what_the_source_does_not_have(table, source):
    before = contents(table)
    ids = table.to_table(columns=["id"], with_row_id=True)
    merge = merge_lance(source, table.uri, "id", commit_message="daily", idempotency_key="day 1")
    done = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    expected = {**before, **{i: (i * 1000, f"old {i}") for i in range(90, 100)}}
    expected |= {i: (i * 1000, None) for i in range(100, 110)} | {None: (5, None)}
    assert contents(table) == expected
    assert (done.version, done.num_inserted_rows, done.num_updated_rows, done.num_deleted_rows) == (3, 11, 10, 0)
    assert lance_core.dataset(table.uri).count_rows() == 110
    if table.has_stable_row_ids:
        now = lance_core.dataset(table.uri).to_table(columns=["id"], with_row_id=True)
        after = dict(zip(now["id"].to_pylist(), now["_rowid"].to_pylist(), strict=True))
        assert all(after[i] == row for i, row in zip(ids["id"].to_pylist(), ids["_rowid"].to_pylist(), strict=True))
        assert len(set(after.values())) == 110
    again = merge_lance(source, table.uri, "id", idempotency_key="day 1").when_matched_delete().execute()
    assert (again.version, again.written) == (3, False)


def test_clauses_with_conditions_are_tried_in_their_order(table, source):
    before = contents(table)
    done = (
        merge_lance(source, table.uri, on=["id"])
        .when_matched_delete("source.id = 95")
        .when_matched_update({"s": "concat('new ', source.v, ' was ', target.v)"}, "target.v > 930")
        .when_not_matched_insert({"id": "id", "s": "'fresh'"}, "id < 105")
        .when_not_matched_by_source_update({"s": "upper(s)"}, "id % 10 = 3")
        .when_not_matched_by_source_delete("target.id < 20")
        .execute()
    )
    expected = {}
    for i, (v, s) in before.items():
        if i == 95 or (i < 20 and i % 10 != 3):
            continue
        changed = f"new {i * 1000} was {v}" if i > 93 else s.upper() if i < 90 and i % 10 == 3 else s
        expected[i] = (v, changed)
    assert contents(table) == expected | dict.fromkeys(range(100, 105), (None, "fresh"))
    assert (done.num_inserted_rows, done.num_updated_rows, done.num_deleted_rows) == (5, 6 - 1 + 9, 1 + 18)


def test_a_source_in_sync_leaves_only_its_own_rows(table, source):
    merge_lance(source.withColumn("s", F.lit("x")), table.uri, "id").when_matched_update_all(
        "source.v > 95000"
    ).when_not_matched_insert_all().when_not_matched_by_source_delete().execute()
    found = contents(table)
    assert found.keys() == {*range(90, 110), None}
    assert {i for i, (_, s) in found.items() if s == "x"} == {*range(96, 110), None}


def test_a_row_that_two_rows_of_the_source_would_change(spark, table, source):
    before = files(table)
    twice = source.union(spark.sql("select 90L, 1L"))
    with pytest.raises(Exception, match="several rows of the DataFrame change one row"):
        merge_lance(twice, table.uri, "id").when_matched_update_all().execute()
    assert files(table) == before
    done = merge_lance(twice, table.uri, "id").when_matched_update_all("source.v = 1").execute()
    assert (done.num_updated_rows, contents(table)[90]) == (1, (1, "old 90"))


def test_rows_of_one_key_are_not_inserted_twice(spark, table, source):
    before = files(table)
    twice = source.union(spark.sql("select 105L, 1L"))
    upsert = merge_lance(twice, table.uri, "id").when_matched_update_all().when_not_matched_insert_all()
    with pytest.raises(Exception, match="more than one row of the DataFrame has the same new key"):
        upsert.execute()
    assert files(table) == before
    merge = merge_lance(twice, table.uri, "id").when_matched_update_all()
    assert merge.when_not_matched_insert_all("source.v <> 1").execute().num_inserted_rows == 11
    kept = merge_lance(spark.sql("select explode(array(200L, 200L)) as id"), table.uri, "id")
    assert kept.when_not_matched_insert_all().execute().num_inserted_rows == 2


def test_a_match_that_must_not_be(table, source):
    before = files(table)
    with pytest.raises(Exception, match="already has a row with the key"):
        merge_lance(source, table.uri, "id").when_matched_fail().when_not_matched_insert_all().execute()
    assert files(table) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda merge: merge, "has no action"),
        (lambda merge: merge.when_matched_delete().when_matched_update_all(), "follows one without"),
        (lambda merge: merge.when_matched_update({"nope": "1"}), "no column nope"),
        (lambda merge: merge.when_matched_update_all("v > 3"), r"Write 'source\.v' or 'target\.v'"),
        (lambda merge: merge.when_matched_update_all("source.v >"), "as SQL"),
        (lambda merge: merge.when_matched_update_all("target.x = 1"), "no column x"),
    ],
)
def test_merges_that_make_no_sense_are_refused_before_any_task_runs(table, source, change, message):
    with pytest.raises(InvalidInputError, match=message):
        change(merge_lance(source, table.uri, "id")).execute()
    assert lance_core.dataset(table.uri).version == 2


def test_sources_that_do_not_fit_are_refused(table, source):
    with pytest.raises(InvalidInputError, match="'v' is string"):
        merge_lance(source.withColumn("v", F.lit("a")), table.uri, "id").when_matched_update_all().execute()
    with pytest.raises(InvalidInputError, match="'more' does not exist"):
        merge_lance(source.withColumn("more", F.lit(1)), table.uri, "id").when_matched_update_all().execute()
    with pytest.raises(InvalidInputError, match="DataFrame lacks the key column s"):
        merge_lance(source, table.uri, "s").when_matched_update_all().execute()


def test_a_commit_in_between_makes_spark_join_again(table, source, monkeypatch):
    original, runs = staged_work.run_staging, []

    def run(df, job):
        staged = original(df, job)
        runs.append(job.read_version)
        if len(runs) == 1:
            rows = pa.table({"id": [105], "v": [1], "s": ["theirs"]})
            lance_core.write_dataset(rows, table.uri, mode="append")
        return staged

    monkeypatch.setattr(staged_work, "run_staging", run)
    merge = merge_lance(source, table.uri, "id").when_matched_update_all().when_not_matched_insert_all()
    done = merge.execute()
    assert (runs, done.attempts, done.version) == ([2, 3], 2, 4)
    assert contents(table)[105] == (105000, "theirs")
    known = {
        f.path
        for v in range(1, 5)
        for one in lance_core.dataset(table.uri, v).get_fragments()
        for f in one.data_files()
    }
    assert {Path(name).name for name in files(table) if "/data/" in name} == known


def test_a_merge_within_a_part_of_the_table(spark, table):
    """Keys 20 to 29 are looked at; 5 has a partner outside, which stays."""
    before = contents(table)
    source = spark.createDataFrame([(20, 1, "a"), (21, 1, "b")], "id long, v long, s string")
    merge = merge_lance(source, table.uri, "id", within="id >= 20 and id < 30").when_matched_update_all()
    done = merge.when_not_matched_by_source_delete("target.v >= 280").execute()
    expected = {**before, 20: (1, "a"), 21: (1, "b")}
    assert contents(table) == {i: row for i, row in expected.items() if i not in {28, 29}}
    assert (done.num_updated_rows, done.num_deleted_rows) == (2, 2)

    by_text = merge_lance(source.withColumn("s", F.lit("old 5")), table.uri, "s", within="id >= 20 and id < 30")
    by_text.when_matched_update({"v": "0"}).when_not_matched_insert_all("source.id = 21").execute()
    now = lance_core.dataset(table.uri)
    assert now.count_rows("s = 'old 5'") == 2
    assert now.count_rows("id = 5 and v = 50") == 1


def test_rows_outside_of_the_part_are_refused(table, source):
    before = files(table)
    merge = merge_lance(source, table.uri, "id", within="id < 105").when_matched_update_all()
    with pytest.raises(Exception, match=r"do not match within='id < 105', the first has \{'id': 10\d\}"):
        merge.when_not_matched_insert_all("source.id is not null").execute()
    moved = merge_lance(source, table.uri, "id", within="v < 5000").when_matched_update_all()
    with pytest.raises(Exception, match="do not match within='v < 5000'"):
        moved.execute()
    with pytest.raises(InvalidInputError, match="nope"):
        merge_lance(source, table.uri, "id", within="nope = 1").when_matched_delete().execute()
    assert files(table) == before


def test_vectors_and_nested_columns_survive(spark, uri):
    schema = pa.schema(
        [
            ("id", pa.int32()),
            ("e", pa.list_(pa.float32(), 2)),
            ("n", pa.struct([("a", pa.list_(pa.string()))])),
            ("u", pa.uint8()),
            ("t", pa.timestamp("ms")),
        ]
    )
    rows = [{"id": i, "e": [i, 1.0], "n": {"a": [str(i), None]}, "u": i, "t": i * 1000} for i in range(5)]
    lance_core.write_dataset(pa.Table.from_pylist(rows, schema), uri)
    source = spark.createDataFrame([(3, 200)], "id int, u smallint")
    merge_lance(source, uri, "id").when_matched_update_all().execute()
    now = lance_core.dataset(uri).to_table().sort_by("id")
    expected = pa.Table.from_pylist([{**row, "u": 200 if row["id"] == 3 else row["u"]} for row in rows], schema)
    assert now.to_pylist() == expected.to_pylist()
    assert now.schema == schema
