import pyarrow as pa
import pytest

from lance_core.change.evolution import altered, find_path, new_fields, with_null_fields, without_columns
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.schema import Schema

ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string(), metadata={"comment": "c"}),
        pa.field("st", pa.struct([("x", pa.int64()), ("deep", pa.struct([("y", pa.string())]))])),
        pa.field("tags", pa.list_(pa.struct([("a", pa.int8()), ("b", pa.int8())]))),
    ]
)
SCHEMA = Schema.from_arrow(ARROW)
NEXT = SCHEMA.max_id + 1


def ids(schema):
    return [one.id for one in schema.walk()]


def test_new_columns_get_new_ids_depth_first():
    columns = pa.schema([("a", pa.int8()), ("b", pa.struct([("c", pa.int8())]))])
    assert ids(new_fields(SCHEMA, columns, 20)) == [20, 21, 22]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["id"], "'id' exists already"),
        (["a.b"], "has a dot"),
        ([""], "empty"),
        (["_rowid"], "reserved"),
        ([], "no columns"),
        (["q", "q"], "occurs twice"),
    ],
)
def test_names_of_new_columns(names, words):
    with pytest.raises(InvalidInputError, match=words):
        new_fields(SCHEMA, pa.schema([pa.field(name, pa.int8()) for name in names]), NEXT)


def test_null_fields_inside_of_lists():
    more = pa.schema([("tags", pa.list_(pa.struct([("c", pa.int8())])))])
    made = with_null_fields(SCHEMA, more, NEXT, allows_children=True)
    assert [one.name for one in made.fields[3].children[0].children] == ["a", "b", "c"]
    assert made.fields[3].children[0].children[2].id == NEXT
    with pytest.raises(UnsupportedError, match=r"version 2\.2"):
        with_null_fields(SCHEMA, more, NEXT, allows_children=False)
    inner = pa.struct([("x", pa.int8())])
    for kind in (pa.large_list(inner), pa.map_(pa.string(), inner), pa.list_(inner, 2)):
        schema = Schema.from_arrow(pa.schema([("t", kind)]))
        with pytest.raises(UnsupportedError, match="cannot add fields to 't'"):
            with_null_fields(schema, pa.schema([("t", kind)]), 9, allows_children=True)


def test_null_fields_in_structs():
    more = pa.schema([("n", pa.int8()), ("st", pa.struct([("deep", pa.struct([("z", pa.int8())])), ("w", pa.int8())]))])
    made = with_null_fields(SCHEMA, more, NEXT, allows_children=True)
    assert made.to_arrow().field("st").type == pa.struct(
        [("x", pa.int64()), ("deep", pa.struct([("y", pa.string()), ("z", pa.int8())])), ("w", pa.int8())]
    )
    assert made.names == ("id", "name", "st", "tags", "n")
    assert sorted(set(ids(made)) - set(ids(SCHEMA))) == [NEXT, NEXT + 1, NEXT + 2]
    with pytest.raises(UnsupportedError, match="version 2"):
        with_null_fields(SCHEMA, more, NEXT, allows_children=False)
    for wrong in (pa.field("st", pa.struct([("x", pa.int64())])), pa.field("id", pa.int64())):
        with pytest.raises(InvalidInputError, match="exists already"):
            with_null_fields(SCHEMA, pa.schema([wrong]), NEXT, allows_children=True)
    with pytest.raises(InvalidInputError, match="must be nullable"):
        with_null_fields(SCHEMA, pa.schema([pa.field("q", pa.int8(), nullable=False)]), NEXT, allows_children=True)


def test_paths():
    assert [one.name for one in find_path(SCHEMA, "st.deep.y")] == ["st", "deep", "y"]
    for path in ("nope", "st.nope", "id.x", "", "st."):
        with pytest.raises(InvalidInputError, match="no column"):
            find_path(SCHEMA, path)


def test_dropping():
    left = without_columns(SCHEMA, ["name", "st.deep", "tags.item.a"], NEXT, version="2.1")
    assert not left.casts
    assert left.schema.to_arrow().names == ["id", "st", "tags"]
    assert left.schema.to_arrow().field("st").type == pa.struct([("x", pa.int64())])
    assert left.schema.to_arrow().field("tags").type == pa.list_(pa.struct([("b", pa.int8())]))
    for paths, words in [
        (["nope"], "no column"),
        (list(SCHEMA.names), "cannot drop all columns"),
        ([*SCHEMA.names[:2], "st.x", "st.deep.y", "tags.item.a", "tags.item.b"], "cannot drop all columns"),
        ([], "list of names"),
        ("id", "list of names"),
    ]:
        with pytest.raises(InvalidInputError, match=words):
            without_columns(SCHEMA, paths, NEXT, version="2.1")


def test_what_is_left_without_fields_is_dropped_too():
    left = without_columns(SCHEMA, ["st.deep.y", "tags.item.a", "tags.item.b"], NEXT, version="2.1").schema
    assert left.names == ("id", "name", "st")
    assert left.to_arrow().field("st").type == pa.struct([("x", pa.int64())])


def test_maps_keep_their_keys_and_values():
    kind = pa.map_(pa.string(), pa.struct([("a", pa.int8()), ("b", pa.int8())]))
    schema = Schema.from_arrow(pa.schema([("m", kind), ("n", pa.int8())]))
    for paths in (["m.entries.value"], ["m.entries.key"], ["m.entries.value.a", "m.entries.value.b"]):
        with pytest.raises(InvalidInputError, match="keys or values"):
            without_columns(schema, paths, 9, version="2.2")
    left = without_columns(schema, ["m.entries.value.a"], 9, version="2.2").schema
    assert left.to_arrow().field("m").type == pa.map_(pa.string(), pa.struct([("b", pa.int8())]))
    assert without_columns(schema, ["m.entries"], 9, version="2.2").schema.names == ("n",)


def test_altering():
    made = altered(
        SCHEMA,
        [
            {"path": "id", "name": "key", "data_type": pa.int32()},
            {"path": "name", "nullable": False},
            {"path": "st.deep.y", "data_type": pa.large_string(), "name": "yy"},
        ],
        20,
    )
    assert made.schema.names == ("key", "name", "st", "tags")
    assert [(one.path, one.target, ids(Schema((one.field,)))[-1]) for one in made.casts] == [
        ("id", pa.int32(), 20),
        ("st.deep.y", pa.large_string(), 21),
    ]
    assert made.tightened == ("name",)
    assert made.schema.fields[1].metadata == {"comment": b"c"}
    assert not made.schema.fields[0].nullable
    renamed = altered(SCHEMA, [{"path": "id", "data_type": pa.int64(), "name": "x"}], 20)  # the type it has already
    assert not renamed.casts
    assert ids(renamed.schema) == ids(SCHEMA)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"path": "id", "name": "name"}, InvalidInputError, "same name: 'name'"),
        ({"path": "st.x", "name": "deep"}, InvalidInputError, "same name: 'st.deep'"),
        ({"path": "id", "name": "a.b"}, InvalidInputError, "dot"),
        ({"path": "id", "type": pa.int8()}, InvalidInputError, "an alteration must be"),
        ({"name": "x"}, InvalidInputError, "an alteration must be"),
        ({"path": "nope"}, InvalidInputError, "no column"),
        ({"path": "name", "data_type": pa.int8()}, UnsupportedError, "cast column 'name' from string"),
        ({"path": "st", "data_type": pa.int8()}, UnsupportedError, "cast column 'st' from struct"),
        ({"path": "tags.item.a", "nullable": False}, UnsupportedError, "inside a list"),
        ({"path": "large.item.a", "data_type": pa.int16()}, UnsupportedError, "inside 'large'"),
    ],
)
def test_wrong_alterations(change, error, words):
    large = pa.field("large", pa.large_list(pa.struct([("a", pa.int8())])))
    with pytest.raises(error, match=words):
        altered(Schema.from_arrow(ARROW.append(large)), [change], 20)


PACKED = pa.field("p", pa.struct([("a", pa.int8()), ("b", pa.int8()), ("c", pa.int8())]), metadata={"packed": "true"})


def test_packed_structs_change_as_a_whole():
    schema = Schema.from_arrow(pa.schema([PACKED]))
    with pytest.raises(UnsupportedError, match="inside 'p'"):
        altered(schema, [{"path": "p.a", "data_type": pa.int16()}], 9)
    with pytest.raises(UnsupportedError, match="packed"):
        with_null_fields(schema, pa.schema([("p", pa.struct([("d", pa.int8())]))]), 9, allows_children=True)
    assert altered(schema, [{"path": "p.a", "name": "aa"}], 9).schema.fields[0].children[0].name == "aa"


@pytest.mark.parametrize(
    ("around", "path", "version", "rewritten"),
    [
        (lambda p: p, "p", "2.2", "p"),
        (lambda p: pa.field("s", pa.struct([p, pa.field("q", pa.int8())])), "s.p", "2.1", "s.p"),
        (lambda p: pa.field("s", pa.struct([p, pa.field("q", pa.int8())])), "s.p", "2.0", "s"),
        (lambda p: pa.field("l", pa.list_(p)), "l.p", "2.1", "l.p"),
        (lambda p: pa.field("l", pa.large_list(p)), "l.p", "2.1", "l"),
        (lambda p: pa.field("m", pa.map_(pa.string(), p)), "m.entries.p", "2.2", "m"),
    ],
)
def test_a_packed_struct_that_loses_fields_is_written_anew(around, path, version, rewritten):
    schema = Schema.from_arrow(pa.schema([around(PACKED)]))
    made = without_columns(schema, [f"{path}.a", f"{path}.c"], 20, version=version)
    assert [cast.path for cast in made.casts] == [rewritten]
    new = find_path(made.schema, rewritten)[-1]
    assert ids(Schema((new,))) == list(range(20, 20 + sum(1 for _ in new.walk())))
    assert made.casts[0].target == new.to_arrow().type
    assert [one.name for one in find_path(made.schema, path)[-1].children] == ["b"]
    assert not without_columns(schema, [f"{path}.a"], 20, version="0.1").casts


def test_extension_types_are_not_cast():
    schema = Schema.from_arrow(pa.schema([pa.field("u", pa.uuid())]))
    with pytest.raises(UnsupportedError, match="extension type"):
        altered(schema, [{"path": "u", "data_type": pa.binary()}], 9)
    assert altered(schema, [{"path": "u", "name": "id"}], 9).schema.names == ("id",)
