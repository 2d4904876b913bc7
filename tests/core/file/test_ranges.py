"""Ranges of rows that are read and decoded at one go."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.errors import InvalidInputError
from lance_core.file.write import writer

RNG = np.random.default_rng(5)
ROWS = 9_000
RANGES = [range(10, 20), range(4_000, 8_500), range(30, 3_000), range(3_000, 3_001), range(8_999, 9_000)]


def _take_ranges(reader, ranges):
    columns = {leaf.id: index for index, leaf in enumerate(reader.schema.leaves())}
    return reader.take_ranges(reader.schema, columns, ranges)


@pytest.fixture
def table(data_file, monkeypatch):
    monkeypatch.setattr(writer, "PAGE_BYTES", 8_000)
    vectors = pa.array(RNG.normal(size=ROWS * 4).astype(np.float32))
    made = pa.table({
        "number": RNG.integers(0, 1 << 20, ROWS),
        "maybe": pa.array(RNG.integers(0, 1 << 30, ROWS), mask=RNG.random(ROWS) < 0.3),
        "word": [f"word {number % (5 + number % 200)}" for number in range(ROWS)],
        "list": [[row, row + 1][: row % 3] for row in range(ROWS)],
        "pair": [{"a": row, "b": str(row)} for row in range(ROWS)],
        "vector": pa.FixedSizeListArray.from_arrays(vectors, 4),
    })  # fmt: skip
    data_file.write(made)
    return made


def test_ranges_in_any_order_come_as_they_were_asked_for(data_file, table):
    for batch, rows in zip(_take_ranges(data_file.open(), RANGES), RANGES, strict=True):
        batch.validate(full=True)
        assert pa.Table.from_batches([batch]).equals(table.slice(rows.start, len(rows)))


@pytest.mark.usefixtures("table")
def test_ranges_are_asked_for_together(data_file):
    reader = data_file.open(counting=True)
    assert len(_take_ranges(reader, RANGES)) == len(RANGES)
    source = reader._source
    source.calls.clear()
    _take_ranges(reader, RANGES)
    assert len(source.calls) <= 2
    assert _take_ranges(reader, []) == []
    with pytest.raises(InvalidInputError, match="there is no row 9000"):
        _take_ranges(reader, [range(8_990, 9_001)])


def test_ranges_of_older_files(data_file, table):
    data_file.write(table.select(["number", "word"]), version="2.0")
    for batch, rows in zip(_take_ranges(data_file.open(), RANGES), RANGES, strict=True):
        assert pa.Table.from_batches([batch]).equals(table.select(["number", "word"]).slice(rows.start, len(rows)))
