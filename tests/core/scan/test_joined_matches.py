"""Conditions on one column of a remote table: several files are decoded and asked at one go."""

import gc
import sys
import threading

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CorruptDataError
from lance_core.file.read import several_files
from lance_core.file.write import writer
from lance_core.format.table.paths import data_file_path
from lance_core.scan import joined_matches
from lance_core.store.memory import MemoryStore
from lance_core.store.open import open_store
from lance_core.store.range_reader import WHOLE_BYTES, reader_of, tail_bytes
from lance_core.table.snapshot import open_snapshot

ROWS, FRAGMENTS = 40_000, 8


class There:
    """Pieces that came at once: no thread has to be asked for them, so that calls can be counted."""

    def __init__(self, pieces):
        self._pieces = pieces

    def result(self):
        return self._pieces

    def cancel(self):
        """Nothing is on its way."""


class Far(MemoryStore):
    """In memory, but says that it is far away, and brings the end of a file first; of small ones all if it is asked."""

    at_once = 4
    reads_whole = False

    def __init__(self, near):
        super().__init__()
        for folder in ("data", "_versions", "_transactions", "_deletions"):
            for info in near.list(folder):
                self.put(info.path, near.get(info.path))

    def sized_reader(self, path, size, /, *, most_bytes=WHOLE_BYTES):
        data = self.get(path)
        tail = data[-tail_bytes(size, most_bytes * self.reads_whole) :]

        def fetch(ranges):
            return There([data[start:end] for start, end in ranges])

        return reader_of(fetch, path=path, size=size, tail=tail, stamp=(path, id(self)))


@pytest.fixture
def decoded(monkeypatch):
    """How many files were decoded at one go, each time."""
    found = []

    def counted(files):
        found.append(len(files))
        return decode(files)

    decode = several_files.decode_columns
    monkeypatch.setattr(several_files, "decode_columns", counted)
    return found


def rows_of(number, rng):
    """Rows of a fragment; the items of dictionaries differ from one to the next, and nulls are in some."""
    words = pa.array([f"word-{(number + at) % 12}" for at in range(10)], mask=np.arange(10) % 5 == number)
    return pa.table(
        {
            "id": np.arange(ROWS) + number * ROWS,
            "few": rng.choice(np.array([0.5, -0.0, 0.0, float("nan"), 2.5]) + number % 3, ROWS),
            "word": words.take(pa.array(rng.integers(0, 10, ROWS))),
            "number": pa.array(rng.integers(0, 1 << 40, ROWS), mask=rng.random(ROWS) < number % 2 / 10),
            "same": pa.array([number] * ROWS),
        }
    )


def written(uri, version="2.2", count=FRAGMENTS):
    rng = np.random.default_rng(1)
    for number in range(count):
        made = lance_core.write_dataset(rows_of(number, rng), uri, mode="append", data_storage_version=version)
    return made


def far_table(uri):
    store = Far(open_store(str(uri)))
    return store, lance_core.LanceDataset(str(uri), snapshot=open_snapshot(store))


@pytest.mark.parametrize("page_bytes", [1 << 14, 1 << 23])
@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_counts_and_deletions_are_those_of_a_near_table(tmp_path, monkeypatch, decoded, page_bytes, version):
    monkeypatch.setattr(writer, "PAGE_BYTES", page_bytes)
    near = written(tmp_path / "t", version)
    near.delete("id % 1000 = 1 and id < 150000")
    conditions = ["few > 1", "isnan(few)", "word = 'word-3'", "word is null", "number < 1000000000", "same > 5"]
    for condition in conditions:
        decoded.clear()
        _, far = far_table(tmp_path / "t")
        has_bytes = (condition, version) != ("same > 5", "2.2")  # of a constant nothing is stored but the value
        assert far.count_rows(condition) == near.count_rows(condition) > 0, condition
        assert decoded == [FRAGMENTS] * has_bytes, condition
        far.delete(condition)
        near.delete(condition)
        assert far.to_table(columns=["id"]) == near.to_table(columns=["id"]), condition
        assert decoded == [FRAGMENTS] * has_bytes * 2
        near = near.checkout_version(2 + FRAGMENTS - 1)
        near.restore()


def test_files_that_were_read_whole_are_decoded_together_too(tmp_path, monkeypatch, decoded):
    near = written(tmp_path / "t")
    monkeypatch.setattr(Far, "reads_whole", True)
    _, far = far_table(tmp_path / "t")
    assert far.count_rows("few > 1") == near.count_rows("few > 1")
    assert decoded == [FRAGMENTS]


def test_so_many_rows_are_decoded_at_one_go(tmp_path, monkeypatch, decoded):
    near = written(tmp_path / "t")
    monkeypatch.setattr(joined_matches, "MOST_FETCHED_ROWS", 3 * ROWS)
    _, far = far_table(tmp_path / "t")
    assert far.count_rows("few > 1") == near.count_rows("few > 1")
    assert decoded == [3, 3, 2]


def test_fragments_that_are_stored_otherwise_are_read_by_themselves(tmp_path, decoded):
    """Here one whose files are of an older version, and one whose column is in a file of its own."""
    uri, rng = tmp_path / "t", np.random.default_rng(2)
    near = lance_core.write_dataset(rows_of(0, rng), uri, data_storage_version="2.0")
    near.add_columns({"more": "id % 5"})
    older = near.count_rows("few > 1"), near.count_rows("more = 2")
    _, far = far_table(uri)
    assert (far.count_rows("few > 1"), far.count_rows("more = 2")) == older
    assert decoded == []


def test_a_condition_on_two_columns_is_asked_of_each_fragment(tmp_path, decoded):
    near = written(tmp_path / "t")
    _, far = far_table(tmp_path / "t")
    condition = "few > 1 and number < 1000000000"
    assert far.count_rows(condition) == near.count_rows(condition) > 0
    assert decoded == []


def test_the_damaged_file_of_several_is_named(tmp_path):
    near = written(tmp_path / "t")
    store, far = far_table(tmp_path / "t")
    file = far.snapshot.manifest.fragments[3].files[0]
    path = data_file_path(file)
    data = bytearray(store.get(path))
    data[len(data) // 2] ^= 1  # in the column of numbers
    store.put(path, bytes(data))
    with pytest.raises(CorruptDataError, match=file.path.removesuffix(".lance")):
        far.count_rows("number < 1000000000")
    assert far.count_rows("few > 1") == near.count_rows("few > 1"), "of another column"


def test_an_error_of_the_condition_is_raised(tmp_path):
    written(tmp_path / "t")
    _, far = far_table(tmp_path / "t")
    with pytest.raises(lance_core.errors.InvalidInputError, match="divide by zero"):
        far.count_rows("10 / same > 2")


def test_calls_of_a_fragment(tmp_path):
    """Of opening it and fetching its column, and its share of what is decoded with others; transport is not counted."""
    written(tmp_path / "t", count=10)
    far_table(tmp_path / "t")[1].count_rows("few > 1")
    _, far = far_table(tmp_path / "t")
    assert calls_in_threads(lambda: far.count_rows("few > 1")) / 10 <= 935


def calls_in_threads(work):
    """How many functions a piece of work calls in all threads that it starts."""
    seen = []

    def see(_frame, event, _argument):
        if event in ("call", "c_call"):
            seen.append(event)  # by two threads

    gc.collect()
    gc.disable()
    threading.setprofile(see)
    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        gc.enable()
    return len(seen)
