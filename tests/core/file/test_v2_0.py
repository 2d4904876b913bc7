"""Files of version 2.0: exact bytes, what they cannot hold, small dictionaries, damage."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.encoding.kernels import aranges
from lance_core.errors import CorruptDataError, InvalidInputError, LanceError, UnsupportedError
from lance_core.file.read import nodes
from lance_core.file.read.reader import DataFileReader
from lance_core.file.write.writer import DataFileWriter, check_schema
from lance_core.format.file.array_encoding import AllNulls, Binary, Dictionary, decode_array_encoding
from lance_core.format.file.file_metadata import decode_column
from lance_core.format.schema import Schema

RNG = np.random.default_rng(3)


class Memory:
    """A file in memory, first written, then read."""

    def __init__(self, data=b""):
        self.data = data

    def write(self, data):
        self.data += bytes(data)

    def commit(self):
        pass

    @property
    def size(self):
        return len(self.data)

    def read_ranges(self, ranges):
        return [pa.py_buffer(self.data[start:end]) for start, end in ranges]


def write(table):
    memory = Memory()
    writer = DataFileWriter(memory, Schema.from_arrow(table.schema), version="2.0")
    for batch in table.to_batches():
        writer.write(batch)
    written = writer.finish()
    return memory.data, dict(zip(written.field_ids, written.column_indices, strict=True))


def read(data, columns):
    reader = DataFileReader(Memory(data), path="x.lance")
    end = min(reader.num_rows, 1 << 12)
    batches = list(reader.scan(reader.schema, columns, start=0, end=end, batch_size=100))
    return pa.Table.from_batches(batches, schema=reader.schema.to_arrow())


def pages(data, number):
    """Encodings of the pages of a column."""
    table = int.from_bytes(data[-32:-24], "little") + 16 * number
    position, size = (int.from_bytes(data[at : at + 8], "little") for at in (table, table + 8))
    return [decode_array_encoding(page.layout) for page in decode_column(data[position:][:size], limit=len(data))]


ITEMS = {
    "numbers": lambda number: number,
    "words": lambda number: None if number % 5 == 0 else str(number),
    "structs": lambda number: {"a": number, "b": [str(number)] * (number % 3)},
    "lists": lambda number: list(range(number % 4)),
}


@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("window", [nodes.KEPT_WINDOW_BYTES, 300])
def test_half_of_all_lists_are_picked_out_of_a_range(monkeypatch, items, window):
    """Thousands of byte ranges, or a number for each item, cost more than the items that nobody wants."""
    lists = [None if row % 13 == 0 else [ITEMS[items](row + item) for item in range(row % 6)] for row in range(400)]
    table = pa.table({"lists": pa.array(lists)})
    data, columns = write(table)
    monkeypatch.setattr(nodes, "KEPT_WINDOW_BYTES", window)
    reader = DataFileReader(Memory(data), path="x.lance")
    one_by_one = []
    monkeypatch.setattr(nodes, "aranges", lambda *given: one_by_one.append(1) or aranges(*given))
    for rows, most in ((RNG.choice(400, 200, replace=False), 0), (np.arange(0, 400, 6), 1), (np.arange(5, 400, 60), 9)):
        wanted = np.sort(rows)
        found = reader.take(reader.schema, columns, wanted)
        assert pa.Table.from_batches([found]).equals(table.take(wanted).combine_chunks())
        assert len(one_by_one) <= most


def test_bytes_of_a_small_file():
    table = pa.table({"a": pa.array([1, 2, None], pa.int32()), "s": pa.array(["x", None, "zz"])})
    data, columns = write(table)
    assert columns == {0: 0, 1: 1}
    assert data[0] == 0b011
    assert data[64:72] == bytes.fromhex("0100000002000000")
    assert np.frombuffer(data[128:152], "<u8").tolist() == [1, 5, 3]
    assert data[192:195] == b"xzz"
    assert data[195:256] == b"H" * 61
    assert data[-16:] == bytes.fromhex("02000000 02000000 0000 0300") + b"LANC"
    metadata = data[int.from_bytes(data[-40:-32], "little") :]
    assert metadata.startswith(bytes.fromhex("0a2912270a250a1f") + b"/lance.encodings.ColumnEncoding\x12\x02\x0a\x00")
    assert read(data, columns).equals(table)


def test_columns_are_numbered_depth_first_and_packed_fields_have_none():
    packed = pa.field("p", pa.struct([("x", pa.int8()), ("y", pa.int16())]), metadata={"packed": "true"})
    inner = pa.list_(pa.struct([("c", pa.int32()), ("d", pa.list_(pa.string()))]))
    schema = pa.schema([("a", inner), packed, ("z", pa.list_(pa.int8(), 2))])
    rows = [{"a": [{"c": 1, "d": ["x"]}], "p": {"x": 1, "y": 2}, "z": [1, 2]}]
    data, columns = write(pa.Table.from_pylist(rows, schema=schema))
    assert columns == {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 8: 6}
    assert read(data, columns).to_pylist() == rows


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["a"] * 99, Binary),
        (["a"] * 100, Dictionary),
        ([str(one % 255) for one in range(1000)], Dictionary),
        ([str(one % 256) for one in range(1000)], Binary),
        ([None] * 1000, AllNulls),
        (["x"] * 2000 + [str(one) for one in range(300)], Binary),
    ],
)
def test_strings_of_few_values_get_a_dictionary(texts, kind):
    table = pa.table({"s": pa.array(texts, pa.string())})
    data, columns = write(table)
    assert [type(one) for one in pages(data, 0)] == [kind]
    assert read(data, columns).equals(table)
    for other in (pa.large_string(), pa.binary()):
        assert not any(
            isinstance(one, Dictionary) for one in pages(write(pa.table({"s": table["s"].cast(other)}))[0], 0)
        )


@pytest.mark.parametrize(
    "words", [["N", "Y"], ["Oslo", "Lima", "Pune"], ["a", "bcd", ""], [f"{one:07}" for one in range(90)]]
)
@pytest.mark.parametrize("every", [0, 9])
def test_many_strings_of_few_values(words, every):
    places = np.random.default_rng(3).integers(0, len(words), 30_000)
    mask = np.arange(30_000) % every == 0 if every else None
    table = pa.table({"s": pa.array(words).take(pa.array(places, mask=mask))})
    data, columns = write(table)
    assert isinstance(pages(data, 0)[0], Dictionary)
    reader = DataFileReader(Memory(data), path="x.lance")
    batches = reader.scan(reader.schema, columns, start=0, end=30_000, batch_size=30_000)
    assert pa.Table.from_batches(batches).equals(table)


def test_dictionaries_keep_their_values_while_they_are_few():
    words = pa.array([str(one) for one in range(1000)])
    table = pa.table({"d": pa.DictionaryArray.from_arrays(pa.array([5, None, 7], pa.int16()), words)})
    data, columns = write(table)
    assert [one.num_items for one in pages(data, 0)] == [3]  # two that occur, and null
    assert read(data, columns).to_pydict() == table.to_pydict()
    few = pa.table({"d": pa.DictionaryArray.from_arrays(pa.array([0, 2, 2], pa.int16()), words[:3])})
    data, columns = write(few)
    assert read(data, columns)["d"].chunk(0).dictionary.equals(words[:3])


def test_dictionaries_with_too_many_values_together_are_refused():
    schema = pa.schema([("d", pa.dictionary(pa.int8(), pa.string()))])
    batches = [
        pa.record_batch(
            [pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), [f"{start + i}" for i in range(100)])],
            schema=schema,
        )
        for start in (0, 100)
    ]
    with pytest.raises(InvalidInputError, match="int8"):
        write(pa.Table.from_batches(batches))


PACKED = {"packed": "true"}


@pytest.mark.parametrize(
    ("field", "name"),
    [
        (pa.field("c", pa.map_(pa.string(), pa.int8())), "map"),
        (pa.field("c", pa.list_(pa.struct([("a", pa.int8())]), 2)), "struct"),
        (pa.field("c", pa.binary(0)), r"fixed_size_binary\[0\]"),
        (pa.field("c", pa.struct([("x", pa.bool_())]), metadata=PACKED), "bool"),
        (pa.field("c", pa.struct([("x", pa.string())]), metadata=PACKED), "string"),
        (pa.field("c", pa.struct([("x", pa.struct([("y", pa.int8())]))]), metadata=PACKED), "struct"),
        (pa.field("c", pa.struct([]), metadata=PACKED), "without fields"),
        (pa.field("c", pa.string(), metadata={"lance-encoding:blob": "true"}), "large_binary"),
        (pa.field("c", pa.dictionary(pa.int8(), pa.date32())), "date32"),
    ],
)
def test_types_that_it_cannot_hold_are_refused_by_name(field, name):
    with pytest.raises(UnsupportedError, match=f"'c'.*{name}"):
        check_schema(Schema.from_arrow(pa.schema([field])), version="2.0")


@pytest.mark.parametrize(
    ("field", "rows", "name"),
    [
        (pa.field("c", pa.struct([("x", pa.int8())])), [None], "null structs"),
        (pa.field("c", pa.list_(pa.struct([("x", pa.int8())]))), [[None]], "null structs"),
        (pa.field("c", pa.struct([("x", pa.int8())]), metadata=PACKED), [{"x": None}], "nulls in packed"),
        (pa.field("c", pa.struct([("x", pa.int8())]), metadata=PACKED), [None], "nulls in packed"),
        (
            pa.field("c", pa.struct([("x", pa.list_(pa.int8(), 1))]), metadata=PACKED),
            [{"x": [None]}],
            "nulls in packed",
        ),
        (pa.field("c", pa.int8(), nullable=False), [None], "not nullable"),
    ],
)
def test_nulls_that_it_cannot_hold_are_refused_before_anything_is_taken(field, rows, name):
    memory = Memory()
    schema = pa.schema([field])
    writer = DataFileWriter(memory, Schema.from_arrow(schema), version="2.0")
    batch = pa.record_batch([pa.array(rows, field.type)], schema=schema)
    with pytest.raises(InvalidInputError, match=name):
        writer.write(batch)
    assert writer.num_rows == 0
    assert memory.size == 0


def test_null_lists_hide_null_structs():
    items = pa.array([{"x": 1}, None], pa.struct([("x", pa.int8())]))
    array = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), items, mask=pa.array([False, True]))
    data, columns = write(pa.table({"c": array}))
    assert read(data, columns).to_pylist() == [{"c": [{"x": 1}]}, {"c": None}]


@pytest.mark.parametrize("key", ["int8", "uint8"])
def test_a_full_dictionary_has_no_room_for_null(key):
    kind = pa.type_for_alias(key)
    count = int(np.iinfo(key).max) + 1
    words = pa.array([str(one) for one in range(count)])
    full = pa.DictionaryArray.from_arrays(pa.array([*range(count), None], kind), words)
    with pytest.raises(InvalidInputError, match=rf"'d'.*{count} values with {key}"):
        write(pa.table({"d": full}))
    table = pa.table({"d": pa.DictionaryArray.from_arrays(pa.array([1, None, 5], kind), words)})
    data, columns = write(table)
    assert read(data, columns).to_pydict() == table.to_pydict()


def test_wrong_metadata_is_refused():
    packed = pa.field("c", pa.struct([("x", pa.int8())]), metadata={"lance-encoding:packed": "false"})
    with pytest.raises(InvalidInputError, match="lance-encoding:packed"):
        check_schema(Schema.from_arrow(pa.schema([packed])), version="2.0")
    for metadata in ({"compression": "zstd", "compression-level": "high"}, {"compression": "high"}):
        keys = {f"lance-encoding:{key}": value for key, value in metadata.items()}
        with pytest.raises(InvalidInputError, match="high"):
            check_schema(Schema.from_arrow(pa.schema([pa.field("c", pa.string(), metadata=keys)])), version="2.0")


def _table():
    texts = pa.array([None if i % 7 == 0 else f"text {i}" for i in range(300)])
    return pa.table(
        {
            "i": pa.array(RNG.integers(0, 9, 300)),
            "s": texts,
            "few": pa.array([f"{i % 5}" for i in range(300)]),
            "d": texts.dictionary_encode(),
            "l": pa.array([None if i % 5 == 0 else [[i] * (i % 3)] for i in range(300)]),
            "st": pa.array([{"a": i, "b": [True, None]} for i in range(300)]),
            "v": pa.array([None if i % 5 == 0 else [i, None] for i in range(300)], pa.list_(pa.float32(), 2)),
        }
    )


def test_damage_is_told_and_never_crashes():
    data, columns = write(_table())
    refused = 0
    for position in RNG.integers(0, len(data) * 8, 300).tolist():
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        try:
            read(bytes(damaged), columns).validate()
        except LanceError as error:
            refused += error.path == "x.lance"
    assert refused > 30
    for size in range(0, len(data), 997):
        with pytest.raises(CorruptDataError):
            read(data[:size], columns)
