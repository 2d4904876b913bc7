"""A handful of rows, read one by one, are those that others are read with; nested ones and damaged files included."""

import json
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from lance_core.encoding import strategy
from lance_core.errors import LanceError
from lance_core.file.read import plan

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(12)
ROWS = 5000


def _often(make, share=0.15):
    return [None if RNG.random() < share else make(row) for row in range(ROWS)]


def _items(row, make, most=5):
    return [None if RNG.random() < 0.1 else make(row * 7 + one) for one in range(RNG.integers(0, most))]


def _point(row):
    return {"x": row / 3 if row % 5 else None, "name": f"p{row % 17}", "tags": [str(row % 3)] * (row % 4)}


POINT = pa.struct([("x", pa.float64()), ("name", pa.string()), ("tags", pa.list_(pa.string()))])
COLUMNS = {
    "bools": pa.array(_often(lambda row: row % 3 == 0)),
    "small": pa.array(_often(lambda row: row % 200), pa.uint8()),
    "numbers": pa.array(_often(lambda row: row * row)),
    "times": pa.array(_often(lambda row: row * 10**6), pa.timestamp("us")),
    "days": pa.array(_often(lambda row: date(2026, 1, 1 + row % 28))),
    "decimals": pa.array(_often(lambda row: Decimal(row) / 100), pa.decimal128(20, 2)),
    "halves": pa.array(RNG.random(ROWS).astype(np.float16)),
    "words": pa.array(_often(lambda row: f"word {row % 40}")),
    "texts": pa.array(_often(lambda row: json.dumps([row, "text"] * 20)), pa.large_string()),
    "bytes": pa.array(_often(lambda row: bytes([row % 256]) * (row % 9))),
    "fixed": pa.array(_often(lambda row: bytes([row % 256]) * 3), pa.binary(3)),
    "vectors": pa.array(_often(lambda row: [row, 1.5, -row]), pa.list_(pa.float32(), 3)),
    "wide vectors": pa.FixedSizeListArray.from_arrays(pa.array(RNG.random(ROWS * 300), pa.float32()), 300),
    "runs": pa.array([row // 300 for row in range(ROWS)], pa.uint32()),
    "one value": pa.array([2.5] * ROWS),
    "one word": pa.array(["same"] * ROWS),
    "nothing": pa.nulls(ROWS, pa.int32()),
    "no type": pa.nulls(ROWS),
    "categories": pa.array(_often(lambda row: "abc"[row % 3])).dictionary_encode(),
    "structs": pa.array(_often(_point), POINT),
    "lists": pa.array(_often(lambda row: _items(row, lambda one: one))),
    "long lists": pa.array([_items(row, str, 60) for row in range(ROWS)]),
    "very long lists": pa.array([_items(row, float, 3000) if row % 100 == 0 else [] for row in range(ROWS)]),
    "lists of vectors": pa.array(
        _often(lambda row: [[one, row] for one in range(row % 30)]), pa.list_(pa.list_(pa.int16(), 2))
    ),
    "lists of structs": pa.array(_often(lambda row: _items(row, _point)), pa.large_list(POINT)),
    "lists of lists": pa.array(_often(lambda row: [_items(row, str) for _ in range(row % 3)])),
    "maps": pa.array(
        _often(lambda row: [(f"k{one}", row) for one in range(row % 4)]), pa.map_(pa.string(), pa.int64())
    ),
    "vectors of structs": pa.array(
        _often(lambda row: [{"a": row}, {"a": None}]), pa.list_(pa.struct([("a", pa.int32())]), 2)
    ),
}
VERSIONS = ("2.1", "2.2")
SETS = ([0], [ROWS - 1], [2047, 2048], [100, 101, 102, 103], [7, 1023, 1024, 2500, 4998])


def _columns(reader):
    return {leaf.id: number for number, leaf in enumerate(reader.schema.leaves())}


def _take(reader, rows):
    return reader.take(reader.schema, _columns(reader), np.array(rows))


@pytest.mark.parametrize("max_chunksize", [None, 1100])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", COLUMNS)
def test_same_rows(data_file, name, version, max_chunksize):
    if version == "2.1" and name in {"maps", "vectors of structs"}:
        pytest.skip("files of version 2.1 hold no such columns")
    table = pa.table({"c": COLUMNS[name]})
    data_file.write(table, max_chunksize=max_chunksize, version=version)
    for reader in (data_file.open(), data_file.open(counting=True)):
        for rows in SETS:
            assert _take(reader, rows).to_pylist() == table.take(rows).to_pylist()
            _take(reader, rows).validate(full=True)


@pytest.mark.parametrize("name", ["numbers", "times", "words", "wide vectors", "runs", "one value", "structs",
                                  "lists", "long lists", "very long lists", "lists of structs", "lists of lists",
                                  "maps"])  # fmt: skip
def test_these_are_read_one_by_one(data_file, monkeypatch, name):
    table = pa.table({"c": COLUMNS[name]})
    data_file.write(table)
    monkeypatch.setattr(plan, "batch_jobs", None)
    rows = [3, 77, 4000]
    assert _take(data_file.open(), rows).to_pylist() == table.take(rows).to_pylist()


def test_of_many_columns_more_neighbours_than_scattered_rows_are_read_one_by_one(data_file, monkeypatch):
    table = pa.table({f"{name} {copy}": COLUMNS[name] for copy in range(13) for name in ("numbers", "words")})
    data_file.write(table)
    neighbours, scattered = list(range(1020, 1030)), list(range(0, 5000, 500))
    for rows in (neighbours, scattered):
        assert _take(data_file.open(), rows).to_pylist() == table.take(rows).to_pylist()
    monkeypatch.setattr(plan, "batch_jobs", None)
    assert _take(data_file.open(), neighbours).to_pylist() == table.take(neighbours).to_pylist()
    with pytest.raises(TypeError):
        _take(data_file.open(), scattered)


def _lists_across_chunks(kind):
    """Lists of which most begin and end in different chunks, with nulls and empty ones in between."""
    sizes = RNG.integers(0, 9000, 40)
    values = [None if row % 7 == 0 else RNG.integers(0, 2, size).tolist() for row, size in enumerate(sizes)]
    return pa.array(values, pa.list_(pa.int64())).cast(pa.list_(kind))


@pytest.mark.parametrize("kind", [pa.int16(), pa.float64(), pa.string(), pa.bool_()], ids=str)
def test_rows_of_several_chunks_are_read_one_by_one(data_file, monkeypatch, kind):
    table = pa.table({"c": _lists_across_chunks(kind)})
    data_file.write(table, max_chunksize=None)
    monkeypatch.setattr(plan, "batch_jobs", None)
    reader = data_file.open()
    for row in range(len(table)):
        assert _take(reader, [row]).to_pylist() == table.slice(row, 1).to_pylist()
    assert _take(reader, [3, 4, 30]).to_pylist() == table.take([3, 4, 30]).to_pylist()


def test_a_row_of_very_many_chunks_is_read_otherwise(data_file, monkeypatch):
    values = RNG.normal(size=3000 * strategy.MOST_SCALAR_CHUNKS)
    table = pa.table({"c": pa.array([[1.0], values, [2.0]])})
    data_file.write(table)
    assert _take(data_file.open(), [0, 1, 2]).to_pylist() == table.to_pylist()
    monkeypatch.setattr(plan, "batch_jobs", None)
    with pytest.raises(TypeError):
        _take(data_file.open(), [1])
    assert _take(data_file.open(), [2]).to_pylist() == table.slice(2).to_pylist()


@pytest.mark.parametrize("name", ["numbers", "words", "texts", "runs", "structs", "lists", "very long lists",
                                  "lists of structs", "maps"])  # fmt: skip
def test_damage_is_named(data_file, monkeypatch, name):
    """Without checksums: the right rows, others, or an error that says so; never anything else."""
    monkeypatch.setenv("LANCE_CORE_CHECKSUMS", "off")
    data_file.write(pa.table({"c": COLUMNS[name].slice(0, 1500)}))
    whole = data_file.bytes()
    refused = 0
    for position in RNG.integers(0, len(whole), 150).tolist():
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        data_file.store.put("x.lance", bytes(damaged))
        try:
            _take(data_file.open(), [0, 700, 1499])
        except LanceError:
            refused += 1
    assert refused


def test_columns_that_are_read_otherwise_take_no_read_of_their_own(data_file):
    table = pa.table({name: COLUMNS[name] for name in ("numbers", "categories", "words", "vectors of structs")})
    data_file.write(table)
    reader = data_file.open(counting=True)
    calls = reader._source.calls
    calls.clear()
    rows = [3, 77, 4000]
    assert _take(reader, rows).to_pylist() == table.take(rows).to_pylist()
    assert len(calls) == 2  # what tells where rows are, the rows


def test_blocks_that_several_ranges_lie_in_are_read_once(data_file):
    data_file.write(pa.table({f"c{number}": COLUMNS["numbers"] for number in range(20)}))
    reader = data_file.open(counting=True)
    calls = reader._source.calls
    calls.clear()
    _take(reader, [3])
    assert all(len(ranges) == len(set(ranges)) for ranges in calls)
