"""Column schemas told to Dagster and read back."""

import dagster as dg
import pyarrow as pa
import pytest

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_dagster.column_schema import arrow_schema, arrow_type, table_schema

TYPES = [
    pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.null(), pa.string(), pa.large_string(),
    pa.binary(), pa.large_binary(), pa.binary(7), pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("us"),
    pa.timestamp("ns"), pa.timestamp("us", "UTC"), pa.timestamp("ms", "America/New_York"), pa.duration("us"),
    pa.decimal128(10, 2), pa.decimal256(50, -3), pa.list_(pa.int64()), pa.large_list(pa.string()),
    pa.list_(pa.float32(), 16), pa.list_(pa.field("item", pa.int8(), nullable=False)),
    pa.struct([("a", pa.list_(pa.struct([("b", pa.timestamp("us", "UTC")), ("c", pa.decimal128(3, 1))])))]),
    pa.struct([("a", pa.int8()), ("b", pa.list_(pa.int8(), 2))]),
    pa.struct([]),
]  # fmt: skip


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_types_round_trip(type_):
    assert arrow_type(str(type_)) == type_


def test_schemas_round_trip():
    schema = pa.schema([pa.field("a", pa.int8(), nullable=False), pa.field("b", pa.string())])
    assert arrow_schema(table_schema(schema)) == schema


def test_a_column_without_constraints_may_be_null():
    assert arrow_schema(dg.TableSchema([dg.TableColumn("a", "int64")])) == pa.schema({"a": pa.int64()})


def test_other_type_names_are_refused_by_name():
    with pytest.raises(UnsupportedError, match="VARCHAR"):
        arrow_type("VARCHAR(10)")


def test_a_nested_type_without_field_names_is_refused():
    with pytest.raises(InvalidInputError, match="name: type"):
        arrow_type("list<int64>")
