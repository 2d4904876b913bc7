"""Rows with lists are found without decoding what stands around them."""

import numpy as np
import pyarrow as pa

from lance_core.encoding import registry
from lance_core.encoding.layouts import shared_levels

STRUCTS = [[{"a": one, "b": str(one % 9), "c": one / 8} for one in range(row % 4)] for row in range(20_000)]
LISTS = pa.array([None if row % 11 == 0 else one for row, one in enumerate(STRUCTS)])
ROWS = np.arange(0, 20_000, 13)


def take(data_file):
    data_file.write(pa.table({"lists": LISTS}))
    reader = data_file.open()
    columns = {leaf.id: index for index, leaf in enumerate(reader.schema.leaves())}
    return reader.take(reader.schema, columns, ROWS)["lists"]


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
