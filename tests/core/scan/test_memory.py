"""What a scan holds does not grow with the table."""

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.file import source
from lance_core.file.read import reader, strategy

pytestmark = pytest.mark.slow

WINDOW = 1 << 20


def peak(uri, **options):
    """Most bytes that Arrow's pool held at any batch of a scan, beyond those before it."""
    before = pa.total_allocated_bytes()
    most = num_rows = 0
    for batch in lance_core.dataset(uri).to_batches(batch_size=1024, **options):
        num_rows += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    return most, num_rows


def write(uri, rows):
    rng = np.random.default_rng(1)
    sizes = rng.integers(0, 5, rows)
    items = rng.random(int(sizes.sum()))
    columns = {
        "numbers": rng.integers(0, 1 << 40, rows),
        "texts": [f"text {one}" for one in rng.integers(0, 1 << 40, rows)],
        "lists": pa.ListArray.from_arrays(np.append(0, np.cumsum(sizes)).astype(np.int32), items),
    }
    lance_core.write_dataset(pa.table(columns), uri)


@pytest.mark.parametrize("options", [{}, {"filter": "numbers >= 0"}, {"columns": ["lists"]}])
def test_a_scan_holds_a_window(tmp_path, monkeypatch, options):
    monkeypatch.setattr(strategy, "WINDOW_BYTES", WINDOW)
    monkeypatch.setattr(strategy, "COLUMN_WINDOW_BYTES", WINDOW)
    write(tmp_path / "small", 50_000)
    write(tmp_path / "large", 200_000)
    small, large = peak(tmp_path / "small", **options), peak(tmp_path / "large", **options)
    assert (small[1], large[1]) == (50_000, 200_000)
    assert large[0] < 4 * WINDOW
    assert large[0] < 1.5 * small[0] + WINDOW


def test_what_is_kept_anyway_is_read_in_larger_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(strategy, "WINDOW_BYTES", WINDOW)
    monkeypatch.setattr(strategy, "COLUMN_WINDOW_BYTES", WINDOW)
    monkeypatch.setattr(strategy, "KEPT_WINDOW_BYTES", 4 * WINDOW)
    monkeypatch.setattr(strategy, "KEPT_COLUMN_WINDOW_BYTES", 4 * WINDOW)
    write(tmp_path / "t", 100_000)
    steps = []
    read = reader.DataFileReader._read

    def counted(self, wanted, rows, **options):
        steps.append(len(rows))
        return read(self, wanted, rows, **options)

    monkeypatch.setattr(reader.DataFileReader, "_read", counted)
    table = lance_core.dataset(tmp_path / "t")
    assert sum(one.num_rows for one in table.to_batches(batch_size=1024)) == 100_000
    streamed = steps.copy()
    steps.clear()
    assert table.scanner(batch_size=1024).to_table().num_rows == 100_000
    assert sum(streamed) == sum(steps) == 100_000
    assert max(streamed) * 1.5 < max(steps) <= max(streamed) * 4


def test_many_columns_that_are_kept_anyway_are_read_in_one_step(tmp_path, monkeypatch):
    """Their window is as wide as they are, and no batch slices all of them."""
    monkeypatch.setattr(strategy, "WINDOW_BYTES", WINDOW)
    monkeypatch.setattr(strategy, "COLUMN_WINDOW_BYTES", WINDOW)
    monkeypatch.setattr(strategy, "KEPT_WINDOW_BYTES", WINDOW)
    columns = {f"c{number}": np.arange(20_000) * number for number in range(40)}
    made = lance_core.write_dataset(pa.table(columns), tmp_path / "t")
    table = made.to_table(batch_size=1024)
    assert {name: table[name].num_chunks for name in columns} == dict.fromkeys(columns, 1)
    assert all(np.array_equal(table[name].to_numpy(), values) for name, values in columns.items())
    assert len(list(made.to_batches(batch_size=1024))) == 20


def test_streams_hold_small_batches(tmp_path):
    """Of 40 MB of strings, a stream holds a few MB by default: what is read, what is made of it, what it hands out."""
    count = 200_000
    texts = pa.array([f"{number:08} {'some words ' * 17}" for number in range(count)])
    table = lance_core.write_dataset(pa.table({"a": texts, "b": np.arange(count)}), tmp_path / "t")
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in table.to_batches()]
    assert len(held) > 4
    assert max(held) < texts.nbytes / 2
    assert table.to_table()["a"].num_chunks < len(held)


def test_windows_follow_what_strings_come_to(tmp_path, monkeypatch):
    monkeypatch.setattr(strategy, "COLUMN_WINDOW_BYTES", WINDOW)
    texts = [f"{number:08} {'the same words again and again ' * 12}" for number in range(50_000)]
    table = lance_core.write_dataset(pa.table({"c": texts}), tmp_path / "t")
    stored = sum(one.stat().st_size for one in (tmp_path / "t" / "data").iterdir())
    assert stored * 10 < sum(map(len, texts))
    steps = []
    read = reader.DataFileReader._read

    def counted(self, wanted, rows, **options):
        arrays = read(self, wanted, rows, **options)
        steps.append(sum(array.nbytes for one in arrays for array in one))
        return arrays

    monkeypatch.setattr(reader.DataFileReader, "_read", counted)
    assert sum(batch.num_rows for batch in table.to_batches(batch_size=1024)) == 50_000
    assert max(steps[1:]) <= WINDOW
    assert len(steps) > 10


def test_a_column_that_is_only_asked_is_read_in_large_steps(tmp_path, monkeypatch):
    """A million numbers at once: each step costs as much as some ten thousand values."""
    numbers = np.arange(1 << 20) % 997
    table = lance_core.write_dataset(pa.table({"c": numbers}), tmp_path / "t")
    steps = []
    run = source.FileBytes.run
    monkeypatch.setattr(
        source.FileBytes, "run", lambda self, *given, **how: steps.append(1) or run(self, *given, **how)
    )
    assert table.count_rows(filter="c < 10") == np.count_nonzero(numbers < 10)
    assert len(steps) == 1


def test_rows_that_are_kept_are_cut_where_pages_end(tmp_path):
    """As few pieces as pages have bounds, and none of them a copy; streams keep to their batches."""
    count = 600_000
    wide = pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), count, [None, pa.py_buffer(bytes(range(32)) * count)])
    made = pa.table({"wide": wide, "narrow": np.arange(count)})
    table = lance_core.write_dataset(made, tmp_path / "t", data_storage_version="2.0")
    before = pa.total_allocated_bytes()
    found = table.to_table(batch_size=1 << 14)
    assert pa.total_allocated_bytes() - before < made.nbytes / 10
    assert [len(one) for one in found.column("narrow").chunks] == [len(one) for one in found.column("wide").chunks]
    assert found.column("wide").num_chunks == -(-wide.nbytes // (8 << 20))
    assert found.equals(made)
    assert max(one.num_rows for one in table.to_batches(batch_size=1 << 14)) == 1 << 14


@pytest.mark.parametrize(("num_rows", "windows"), [(1100, [1100]), (2600, [900, 900, 800]), (2100, [1000, 1100])])
def test_rows_are_divided_evenly_among_windows(num_rows, windows):
    """Whole batches, at most as many rows as fit; only the last window takes up to an eighth more."""
    bounds = [0]
    while bounds[-1] < num_rows:
        bounds.append(strategy.window_end(bounds[-1], 1000, num_rows, 100))
    assert np.diff(bounds).tolist() == windows
    assert strategy.window_end(0, 1000, 2100, 1000) == 1000


def test_windows_hold_a_share_of_each_of_many_columns():
    """192 KiB of each of 300 columns, 72 MiB of a thousand."""
    sizes = [8 * number * strategy.window_rows([8.0] * number, 512) for number in (300, 1000)]
    assert [size >> 20 for size in sizes] == [56, 70]
