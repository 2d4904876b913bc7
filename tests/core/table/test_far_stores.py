"""Maintenance of datasets whose store is far away: requests that do not need each other are made together."""

import threading
import uuid
from datetime import timedelta

import pyarrow as pa
import pytest

import lance_core
from lance_core.change.delete import Marker
from lance_core.errors import CorruptDataError
from lance_core.format.operations import Append
from lance_core.format.paths import DELETIONS_FOLDER, TAGS_FOLDER, VERSIONS_FOLDER
from lance_core.format.transaction import Transaction
from lance_core.maintenance.cleanup import cleanup_old_versions
from lance_core.store.memory import MemoryStore
from lance_core.store.open import open_store
from lance_core.table.commit import commit
from lance_core.table.refs import create_tag, list_tags, list_tags_strictly
from lance_core.table.snapshot import open_snapshot

WAIT_S = 30


class FarStore(MemoryStore):
    """In memory, but says that it is far away; requests below a folder wait for three others of their kind."""

    at_once = 4

    def __init__(self):
        super().__init__()
        self.waiting = {}

    def wait_for_others(self, method, folder, *, after=0):
        """Let the requests after the first few come back only four at a time."""
        self.waiting[method] = [f"{folder}/", after, threading.Barrier(4)]

    def _wait(self, method, path):
        rule = self.waiting.get(method)
        if rule is not None and path.startswith(rule[0]):
            rule[1] -= 1
            if rule[1] < 0:
                rule[2].wait(WAIT_S)

    def get(self, path, /):
        self._wait("get", path)
        return super().get(path)

    def put(self, path, data, /):
        self._wait("put", path)
        super().put(path, data)


@pytest.fixture
def store():
    """A table of 8 fragments with 10 rows each, made by 8 commits."""
    address = f"memory://far-{uuid.uuid4().hex}"
    for number in range(8):
        lance_core.write_dataset(pa.table({"a": range(number * 10, number * 10 + 10)}), address, mode="append")
    store = FarStore()
    for info in (near := open_store(address)).list("data"):
        store.put(info.path, near.get(info.path))
    for info in near.list(VERSIONS_FOLDER):
        store.put(info.path, near.get(info.path))
    return store


@pytest.mark.parametrize("list_all", [list_tags, list_tags_strictly])
def test_tags_are_read_together(store, list_all):
    for version in range(1, 9):
        create_tag(store, f"tag{version}", version)
    store.wait_for_others("get", TAGS_FOLDER)
    assert len(list_all(store)) == 8


def test_a_damaged_tag_among_others_is_told(store):
    for version in range(1, 9):
        create_tag(store, f"tag{version}", version)
    store.put(f"{TAGS_FOLDER}/tag3.json", b"{")
    assert len(list_tags(store)) == 7
    with pytest.raises(CorruptDataError):
        list_tags_strictly(store)


def test_clean_up_reads_manifests_together(store):
    newest = open_snapshot(store).manifest
    transaction = Transaction(read_version=8, uuid="ninth", operation=Append(fragments=(newest.fragments[0],)))
    commit(store, transaction)
    store.wait_for_others("get", VERSIONS_FOLDER, after=1)  # the first tells how large they are
    stats = cleanup_old_versions(store, older_than=timedelta(0))
    assert stats.old_versions == 8


def test_deletion_files_are_written_together(store):
    store.wait_for_others("put", DELETIONS_FOLDER)
    marked = Marker(store=store, condition="a % 10 = 3").mark(open_snapshot(store))
    assert (len(marked.updated_fragments), marked.num_rows) == (8, 8)
    assert [fragment.id for fragment in marked.updated_fragments] == list(range(8))


def test_a_deletion_file_that_fails_takes_the_others_along(store):
    class FailedError(Exception):
        """Of the store."""

    written = []
    real = store.put

    def put(path, data):
        if path.startswith(DELETIONS_FOLDER):
            if len(written) == 3:
                raise FailedError
            written.append(path)
        real(path, data)

    store.put = put
    marker = Marker(store=store, condition="a % 10 = 3")
    with pytest.raises(FailedError):
        marker.mark(open_snapshot(store))
    marker.forget()
    assert store.names(DELETIONS_FOLDER) == []
