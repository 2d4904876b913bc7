"""How often and how much is read."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.file.read import batches as batches_module
from lance_core.file.read import strategy

N = 400_000


@pytest.fixture
def wide(data_file):
    rng = np.random.default_rng(1)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(N // 8 * 100, np.float32)), 100)
    columns = {
        "number": pa.array(rng.integers(0, 1 << 40, N // 8)),
        "text": pa.array([f"{one}" * 5 for one in range(N // 8)]),
        "lists": pa.array([[one, one] for one in range(N // 8)]),
        "vectors": vectors,
        "large": pa.array([f"{one}" * 60 for one in range(N // 8)]),
    }
    data_file.write(pa.table(columns))
    reader = data_file.open(counting=True)
    leaves = {leaf.id: index for index, leaf in enumerate(reader.schema.leaves())}
    return reader, leaves


def _num_bytes(calls):
    return sum(end - start for ranges in calls for start, end in ranges)


def test_opening_takes_one_read(wide):
    reader, _ = wide
    assert len(reader._source.calls) == 1


def test_single_rows_take_two_reads_and_few_bytes(wide):
    reader, columns = wide
    before = len(reader._source.calls)
    reader.take(reader.schema, columns, np.array([3, 20_000, 49_000]))
    calls = reader._source.calls[before:]
    assert len(calls) == 2
    assert _num_bytes(calls[1:]) < 600_000
    reader.take(reader.schema.select(["vectors"]), columns, np.array([3, 20_000, 49_000]))
    assert _num_bytes(reader._source.calls[-1:]) == 3 * 400


def test_projection_reads_only_its_columns(wide):
    reader, columns = wide
    before = len(reader._source.calls)
    list(reader.scan(reader.schema.select(["number"]), columns, start=0, end=N // 8, batch_size=1 << 16))
    calls = reader._source.calls[before:]
    assert len(calls) == 1, "a whole page, what tells where its rows are included"
    assert _num_bytes(calls) < N
    before = len(reader._source.calls)
    list(reader.scan(reader.schema.select(["number"]), columns, start=100, end=200, batch_size=1 << 16))
    assert _num_bytes(reader._source.calls[before:]) < 20_000


def test_flat_vectors_are_not_copied(wide):
    reader, columns = wide
    batches = reader.scan(reader.schema.select(["vectors"]), columns, start=0, end=N // 8, batch_size=1 << 10)
    before = pa.total_allocated_bytes()
    held = list(batches)
    # Only the batches that lie across two pages are put together.
    assert sum(batch.nbytes for batch in held) == N // 8 * 400
    assert pa.total_allocated_bytes() - before < 2_000_000


def test_scan_holds_a_window_not_the_file(data_file, monkeypatch):
    from lance_core.file.read import strategy  # noqa: PLC0415 - to change its constants

    monkeypatch.setattr(strategy, "COLUMN_WINDOW_BYTES", 1 << 16)
    monkeypatch.setattr(strategy, "MOST_OF_A_COLUMN", 1 << 18)
    monkeypatch.setattr(strategy, "LEAST_OF_A_COLUMN", 1 << 18)
    data_file.write(pa.table({"c": pa.array(np.random.default_rng(2).random(N))}))
    reader = data_file.open(counting=True)
    batches = reader.scan(reader.schema, {0: 0}, start=0, end=N, batch_size=1000)
    next(batches)
    assert _num_bytes(reader._source.calls[1:]) < 400_000
    assert sum(batch.num_rows for batch in batches) == N - 1000


def test_windows_grow_to_what_the_rows_before_came_to():
    least = strategy.GUESSED_STRING_BYTES
    windows = strategy.Windows([[8.0], [float(least * strategy.LEVELS_SHARE)] * 6], 1024)
    first = next(windows)
    windows.learn([8 * first, 6 * 32 * first], first)  # six leaves share what their field came to
    assert next(windows) == strategy.window_rows([8.0] + [32.0] * 6, 1024) > strategy.CAUTION * first
    windows.learn([0, 0], first)  # what is null now need not be so later
    assert next(windows) == strategy.window_rows([2.0] + [float(least)] * 6, 1024)


@pytest.mark.parametrize(("num_rows", "expected"), [(3120, [1000, 1000, 1120]), (3130, [1000, 1000, 1000, 130])])
def test_few_rows_behind_the_last_window_are_read_with_it(data_file, monkeypatch, num_rows, expected):
    monkeypatch.setattr(strategy.Windows, "__next__", lambda _: 1000)
    table = pa.table({"c": range(num_rows)})
    data_file.write(table)
    reader = data_file.open()
    windows: list[int] = []
    read = reader._read
    monkeypatch.setattr(
        reader, "_read", lambda fields, rows, **rest: windows.append(len(rows)) or read(fields, rows, **rest)
    )
    batches = list(reader.scan(reader.schema, {0: 0}, start=0, end=num_rows, batch_size=500))
    assert windows == expected
    assert pa.Table.from_batches(batches)["c"].to_pylist() == list(range(num_rows))
    assert max(batch.num_rows for batch in batches) == 500


def test_windows_begin_with_what_the_file_before_came_to():
    asked, rows = object(), 1024
    windows = strategy.Windows([[8.0], [16.0]], rows, asked)
    first = next(windows)
    windows.learn([8 * first, 160 * first], first)
    assert next(strategy.Windows([[8.0], [16.0]], rows, asked)) == strategy.window_rows([8.0, 160.0], rows)
    assert next(strategy.Windows([[8.0], [32.0]], rows, asked)) == strategy.window_rows([8.0, 320.0], rows)
    assert next(strategy.Windows([[8.0], [16.0]], rows, object())) == next(strategy.Windows([[8.0], [16.0]], rows))
    for _ in range(8):
        strategy.Windows([[8.0]], rows, object()).learn([8], 1)
    assert next(strategy.Windows([[8.0], [16.0]], rows, asked)) == first  # too many others came since


@pytest.mark.parametrize("is_large", [False, True])
def test_the_last_batch_of_a_large_window_is_copied_out_of_it(data_file, monkeypatch, is_large):
    """So that whoever holds it does not hold all of the window while the next one is decoded."""
    table = pa.table({f"c{number}": np.random.default_rng(number).integers(0, 900, 8_000) for number in range(4)})
    data_file.write(table)
    monkeypatch.setattr(strategy, "WINDOW_BYTES", 1 << 16 if is_large else 1 << 20)
    monkeypatch.setattr(strategy, "MOST_WINDOW_BYTES", 1 << 20)
    reader = data_file.open()
    columns = {leaf.id: number for number, leaf in enumerate(reader.schema.leaves())}
    batches = list(reader.scan(reader.schema, columns, start=0, end=8_000, batch_size=1_000))
    assert pa.Table.from_batches(batches).equals(table)
    *_, before, last = batches
    assert before.get_total_buffer_size() > before.nbytes * 3
    assert (last.get_total_buffer_size() < last.nbytes * 2) == is_large


def test_compressed_chunks_of_scattered_rows_are_bounded(data_file, monkeypatch):
    texts = {f"c{number}": [f"{number} text {row * 7919 % 10_007}" for row in range(9_000)] for number in range(8)}
    asked = {"lance-encoding:compression": "zstd"}
    schema = pa.schema([pa.field(name, pa.string(), metadata=asked) for name in texts])
    table = pa.table(texts, schema=schema)
    data_file.write(table)
    decoded = []

    def counted(memory, wanted):
        decoded.append(len(wanted))
        return decode_values(memory, wanted)

    decode_values = batches_module.decode_values
    monkeypatch.setattr(batches_module, "decode_values", counted)
    rows = np.arange(0, 9_000, 18)
    reader = data_file.open()
    columns = {leaf.id: number for number, leaf in enumerate(reader.schema.leaves())}
    for most, num_steps in ((1 << 30, 1), (1, 8)):
        monkeypatch.setattr(strategy, "MOST_COMPRESSED_TOGETHER", most)
        decoded.clear()
        assert pa.Table.from_batches([reader.take(reader.schema, columns, rows)]).equals(table.take(rows))
        assert len(decoded) == num_steps
