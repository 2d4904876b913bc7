import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from lance_core.errors import CorruptDataError, DatasetNotFoundError, InvalidInputError, UnsupportedError
from lance_core.format.table.manifest import decode_manifest_file, encode_manifest_pieces
from lance_core.format.table.operations import Rewrite, RewriteGroup
from lance_core.format.table.paths import ManifestNaming, manifest_path
from lance_core.maintenance.cleanup import cleanup_old_versions, explain_cleanup_old_versions
from lance_core.store.memory import MemoryStore
from lance_core.table.commit import commit
from lance_core.table.refs import create_tag
from lance_core.table.runtime import Runtime
from lance_core.table.snapshot import list_versions, open_snapshot
from lance_core.testing.faulty_store import FaultyStore
from lance_core.testing.tables import append, create, delete, overwrite, read_rows, stage_rows, transaction

START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now

    def pass_time(self, **time):
        self.now += timedelta(**time)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def runtime(clock):
    numbers = iter(range(1, 1_000_000))
    return Runtime(now=clock, random_u63=lambda: next(numbers))


@pytest.fixture
def store(clock, runtime):
    """Five versions, one a day: 1 creates, 2 appends, 3 deletes a row, 4 overwrites, 5 appends."""
    store = MemoryStore(now=clock)
    commit(store, create(store, range(10)), runtime=runtime)
    clock.pass_time(days=1)
    snapshot = commit(store, append(store, [10], read_version=1, uuid="two"), runtime=runtime)
    clock.pass_time(days=1)
    commit(store, delete(snapshot, [3], uuid="three"), runtime=runtime)
    clock.pass_time(days=1)
    commit(store, overwrite(store, [7], read_version=3, uuid="four"), runtime=runtime)
    clock.pass_time(days=1)
    commit(store, append(store, [8], read_version=4, uuid="five"), runtime=runtime)
    return store


def paths(store, folder):
    return sorted(info.path.removeprefix(f"{folder}/") for info in store.list(folder))


def test_files_of_removed_versions_go(store, runtime):
    stats = cleanup_old_versions(store, older_than=timedelta(hours=12), runtime=runtime)
    assert list_versions(store) == [5]
    assert paths(store, "data") == ["five.lance", "four.lance"]
    assert paths(store, "_deletions") == []
    assert paths(store, "_transactions") == ["4-five.txn"]
    assert (stats.old_versions, stats.data_files_removed, stats.deletion_files_removed) == (4, 2, 1)
    assert stats.transaction_files_removed == 4
    assert stats.bytes_removed > 88
    assert read_rows(open_snapshot(store)) == [7, 8]


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ({"older_than": timedelta(days=1, hours=12)}, [4, 5]),
        ({"older_than": timedelta(0)}, [5]),
        ({"retain_versions": 2}, [4, 5]),
        ({"retain_versions": 9}, [1, 2, 3, 4, 5]),
        ({"older_than": timedelta(0), "retain_versions": 3}, [3, 4, 5]),
        ({"older_than": timedelta(days=3, hours=12), "retain_versions": 1}, [2, 3, 4, 5]),
        ({"versions": [2, 5, 99]}, [1, 3, 4, 5]),
        ({}, [1, 2, 3, 4, 5]),
    ],
)
def test_rules(store, clock, runtime, rules, left):
    clock.pass_time(seconds=1)
    foretold = explain_cleanup_old_versions(store, **rules, runtime=runtime)
    before = paths(store, "_versions")
    assert foretold.read_version == 5
    assert paths(store, "_versions") == before
    assert cleanup_old_versions(store, **rules, runtime=runtime) == foretold.stats
    assert list_versions(store) == left
    for version in left:
        read_rows(open_snapshot(store, version))


def test_default_is_fourteen_days(store, clock, runtime):
    clock.pass_time(days=12)  # versions are 16, 15, 14, 13 and 12 days old
    cleanup_old_versions(store, runtime=runtime)
    assert list_versions(store) == [3, 4, 5]


@pytest.mark.parametrize("rules", [{"retain_versions": 0}, {"older_than": timedelta(-1)}])
def test_rules_that_make_no_sense(store, rules):
    with pytest.raises(InvalidInputError):
        cleanup_old_versions(store, **rules)


def test_tags_protect(store, clock, runtime):
    clock.pass_time(seconds=1)
    create_tag(store, "keep", 2)
    before = paths(store, "data")
    with pytest.raises(InvalidInputError, match=r"'keep': 2"):
        cleanup_old_versions(store, older_than=timedelta(0), runtime=runtime)
    assert paths(store, "data") == before
    assert list_versions(store) == [1, 2, 3, 4, 5]
    cleanup_old_versions(store, older_than=timedelta(0), error_if_tagged_old_versions=False, runtime=runtime)
    assert list_versions(store) == [2, 5]
    assert read_rows(open_snapshot(store, 2)) == list(range(11))
    assert paths(store, "_deletions") == []


def test_branch_origins_and_detached_versions_stay(store, clock, runtime):
    clock.pass_time(seconds=1)
    store.put("_refs/branches/b.json", b'{"parentBranch": null, "parentVersion": 1}')
    number = (1 << 63) + 3
    manifest = decode_manifest_file(store.get(manifest_path(3, ManifestNaming.V2)))
    detached = replace(manifest, version=number)
    store.put(manifest_path(number, ManifestNaming.V2), b"".join(encode_manifest_pieces(detached)))
    cleanup_old_versions(store, older_than=timedelta(0), runtime=runtime)
    assert list_versions(store) == [1, 5]
    assert read_rows(open_snapshot(store, 1)) == list(range(10))
    assert read_rows(open_snapshot(store, number)) == [0, 1, 2, *range(4, 11)]


def test_files_of_no_version_must_be_old(store, clock, runtime):
    for path in ("data/x.lance", "data/notes.txt", "data/.tmp_1", "_deletions/0-1-9.arrow", "_transactions/1-x.txn",
                 "_versions/.tmp_2", "_indices/abc/index.idx", "_blobs/x"):  # fmt: skip
        store.put(path, b"12345")
    clock.pass_time(days=6)
    assert cleanup_old_versions(store, retain_versions=9, runtime=runtime).bytes_removed == 0
    clock.pass_time(days=1, seconds=1)
    stats = cleanup_old_versions(store, retain_versions=9, runtime=runtime)
    assert (stats.data_files_removed, stats.index_files_removed, stats.bytes_removed) == (1, 1, 30)
    assert store.get("data/notes.txt")
    assert store.get("_blobs/x")
    assert paths(store, "data") == ["create.lance", "five.lance", "four.lance", "notes.txt", "two.lance"]


def test_unverified_files_may_be_asked_for(store, runtime):
    for path in ("data/x.lance", "_deletions/0-1-9.arrow", "_transactions/1-x.txn", "_indices/abc/index.idx"):
        store.put(path, b"12345")
    stats = cleanup_old_versions(store, retain_versions=9, delete_unverified=True, force=True, runtime=runtime)
    assert (stats.data_files_removed, stats.index_files_removed, stats.bytes_removed) == (1, 1, 10)


def test_unverified_files_are_not_deleted_beside_writers(store, clock, runtime):
    """Whoever writes has written lately: the newest version, or a file that no version has yet."""
    everything = {"older_than": timedelta(0), "delete_unverified": True}
    clock.pass_time(days=2)
    pending = append(store, [77], read_version=5, uuid="pending")
    for work in (cleanup_old_versions, explain_cleanup_old_versions):
        with pytest.raises(InvalidInputError, match=r"data/pending\.lance was written 0:00:00 ago"):
            work(store, **everything, runtime=runtime)
    assert list_versions(store) == [1, 2, 3, 4, 5], "nothing went before it was refused"
    commit(store, pending, runtime=runtime)
    clock.pass_time(hours=23)
    with pytest.raises(InvalidInputError, match=r"was (written|committed) 23:00:00 ago.*force=True"):
        cleanup_old_versions(store, **everything, runtime=runtime)
    assert 77 in read_rows(open_snapshot(store))


def test_unverified_files_go_where_nobody_wrote_for_a_day(store, clock, runtime):
    store.put("data/x.lance", b"12345")
    clock.pass_time(days=1, seconds=1)
    stats = cleanup_old_versions(store, retain_versions=9, delete_unverified=True, runtime=runtime)
    assert (stats.data_files_removed, stats.bytes_removed) == (1, 5)


def test_a_writer_that_begins_during_a_clean_up_loses_nothing(store, clock, runtime):
    clock.pass_time(days=2)
    begun = []

    def interfere(method, path):
        if method == "delete" and ".tmp" not in path and not begun:
            begun.append(append(store, [77], read_version=5, uuid="pending"))

    faulty = FaultyStore(inner=store, on_call=interfere)
    cleanup_old_versions(faulty, older_than=timedelta(0), delete_unverified=True, runtime=runtime)
    assert list_versions(store) == [5]
    commit(store, begun[0], runtime=runtime)
    assert 77 in read_rows(open_snapshot(store))


def test_the_clock_of_the_store_decides_whether_nobody_writes(store, clock, runtime):
    """Ours is a week ahead: files that look old are of now."""
    store.put("data/x.lance", b"12345")
    ahead = replace(runtime, now=lambda: clock.now + timedelta(days=7))
    with pytest.raises(InvalidInputError, match="force=True"):
        cleanup_old_versions(store, retain_versions=9, delete_unverified=True, runtime=ahead)


def test_force_says_that_nobody_writes(store, runtime):
    with pytest.raises(InvalidInputError, match="delete_unverified"):
        cleanup_old_versions(store, force=True, runtime=runtime)


def test_nothing_to_do_writes_nothing(store, runtime):
    faulty = FaultyStore(inner=store)
    cleanup_old_versions(faulty, runtime=runtime)
    assert {method for method, _ in faulty.calls} == {"list", "names", "get"}
    assert len([path for method, path in faulty.calls if method == "get"]) == 5, "each manifest is read once"


def test_commit_during_clean_up_is_seen(store, clock, runtime):
    clock.pass_time(seconds=1)

    def interfere(method, _path):
        if method == "delete":
            faulty.on_call = None
            commit(store, append(store, [9], read_version=5, uuid="six"), runtime=runtime)

    faulty = FaultyStore(inner=store, on_call=interfere)
    cleanup_old_versions(faulty, older_than=timedelta(0), delete_unverified=True, force=True, runtime=runtime)
    assert list_versions(store) == [5, 6]
    assert read_rows(open_snapshot(store)) == [7, 8, 9]


def test_tag_made_during_clean_up_is_seen(store, clock, runtime):
    clock.pass_time(seconds=1)
    reads = []

    def interfere(method, path):
        if method == "get" and path.startswith("_versions"):
            reads.append(path)
            if len(reads) == 5:
                create_tag(store, "late", 1)

    cleanup_old_versions(FaultyStore(inner=store, on_call=interfere), older_than=timedelta(0), runtime=runtime)
    assert list_versions(store) == [1, 5]
    assert read_rows(open_snapshot(store, 1)) == list(range(10))


@pytest.mark.parametrize("damage", ["manifest", "tag", "branch", "flags"])
def test_what_is_not_understood_stops_it(store, clock, runtime, damage):
    clock.pass_time(seconds=1)
    expected = CorruptDataError
    match damage:
        case "manifest":
            store.put(manifest_path(2, ManifestNaming.V2), b"LANC" * 10)
        case "tag":
            store.put("_refs/tags/t.json", b"{}")
        case "branch":
            store.put("_refs/branches/t.json", b"{}")
        case _:
            path = manifest_path(2, ManifestNaming.V2)
            manifest = decode_manifest_file(store.get(path))
            store.put(path, b"".join(encode_manifest_pieces(replace(manifest, writer_feature_flags=1 << 40))))
            expected = UnsupportedError
    before = [info.path for folder in ("data", "_versions") for info in store.list(folder)]
    with pytest.raises(expected):
        cleanup_old_versions(store, older_than=timedelta(0), runtime=runtime)
    assert [info.path for folder in ("data", "_versions") for info in store.list(folder)] == before


def test_no_table():
    with pytest.raises(DatasetNotFoundError):
        cleanup_old_versions(MemoryStore())


@pytest.mark.slow
def test_random_histories_lose_nothing_and_strand_nothing(clock, runtime):
    rng = np.random.default_rng(7)
    for history in range(2000 if os.environ.get("LANCE_TESTS") == "deep" else 40):
        store = MemoryStore(now=clock)
        latest = commit(store, create(store, range(20), uuid=f"{history}"), runtime=runtime)
        contents = {1: read_rows(latest)}
        for step in range(12):
            uuid = f"{history}-{step}"
            clock.pass_time(hours=1)
            rows = contents[latest.version]
            match rng.integers(4):
                case 0:
                    ours = append(store, [100 + step], read_version=latest.version, uuid=uuid)
                case 1 if rows:
                    gone = rng.choice(rows, 3).tolist()
                    ours = delete(latest, gone, uuid=uuid, new_id=runtime.random_u63)
                case 2 if len(latest.manifest.fragments) > 1:
                    old = tuple(latest.manifest.fragments)
                    group = RewriteGroup(old_fragments=old, new_fragments=(stage_rows(store, rows, name=uuid),))
                    ours = transaction(Rewrite(groups=(group,)), latest.version, uuid=uuid)
                case _:
                    ours = overwrite(store, range(1 + step), read_version=latest.version, uuid=uuid)
            latest = commit(store, ours, runtime=runtime)
            contents[latest.version] = read_rows(latest)
            if rng.random() < 0.2:
                create_tag(store, f"t{latest.version}", latest.version)
        clock.pass_time(seconds=1)
        cleanup_old_versions(
            store,
            older_than=timedelta(hours=int(rng.integers(0, 12))),
            retain_versions=int(rng.integers(1, 6)),
            error_if_tagged_old_versions=False,
            runtime=runtime,
        )
        needed = set()
        for version in list_versions(store):
            snapshot = open_snapshot(store, version)
            assert read_rows(snapshot) == contents[version]
            needed |= {file.path for fragment in snapshot.manifest.fragments for file in fragment.files}
        assert set(paths(store, "data")) == needed
        assert {int(info.split("-")[0]) for info in paths(store, "_transactions")} == {
            version - 1 for version in list_versions(store)
        }


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ({"keep_versions": [2, 99]}, [2, 5]),
        ({"keep_versions": range(3, 6)}, [3, 4, 5]),
        # Version 4 is a day old, but was the newest until a moment ago.
        ({"grace_period": timedelta(hours=1)}, [4, 5]),
        ({"grace_period": timedelta(days=1, hours=1)}, [3, 4, 5]),
    ],
)
def test_what_somebody_may_be_using_stays(store, clock, runtime, rules, left):
    clock.pass_time(seconds=1)
    foretold = explain_cleanup_old_versions(store, older_than=timedelta(0), **rules, runtime=runtime)
    assert cleanup_old_versions(store, older_than=timedelta(0), **rules, runtime=runtime) == foretold.stats
    assert list_versions(store) == left
    for version in left:
        read_rows(open_snapshot(store, version))


def test_a_negative_grace_period_makes_no_sense(store):
    with pytest.raises(InvalidInputError, match="grace_period"):
        cleanup_old_versions(store, grace_period=timedelta(-1))


class CallCounter:
    """Counts calls as an object store bills them: one for up to 1000 names deleted or listed."""

    def __init__(self, inner):
        self.inner, self.uri = inner, inner.uri
        self.calls = 0

    def __getattr__(self, name):
        method = getattr(self.inner, name)

        def call(*arguments):
            self.calls += 1
            if name == "delete":
                assert len(arguments[0]) <= 1000
            found = method(*arguments)
            if name in {"list", "names"}:
                found = [*found]
                self.calls += len(found) // 1000
            return iter(found) if name == "list" else found

        return call


@pytest.mark.slow
@pytest.mark.parametrize("num_tags", [0, 20])
def test_clean_up_of_many_versions_needs_few_calls(clock, runtime, num_tags):
    num_versions = 5000
    store = MemoryStore(now=clock)
    commit(store, create(store, range(10)), runtime=runtime)
    first = open_snapshot(store).manifest
    for version in range(2, num_versions + 1):
        manifest = replace(first, version=version, transaction_file="")
        store.put(manifest_path(version, ManifestNaming.V2), b"".join(encode_manifest_pieces(manifest)))
        store.put(f"data/{version}.lance", b"x")
    for number in range(1, num_tags + 1):
        create_tag(store, f"tag{number}", number)
    clock.pass_time(days=30)
    counter = CallCounter(store)
    stats = cleanup_old_versions(
        counter, older_than=timedelta(days=1), error_if_tagged_old_versions=False, runtime=runtime
    )
    assert (stats.old_versions, stats.data_files_removed) == (num_versions - 1 - num_tags, num_versions - 1)
    # One look at each manifest; tags are looked at before and after each thousand versions.
    assert counter.calls <= num_versions + 12 * (num_tags + 2) + 50


YEARS = timedelta(days=3650)


def at(time):
    return Runtime(now=lambda: time)


def test_a_clean_up_whose_clock_is_wrong_lets_nothing_young_go(store, clock, caplog):
    """Ten years ahead, the store's clock is asked; ten years behind, everything is young."""
    before = paths(store, "data")
    assert cleanup_old_versions(store, older_than=timedelta(days=14), runtime=at(clock() + YEARS)).bytes_removed == 0
    assert "it is 2036" in caplog.text
    caplog.clear()
    assert cleanup_old_versions(store, older_than=timedelta(0), runtime=at(clock() - YEARS)).bytes_removed == 0
    assert "a clock is wrong" in caplog.text
    assert list_versions(store) == [1, 2, 3, 4, 5]
    assert paths(store, "data") == before
    assert paths(store, "_versions") == sorted(manifest_path(n, ManifestNaming.V2)[10:] for n in range(1, 6))
    cleanup_old_versions(store, older_than=timedelta(days=2, hours=12), runtime=at(clock() + YEARS))
    assert list_versions(store) == [3, 4, 5], "what is old by the store's clock goes all the same"


@pytest.mark.parametrize("years", [-YEARS, YEARS])
def test_a_writer_whose_clock_is_wrong_takes_nothing_along(store, clock, runtime, years, caplog):
    """Its version is as old as those around it allow; others are judged as ever."""
    commit(store, append(store, [11], read_version=5, uuid="six"), runtime=at(clock() + years))
    clock.pass_time(hours=1)
    commit(store, append(store, [12], read_version=6, uuid="seven"), runtime=runtime)
    clock.pass_time(hours=1)
    cleanup_old_versions(store, older_than=timedelta(hours=12), runtime=runtime)
    assert list_versions(store) == [5, 6, 7]
    clock.pass_time(days=1)
    commit(store, append(store, [13], read_version=7, uuid="eight"), runtime=runtime)
    assert not caplog.text
    cleanup_old_versions(store, older_than=timedelta(hours=12), runtime=runtime)
    assert list_versions(store) == ([8] if years < timedelta(0) else [6, 8])


def test_a_newest_version_from_the_future_is_warned_about(store, clock, runtime, caplog):
    commit(store, append(store, [11], read_version=5, uuid="six"), runtime=at(clock() + YEARS))
    cleanup_old_versions(store, older_than=timedelta(hours=12), runtime=runtime)
    assert list_versions(store) == [5, 6]
    assert "version 6" in caplog.text
    assert "a clock is wrong" in caplog.text


def test_another_clean_up_takes_what_was_made_meanwhile(store, clock, runtime):
    clock.pass_time(seconds=1)
    made = []

    def on_call(method, path):
        if method == "delete" and path.startswith("_versions") and not made:
            made.append(commit(store, append(store, [20], read_version=5, uuid="six"), runtime=runtime).version)
        elif method in {"get", "reader"} and path == manifest_path(6, ManifestNaming.V2) and made == [6]:
            made.append(commit(store, append(store, [21], read_version=6, uuid="seven"), runtime=runtime).version)
            clock.pass_time(seconds=1)
            cleanup_old_versions(store, older_than=timedelta(0), runtime=runtime)

    cleanup_old_versions(FaultyStore(inner=store, on_call=on_call), older_than=timedelta(0), runtime=runtime)
    assert made == [6, 7]
    assert list_versions(store) == [7]
    assert read_rows(open_snapshot(store)) == [7, 8, 20, 21]
