"""Files of a table that are far too large, or no files at all: refused at once, without being read or waited for."""

import os
import socket
import struct
import threading
import time

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CorruptDataError, LanceError, NotFoundError, UnsupportedError
from lance_core.file.read.reader import DataFileReader
from lance_core.format.file.checksums import decode_trailer
from lance_core.index.column import find_column
from lance_core.index.files import SegmentFiles
from lance_core.index.scalar.zone_map import ZONE_MAP
from lance_core.store.local import LocalStore
from lance_core.testing.memory import forget_most_memory, most_memory

GIB = 1 << 30
HINT = "_versions/latest_version_hint.json"
MAX_SECONDS, MAX_BYTES = 2.0, 64 << 20


@pytest.fixture
def root(tmp_path):
    """A table with a file of each kind."""
    root = tmp_path / "t"
    dataset = lance_core.write_dataset(pa.table({"x": [1, 2, 3, 4]}), root)
    dataset.create_scalar_index("x", "ZONEMAP")
    dataset.delete("x = 1")
    dataset.tags.create("tag", dataset.version)
    dataset.create_branch("branch")
    return root


def newest(root):
    return min((root / "_versions").glob("*.manifest"))


def read_transaction(root):
    dataset = lance_core.dataset(root)
    return LocalStore(str(root)).get(f"_transactions/{dataset.snapshot.manifest.transaction_file}")


FILES = {
    "manifest": (newest, lance_core.dataset),
    "tag": (lambda root: root / "_refs/tags/tag.json", lambda root: lance_core.dataset(root, "tag")),
    "branch": (lambda root: root / "_refs/branches/branch.json", lambda root: lance_core.dataset(root).branches.list()),
    "transaction": (lambda root: max((root / "_transactions").iterdir(), key=os.path.getmtime), read_transaction),
    "deletions": (lambda root: next((root / "_deletions").iterdir()), lambda root: lance_core.dataset(root).to_table()),
    "data": (lambda root: next((root / "data").iterdir()), lambda root: lance_core.dataset(root).to_table()),
    "zone map": (
        lambda root: next((root / "_indices").rglob("*.lance")),
        lambda root: lance_core.dataset(root).to_table(filter="x > 1"),
    ),
}
READ_AS_A_WHOLE = ("manifest", "tag", "branch", "transaction", "deletions")


def sparse(path):
    path.unlink()
    path.touch()
    os.truncate(path, 8 * GIB)


def fifo(path):
    path.unlink()
    os.mkfifo(path)


def directory(path):
    path.unlink()
    path.mkdir()


def device(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def unix_socket(path):
    path.unlink()
    at = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as found:
            found.bind(f"/proc/self/fd/{at}/{path.name}")  # the whole path would be too long
    finally:
        os.close(at)


NO_FILES = {"FIFO": fifo, "directory": directory, "device": device, "socket": unix_socket}


def in_time(work):
    """What work returns or raises; it may neither block nor take much memory."""
    forget_most_memory()
    before, result = most_memory(), []

    def run():
        started = time.process_time()
        try:
            result.append(work())
        except (LanceError, OSError) as error:
            result.append(error)
        result.append(time.process_time() - started)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout=30)
    assert not thread.is_alive(), "it blocks"
    assert most_memory() - before < MAX_BYTES
    assert result[1] < MAX_SECONDS
    return result[0]


@pytest.mark.parametrize("name", FILES)
def test_sparse_files_of_eight_gibibytes_are_refused(root, name):
    find, work = FILES[name]
    sparse(find(root))
    error = in_time(lambda: work(root))
    assert isinstance(error, UnsupportedError if name in READ_AS_A_WHOLE else CorruptDataError)
    if name in READ_AS_A_WHOLE:
        assert "LANCE_CORE_MAX_" in str(error)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_refused_at_once(root, name, kind):
    find, work = FILES[name]
    NO_FILES[kind](find(root))
    error = in_time(lambda: work(root))
    assert isinstance(error, CorruptDataError | OSError), error
    if kind != "socket":  # which the system itself refuses to open
        assert f"found a {kind}" in str(error)
    report = in_time(lambda: lance_core.dataset(root, version=1).verify())
    assert not isinstance(report, OSError)


def hints():
    number = 1 << 63
    yield "sparse", sparse
    yield from NO_FILES.items()
    yield "a link to itself", lambda path: (path.unlink(), path.symlink_to(path))
    yield "a link to nothing", lambda path: (path.unlink(), path.symlink_to("/nothing"))
    yield "nobody may read it", lambda path: path.chmod(0)
    for text in (b"", b"\0" * 40, b"{}", b'{"version":1}', b'{"version":99}', b'{"version":0}', b'{"version":-1}'):
        yield repr(text), lambda path, text=text: path.write_bytes(text)
    yield "a detached version", lambda path: path.write_bytes(b'{"version":%d}' % (number + 5))
    yield "more than 64 bits", lambda path: path.write_bytes(b'{"version":' + b"9" * 30 + b"}")
    yield "deep", lambda path: path.write_bytes(b"[" * 1000)
    yield "no text", lambda path: path.write_bytes(b"\xff\xfe" * 20)


@pytest.mark.parametrize("damage", [damage for _, damage in hints()], ids=[name for name, _ in hints()])
def test_a_bad_hint_harms_nobody(root, damage):
    hint, version = root / HINT, lance_core.dataset(root).version
    hint.unlink(missing_ok=True)
    hint.write_bytes(b'{"version":1}')
    damage(hint)
    opened = in_time(lambda: lance_core.dataset(root))
    assert opened.version == version
    written = in_time(lambda: lance_core.write_dataset(pa.table({"x": [5]}), root, mode="append"))
    assert written.version == version + 1
    assert in_time(lambda: lance_core.dataset(root).count_rows()) == 4


def test_files_without_end_are_not_read_to_it(tmp_path, monkeypatch):
    """A file that grows while it is read, as those of /proc do, which say that they are empty."""
    store, path = LocalStore(str(tmp_path)), tmp_path / "_refs" / "tags" / "x.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    monkeypatch.setattr(os, "read", lambda _, size: b"x" * min(size, 1 << 16))
    with pytest.raises(UnsupportedError, match="LANCE_CORE_MAX_REF_BYTES"):
        store.get("_refs/tags/x.json")


def test_zone_maps_of_many_zones_are_not_read(root, monkeypatch):
    monkeypatch.setattr(DataFileReader, "num_rows", property(lambda _: 1 << 40))
    dataset = lance_core.dataset(root)
    (index,) = dataset.snapshot.manifest.indices
    with pytest.raises(UnsupportedError, match="LANCE_CORE_MAX_ZONES"):
        ZONE_MAP.open(
            SegmentFiles.of(dataset.snapshot.store, index), find_column(dataset.snapshot.manifest.schema, "x")
        )


def test_checksums_may_not_be_larger_than_anybody_makes_them():
    def trailer(size, block_size):
        num_blocks = -(-size // block_size)
        end = size + 4 * num_blocks + 24
        data = struct.pack("<IIII8s", 0, 0, block_size, 0, b"LNCcrc32")
        return memoryview(data), (size, end), end

    with pytest.raises(UnsupportedError, match="LANCE_CORE_MAX_CHECKSUM_BYTES"):
        decode_trailer(*trailer(1 << 42, 1 << 12))
    with pytest.raises(CorruptDataError):
        decode_trailer(*trailer(1 << 30, 1 << 3))
    assert decode_trailer(*trailer(1 << 30, 1 << 12)) is not None


@pytest.mark.parametrize("table", ["column", "global buffer"])
def test_tables_of_many_entries_are_not_read(tmp_path, table):
    """A sparse file whose footer claims 2^32 - 1 columns or global buffers, and has the room for them."""
    path = tmp_path / "x.lance"
    many = (1 << 32) - 1
    size = 16 * many + (1 << 20)
    footer = struct.pack("<QQQIIHH4s", 0, 0, 16 * many if table == "column" else 0, 1, 1, 2, 1, b"LANC")
    numbers = (1, many) if table == "column" else (many, 1)
    footer = footer[:24] + struct.pack("<II", *numbers) + footer[32:]
    path.touch()
    os.truncate(path, size)
    with path.open("r+b") as file:
        file.seek(size - len(footer))
        file.write(footer)
    store = LocalStore(str(tmp_path))
    error = in_time(lambda: DataFileReader(store.reader(path.name), path=path.name))
    assert isinstance(error, UnsupportedError | CorruptDataError), error


def test_missing_files_are_still_missing(tmp_path):
    store = LocalStore(str(tmp_path))
    for work in (store.get, store.reader):
        with pytest.raises(NotFoundError):
            work("x")
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(NotFoundError):
            work("file/x")
