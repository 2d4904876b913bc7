"""SQL queries over one table: what to read, what to make of it, and what the columns of the answer are called.

``SELECT [DISTINCT] ... FROM dataset [WHERE] [GROUP BY] [HAVING] [ORDER BY] [LIMIT] [OFFSET]`` with the functions of
`lance_core.sql.parse` and the aggregates below. Joins, subqueries, windows and the like are refused by name; DuckDB
reads a dataset as it is and has them all.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

import sqlglot
from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError

from lance_core.common.frozen import frozen, mutable, replace
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.sql.expression import ExactSql
from lance_core.sql.parse import LanceSql
from lance_core.sql.split import cut_where, without_table

if TYPE_CHECKING:
    from collections.abc import Sequence

Node: TypeAlias = Any
"""A node of sqlglot's tree."""

AGGREGATES = {
    "count": "count",
    "sum": "sum",
    "avg": "mean",
    "mean": "mean",
    "min": "min",
    "max": "max",
    "bool_and": "all",
    "bool_or": "any",
    "stddev": "stddev",
    "stddev_samp": "stddev",
    "stddev_pop": "stddev",
    "var": "variance",
    "var_samp": "variance",
    "var_pop": "variance",
}
"""Names of aggregates, and of the kernels of Arrow that work them out."""

_CLAUSES = {
    "expressions", "from", "from_", "where", "group", "having", "order", "limit", "offset", "distinct", "kind", "hint",
}  # fmt: skip


class _Statements(LanceSql):
    """As in conditions, but text is in single quotes only: double quotes are around names, as the standard has it."""

    NULL_ORDERING = "nulls_are_large"

    class Tokenizer(LanceSql.Tokenizer):
        """The quotes."""

        IDENTIFIERS = ["`", '"']  # noqa: RUF012 the base class declares it so
        QUOTES = ["'"]  # noqa: RUF012 likewise


@frozen(kw_only=True)
class Column:
    """A column of the answer: its name, and the SQL that makes it; None for ``*``."""

    name: str
    text: str | None


@frozen(kw_only=True)
class Aggregate:
    """One value of a group.

    Attributes:
        name: As in the query, in small letters.
        text: SQL of what it is worked out from; None for ``count(*)``.
        is_distinct: Equal values count once.
    """

    name: str
    text: str | None
    is_distinct: bool = False


@frozen(kw_only=True)
class OrderKey:
    """Sort key of the result."""

    text: str
    ascending: bool
    nulls_first: bool


@frozen(kw_only=True)
class Select:
    """A query. In queries with groups, columns, ``having`` and ``order`` speak of ``_key0``, ``_value0`` and so on.

    Attributes:
        columns: The answer.
        where: SQL of a condition on rows.
        is_grouped: There are groups, or one of all rows.
        keys: SQL of what groups have in common.
        aggregates: What is worked out for each group.
        having: SQL of a condition on groups.
        order: How the answer is ordered.
        is_distinct: Equal rows of the answer come once.
        limit: Rows at most.
        offset: Rows to leave out first.
    """

    columns: tuple[Column, ...]
    where: str | None = None
    is_grouped: bool = False
    keys: tuple[str, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    having: str | None = None
    order: tuple[OrderKey, ...] = ()
    is_distinct: bool = False
    limit: int | None = None
    offset: int = 0


def sql_of_groups(select: Select, text: str) -> str:
    """Return SQL that speaks of ``_key0``, ``_value0`` and so on with the expressions of the query, for messages."""

    def expression(match: re.Match[str]) -> str:
        index = int(match[2])
        if match[1] == "key":
            return select.keys[index]
        aggregate = select.aggregates[index]
        return f"{aggregate.name}({'DISTINCT ' if aggregate.is_distinct else ''}{aggregate.text or '*'})"

    return re.sub(r"\b_(key|value)(\d+)\b", expression, text)


def parse_select(sql: str, table_name: str) -> Select:
    """Read a query.

    Args:
        sql: The query.
        table_name: What the table is called in it.

    Raises:
        InvalidInputError: No SQL, or another table.
        UnsupportedError: Something of SQL that is not supported; the message names it.
    """
    cut = cut_where(sql)
    try:
        parsed = [
            statement
            for statement in sqlglot.parse(cut[0] if cut else sql, dialect=_Statements)
            if statement is not None
        ]
    except (SqlglotError, RecursionError) as error:
        raise InvalidInputError(f"cannot parse {sql!r}: {str(error).splitlines()[0]}") from error
    if len(parsed) != 1:
        raise InvalidInputError(f"{sql!r} is {len(parsed)} statements, not one")
    node: Node = parsed[0]
    if not isinstance(node, exp.Select):
        raise UnsupportedError(f"{type(node).__name__.upper()} in dataset.sql; only SELECT of one table is supported")
    _check_clauses(node)
    names = _table_names(node, table_name)
    _unqualify(node, names)
    select = _Reading(node).select()
    return select if cut is None else replace(select, where=without_table(cut[1], names))


def _check_clauses(node: Node) -> None:
    for name, value in node.args.items():
        if value and name not in _CLAUSES:
            raise UnsupportedError(f"{name.strip('_').upper()} in dataset.sql is not supported")
    for kind in (exp.Subquery, exp.Window, exp.Exists, exp.Interval):
        clause = node.find(kind)
        if clause is not None:
            raise UnsupportedError(f"{kind.__name__.upper()} in dataset.sql is not supported: {clause.sql()}")


def _table_names(node: Node, table_name: str) -> set[str]:
    """Return the names that columns may use for the table."""
    source = node.args.get("from_") or node.args.get("from")
    if source is None or not isinstance(source.this, exp.Table):
        raise UnsupportedError("a query without a table, or of something else, is not supported")
    table = source.this
    if table.name.lower() != table_name.lower() or table.args.get("db") or table.args.get("joins"):
        raise InvalidInputError(f"the query is of table {table.sql()!r}; the dataset is called {table_name!r} here")
    return {(table.alias or table.name).lower()}


def _unqualify(node: Node, names: set[str]) -> None:
    for column in list(node.find_all(exp.Column)):
        parts = column.parts
        if len(parts) > 1 and parts[0].name.lower() in names:
            column.replace(exp.column(*[part.copy() for part in reversed(parts[1:])]))


@mutable
class _Reading:
    """A statement on the way to a query."""

    node: Node
    keys: list[Node] = field(default_factory=list[Any])
    aggregates: list[Aggregate] = field(default_factory=list[Aggregate])
    aliases: dict[str, Node] = field(default_factory=dict[str, Any])

    def select(self) -> Select:
        node = self.node
        projections = [(item.unalias(), item.alias or None) for item in node.expressions]
        self.aliases = {name.lower(): item for item, name in projections if name}
        group = node.args.get("group")
        if group is not None:
            if any(value for key, value in group.args.items() if key != "expressions"):
                raise UnsupportedError(f"{group.sql()} is not supported")
            self.keys = [self._resolved(key, projections) for key in group.expressions]
        order = [
            self._ordered(key, projections)
            for key in (node.args["order"].expressions if node.args.get("order") else ())
        ]
        having = node.args.get("having")
        asked = [item for item, _ in projections] + [key for key, _, _ in order] + ([having.this] if having else [])
        is_grouped = group is not None or any(_has_aggregate(item) for item in asked)
        text = self._grouped if is_grouped else _text
        where = node.args.get("where")
        return Select(
            columns=tuple(self._column(item, alias, text, is_grouped=is_grouped) for item, alias in projections),
            where=None if where is None else str(_text(where.this)),
            is_grouped=is_grouped,
            order=tuple(OrderKey(text=text(key), ascending=up, nulls_first=first) for key, up, first in order),
            having=None if having is None else self._having(self._resolved(having.this, ())),
            is_distinct=_is_distinct(node),
            limit=_number(node.args.get("limit"), "LIMIT"),
            offset=_number(node.args.get("offset"), "OFFSET") or 0,
            keys=tuple(map(_text, self.keys)),
            aggregates=tuple(self.aggregates),
        )

    def _column(self, node: Node, alias: str | None, text: Any, *, is_grouped: bool) -> Column:
        if isinstance(node, exp.Star):
            if is_grouped or any(node.args.values()):
                raise UnsupportedError(f"{node.sql()} is not supported here")
            return Column(name="*", text=None)
        return Column(name=alias or column_name(node), text=text(node))

    def _resolved(self, node: Node, projections: Sequence[tuple[Node, str | None]]) -> Node:
        """Return an expression; numbers are places in the list of columns, and aliases stand for what they name."""
        if projections and isinstance(node, exp.Literal) and not node.is_string:
            column_number = int(node.name) if node.name.isdigit() else 0
            if not 0 < column_number <= len(projections):
                raise InvalidInputError(f"there is no column {node.name} in the list of columns")
            return projections[column_number - 1][0]
        named = self.aliases.get(node.name.lower()) if isinstance(node, exp.Column) and len(node.parts) == 1 else None
        return node if named is None else named

    def _ordered(self, node: Node, projections: Sequence[tuple[Node, str | None]]) -> tuple[Node, bool, bool]:
        is_descending = bool(node.args.get("desc"))
        return self._resolved(node.this, projections), not is_descending, bool(node.args.get("nulls_first"))

    def _grouped(self, node: Node) -> str:
        """SQL over the groups: keys and aggregates are columns there."""
        return _text(self._replaced(node.copy()))

    def _having(self, node: Node) -> str:
        """Like `_grouped`; pylance filters rows instead of groups if it can, and there zeros are equal."""
        return self._grouped(node) if _has_aggregate(node) else str(self._grouped(node))

    def _replaced(self, node: Node) -> Node:
        for key_index, key in enumerate(self.keys):
            if node == key:
                return exp.column(f"_key{key_index}")
        if _is_aggregate(node):
            aggregate = _aggregate(node)
            if aggregate not in self.aggregates:
                self.aggregates.append(aggregate)
            return exp.column(f"_value{self.aggregates.index(aggregate)}")
        for child in list(node.iter_expressions()):
            new = self._replaced(child)
            if new is not child:
                child.replace(new)
        return node


def _text(node: Node) -> str:
    return ExactSql(node.sql(dialect=LanceSql, normalize_functions=False))


def _is_distinct(node: Node) -> bool:
    distinct = node.args.get("distinct")
    if distinct is not None and distinct.args.get("on"):
        raise UnsupportedError("DISTINCT ON is not supported")
    return distinct is not None


def _number(node: Node, what: str) -> int | None:
    if node is None:
        return None
    value = node.expression
    if not isinstance(value, exp.Literal) or not value.name.isdigit():
        raise InvalidInputError(f"{what} is a number of rows, not {value.sql()}")
    return int(value.name)


def _call_of(node: Node) -> Node:
    return node.this if isinstance(node, exp.Filter) else node


def _is_aggregate(node: Node) -> bool:
    call = _call_of(node)
    return isinstance(call, exp.Anonymous) and str(call.this).lower() in AGGREGATES


def _has_aggregate(node: Node) -> bool:
    return any(map(_is_aggregate, node.find_all(exp.Anonymous)))


def _aggregate(node: Node) -> Aggregate:
    call = _call_of(node)
    name = str(call.this).lower()
    arguments = call.expressions
    is_distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
    if is_distinct:
        arguments = arguments[0].expressions
    if len(arguments) != 1 or (is_distinct and name != "count") or _has_aggregate(arguments[0]):
        raise UnsupportedError(f"{node.sql()} is not supported")
    is_star = isinstance(arguments[0], exp.Star)
    if is_star and name != "count":
        raise InvalidInputError(f"{name}(*): only count(*) counts rows")
    text = None if is_star else _text(arguments[0])
    if isinstance(node, exp.Filter):
        text = ExactSql(f"CASE WHEN {_text(node.expression.this)} THEN {'1' if text is None else text} END")
    return Aggregate(name=name, text=text, is_distinct=is_distinct)


# ------------------------------------------------------------------------------------------------------------ names


def column_name(node: Node) -> str:
    """Return the name of a column without alias, as pylance names it where its parts are the usual ones."""
    if isinstance(node, exp.Column) and len(node.parts) == 1:
        return node.name
    return _inner_name(node)


_SYMBOLS: dict[Any, str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.And: "AND",
    exp.Or: "OR",
}


def _inner_name(node: Node) -> str:
    if isinstance(node, exp.Column):
        first, *rest = (part.name for part in node.parts)
        return f"dataset.{first}" + "".join(f"[{part}]" for part in rest)
    if isinstance(node, exp.Bracket) and len(node.expressions) == 1 and node.expressions[0].is_string:
        return f"{_inner_name(node.this)}[{node.expressions[0].name}]"
    if isinstance(node, exp.Literal):
        kind = "Utf8" if node.is_string else "Int64" if node.name.isdigit() else "Float64"
        return f'{kind}("{node.name}")' if node.is_string else f"{kind}({node.name})"
    if isinstance(node, exp.Anonymous):
        return f"{str(node.this).lower()}({','.join(map(_inner_name, node.expressions))})"
    if isinstance(node, exp.Filter):
        return f"{_inner_name(node.this)} FILTER (WHERE {_inner_name(node.expression.this)})"
    if isinstance(node, exp.Distinct) and len(node.expressions) == 1:
        return f"DISTINCT {_inner_name(node.expressions[0])}"
    if type(node) in _SYMBOLS:
        return f"{_inner_name(node.this)} {_SYMBOLS[type(node)]} {_inner_name(node.expression)}"
    return "*" if isinstance(node, exp.Star) else _text(node)
