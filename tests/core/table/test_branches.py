"""Branches on toy tables: what is where, who needs whom, races and faults."""

import pytest

from lance_core.errors import (
    CommitOutcomeUnknownError,
    CorruptDataError,
    InvalidInputError,
    RefAlreadyExistsError,
    RefNotFoundError,
    VersionNotFoundError,
)
from lance_core.format.table.operations import Clone
from lance_core.format.table.paths import ManifestNaming, branch_path, manifest_path
from lance_core.maintenance.cleanup import cleanup_old_versions
from lance_core.store.memory import MemoryStore
from lance_core.table.branches import create_branch, delete_branch, describe_branch, get_branch, list_branches
from lance_core.table.commit import commit
from lance_core.table.locations import branch_store
from lance_core.table.open_table import open_version
from lance_core.table.refs import create_tag, get_tag, resolve
from lance_core.table.snapshot import list_versions, open_snapshot, read_transaction
from lance_core.testing.faulty_store import FaultyStore, InjectedError
from lance_core.testing.tables import append, create, read_rows

UUID = "00000000-0000-0000-0000-00000000000"


@pytest.fixture
def store():
    store = MemoryStore("memory://root")
    commit(store, create(store, range(10)))
    commit(store, append(store, [10], read_version=1, uuid="a"))
    return store


def branch(store, name, version=None, *, number=1):
    return create_branch(open_version(store, version), name, uuid=f"{UUID}{number}")


def grow(snapshot, value):
    return commit(
        snapshot.store,
        append(snapshot.store, [value], read_version=snapshot.version, uuid=f"grow {value}"),
        read=snapshot,
    )


def test_life_of_a_branch(store):
    first = branch(store, "feat/a")
    assert (first.version, first.manifest.branch, first.store.uri) == (2, "feat/a", "memory://root/tree/feat/a")
    assert read_rows(first) == list(range(11))
    base = first.manifest.base_paths[0]
    assert (base.id, base.path, base.name, base.is_dataset_root) == (0, "memory://root", None, True)
    operation = read_transaction(first.store, 2).operation
    assert operation == Clone(
        is_shallow=True, ref_name=None, ref_version=2, ref_path="memory://root", branch_name="feat/a"
    )
    second = grow(first, 100)
    assert (second.version, read_rows(second)) == (3, [*range(11), 100])
    assert read_rows(open_snapshot(store)) == list(range(11))
    assert read_rows(open_version(store, ("feat/a", None))) == read_rows(second)
    assert read_rows(open_version(second.store, ("main", 1))) == list(range(10))
    info = get_branch(store, "feat/a")
    assert (info.parent_branch, info.parent_version, info.identifier) == (None, 2, ((2, UUID.replace("-", "") + "1"),))
    describe_branch(second.store, "feat/a", {"why": "test"})
    assert [(one.name, one.metadata) for one in list_branches(second.store)] == [("feat/a", {"why": "test"})]
    delete_branch(second.store, "feat/a")
    assert list_branches(store) == []
    assert [info.path for info in store.list("tree")] == []
    with pytest.raises(RefNotFoundError):
        open_version(store, ("feat/a", None))


def test_branch_of_a_branch(store):
    parent = grow(branch(store, "a"), 100)
    child = create_branch(parent, "b", uuid=f"{UUID}2")
    assert [(base.id, base.path, base.name) for base in child.manifest.base_paths] == [
        (0, "memory://root", None),
        (1, "memory://root/tree/a", "a"),
    ]
    child = grow(child, 200)
    assert read_rows(child) == [*range(11), 100, 200]
    assert get_branch(store, "b").identifier == (*get_branch(store, "a").identifier, (3, UUID.replace("-", "") + "2"))
    with pytest.raises(InvalidInputError, match="branch 'b'"):
        delete_branch(store, "a")
    delete_branch(store, "b")
    delete_branch(store, "a")


def test_branches_below_each_other(store):
    outer, inner = branch(store, "a"), branch(store, "a/b", number=2)
    inner = grow(inner, 100)
    delete_branch(store, "a")
    assert read_rows(open_version(store, ("a/b", None))) == read_rows(inner)
    with pytest.raises(RefNotFoundError):
        open_version(outer.store, ("a", None))


def test_tags_on_branches(store):
    snapshot = grow(branch(store, "a"), 100)
    create_tag(snapshot.store, "t", 3)
    tag = get_tag(store, "t")
    assert (tag.branch, tag.version) == ("a", 3)
    assert read_rows(open_version(store, "t")) == read_rows(snapshot)
    assert resolve(snapshot.store, "t")[0].uri == "memory://root/tree/a"
    with pytest.raises(InvalidInputError, match="tag 't'"):
        delete_branch(store, "a")


def test_what_cannot_be(store):
    branch(store, "a")
    with pytest.raises(RefAlreadyExistsError):
        branch(store, "a", number=2)
    for name in ("main", "../x", "a//b", "data"):
        with pytest.raises(InvalidInputError):
            branch(store, name)
    with pytest.raises(VersionNotFoundError):
        branch(store, "b", 9)
    with pytest.raises(RefNotFoundError):
        branch(store, "b", ("none", 1))
    with pytest.raises(InvalidInputError):
        branch(store, "b", ("../x", 1))
    with pytest.raises(InvalidInputError, match="main branch"):
        delete_branch(store, "main")
    with pytest.raises(RefNotFoundError):
        delete_branch(store, "none")
    for reference in (1.5, True, ("a", "1"), ("a",)):
        with pytest.raises(InvalidInputError, match="does not name a version"):
            open_version(store, reference)


def test_hostile_refs_do_not_lead_out_of_the_dataset(store):
    store.put("_refs/tags/t.json", b'{"version": 1, "manifestSize": 5, "branch": "../../x"}')
    with pytest.raises(CorruptDataError, match="name of a branch"):
        open_version(store, "t")
    store.put("_refs/branches/..%2F..%2Fx.json", b'{"parentVersion": 1}')
    with pytest.raises(InvalidInputError):
        open_version(store, ("../../x", None))
    with pytest.raises(InvalidInputError):
        delete_branch(store, "../../x")


def test_clean_up_keeps_where_branches_come_from(store):
    snapshot = branch(store, "a", 1)
    commit(store, append(store, [11], read_version=2, uuid="b"))
    cleanup_old_versions(store, retain_versions=1, error_if_tagged_old_versions=False)
    assert list_versions(store) == [1, 3]
    assert read_rows(snapshot) == list(range(10))


def test_clean_up_of_a_branch(store):
    parent = grow(branch(store, "a"), 100)
    child = create_branch(parent, "b", uuid=f"{UUID}2")
    newest = grow(grow(parent, 101), 102)
    create_tag(store, "main", 2)
    create_tag(newest.store, "mine", 4)
    cleanup_old_versions(newest.store, retain_versions=1, error_if_tagged_old_versions=False)
    assert list_versions(newest.store) == [3, 4, 5]
    assert list_versions(store) == [1, 2]
    assert read_rows(child) == [*range(11), 100]
    assert read_rows(newest) == [*range(11), 100, 101, 102]


def test_source_that_is_cleaned_up_meanwhile(store):
    source = open_snapshot(store, 1)

    def clean(method, path):
        if method == "put_if_absent" and path == branch_path("a"):
            store.delete([manifest_path(1, ManifestNaming.V2)])

    faulty = FaultyStore(inner=store, on_call=clean)
    with pytest.raises(VersionNotFoundError):
        create_branch(type(source)(store=faulty, manifest=source.manifest), "a", uuid=f"{UUID}1")
    assert list_branches(store) == []
    assert [*store.list("tree")] == []


def test_parent_that_is_deleted_meanwhile(store):
    parent = branch(store, "a")

    def remove(method, path):
        if method == "put_if_absent" and path == branch_path("b"):
            delete_branch(store, "a")

    faulty = branch_store(FaultyStore(inner=store, on_call=remove), "a")
    source = open_snapshot(faulty)
    assert source.version == parent.version
    with pytest.raises((VersionNotFoundError, RefNotFoundError)):
        create_branch(source, "b", uuid=f"{UUID}2")
    assert list_branches(store) == []


def test_child_that_is_born_while_its_parent_is_deleted(store):
    parent = branch(store, "a")

    def bear(method, path):
        if method == "delete" and path == branch_path("a"):
            create_branch(parent, "b", uuid=f"{UUID}2")

    with pytest.raises(InvalidInputError, match="branch 'b'"):
        delete_branch(FaultyStore(inner=store, on_call=bear), "a")
    assert [one.name for one in list_branches(store)] == ["a", "b"]
    assert read_rows(open_version(store, ("b", None))) == list(range(11))


RIVALS = {
    "describe": lambda store: describe_branch(store, "feat", {"why": "test"}),
    "delete": lambda store: delete_branch(store, "feat"),
}


def race(outer, inner, at):
    """One of both runs before a call of the other: the store, and what became of each that ran."""
    store, results = MemoryStore("memory://root"), {}
    commit(store, create(store, range(10)))
    branch(store, "feat")

    def run(name, at_store):
        try:
            RIVALS[name](at_store)
        except (InvalidInputError, RefNotFoundError, VersionNotFoundError) as error:
            results[name] = type(error)
        else:
            results[name] = None

    faulty = FaultyStore(inner=store)
    faulty.on_call = lambda *_: run(inner, store) if len(faulty.calls) == at else None
    run(outer, faulty)
    return store, results


@pytest.mark.parametrize("outer", RIVALS)
def test_a_branch_that_is_described_while_it_is_deleted(outer):
    """Whichever call of the one the other comes before: a branch that is gone stays so, with all its files."""
    (inner,) = RIVALS.keys() - {outer}
    outcomes = []
    while not outcomes or inner in outcomes[-1]:
        store, results = race(outer, inner, len(outcomes) + 1)
        outcomes.append(results)
        assert list(store.list("_refs/tags")) == []
        if results.get("delete", "not run") is None:
            assert list(store.list("tree")) == []
            assert list_branches(store) == []
        else:
            assert read_rows(open_version(store, ("feat", None))) == list(range(10))
            assert get_branch(store, "feat").metadata == ({} if results["describe"] else {"why": "test"})
    assert {RefNotFoundError} < {one.get("describe") for one in outcomes}
    assert (InvalidInputError in {one.get("delete") for one in outcomes}) == (outer == "describe")


def test_two_writers_of_one_name(store):
    def other(method, path):
        if method == "put_if_absent" and path == branch_path("a"):
            faulty.on_call = None
            create_branch(open_snapshot(store, 1), "a", uuid=f"{UUID}2")

    faulty = FaultyStore(inner=store, on_call=other)
    with pytest.raises(RefAlreadyExistsError):
        create_branch(open_snapshot(faulty), "a", uuid=f"{UUID}1")
    assert list_versions(branch_store(store, "a")) == [1]


@pytest.mark.parametrize("effect", ["before", "after"])
@pytest.mark.parametrize("error", [InjectedError, TimeoutError])
def test_creation_fails_at_any_call(effect, error):
    fail_at, is_done = 1, False
    while not is_done:
        store = MemoryStore("memory://root")
        commit(store, create(store, range(10)))
        faulty = FaultyStore(inner=store, fail_at=fail_at, effect=effect, error=error)
        try:
            create_branch(open_snapshot(faulty), "a", uuid=f"{UUID}1")
            is_done = fail_at > len(faulty.calls)
        except CommitOutcomeUnknownError:
            pass
        except OSError:
            pass
        assert read_rows(open_snapshot(store)) == list(range(10))
        names = [one.name for one in list_branches(store)]
        assert names in ([], ["a"])
        if list_versions(branch_store(store, "a")) and names:
            assert read_rows(open_version(store, ("a", None))) == list(range(10))
        else:  # what is left can be removed, and the name used again
            if names or list_versions(branch_store(store, "a")):
                delete_branch(store, "a")
            assert read_rows(branch(store, "a")) == list(range(10))
        fail_at += 1
    assert fail_at > 5


@pytest.mark.parametrize("effect", ["before", "after"])
def test_deletion_fails_at_any_call(effect):
    fail_at, is_done = 1, False
    while not is_done:
        store = MemoryStore("memory://root")
        commit(store, create(store, range(10)))
        grow(branch(store, "a"), 100)
        faulty = FaultyStore(inner=store, fail_at=fail_at, effect=effect)
        try:
            delete_branch(faulty, "a")
            is_done = fail_at > len(faulty.calls)
        except OSError:
            if list_branches(store):
                assert read_rows(open_version(store, ("a", None))) == [*range(10), 100]
                delete_branch(store, "a")
            elif list_versions(branch_store(store, "a")):
                delete_branch(store, "a")
        assert list_branches(store) == []
        assert read_rows(branch(store, "a")) == list(range(10))
        fail_at += 1
    assert fail_at > 5
