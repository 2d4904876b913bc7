"""A manifest that ends too early, as a store without atomic writes may leave it: every length of it is told apart."""

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CorruptDataError
from lance_core.format.table.paths import ManifestNaming, manifest_path
from lance_core.store.memory import memory_store

URI = "memory://torn"


@pytest.fixture(scope="module")
def torn():
    """The table with three versions, and a function that tears its newest manifest."""
    for start in range(0, 30, 10):
        rows = pa.table({"x": range(start, start + 10)})
        lance_core.write_dataset(rows, URI, mode="append" if start else "create", enable_stable_row_ids=True)
    store = memory_store(URI)
    path = manifest_path(3, ManifestNaming.V2)
    data = store.get(path)

    def tear(content):
        store.put(path, content)

    yield data, tear
    tear(data)


def test_every_length(torn):
    data, tear = torn
    for size in range(len(data)):
        tear(data[:size])
        with pytest.raises(
            CorruptDataError, match=r"newest version, 3, is damaged.*version 2 is the one before"
        ) as found:
            lance_core.dataset(URI)
        assert found.value.path.endswith(manifest_path(3, ManifestNaming.V2))
        with pytest.raises(CorruptDataError):
            lance_core.dataset(URI, version=3)
        if size % 50 == 0:
            assert lance_core.dataset(URI, version=2).count_rows() == 20


def test_every_length_with_zeros_behind(torn):
    """As a file system leaves it that knows the size of a file before it has the content."""
    data, tear = torn
    for size in range(len(data)):
        if data[size:].strip(b"\0"):
            tear(data[:size].ljust(len(data), b"\0"))
            with pytest.raises(CorruptDataError):
                lance_core.dataset(URI)


def test_writers_do_not_go_on_from_a_torn_version(torn):
    data, tear = torn
    tear(data[: len(data) // 2])
    with pytest.raises(CorruptDataError):
        lance_core.write_dataset(pa.table({"x": [1]}), URI, mode="append")
    tear(data)
    assert lance_core.dataset(URI).count_rows() == 30


def test_the_way_back(torn):
    """The version before is opened and made the newest again; the torn file makes room first."""
    _, tear = torn
    tear(b"")
    store = memory_store(URI)
    store.delete([manifest_path(3, ManifestNaming.V2)])
    previous = lance_core.dataset(URI)
    assert (previous.version, previous.count_rows()) == (2, 20)
    previous.delete("x = 0")
    assert lance_core.dataset(URI).count_rows() == 19


def test_an_only_version(torn):
    del torn
    uri = "memory://torn-alone"
    lance_core.write_dataset(pa.table({"x": [1]}), uri)
    memory_store(uri).put(manifest_path(1, ManifestNaming.V2), b"")
    with pytest.raises(CorruptDataError, match="newest version, 1, is damaged"):
        lance_core.dataset(uri)
