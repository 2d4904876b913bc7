"""Tables with checksums are like others for pylance: it reads them, changes them, and keeps what it does not know."""

import json
import struct
import zlib

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

import lance_core
from lance_core.errors import CorruptDataError
from lance_core.store.local import LocalReader

VERSIONS = ("2.0", "2.1", "2.2")
N = 12_000


def rows(start, number=N):
    ids = np.arange(start, start + number)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array((ids[:, None] * np.ones(24)).ravel(), pa.float32()), 24)
    return pa.table({"id": ids, "name": [f"name {i % 700}" for i in ids], "vector": vectors})


def has_checksums(path):
    """Whether a data file has them, by the description of the format alone."""
    data = path.read_bytes()
    start, size = struct.unpack("<QQ", data[-56:-40])
    buffer, tail = data[start : start + size], data[(start + size + 63) // 64 * 64 :]
    if buffer[-8:] != b"LNCcrc32":
        return False
    first_sum, second_sum, width, num_tail = struct.unpack("<IIII", buffer[-24:-8])
    num_data = -(-start // width)
    assert size == 4 * (num_data + num_tail) + 24
    sums = struct.unpack(f"<{num_data + num_tail}I", buffer[:-24])
    blocks = [data[:start][at : at + width] for at in range(0, start, width)]
    blocks += [tail[at : at + width] for at in range(0, len(tail), width)]
    assert [zlib.crc32(block) for block in blocks] == list(sums)
    assert first_sum == zlib.crc32(buffer[: 4 * num_data])
    assert second_sum == zlib.crc32(buffer[4 * num_data : -24] + buffer[-16:])
    return True


def agree(path, version=None):
    ours, theirs = lance_core.dataset(path, version=version), lance.dataset(path, version=version)
    found = theirs.to_table()
    assert ours.to_table() == found
    assert ours.count_rows() == theirs.count_rows() == found.num_rows
    assert theirs.schema.metadata in (None, {})
    return found.num_rows


@pytest.mark.parametrize("version", VERSIONS)
def test_pylance_reads_and_extends(tmp_path, version):
    path = str(tmp_path / "t")
    lance_core.write_dataset(rows(0), path, data_storage_version=version)
    lance_core.dataset(path).delete("id < 10")
    lance_core.dataset(path).delete("id % 2 = 1 and id < 11000")
    names = [file.suffix for file in (tmp_path / "t" / "_deletions").iterdir()]
    assert sorted(names) == [".arrow", ".bin"]
    (data_file,) = (tmp_path / "t" / "data").iterdir()
    assert has_checksums(data_file)
    left = agree(path)
    theirs = lance.dataset(path)
    assert theirs.take([0, 5, left - 1]).num_rows == 3
    assert theirs.to_table(filter="id > 11000").num_rows == 999
    assert [type(one.operation).__name__ for one in theirs.get_transactions()] == ["Delete", "Delete", "Overwrite"]
    steps = [
        lambda table: table.insert(rows(N, 100), mode="append"),
        lambda table: table.delete("id = 20"),
        lambda table: table.update({"name": "'new'"}, where="id < 40"),
        lambda table: table.add_columns({"twice": "id * 2"}),
        lambda table: table.optimize.compact_files(),
        lambda table: table.restore(),
    ]
    for number, step in enumerate(steps):
        opened = lance.dataset(path, version=2) if number == len(steps) - 1 else lance.dataset(path)
        step(opened)
        agree(path)
        lance_core.write_dataset(rows(50_000 + number, 1).select(["id"]), path, mode="append")
        agree(path)
        if number == 3:
            lance_core.dataset(path).optimize.compact_files()
            agree(path)
    for one in lance_core.dataset(path).versions():
        agree(path, one["version"])
        lance.dataset(path).read_transaction(one["version"])


@pytest.mark.parametrize("version", VERSIONS)
def test_pylance_reads_the_file_alone(tmp_path, version):
    lance_core.write_dataset(rows(0), tmp_path / "t", data_storage_version=version)
    (path,) = (tmp_path / "t" / "data").iterdir()
    reader = LanceFileReader(str(path))
    assert reader.read_all().to_table() == rows(0)
    assert reader.take_rows([3, 11_000]).to_table()["id"].to_pylist() == [3, 11_000]
    assert reader.metadata().schema.metadata in (None, {})


def test_blob_files(tmp_path):
    """Their checksums are in the data file, by the description of the format alone; pylance reads past them."""
    field = lance_core.blob_field("b", inline_size_threshold=9, dedicated_size_threshold=100_000)
    blobs = [b"ten bytes.", b"in line", b"z" * 99_999, b"a file of its own" * 10_000, None]
    table = pa.table([lance_core.blob_array(blobs)], schema=pa.schema([field]))
    path = tmp_path / "t"
    lance_core.write_dataset(table, path)
    (data_file,) = (path / "data").glob("*.lance")
    data = data_file.read_bytes()
    assert has_checksums(data_file)
    start, size = struct.unpack("<QQ", data[-72:-56])
    buffer = data[start : start + size]
    width, count = struct.unpack("<II", buffer[-16:-8])
    assert (width, count, buffer[-8:]) == (1 << 16, 2, b"LNCblobs")
    expected, sizes = [], []
    for number in (1, 2):
        content = (data_file.with_suffix("") / f"{f'{number:032b}'[::-1]}.blob").read_bytes()
        expected += [zlib.crc32(content[at : at + width]) for at in range(0, len(content), width)]
        sizes.append(len(content))
    assert buffer[:-16] == struct.pack(f"<{len(expected)}I", *expected) + struct.pack("<QQ", *sizes)
    theirs = lance.dataset(str(path))
    assert theirs.to_table(blob_handling="all_binary")["b"].to_pylist() == blobs
    assert [one and one.read() for one in theirs.take_blobs("b", indices=range(5))] == blobs
    theirs.delete("b is null")
    lance.write_dataset(table.slice(0, 4), str(path), mode="append")
    theirs = lance.dataset(str(path))
    theirs.optimize.compact_files()
    assert lance_core.dataset(path).to_table(blob_handling="all_binary")["b"].to_pylist() == blobs[:4] * 2


@pytest.mark.parametrize("version", VERSIONS)
def test_files_of_pylance_have_none(tmp_path, version):
    lance.write_dataset(rows(0), tmp_path / "t", data_storage_version=version)
    (path,) = (tmp_path / "t" / "data").iterdir()
    assert not has_checksums(path)
    assert agree(str(tmp_path / "t")) == N


def test_tags_and_branches(tmp_path):
    path = str(tmp_path / "t")
    ours = lance_core.write_dataset(rows(0, 10), path)
    ours.tags.create("first", 1)
    ours.create_branch("side")
    theirs = lance.dataset(path)
    assert theirs.tags.list()["first"]["version"] == 1
    assert "side" in theirs.branches.list()
    assert lance.dataset(path, version="first").count_rows() == 10
    theirs.insert(rows(10, 5), mode="append")
    theirs.tags.update("first", 2)
    content = json.loads((tmp_path / "t" / "_refs" / "tags" / "first.json").read_text())
    assert "checksum" not in content  # of a writer that knows none, so there is none that could be wrong
    assert lance_core.dataset(path, version="first").count_rows() == 15
    theirs.tags.create("theirs", 2)
    lance_core.dataset(path).tags.update("theirs", 1)
    assert lance.dataset(path, version="theirs").count_rows() == 10


def test_many_columns(tmp_path):
    """More metadata than what is read with the end of the file."""
    table = pa.table({f"column {i}": pa.array([i, i + 1, None]) for i in range(1500)})
    lance_core.write_dataset(table, tmp_path / "t")
    (path,) = (tmp_path / "t" / "data").iterdir()
    assert has_checksums(path)
    assert path.stat().st_size > 1 << 17
    assert lance.dataset(tmp_path / "t").to_table() == lance_core.dataset(tmp_path / "t").to_table() == table
    data = bytearray(path.read_bytes())
    for at in range(100, len(data), 39_989):
        data[at] ^= 4
        path.write_bytes(data)
        with pytest.raises(CorruptDataError):
            lance_core.dataset(tmp_path / "t").to_table()
        data[at] ^= 4
    path.write_bytes(data)
    reader = LocalReader(str(path))
    assert lance_core.dataset(tmp_path / "t").to_table(columns=["column 7"]).num_rows == 3
    reader.close()


def test_copied_pages_are_looked_at(tmp_path):
    """Compaction that moves pages as they are must not give damaged ones new checksums."""
    path = tmp_path / "t"
    for i in range(3):
        lance_core.write_dataset(rows(N * i), path, mode="append" if i else "create")
    file = min((path / "data").iterdir())
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptDataError):
        lance_core.dataset(path).optimize.compact_files()
    assert lance_core.dataset(path).version == 3
