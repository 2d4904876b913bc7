import datetime as dt
import decimal

import pyarrow as pa
import pytest
from pyspark.sql import types as st

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.spark.common.cast import cast_batches
from lance_core.spark.common.types import arrow_schema, check_readable, find_misfits, lance_schema, spark_schema

DAY = dt.date(2020, 2, 29)
TIME = dt.datetime(2020, 2, 29, 12, 30, 1, 5)  # noqa: DTZ001 without a zone on purpose


def _struct(**columns):
    return st.StructType([st.StructField(name, kind) for name, kind in columns.items()])


# Arrow type in the table, Spark type, values.
READ = [
    (pa.int8(), "tinyint", [-128, None, 127]),
    (pa.int64(), "bigint", [-(2**63), None, 2**63 - 1]),
    (pa.uint8(), "smallint", [0, None, 255]),
    (pa.uint16(), "int", [0, None, 2**16 - 1]),
    (pa.uint32(), "bigint", [0, None, 2**32 - 1]),
    (pa.uint64(), "decimal(20,0)", [0, None, 2**64 - 1]),
    (pa.float16(), "float", [1.5, None]),
    (pa.float64(), "double", [1.5, None]),
    (pa.bool_(), "boolean", [True, None]),
    (pa.string(), "string", ["ä", None, ""]),
    (pa.large_string(), "string", ["ä", None, ""]),
    (pa.string_view(), "string", ["ä", None, "longer than twelve bytes"]),
    (pa.dictionary(pa.int8(), pa.string()), "string", ["ä", None, "ä"]),
    (pa.binary(), "binary", [b"\0", None]),
    (pa.large_binary(), "binary", [b"\0", None]),
    (pa.binary(2), "binary", [b"ab", None]),
    (pa.decimal128(10, 2), "decimal(10,2)", [decimal.Decimal("1.50"), None]),
    (pa.date32(), "date", [DAY, None]),
    (pa.date64(), "date", [DAY, None]),
    (pa.timestamp("us", "UTC"), "timestamp", [TIME.replace(tzinfo=dt.UTC), None]),
    (pa.timestamp("us", "Europe/Berlin"), "timestamp", [TIME.replace(tzinfo=dt.UTC), None]),
    (pa.timestamp("us"), "timestamp_ntz", [TIME, None]),
    (pa.timestamp("s"), "timestamp_ntz", [TIME.replace(microsecond=0), None]),
    (pa.timestamp("ns"), "timestamp_ntz", [TIME, None]),
    (pa.time32("s"), "time(6)", [dt.time(1, 2, 3), None]),
    (pa.time64("us"), "time(6)", [dt.time(1, 2, 3, 4), None]),
    (pa.duration("ms"), "interval day to second", [dt.timedelta(hours=25), None]),
    (pa.list_(pa.int32()), "array<int>", [[1, None], None, []]),
    (pa.large_list(pa.string_view()), "array<string>", [["x"], None, []]),
    (pa.list_(pa.float32(), 2), "array<float>", [[1.0, 2.0], None, [3.0, 4.0]]),
    (pa.struct({"a": pa.uint8(), "b c": pa.string()}), "struct<a:smallint,b c:string>", [{"a": 1, "b c": "x"}, None]),
    (pa.list_(pa.struct({"v": pa.list_(pa.float64(), 1)})), "array<struct<v:array<double>>>", [[{"v": [1.0]}], None]),
    (pa.map_(pa.string(), pa.uint8()), "map<string,smallint>", [[("k", 1)], None]),
    (pa.list_(pa.struct({"a": pa.int32()}), 2), "array<struct<a:int>>", [[{"a": 1}, {"a": None}], None]),
    (pa.null(), "void", [None, None]),
]


@pytest.mark.parametrize(("kind", "name", "values"), READ, ids=[str(kind) for kind, _, _ in READ])
def test_what_is_read_has_exactly_the_type_spark_demands(kind, name, values):
    batch = pa.record_batch({"x": pa.array(values, kind)})
    schema = spark_schema(batch.schema)
    assert schema["x"].dataType.simpleString() == name
    target = arrow_schema(schema)
    for part in (batch, batch.slice(1), batch.slice(0, 0)):
        (cast,) = cast_batches([part], target)
        assert cast.schema.equals(target)
        cast.validate(full=True)
        assert cast.to_pylist() == part.to_pylist()


LOSSLESS = [(kind, values) for kind, _, values in READ if kind != pa.float16()]


@pytest.mark.parametrize(("kind", "values"), LOSSLESS, ids=[str(kind) for kind, _ in LOSSLESS])
def test_what_was_read_can_be_written_back(kind, values):
    batch = pa.record_batch({"x": pa.array(values, kind)})
    schema = spark_schema(batch.schema)
    assert find_misfits(schema, batch.schema) == []
    there = list(cast_batches([batch], arrow_schema(schema)))
    (back,) = cast_batches(there, batch.schema)
    assert back.equals(batch)


def test_float16_cannot_be_written_back_since_float_has_more_values():
    table = pa.schema([("x", pa.float16())])
    assert find_misfits(spark_schema(table), table) != []


def test_nullability_is_kept_at_every_level():
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    table = pa.schema([pa.field("x", pa.list_(pa.field("item", inner, nullable=False)), nullable=False)])
    schema = spark_schema(table)
    assert not schema["x"].nullable
    assert not schema["x"].dataType.containsNull
    assert not schema["x"].dataType.elementType["a"].nullable
    assert arrow_schema(schema).equals(table)


def test_a_vector_column_says_so_in_its_metadata_and_becomes_one_again():
    table = pa.schema([pa.field("v", pa.list_(pa.float32(), 3), metadata={"comment": "where"})])
    schema = spark_schema(table)
    assert schema["v"].metadata == {"arrow.fixed-size-list.size": 3, "comment": "where"}
    assert lance_schema(schema).equals(table, check_metadata=True)


@pytest.mark.parametrize("size", [0, -1, "x", 1.5])
def test_a_wrong_vector_size_is_refused(size):
    field = st.StructField("v", st.ArrayType(st.FloatType()), metadata={"arrow.fixed-size-list.size": size})
    with pytest.raises(InvalidInputError, match="'v'"):
        lance_schema(st.StructType([field]))


def test_a_new_table_has_nullable_columns_and_no_marks_of_spark():
    field = st.StructField(
        "x", st.IntegerType(), nullable=False, metadata={"comment": "c", "__CHAR_VARCHAR_TYPE_STRING": "char(2)"}
    )
    (made,) = lance_schema(st.StructType([field]))
    assert made.nullable
    assert made.metadata == {b"comment": b"c"}


ODD = [
    st.CalendarIntervalType(),
    st.YearMonthIntervalType(),
    st.VariantType(),
    st.GeometryType(4326),
    st.GeographyType(4326),
]


@pytest.mark.parametrize("kind", [*ODD, *(st.ArrayType(kind) for kind in ODD)], ids=str)
def test_a_type_that_cannot_be_stored_is_named(kind):
    with pytest.raises(UnsupportedError, match="'odd'"):
        lance_schema(st.StructType([st.StructField("odd", kind)]))


@pytest.mark.parametrize("kind", [st.CharType(5), st.VarcharType(3)], ids=str)
def test_text_of_a_length_names_the_type_to_use(kind):
    with pytest.raises(UnsupportedError, match=r"'padded' .* Use STRING"):
        lance_schema(st.StructType([st.StructField("padded", kind)]))


@pytest.mark.parametrize("kind", ODD, ids=str)
def test_a_type_that_cannot_be_stored_fits_no_column(kind):
    inside = pa.struct({"srid": pa.int32(), "wkb": pa.binary(), "value": pa.binary(), "metadata": pa.binary()})
    for table in (inside, pa.struct(list(inside)[:2]), pa.struct(list(inside)[2:]), pa.duration("us"), pa.binary()):
        (misfit,) = find_misfits(_struct(odd=kind), pa.schema({"odd": table}))
        assert "'odd'" in misfit


def test_a_type_that_spark_does_not_have_is_named():
    with pytest.raises(UnsupportedError, match="'odd'"):
        spark_schema(pa.schema({"odd": pa.month_day_nano_interval()}))


@pytest.mark.parametrize(
    ("given", "table", "fits"),
    [
        (st.ByteType(), pa.int32(), True),
        (st.LongType(), pa.int32(), False),
        (st.IntegerType(), pa.float64(), True),
        (st.LongType(), pa.float64(), False),
        (st.FloatType(), pa.float64(), True),
        (st.DoubleType(), pa.float32(), False),
        (st.FloatType(), pa.float16(), False),
        (st.ShortType(), pa.uint8(), True),
        (st.StringType(), pa.int32(), False),
        (st.VarcharType(3), pa.string(), True),
        (st.DecimalType(5, 2), pa.decimal128(10, 2), True),
        (st.DecimalType(5, 3), pa.decimal128(10, 2), False),
        (st.TimestampType(), pa.timestamp("us"), False),
        (st.TimestampNTZType(), pa.timestamp("us", "UTC"), False),
        (st.TimestampType(), pa.timestamp("ms", "Asia/Tokyo"), True),
        (st.ArrayType(st.FloatType()), pa.list_(pa.float32(), 4), True),
        (st.ArrayType(st.DoubleType()), pa.list_(pa.float32(), 4), False),
        (st.ArrayType(st.ByteType()), pa.list_(pa.int64()), True),
        (_struct(b=st.IntegerType(), a=st.IntegerType()), pa.struct({"a": pa.int32(), "b": pa.int32()}), True),
        (_struct(a=st.IntegerType()), pa.struct({"a": pa.int32(), "b": pa.int32()}), False),
        (st.NullType(), pa.string(), True),
    ],
)
def test_only_lossless_types_fit_a_table(given, table, fits):
    assert (find_misfits(_struct(x=given), pa.schema({"x": table})) == []) == fits


def test_all_misfits_are_named():
    schema = _struct(a=st.IntegerType(), b=st.StringType(), extra=st.IntegerType())
    misfits = find_misfits(schema, pa.schema({"a": pa.int32(), "b": pa.int32(), "gone": pa.int32()}))
    assert [name in text for name, text in zip(("gone", "extra", "b"), misfits, strict=True)] == [True] * 3


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (pa.array([1, None]), pa.field("x", pa.int64(), nullable=False)),
        (pa.array([300], pa.int16()), pa.field("x", pa.uint8())),
        (pa.array([[1.0], [1.0, 2.0]]), pa.field("x", pa.list_(pa.float64(), 2))),
        (pa.array([[1, None]]), pa.field("x", pa.list_(pa.field("item", pa.int64(), nullable=False)))),
        (pa.array([{"a": None}]), pa.field("x", pa.struct([pa.field("a", pa.int64(), nullable=False)]))),
        (pa.array([1], pa.timestamp("ns")), pa.field("x", pa.timestamp("us"))),
    ],
)
def test_a_value_without_a_place_in_the_target_is_an_error(source, target):
    with pytest.raises(InvalidInputError, match="'x"):
        list(cast_batches([pa.record_batch({"x": source})], pa.schema([target])))


def test_a_null_struct_may_have_null_children():
    kind = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    batch = pa.record_batch({"x": pa.array([{"a": 1}, None], pa.struct({"a": pa.int64()}))})
    (cast,) = cast_batches([batch], pa.schema({"x": kind}))
    assert cast.to_pylist() == batch.to_pylist()


def test_vectors_are_cast_without_copying_their_values():
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(range(64), pa.float32()), 4)
    batch = pa.record_batch({"x": vectors})
    (there,) = cast_batches([batch], arrow_schema(spark_schema(batch.schema)))
    (back,) = cast_batches([there], batch.schema)
    addresses = {array.values.buffers()[1].address for array in (vectors, there.column(0), back.column(0))}
    assert len(addresses) == 1


def test_a_selection_of_columns_may_be_asked_for():
    table = _struct(a=st.IntegerType(), b=st.ArrayType(st.StringType()), c=st.DoubleType())
    check_readable(_struct(c=st.DoubleType(), a=st.IntegerType()), table)
    with pytest.raises(InvalidInputError, match=r"column 'a' is int, not bigint; column 'z' does not exist"):
        check_readable(_struct(a=st.LongType(), z=st.IntegerType()), table)
