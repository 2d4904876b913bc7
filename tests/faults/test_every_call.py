"""Fail store call n of every change, for every n and in every way, or end the process there.

Afterwards the newest version is the old one or the new one, every version can be read, who tries again has the change
once, and a clean-up that comes late enough leaves only what the versions need. LANCE_TESTS=deep does the last two
after every fault, the default run after every third.
"""

import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from lance_core.errors import LanceError
from lance_core.format.table.manifest import manifest_files
from lance_core.maintenance.cleanup import cleanup_old_versions
from lance_core.maintenance.cleanup_plan import References
from lance_core.table.branches import delete_branch, list_branches
from lance_core.table.refs import KEEPING_PREFIX, list_tags
from lance_core.table.runtime import Runtime
from lance_core.table.snapshot import list_versions, open_snapshot
from lance_core.testing.actions import ACTIONS, StateReader, prepared, read_state, run_once
from lance_core.testing.faulty_store import FaultyStore, InjectedError, Killed

pytestmark = pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"
WRITES = {"put", "put_if_absent", "delete", "commit", "write", "writer"}
MODES = {
    "before": ("before", InjectedError),
    "after": ("after", InjectedError),
    "partial": ("partial", InjectedError),
    "timeout": ("late", TimeoutError),
    "killed before": ("before", Killed),
    "killed after": ("after", Killed),
}
CASES = {}
READER = StateReader()
BASE = prepared()
OLD = READER.read(open_snapshot(BASE), BASE)


def seen(store, version=None):
    return READER.read(open_snapshot(store, version), store).plain()


def check_versions(store):
    for version in list_versions(store):
        seen(store, version)
    for branch in list_branches(store):
        with suppress(LanceError):  # begun and not finished: it can be deleted
            read_state(open_snapshot(store))
        assert branch.parent_version in list_versions(store)
    for tag in list_tags(store).values():
        seen(store, tag.version)


def try_again(action, store, new):
    """As a caller does who does not know what became of it; refusals say that it is there."""
    if list_branches(store):
        delete_branch(store, "b")
    with suppress(LanceError):
        run_once(action, store, 0, "once")
    assert seen(store) == new
    check_versions(store)


def check_that_nothing_stays(store):
    """Long after, clean-up takes what was left behind; what versions need stays."""
    later = Runtime(now=lambda: datetime.now(UTC) + timedelta(days=30))
    store._now = later.now
    cleanup_old_versions(store, older_than=timedelta(0), error_if_tagged_old_versions=False, runtime=later)
    needed = References()
    for version in list_versions(store):
        needed.add(manifest_files(open_snapshot(store, version).manifest))
    folders = ("data", "_deletions", "_transactions", "_indices")
    found = {info.path for folder in folders for info in store.list(folder)}
    assert not [path for path in found if path not in needed]
    assert not [path for path in needed.paths if not any(one.startswith(path) for one in found)]
    assert not [name for name in store.names("_versions") if name.startswith(".tmp")]
    assert not [name for name in store.names("_refs/tags") if name.startswith(KEEPING_PREFIX)]
    check_versions(store)


def fail(name, mode, number):
    """Let one call fail; the calls made, and the method of the one that failed."""
    action, (effect, error) = ACTIONS[name], MODES[mode]
    store = BASE.copied()
    faulty = FaultyStore(inner=store, fail_at=number, effect=effect, error=error)
    done = None
    with suppress(LanceError, InjectedError, TimeoutError, Killed):
        done = run_once(action, faulty, 0, "once")
    faulty.settle()
    new = OLD.plain() if action.effect is None else action.effect(OLD, 0).plain()
    found = seen(store)
    assert found in (OLD.plain(), new), (name, mode, number)
    assert found == new or done is None, "what was acknowledged is there"
    check_versions(store)
    if IS_DEEP or number % 3 == 0:
        if name != "clean-up":
            try_again(action, store, new)
        check_that_nothing_stays(store)
    return faulty.calls


@pytest.mark.timeout(0 if IS_DEEP else 300)
@pytest.mark.parametrize("name", ACTIONS)
def test_every_call_of(name):
    calls = fail(name, "before", 0)
    cases = 0
    for mode in MODES:
        number = 0
        while number < len(calls):
            number += 1
            # Half of a read, or a read that is late, is a read that failed.
            if mode in {"before", "after", "killed before"} or calls[number - 1][0] in WRITES:
                made = fail(name, mode, number)
                calls = max(calls, made, key=len) if mode == "before" else calls
                cases += 1
    assert cases > 3 * len(calls)
    CASES[name] = cases


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["append", "delete", "update", "overwrite"])
def test_every_call_of_a_commit_that_prepares_ahead(name, mode, monkeypatch):
    """As on object stores: the transaction file is written before the newest version is looked for."""
    monkeypatch.setattr("lance_core.table.commit.objects_at_once", lambda _: 2)
    calls = fail(name, mode, 0)
    methods = [method for method, path in calls if path.startswith(("_transactions/", "_versions"))]
    assert methods.index("put") < len(methods) - 3
    for number in range(1, len(calls) + 1):
        fail(name, mode, number)


def test_there_are_many_cases():
    if len(CASES) == len(ACTIONS):  # not if only some of them were asked for
        assert sum(CASES.values()) > 500
