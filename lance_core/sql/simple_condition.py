"""Simple conditions, read without sqlglot.

sqlglot takes 60 ms to import, which is twice what a new process needs to read a hundred rows, and most conditions
compare columns with literals. This module reads those, joined by AND, OR, NOT and parentheses, into the same terms as
`lance_core.sql.parse`; it leaves everything else to it, and all errors, so that there is one message for each.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.encoding.kernels import scalar
from lance_core.errors import LanceError
from lance_core.sql import terms
from lance_core.sql.arithmetic import integer_literal, negated
from lance_core.sql.columns import NamedColumns

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_core.sql.pruning import Condition
    from lance_core.sql.terms import Term

LONG = 256
"""Longer conditions are read in parts that are alike, see `lance_core.sql.split`."""

_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])"
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>{_NUMBER})|(?P<text>'(?:[^'\\]|'')*+')|(?P<name>`[^`]+`(?!`))"
    r"|(?P<word>[A-Za-z_]\w*(?!['\"]))|(?P<mark><=|>=|<>|!=|[=<>(),.-]))",
    re.ASCII,
)
_COMPARISONS = {
    "=": "equal",
    "!=": "not_equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_MAX_PARTS = 15
"""More conditions in a chain may be worth a group, see `lance_core.sql.groups`."""
_NO_NAMES = """
ALTER ANALYZE AND ANY ARRAY AS BEGIN BETWEEN CACHE CALL CASE COMMENT COMMIT COPY CREATE CROSS CURRENT_DATE
CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER DELETE DESC DESCRIBE DISTINCT DROP ELSE EXCEPT EXECUTE EXPLAIN FALSE
FETCH FOR FROM GLOB GRANT HAVING ILIKE INNER INSERT INTERSECT INTERVAL INTO JOIN KILL LATERAL LIKE LIST LOAD MAP
MERGE NOT NOTNULL NULL NULLABLE OBJECT ON OPTIMIZE OR OUTER PARTITIONED_BY PIVOT PRAGMA PREPARE QUALIFY RANGE REGEXP
RENAME RETURNING REVOKE RLIKE ROLLBACK SELECT SET SHOW STRUCT TABLESAMPLE THEN TRUE TRUNCATE UNCACHE UNION UNPIVOT
UPDATE USE USING VACUUM VALUES WHEN WHERE WITH XOR
""".split()  # noqa: SIM905 a list of strings would take a page
"""Words that are no names of columns for sqlglot, at least at some places."""
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}


def simple_condition(sql: str, schema: pa.Schema) -> tuple[tuple[str, ...], Term, Condition] | None:
    """Translate a simple condition.

    Args:
        sql: What would stand after ``WHERE``.
        schema: All columns that may be named.

    Returns:
        As `lance_core.sql.parse.parse_condition`; None if the condition is not simple, or wrong.
    """
    tokens = _tokens(sql) if len(sql) < LONG else None
    if tokens is None:
        return None
    reader = _Reader(tokens, NamedColumns(schema))
    try:
        term = reader.condition()
        reader.expect("end")
    except (_NotSimpleError, LanceError):
        return None
    if not pa.types.is_boolean(term.type):
        return None
    return reader.columns.paths, term, term.asks


def _tokens(sql: str) -> list[tuple[str, str]] | None:
    """Return kinds and texts of the tokens; the kind of marks and words is their text in capitals."""
    tokens: list[tuple[str, str]] = []
    at, end = 0, len(sql.rstrip())
    while at < end:
        match = _TOKEN.match(sql, at)
        if match is None:
            return None
        kind, at = str(match.lastgroup), match.end()
        text = match[kind]
        tokens.append((text.upper() if kind in ("word", "mark") else kind, text))
    return [*tokens, ("end", "")]


class _NotSimpleError(Exception):
    """The condition has something that `lance_core.sql.parse` has to read."""


class _Reader:
    """Makes terms of tokens, from the loosest operator to the tightest."""

    def __init__(self, tokens: list[tuple[str, str]], columns: NamedColumns) -> None:
        self._tokens, self._at = tokens, 0
        self.columns = columns

    def condition(self) -> Term:
        """Read conditions that are joined by OR."""
        parts = [self._conjunction()]
        while self._skip("OR"):
            parts.append(self._conjunction())
        return _joined(terms.or_, parts)

    def expect(self, kind: str) -> str:
        """Step over a token of this kind and return its text."""
        actual, text = self._tokens[self._at]
        if actual != kind:
            raise _NotSimpleError
        self._at += 1
        return text

    def _skip(self, kind: str) -> bool:
        is_there = self._tokens[self._at][0] == kind
        self._at += is_there
        return is_there

    def _conjunction(self) -> Term:
        parts = [self._factor()]
        while self._skip("AND"):
            parts.append(self._factor())
        return _joined(terms.and_, parts)

    def _factor(self) -> Term:
        if self._skip("NOT"):
            return terms.not_(self._factor())
        if self._skip("("):
            inner = self.condition()
            self.expect(")")
            return inner
        return self._comparison()

    def _comparison(self) -> Term:
        left = self._value()
        kind, _ = self._tokens[self._at]
        if kind in _COMPARISONS:
            self._at += 1
            return terms.compare(_COMPARISONS[kind], left, self._value())
        if kind in ("AND", "OR", ")", "end"):
            return left
        if self._skip("IS"):
            is_negative = self._skip("NOT")
            self.expect("NULL")
            term = terms.is_null(left)
        else:
            is_negative = self._skip("NOT")
            term = self._range(left)
        return terms.not_(term) if is_negative else term

    def _range(self, left: Term) -> Term:
        if self._skip("IN"):
            self.expect("(")
            options = [self._literal()]
            while self._skip(","):
                options.append(self._literal())
            self.expect(")")
            return terms.is_in(left, options)
        if self._skip("BETWEEN"):
            low = self._value()
            self.expect("AND")
            return terms.between(left, low, self._value())
        self.expect("LIKE")
        from lance_core.sql.text_functions import like  # noqa: PLC0415 of few conditions

        return like("LIKE", left, self._literal(), fold=False)

    def _value(self) -> Term:
        kind, text = self._tokens[self._at]
        if kind != "name" and (kind in _CONSTANTS or not text.isidentifier()):
            return self._literal()
        path = [self._name()]
        while self._skip("."):
            path.append(self._name())
        return self.columns.term(path)

    def _name(self) -> str:
        kind, text = self._tokens[self._at]
        self._at += 1
        if kind == "name":
            return text[1:-1]
        if kind in _NO_NAMES or not text.isidentifier():
            raise _NotSimpleError
        return text

    def _literal(self) -> Term:
        if self._skip("-"):
            return negated(terms.literal_term(_number(self.expect("number"))))
        kind, text = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            return terms.literal_term(_number(text))
        if kind == "text":
            return terms.literal_term(scalar(text[1:-1].replace("''", "'")))
        if kind in _CONSTANTS:
            return terms.literal_term(scalar(_CONSTANTS[kind]))
        raise _NotSimpleError


def _joined(rule: Callable[[Term, Term], Term], parts: list[Term]) -> Term:
    if len(parts) > _MAX_PARTS:
        raise _NotSimpleError
    return terms.joined(rule, parts)


def _number(text: str) -> pa.Scalar:
    try:
        return integer_literal(int(text))
    except ValueError:
        return scalar(float(text))
