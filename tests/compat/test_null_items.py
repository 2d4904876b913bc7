"""Pages in which every item of fixed-size lists is null: pylance stores bitmaps without items."""

import lance
import pyarrow as pa
import pytest

import lance_core

KINDS = [
    pa.list_(pa.float32(), 2),
    pa.list_(pa.bool_(), 3),
    pa.list_(pa.binary(3), 1),
    pa.list_(pa.decimal128(20, 3), 9),
    pa.list_(pa.list_(pa.int32(), 2), 3),
    pa.list_(pa.list_(pa.list_(pa.bool_(), 2), 2), 2),
]


def nulls_of(kind):
    return [None] * kind.list_size


ROWS = {
    "values": lambda kind: [nulls_of(kind), None] * 40,
    "without null": lambda kind: [nulls_of(kind)] * 70,
    "in lists": lambda kind: [[nulls_of(kind), None], None, [], [nulls_of(kind)]] * 20,
    "in structs": lambda kind: [{"v": nulls_of(kind), "n": 1}, {"v": None, "n": 2}, None] * 20,
}
TYPES = {
    "in lists": pa.list_,
    "in structs": lambda kind: pa.struct([("v", kind), ("n", pa.int64())]),
}


@pytest.mark.parametrize("where", ROWS)
@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
def test_they_are_read(tmp_path, version, where):
    for number, kind in enumerate(KINDS):
        place = str(tmp_path / str(number))
        column = pa.array(ROWS[where](kind), TYPES.get(where, lambda own: own)(kind))
        rows = range(len(column))
        lance.write_dataset(pa.table({"c": column, "i": rows}), place, data_storage_version=version)
        ours, theirs = lance_core.dataset(place), lance.dataset(place)
        assert ours.to_table() == theirs.to_table()
        assert ours.to_table().column("c").to_pylist() == column.to_pylist()
        assert ours.take([3, 0, 41]) == theirs.take([3, 0, 41])
        assert ours.to_table(filter="i % 7 = 1") == theirs.to_table(filter="i % 7 = 1")
        assert ours.count_rows("c IS NULL") == theirs.count_rows("c IS NULL")
