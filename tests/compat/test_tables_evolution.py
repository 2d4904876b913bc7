"""Columns changed by one side and read, and changed further, by the other."""

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import LanceError, UnsupportedError

N = 60
KEPT = [i for i in range(N) if i != 7 and not 20 <= i < 25]
ROWS = pa.table(
    {
        "n": range(N),
        "s": [f"t{i}" if i % 4 else None for i in range(N)],
        "st": [{"x": i, "y": str(i)} for i in range(N)],
        "l": [[i] * (i % 3) for i in range(N)],
    }
)
VERSIONS = ["2.2", "2.1", "2.0"]


def by_lance_core(place):
    return lance_core.dataset(place)


def by_pylance(place):
    return lance.dataset(place)


@pytest.fixture(params=VERSIONS)
def version(request):
    return request.param


@pytest.fixture
def place(tmp_path, version):
    """Three fragments with deleted rows, one run of them at the begin of a fragment."""
    uri = str(tmp_path / "t")
    lance.write_dataset(ROWS, uri, max_rows_per_file=20, data_storage_version=version).delete(
        "n = 7 or n between 20 and 24"
    )
    return uri


def check(place):
    """Both read the same, and pylance finds nothing wrong."""
    theirs = lance.dataset(place)
    theirs.validate()
    ours = lance_core.dataset(place)
    assert ours.schema == theirs.schema
    table = theirs.to_table()
    assert ours.to_table() == table
    return table


def add_sql(table):
    table.add_columns({"a": "n * 2", "b": "s || '!'", "c": "7"})


def add_function(table):
    def make(batch):
        return pa.record_batch({"f": [None if i % 2 else [i] for i in batch["n"].to_pylist()]})

    module = lance if isinstance(table, lance.LanceDataset) else lance_core
    udf = module.batch_udf(output_schema=pa.schema([("f", pa.list_(pa.int64()))]))(make)
    table.add_columns(udf, read_columns=["n"], batch_size=8)


def add_data(table):
    table.add_columns(pa.table({"d": [{"q": str(i)} for i in KEPT]}).to_reader())


def add_nulls(table):
    fields = [("e", pa.string()), ("e2", pa.struct([("z", pa.int8())]))]
    # both can read structs that are null in files of version 2.0, but neither can write them when it compacts
    table.add_columns(pa.schema(fields[: 1 if table.data_storage_version == "2.0" else 2]))


def join(table):
    table.merge(pa.table({"k": [3, 30, 99], "w": ["x", "y", "z"]}), left_on="n", right_on="k")


def cast(table):
    table.alter_columns({"path": "n", "data_type": pa.int32(), "name": "number"})


def cast_text(table):
    table.alter_columns({"path": "s", "data_type": pa.large_string()})


def rename(table):
    table.alter_columns({"path": "st.x", "name": "xx"}, {"path": "l", "name": "list"})


def tighten(table):
    table.alter_columns({"path": "n", "nullable": False})


def drop(table):
    table.drop_columns(["s", "st.y"])


def drop_and_add(table):
    table.drop_columns(["s"])
    table.add_columns({"s": "n + 1"})


def metadata(table):
    table.update_schema_metadata({"k": "v"}, replace=True)
    table.update_field_metadata({"n": {"unit": "m"}}, replace=True)
    table.update_field_metadata({"n": {"more": "1"}})


def delete(table):
    table.delete("n % 11 = 3")


def compact(table):
    table.optimize.compact_files(target_rows_per_fragment=1000)


CHANGES = [
    add_sql,
    add_function,
    add_data,
    add_nulls,
    join,
    cast,
    cast_text,
    rename,
    tighten,
    drop,
    drop_and_add,
    metadata,
]
OPENERS = [by_lance_core, by_pylance]


@pytest.mark.parametrize("change", CHANGES)
def test_same_result(tmp_path, version, place, change):
    other = str(tmp_path / "other")
    lance.write_dataset(ROWS, other, max_rows_per_file=20, data_storage_version=version).delete(
        "n = 7 or n between 20 and 24"
    )
    change(by_lance_core(place))
    change(by_pylance(other))
    ours, theirs = check(place), check(other)
    assert ours == theirs
    assert ours.schema == theirs.schema
    ids = [[(one.name(), one.id()) for one in lance.dataset(uri).lance_schema.fields()] for uri in (place, other)]
    assert ids[0] == ids[1]
    files = [
        [[tuple(file.fields) for file in one.metadata.files] for one in lance.dataset(uri).get_fragments()]
        for uri in (place, other)
    ]
    assert files[0] == files[1]


@pytest.mark.parametrize("first", OPENERS)
@pytest.mark.parametrize(
    "steps",
    [
        [add_sql, delete, cast, rename],
        [cast_text, drop, add_data, compact],
        [add_nulls, compact, add_function, tighten],
        [drop_and_add, join, compact, metadata],
    ],
)
def test_taking_turns(place, steps, first):
    turns = [first, next(one for one in OPENERS if one is not first)]
    for number, step in enumerate(steps):
        step_by = turns[number % 2]
        if step is add_data:  # it brings one row for each that is left
            assert lance.dataset(place).count_rows() == len(KEPT)
        step(step_by(place))
        check(place)


@pytest.mark.parametrize("opener", OPENERS)
def test_casts_inside_structs(tmp_path, opener):
    uri = str(tmp_path / "t")
    rows = ROWS.set_column(2, "st", [[{"x": i, "y": "a"} if i % 3 else None for i in range(N)]])
    lance.write_dataset(rows, uri, max_rows_per_file=20)
    opener(uri).alter_columns({"path": "st.x", "data_type": pa.int32()})
    assert lance_core.dataset(uri).to_table()["st"].to_pylist() == rows["st"].to_pylist()
    by_lance_core(uri).alter_columns({"path": "st.y", "data_type": pa.large_string()})
    assert check(uri)["st"].to_pylist() == rows["st"].to_pylist()


def test_fields_added_to_structs(place, version):
    more = pa.field("st", pa.struct([("w", pa.int8())]))
    if version != "2.2":
        for opener in OPENERS:
            with pytest.raises((OSError, UnsupportedError)):
                opener(place).add_columns(more)
        return
    by_lance_core(place).add_columns(more)
    rows = pa.table(
        {"n": [100], "st": [{"x": 1, "w": 5}]},
        schema=pa.schema([("n", pa.int64()), ("st", pa.struct([("x", pa.int64()), ("w", pa.int8())]))]),
    )
    lance_core.write_dataset(rows, place, mode="append")
    assert check(place)["st"].to_pylist()[-1] == {"x": 1, "y": None, "w": 5}


@pytest.mark.parametrize(
    ("change", "is_ours_wider"),
    [
        (lambda t: t.add_columns({"n": "1"}), False),
        (lambda t: t.add_columns({"a": "nope"}), False),
        (lambda t: t.add_columns(pa.field("a", pa.int8(), nullable=False)), False),
        (lambda t: t.add_columns(pa.table({"a": [1]}).to_reader()), False),
        (lambda t: t.alter_columns({"path": "s", "nullable": False}), False),
        (lambda t: t.alter_columns({"path": "n", "name": "s"}), False),
        (lambda t: t.alter_columns({"path": "s", "data_type": pa.int32()}), False),
        (lambda t: t.alter_columns({"path": "n", "data_type": pa.float64()}), True),
        (lambda t: t.drop_columns(["nope"]), False),
        (lambda t: t.drop_columns(["n", "s", "st", "l"]), False),
        (lambda t: t.merge(pa.table({"n": ["x"], "a": [1]}), left_on="n"), False),
    ],
)
def test_refused(place, change, is_ours_wider):
    with pytest.raises((OSError, ValueError, NotImplementedError)):
        change(by_pylance(place))
    if is_ours_wider:
        change(by_lance_core(place))
        check(place)
        return
    with pytest.raises(LanceError):
        change(by_lance_core(place))
    assert by_lance_core(place).latest_version == 2


def test_appends_with_fewer_and_reordered_columns(place):
    arrow = pa.schema([("st", pa.struct([("y", pa.string())])), ("n", pa.int64())])
    rows = pa.table({"st": [{"y": "q"}, {"y": None}], "n": [100, 101]}, schema=arrow)
    lance_core.write_dataset(rows, place, mode="append")
    table = check(place).slice(len(KEPT)).to_pylist()
    assert table == [
        {"n": 100, "s": None, "st": {"x": None, "y": "q"}, "l": None},
        {"n": 101, "s": None, "st": {"x": None, "y": None}, "l": None},
    ]


def test_columns_of_version_0_1_are_renamed_and_dropped(tmp_path):
    uri = str(tmp_path / "t")
    lance.write_dataset(ROWS, uri, max_rows_per_file=20, data_storage_version="legacy")
    by_lance_core(uri).alter_columns({"path": "st.x", "name": "xx"}, {"path": "n", "nullable": False})
    by_lance_core(uri).drop_columns(["s", "st.y"])
    assert check(uri).schema.names == ["n", "st", "l"]
    by_pylance(uri).add_columns({"a": "n + 1"})
    assert check(uri)["a"].to_pylist() == list(range(1, N + 1))
    by_lance_core(uri).add_columns({"b": "n * 3"})
    assert check(uri)["b"].to_pylist() == list(range(0, 3 * N, 3))
    with pytest.raises(UnsupportedError, match=r"columns c without values: file version 0\.1"):
        by_lance_core(uri).add_columns(pa.field("c", pa.int8()))


def test_sql_on_changed_tables_gives_the_same_rows(place):
    add_sql(by_lance_core(place))
    rename(by_pylance(place))
    for condition in ("a > 20 and b like 't3%'", "st.xx between 3 and 9", "array_length(list) = 2 and c = 7"):
        ours, theirs = (one(place).to_table(columns={"q": "a + n"}, filter=condition) for one in OPENERS)
        assert ours == theirs
