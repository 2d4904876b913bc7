"""What a machine does to a table: full disks, missing files, late listings, storms of writers, odd names."""

import math
import os
import random
import resource
import string
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CommitConflictError, CommitContentionError, LanceError, NotFoundError
from lance_core.store import local
from lance_core.store.memory import MemoryStore
from lance_core.table.commit import commit
from lance_core.table.refs import create_tag, list_tags
from lance_core.table.runtime import Runtime
from lance_core.table.snapshot import list_versions, open_snapshot
from lance_core.testing.faulty_store import FaultyStore
from lance_core.testing.tables import append, create, read_rows

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"
FAILURES = 1000 if IS_DEEP else 200
NAMES = 5000 if IS_DEEP else 1000
WRITERS, LATENCY_S = (32, 0.05) if IS_DEEP else (16, 0.005)
ROWS = pa.table({"a": range(10_000), "s": [f"text {number}" for number in range(10_000)]})


@pytest.fixture
def table(tmp_path):
    return lance_core.write_dataset(ROWS.slice(0, 10), tmp_path / "t").uri


def files(uri):
    return sorted(str(path.relative_to(uri)) for path in Path(uri).rglob("*") if path.is_file())


# ------------------------------------------------------------------------------------------------- full disks and files


@contextmanager
def files_up_to(num_bytes):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("limit", [0, 1, 100, 300, 1000, 5000])
def test_a_full_disk_leaves_the_old_version(table, limit):
    before = files(table)
    dataset = lance_core.dataset(table)
    with files_up_to(limit):
        changes = [
            lambda: lance_core.write_dataset(ROWS, table, mode="append"),
            lambda: lance_core.write_dataset(ROWS, table, mode="overwrite"),
            lambda: dataset.add_columns({"more": "concat(s, s, s, s, s, s, s, s, s, s)"}),
            lambda: dataset.delete("a = 1"),
        ]
        for change in changes[: 4 if limit < 100 else 3 if limit < 300 else 2]:  # what needs more than is left
            with pytest.raises((LanceError, OSError)):
                change()
    assert files(table) == before, "no version, no empty manifest, nothing left behind"
    assert lance_core.dataset(table).to_table() == ROWS.slice(0, 10)
    assert lance_core.write_dataset(ROWS, table, mode="append").count_rows() == 10_010
    assert lance_core.verify(table).is_ok


@pytest.mark.parametrize("folder", ["data", "_deletions", "_versions"])
def test_a_missing_file_is_named(table, folder):
    lance_core.dataset(table).delete("a = 1")
    gone = sorted((Path(table) / folder).iterdir())
    for path in gone:
        path.unlink()
    with pytest.raises(NotFoundError) as error:
        lance_core.dataset(table).to_table()
    assert folder == "_versions" or any(path.name in str(error.value) for path in gone)


def test_a_missing_transaction_file_harms_nobody(table):
    for path in (Path(table) / "_transactions").iterdir():
        path.unlink()
    lance_core.write_dataset(ROWS, table, mode="append")
    assert lance_core.dataset(table).count_rows() == 10_010


def test_a_folder_that_is_a_file_is_told(tmp_path):
    (tmp_path / "t").write_text("not a folder")
    with pytest.raises((LanceError, OSError)):
        lance_core.write_dataset(ROWS, tmp_path / "t")
    assert (tmp_path / "t").read_text() == "not a folder"


@pytest.mark.parametrize("link", [None, FileExistsError(), OSError(28, "No space left on device")])
def test_failed_commits_leave_nothing_open(table, monkeypatch, link):
    """Neither descriptors nor threads nor files; a conflict is seen early, or the last step fails."""
    dataset = lance_core.dataset(table)
    lance_core.write_dataset(ROWS.slice(0, 1), table, mode="append")
    fragments = lance_core.write_fragments(ROWS.slice(0, 1), table, mode="overwrite")
    operation = lance_core.LanceOperation.Overwrite(dataset.schema, fragments)

    def counts():
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), files(table)

    def fail_to_link(*_):
        raise link

    if link is not None:
        monkeypatch.setattr(local.os, "link", fail_to_link)
    errors = CommitConflictError if link is None else (LanceError, OSError)

    def fail():
        with pytest.raises(errors):
            lance_core.LanceDataset.commit(table, operation, read_version=1 if link is None else 2, max_retries=0)

    fail()
    before = counts()
    for _ in range(FAILURES):
        fail()
    after = counts()
    assert after[0] <= before[0]
    assert after[1:] == before[1:]


# ------------------------------------------------------------------------------------------------------- late listings


class LateStore(MemoryStore):
    """Its listings are so many calls late."""

    lag = 0

    def __init__(self):
        super().__init__()
        self.past = []

    def names(self, folder, /):
        self.past.append(super().names(folder))
        return self.past[max(len(self.past) - 1 - self.lag, 0)]

    def first_names(self, folder, count, /):
        return sorted(self.names(folder))[:count]


@pytest.mark.parametrize("lag", range(1, 6))
def test_late_listings_overwrite_nothing(lag):
    store = LateStore()
    runtime = Runtime(sleep_s=lambda _: None)
    commit(store, create(store, [0]))
    contents = {1: [0]}
    landed = [0]
    store.lag = lag
    for number in range(1, 30):
        with suppress(CommitContentionError, NotFoundError, CommitConflictError):
            base = open_snapshot(store).version
            done = commit(store, append(store, [number], read_version=base, uuid=f"u{number}"), runtime=runtime)
            landed.append(number)
            assert read_rows(done) == landed, "all that was acknowledged, in one line"
            contents[done.version] = list(landed)
    store.lag = 0
    assert list_versions(store) == sorted(contents)
    assert all(read_rows(open_snapshot(store, version)) == rows for version, rows in contents.items())
    assert len(landed) > 10


# -------------------------------------------------------------------------------------------------------------- storms


def test_a_storm_of_writers_calms_down():
    """Attempts grow like n log n, not like n squared."""
    store = MemoryStore("s3://bucket/t")
    commit(store, create(store, [0]))
    ours = [append(store, [number], read_version=1, uuid=f"u{number}") for number in range(1, WRITERS + 1)]
    slow = FaultyStore(inner=store, on_call=lambda method, _: time.sleep(LATENCY_S * (method == "put_if_absent")))
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda one: commit(slow, one, max_retries=100), ours))
    assert read_rows(open_snapshot(store)) == list(range(WRITERS + 1))
    attempts = sum(method == "put_if_absent" for method, _ in slow.calls)
    assert attempts <= 3 * WRITERS * math.log2(WRITERS)


def test_a_writer_that_never_wins_gives_up():
    store = MemoryStore()
    commit(store, create(store, [0]))
    others = iter(range(1, 1000))

    def other_first(method, path):
        if method == "put_if_absent" and path.startswith("_versions"):
            number = next(others)
            newest = open_snapshot(store).version
            commit(store, append(store, [number], read_version=newest, uuid=f"other {number}"))

    ours = append(store, [-1], read_version=1, uuid="ours")
    with pytest.raises(CommitContentionError, match=r"^6 attempts .* to Append \(version 7\); try again later"):
        commit(
            FaultyStore(inner=store, on_call=other_first), ours, max_retries=5, runtime=Runtime(sleep_s=lambda _: None)
        )
    clock = iter(range(0, 100, 15))
    hurried = Runtime(sleep_s=lambda _: None, random_u63=lambda: 0, monotonic_s=lambda: next(clock))
    with pytest.raises(CommitContentionError, match=r"^2 attempts"):
        commit(FaultyStore(inner=store, on_call=other_first), ours, timeout_s=50, runtime=hurried)
    assert -1 not in read_rows(open_snapshot(store))


# --------------------------------------------------------------------------------------------------------------- names


def odd_names(count):
    dice = random.Random(5)
    letters = string.ascii_letters + string.digits + "._-"
    odd = letters + '/\\ \0\n:*?"<>|%~#éÅ\u212b\u2215\uff0fA\u0301\U0001f600'
    yield from ("", ".", "..", "con", "NUL", "a.lock", "-", "_", "a..b", ".a", "a.", "main", "%2e%2e", "x" * 300)
    yield from ("å", "a\u030a", "K", "\u212a", "..\\x", "/etc/passwd", "a/b", "t\u2215u", "lance_core.keeping-x")
    for _ in range(count):
        yield "".join(dice.choices(dice.choice([letters, letters, odd]), k=dice.randrange(1, 12)))


def test_names_of_tags(tmp_path):
    """What is allowed comes back as it was, and pylance lists it; the rest is refused and leaves nothing."""
    uri = str(tmp_path / "t")
    lance_core.write_dataset(ROWS.slice(0, 1), uri)
    store = lance_core.dataset(uri).snapshot.store
    allowed, folded = set(), set()
    for name in odd_names(NAMES):
        if name.lower() in folded:
            continue
        try:
            create_tag(store, name, 1)
        except LanceError:
            continue
        allowed.add(name)
        folded.add(name.lower())
    assert all(name.isascii() and "/" not in name and len(name) < 256 for name in allowed)
    assert set(list_tags(store)) == set(lance.dataset(uri).tags.list()) == allowed
    assert len(allowed) > NAMES // 3
    assert list(tmp_path.iterdir()) == [tmp_path / "t"]


def test_one_bad_tag_hides_no_other(table):
    dataset = lance_core.dataset(table)
    for name in ("a", "b", "c"):
        dataset.tags.create(name, 1)
    path = Path(table) / "_refs/tags/b.json"
    good, dice = path.read_bytes(), random.Random(3)
    for _ in range(NAMES // 5):
        damaged = bytearray(good)
        for _ in range(dice.randrange(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        path.write_bytes(bytes(damaged[: dice.randrange(len(damaged) + 1)]))
        assert {"a", "c"} <= set(dataset.tags.list())
        with suppress(LanceError):
            assert lance_core.dataset(table, version="b").count_rows() == 10


def test_a_reader_whose_version_is_cleaned_up_gets_all_or_an_error(tmp_path):
    uri = str(tmp_path / "t")
    old = lance_core.write_dataset(ROWS, uri, max_rows_per_file=500)
    batches = old.to_batches(batch_size=100)
    read = [next(batches)]
    lance_core.write_dataset(ROWS.slice(0, 5), uri, mode="overwrite")
    lance_core.dataset(uri).cleanup_old_versions(older_than=timedelta(0))
    try:
        read += list(batches)
    except NotFoundError as error:
        assert ".lance" in str(error)  # noqa: PT017 either is right
    else:
        assert pa.Table.from_batches(read) == ROWS
    with pytest.raises(NotFoundError):
        lance_core.dataset(uri, version=1)
