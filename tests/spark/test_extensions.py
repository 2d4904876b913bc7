"""Types that are more than their storage, and blobs: how Spark sees them and how they come back."""

import uuid

import pyarrow as pa
import pytest
from pyspark.sql import types as st

import lance_core
from lance_core.errors import InvalidInputError
from lance_core.spark.common.cast import cast_batches
from lance_core.spark.common.options import parse_options
from lance_core.spark.common.read_options import ReadOptions
from lance_core.spark.common.types import arrow_schema, find_misfits, lance_schema, spark_schema
from lance_core.spark.common.uuids import format_uuids, parse_uuids
from lance_core.spark.reading.reader import LanceReader
from lance_core.spark.source import LanceDataSource

IDS = [uuid.UUID(int=i * 2**100 + 0xFEDCBA) for i in range(5)]


def stored(*values):
    return pa.array([None if one is None else one.bytes for one in values], pa.binary(16))


def read(uri, **options):
    given = {"path": uri, **options}
    schema = LanceDataSource(given).schema()
    reader = LanceReader(parse_options(ReadOptions, given), schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert all(batch.schema.equals(arrow_schema(schema)) for batch in batches)
    return schema, [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("array", [stored(*IDS), stored(*IDS, None).slice(2), stored(None), stored()])
def test_uuids_are_text_and_come_back(array):
    text = format_uuids(array)
    text.validate(full=True)
    assert text.to_pylist() == [None if one is None else str(uuid.UUID(bytes=one)) for one in array.to_pylist()]
    for form in (text, text.cast(pa.large_string()), pa.concat_arrays([pa.array(["x"]), text]).slice(1)):
        back = parse_uuids(form, "u")
        back.validate(full=True)
        assert back.to_pylist() == array.to_pylist()
    assert parse_uuids(pa.array([str(IDS[1]).upper()]), "u").to_pylist() == [IDS[1].bytes]


@pytest.mark.parametrize("text", ["", "x", str(IDS[1])[:-1] + "g", str(IDS[1]).replace("-", "_"), IDS[1].hex + "----"])
def test_what_is_no_uuid_is_refused(text):
    with pytest.raises(InvalidInputError, match="Column 'u' holds"):
        parse_uuids(pa.array([str(IDS[0]), None, text]), "u")


def test_uuids_json_and_dictionaries(tmp_path):
    uri = str(tmp_path / "t")
    table = pa.table(
        {
            "u": pa.array([IDS[1].bytes, None], pa.uuid()),
            "n": pa.array([{"u": IDS[1].bytes}, None], pa.struct({"u": pa.binary(16)})),
            "j": pa.array(['{"a": [1, 2]}', None], pa.json_()),
            "d": pa.array(["x", None]).dictionary_encode(),
        }
    )
    lance_core.write_dataset(table, uri)
    schema, rows = read(uri)
    assert [field.dataType.simpleString() for field in schema] == ["string", "struct<u:binary>", "string", "string"]
    assert rows[0]["u"] == str(IDS[1])
    assert rows[0]["n"] == {"u": IDS[1].bytes}
    assert rows[0]["j"].replace(" ", "") == '{"a":[1,2]}'
    assert rows[0]["d"] == "x"
    assert list(rows[1].values()) == [None] * 4
    made = lance_schema(schema)
    assert made.field("u").type == pa.binary(16)
    assert find_misfits(schema, lance_core.dataset(uri).lance_schema.inner.to_arrow()) == []
    again = lance_core.write_dataset(
        pa.Table.from_batches(cast_batches([pa.RecordBatch.from_pylist(rows, arrow_schema(schema))], made)),
        str(tmp_path / "copy"),
    )
    assert again.schema.field("u").type == pa.uuid()
    assert again.schema.field("j").type == pa.json_()
    assert again.to_table()["u"].to_pylist() == [IDS[1], None]


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_blobs_are_descriptions_or_bytes(tmp_path, version):
    uri = str(tmp_path / "t")
    schema = pa.schema([("id", pa.int64()), pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})])
    values = [b"x" * 100, None, b""]
    lance_core.write_dataset(pa.table({"id": [1, 2, 3], "b": values}, schema), uri, data_storage_version=version)
    schema, rows = read(uri)
    assert {"position", "size"} <= set(schema["b"].dataType.names)
    assert int(rows[0]["b"]["size"]) == 100
    assert "lance-encoding:blob" not in (schema["b"].metadata or {})
    schema, rows = read(uri, blobHandling="all_binary", columns='["b"]')
    assert schema["b"].dataType == st.BinaryType()
    assert [row["b"] for row in rows] == values
    with pytest.raises(InvalidInputError, match="must be one of"):
        read(uri, blob_handling="maybe")


def test_nanoseconds_may_be_cut_off_if_asked_for(tmp_path):
    uri = str(tmp_path / "t")
    times = pa.array([1_000, 1_001], pa.timestamp("ns"))
    nested = pa.array([{"t": 1_001}, None], pa.struct({"t": pa.timestamp("ns", "UTC")}))
    lance_core.write_dataset(pa.table({"t": times, "n": nested}), uri)
    with pytest.raises(InvalidInputError, match="Column 't' cannot be converted from timestamp"):
        read(uri)
    _, rows = read(uri, truncateNanoseconds="true")
    assert [row["t"].microsecond for row in rows] == [1, 1]
    assert rows[0]["n"]["t"].microsecond == 1


def test_comments_and_other_metadata_survive():
    field = pa.field("a", pa.struct([pa.field("b", pa.int32(), metadata={"comment": "inner"})]), metadata={"x": "y"})
    schema = spark_schema(pa.schema([field]))
    assert schema["a"].metadata == {"x": "y"}
    assert schema["a"].dataType["b"].metadata == {"comment": "inner"}
    assert lance_schema(schema).equals(pa.schema([field]), check_metadata=True)
