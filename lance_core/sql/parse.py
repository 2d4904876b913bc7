"""SQL to evaluators over record batches: conditions, and expressions that give values.

Parsed with sqlglot: identifiers bare or in backticks, text in single or double quotes, as in the native
implementation. Names are matched exactly first, then without regard to case. What is not listed in the tables below
and in the modules of functions is refused by name.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import sqlglot
from sqlglot import expressions as exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.parser import Parser
from sqlglot.tokens import Tokenizer

from lance_core.encoding.kernels import scalar
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.sql import groups as sql_groups
from lance_core.sql import pruning, terms
from lance_core.sql import text_functions as text
from lance_core.sql.any_term import any_of
from lance_core.sql.arithmetic import arithmetic, integer_literal, literal_arrays, negated
from lance_core.sql.arrow_types import cast, is_any_list, shape_path, written_time
from lance_core.sql.choices import CHOICE_FUNCTIONS, case, simple_case
from lance_core.sql.groups import find_groups
from lance_core.sql.json_functions import JSON_FUNCTIONS
from lance_core.sql.kernels import nulls_as_false, pc
from lance_core.sql.list_functions import LIST_FUNCTIONS, SHAPE_FUNCTIONS, element, field, make_array
from lance_core.sql.number_functions import NUMBER_FUNCTIONS
from lance_core.sql.split import Chain, Part, list_items, split
from lance_core.sql.terms import Conjunct, Term, literal_term
from lance_core.sql.time_functions import TIME_FUNCTIONS, date_part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_core.sql.groups import Group

Node: TypeAlias = Any
"""A node of sqlglot's tree; its attributes depend on its class."""

_FUNCTIONS = {
    **CHOICE_FUNCTIONS,
    **NUMBER_FUNCTIONS,
    **text.TEXT_FUNCTIONS,
    **TIME_FUNCTIONS,
    **LIST_FUNCTIONS,
    **JSON_FUNCTIONS,
}
_KEPT_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM")


class LanceSql(Dialect):
    """SQL whose functions are all called by their names."""

    class Tokenizer(Tokenizer):
        """The quotes."""

        IDENTIFIERS = ["`"]  # noqa: RUF012 the base class declares it so
        QUOTES = ["'", '"']  # noqa: RUF012 likewise
        HEX_STRINGS = [("x'", "'"), ("X'", "'")]  # noqa: RUF012 likewise

    class Parser(Parser):
        """No functions but those with a syntax of their own."""

        FUNCTIONS = {}  # noqa: RUF012 likewise
        FUNCTION_PARSERS = {  # noqa: RUF012 likewise
            name: parse for name, parse in Parser.FUNCTION_PARSERS.items() if name in _KEPT_SYNTAX
        }


def parse_condition(sql: str, schema: pa.Schema) -> tuple[tuple[str, ...], Term]:
    """Translate one SQL condition.

    Args:
        sql: What would stand after ``WHERE``.
        schema: All columns that may be named.

    Returns:
        The columns it reads (dotted paths inside structs), and a boolean term.

    Raises:
        InvalidInputError: Syntax, an unknown column, types that do not fit, no boolean result.
        UnsupportedError: A construct that is not supported; the message names it.
    """
    columns, term = _translate(sql, schema, "predicate")
    if not pa.types.is_boolean(term.type):
        raise InvalidInputError(f"predicate {sql!r} gives {term.type}, not a boolean")
    return columns, term


def parse_value(sql: str, schema: pa.Schema, *, is_exact: bool = False) -> tuple[tuple[str, ...], Term]:
    """Translate one SQL expression.

    Args:
        sql: What could stand in a list of columns.
        schema: All columns that may be named.
        is_exact: As in `lance_core.sql.terms.compare`.

    Returns:
        The columns it reads (dotted paths inside structs), and its term; errors as in `parse_condition`.
    """
    columns, term = _translate(sql, schema, "expression", is_exact=is_exact)
    if term.literal is not None and pa.types.is_timestamp(term.type):
        # alone a time is one of microseconds without a zone, whatever it was ready to become next to a column
        value = cast(term.literal, pa.timestamp("us"))
        term = Term(type=value.type, evaluate=lambda _: value, nullable=not value.is_valid)
    return columns, term


def _translate(sql: str, schema: pa.Schema, what: str, *, is_exact: bool = False) -> tuple[tuple[str, ...], Term]:
    if len(sql) > _MAX_LENGTH:
        raise InvalidInputError(f"{what} has {len(sql)} characters; at most {_MAX_LENGTH} are allowed")
    translator = _Translator(schema, is_exact=is_exact)
    try:
        node = split(sql, lambda text: _parse(text, what))
        if what == "expression":
            _refuse_match(node)
            translator.is_copied = isinstance(node, exp.Column | exp.Dot | exp.Bracket)
        term = translator.term(node, strict=True)
    except SqlglotError as error:
        told = re.sub(r" for <class '[^']*'>", "", str(error).splitlines()[0])
        raise InvalidInputError(f"cannot parse the {what} {sql!r}: {told}") from error
    except RecursionError as error:
        raise InvalidInputError(f"{what} is nested too deeply: {sql[:100]!r}...") from error
    except (InvalidInputError, UnsupportedError) as error:
        raise type(error)(f"{what} {sql!r}: {error.message}") from error
    return tuple(dict.fromkeys(translator.columns)), term


def _parse(sql: str, what: str) -> Node:
    parsed = [tree for tree in sqlglot.parse(sql, dialect=LanceSql) if tree is not None]
    if len(parsed) != 1:
        raise InvalidInputError(f"expected one SQL {_TERM_NAMES[what]}, found {len(parsed)}")
    return parsed[0]


_MAX_LENGTH = 1 << 26
_TERM_NAMES = {"predicate": "condition", "expression": "expression"}


class _Translator:
    """Turns the nodes of one text into terms and remembers the columns they read."""

    def __init__(self, schema: pa.Schema, *, is_exact: bool) -> None:
        self.schema = schema
        self.is_exact = is_exact
        self.columns: list[str] = []
        self.is_copied = False
        """The text is a column and nothing else: values that a dictionary holds stay in it."""

    def term(self, node: Node, *, strict: bool = False) -> Term:
        """Return the term of a node.

        Args:
            node: The node.
            strict: Nothing but AND, OR and NOT stands around it; then a literal takes the type of the column it meets.

        Raises:
            UnsupportedError: There is no translation; the message names the node.
        """
        if isinstance(node, exp.Anonymous):
            if not strict:
                _refuse_match(node)
            return self.call(node)
        outer = _OUTER_RULES.get(type(node))
        if outer is not None:
            return outer(self, node, strict)
        rule = _RULES.get(type(node))
        if rule is None:
            raise UnsupportedError(f"{_name(node)} is not supported: {node.sql(LanceSql)}")
        return rule(self, node)

    def call(self, node: Node) -> Term:
        """Return a function by its name."""
        name = str(node.this).lower()
        entry = _FUNCTIONS.get(name)
        if entry is None:
            near = difflib.get_close_matches(name, _FUNCTIONS, n=3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise UnsupportedError(f"function {name} is not supported{hint}")
        fewest, most, build = entry
        if not fewest <= len(node.expressions) <= most:
            raise InvalidInputError(f"{name} does not take {len(node.expressions)} arguments")
        read = self.shape if name in SHAPE_FUNCTIONS else self.term
        return build([read(expression) for expression in node.expressions])

    def shape(self, node: Node) -> Term:
        """Return the term of a node of which nothing is asked but its nulls and the lengths of its lists."""
        path = _path(node)
        return self.term(node) if path is None else self.column(path, is_shape=True)

    def pair(self, node: Node) -> tuple[Term, Term]:
        """Both operands of a binary node."""
        return self.term(node.this), self.term(node.expression)

    def column(self, path: Sequence[str], *, is_shape: bool = False) -> Term:
        """Return the column or struct field at a path of names; of the shape of structs and lists one value tells."""
        column, field = terms.find_column(path, self.schema, is_copied=self.is_copied)
        self.columns.append(shape_path(column.path, field) if is_shape and field.nullable else column.path)
        return column


def _refuse_match(node: Node) -> None:
    if isinstance(node, exp.Anonymous) and str(node.this).lower() == "regexp_match":
        raise UnsupportedError("regexp_match is supported only as a condition. Use regexp_like")


def _name(node: Node) -> str:
    return node.key.upper()


def _path(node: Node) -> list[str] | None:
    """Return the steps of a column's path; None if the node is something else."""
    if isinstance(node, exp.Column):
        return [part.name for part in node.parts]
    if isinstance(node, exp.Dot):
        above = _path(node.this)
        return None if above is None else [*above, node.expression.name]
    if isinstance(node, exp.Bracket) and len(node.expressions) == 1 and node.expressions[0].is_string:
        above = _path(node.this)
        return None if above is None else [*above, node.expressions[0].name]
    return None


def _column(self: _Translator, node: Node) -> Term:
    path = _path(node)
    if path is not None:
        return self.column(path)
    inner = self.term(node.this)
    if isinstance(node, exp.Dot):
        return field(inner, node.expression.name)
    if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
        raise UnsupportedError(f"{_name(node)} is not supported: {node.sql(LanceSql)}")
    index = self.term(node.expressions[0])
    if is_any_list(inner.type):
        return element((inner, index))
    return field(inner, text.written(index, "[]"))


def _literal(_: _Translator, node: Node) -> Term:
    if node.is_string:
        return literal_term(scalar(node.name))
    try:
        return literal_term(integer_literal(int(node.name)))
    except ValueError:
        return literal_term(scalar(float(node.name)))


def _is(self: _Translator, node: Node) -> Term:
    wanted = node.expression
    value = self.shape(node.this) if isinstance(wanted, exp.Null) else self.term(node.this)
    if isinstance(wanted, exp.Null):
        return terms.is_null(value)
    if isinstance(wanted, exp.Boolean):
        pair = (terms.boolean(value, "IS"), self.term(wanted))
        asks = pruning.FillNull(value.asks if wanted.this else pruning.Not(value.asks), value=False)
        return terms.apply(lambda a, b: nulls_as_false(pc.equal(a, b)), pair, "IS", asks)
    raise UnsupportedError(f"IS {wanted.sql(LanceSql)} is not supported")


def _between(self: _Translator, node: Node, strict: bool) -> Term:
    if node.args.get("symmetric"):
        raise UnsupportedError("BETWEEN SYMMETRIC is not supported; write the smaller value first")
    value, low, high = (self.term(node.args[name]) for name in ("this", "low", "high"))
    return terms.and_(
        terms.compare("greater_equal", value, low, strict=strict, is_exact=self.is_exact),
        terms.compare("less_equal", value, high, strict=strict, is_exact=self.is_exact),
    )


def _in(self: _Translator, node: Node, strict: bool) -> Term:
    values = node.args.get("values")
    if values is not None:
        literals = literal_arrays(list_items(values))
        return terms.is_in(self.term(node.this), literals=literals, strict=strict, is_exact=self.is_exact)
    if not node.expressions:
        raise UnsupportedError("IN needs a list of values; a subquery or an empty list is not supported")
    options = [self.term(expression) for expression in node.expressions]
    return terms.is_in(self.term(node.this), options, strict=strict, is_exact=self.is_exact)


def _like(self: _Translator, node: Node) -> Term:
    mark = None
    if isinstance(node, exp.Escape):
        mark, node = node.expression.name, node.this
    word = _name(node)
    if not isinstance(node, (exp.Like, exp.ILike)):
        raise UnsupportedError(f"ESCAPE is not supported after {word}")
    term = text.like(word, *self.pair(node), fold=isinstance(node, exp.ILike), escape=mark)
    return terms.not_(term) if node.args.get("negate") else term


def _cast(self: _Translator, node: Node) -> Term:
    target = _cast_type(node.args["to"])
    inner = self.term(node.this)
    if inner.literal is None:
        return terms.apply(lambda values: cast(values, target), (inner,), f"CAST to {target}")
    try:
        if pa.types.is_timestamp(target) and pa.types.is_string(inner.type) and not node.args["to"].expressions:
            value = written_time(inner.literal.as_py())
        else:
            value = cast(inner.literal, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(f"{inner.literal.as_py()!r} is not a {target}") from error
    # days and times have no other way to be written, so they still take the type of what they meet
    if pa.types.is_temporal(target):
        return literal_term(value)
    return Term(type=target, evaluate=lambda _: value, nullable=not value.is_valid)


def _cast_type(wanted: Node) -> pa.DataType:
    numbers = [int(expression.name) for expression in wanted.expressions]
    if wanted.this in _TIME_TYPES and len(numbers) == 1:
        unit = _TIME_UNITS.get(numbers[0])
        if unit is not None:
            return pa.timestamp(unit)
    if wanted.this is _TYPE.DECIMAL and len(numbers) == 2:
        if not 0 <= numbers[1] <= numbers[0] <= 38 or not numbers[0]:
            raise InvalidInputError(
                f"DECIMAL({numbers[0]}, {numbers[1]}) is not supported: decimals have up to 38 digits"
            )
        return pa.decimal128(*numbers)
    target = _CAST_TYPES.get(wanted.this)
    if target is None or numbers:
        raise UnsupportedError(f"CAST to {wanted.sql()} is not supported")
    return target


_TIME_UNITS = {0: "s", 3: "ms", 6: "us", 9: "ns"}


def _hex(_: _Translator, node: Node) -> Term:
    try:
        return literal_term(scalar(bytes.fromhex(node.name)))
    except ValueError as error:
        raise InvalidInputError(f"x'{node.name}' is not hexadecimal text") from error


def _case(self: _Translator, node: Node) -> Term:
    branches = [(self.term(arg.this), self.term(arg.args["true"])) for arg in node.args["ifs"]]
    default = node.args.get("default")
    otherwise = None if default is None else self.term(default)
    if node.this is None:
        return case(branches, otherwise)
    return simple_case(self.term(node.this), branches, otherwise)


def _if(self: _Translator, node: Node) -> Term:
    otherwise = node.args.get("false")
    branch = (self.term(node.this), self.term(node.args["true"]))
    return case([branch], None if otherwise is None else self.term(otherwise))


def _trim(self: _Translator, node: Node) -> Term:
    given = [self.term(node.this)]
    if node.expression is not None:
        given.append(self.term(node.expression))
    return text.trim(str(node.args.get("position") or "BOTH").upper(), given)


def _substring(self: _Translator, node: Node) -> Term:
    numbers = [node.args.get("start") or exp.Literal.number(1)]
    if node.args.get("length") is not None:
        numbers.append(node.args["length"])
    return text.substring([self.term(node.this), *(self.term(number) for number in numbers)])


def _compare(name: str) -> Callable[[_Translator, Node, bool], Term]:
    return lambda self, node, strict: terms.compare(name, *self.pair(node), strict=strict, is_exact=self.is_exact)


def _distinct(self: _Translator, node: Node, strict: bool) -> Term:
    return terms.distinct(*self.pair(node), strict=strict, is_exact=self.is_exact)


def _arithmetic(symbol: str) -> Callable[[_Translator, Node, bool], Term]:
    return lambda self, node, strict: arithmetic(symbol, *self.pair(node), strict=strict)


def _logic(self: _Translator, node: Node, strict: bool) -> Term:
    """Return a chain of ANDs or ORs, however long, without going deeper for each."""
    kind = node.kind if isinstance(node, Chain) else type(node)
    pending, parts = [node], list[Node]()
    while pending:
        current = pending.pop()
        if isinstance(current, Chain) and current.kind is kind:
            pending += reversed(current.parts)
        elif not isinstance(current, Chain) and type(current) is kind:
            pending += [current.expression, current.this]
        else:
            parts.append(current)
    grouped: set[int] = set()
    operands: list[Conjunct] = []
    for group in find_groups(parts, is_and=kind is exp.And, term=self.term) if len(parts) >= sql_groups.MANY else ():
        at = len(self.columns)
        term = _group(self, group, strict=strict)
        if term is not None:
            grouped.update(group.positions)
            operands.append(Conjunct(tuple(self.columns[at:]), terms.not_(term) if kind is exp.And else term))
    for part in (part for position, part in enumerate(parts) if position not in grouped):
        at = len(self.columns)
        term = self.term(part, strict=strict)
        operands.append(Conjunct(tuple(self.columns[at:]), term))
    if kind is exp.And and len(operands) > 1:
        return terms.conjunction(operands)
    return terms.joined(terms.or_, [operand.term for operand in operands])


def _group(self: _Translator, group: Group, *, strict: bool) -> Term | None:
    """Return a term for conditions that are joined by OR; None if there is no faster way than one by one."""
    if len(group.comparisons) == 1 and group.comparisons[0].kernel == "equal":
        subject, _, literals = group.comparisons[0]
        return terms.is_in(self.term(subject), literals=literals, strict=strict, is_exact=self.is_exact)
    if any(len(comparison.literals) > 1 for comparison in group.comparisons):
        return None
    subjects = {id(comparison.subject): self.term(comparison.subject) for comparison in group.comparisons}
    demands = [
        (subjects[id(comparison.subject)], comparison.kernel, comparison.literals[0])
        for comparison in group.comparisons
    ]
    return any_of(demands, strict=strict, is_exact=self.is_exact)


_TYPE = exp.DataType.Type
_TIME_TYPES = (_TYPE.TIMESTAMP, _TYPE.TIMESTAMPNTZ, _TYPE.DATETIME)
_CAST_TYPES: dict[Any, pa.DataType] = {
    _TYPE.BOOLEAN: pa.bool_(),
    _TYPE.TINYINT: pa.int8(),
    _TYPE.SMALLINT: pa.int16(),
    _TYPE.INT: pa.int32(),
    _TYPE.BIGINT: pa.int64(),
    _TYPE.UTINYINT: pa.uint8(),
    _TYPE.USMALLINT: pa.uint16(),
    _TYPE.UINT: pa.uint32(),
    _TYPE.UBIGINT: pa.uint64(),
    _TYPE.FLOAT: pa.float32(),
    _TYPE.DOUBLE: pa.float64(),
    _TYPE.TEXT: pa.string(),
    _TYPE.VARCHAR: pa.string(),
    _TYPE.BINARY: pa.binary(),
    _TYPE.DATE: pa.date32(),
    **dict.fromkeys(_TIME_TYPES, pa.timestamp("us")),
}

_OUTER_RULES: dict[type[Any], Callable[[_Translator, Node, bool], Term]] = {
    exp.Paren: lambda self, node, strict: self.term(node.this, strict=strict),
    exp.Not: lambda self, node, strict: terms.not_(self.term(node.this, strict=strict)),
    exp.And: _logic,
    exp.Or: _logic,
    Chain: _logic,
    Part: lambda self, node, strict: self.term(node.filled(), strict=strict),
    exp.EQ: _compare("equal"),
    exp.NEQ: _compare("not_equal"),
    exp.LT: _compare("less"),
    exp.LTE: _compare("less_equal"),
    exp.GT: _compare("greater"),
    exp.GTE: _compare("greater_equal"),
    exp.NullSafeNEQ: _distinct,
    exp.NullSafeEQ: lambda self, node, strict: terms.not_(_distinct(self, node, strict)),
    exp.In: _in,
    exp.Between: _between,
    exp.Add: _arithmetic("+"),
    exp.Sub: _arithmetic("-"),
    exp.Mul: _arithmetic("*"),
    exp.Div: _arithmetic("/"),
    exp.Mod: _arithmetic("%"),
}
"""Nodes below which a literal can still meet a column directly."""

_RULES: dict[type[Any], Callable[[_Translator, Node], Term]] = {
    exp.Column: _column,
    exp.Dot: _column,
    exp.Bracket: _column,
    exp.Literal: _literal,
    exp.HexString: _hex,
    exp.Boolean: lambda _, node: literal_term(scalar(bool(node.this))),
    exp.Null: lambda _self, _node: literal_term(scalar(None)),
    exp.Neg: lambda self, node: negated(self.term(node.this)),
    exp.Is: _is,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _like,
    exp.Cast: _cast,
    exp.Case: _case,
    exp.If: _if,
    exp.DPipe: lambda self, node: text.joined(*self.pair(node)),
    exp.Trim: _trim,
    exp.Substring: _substring,
    exp.StrPosition: lambda self, node: text.position((self.term(node.this), self.term(node.args["substr"]))),
    exp.Extract: lambda self, node: date_part(node.this.name, self.term(node.expression)),
    exp.Array: lambda self, node: make_array([self.term(expression) for expression in node.expressions]),
}
