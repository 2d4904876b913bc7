"""SQL about tables of the catalog rather than their rows: columns, properties, indices, versions, procedures."""

import pytest
from pyspark.errors import PySparkException

import lance_core
from lance_core.spark import LanceTable, register

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def session(new_session, root):
    """A session with the catalog ``lance``."""
    session = new_session(**{"catalog.lance": "lance_core.LanceCatalog", "catalog.lance.root": str(root)})
    register(session)
    return session


@pytest.fixture(scope="module")
def sql(session):
    """Runs statements; the rows as tuples."""
    return lambda text: [tuple(row) for row in session.sql(text).collect()]


@pytest.fixture
def refused(sql):
    """Asserts that statements are refused, by a part of the message."""

    def check(text, message):
        with pytest.raises(PySparkException, match=message):
            sql(text)

    return check


def test_columns_are_added_changed_and_dropped(sql, refused, root):
    sql("CREATE TABLE lance.a (id INT NOT NULL, s STRING COMMENT 'a text', st STRUCT<a: INT>)")
    sql("INSERT INTO lance.a VALUES (1, 'x', named_struct('a', 1))")
    sql("ALTER TABLE lance.a ADD COLUMNS (n INT COMMENT 'number', st.b STRING)")
    sql("ALTER TABLE lance.a RENAME COLUMN s TO text")
    sql("ALTER TABLE lance.a ALTER COLUMN id TYPE BIGINT")
    sql("ALTER TABLE lance.a ALTER COLUMN id DROP NOT NULL")
    sql("ALTER TABLE lance.a ALTER COLUMN n COMMENT 'how many'")
    sql("ALTER TABLE lance.a DROP COLUMN st.a")
    sql("ALTER TABLE lance.a DROP COLUMNS IF EXISTS (zz)")
    assert sql("DESCRIBE lance.a") == [
        ("id", "bigint", None),
        ("text", "string", "a text"),
        ("st", "struct<b:string>", None),
        ("n", "int", "how many"),
    ]
    assert sql("SELECT id, text, st.b, n FROM lance.a") == [(1, "x", None, None)]
    version = lance_core.dataset(root / "a.lance").version
    refused("ALTER TABLE lance.a ADD COLUMN m INT NOT NULL", "'m' cannot be NOT NULL")
    refused("ALTER TABLE lance.a ADD COLUMN m INT FIRST", "new columns are the last")
    refused("ALTER TABLE lance.a ADD COLUMN m INT DEFAULT 5", "have no DEFAULT")
    refused("ALTER TABLE lance.a ALTER COLUMN n SET DEFAULT 5", "(?i)default")
    refused("ALTER TABLE lance.a ADD COLUMN ID INT", "FIELD_ALREADY_EXISTS")
    refused("ALTER TABLE lance.a ALTER COLUMN n TYPE STRING", "cannot cast column 'n'")
    refused("ALTER TABLE lance.a RENAME TO b", "cannot be renamed")
    assert lance_core.dataset(root / "a.lance").version == version


def test_fields_called_element_are_not_taken_for_items_of_lists(sql):
    sql("CREATE TABLE lance.el (st STRUCT<element: STRUCT<x: INT>>, l ARRAY<STRUCT<x: INT>>)")
    sql("INSERT INTO lance.el VALUES (named_struct('element', named_struct('x', 1)), array(named_struct('x', 2)))")
    sql("ALTER TABLE lance.el ADD COLUMNS (st.element.y INT)")
    sql("ALTER TABLE lance.el RENAME COLUMN st.element.x TO z")
    sql("ALTER TABLE lance.el ALTER COLUMN l.element.x TYPE BIGINT")
    assert sql("DESCRIBE lance.el") == [
        ("st", "struct<element:struct<z:int,y:int>>", None),
        ("l", "array<struct<x:bigint>>", None),
    ]
    assert sql("SELECT st.element.z, st.element.y, l[0].x FROM lance.el") == [(1, None, 2)]


def test_properties_are_the_configuration_of_the_table(sql, refused, root):
    sql("CREATE TABLE lance.p (id INT) TBLPROPERTIES ('team' = 'x', 'enable_stable_row_ids' = 'true')")
    sql("ALTER TABLE lance.p SET TBLPROPERTIES ('team' = 'y', 'a.b' = 'c')")
    sql("ALTER TABLE lance.p UNSET TBLPROPERTIES ('a.b')")
    sql("COMMENT ON TABLE lance.p IS 'people'")
    assert lance_core.dataset(root / "p.lance").config() == {"team": "y", "comment": "people"}
    properties = dict(sql("SHOW TBLPROPERTIES lance.p"))
    assert (properties["team"], properties["enable_stable_row_ids"]) == ("y", "true")
    refused("ALTER TABLE lance.p SET TBLPROPERTIES ('enable_stable_row_ids' = 'false')", "cannot change")
    sql("CREATE TABLE lance.q TBLPROPERTIES ('team' = 'z', 'data_storage_version' = '2.1') AS SELECT 1 AS a")
    made = lance_core.dataset(root / "q.lance")
    assert (made.config(), made.data_storage_version, made.version) == ({"team": "z"}, "2.1", 1)


def test_a_statement_that_creates_or_replaces_a_table_is_one_commit(sql, refused, root):
    sql("CREATE TABLE lance.r AS SELECT id FROM range(5)")
    refused("CREATE TABLE lance.r AS SELECT 1 AS a", "ALREADY_EXISTS")
    refused("CREATE TABLE lance.fails AS SELECT raise_error('oh') AS a", "oh")
    assert not (root / "fails.lance" / "_versions").exists()
    sql("CREATE OR REPLACE TABLE lance.r AS SELECT id + 1 AS id, 'x' AS s FROM lance.r WHERE id > 2")
    assert sql("SELECT * FROM lance.r ORDER BY id") == [(4, "x"), (5, "x")]
    refused("REPLACE TABLE lance.r AS SELECT raise_error('oh') AS a", "oh")
    sql("REPLACE TABLE lance.r (id BIGINT NOT NULL)")
    assert [field.nullable for field in lance_core.dataset(root / "r.lance").schema] == [False]
    operations = [row[:3:2] for row in sql("DESCRIBE HISTORY lance.r")]
    assert operations == [(3, "Overwrite"), (2, "Overwrite"), (1, "Overwrite")]
    assert sql("SELECT count(*) FROM lance.r VERSION AS OF 1") == [(5,)]
    refused("CREATE TABLE lance.no (id INT, d DATE) PARTITIONED BY (d)", "no partitions: .*d.*sorts its rows")
    refused("REPLACE TABLE lance.nope AS SELECT 1 AS a", "TABLE_OR_VIEW_NOT_FOUND")


def test_rows_of_a_condition_are_replaced_and_all_are_truncated(sql, refused):
    sql("CREATE TABLE lance.w AS SELECT id, string(id) AS s, date_add(DATE '2020-01-01', int(id)) AS d FROM range(6)")
    sql(
        "INSERT INTO lance.w REPLACE WHERE id < 2 OR (s IN ('3', 'it''s') AND d >= '2020-01-02' AND s IS NOT NULL) "
        "SELECT 1L, 'new', DATE '2020-02-01'"
    )
    assert sorted(sql("SELECT id, s FROM lance.w")) == [(1, "new"), (2, "2"), (4, "4"), (5, "5")]
    refused("INSERT INTO lance.w REPLACE WHERE id = 1 SELECT 7L, 'x', NULL", "do not match replace_where")
    refused("INSERT INTO lance.w REPLACE WHERE id / 2 = 0.5D SELECT 1L, 'x', NULL", "(?i)does not support|translate")
    sql("TRUNCATE TABLE lance.w")
    assert sql("SELECT count(*) FROM lance.w") == [(0,)]
    assert [row[2] for row in sql("DESC HISTORY lance.w LIMIT 2")] == ["Delete", "Update"]


def test_indices_are_created_listed_and_dropped(sql, refused):
    sql("CREATE TABLE lance.i AS SELECT id, string(id) AS s FROM range(100)")
    sql("CREATE INDEX by_id ON lance.i (id)")
    sql("CREATE INDEX IF NOT EXISTS by_id ON lance.i (id)")
    sql("CREATE INDEX zones ON lance.i USING zonemap (s) OPTIONS (rows_per_zone = '50')")
    sql("INSERT INTO lance.i VALUES (100, 'x')")
    listed = [("by_id", "BTree", ["id"], 100, 1), ("zones", "ZoneMap", ["s"], 100, 1)]
    assert [row[:5] for row in sql("SELECT * FROM lance.i.indices ORDER BY index")] == listed
    refused("CREATE INDEX by_id ON lance.i (s)", "INDEX_ALREADY_EXISTS")
    refused("CREATE INDEX nope ON lance.i USING nope (s)", "(?i)nope")
    sql("DROP INDEX zones ON lance.i")
    sql("DROP INDEX IF EXISTS zones ON lance.i")
    refused("DROP INDEX zones ON lance.i", "INDEX_NOT_FOUND")
    assert [row[0] for row in sql("SELECT index FROM lance.i.indices")] == ["by_id"]


def test_tables_are_maintained_by_deltas_statements_and_by_procedures(session, sql, refused, root):
    path = root / "db" / "m.lance"
    sql("CREATE TABLE lance.db.m AS SELECT id FROM range(4)")
    for _ in range(2):
        sql("INSERT INTO lance.db.m VALUES (1)")
    assert sql("CALL lance.system.create_tag('db.m', 'before')") == [(3,)]
    assert sql("OPTIMIZE lance.db.m")[0][1] == 1
    assert len(lance_core.dataset(path).get_fragments()) == 1
    assert sql("CALL lance.system.optimize(table => 'lance.db.m', target_rows_per_fragment => 10)") == [(0, 0, 0, 0)]
    assert sql("RESTORE TABLE lance.db.m TO VERSION AS OF 1") == [(5,)]
    assert sql(f"RESTORE lance.`{path}` TO VERSION AS OF 'before'") == [(6,)]
    assert sql("RESTORE lance.db.m TO TIMESTAMP AS OF '2200-01-01'") == [(7,)]
    assert LanceTable.forName(session, "lance.db.m").toDF().count() == 6
    refused("RESTORE lance.db.m TO TIMESTAMP AS OF '1999-01-01'", "there is no version as of")
    assert sql("/* all but\nthe tagged one */ VACUUM lance.db.m RETAIN 0 HOURS")[0][0] == 5
    assert sql("CALL lance.system.drop_tag('db.m', 'before')") == [(3,)]
    assert sql("-- the rest\nVACUUM lance.db.m RETAIN 0 HOURS;")[0][0] == 1
    refused("OPTIMIZE lance.db.m ZORDER BY (id)", "OPTIMIZE of Lance tables does not take: ZORDER BY")
    refused("CALL lance.system.nope('db.m')", "nope")
    session.sql("USE lance.db")
    try:
        assert sql("DESCRIBE DETAIL m")[0][:4] == ("lance", str(path), None, 7)
        assert [row[0] for row in sql("DESCRIBE HISTORY m")] == [7]
        assert sql("OPTIMIZE m")[0][:2] == (4, 1)
    finally:
        session.sql("USE spark_catalog.default")
    assert [row[3] for row in sql("SHOW PROCEDURES IN lance")][:2] == ["create_tag", "drop_tag"]


def test_statements_of_other_catalogs_reach_sparks_parser(refused):
    for text in ("OPTIMIZE other.t", "DESCRIBE HISTORY t", "VACUUM t", "OPTIMIZE"):
        refused(text, r"PARSE_SYNTAX_ERROR|TABLE_OR_VIEW_NOT_FOUND")
