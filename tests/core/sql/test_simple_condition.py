"""Simple conditions are read without sqlglot; they mean what they mean when sqlglot reads them."""

import logging

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_core.errors import LanceError
from lance_core.sql.parse import LanceSql, parse_condition
from lance_core.sql.predicate import make_predicate
from lance_core.sql.simple_condition import simple_condition

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("m", pa.decimal128(9, 2)),
        ("c", pa.dictionary(pa.int32(), pa.string())),
        ("r", pa.struct([("x", pa.int16()), ("Y", pa.string())])),
        ("two words", pa.uint8()),
    ]
)
ROWS = pa.RecordBatch.from_pylist(
    [
        {"i": 1, "f": 0.5, "s": "a", "b": True, "d": 18262, "m": 1, "c": "a", "r": {"x": 1, "Y": "a"}, "two words": 1},
        {"i": -5, "f": -0.0, "s": "it's", "b": False, "d": 0, "m": 2, "c": None, "r": None, "two words": 2},
        dict.fromkeys(SCHEMA.names),
        {"i": 2**40, "f": float("nan"), "s": "", "b": None, "d": 1, "m": 3, "c": "b", "r": {"x": None, "Y": "%"}},
    ],
    SCHEMA,
)


def _answer(read, condition):
    result = read(condition, SCHEMA)
    if result is None:
        return None
    columns, term, asks = result
    values = term.evaluate(ROWS)
    return columns, asks, term.nullable, values.to_pylist() if isinstance(values, pa.Array) else values.as_py()


def _checked(condition):
    """Answer as both read it, or None if it is not simple."""
    try:
        simple = _answer(simple_condition, condition)
    except pa.ArrowInvalid:
        return None  # a value fails; it does in both
    assert simple is None or simple == _answer(parse_condition, condition), condition
    return simple


_COLUMNS = st.sampled_from([*SCHEMA.names[:-1], "r.x", "r.y", "I", "`two words`", "`r`.`Y`", "none"])
_NUMBERS = ["1", "-1", "- 5", "0.5", "-0.0", "1e3", ".5", "5.", "9999999999999999999", "99999999999999999999999"]
_LITERALS = st.sampled_from([*_NUMBERS, "'a'", "'it''s'", "''", "'2020-01-01'", "'%'", "TRUE", "false", "NULL"])
_VALUES = st.one_of(_COLUMNS, _LITERALS)
_COMPARISONS = st.one_of(
    st.tuples(_VALUES, st.sampled_from(["=", "!=", "<>", "<", "<=", ">", ">=", "=="]), _VALUES).map(" ".join),
    st.tuples(_VALUES, st.sampled_from(["=", "<", ">="]), _VALUES).map("".join),
    st.tuples(_COLUMNS, st.sampled_from(["IS NULL", "is not null", "IS TRUE", "", "+ 1 > 2", "= 1 = TRUE"])).map(
        " ".join
    ),
    st.tuples(_VALUES, st.sampled_from(["IN", "NOT IN", "in"]), st.lists(_LITERALS, max_size=3).map(", ".join)).map(
        lambda parts: f"{parts[0]} {parts[1]} ({parts[2]})"
    ),
    st.tuples(_VALUES, st.sampled_from(["", "NOT "]), _VALUES, _VALUES).map(
        lambda parts: f"{parts[0]} {parts[1]}BETWEEN {parts[2]} AND {parts[3]}"
    ),
    st.tuples(_COLUMNS, st.sampled_from(["LIKE", "NOT LIKE"]), st.sampled_from(["'a%'", "'_'", "NULL", "s"])).map(
        " ".join
    ),
)
_CONDITIONS = st.recursive(
    _COMPARISONS,
    lambda inner: st.one_of(
        inner.map("NOT {}".format),
        inner.map("({})".format),
        st.lists(inner, min_size=2, max_size=4).map(" AND ".join),
        st.lists(inner, min_size=2, max_size=4).map(" OR ".join),
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(_CONDITIONS)
def test_simple_conditions_mean_the_same_as_when_sqlglot_reads_them(condition):
    try:
        _checked(condition)
    except LanceError as error:
        pytest.fail(f"only sqlglot refuses {condition!r}: {error}")


@pytest.mark.parametrize(
    "condition",
    [
        "i < 5 AND NOT s = 'a' OR f >= -1.5",
        "m BETWEEN 1 AND 2.5 AND i NOT BETWEEN 2 AND 3",
        "i IN (1, 2, -5) AND s NOT IN ('a')",
        "`two words` = 1 OR r.x IS NOT NULL",
        "b AND (s LIKE 'it%' OR c = 'a')",
    ],
)
def test_common_conditions_are_simple(condition):
    assert _checked(condition) is not None


_OTHER = """
i + 1 = 2 | lower(s) = 'a' | d = DATE '2020-01-01' | s = "a" | i = 1 -- no | i = 1 = b | i IN () | i = 1; | s = x'00'
s = 'a' 'b' | s = '\\' | b IS TRUE | i | i = 'a' | none = 1 | i = 1 OR | ((i = 1) | i = | AND b | b AND | i = 1 2 | NOT
"""


@pytest.mark.parametrize("condition", ["", *(condition.strip() for condition in _OTHER.replace("\n", "|").split("|"))])
def test_what_is_not_simple_or_wrong_is_left_to_sqlglot(condition):
    assert simple_condition(condition, SCHEMA) is None


def test_long_conditions_are_left_to_what_reads_parts_of_them_together():
    assert simple_condition(" OR ".join(f"i={number}" for number in range(15)), SCHEMA) is not None
    assert simple_condition(" OR ".join(f"i={number}" for number in range(16)), SCHEMA) is None
    assert simple_condition(f"s = '{'a' * 300}'", SCHEMA) is None


def test_errors_are_those_of_the_whole_language():
    with pytest.raises(LanceError, match=r"there is no column 'none'\. Did you mean"):
        make_predicate("none = 1", SCHEMA)


def test_words_of_sql_are_columns_only_where_they_are_for_sqlglot():
    logging.disable(logging.WARNING)  # sqlglot tells of each command
    words = {word.lower() for words in LanceSql.Tokenizer.KEYWORDS for word in words.split() if word.isidentifier()}
    shapes = ["{0} = 1", "1 < {0}", "{0} IS NULL", "NOT {0} IN (1)", "({0} = 1)", "{0} < a AND r.{0} = 1", "a > {0}"]
    try:
        for word in sorted(words - {"a", "r"}):
            schema = pa.schema([("a", pa.int64()), (word, pa.int64()), ("r", pa.struct([(word, pa.int64())]))])
            for condition in (shape.format(word) for shape in shapes):
                simple = simple_condition(condition, schema)
                if simple is not None:
                    assert simple[::2] == parse_condition(condition, schema)[::2]
    finally:
        logging.disable(logging.NOTSET)
