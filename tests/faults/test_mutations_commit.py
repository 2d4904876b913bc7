"""Take one safeguard of commits away at a time: a gate must notice each; see `lance_core.testing.mutations`."""

import uuid
from contextlib import nullcontext, suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest

import lance_core
from lance_core.errors import LanceError, VersionNotFoundError
from lance_core.format.table.feature_flags import Feature
from lance_core.format.table.manifest import encode_manifest_pieces
from lance_core.format.table.operations import Append
from lance_core.format.table.paths import ManifestNaming, manifest_path
from lance_core.table.commit import commit
from lance_core.table.snapshot import list_versions, load_manifest, open_snapshot
from lance_core.testing.actions import ACTIONS, History, in_turn, read_state, run_once
from lance_core.testing.faulty_store import FaultyStore, InjectedError
from lance_core.testing.mutations import always, base, mutated, no, toy, walk
from lance_core.testing.scheduler import explore
from lance_core.testing.tables import append, delete, read_rows, transaction

pytestmark = pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")

COMMITTER = "lance_core.table.commit._Committer"


def freed(ours="append"):
    """A version number is freed by a clean-up while a commit takes it."""
    actions = [ACTIONS[name] for name in (ours, "append", "append", "clean-up")]
    programs = [in_turn({0: actions[0]}), in_turn(dict(enumerate(actions[1:], 1)))]
    history = History(actions=actions, programs=[0, 1, 1, 1], may_be_unknown=True)

    def check(store, ends):
        history.check(store, [end.result[number] for end in ends for number in end.result])

    explore(base().copied, programs, check, preemptions=1)


def freed_delete():
    """The same, for a delete of all rows of a fragment, and with a version in between that is cleaned up as well."""
    names = ["append", "append", "clean-up", "config", "delete"]  # the delete of number 4 is that of key 4
    actions = [ACTIONS[name] for name in names]
    programs = [in_turn({4: actions[4]}), in_turn({number: actions[number] for number in (0, 1, 3, 2)})]
    history = History(actions=actions, programs=[1, 1, 1, 1, 0], may_be_unknown=True)

    def check(store, ends):
        found = {**ends[0].result, **ends[1].result}
        history.check(store, [found[number] for number in range(5)])

    explore(base().copied, programs, check, preemptions=1)


def restore_and_clean_ups():
    actions = [ACTIONS[name] for name in ("restore", "clean-up", "clean-up")]
    programs = [in_turn({0: actions[0]}), in_turn(dict(enumerate(actions[1:], 1)))]
    history = History(actions=actions, programs=[0, 1, 1], may_be_unknown=True)

    def check(store, ends):
        history.check(store, [end.result[number] for end in ends for number in end.result])

    explore(base().copied, programs, check, preemptions=2)


def committed_twice():
    """One transaction, committed again after it was rebased, is one version."""
    store = toy()
    ours = append(store, [10], read_version=1, uuid=str(uuid.UUID(int=7)))
    rest = delete(open_snapshot(store), [1], uuid="b")
    commit(store, delete(open_snapshot(store), [2], uuid="c", new_id=lambda: 9))
    assert commit(store, rest).version == commit(store, rest).version == 3
    assert commit(store, ours).version == commit(store, ours).version == 4
    assert read_rows(open_snapshot(store)) == [0, 3, 10]


def numbered_anew():
    """Fragments of two appends have ids of their own; a version with one id twice is refused, so both must succeed."""
    store = toy()
    for number, value in enumerate((10, 11)):
        commit(store, append(store, [value], read_version=1, uuid=str(number)))
    assert read_rows(open_snapshot(store))[-2:] == [10, 11]


def key_counts_once():
    store = base().copied()
    assert run_once(ACTIONS["append"], store, 1, "key") == 3
    ours = transaction(Append(fragments=()), 2, uuid="other")
    ours = replace(ours, transaction_properties={"lance_core.token": "key"})
    assert commit(store, ours).version == 3
    assert list_versions(store) == [1, 2, 3]


def ambiguous(effect, error):
    """The manifest's creation fails, and the object is there, now or later."""
    store = base().copied()
    faulty = FaultyStore(inner=store, effect=effect, error=error)

    def on_call(method, path):
        if method == "put_if_absent" and path.startswith("_versions"):
            faulty.fail_at = len(faulty.calls)

    faulty.on_call = on_call
    with suppress(LanceError, OSError):
        ACTIONS["append"].run(faulty, 0)
    faulty.settle()
    found = read_state(open_snapshot(store))
    assert (100 in found.rows) == (list_versions(store) == [1, 2, 3])
    assert 100 in found.rows


def landed():
    ambiguous("after", InjectedError)


def landed_late():
    ambiguous("late", TimeoutError)


def missing_file():
    """A file that is gone before the commit is never committed."""
    store = toy()
    ours = append(store, [10], read_version=1, uuid="a")
    store.delete(["data/a.lance"])
    with pytest.raises(LanceError):
        commit(store, ours)
    assert list_versions(store) == [1]


def wrong_size():
    store = toy()
    ours = append(store, [10], read_version=1, uuid="a")
    store.put("data/a.lance", b"torn")
    with pytest.raises(LanceError):
        commit(store, ours)


def unknown_flags_stop_writers():
    store = toy()
    path = manifest_path(1, ManifestNaming.V2)
    store.put(path, b"".join(encode_manifest_pieces(replace(load_manifest(store, 1), writer_feature_flags=1 << 40))))
    with pytest.raises(LanceError):
        commit(store, append(store, [10], read_version=1, uuid="a"))


def put_anyway(_original):
    def put_if_absent(self, path, data, /):
        self.put(path, data)
        return True

    return put_if_absent


def new_uuid_each_time(original):
    return lambda self, there: replace(original(self, there), uuid=str(uuid.uuid4()))


def not_found(_original):
    def load(store, _version, **_options):
        raise VersionNotFoundError("nobody looked", path=store.uri)

    return load


class Never(Exception):  # noqa: N818 nothing ever raises it
    """What is caught instead of an unknown outcome."""


def never(_original):
    return Never


MUTATIONS = {
    "own commits are not recognised": (f"{COMMITTER}._is_ours", always(value=False), committed_twice),
    "keys of commits are not looked at": ("lance_core.table.commit.key_of", always(None), key_counts_once),
    "a new uuid for each attempt": (f"{COMMITTER}._on_top_of", new_uuid_each_time, committed_twice),
    "no look after the commit": ("lance_core.table.commit.is_visible", always(value=True), freed),
    "any later version counts as a descendant": ("lance_core.table.visibility.descends", always(value=True), freed),
    "what a later delete covers is not looked at": (
        "lance_core.table.visibility.covers_deletions",
        always(value=True),
        freed_delete,
    ),
    "a plain put instead of one with a condition": (
        "lance_core.store.memory.MemoryStore.put_if_absent",
        put_anyway,
        lambda: walk("append", "append"),
    ),
    "files are deleted when the outcome is unknown": (
        "lance_core.change.delete.CommitOutcomeUnknownError",
        never,
        landed_late,
    ),
    "traces are removed when the outcome is unknown": (
        "lance_core.table.publish.outcome_unknown",
        lambda _original: lambda *_: OSError("it failed"),
        landed_late,
    ),
    "nobody looks what became of a failed creation": ("lance_core.table.publish.read_transaction", not_found, landed),
    "conflicts are not judged": (f"{COMMITTER}._judge", lambda _original: no, lambda: walk("merge", "update")),
    "all operations are compatible": (
        "lance_core.table.commit.judge",
        always(lance_core.table.rules.conflicts.Verdict.COMPATIBLE),
        lambda: walk("delete", "delete"),
    ),
    "deletions of others are overwritten": (
        "lance_core.table.rebase._merge",
        lambda _original: lambda store, _before, _now, ours: lance_core.table.rebase.load_deletions(store, ours),
        lambda: walk("delete", "delete"),
    ),
    "new rows of others are not looked at": (
        "lance_core.table.commit.adds_rows",
        always(value=False),
        lambda: walk("append", "replace where"),
    ),
    "fragments are not numbered anew": (
        "lance_core.table.rules.apply.next_fragment_id",
        always(0),
        numbered_anew,
    ),
    "row ids begin again": (
        "lance_core.table.rules.apply.with_new_rows",
        lambda original: lambda fragment, _first, version: original(fragment, 0, version),
        lambda: walk("append", "append"),
    ),
    "files are not looked for before the commit": (
        "lance_core.table.commit.check_files",
        lambda _original: no,
        missing_file,
    ),
    "sizes are not compared": (
        "lance_core.table.publish.object_sizes",
        lambda _original: lambda _store, paths: [8 for _ in paths],
        wrong_size,
    ),
    "a restore keeps nothing": (
        "lance_core.table.commit.keeping",
        lambda _original: lambda *_, **__: nullcontext(),
        restore_and_clean_ups,
    ),
    "losers leave their data": (
        "lance_core.change.delete.remove_staged",
        lambda _original: no,
        lambda: walk("append", "overwrite"),
    ),
    "losers leave their transactions": (
        f"{COMMITTER}.remove_traces",
        lambda _original: no,
        lambda: walk("append", "overwrite"),
    ),
    "merged deletions leave their files": (
        "lance_core.change.retries._remove_merged_deletions",
        lambda _original: no,
        lambda: walk("delete", "delete"),
    ),
    "writers ignore flags": (
        "lance_core.table.commit.feature_flags",
        lambda _original: SimpleNamespace(check_writable=no, Feature=Feature),
        unknown_flags_stop_writers,
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_gate_notices(name, monkeypatch):
    target, mutate, gate = MUTATIONS[name]
    gate()
    monkeypatch.setattr(*mutated(target, mutate))
    with pytest.raises((Exception, pytest.fail.Exception)):
        gate()


def test_there_are_enough():
    assert len(MUTATIONS) >= 23
