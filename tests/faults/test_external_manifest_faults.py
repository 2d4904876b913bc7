"""Commits decided by a table: each call to the store or to the table may fail, or the process may end there."""

import contextlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import pytest

from lance_core.errors import CommitOutcomeUnknownError, LanceError
from lance_core.store.external_manifest import ExternalManifestStore
from lance_core.store.memory import MemoryStore
from lance_core.store.open import open_store
from lance_core.store.sqlite_table import SqliteTable
from lance_core.table.commit import commit
from lance_core.table.runtime import Runtime
from lance_core.table.snapshot import list_versions, open_snapshot, read_transaction
from lance_core.testing.faulty_store import FaultyStore, InjectedError
from lance_core.testing.tables import append, create, read_rows

CONTEXT = multiprocessing.get_context("forkserver")
RUNTIME = Runtime(now=Runtime().now, sleep_s=lambda _: None, random_u63=lambda: 4711)
START = list(range(10))
COMMITS = 5


class Killed(BaseException):
    """The process ends: nobody catches it."""


@dataclass
class FaultyTable:
    """Counts its calls together with those of a store, and fails in the same way."""

    inner: SqliteTable
    store: FaultyStore

    def create(self, base, row, /):
        return self.store.call("create", row.path, lambda: self.inner.create(base, row))

    def settle(self, base, row, /, *, staged):
        self.store.call("settle", row.path, lambda: self.inner.settle(base, row, staged=staged))

    def find(self, base, version, /):
        return self.store.call("find", base, lambda: self.inner.find(base, version))

    def remove(self, base, row, /):
        self.store.call("remove", row.path, lambda: self.inner.remove(base, row))


@pytest.fixture
def table(tmp_path):
    return SqliteTable(str(tmp_path / "versions.db"))


def prepared(table, base):
    store = ExternalManifestStore(MemoryStore(), table, base=base)
    commit(store, create(store, START))
    return store


@pytest.mark.parametrize("effect", ["before", "after"])
@pytest.mark.parametrize("error", [InjectedError, TimeoutError, Killed])
def test_commit_is_all_or_nothing(table, effect, error):
    number, passed, landings = 0, False, 0
    while not passed:
        number += 1
        store = prepared(table, f"t{number}")
        ours = append(store, [10], read_version=1, uuid="ours")
        faulty = FaultyStore(inner=store._inner, fail_at=number, effect=effect, error=error)
        failing = ExternalManifestStore(faulty, FaultyTable(table, faulty), base=f"t{number}")
        try:
            done = commit(failing, ours, runtime=RUNTIME)
        except (LanceError, InjectedError, TimeoutError, Killed):
            done = None
        passed = len(faulty.calls) < number
        plain = list_versions(store._inner)
        assert plain in ([1], [1, 2])
        versions = list_versions(store)
        landed = versions == [1, 2]
        landings += landed
        assert landed or versions == [1]
        assert landed or plain == [1], "readers that do not know the table see nothing that is not committed"
        assert landed or done is None, "what was acknowledged is there"
        assert read_rows(open_snapshot(store)) == ([*START, 10] if landed else START)
        assert commit(store, ours, runtime=RUNTIME).version == 2
        assert read_rows(open_snapshot(store)) == read_rows(open_snapshot(store._inner)) == [*START, 10]
        assert read_transaction(store, 2).uuid == "ours"
    assert number > 8
    assert 1 < landings < number


@pytest.mark.parametrize("effect", ["before", "after"])
def test_repair_may_fail_as_well(table, effect):
    """A commit stopped after it had won; each call of the next reader may fail."""
    number, passed = 0, False
    while not passed:
        number += 1
        store = prepared(table, f"t{number}")
        ours = append(store, [10], read_version=1, uuid="ours")
        stopped = FaultyStore(inner=store._inner, error=Killed)
        claiming = FaultyTable(table, stopped)
        stopped.on_call = lambda method, _, it=stopped: setattr(it, "fail_at", len(it.calls) * (method == "create"))
        stopped.effect = "after"
        with pytest.raises(Killed):
            commit(ExternalManifestStore(stopped, claiming, base=f"t{number}"), ours, runtime=RUNTIME)
        assert list_versions(store._inner) == [1]
        faulty = FaultyStore(inner=store._inner, fail_at=number, effect=effect)
        with contextlib.suppress(InjectedError):
            open_snapshot(ExternalManifestStore(faulty, FaultyTable(table, faulty), base=f"t{number}"))
        passed = len(faulty.calls) < number
        assert read_rows(open_snapshot(store)) == [*START, 10]
        assert open_snapshot(store._inner).version == 2
    assert number > 4


def test_an_unknown_outcome_keeps_the_staged_manifest(table):
    """The table cannot be reached, neither for the row nor to find out about it."""
    store = prepared(table, "t")
    ours = append(store, [10], read_version=1, uuid="ours")
    faulty = FaultyStore(inner=store._inner)
    broken = FaultyTable(table, faulty)
    is_down = []

    def on_call(method, _):
        if method == "create":
            is_down.append(True)
            table.create("t", row_of(store))
        if is_down and method in {"create", "find"}:
            raise ConnectionError("no answer")

    def row_of(store):
        (name,) = [name for name in store._inner.names("_versions") if not name.endswith(".manifest")]
        from lance_core.store.version_table import VersionRow  # noqa: PLC0415 only here

        return VersionRow(version=2, path=f"_versions/{name}", size=1)

    faulty.on_call = on_call
    with pytest.raises(CommitOutcomeUnknownError):
        commit(ExternalManifestStore(faulty, broken, base="t"), ours, runtime=RUNTIME)
    assert read_rows(open_snapshot(store)) == [*START, 10]


def append_rows(uri, options, writer):
    store = open_store(uri, options)
    for number in range(COMMITS):
        version = open_snapshot(store).version
        ours = append(store, [1000 * writer + number], read_version=version, uuid=f"{writer}-{number}")
        commit(store, ours, max_retries=200)


@pytest.mark.parametrize("scheme", ["", "local://"])
def test_processes_lose_nothing_with_sqlite(tmp_path, scheme):
    uri, options = f"{scheme}{tmp_path}/t", {"manifest_store": f"sqlite://{tmp_path}/versions.db"}
    store = open_store(uri, options)
    commit(store, create(store, [-1]))
    with ProcessPoolExecutor(4, mp_context=CONTEXT) as pool:
        for one in [pool.submit(append_rows, uri, options, writer) for writer in range(4)]:
            one.result(timeout=120)
    expected = [-1, *(1000 * writer + number for writer in range(4) for number in range(COMMITS))]
    assert read_rows(open_snapshot(store)) == expected
    assert list_versions(open_store(uri)) == list(range(1, len(expected) + 1))
