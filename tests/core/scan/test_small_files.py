"""Fragments of one row: each file is read whole, and the constant pages of a column are decoded together."""

import decimal
import os

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CorruptDataError
from lance_core.file.read import alike_files
from lance_core.file.read.constant_pages import ConstantJob
from lance_core.store import local
from lance_core.store.local_reader import LocalReader, SmallFile

NUM_ROWS = 70
KINDS = {
    "boolean": (pa.bool_(), lambda n: n % 3 == 0),
    "small": (pa.int8(), lambda n: n - 30),
    "large": (pa.int64(), lambda n: n * 10**12),
    "half": (pa.float16(), np.float16),
    "text": (pa.string(), lambda n: "x" * (n % 5)),
    "large text": (pa.large_string(), lambda n: "ab" * (n % 40)),
    "bytes": (pa.binary(5), lambda n: bytes([n]) * 5),
    "decimal": (pa.decimal128(20, 2), decimal.Decimal),
    "time": (pa.timestamp("us"), lambda n: np.datetime64("2020-01-01", "us") + np.timedelta64(n, "D")),
    "list": (pa.list_(pa.int32()), lambda n: list(range(n % 4))),
    "struct": (pa.struct([("a", pa.int32()), ("t", pa.string())]), lambda n: {"a": n, "t": str(n)}),
    "vector": (pa.list_(pa.float32(), 3), lambda n: [n, 1, 2]),
}
MOST_CALLS = {"filter": 290, "scan": 240, "take": 250}


def rows(every):
    """Return all kinds; each ``every``-th value is null, none if that is 0."""
    values = {
        name: pa.array([None if every and n % every == 0 else value(n) for n in range(NUM_ROWS)], kind)
        for name, (kind, value) in KINDS.items()
    }
    return pa.table({**values, "n": np.arange(NUM_ROWS)})


@pytest.mark.parametrize("per_file", [1, 2, 11])
@pytest.mark.parametrize("every", [0, 7, 1])
def test_values_of_many_small_files_are_those_that_were_written(tmp_path, every, per_file):
    table = rows(every)
    lance_core.write_dataset(table, tmp_path / "t.lance", max_rows_per_file=per_file)
    dataset = lance_core.dataset(tmp_path / "t.lance")
    assert dataset.to_table().equals(table)
    wanted = [3, 4, 11, 30, 31, 32, 69]
    assert dataset.take(wanted).equals(table.take(wanted))
    assert dataset.to_table(filter="n >= 20 AND n % 2 = 1").equals(table.take(list(range(21, NUM_ROWS, 2))))


def test_constant_pages_of_neighbouring_files_are_decoded_together(tmp_path, monkeypatch):
    table = pa.table({"n": np.arange(20), "s": [f"text {n}" for n in range(20)]})
    lance_core.write_dataset(table, tmp_path / "t.lance", max_rows_per_file=1)
    decode, jobs = ConstantJob.decode, []

    def decoded(job, buffers):
        jobs.append(len(job.pages))
        decode(job, buffers)

    monkeypatch.setattr(ConstantJob, "decode", decoded)
    monkeypatch.setattr(alike_files, "FEWEST", 100)
    assert lance_core.dataset(tmp_path / "t.lance").to_table().equals(table)
    assert jobs == [20, 20]


def test_a_small_file_is_read_and_a_large_one_mapped(tmp_path):
    store = local.LocalStore(str(tmp_path))
    (tmp_path / "small").write_bytes(b"12345")
    (tmp_path / "large").write_bytes(bytes(1 << 15))
    small = store.sized_reader("small", 5, most_bytes=1 << 20)
    assert isinstance(small, SmallFile)
    assert [part.to_pybytes() for part in small.read_ranges([(1, 3), (4, 5)])] == [b"23", b"5"]
    assert small.stamp == LocalReader(str(tmp_path / "small")).stamp
    for size in (1 << 15, 5):  # also if the manifest tells another size
        assert isinstance(store.sized_reader("large", size, most_bytes=1 << 20), LocalReader)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
def test_what_is_no_small_file_is_refused_without_waiting(tmp_path):
    store = local.LocalStore(str(tmp_path))
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name in ("fifo", "folder"):
        with pytest.raises(CorruptDataError, match="expected a file"):
            store.sized_reader(name, 5, most_bytes=100)


def test_a_damaged_byte_of_a_small_file_is_found_where_it_is_read(tmp_path):
    table = pa.table({"a": ["first " * 20], "b": ["second " * 20]})
    lance_core.write_dataset(table, tmp_path / "t.lance")
    (path,) = (tmp_path / "t.lance" / "data").iterdir()
    data = bytearray(path.read_bytes())
    data[data.index(b"first") + 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CorruptDataError, match="damaged"):
        lance_core.dataset(tmp_path / "t.lance").to_table()


@pytest.mark.parametrize("work", MOST_CALLS)
def test_a_file_of_one_row_costs_few_calls(tmp_path, calls_of, work):
    works = {
        "filter": lambda path: lance_core.dataset(path).to_table(filter="x < 0.5"),
        "scan": lambda path: lance_core.dataset(path).to_table(),
        "take": lambda path: lance_core.dataset(path).take(list(range(0, 128, 2))),
    }
    table = pa.table({"id": np.arange(128), "s": [f"name {n}" for n in range(128)], "x": np.arange(128) / 128})
    for name in ("warm", "counted"):
        lance_core.write_dataset(table, tmp_path / name, max_rows_per_file=1)
    works[work](str(tmp_path / "warm"))
    calls = calls_of(lambda: works[work](str(tmp_path / "counted"))) / (64 if work == "take" else 128)
    assert calls <= MOST_CALLS[work]


def test_a_run_reads_each_file_once(tmp_path, monkeypatch):
    """A filter asks for the condition, then for the other columns."""
    table = pa.table({"n": np.arange(9000) % 100, "s": [f"text {n % 7}" for n in range(9000)]})
    dataset = lance_core.write_dataset(table, tmp_path / "t", max_rows_per_file=100)
    reads, read = [], local.read_small
    monkeypatch.setattr(local, "read_small", lambda *arguments: reads.append(arguments) or read(*arguments))
    assert dataset.to_table(filter="n = 3").num_rows == 90
    assert len(reads) == 90
