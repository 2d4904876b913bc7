"""Schemas: words for types, ids, projections, and what cannot be."""

import pyarrow as pa
import pytest

from lance_core._proto import file_pb2
from lance_core.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lance_core.format.schema import Field, Schema, decode_fields, encode_fields

WORDS = {
    "int64": pa.int64(),
    "halffloat": pa.float16(),
    "timestamp:us:-": pa.timestamp("us"),
    "timestamp:ns:+05:30": pa.timestamp("ns", "+05:30"),
    "time32:ms": pa.time32("ms"),
    "duration:s": pa.duration("s"),
    "decimal:128:10:-2": pa.decimal128(10, -2),
    "decimal:256:50:3": pa.decimal256(50, 3),
    "fixed_size_binary:7": pa.binary(7),
    "fixed_size_list:float:16": pa.list_(pa.float32(), 16),
    "fixed_size_list:fixed_size_list:float:2:3": pa.list_(pa.list_(pa.float32(), 2), 3),
    "fixed_size_list:timestamp:us:UTC:2": pa.list_(pa.timestamp("us", "UTC"), 2),
    "dict:string:int8:false": pa.dictionary(pa.int8(), pa.string()),
    "large_list": pa.large_list(pa.string()),
    "list.struct": pa.list_(pa.struct([("a", pa.int8())])),
    "map": pa.map_(pa.string(), pa.int8()),
    "fixed_size_list:struct:2": pa.list_(pa.struct([("a", pa.int8())]), 2),
}


@pytest.mark.parametrize(("words", "kind"), WORDS.items(), ids=WORDS.keys())
def test_words_of_types(words, kind):
    schema = Schema.from_arrow(pa.schema([("c", kind)]))
    assert schema.fields[0].logical_type == words
    again = decode_fields(encode_fields(schema), {})
    assert again == schema
    assert again.to_arrow().field("c").type == kind


def test_ids_grow_depth_first_and_leaves_are_what_has_a_column():
    kind = pa.struct([("x", pa.list_(pa.int8())), ("y", pa.struct([("z", pa.string())]))])
    schema = Schema.from_arrow(pa.schema([("s", kind), ("v", pa.list_(pa.float32(), 3)), ("m", WORDS["map"])]), 10)
    assert [(one.id, one.name) for one in schema.walk()] == [
        (10, "s"),
        (11, "x"),
        (12, "item"),
        (13, "y"),
        (14, "z"),
        (15, "v"),
        (16, "m"),
        (17, "entries"),
        (18, "key"),
        (19, "value"),
    ]
    assert [leaf.id for leaf in schema.leaves()] == [12, 14, 15, 18, 19]
    assert schema.max_id == 19
    assert Schema(()).max_id == -1


def test_messages_keep_everything():
    message = file_pb2.Field(
        name="a",
        id=3,
        parent_id=-1,
        logical_type="int32",
        encoding=file_pb2.Encoding.PLAIN,
        dictionary=file_pb2.Dictionary(offset=5, length=6),
        extension_name="e",
        metadata={"k": b"v"},
        unenforced_primary_key=True,
        unenforced_primary_key_position=2,
        unenforced_clustering_key=True,
        unenforced_clustering_key_position=1,
    )
    assert encode_fields(decode_fields([message], {})) == [message]


def test_select_by_names_and_paths():
    kind = pa.struct([("x", pa.int8()), ("y", pa.struct([("z", pa.string()), ("w", pa.int8())]))])
    schema = Schema.from_arrow(pa.schema([("a", pa.int8()), ("s", kind), ("d.t", pa.int8())]))
    assert schema.select(["s", "a"]).names == ("s", "a")
    assert schema.select(["d.t"]).names == ("d.t",)
    picked = schema.select(["s.y.w", "a", "s.x"])
    assert [one.name for one in picked.walk()] == ["s", "x", "y", "w", "a"]
    assert schema.select(["s.y", "s.y.z", "s"]).fields[0] == schema.fields[1]
    for unknown in ("b", "s.q", "a.x", "s.y.z.k", ""):
        with pytest.raises(InvalidInputError, match="no field"):
            schema.select([unknown])


@pytest.mark.parametrize(
    ("ids", "parents"),
    [([0, 0], [-1, -1]), ([0, 1], [-1, 7]), ([0, 1], [1, -1]), (list(range(300)), list(range(-1, 299)))],
)
def test_trees_that_cannot_be(ids, parents):
    pairs = zip(ids, parents, strict=True)
    messages = [file_pb2.Field(name="f", id=one, parent_id=parent, logical_type="struct") for one, parent in pairs]
    with pytest.raises(CorruptDataError):
        decode_fields(messages, {})


@pytest.mark.parametrize(
    "words",
    ["decimal:128:99:2", "timestamp:fs:-", "fixed_size_list:float:0", "fixed_size_list:float:x", "list", "dict:a:b:c"],
)
def test_words_that_make_no_sense(words):
    with pytest.raises(CorruptDataError, match="'c'"):
        Field(id=0, name="c", logical_type=words).to_arrow()


def test_types_that_are_refused_by_name():
    with pytest.raises(UnsupportedError, match="interval"):
        Field(id=0, name="c", logical_type="interval").to_arrow()
    for kind in (pa.list_(pa.string(), 2), pa.month_day_nano_interval(), pa.run_end_encoded(pa.int32(), pa.int8())):
        with pytest.raises(UnsupportedError, match="'c'"):
            Schema.from_arrow(pa.schema([("c", kind)]))


def test_names_are_listed_once():
    schema = Schema.from_arrow(pa.schema([("a", pa.int64()), ("b", pa.string())]))

    assert schema.names is schema.names == ("a", "b")
