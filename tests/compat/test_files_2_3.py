"""Files of version 2.3, which pylance 14.0.2 writes with a warning that they may not be readable in the future."""

import random

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import UnsupportedError
from lance_core.file.read.reader import DataFileReader
from lance_core.store.local import LocalStore

ROWS = pa.table({"n": range(100), "s": [f"row {i}" for i in range(100)]})
COUNT = 3000
DICE = random.Random(23)


def _some_null(values, share=0.3):
    return [None if DICE.random() < share else one for one in values]


def _lists(make, share=0.3):
    return _some_null([[make() for _ in range(DICE.randrange(5))] for _ in range(COUNT)], share)


_STRUCT = pa.struct([("a", pa.int64()), ("b", pa.string())])
_NESTED = pa.list_(pa.struct([("x", pa.int64()), ("l", pa.list_(pa.string()))]))
COLUMNS = {
    "few": pa.array([1, 2, 3], pa.int64()),
    "integers": pa.array([DICE.randrange(1 << 62) for _ in range(COUNT)]),
    "small integers": pa.array([DICE.randrange(100) for _ in range(COUNT)], pa.int32()),
    "ascending": pa.array(range(COUNT)),
    "runs": pa.array([i // 100 * 1000000007 for i in range(COUNT)]),
    "nulls": pa.array(_some_null(range(COUNT))),
    "few nulls": pa.array([i * i if i % 500 else None for i in range(COUNT)]),
    "few values": pa.array([None if i % 500 else i * i for i in range(COUNT)]),
    "one": pa.array([7] * COUNT, pa.int8()),
    "one, few": pa.array([7 if i in (2, 5, 11) else None for i in range(20)]),
    "one at each second": pa.array([None if i % 2 else 7 for i in range(COUNT)]),
    "one or null": pa.array(_some_null([7] * COUNT), pa.uint16()),
    "one or null, short": pa.array(_some_null([7] * 50)),
    "one and few nulls": pa.array(_some_null([7] * COUNT, 0.01)),
    "one and null runs": pa.array([None if i // 100 % 3 == 0 else 7 for i in range(COUNT)]),
    "null": pa.nulls(COUNT),
    "null integers": pa.nulls(COUNT, pa.int64()),
    "null strings": pa.nulls(COUNT, pa.string()),
    "floats": pa.array([DICE.random() for _ in range(COUNT)]),
    "booleans": pa.array(_some_null([DICE.random() < 0.5 for _ in range(COUNT)])),
    "one boolean": pa.array([True, True, None]),
    "strings": pa.array(_some_null([f"str {i * i}" for i in range(COUNT)])),
    "strings of one byte": pa.array(["x"] * COUNT),
    "strings of up to two bytes": pa.array(["s" * (i % 3) for i in range(COUNT)]),
    "strings of up to three bytes": pa.array([f"{i % 1000}" for i in range(COUNT)]),
    "empty strings": pa.array(["", None] * 100),
    "only empty strings": pa.array([""] * COUNT, pa.large_string()),
    "strings among empty ones": pa.array(["" if i % 400 else f"abc{i}" for i in range(COUNT)]),
    "strings among nulls": pa.array([f"s{i}" if i % 500 == 0 else None for i in range(COUNT)]),
    "strings of one length": pa.array([f"{i:08d}" for i in range(COUNT)]),
    "words": pa.array([DICE.choice(["red", "green", "blue"]) for _ in range(COUNT)]),
    "runs of words": pa.array(["abcdef"] * 1000 + ["ghijkl"] * 2000),
    "long strings": pa.array(_some_null(["x" * (4000 + i) for i in range(50)])),
    "long binary": pa.array([DICE.randbytes(5000) for _ in range(30)], pa.large_binary()),
    "dictionary": pa.array(_some_null(["red", "green"] * 100)).dictionary_encode(),
    "fixed binary": pa.array(_some_null([DICE.randbytes(4) for _ in range(COUNT)]), pa.binary(4)),
    "decimals": pa.array(_some_null(range(COUNT)), pa.int64()).cast(pa.decimal128(21, 2)),
    "times": pa.array(range(COUNT), pa.timestamp("us", "UTC")),
    "vectors": pa.array(_some_null([[DICE.random()] * 256 for _ in range(50)]), pa.list_(pa.float32(), 256)),
    "small vectors": pa.array(_some_null([[1.0, None]] * 50), pa.list_(pa.float32(), 2)),
    "few vectors with nulls": pa.array(
        [DICE.choice([None, [1, None, 3], [None, i % 20, 2]]) for i in range(COUNT)], pa.list_(pa.int64(), 3)
    ),
    "few vectors of vectors": pa.array(
        [DICE.choice([[[1, None], None], [[2, i % 20], [3, 4]]]) for i in range(COUNT)],
        pa.list_(pa.list_(pa.int16(), 2), 2),
    ),
    "short runs of floats": pa.array([i * 0.5 for i in range(900) for _ in range(DICE.randrange(1, 7))], pa.float32()),
    "one string among empty ones": pa.array([""] * 9 + ["x"] + [""] * 10),
    "lists": pa.array(_lists(lambda: DICE.randrange(1 << 40)), pa.list_(pa.int64())),
    "lists without nulls": pa.array(_lists(lambda: DICE.randrange(9), 0), pa.list_(pa.int64())),
    "lists of one": pa.array(_lists(lambda: 7), pa.list_(pa.int64())),
    "lists of one or null": pa.array(_lists(lambda: DICE.choice([7, None])), pa.list_(pa.int64())),
    "lists of one without nulls": pa.array(_lists(lambda: 7, 0), pa.large_list(pa.int64())),
    "lists of null": pa.array([[None], [None, None], [], [None]], pa.list_(pa.int64())),
    "null lists": pa.nulls(100, pa.list_(pa.int64())),
    "empty lists": pa.array([[]] * 100, pa.list_(pa.int64())),
    "empty and null lists": pa.array([[], None] * 100, pa.list_(pa.string())),
    "rare lists": pa.array([[i, i + 1] if i % 50 == 0 else [] for i in range(COUNT)], pa.list_(pa.int64())),
    "lists of strings": pa.array(_lists(lambda: "x" * DICE.randrange(9)), pa.list_(pa.string())),
    "lists of long strings": pa.array([["x" * 3000, "y"], [], None, ["z" * 4000]]),
    "lists of lists": pa.array(_lists(lambda: [DICE.randrange(9)] * 2), pa.list_(pa.list_(pa.int64()))),
    "lists of lists of one": pa.array([[[1], []], [], None, [[1, 1]]], pa.list_(pa.list_(pa.int64()))),
    "structs": pa.array(_some_null([{"a": i, "b": str(i)} for i in range(COUNT)]), _STRUCT),
    "structs of one": pa.array(_some_null([{"a": 1, "b": None}, {"a": None, "b": None}] * 50), _STRUCT),
    "null structs": pa.nulls(50, _STRUCT),
    "nested": pa.array(_lists(lambda: {"x": DICE.randrange(99), "l": ["a"] * DICE.randrange(3)}), _NESTED),
    "nested, one": pa.array([[{"x": 1, "l": ["", None]}, None], None, []] * 50, _NESTED),
    "maps": pa.array([[("k", 1)], None, [], [("a", 2), ("b", 2)]] * 9, pa.map_(pa.string(), pa.int64())),
}


def _write(place, table, version="2.3", **kwargs):
    lance.write_dataset(table, place, data_storage_version=version, **kwargs)
    return lance.dataset(place)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_read_as_pylance_reads_it(tmp_path, name):
    place = str(tmp_path / "t")
    column = COLUMNS[name]
    theirs = _write(place, pa.table({"c": column, "i": range(len(column))}))
    ours = lance_core.dataset(place)
    assert ours.to_table() == theirs.to_table()
    wanted = sorted(DICE.sample(range(len(column)), min(len(column), 20)))
    for rows in (wanted, [0], [len(column) - 1], range(1, len(column), 2)):
        assert ours.take(list(rows)) == theirs.take(list(rows))
    condition = f"i >= {len(column) // 3} AND i < {len(column) - 1}"
    assert ours.to_table(filter=condition) == theirs.to_table(filter=condition)
    assert ours.count_rows("c IS NULL") == theirs.count_rows("c IS NULL")


@pytest.mark.parametrize("name", ["2.3", "next"])
def test_they_are_read_but_not_written(tmp_path, name):
    place = str(tmp_path / "t")
    lance.write_dataset(ROWS, place, data_storage_version=name, max_rows_per_file=50)
    ours = lance_core.dataset(place)
    assert ours.data_storage_version == "2.3"
    assert ours.to_table() == ROWS
    for ask in (
        lambda: ours.update({"n": "1"}),
        ours.optimize.compact_files,
        lambda: ours.add_columns({"m": "n + 1"}),
        lambda: lance_core.write_dataset(ROWS, place, mode="append"),
        lambda: lance_core.write_dataset(ROWS, tmp_path / "new", data_storage_version=name),
    ):
        with pytest.raises(UnsupportedError, match=r"data files of version 2\.3.*2\.2"):
            ask()
    assert lance.dataset(place).version == 1
    assert not (tmp_path / "new").exists()


def test_rows_are_deleted(tmp_path):
    place = str(tmp_path / "t")
    _write(place, ROWS)
    lance_core.dataset(place).delete("n < 10 OR s = 'row 50'")
    ours, theirs = lance_core.dataset(place).to_table(), lance.dataset(place).to_table()
    assert ours == theirs
    assert ours.num_rows == 89


@pytest.mark.parametrize(("first", "second"), [("2.3", "2.2"), ("2.2", "2.3")])
def test_tables_of_several_versions_are_read(tmp_path, first, second):
    names = ["nulls", "one or null", "words", "lists", "lists of one", "structs", "strings of one byte"]
    table = pa.table({name: COLUMNS[name] for name in names}).append_column("id", pa.array(range(COUNT)))
    place = str(tmp_path / "t")
    _write(place, table, first)
    theirs = _write(place, table, second, mode="append")
    ours = lance_core.dataset(place)
    files = [one for fragment in theirs.get_fragments() for one in fragment.data_files()]
    assert {one.file_minor_version for one in files} == {2, 3}
    assert ours.to_table() == theirs.to_table()
    assert ours.take([5, COUNT - 1, COUNT, 2 * COUNT - 3]) == theirs.take([5, COUNT - 1, COUNT, 2 * COUNT - 3])
    assert ours.to_table(filter="id % 700 = 5") == theirs.to_table(filter="id % 700 = 5")


COMPRESSED = {"lance-encoding:compression": "zstd", "lance-encoding:structural-encoding": "miniblock"}


def test_runs_may_be_compressed(tmp_path):
    values = [number for number in range(-60, 60) for _ in range(DICE.choice([1, 2, 9, 30]))]
    field = pa.field("c", pa.int8(), metadata=COMPRESSED)
    theirs = _write(str(tmp_path / "t"), pa.table([pa.array(values, pa.int8())], pa.schema([field])))
    ours = lance_core.dataset(tmp_path / "t")
    assert ours.to_table() == theirs.to_table()
    assert ours.take([7, 1, len(values) - 1]) == theirs.take([7, 1, len(values) - 1])


SPARSE = {"lance-encoding:structural-encoding": "sparse"}


def _large(count, size=5000):
    return [DICE.randbytes(size) for _ in range(count)]


_POOL = _large(30)
_POOL_OF_TWO = _large(2, 70_000)


def _rare(make, count=400, step=5):
    return [make(i) if i % step == 0 else None for i in range(count)]


# Field metadata, form of the values, column.
SPARSE_COLUMNS = {
    "large binaries, most null": ({}, "full-zip", pa.array(_rare(lambda _: DICE.randbytes(5000), 100))),
    "large strings, most null": ({}, "full-zip", pa.array(_rare(lambda i: f"{i}" * 1000, 100), pa.large_string())),
    "few large binaries": ({}, "indexed", pa.array(_some_null([DICE.choice(_POOL) for _ in range(400)], 0.7))),
    "two large strings": ({}, "indexed", pa.array(_rare(lambda i: "ab"[i // 5 % 2] * 70_000))),
    "lists of few large binaries": (
        {},
        "indexed",
        pa.array([_some_null([DICE.choice(_POOL)] * 2, 0.7) if i % 2 else None for i in range(400)]),
    ),
    "lists of few large binaries without nulls": (
        SPARSE,
        "indexed",
        pa.array([[DICE.choice(_POOL)] * (i % 3) for i in range(300)]),
    ),
    "lists of lists of large binaries": (
        SPARSE,
        "full-zip",
        pa.array([[[DICE.randbytes(3000), None], [], None], None, [], [[DICE.randbytes(10)]]] * 9),
    ),
    "vectors": (SPARSE, "full-zip", pa.array(_rare(lambda i: [i + 0.5] * 128, 100), pa.list_(pa.float32(), 128))),
    "few vectors": ({}, "mini-block", pa.array(_rare(lambda i: [i % 7] * 300, COUNT, 30), pa.list_(pa.float32(), 300))),
    "vectors with nulls": (SPARSE, "mini-block", pa.array(_rare(lambda i: [i, None]), pa.list_(pa.float32(), 2))),
    "large vectors with nulls": (
        SPARSE,
        "full-zip",
        pa.array(_rare(lambda i: [i, None] * 300, step=2), pa.list_(pa.float32(), 600)),
    ),
    "dictionary": ({}, "mini-block", pa.array(_rare(lambda i: "ab"[i % 2], 2000)).dictionary_encode()),
    "dictionary of large items": (SPARSE, "mini-block", pa.array(_rare(lambda i: _POOL[i % 7])).dictionary_encode()),
    "integers": (SPARSE, "mini-block", pa.array(_rare(lambda i: i * 7919, COUNT))),
    "integers, few null": (SPARSE, "mini-block", pa.array([None if i % 5 == 0 else i * 7919 for i in range(COUNT)])),
    "booleans": (SPARSE, "mini-block", pa.array(_some_null([i % 3 == 0 for i in range(COUNT)]))),
    "strings": (SPARSE, "mini-block", COLUMNS["strings"]),
    "fixed binary": (SPARSE, "mini-block", COLUMNS["fixed binary"]),
    "decimals": (SPARSE, "mini-block", COLUMNS["decimals"]),
    "lists": (SPARSE, "mini-block", COLUMNS["lists"]),
    "lists of strings": (SPARSE, "mini-block", COLUMNS["lists of strings"]),
    "lists of lists": (SPARSE, "mini-block", COLUMNS["lists of lists"]),
    "maps": (SPARSE, "mini-block", COLUMNS["maps"]),
    "structs": (SPARSE, "mini-block", COLUMNS["structs"]),
    "nested": (SPARSE, "mini-block", COLUMNS["nested"]),
    "structs of large binaries": (
        SPARSE,
        "full-zip",
        pa.array([DICE.choice([None, {"a": None}, {"a": DICE.randbytes(3000)}]) for _ in range(60)]),
    ),
    "fixed size lists of structs": (
        SPARSE,
        "full-zip",
        pa.array(
            [DICE.choice([None, [{"a": DICE.randbytes(3000)}, None]]) for _ in range(60)],
            pa.list_(pa.struct([("a", pa.binary())]), 2),
        ),
    ),
}


def _form(place):
    """The form of the values below the sparse layers of the first page."""
    (name,) = (one.name for one in (place / "data").iterdir())
    reader = DataFileReader(LocalStore(str(place / "data")).reader(name), path=name)
    encoding = reader.file_layout().columns[0].pages[0].encoding
    assert encoding.startswith("SparseLayout"), encoding
    return "indexed" if "indices=" in encoding else "mini-block" if "MiniBlockLayout" in encoding else "full-zip"


@pytest.mark.parametrize("name", SPARSE_COLUMNS)
def test_different_values_below_sparse_layers_are_read(tmp_path, name):
    metadata, form, column = SPARSE_COLUMNS[name]
    count = len(column)
    schema = pa.schema([pa.field("c", column.type, metadata=metadata), pa.field("i", pa.int64())])
    table = pa.table([column, pa.array(range(count))], schema)
    theirs = _write(str(tmp_path / "t"), table)
    assert _form(tmp_path / "t") == form
    ours = lance_core.dataset(tmp_path / "t")
    assert ours.to_table() == theirs.to_table() == table
    wanted = sorted(DICE.sample(range(count), min(count, 20)))
    for rows in (wanted, wanted[::-1], [0], [1], [count - 1], range(1, count, 2)):
        assert ours.take(list(rows)) == table.take(list(rows))
    for condition in (f"i >= {count // 3} AND i < {count - 1}", "i % 7 = 3", f"i = {count // 2}"):
        assert ours.to_table(filter=condition) == theirs.to_table(filter=condition)
    assert ours.count_rows("c IS NULL") == column.null_count
    assert ours.to_table(offset=count // 4, limit=count // 2) == table.slice(count // 4, count // 2)
    assert pa.Table.from_batches(ours.to_batches(batch_size=17)) == table


def test_filters_of_many_rows_find_values_below_sparse_layers(tmp_path):
    """From 32,768 rows on, the columns of a filter are read apart from the others."""
    count = 70_000
    columns = {
        "c": pa.array(_rare(lambda i: i * 7919, count)),
        "l": pa.array(_rare(lambda i: [i, None] * (i % 3), count), pa.list_(pa.int64())),
        "b": pa.array(_rare(lambda _: DICE.choice(_POOL_OF_TWO), count, 7000)),
        "i": pa.array(range(count)),
    }
    schema = pa.schema([pa.field(name, one.type, metadata=SPARSE) for name, one in columns.items()])
    table = pa.table(list(columns.values()), schema)
    theirs = _write(str(tmp_path / "t"), table)
    ours = lance_core.dataset(tmp_path / "t")
    assert ours.to_table() == table
    for condition in ("i % 7 = 3", "i % 5000 = 0", "c % 3 = 1", "b IS NOT NULL", "i > 60000"):
        assert ours.to_table(filter=condition) == theirs.to_table(filter=condition)


class _Counting:
    """A file that counts the reads of it."""

    def __init__(self, data):
        self._buffer = pa.py_buffer(data)
        self.size = len(data)
        self.reads = 0

    def read_ranges(self, ranges):
        self.reads += 1
        return [self._buffer.slice(start, end - start) for start, end in ranges]

    def close(self):
        pass


@pytest.mark.parametrize("name", ["few large binaries", "large binaries, most null", "lists of strings"])
def test_layers_of_a_page_are_read_once(tmp_path, name):
    metadata, _, column = SPARSE_COLUMNS[name]
    _write(str(tmp_path / "t"), pa.table([column], pa.schema([pa.field("c", column.type, metadata=metadata)])))
    (path,) = (tmp_path / "t" / "data").iterdir()
    source = _Counting(path.read_bytes())
    reader = DataFileReader(source, path=path.name)

    def reads_of(row):
        before = source.reads
        taken = reader.take(reader.schema, reader.column_numbers, np.array([row]))
        assert taken["c"].to_pylist() == [column[row].as_py()]
        return source.reads - before

    rows = [at for at, value in enumerate(column) if value.is_valid and value.as_py() != []]
    assert reads_of(rows[0]) > 1
    assert reads_of(rows[-1]) == 1
    assert reads_of(rows[3]) == 1
