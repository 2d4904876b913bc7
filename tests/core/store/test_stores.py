"""Every store keeps the same promises."""

import os
import threading

import pyarrow as pa
import pytest

from lance_core.common.limits import limits
from lance_core.errors import InvalidInputError, NotFoundError, UnsupportedError
from lance_core.store.local import LocalStore
from lance_core.store.memory import MemoryStore
from lance_core.store.open import open_store
from lance_core.store.trust import PlaceSettings
from lance_core.table.locations import BasedStore, FolderStore, create

pytestmark = pytest.mark.slow

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"


@pytest.fixture(params=["local", "memory", "s3", "s3+ddb", "s3+sqlite", "fsspec+sqlite", "azure", "google", "azurite"])
def store(request, tmp_path):
    sqlite = {"manifest_store": f"sqlite://{tmp_path}/versions.db"}
    match request.param:
        case "s3":
            s3 = request.getfixturevalue("s3")
            return open_store(f"{s3.uri}/data set ü", s3.storage_options)
        case "s3+ddb":
            dynamo = request.getfixturevalue("dynamo")
            return open_store(dynamo.at("data set ü"), dynamo.storage_options)
        case "s3+sqlite":
            s3 = request.getfixturevalue("s3")
            return open_store(f"{s3.uri}/data set ü", {**s3.storage_options, **sqlite})
        case "azure" | "google":
            cloud = request.getfixturevalue(request.param)
            return open_store(f"{cloud.uri}/data set ü", cloud.storage_options)
        case "azurite":
            azurite = request.getfixturevalue("azurite")
            return open_store(f"{azurite.uri}/data set ü", azurite.storage_options)
        case "fsspec+sqlite":
            return open_store(f"local://{tmp_path}/data set ü", sqlite)
    return LocalStore(str(tmp_path / "data set ü")) if request.param == "local" else MemoryStore()


def test_put_and_get(store):
    store.put("a/b c/ü.txt", b"one")
    store.put("a/b c/ü.txt", b"two")
    assert store.get("a/b c/ü.txt") == b"two"


def test_objects_that_are_too_large_are_not_read(store, monkeypatch):
    """What an object is, and so how large it may be, its folder says."""
    limited = {"_refs/tags/x.json": "REF", "_transactions/x.txn": "TRANSACTION", "_deletions/x.arrow": "DELETION"}
    for path in (*limited, "_versions/x.json"):
        store.put(path, b"x" * 5001)
        store.put(f"{path}.small", b"x" * 5000)
    for path, name in {**limited, "_versions/x.json": "MANIFEST"}.items():
        monkeypatch.setenv(f"LANCE_CORE_MAX_{name}_BYTES", "5000")
        limits.cache_clear()
        try:
            with pytest.raises(UnsupportedError, match=f"5,001 bytes.*LANCE_CORE_MAX_{name}_BYTES"):
                store.get(path)
            assert len(store.get(f"{path}.small")) == 5000
            assert store.reader(path).size == 5001
        finally:
            monkeypatch.undo()
            limits.cache_clear()


def test_missing_objects(store):
    store.put("a/b", b"")
    for path in ("x", "a/x", "a/b/c"):
        with pytest.raises(NotFoundError):
            store.get(path)
        with pytest.raises(NotFoundError):
            store.reader(path)
    store.delete(["x", "a/x", "a/b/c"])
    assert store.names("nothing") == []
    assert list(store.list("nothing")) == []


def test_put_if_absent(store):
    assert store.put_if_absent("v/1", b"first")
    assert not store.put_if_absent("v/1", b"second")
    assert store.get("v/1") == b"first"
    assert store.names("v") == ["1"]


def test_create_from_pieces(store):
    pieces = [b"first", b"", memoryview(b" and ")[1:], b"second"]
    assert create(store, "v/1", pieces)
    assert not create(store, "v/1", [b"third"])
    assert store.get("v/1") == b"firstand second"
    assert create(FolderStore(store, "v"), "2", pieces)
    assert create(BasedStore(FolderStore(store, "v"), PlaceSettings()), "3", pieces)
    assert store.get("v/2") == store.get("v/3") == store.get("v/1")
    assert sorted(store.names("v")) == ["1", "2", "3"]


def test_exactly_one_of_many_wins(store):
    wins = []
    keys = 200 if IS_DEEP else 50 if isinstance(store, (LocalStore, MemoryStore)) else 15
    barrier = threading.Barrier(8)

    def race(writer):
        for key in range(keys):
            barrier.wait()
            if store.put_if_absent(f"v/{key}", b"%d" % writer):
                wins.append((key, writer))

    threads = [threading.Thread(target=race, args=(writer,)) for writer in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == keys
    assert all(store.get(f"v/{key}") == b"%d" % writer for key, writer in wins)


def test_manifests_have_one_winner_and_are_listed(store):
    wins = []
    paths = [f"_versions/{2**64 - 1 - version:020d}.manifest" for version in range(1, 11)]
    barrier = threading.Barrier(4)

    def race(writer):
        for path in paths:
            barrier.wait()
            if store.put_if_absent(path, b"%d" % writer):
                wins.append((path, writer))

    threads = [threading.Thread(target=race, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path for path, _ in wins) == sorted(paths)
    assert all(store.get(path) == b"%d" % writer for path, writer in wins)
    assert sorted(f"_versions/{name}" for name in store.names("_versions")) == sorted(paths)
    store.delete(paths[:3])
    assert not any(store.put_if_absent(path, b"x") for path in paths[3:])
    assert sorted(f"_versions/{name}" for name in store.names("_versions")) == sorted(paths[3:])


def test_reader_returns_ranges_in_order(store):
    store.put("f", bytes(range(256)) * 100)
    reader = store.reader("f")
    assert reader.size == 25600
    buffers = reader.read_ranges([(5, 8), (0, 0), (25599, 25600), (2, 4)])
    assert [buffer.to_pybytes() for buffer in buffers] == [b"\x05\x06\x07", b"", b"\xff", b"\x02\x03"]
    reader.close()
    assert buffers[0].to_pybytes() == b"\x05\x06\x07"
    for start, end in ((0, 25601), (-1, 3), (5, 4)):
        with pytest.raises(NotFoundError):
            store.reader("f").read_ranges([(start, end)])


def test_buffers_outlive_the_object(store):
    store.put("f", b"x" * 10_000)
    (buffer,) = store.reader("f").read_ranges([(0, 10_000)])
    store.put("f", b"y" * 10_000)
    store.delete(["f"])
    assert buffer.to_pybytes() == b"x" * 10_000


def test_empty_objects(store):
    store.put("f", b"")
    assert store.reader("f").size == 0
    assert store.reader("f").read_ranges([(0, 0)])[0].size == 0


def test_writer_shows_nothing_before_commit(store):
    writer = store.writer("d/f")
    writer.write(b"one")
    writer.write(memoryview(b"two"))
    writer.write(pa.py_buffer(b"three"))
    with pytest.raises(NotFoundError):
        store.get("d/f")
    assert writer.commit() == 11
    writer.abort()
    assert store.get("d/f") == b"onetwothree"


def test_aborted_writer_leaves_nothing(store):
    writer = store.writer("d/f")
    writer.write(b"x" * 3_000_000)
    writer.abort()
    writer.abort()
    assert list(store.list("d")) == []


def test_listing(store):
    store.put("d/a", b"12")
    store.put("d/sub/b", b"345")
    store.put("dd/c", b"")
    assert {(info.path, info.size) for info in store.list("d")} == {("d/a", 2), ("d/sub/b", 3)}
    assert all(info.modified.tzinfo is not None for info in store.list("d"))
    assert sorted(store.names("d")) == ["a", "sub"]
    store.delete(["d/a", "d/sub/b"])
    assert list(store.list("d")) == []


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "a/../../x", "a//b", "", ".", "a/.", "a\\b", "a\0b", "..", "a/"]
)
def test_paths_stay_below_the_root(store, path):
    for call in (
        lambda: store.get(path),
        lambda: store.reader(path),
        lambda: store.writer(path),
        lambda: store.put(path, b""),
        lambda: store.put_if_absent(path, b""),
        lambda: store.delete([path]),
        lambda: list(store.list(path)),
        lambda: store.names(path),
    ):
        with pytest.raises(InvalidInputError):
            call()
