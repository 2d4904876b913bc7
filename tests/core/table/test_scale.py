"""A long history costs nothing: store calls are counted, and the hint of the newest version is not believed blindly."""

from dataclasses import replace

import pytest

from lance_core.errors import DatasetNotFoundError
from lance_core.format.table.manifest import encode_manifest_pieces
from lance_core.format.table.paths import LATEST_VERSION_HINT, ManifestNaming, decode_version_hint, manifest_path
from lance_core.store.local import LocalStore
from lance_core.store.memory import MemoryStore
from lance_core.table.commit import commit
from lance_core.table.snapshot import find_newest, open_snapshot
from lance_core.testing.faulty_store import FaultyStore
from lance_core.testing.tables import append, create, read_rows


class ObjectStore(FaultyStore):
    """Counts calls as an object store bills them: a listing in order, several sizes at a time."""

    def first_names(self, folder, count):
        return self.call("first_names", folder, lambda: sorted(self.inner.names(folder))[:count])

    def sizes(self, paths):
        return [self.call("sizes", path, lambda path=path: self.inner.reader(path).size) for path in paths]


def grown(store, num_versions):
    """A table with so many versions; those in the middle are copies of the first."""
    commit(store, create(store, range(3)))
    first = open_snapshot(store).manifest
    for version in range(2, num_versions):
        manifest = replace(first, version=version)
        store.put(manifest_path(version, ManifestNaming.V2), b"".join(encode_manifest_pieces(manifest)))
    commit(store, append(store, [7], read_version=num_versions - 1, uuid="last"))
    return store


def calls_of(store):
    """Calls of opening the newest version, and of committing an append to it."""
    counted = ObjectStore(inner=store)
    snapshot = open_snapshot(counted)
    opening, counted.calls = counted.calls, []
    transaction = append(store, [8], read_version=snapshot.version, uuid="counted")
    commit(counted, transaction, read=snapshot)
    return [method for method, _ in opening], [method for method, _ in counted.calls]


def test_calls_do_not_grow_with_the_history():
    few, many = calls_of(grown(MemoryStore(), 10)), calls_of(grown(MemoryStore(), 10_000))
    assert few == many
    opening, appending = many
    assert len(opening) <= 3, opening
    assert len(appending) <= 6, appending
    assert "names" not in opening + appending


@pytest.fixture
def local(tmp_path):
    return grown(LocalStore(str(tmp_path / "t")), 10)


def test_the_hint_saves_the_listing(local):
    counted = FaultyStore(inner=local)
    assert find_newest(local).names == (f"{2**64 - 11:020d}.manifest",)
    assert len(find_newest(local, is_certain=True).names) == 10
    assert find_newest(counted).newest == 10
    assert counted.calls == [("names", "_versions")], "a store that cannot tell what is settled lists"


def hint(store, number):
    store.put(LATEST_VERSION_HINT, b'{"version":%d}' % number)


def copy(store, number):
    manifest = replace(open_snapshot(store, 1).manifest, version=number)
    store.put(manifest_path(number, ManifestNaming.V2), b"".join(encode_manifest_pieces(manifest)))


def test_hints_that_are_late_early_or_nonsense(local):
    for number in (9, 11, 1, 0, 5, 2**63):
        hint(local, number)
        assert find_newest(local).newest == 10, number
    for nonsense in (b"", b"10", b"{}", b'{"version":"10"}', b'{"version":-1}', b"\xff" * 100, b'{"version":10}x'):
        local.put(LATEST_VERSION_HINT, nonsense)
        assert find_newest(local).newest == 10
    local.delete([LATEST_VERSION_HINT])
    assert find_newest(local).newest == 10


def test_what_happens_after_the_hint_is_seen(local):
    copy(local, 12)  # by a writer that leaves no hint; 11 was cleaned up
    assert find_newest(local).newest == 12
    hint(local, 12)  # a version without one before it: look twice
    assert len(find_newest(local).names) == 11
    local.delete([manifest_path(12, ManifestNaming.V2)])
    assert find_newest(local).newest == 10


def test_the_hint_of_the_next_commit_is_right_again(local):
    copy(local, 11)
    snapshot = commit(local, append(local, [1], read_version=11, uuid="next"))
    assert snapshot.version == 12
    assert decode_version_hint(local.get(LATEST_VERSION_HINT)) == 12
    assert find_newest(local).names == (manifest_path(12, ManifestNaming.V2).rpartition("/")[2],)
    assert read_rows(open_snapshot(local)) == read_rows(snapshot)


def test_a_deleted_table_leaves_no_ghost(local):
    local.delete([manifest_path(number, ManifestNaming.V2) for number in range(1, 11)])
    with pytest.raises(DatasetNotFoundError):
        open_snapshot(local)
