"""Data files against pylance, both ways: what one writes the other reads, as a whole, by ranges and by rows."""

import decimal

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

from lance_core.file.read.reader import DataFileReader
from lance_core.file.write import writer as writer_module
from lance_core.file.write.writer import DataFileWriter
from lance_core.format.schema import Schema
from lance_core.store.local import LocalStore

N = 2500


def _numbers(rng):
    yield from (
        pa.array(rng.integers(0, 100, N)).cast(kind) for kind in (pa.int8(), pa.uint16(), pa.int32(), pa.int64())
    )
    yield pa.array(rng.integers(-(1 << 62), 1 << 62, N))
    yield pa.array(np.arange(N) // 70)
    yield pa.array(rng.random(N))
    yield pa.array(rng.random(N).astype(np.float16))
    yield pa.array(np.round(rng.random(N), 2).astype(np.float32))
    yield pa.array(rng.random(N) < 0.5)
    yield pa.array(rng.integers(0, 1 << 50, N)).cast(pa.timestamp("us", "Europe/Berlin"))
    yield pa.array(rng.integers(0, 9999, N).astype(np.int32)).cast(pa.date32())
    yield pa.array(rng.integers(0, 9999, N)).cast(pa.time64("us"))
    yield pa.array(rng.integers(0, 9999, N)).cast(pa.duration("s"))
    yield pa.array([decimal.Decimal(one) / 100 for one in rng.integers(0, 1 << 40, N).tolist()], pa.decimal128(20, 2))


def _others(rng):
    texts = [f"row {one} {'x' * (one % 30)}" for one in rng.integers(0, 10**6, N).tolist()]
    yield from (pa.array(texts).cast(kind) for kind in (pa.string(), pa.large_string(), pa.binary()))
    yield pa.array([f"kind {one % 5}" for one in range(N)])
    yield pa.array([text * 40 for text in texts])
    yield pa.array([text.encode()[:7] for text in texts], pa.binary(7))
    yield from (pa.FixedSizeListArray.from_arrays(pa.array(rng.random(N * d, np.float32)), d) for d in (3, 100))
    items = pa.array([None if one % 7 == 0 else one for one in range(N * 64)])
    yield pa.FixedSizeListArray.from_arrays(items.slice(0, N * 3), 3)
    yield pa.FixedSizeListArray.from_arrays(items, 64)
    yield pa.FixedSizeListArray.from_arrays(pa.array(rng.random(N * 5) < 0.5), 5)
    yield from (pa.array([one] * N) for one in (7, "same", True, "s" * 50))
    yield pa.nulls(N)


LEAVES = [*_numbers(np.random.default_rng(1)), *_others(np.random.default_rng(2))]
TEXT = pa.large_string()
NESTED = [
    pa.list_(pa.int32()),
    pa.large_list(pa.list_(pa.string())),
    pa.list_(pa.list_(pa.list_(pa.bool_()))),
    pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))]),
    pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())])),
    pa.struct([("a", pa.list_(pa.int32())), ("b", pa.bool_())]),
    pa.list_(pa.struct([("a", pa.list_(pa.struct([("q", pa.int8())]))), ("b", pa.string())])),
    pa.struct([("l", pa.list_(pa.list_(pa.list_(pa.float32(), 2))))]),
    pa.map_(pa.string(), pa.list_(pa.int32())),
    pa.list_(TEXT),
    pa.list_(pa.list_(pa.float32(), 70)),
    pa.struct([("a", pa.list_(pa.struct([("x", TEXT), ("y", pa.int8())])))]),
    pa.list_(pa.null()),
]


def _masked(array, share):
    mask = np.random.default_rng(3).random(len(array)) < share
    return array if not share else pa.array(array.to_pylist(), array.type, mask=mask)


def _value(kind, rng, nulls, empties):
    if pa.types.is_null(kind) or rng.random() < nulls:
        return None
    if pa.types.is_map(kind):
        return [(f"k{i}", _value(kind.item_type, rng, nulls, empties)) for i in range(rng.integers(0, 3))]
    if pa.types.is_fixed_size_list(kind):
        return rng.random(kind.list_size).tolist()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        count = 0 if rng.random() < empties else rng.integers(1, 4)
        return [_value(kind.value_type, rng, nulls, empties) for _ in range(count)]
    if pa.types.is_struct(kind):
        return {one.name: _value(one.type, rng, nulls, empties) for one in kind}
    number = int(rng.integers(0, 50))
    text = f"text {number}"
    return (
        number % 2 == 0
        if kind == pa.bool_()
        else text * 60
        if kind == TEXT
        else text
        if kind == pa.string()
        else number
    )


class Judge:
    """One file, in the hands of both."""

    def __init__(self, folder):
        self.path = str(folder / "x.lance")
        self.store = LocalStore(str(folder))

    def write_ours(self, table, max_chunksize=None, version="2.2"):
        writer = DataFileWriter(self.store.writer("x.lance"), Schema.from_arrow(table.schema), version=version)
        for batch in table.to_batches(max_chunksize=max_chunksize):
            writer.write(batch)
        writer.finish()

    def write_theirs(self, tables, version="2.2", **options):
        with LanceFileWriter(self.path, tables[0].schema, version=version, **options) as writer:
            for table in tables:
                writer.write_batch(table)

    def check_ours(self, table):
        reader = DataFileReader(self.store.reader("x.lance"), path="x.lance")
        schema = reader.schema
        columns = {leaf.id: index for index, leaf in enumerate(schema.leaves())}
        assert reader.num_rows == len(table)
        for start, end, size in _ranges(len(table)):
            batches = list(reader.scan(schema, columns, start=start, end=end, batch_size=size))
            got = pa.Table.from_batches(batches, schema=schema.to_arrow())
            got.validate(full=True)
            assert got.equals(table.slice(start, end - start))
        for rows in _rows(len(table)):
            got = pa.Table.from_batches([reader.take(schema, columns, np.array(rows))])
            got.validate(full=True)
            assert got.equals(table.take(rows))

    def check_theirs(self, table):
        reader = LanceFileReader(self.path)
        for start, end, size in _ranges(len(table)):
            assert (
                reader.read_range(start, end - start, batch_size=size)
                .to_table()
                .equals(table.slice(start, end - start))
            )
        for rows in _rows(len(table)):
            assert reader.take_rows(rows).to_table().equals(table.take(rows))


def _ranges(n):
    return [(0, n, 1 << 20), (0, n, 100), (n // 3, n // 2 + 1, 1 << 20), (n - 1, n, 10)]


def _rows(n):
    rng = np.random.default_rng(4)
    return [np.unique(rng.integers(0, n, count)).tolist() for count in (1, 7, 100)]


@pytest.fixture
def judge(tmp_path):
    return Judge(tmp_path)


@pytest.mark.parametrize("share", [0, 0.1, 1])
@pytest.mark.parametrize("array", LEAVES, ids=[f"{i}-{a.type}" for i, a in enumerate(LEAVES)])
def test_leaves(judge, array, share):
    table = pa.table({"c": _masked(array, share)})
    for version in ("2.1", "2.2"):
        judge.write_ours(table, version=version)
        judge.check_ours(table)
        judge.check_theirs(table)
        judge.write_theirs([table], version)
        judge.check_ours(table)


def _nested(kind, nulls, empties, count):
    rng = np.random.default_rng(5)
    return pa.table({"c": pa.array([_value(kind, rng, nulls, empties) for _ in range(count)], kind)})


@pytest.mark.parametrize(("nulls", "empties"), [(0, 0), (0, 0.3), (0.2, 0), (0.2, 0.3), (0.95, 0.5), (1, 0)])
@pytest.mark.parametrize("kind", NESTED, ids=map(str, NESTED))
def test_nested(judge, kind, nulls, empties):
    table = _nested(kind, nulls, empties, 300)
    for version in ("2.1", "2.2") if not pa.types.is_map(kind) else ("2.2",):
        judge.write_ours(table, version=version)
        judge.check_ours(table)
        judge.check_theirs(table)
    judge.write_theirs([table])
    judge.check_ours(table)


@pytest.mark.parametrize("kind", NESTED, ids=map(str, NESTED))
def test_many_pages_of_all_sorts(judge, monkeypatch, kind):
    monkeypatch.setattr(writer_module, "PAGE_BYTES", 1000)
    patterns = [(0, 0), (0.2, 0.3), (1, 0), (0, 0.5), (0, 0)]
    tables = [_nested(kind, nulls, empties, 60) for nulls, empties in patterns]
    whole = pa.concat_tables(tables)
    for version in ("2.1", "2.2") if not pa.types.is_map(kind) else ("2.2",):
        judge.write_ours(whole, version=version)
        judge.check_ours(whole)
        judge.check_theirs(whole)
    judge.write_theirs(tables, data_cache_bytes=1000)
    judge.check_ours(whole)


@pytest.mark.parametrize("sparse", [False, True])
def test_lists_with_more_levels_than_a_chunk_can_count(judge, sparse):
    sizes = np.arange(200_000) % 4 * (np.arange(200_000) % 40 == 1 if sparse else 1)
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int32)
    items = pa.array([None if one % 11 == 0 else one for one in range(int(offsets[-1]))])
    table = pa.table(
        {"c": pa.ListArray.from_arrays(pa.array(offsets), items, mask=pa.array(np.arange(200_000) % 9 == 0))}
    )
    judge.write_theirs([table])
    judge.check_ours(table)
    for version in ("2.1", "2.2"):
        judge.write_ours(table, version=version)
        judge.check_ours(table)
        judge.check_theirs(table)


@pytest.mark.parametrize("kind", [pa.int32(), pa.bool_(), pa.string()])
def test_one_row_with_more_levels_than_a_chunk_can_count(judge, kind):
    filled = pa.array([1, 0, None]).cast(kind).to_pylist()
    table = pa.table({"c": pa.array([[[]] * 70_000 + [filled], [], None, [filled]], pa.list_(pa.list_(kind)))})
    for version in ("2.1", "2.2"):
        judge.write_ours(table, version=version)
        judge.check_ours(table)
        judge.check_theirs(table)


def test_several_pages_of_8_mib(judge):
    rng = np.random.default_rng(6)
    n = 1_200_000
    table = pa.table(
        {
            "packed": pa.array(rng.integers(0, 5000, n)),
            "flat": pa.array(rng.random(n)),
            "texts": pa.array(rng.integers(0, 10**9, n)).cast(pa.string()),
            "words": pa.array(np.array(["a", "bb", "ccc"])[rng.integers(0, 3, n)]),
        }
    )
    for version in ("2.1", "2.2"):
        judge.write_ours(table, max_chunksize=100_000, version=version)
        judge.check_ours(table)
        judge.check_theirs(table)
    judge.write_theirs([table.slice(at, 100_000) for at in range(0, n, 100_000)])
    judge.check_ours(table)


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none", "fsst"])
def test_compression_that_was_asked_for(judge, compression):
    metadata = {"lance-encoding:compression": compression}
    rng = np.random.default_rng(7)
    columns = {
        "numbers": pa.array(np.round(rng.random(20_000), 1)),
        "texts": pa.array([f"some text {one} again and again" for one in rng.integers(0, 10**6, 20_000).tolist()]),
        "large": pa.array([f"large {one} " * 60 for one in rng.integers(0, 10**6, 20_000).tolist()]),
    }
    if compression == "fsst":
        del columns["numbers"]
    schema = pa.schema([pa.field(name, array.type, metadata=metadata) for name, array in columns.items()])
    table = pa.table(columns, schema=schema)
    for version in ("2.1", "2.2"):
        judge.write_theirs([table], version)
        judge.check_ours(table)


def test_schema_of_theirs(judge):
    fields = [
        pa.field("a", pa.int32(), nullable=False, metadata={"k": "v"}),
        pa.field("s", pa.struct([pa.field("x", pa.list_(pa.field("e", pa.int8(), nullable=False)))])),
        pa.field("v", pa.list_(pa.list_(pa.float32(), 2), 3)),
        pa.field("m", pa.map_(pa.string(), pa.decimal128(9, 2))),
    ]
    schema = pa.schema(fields, metadata={"m": "w"})
    values = {"a": [1], "s": [{"x": [1]}], "v": [[[1, 2]] * 3], "m": [[("k", decimal.Decimal("1.25"))]]}
    table = pa.table(values, schema=schema)
    judge.write_theirs([table])
    judge.check_ours(table)
    theirs = DataFileReader(judge.store.reader("x.lance"), path="x.lance").schema
    ours = Schema.from_arrow(schema)
    assert [(one.id, one.name, one.logical_type) for one in theirs.walk()] == [
        (one.id, one.name, one.logical_type) for one in ours.walk()
    ]
    judge.write_ours(table)
    assert LanceFileReader(judge.path).read_all().to_table().schema.equals(schema)
