"""What file systems cannot do, and what is left on them."""

import errno
import os

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError, NotFoundError, RefNotFoundError, UnsafeStoreError
from lance_core.store.local import LocalStore

ROWS = pa.table({"a": [1, 2, 3]})
LONG = "n" * 256


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_file_systems_without_hard_links_are_unsafe(tmp_path, monkeypatch, code):
    def link(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(UnsafeStoreError, match=r"no hard links.*manifest_store"):
        lance_core.write_dataset(ROWS, tmp_path / "t")
    assert [one for one in (tmp_path / "t").rglob("*") if one.is_file()] == []
    options = {"manifest_store": f"sqlite://{tmp_path}/commits.db"}
    table = lance_core.write_dataset(ROWS, tmp_path / "t", storage_options=options)
    assert lance_core.write_dataset(ROWS, table, mode="append").count_rows() == 6


def test_other_errors_of_links_are_told_as_they_are(tmp_path, monkeypatch):
    def link(*_):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(OSError, match="no space") as caught:
        LocalStore(str(tmp_path)).put_if_absent("_versions/1.manifest", b"x")
    assert not isinstance(caught.value, UnsafeStoreError)
    assert list((tmp_path / "_versions").iterdir()) == []


@pytest.mark.parametrize("name", [LONG, "ä" * 128])
def test_names_that_no_file_system_takes_are_refused(tmp_path, name):
    with pytest.raises(InvalidInputError, match="256 bytes"):
        lance_core.write_dataset(ROWS, tmp_path / name / "t")
    with pytest.raises(InvalidInputError, match="256 bytes"):
        lance_core.dataset(tmp_path / name)
    lance_core.write_dataset(ROWS, tmp_path / name[: len(name) - 1])


def test_names_of_tags_and_branches_that_are_too_long_are_refused(tmp_path):
    table = lance_core.write_dataset(ROWS, tmp_path / "t")
    with pytest.raises(InvalidInputError, match=r"longer than|bytes"):
        table.tags.create(LONG)
    with pytest.raises(InvalidInputError, match="branch name"):
        table.create_branch(LONG)
    with pytest.raises((InvalidInputError, RefNotFoundError)):
        table.checkout_version(LONG)
    assert table.tags.list() == {}


def test_paths_that_are_too_long_are_refused(tmp_path):
    place = tmp_path.joinpath(*["d" * 200] * 21)
    with pytest.raises(InvalidInputError, match="path has more than"):
        lance_core.write_dataset(ROWS, place)
    assert list(tmp_path.iterdir()) == []


def test_deleted_branches_leave_no_folders(tmp_path):
    table = lance_core.write_dataset(ROWS, tmp_path / "t")
    before = sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*"))
    for name in ("dev", "team/one", "team/two"):
        lance_core.write_dataset(ROWS, table.create_branch(name), mode="append").delete("a = 1")
    table.branches.delete("team/one")
    assert lance_core.dataset(table.uri, branch="team/two").count_rows() == 4
    assert not (tmp_path / "t/tree/team/one").exists()
    table.branches.delete("team/two")
    table.branches.delete("dev")
    left = sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*"))
    assert [one for one in left if not one.startswith("t/_refs")] == before
    assert table.create_branch("dev").count_rows() == 3


def test_dropped_tables_leave_no_folders_and_spare_what_is_not_theirs(tmp_path):
    for name in ("gone", "kept"):
        table = lance_core.write_dataset(ROWS, tmp_path / name)
        table.tags.create("one")
        table.create_branch("dev").delete("a = 1")
    (tmp_path / "kept" / "notes.txt").write_text("mine")
    for name in ("gone", "kept"):
        lance_core.LanceDataset.drop(tmp_path / name)
    assert sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*")) == ["kept", "kept/notes.txt"]


def test_files_below_base_paths_that_the_table_lacks_are_refused_by_their_number(tmp_path):
    table = lance_core.write_dataset(ROWS, tmp_path / "t")
    (fragment,) = lance_core.write_fragments(ROWS, table)
    data = fragment.to_json()
    data["files"][0]["base_id"] = 7
    moved = lance_core.FragmentMetadata.from_json(data)
    with pytest.raises(InvalidInputError, match=r"base path 7.*base paths are: none") as caught:
        table.commit(table, lance_core.LanceOperation.Append([moved]), read_version=1)
    assert "_base" not in str(caught.value)
    with pytest.raises(lance_core.LanceError, match="base path 7, which the manifest does not list") as caught:
        table.snapshot.store.get(f"_base/7/data/{data['files'][0]['path']}")
    assert "_base" not in str(caught.value)
    assert not isinstance(caught.value, NotFoundError)
