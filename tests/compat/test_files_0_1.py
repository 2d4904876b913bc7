"""Files of version 0.1 as pylance writes them; what is left of nulls there is for pylance to say."""

import decimal

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CorruptDataError, LanceError, UnsupportedError
from lance_core.file.read.reader import DataFileReader
from lance_core.store.local import LocalStore

N = 300
RNG = np.random.default_rng(1)
SMALL = RNG.integers(0, 100, N)
TEXTS = [f"row {one} {'x' * (one % 30)}" for one in SMALL.tolist()]


def _leaves():
    kinds = (pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.timestamp("us", "UTC"), pa.duration("s"))
    yield from (pa.array(SMALL).cast(kind) for kind in (*kinds, pa.time64("ns")))
    yield pa.array(SMALL.astype(np.int32)).cast(pa.date32())
    yield from (pa.array(RNG.random(N).astype(kind)) for kind in (np.float16, np.float32, np.float64))
    yield pa.array(RNG.random(N) < 0.5)
    numbers = [decimal.Decimal(one) / 100 for one in SMALL.tolist()]
    yield from (pa.array(numbers, kind) for kind in (pa.decimal128(20, 2), pa.decimal256(40, 2)))
    yield pa.array([text.encode()[:5] for text in TEXTS], pa.binary(5))
    kinds = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    yield from (pa.array(TEXTS).cast(kind) for kind in kinds)
    floats = pa.array(RNG.random(N * 6, np.float32))
    yield pa.FixedSizeListArray.from_arrays(floats, 6)
    yield pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(floats, 2), 3)
    yield pa.array([f"kind {one % 9}" for one in range(N)]).dictionary_encode()
    yield (pa.array(np.arange(N) % 7)).dictionary_encode().cast(pa.dictionary(pa.uint8(), pa.int64()))
    yield pa.nulls(N)


def _nested():
    yield pa.array([list(range(one % 4)) for one in SMALL.tolist()])
    yield pa.array([[[text] * (i % 2)] * (i % 3) for i, text in enumerate(TEXTS)], pa.large_list(pa.list_(pa.string())))
    yield pa.array([{"a": i, "b": {"c": text}} for i, text in enumerate(TEXTS)])
    yield pa.array([[{"p": i, "q": [text]}] * (i % 3) for i, text in enumerate(TEXTS)])
    yield pa.array(
        [{"l": [[[1.0, i]]]} for i in range(N)], pa.struct([("l", pa.list_(pa.list_(pa.list_(pa.float32(), 2))))])
    )


ARRAYS = [*_leaves(), *_nested()]


def _masked(array, share):
    if pa.types.is_dictionary(array.type) or not share:
        return array
    return pa.array(array.to_pylist(), array.type, mask=np.random.default_rng(3).random(N) < share)


def _check(place):
    ours, theirs = lance_core.dataset(place), lance.dataset(place)
    expected = theirs.to_table()
    got = ours.to_table()
    got.validate(full=True)
    assert got.schema.equals(expected.schema)
    assert got.to_pydict() == expected.to_pydict()
    n = len(expected)
    for start, length, size in ((0, n, 50), (n // 3, n // 2, 1 << 20), (n - 1, 1, 10), (5, 17, 4)):
        part = ours.to_table(offset=start, limit=length, batch_size=size)
        part.validate(full=True)
        assert part.to_pydict() == expected.slice(start, length).to_pydict()
    for count in (1, 7, 90):
        rows = np.random.default_rng(4).integers(0, n, count).tolist()
        taken = ours.take(rows)
        taken.validate(full=True)
        assert taken.to_pydict() == expected.take(rows).to_pydict()


@pytest.mark.parametrize("share", [0, 0.3, 1])
@pytest.mark.parametrize("group", [1024, 70])
@pytest.mark.parametrize("array", ARRAYS, ids=[f"{i}-{a.type}" for i, a in enumerate(ARRAYS)])
def test_types(tmp_path, array, group, share):
    table = pa.table({"c": _masked(array, share)})
    lance.write_dataset(table, tmp_path / "t", data_storage_version="legacy", max_rows_per_group=group)
    _check(tmp_path / "t")


def test_columns_of_many_kinds_in_several_files(tmp_path):
    place = tmp_path / "t"
    table = pa.table({f"c{index}": array for index, array in enumerate(ARRAYS)})
    lance.write_dataset(table, place, data_storage_version="legacy", max_rows_per_group=64, max_rows_per_file=128)
    _check(place)
    lance.dataset(place).add_columns({"twice": "c2 * 2"})
    lance.dataset(place).drop_columns(["c0", "c7"])
    _check(place)
    lance_core.dataset(place).delete("c2 > 80")
    lance.dataset(place).delete("c2 < 20")
    _check(place)
    ours, theirs = lance_core.dataset(place), lance.dataset(place)
    for columns in (["twice", "c16"], ["c26"], ["c20"]):
        assert ours.to_table(columns=columns).to_pydict() == theirs.to_table(columns=columns).to_pydict()
    assert ours.count_rows("c2 > 50") == theirs.count_rows("c2 > 50") > 0
    lance_core.write_dataset(ours.to_table(), place, mode="append")
    _check(place)


class _Bytes:
    def __init__(self, data):
        self._buffer = pa.py_buffer(data)
        self.size = len(data)

    def read_ranges(self, ranges):
        return [self._buffer.slice(start, end - start) for start, end in ranges]


def _read(data):
    reader = DataFileReader(_Bytes(data), path="x.lance")
    columns = {one.id: one.id for one in reader.schema.walk()}
    for batch in reader.scan(reader.schema, columns, start=0, end=min(reader.num_rows, 10 * N), batch_size=250):
        batch.validate()
    reader.take(reader.schema, columns, np.array([0, 3, 200])).validate()


def _is_refused(data):
    """True if reading fails as it should; a changed value goes unnoticed, there are no checksums."""
    try:
        _read(data)
    except LanceError as error:
        return error.path == "x.lance"
    return False


def test_damaged_files(tmp_path):
    table = pa.table({f"c{index}": array for index, array in enumerate(ARRAYS)})
    lance.write_dataset(table, tmp_path / "t", data_storage_version="legacy", max_rows_per_group=64)
    path = next((tmp_path / "t" / "data").iterdir())
    content = path.read_bytes()
    assert DataFileReader(LocalStore(str(path.parent)).reader(path.name), path="x").version == "0.1"
    _read(content)
    positions = [
        *RNG.integers(0, len(content) * 8, 60),
        *RNG.integers((len(content) - 4000) * 8, len(content) * 8, 140),
    ]
    refused = 0
    for position in map(int, positions):
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << position % 8
        refused += _is_refused(bytes(damaged))
    assert refused > 20
    for size in RNG.integers(0, len(content), 20).tolist():
        with pytest.raises(CorruptDataError):
            _read(content[:size])


def test_dictionaries_move_along_when_both_change_the_table(tmp_path):
    """The manifest holds their values: each one who commits must copy them."""
    n = 300
    words = pa.array([f"kind {one % 9}" for one in range(n)])
    struct = pa.struct([("x", pa.dictionary(pa.int8(), pa.large_binary()))])
    columns = {
        "id": pa.array(range(n)),
        "d": words.dictionary_encode(),
        "n": pa.array(np.arange(n) % 7).dictionary_encode().cast(pa.dictionary(pa.uint8(), pa.int64())),
        "s": pa.array([{"x": f"v{one % 5}".encode()} for one in range(n)], struct),
    }
    place = tmp_path / "t"
    lance.write_dataset(pa.table(columns), place, data_storage_version="legacy", max_rows_per_file=128)
    rows = lance.dataset(place).to_table().to_pylist()
    lance_core.dataset(place).delete("id % 3 = 0")
    _check(place)
    lance.dataset(place).delete("id % 5 = 0")
    ours = lance_core.dataset(place)
    ours.delete("id < 10")
    ours.delete("id < 20")
    ours.tags.create("kept", ours.version)
    _check(place)
    expected = [row for row in rows if row["id"] % 3 and row["id"] % 5 and row["id"] >= 20]
    assert lance.dataset(place).to_table().to_pylist() == expected
    lance_core.dataset(place, version=1).restore()
    assert lance.dataset(place).to_table().to_pylist() == rows
    lance_core.dataset(place).drop_columns(["d"])
    _check(place)
    assert lance.dataset(place).schema.names == ["id", "n", "s"]
    _check_other_dictionary_is_refused(place)


def _check_other_dictionary_is_refused(place):
    ours = lance_core.dataset(place)
    schema = pa.schema([pa.field("id", pa.int64()), ("n", pa.dictionary(pa.uint8(), pa.int64()))])
    metadata = [fragment.metadata for fragment in ours.get_fragments()]
    operation = lance_core.LanceOperation.Overwrite(schema, metadata)
    with pytest.raises(UnsupportedError, match=r"'n'.*dictionary"):
        lance_core.LanceDataset.commit(ours, operation, read_version=ours.version)
