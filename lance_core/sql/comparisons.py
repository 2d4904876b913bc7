"""Conditions that are comparisons of columns with literals or NULL, joined by AND, read without the SQL parser.

Most conditions are. To import sqlglot takes longer than all else that a process does to ask one of half a million rows.
Texts with anything else, names that sqlglot takes for more than names, and what is refused are left to
`lance_core.sql.parse`, which gives the same terms for those that are read here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.encoding.kernels import scalar
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.sql import terms
from lance_core.sql.arithmetic import integer_literal, negated
from lance_core.sql.arrow_types import cast, shape_path, written_time
from lance_core.sql.terms import Conjunct, Term, literal_term

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST = 8
"""Comparisons of a text, and values of a list: of many the parser makes groups and arrays."""

_MOST_PARENTHESES = 4
"""Depth to which parentheses are looked into."""

_BLANKS = " \t\r\n"
_SPACE = r"[ \t\r\n]"
_LITERAL = r"(?:-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|(?:(?:date|timestamp)[ ]+)?'[^'\\]*')"
_TEST = re.compile(
    rf"(?P<open>\({_SPACE}*)?(?:(?P<word>[a-z_]\w*)|`(?P<name>[^`]+)`)(?:"
    rf"{_SPACE}*(?P<mark>=|!=|<>|<=?|>=?){_SPACE}*(?P<literal>{_LITERAL})"
    rf"|{_SPACE}+IN{_SPACE}*\({_SPACE}*(?P<options>{_LITERAL}(?:{_SPACE}*,{_SPACE}*{_LITERAL})*){_SPACE}*\)"
    rf"|{_SPACE}+IS{_SPACE}+(?P<not>NOT{_SPACE}+)?NULL)(?(open){_SPACE}*\))",
    re.ASCII | re.IGNORECASE,
)
_AND = re.compile(rf"{_SPACE}+AND{_SPACE}+", re.IGNORECASE)
_KERNELS = {
    "=": "equal",
    "!=": "not_equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_KEYWORDS = """
ALTER ANALYZE AND ANY ARRAY AS BEGIN BETWEEN CACHE CALL CASE COMMENT COMMIT CONNECT_BY_ROOT COPY CREATE CROSS
CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER DELETE DESC DESCRIBE DISTINCT DROP ELSE EXCEPT EXECUTE EXPLAIN
FALSE FETCH FOR FROM GLOB GRANT HAVING IF ILIKE INNER INSERT INTERSECT INTO JOIN KILL LATERAL LIKE LIST LOAD MAP MERGE
NOT NOTNULL NULL NULLABLE OBJECT ON OPTIMIZE OR OUTER PARTITIONED_BY PIVOT PRAGMA PREPARE QUALIFY RANGE REGEXP RENAME
RETURNING REVOKE RLIKE ROLLBACK SELECT SET SHOW STRUCT TABLESAMPLE THEN TRUE TRUNCATE UNCACHE UNION UNPIVOT UPDATE USE
USING VACUUM WHEN WHERE WITH XOR
"""
_RESERVED = frozenset(_KEYWORDS.split())
"""Words that sqlglot does not take for the name of a column, or not before `<`."""


def parse_comparisons(sql: str, schema: pa.Schema) -> tuple[tuple[str, ...], Term] | None:
    """Translate a condition of up to `MOST` comparisons.

    Args:
        sql: What would stand after ``WHERE``.
        schema: All columns that may be named.

    Returns:
        The columns it reads, and a boolean term; None if the condition is another one, or is refused.
    """
    conjuncts: list[Conjunct] = []
    for match in _matches(sql.strip(_BLANKS)):
        options = re.findall(_LITERAL, match["options"] or "", re.IGNORECASE)
        if (match["word"] or "").upper() in _RESERVED or len(options) > MOST:
            return None
        try:
            conjuncts.append(_conjunct(match, list(map(_literal, options)), schema))
        except (InvalidInputError, UnsupportedError, pa.ArrowInvalid):  # the parser tells what is wrong
            return None
    if not conjuncts:
        return None
    columns = tuple(dict.fromkeys([name for conjunct in conjuncts for name in conjunct.columns]))
    return columns, conjuncts[0].term if len(conjuncts) == 1 else terms.conjunction(conjuncts)


def _matches(text: str) -> list[re.Match[str]]:
    """Return the comparisons of a condition, which may stand in parentheses; none if it is another one."""
    for _ in range(_MOST_PARENTHESES):
        parts = _AND.split(text, MOST - 1)
        matches = [match for part in parts if (match := _TEST.fullmatch(part))]
        if len(matches) == len(parts):
            return matches
        if not (text.startswith("(") and text.endswith(")")):
            break
        text = text[1:-1].strip(_BLANKS)
    return []


def _conjunct(match: re.Match[str], options: Sequence[Term], schema: pa.Schema) -> Conjunct:
    column, field = terms.find_column([match["word"] or match["name"]], schema)
    if match["mark"] is not None:
        term = terms.compare(_KERNELS[match["mark"]], column, _literal(match["literal"]))
    elif options:
        term = terms.is_in(column, options)
    else:
        term = terms.is_null(column)
        path = shape_path(column.path, field) if field.nullable else column.path
        return Conjunct((path,), terms.not_(term) if match["not"] else term)
    return Conjunct((column.path,), term)


def _literal(text: str) -> Term:
    if text.endswith("'"):
        kind, _, value = text[:-1].partition("'")
        match kind.strip(_BLANKS).lower():
            case "date":
                return literal_term(cast(scalar(value), pa.date32()))
            case "timestamp":
                return literal_term(written_time(value))
            case _:
                return literal_term(scalar(value))
    number = text.removeprefix("-")
    literal = literal_term(integer_literal(int(number)) if number.isdigit() else scalar(float(number)))
    return negated(literal) if text.startswith("-") else literal
