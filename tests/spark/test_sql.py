"""Plain SQL on a catalog of Lance tables: no jar, and no Python but that of the data source."""

import shutil

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F  # noqa: N812

import lance_core
from lance_core.spark import register

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def session(new_session, root):
    """A session with the catalog ``lance``."""
    session = new_session(**{"catalog.lance": "lance_core.LanceCatalog", "catalog.lance.root": str(root)})
    register(session)
    register(session)
    return session


@pytest.fixture(scope="module")
def sql(session):
    """Runs statements; the rows as tuples."""
    return lambda text: [tuple(row) for row in session.sql(text).collect()]


def test_rows_are_inserted_changed_and_read_by_version(sql, root):
    sql("CREATE TABLE lance.db.t (id BIGINT, s STRING, day DATE) USING lance")
    sql("CREATE TABLE IF NOT EXISTS lance.db.t (id BIGINT)")
    sql("INSERT INTO lance.db.t VALUES (1, 'a', DATE '2020-01-01'), (2, 'b', DATE '2020-01-02'), (3, 'c', NULL)")
    sql("INSERT INTO lance.db.t (s, id) VALUES ('d', 4)")
    sql("DELETE FROM lance.db.t WHERE day = '2020-01-02'")
    sql("UPDATE lance.db.t SET s = concat(s, '!') WHERE day IS NULL")
    sql(
        "MERGE INTO lance.db.t AS t USING (SELECT * FROM VALUES (1, 'x'), (9, 'y') AS v (id, w)) v ON t.id = v.id "
        "WHEN MATCHED THEN UPDATE SET s = v.w WHEN NOT MATCHED THEN INSERT (id, s) VALUES (v.id, v.w) "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 4 THEN DELETE"
    )
    assert sql("SELECT id, s FROM lance.db.t ORDER BY id") == [(1, "x"), (3, "c!"), (9, "y")]
    operations = [row[0] for row in sql("SELECT operation FROM lance.db.t.history ORDER BY version")]
    assert operations == ["Overwrite", "Append", "Append", "Delete", "Update", "Update"]
    assert sql("SELECT count(*) FROM lance.db.t VERSION AS OF 3") == [(4,)]
    path = root / "db" / "t.lance"
    lance_core.dataset(path).tags.create("before", 4)
    assert sql("SELECT sum(id) FROM lance.`$` VERSION AS OF 'before'".replace("$", str(path))) == [(8,)]
    assert sql("SELECT count(*) FROM lance.db.t TIMESTAMP AS OF current_timestamp()") == [(3,)]
    sql("INSERT OVERWRITE lance.db.t SELECT 7, 'z', NULL")
    assert sql("SELECT id, s FROM lance.db.t") == [(7, "z")]
    assert lance_core.dataset(path).schema == lance_core.dataset(path, 1).schema


def test_changes_keep_stable_row_ids_and_see_subqueries(sql, root):
    sql(
        "CREATE TABLE lance.db.u USING lance TBLPROPERTIES ('enable_stable_row_ids' = 'true') "
        "AS SELECT id, string(id) AS s FROM range(10)"
    )
    before = dict(sql("SELECT id, _rowid FROM lance.db.u"))
    sql("UPDATE lance.db.u SET s = 'new' WHERE id > (SELECT avg(id) FROM lance.db.u)")
    sql(
        "MERGE INTO lance.db.u t USING (SELECT id FROM range(8, 12)) v ON t.id = v.id "
        "WHEN MATCHED THEN UPDATE SET s = 'both' WHEN NOT MATCHED THEN INSERT (id, s) VALUES (v.id, 'only')"
    )
    after = {number: (s, row_id) for number, s, row_id in sql("SELECT id, s, _rowid FROM lance.db.u")}
    assert {number: row_id for number, (_, row_id) in after.items() if number < 10} == before
    assert [after[number][0] for number in (4, 5, 8, 9, 10, 11)] == ["4", "new", "both", "both", "only", "only"]
    before_failure = lance_core.dataset(root / "db" / "u.lance").version
    with pytest.raises(PySparkException, match="MERGE_CARDINALITY_VIOLATION"):
        sql(
            "MERGE INTO lance.db.u t USING (SELECT explode(array(1, 1)) id) v ON t.id = v.id "
            "WHEN MATCHED THEN UPDATE SET s = 'twice'"
        )
    sql("DELETE FROM lance.db.u WHERE id = 1000")
    assert lance_core.dataset(root / "db" / "u.lance").version == before_failure


@pytest.fixture
def race(session, tmp_path):
    """Lets SQL call ``race(number)``, which returns the number, and another process commit when a task first does."""

    def make(commit):
        mark = tmp_path / "mark"

        def race(number):
            try:
                mark.mkdir()
            except FileExistsError:
                return number
            commit()
            return number

        session.udf.register("race", race, "bigint")

    return make


def orphans(uri):
    """Data files that no version names."""
    named = set()
    for entry in lance_core.dataset(uri).versions():
        for fragment in lance_core.dataset(uri, entry["version"]).snapshot.manifest.fragments:
            named |= {file.path for file in fragment.files}
    return {file.name for file in (uri / "data").iterdir()} - named


MERGE = "MERGE INTO $ t USING (SELECT race(id) id FROM range(3, 6)) s ON t.id = s.id"
INSERTS = "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, 60)"
RACES = {
    "UPDATE $ SET n = n + race(100) WHERE id < 2": ("update", [(0, 110), (1, 111), (2, 2), (3, 3)]),
    "DELETE FROM $ WHERE race(id) < 2 AND n < 11": ("update", [(1, 11), (2, 2), (3, 3)]),
    f"{MERGE} WHEN MATCHED THEN UPDATE SET n = 50 {INSERTS}": (
        "append",
        [(0, 0), (1, 1), (2, 2), (3, 50), (4, 50), (5, 60)],
    ),
    f"{MERGE} {INSERTS}": ("append", [(0, 0), (1, 1), (2, 2), (3, 3), (4, 44), (5, 60)]),
    "INSERT INTO $ SELECT race(9), 9": ("update", [(0, 10), (1, 11), (2, 2), (3, 3), (9, 9)]),
    "INSERT OVERWRITE $ SELECT race(9), 9": ("append", [(9, 9)]),
}
"""Statements, what another process commits while they run, and the rows that both leave."""


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
@pytest.mark.parametrize("statement", RACES)
def test_statements_that_meet_another_commit_are_run_again(sql, root, race, statement, stable):
    others, expected = RACES[statement]
    uri = root / "race.lance"
    shutil.rmtree(uri, ignore_errors=True)
    rows = pa.table({"id": pa.array(range(4)), "n": pa.array(range(4))})
    lance_core.write_dataset(rows, uri, enable_stable_row_ids=stable)

    def commit():
        if others == "update":
            lance_core.dataset(uri).update({"n": "n + 10"}, where="id < 2")
        else:
            lance_core.write_dataset(pa.table({"id": [4], "n": [44]}), uri, mode="append")

    race(commit)
    sql(statement.replace("$", "lance.race"))
    assert sorted(sql("SELECT id, n FROM lance.race")) == expected
    assert lance_core.dataset(uri).version == 3
    assert orphans(uri) == set()


def test_a_statement_fails_if_the_columns_have_changed_since(sql, root, race):
    uri = root / "columns.lance"
    lance_core.write_dataset(pa.table({"id": [1, 2]}), uri)

    def commit():
        dataset = lance_core.dataset(uri)
        dataset.update({"id": "id + 10"}, where="id = 1")
        lance_core.dataset(uri).add_columns({"m": "id * 2"})

    race(commit)
    with pytest.raises(PySparkException, match=r"CommitConflictError: .* Run the statement again"):
        sql("UPDATE lance.columns SET id = race(id) WHERE id = 1")
    assert lance_core.dataset(uri).version == 3
    assert orphans(uri) == set()


def test_inserts_of_tiny_partitions_make_few_files(session, sql, root):
    sql("CREATE TABLE lance.tiny (id BIGINT)")
    session.range(0, 240, numPartitions=24).createOrReplaceTempView("tiny_rows")
    sql("INSERT INTO lance.tiny SELECT * FROM tiny_rows")
    assert len(lance_core.dataset(root / "tiny.lance").get_fragments()) == 8
    sql("INSERT INTO lance.tiny WITH ('distribution' = 'balance') SELECT * FROM tiny_rows")
    assert len(lance_core.dataset(root / "tiny.lance").get_fragments()) <= 10


def test_tables_are_written_by_methods_of_dataframes(session, sql):
    rows = session.range(4).selectExpr("id", "string(id) AS name")
    rows.writeTo("lance.frames").create()
    rows.where("id = 1").writeTo("lance.frames").overwrite(F.col("id") == 1)
    rows.where("id = 3").write.insertInto("lance.frames")
    changes = rows.where("id < 3").withColumn("name", F.lit("new"))
    merge = changes.alias("s").mergeInto("lance.frames", F.expr("frames.id = s.id AND s.id <> 1"))
    merge.whenMatched().updateAll().whenNotMatched().insertAll().merge()
    assert sql("SELECT * FROM lance.frames ORDER BY id, name") == [
        *((0, "new"), (1, "1"), (1, "new"), (2, "new"), (3, "3"), (3, "3")),
    ]


def test_tables_are_listed_and_dropped_and_what_is_not_supported_is_refused(sql, root):
    sql("CREATE TABLE lance.other.v (id INT)")
    assert sql("SHOW TABLES IN lance.other") == [("other", "v", False)]
    assert ("other",) in sql("SHOW NAMESPACES IN lance")
    with pytest.raises(PySparkException, match="Use the address as the name: lance"):
        sql("CREATE TABLE lance.other.w (id INT) USING lance LOCATION '/tmp/x'")
    with pytest.raises(PySparkException, match="tables of format lance only, not parquet"):
        sql("CREATE TABLE lance.other.w (id INT) USING parquet")
    sql("DROP TABLE lance.other.v")
    assert not (root / "other" / "v.lance" / "_versions").exists()
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("SELECT * FROM lance.other.v")


def test_columns_that_are_declared_not_null_refuse_nulls(sql, root):
    sql("CREATE TABLE lance.strict (id BIGINT NOT NULL, s STRUCT<a: INT NOT NULL, b: INT>, t STRING)")
    uri = root / "strict.lance"
    assert [field.nullable for field in lance_core.dataset(uri).schema] == [False, True, True]
    assert [field.nullable for field in lance_core.dataset(uri).schema.field("s").type] == [False, True]
    sql("INSERT INTO lance.strict VALUES (1, named_struct('a', 2, 'b', NULL), NULL), (2, NULL, 'x')")
    for statement in (
        "INSERT INTO lance.strict SELECT if(id = 7, NULL, id), NULL, NULL FROM range(9)",
        "INSERT INTO lance.strict (t) VALUES ('y')",
        "UPDATE lance.strict SET id = if(t = 'x', NULL, 5)",
    ):
        with pytest.raises(PySparkException, match=r"(?i)null|id"):
            sql(statement)
    assert lance_core.dataset(uri).version == 2
    assert sql("SELECT id, s.a, t FROM lance.strict ORDER BY id") == [(1, 2, None), (2, None, "x")]
    assert "id BIGINT NOT NULL" in sql("SHOW CREATE TABLE lance.strict")[0][0]
    sql("CREATE TABLE lance.copied AS SELECT * FROM lance.strict")
    assert [field.nullable for field in lance_core.dataset(root / "copied.lance").schema] == [True, True, True]
