"""Conditions that are read without the SQL parser mean what it takes them for."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot.parser import Parser
from sqlglot.tokens import Tokenizer

from lance_core.errors import LanceError
from lance_core.sql.comparisons import MOST, parse_comparisons
from lance_core.sql.parse import parse_condition
from lance_core.sql.predicate import make_predicate

ROWS = pa.record_batch(
    {
        "i": pa.array([1, 2, None, 4, -5], pa.int32()),
        "u": pa.array([1, 2, None, 2**64 - 1, 5], pa.uint64()),
        "f": pa.array([1.5, None, float("nan"), -0.0, 2.0]),
        "s": pa.array(["a", "x y", None, "1", ""]),
        "e": pa.array(["a", "b", None, "1", ""]).dictionary_encode(),
        "b": pa.array([True, False, None, True, False]),
        "t": pa.array([0, 1, None, 86_400, 3], pa.timestamp("s")),
        "d": pa.array([0, 1, None, 18262, 3], pa.date32()),
        "z": pa.array([0, 1, None, 86_400, 3], pa.timestamp("us", "UTC")),
        "m": pa.array([1, 2, None, 4, -5], pa.decimal128(9, 2)),
        "l": pa.array([[1], [], None, [2], [3]]),
        "x y": pa.array([1, 2, 3, 4, 5]),
        "Up": pa.array([1, 2, 3, 4, 5], pa.uint8()),
        "UP": pa.array([5, 4, 3, 2, 1], pa.uint8()),
    }
)


def wrapped(text):
    """Return a text, or the text in parentheses, which need not match."""
    return st.sampled_from([text] * 5 + [f"({text})", f"( ({text} ))", f"({text}", f"{text})"])


NAMES = st.sampled_from([*ROWS.schema.names[:11], "`x y`", "`Up`", "up", "UP", "I", "nope", "`i`", "`", "i.i", "é"])
MARKS = st.sampled_from(["=", "!=", "<>", "<", "<=", ">", ">=", "==", "=>", "<=>", "->", "is", "like"])
NUMBERS = [
    "1",
    "-5",
    "- 5",
    "+1",
    "2.0",
    "1e0",
    "1E-2",
    "0",
    "-0",
    "-0.0",
    "9223372036854775808",
    "-9223372036854775808",
]
WRONG = ["300", "1.", ".5", "007", "1_0", "1.2.3", "0x1", "1a", "99999999999999999999", "null", "true", "i"]
TEXTS = ["'a'", "'x y'", "''", "'it''s'", "'\\''", "'a\nb'", '"a"', "'1'", "x'00'", "'1970-01-02'", "' and '", "'--'"]
SPACES = st.sampled_from(["", " ", "  ", "\n", "\t", "\f", "\u00a0", "/**/", "--\n"])
TIMES = [f"{kind} '{text}'" for kind in ("date", "TIMESTAMP") for text in ("1970-01-02", "1970-01-01 00:00:01", "x")]
TIMES += ["timestamp '1970-01-01 00:00:01+00:00'", "timestamp'1970-01-02'", "date  '2020-01-01'"]
LITERALS = st.sampled_from(NUMBERS + WRONG + TEXTS + TIMES)
COMPARISONS = st.tuples(SPACES, NAMES, SPACES, MARKS, SPACES, LITERALS, SPACES).map("".join)
LIKELY = st.tuples(NAMES, st.sampled_from([" = ", "<", ">= ", " <>"]), st.sampled_from(NUMBERS + TEXTS)).map("".join)
OTHERS = st.one_of(
    st.tuples(NAMES, st.sampled_from([" is null", " IS  NOT NULL", " not null", " IS TRUE"])).map("".join),
    st.tuples(NAMES, st.sampled_from([" in ", " IN", " not in "]), st.lists(LITERALS, min_size=1, max_size=3)).map(
        lambda parts: f"{parts[0]}{parts[1]}({', '.join(parts[2])})"
    ),
    st.tuples(NAMES, st.sampled_from([" = ", "<"]), st.sampled_from(TIMES)).map("".join),
)
CONDITIONS = st.tuples(
    st.sampled_from([" AND ", " and ", "\nAnd\t", " or ", "AND", " and not ", ";"]),
    st.lists((COMPARISONS | LIKELY | OTHERS).flatmap(wrapped), min_size=1, max_size=3),
).map(lambda pair: pair[0].join(pair[1]))
CONDITIONS = CONDITIONS.flatmap(wrapped)


def told(columns, term):
    """Return all that is known of a condition, and its answer for each row."""
    parts = [(part.columns, part.term.asks, part.term.evaluate(ROWS)) for part in term.conjuncts]
    return columns, term.type, term.asks, term.nullable, term.path, term.literal, parts, term.evaluate(ROWS)


@settings(max_examples=500, deadline=None)
@given(CONDITIONS)
def test_a_condition_means_what_the_parser_takes_it_for(condition):
    found = parse_comparisons(condition, ROWS.schema)
    if found is not None:
        assert told(*found) == told(*parse_condition(condition, ROWS.schema))


@settings(deadline=None)
@given(st.lists(LIKELY, min_size=1, max_size=3).map(" AND ".join))
def test_what_is_read_is_what_the_parser_reads(condition):
    """Nothing is refused here that is a comparison there, but for quotes and signs that stand apart."""
    try:
        parse_condition(condition, ROWS.schema)
    except LanceError:
        assert parse_comparisons(condition, ROWS.schema) is None
        return
    is_plain = not any(text in condition for text in ("''", '"', "\\", "x'", "+", "- ", ".i", "' and '", "é"))
    assert not is_plain or parse_comparisons(condition, ROWS.schema) is not None


def words():
    """Return all words that sqlglot knows."""
    tables = [getattr(Parser, name) for name in dir(Parser)]
    entries = {entry for table in tables if isinstance(table, dict | set | frozenset | tuple | list) for entry in table}
    texts = {entry if isinstance(entry, str) else getattr(entry, "name", "") for entry in entries}
    texts |= Tokenizer.KEYWORDS.keys()
    return sorted({word for text in texts if isinstance(text, str) for word in text.split() if word.isidentifier()})


def test_names_that_the_parser_takes_for_more_are_left_to_it():
    assert {"SELECT", "CASE", "CURRENT_DATE", "INTERVAL", "DATE", "UNION"} <= set(words())
    marks = ("= 2", "<-1", "<> 3", " >= 4", " IS NULL", " IN (1, 2)", " is not null")
    for number, word in enumerate(words()):
        name = word.lower()
        rows = ROWS.select(["i", "s"]).rename_columns([name, "s"])
        # Behind another comparison, the marks take turns.
        for condition in [*(f"{name}{mark}" for mark in marks), f"s <> 'b' AND {name}{marks[number % len(marks)]}"]:
            found = parse_comparisons(condition, rows.schema)
            if found is not None:
                columns, term = parse_condition(condition, rows.schema)
                assert found[0] == columns, condition
                assert found[1].asks == term.asks, condition
                assert found[1].evaluate(rows).equals(term.evaluate(rows)), condition


@pytest.mark.parametrize("count", [1, MOST, MOST + 1, 40])
def test_many_comparisons_are_left_to_the_parser(count):
    condition = " AND ".join(f"i > {-number}" for number in range(1, count + 1))
    assert (parse_comparisons(condition, ROWS.schema) is None) == (count > MOST)
    assert make_predicate(condition, ROWS.schema).mask(ROWS).to_pylist() == [True, True, False, True, False]


@pytest.mark.parametrize(
    "condition",
    [
        "i IS NULL AND s IS NOT NULL",
        "((`s` = 'a'))",
        "((`i` >= 1 AND `i` < 5))",
        "((s IN ('a', 'b')) AND (i = 4))",
        "(`t` >= timestamp '1970-01-01 00:00:01' AND `t` < timestamp '1970-01-02 00:00:00')",
        "z = timestamp '1970-01-01 00:00:01+00:00' AND d IN (date '1970-01-02')",
    ],
)
def test_conditions_of_partitions_and_checks_are_read(condition):
    found = parse_comparisons(condition, ROWS.schema)
    assert found is not None
    assert told(*found) == told(*parse_condition(condition, ROWS.schema))
