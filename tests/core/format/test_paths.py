import pytest

from lance_core.errors import CorruptDataError
from lance_core.format.table.fragment import DataFile, DeletionFile, DeletionFileType
from lance_core.format.table.paths import (
    ManifestName,
    ManifestNaming,
    data_file_path,
    deletion_file_path,
    manifest_path,
    parse_manifest_name,
    parse_ref_path,
    parse_version,
    split_base_path,
    split_v2_names,
    tag_path,
    transaction_path,
)

DETACHED = (1 << 63) + 5


def data_file(path, base_id=None):
    return DataFile(
        path=path, fields=(), column_indices=(), file_major_version=2, file_minor_version=0, base_id=base_id
    )


@pytest.mark.parametrize(
    ("version", "naming", "name"),
    [
        (1, ManifestNaming.V2, "18446744073709551614.manifest"),
        (18446744073709551615 - 3, ManifestNaming.V2, f"d{18446744073709551615 - 3}.manifest"),
        (7, ManifestNaming.V1, "7.manifest"),
        (DETACHED, ManifestNaming.V1, f"d{DETACHED}.manifest"),
    ],
)
def test_manifest_names(version, naming, name):
    assert manifest_path(version, naming) == f"_versions/{name}"
    found = parse_manifest_name(name)
    assert found == ManifestName(version=version, naming=None if name.startswith("d") else naming)


def test_newest_v2_name_sorts_first():
    names = [manifest_path(version, ManifestNaming.V2) for version in (1, 2, 10, 1000)]
    assert sorted(names, reverse=True) == names


@pytest.mark.parametrize(
    "name",
    [
        "latest_version_hint.json", ".tmp_abc", "18446744073709551614.manifest#1", "1.manifest-uuid", "x.manifest",
        "d.manifest", "manifest", "\u0661.manifest", "-1.manifest", ".tmp_1.manifest",
    ],
)  # fmt: skip
def test_other_names_are_no_manifests(name):
    assert parse_manifest_name(name) is None


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "..", "/etc/passwd", "a\\b", "a\0b", "../../data/x.lance"])
def test_names_from_a_manifest_stay_in_their_folder(name):
    with pytest.raises(CorruptDataError):
        data_file_path(data_file(name))
    with pytest.raises(CorruptDataError):
        transaction_path(name)


def test_files_of_other_bases_are_refused():
    assert data_file_path(data_file("a.lance", base_id=3)) == "_base/3/data/a.lance"
    assert split_base_path("_base/3/data/a.lance") == (3, "data/a.lance")
    for path in ("_base/x/data/a", "_base/3", "data/a", "_base//a"):
        with pytest.raises(CorruptDataError):
            split_base_path(path)


def test_deletion_files():
    file = DeletionFile(file_type=DeletionFileType.BITMAP, read_version=2, id=9, num_deleted_rows=1)
    assert deletion_file_path(4, file) == "_deletions/4-2-9.bin"


def test_ref_names_are_percent_encoded():
    assert tag_path("ü") == "_refs/tags/%C3%BC.json"
    assert tag_path("../x") == "_refs/tags/..%2Fx.json"
    assert parse_ref_path("_refs/branches/a%2Fb.json") == "a/b"
    assert parse_ref_path(".tmp_1.json") is None
    assert parse_ref_path("notes.txt") is None


def test_v2_names_are_told_from_others():
    v2 = [manifest_path(version, ManifestNaming.V2).removeprefix("_versions/") for version in (1, 2, 10**18)]
    detached = [f"d{1 << 63}.manifest", f"d{(1 << 64) - 1}.manifest"]
    others = ["latest_version_hint.json", ".tmp_5", "7.manifest", "x" * 29, "-" * 20 + ".manifest"]
    assert split_v2_names(v2) == (v2, [])
    assert split_v2_names([]) == ([], [])
    found, rest = split_v2_names([*detached, *v2, *others])
    assert found == v2
    assert sorted(rest) == sorted([*detached, *others])
    assert [parse_version(name) for name in (*v2, "7.manifest")] == [1, 2, 10**18, 7]
    with pytest.raises(CorruptDataError):
        parse_version("1" * 29)
