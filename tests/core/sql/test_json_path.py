"""Paths into JSON that are refused, and what JSON functions are not given."""

import pyarrow as pa
import pytest

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.schema import Schema
from lance_core.sql.expression import make_expression
from lance_core.sql.json_find import find_all
from lance_core.sql.json_path import parse_path

SCHEMA = Schema.from_arrow(
    pa.schema({"j": pa.json_(), "s": pa.string(), "i": pa.int64(), "f": pa.float64()})
).to_arrow()


@pytest.mark.parametrize(
    ("path", "what"),
    [
        *((path, "arithmetic") for path in ("$.a + 1", "-$.a", "+1", "5 / 2", "($.a * 2)", "$.a % 2 == 1")),
        ("$.a > nan", "not finite"),
        ("$.a < -Infinity", "not finite"),
        ('$."\\ud800"', "no Unicode"),
        (f"{'(' * 60}$.a == 1{')' * 60}", "nested"),
    ],
)
def test_syntax_that_is_not_supported_is_named(path, what):
    with pytest.raises(UnsupportedError, match=what):
        parse_path(path)


@pytest.mark.parametrize(
    "path",
    [
        *("$.", "$.a.", "$a", "$[", "$[a]", "$.x y", '$.""', "$['a']", '"a"', " $ . a ", "$. a", "$..f", "$.a.size()"),
        *("$.** {1}", "$.**{last}", "$.**{0,1}", "$[*,0]", "$?()", "$?(@)", "$?(@.a", "$?@.a == 1", "$.?(@.a == 1)"),
        *("$.a = 1", "$.a == 'x'", "$.a == x", "$.a == 1a", "$.a == TRUE", "$.a => 1", "1 < 2 < 3", "a == 1"),
        *(
            "!exists($.a)",
            "exists(a)",
            "(@.a) > 1",
            "$.a == 1 &&",
            "(1 == 1",
            "1 == 1)",
            '$.a == "x',
            "$.a starts  with 1",
        ),
    ],
)
def test_what_is_no_path_is_refused(path):
    with pytest.raises(InvalidInputError, match="JSON path"):
        parse_path(path)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.a[*]?(@.p > 1.5).n", ["y"]),
        ("$.a[*]?(@.p < 2e0 && @.p >= .5).n", ["x"]),
        ('$.a[*]?(@.n != "").p', [1.5, 2]),
        ('$?(@.a[*]?(@.p == 2).n == "y").c', [7]),
        ("@.c == 7", [True]),
        ("$.a[3 to 1]", []),
        ("$.e[1 to 3]", []),
        ("$.a == null", [None]),
    ],
)
def test_conditions_that_pylance_takes_for_syntax_errors_or_never_answers(path, expected):
    document = {"a": [{"p": 1.5, "n": "x"}, {"p": 2, "n": "y"}], "c": 7, "e": []}
    assert find_all(document, parse_path(path)) == expected


@pytest.mark.parametrize("sql", ["json_extract(s, '$')", "json_get(i, 'a')", "json_exists('{}', '$')"])
def test_functions_need_a_json_column(sql):
    with pytest.raises(InvalidInputError, match="needs a JSON column"):
        make_expression(sql, SCHEMA)


def test_functions_need_a_path_as_text():
    with pytest.raises(InvalidInputError, match="needs text"):
        make_expression("json_extract(j, f)", SCHEMA)


def test_what_is_not_found_may_be_null_in_a_column_without_nulls():
    schema = Schema.from_arrow(pa.schema([pa.field("j", pa.json_(), nullable=False)])).to_arrow()
    assert make_expression("json_extract(j, '$.a')", schema).nullable
