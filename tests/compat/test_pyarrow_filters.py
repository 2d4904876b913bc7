"""Filters given as pyarrow expressions keep the rows that pylance keeps."""

import functools
import itertools
import math
import operator
import os

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lance_core
from lance_core.errors import InvalidInputError, UnsupportedError

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"

VALUES = [-math.nan, -math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan, None]
KINDS = {"double": pa.float64(), "float": pa.float32()}
OPERATORS = ("lt", "le", "gt", "ge", "eq", "ne")
LITERALS = [
    0.0,
    -0.0,
    0,
    1.5,
    math.nan,
    -math.nan,
    math.inf,
    pa.scalar(1.5, pa.float32()),
    pa.scalar(None, pa.float64()),
]
LISTS = [[0.0], [-0.0], [0.0, 1.5], [math.nan], [-math.nan], [0.0, None], [1.5, 2, 3, 4, 5, 6, 7.0], [], [None]]


def _floats(values, kind):
    """An array that keeps the sign of NaN."""
    numbers = np.array([0.0 if value is None else value for value in values])
    return pa.array(numbers.astype(kind.to_pandas_dtype()), kind, mask=np.array([value is None for value in values]))


INDICES = {"x": "BTREE", "y": "ZONEMAP", "n": "BTREE", "s": "BITMAP", "b": "BITMAP", "st.x": "BTREE"}


@pytest.fixture(scope="module", params=[*KINDS, "indexed double", "indexed float"])
def tables(request, tmp_path_factory):
    kind = KINDS[request.param.removeprefix("indexed ")]
    left, right = zip(*itertools.product(VALUES, VALUES), strict=True)
    x = _floats(left, kind)
    rows = pa.table(
        {
            "i": range(len(left)),
            "x": x,
            "y": _floats(right, kind),
            "n": pa.array([place % 5 - 2 if place % 7 else None for place in range(len(left))], pa.int32()),
            "s": [f"t{place % 3}" if place % 4 else None for place in range(len(left))],
            "b": [(True, False, None)[place % 3] for place in range(len(left))],
            "st": pa.StructArray.from_arrays([x], names=["x"]),
        }
    )
    place = str(tmp_path_factory.mktemp("filters") / "t")
    theirs = lance.write_dataset(rows, place)
    ours = lance_core.dataset(place)
    if "indexed" in request.param:  # the version that pylance has opened has none
        for column, index_type in INDICES.items():
            ours.create_scalar_index(column, index_type)
    return ours, theirs


def _rows(table, expression):
    return table.to_table(columns=["i"], filter=expression)["i"].to_pylist()


def _same(tables, *expressions):
    for expression in expressions:
        ours, theirs = (_rows(table, expression) for table in tables)
        assert ours == theirs, str(expression)


@pytest.mark.parametrize("name", OPERATORS)
def test_floats_are_compared_in_total_order(tables, name):
    compare, x, y = getattr(operator, name), pc.field("x"), pc.field("y")
    for literal in LITERALS:
        value = pc.scalar(literal)
        found = [compare(x, value), compare(value, x), compare(x.cast("float32", safe=False), value)]
        _same(tables, *found, *(~one for one in found))
    computed = [compare(pc.negate(x), y), compare(x + 0, y), compare(pc.coalesce(x, y), 0.0)]
    _same(tables, compare(x, y), ~compare(x, y), *computed, compare(pc.if_else(x > 0, x, y), 0.0))


@pytest.mark.parametrize("name", OPERATORS)
def test_fields_of_structs_are_compared_in_total_order(tables, name):
    compare = getattr(operator, name)
    for literal in (0.0, -0.0, 1.5, math.nan):  # pylance refuses fields of structs here, so its SQL is the judge
        text = "CAST('NaN' AS DOUBLE)" if math.isnan(literal) else repr(literal)
        symbol = dict(zip(OPERATORS, ("<", "<=", ">", ">=", "=", "<>"), strict=True))[name]
        expected = _rows(tables[1], f"st.x {symbol} {text}")
        assert _rows(tables[0], compare(pc.field("st", "x"), literal)) == expected
        assert _rows(tables[0], compare(pc.struct_field(pc.field("st"), "x"), literal)) == expected


@pytest.mark.parametrize("options", LISTS, ids=str)
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
def test_lists_of_floats_follow_sql(tables, options, kind):
    found = pc.field("x").isin(pa.array(options, kind))
    _same(tables, found, ~found)
    assert _rows(tables[0], pc.field("st", "x").isin(pa.array(options, kind))) == _rows(tables[0], found)


@pytest.mark.parametrize(
    "options",
    [[1, 2], [1, None], [], pa.array([None], pa.int32()), pa.array([1, 2], pa.int8()), [1.5, 1.0]],
    ids=str,
)
def test_nulls_are_neither_in_nor_outside_of_a_list(tables, options):
    found = pc.field("n").isin(options)
    _same(tables, found, ~found, found & pc.field("b"), found | (pc.field("x") > 0), found.is_null(), ~~found)


def test_lists_of_other_types(tables):
    text, answers = pc.field("s").isin(["t1", None]), pc.field("b").isin([True])
    _same(tables, text, ~text, answers, ~answers, pc.is_in(pc.field("s"), pa.array(["t1", None]), skip_nulls=True))


def test_ranges_and_joined_conditions(tables):
    x, y = pc.field("x"), pc.field("y")
    _same(
        tables,
        (x >= -0.0) & (x <= 0.0),
        (x > -1.5) & (x <= math.inf),
        (x < 0) | (y > 0),
        ~((x < 0) & (pc.field("n") > 0)) | pc.field("b"),
        (x > 0) == (y > 0),
        x.is_null() | x.is_nan(),
        x.is_valid() & (x != x),  # noqa: PLR0124 true of NaN in IEEE order
        pc.scalar(math.nan) > 1.0,
        pc.scalar(True),  # noqa: FBT003 a value
    )


def _expressions():
    x, y, n = pc.field("x"), pc.field("y"), pc.field("n")
    sides = st.sampled_from([x, y, pc.negate(x), pc.coalesce(y, 0.0), *(pc.scalar(one) for one in LITERALS[:7])])
    # One comparison for equality only: DataFusion takes `x = 0 AND x <> 0` for false, though it is null where x is.
    compared, ordered = (
        st.builds(
            lambda name, left, right: getattr(operator, name)(left, right), st.sampled_from(names), st.just(x), sides
        )
        for names in (OPERATORS, OPERATORS[:4])
    )
    lists = st.sampled_from(LISTS).map(lambda options: y.isin(pa.array(options, pa.float64())))
    other = st.sampled_from([n > 0, n.isin([1, None]), pc.field("b"), pc.field("s") == "t1"])
    # One list only: DataFusion takes `y IN (0) AND y NOT IN (0)` for false, though it is null where y is.
    leaves = [_maybe_inverted(one) for one in (compared, ordered, lists, other)]
    joined = st.sampled_from([operator.and_, operator.or_])
    pairs = [
        _maybe_inverted(st.builds(lambda join, a, b: join(a, b), joined, *two)) for two in (leaves[:2], leaves[2:])
    ]
    return _maybe_inverted(st.builds(lambda join, a, b: join(a, b), joined, *pairs))


def _maybe_inverted(expressions):
    return st.one_of(expressions, expressions.map(operator.invert))


@settings(max_examples=600 if IS_DEEP else 35, deadline=None, suppress_health_check=list(HealthCheck))
@given(expression=_expressions())
def test_random_expressions(tables, expression):
    _same(tables, expression)


def test_changes_take_expressions_in_total_order(tmp_path):
    rows = pa.table({"i": range(len(VALUES)), "x": _floats(VALUES, pa.float64())})
    found = []
    for module in (lance_core, lance):
        place = tmp_path / module.__name__
        module.write_dataset(rows, place).delete(pc.field("x") > 0)
        found.append(module.dataset(place).to_table()["i"].to_pylist())
    assert found[0] == found[1]


@pytest.mark.parametrize("column", ["x", "i"])
def test_long_chains(tables, column):
    """1,200 terms nest deeper than Python's stack."""
    values = [one / 2 if column == "x" else one for one in range(1200)]
    chain = functools.reduce(operator.or_, [pc.field(column) == one for one in values])
    expected = _rows(tables[0], "x = 0 OR x = 1.5" if column == "x" else "i < 1200")
    assert _rows(tables[0], chain) == expected


def test_system_columns_can_be_compared(tables):
    assert _rows(tables[0], pc.field("_rowid") < 2) == [0, 1]


def test_columns_are_named_not_numbered(tables):
    for expression in (pc.field(1) > 0, pc.field("st", 0) > 0):
        with pytest.raises(UnsupportedError, match="Name columns as in"):
            _rows(tables[0], expression)


def test_what_does_not_fit_is_refused(tables):
    for expression in (pc.field("x") > "a", pc.field("nope") > 1, pc.field("n"), pc.field("st", "y") > 1):
        with pytest.raises(InvalidInputError):
            _rows(tables[0], expression)
