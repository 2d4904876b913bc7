"""File systems of fsspec, for which its local one stands."""

import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem

import lance_core
from lance_core.errors import InvalidInputError, NotFoundError, UnsafeStoreError, UnsupportedError
from lance_core.store.fsspec_options import without_secrets
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


def test_missing_packages_are_named():
    with pytest.raises(UnsupportedError, match="dropbox:// addresses cannot be opened"):
        open_store("dropbox://folder/x")


@pytest.mark.parametrize("uri", ["s3://bucket/t", "gs://bucket/t", "az://container/t"])
def test_object_stores_take_fsspec_where_it_is_chosen(uri, tmp_path, monkeypatch):
    """Arguments are those of the file system; versions need a table that decides."""
    given = []

    def url_to_fs(address, **options):
        given.append((address, options["key"]))
        return LocalFileSystem(), str(tmp_path / "t")

    monkeypatch.setattr("fsspec.url_to_fs", url_to_fs)
    monkeypatch.setattr("fsspec.get_filesystem_class", lambda _: LocalFileSystem)
    options = {"file_system": "fsspec", "key": "k"}
    rows = pa.table({"a": [1, 2, 3]})
    with pytest.raises(UnsafeStoreError, match="manifest_store"):
        lance_core.write_dataset(rows, uri, storage_options=options)
    arbitrated = {**options, "manifest_store": f"sqlite://{tmp_path}/versions.db"}
    lance_core.write_dataset(rows, uri, storage_options=arbitrated)
    assert lance_core.dataset(uri, storage_options=options).to_table() == rows
    assert set(given) == {(uri, "k")}
    with pytest.raises(InvalidInputError, match="'file_system' must be 'fsspec'"):
        open_store(uri, {"file_system": "s3fs"})


@pytest.mark.parametrize("error", [ValueError, RuntimeError, TypeError])
def test_secrets_are_not_shown(error, monkeypatch):
    secret = "c2VjcmV0LWtleS1oZXJl"  # noqa: S105 none
    store = open_store("local:///x", {"account_key": secret})
    assert secret not in repr(store)

    def fail(*_, **__):
        raise error(f"bad {secret}")

    monkeypatch.setattr("fsspec.url_to_fs", fail)
    with pytest.raises((InvalidInputError, OSError)) as caught:
        store.get("x")
    assert secret not in str(caught.value)
    assert caught.value.__cause__ is None


def test_secrets_are_blotted_out():
    connection = "AccountName=abc;AccountKey=hidden==;BlobEndpoint=x"
    options = {"token": {"private_key": "private!"}, "connection_string": connection, "short": "a"}
    text = without_secrets(f"a {connection} and hidden== or private!", options)
    assert text == "a *** and *** or ***"


def test_memory_is_shared_by_name():
    table = pa.table({"a": [1, 2, 3]})
    lance_core.write_dataset(table, "memory://tests/one")
    lance_core.write_dataset(table, "memory://tests/one/", mode="append")
    assert lance_core.dataset("memory://tests/one").count_rows() == 6
    with pytest.raises(lance_core.errors.DatasetNotFoundError):
        lance_core.dataset("memory://tests/two")
