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


@pytest.mark.parametrize("page_bytes", [5_000, 1 << 23])
def test_ranges_of_words_that_repeat(data_file, monkeypatch, page_bytes):
    """Of one page or of several, looked up by numpy or by Arrow, with nulls or without, before and after takes."""
    monkeypatch.setattr(writer, "PAGE_BYTES", page_bytes)
    words = pa.array([f"a word that repeats {number % 50}" for number in range(ROWS)])
    is_null = RNG.random(ROWS) < 0.2
    made = pa.table({
        "word": words,
        "maybe": pa.array(words.to_pylist(), mask=is_null),
        "large": words.cast(pa.large_string()),
        "pair": pa.StructArray.from_arrays([words], ["word"], mask=pa.array(is_null)),
        "number": pa.array((np.arange(ROWS) % 50).astype(np.float64) / 7, mask=is_null),
    })  # fmt: skip
    data_file.write(made)
    reader = data_file.open()
    columns = {leaf.id: index for index, leaf in enumerate(reader.schema.leaves())}
    for _ in range(2):
        for rows in (*RANGES, range(ROWS)):
            (batch,) = reader.take_ranges(reader.schema, columns, [rows])
            batch.validate(full=True)
            assert pa.Table.from_batches([batch]).equals(made.slice(rows.start, len(rows)))
            assert data_file.read(rows.start, rows.stop).equals(made.slice(rows.start, len(rows)))
        wanted = np.sort(RNG.choice(ROWS, 400, replace=False))
        assert reader.take(reader.schema, columns, wanted).equals(made.take(wanted).combine_chunks().to_batches()[0])


def test_ranges_of_older_files(data_file, table):
    data_file.write(table.select(["number", "word"]), version="2.0")
    for batch, rows in zip(_take_ranges(data_file.open(), RANGES), RANGES, strict=True):
        assert pa.Table.from_batches([batch]).equals(table.select(["number", "word"]).slice(rows.start, len(rows)))
