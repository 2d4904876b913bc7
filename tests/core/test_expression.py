import pyarrow as pa
import pytest

from lance_core.errors import InvalidInputError
from lance_core.expression import make_expression


def test_expressions_over_batches():
    batch = pa.record_batch({"a": [1, 2], "b": ["x", "y"]})
    made = make_expression("a * 2", batch.schema)
    assert (made.type, made.columns, made.evaluate(batch).to_pylist()) == (pa.int64(), ("a",), [2, 4])
    with pytest.raises(InvalidInputError):
        make_expression("nope + 1", batch.schema)


def test_the_day_of_a_time():
    batch = pa.record_batch({"at": pa.array([0, 86_400_000_000 - 1, None], pa.timestamp("us", "UTC"))})
    made = make_expression("date(at)", batch.schema)
    assert (made.type, made.evaluate(batch).cast(pa.int32()).to_pylist()) == (pa.date32(), [0, 0, None])
