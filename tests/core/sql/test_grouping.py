"""Rows are grouped as by Arrow, whatever their numbers have in common."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_core.sql import grouping
from lance_core.sql.grouping import grouped

KINDS = [pa.int64(), pa.uint64(), pa.float64(), pa.timestamp("us", "UTC"), pa.duration("ns"), pa.time64("ns")]
NUMBERS = st.one_of(st.none(), st.integers(-4, 4), st.integers(-4, 4).map(lambda number: number << 45))


def rows_of(table):
    """Rows in order, with floats by their bits."""
    columns = [
        column.cast(pa.float64()).combine_chunks().view(pa.int64()) if pa.types.is_floating(column.type) else column
        for column in table.columns
    ]
    rows = zip(*[column.to_pylist() for column in columns], strict=True)
    return sorted(rows, key=lambda row: [(value is not None, str(value)) for value in row])


@given(st.sampled_from(KINDS), st.lists(st.lists(NUMBERS, max_size=12), max_size=3), st.integers(0, 3))
def test_groups_are_those_of_arrow(kind, chunks, start):
    arrays = [pa.array(numbers, pa.int64()).view(kind) for numbers in chunks]
    keys = pa.chunked_array([array[start:] for array in arrays], kind)
    table = pa.table(
        {"key": keys, "other": pa.array([i % 2 for i in range(len(keys))], pa.int8()), "v": range(len(keys))}
    )
    tasks = [("v", "sum"), ([], "count_all")]
    for names in (["key"], ["other", "key"]):
        ours, arrows = grouped(table, names, tasks), table.group_by(names, use_threads=False).aggregate(tasks)
        assert ours.schema == arrows.schema
        assert rows_of(ours) == rows_of(arrows)
    assert rows_of(grouped(table.select(["key"]), ["key"])) == rows_of(table.group_by("key").aggregate([]))


def test_floats_are_told_apart_by_their_bits():
    values = pa.array([0.0, -0.0, 1.0, None, math.inf, math.nan, math.nan, None, 1.0])
    groups = grouped(pa.table({"x": values}), ["x"], [([], "count_all")])
    assert sorted(groups["count_all"].to_pylist()) == [1, 1, 1, 2, 2, 2]


def test_numbers_that_arrow_takes_for_nearly_the_same_differ_in_their_low_bits():
    values = np.arange(1_000).astype(float)
    assert len(np.unique(values.view(np.int64) & 0xFFFF_FFFF)) == 1
    mixed = np.asarray(grouping._mixed(pa.chunked_array([values]), pa.int64()))
    assert len(np.unique(mixed & 0xFFFF_FFFF)) == len(values)


@pytest.mark.parametrize("kind", [pa.int32(), pa.string(), pa.bool_()])
def test_other_keys_are_grouped_as_they_are(kind):
    keys = pa.array([1, 0, None, 1]).cast(kind)
    groups = grouped(pa.table({"x": keys}), ["x"])
    assert groups["x"].to_pylist() == keys.unique().to_pylist()
