"""Batches that are brought into the types of a table's fields."""

import pyarrow as pa
import pytest

from lance_core.change.ingest import fit_batch
from lance_core.errors import InvalidInputError
from lance_core.format.schema import Schema


def test_batches_that_fit_are_taken_as_they_are():
    batch = pa.record_batch({"number": [1, None], "text": ["a", None]})
    assert fit_batch(batch, Schema.from_arrow(batch.schema)) is batch
    described = batch.replace_schema_metadata({"from": "elsewhere"})
    assert fit_batch(described, Schema.from_arrow(batch.schema)) is described


@pytest.mark.parametrize(
    ("field", "values"),
    [
        (pa.field("a", pa.int64(), nullable=False), [1, None]),
        (pa.field("a", pa.struct([pa.field("b", pa.int64(), nullable=False)])), [{"b": 1}, {"b": None}]),
    ],
)
def test_nulls_where_there_must_be_none_are_found(field, values):
    schema = pa.schema([field])
    batch = pa.RecordBatch.from_arrays([pa.array(values, field.type)], schema=schema)
    with pytest.raises(InvalidInputError, match="not nullable"):
        fit_batch(batch, Schema.from_arrow(schema))


def test_other_orders_and_types_are_changed():
    table = pa.schema([("text", pa.string()), ("number", pa.int64())])
    batch = pa.record_batch({"number": [1, 2], "text": pa.array(["a", "b"], pa.large_string())})
    found = fit_batch(batch, Schema.from_arrow(table))
    assert found.schema == table
    assert found.to_pydict() == {"text": ["a", "b"], "number": [1, 2]}
