import os
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from lance_core.errors import InvalidInputError, NotFoundError, UnsupportedError
from lance_core.store import local, local_reader
from lance_core.store import reserve as reserve_module
from lance_core.store.local import LocalStore
from lance_core.store.open import open_store


def files(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_no_temporary_file_stays(tmp_path):
    store = LocalStore(str(tmp_path))
    store.put("a/b", b"1")
    store.put_if_absent("a/c", b"1")
    store.put_if_absent("a/c", b"2")
    store.writer("a/d").commit()
    store.writer("a/e").abort()
    assert files(tmp_path) == ["a/b", "a/c", "a/d"]


def test_failed_writes_leave_nothing(tmp_path):
    store = LocalStore(str(tmp_path))
    store.put("folder/child", b"")
    with pytest.raises(OSError, match="folder"):
        store.put("folder", b"a file cannot replace a directory")
    assert not store.put_if_absent("folder", b"")
    assert files(tmp_path) == ["folder/child"]


def test_failed_link_is_told(tmp_path, monkeypatch):
    def no_links(*_):
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(PermissionError):
        LocalStore(str(tmp_path)).put_if_absent("v/1", b"x")
    assert files(tmp_path) == []


def test_disk_full_leaves_nothing(tmp_path, monkeypatch):
    real = os.link

    def full(*arguments):
        real(*arguments)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        LocalStore(str(tmp_path)).put("x", b"1")
    assert not [name for name in files(tmp_path) if name.startswith(".tmp")]


def test_new_files_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        LocalStore(str(tmp_path)).put_if_absent("v/1", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "v/1").stat().st_mode) == 0o640


def open_descriptors():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_views_need_no_descriptor(tmp_path):
    store = LocalStore(str(tmp_path))
    store.put("f", b"x" * 100)
    before = open_descriptors()
    views = []
    for _ in range(50):
        reader = store.reader("f")
        views += reader.read_ranges([(0, 10), (50, 60)])
        reader.close()
    assert open_descriptors() == before
    assert all(view.to_pybytes() == b"x" * 10 for view in views)


def test_threads_may_share_a_reader(tmp_path):
    store = LocalStore(str(tmp_path))
    store.put("f", bytes(range(256)) * 1000)
    reader = store.reader("f")

    def read(seed):
        starts = range(seed, 200_000, 997)
        return all(
            view.to_pybytes() == bytes([start % 256, (start + 1) % 256])
            for start, view in zip(starts, reader.read_ranges([(start, start + 2) for start in starts]), strict=True)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(200)))
    reader.close()


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("/a/b", "/a/b"),
        ("/a/b/", "/a/b"),
        ("file:///a/b%20c/%C3%BC", "/a/b c/ü"),
        ("file:///a/b c", "/a/b c"),
        ("file://localhost/a", "/a"),
        ("/a/100%25", "/a/100%25"),
        ("/a/../b", "/b"),
    ],
)
def test_addresses(uri, expected):
    assert open_store(uri).uri == expected


def test_relative_addresses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert open_store("t.lance").uri == str(tmp_path / "t.lance")
    assert open_store(tmp_path / "t").uri == str(tmp_path / "t")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store("~/t").uri == str(tmp_path / "t")


def test_other_schemes_are_named():
    with pytest.raises(UnsupportedError, match="zz"):
        open_store("zz://h/x")


@pytest.mark.parametrize(
    "uri", ["", "file://host/x", "a\0b", "s3://", "s3:///x", "s3://b/../x", "s3://b//x", "s3://b/x?y=1", "memory://"]
)
def test_addresses_that_are_none(uri):
    with pytest.raises(InvalidInputError):
        open_store(uri)


def test_a_file_of_the_same_size_is_settled_in_its_place(tmp_path):
    store, file = LocalStore(str(tmp_path)), tmp_path / "versions/hint"
    store.settle("versions/hint", b"17")
    first = file.stat().st_ino
    store.put("versions/17", b"")
    assert store.settled("versions/hint") is None
    store.settle("versions/hint", b"18")
    assert store.settled("versions/hint") == b"18"
    assert file.stat().st_ino == first
    store.settle("versions/hint", b"123")
    assert store.settled("versions/hint") == b"123"
    assert [one.name for one in file.parent.iterdir() if one.name.startswith(".")] == []


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_file_that_others_know_is_not_written_over(tmp_path, link):
    store, theirs = LocalStore(str(tmp_path / "ours")), tmp_path / "theirs"
    theirs.write_bytes(b"17")
    (tmp_path / "ours").mkdir()
    link(theirs, tmp_path / "ours/hint")
    store.settle("hint", b"18")
    assert store.get("hint") == b"18"
    assert theirs.read_bytes() == b"17"


def test_sizes_of_files(tmp_path):
    store = LocalStore(str(tmp_path))
    store.put("a/one", b"12345")
    store.put("a/two", b"")
    assert store.sizes(["a/two", "a/one"]) == [0, 5]
    for path in ("a/three", "a", "a/one/four"):
        with pytest.raises(NotFoundError, match="file"):
            store.sizes([path])


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 60])
def test_the_kernel_is_told_of_near_ranges_as_one(tmp_path, monkeypatch, count):
    store, told = LocalStore(str(tmp_path)), []
    store.put("file", b"1")
    reader = store.reader("file")
    monkeypatch.setattr(local_reader, "_will_need", lambda _, ranges: told.extend(ranges))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        starts = rng.integers(0, count * local_reader._NEAR, count)
        ends = starts + rng.integers(0, 2 * local_reader._NEAR, count)
        expected = []
        for start, end in sorted(zip(starts.tolist(), ends.tolist(), strict=True)):
            if expected and start - expected[-1][1] <= local_reader._NEAR:
                expected[-1][1] = max(expected[-1][1], end)
            else:
                expected.append([start, end])
        told.clear()
        reader.announce(starts, ends)
        assert [list(one) for one in told] == expected


def test_a_few_ranges_are_announced_in_few_steps(tmp_path, calls_of):
    store = LocalStore(str(tmp_path))
    store.put("file", bytes(1 << 20))
    reader = store.reader("file")
    starts = np.array([800_000, 5, 300_000])
    assert calls_of(lambda: reader.announce(starts, starts + 100)) <= 20
    reader.announce(starts[:0], starts[:0])


def asked_for_room(monkeypatch, *, can):
    """Notes what room is asked for, of a file system that has it or not."""
    asked = []

    def reserve(descriptor, start, size):
        asked.append((start, size))
        return can and reserve_module.reserve(descriptor, start, size)

    monkeypatch.setattr(local, "reserve", reserve)
    return asked


@pytest.mark.parametrize("can", [True, False])
def test_large_writes_ask_for_room_first(tmp_path, monkeypatch, can):
    """Where a file system cannot give it nobody asks again; what is written is the same."""
    asked = asked_for_room(monkeypatch, can=can)
    writer = LocalStore(str(tmp_path)).writer("x")
    parts = [b"ab", bytes(range(256)) * 1024, b"c" * 1000, b"d" * (2 << 20)]
    for part in parts:
        writer.write(part)
    assert writer.commit() == (tmp_path / "x").stat().st_size
    assert (tmp_path / "x").read_bytes() == b"".join(parts)
    large = [(2, 1 << 18), (2 + (1 << 18) + 1000, 2 << 20)]
    assert asked == (large if can and sys.platform == "linux" else large[:1])


def test_files_of_large_pieces_ask_for_room_once(tmp_path, monkeypatch):
    asked = asked_for_room(monkeypatch, can=True)
    pieces = [b"a" * 200_000, memoryview(b"b" * 200_000)]
    assert LocalStore(str(tmp_path)).put_pieces_if_absent("x", pieces)
    assert (tmp_path / "x").read_bytes() == b"".join(pieces)
    assert LocalStore(str(tmp_path)).put_if_absent("y", b"small")
    assert asked == [(0, 400_000)]


def test_room_is_as_long_as_was_asked_for(tmp_path):
    """Nothing happens where the kernel has no room: what is written later tells."""
    with (tmp_path / "x").open("xb") as file:
        found = reserve_module.reserve(file.fileno(), 100, 5000)
        assert os.fstat(file.fileno()).st_size == (5100 if found else 0)
    with (tmp_path / "x").open("rb") as file:
        assert not reserve_module.reserve(file.fileno(), 0, 1)  # not open for writing


@pytest.mark.parametrize("can", [True, False])
def test_ranges_are_copied_one_behind_the_other(tmp_path, monkeypatch, can):
    monkeypatch.setattr(local_reader, "_CAN_COPY", can)
    store = LocalStore(str(tmp_path))
    data = bytes(range(256)) * 100
    store.put("f", data)
    reader = store.reader("f")
    ranges = [(5, 300), (1000, 1001), (20_000, len(data))]
    expected = b"".join(data[start:end] for start, end in ranges)
    into = bytearray(len(expected))
    reader.copy(memoryview(into), ranges)
    assert into == expected
    reader.close()
    into = bytearray(len(expected))
    assert reader.copy_present(memoryview(into), ranges) == 0, "of a closed file nothing is"
    reader.copy(memoryview(into), ranges)
    assert into == expected, "but it is still mapped"


def test_what_is_present_is_copied_at_once(tmp_path):
    store = LocalStore(str(tmp_path))
    store.put("f", bytes(range(100)))
    into = bytearray(12)
    ranges = [(3, 10), (50, 55)]
    count = store.reader("f").copy_present(memoryview(into), ranges)
    done = [one for start, end in ranges[:count] for one in range(start, end)]
    assert list(into[: len(done)]) == done
    assert not any(into[len(done) :])


def test_a_file_that_got_shorter_is_told(tmp_path):
    store = LocalStore(str(tmp_path))
    store.put("f", bytes(100_000))
    reader = store.reader("f")
    os.truncate(tmp_path / "f", 50_000)
    into = memoryview(bytearray(20_000))
    assert reader.copy_present(into, [(0, 10), (49_990, 59_990)]) <= 1
    with pytest.raises(NotFoundError, match="ends before byte 59990"):
        reader.copy(into, [(0, 10), (49_990, 59_990)])


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the system cannot be asked what is in memory")
@pytest.mark.parametrize("missing", [None, 0, 700, 999])
def test_what_seems_to_be_in_memory_is_not_announced(tmp_path, monkeypatch, missing):
    store, told, looked = LocalStore(str(tmp_path)), [], []
    store.put("f", bytes(10))
    reader = store.reader("f")

    def preadv(_descriptor, into, start, _flags):
        looked.append(start)
        if missing is not None and start >= missing << 20:
            raise BlockingIOError
        return len(into[0])

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(local_reader, "_will_need", lambda _, ranges: told.append(len(ranges)))
    starts = np.arange(1000) << 20
    reader.announce(starts, starts + 5)
    assert len(looked) <= 2 * local_reader._SAMPLE
    assert told == ([] if missing in (None, 999) else [1000]), "of few that are missing nobody may hear"
    looked.clear()
    told.clear()
    reader.announce(starts[: local_reader._MANY - 1], starts[: local_reader._MANY - 1] + 5)
    assert (looked, told) == ([], [local_reader._MANY - 1]), "few are announced as they are"
