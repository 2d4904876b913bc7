"""Paths into JSON that are refused, and what JSON functions are not given."""

import pyarrow as pa
import pytest

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.schema import Schema
from lance_core.sql.expression import make_expression
from lance_core.sql.json_path import parse_path

SCHEMA = Schema.from_arrow(
    pa.schema({"j": pa.json_(), "s": pa.string(), "i": pa.int64(), "f": pa.float64()})
).to_arrow()


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("$..f", "recursion"),
        ("$.**", "recursion"),
        ("$.a ? (@ > 1)", "filter"),
        ("$[1 to 3]", "range"),
        ("$[0 to last]", "range"),
        ("$.a == 1", "operator"),
    ],
)
def test_syntax_that_is_not_supported_is_named(path, what):
    with pytest.raises(UnsupportedError, match=what):
        parse_path(path)


@pytest.mark.parametrize(
    "path", ["$.", "$.a.", "$a", "$[", "$[a]", "$.x y", '$.""', "$['a']", '"a"', " $ . a ", "$. a"]
)
def test_what_is_no_path_is_refused(path):
    with pytest.raises(InvalidInputError, match="JSON path"):
        parse_path(path)


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
