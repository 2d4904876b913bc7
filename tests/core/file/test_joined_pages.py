"""Scattered rows of many pages: found in the chunks of all pages that are alike, whatever is known of them so far."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.errors import InvalidInputError
from lance_core.file.read import cache, groups
from lance_core.file.read.cache import FileCaches
from lance_core.file.write import writer

RNG = np.random.default_rng(21)
ROWS = 24_000


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch):
    monkeypatch.setattr(writer, "PAGE_BYTES", 8_000)
    monkeypatch.setattr("lance_core.file.read.reader.FILE_CACHES", FileCaches())


def _reader(data_file):
    reader = data_file.open()
    columns = {leaf.id: index for index, leaf in enumerate(reader.schema.leaves())}
    return lambda rows: pa.Table.from_batches([reader.take(reader.schema, columns, np.asarray(rows, np.int64))])


@pytest.fixture
def table(data_file):
    """Pages of several kinds, some of one value, some of nulls."""
    kinds = np.arange(ROWS) // 3000
    found = pa.table({
        "number": np.where(kinds % 3 == 1, 7, RNG.integers(0, 1 << 20, ROWS)),
        "maybe": pa.array(RNG.integers(0, 1 << 30, ROWS), mask=(kinds % 2 == 1) & (RNG.random(ROWS) < 0.3)),
        "line": [f"{number:08} {'x' * (number % 50)}" for number in RNG.integers(0, 1 << 20, ROWS).tolist()],
        "word": [f"word {number % (5 + number % 200)}" for number in range(ROWS)],
        "list": [[row, row + 1][: row % 3] for row in range(ROWS)],
    })  # fmt: skip
    data_file.write(found)
    return found


def test_rows_of_any_pages_in_any_order_of_takes(data_file, table):
    take = _reader(data_file)
    for count, first in ((300, 20_000), (400, 0), (500, 9_000), (900, 0), (2_000, 0), (300, 12_000)):
        rows = np.sort(RNG.choice(np.arange(first, ROWS), count, replace=False))
        assert take(rows).equals(table.take(rows))
    assert _reader(data_file)(rows).equals(table.take(rows))  # who opens it again knows what was put together


@pytest.mark.parametrize("rows", [1, 7, 60, 400, 2_000])
def test_rows_are_found_among_chunks_and_chunks_among_rows(rows):
    firsts = np.array([100, 110, 110, 125, 600, 601, 640])
    wanted = np.sort(RNG.choice(np.arange(100, 2_100), rows, replace=False))
    found = cache.chunks_in(firsts, wanted)
    assert found.tolist() == [max(np.flatnonzero(firsts <= row)) for row in wanted.tolist()]


def test_a_row_twice_and_neighbours(data_file, table):
    rows = np.repeat(np.arange(2_900, 3_100), 2)
    assert _reader(data_file)(rows).equals(table.take(rows))


def test_pages_take_few_steps(data_file, calls_of):
    """Four hundred rows of one column, one page after the other, cost hardly more for three times as many pages."""
    steps = []
    for rows in (20_000, 60_000):
        data_file.write(pa.table({"number": np.random.default_rng(1).integers(0, 1 << 30, rows)}))
        take, wanted = _reader(data_file), np.linspace(0, rows - 1, 400).astype(np.int64)
        take(wanted)
        steps.append((len(take(wanted)), calls_of(lambda take=take, wanted=wanted: take(wanted))))
    assert [count for count, _ in steps] == [400, 400]
    assert (steps[1][1] - steps[0][1]) / 40 <= 16


def test_pages_that_were_read_together_are_not_copied(data_file, monkeypatch):
    table = pa.table({"number": RNG.integers(0, 1 << 30, ROWS)})
    data_file.write(table)
    monkeypatch.setattr(cache, "join_tables", None)
    rows = np.arange(0, ROWS, 20)
    assert _reader(data_file)(rows).equals(table.take(rows))


def test_pages_that_are_alike_take_no_steps_of_their_own(data_file, calls_of):
    """Once all are put together, nobody asks which page a row is in."""
    counts = []
    rows = np.sort(RNG.choice(3_000, 700, replace=False))
    for number in (1, 8):
        text = [f"{number:08} {'x' * (number % 50)}" for number in RNG.integers(0, 1 << 20, 3_000 * number).tolist()]
        table = pa.table({"line": text})
        data_file.write(table)
        wanted, take = rows * number, _reader(data_file)
        assert take(wanted).equals(table.take(wanted))
        assert take(wanted).equals(table.take(wanted))
        counts.append(calls_of(lambda: take(wanted)))  # noqa: B023 called at once
    assert counts[1] <= counts[0] + 20
    with pytest.raises(InvalidInputError, match="there is no row 24000"):
        take([*wanted.tolist(), 24_000])


PAIR = pa.list_(pa.struct([pa.field("left", pa.int32()), pa.field("right", pa.string())]), 2)
ALTERNATING = {
    "lists": lambda row, is_odd: [row] * (row % 7 if is_odd else 5),
    "lists of words": lambda row, is_odd: [f"word {row}", None if is_odd else ""] * 3,
    "pairs": lambda row, is_odd: [{"left": None if is_odd else row, "right": str(row)}] * 2,
}


@pytest.mark.parametrize("kind", ALTERNATING)
def test_alike_pages_among_others_are_decoded_together(data_file, monkeypatch, kind):
    table = pa.table({"lists": pa.array(
        [ALTERNATING[kind](row, row // 4_000 % 2 == 1) for row in range(ROWS)], PAIR if kind == "pairs" else None
    )})  # fmt: skip
    data_file.write(table)
    calls = []
    counted = groups.chunk_group
    monkeypatch.setattr(groups, "chunk_group", lambda *arguments: calls.append(1) or counted(*arguments))
    for rows in (np.arange(0, ROWS, 19), np.arange(1, ROWS - 1, 23), np.append(np.arange(0, 500, 3), ROWS - 1)):
        calls.clear()
        assert _reader(data_file)(rows).equals(table.take(rows))
        assert 0 < len(calls) <= 3 * table.schema.field(0).type.num_fields * 2
