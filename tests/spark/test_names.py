"""Names of columns in another case, types that Arrow has no name for, and errors as users see them."""

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import types as st

import lance_core
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.spark import create_index_lance, merge_lance, read_lance, update_lance, write_lance
from lance_core.spark.common.names import adopt_names, find_name, rename_columns

pytestmark = pytest.mark.spark

ROW = "SELECT 1 AS Id, 'x' AS Name, named_struct('A', 1, 'b', 2) AS st"
OTHER = "SELECT named_struct('a', 3, 'B', 4) AS ST, 'y' AS NAME, 2 AS id"


def test_an_exact_name_comes_first_and_an_ambiguous_one_is_nothing():
    assert find_name("ID", ["id", "x"]) == "id"
    assert find_name("ID", ["id", "ID"]) == "ID"
    assert find_name("iD", ["id", "ID"]) == "iD"
    schema = st.StructType([st.StructField(name, st.IntegerType()) for name in ("ID", "id", "iD")])
    assert adopt_names(schema, [pa.field("id", pa.int32())]).names == ["ID", "id", "iD"]


def test_fields_inside_of_lists_and_maps_are_renamed_without_a_copy():
    item = pa.struct([("A", pa.int32())])
    batch = pa.record_batch(
        [
            pa.array([[{"A": 1}], None, [{"A": 2}, None]], pa.list_(item)),
            pa.array([[("k", {"A": 3})], [], None], pa.map_(pa.string(), item)),
        ],
        ["L", "M"],
    ).slice(1)
    wanted = pa.struct([("a", pa.int32())])
    target = pa.schema([("m", pa.map_(pa.string(), wanted)), ("l", pa.list_(wanted))])
    (renamed,) = rename_columns([batch], target)
    assert renamed.to_pydict() == {"l": [None, [{"a": 2}, None]], "m": [[], None]}


def test_reads_and_appends_find_columns_in_another_case(spark, uri):
    write_lance(spark.sql(ROW), uri)
    write_lance(spark.sql(OTHER), uri, sort_by="ID", merge_schema=True)
    spark.sql(OTHER).write.format("lance").mode("append").save(uri)
    write_lance(spark.sql(OTHER), uri, partition_overwrite_by=["ID"])
    expected = [(1, "x", {"A": 1, "b": 2}), (2, "y", {"A": 3, "b": 4})]
    assert sorted(tuple(row.values()) for row in lance_core.dataset(uri).to_table().to_pylist()) == expected
    frame = read_lance(spark, uri, columns=["NAME", "ST.a"], filter="ID = 2")
    assert (frame.columns, frame.collect()) == (["Name", "st.A"], [("y", 3)])


def test_merges_updates_and_indices_find_columns_in_another_case(spark, uri):
    write_lance(spark.sql("SELECT 1 AS Id, 'x' AS Name UNION ALL SELECT 2, 'y'"), uri)
    source = spark.sql("SELECT 2 AS ID, 'z' AS NAME UNION ALL SELECT 3, 'n'")
    merge = merge_lance(source, uri, "iD").when_matched_update({"NAME": "concat(target.NAME, source.name)"})
    done = merge.when_not_matched_insert_all().execute()
    assert (done.num_updated_rows, done.num_inserted_rows) == (1, 1)
    assert update_lance(spark, uri, {"NAME": "upper(NAME)"}, "ID = 3").num_updated_rows == 1
    assert create_index_lance(spark, uri, "ID", "BTREE").version == 4
    rows = lance_core.dataset(uri).to_table().to_pylist()
    expected = [{"Id": 1, "Name": "x"}, {"Id": 2, "Name": "yz"}, {"Id": 3, "Name": "N"}]
    assert sorted(rows, key=lambda row: row["Id"]) == expected


def test_a_session_that_is_case_sensitive_appends_exact_names_only(spark, uri):
    write_lance(spark.sql(ROW), uri)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(InvalidInputError, match="column 'NAME' does not exist"):
            write_lance(spark.sql(OTHER), uri)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_intervals_and_collations_keep_their_type(spark, uri):
    rows = spark.sql("SELECT INTERVAL '5' HOUR h, 'a' COLLATE UTF8_LCASE c, named_struct('m', INTERVAL '1' MINUTE) s")
    write_lance(rows, uri)
    frame = read_lance(spark, uri)
    assert [field.dataType.simpleString() for field in frame.schema] == [
        "interval hour",
        "string collate UTF8_LCASE",
        "struct<m:interval minute>",
    ]
    assert frame.where("c = 'A' AND h = INTERVAL '5' HOUR").count() == 1
    with pytest.raises(UnsupportedError, match="Cast its items to string"):
        write_lance(spark.sql("SELECT array('a' COLLATE UTF8_LCASE) l"), f"{uri}2")


def test_errors_have_the_message_and_no_traceback(spark, uri):
    write_lance(spark.sql(ROW), uri)
    uuids = spark.sql("SELECT 'no' u").withMetadata("u", {"ARROW:extension:name": "arrow.uuid"})
    failing = {
        "no Lance dataset": lambda: spark.read.format("lance").load(f"{uri}3"),
        "column 'x' does not exist": lambda: spark.sql("SELECT 1 x").write.format("lance").mode("append").save(uri),
        "'no', which is no uuid": lambda: write_lance(uuids, f"{uri}4"),
    }
    for message, call in failing.items():
        with pytest.raises(PySparkException, match=message) as caught:
            call()
        assert "lance_core.errors." in str(caught.value)
        assert "Traceback" not in str(caught.value)
