"""Files of version 2.0 as pylance writes them: as a whole, by ranges, by rows, by column; and tables that hold them."""

import decimal

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter

import lance_core
from lance_core.errors import CorruptDataError, InvalidInputError, LanceError
from lance_core.file.read.reader import DataFileReader
from lance_core.store.local import LocalStore

N = 700
RNG = np.random.default_rng(20)


def _numbers():
    small = RNG.integers(0, 100, N)
    yield from (pa.array(small).cast(kind) for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.uint32()))
    yield from (pa.array(RNG.integers(-(1 << 62), 1 << 62, N)), pa.array(small).cast(pa.uint64()))
    yield from (pa.array(RNG.random(N).astype(kind)) for kind in (np.float16, np.float32, np.float64))
    yield pa.array(RNG.random(N) < 0.5)
    yield from (pa.array(small).cast(pa.timestamp(unit, zone)) for unit in ("s", "us") for zone in (None, "+05:30"))
    yield from (pa.array(small.astype(np.int32)).cast(kind) for kind in (pa.date32(), pa.time32("ms")))
    yield from (pa.array(small).cast(kind) for kind in (pa.time64("ns"), pa.duration("s")))
    yield pa.array(small.astype(np.int32)).cast(pa.date32()).cast(pa.date64())
    numbers = [decimal.Decimal(one) / 100 for one in RNG.integers(0, 1 << 40, N).tolist()]
    yield from (pa.array(numbers, kind) for kind in (pa.decimal128(20, 2), pa.decimal256(40, 2)))
    yield pa.array([b"%07d" % one for one in small.tolist()], pa.binary(7))


def _strings():
    texts = [f"row {one} {'x' * (one % 30)}" for one in RNG.integers(0, 10**6, N).tolist()]
    kinds = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    yield from (pa.array(texts).cast(kind) for kind in kinds)
    yield from (pa.array([f"kind {one % 9}" for one in range(N)]).cast(kind) for kind in kinds)
    yield pa.array([""] * N)


def _vectors():
    floats = pa.array(RNG.random(N * 6, np.float32))
    yield from (pa.FixedSizeListArray.from_arrays(floats.slice(0, N * size), size) for size in (1, 6))
    yield pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(floats, 2), 3)
    yield pa.FixedSizeListArray.from_arrays(pa.array(RNG.random(N * 5) < 0.5), 5)
    items = pa.array([None if one % 7 == 0 else one for one in range(N * 3)])
    yield from (pa.FixedSizeListArray.from_arrays(items.cast(kind), 3) for kind in (pa.int16(), pa.timestamp("us")))
    yield pa.FixedSizeListArray.from_arrays(items.cast(pa.bool_()), 3)


def _dictionaries():
    words = pa.array([f"kind {one % 9}" for one in range(N)])
    for values in (words, words.cast(pa.large_string()), pa.array(np.arange(N) % 7), pa.array(RNG.random(N) // 0.1)):
        yield from (
            values.dictionary_encode().cast(pa.dictionary(key, values.type)) for key in (pa.int8(), pa.uint16())
        )


LEAVES = [*_numbers(), *_strings(), *_vectors(), *_dictionaries(), pa.nulls(N)]
NESTED = [
    pa.list_(pa.int32()),
    pa.large_list(pa.list_(pa.string())),
    pa.list_(pa.list_(pa.list_(pa.bool_()))),
    pa.list_(pa.list_(pa.float32(), 2)),
    pa.list_(pa.timestamp("us", "UTC")),
    pa.list_(pa.dictionary(pa.int16(), pa.string())),
    pa.list_(pa.null()),
    pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string()), ("v", pa.list_(pa.float32(), 2))]))]),
    pa.struct([("a", pa.list_(pa.int32())), ("b", pa.bool_()), ("d", pa.dictionary(pa.int8(), pa.string()))]),
    pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())])),
    pa.list_(pa.struct([("a", pa.list_(pa.struct([("q", pa.int8())]))), ("b", pa.large_string())])),
    pa.struct([("l", pa.large_list(pa.list_(pa.list_(pa.float32(), 2))))]),
]


def _value(kind, rng, nulls, empties):
    if pa.types.is_struct(kind):  # version 2.0 has no null structs
        return {one.name: _value(one.type, rng, nulls, empties) for one in kind}
    if pa.types.is_null(kind) or rng.random() < nulls:
        return None
    if pa.types.is_fixed_size_list(kind):
        return rng.random(kind.list_size).tolist()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        count = 0 if rng.random() < empties else rng.integers(1, 4)
        return [_value(kind.value_type, rng, nulls, empties) for _ in range(count)]
    number = int(rng.integers(0, 50))
    if pa.types.is_boolean(kind):
        return number % 2 == 0
    is_text = pa.types.is_dictionary(kind) or kind in (pa.string(), pa.large_string())
    return f"text {number}" if is_text else number


def _nested(kind, nulls, empties, count):
    rng = np.random.default_rng(5)
    return pa.table({"c": pa.array([_value(kind, rng, nulls, empties) for _ in range(count)], kind)})


def _masked(array, nulls):
    """Some, all, leading or trailing values become null."""
    share = np.random.default_rng(3).random(len(array))
    order = np.arange(len(array))
    masks = {"some": share < 0.2, "all": share < 2, "lead": order < 50, "trail": order > N - 50}
    if nulls == "none" or pa.types.is_null(array.type):
        return array
    if pa.types.is_dictionary(array.type):
        kept = pa.array(array.indices.to_pylist(), array.type.index_type, mask=masks[nulls])
        return pa.DictionaryArray.from_arrays(kept, array.dictionary)
    return pa.array(array.to_pylist(), array.type, mask=masks[nulls])


def _plain(data):
    """Without dictionaries: the same values may have been numbered in another way."""
    return data.to_pydict()


def _check(place, table):
    """We read what was written, in every way."""
    dataset = lance_core.dataset(place)
    got = dataset.to_table()
    got.validate(full=True)
    assert got.schema.equals(table.schema)
    assert _plain(got) == _plain(table)
    n = len(table)
    for start, length, size in ((0, n, 64), (n // 3, n // 2, 1 << 20), (n - 1, 1, 10), (5, 17, 4)):
        part = dataset.to_table(offset=start, limit=length, batch_size=size)
        part.validate(full=True)
        assert _plain(part) == _plain(table.slice(start, length))
    for count in (1, 7, 90):
        rows = np.random.default_rng(4).integers(0, n, count).tolist()
        taken = dataset.take(rows)
        taken.validate(full=True)
        assert _plain(taken) == _plain(table.take(rows))


@pytest.mark.parametrize("nulls", ["none", "some", "all", "lead", "trail"])
@pytest.mark.parametrize("array", LEAVES, ids=[f"{i}-{a.type}" for i, a in enumerate(LEAVES)])
def test_leaves(tmp_path, array, nulls):
    table = pa.table({"c": _masked(array, nulls)})
    lance.write_dataset(table, tmp_path / "t", data_storage_version="2.0")
    _check(tmp_path / "t", table)


def test_several_pages(tmp_path):
    columns = [_masked(array, "some") for array in LEAVES]
    table = pa.table({f"c{index}": column for index, column in enumerate(columns)})
    with LanceFileWriter(str(tmp_path / "x.lance"), table.schema, version="2.0", data_cache_bytes=1) as writer:
        for start in range(0, N, 97):
            writer.write_batch(pa.table(table.slice(start, 97).to_pydict(), schema=table.schema))
    reader = _open(tmp_path / "x.lance")
    columns = {one.id: index for index, one in enumerate(reader.schema.walk())}
    for start, end, size in ((0, N, 1 << 20), (0, N, 50), (96, 99, 10), (10, 500, 333)):
        batches = list(reader.scan(reader.schema, columns, start=start, end=end, batch_size=size))
        got = pa.Table.from_batches(batches)
        got.validate(full=True)
        assert _plain(got) == _plain(table.slice(start, end - start))
    rows = np.unique(RNG.integers(0, N, 100))
    assert _plain(reader.take(reader.schema, columns, rows)) == _plain(table.take(rows))


def _open(path):
    return DataFileReader(LocalStore(str(path.parent)).reader(path.name), path=path.name)


@pytest.mark.parametrize(("nulls", "empties"), [(0, 0), (0, 0.3), (0.2, 0), (0.2, 0.3), (0.95, 0.5), (1, 0)])
@pytest.mark.parametrize("kind", NESTED, ids=map(str, NESTED))
def test_nested(tmp_path, kind, nulls, empties):
    table = _nested(kind, nulls, empties, 300)
    lance.write_dataset(table, tmp_path / "t", data_storage_version="2.0")
    _check(tmp_path / "t", table)


def test_schema_of_many_kinds_and_projections(tmp_path):
    """Ids, columns and headers of all kinds of parents, and a packed struct whose fields have no columns."""
    place = tmp_path / "t"
    packed = pa.struct([("x", pa.int16()), ("y", pa.list_(pa.float32(), 2)), ("z", pa.decimal128(9, 2))])
    fields = [
        pa.field("a", pa.int64(), nullable=False),
        pa.field("b", pa.struct([("c", pa.list_(pa.int32())), ("d", pa.string())])),
        pa.field("v", pa.list_(pa.float32(), 3)),
        pa.field("pk", packed, metadata={"packed": "true"}),
        pa.field("ls", pa.list_(pa.struct([("p", pa.int8()), ("q", pa.list_(pa.string()))]))),
        pa.field("di", pa.dictionary(pa.int8(), pa.string())),
        pa.field("z", pa.timestamp("us", "Europe/Berlin")),
    ]
    rows = [
        {
            "a": i,
            "b": {"c": [i] * (i % 3), "d": f"d{i}"},
            "v": [i, i + 0.5, -i],
            "pk": {"x": i, "y": [i, 2 * i], "z": decimal.Decimal(i) / 4},
            "ls": [{"p": 1, "q": ["x"] * (i % 2)}] * (i % 4),
            "di": f"kind {i % 3}",
            "z": i,
        }
        for i in range(200)
    ]
    table = pa.Table.from_pylist(rows, schema=pa.schema(fields, metadata={"k": "v"}))
    lance.write_dataset(table, place, data_storage_version="2.0", max_rows_per_file=70)
    _check(place, table)
    ours, theirs = lance_core.dataset(place), lance.dataset(place)
    for columns in (["z", "a"], ["b.d"], ["pk"], ["b.c", "ls"], ["di", "v"]):
        expected = theirs.to_table(columns=columns)
        assert _plain(ours.to_table(columns=columns)) == _plain(expected)
        assert _plain(ours.take([3, 150, 9], columns=columns)) == _plain(expected.take([3, 150, 9]))
    reader = _open(next((place / "data").iterdir()))
    assert reader.version == "2.0"
    with pytest.raises(InvalidInputError, match="a"):
        reader.take(reader.schema, {}, np.array([0]))


def test_columns_in_several_files(tmp_path):
    place = tmp_path / "t"
    table = pa.table({"id": range(100), "s": [{"a": i, "b": [i]} for i in range(100)]})
    dataset = lance.write_dataset(table, place, data_storage_version="2.0", max_rows_per_file=30)
    dataset.add_columns({"twice": "id * 2", "text": "cast(id as string)"})
    dataset.drop_columns(["s.a"])
    dataset.delete("id % 7 = 3")
    ours, theirs = lance_core.dataset(place), lance.dataset(place)
    assert _plain(ours.to_table()) == _plain(theirs.to_table())
    assert _plain(ours.to_table(filter="twice > 50")) == _plain(theirs.to_table(filter="twice > 50"))
    assert _plain(ours.take([1, 80, 4])) == _plain(theirs.take([1, 80, 4]))


def test_tables_of_mixed_versions_and_deletions_by_both(tmp_path):
    place = tmp_path / "t"
    table = pa.table({"id": range(60), "tags": [[str(i)] * (i % 3) for i in range(60)]})
    versions = ("2.0", "2.1", "2.2")
    for version, start in zip(versions, (0, 20, 40), strict=True):
        part = table.slice(start, 20)
        lance.write_dataset(part, place, mode="append" if start else "create", data_storage_version=version)
    _check(place, table)
    lance_core.dataset(place).delete("id % 5 = 0")
    lance.dataset(place).delete("id % 7 = 1")
    ours, theirs = lance_core.dataset(place), lance.dataset(place)
    assert theirs.count_rows() == ours.count_rows() < 50
    assert _plain(ours.to_table()) == _plain(theirs.to_table())
    assert _plain(ours.to_table(filter="id > 15")) == _plain(theirs.to_table(filter="id > 15"))
    lance_core.write_dataset(table, place, mode="append")
    ours, theirs = lance_core.dataset(place), lance.dataset(place)
    assert {file.file_minor_version for file in ours.get_fragments()[-1].metadata.files} == {0}
    assert _plain(ours.to_table()) == _plain(theirs.to_table())


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none", "fsst"])
def test_compression_that_was_asked_for(tmp_path, compression):
    n = 5000
    texts = [f"some text {one} again and again" for one in RNG.integers(0, 10**6, n).tolist()]
    columns = {"texts": pa.array(texts), "binary": _masked(pa.array(texts).cast(pa.binary()).slice(0, N), "some")}
    for name, array in columns.items():
        field = pa.field(name, array.type, metadata={"lance-encoding:compression": compression})
        table = pa.table([array], schema=pa.schema([field]))
        lance.write_dataset(table, tmp_path / name, data_storage_version="2.0")
        _check(tmp_path / name, table)


def test_blobs(tmp_path):
    values = [None if one % 5 == 0 else b"x" * one for one in range(60)] + [b""]
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([field, ("i", pa.int64()), ("s", pa.struct([field]))])
    rows = [{"b": value, "i": number, "s": {"b": value}} for number, value in enumerate(values)]
    lance.write_dataset(pa.Table.from_pylist(rows, schema=schema), tmp_path / "t", data_storage_version="2.0")
    ours, theirs = lance_core.dataset(tmp_path / "t"), lance.dataset(tmp_path / "t")
    got = ours.to_table(columns=["b"])["b"].to_pylist()
    # pylance 14.0.2 describes null as {"position": 1, "size": 0} in this version, and as null in others
    assert [one or {"position": 1, "size": 0} for one in got] == theirs.to_table(columns=["b"])["b"].to_pylist()
    assert [one is None for one in got] == [one is None for one in values]
    assert [None if one is None else one[1] for one in ours.read_blobs("b", indices=list(range(61)))] == values
    found = ours.take_blobs("b", indices=[0, 7, 60])
    assert [one if one is None else one.readall() for one in found] == [None, b"x" * 7, b""]
    ours.delete("i < 3")
    ours.optimize.compact_files()
    assert lance_core.dataset(tmp_path / "t").count_rows() == lance.dataset(tmp_path / "t").count_rows() == 58
    again = lance.dataset(tmp_path / "t").scanner(columns=["b"], blob_handling="all_binary").to_table()
    assert again["b"].to_pylist() == values[3:]


def test_empty_file(tmp_path):
    schema = pa.schema([("a", pa.int32()), ("s", pa.struct([("b", pa.list_(pa.string()))]))])
    with LanceFileWriter(str(tmp_path / "x.lance"), schema, version="2.0") as writer:
        writer.write_batch(schema.empty_table())
    reader = _open(tmp_path / "x.lance")
    columns = {one.id: index for index, one in enumerate(reader.schema.walk())}
    assert reader.num_rows == 0
    assert list(reader.scan(reader.schema, columns, start=0, end=0, batch_size=10)) == []
    assert reader.take(reader.schema, columns, np.empty(0, np.int64)).schema.equals(schema)


class _Bytes:
    def __init__(self, data):
        self._buffer = pa.py_buffer(data)
        self.size = len(data)

    def read_ranges(self, ranges):
        return [self._buffer.slice(start, end - start) for start, end in ranges]


def _read_damaged(data, columns):
    reader = DataFileReader(_Bytes(data), path="x.lance")
    for batch in reader.scan(reader.schema, columns, start=0, end=min(reader.num_rows, 10 * N), batch_size=250):
        batch.validate()
    reader.take(reader.schema, columns, np.array([0, 3, 500])).validate()


def _is_refused(data, columns):
    """True if reading fails as it should; a changed value goes unnoticed, there are no checksums."""
    try:
        _read_damaged(data, columns)
    except LanceError as error:
        return error.path == "x.lance"
    return False


def _flip(content, position):
    damaged = bytearray(content)
    damaged[position // 8] ^= 1 << position % 8
    return bytes(damaged)


def test_damaged_files(tmp_path):
    leaves = {f"c{index}": _masked(array, "some") for index, array in enumerate(LEAVES)}
    nested = {f"n{index}": _nested(kind, 0.2, 0.3, N)["c"] for index, kind in enumerate(NESTED)}
    table = pa.table(leaves | nested)
    with LanceFileWriter(str(tmp_path / "x.lance"), table.schema, version="2.0") as writer:
        writer.write_batch(table)
    content = (tmp_path / "x.lance").read_bytes()
    columns = {one.id: index for index, one in enumerate(_open(tmp_path / "x.lance").schema.walk())}
    _read_damaged(content, columns)
    metadata_start = int.from_bytes(content[-40:-32], "little")
    positions = [*RNG.integers(0, metadata_start * 8, 60), *RNG.integers(metadata_start * 8, len(content) * 8, 140)]
    assert sum(_is_refused(_flip(content, int(position)), columns) for position in positions) > 40
    for size in RNG.integers(0, len(content), 20).tolist():
        with pytest.raises(CorruptDataError):
            _read_damaged(content[:size], columns)
