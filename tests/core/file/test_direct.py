"""Values that lie one after the other are gathered for all columns, whatever their types and pages."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from lance_core.errors import LanceError
from lance_core.file.read import direct, plan, strategy

RNG = np.random.default_rng(17)
ROWS = 6000
COLUMNS = {
    "numbers": pa.array(RNG.integers(0, 1 << 62, ROWS)),
    "others": pa.array(RNG.integers(0, 1 << 62, ROWS)),
    "floats": pa.array(RNG.random(ROWS)),
    "singles": pa.array(RNG.random(ROWS).astype(np.float32)),
    "times": pa.array(RNG.integers(0, 1 << 62, ROWS)).cast(pa.timestamp("us")),
    "decimals": pa.array([Decimal(int(number)) for number in RNG.integers(0, 1 << 62, ROWS)], pa.decimal128(38, 0)),
    "fixed": pa.array([bytes(row) for row in RNG.integers(0, 256, (ROWS, 21), np.uint8)], pa.binary(21)),
    "one": pa.array([7] * ROWS),
    "nothing": pa.nulls(ROWS, pa.int32()),
    "words": pa.array([f"word {row}" for row in range(ROWS)]),
    "pairs": pa.array([{"x": float(number)} for number in RNG.random(ROWS)]),
}


def take(reader, rows):
    columns = {leaf.id: number for number, leaf in enumerate(reader.schema.leaves())}
    return reader.take(reader.schema, columns, np.array(rows))


@pytest.mark.parametrize("max_chunksize", [None, 700])
@pytest.mark.parametrize("count", [1, 40, 1024, 1025, 3000])
@pytest.mark.parametrize("counting", [False, True])
def test_same_rows(data_file, monkeypatch, max_chunksize, count, counting):
    monkeypatch.setattr(strategy, "MANY_COLUMNS", 1)
    if max_chunksize:
        monkeypatch.setattr("lance_core.file.write.writer.PAGE_BYTES", max_chunksize * 8)
    table = pa.table(COLUMNS)
    data_file.write(table, max_chunksize=max_chunksize)
    rows = np.sort(RNG.choice(ROWS, count, replace=False))
    taken = take(data_file.open(counting=counting), rows)
    taken.validate(full=True)
    assert pa.Table.from_batches([taken]).equals(table.take(rows))


def test_columns_of_one_type_are_views_of_one_array(data_file, monkeypatch):
    gathered = []

    def counted(memory, places, dtype):
        gathered.append(len(places))
        return gather(memory, places, dtype)

    gather = direct.gather_words
    monkeypatch.setattr(direct, "gather_words", counted)
    monkeypatch.setattr(plan, "batch_jobs", None)
    data_file.write(pa.table({name: COLUMNS[name] for name in ("numbers", "others", "floats")}))
    assert take(data_file.open(), range(0, ROWS, 100)).num_rows == 60
    assert gathered == [120, 60]


def test_pages_that_are_too_small_are_damaged(data_file, monkeypatch):
    monkeypatch.setenv("LANCE_CORE_CHECKSUMS", "off")
    data_file.write(pa.table({"numbers": COLUMNS["numbers"]}))
    whole, refused = data_file.bytes(), 0
    for position in range(len(whole) - 400, len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x3F
        data_file.store.put("x.lance", bytes(damaged))
        try:
            take(data_file.open(), range(0, ROWS, 100))
        except LanceError:
            refused += 1
    assert refused


@pytest.mark.parametrize("counting", [False, True])
@pytest.mark.parametrize("max_chunksize", [None, 700])
def test_consecutive_values_are_views_of_the_file(data_file, monkeypatch, max_chunksize, counting):
    if max_chunksize:
        monkeypatch.setattr("lance_core.file.write.writer.PAGE_BYTES", max_chunksize * 8)
    table = pa.table(COLUMNS).select(["numbers", "others", "floats"])
    data_file.write(table, max_chunksize=max_chunksize)
    monkeypatch.setattr("lance_core.file.read.groups.full_zip.decode_even", None)
    reader = data_file.open(counting=counting)
    columns = {leaf.id: number for number, leaf in enumerate(reader.schema.leaves())}
    batches = list(reader.scan(reader.schema, columns, start=100, end=5000, batch_size=1000, is_kept=True))
    assert pa.Table.from_batches(batches).equals(table.slice(100, 4900))
    if not counting and not max_chunksize:
        mapped = np.frombuffer(reader._source.mapped, np.uint8)
        at = batches[0].column("floats").buffers()[1].address - mapped.ctypes.data
        assert 0 <= at < len(mapped)
