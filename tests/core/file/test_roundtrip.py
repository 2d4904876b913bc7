"""What is written comes back: all types, null patterns, layouts and page bounds."""

import decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.file.write import writer as writer_module

N = 3000
RNG = np.random.default_rng(5)


def _with_nulls(array, share):
    if not share:
        return array
    mask = np.ones(len(array), bool) if share == 1 else RNG.random(len(array)) < share
    return pc.if_else(pa.array(mask), pa.scalar(None, array.type), array)


def _numbers():
    numbers = RNG.integers(0, 1 << 31, N)
    for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()):
        yield pa.array(numbers % 100).cast(kind)
    yield pa.array(-numbers)
    for kind in (pa.float16(), pa.float32(), pa.float64()):
        yield pa.array(RNG.standard_normal(N).astype(kind.to_pandas_dtype()), kind)
    for kind in (pa.timestamp("us", "+05:30"), pa.timestamp("ns"), pa.duration("ms"), pa.date64(), pa.time64("ns")):
        yield pa.array(numbers * (86_400_000 if kind == pa.date64() else 1), pa.int64()).cast(kind)
    for kind in (pa.date32(), pa.time32("s")):
        yield pa.array(numbers.astype("i4") % 86_400).cast(kind)
    yield pa.array([decimal.Decimal(int(one)) / 100 for one in numbers], pa.decimal128(14, 2))
    yield pa.array([decimal.Decimal(int(one)) for one in numbers], pa.decimal256(50, 0))


def _others():
    numbers = RNG.integers(0, 1 << 31, N)
    yield pa.array(numbers % 2 == 0)
    texts = [f"row {one} {'x' * (one % 17)}" for one in numbers.tolist()]
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        yield pa.array(texts).cast(kind)
    yield pa.array([f"kind {one % 7}" for one in range(N)])
    yield pa.array([f"{one} " * 100 for one in numbers.tolist()])
    yield pa.array([text.encode()[:5].ljust(5) for text in texts], pa.binary(5))
    yield pa.array([bytes([one % 256]) * 300 for one in numbers.tolist()], pa.binary(300))
    yield pa.FixedSizeListArray.from_arrays(pa.array(RNG.random(N * 3, np.float32)), 3)
    yield pa.FixedSizeListArray.from_arrays(pa.array(RNG.random(N * 80, np.float32)), 80)
    yield pa.FixedSizeListArray.from_arrays(_with_nulls(pa.array(numbers.repeat(2)), 0.2), 2)
    yield pa.FixedSizeListArray.from_arrays(_with_nulls(pa.array(numbers.repeat(40)), 0.2), 40)
    yield pa.FixedSizeListArray.from_arrays(pa.array(numbers.repeat(9) % 3 == 0), 9)
    yield pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(pa.array(numbers.repeat(6)), 2), 3)
    yield pa.array([42] * N)
    yield pa.array(["always the same, and longer than what fits inline"] * N)


ARRAYS = [*_numbers(), *_others(), pa.nulls(N)]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0, 0.1, 0.9, 1])
@pytest.mark.parametrize("array", ARRAYS, ids=[f"{i}-{a.type}" for i, a in enumerate(ARRAYS)])
def test_leaf_types(data_file, array, share):
    table = pa.table({"c": _with_nulls(array, share)})
    written = data_file.write(table)
    assert written.size == len(data_file.bytes())
    assert written.num_rows == N
    assert data_file.read().equals(table)
    assert data_file.read(7, 1999, batch_size=100).equals(table.slice(7, 1992))
    rows = [0, 1, 1025, 1026, N - 1]
    assert data_file.take(rows).equals(table.take(rows))


NESTED = {
    "list": pa.list_(pa.int32()),
    "large_list": pa.large_list(pa.string()),
    "list_of_lists": pa.list_(pa.list_(pa.bool_())),
    "struct": pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))]),
    "list_of_structs": pa.list_(pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
    "struct_of_lists": pa.struct([("a", pa.list_(pa.int64())), ("b", pa.bool_())]),
    "map": pa.map_(pa.string(), pa.list_(pa.int32())),
    "list_of_vectors": pa.list_(pa.list_(pa.float32(), 70)),
    "list_of_nulls": pa.list_(pa.null()),
}


def _value(kind, rng, share):
    if pa.types.is_null(kind) or rng.random() < share:
        return None
    if pa.types.is_map(kind):
        return [(f"k{i}", _value(kind.item_type, rng, share)) for i in range(rng.integers(0, 3))]
    if pa.types.is_fixed_size_list(kind):
        return rng.random(kind.list_size).tolist()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_value(kind.value_type, rng, share) for _ in range(rng.integers(0, 4))]
    if pa.types.is_struct(kind):
        return {one.name: _value(one.type, rng, share) for one in kind}
    number = int(rng.integers(0, 50))
    return number % 2 == 0 if kind == pa.bool_() else f"text {number}" if kind == pa.string() else number


@pytest.mark.slow
@pytest.mark.parametrize("page_bytes", [300, 8 << 20])
@pytest.mark.parametrize("share", [0, 0.2, 1])
@pytest.mark.parametrize("kind", NESTED.values(), ids=NESTED.keys())
def test_nested_types_in_pages_of_any_size(data_file, monkeypatch, kind, share, page_bytes):
    monkeypatch.setattr(writer_module, "PAGE_BYTES", page_bytes)
    rng = np.random.default_rng(1)
    table = pa.table({"c": pa.array([_value(kind, rng, share) for _ in range(200)], kind)})
    data_file.write(table, max_chunksize=64)
    assert data_file.read().equals(table)
    assert data_file.read(batch_size=7).equals(table)
    assert data_file.read(50, 131).equals(table.slice(50, 81))
    rows = [199, 3, 3, 64, 0, 128]
    assert data_file.take(rows).equals(table.take(rows))


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize(("every", "num_pages"), [(2, 1), (40, 3)])
def test_pages_are_cut_where_a_chunk_would_have_too_many_levels(data_file, every, num_pages, version):
    sizes = np.where(np.arange(150_000) % every == 0, 2, 0)
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int32)
    array = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.arange(offsets[-1]) % 1000))
    table = pa.table({"c": array})
    data_file.write(table, version=version)
    reader = data_file.open()
    assert len(reader._content._container.pages({0})[0]) == num_pages
    assert data_file.read().equals(table)
    rows = [0, 65_534, 65_535, 65_536, 149_999]
    assert data_file.take(rows).equals(table.take(rows))


@pytest.mark.parametrize("kind", [pa.int32(), pa.bool_(), pa.string()])
def test_one_row_with_more_levels_than_a_chunk_can_count(data_file, kind):
    filled = pa.array([1, 0, None]).cast(kind).to_pylist()
    table = pa.table({"c": pa.array([[[]] * 70_000 + [filled], [], None, [filled]], pa.list_(pa.list_(kind)))})
    data_file.write(table)
    assert data_file.read().equals(table)
    assert data_file.take([1, 3]).equals(table.take([1, 3]))


def test_bit_patterns_survive(data_file):
    bits = np.array([0x7FF8_0000_0000_0001, 0xFFF0_0000_0000_0001, 1 << 63, 0, 1], np.uint64).repeat(50)
    table = pa.table({"c": pa.array(bits.view(np.float64))})
    data_file.write(table)
    assert (data_file.read()["c"].to_numpy().view(np.uint64) == bits).all()
    assert (data_file.take([60])["c"].to_numpy().view(np.uint64) == bits[60:61]).all()


def test_what_lies_under_nulls_and_outside_of_slices_is_not_written_as_values(data_file):
    items = pa.array([1, 2, 3, 4, 5, 6])
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 4, 6]), items, mask=pa.array([False, True, False]))
    structs = pa.StructArray.from_arrays([lists], ["l"], mask=pa.array([False, False, True]))
    table = pa.table({"l": lists, "s": structs}).slice(1)
    data_file.write(table)
    assert data_file.read().to_pylist() == [{"l": None, "s": {"l": None}}, {"l": [5, 6], "s": None}]


def test_same_input_gives_same_bytes(data_file):
    table = pa.table({"a": ARRAYS[0], "b": ARRAYS[-1], "c": pa.array([f"{i % 9}" for i in range(N)])})
    data_file.write(table)
    first = data_file.bytes()
    data_file.write(table)
    assert data_file.bytes() == first


def test_projection_in_any_order_and_inside_structs(data_file):
    structs = pa.array([{"x": i, "y": str(i)} for i in range(5)])
    table = pa.table({"a": pa.array(range(5)), "s": structs, "l": pa.array([[{"p": i, "q": i}] for i in range(5)])})
    data_file.write(table)
    got = data_file.read(names=["l.item.q", "s.y", "a"])
    assert got.column_names == ["l", "s", "a"]
    assert got.to_pylist() == [{"l": [{"q": i}], "s": {"y": str(i)}, "a": i} for i in range(5)]


def test_schema_travels_with_the_file(data_file):
    fields = [pa.field("a", pa.int32(), nullable=False, metadata={"k": "v"}), ("l", pa.list_(pa.field("e", pa.int8())))]
    schema = pa.schema(fields, metadata={"m": "w"})
    data_file.write(pa.table({"a": pa.array([1], pa.int32()), "l": [[1]]}, schema=schema))
    assert data_file.read().schema.equals(schema, check_metadata=True)


def test_empty_files_and_empty_requests(data_file):
    table = pa.table({"a": pa.array([], pa.int32()), "l": pa.array([], pa.list_(pa.string()))})
    data_file.write(table)
    assert data_file.open().num_rows == 0
    assert data_file.read().equals(table)
    assert data_file.take([]).num_rows == 0


def test_views_and_extension_types_are_stored_as_what_they_hold(data_file):
    table = pa.table({"v": pa.array(["a", None], pa.string_view()), "u": pa.array([b"x" * 16, None], pa.uuid())})
    data_file.write(table)
    got = data_file.read()
    assert got["v"].to_pylist() == ["a", None]
    assert got.schema.field("v").type == pa.string()


@pytest.mark.parametrize(
    ("field", "values"),
    [
        (pa.field("c", pa.int32(), nullable=False), [1, None]),
        (pa.field("c", pa.struct([pa.field("x", pa.int32(), nullable=False)])), [{"x": 1}, {"x": None}]),
        (pa.field("c", pa.list_(pa.field("x", pa.int32(), nullable=False))), [[1], [None]]),
    ],
)
def test_nulls_where_there_must_be_none_are_refused(data_file, field, values):
    writer = data_file.writer(pa.schema([field]))
    batch = pa.record_batch([pa.array(values, _loose(field.type))], ["c"])
    with pytest.raises(InvalidInputError, match="not nullable"):
        writer.write(batch)
    assert writer.bytes_written == 0


def _loose(kind):
    """The same type with nulls allowed everywhere."""
    if pa.types.is_list(kind):
        return pa.list_(_loose(kind.value_type))
    return pa.struct([(one.name, _loose(one.type)) for one in kind]) if pa.types.is_struct(kind) else kind


def test_nulls_inside_null_parents_do_not_count(data_file):
    kind = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    array = pa.StructArray.from_arrays(
        [pa.array([1, None], pa.int32())], fields=list(kind), mask=pa.array([False, True])
    )
    table = pa.table({"c": array})
    data_file.write(table)
    assert data_file.read().to_pylist() == [{"c": {"x": 1}}, {"c": None}]


def test_other_columns_than_the_schema_says_are_refused(data_file):
    writer = data_file.writer(pa.schema([("c", pa.int32())]))
    with pytest.raises(InvalidInputError, match="int64"):
        writer.write(pa.record_batch([pa.array([1])], ["c"]))
    with pytest.raises(InvalidInputError, match="columns"):
        writer.write(pa.record_batch([pa.array([1], pa.int32())], ["d"]))


def test_other_versions_are_refused_by_name(data_file):
    with pytest.raises(UnsupportedError, match=r"2\.3"):
        data_file.writer(pa.schema([("c", pa.int32())]), version="2.3")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.dictionary(pa.int8(), pa.timestamp("s")), "dictionary of timestamp"),
        (pa.list_(pa.list_(pa.struct([("a", pa.int8())]), 2)), "structs inside of a list"),
        (pa.list_(pa.struct([("a", pa.list_(pa.int8()))]), 2), "structs that hold lists"),
        (pa.struct([("a", pa.struct([]))]), "without fields inside"),
    ],
)
def test_types_without_support_are_refused_by_name(data_file, kind, name):
    with pytest.raises(UnsupportedError, match=name):
        data_file.writer(pa.schema([("c", kind)]))


def test_rows_that_are_not_there(data_file):
    data_file.write(pa.table({"c": [1, 2]}))
    with pytest.raises(InvalidInputError, match="row 2"):
        data_file.read(0, 3)
    with pytest.raises(InvalidInputError, match="row 5"):
        data_file.take([0, 5])
    with pytest.raises(InvalidInputError, match="row -1"):
        data_file.take([-1])


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
@pytest.mark.parametrize("num_items", [3, 100, 300])
def test_dictionaries_of_neighbouring_pages(data_file, monkeypatch, num_items, kind):
    """Places may have 8 bits in each page, where those in the dictionaries of all pages need 16."""
    monkeypatch.setattr(writer_module, "PAGE_BYTES", 6000)
    items = np.arange(num_items * 6) * 1_000_003 + (1 << 50)
    places = np.random.default_rng(1).integers(0, num_items, (6, 6000)) + np.arange(6)[:, None] * num_items
    table = pa.table({"c": pa.array(items[places.reshape(-1)]).cast(kind)})
    data_file.write(table, max_chunksize=6000)
    assert len(data_file.open()._content._container.pages({0})[0]) >= 6
    assert data_file.read().equals(table)
    for rows in ([0, 5999, 6000, 6001, 17_999, 35_999], list(range(0, 36_000, 11))):
        assert data_file.take(rows).equals(table.take(rows))


def test_dictionaries_of_many_pages_inside_of_lists(data_file, monkeypatch):
    """Items that stand in the dictionaries of all pages are one item of what is read, also if rows are cut out."""
    monkeypatch.setattr(writer_module, "PAGE_BYTES", 100)
    kind = pa.list_(pa.struct([("a", pa.dictionary(pa.int8(), pa.string()))]), 7)
    rows = [[{"a": word} for word in ("", "x", "", "<", "", "x", "")]] * 240
    table = pa.table({"c": pa.array(rows, kind)})
    data_file.write(table, max_chunksize=1)
    assert len(data_file.open()._content._container.pages({0})[0]) > 50
    got = data_file.read(1, 239)
    assert got.to_pydict() == table.slice(1, 238).to_pydict()
