"""Every encoding that a field's metadata can ask for: written so, and read by pylance as a whole and by rows."""

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance.file import LanceFileReader

import lance_core
from lance_core.encoding.codecs import dictionary
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.file.read.reader import DataFileReader
from lance_core.file.write.writer import DataFileWriter
from lance_core.format.file.encodings import (
    ByteStreamSplit,
    Compression,
    Flat,
    Fsst,
    General,
    InlineBitpacking,
    Rle,
    Variable,
)
from lance_core.format.file.page_layout import FullZipLayout, MiniBlockLayout, decode_layout
from lance_core.format.schema import Schema
from lance_core.store.local import LocalStore

N = 12_000
WORDS = ["connection", "accepted", "from", "worker", "timeout", "retry", "queue", "flushed", "error", "Ünïcode"]


def _texts(words, n=N, seed=1):
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(WORDS), (n, words)).tolist()
    numbers = rng.integers(0, 1 << 30, n).tolist()
    return [" ".join(WORDS[one] for one in row) + f" id={number:x}" for row, number in zip(picks, numbers, strict=True)]


def _numbers():
    rng = np.random.default_rng(2)
    return {
        "small": pa.array(rng.integers(0, 1000, N)),
        "cents": pa.array(np.round(rng.gamma(1.5, 20, N), 2)),
        "prices": pa.array(np.round(rng.random(3000) * 1e6, 2)[rng.integers(0, 3000, N)]),
        "floats": pa.array(np.cumsum(rng.random(N)).astype(np.float32)),
        "times": pa.array(1_700_000_000_000_000 + np.cumsum(rng.integers(0, 9_000_000, N)), pa.timestamp("us")),
        "runs": pa.array(np.repeat(rng.integers(0, 1 << 60, N // 50), 50)),
        "bytes": pa.array(rng.integers(0, 3, N).astype(np.int8)),
        "flags": pa.array(rng.random(N) < 0.05),
        "decimals": pa.array(rng.integers(0, 300, N)).cast(pa.decimal128(20, 0)),
        "keys": pa.array([f"{one % 97:020}".encode() for one in range(N)], pa.binary(20)),
        "vectors": pa.FixedSizeListArray.from_arrays(pa.array(rng.integers(0, 9, N * 4).astype(np.float32)), 4),
    }


def _strings():
    blank = [None if at % 9 == 0 else "" if at % 10 == 0 else text for at, text in enumerate(_texts(4))]
    return {
        "short": pa.array(_texts(4)),
        "blank": pa.array(blank),
        "long": pa.array(_texts(60, 900)),
        "huge": pa.array([text * 40 for text in _texts(20, 60)]),
        "large": pa.array(_texts(3), pa.large_string()),
        "binary": pa.array([text.encode() + b"\0\xff" for text in _texts(3)], pa.binary()),
        "zeros": pa.array([bytes(one % 12) + b"ab" for one in range(N)], pa.binary()),
        "noise": pa.array([np.random.default_rng(one).bytes(20) for one in range(1000)], pa.binary()),
        "tiny": pa.array(["a", None, "", "bcd"]),
    }


ARRAYS = _numbers() | _strings()
ASKED = [
    {"compression": "none"},
    {"compression": "lz4"},
    {"compression": "zstd"},
    {"compression": "zstd", "compression-level": "9"},
    {"compression": "fsst"},
    {"compression": "zstd", "bss": "on"},
    {"compression": "lz4", "bss": "off"},
    {"rle-threshold": "0.9"},
    {"dict-divisor": "1000", "dict-values-compression": "zstd"},
    {"dict-size-ratio": "0.01"},
    {"structural-encoding": "fullzip"},
    {"structural-encoding": "fullzip", "compression": "zstd", "compression-level": "3"},
    {"structural-encoding": "fullzip", "compression": "lz4"},
    {"structural-encoding": "fullzip", "compression": "fsst"},
    {"structural-encoding": "miniblock"},
    {"minichunk-size": "256"},
    {"minichunk-size": "1000000", "compression": "lz4"},
]


class Place:
    """One file that is written by us and read by both."""

    def __init__(self, folder):
        self.path = str(folder / "x.lance")
        self.store = LocalStore(str(folder))

    def write(self, table, version="2.2", max_chunksize=None):
        writer = DataFileWriter(self.store.writer("x.lance"), Schema.from_arrow(table.schema), version=version)
        for batch in table.to_batches(max_chunksize=max_chunksize):
            writer.write(batch)
        writer.finish()
        return self.layout()

    def layout(self, column=0):
        reader = DataFileReader(self.store.reader("x.lance"), path="x.lance")
        return decode_layout(reader._content._container.pages({column})[column][0].layout)

    def check(self, table):
        rows = np.unique(np.random.default_rng(4).integers(0, len(table), 60))
        theirs = LanceFileReader(self.path)
        assert theirs.read_all().to_table().equals(table)
        assert theirs.take_rows(rows.tolist()).to_table().equals(table.take(rows))
        reader = DataFileReader(self.store.reader("x.lance"), path="x.lance")
        columns = {leaf.id: index for index, leaf in enumerate(reader.schema.leaves())}
        batches = list(reader.scan(reader.schema, columns, start=0, end=len(table), batch_size=1 << 20))
        assert pa.Table.from_batches(batches, schema=table.schema).equals(table)
        assert pa.Table.from_batches([reader.take(reader.schema, columns, rows)]).equals(table.take(rows))


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def _asking(asked, **arrays):
    metadata = {f"lance-encoding:{key}": value for key, value in asked.items()}
    schema = pa.schema([pa.field(name, array.type, metadata=metadata) for name, array in arrays.items()])
    return pa.table(arrays, schema=schema)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: "-".join(f"{key}-{value}" for key, value in asked.items()))
def test_pylance_reads_whatever_is_asked_for(place, asked, version):
    for name, array in ARRAYS.items():
        table = _asking(asked, **{name: array})
        place.write(table, version)
        place.check(table)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_pylance_reads_whatever_is_chosen(place, version):
    for name, array in ARRAYS.items():
        items = array.slice(0, len(array) // 3 * 3)
        lists = pa.ListArray.from_arrays(pa.array(np.arange(0, len(items) + 1, 3, dtype=np.int32)), items)
        for one in (
            array,
            lists,
            pa.StructArray.from_arrays([array], [name], mask=pa.array(np.arange(len(array)) % 3 == 1)),
        ):
            table = pa.table({name: one})
            place.write(table, version)
            place.check(table)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize(
    ("name", "asked", "encoding"),
    [
        ("cents", {"compression": "zstd"}, General),
        ("cents", {"compression": "none", "dict-divisor": "9999"}, Flat),
        ("small", {"rle-threshold": "0"}, InlineBitpacking),
        ("runs", {}, Rle),
        ("runs", {"rle-threshold": "0.001", "dict-divisor": "9999"}, General),
        ("short", {"compression": "fsst"}, Fsst),
        ("short", {"compression": "none"}, Variable),
        ("short", {"compression": "lz4"}, General),
        ("noise", {"compression": "fsst"}, Variable),
    ],
)
def test_what_is_asked_for_is_what_is_written(place, name, asked, encoding, version):
    layout = place.write(_asking(asked, **{name: ARRAYS[name]}), version)
    assert isinstance(layout, MiniBlockLayout)
    assert isinstance(layout.values, encoding)
    if isinstance(layout.values, General) and "compression" in asked:
        assert layout.values.compression.name.lower() == asked["compression"]


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_layouts_on_demand(place, version):
    small = {"structural-encoding": "fullzip", "dict-divisor": "9999"}
    for name in ("small", "floats", "flags", "vectors", "short"):
        layout = place.write(_asking(small, **{name: ARRAYS[name]}), version)
        assert isinstance(layout, FullZipLayout), name
    struct = pa.StructArray.from_arrays([ARRAYS["floats"]], ["x"])
    assert isinstance(place.write(_asking(small, s=struct), version), FullZipLayout)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(64 * 100)), 64)
    assert isinstance(place.write(_asking({"structural-encoding": "miniblock"}, v=vectors), version), MiniBlockLayout)
    assert isinstance(place.write(pa.table({"v": vectors}), version), FullZipLayout)


def test_split_bytes_and_levels_of_codecs(place):
    layout = place.write(_asking({"compression": "zstd", "bss": "on", "compression-level": "7"}, c=ARRAYS["floats"]))
    assert isinstance(layout.values.values, ByteStreamSplit)
    assert layout.values.level == 7
    asked = {"compression": "lz4", "bss": "off", "compression-level": "7", "dict-divisor": "9999"}
    layout = place.write(_asking(asked, c=ARRAYS["cents"]))
    assert isinstance(layout.values, General)
    assert not isinstance(layout.values.values, ByteStreamSplit)
    assert layout.values.level is None


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_pylance_reads_split_keys(place, version):
    keys = (1 << 20) + np.cumsum(np.random.default_rng(0).integers(1, 11, 50_000))
    for array in (pa.array(keys), pa.array(keys, mask=keys % 7 == 0), pa.array(keys, pa.timestamp("ms"))):
        table = pa.table({"key": array})
        layout = place.write(table, version)
        assert layout.values == General(Compression.LZ4, ByteStreamSplit(64))
        place.check(table)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize(
    ("asked", "dictionary"),
    [({"dict-values-compression": "zstd"}, General), ({"dict-values-compression": "none"}, Variable)],
)
def test_items_of_dictionaries(place, asked, dictionary, version):
    texts = [f"{'some longer text ' * 3}{one % 300}" for one in range(N)]
    table = _asking(asked, c=pa.array(texts))
    layout = place.write(table, version)
    assert isinstance(layout.dictionary, dictionary)
    place.check(table)
    assert place.write(_asking({"dict-divisor": "1000"}, c=pa.array(texts)), version).dictionary is None
    assert place.write(_asking({"dict-size-ratio": "0.0001"}, c=pa.array(texts)), version).dictionary is None


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_dictionaries_of_many_words(place, version):
    assert place.write(pa.table({"c": ARRAYS["prices"]}), version).num_dictionary_items > 2900


def _repeating(num_items):
    """Words, strings and lists, some with nulls, of so many distinct values, over several chunks."""
    n = 20 * num_items + 6000
    picks = np.random.default_rng(num_items).permutation(np.arange(n) % num_items)
    words = (np.arange(1, num_items + 1) * 0x1E3779B97F4A7C15 & (1 << 60) - 1)[picks]
    texts = pa.array([f"text {one} that is long enough for a dictionary" for one in range(num_items)])
    mask = np.random.default_rng(1).random(n) < 0.1
    lists = pa.ListArray.from_arrays(pa.array(np.arange(0, n + 1, 2, dtype=np.int32)), texts.take(pa.array(picks)))
    return {
        "words": pa.array(words),
        "holes": pa.array(words, mask=mask),
        "floats": pa.array(words.astype(np.float64)),
        "texts": texts.take(pa.array(picks)),
        "sparse": texts.take(pa.array(picks, mask=mask)),
        "lists": lists,
    }


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize(("num_items", "bits"), [(2, 8), (16, 8), (200, 8), (255, 8), (257, 16), (1500, 16)])
def test_places_in_dictionaries_are_narrow(place, num_items, bits, version):
    for name, array in _repeating(num_items).items():
        table = pa.table({name: array})
        layout = place.write(table, version)
        assert layout.dictionary is not None, name
        assert layout.values in {InlineBitpacking(bits), Flat(bits)}, name
        place.check(table)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("num_items", [3, 300])
def test_wide_places_in_dictionaries_of_older_files(place, num_items, version, monkeypatch):
    monkeypatch.setattr(dictionary, "index_dtype", lambda _: "<u4")
    for name, array in _repeating(num_items).items():
        table = pa.table({name: array})
        assert place.write(table, version).values == InlineBitpacking(32), name
        place.check(table)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
def test_words_that_hardly_pack_stand_one_by_one(place, dtype, version):
    rng = np.random.default_rng(6)
    noise = rng.random(N).astype(dtype) if dtype != "i8" else rng.integers(0, 1 << 51, N)
    table = pa.table({"c": noise})
    assert isinstance(place.write(table, version), FullZipLayout)
    place.check(table)
    asked = _asking({"structural-encoding": "miniblock"}, c=pa.array(noise))
    assert isinstance(place.write(asked, version), MiniBlockLayout)
    holes = pa.table({"c": pa.array(noise, mask=np.arange(N) % 7 == 0)})
    assert isinstance(place.write(holes, version).values, Flat)
    place.check(holes)
    struct = pa.table({"c": pa.StructArray.from_arrays([noise, np.arange(N)], ["x", "y"])})
    assert isinstance(place.write(struct, version), FullZipLayout)
    place.check(struct)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_columns_whose_pages_differ_in_layout(tmp_path, dtype):
    noise = np.random.default_rng(6).random(6000).astype(dtype)
    path = str(tmp_path / "t")
    kind = pa.from_numpy_dtype(noise.dtype)
    parts = [pa.array(noise), pa.nulls(5000, kind), pa.array(noise, mask=noise < 0.1), pa.array(noise[:100])]
    tables = [pa.table({"c": part, "s": pa.StructArray.from_arrays([part], ["x"])}) for part in parts]
    for table in tables:
        lance_core.write_dataset(table, path, mode="append")
    lance_core.dataset(path).optimize.compact_files()
    whole = pa.concat_tables(tables)
    for dataset in (lance.dataset(path), lance_core.dataset(path)):
        assert len(dataset.get_fragments()) == 1
        assert dataset.to_table().equals(whole.combine_chunks())
        assert dataset.to_table(filter="c < 0.5").equals(whole.filter(pc.less(whole["c"], 0.5)).combine_chunks())
        rows = [0, 5999, 6000, 11_000, 11_001, 16_999, 17_000, 17_050]
        assert dataset.take(rows).equals(whole.take(rows).combine_chunks())


@pytest.mark.parametrize("bits", [8, 16])
def test_pylance_filters_by_narrow_places(tmp_path, bits):
    table = pa.table({name: array for name, array in _repeating(1 << bits - 2).items() if name != "lists"})
    path = str(tmp_path / "t")
    lance_core.write_dataset(table, path)
    theirs, ours = lance.dataset(path), lance_core.dataset(path)
    value = table["words"][7].as_py()
    for condition in (
        f"words = {value}",
        "holes is null",
        "texts like '%1 that%'",
        "floats > 1e17 and sparse is not null",
    ):
        expected = theirs.to_table(filter=condition)
        assert 0 < len(expected) < len(table), condition
        assert ours.to_table(filter=condition).equals(expected), condition


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("size", [1, 2, 99, 100, 1000, 1024, 1025, 4096, 5000])
def test_columns_of_one_or_two_values(place, version, size):
    """Packed to no bits, or to places in a dictionary of one item."""
    rng = np.random.default_rng(size)
    third = np.arange(size) % 3 == 1
    constants = [np.zeros(size, np.int64), np.zeros(size, np.int32), np.full(size, 1.5), np.full(size, 1 << 60)]
    arrays = [pa.array(one, mask=mask) for one in constants for mask in (None, third)]
    arrays += [
        pa.array(np.where(rng.random(size) < 0.05, 6.94, 0.0)),
        pa.array(rng.integers(0, 4, size)),
        pa.array(np.where(np.arange(size) < 1024, 0, rng.integers(0, 4, size))),
        pa.array([[0.0] * (one % 3) for one in range(size)]),
    ]
    table = pa.table({str(number): one for number, one in enumerate(arrays)})
    place.write(table, version)
    place.check(table)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_lengths_that_differ_wildly(place, version):
    """Chunks of file version 2.1 end at 32 KiB, whatever the mean length says."""
    rng = np.random.default_rng(5)
    lengths = np.where(rng.random(4000) < 0.004, 60_000, 5)
    texts = [rng.bytes(length) for length in lengths.tolist()]
    table = pa.table({"c": pa.array(texts, pa.binary()), "n": pa.array(range(4000))})
    place.write(table, version)
    place.check(table)
    few = pa.table({"c": pa.array([rng.bytes(200), rng.bytes(40_000), b"", b"x"], pa.binary())})
    place.write(few, version)
    place.check(few)


def test_types_that_a_version_cannot_hold_are_refused_by_name(tmp_path):
    table = pa.table({"m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))})
    with pytest.raises(UnsupportedError, match=r"'m': maps"):
        lance_core.write_dataset(table, tmp_path / "t", data_storage_version="2.1")
    assert list(tmp_path.rglob("*.lance")) == []


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("compression", "gzip", "zstd, lz4, fsst, none"),
        ("compression-level", "high", "whole numbers"),
        ("compression-level", "23", "to 22"),
        ("rle-threshold", "nan", "from 0 to 1"),
        ("rle-threshold", "1.5", "from 0 to 1"),
        ("bss", "maybe", "off, on, auto"),
        ("dict-divisor", "0", "whole numbers from 1"),
        ("dict-size-ratio", "0", "but not 0"),
        ("dict-values-compression", "snappy", "lz4, zstd, none"),
        ("dict-values-compression-level", "", "whole numbers"),
        ("structural-encoding", "zip", "miniblock, fullzip"),
        ("minichunk-size", "-1", "whole numbers from 1"),
    ],
)
def test_nonsense_is_refused_before_anything_is_written(tmp_path, key, value, allowed):
    table = _asking({key: value}, column=pa.array(["a"]))
    with pytest.raises(InvalidInputError) as caught:
        lance_core.write_dataset(table, tmp_path / "t")
    text = str(caught.value)
    assert all(part in text for part in ("'column'", f"lance-encoding:{key}", repr(value), allowed))
    assert list(tmp_path.rglob("*.lance")) == []
