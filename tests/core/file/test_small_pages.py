"""Pages of a few thousand values, which have a writer of their own: all sizes about the bounds of their chunks."""

import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_core.encoding.arrow_values import words_of
from lance_core.encoding.layouts.small_page import encode_strings, encode_words
from lance_core.encoding.options import PageOptions
from lance_core.encoding.pages import encode_leaf
from lance_core.file.write.together import num_bytes_of
from lance_core.file.write.writer import DataFileWriter, finish_files
from lance_core.format.file.encodings import Flat
from lance_core.format.schema import Schema
from lance_core.store.local import LocalStore
from tests.core.file.conftest import DataFile

pytestmark = pytest.mark.slow

SIZES = (1, 2, 99, 100, 1023, 1024, 1025, 2048, 3000, 4095, 4096, 4097)
RNG = np.random.default_rng(9)

WORDS = {
    "u8": lambda n: pa.array(RNG.integers(0, 256, n).astype("u1")),
    "narrow": lambda n: pa.array(RNG.integers(0, 9, n).astype("i2")),
    "negative": lambda n: pa.array(RNG.integers(-9, 9, n)),
    "wide": lambda n: pa.array(RNG.integers(0, 1 << 62, n)),
    "widths": lambda n: pa.array((np.arange(n) // 1024 * 40 + RNG.integers(0, 2, n)) ** 5),
    "zeros": lambda n: pa.array(np.where(np.arange(n) == n // 2, 7, 0)),
    "float": lambda n: pa.array(RNG.random(n)),
    "few": lambda n: pa.array(RNG.choice([0.5, 1.5, -0.0, np.nan], n)),
    "bool": lambda n: pa.array(RNG.random(n) < 0.5),
    "short": lambda n: pa.array([f"a{one}" for one in RNG.integers(0, 1 << 20, n).tolist()]),
    "words": lambda n: pa.array([f"word {one}" for one in RNG.integers(0, 40, n).tolist()], pa.large_string()),
    "empty": lambda n: pa.array([""] * (n - 1) + ["x"]),
    "long": lambda n: pa.array(["y" * 300] * (n // 2) + ["z"] * (n - n // 2)),
}


def _lists(values):
    """Lists of those values: some null, some empty, one large."""
    n = len(values)
    cuts = np.sort(RNG.integers(0, n + 1, n // 3 + 1))
    bounds = np.concatenate([[0, 0], cuts, [n, n]]).astype(np.int32)
    mask = np.append(RNG.random(len(bounds) - 1) < 0.2, False)
    return pa.ListArray.from_arrays(pa.array(bounds, mask=mask), values)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", WORDS)
def test_come_back(data_file, name, size, version):
    values = WORDS[name](size)
    holes = pc.if_else(pa.array(RNG.random(size) < 0.1), pa.scalar(None, values.type), values)
    table = pa.table({"plain": values, "holes": holes})
    data_file.write(table, version=version)
    assert _same(data_file.read(), table)
    lists = pa.table({"lists": _lists(holes)})
    data_file.write(lists, version=version)
    assert _same(data_file.read(), lists)
    if len(lists) > 2:
        assert _same(data_file.read(1, len(lists) - 1), lists.slice(1, len(lists) - 2))


def _same(ours, theirs):
    """Equal, NaN to NaN."""
    return str(ours.to_pylist()) == str(theirs.to_pylist()) and ours.schema == theirs.schema


def test_same_bytes_each_time(data_file):
    table = pa.table({name: make(1000) for name, make in WORDS.items()})
    data_file.write(table)
    first = data_file.bytes()
    data_file.write(table)
    assert data_file.bytes() == first


@pytest.mark.parametrize(
    ("name", "limit"), [("narrow", 1000), ("float", 8700), ("few", 1000), ("words", 1900), ("bool", 600)]
)
def test_sizes(data_file, name, limit):
    """Packed, flat, as a dictionary of few, as one of strings, as bits; the rest is metadata."""
    assert data_file.write(pa.table({"c": WORDS[name](1000)})).size < limit


class _Sink:
    """Keeps each piece that it gets."""

    def __init__(self):
        self.pieces = []

    def write(self, data):
        self.pieces.append(bytes(data))

    def commit(self):
        pass


def test_small_buffers_go_to_the_store_together(data_file):
    names = [f"c{number}" for number in range(300)]
    table = pa.table({name: WORDS[("narrow", "few", "words")[at % 3]](1000) for at, name in enumerate(names)})
    table = table.append_column("large", WORDS["wide"](40_000).slice(0, 1000)).append_column(
        "long", WORDS["long"](1000)
    )
    sink = _Sink()
    writer = DataFileWriter(sink, Schema.from_arrow(table.schema))
    for batch in table.to_batches():
        writer.write(batch)
    writer.finish()
    data_file.write(table)
    assert b"".join(sink.pieces) == data_file.bytes()
    assert len(sink.pieces) <= 6 + 2 * len(b"".join(sink.pieces)) // (1 << 17)


def test_runs_that_take_little_anyway_are_not_searched_for(data_file, monkeypatch):
    """One value, two values, few bits: they take the short way."""
    monkeypatch.setattr("lance_core.encoding.layouts.mini_block.encode", None)
    constant, seldom = np.full(1000, 1.5), np.where(np.arange(1000) % 90 == 0, 6.94, 0.0)
    columns = {"constant": constant, "seldom": seldom, "few bits": np.arange(1000) // 100, "flags": np.arange(1000) % 3}
    table = pa.table({name: pa.array(values, mask=np.arange(1000) % 7 == 0) for name, values in columns.items()})
    data_file.write(table)
    assert data_file.read() == table


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float32(), pa.timestamp("us"), pa.bool_(), pa.string()])
@pytest.mark.parametrize("values", [[1, 0, 1, 1, 0] * 5, [1, None, 0] * 7, []])
def test_bytes_of_an_array_are_those_that_arrow_tells(kind, values):
    """Where pages end follows from them."""
    array = pa.array(values, pa.int8()).cast(kind if kind != pa.timestamp("us") else pa.int64()).cast(kind)
    for one in (array, array[3:], array[2:7], array[1:].drop_null(), pa.concat_arrays([array, array])):
        assert num_bytes_of(one) == one.nbytes


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("size", [1, 50, 100, 1024, 3000])
def test_columns_of_one_value_and_texts_with_nulls_are_encoded_together(monkeypatch, data_file, size, version):
    makers = {
        "number": lambda _: 7,
        "narrow": lambda _: np.int8(-3),
        "flag": lambda _: True,
        "text": lambda _: "same",
        "empty": lambda _: "",
        "bytes": lambda _: b"\x00",
        "texts": lambda row: f"text {row % 5}",
        "first differs": lambda row: 9 if row == 0 else 7,
    }
    columns = {name: [make(row) for row in range(size + 2)] for name, make in makers.items()}
    is_null = np.arange(size + 2) % 7 == 3
    table = pa.table(
        {name: pa.array(values) for name, values in columns.items()}
        | {f"{name} or null": pa.array(values, mask=is_null) for name, values in columns.items()}
    ).slice(1, size)
    alone = []
    monkeypatch.setattr("lance_core.file.write.v2_1.encode_leaf", _noted(alone, encode_leaf))
    data_file.write(table, version=version)
    assert data_file.read().equals(table)
    assert version == "2.1" or size > 1024 or not alone  # others may be worth runs


_STRUCT = pa.struct([("number", pa.int64()), ("text", pa.string()), ("flag", pa.bool_()), ("same", pa.int8())])
_NESTED = {
    "struct": _STRUCT,
    "deep": pa.struct([("inner", _STRUCT), ("time", pa.timestamp("us"))]),
    "list": pa.list_(pa.float32()),
    "lists": pa.large_list(pa.list_(pa.string())),
    "structs": pa.list_(_STRUCT),
    "struct of lists": pa.struct([("numbers", pa.list_(pa.int32())), ("flag", pa.bool_())]),
    "map": pa.map_(pa.string(), pa.int64()),  # of version 2.2
}


def _values(kind):
    """Values of a type; nulls of each layer that may have some, long and empty lists."""
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: _values(field.type) for field in kind})
    if pa.types.is_map(kind):
        pairs = st.dictionaries(st.text("ab", max_size=2), _values(kind.item_type), max_size=3)
        return st.none() | pairs.map(lambda pairs: list(pairs.items()))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return st.none() | st.lists(_values(kind.value_type), max_size=4)
    if pa.types.is_boolean(kind):
        return st.none() | st.booleans()
    if pa.types.is_string(kind):
        return st.none() | st.text("abc", max_size=3)
    return st.none() | st.integers(-3, 3)


@given(
    st.data(),
    st.sampled_from(list(_NESTED)),
    st.sampled_from(["2.1", "2.2"]),
    st.sampled_from([1, 40, 300]),
    st.booleans(),
)
def test_leaves_of_several_files_are_encoded_together(data, name, version, repeats, has_few_nulls):
    """Each of the files has other rows, whose leaves have as many values as those of the others or not."""
    kind, version = _NESTED[name], "2.2" if name == "map" else version
    values = _values(kind).filter(lambda value: value is not None) if has_few_nulls else _values(kind)
    rows = [data.draw(st.lists(values, min_size=1, max_size=6)) * repeats for _ in range(3)]
    tables = [pa.table({"c": pa.array([None, *some], kind).slice(1), "d": range(len(some))}) for some in rows]
    with tempfile.TemporaryDirectory() as folder:
        files = [DataFile(LocalStore(f"{folder}/{number}")) for number in range(3)]
        schema = Schema.from_arrow(tables[0].schema)
        writers = [DataFileWriter(file.store.writer("x.lance"), schema, version=version) for file in files]
        for writer, table in zip(writers, tables, strict=True):
            for batch in table.to_batches(max_chunksize=100):
                writer.write(batch)
        finish_files(writers)
        for file, table in zip(files, tables, strict=True):
            assert file.read().equals(table)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("name", _NESTED)
def test_leaves_in_structs_and_lists_are_looked_at_once(monkeypatch, data_file, name, version):
    monkeypatch.setattr("lance_core.file.write.v2_1.encode_leaf", None)
    row = {"number": 7 << 40, "text": "some text", "flag": True, "same": 3}
    some = {
        "struct": row,
        "deep": {"inner": row, "time": 9},
        "list": [1.5, None],
        "lists": [["a", "b"], []],
        "structs": [row, row],
        "struct of lists": {"numbers": [1, 2], "flag": True},
        "map": [("a", 1), ("b", 2)],
    }[name]
    table = pa.table({"c": pa.array([some, None, some] * 100, _NESTED[name])})
    data_file.write(table, version="2.2" if name == "map" else version)
    assert data_file.read().equals(table)


@pytest.mark.parametrize(("num_leaves", "num_pages"), [(4, 1), (100, 1), (150, 2)])
def test_structs_of_many_leaves_have_larger_pages(data_file, num_leaves, num_pages):
    """40,000 rows of 8 bytes are 32 MB in 100 leaves; 48 MB in 150."""
    rows = pa.StructArray.from_arrays(
        [pa.array(RNG.integers(0, 50, 40_000)) for _ in range(num_leaves)],
        [f"c{number}" for number in range(num_leaves)],
    )
    table = pa.table({"c": rows})
    data_file.write(table)
    assert len(data_file.open()._content._container.pages({0})[0]) == num_pages
    assert data_file.read().equals(table)


def _noted(names, encode):
    """Encode a leaf, and note its name."""

    def noted(path, *given):
        names.append(path.leaf.name)
        return encode(path, *given)

    return noted


@pytest.mark.parametrize("values", [[1.5, -7.25, 1e300], ["Oslo", "Lima", "Pune"]], ids=["numbers", "texts"])
def test_a_dictionary_of_few_values_has_indices_of_one_byte(data_file, values):
    """Packed, they would be filled up to a block of 1,024."""
    few = pa.array([values[row * 7 % 3] for row in range(100)])
    data_file.write(pa.table({"c": few}))
    assert data_file.read().column("c").combine_chunks().equals(few)
    is_text = pa.types.is_string(few.type)
    (page,) = encode_strings([few], PageOptions()) if is_text else encode_words([words_of(few)], PageOptions())
    assert (page.layout.dictionary is not None, page.layout.values) == (True, Flat(8))
