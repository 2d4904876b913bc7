"""Values computed by SQL: a sample of each function, types, and what is refused."""

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_core.errors import InvalidInputError, LanceError, UnsupportedError
from lance_core.sql import parse
from lance_core.sql.expression import ExactSql, assigned, make_expression

NAN = float("nan")
ROWS = pa.record_batch(
    {
        "n": pa.array([1, 2, 3, 4]),
        "i": pa.array([1, 2, None, -4], pa.int32()),
        "u": pa.array([1, 2, 3, None], pa.uint8()),
        "f": pa.array([1.5, None, NAN, -0.0]),
        "s": pa.array(["x", "yY z", None, "a%b"]),
        "e": pa.array(["", "aXbXc", "äöü", None]),
        "b": pa.array([True, False, None, True]),
        "t": pa.array([dt.datetime(2020, 1, 1, 5, 6, 7), None, dt.datetime(1969, 12, 31, 23), None]),  # noqa: DTZ001
        "dec": pa.array([Decimal("1.25"), None, Decimal("-3.50"), Decimal("100.00")], pa.decimal128(10, 2)),
        "l": pa.array([[1], [2, 3], None, []]),
        "v": pa.array([[1.0, 2.0], None, [5.0, 6.0], [7.0, 8.0]], pa.list_(pa.float32(), 2)),
        "st": pa.array([{"x": 1, "y": "p"}, {"x": None, "y": "q"}, None, {"x": 3, "y": None}]),
    }
)


def value(sql, batch=ROWS):
    return make_expression(sql, batch.schema).evaluate(batch)


def same(left, right):
    return [None if one is None or one != one else one for one in left] == [  # noqa: PLR0124 NaN
        None if one is None or one != one else one  # noqa: PLR0124 NaN
        for one in right
    ]


@pytest.mark.parametrize(
    ("sql", "kind", "expected"),
    [
        ("1", pa.int64(), [1, 1, 1, 1]),
        ("i + 1", pa.int32(), [2, 3, None, -3]),
        ("(i + 1) * 2", pa.int64(), [4, 6, None, -6]),
        ("u + i", pa.int32(), [2, 4, None, None]),
        ("u - 2", pa.uint8(), [255, 0, 1, None]),
        ("i / 2", pa.int32(), [0, 1, None, -2]),
        ("i % 3", pa.int32(), [1, 2, None, -1]),
        ("i + 1.5", pa.float64(), [2.5, 3.5, None, -2.5]),
        ("dec + 1", pa.decimal128(11, 2), [Decimal("2.25"), None, Decimal("-2.50"), Decimal("101.00")]),
        ("dec / 2", pa.decimal128(16, 6), [Decimal("0.625"), None, Decimal("-1.75"), Decimal(50)]),
        ("dec > 1.2", pa.bool_(), [True, None, False, True]),
        ("s || n", pa.string(), ["x1", "yY z2", None, "a%b4"]),
        ("concat(s, '-', i)", pa.string(), ["x-1", "yY z-2", "-", "a%b--4"]),
        ("concat_ws('-', s, e)", pa.string(), ["x-", "yY z-aXbXc", "äöü", "a%b"]),
        ("upper(left(s, 2))", pa.string(), ["X", "YY", None, "A%"]),
        ("right(e, -1)", pa.string(), ["", "XbXc", "öü", None]),
        ("substr(e, 2, 2)", pa.string(), ["", "Xb", "öü", None]),
        ("substring(e from 2)", pa.string(), ["", "XbXc", "öü", None]),
        ("split_part(e, 'X', -1)", pa.string(), ["", "c", "äöü", None]),
        ("strpos(e, 'ü')", pa.int32(), [0, 0, 3, None]),
        ("lpad(s, 3, '0')", pa.string(), ["00x", "yY ", None, "a%b"]),
        ("trim('x' from s)", None, None),
        ("btrim(s, 'x')", pa.string(), ["", "yY z", None, "a%b"]),
        ("regexp_replace(e, '(X)', '[\\1]', 'g')", pa.string(), ["", "a[X]b[X]c", "äöü", None]),
        ("octet_length(e)", pa.int32(), [0, 5, 6, None]),
        ("case when i > 1 then 'big' when i is null then 'none' else s end", pa.string(), ["x", "big", "none", "a%b"]),
        ("case n when 1 then 10 when 2 then 20 end", pa.int64(), [10, 20, None, None]),
        ("if(n > 2, 1, 2.5)", pa.float64(), [2.5, 2.5, 1, 1]),
        ("case when i <> 1 then 6 / (i - 1) end", pa.int64(), [None, 6, None, -1]),
        ("coalesce(i, n)", pa.int64(), [1, 2, 3, -4]),
        ("nullif(s, 'x')", pa.string(), [None, "yY z", None, "a%b"]),
        ("nvl2(i, 'a', 'b')", pa.string(), ["a", "a", "b", "a"]),
        ("greatest(i, 1)", pa.int64(), [1, 2, 1, 1]),
        ("greatest(f, 0.0)", pa.float64(), [1.5, 0.0, NAN, 0.0]),
        ("round(f * 2.5, 1)", pa.float64(), [3.8, None, NAN, -0.0]),
        ("power(i, 2)", pa.float64(), [1, 4, None, 16]),
        ("signum(i)", pa.float64(), [1, 1, None, -1]),
        ("cast(f as string)", pa.string(), ["1.5", None, "NaN", "-0.0"]),
        ("cast(1.9 as int)", pa.int32(), [1, 1, 1, 1]),
        ("cast(dec as decimal(12, 1))", pa.decimal128(12, 1), [Decimal("1.3"), None, Decimal("-3.5"), Decimal(100)]),
        ("cast(t as string)", pa.string(), ["2020-01-01T05:06:07", None, "1969-12-31T23:00:00", None]),
        ("cast(b as int) + 1", pa.int64(), [2, 1, None, 2]),
        ("date_part('hour', t)", pa.int32(), [5, None, 23, None]),
        ("extract(epoch from t)", pa.float64(), [1577855167.0, None, -3600.0, None]),
        ("date_trunc('month', t)", pa.timestamp("us"), [dt.datetime(2020, 1, 1), None, dt.datetime(1969, 12, 1), None]),  # noqa: DTZ001
        ("array_length(l)", pa.uint64(), [1, 2, None, 0]),
        ("array_has(l, 2)", pa.bool_(), [False, True, None, False]),
        ("array_has(l, n)", pa.bool_(), [True, True, None, False]),
        ("array_has_any(l, [1, 2])", pa.bool_(), [True, True, None, False]),
        ("array_has_all(l, [2, 3])", pa.bool_(), [False, True, None, False]),
        ("l[-1]", pa.int64(), [1, 3, None, None]),
        ("v[2]", pa.float32(), [2.0, None, 6.0, 8.0]),
        ("st.x + 1", pa.int64(), [2, None, None, 4]),
        ("make_array(n, i)[2]", pa.int64(), [1, 2, None, -4]),
        ("named_struct('a', n)['a']", pa.int64(), [1, 2, 3, 4]),
        ("x'ff'", pa.binary(), [b"\xff"] * 4),
        ("n > 2 and b", pa.bool_(), [False, False, None, True]),
    ],
)
def test_values_and_types(sql, kind, expected):
    if expected is None:
        expected, kind = ["", "yY z", None, "a%b"], pa.string()
    expression = make_expression(sql, ROWS.schema)
    found = expression.evaluate(ROWS)
    assert expression.type == found.type == kind
    assert same(found.to_pylist(), expected)


def test_the_type_is_known_before_reading():
    for sql in ("i + 1", "s || n", "case when b then 1.5 end", "array_has(l, 1)", "date_trunc('day', t)"):
        expression = make_expression(sql, ROWS.schema)
        empty = expression.evaluate(ROWS.slice(0, 0))
        assert empty.type == expression.type
        assert len(empty) == 0


def test_nullability():
    strict = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64())])
    assert not make_expression("a + 1", strict).nullable
    assert not make_expression("'x'", strict).nullable
    assert not make_expression("coalesce(b, 0)", strict).nullable
    assert make_expression("a + b", strict).nullable
    assert make_expression("case when a > 1 then 1 end", strict).nullable


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("now()", "function now"),
        ("sha9(s)", "function sha9"),
        ("n & 1", "BITWISEAND"),
        ("(select 1)", "SUBQUERY"),
        ("sum(n)", "function sum"),
        ("n + interval '1 day'", "INTERVAL"),
        ("regexp_match(s, 'x')", "regexp_like"),
        ("left(s, n)", "written in the SQL"),
        ("cast(l as string)", "CAST list"),
        ("l = l", "cannot compare values"),
        ("dec = f", "CAST one"),
        ("l[1:2]", "BRACKET"),
    ],
)
def test_what_is_not_supported_is_named(sql, words):
    with pytest.raises(UnsupportedError, match=words):
        value(sql)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("nope + 1", "no column 'nope'"),
        ("n +", "cannot parse"),
        ("n, i", "cannot parse|one SQL expression"),
        ("", "one SQL expression"),
        ("s + 1", "needs numbers"),
        ("lower(n)", "needs text"),
        ("abs(s)", "needs a number"),
        ("round(f, 1, 2)", "does not take 3"),
        ("n / (n - n)", "divide by zero"),
        ("cast(s as int)", "fails on the data"),
        ("cast(f as int)", "fails on the data"),
        ("coalesce(s, n)", "string and int64"),
        ("9223372036854775807 * 4", "64 bits"),
        ("cast('x' as date)", "is not a date32"),
        ("repeat(s, 999999999999)", "cannot repeat"),
        ("cast(1 as decimal(99, 2))", "38 digits"),
        ("(" * 3000 + "1" + ")" * 3000, "too deeply|cannot parse"),
    ],
)
def test_what_is_wrong_is_refused(sql, words):
    with pytest.raises(InvalidInputError, match=words):
        value(sql)


def test_long_chains_are_no_problem():
    text = " or ".join(f"n = {number}" for number in range(2000))
    assert value(text).to_pylist() == [True] * 4


def test_assignment_casts_like_cast():
    field = pa.field("a", pa.int8())
    assert assigned(make_expression("cast(n as double) / 2", ROWS.schema), field).evaluate(ROWS).to_pylist() == [
        0,
        1,
        1,
        2,
    ]
    assert assigned(make_expression("'7'", ROWS.schema), field).evaluate(ROWS).to_pylist() == [7] * 4
    with pytest.raises(InvalidInputError, match="fails on the data"):
        assigned(make_expression("n * 100", ROWS.schema), field).evaluate(ROWS)
    with pytest.raises(UnsupportedError, match="column 'a' is int8"):
        assigned(make_expression("l", ROWS.schema), field)


# ------------------------------------------------------------------------------------------- against plain Python

INTS = st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=8)
FLOATS = st.lists(st.none() | st.floats(width=64), min_size=1, max_size=8)
TEXTS = st.lists(st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6), min_size=1)


def each(function, *columns):
    return [None if None in row else function(*row) for row in zip(*columns, strict=True)]


@given(INTS, st.integers(-100, 100))
@settings(max_examples=40, deadline=None)
def test_integers(values, number):
    batch = pa.record_batch({"a": pa.array(values, pa.int64())})
    text = f"({number})"
    assert value(f"a * 3 - {text}", batch).to_pylist() == each(lambda a: a * 3 - number, values)
    assert value(f"abs(a) + {text}", batch).to_pylist() == each(lambda a: abs(a) + number, values)
    if number:
        assert value(f"a / {text}", batch).to_pylist() == each(lambda a: math.trunc(a / number), values)
        assert value(f"a % {text}", batch).to_pylist() == each(lambda a: int(math.fmod(a, number)), values)
    assert value(f"case when a > {text} then a else 0 end", batch).to_pylist() == [
        one if one is not None and one > number else 0 for one in values
    ]
    assert value(f"coalesce(a, {text})", batch).to_pylist() == [number if one is None else one for one in values]
    assert value("cast(cast(a as string) as bigint)", batch).to_pylist() == values


@given(FLOATS)
@settings(max_examples=40, deadline=None)
def test_floats(values):
    batch = pa.record_batch({"a": pa.array(values, pa.float64())})
    finite = [one for one in values if one is not None and math.isfinite(one)]
    assert same(value("cast(cast(a as string) as double)", batch).to_pylist(), values)
    assert same(value("a % 3", batch).to_pylist(), each(lambda a: math.fmod(a, 3) if math.isfinite(a) else NAN, values))
    ordered = value("greatest(a, 0)", batch).to_pylist()
    assert all(one is not None for one in ordered)
    batch = pa.record_batch({"a": pa.array([max(min(one, 1e15), -1e15) for one in finite] or [0.0])})
    assert value("cast(a as bigint)", batch).to_pylist() == [math.trunc(one) for one in batch.column(0).to_pylist()]
    rounded = value("round(a)", batch).to_pylist()
    expected = [math.copysign(math.floor(abs(one) + 0.5), one) for one in batch.column(0).to_pylist()]
    assert all(abs(a - b) <= (abs(b) > 2**51) for a, b in zip(rounded, expected, strict=True))


@pytest.mark.slow
@given(TEXTS, st.integers(-3, 5))
@settings(max_examples=40, deadline=None)
def test_texts(values, number):
    batch = pa.record_batch({"a": pa.array(values, pa.string())})
    size = number
    assert value("length(a)", batch).to_pylist() == each(len, values)
    assert value("reverse(a)", batch).to_pylist() == each(lambda a: a[::-1], values)
    assert value(f"left(a, {number})", batch).to_pylist() == each(lambda a: a[:size], values)
    assert value("concat(a, 'x')", batch).to_pylist() == [(one or "") + "x" for one in values]
    assert value("a || 'x'", batch).to_pylist() == each(lambda a: a + "x", values)
    assert value("replace(a, 'a', 'bb')", batch).to_pylist() == each(lambda a: a.replace("a", "bb"), values)
    assert value("strpos(a, 'b')", batch).to_pylist() == each(lambda a: a.find("b") + 1, values)
    assert value("split_part(a, 'a', 2)", batch).to_pylist() == each(
        lambda a: [*a.split("a"), ""][1] if "a" in a else "", values
    )
    assert value("contains(a, 'a') or starts_with(a, 'b')", batch).to_pylist() == each(
        lambda a: "a" in a or a.startswith("b"), values
    )


@given(
    st.lists(st.none() | st.lists(st.none() | st.integers(0, 3), max_size=4), min_size=1, max_size=6), st.integers(0, 3)
)
@settings(max_examples=40, deadline=None)
def test_lists(values, number):
    for kind in (pa.list_(pa.int64()), pa.large_list(pa.int64())):
        whole = pa.record_batch({"a": pa.array([[9, 9], *values], kind)})
        batch = whole.slice(1)  # what lies before a slice does not count
        assert value("array_length(a)", batch).to_pylist() == each(len, values)
        assert value(f"array_has(a, {number})", batch).to_pylist() == each(lambda a: number in a, values)
        assert value(f"a[{number}]", batch).to_pylist() == each(
            lambda a: a[number - 1] if 0 < number <= len(a) else None, values
        )
        assert value(f"a[-{number}]", batch).to_pylist() == each(
            lambda a: a[-number] if 0 < number <= len(a) else None, values
        )


WORDS = ["n", "i", "u", "f", "s", "b", "t", "dec", "l", "v", "st", "st.x", "1", "0", "1.5", "'a'", "null", "true"]
WORDS += ["+", "-", "*", "/", "%", "||", "=", "<", "and", "or", "not", "is", "in", "between", "like", "case", "when"]
WORDS += [
    "then",
    "else",
    "end",
    "(",
    ")",
    "[",
    "]",
    ",",
    "cast(",
    "as int)",
    "coalesce(",
    "round(",
    "substr(",
    "x'",
    '"',
]


@given(st.lists(st.sampled_from(WORDS), max_size=12))
@settings(max_examples=150, deadline=None)
def test_no_foreign_error_whatever_the_text(words):
    try:
        found = value(" ".join(words))
    except LanceError:
        return
    assert len(found) == ROWS.num_rows


def test_numpy_agrees_on_many_rows():
    numbers = np.random.default_rng(7).normal(size=10_000)
    batch = pa.record_batch({"a": numbers})
    found = value("case when a > 0 then sqrt(a) else exp(a) end", batch)
    with np.errstate(invalid="ignore"):
        assert np.allclose(np.asarray(found), np.where(numbers > 0, np.sqrt(numbers), np.exp(numbers)))


def test_an_expression_is_parsed_once_for_a_schema(monkeypatch):
    parsed, parse_value = [], parse.parse_value

    def counted(text, schema, **options):
        parsed.append((text, options["is_exact"]))
        return parse_value(text, schema, **options)

    monkeypatch.setattr(parse, "parse_value", counted)
    schema = pa.schema([("once", pa.float64()), ("other", pa.int64())])
    for same in (schema, pa.schema(list(schema))):
        assert make_expression("once = 0.0", same) is make_expression("once = 0.0", schema)
    exact = make_expression(ExactSql("once = 0.0"), schema)
    batch = pa.record_batch([[-0.0], [1]], schema)
    assert make_expression("once = 0.0", schema).evaluate(batch).to_pylist() == [True]
    assert exact.evaluate(batch).to_pylist() == [False]
    assert parsed == [("once = 0.0", False), ("once = 0.0", True)]
    wide = schema.set(1, pa.field("other", pa.float64()))
    assert make_expression("other + 1", schema).type == pa.int64()
    assert make_expression("other + 1", wide).type == pa.float64()
    described = schema.set(0, schema.field(0).with_metadata({"a": "b"}))
    assert make_expression("once = 0.0", described) is not make_expression("once = 0.0", schema)
