"""Where most of a column is null, what stood in memory under the nulls is not written."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lance_core
from lance_core.encoding.arrow_values import spread_over_nulls, words_of

SECRET = 0x5EC2E75EC2E75EC2


def slow(values, is_valid):
    """Nulls hold the value before them; the first ones that of the first value."""
    if not 0 < sum(is_valid) < len(values) / 4:
        return values
    last = values[is_valid.index(True)]
    result = []
    for value, valid in zip(values, is_valid, strict=True):
        last = value if valid else last
        result.append(last)
    return result


@given(
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from([True, False, False, False, False, False]))),
    st.integers(0, 3),
    st.sampled_from([pa.int8(), pa.uint16(), pa.float32(), pa.int64(), pa.decimal128(20)]),
)
def test_nulls_hold_the_value_before_them(rows, skipped, kind):
    padding = [(0, True)] * skipped
    values, is_valid = [list(part) for part in zip(*padding, *rows, strict=True)] if padding + rows else ([], [])
    whole = pa.array([value % 100 for value in values], pa.int64()).cast(kind)
    masked = pa.Array.from_buffers(
        kind, len(whole), [pa.array(is_valid, pa.bool_()).buffers()[1], whole.buffers()[1]], offset=0
    )
    array = masked.slice(skipped)
    expected = slow(words_of(whole.slice(skipped)).tolist(), is_valid[skipped:])
    assert spread_over_nulls(words_of(array), array).tolist() == expected


def with_secrets(num_rows, share):
    """Words of which a share is null, with a secret under each null."""
    rng = np.random.default_rng(3)
    is_null = rng.random(num_rows) < share
    values = np.where(is_null, np.int64(SECRET), rng.integers(0, 1 << 40, num_rows))
    valid = pa.array(~is_null).buffers()[1]
    return pa.Array.from_buffers(pa.int64(), num_rows, [valid, pa.py_buffer(values)])


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("num_rows", [1_000, 60_000, 200_000])
def test_what_stands_under_nulls_is_not_written(tmp_path, num_rows, version):
    flat = with_secrets(num_rows, 0.99)
    lists = pa.ListArray.from_arrays(pa.array(np.arange(0, num_rows + 1, 4), pa.int32()), flat)
    inside = pa.StructArray.from_arrays([flat], ["x"])
    for column in (flat, lists, inside, flat.slice(7)):
        table = pa.table({"x": column, "id": np.arange(len(column))})
        uri = tmp_path / f"{column.type}{column.offset}"
        assert lance_core.write_dataset(table, uri, data_storage_version=version).to_table() == table
        (file,) = (uri / "data").iterdir()
        assert np.int64(SECRET).tobytes() not in file.read_bytes()


def test_rare_values_take_few_bytes(tmp_path):
    num_rows = 200_000
    for number, column in enumerate((with_secrets(num_rows, 0.99), with_secrets(num_rows, 0.5))):
        lance_core.write_dataset(pa.table({"x": column}), tmp_path / str(number))
    rare, half = (sum(path.stat().st_size for path in (tmp_path / name / "data").iterdir()) for name in "01")
    assert rare < half / 10
