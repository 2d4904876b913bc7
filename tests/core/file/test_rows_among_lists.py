"""Rows with lists are found without decoding what stands around them."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.encoding import registry
from lance_core.encoding.layouts import shared_levels

STRUCTS = [[{"a": one, "b": str(one % 9), "c": one / 8} for one in range(row % 4)] for row in range(20_000)]
LISTS = pa.array([None if row % 11 == 0 else one for row, one in enumerate(STRUCTS)])
ROWS = np.arange(0, 20_000, 13)


def take(data_file, lists=LISTS, rows=ROWS):
    data_file.write(pa.table({"lists": lists}))
    reader = data_file.open()
    columns = {leaf.id: index for index, leaf in enumerate(reader.schema.leaves())}
    return reader.take(reader.schema, columns, rows)["lists"]


def test_levels_are_not_unpacked_for_rows_among_lists(data_file, monkeypatch):
    """Rows are found by one bit for each level; of the levels themselves only those of the rows are decoded."""
    monkeypatch.setattr(registry, "decode_level_chunks", None)
    assert take(data_file).equals(LISTS.take(pa.array(ROWS)))


def test_leaves_with_the_same_levels_share_what_these_mean(data_file, monkeypatch):
    calls = []
    unravel = shared_levels.unravel
    monkeypatch.setattr(shared_levels, "unravel", lambda *given: calls.append(1) or unravel(*given))
    assert take(data_file).equals(LISTS.take(pa.array(ROWS)))
    assert len(calls) == 1


@pytest.mark.parametrize("item", [pa.int32(), pa.string(), pa.list_(pa.float32(), 2)])
def test_rows_that_fill_their_chunks_are_not_picked_value_by_value(data_file, monkeypatch, item):
    """To decode chunks as a whole costs less once rows take an eighth of them."""
    sizes = [0 if row % 7 == 0 else 600 + row % 5 * 400 for row in range(300)]
    numbers = pa.array(np.arange(sum(sizes) * (2 if pa.types.is_nested(item) else 1)) % 977)
    values = pa.FixedSizeListArray.from_arrays(numbers.cast(pa.float32()), 2) if pa.types.is_nested(item) else numbers
    offsets = np.cumsum([0, *sizes]).astype(np.int32)
    is_null = np.arange(301) % 11 == 0
    lists = pa.ListArray.from_arrays(pa.array(offsets, mask=is_null & (np.arange(301) < 300)), values.cast(item))
    rows = np.arange(1, 300, 3)
    monkeypatch.setattr(registry, "decode_points", None)
    assert take(data_file, lists, rows).equals(lists.take(pa.array(rows)))
