"""Fields inside of lists, maps and packed structs: read alone, and changed by one side and read by the other."""

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import LanceError

N = 100
DELETED = "n % 7 = 3 or n between 40 and 55"
OPENERS = [lance.dataset, lance_core.dataset]
ITEM = pa.struct(
    [("x", pa.int32()), ("y", pa.string()), ("m", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.int8())])))]
)


def item(i, j):
    inner = None if (i + j) % 4 == 0 else [{"a": k, "b": k} if k != 1 else None for k in range(i % 3)]
    return None if (i + j) % 9 == 5 else {"x": 10 * i + j, "y": str(j), "m": inner}


def items(i):
    return None if i % 11 == 4 else [item(i, j) for j in range(i % 4)]


LISTS = {
    "list": (pa.field("l", pa.list_(ITEM)), "l.item", items),
    "not null": (pa.field("l", pa.list_(ITEM), nullable=False), "l.item", lambda i: items(i) or []),
    "in a struct": (
        pa.field("l", pa.struct([("in", pa.list_(ITEM)), ("o", pa.int8())])),
        "l.in.item",
        lambda i: None if i % 8 == 1 else {"in": items(i), "o": i},
    ),
    "of lists": (pa.field("l", pa.list_(pa.list_(ITEM))), "l.item.item", lambda i: [items(i), None, items(i + 1)]),
}


def write(place, field, value, version):
    """Two fragments with deleted rows; the rows that are left."""
    schema = pa.schema([pa.field("n", pa.int64()), field])
    rows = pa.Table.from_pylist([{"n": i, field.name: value(i)} for i in range(N)], schema=schema)
    lance.write_dataset(rows, place, max_rows_per_file=60, data_storage_version=version).delete(DELETED)
    return lance.dataset(place).to_table().to_pylist()


def check(place, rows):
    """Both read these rows in every way, also when the table is compacted."""
    assert lance.dataset(place).to_table().to_pylist() == rows
    ours = lance_core.dataset(place)
    assert ours.to_table().to_pylist() == rows
    places = [len(rows) - 1, 0, len(rows) // 2]
    assert ours.take(places).to_pylist() == [rows[i] for i in places]
    assert ours.to_table(filter="n % 5 = 2").to_pylist() == [row for row in rows if row["n"] % 5 == 2]
    ours.optimize.compact_files()
    assert len(lance.dataset(place).get_fragments()) == 1
    assert lance.dataset(place).to_table().to_pylist() == rows


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("path", ["x", "m.item.a"])
@pytest.mark.parametrize("name", LISTS)
def test_casts_inside_of_lists(tmp_path, name, path, opener):
    field, parent, value = LISTS[name]
    place = str(tmp_path / "t")
    rows = write(place, field, value, "2.1")
    opener(place).alter_columns({"path": f"{parent}.{path}", "data_type": pa.int64()})
    assert lance_core.dataset(place).schema == lance.dataset(place).schema
    check(place, rows)


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("name", LISTS)
def test_fields_added_inside_of_lists_are_null_where_there_is_an_item(tmp_path, name, opener):
    field, _, value = LISTS[name]
    place = str(tmp_path / "t")
    write(place, field, value, "2.2")
    new = pa.struct([("w", pa.int64()), ("m", pa.list_(pa.struct([("c", pa.int8())])))])
    kinds = {"in a struct": pa.struct([("in", pa.list_(new))]), "of lists": pa.list_(pa.list_(new))}
    opener(place).add_columns(pa.schema([pa.field("l", kinds.get(name, pa.list_(new)))]))
    assert lance_core.dataset(place).schema == lance.dataset(place).schema
    table = lance.dataset(place).to_table()
    lance_core.write_dataset(table.slice(0, 10), place, mode="append")
    check(place, table.to_pylist() + table.slice(0, 10).to_pylist())


@pytest.mark.parametrize("name", LISTS)
def test_a_field_that_no_file_has_is_read_in_the_lists_that_there_are(tmp_path, name):
    """The lists are told by fields that are not asked for."""
    field, parent, value = LISTS[name]
    place = str(tmp_path / "t")
    write(place, field, value, "2.2")
    new = pa.struct([("w", pa.int64())])
    kinds = {"in a struct": pa.struct([("in", pa.list_(new))]), "of lists": pa.list_(pa.list_(new))}
    lance.dataset(place).add_columns(pa.schema([pa.field("l", kinds.get(name, pa.list_(new)))]))
    column = [f"{parent}.w"]
    theirs = lance.dataset(place).take(range(lance.dataset(place).count_rows()), columns=column)["l"].to_pylist()
    expected = [one and one["in"] for one in theirs] if name == "in a struct" else theirs
    ours = lance_core.dataset(place)
    assert ours.to_table(columns=column).column(0).to_pylist() == expected
    assert ours.take([70, 3], columns=column).column(0).to_pylist() == [expected[70], expected[3]]
    assert ours.to_table(columns=column, filter="n < 30").column(0).to_pylist() == expected[:26]


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("name", LISTS)
def test_fields_dropped_inside_of_lists(tmp_path, name, version):
    """pylance 14.0.2 drops the whole list before 2.2."""
    field, parent, value = LISTS[name]
    place = str(tmp_path / "t")
    write(place, field, value, version)
    paths = [f"{parent}.x", f"{parent}.m.item.b"]
    kept = lance_core.dataset(place).to_table(columns=["n", f"{parent}.y", f"{parent}.m.item.a"])
    lance_core.dataset(place).drop_columns(paths)
    rows = lance.dataset(place).to_table()
    if name != "in a struct":
        assert rows == kept
    if version == "2.2":
        lance.dataset(place).restore()
        lance.dataset(place, version=2).restore()
        lance.dataset(place).drop_columns(paths)
        assert lance_core.dataset(place).to_table() == rows
    check(place, rows.to_pylist())


@pytest.mark.parametrize("opener", OPENERS)
def test_a_struct_without_fields_goes_with_its_last_one(tmp_path, opener):
    place = str(tmp_path / "t")
    rows = pa.table({"n": [1, 2], "s": [{"a": 1, "t": {"b": 1}}, None], "l": [[{"c": 1}], None]})
    lance.write_dataset(rows, place, data_storage_version="2.2")
    opener(place).drop_columns(["s.t.b", "l.item.c"])
    assert lance.dataset(place).schema == pa.schema([("n", pa.int64()), ("s", pa.struct([("a", pa.int64())]))])
    check(place, [{"n": 1, "s": {"a": 1}}, {"n": 2, "s": None}])


NESTS = {
    "list": (pa.list_(ITEM), items, "l.item"),
    "large list": (pa.large_list(ITEM), items, "l.item"),
    "map": (pa.map_(pa.string(), ITEM), lambda i: [(str(j), item(i, j)) for j in range(i % 3)], "l.entries.value"),
}


@pytest.mark.parametrize("name", NESTS)
def test_a_path_into_a_list_reads_the_list_with_that_field(tmp_path, name):
    """As pylance's `take` does; its scan refuses such paths."""
    kind, value, parent = NESTS[name]
    place = str(tmp_path / "t")
    rows = write(place, pa.field("l", kind), value, "2.2")
    ours = lance_core.dataset(place)
    columns = ["n", f"{parent}.x", f"{parent}.m.item.a"]

    def narrow(one):
        inner = one and one["m"] and [pair and {"a": pair["a"]} for pair in one["m"]]
        return one and {"x": one["x"], "m": inner}

    def narrowed(row):
        values = row["l"] and [(one[0], narrow(one[1])) if name == "map" else narrow(one) for one in row["l"]]
        return {"n": row["n"], "l": values}

    expected = [narrowed(row) for row in rows]
    table = ours.to_table(columns=columns)
    assert table.schema.names == ["n", "l"]
    assert table.to_pylist() == expected
    assert ours.to_table(columns=columns, filter="n > 50").to_pylist() == [row for row in expected if row["n"] > 50]
    taken = ours.take([5, 1], columns=columns)
    assert taken.to_pylist() == [expected[5], expected[1]]
    if name != "map":
        theirs = lance.dataset(place)
        assert theirs.take([5, 1], columns=columns) == taken
        with pytest.raises(ValueError, match="Cannot access field"):
            theirs.to_table(columns=columns)
    ordered = ours.scanner(columns=[f"{parent}.x", f"{parent}.m.item.a"], order_by=["n"], limit=5).to_table()
    assert ordered.to_pylist() == [{"l": row["l"]} for row in expected[:5]]
    whole = ours.to_table(columns=[f"{parent}.x", "l"])
    assert whole["l"].to_pylist() == [row["l"] for row in rows]


PACKED = pa.struct([("x", pa.int32()), ("y", pa.int64()), ("z", pa.float32())])
METADATA = {"lance-encoding:packed": "true"}


def packed(i):
    return {"x": i, "y": i * 7, "z": i / 2}


PACKS = {
    "column": (pa.field("c", PACKED, metadata=METADATA), "c", packed),
    "in a struct": (
        pa.field("c", pa.struct([pa.field("p", PACKED, metadata=METADATA), ("q", pa.int8())])),
        "c.p",
        lambda i: {"p": packed(i), "q": i % 50},
    ),
    "in a list": (
        pa.field("c", pa.list_(pa.field("item", PACKED, metadata=METADATA))),
        "c.item",
        lambda i: [packed(i + j) for j in range(i % 3)],
    ),
}


def without(rows, *names):
    """The rows, without some fields of the packed structs."""

    def strip(value):
        if isinstance(value, list):
            return [strip(one) for one in value]
        if not isinstance(value, dict):
            return value
        return {name: strip(one) for name, one in value.items() if name not in names}

    return [strip(row) for row in rows]


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("name", ["column", "in a struct"])
def test_fields_of_packed_structs_are_known(tmp_path, name, version):
    """pylance 14.0.2 reads other bytes for fields that are not the first ones of the struct."""
    field, path, value = PACKS[name]
    place = str(tmp_path / "t")
    rows = write(place, field, value, version)
    numbers = [row["n"] for row in rows]
    ours = lance_core.dataset(place)
    expected = [{f"{path}.z": n / 2, f"{path}.y": n * 7} for n in numbers]
    assert ours.to_table(columns=[f"{path}.z", f"{path}.y"]).to_pylist() == expected
    assert ours.take([5, 70, 2], columns=[f"{path}.z", f"{path}.y"]).to_pylist() == [expected[i] for i in (5, 70, 2)]
    assert ours.to_table(filter=f"{path}.y = 84").to_pylist() == [row for row in rows if row["n"] == 12]
    assert ours.count_rows(filter=f"{path}.z > 20.0") == sum(n / 2 > 20 for n in numbers)
    assert ours.scanner(columns=["n"], order_by=[f"{path}.y"], limit=3).to_table()["n"].to_pylist() == numbers[:3]
    ours.update({"n": f"{path}.y"}, where=f"{path}.x = 14")
    ours.delete(f"{path}.y < 84")
    left = [{**row, "n": 98} if row["n"] == 14 else row for row in rows if row["n"] >= 12]
    assert sorted(lance.dataset(place).to_table().to_pylist(), key=str) == sorted(left, key=str)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("name", PACKS)
def test_packed_structs_that_lost_a_field_in_pylance_are_read(tmp_path, name, version):
    field, path, value = PACKS[name]
    place = str(tmp_path / "t")
    rows = write(place, field, value, version)
    lance.dataset(place).drop_columns([f"{path}.x"])
    ours = lance_core.dataset(place)
    if "c" not in ours.schema.names:  # pylance 14.0.2 drops lists as a whole before 2.2
        assert name == "in a list"
        return
    left = without(rows, "x")
    table = ours.to_table()
    assert table.to_pylist() == left
    assert ours.take([9, 3]).to_pylist() == [left[9], left[3]]
    more = pa.Table.from_pylist(left[:10], schema=table.schema)
    lance.write_dataset(more, place, mode="append")
    ours = lance_core.dataset(place)
    assert ours.to_table().to_pylist() == left + left[:10]
    ours.optimize.compact_files()  # after this pylance reads it, too
    check(place, left + left[:10])


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("name", PACKS)
def test_fields_of_packed_structs_are_dropped(tmp_path, name, version):
    field, path, value = PACKS[name]
    place = str(tmp_path / "t")
    rows = write(place, field, value, version)
    lance_core.dataset(place).drop_columns([f"{path}.y"])
    check(place, without(rows, "y"))


def test_paths_into_lists_that_cannot_be_conditions_are_refused_by_name(tmp_path):
    place = str(tmp_path / "t")
    write(place, pa.field("l", pa.list_(ITEM)), items, "2.2")
    ours = lance_core.dataset(place)
    for ask in (
        lambda: ours.to_table(filter="l.item.x = 1"),
        lambda: ours.delete("l.item.x = 1"),
        lambda: ours.to_table(columns={"a": "l.item.x"}),
        lambda: ours.scanner(order_by=["l.item.x"]).to_table(),
        lambda: ours.to_table(columns=["l.item.nope"]),
        lambda: ours.update({"l.item.x": "1"}),
        lambda: ours.create_scalar_index("l.item.x", "ZONEMAP"),
        lambda: ours.alter_columns({"path": "l.item.x", "nullable": False}),
    ):
        with pytest.raises(LanceError, match="l"):
            ask()
    assert ours.latest_version == 2
