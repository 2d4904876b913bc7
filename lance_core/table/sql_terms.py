"""Typed parts of SQL predicates and what the operators mean.

The meaning is that of the native implementation's filters (DataFusion): three-valued logic; a literal takes the type
of the column it is compared with or the comparison is refused; among floats NaN equals NaN and is larger than every
number; integer division cuts off.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.table import pruning
from lance_core.table.pruning import UNKNOWN, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_core.table.pruning import Condition

pc: Any = pyarrow.compute  # its functions are made when it is imported, type checkers do not see them
Datum: TypeAlias = Any
"""An Arrow array, or an Arrow scalar that stands for all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A value for each row.

    Attributes:
        type: Arrow type of the value.
        evaluate: Record batch to array, or to scalar if all rows have the same value.
        literal: The value, if it was written in the text and has not been given a type by its context yet.
        path: Name or dotted path, if the value is that of a column; else empty.
        asks: What a boolean value asks of single columns, for `lance_core.table.pruning`.
    """

    type: pa.DataType
    evaluate: Callable[[pa.RecordBatch], Datum]
    literal: pa.Scalar | None = None
    path: str = ""
    asks: Condition = UNKNOWN


def literal_term(value: pa.Scalar) -> Term:
    """A value written in the text."""
    is_answer = pa.types.is_boolean(value.type) or pa.types.is_null(value.type)
    asks = pruning.Constant(value.as_py()) if is_answer else UNKNOWN
    return Term(type=value.type, evaluate=lambda _: value, literal=value, asks=asks)


def column_term(path: str, kind: pa.DataType, read: Callable[[pa.RecordBatch], Datum]) -> Term:
    """The values of a column."""
    is_answer = pa.types.is_boolean(kind)
    asks = pruning.Comparison(path, "equal", pa.scalar(True)) if is_answer else UNKNOWN  # noqa: FBT003 a value
    return Term(type=kind, evaluate=read, path=path, asks=asks)


def apply(
    function: Callable[..., Datum],
    terms: Sequence[Term],
    what: str,
    asks: Condition = UNKNOWN,
) -> Term:
    """Call a kernel on the values of some terms; its result type is found on empty input.

    Args:
        function: Kernel.
        terms: Its arguments.
        what: Its name for the error message.
        asks: What the answer asks of single columns.

    Raises:
        InvalidInputError: The kernel does not take these types.
    """

    def evaluate(batch: pa.RecordBatch) -> Datum:
        return function(*(term.evaluate(batch) for term in terms))

    empty = [pa.array([], term.type) for term in terms]
    try:
        kind = function(*empty).type
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        types = ", ".join(str(term.type) for term in terms)
        raise InvalidInputError(f"{what} does not take {types}") from error
    return Term(type=kind, evaluate=evaluate, asks=asks)


def boolean(term: Term, what: str) -> Term:
    """The term itself, which must be boolean or the literal NULL."""
    if pa.types.is_null(term.type):
        return literal_term(pa.scalar(None, pa.bool_()))
    if not pa.types.is_boolean(term.type):
        raise InvalidInputError(f"{what} needs a boolean, not {term.type}")
    return term


def _kind(one: pa.DataType) -> str:
    is_type = pa.types
    if is_type.is_integer(one) or is_type.is_floating(one) or is_type.is_decimal(one):
        return "number"
    if is_type.is_string(one) or is_type.is_large_string(one):
        return "text"
    if is_type.is_binary(one) or is_type.is_large_binary(one) or is_type.is_fixed_size_binary(one):
        return "binary"
    if is_type.is_date(one) or is_type.is_timestamp(one):
        return "day or time"
    return "boolean" if is_type.is_boolean(one) else str(one)


def cast_literal(value: pa.Scalar, target: pa.DataType) -> pa.Scalar:
    """Give a literal the type of what it meets.

    Raises:
        InvalidInputError: Another kind of value, or one that the type cannot hold.
    """
    if pa.types.is_null(value.type):
        return pa.scalar(None, target)
    if pa.types.is_date(target) and pa.types.is_timestamp(value.type):
        return value  # a cast would cut off the time of day; the kernels compare days with times
    fraction_lost = pa.types.is_integer(target) and pa.types.is_floating(value.type)
    if _kind(value.type) != _kind(target) or fraction_lost:
        raise InvalidInputError(f"{_show(value)} ({value.type}) cannot be compared with {target}{_hint(value, target)}")
    try:
        if pa.types.is_timestamp(target):
            return _cast_timestamp(value, target)
        return value.cast(target, safe=not pa.types.is_floating(target))
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"{_show(value)} does not fit into {target}") from error


def _show(value: pa.Scalar) -> str:
    return repr(value.as_py())


def _hint(value: pa.Scalar, target: pa.DataType) -> str:
    if pa.types.is_string(value.type) and _kind(target) == "day or time":
        word = "date" if pa.types.is_date(target) else "timestamp"
        return f"; write {word} {value.as_py()!r}"
    return ""


def _cast_timestamp(value: pa.Scalar, target: pa.DataType) -> pa.Scalar:
    """Literals without an offset are local time of the column's zone; days and offsets need a zone of UTC."""
    is_local = pa.types.is_timestamp(value.type) and value.type.tz is None
    if not is_local and target.tz not in (None, "UTC", "+00:00", "Z"):
        what = "an offset" if pa.types.is_timestamp(value.type) else "no time of day"
        raise UnsupportedError(f"a literal with {what} compared with {target}")
    if not pa.types.is_timestamp(value.type):
        value = value.cast(pa.timestamp("us"))
    if value.type.tz is None and target.tz is not None:
        return pc.assume_timezone(value, target.tz).cast(target)
    return value.cast(target)


def unify(left: Term, right: Term) -> tuple[Term, Term]:
    """Make two sides comparable; a literal takes the type of the other side.

    Raises:
        InvalidInputError: Different kinds of values.
    """
    if left.literal is not None and right.literal is None:
        return literal_term(cast_literal(left.literal, right.type)), right
    if right.literal is not None and left.literal is None:
        return left, literal_term(cast_literal(right.literal, left.type))
    if pa.types.is_null(left.type):
        return literal_term(pa.scalar(None, right.type)), right
    if pa.types.is_null(right.type):
        return left, literal_term(pa.scalar(None, left.type))
    if _kind(left.type) != _kind(right.type):
        raise InvalidInputError(f"{left.type} cannot be compared with {right.type}")
    return left, right


_MIRRORED = {"equal": "equal", "not_equal": "not_equal", "less": "greater", "greater": "less"} | {
    "less_equal": "greater_equal",
    "greater_equal": "less_equal",
}


def compare(name: str, left: Term, right: Term) -> Term:
    """A comparison by the name of its Arrow kernel, null if a side is null.

    Raises:
        InvalidInputError: Sides that cannot be compared.
        UnsupportedError: A type without order, such as a list.
    """
    left, right = unify(left, right)
    if pa.types.is_nested(left.type) or pa.types.is_nested(right.type):
        raise UnsupportedError(f"comparing values of type {left.type}")
    asks = _comparison(name, left, right)
    is_float = pa.types.is_floating(left.type) or pa.types.is_floating(right.type)
    if not is_float:
        return apply(getattr(pc, name), (left, right), name, asks)
    if left.literal is not None:
        name, left, right = _MIRRORED[name], right, left
    if right.literal is None:
        return apply(_FLOAT_COMPARISONS[name], (left, right), name)
    kernel = getattr(pc, name)
    if name not in ("greater", "greater_equal"):
        return apply(kernel, (left, right), name, asks)
    return apply(lambda a, b: pc.or_(kernel(a, b), pc.is_nan(a)), (left, right), name, asks)


def _comparison(name: str, left: Term, right: Term) -> Condition:
    """What a comparison asks, if it is one of a column with a literal."""
    if left.literal is not None:
        name, left, right = _MIRRORED[name], right, left
    if right.literal is None:
        return UNKNOWN
    if not right.literal.is_valid:
        return pruning.Constant(None)
    return pruning.Comparison(left.path, name, right.literal) if left.path else UNKNOWN


def _float_greater(a: Datum, b: Datum) -> Datum:
    return pc.or_(pc.greater(a, b), pc.and_(pc.is_nan(a), pc.invert(pc.is_nan(b))))


def _float_equal(a: Datum, b: Datum) -> Datum:
    return pc.or_(pc.equal(a, b), pc.and_(pc.is_nan(a), pc.is_nan(b)))


_FLOAT_COMPARISONS: dict[str, Callable[[Datum, Datum], Datum]] = {
    "equal": _float_equal,
    "not_equal": lambda a, b: pc.invert(_float_equal(a, b)),
    "greater": _float_greater,
    "less": lambda a, b: _float_greater(b, a),
    "greater_equal": lambda a, b: pc.invert(_float_greater(b, a)),
    "less_equal": lambda a, b: pc.invert(_float_greater(a, b)),
}


def distinct(left: Term, right: Term) -> Term:
    """``IS DISTINCT FROM``: as ``!=``, but null is a value like any other."""
    unequal = compare("not_equal", left, right)
    return apply(
        lambda different, a, b: pc.if_else(
            pc.or_(pc.is_null(a), pc.is_null(b)), pc.not_equal(pc.is_null(a), pc.is_null(b)), different
        ),
        (unequal, *unify(left, right)),
        "IS DISTINCT FROM",
        _distinction(unequal, left, right),
    )


def _distinction(unequal: Term, left: Term, right: Term) -> Condition:
    for side, other in ((left, right), (right, left)):
        if side.literal is not None and not side.literal.is_valid:
            return pruning.Not(pruning.IsNull(other.path)) if other.path else UNKNOWN
    return UNKNOWN if isinstance(unequal.asks, Unknown) else pruning.FillNull(unequal.asks, value=True)


def is_in(value: Term, options: Sequence[Term]) -> Term:
    """``IN``: true if an option is equal, else null if the value or an option is null, else false."""
    literals = [option.literal for option in options]
    known = [one for one in literals if one is not None]
    if value.literal is not None or len(known) < len(options) or pa.types.is_floating(value.type):
        return reduce(or_, (compare("equal", value, option) for option in options))
    if pa.types.is_nested(value.type):
        raise UnsupportedError(f"IN over values of type {value.type}")
    given = [cast_literal(one, value.type) for one in known]
    wanted = pa.array([one for one in given if one.is_valid], value.type)
    otherwise = pa.scalar(None if len(wanted) < len(given) else False, pa.bool_())

    def evaluate(values: Datum) -> Datum:
        found = pc.if_else(pc.is_in(values, value_set=wanted), True, otherwise)  # noqa: FBT003 a value, no switch
        return pc.if_else(pc.is_null(values), pa.scalar(None, pa.bool_()), found)

    asks = pruning.Membership(value.path, wanted, len(wanted) < len(given)) if value.path else UNKNOWN
    return apply(evaluate, (value,), "IN", asks)


def and_(left: Term, right: Term) -> Term:
    """Kleene ``AND``."""
    asks = pruning.And(left.asks, right.asks)
    return apply(pc.and_kleene, (boolean(left, "AND"), boolean(right, "AND")), "AND", asks)


def or_(left: Term, right: Term) -> Term:
    """Kleene ``OR``."""
    asks = pruning.Or(left.asks, right.asks)
    return apply(pc.or_kleene, (boolean(left, "OR"), boolean(right, "OR")), "OR", asks)


def not_(term: Term) -> Term:
    """The opposite; null stays null."""
    return apply(pc.invert, (boolean(term, "NOT"),), "NOT", pruning.Not(term.asks))


def _remainder(a: Datum, b: Datum) -> Datum:
    return pc.subtract(a, pc.multiply(pc.divide(a, b), b))


_ARITHMETIC: dict[str, Callable[[Datum, Datum], Datum]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
    "/": pc.divide,
    "%": _remainder,
}


def arithmetic(symbol: str, left: Term, right: Term) -> Term:
    """``+ - * / %`` on numbers.

    Raises:
        InvalidInputError: A side is no number.
        UnsupportedError: Remainder of floats.
    """
    for side in (left, right):
        if _kind(side.type) != "number" and not pa.types.is_null(side.type):
            raise InvalidInputError(f"{symbol} needs numbers, not {side.type}")
    if symbol == "%" and any(pa.types.is_floating(side.type) for side in (left, right)):
        raise UnsupportedError("the remainder (%) of floating-point numbers")
    if left.literal is not None and right.literal is not None and symbol in "+-*":
        fold = {"+": operator.add, "-": operator.sub, "*": operator.mul}[symbol]
        if pa.types.is_integer(left.type) and pa.types.is_integer(right.type):
            return literal_term(pa.scalar(fold(left.literal.as_py(), right.literal.as_py())))
    return apply(_ARITHMETIC[symbol], (left, right), symbol)
