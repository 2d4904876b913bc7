"""Expressions that look into structs read no other fields of them, and see the same values."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lance_core
from lance_core.format.schema import Schema
from lance_core.scan.query import plan_query

ROWS = pa.table(
    {
        "i": pa.array(range(60)),
        "s": pa.array(
            [
                None
                if number % 7 == 0
                else {
                    "a": number % 5 or None,
                    "b": f"text {number}",
                    "c": None if number % 4 == 0 else {"d": number / 2, "e": [number]},
                }
                for number in range(60)
            ],
            pa.struct(
                [
                    ("a", pa.int64()),
                    ("b", pa.string()),
                    ("c", pa.struct([("d", pa.float64()), ("e", pa.list_(pa.int64()))])),
                ]
            ),
        ),
    }
)
EXPRESSIONS = {
    "s.a + i": lambda row: None if row["s"] is None or row["s"]["a"] is None else row["s"]["a"] + row["i"],
    "s.b": lambda row: row["s"] and row["s"]["b"],
    "s.c.d": lambda row: row["s"] and row["s"]["c"] and row["s"]["c"]["d"],
    "s.c": lambda row: row["s"] and row["s"]["c"],
    "s": lambda row: row["s"],
    "s IS NULL": lambda row: row["s"] is None,
    "i": lambda row: row["i"],
}
FILTERS = {
    None: lambda _: True,
    "s.a > 2": lambda row: bool(row["s"] and row["s"]["a"] and row["s"]["a"] > 2),
    "s.c.d < 20 AND i > 5": lambda row: bool(row["s"] and row["s"]["c"]) and row["s"]["c"]["d"] < 20 and row["i"] > 5,
    "s IS NOT NULL": lambda row: row["s"] is not None,
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("structs") / "t.lance"
    return lance_core.write_dataset(ROWS, path, max_rows_per_file=25)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.sampled_from(list(EXPRESSIONS)), min_size=1, max_size=4),
    condition=st.sampled_from(list(FILTERS)),
    order=st.sampled_from([None, "i", "s.a"]),
    limit=st.sampled_from([None, 7]),
)
def test_values_are_those_of_whole_structs(dataset, texts, condition, order, limit):
    columns = {f"x{number}": text for number, text in enumerate(texts)}
    rows = [row for row in ROWS.to_pylist() if FILTERS[condition](row)]
    if order == "s.a":  # nulls come last, and equal keys in the order of the table
        rows.sort(key=lambda row: (row["s"] and row["s"]["a"]) or 99)

    table = dataset.scanner(columns=columns, filter=condition, order_by=order and [order], limit=limit).to_table()

    assert table.to_pylist() == [
        {name: EXPRESSIONS[text](row) for name, text in columns.items()} for row in rows[:limit]
    ]


@pytest.mark.parametrize(
    ("columns", "leaves"),
    [
        ({"x": "s.a + 1"}, ["a"]),
        ({"x": "s.c.d", "y": "s.b"}, ["b", "d"]),
        ({"x": "s.a", "y": "s"}, ["a", "b", "d", "item"]),
        ({"x": "s.a", "y": "i"}, ["a", "i"]),
    ],
)
def test_other_fields_are_not_read(columns, leaves):
    query = plan_query(Schema.from_arrow(ROWS.schema), columns=columns)

    assert [leaf.name for leaf in query.plan.projection.leaves()] == leaves
