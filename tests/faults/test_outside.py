"""Names in manifests, tags and branches that try to lead out of the table: nothing outside of it is looked at."""

import os
from contextlib import suppress
from dataclasses import replace
from itertools import count

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import LanceError, UntrustedPlaceError
from lance_core.format.table.fragment_list import FragmentList
from lance_core.format.table.manifest import encode_manifest_pieces
from lance_core.format.table.paths import ManifestNaming, manifest_path
from lance_core.store.local import LocalReader, LocalStore

_UP = ("../victim.lance", "../../victim.lance", "../../../victim.lance", "../../../../../../etc/passwd")
NAMES = (
    *_UP,
    *(name.replace("/", "\\") for name in _UP),
    *(name.replace("..", "%2e%2e") for name in _UP[:2]),
    *(name.replace("/", "%2f") for name in _UP[:2]),
    *(name.replace("/", "%5c") for name in _UP[:2]),
    *(
        "..",
        ".",
        "",
        "/",
        "//",
        "\\",
        "./x",
        "x/.",
        "x/..",
        "x/../../victim.lance",
        "x//y",
        "...",
        "....//victim.lance",
    ),
    *("/etc/passwd", "//etc/passwd", "\\\\host\\share", "C:\\x", "C:/x", "file:///etc/passwd", "~/x", "~root/x"),
    *("x\0.lance", "\0", "../victim.lance\0.lance", "victim.lance/", "..;/victim.lance", "\uff0e\uff0e/victim.lance"),
    *("..\u2215victim.lance", "..\u2044victim.lance", "..\uff0fvictim.lance", "\u202e/../x", "a" * 5000, "x\n/../y"),
    *("{root}/../victim.lance", "$HOME/x", "`id`", "CON", "data/../../victim.lance", "_versions/../../victim.lance"),
)
NUMBERS = count()


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table with a victim beside it, and what was looked at since."""
    root = tmp_path / "home" / "t"
    lance_core.write_dataset(pa.table({"x": [1, 2, 3]}), root)
    for folder in (tmp_path, tmp_path / "home", root.parent.parent):
        (folder / "victim.lance").write_bytes(b"secret")
    seen = []
    real = LocalStore._path

    def recorded(self, path):
        found = real(self, path)
        seen.append(found)
        return found

    monkeypatch.setattr(LocalStore, "_path", recorded)
    mapped = LocalReader.__init__

    def map_recorded(self, path):
        seen.append(path)
        mapped(self, path)

    monkeypatch.setattr(LocalReader, "__init__", map_recorded)
    return root, seen


def stays_inside(root, seen):
    base = os.path.realpath(root)
    for path in seen:
        assert os.path.realpath(path.replace("\0", "?")).startswith(base + os.sep), path
    assert (root.parent / "victim.lance").read_bytes() == b"secret"


def put_version(root, **changes):
    manifest = lance_core.dataset(root, version=1).snapshot.manifest
    path = root / manifest_path(2, ManifestNaming.V2)
    path.write_bytes(b"".join(encode_manifest_pieces(replace(manifest, version=2, **changes))))


def test_there_are_enough():
    assert len(set(NAMES)) == len(NAMES) >= 40


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_data_files(table, name):
    root, seen = table
    fragment = lance_core.dataset(root).snapshot.manifest.fragments[0]
    files = (replace(fragment.files[0], path=name),)
    try:
        put_version(root, fragments=FragmentList.of([replace(fragment, files=files)]))
    except UnicodeEncodeError:
        return
    seen.clear()
    opened = lance_core.dataset(root)
    for work in (opened.to_table, lambda: opened.take([0])):
        with pytest.raises((LanceError, OSError)):
            work()
    assert not opened.verify(level="full").is_ok
    stays_inside(root, seen)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_transaction_files(table, name):
    root, seen = table
    put_version(root, transaction_file=name, transaction_section=None)
    seen.clear()
    opened = lance_core.dataset(root)
    with suppress(LanceError, OSError):
        assert opened.read_transaction(2) is None
    opened.verify()
    stays_inside(root, seen)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_tags_and_branches(table, name):
    root, seen = table
    opened = lance_core.dataset(root)
    seen.clear()
    for work in (
        lambda: lance_core.dataset(root, version=name),
        lambda: opened.tags.create(name, 1),
        lambda: opened.tags.update(name, 1),
        lambda: opened.tags.delete(name),
        lambda: opened.create_branch(name),
        lambda: opened.checkout_version((name, None)),
        lambda: opened.branches.delete(name),
        lambda: lance_core.write_dataset(pa.table({"x": [1]}), root, mode="append", branch=name),
    ):
        try:
            work()
        except (LanceError, OSError, ValueError):
            continue
    stays_inside(root, seen)


def test_other_places_can_be_refused(table, tmp_path, monkeypatch):
    """A manifest may name other places, as shallow clones do; who reads what strangers wrote can say which."""
    root, seen = table
    clone = lance_core.dataset(root).shallow_clone(str(tmp_path / "clone"), 1)
    assert clone.count_rows() == 3
    assert lance_core.dataset(tmp_path / "clone").to_table().num_rows == 3
    monkeypatch.setenv("LANCE_CORE_BASE_PATHS", f"s3://bucket/,{tmp_path}/home/")
    assert lance_core.dataset(tmp_path / "clone").to_table().num_rows == 3
    for allowed in ("", "s3://bucket/", f"{tmp_path}/home/t/x", f"{tmp_path}/home/t/../x"):
        monkeypatch.setenv("LANCE_CORE_BASE_PATHS", allowed)
        seen.clear()
        with pytest.raises(UntrustedPlaceError, match="LANCE_CORE_BASE_PATHS"):
            lance_core.dataset(tmp_path / "clone").to_table()
        stays_inside(tmp_path / "clone", seen)
