import datetime as dt
import pickle
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.sql.predicate import Predicate, make_predicate
from lance_core.sql.pruning import UNKNOWN

NAN = float("nan")
ROWS = pa.record_batch(
    {
        "id": pa.array([0, 1, 2, 3]),
        "a": pa.array([1, 2, None, 4], pa.int32()),
        "f": pa.array([1.5, None, NAN, -0.0]),
        "s": pa.array(["x", "yy", None, "a%b"]),
        "b": pa.array([True, False, None, True]),
        "d": pa.array([dt.date(2020, 1, 1), None, dt.date(2021, 1, 1), dt.date(2022, 1, 1)]),
        "t": pa.array([0, 1, None, 86_400], pa.timestamp("s")),
        "ny": pa.array([5 * 3600, 0, None, 1], pa.timestamp("s", "America/New_York")),
        "st": pa.array([{"x": 1, "y": "p"}, {"x": None, "y": "q"}, None, {"x": 3, "y": None}]),
        "Up": pa.array([1, 2, 3, 4], pa.uint8()),
        "x y": pa.array([1, 2, 3, 4]),
        "list": pa.array([[1], [], None, [2]]),
    }
)


def matching(condition):
    return ROWS.filter(make_predicate(condition, ROWS.schema).mask(ROWS))["id"].to_pylist()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a = 1", [0]),
        ("1 < a", [1, 3]),
        ("a <> 1", [1, 3]),
        ("not (a = 1)", [1, 3]),
        ("a is null", [2]),
        ("a is not null and a >= 2", [1, 3]),
        ("a in (1, 4)", [0, 3]),
        ("a not in (1, 4)", [1]),
        ("a not in (1, NULL)", []),
        ("a = NULL", []),
        ("NULL or id = 1", [1]),
        ("a between 2 and 4", [1, 3]),
        ("a not between 2 and 4", [0]),
        ("a = -1", []),
        ("-a = -1", [0]),
        ("a + 1 = 2 or a * 2 = 8", [0, 3]),
        ("a / 2 = 1", [1]),
        ("-5 / 2 = -2 and -5 % 3 = -2", [0, 1, 2, 3]),
        ("a % 2 = 0", [1, 3]),
        ("a = up", [0, 1, 3]),
        ("`x y` = 2", [1]),
        ('s = "x"', [0]),
        ("UP = 1", [0]),
        ("b", [0, 3]),
        ("not b", [1]),
        ("b is not true", [1, 2]),
        ("s like 'a\\%b'", [3]),
        ("s like '_'", [0]),
        ("s not like 'x%'", [1, 3]),
        ("s ilike 'X'", [0]),
        ("starts_with(s, 'y') or ends_with(s, 'b') or contains(s, '%')", [1, 3]),
        ("length(s) = 2 and upper(s) = 'YY'", [1]),
        ("coalesce(a, 0) = 0", [2]),
        ("a is distinct from 1", [1, 2, 3]),
        ("a is not distinct from 1", [0]),
        ("d = date '2020-01-01'", [0]),
        ("d >= timestamp '2021-01-01 00:00:01'", [3]),
        ("d > cast('2020-06-01' as date)", [2, 3]),
        ("t = timestamp '1970-01-01 00:00:01'", [1]),
        ("t = timestamp '1970-01-01T00:00:01Z'", [1]),
        ("t >= date '1970-01-02'", [3]),
        ("ny = timestamp '1970-01-01 00:00:00'", [0]),
        ("st.x = 1", [0]),
        ("st['y'] = 'q'", [1]),
        ("st.x is null", [1, 2]),
        ("st is null", [2]),
        ("cast(a as double) / 4 = 0.5", [1]),
        ("true", [0, 1, 2, 3]),
        ("1 = 2", []),
        ("a = 1 -- the first", [0]),
        ("list is null", [2]),
    ],
)
def test_sql_matches(sql, expected):
    assert matching(sql) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("f > 1e308", [2]),
        ("f >= 2", [2]),
        ("2 <= f", [2]),
        ("f < 1", [3]),
        ("not f <= 1", [0, 2]),
        ("f = f", [0, 2, 3]),
        ("f != f", []),
        ("f <= f", [0, 2, 3]),
        ("f = 0.0", [3]),
        ("f in (0.0, 1.5)", [0, 3]),
        ("isnan(f)", [2]),
    ],
)
def test_nan_is_the_largest_number_and_equals_itself(sql, expected):
    assert matching(sql) == expected


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("nope = 1", "no column 'nope'"),
        ("st.nope = 1", "no column 'nope'"),
        ("a.x = 1", "int32 and has no field"),
        ("a = 'x'", "cannot be compared with int32"),
        ("a = 1.5", "cannot be compared with int32"),
        ("a = 2147483648", "does not fit into int32"),
        ("up = -1", "does not fit into uint8"),
        ("s = 1", "cannot be compared with string"),
        ("d = '2020-01-01'", "write date '2020-01-01'"),
        ("d = date '2020-13-01'", "is not a date32"),
        ("t = timestamp '1970-01-01 00:00:00.5'", "does not fit"),
        ("a", "gives int32, not a boolean"),
        ("not s", "needs a boolean"),
        ("a > 1 and", "cannot parse"),
        ("", "one SQL condition"),
        ("a = 1; delete from t", "one SQL condition"),
        ("a / 0 = 1", "divide by zero"),
        ("cast(s as int) = 1", "fails on the data"),
        ("s + 1 = 2", "needs numbers"),
    ],
)
def test_wrong_sql_is_refused_with_its_reason(sql, words):
    with pytest.raises(InvalidInputError, match=words):
        matching(sql)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("t < now()", "function now"),
        ("a in (select 1)", "subquery"),
        ("a & 1 = 1", "BITWISEAND"),
        ("list = list", "list"),
        ("s like s", "LIKE"),
        ("cast(a as decimal(3, 1)) % 2 = 1", "remainder"),
        ("a << 1 = 1", "BITWISELEFTSHIFT"),
        ("(select 1) = a", "SUBQUERY"),
        ("regexp_match(s, 'x') is null", "regexp_like"),
        ("a = cast(1 as interval)", "CAST"),
        ("ny >= date '2020-01-01'", "no time of day"),
        ("ny = timestamp '2020-01-01 00:00:00+00:00'", "an offset"),
        ("select 1", "SELECT"),
    ],
)
def test_unsupported_sql_is_named(sql, words):
    with pytest.raises(UnsupportedError, match=words):
        matching(sql)


def test_a_predicate_tells_which_columns_it_reads():
    assert make_predicate("st.x = 1 and A > 2 or a < 0", ROWS.schema).columns == ("st.x", "a")
    assert make_predicate("true", ROWS.schema).columns == ()
    condition = (pc.field("a") > 1) & pc.field("b")
    assert make_predicate(condition, ROWS.schema).columns == ("a", "b")


def test_pyarrow_expressions():
    assert matching(pc.field("a") > 1) == [1, 3]
    assert matching(pc.field("st", "x") == 3) == [3]
    assert matching(pickle.loads(pickle.dumps(pc.field("s").is_null()))) == [2]  # noqa: S301
    with pytest.raises(InvalidInputError, match="does not fit"):
        matching(pc.field("nope") == 1)
    with pytest.raises(InvalidInputError, match="not a boolean"):
        matching(pc.field("a"))
    with pytest.raises(InvalidInputError, match="not int"):
        matching(3)


A, F, S, UP = (pc.field(name) for name in ("a", "f", "s", "Up"))


@pytest.mark.parametrize(
    ("expression", "sql"),
    [
        (A == 7, "a = 7"),
        (pc.scalar(7) < A, "a > 7"),
        (A.isin([1, 2]), "a IN (1, 2)"),
        (A.isin([1, None]), "a = 1 OR a = NULL"),
        (pa.scalar(None, pa.int32()) != A, "a <> NULL"),
        (~(A == 7), "NOT (a = 7)"),
        (A.is_null(), "a IS NULL"),
        (A.is_valid(), "a IS NOT NULL"),
        (UP >= 7, "Up >= 7"),
        (F > 1, "f > 1.0"),
        (F <= -0.5, "f <= -0.5"),
        (pc.field("t") == pa.scalar(60_000, pa.timestamp("ms")), "t = timestamp '1970-01-01 00:01:00'"),
        (pc.field("d") < dt.date(2020, 1, 1), "d < date '2020-01-01'"),
        (pc.field("st", "x") == 3, "st.x = 3"),
        (S == "x", "s = 'x'"),
        (pc.starts_with(S, "x"), "starts_with(s, 'x')"),
        (pc.match_substring(S, "x"), "contains(s, 'x')"),
        (pc.match_like(S, "a%b%"), "s LIKE 'a%b%'"),
        (pc.field("b") & (A > 5) & (S == "x") & (A < 9), "(b AND a > 5) AND (s = 'x' AND a < 9)"),
        (pc.field("b") | (A > 5), "b OR a > 5"),
    ],
    ids=str,
)
def test_pyarrow_expressions_ask_indices_what_sql_does(expression, sql):
    asked, expected = (make_predicate(condition, ROWS.schema).asks for condition in (expression, sql))
    if "IN" in sql:
        assert asked.column == expected.column
        assert asked.values.equals(expected.values)
    elif "OR a = NULL" in sql:
        assert asked.right == expected.right
        assert asked.left.values.to_pylist() == [1]
    else:
        assert asked == expected


@pytest.mark.parametrize(
    "expression",
    [
        A == 7.5,  # compared as floats
        A == 7.0,
        UP == -1,
        F == NAN,
        F == 2**53 + 1,
        pc.field("t") == pa.scalar(1, pa.timestamp("ms")),
        pc.field("d") == pa.scalar(1, pa.timestamp("s")),
        A.isin([]),
        A.isin([1, 2**40]),
        F.is_null(nan_is_null=True),
        pc.match_like(S, "a%", ignore_case=True),
        pc.negate(A) == 1,
        A == UP,
        pc.if_else(A > 1, A > 2, A > 3),
    ],
    ids=str,
)
def test_what_indices_cannot_tell_of_pyarrow_expressions_is_unknown(expression):
    assert make_predicate(expression, ROWS.schema).asks == UNKNOWN


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("c in (0.5, 1.5)", [True, True, False, None, False]),
        ("c = 0.5 or c = 1.5 or c = 12.25", [True, True, False, None, False]),
        ("c not in (0.5, 12.25)", [False, True, True, None, True]),
        ("c in (1, 0.5)", [True, False, False, None, True]),
    ],
)
def test_literals_that_become_decimals_of_other_digits(condition, expected):
    values = [None if one is None else Decimal(one) for one in ("0.5", "1.5", "-2.0", None, "1.0")]
    batch = pa.record_batch({"c": pa.array(values, pa.decimal128(6, 1))})
    found = make_predicate(condition, batch.schema).mask(batch)
    assert found.to_pylist() == [bool(one) for one in expected]


@pytest.mark.parametrize(
    "condition",
    [
        "c = 'beta'",
        "c <> 'beta'",
        "c is null",
        "c is not null",
        "c like '%a' and c <> 'beta'",
        "upper(c) in ('BETA', '17')",
        "c = 'beta' or c is null",
        "c is not distinct from null",
        "c > 'alpha' and n > 3 and c < 'z'",
        "n > 3 and c = 'beta' or n = 0",
        "C = 'beta'",
    ],
)
@pytest.mark.parametrize("index", [pa.int8(), pa.uint32()])
def test_values_of_dictionary_type_match_as_plain_ones(condition, index):
    values = pa.array(["alpha", "beta", None, "17", "zeta", "beta"] * 5)
    encoded = values.cast(pa.dictionary(index, pa.string()))
    with_null = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, 3, None, 1] * 5, index), pa.array(["alpha", "beta", None, "17"])
    )
    for column in (encoded, encoded.slice(3, 20), with_null, encoded.slice(0, 2)):
        batch = pa.record_batch({"c": column, "n": pa.array(range(len(column)))})
        plain = pa.record_batch({"c": pa.array(column.to_pylist(), pa.string()), "n": batch["n"]})
        mask = make_predicate(condition, batch.schema).mask(batch)
        assert mask.to_pylist() == make_predicate(condition, plain.schema).mask(plain).to_pylist()


def test_each_item_of_a_dictionary_is_asked_once():
    batch = pa.record_batch({"c": pa.array(["alpha", "beta", None] * 100).dictionary_encode()})
    predicate, asked = make_predicate("c = 'beta'", batch.schema), []

    def counted(rows):
        asked.append(rows.num_rows)
        return predicate.evaluate(rows)

    assert Predicate(text="", columns=("c",), evaluate=counted).mask(batch).true_count == 100
    assert asked == [3]


def test_an_item_that_no_row_has_fails_no_question():
    items = pa.array(["1", "no number"])
    batch = pa.record_batch({"c": pa.DictionaryArray.from_arrays(pa.array([0, None] * 50), items)})
    predicate = make_predicate("cast(c as int) = 1", batch.schema)
    assert predicate.mask(batch).to_pylist() == [True, False] * 50
    batch = pa.record_batch({"c": pa.DictionaryArray.from_arrays(pa.array([0, 1] * 50), items)})
    with pytest.raises(InvalidInputError, match="fails on the data"):
        predicate.mask(batch)
