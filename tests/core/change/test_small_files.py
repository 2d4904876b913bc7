"""Small files of one write: their columns are encoded together, and each file is as if it had been written alone."""

from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.change import stage
from lance_core.file.write import together
from lance_core.format.schema import Schema
from lance_core.store.memory import MemoryStore
from lance_core.testing.faulty_store import FaultyStore, InjectedError

ROWS, PER_FILE = 1_030, 10


def rows():
    rng, numbers = np.random.default_rng(4), np.arange(ROWS)
    is_null = rng.random(ROWS) < 0.2
    texts = pa.array([f"text {number % 7}" * (number % 5) for number in numbers.tolist()])
    return pa.table(
        {
            "id": numbers,
            "few": pa.array(numbers % 3 * 0.5, mask=is_null),
            "same": np.full(ROWS, 7, np.int16),
            "null": pa.array(numbers // 100 % 2, mask=numbers // 100 % 2 == 1),  # whole files of nulls
            "flag": pa.array(rng.random(ROWS) < 0.5, mask=is_null),
            "text": texts,
            "bytes": pa.array([rng.bytes(number % 40 * 9) for number in numbers.tolist()], pa.large_binary()),
            "list": pa.array([list(range(number % 4)) for number in numbers.tolist()]),
            "addr": pa.StructArray.from_arrays([pa.array(numbers * 3), texts], ["zip", "street"]),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(ROWS * 4, np.float32)), 4),
        }
    )


def staged(table, store):
    """Write files of ten rows that no version names yet."""
    return stage.stage_fragments(
        store,
        Schema.from_arrow(table.schema),
        table.to_batches(),
        limits=stage.FileLimits(max_rows_per_file=PER_FILE, max_bytes_per_file=1 << 40),
        data_storage_version="2.2",
        new_uuid=lambda: uuid4().bytes,
    )


def files(path):
    """Return the bytes of all data files, in the order of the rows."""
    fragments = lance_core.dataset(path).get_fragments()
    return [(path / "data" / fragment.data_files()[0].path).read_bytes() for fragment in fragments]


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_each_file_has_the_bytes_that_it_has_alone(tmp_path, version, monkeypatch):
    table = rows() if version != "0.1" else rows().select(["id", "same"])
    if version == "0.1":  # the dictionary of a file goes on in the next one
        table = table.append_column("words", rows()["flag"].cast(pa.string()).fill_null("none").dictionary_encode())
    options = {"max_rows_per_file": PER_FILE, "data_storage_version": version}
    batches = table.to_batches(max_chunksize=33)  # files begin and end within batches
    lance_core.write_dataset(pa.RecordBatchReader.from_batches(table.schema, batches), tmp_path / "many", **options)
    monkeypatch.setattr(stage, "_WAITING_FILES", 1)
    lance_core.write_dataset(table, tmp_path / "alone", **options)
    assert len(files(tmp_path / "many")) == ROWS // PER_FILE
    assert files(tmp_path / "many") == files(tmp_path / "alone")
    assert lance_core.dataset(tmp_path / "many").to_table() == table


@pytest.mark.parametrize(("row_bytes", "most_open"), [(8, 32), (1 << 18, 2)])
def test_rows_that_wait_have_few_files_and_few_bytes(row_bytes, most_open):
    """At 256 KiB a row two files fill the 4 MiB that may wait."""
    is_open, counts = set(), []

    def see(method, path):
        if method == "writer":
            is_open.add(path)
        elif method == "commit":
            counts.append(len(is_open))
            is_open.remove(path)

    values = pa.array([bytes(row_bytes)] * 400)
    staged(pa.table({"a": values}), FaultyStore(inner=MemoryStore(), on_call=see))
    assert len(counts) == 40
    assert max(counts) == most_open


def test_columns_of_several_files_are_encoded_together(tmp_path, monkeypatch):
    calls, encode = [], together.encode_leaves
    monkeypatch.setattr(together, "encode_leaves", lambda *of: (calls.append(len(of[0])), encode(*of))[1])
    lance_core.write_dataset(rows().select(["id", "few"]), tmp_path / "t", max_rows_per_file=PER_FILE)
    assert [number for number in calls if number] == [64, 64, 64, 14]


@pytest.mark.parametrize("effect", ["before", "after", "partial", "late"])
def test_no_file_is_left_behind_whichever_fails(effect):
    table, store = pa.table({"a": np.arange(ROWS)}).slice(0, 400), FaultyStore(inner=MemoryStore())
    staged(table, store)
    steps = [number for number, call in enumerate(store.calls, 1) if call[0] in {"writer", "write", "commit"}]
    assert len(steps) >= 120
    for step in steps[::7]:
        inner = MemoryStore()
        store = FaultyStore(inner=inner, fail_at=step, effect=effect)
        with pytest.raises(InjectedError):
            staged(table, store)
        store.settle()
        left = [name for name in inner.names("data") if not name.startswith(".tmp")]
        assert len(left) <= (effect == "late")  # what happens after all was tidied up is for the clean-up
