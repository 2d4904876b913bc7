"""Plain SQL on a catalog of Lance tables: no jar, and no Python but that of the data source."""

import pytest
from pyspark.errors import AnalysisException, PySparkException

import lance_core
from lance_core.spark import register

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def sql(new_session, root):
    """Runs statements in a session with the catalog ``lance``; the rows as tuples."""
    session = new_session(**{"catalog.lance": "lance_core.LanceCatalog", "catalog.lance.root": str(root)})
    register(session)
    register(session)
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
