"""Files in a base path that is no dataset root lie directly in it, whatever they are."""

import shutil
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.format.table.base_path import BasePath
from lance_core.format.table.feature_flags import Feature
from lance_core.format.table.fragment_list import FragmentList
from lance_core.format.table.index_metadata import with_base_id
from lance_core.format.table.manifest import encode_manifest_pieces, index_section_of
from lance_core.format.table.paths import ManifestNaming, manifest_path
from lance_core.table.snapshot import decode_version


@pytest.fixture
def table(tmp_path):
    dataset = lance_core.write_dataset(pa.table({"x": pa.array(range(20), pa.int64())}), tmp_path / "t")
    dataset.create_scalar_index("x", "ZONEMAP")
    dataset.delete("x = 3")
    return dataset


def move(dataset, base, *, is_root, what):
    """Move files of a kind to a base path, and say so in the newest manifest."""
    store, version = dataset.snapshot.store, dataset.version
    manifest = decode_version(store, version)
    (fragment,) = manifest.fragments
    source = {"data": "data", "deletions": "_deletions", "index": "_indices"}[what]
    shutil.copytree(f"{dataset.uri}/{source}", base / source if is_root else base, dirs_exist_ok=True)
    shutil.rmtree(f"{dataset.uri}/{source}")
    if what == "data":
        fragment = replace(fragment, files=tuple(replace(one, base_id=1) for one in fragment.files))
    elif what == "deletions":
        fragment = replace(fragment, deletion_file=replace(fragment.deletion_file, base_id=1))
    else:
        indices = index_section_of(tuple(with_base_id(one, 1) for one in manifest.indices))
        manifest = replace(manifest, index_section=indices)
    flags = int(Feature.BASE_PATHS)
    manifest = replace(
        manifest,
        fragments=FragmentList.of([fragment]),
        base_paths=(BasePath(id=1, path=str(base), is_dataset_root=is_root),),
        reader_feature_flags=manifest.reader_feature_flags | flags,
        writer_feature_flags=manifest.writer_feature_flags | flags,
    )
    store.put(manifest_path(version, ManifestNaming.V2), b"".join(encode_manifest_pieces(manifest)))
    return lance_core.dataset(dataset.uri)


@pytest.mark.parametrize("what", ["data", "deletions", "index"])
@pytest.mark.parametrize("is_root", [True, False])
def test_files_of_a_base_path(table, tmp_path, what, is_root):
    moved = move(table, tmp_path / "base", is_root=is_root, what=what)
    assert moved.to_table(filter="x < 5")["x"].to_pylist() == [0, 1, 2, 4]
    report = moved.verify(level="full")
    assert [one for one in report.problems if one.version == moved.version] == []
    listed = moved.tracked_files(min_version=moved.version).read_all().to_pylist()
    assert [one for one in listed if not Path(one["base_uri"], one["path"]).exists()] == []
    if what == "deletions" and not is_root:
        with pytest.raises(Exception, match="not a dataset root"):  # pylance refuses such tables
            lance.dataset(moved.uri).to_table()
        return
    theirs = lance.dataset(moved.uri)
    assert theirs.to_table(filter="x < 5")["x"].to_pylist() == [0, 1, 2, 4]


@pytest.mark.parametrize("what", ["data", "deletions", "index"])
def test_clean_up_keeps_files_of_a_base_path_in_the_table_itself(table, tmp_path, what):
    """Such as a folder of the table, which is no dataset root."""
    folder = {"data": "data", "deletions": "_deletions", "index": "_indices"}[what]
    moved = move(table, tmp_path / "elsewhere", is_root=False, what=what)
    store, version = moved.snapshot.store, moved.version
    manifest = decode_version(store, version)
    inside = replace(manifest.base_paths[0], path=f"{moved.uri}/{folder}")
    shutil.copytree(tmp_path / "elsewhere", f"{moved.uri}/{folder}")
    store.put(
        manifest_path(version, ManifestNaming.V2),
        b"".join(encode_manifest_pieces(replace(manifest, base_paths=(inside,)))),
    )
    again = lance_core.dataset(moved.uri)
    again.cleanup_old_versions(retain_versions=1, delete_unverified=True, force=True)
    assert lance_core.dataset(moved.uri).to_table(filter="x < 5")["x"].to_pylist() == [0, 1, 2, 4]


@pytest.mark.parametrize("what", ["deletions", "index"])
def test_a_deep_clone_lays_files_out_like_a_dataset(table, tmp_path, what):
    moved = move(table, tmp_path / "base", is_root=False, what=what)
    clone = moved.deep_clone(tmp_path / "clone", moved.version)
    shutil.rmtree(tmp_path / "base")
    assert lance.dataset(str(tmp_path / "clone")).to_table(filter="x < 5")["x"].to_pylist() == [0, 1, 2, 4]
    assert clone.to_table(filter="x < 5")["x"].to_pylist() == [0, 1, 2, 4]
