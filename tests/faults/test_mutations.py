"""Take one safeguard away at a time: a gate must notice each.

A gate is a small piece of the tests beside this one, which holds as long as nothing is taken away.
"""

import uuid
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from types import SimpleNamespace

import pytest
from pyroaring import BitMap

import lance_core
from lance_core.errors import LanceError, VersionNotFoundError
from lance_core.format.feature_flags import Feature
from lance_core.format.manifest import encode_manifest_file
from lance_core.format.operations import Append
from lance_core.format.paths import ManifestNaming, manifest_path
from lance_core.maintenance.cleanup import cleanup_old_versions
from lance_core.store.local import LocalStore
from lance_core.store.memory import MemoryStore
from lance_core.table.branches import create_branch, list_branches
from lance_core.table.commit import commit
from lance_core.table.refs import create_tag, other_line
from lance_core.table.runtime import Runtime
from lance_core.table.snapshot import Versions, list_versions, load_manifest, open_snapshot
from lance_core.testing.actions import ACTIONS, History, StateReader, in_turn, prepared, read_state, rows_of, run_once
from lance_core.testing.faulty_store import FaultyStore, InjectedError, Killed
from lance_core.testing.scheduler import EPOCH, explore
from lance_core.testing.tables import append, create, delete, read_rows, transaction

LATER = Runtime(now=lambda: EPOCH + timedelta(days=1))
NOTHING = {"older_than": timedelta(0), "error_if_tagged_old_versions": False, "runtime": LATER}


@cache
def base():
    return prepared()


# --------------------------------------------------------------------------------------------------------------- gates


def walk(*names, preemptions=1):
    actions = [ACTIONS[name] for name in names]
    programs = [action.program(number) for number, action in enumerate(actions)]
    explore(base().copied, programs, History(actions=actions).check, preemptions=preemptions)


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


def toy():
    store = MemoryStore(now=lambda: EPOCH)
    commit(store, create(store, range(4)), runtime=Runtime(now=lambda: EPOCH))
    return store


def committed_twice():
    """One transaction, committed again after it was rebased, is one version."""
    store = toy()
    ours = append(store, [10], read_version=1, uuid=str(uuid.UUID(int=7)))
    rest = delete(open_snapshot(store), [1], uuid="b")
    commit(store, delete(open_snapshot(store), [2], uuid="c", new_id=lambda: 9))
    assert commit(store, rest).version == commit(store, rest).version == 3
    assert commit(store, ours).version == commit(store, ours).version == 4
    assert read_rows(open_snapshot(store)) == [0, 3, 10]


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


def wrong_name():
    """A manifest under the name of another version is not opened."""
    store = toy()
    commit(store, append(store, [10], read_version=1, uuid="a"))
    paths = [manifest_path(version, ManifestNaming.V2) for version in (2, 9)]
    store.put(paths[1], store.get(paths[0]))
    with pytest.raises(LanceError):
        open_snapshot(store, 9)


def died_in_clean_up():
    """Whenever a clean-up dies, versions that are left can be read."""
    number, passed = 0, False
    reader = StateReader()
    ready = base().copied()
    ACTIONS["overwrite"].run(ready, 0)
    while not passed:
        number += 1
        store = ready.copied()
        faulty = FaultyStore(inner=store, fail_at=number, error=Killed)
        with suppress(Killed):
            cleanup_old_versions(faulty, older_than=timedelta(0), runtime=SYSTEM_LATER)
        passed = len(faulty.calls) < number
        for version in list_versions(store):
            reader.read(open_snapshot(store, version), store)
        assert list_versions(store)


SYSTEM_LATER = Runtime(now=lambda: datetime.now(UTC) + timedelta(hours=1))


def tag_protects():
    store = base().copied()
    create_tag(store, "t", 1)
    cleanup_old_versions(store, **NOTHING)
    assert list_versions(store) == [1, 2]
    read_state(open_snapshot(store, 1))


def branch_protects():
    store = base().copied()
    create_branch(open_snapshot(store, 1), "b", uuid=str(uuid.uuid4()))
    ACTIONS["overwrite"].run(store, 0)
    cleanup_old_versions(store, **{**NOTHING, "runtime": SYSTEM_LATER})
    read_state(open_snapshot(other_line(store, "b")))


def newest_stays():
    store = base().copied()
    cleanup_old_versions(store, **NOTHING)
    assert list_versions(store) == [2]
    read_state(open_snapshot(store))


def young_files_stay():
    """What a writer has just written is not garbage, whatever the clean-up's clock says."""
    store = base().copied()
    before = read_state(open_snapshot(store))
    staged = append(store, [10], read_version=2, uuid="staged").operation.fragments
    assert len(staged) == 1
    store._now = LATER.now
    for days in (1, 3650):
        cleanup_old_versions(store, older_than=timedelta(0), runtime=Runtime(now=lambda d=days: EPOCH + timedelta(d)))
        assert store.find("data/staged.lance") is not None
    assert read_state(open_snapshot(store)).plain() == before.plain()


def unknown_flags_stop_clean_up():
    store = toy()
    commit(store, append(store, [10], read_version=1, uuid="a"), runtime=Runtime(now=lambda: EPOCH))
    manifest = load_manifest(store, 1)
    path = manifest_path(1, ManifestNaming.V2)
    store.put(path, encode_manifest_file(replace(manifest, writer_feature_flags=1 << 40)))
    with pytest.raises(LanceError):
        cleanup_old_versions(store, **NOTHING)
    assert list_versions(store) == [1, 2]


def unknown_flags_stop_writers():
    store = toy()
    path = manifest_path(1, ManifestNaming.V2)
    store.put(path, encode_manifest_file(replace(load_manifest(store, 1), writer_feature_flags=1 << 40)))
    with pytest.raises(LanceError):
        commit(store, append(store, [10], read_version=1, uuid="a"))


def with_something_before(store, method, folder, work):
    """The store, in which something else happens before the first call of a kind."""
    calls = iter([work])

    def on_call(called, path):
        if called == method and path.startswith(folder):
            next(calls, no)()

    return FaultyStore(inner=store, on_call=on_call)


def made_meanwhile():
    """A version that is made while a clean-up of everything is going on is whole."""
    store = base().copied()
    other = with_something_before(store, "delete", "_versions", lambda: ACTIONS["append"].run(store, 0))
    cleanup_old_versions(other, delete_unverified=True, **NOTHING)
    assert list_versions(store)[-1] == 3
    assert 100 in read_state(open_snapshot(store)).rows


def branch_of_what_goes():
    store = base().copied()
    ACTIONS["overwrite"].run(store, 0)
    clean = {**NOTHING, "runtime": SYSTEM_LATER}
    other = with_something_before(
        store, "put_if_absent", "_refs/branches", lambda: cleanup_old_versions(store, **clean)
    )
    with suppress(LanceError):
        create_branch(open_snapshot(other, 1), "b", uuid=str(uuid.uuid4()))
    for branch in list_branches(store):
        read_state(open_snapshot(other_line(store, branch.name)))


def old_versions_stay(cleaner=timedelta(days=3650), writer=timedelta(0)):
    """Two weeks are two weeks, whatever the clock of the clean-up or of a writer says."""
    store = base().copied()
    for key in (100, 101):
        ours = append(store, [key], read_version=list_versions(store)[-1], uuid=str(uuid.uuid4()))
        commit(store, ours, runtime=Runtime(now=lambda: EPOCH - writer))
    cleanup_old_versions(store, older_than=timedelta(days=14), runtime=Runtime(now=lambda: EPOCH + cleaner))
    assert list_versions(store) == [1, 2, 3, 4]


def flipped(folder, work=lambda _store: None, step=31):
    """A bit of a file of ours is changed: an error, never something else."""

    def gate():
        store = base().copied()
        work(store)
        (info,) = [*store.list(folder)][-1:]
        data = store.get(info.path)
        expected = read_state(open_snapshot(store)).plain()
        for bit in range(0, 8 * len(data), step):
            changed = bytearray(data)
            changed[bit >> 3] ^= 1 << (bit & 7)
            store.put(info.path, bytes(changed))
            with suppress(LanceError):
                assert read_state(open_snapshot(store)).plain() == expected

    return gate


def delete_in(store):
    ACTIONS["delete"].run(store, 0)


def deletion_file_is_missing():
    store = base().copied()
    ACTIONS["delete"].run(store, 0)
    store.delete([info.path for info in store.list("_deletions")])
    with pytest.raises(LanceError):
        read_state(open_snapshot(store))


def hint_is_stale(tmp_path):
    lance_core.write_dataset(rows_of([1], 0), tmp_path / "t")
    for key in (2, 3):
        lance_core.write_dataset(rows_of([key], 0), tmp_path / "t", mode="append")
    (tmp_path / "t/_versions/latest_version_hint.json").write_text('{"version":2}')
    assert lance_core.dataset(tmp_path / "t").version == 3


def paths_stay_inside(tmp_path):
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "t").mkdir()
    with pytest.raises(LanceError):
        LocalStore(str(tmp_path / "t")).get("../secret")


# ----------------------------------------------------------------------------------------------------------- mutations


def no(*_arguments, **_options):
    """Does nothing."""


def put_anyway(_original):
    def put_if_absent(self, path, data, /):
        self.put(path, data)
        return True

    return put_if_absent


def new_uuid_each_time(original):
    return lambda self, there: replace(original(self, there), uuid=str(uuid.uuid4()))


def files_first(original):
    def delete_versions(store, survey):
        store.delete(sorted(survey.removed.paths - survey.kept.paths))
        return original(store, survey)

    return delete_versions


def not_found(_original):
    def load(store, _version, **_options):
        raise VersionNotFoundError("nobody looked", path=store.uri)

    return load


def believed(_original):
    def hinted(store):
        with suppress(LanceError):
            number = int(store.get("_versions/latest_version_hint.json").split(b":")[1].rstrip(b"}"))
            return Versions(
                names=(manifest_path(number, ManifestNaming.V2).rpartition("/")[2],), naming=ManifestNaming.V2
            )
        return None

    return hinted


def no_deletions(original):
    def load(store, fragment):
        with suppress(LanceError):
            return original(store, fragment)
        return BitMap()

    return load


def by_the_manifest(original):
    def dated(*arguments):
        return (replace(one, committed=one.manifest.timestamp) for one in original(*arguments))

    return dated


def looked_up_once(original):
    """What a look found is believed from then on."""
    found = {}
    return lambda store, *more: found.setdefault(id(store), original(store, *more))


def always(value):
    return lambda _original: lambda *_arguments, **_options: value


class Never(Exception):  # noqa: N818 nothing ever raises it
    """What is caught instead of an unknown outcome."""


def never(_original):
    return Never


TABLE, UPKEEP = "lance_core.table", "lance_core.maintenance.cleanup"
COMMITTER = f"{TABLE}.commit._Committer"
MUTATIONS = {
    "own commits are not recognised": (f"{COMMITTER}._is_ours", always(value=False), committed_twice),
    "keys of commits are not looked at": (f"{TABLE}.commit.key_of", always(None), key_counts_once),
    "a new uuid for each attempt": (f"{COMMITTER}._on_top_of", new_uuid_each_time, committed_twice),
    "no look after the commit": (f"{COMMITTER}._is_visible", always(value=True), freed),
    "any later version counts as a descendant": (f"{TABLE}.commit.descends", always(value=True), freed),
    "what a later delete covers is not looked at": (
        f"{TABLE}.commit.covers_deletions",
        always(value=True),
        freed_delete,
    ),
    "a plain put instead of one with a condition": (
        "lance_core.store.memory.MemoryStore.put_if_absent",
        put_anyway,
        lambda: walk("append", "append"),
    ),
    "files are deleted when the outcome is unknown": (
        f"{TABLE}.change.CommitOutcomeUnknownError",
        never,
        landed_late,
    ),
    "traces are removed when the outcome is unknown": (
        f"{TABLE}.publish.outcome_unknown",
        lambda _original: lambda *_: OSError("it failed"),
        landed_late,
    ),
    "nobody looks what became of a failed creation": (f"{TABLE}.publish.load_manifest", not_found, landed),
    "conflicts are not judged": (f"{COMMITTER}._judge", lambda _original: no, lambda: walk("merge", "update")),
    "all operations are compatible": (
        f"{TABLE}.commit.judge",
        always(lance_core.table.conflicts.Verdict.COMPATIBLE),
        lambda: walk("delete", "delete"),
    ),
    "deletions of others are overwritten": (
        f"{TABLE}.rebase._merge",
        lambda _original: lambda store, _before, _now, ours: lance_core.table.rebase.load_deletions(store, ours),
        lambda: walk("delete", "delete"),
    ),
    "new rows of others are not looked at": (
        f"{TABLE}.commit.adds_rows",
        always(value=False),
        lambda: walk("append", "replace where"),
    ),
    "fragments are not numbered anew": (
        f"{TABLE}.apply._next_fragment_id",
        always(0),
        lambda: walk("append", "append"),
    ),
    "row ids begin again": (
        f"{TABLE}.apply.with_new_rows",
        lambda original: lambda fragment, _first, version: original(fragment, 0, version),
        lambda: walk("append", "append"),
    ),
    "files are not looked for before the commit": (f"{TABLE}.commit.check_files", lambda _original: no, missing_file),
    "sizes are not compared": (
        f"{TABLE}.publish.object_sizes",
        lambda _original: lambda _store, paths: [8 for _ in paths],
        wrong_size,
    ),
    "versions are not compared with names": ("lance_core.format.manifest._check", lambda _original: no, wrong_name),
    "a restore keeps nothing": (
        f"{TABLE}.commit.keeping",
        lambda _original: lambda *_, **__: nullcontext(),
        restore_and_clean_ups,
    ),
    "losers leave their data": (
        f"{TABLE}.change.remove_staged",
        lambda _original: no,
        lambda: walk("append", "overwrite"),
    ),
    "losers leave their transactions": (
        f"{COMMITTER}.remove_traces",
        lambda _original: no,
        lambda: walk("append", "overwrite"),
    ),
    "merged deletions leave their files": (
        f"{TABLE}.redo._remove_merged_deletions",
        lambda _original: no,
        lambda: walk("delete", "delete"),
    ),
    "writers ignore flags": (
        f"{TABLE}.commit.feature_flags",
        lambda _original: SimpleNamespace(check_writable=no, Feature=Feature),
        unknown_flags_stop_writers,
    ),
    "clean-up: files before manifests": (f"{UPKEEP}._delete_versions", files_first, died_in_clean_up),
    "clean-up: tags are ignored": (f"{UPKEEP}.list_tags_strictly", always([]), tag_protects),
    "clean-up: branches are ignored": (f"{UPKEEP}.list_branches", always([]), branch_protects),
    "clean-up: flags are ignored": (f"{UPKEEP}.check_writable", lambda _original: no, unknown_flags_stop_clean_up),
    "clean-up: the newest may go": (
        "lance_core.maintenance.cleanup_plan.CleanupRules.allow",
        always(value=True),
        newest_stays,
    ),
    "clean-up: young files may go": (
        "lance_core.maintenance.cleanup_plan.UNVERIFIED_MIN_AGE",
        lambda _original: timedelta(0),
        young_files_stay,
    ),
    "clean-up: its own clock dates files": (
        f"{UPKEEP}._clock_of",
        always(datetime.max.replace(tzinfo=UTC)),
        young_files_stay,
    ),
    "clean-up: its own clock says how old versions are": (
        f"{UPKEEP}._clock_of",
        always(datetime.max.replace(tzinfo=UTC)),
        old_versions_stay,
    ),
    "clean-up: writers' clocks are believed": (
        f"{UPKEEP}._dated",
        by_the_manifest,
        lambda: old_versions_stay(timedelta(0), timedelta(days=3650)),
    ),
    "clean-up: tags are not looked at again": (
        f"{UPKEEP}._protected",
        looked_up_once,
        lambda: walk("tag", "clean-up", preemptions=2),
    ),
    "clean-up: versions made meanwhile are not looked at": (
        f"{UPKEEP}.find_versions",
        always(Versions(names=(), naming=ManifestNaming.V2)),
        made_meanwhile,
    ),
    "branches do not look whether their version stays": (
        f"{TABLE}.branches._check_source",
        lambda _original: no,
        branch_of_what_goes,
    ),
    "sums of data files are not compared": (
        "lance_core.file.integrity.BlockChecks._check_block",
        lambda _original: no,
        flipped("data"),
    ),
    "sums of manifests are not compared": (
        "lance_core.format.manifest.check_section",
        always(value=True),
        flipped("_versions"),
    ),
    "sums of deletion files are not compared": (
        "lance_core.format.deletion.check_section",
        always(value=True),
        flipped("_deletions", delete_in, step=8),
    ),
    "tags do not look whether their version stays": (
        f"{TABLE}.refs.manifest_size",
        always(1),
        lambda: walk("tag", "clean-up", preemptions=2),
    ),
    "tags move to what nobody keeps": (
        f"{TABLE}.refs.keeping",
        lambda _original: lambda *_, **__: nullcontext(),
        lambda: walk("moved tag", "clean-up"),
    ),
    "a missing deletion file is no deletions": (
        f"{TABLE}.rebase.load_deletions",
        no_deletions,
        deletion_file_is_missing,
    ),
    "the hint is believed": (f"{TABLE}.snapshot._hinted", believed, hint_is_stale),
    "paths may lead outside": ("lance_core.store.local.check_path", lambda _original: no, paths_stay_inside),
}
NEEDS_FOLDER = {hint_is_stale, paths_stay_inside}


def run(gate, tmp_path):
    gate(tmp_path) if gate in NEEDS_FOLDER else gate()


def resolve(target):
    """The object that has an attribute, and the attribute's name."""
    path, _, name = target.rpartition(".")
    with suppress(ImportError):
        return __import__(path, fromlist=["_"]), name
    module, _, kind = path.rpartition(".")
    return getattr(__import__(module, fromlist=["_"]), kind), name


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_gate_notices(name, tmp_path, monkeypatch):
    target, mutate, gate = MUTATIONS[name]
    owner, attribute = resolve(target)
    (tmp_path / "intact").mkdir()
    (tmp_path / "mutated").mkdir()
    run(gate, tmp_path / "intact")
    monkeypatch.setattr(owner, attribute, mutate(getattr(owner, attribute)))
    with pytest.raises((Exception, pytest.fail.Exception)):
        run(gate, tmp_path / "mutated")


def test_there_are_enough():
    assert len(MUTATIONS) >= 44
