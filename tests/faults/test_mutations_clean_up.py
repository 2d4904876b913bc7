"""Take one safeguard of clean-ups, tags and branches away at a time: a gate must notice each.

See `lance_core.testing.mutations`.
"""

import uuid
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lance_core.errors import LanceError
from lance_core.format.table.manifest import encode_manifest_pieces
from lance_core.format.table.paths import ManifestNaming, manifest_path
from lance_core.maintenance.cleanup import cleanup_old_versions
from lance_core.table.branches import create_branch, list_branches
from lance_core.table.commit import commit
from lance_core.table.refs import create_tag, other_branch
from lance_core.table.runtime import Runtime
from lance_core.table.snapshot import Versions, list_versions, load_manifest, open_snapshot
from lance_core.testing.actions import ACTIONS, StateReader, read_state
from lance_core.testing.faulty_store import FaultyStore, Killed
from lance_core.testing.mutations import always, base, mutated, no, toy, walk
from lance_core.testing.scheduler import EPOCH
from lance_core.testing.tables import append

pytestmark = pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")

LATER = Runtime(now=lambda: EPOCH + timedelta(days=1))
NOTHING = {"older_than": timedelta(0), "error_if_tagged_old_versions": False, "runtime": LATER}
SYSTEM_LATER = Runtime(now=lambda: datetime.now(UTC) + timedelta(hours=1))
UPKEEP = "lance_core.maintenance.cleanup"


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
    read_state(open_snapshot(other_branch(store, "b")))


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
    store.put(path, b"".join(encode_manifest_pieces(replace(manifest, writer_feature_flags=1 << 40))))
    with pytest.raises(LanceError):
        cleanup_old_versions(store, **NOTHING)
    assert list_versions(store) == [1, 2]


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
    cleanup_old_versions(other, delete_unverified=True, force=True, **NOTHING)
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
        read_state(open_snapshot(other_branch(store, branch.name)))


def old_versions_stay(cleaner=timedelta(days=3650), writer=timedelta(0)):
    """Two weeks are two weeks, whatever the clock of the clean-up or of a writer says."""
    store = base().copied()
    for key in (100, 101):
        ours = append(store, [key], read_version=list_versions(store)[-1], uuid=str(uuid.uuid4()))
        commit(store, ours, runtime=Runtime(now=lambda: EPOCH - writer))
    cleanup_old_versions(store, older_than=timedelta(days=14), runtime=Runtime(now=lambda: EPOCH + cleaner))
    assert list_versions(store) == [1, 2, 3, 4]


def files_first(original):
    def delete_versions(store, survey):
        store.delete(sorted(survey.removed.paths - survey.kept.paths))
        return original(store, survey)

    return delete_versions


def by_the_manifest(original):
    def dated(*arguments):
        return (replace(one, committed=one.manifest.timestamp) for one in original(*arguments))

    return dated


def looked_up_once(original):
    """What a look found is believed from then on."""
    found = {}
    return lambda store, *more: found.setdefault(id(store), original(store, *more))


MUTATIONS = {
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
        "lance_core.table.branches._check_source",
        lambda _original: no,
        branch_of_what_goes,
    ),
    "tags do not look whether their version stays": (
        "lance_core.table.refs.manifest_size",
        always(1),
        lambda: walk("tag", "clean-up", preemptions=2),
    ),
    "tags move to what nobody keeps": (
        "lance_core.table.refs.keeping",
        lambda _original: lambda *_, **__: nullcontext(),
        lambda: walk("moved tag", "clean-up"),
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
    assert len(MUTATIONS) >= 14
