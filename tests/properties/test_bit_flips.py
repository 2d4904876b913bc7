"""One bit of a file that lance_core wrote is flipped: the same is read, or an error of ours is raised.

LANCE_TESTS=deep flips ten times as many bits; python benchmarks/bit_flips.py prints the shares beside pylance's.
"""

import os
import random
from functools import cache
from itertools import count

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import LanceError, UnsupportedError
from lance_core.file.read.reader import DataFileReader
from lance_core.file.write.writer import check_schema
from lance_core.format.schema import Schema
from lance_core.format.table.refs import decode_branch, decode_tag
from lance_core.format.table.transaction import decode_transaction
from lance_core.store.memory import memory_store
from lance_core.testing.types import SAMPLES

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"
NUM_FLIPS = 3000 if IS_DEEP else 300
VERSIONS = ("2.0", "2.1", "2.2")
N = 100
_NUMBERS = count()


class Memory:
    """A file in memory."""

    def __init__(self, data):
        self._buffer = pa.py_buffer(data)
        self.size = len(data)

    def read_ranges(self, ranges):
        assert all(0 <= start <= end <= self.size for start, end in ranges), "read outside the file"
        return [self._buffer.slice(start, end - start) for start, end in ranges]

    def close(self):
        pass


class Mapped(Memory):
    """The same, as if the file were mapped."""

    @property
    def mapped(self):
        return self._buffer

    def announce(self, starts, ends):
        pass


def flips(size, seed, number=NUM_FLIPS):
    """Bits of a file: all if there are few, else some at random."""
    if 8 * size <= number:
        return range(8 * size)
    return random.Random(seed).sample(range(8 * size), number)


def flipped(data, bit):
    changed = bytearray(data)
    changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)


def outcomes(data, read, seed, number=NUM_FLIPS):
    """How often the same is read, and how often an error is raised; anything else fails."""
    expected, found = read(data), {"same": 0, "error": 0}
    for bit in flips(len(data), seed, number):
        try:
            result = read(flipped(data, bit))
        except LanceError:
            found["error"] += 1
            continue
        except BaseException as error:
            error.add_note(f"bit {bit} of {8 * len(data)}")
            raise
        assert result == expected, f"other values with bit {bit} of {8 * len(data)}"
        found["same"] += 1
    return found


@cache
def file_of_all_types(version):
    """A data file with a column of each type that files of a version can hold."""
    columns = {}
    for sample in SAMPLES:
        is_whole = "packed" in sample.name or ("struct" in sample.name and version == "2.0")
        table = sample.table(N, nulls="some" if len(columns) % 2 and not is_whole else "none")
        try:
            check_schema(Schema.from_arrow(table.schema), version=version)
        except UnsupportedError:
            continue
        if sample.name == "empty struct":  # stands alone
            continue
        columns[sample.name] = (table.schema.field("c").with_name(sample.name), table["c"])
    assert len(columns) > 40
    table = pa.table([array for _, array in columns.values()], schema=pa.schema([one for one, _ in columns.values()]))
    _, store = table_in_memory(table, version)
    return store.get(the_file(store, "data"))


def table_in_memory(table, version="2.2", **options):
    uri = f"memory://flips-{next(_NUMBERS)}"
    lance_core.write_dataset(table, uri, data_storage_version=version, **options)
    return uri, memory_store(uri)


def the_file(store, folder):
    (info,) = store.list(folder)
    return info.path


def scan(kind):
    def read(data):
        reader = DataFileReader(kind(data), path="x.lance")
        batches = reader.scan(reader.schema, reader.column_numbers, start=0, end=reader.num_rows, batch_size=64)
        return pa.Table.from_batches(list(batches), schema=reader.schema.to_arrow())

    return read


@pytest.mark.parametrize("kind", [Mapped, Memory])
@pytest.mark.parametrize("version", VERSIONS)
def test_scans_of_data_files(version, kind):
    number = NUM_FLIPS if kind is Mapped else NUM_FLIPS // 3
    found = outcomes(file_of_all_types(version), scan(kind), version, number)
    assert found["error"] > 0.9 * number  # the rest hit padding behind the checksums, or what leads to them


@pytest.mark.parametrize("version", VERSIONS)
def test_small_files(version):
    """Most of such a file is metadata and checksums; in the long run each bit of it."""
    _, store = table_in_memory(pa.table({"x": range(50), "s": [f"text {i}" for i in range(50)]}), version)
    found = outcomes(store.get(the_file(store, "data")), scan(Mapped), version, number=1 << 20 if IS_DEEP else 1500)
    assert found["error"] > 0.9 * sum(found.values())


@pytest.mark.parametrize("version", VERSIONS)
def test_takes_of_data_files(version):
    """Blocks of other rows may be damaged."""

    def read(data):
        reader = DataFileReader(Mapped(data), path="x.lance")
        return reader.take(reader.schema, reader.column_numbers, np.array([0, 7, N - 1]))

    assert outcomes(file_of_all_types(version), read, version, NUM_FLIPS // 3)["error"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("damage", [b"\0" * 64, b"\xff" * 8, None], ids=["64 zeros", "8 times 0xFF", "truncated"])
def test_larger_damage_of_data_files(version, damage):
    data, rng, read = file_of_all_types(version), random.Random(version), scan(Mapped)
    expected = read(data)
    for _ in range(NUM_FLIPS // 5):
        at = rng.randrange(len(data))
        changed = data[:at] if damage is None else data[:at] + damage + data[at + len(damage) :]
        try:
            assert read(changed[: len(data)]) == expected, at
        except LanceError:
            continue


def contents(uri):
    """All that a table says."""
    dataset = lance_core.dataset(uri)
    transaction = dataset.read_transaction(dataset.version)
    return dataset.version, dataset.schema, dataset.to_table(with_row_id=True), transaction


def outcomes_in_table(uri, store, path, read, seed, *, number=NUM_FLIPS):
    data = store.get(path)

    def read_with(changed):
        store.put(path, changed)
        return read(uri)

    try:
        return outcomes(data, read_with, seed, number)
    finally:
        store.put(path, data)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["whole", "filtered", "deleted", "window", "rows"])
def test_tables(version, kind):
    """All ways to read a table, which are other ways through its files."""
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(800 * 16), pa.float32()), 16)
    columns = {"x": range(800), "s": [f"text {i * 7 % 97}" for i in range(800)], "v": vectors}
    uri, store = table_in_memory(pa.table(columns), version)
    path = the_file(store, "data")
    if kind == "deleted":
        lance_core.dataset(uri).delete("x % 3 = 0")

    def read(address):
        dataset = lance_core.dataset(address)
        match kind:
            case "filtered":
                return dataset.to_table(filter="x % 100 = 5")
            case "window":
                return dataset.to_table(limit=20, offset=300)
            case "rows":
                return dataset.take(list(range(0, 800, 11)))
            case _:
                return dataset.to_table()

    assert outcomes_in_table(uri, store, path, read, f"{version} {kind}", number=NUM_FLIPS // 3)["error"]


@pytest.mark.parametrize("stable", [False, True])
def test_manifests(stable):
    table = pa.table({"x": range(30), "s": [f"text {i}" for i in range(30)]})
    uri, store = table_in_memory(table, enable_stable_row_ids=stable, max_rows_per_file=10)
    lance_core.dataset(uri).delete("x = 3")
    lance_core.dataset(uri).create_scalar_index("x", "ZONEMAP")
    path = min(info.path for info in store.list("_versions") if info.path.endswith(".manifest"))
    found = outcomes_in_table(uri, store, path, contents, f"{stable}")
    assert found["error"] > 0.95 * NUM_FLIPS


@pytest.mark.parametrize(("kind", "rows"), [("arrow", "x < 40"), ("bin", "x % 3 > 0")])
def test_deletion_files(kind, rows):
    uri, store = table_in_memory(pa.table({"x": range(10_000)}))
    lance_core.dataset(uri).delete(rows)
    path = the_file(store, "_deletions")
    assert path.endswith(kind)
    found = outcomes_in_table(uri, store, path, lambda uri: lance_core.dataset(uri).to_table(), kind)
    assert found["error"] > 0.9 * NUM_FLIPS


def test_transaction_files():
    uri, store = table_in_memory(pa.table({"x": range(5)}))
    lance_core.write_dataset(pa.table({"x": [1]}), uri, mode="append", transaction_properties={"who": "me"})
    path = max(info.path for info in store.list("_transactions"))
    found = outcomes(store.get(path), decode_transaction, "t")
    assert found["error"] > 0.7 * sum(found.values())


@pytest.mark.parametrize("kind", ["tags", "branches"])
def test_refs(kind):
    uri, store = table_in_memory(pa.table({"x": range(5)}))
    dataset = lance_core.dataset(uri)
    dataset.tags.create("one", 1)
    dataset.create_branch("one")
    decode = {"tags": decode_tag, "branches": decode_branch}[kind]
    data = store.get(f"_refs/{kind}/one.json")
    found = outcomes(data, lambda changed: decode(changed, "one"), kind, number=1 << 20)
    assert found["error"] > 0.8 * sum(found.values())


def test_blob_files():
    """Packed and dedicated files; all of their bits belong to blobs."""
    field = lance_core.blob_field("b", inline_size_threshold=4, dedicated_size_threshold=12)
    blobs = [bytes([65 + number]) * size for number, size in enumerate([3, 6, 10, 13, 20])]
    uri, store = table_in_memory(pa.table([lance_core.blob_array(blobs)], schema=pa.schema([field])))
    paths = sorted(info.path for info in store.list("data") if info.path.endswith(".blob"))
    for path in paths:
        read = lambda uri: lance_core.dataset(uri).to_table(blob_handling="all_binary")  # noqa: E731 - used once
        assert outcomes_in_table(uri, store, path, read, path)["same"] == 0
    assert len(paths) == 3


def test_hints(tmp_path):
    for i in range(12):
        lance_core.write_dataset(pa.table({"x": [i]}), tmp_path / "t", mode="append" if i else "create")
    (path,) = tmp_path.rglob("latest_version_hint.json")
    data = path.read_bytes()

    def read(changed):
        path.write_bytes(changed)
        return lance_core.dataset(tmp_path / "t").version

    assert outcomes(data, read, "hint") == {"same": 8 * len(data), "error": 0}
