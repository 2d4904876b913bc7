"""SQL predicates to evaluators over record batches.

Parsed with sqlglot: identifiers bare, in backticks or in double quotes; text in single quotes. Names are matched
exactly first, then without regard to case. What is not listed in the tables below is refused by name.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import sqlglot
from sqlglot import expressions as exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.table import pruning
from lance_core.table import sql_terms as terms
from lance_core.table.sql_terms import Term, literal_term, pc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_core.table.pruning import Condition
    from lance_core.table.sql_terms import Datum

Node: TypeAlias = Any
"""A node of sqlglot's tree; its attributes depend on its class."""


class _PredicateDialect(DuckDB):
    """DuckDB's SQL with backticks as in Spark."""

    class Tokenizer(DuckDB.Tokenizer):
        IDENTIFIERS = ['"', "`"]  # noqa: RUF012 the base class declares it so


def parse_sql(text: str, schema: pa.Schema) -> tuple[tuple[str, ...], Callable[[pa.RecordBatch], Datum], Condition]:
    """Translate one SQL condition.

    Args:
        text: What would stand after ``WHERE``.
        schema: All columns that may be named.

    Returns:
        The columns it reads (dotted paths inside structs), a function from record batch to boolean array or scalar,
        and what is asked of single columns.

    Raises:
        InvalidInputError: Syntax, an unknown column, types that do not fit, no boolean result.
        UnsupportedError: A construct that is not supported; the message names it.
    """
    try:
        parsed = [one for one in sqlglot.parse(text, dialect=_PredicateDialect) if one is not None]
    except SqlglotError as error:
        raise InvalidInputError(f"cannot parse the predicate {text!r}: {_first_line(error)}") from error
    if len(parsed) != 1:
        raise InvalidInputError(f"a predicate is one SQL condition, not {len(parsed)}: {text!r}")
    translator = _Translator(schema)
    try:
        term = _condition(translator.term(parsed[0]))
    except (InvalidInputError, UnsupportedError) as error:
        raise type(error)(f"predicate {text!r}: {error.message}") from error
    return tuple(dict.fromkeys(translator.columns)), term.evaluate, term.asks


def _condition(term: Term) -> Term:
    if not pa.types.is_boolean(term.type):
        raise InvalidInputError(f"it gives {term.type}, not a boolean")
    return term


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


class _Translator:
    """Turns the nodes of one condition into terms and remembers the columns they read."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.columns: list[str] = []

    def term(self, node: Node) -> Term:
        """The term of a node; UnsupportedError names a node without a translation."""
        rule = _RULES.get(type(node))
        if rule is None:
            raise UnsupportedError(f"{_name(node)} is not supported in predicates: {node.sql(_PredicateDialect)}")
        return rule(self, node)

    def pair(self, node: Node) -> tuple[Term, Term]:
        """Both operands of a binary node."""
        return self.term(node.this), self.term(node.expression)

    def column(self, path: Sequence[str]) -> Term:
        """The column or struct field at a path of names."""
        top = _match(path[0], self.schema.names)
        names, kind = [top], self.schema.field(top).type
        for name in path[1:]:
            if not pa.types.is_struct(kind):
                raise InvalidInputError(f"{'.'.join(names)} is {kind}, it has no field {name!r}")
            names.append(_match(name, [kind.field(i).name for i in range(kind.num_fields)]))
            kind = kind.field(names[-1]).type
        self.columns.append(".".join(names))

        def read(batch: pa.RecordBatch) -> pa.Array:
            values = batch.column(top)
            for name in names[1:]:
                values = pc.struct_field(values, name)
            return values

        return terms.column_term(".".join(names), kind, read)


def _match(name: str, known: Sequence[str]) -> str:
    if name in known:
        return name
    folded = [one for one in known if one.lower() == name.lower()]
    if len(folded) == 1:
        return folded[0]
    near = difflib.get_close_matches(name, known, n=3) or known[:20]
    raise InvalidInputError(f"no column {name!r}; did you mean {', '.join(near)}? (text stands in single quotes)")


def _name(node: Node) -> str:
    return f"function {node.this}" if isinstance(node, exp.Anonymous) else node.key.upper()


def _path(node: Node) -> list[str]:
    if isinstance(node, exp.Column):
        return [part.name for part in node.parts]
    if isinstance(node, exp.Dot):
        return [*_path(node.this), node.expression.name]
    if isinstance(node, exp.Bracket) and len(node.expressions) == 1 and node.expressions[0].is_string:
        return [*_path(node.this), node.expressions[0].name]
    raise UnsupportedError(f"{_name(node)} is not supported in predicates: {node.sql(_PredicateDialect)}")


def _column(self: _Translator, node: Node) -> Term:
    return self.column(_path(node))


def _literal(_: _Translator, node: Node) -> Term:
    if node.is_string:
        return literal_term(pa.scalar(node.name))
    try:
        whole = int(node.name)
    except ValueError:
        return literal_term(pa.scalar(float(node.name)))
    return literal_term(_integer(whole))


def _integer(value: int) -> pa.Scalar:
    try:
        return pa.scalar(value, pa.int64() if value < 2**63 else pa.uint64())
    except (OverflowError, pa.ArrowInvalid) as error:
        raise InvalidInputError(f"{value} does not fit into 64 bits") from error


def _negate(self: _Translator, node: Node) -> Term:
    inner = self.term(node.this)
    if inner.literal is not None and (pa.types.is_integer(inner.type) or pa.types.is_floating(inner.type)):
        value = -inner.literal.as_py()
        return literal_term(pa.scalar(value) if isinstance(value, float) else _integer(value))
    if pa.types.is_unsigned_integer(inner.type):
        raise UnsupportedError(f"the negative of {inner.type}")
    return terms.apply(pc.negate, (inner,), "-")


def _not(self: _Translator, node: Node) -> Term:
    return terms.not_(self.term(node.this))


def _is(self: _Translator, node: Node) -> Term:
    wanted = node.expression
    value = self.term(node.this)
    if isinstance(wanted, exp.Null):
        asks = pruning.IsNull(value.path) if value.path else pruning.UNKNOWN
        return terms.apply(pc.is_null, (value,), "IS NULL", asks)
    if isinstance(wanted, exp.Boolean):
        pair = (terms.boolean(value, "IS"), self.term(wanted))
        asks = pruning.FillNull(value.asks if wanted.this else pruning.Not(value.asks), value=False)
        return terms.apply(lambda a, b: pc.fill_null(pc.equal(a, b), False), pair, "IS", asks)  # noqa: FBT003 a value
    raise UnsupportedError(f"IS {wanted.sql(_PredicateDialect)} is not supported in predicates")


def _between(self: _Translator, node: Node) -> Term:
    value, low, high = (self.term(node.args[name]) for name in ("this", "low", "high"))
    return terms.and_(terms.compare("greater_equal", value, low), terms.compare("less_equal", value, high))


def _in(self: _Translator, node: Node) -> Term:
    if not node.expressions:
        raise UnsupportedError("IN needs a list of values; a subquery or an empty list is not supported")
    return terms.is_in(self.term(node.this), [self.term(one) for one in node.expressions])


def _like(self: _Translator, node: Node) -> Term:
    value, pattern = self.pair(node)
    word = _name(node)
    if pattern.literal is None:
        raise UnsupportedError(f"{word} with a pattern that is not written in the predicate")
    if not (pa.types.is_string(value.type) or pa.types.is_large_string(value.type)):
        raise InvalidInputError(f"{word} needs text, not {value.type}")
    if pa.types.is_null(pattern.type):
        return literal_term(pa.scalar(None, pa.bool_()))
    text, fold = terms.cast_literal(pattern.literal, pa.string()).as_py(), isinstance(node, exp.ILike)
    asks = pruning.UNKNOWN if fold or not value.path else _like_condition(value.path, text)
    found = terms.apply(lambda values: pc.match_like(values, text, ignore_case=fold), (value,), word, asks)
    return terms.not_(found) if node.args.get("negate") else found


def _like_condition(path: str, pattern: str) -> Condition:
    """A pattern begins with what stands before the first wildcard or escape."""
    prefix = pattern[: min((pattern.index(mark) for mark in "%_\\" if mark in pattern), default=len(pattern))]
    return pruning.Prefix(path, prefix, is_exact=pattern == prefix + "%")


def _cast(self: _Translator, node: Node) -> Term:
    wanted = node.args["to"]
    target = _CAST_TYPES.get(wanted.this)
    if target is None or wanted.expressions:
        raise UnsupportedError(f"CAST to {wanted.sql()} is not supported in predicates")
    inner = self.term(node.this)
    if inner.literal is None:
        return terms.apply(lambda values: pc.cast(values, target), (inner,), f"CAST to {target}")
    try:
        if pa.types.is_timestamp(target) and pa.types.is_string(inner.type):
            return literal_term(_parse_timestamp(inner.literal.as_py()))
        value = inner.literal.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(f"{inner.literal.as_py()!r} is no {target}") from error
    # days and times have no other way to be written, so they still take the type of what they meet
    return literal_term(value) if pa.types.is_temporal(target) else Term(type=target, evaluate=lambda _: value)


def _parse_timestamp(text: str) -> pa.Scalar:
    """Microseconds if that is enough, else nanoseconds; with a zone only if the text has an offset."""
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.timestamp("ns", "UTC")):
        try:
            return pa.scalar(text).cast(kind)
        except pa.ArrowInvalid:
            continue
    raise InvalidInputError(f"{text!r} is no timestamp; write it as 'YYYY-MM-DD hh:mm:ss'")


def _text_match(self: _Translator, node: Node) -> Term:
    value, part = self.pair(node)
    word = _name(node)
    if part.literal is None or not pa.types.is_string(part.type):
        raise UnsupportedError(f"{word} with a second argument that is not text written in the predicate")
    kernel, text = _TEXT_MATCHES[type(node)], part.literal.as_py()
    is_prefix = isinstance(node, exp.StartsWith) and value.path
    asks = pruning.Prefix(value.path, text, is_exact=True) if is_prefix else pruning.UNKNOWN
    return terms.apply(lambda values: kernel(values, text), (value,), word, asks)


def _coalesce(self: _Translator, node: Node) -> Term:
    first = self.term(node.this)
    rest = [terms.unify(first, self.term(one))[1] for one in node.expressions]
    return terms.apply(pc.coalesce, (first, *rest), "COALESCE")


def _compare(name: str) -> Callable[[_Translator, Node], Term]:
    return lambda self, node: terms.compare(name, *self.pair(node))


def _arithmetic(symbol: str) -> Callable[[_Translator, Node], Term]:
    return lambda self, node: terms.arithmetic(symbol, *self.pair(node))


def _unary(kernel: Callable[[Datum], Datum]) -> Callable[[_Translator, Node], Term]:
    return lambda self, node: terms.apply(kernel, (self.term(node.this),), _name(node))


_TEXT_MATCHES: dict[type[Any], Callable[[Datum, str], Datum]] = {
    exp.StartsWith: pc.starts_with,
    exp.EndsWith: pc.ends_with,
    exp.Contains: pc.match_substring,
}

_TYPE = exp.DataType.Type
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
    _TYPE.DATE: pa.date32(),
    _TYPE.TIMESTAMP: pa.timestamp("us"),
    _TYPE.TIMESTAMPNTZ: pa.timestamp("us"),
}

_RULES: dict[type[Any], Callable[[_Translator, Node], Term]] = {
    exp.Column: _column,
    exp.Dot: _column,
    exp.Bracket: _column,
    exp.Literal: _literal,
    exp.Boolean: lambda _, node: literal_term(pa.scalar(bool(node.this))),
    exp.Null: lambda _self, _node: literal_term(pa.scalar(None)),
    exp.Paren: lambda self, node: self.term(node.this),
    exp.Neg: _negate,
    exp.Not: _not,
    exp.And: lambda self, node: terms.and_(*self.pair(node)),
    exp.Or: lambda self, node: terms.or_(*self.pair(node)),
    exp.EQ: _compare("equal"),
    exp.NEQ: _compare("not_equal"),
    exp.LT: _compare("less"),
    exp.LTE: _compare("less_equal"),
    exp.GT: _compare("greater"),
    exp.GTE: _compare("greater_equal"),
    exp.NullSafeNEQ: lambda self, node: terms.distinct(*self.pair(node)),
    exp.NullSafeEQ: lambda self, node: terms.not_(terms.distinct(*self.pair(node))),
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Like: _like,
    exp.ILike: _like,
    exp.StartsWith: _text_match,
    exp.EndsWith: _text_match,
    exp.Contains: _text_match,
    exp.Cast: _cast,
    exp.Coalesce: _coalesce,
    exp.Add: _arithmetic("+"),
    exp.Sub: _arithmetic("-"),
    exp.Mul: _arithmetic("*"),
    exp.Div: _arithmetic("/"),
    exp.Mod: _arithmetic("%"),
    exp.IsNan: _unary(pc.is_nan),
    exp.Lower: _unary(pc.utf8_lower),
    exp.Upper: _unary(pc.utf8_upper),
    exp.Length: _unary(pc.utf8_length),
    exp.Abs: _unary(pc.abs),
}
