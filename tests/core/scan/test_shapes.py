"""Where structs and lists are null, and how long lists are, is read from the cheapest of their leaves."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_core
from lance_core.scan.plan import plan_filter
from lance_core.scan.query import plan_query

ROWS = [
    {
        "id": 1,
        "s": {"text": "a", "n": 7, "inner": {"f": 0.5, "t": None}},
        "l": [{"x": "p", "y": 1}, {"x": "q", "y": 2}],
    },
    {"id": 2, "s": None, "l": None},
    {"id": 3, "s": {"text": None, "n": None, "inner": None}, "l": []},
]
INNER = pa.struct({"f": pa.float64(), "t": pa.string()})
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "s": pa.struct({"text": pa.string(), "n": pa.int32(), "inner": INNER}),
        "l": pa.list_(pa.struct({"x": pa.string(), "y": pa.int8()})),
    }
)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return lance_core.write_dataset(pa.Table.from_pylist(ROWS, SCHEMA), tmp_path_factory.mktemp("parts") / "t.lance")


def leaves_of(schema):
    return [leaf.name for leaf in schema.leaves()]


@pytest.mark.parametrize(
    ("expressions", "leaves", "values"),
    [
        ({"v": "s.inner is null"}, ["f"], [False, True, True]),
        ({"v": "array_length(l)"}, ["y"], [2, None, 0]),
        ({"v": "cardinality(l) + l[1].y"}, ["x", "y"], [3, None, None]),
        ({"v": "s is null or s.text is null"}, ["text", "n"], [False, True, True]),
    ],
)
def test_an_expression_reads_what_tells_it(table, expressions, leaves, values):
    assert leaves_of(plan_query(table.lance_schema.inner, columns=expressions).plan.projection) == leaves
    assert table.to_table(columns=expressions).column("v").to_pylist() == values
    assert table.take([2, 0], columns=expressions).column("v").to_pylist() == [values[2], values[0]]


@pytest.mark.parametrize(
    ("condition", "leaves", "ids"),
    [
        ("s is null", ["n"], [2]),
        ("s is not null", ["n"], [1, 3]),
        ("s.inner is not null", ["f"], [1]),
        ("l is null", ["y"], [2]),
        ("array_length(l) = 0", ["y"], [3]),
        ("empty(l)", ["y"], [3]),
        ("array_length(l) = 2 and s.text = 'a'", ["y", "text"], [1]),
        ("s is not null and s.text is null", ["text", "n"], [3]),
        ("s.text is null", ["text"], [2, 3]),
        (pc.field("s", "n") == 7, ["n"], [1]),
    ],
)
def test_a_condition_reads_what_tells_it(table, condition, leaves, ids):
    plan = plan_filter(table.lance_schema.inner, condition)
    assert leaves_of(plan.filter_projection) == leaves
    assert table.to_table(columns=["id"], filter=condition).column("id").to_pylist() == ids
    assert table.to_table(filter=condition).to_pylist() == [row for row in ROWS if row["id"] in ids]
    assert table.count_rows(filter=condition) == len(ids)


def test_fragments_whose_files_lack_the_cheapest_leaf_are_asked_too(tmp_path):
    """The leaf was added when they were there: all that their files tell is in other leaves."""
    kinds = pa.schema({"s": pa.struct({"a": pa.int64()}), "l": pa.list_(pa.struct({"a": pa.int64()}))})
    rows = [{"s": {"a": 1}, "l": [{"a": 1}, {"a": 2}]}, {"s": None, "l": None}, {"s": {"a": None}, "l": []}]
    table = lance_core.write_dataset(pa.Table.from_pylist(rows, kinds), tmp_path / "t", data_storage_version="2.2")
    table.add_columns(pa.schema({"s": pa.struct({"b": pa.int8()})}))
    table.add_columns(pa.schema({"l": pa.list_(pa.struct({"b": pa.int8()}))}))
    lance_core.write_dataset(pa.Table.from_pylist(rows, table.schema), table.uri, mode="append")

    table = lance_core.dataset(table.uri)

    for condition, expected in {"s is null": 1, "l is null": 1, "array_length(l) = 2": 0, "empty(l)": 2}.items():
        plan = plan_filter(table.lance_schema.inner, condition)
        assert leaves_of(plan.filter_projection) == ["b"]
        found = table.to_table(columns=["_rowoffset"], filter=condition).column("_rowoffset").to_pylist()
        assert found == [expected, expected + 3]
