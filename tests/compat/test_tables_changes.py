"""The same updates and merges by pylance and by lance_core, on the same tables: same rows, ids, versions, order."""

import shutil

import lance
import pyarrow as pa
import pytest

import lance_core

FLOAT = pa.float32()
ROWS = pa.table(
    {
        "id": pa.array(range(6), pa.int64()),
        "b": [f"b{i}" for i in range(6)],
        "c": pa.array([i * 1.5 for i in range(6)], FLOAT),
        "s": pa.array([{"x": i, "y": f"y{i}"} for i in range(6)]),
    }
)
SYSTEM = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def source(ids, values=None, columns=("id", "b", "c", "s")):
    table = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "b": pa.array([f"s{i}" for i in ids], pa.string()),
            "c": pa.array(values or [0] * len(ids), FLOAT),
            "s": pa.array([{"x": -i, "y": "new"} for i in ids], ROWS.schema.field("s").type),
        }
    )
    return table.select(list(columns))


def part_of_struct(ids):
    kind = pa.struct([("x", pa.int64())])
    return pa.table({"id": pa.array(ids, pa.int64()), "s": pa.array([{"x": 7}] * len(ids), kind)})


def upsert(builder):
    return builder.when_matched_update_all().when_not_matched_insert_all()


MERGES = {
    "upsert": (upsert, source([4, 1, 9, 10])),
    "upsert columns in any order": (upsert, source([1, 9], columns=["s", "c", "b", "id"])),
    "upsert some columns": (upsert, source([1, 4, 9], columns=["b", "id"])),
    "upsert part of a struct": (upsert, part_of_struct([1, 9])),
    "upsert nothing": (upsert, source([])),
    "insert": (lambda b: b.when_not_matched_insert_all(), source([1, 9, 9])),
    "update": (lambda b: b.when_matched_update_all(), source([1, 9])),
    "update if": (
        lambda b: upsert(b).when_matched_update_all("source.c > target.c"),
        source([0, 1, 2, 9], [5, 0, 5, 5]),
    ),
    "update some columns if": (
        lambda b: upsert(b).when_matched_update_all("target.s.x > 1 and source.b <> target.b"),
        source([0, 1, 2, 9], columns=["id", "b"]),
    ),
    "update by one of two": (lambda b: b.when_matched_update_all("source.c > target.c"), source([1, 1], [0, 9])),
    "update twice": (lambda b: b.when_matched_update_all(), source([1, 1])),
    "update columns": (
        lambda b: b.when_matched_update_all().write_mode("rewrite_columns"),
        source([1, 4, 9], columns=["id", "b", "s"]),
    ),
    "update columns of none": (
        lambda b: b.when_matched_update_all().write_mode("rewrite_columns"),
        source([9], columns=["id", "b"]),
    ),
    "update all columns": (lambda b: b.when_matched_update_all().write_mode("rewrite_columns"), source([1])),
    "delete": (lambda b: b.when_matched_delete(), source([0, 1, 2, 9], columns=["id"])),
    "delete and insert": (lambda b: b.when_matched_delete().when_not_matched_insert_all(), source([0, 1, 2, 9])),
    "delete twice": (lambda b: b.when_matched_delete(), source([1, 1])),
    "update, delete others if": (
        lambda b: b.when_matched_update_all().when_not_matched_by_source_delete("id < 2"),
        source([1, 4, 9]),
    ),
    "replace all": (
        lambda b: b.when_not_matched_by_source_delete().when_not_matched_insert_all(),
        source([1, 4, 9]),
    ),
    "delete all": (lambda b: b.when_not_matched_by_source_delete(), source([])),
    "fail": (lambda b: b.when_matched_fail().when_not_matched_insert_all(), source([9, 1])),
    "fail not": (lambda b: b.when_matched_fail().when_not_matched_insert_all(), source([9])),
    "nothing": (lambda b: b, source([9])),
}

UPDATES = [
    ({"id": "id + 10"}, "id < 2 or id > 9"),
    ({"c": "id / 2"}, None),
    ({"c": "1"}, "id = 4"),
    ({"b": "concat(b, '-x')"}, "c > 2"),
    ({"b": "NULL", "id": "7"}, "id % 2 = 0"),
    ({"s": "named_struct('x', 5, 'y', 'q')"}, "id = 1"),
    ({"b": "id"}, "s.x = 2"),
    ({"b": "'x'"}, "false"),
    ({"id": "'zz'"}, None),
    ({"nope": "1"}, None),
    ({}, None),
]


def outcome(module, path, change, *, stable):
    """What a change does to a table that pylance made, as pylance sees it; in no order."""
    shutil.rmtree(path, ignore_errors=True)
    made = lance.write_dataset(ROWS, path, enable_stable_row_ids=stable, max_rows_per_file=3)
    made.delete("id = 3")
    try:
        result = change(module.dataset(path))
    except (OSError, ValueError):
        result = "error"
    seen = lance.dataset(path)
    seen.validate()
    rows = seen.to_table(columns=[*ROWS.column_names, *SYSTEM[not stable :]]).to_pylist()
    assert lance_core.dataset(path).to_table().to_pylist() == [
        {name: row[name] for name in ROWS.column_names} for row in rows
    ]
    rows.sort(key=str)
    operation = seen.read_transaction(seen.version).operation
    names = ["removed_fragment_ids", "fields_modified", "update_mode"]
    if getattr(operation, "new_fragments", ()):  # there is nothing for the indices to cover else
        names.append("fields_for_preserving_frag_bitmap")
    details = [getattr(operation, name, None) for name in names]
    details = [sorted(one) if isinstance(one, list) else one for one in details]
    updated = sorted(one.id for one in getattr(operation, "updated_fragments", []))
    return result, seen.version, rows, type(operation).__name__, details, updated


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize("name", MERGES)
def test_merges_are_those_of_pylance(tmp_path, name, stable):
    configure, rows = MERGES[name]

    def change(dataset):
        return configure(dataset.merge_insert("id")).execute(rows)

    theirs = outcome(lance, tmp_path / "t", change, stable=stable)
    # pylance writes parts of a struct beside the other columns without being told to, we write whole rows
    compared = slice(3) if name == "upsert part of a struct" else slice(None)
    ours = outcome(lance_core, tmp_path / "t", change, stable=stable)
    if compared.stop is None and ours[4][-1] != theirs[4][-1]:
        # pylance names all fields, so indices of columns that the source lacks lose the moved rows, too
        assert rows.num_columns < ROWS.num_columns
        assert set(ours[4].pop()) < set(theirs[4].pop())
    assert ours[compared] == theirs[compared]


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize(("updates", "where"), UPDATES)
def test_updates_are_those_of_pylance(tmp_path, updates, where, stable):
    def change(dataset):
        return dataset.update(updates, where=where)

    theirs = outcome(lance, tmp_path / "t", change, stable=stable)
    assert outcome(lance_core, tmp_path / "t", change, stable=stable) == theirs


@pytest.mark.parametrize(
    ("column", "text"), [("l", "[1,2,3]"), ("l", "NULL"), ("f", "[0.1, 0.2]"), ("f", "[1, 2]"), ("f", "[1, 2, 3]")]
)
def test_lists_take_the_type_of_the_column(tmp_path, column, text):
    rows = pa.table(
        {
            "id": pa.array([0, 1], pa.int64()),
            "l": pa.array([[1], None], pa.list_(pa.int32())),
            "f": pa.array([[1.0, 2.0]] * 2, pa.list_(pa.float32(), 2)),
        }
    )
    seen = []
    for module in (lance, lance_core):
        lance.write_dataset(rows, tmp_path / "t", mode="overwrite")
        try:
            module.dataset(tmp_path / "t").update({column: text}, where="id = 1")
        except (OSError, ValueError):
            seen.append("error")
        else:
            seen.append(lance.dataset(tmp_path / "t").to_table().to_pylist())
    assert seen[0] == seen[1]


KEYS = {
    "null": (pa.int64(), [0, None, 2, None], [None, 2, None]),
    "float": (pa.float64(), [0.0, float("nan"), -0.0], [float("nan"), 0.0]),
    "text": (pa.string(), ["a", "", None], ["", "b"]),
    "binary": (pa.binary(), [b"a", b"\0"], [b"\0", b"b"]),
    "day": (pa.date32(), [1, 2], [2, 3]),
    "decimal": (pa.decimal128(10, 2), [1, 2], [2, 3]),
    "boolean": (pa.bool_(), [True, None], [False, True]),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_are_equal_when_pylance_says_so(tmp_path, name):
    kind, target, given = KEYS[name]
    seen = []
    for module in (lance, lance_core):
        table = pa.table({"k": pa.array(target, kind), "v": range(len(target))})
        lance.write_dataset(table, tmp_path / "t", mode="overwrite")
        rows = pa.table({"k": pa.array(given, kind), "v": range(100, 100 + len(given))})
        result = upsert(module.dataset(tmp_path / "t").merge_insert("k")).execute(rows)
        seen.append((result, sorted(map(str, lance.dataset(tmp_path / "t").to_table().to_pylist()))))
    assert seen[0] == seen[1]


TYPES = {
    "json": lambda texts: pa.ExtensionArray.from_storage(pa.json_(pa.utf8()), pa.array(texts)),
    "uuid": lambda texts: pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([text.encode() * 2 for text in texts], pa.binary(16))
    ),
    "dictionary": lambda texts: pa.array(texts).dictionary_encode(),
    "map": lambda texts: pa.array([[(text, 1)] for text in texts], pa.map_(pa.string(), pa.int32())),
    "large text": lambda texts: pa.array(texts, pa.large_string()),
    "decimal": lambda texts: pa.array([len(text) for text in texts], pa.decimal256(50, 3)),
    "view": lambda texts: pa.array(texts, pa.string_view()),
}


@pytest.mark.parametrize("name", TYPES)
def test_values_of_every_type_move(tmp_path, name):
    make, seen = TYPES[name], []
    for module in (lance, lance_core):
        values = make(['{"a": 1}', '{"b": 2}', '{"c": 3}'])
        start = pa.table({"id": pa.array([0, 1, 2], pa.int64()), "v": values})
        path = lance.write_dataset(start, tmp_path / module.__name__, max_rows_per_file=2).uri
        new = pa.table({"id": pa.array([1, 9], pa.int64()), "v": make(['{"n": 1}', '{"m": 2}'])})
        upsert(module.dataset(path).merge_insert("id")).execute(new)
        module.dataset(path).update({"id": "id + 10"}, where="id = 2")
        upsert(module.dataset(path).merge_insert("id")).execute(new.select(["id"]))
        seen.append(sorted(map(str, lance.dataset(path).to_table().to_pylist())))
    assert seen[0] == seen[1]


def test_both_work_on_one_table(tmp_path):
    path = tmp_path / "t"
    lance.write_dataset(ROWS, path, enable_stable_row_ids=True, max_rows_per_file=3)
    expected = {row["id"]: row for row in ROWS.to_pylist()}
    for turn, module in enumerate([lance_core, lance] * 4):
        rows = source([turn, turn + 1, turn + 6])
        upsert(module.dataset(path).merge_insert("id")).execute(rows)
        module.dataset(path).update({"c": "c + 1"}, where=f"id = {turn + 1}")
        expected |= {row["id"]: row for row in rows.to_pylist()}
        expected[turn + 1] = {**expected[turn + 1], "c": expected[turn + 1]["c"] + 1}
        if turn == 4:
            module.dataset(path).optimize.compact_files()
    for module in (lance, lance_core):
        seen = module.dataset(path).to_table().to_pylist()
        assert sorted(seen, key=lambda row: row["id"]) == [expected[key] for key in sorted(expected)]
        assert len({row["_rowid"] for row in module.dataset(path).to_table(with_row_id=True).to_pylist()}) == len(seen)


def test_a_late_merge_of_pylance_sees_our_insert(tmp_path):
    """With a primary key it tells concurrent inserts of one key; ours come without its filter, so it looks again."""
    key = pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})
    schema = pa.schema([key, pa.field("b", pa.string())])
    lance.write_dataset(pa.table({"id": [0], "b": ["x"]}, schema=schema), tmp_path / "t")
    stale = lance.dataset(tmp_path / "t")
    ours = upsert(lance_core.dataset(tmp_path / "t").merge_insert())
    ours.execute(pa.table({"id": [1], "b": ["ours"]}, schema=schema))
    upsert(stale.merge_insert()).execute(pa.table({"id": [1], "b": ["theirs"]}, schema=schema))
    assert lance.dataset(tmp_path / "t").to_table().to_pylist() == [{"id": 0, "b": "x"}, {"id": 1, "b": "theirs"}]


@pytest.mark.parametrize("other", ["append", "merge"])
def test_a_late_merge_of_ours_sees_inserts_of_pylance(tmp_path, other):
    lance.write_dataset(ROWS, tmp_path / "t")
    stale = lance_core.dataset(tmp_path / "t")
    if other == "append":
        lance.write_dataset(source([9, 10]), tmp_path / "t", mode="append")
    else:
        upsert(lance.dataset(tmp_path / "t").merge_insert("id")).execute(source([9, 10]))
    result = upsert(stale.merge_insert("id")).execute(source([9, 11]))
    assert result == {"num_inserted_rows": 1, "num_updated_rows": 1, "num_deleted_rows": 0}
    assert sorted(lance.dataset(tmp_path / "t").to_table()["id"].to_pylist()) == [*range(6), 9, 10, 11]


@pytest.mark.parametrize("value", ["true", "1", "Yes", "false", None])
def test_primary_keys_are_declared_as_for_pylance(tmp_path, value):
    name = "lance-schema:unenforced-primary-key"
    metadata = {f"{name}:position": "2"} if value is None else {name: value}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=metadata), pa.field("b", pa.string())])
    rows = pa.table({"id": [1], "b": ["x"]}, schema=schema)
    seen = []
    for module in (lance, lance_core):
        module.write_dataset(rows, tmp_path / module.__name__)
        field = lance_core.dataset(tmp_path / module.__name__).lance_schema.fields()[0]
        seen.append((field.is_unenforced_primary_key(), field.unenforced_primary_key_position() or 0))
        if value != "false":
            assert (
                upsert(lance.dataset(tmp_path / module.__name__).merge_insert()).execute(rows)["num_updated_rows"] == 1
            )
    assert seen[0] == seen[1]
