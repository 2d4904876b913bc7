"""File systems of fsspec, for which its local one stands."""

import sys

import pyarrow as pa
import pytest
from fsspec.registry import _registry

import lance_core
from lance_core.errors import NotFoundError, UnsafeStoreError, UnsupportedError
from lance_core.store.local import LocalStore
from lance_core.store.open import open_store


@pytest.fixture
def stores(tmp_path):
    """The same folder, as a store that can write and as one that cannot."""
    folder = tmp_path / "data set ü"
    return LocalStore(str(folder)), open_store(f"local://{folder}")


def test_reads(stores):
    writing, reading = stores
    writing.put("a/f", bytes(range(256)) * 1000)
    assert reading.get("a/f") == bytes(range(256)) * 1000
    reader = reading.reader("a/f")
    assert reader.size == 256_000
    buffers = reader.read_ranges([(255_998, 256_000), (0, 2), (7, 7), (128_000, 128_001)])
    assert [buffer.to_pybytes() for buffer in buffers] == [b"\xfe\xff", b"\0\1", b"", b"\0"]
    with pytest.raises(NotFoundError):
        reader.read_ranges([(0, 256_001)])


def test_lists(stores):
    writing, reading = stores
    assert reading.names("a") == []
    assert list(reading.list("a")) == []
    writing.put("a/f", b"12")
    writing.put("a/sub/g", b"345")
    assert sorted(reading.names("a")) == ["f", "sub"]
    assert {(info.path, info.size) for info in reading.list("a")} == {("a/f", 2), ("a/sub/g", 3)}
    assert all(info.modified.tzinfo is not None for info in reading.list("a"))


def test_misses(stores):
    writing, reading = stores
    writing.put("a/f", b"12")
    for path in ("x", "a/x", "a/f/g", "a"):
        with pytest.raises(NotFoundError):
            reading.get(path)
    for path in ("x", "a/x", "a/f/g"):
        with pytest.raises(NotFoundError):
            reading.reader(path)


def test_refuses_to_write(stores):
    writing, reading = stores
    writing.put("a/f", b"12")
    for call in (
        lambda: reading.put("a/f", b""),
        lambda: reading.put_if_absent("a/g", b""),
        lambda: reading.writer("a/g"),
        lambda: reading.delete(["a/f"]),
    ):
        with pytest.raises(UnsafeStoreError, match="local://"):
            call()
    assert reading.get("a/f") == b"12"


def test_datasets(tmp_path):
    table = pa.table({"a": range(10), "s": list("abcdefghij")})
    lance_core.write_dataset(table, tmp_path / "t")
    dataset = lance_core.dataset(f"local://{tmp_path}/t/")
    assert dataset.uri == f"local://{tmp_path}/t"
    assert dataset.to_table() == table
    for change in (
        lambda: dataset.delete("a < 3"),
        lambda: lance_core.write_dataset(table, dataset, mode="append"),
        lambda: dataset.tags.create("x", 1),
    ):
        with pytest.raises(UnsafeStoreError):
            change()
    assert dataset.latest_version == 1


@pytest.mark.parametrize(("uri", "extra"), [("gs://b/x", "gcs"), ("abfs://c/x", "azure"), ("az://c/x", "azure")])
def test_missing_packages_are_named(uri, extra, monkeypatch):
    for package in ("gcsfs", "adlfs"):
        monkeypatch.setitem(sys.modules, package, None)
    for name, known in list(_registry.items()):
        if known.__module__.startswith(("gcsfs", "adlfs")):
            monkeypatch.delitem(_registry, name)
    with pytest.raises(UnsupportedError, match=rf"pip install 'lance-dagster\[{extra}\]'"):
        open_store(uri)


def test_memory_is_shared_by_name():
    table = pa.table({"a": [1, 2, 3]})
    lance_core.write_dataset(table, "memory://tests/one")
    lance_core.write_dataset(table, "memory://tests/one/", mode="append")
    assert lance_core.dataset("memory://tests/one").count_rows() == 6
    with pytest.raises(lance_core.errors.DatasetNotFoundError):
        lance_core.dataset("memory://tests/two")
