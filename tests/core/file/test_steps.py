"""How many steps a column costs: what the time of small reads and writes of wide tables consists of."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.encoding import registry
from lance_core.encoding.layouts import shared_levels
from lance_core.file.read import strategy

RNG = np.random.default_rng(2)


def _table(num_columns, make):
    return pa.table({f"c{number}": make() for number in range(num_columns)})


MAKERS = {
    "small": (lambda: RNG.integers(0, 1000, 1000), 104, 45),
    "floats": (lambda: RNG.random(1000), 107, 45),
    "words": (lambda: pa.array([f"word {one}" for one in RNG.integers(0, 99, 1000).tolist()]), 145, 60),
}


def _per_column(data_file, calls_of, make, work):
    """Steps of one more column."""
    steps: list[int] = []
    for count in (20, 60):
        table = _table(count, make)
        data_file.write(table)
        work(table)  # what is learned once
        steps.append(calls_of(lambda table=table: work(table)))
    return (steps[1] - steps[0]) / 40


@pytest.mark.parametrize(
    ("values", "most"), [([7], 103), ([None, 7], 137), ([0.5, 2.5, 1e9], 138), (["x", None], 211)], ids=str
)
def test_pages_of_a_hundred_rows(data_file, calls_of, values, most):
    column = pa.array([values[number % len(values)] for number in range(100)])
    assert _per_column(data_file, calls_of, lambda: column, data_file.write) <= most


@pytest.mark.parametrize("name", MAKERS)
def test_small_pages(data_file, calls_of, name):
    make, most, _ = MAKERS[name]
    assert _per_column(data_file, calls_of, make, data_file.write) <= most


@pytest.mark.parametrize("name", MAKERS)
def test_one_row_of_a_file_just_opened(data_file, calls_of, name):
    make, _, most = MAKERS[name]

    def take(table):
        reader = data_file.open()
        columns = {leaf.id: index for index, leaf in enumerate(reader.schema.leaves())}
        assert reader.take(reader.schema, columns, np.array([700])).num_columns == table.num_columns

    assert _per_column(data_file, calls_of, make, take) <= most


WINDOWS = {
    "small": (MAKERS["small"][0], 69),
    "floats": (MAKERS["floats"][0], 71),
    "words": (lambda: MAKERS["words"][0]().take(pa.array(RNG.permutation(1000))), 145),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_range_of_rows(data_file, calls_of, name):
    """Each further column of a kind costs few steps where few rows are read."""
    make, most = WINDOWS[name]
    assert _per_column(data_file, calls_of, make, lambda _: data_file.read(100, 900)) <= most


@pytest.mark.slow
def test_a_scan_of_many_columns(data_file, calls_of):
    """What is decoded together stays small, so that a column shares its steps with some others, not with all."""
    rows = 40_000

    def make(number):
        match number % 4:
            case 0:
                return pa.array(RNG.integers(0, 1000, rows))
            case 1:
                return pa.array(RNG.integers(0, 1 << 40, rows))
            case 2:
                return pa.array(RNG.integers(0, 1000, rows), mask=RNG.random(rows) < 0.1)
            case _:
                return pa.array(["a", "bc", "def"]).take(pa.array(RNG.integers(0, 3, rows)))

    steps: list[int] = []
    for count in (40, 80):
        table = pa.table({"lists": [[one, one + 1] for one in range(rows)]})
        for number in range(count):
            table = table.append_column(f"c{number}", make(number))
        data_file.write(table)
        assert data_file.read().equals(table)
        steps.append(calls_of(lambda: data_file.read(batch_size=rows)))
    assert (steps[1] - steps[0]) / 40 <= 345


def test_leaves_of_a_list_share_what_its_levels_mean(data_file, monkeypatch):
    structs = [[{"a": one, "b": one % 7, "c": one / 8} for one in range(row % 4)] for row in range(40_000)]
    lists = pa.array([None if row % 11 == 0 else one for row, one in enumerate(structs)])
    data_file.write(pa.table({"lists": lists}))
    calls = []
    unravel = shared_levels.unravel
    monkeypatch.setattr(shared_levels, "unravel", lambda *given: calls.append(1) or unravel(*given))
    assert data_file.read(batch_size=40_000)["lists"].combine_chunks().equals(lists)
    assert len(calls) == 1


@pytest.mark.parametrize(("has_nulls", "num_unpacked"), [(False, 3), (True, 4)])
def test_leaves_of_a_list_unpack_their_levels_once(data_file, monkeypatch, has_nulls, num_unpacked):
    """Repetition levels once, definition levels for each struct and each leaf with nulls; in chunks of any size."""
    items = [
        {"a": one, "b": None if has_nulls and one % 5 == 0 else str(one % 7919), "c": {"d": one / 8}}
        for one in range(60_000)
    ]
    sizes = RNG.poisson(3, 40_000)
    starts = sizes.cumsum().tolist()
    structs = [items[end - size : end] if end <= 60_000 else [] for size, end in zip(sizes, starts, strict=True)]
    lists = pa.array([None if row % 11 == 0 else one for row, one in enumerate(structs)])
    data_file.write(pa.table({"lists": lists}))
    calls = []
    unpack = registry.decode_level_chunks
    monkeypatch.setattr(registry, "decode_level_chunks", lambda *given: calls.append(1) or unpack(*given))
    assert data_file.read(batch_size=40_000)["lists"].combine_chunks().equals(lists)
    assert len(calls) == num_unpacked


def test_leaves_of_a_list_share_levels_from_within_a_row(data_file, monkeypatch):
    """Two leaves in chunks of one size: of the second, only the first chunk of levels is unpacked."""
    structs = [[{"a": one * row, "b": one * row + 7} for one in range(1 + row % 6)] for row in range(40_000)]
    data_file.write(pa.table({"lists": structs}))
    counts = []
    unpack = registry.decode_level_chunks
    monkeypatch.setattr(
        registry, "decode_level_chunks", lambda *given: counts.append(len(given[1].counts)) or unpack(*given)
    )
    monkeypatch.setattr(strategy, "MOST_BATCHED_ROWS", 16)
    assert data_file.read(9_001, 30_000)["lists"].to_pylist() == structs[9_001:30_000]
    assert counts[0] > 10
    assert counts[1:] == [1]


@pytest.mark.parametrize("size", [301, 900])
def test_leaves_of_a_list_do_not_share_levels_from_different_items_of_a_row(data_file, monkeypatch, size):
    """Chunks of strings and of numbers begin in the same long row, but not with the same item of it."""
    structs = [[{"a": one * row, "b": f"{one} of {row}" * 4} for one in range(size + row % 5)] for row in range(300)]
    lists = pa.array(structs)
    data_file.write(pa.table({"lists": lists}))
    monkeypatch.setattr(strategy, "MOST_BATCHED_ROWS", 16)
    for start in range(3, 40):
        assert data_file.read(start, start + 250)["lists"].combine_chunks().equals(lists[start : start + 250])


@pytest.mark.parametrize("rows", [(0, 17), (0, 9_000), (9_001, 30_000), (20_000, 40_000)])
def test_leaves_of_a_list_read_rows_from_wherever_their_chunks_begin(data_file, rows):
    structs = [
        [
            {"a": one, "b": str(one * row), "c": one % 2 == 0, "d": None if one % 3 else [row] * one}
            for one in range(row % 6)
        ]
        for row in range(40_000)
    ]
    lists = pa.array([None if row % 11 == 0 else one for row, one in enumerate(structs)])
    data_file.write(pa.table({"lists": lists}))
    assert data_file.read(*rows)["lists"].combine_chunks().equals(lists[rows[0] : rows[1]])


@pytest.mark.parametrize(("number", "most"), [(1.5, 133), (None, 180)])
def test_a_scan_of_columns_of_version_2_0(data_file, calls_of, number, most):
    steps: list[int] = []
    for count in (20, 60):
        data_file.write(_table(count, lambda: pa.array([number, 2.5] * 500)), version="2.0")
        data_file.read()  # what is learned once
        steps.append(calls_of(data_file.read))
    assert (steps[1] - steps[0]) / 40 <= most
