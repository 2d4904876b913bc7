import pyarrow as pa
import pytest

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.schema import Schema
from lance_core.table.evolution import altered, find_path, new_fields, with_null_fields, without_columns

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
        (["id"], "'id' is there already"),
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
        with pytest.raises(InvalidInputError, match="there already"):
            with_null_fields(SCHEMA, pa.schema([wrong]), NEXT, allows_children=True)
    with pytest.raises(InvalidInputError, match="not nullable"):
        with_null_fields(SCHEMA, pa.schema([pa.field("q", pa.int8(), nullable=False)]), NEXT, allows_children=True)


def test_paths():
    assert [one.name for one in find_path(SCHEMA, "st.deep.y")] == ["st", "deep", "y"]
    for path in ("nope", "st.nope", "id.x", "", "st."):
        with pytest.raises(InvalidInputError, match="no column"):
            find_path(SCHEMA, path)


def test_dropping():
    left = without_columns(SCHEMA, ["name", "st.deep"])
    assert left.to_arrow().names == ["id", "st", "tags"]
    assert left.to_arrow().field("st").type == pa.struct([("x", pa.int64())])
    for paths, words in [
        (["nope"], "no column"),
        (["st.x", "st.deep"], "left without fields"),
        (["tags.item"], "no column of its own"),
        (list(SCHEMA.names), "at least one column"),
        ([], "list of names"),
        ("id", "list of names"),
    ]:
        with pytest.raises(InvalidInputError, match=words):
            without_columns(SCHEMA, paths)


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
        ({"path": "id", "name": "name"}, InvalidInputError, "two columns named name"),
        ({"path": "st.x", "name": "deep"}, InvalidInputError, "two columns named st.deep"),
        ({"path": "id", "name": "a.b"}, InvalidInputError, "dot"),
        ({"path": "id", "type": pa.int8()}, InvalidInputError, "an alteration is"),
        ({"name": "x"}, InvalidInputError, "an alteration is"),
        ({"path": "nope"}, InvalidInputError, "no column"),
        ({"path": "name", "data_type": pa.int8()}, UnsupportedError, "cast of string"),
        ({"path": "st", "data_type": pa.int8()}, UnsupportedError, "cast of struct"),
        ({"path": "tags.item.a", "data_type": pa.int16()}, UnsupportedError, "no column of its own"),
    ],
)
def test_wrong_alterations(change, error, words):
    with pytest.raises(error, match=words):
        altered(SCHEMA, [change], 20)


def test_packed_structs_change_as_a_whole():
    packed = pa.field("p", pa.struct([("a", pa.int8()), ("b", pa.int8())]), metadata={"packed": "true"})
    schema = Schema.from_arrow(pa.schema([packed]))
    with pytest.raises(InvalidInputError, match="no column of its own"):
        without_columns(schema, ["p.a"])
    with pytest.raises(UnsupportedError, match="no column of its own"):
        altered(schema, [{"path": "p.a", "data_type": pa.int16()}], 9)
    with pytest.raises(UnsupportedError, match="packed"):
        with_null_fields(schema, pa.schema([("p", pa.struct([("c", pa.int8())]))]), 9, allows_children=True)
    assert altered(schema, [{"path": "p.a", "name": "aa"}], 9).schema.fields[0].children[0].name == "aa"


def test_extension_types_are_not_cast():
    schema = Schema.from_arrow(pa.schema([pa.field("u", pa.uuid())]))
    with pytest.raises(UnsupportedError, match="extension type"):
        altered(schema, [{"path": "u", "data_type": pa.binary()}], 9)
    assert altered(schema, [{"path": "u", "name": "id"}], 9).schema.names == ("id",)
