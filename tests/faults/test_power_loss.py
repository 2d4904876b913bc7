# The module os is what is recorded here.
# ruff: noqa: PTH103, PTH105, PTH108, PTH110, PTH118, PTH120, PTH123, SIM115
"""The power fails after any step: what the disk was not asked to keep may be gone, in part or altogether.

A recorder notes all that a durable store does to the file system. For each moment states of the disk are made up that
would be allowed then: of what was not synced all is gone, only the content is gone, or some of it at random (names of
each directory up to some change, bytes of each file up to some length). In each of them all versions that somebody was
told of must be there with the right rows. By default one old version is read besides the newest in each state, and few
states are made up; LANCE_TESTS=deep reads all of them, in many more states.
"""

import os
import random
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CommitOutcomeUnknownError, InvalidInputError, LanceError
from lance_core.store import local
from lance_core.store.local import LocalStore
from lance_core.store.memory import memory_store
from lance_core.store.open import open_store

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"
NUM_RANDOM = 30 if IS_DEEP else 2
_NUMBERS = count()


@dataclass
class Inode:
    """Content of a file: all of it, and how much of it the disk has."""

    data: bytearray = field(default_factory=bytearray)
    synced: int = 0


class RecordedFile:
    """A file being written; what is in its buffer is not even with the kernel."""

    def __init__(self, recorder, file, path, *, is_buffered):
        self.recorder, self.file, self.path, self.is_buffered = recorder, file, path, is_buffered
        self.pending = b""

    def write(self, data):
        written = self.file.write(data)
        self.pending += bytes(memoryview(data)[:written])
        if not self.is_buffered:
            self._to_kernel()
        return written

    def flush(self):
        self.file.flush()
        self._to_kernel()

    def close(self):
        self.file.close()
        self._to_kernel()

    def fileno(self):
        return self.file.fileno()

    def _to_kernel(self):
        if self.pending:
            self.recorder.note("write", self.path, self.pending)
            self.pending = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Recorder:
    """Stands for the module os and for open in `lance_core.store.local`."""

    path = os.path

    def __init__(self, root):
        self.root, self.log, self.descriptors = str(root), [], {}

    def __getattr__(self, name):
        return getattr(os, name)

    def note(self, *entry):
        self.log.append(entry)

    def create(self, path, mode, buffering):
        file = open(path, mode, buffering=buffering)
        if "x" not in mode:
            return file
        self.note("create", path)
        recorded = RecordedFile(self, file, path, is_buffered=buffering > 0)
        self.descriptors[file.fileno()] = path
        return recorded

    def open(self, path, flags):
        descriptor = os.open(path, flags)
        self.descriptors[descriptor] = path
        return descriptor

    def fsync(self, descriptor):
        self.note("fsync", self.descriptors[descriptor])

    def makedirs(self, path, *, exist_ok):
        missing = []
        while not os.path.exists(path):
            missing.append(path)
            path = os.path.dirname(path)
        for folder in reversed(missing):
            os.makedirs(folder, exist_ok=exist_ok)
            self.note("mkdir", folder)

    def replace(self, old, new):
        os.replace(old, new)
        self.note("rename", old, new)

    def link(self, old, new):
        os.link(old, new)
        self.note("link", old, new)

    def unlink(self, path):
        os.unlink(path)
        self.note("unlink", path)


class Disk:
    """What the kernel has, and which changes of it are on the disk."""

    def __init__(self, root):
        self.root = root
        self.changes = {root: []}  # of each directory: name and what it stands for from then on
        self.synced = {root: 0}
        self.names = {root: {}}

    def _change(self, path, thing):
        folder, name = os.path.split(path)
        self.changes[folder].append((name, thing))
        self.names[folder][name] = thing

    def _find(self, path):
        folder, name = os.path.split(path)
        return self.names[folder][name]

    def apply(self, kind, path, *rest):
        match kind:
            case "mkdir":
                self._change(path, path)
                self.changes[path], self.synced[path], self.names[path] = [], 0, {}
            case "create":
                self._change(path, Inode())
            case "write":
                self._find(path).data.extend(rest[0])
            case "rename":
                self._change(rest[0], self._find(path))
                self._change(path, None)
            case "link":
                self._change(rest[0], self._find(path))
            case "unlink":
                self._change(path, None)
            case "fsync" if path in self.changes:
                self.synced[path] = len(self.changes[path])
            case "fsync" if path.startswith(self.root):
                inode = self._find(path)
                inode.synced = len(inode.data)

    def after_loss(self, keep_names, keep_bytes):
        """Files that are left; the arguments choose from a range what is kept."""
        found, lengths = {}, {}

        def walk(folder):
            changes = self.changes[folder]
            kept = changes[: keep_names(self.synced[folder], len(changes))]
            for name, thing in dict(kept).items():
                path = os.path.join(folder, name)
                if isinstance(thing, str):
                    walk(path)
                elif thing is not None:
                    if id(thing) not in lengths:
                        lengths[id(thing)] = keep_bytes(thing.synced, len(thing.data))
                    found[os.path.relpath(path, self.root)] = bytes(thing.data[: lengths[id(thing)]])

        walk(self.root)
        return found


def states(disk, seed):
    yield disk.after_loss(min, min)
    yield disk.after_loss(max, min)
    yield disk.after_loss(max, max)
    rng = random.Random(seed)
    for _ in range(NUM_RANDOM):
        yield disk.after_loss(rng.randint, rng.choice([min, max, rng.randint]) if rng.random() < 0.5 else rng.randint)


def rows(start, end):
    return pa.table({"id": range(start, end), "text": [f"text {i}" for i in range(start, end)]})


def work(options, told):
    """A life of a table; ``told`` is called with each version that somebody was told of, and its rows."""

    def tell(dataset):
        told(dataset.version, sorted(dataset.to_table()["id"].to_pylist()))
        return dataset

    uri = options.pop("uri")
    tell(lance_core.write_dataset(rows(0, 50), uri, max_rows_per_file=20, **options))
    tell(lance_core.write_dataset(rows(50, 60), uri, mode="append", **options))
    table = lance_core.dataset(uri, **options)
    table.delete("id % 7 = 0")
    tell(table)
    table.update({"text": "'x'"}, where="id > 55")
    tell(table)
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows(58, 64))
    tell(lance_core.dataset(uri, **options))
    table = lance_core.dataset(uri, **options)
    table.optimize.compact_files()
    tell(table)
    table.add_columns({"twice": "id * 2"})
    tell(table)
    told(None, 5)
    table.cleanup_old_versions(older_than=timedelta(0), retain_versions=2, delete_unverified=True, force=True)
    tell(lance_core.write_dataset(pa.table({"id": [99], "text": ["y"], "twice": [198]}), uri, mode="append", **options))


def record(tmp_path, monkeypatch, durable):
    recorder, told = Recorder(tmp_path), []
    monkeypatch.setattr(local, "os", recorder)
    monkeypatch.setattr(local, "open", recorder.create, raising=False)
    options = {"uri": str(tmp_path / "t"), "storage_options": {"durable": durable}}
    work(options, lambda version, ids: told.append((len(recorder.log), version, ids)))
    monkeypatch.undo()
    return recorder.log, told


def look(files, promised):
    """Whether all that was promised is there; the first thing that is not."""
    uri = f"memory://power-{next(_NUMBERS)}"
    store = memory_store(uri)
    for path, data in files.items():
        if path.startswith("t/"):
            store.put(path[2:], data)
    try:
        for version, ids in promised.items():
            assert sorted(lance_core.dataset(uri, version=version).to_table()["id"].to_pylist()) == ids
        if promised:
            newest = lance_core.dataset(uri)
            newest.to_table()
            assert newest.version >= max(promised)
    except (LanceError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        store._objects.clear()
    return None


def losses(tmp_path, log, told):
    """What is lost in all moments: (step, what)."""
    disk, seen = Disk(str(tmp_path)), set()
    for step in range(len(log) + 1):
        promised = {version: ids for at, version, ids in told if at <= step and version is not None}
        for at, version, kept in told:
            if version is None and step >= at:  # a clean-up: older versions may be gone from here on
                promised = {number: ids for number, ids in promised.items() if number > kept}
        if not IS_DEEP and len(promised) > 2:
            old = random.Random(step).choice(sorted(promised)[:-1])
            promised = {version: ids for version, ids in promised.items() if version in {old, max(promised)}}
        for files in states(disk, step):
            state = hash((*promised, *sorted(files.items())))
            if state in seen:
                continue
            seen.add(state)
            lost = look(files, promised)
            if lost:
                yield step, lost
        if step < len(log):
            disk.apply(*log[step])


@pytest.mark.parametrize("has_hint", [True, False])
def test_durable_versions_survive(tmp_path, monkeypatch, has_hint):
    """Also where the version hint cannot be written, which makes the disk keep names beside it."""
    if not has_hint:
        monkeypatch.setattr(LocalStore, "settle", lambda *_: None)
    log, told = record(tmp_path, monkeypatch, "true")
    assert len(told) == 9
    assert not list(losses(tmp_path, log, told))


def test_others_may_not(tmp_path, monkeypatch):
    """What the default does not promise; and that the test above sees what is missing."""
    log, told = record(tmp_path, monkeypatch, "false")
    assert not any(entry[0] == "fsync" for entry in log)
    assert next(losses(tmp_path, log, told))


@pytest.mark.parametrize("place", ["data", "_versions", "_deletions"])
@pytest.mark.parametrize("skipped", ["files", "folder"])
def test_each_sync_is_needed(tmp_path, monkeypatch, place, skipped):
    log, told = record(tmp_path, monkeypatch, "true")
    folder = str(tmp_path / "t" / place)
    kept, moved = [], []
    for number, entry in enumerate(log):
        synced = entry[1] if skipped == "folder" else os.path.dirname(entry[1])
        if entry[0] != "fsync" or synced != folder:
            kept.append(entry)
        moved.append(number + 1 - len(kept))
    assert len(kept) < len(log)
    told = [(at - (moved[at - 1] if at else 0), version, ids) for at, version, ids in told]
    assert next(losses(tmp_path, kept, told))


def test_a_sync_that_fails_after_the_commit_leaves_it_open(tmp_path, monkeypatch):
    options = {"storage_options": {"durable": "true"}}
    lance_core.write_dataset(rows(0, 5), tmp_path / "t", **options)
    real = local._sync_folder

    def fail(folder):
        if folder.endswith("_versions"):
            raise OSError(5, "Input/output error")
        real(folder)

    monkeypatch.setattr(local, "_sync_folder", fail)
    with pytest.raises(CommitOutcomeUnknownError):
        lance_core.write_dataset(rows(5, 9), tmp_path / "t", mode="append", **options)
    monkeypatch.undo()
    assert lance_core.dataset(tmp_path / "t").count_rows() == 9  # its files were left alone


def test_the_option(tmp_path):
    assert "durable" in repr(open_store(tmp_path, {"durable": "true"}))
    assert "durable" in repr(open_store(f"file://{tmp_path}", {"durable": "True"}))
    assert "durable" not in repr(open_store(tmp_path, {"durable": "false"}))
    with pytest.raises(InvalidInputError, match="durable"):
        open_store(tmp_path, {"durable": "yes"})
    store = LocalStore(str(tmp_path / "new"), durable=True)
    assert store.put_if_absent("a/b", b"1")
    assert not store.put_if_absent("a/b", b"2")
    store.delete(["a/b", "a/c", "x/y"])
    assert store.names("a") == []
