import itertools
import pickle
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from lance_core._proto import table_pb2
from lance_core.errors import (
    CommitConflictError,
    CommitContentionError,
    CommitOutcomeUnknownError,
    CorruptDataError,
    DatasetAlreadyExistsError,
    DatasetNotFoundError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
    VersionNotFoundError,
)
from lance_core.format.table.manifest import decode_manifest_file, encode_manifest_pieces
from lance_core.format.table.operations import Overwrite, Restore, Rewrite, RewriteGroup, UpdateConfig, UpdateMap
from lance_core.format.table.paths import ManifestNaming, manifest_path
from lance_core.store.local import LocalStore
from lance_core.store.memory import MemoryStore
from lance_core.table.commit import _slots, commit
from lance_core.table.runtime import Runtime, commit_timeout_s
from lance_core.table.snapshot import (
    list_versions,
    load_manifest,
    load_manifests,
    open_snapshot,
    read_transaction,
)
from lance_core.testing.faulty_store import FaultyStore
from lance_core.testing.tables import SCHEMA, append, create, delete, overwrite, read_rows, stage_rows, transaction

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def store():
    store = MemoryStore()
    commit(store, create(store, range(10)))
    return store


def runtime(**changes):
    numbers = iter(range(1, 1_000_000))
    return Runtime(now=lambda: NOW, sleep_s=lambda _: None, random_u63=lambda: next(numbers), **changes)


def transactions_of(store):
    return sorted(store.names("_transactions"))


def test_creation_and_its_files():
    store = MemoryStore()
    snapshot = commit(store, create(store, range(3), uuid="one"), runtime=runtime())
    assert (snapshot.version, snapshot.manifest.timestamp) == (1, NOW)
    assert sorted(info.path for info in store.list("_versions")) == ["_versions/18446744073709551614.manifest"]
    assert transactions_of(store) == ["0-one.txn"]
    assert open_snapshot(store).manifest == snapshot.manifest
    assert read_transaction(store, 1).uuid == "one"


def test_creating_twice(store):
    with pytest.raises(DatasetAlreadyExistsError):
        commit(store, create(store, range(3), uuid="other"))
    assert commit(store, create(store, range(10))).version == 1, "our own creation is found again"
    assert transactions_of(store) == ["0-create.txn"]


def test_table_must_exist():
    store = MemoryStore()
    with pytest.raises(DatasetNotFoundError):
        commit(store, append(store, [1], read_version=1, uuid="a"))
    with pytest.raises(DatasetNotFoundError):
        commit(store, append(store, [1], read_version=0, uuid="a"))
    with pytest.raises(DatasetNotFoundError):
        open_snapshot(store)
    assert list_versions(store) == []
    assert transactions_of(store) == []


def test_read_version_must_exist(store):
    with pytest.raises(VersionNotFoundError):
        commit(store, append(store, [1], read_version=2, uuid="a"))


def test_versions(store):
    commit(store, append(store, [10], read_version=1, uuid="a"), runtime=runtime())
    commit(store, append(store, [11], read_version=2, uuid="b"), runtime=runtime())
    assert list_versions(store) == [1, 2, 3]
    assert [(info.version, info.timestamp) for info in load_manifests(store)][1:] == [(2, NOW), (3, NOW)]
    assert read_rows(open_snapshot(store, 2)) == list(range(11))
    for version in (0, 4, 1 << 64, -1, (1 << 63) + 1):
        with pytest.raises(VersionNotFoundError):
            open_snapshot(store, version)


def test_v1_names_are_kept():
    store = MemoryStore()
    commit(store, create(store, [1]), enable_v2_manifest_paths=False)
    commit(store, append(store, [2], read_version=1, uuid="a"))
    assert sorted(store.names("_versions")) == ["1.manifest", "2.manifest"]
    assert read_rows(open_snapshot(store, 2)) == [1, 2]
    store.put(manifest_path(3, ManifestNaming.V2), store.get("_versions/2.manifest"))
    with pytest.raises(CorruptDataError, match="both naming schemes"):
        open_snapshot(store)


def test_appends_on_an_old_version_are_merged(store):
    commit(store, append(store, [10], read_version=1, uuid="a"))
    snapshot = commit(store, append(store, [11], read_version=1, uuid="b"))
    assert snapshot.version == 3
    assert read_rows(snapshot) == list(range(12))
    assert read_transaction(store, 3).read_version == 1


def test_conflict_tells_who_with_whom_and_leaves_nothing(store):
    commit(store, overwrite(store, [99], read_version=1, uuid="theirs"))
    ours = append(store, [10], read_version=1, uuid="ours")
    with pytest.raises(CommitConflictError) as caught:
        commit(store, ours)
    error = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes
    assert (error.ours, error.theirs, error.version, error.is_retryable) == ("Append", "Overwrite", 2, False)
    assert transactions_of(store) == ["0-create.txn", "1-theirs.txn"]
    assert list_versions(store) == [1, 2]


def test_overwrite_wins_unless_it_is_strict(store):
    commit(store, append(store, [10], read_version=1, uuid="a"))
    with pytest.raises(CommitConflictError):
        commit(store, overwrite(store, [5], read_version=1, uuid="strict"), max_retries=0)
    assert read_rows(commit(store, overwrite(store, [5], read_version=1, uuid="b"))) == [5]


def test_committing_again_returns_the_first_version(store):
    ours = append(store, [10], read_version=1, uuid="ours")
    first = commit(store, ours)
    commit(store, append(store, [11], read_version=2, uuid="later"))
    again = commit(store, ours)
    assert again.version == first.version == 2
    assert list_versions(store) == [1, 2, 3]


def test_deletes_of_different_rows_both_count(store):
    base = open_snapshot(store)
    one, two = delete(base, [1, 2], uuid="one"), delete(base, [3], uuid="two", new_id=lambda: 2)
    commit(store, one)
    snapshot = commit(store, two, read=base, runtime=runtime())
    assert read_rows(snapshot) == [0, *range(4, 10)]
    assert read_transaction(store, 3).read_version == 2, "it was rebased on version 2"
    assert transactions_of(store) == ["0-create.txn", "1-one.txn", "2-two.txn"]


def test_deletes_that_together_empty_a_fragment_remove_it(store):
    base = open_snapshot(store)
    one, two = delete(base, range(5), uuid="one"), delete(base, range(5, 10), uuid="two", new_id=lambda: 2)
    commit(store, one)
    snapshot = commit(store, two)
    assert len(snapshot.manifest.fragments) == 0
    assert snapshot.manifest.max_fragment_id == 0
    assert read_transaction(store, 3).operation.deleted_fragment_ids == (0,)


@pytest.mark.parametrize(("first", "second"), [([1, 2], [2, 3]), (range(10), [1]), ([1], range(10))])
def test_deletes_of_the_same_rows_must_be_redone(store, first, second):
    base = open_snapshot(store)
    one, two = delete(base, first, uuid="one"), delete(base, second, uuid="two", new_id=lambda: 2)
    commit(store, one)
    with pytest.raises(CommitConflictError) as caught:
        commit(store, two)
    assert caught.value.is_retryable
    assert list_versions(store) == [1, 2]


def test_rewrite_carries_its_ids_in_the_transaction(store):
    old = open_snapshot(store).manifest.fragments[0]
    commit(store, append(store, [10], read_version=1, uuid="a"))
    group = RewriteGroup(old_fragments=(old,), new_fragments=(stage_rows(store, range(10), name="new"),))
    snapshot = commit(store, transaction(Rewrite(groups=(group,)), 1, uuid="r"))
    assert snapshot.manifest.fragments.ids.tolist() == [1, 2]
    assert read_transaction(store, 3).operation.groups[0].new_fragments[0].id == 2


def test_a_rewrite_that_loses_races_stages_its_transaction_twice(store):
    """The second form has reserved ids, so it holds whoever wins meanwhile: attempts cost no more than an append's."""
    old = open_snapshot(store).manifest.fragments[0]
    group = RewriteGroup(old_fragments=(old,), new_fragments=(stage_rows(store, range(10), name="new"),))
    staged, lost = [], []

    def on_call(method, path):
        if method == "put" and path.startswith("_transactions/"):
            staged.append(path)
        if method == "put_if_absent" and path.startswith("_versions/") and staged[-1].endswith("-r.txn"):
            lost.append(path)
            if len(lost) <= 5:
                number = len(lost)
                commit(store, append(store, [100 + number], read_version=1, uuid=f"rival{number}"))

    done = commit(
        FaultyStore(inner=store, on_call=on_call), transaction(Rewrite(groups=(group,)), 1, uuid="r"), runtime=runtime()
    )
    assert [path for path in staged if path.endswith("-r.txn")] == ["_transactions/1-r.txn"] * 2
    assert len(lost) == 6
    assert (done.version, sorted(read_rows(done))) == (8, [*range(10), 101, 102, 103, 104, 105])
    written = read_transaction(store, 8)
    assert written.operation.groups[0].new_fragments[0].id in done.manifest.fragments.ids
    assert len(set(done.manifest.fragments.ids.tolist())) == 6
    assert len(transactions_of(store)) == 8


def test_restore(store):
    commit(store, overwrite(store, [7], read_version=1, uuid="a"))
    assert read_rows(commit(store, transaction(Restore(version=1), 2, uuid="r"))) == list(range(10))
    with pytest.raises(VersionNotFoundError):
        commit(store, transaction(Restore(version=9), 3, uuid="s"))
    assert len(transactions_of(store)) == 3


def test_missing_and_truncated_files_are_found_before_the_commit(store):
    ours = append(store, [10, 11], read_version=1, uuid="ours")
    path = "data/ours.lance"
    store.put(path, b"short")
    with pytest.raises(CorruptDataError, match="16 bytes, but the file has 5"):
        commit(store, ours)
    store.delete([path])
    with pytest.raises(NotFoundError):
        commit(store, ours)
    base = open_snapshot(store)
    ours = delete(base, [1], uuid="d")
    store.delete([info.path for info in store.list("_deletions")])
    with pytest.raises(NotFoundError):
        commit(store, ours)
    assert list_versions(store) == [1]


def change_manifest(store, version, **changes):
    path = manifest_path(version, ManifestNaming.V2)
    store.put(path, b"".join(encode_manifest_pieces(replace(decode_manifest_file(store.get(path)), **changes))))


def test_version_without_transaction_conflicts_with_everything(store):
    commit(store, append(store, [10], read_version=1, uuid="a"))
    change_manifest(store, 2, transaction_section=None)
    assert read_transaction(store, 2).uuid == "a", "the file still has it"
    store.delete(["_transactions/1-a.txn"])
    assert read_transaction(store, 2) is None
    with pytest.raises(CommitConflictError, match="no transaction"):
        commit(store, append(store, [11], read_version=1, uuid="b"))
    assert commit(store, append(store, [12], read_version=2, uuid="c")).version == 3


def test_cleaned_version_must_be_redone(store):
    commit(store, append(store, [10], read_version=1, uuid="a"))
    commit(store, append(store, [11], read_version=2, uuid="b"))
    store.delete([manifest_path(2, ManifestNaming.V2)])
    with pytest.raises(CommitConflictError, match="cleaned up") as caught:
        commit(store, append(store, [12], read_version=1, uuid="c"))
    assert caught.value.is_retryable


def test_features_that_cannot_be_written_are_named(store):
    change_manifest(store, 1, writer_feature_flags=1 << 50)
    assert read_rows(open_snapshot(store)) == list(range(10)), "reading is fine"
    with pytest.raises(UnsupportedError, match=str(1 << 50)):
        commit(store, append(store, [1], read_version=1, uuid="a"))


def test_what_we_do_not_model_survives(store):
    section = table_pb2.IndexSection(indices=[{"name": "i", "fields": [0]}]).SerializeToString()
    change_manifest(store, 1, index_section=section)
    snapshot = commit(store, append(store, [1], read_version=1, uuid="a"))
    assert load_manifest(store, snapshot.version).index_section == section


class Rival:
    """Commits an append of its own just before each of our first ``times`` attempts to publish."""

    def __init__(self, store, times):
        self.store = store
        self.left = times

    def __call__(self, method, path):
        if method == "put_if_absent" and path.startswith("_versions/") and self.left:
            self.left -= 1
            uuid = f"rival{self.left}"
            commit(self.store, append(self.store, [100 + self.left], read_version=1, uuid=uuid))


def test_lost_races_are_tried_again(store):
    faulty = FaultyStore(inner=store, on_call=Rival(store, 3))
    pauses = []
    snapshot = commit(
        faulty, append(store, [10], read_version=1, uuid="ours"), runtime=replace(runtime(), sleep_s=pauses.append)
    )
    assert snapshot.version == 5
    assert read_rows(snapshot) == [*range(11), 100, 101, 102]
    assert len(pauses) == 3


def test_what_came_while_others_were_judged_is_judged_before_publishing(store):
    """Writers that commit once while three of their commits are judged would else win each time."""
    writer = open_snapshot(store)
    for number in range(12):
        commit(store, append(store, [100 + number], read_version=writer.version, uuid=f"early{number}"))
    judged = []

    def on_call(method, path):
        if method == "get" and path.startswith("_versions/"):
            judged.append(path)
            if len(judged) % 3 == 0:
                commit(store, append(store, [200 + len(judged)], read_version=1, uuid=f"late{len(judged)}"))

    pauses = []
    faulty = FaultyStore(inner=store, on_call=on_call)
    done = commit(
        faulty, append(store, [10], read_version=1, uuid="ours"), runtime=replace(runtime(), sleep_s=pauses.append)
    )
    assert not pauses
    assert done.version > 14
    assert 10 in read_rows(done)


@pytest.mark.parametrize("is_local", [True, False])
def test_back_off_is_as_long_as_attempts(tmp_path, is_local):
    """On a file system an attempt is as long as it works: a busy machine is a reason to wait only for who loses on."""
    store = LocalStore(str(tmp_path)) if is_local else MemoryStore()
    commit(store, create(store, range(10)))
    clock, worked, pauses = itertools.count(0, 1), itertools.count(0, 0.001), []
    busy = Runtime(
        now=lambda: NOW,
        monotonic_s=lambda: float(next(clock)),
        thread_cpu_s=lambda: next(worked),
        sleep_s=pauses.append,
        random_u63=lambda: (1 << 63) - 1,  # as long as may be
    )
    faulty = FaultyStore(inner=store, on_call=Rival(store, 12))
    commit(faulty, append(store, [10], read_version=1, uuid="ours"), runtime=busy)
    quick = [0.0011 * (min(2 << turn, 256) - 1) for turn in range(10)]
    slow = [min(1.1 * ((2 << turn) - 1), 5.0) for turn in range(12)]
    assert pauses == pytest.approx([*quick, *slow[10:]] if is_local else slow, rel=1e-2)


def test_giving_up_leaves_nothing(store):
    faulty = FaultyStore(inner=store, on_call=Rival(store, 100))
    with pytest.raises(CommitContentionError):
        commit(faulty, append(store, [10], read_version=1, uuid="ours"), max_retries=2, runtime=runtime())
    assert not [name for name in transactions_of(store) if "ours" in name]
    assert list_versions(store) == [1, 2, 3, 4]


def test_a_commit_goes_on_until_it_wins(store):
    faulty = FaultyStore(inner=store, on_call=Rival(store, 60))
    done = commit(faulty, append(store, [10], read_version=1, uuid="ours"), runtime=runtime())
    assert done.version == 62


def test_who_lost_often_waits_less():
    pauses = [_slots(attempt, is_quick=False) for attempt in range(30)]
    assert max(pauses) == 32
    assert pauses[10:] == sorted(pauses[10:], reverse=True)
    assert pauses[-1] == _slots(10_000, is_quick=True) == 4


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan"])
def test_a_timeout_that_is_no_positive_number_is_refused(monkeypatch, text):
    monkeypatch.setenv("LANCE_CORE_COMMIT_TIMEOUT", text)
    with pytest.raises(InvalidInputError, match="LANCE_CORE_COMMIT_TIMEOUT"):
        commit_timeout_s()


def test_the_environment_sets_the_timeout(monkeypatch, store):
    assert commit_timeout_s() == 600
    monkeypatch.setenv("LANCE_CORE_COMMIT_TIMEOUT", "25")
    clock = iter(range(0, 10_000, 10))
    timed = replace(runtime(), monotonic_s=lambda: float(next(clock)))
    faulty = FaultyStore(inner=store, on_call=Rival(store, 100))
    with pytest.raises(CommitContentionError, match="set LANCE_CORE_COMMIT_TIMEOUT"):
        commit(faulty, append(store, [10], read_version=1, uuid="ours"), runtime=timed)


def test_deadline(store):
    clock = iter(range(0, 10_000, 10))
    faulty = FaultyStore(inner=store, on_call=Rival(store, 100))
    timed = replace(runtime(), monotonic_s=lambda: float(next(clock)))
    with pytest.raises(CommitContentionError):
        commit(faulty, append(store, [10], read_version=1, uuid="ours"), timeout_s=25, runtime=timed)
    assert len(list_versions(store)) < 5


def test_rebased_deletes_of_lost_attempts_are_removed(store):
    base = open_snapshot(store)
    commit(store, delete(base, [1], uuid="other"))
    ours = delete(base, [2], uuid="ours", new_id=lambda: 2)
    snapshot = commit(FaultyStore(inner=store, on_call=Rival(store, 2)), ours, runtime=runtime())
    assert read_rows(snapshot) == [0, *range(3, 10), 100, 101]
    used = snapshot.manifest.fragments[0].deletion_file
    staged = {"0-1-1.arrow", "0-1-2.arrow"}  # what the two deletes wrote before they knew of each other
    assert set(store.names("_deletions")) == staged | {f"0-4-{used.id}.arrow"}
    assert [name for name in transactions_of(store) if "ours" in name] == ["4-ours.txn"]


@pytest.mark.parametrize("error", [OSError, TimeoutError, ConnectionResetError, ValueError])
def test_lost_answer_is_recognised_by_the_uuid(store, error):
    faulty = FaultyStore(inner=store)

    def fail_publish(method, path):
        if method == "put_if_absent" and path.startswith("_versions/"):
            faulty.fail_at, faulty.effect, faulty.error = len(faulty.calls), "after", error

    faulty.on_call = fail_publish
    snapshot = commit(faulty, append(store, [10], read_version=1, uuid="ours"), runtime=runtime())
    assert snapshot.version == 2
    assert list_versions(store) == [1, 2]
    assert read_rows(open_snapshot(store)) == list(range(11))


@pytest.mark.parametrize(
    ("error", "expected"), [(TimeoutError, CommitOutcomeUnknownError), (PermissionError, PermissionError)]
)
def test_failure_without_effect(store, error, expected):
    faulty = FaultyStore(inner=store)

    def fail_publish(method, path):
        if method == "put_if_absent" and path.startswith("_versions/"):
            faulty.fail_at, faulty.effect, faulty.error = len(faulty.calls), "before", error

    faulty.on_call = fail_publish
    with pytest.raises(expected):
        commit(faulty, append(store, [10], read_version=1, uuid="ours"), runtime=runtime())
    assert list_versions(store) == [1]
    has_trace = "1-ours.txn" in transactions_of(store)
    assert has_trace == (expected is CommitOutcomeUnknownError), "nothing is deleted while the fate is unknown"


def test_false_answer_after_a_retry_inside_the_store():
    """An object store client that tried twice reports that its own object is in the way."""

    class Twice(MemoryStore):
        def put_if_absent(self, path, data, /):
            super().put_if_absent(path, data)
            return super().put_if_absent(path, data)

    twice = Twice()
    snapshot = commit(twice, create(twice, [1]), runtime=runtime())
    assert snapshot.version == 1
    snapshot = commit(twice, append(twice, [2], read_version=1, uuid="a"), runtime=runtime())
    assert (snapshot.version, read_rows(open_snapshot(twice))) == (2, [1, 2])
    assert list_versions(twice) == [1, 2]


def test_slot_that_a_clean_up_had_freed_is_given_back(store):
    """While we write version 2, others make 2 and 3 and clean 1 and 2 up: our version 2 would never be seen."""

    def interfere(method, path):
        if method == "put_if_absent" and path.startswith("_versions/"):
            faulty.on_call = None
            commit(store, append(store, [100], read_version=1, uuid="x"))
            commit(store, append(store, [101], read_version=2, uuid="y"))
            store.delete([manifest_path(1, ManifestNaming.V2), manifest_path(2, ManifestNaming.V2)])

    faulty = FaultyStore(inner=store, on_call=interfere)
    with pytest.raises(CommitConflictError) as caught:
        commit(faulty, append(store, [10], read_version=1, uuid="ours"), runtime=runtime())
    assert caught.value.is_retryable
    assert list_versions(store) == [3]
    assert read_rows(open_snapshot(store)) == [*range(10), 100, 101]


@pytest.mark.parametrize("successor", ["append", "delete", "rewrite", "overwrite", "config"])
@pytest.mark.parametrize("kind", ["append", "delete", "rewrite", "config"])
def test_version_with_successors_is_believed(store, kind, successor):
    """Others build on our version before we look: that is no clean-up."""

    def make(which, base, uuid):
        fragment = base.manifest.fragments[0]
        match which:
            case "append":
                return append(store, [50], read_version=base.version, uuid=uuid)
            case "delete":
                values = [row for row in read_rows(base) if row < 10]
                return delete(base, values[:1], uuid=uuid, new_id=lambda: hash(uuid) & 0xFFFF)
            case "rewrite":
                rows = [row for row in read_rows(base) if row < 10]
                staged = stage_rows(store, rows, name=uuid)
                group = RewriteGroup(old_fragments=(fragment,), new_fragments=(staged,))
                return transaction(Rewrite(groups=(group,)), base.version, uuid=uuid)
            case "overwrite":
                return overwrite(store, [1], read_version=base.version, uuid=uuid)
            case _:
                update = UpdateMap(update_entries={uuid: "x"})
                return transaction(UpdateConfig(config_updates=update), base.version, uuid=uuid)

    def follow(method, path):
        if method == "names" and path == "_versions" and list_versions(store)[-1] == 2:
            faulty.on_call = None
            commit(store, make(successor, open_snapshot(store), "theirs"))

    faulty = FaultyStore(inner=store, on_call=follow)
    snapshot = commit(faulty, make(kind, open_snapshot(store), "ours"), runtime=runtime())
    assert snapshot.version == 2
    assert list_versions(store) == [1, 2, 3]


def test_store_calls_do_not_grow_with_versions(store):
    counts = []
    for version in range(1, 30):
        faulty = FaultyStore(inner=store)
        commit(faulty, append(store, [version], read_version=version, uuid=f"u{version}"), runtime=runtime())
        counts.append(len(faulty.calls))
    assert set(counts) == {6}
    faulty = FaultyStore(inner=store)
    open_snapshot(faulty)
    assert [method for method, _ in faulty.calls] == ["names", "get"]
    faulty = FaultyStore(inner=store)
    open_snapshot(faulty, 7)
    assert [method for method, _ in faulty.calls] == ["get"]


def test_empty_overwrite_creates_an_empty_table():
    store = MemoryStore()
    snapshot = commit(store, transaction(Overwrite(fragments=(), schema=SCHEMA), 0, uuid="u"))
    assert read_rows(snapshot) == []
    assert open_snapshot(store).manifest.schema == SCHEMA


def test_restored_version_that_is_cleaned_up_meanwhile(store):
    commit(store, overwrite(store, [7], read_version=1, uuid="a"))

    def clean(method, path):
        if method == "put_if_absent" and path.startswith("_versions/"):
            store.delete([manifest_path(1, ManifestNaming.V2)])

    with pytest.raises(VersionNotFoundError):
        commit(FaultyStore(inner=store, on_call=clean), transaction(Restore(version=1), 2, uuid="r"), runtime=runtime())
    assert list_versions(store) == [2]
    assert read_rows(open_snapshot(store)) == [7]
