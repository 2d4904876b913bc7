"""The list of versions reads a manifest when its entry is looked at, and says the same as the manifest."""

from dataclasses import replace

import pytest

from lance_core.errors import CorruptDataError, VersionNotFoundError
from lance_core.format.table.fragment import DataFile, DeletionFile, DeletionFileType, Fragment
from lance_core.format.table.fragment_list import FragmentList
from lance_core.format.table.manifest import encode_manifest_pieces
from lance_core.format.table.paths import ManifestNaming, manifest_path
from lance_core.store.local import LocalStore
from lance_core.store.memory import MemoryStore
from lance_core.table.commit import commit
from lance_core.table.snapshot import load_manifest, open_snapshot
from lance_core.table.statistics import version_summary
from lance_core.table.version_list import VersionList
from lance_core.testing.faulty_store import FaultyStore
from lance_core.testing.tables import append, create

FILE = DataFile(
    path="a.lance", fields=(0,), column_indices=(0,), file_major_version=2, file_minor_version=2, file_size_bytes=70
)
DELETIONS = DeletionFile(file_type=DeletionFileType.BITMAP, read_version=1, id=2, num_deleted_rows=3)


def path_of(version, naming=ManifestNaming.V2):
    return manifest_path(version, naming)


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    """Five versions: one fragment, none, several of which one has deletions, a thousand, one more."""
    store = LocalStore(str(tmp_path / "t")) if request.param == "local" else MemoryStore()
    commit(store, create(store, range(3)))
    first = open_snapshot(store).manifest
    many = [
        Fragment(id=number, files=(FILE,) * (1 + number % 2), physical_rows=10, deletion_file=DELETIONS)
        if number == 1
        else Fragment(id=number, files=(FILE,) * (1 + number % 2), physical_rows=10 + number)
        for number in range(1000)
    ]
    for version, fragments in ((2, []), (3, many[:5]), (4, many)):
        manifest = replace(first, version=version, fragments=FragmentList.of(fragments))
        store.put(path_of(version), b"".join(encode_manifest_pieces(manifest)))
    commit(store, append(store, [7], read_version=4, uuid="last"))
    return store


def test_entries_say_what_the_manifests_say(store):
    versions = VersionList(store)
    expected = [version_summary(load_manifest(store, number)) for number in range(1, 6)]
    assert len(versions) == 5
    assert list(versions) == expected
    assert [versions[index] for index in range(-5, 5)] == expected * 2
    assert versions[1:-1] == expected[1:-1]
    assert versions[::-2] == expected[::-2]
    assert versions == expected
    assert expected != versions[:4]
    assert repr(versions) == repr(expected)
    assert expected[2]["metadata"]["total_rows"] == "56"
    assert expected[2]["metadata"]["total_deletion_files"] == "1"
    assert expected[2]["metadata"]["total_data_files"] == "7"
    with pytest.raises(IndexError):
        _ = versions[5]


def test_only_what_is_looked_at_is_read(store):
    counted = FaultyStore(inner=store)
    versions = VersionList(counted)
    assert len(versions) == 5
    assert counted.calls == [("names", "_versions")]
    assert versions[-1]["version"] == 5
    assert counted.calls[1:] == [("get", path_of(5))]
    entries = iter(versions)
    assert next(entries)["version"] == 1
    assert [one["version"] for one in versions[1:3]] == [2, 3]
    assert sum(method == "names" for method, _ in counted.calls) == 1


def test_many_versions_decode_each_fragment_once(store, monkeypatch):
    first = open_snapshot(store, 3).manifest
    for version in range(6, 30):
        store.put(path_of(version), b"".join(encode_manifest_pieces(replace(first, version=version))))
    decoded = []
    original = "lance_core.table.version_list.decode_totals"
    from lance_core.format.table.fragment import decode_totals  # noqa: PLC0415 before it is replaced

    monkeypatch.setattr(original, lambda record: decoded.append(record) or decode_totals(record))
    rows = [one["metadata"]["total_rows"] for one in VersionList(store)]
    assert rows[5:] == ["56"] * 24
    assert len(decoded) == len(set(decoded)) == 6


def test_versions_that_go_meanwhile(store):
    versions = VersionList(store)
    store.delete([path_of(2)])
    assert [one["version"] for one in versions] == [1, 3, 4, 5]
    assert [one["version"] for one in versions[:3]] == [1, 3]
    with pytest.raises(VersionNotFoundError):
        _ = versions[1]


def test_damage_is_found_where_it_is(store):
    data = store.get(path_of(2))
    store.put(path_of(2), data[:40] + bytes([data[40] ^ 1]) + data[41:])
    versions = VersionList(store)
    assert versions[0]["version"] == 1
    with pytest.raises(CorruptDataError):
        list(versions)


def test_names_of_the_older_scheme(store):
    for version in range(1, 6):
        store.put(path_of(version, ManifestNaming.V1), store.get(path_of(version)))
        store.delete([path_of(version)])
    assert [one["version"] for one in VersionList(store)] == [1, 2, 3, 4, 5]
