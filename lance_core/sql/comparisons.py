"""Conditions that are comparisons of columns with literals, joined by AND, read without the SQL parser.

Most conditions are. To import sqlglot takes longer than all else that a process does to ask one of half a million rows.
Texts with anything else, names that sqlglot takes for more than names, and what is refused are left to
`lance_core.sql.parse`, which gives the same terms for those that are read here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lance_core.encoding.kernels import scalar
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.sql import terms
from lance_core.sql.arithmetic import integer_literal, negated
from lance_core.sql.terms import Conjunct, Term, literal_term

if TYPE_CHECKING:
    import pyarrow as pa

MOST = 8
"""Comparisons of a text; of many the parser makes groups."""

_SPACE = r"[ \t\r\n]"
_COMPARISON = re.compile(
    rf"(?:(?P<word>[a-z_]\w*)|`(?P<name>[^`]+)`){_SPACE}*(?P<mark>=|!=|<>|<=?|>=?){_SPACE}*"
    r"(?:(?P<sign>-?)(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)|'(?P<text>[^'\\]*)')",
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
    matches = [_COMPARISON.fullmatch(part) for part in _AND.split(sql.strip(" \t\r\n"), MOST - 1)]
    conjuncts: list[Conjunct] = []
    for match in matches:
        if match is None or (match["word"] or "").upper() in _RESERVED:
            return None
        try:
            conjuncts.append(_comparison(match, schema))
        except (InvalidInputError, UnsupportedError):  # the parser tells what is wrong
            return None
    columns = tuple(dict.fromkeys([name for conjunct in conjuncts for name in conjunct.columns]))
    return columns, conjuncts[0].term if len(conjuncts) == 1 else terms.conjunction(conjuncts)


def _comparison(match: re.Match[str], schema: pa.Schema) -> Conjunct:
    column, _ = terms.find_column([match["word"] or match["name"]], schema)
    text, number = match["text"], match["number"]
    if text is not None:
        literal = literal_term(scalar(text))
    else:
        literal = literal_term(integer_literal(int(number)) if number.isdigit() else scalar(float(number)))
        literal = negated(literal) if match["sign"] else literal
    return Conjunct((column.path,), terms.compare(_KERNELS[match["mark"]], column, literal))
