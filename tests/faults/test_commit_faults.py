"""Fail store call k for k = 1, 2, ... until the operation gets through; afterwards the table is old or new."""

import contextlib
from datetime import UTC, datetime, timedelta

import pytest

from lance_core.errors import LanceError
from lance_core.format.table.operations import Restore, Rewrite, RewriteGroup
from lance_core.maintenance.cleanup import cleanup_old_versions
from lance_core.store.memory import MemoryStore
from lance_core.table.commit import commit
from lance_core.table.refs import create_tag, list_tags
from lance_core.table.runtime import Runtime
from lance_core.table.snapshot import list_versions, open_snapshot, read_transaction
from lance_core.testing.faulty_store import FaultyStore, InjectedError
from lance_core.testing.tables import append, create, delete, overwrite, read_rows, stage_rows, transaction

NOW = datetime(2100, 1, 1, tzinfo=UTC)
RUNTIME = Runtime(now=lambda: NOW, sleep_s=lambda _: None, random_u63=lambda: 4711)
START = list(range(10))


def make_append(store):
    return append(store, [10, 11], read_version=2, uuid="ours"), [*START, 10, 11]


def make_stale_append(store):
    return append(store, [10, 11], read_version=1, uuid="ours"), [*START, 10, 11]


def make_overwrite(store):
    return overwrite(store, [99], read_version=2, uuid="ours"), [99]


def make_delete(store):
    return delete(open_snapshot(store), [0, 1], uuid="ours", new_id=lambda: 5), START[2:]


def make_stale_delete(store):
    return delete(open_snapshot(store, 1), [0, 1], uuid="ours", new_id=lambda: 5), START[2:]


def make_rewrite(store):
    old = open_snapshot(store).manifest.fragments[0]
    group = RewriteGroup(old_fragments=(old,), new_fragments=(stage_rows(store, START, name="new"),))
    return transaction(Rewrite(groups=(group,)), 2, uuid="ours"), START


def make_restore(_store):
    return transaction(Restore(version=1), 2, uuid="ours"), [*START, 1000]


MAKERS = [make_append, make_stale_append, make_overwrite, make_delete, make_stale_delete, make_rewrite, make_restore]


def prepared():
    """Version 1 holds rows 0..9 and 1000, version 2 lost row 1000."""
    store = MemoryStore()
    base = commit(store, create(store, [*START, 1000]))
    commit(store, delete(base, [1000], uuid="second"))
    return store


def attempt(store, ours):
    try:
        return commit(store, ours, runtime=RUNTIME)
    except (LanceError, InjectedError):
        return None


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("effect", ["before", "after"])
@pytest.mark.parametrize("error", [InjectedError, TimeoutError])
def test_commit_is_all_or_nothing(make, effect, error):
    number, passed = 0, False
    while not passed:
        number += 1
        store = prepared()
        ours, after = make(store)
        faulty = FaultyStore(inner=store, fail_at=number, effect=effect, error=error)
        try:
            done = commit(faulty, ours, runtime=RUNTIME)
        except (LanceError, InjectedError, TimeoutError):
            done = None
        passed = len(faulty.calls) < number
        versions = list_versions(store)
        assert versions in ([1, 2], [1, 2, 3])
        landed = versions[-1] == 3
        assert read_rows(open_snapshot(store)) == (after if landed else START)
        assert landed or done is None, "what was acknowledged is there"
        # Doing it again must have it there exactly once, whatever became of the first time.
        again = commit(store, ours, runtime=RUNTIME)
        assert again.version == 3
        assert list_versions(store) == [1, 2, 3]
        assert read_rows(open_snapshot(store)) == after
        assert read_transaction(store, 3).uuid == "ours"
    assert number > 5


@pytest.mark.parametrize("effect", ["before", "after"])
def test_creation_is_all_or_nothing(effect):
    number, passed = 0, False
    while not passed:
        number += 1
        store = MemoryStore()
        ours = create(store, START, uuid="ours")
        faulty = FaultyStore(inner=store, fail_at=number, effect=effect)
        attempt(faulty, ours)
        passed = len(faulty.calls) < number
        assert list_versions(store) in ([], [1])
        assert commit(store, ours, runtime=RUNTIME).version == 1
        assert read_rows(open_snapshot(store)) == START
    assert number > 4


@pytest.mark.parametrize("effect", ["before", "after"])
def test_failed_commit_leaves_no_transaction_file_behind(effect):
    """Unless the commit landed, or may have."""
    for number in range(1, 10):
        store = prepared()
        ours, _ = make_append(store)
        faulty = FaultyStore(inner=store, fail_at=number, effect=effect)
        attempt(faulty, ours)
        has_file = "2-ours.txn" in store.names("_transactions")
        assert has_file == (list_versions(store)[-1] == 3)


@pytest.mark.parametrize("effect", ["before", "after"])
def test_clean_up_that_dies_leaves_readable_versions(effect):
    number, passed = 0, False
    while not passed:
        number += 1
        store = prepared()
        for version in range(2, 6):
            commit(store, append(store, [version * 100], read_version=version, uuid=f"u{version}"), runtime=RUNTIME)
        commit(store, overwrite(store, START, read_version=6, uuid="last"), runtime=RUNTIME)
        create_tag(store, "keep", 4)
        faulty = FaultyStore(inner=store, fail_at=number, effect=effect)
        options = {"older_than": timedelta(0), "error_if_tagged_old_versions": False}
        later = Runtime(now=lambda: NOW + timedelta(1))
        store._now = later.now  # the clock that says how old files are
        with contextlib.suppress(LanceError, InjectedError):
            cleanup_old_versions(faulty, **options, runtime=later)
        passed = len(faulty.calls) < number
        for version in list_versions(store):
            read_rows(open_snapshot(store, version))
        assert {4, 7} <= set(list_versions(store))
        cleanup_old_versions(store, **options, runtime=later)
        assert list_versions(store) == [4, 7]
        assert read_rows(open_snapshot(store, 4)) == [*START, 200, 300]
        assert len(list(store.list("data"))) == 4, "nothing is left of the versions that went"
    assert number > 20


@pytest.mark.parametrize("effect", ["before", "after"])
def test_tags_are_there_or_not(effect):
    for number in range(1, 8):
        store = prepared()
        faulty = FaultyStore(inner=store, fail_at=number, effect=effect)
        with contextlib.suppress(InjectedError):
            create_tag(faulty, "t", 1)
        assert [tag.version for tag in list_tags(store).values()] in ([], [1])
