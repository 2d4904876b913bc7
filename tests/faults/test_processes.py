"""Many processes commit at once: nothing is lost, nothing is doubled. LANCE_TESTS=deep makes more of them."""

import multiprocessing
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import timedelta

import pytest

from lance_core.errors import CommitConflictError, CommitOutcomeUnknownError, DatasetAlreadyExistsError
from lance_core.maintenance.cleanup import cleanup_old_versions
from lance_core.store.open import open_store
from lance_core.table.commit import commit
from lance_core.table.runtime import SYSTEM_RUNTIME
from lance_core.table.snapshot import list_versions, open_snapshot, read_transaction
from lance_core.testing.tables import append, create, delete, read_rows

CONTEXT = multiprocessing.get_context("forkserver")  # the pool's parent has threads
IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"
WRITERS, COMMITS = 8, 25 if IS_DEEP else 10
CROWD, COMMITS_OF_CROWD = 16, 100
BESIDE, COMMITS_BESIDE, CLEANERS = (6, 60, 2) if IS_DEEP else (3, 10, 1)
KILLS = 1000 if IS_DEEP else 10
TABLES = 300 if IS_DEEP else 40


def append_rows(uri, writer, count=COMMITS):
    store = open_store(uri)
    for number in range(count):
        row = 1000 * writer + number
        version = open_snapshot(store).version
        commit(store, append(store, [row], read_version=version, uuid=f"{writer}-{number}"), max_retries=200)


def delete_rows(uri, rows):
    store = open_store(uri)
    for row in rows:
        for attempt in range(200):
            base = open_snapshot(store)
            ours = delete(base, [row], uuid=f"d{row}-{attempt}", new_id=SYSTEM_RUNTIME.random_u63)
            try:
                commit(store, ours, read=base, max_retries=200)
                break
            except CommitConflictError as error:
                assert error.is_retryable  # noqa: PT017 - the loop is what callers do


def meet_at(barrier):
    """Processes of a pool wait for each other there."""
    global _BARRIER  # noqa: PLW0603 - the only way into a pool
    _BARRIER = barrier


def try_to_create(uri, writer):
    """Create tables at the same moment as all others; which of them were created here."""
    won = []
    for number in range(TABLES):
        store = open_store(f"{uri}{number}")
        ours = create(store, [writer], uuid=f"c{writer}")
        _BARRIER.wait(120)
        try:
            commit(store, ours)
            won.append(number)
        except DatasetAlreadyExistsError:
            pass
    return won


APPEND_FOR_EVER = """
import sys
from lance_core.store.open import open_store
from lance_core.table.commit import commit
from lance_core.table.snapshot import open_snapshot
from lance_core.testing.tables import append

store, writer = open_store(sys.argv[1]), int(sys.argv[2])
for row in range(10_000 * writer, 10_000 * (writer + 1)):
    commit(store, append(store, [row], read_version=open_snapshot(store).version, uuid=str(row)))
    print(row, flush=True)
"""


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "race")


def run_all(calls):
    with ProcessPoolExecutor(len(calls), mp_context=CONTEXT) as pool:
        return [future.result() for future in [pool.submit(*call) for call in calls]]


def test_appends_and_deletes(uri):
    store = open_store(uri)
    commit(store, create(store, range(100)))
    appenders = [(append_rows, uri, writer) for writer in range(1, WRITERS - 1)]
    deleters = [(delete_rows, uri, range(0, 20, 2)), (delete_rows, uri, range(1, 20, 2))]
    run_all([*appenders, *deleters])
    snapshot = open_snapshot(store)
    expected = [*range(20, 100), *(1000 * writer + n for writer in range(1, WRITERS - 1) for n in range(COMMITS))]
    assert read_rows(snapshot) == expected
    assert snapshot.version == 1 + len(appenders) * COMMITS + 20
    assert list_versions(store) == list(range(1, snapshot.version + 1))
    uuids = [read_transaction(store, version).uuid for version in list_versions(store)]
    assert len(set(uuids)) == len(uuids)
    assert len(store.names("_transactions")) == len(uuids), "lost attempts leave no transaction behind"
    assert not [info.path for info in store.list("_versions") if ".tmp" in info.path]


@pytest.mark.timeout(0)
@pytest.mark.skipif(not IS_DEEP, reason="takes minutes")
def test_a_crowd_of_appends(uri):
    store = open_store(uri)
    commit(store, create(store, [0]))
    run_all([(append_rows, uri, writer, COMMITS_OF_CROWD) for writer in range(1, CROWD + 1)])
    rows = [1000 * writer + number for writer in range(1, CROWD + 1) for number in range(COMMITS_OF_CROWD)]
    assert read_rows(open_snapshot(store)) == [0, *rows]
    assert list_versions(store) == list(range(1, 2 + CROWD * COMMITS_OF_CROWD))
    assert len(store.names("_transactions")) == 1 + CROWD * COMMITS_OF_CROWD


def test_one_of_many_creators_wins(uri):
    barrier = CONTEXT.Barrier(WRITERS)
    with ProcessPoolExecutor(WRITERS, CONTEXT, meet_at, (barrier,)) as pool:
        futures = [pool.submit(try_to_create, uri, writer) for writer in range(WRITERS)]
        winners = {number: writer for writer, future in enumerate(futures) for number in future.result()}
        assert sum(len(future.result()) for future in futures) == TABLES == len(winners)
    for number, writer in winners.items():
        store = open_store(f"{uri}{number}")
        assert list_versions(store) == [1]
        assert read_rows(open_snapshot(store)) == [writer]


@pytest.mark.timeout(0 if IS_DEEP else 300)
def test_clean_up_beside_writers_loses_nothing(uri):
    store = open_store(uri)
    commit(store, create(store, [0]))
    writers = range(1, BESIDE + 1)
    with ProcessPoolExecutor(BESIDE, mp_context=CONTEXT) as pool, ThreadPoolExecutor(CLEANERS) as cleaners:
        futures = [pool.submit(append_rows_with_redo, uri, writer) for writer in writers]

        def clean():
            removed = 0
            while not all(future.done() for future in futures):
                removed += cleanup_old_versions(store, older_than=timedelta(0)).old_versions
                time.sleep(0.01)
            return removed

        cleaning = [cleaners.submit(clean) for _ in range(CLEANERS)]
        unsure = sum(future.result() for future in futures)
        assert sum(one.result() for one in cleaning) > 5
    expected = [0, *(1000 * writer + n for writer in writers for n in range(COMMITS_BESIDE))]
    assert read_rows(open_snapshot(store)) == expected
    assert unsure <= len(expected) / 50


def append_rows_with_redo(uri, writer):
    """Append rows as callers do; how often the outcome was unknown, and the caller had to look."""
    store = open_store(uri)
    unsure = 0
    for number in range(COMMITS_BESIDE):
        for attempt in range(200):
            row = 1000 * writer + number
            version = open_snapshot(store).version
            ours = append(store, [row], read_version=version, uuid=f"{writer}-{number}-{attempt}")
            try:
                commit(store, ours, max_retries=200)
                break
            except CommitConflictError as error:
                assert error.is_retryable  # noqa: PT017 - what it read was cleaned up
            except CommitOutcomeUnknownError:  # the versions that could tell were cleaned up
                unsure += 1
                if row in read_rows(open_snapshot(store)):
                    break
    return unsure


@pytest.mark.timeout(0 if IS_DEEP else 300)
def test_killed_writers_lose_and_double_nothing(uri):
    store = open_store(uri)
    commit(store, create(store, [0]))
    acknowledged = {0}
    for writer in range(1, KILLS + 1):
        command = [sys.executable, "-c", APPEND_FOR_EVER, uri, str(writer)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            acknowledged.add(int(process.stdout.readline()))
            time.sleep(0.01 + 0.007 * (writer % 13))
            process.kill()
            acknowledged |= {int(line) for line in process.stdout.read().splitlines()}
    rows = read_rows(open_snapshot(store))
    assert len(set(rows)) == len(rows)
    assert acknowledged <= set(rows)
    assert len(set(rows) - acknowledged) <= KILLS, "at most the commit in flight of each was not acknowledged"
    assert list_versions(store) == list(range(1, len(rows) + 1))
