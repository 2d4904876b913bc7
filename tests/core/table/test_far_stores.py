"""Maintenance of datasets whose store is far away: requests that do not need each other are made together."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pyarrow as pa
import pytest

import lance_core
from lance_core.change.delete import Marker
from lance_core.change.retries import new_transaction
from lance_core.change.stage import FileLimits, stage_fragments
from lance_core.dataset import LanceDataset
from lance_core.errors import CorruptDataError, DatasetNotFoundError
from lance_core.format.schema import Schema
from lance_core.format.table.operations import Append
from lance_core.format.table.paths import (
    DELETIONS_FOLDER,
    INDICES_FOLDER,
    TAGS_FOLDER,
    TRANSACTIONS_FOLDER,
    VERSIONS_FOLDER,
)
from lance_core.format.table.transaction import Transaction
from lance_core.maintenance.cleanup import cleanup_old_versions
from lance_core.store.memory import MemoryStore
from lance_core.store.open import open_store
from lance_core.table.commit import commit
from lance_core.table.idempotency import with_key
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


class MeetingStore(FarStore):
    """Lets the transaction file, the look at a new file and the look for the newest version come only together."""

    def __init__(self, base):
        super().__init__()
        for folder in ("data", VERSIONS_FOLDER):
            for info in base.list(folder):
                super().put(info.path, base.get(info.path))
        self.meeting = threading.Barrier(3)
        self.met = 0

    def _meet(self, path, prefix):
        if path.startswith(prefix) and not self.met:
            self.meeting.wait(WAIT_S)
            self.met += 1

    def put(self, path, data, /):
        self._meet(path, TRANSACTIONS_FOLDER)
        super().put(path, data)

    def reader(self, path, /):
        self._meet(path, "data/")
        return super().reader(path)

    def names(self, folder, /):
        self._meet(folder, VERSIONS_FOLDER)
        return super().names(folder)


def new_append(snapshot, **properties):
    operation = Append(fragments=(snapshot.manifest.fragments[0],))
    return new_transaction(snapshot.version, operation, properties=properties, message=None)


def test_a_commit_prepares_while_it_looks_for_the_newest_version(store):
    read = open_snapshot(store)
    meeting = MeetingStore(store)
    done = commit(meeting, new_append(read), read=read, has_new_uuid=True)
    assert (done.version, meeting.met) == (9, 3)


def test_a_transaction_with_an_old_uuid_is_not_written_ahead(store):
    """Its file may belong to a version: an earlier commit may have made it of a rebased transaction."""
    read = open_snapshot(store)
    transaction = new_append(read)
    commit(store, transaction, read=read)
    (name,) = store.names(TRANSACTIONS_FOLDER)
    store.put(f"{TRANSACTIONS_FOLDER}/{name}", b"of version 9")
    assert commit(store, transaction, read=read).version == 9
    assert store.get(f"{TRANSACTIONS_FOLDER}/{name}") == b"of version 9"


def test_work_that_was_done_before_leaves_no_transaction_file(store):
    read = open_snapshot(store)
    keyed = with_key(None, "the work")
    assert commit(store, new_append(read, **keyed), read=read, has_new_uuid=True).version == 9
    names = store.names(TRANSACTIONS_FOLDER)
    assert commit(store, new_append(read, **keyed), read=read, has_new_uuid=True).version == 9
    assert store.names(TRANSACTIONS_FOLDER) == names


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


def test_clean_up_lists_folders_together(store):
    meeting, real = threading.Barrier(4), store.list

    def list_together(prefix):
        if prefix != VERSIONS_FOLDER and not prefix.startswith("_refs"):
            meeting.wait(WAIT_S)
        return real(prefix)

    store.list = list_together
    stats = cleanup_old_versions(store, older_than=timedelta(0))
    assert (stats.old_versions, stats.data_files_removed) == (7, 0)


def test_the_expected_version_is_read_while_the_newest_is_looked_for(store):
    meeting, real_get, real_names = threading.Barrier(2), store.get, store.names

    def get(path):
        meeting.wait(WAIT_S)
        return real_get(path)

    def names(folder):
        meeting.wait(WAIT_S)
        met.append(folder)
        return real_names(folder)

    met = []
    store.get, store.names = get, names
    assert open_snapshot(store, expected=8).version == 8
    assert met == [VERSIONS_FOLDER]


@pytest.mark.parametrize("expected", [3, 100])
def test_another_version_than_the_expected_one_may_be_the_newest(store, expected):
    assert open_snapshot(store, expected=expected).version == 8
    store.delete([f"{VERSIONS_FOLDER}/{name}" for name in store.names(VERSIONS_FOLDER)])
    with pytest.raises(DatasetNotFoundError):
        open_snapshot(store, expected=expected)


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


def test_updates_and_merges_write_deletion_files_together(store):
    dataset = LanceDataset("far", snapshot=open_snapshot(store))
    store.wait_for_others("put", DELETIONS_FOLDER)
    assert dataset.update({"a": "a + 100"}, where="a % 10 = 3")["num_rows_updated"] == 8
    store.wait_for_others("put", DELETIONS_FOLDER)
    rows = pa.table({"a": range(4, 84, 10)})
    stats = dataset.merge_insert("a").when_matched_delete().execute(rows)
    assert stats["num_deleted_rows"] == 8
    assert sorted(dataset.to_table()["a"].to_pylist()) == sorted(
        [*(key for key in range(80) if key % 10 not in {3, 4}), *range(103, 183, 10)]
    )


def test_a_deletion_file_that_fails_takes_the_data_file_along(store):
    dataset = LanceDataset("far", snapshot=open_snapshot(store))
    before, real = sorted(store.names("data")), store.put

    def put(path, data):
        if path.startswith(f"{DELETIONS_FOLDER}/4-"):
            raise OSError
        real(path, data)

    store.put = put
    with pytest.raises(OSError, match=r"^$"):
        dataset.update({"a": "a + 100"}, where="a % 10 = 3")
    assert store.names(DELETIONS_FOLDER) == []
    assert sorted(store.names("data")) == before


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER"])
def test_columns_of_an_index_are_read_together(store, kind):
    dataset = LanceDataset("far", snapshot=open_snapshot(store))
    dataset.delete("a % 10 = 3")
    store.wait_for_others("get", "data")
    dataset.create_scalar_index("a", kind)
    store.waiting.clear()
    assert dataset.to_table(filter="a = 42 OR a = 43 OR a = 79")["a"].to_pylist() == [42, 79]
    (index,) = dataset.describe_indices()
    assert (index.index_type.upper(), index.num_rows_indexed) == (kind, 72)


class SlowIndexStore(FarStore):
    """The two files of a B-tree and the transaction file are there only together."""

    def __init__(self, base, *, fails=False):
        super().__init__()
        for folder in ("data", VERSIONS_FOLDER):
            for info in base.list(folder):
                super().put(info.path, base.get(info.path))
        self.meeting, self.fails = threading.Barrier(3), fails

    def writer(self, path, /):
        inner = super().writer(path)
        return MeetingWriter(self, inner) if path.startswith(INDICES_FOLDER) else inner

    def put(self, path, data, /):
        if path.startswith(TRANSACTIONS_FOLDER):
            self.meeting.wait(WAIT_S)
        super().put(path, data)


class MeetingWriter:
    """A file of an index."""

    def __init__(self, store, inner):
        self.store, self.inner = store, inner
        self.write, self.abort = inner.write, inner.abort

    def commit(self):
        self.store.meeting.wait(WAIT_S)
        size = self.inner.commit()
        if self.store.fails:
            raise ConnectionError
        return size


def test_files_of_an_index_are_completed_together_and_beside_the_transaction(store):
    far = SlowIndexStore(store)
    dataset = LanceDataset("far", snapshot=open_snapshot(far))
    dataset.create_scalar_index("a", "BTREE")
    (index,) = dataset.describe_indices()
    assert index.num_rows_indexed == 80
    assert dataset.to_table(filter="a = 42")["a"].to_pylist() == [42]


def test_an_index_whose_files_fail_is_not_committed(store):
    far = SlowIndexStore(store, fails=True)
    dataset = LanceDataset("far", snapshot=open_snapshot(far))
    with pytest.raises(ConnectionError):
        dataset.create_scalar_index("a", "BTREE")
    assert open_snapshot(far).version == 8
    assert list(far.list(INDICES_FOLDER)) == []
    assert list(far.list(TRANSACTIONS_FOLDER)) == []


# -------------------------------------------------------------------------------------------------------- data files


class SlowWriter:
    """A file whose end waits until the store says so."""

    def __init__(self, store, path, inner):
        self.store, self.path, self.inner = store, path, inner
        self.write = inner.write
        self.abort = inner.abort

    def commit(self):
        self.store.completing.append(self.path)
        assert self.store.may_complete.wait(WAIT_S)
        if self.store.fails:
            raise ConnectionError
        return self.inner.commit()


class SlowStore(FarStore):
    """Counts the files that are begun and that are being completed."""

    def __init__(self):
        super().__init__()
        self.begun, self.completing, self.fails = [], [], False
        self.may_complete, self.third = threading.Event(), threading.Event()

    def writer(self, path, /):
        self.begun.append(path)
        if len(self.begun) == 3:
            self.third.set()
        return SlowWriter(self, path, super().writer(path))


def stage(store, *, max_rows_per_file=10, **more):
    table = pa.table({"a": range(50)})
    schema = Schema.from_arrow(table.schema)
    limits = FileLimits(max_rows_per_file=max_rows_per_file, max_bytes_per_file=1 << 30)
    return stage_fragments(
        store,
        schema,
        table.to_batches(),
        limits=limits,
        data_storage_version="2.2",
        new_uuid=lambda: uuid.uuid4().bytes,
        **more,
    )


def test_a_file_is_written_while_the_one_before_it_is_completed(monkeypatch):
    """But no third one, unless files are small: memory holds the parts in flight of two files."""
    monkeypatch.setattr("lance_core.change.stage._WAITING_BYTES", 1)
    store = SlowStore()
    with ThreadPoolExecutor(1) as pool:
        staged = pool.submit(stage, store)
        assert not store.third.wait(0.2)
        assert (len(store.begun), len(store.completing)) == (2, 2)
        store.may_complete.set()
        fragments = staged.result(WAIT_S)
    assert [fragment.files[0].path for fragment in fragments] == [path.partition("/")[2] for path in store.begun]
    assert len(store.names("data")) == 5


def test_a_file_that_cannot_be_completed_takes_the_others_along():
    store = SlowStore()
    store.fails = True
    store.may_complete.set()
    with pytest.raises(ConnectionError):
        stage(store)
    assert store.names("data") == []


def test_files_are_told_of_when_they_are_there():
    store, told = SlowStore(), []
    store.may_complete.set()

    class Progress:
        def begin(self, fragment):
            told.append(("begin", fragment.id))

        def complete(self, fragment):
            told.append(("complete", fragment.id))
            assert len(store.names("data")) > fragment.id

    stage(store, progress=Progress())
    assert [number for what, number in told if what == "complete"] == [0, 1, 2, 3, 4]


def test_other_work_is_done_while_the_last_file_is_completed():
    store = SlowStore()
    stage(store, max_rows_per_file=50, meanwhile=store.may_complete.set)
    assert len(store.names("data")) == 1
