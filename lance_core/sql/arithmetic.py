"""Arithmetic of SQL: ``+ - * / %`` and the minus sign.

As in the native implementation: sums of integers wrap around, division of integers cuts off and fails by zero,
decimals grow by the digits that they need.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_core.encoding.kernels import scalar
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.sql.arrow_types import arithmetic_type, decimal_for, is_number
from lance_core.sql.kernels import pc
from lance_core.sql.terms import Term, apply, by_type, cast_literal, converted, literal_term

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_core.sql.arrow_types import Datum

_MAX_DIGITS = 38
_WHOLE_DIGITS = 37
"""Digits of a whole number whose quotients Arrow can hold."""
_DIVISION_DIGITS = 4
"""Digits behind the point that a quotient of decimals has more than what is divided."""


def integer_literal(value: int) -> pa.Scalar:
    """Return a whole number as written in SQL: int64, uint64 if it is too large for that, else a double."""
    if -(2**63) <= value < 2**64:
        return scalar(value, pa.int64() if value < 2**63 else pa.uint64())
    return scalar(float(value))


def literal_arrays(values: Sequence[int | float | str]) -> list[pa.Array]:
    """Return literals as written in SQL as one array for each type that they have."""
    for python_type, kind in ((str, pa.string()), (int, pa.int64()), (float, pa.float64())):
        if {type(value) for value in values} == {python_type}:
            try:
                return [pa.array(values, kind)]
            except OverflowError:  # of whole numbers beyond 64 bits
                break
    return by_type([integer_literal(value) if isinstance(value, int) else scalar(value) for value in values])


def arithmetic(symbol: str, left: Term, right: Term, *, strict: bool) -> Term:
    """One operation.

    Args:
        symbol: ``+``, ``-``, ``*``, ``/`` or ``%``.
        left: First operand.
        right: Second operand.
        strict: A literal takes the type of the column it meets, where that can hold it.

    Raises:
        InvalidInputError: A side is no number.
        UnsupportedError: Days and times; remainders of decimals with fractions.
    """
    if _is_time(left.type) and _is_time(right.type) and symbol == "-":
        return _difference(left, right)
    for side in (left, right):
        if not is_number(side.type) and not pa.types.is_null(side.type):
            raise InvalidInputError(f"{symbol} needs numbers, not {side.type}")
    if left.literal is not None and right.literal is not None:
        folded = _fold(symbol, left, right)
        if folded is not None:
            return folded
    left, right = _fitted(left, right, strict=strict), _fitted(right, left, strict=strict)
    common = arithmetic_type(left.type, right.type)
    if common is not None:
        left, right = converted(left, common), converted(right, common)
    if any(map(pa.types.is_decimal, (left.type, right.type))):
        return _decimal(symbol, converted(left, decimal_for(left.type)), converted(right, decimal_for(right.type)))
    if pa.types.is_float16(left.type):
        return _half(symbol, left, right)
    rules = _INTEGERS if pa.types.is_integer(left.type) else _FLOATS
    return apply(rules[symbol], (left, right), symbol)


def negated(term: Term) -> Term:
    """Return the minus sign; errors as `arithmetic`."""
    if term.literal is not None and is_number(term.type):
        value = -term.literal.as_py()
        return literal_term(integer_literal(value) if isinstance(value, int) else scalar(value, term.type))
    if pa.types.is_unsigned_integer(term.type):
        raise UnsupportedError(f"cannot negate values of type {term.type}")
    if not is_number(term.type):
        raise InvalidInputError(f"- needs a number, not {term.type}")
    return apply(pc.negate, (term,), "-")


def _fitted(term: Term, other: Term, *, strict: bool) -> Term:
    """Return a literal in the type of the column it meets; its own type if that cannot hold it."""
    if term.literal is None:
        return term
    if pa.types.is_null(term.type):
        return literal_term(scalar(None, other.type))
    if not (strict and other.path):
        return term
    try:
        return literal_term(cast_literal(term.literal, other.type))
    except InvalidInputError:
        return term


def _fold(symbol: str, left: Term, right: Term) -> Term | None:
    """Whole numbers are added up while the text is read."""
    rule = {"+": operator.add, "-": operator.sub, "*": operator.mul}.get(symbol)
    literals = [term.literal for term in (left, right) if term.literal is not None and term.literal.is_valid]
    if rule is None or len(literals) < 2 or not all(pa.types.is_integer(literal.type) for literal in literals):
        return None
    value = rule(*(literal.as_py() for literal in literals))
    if not -(2**63) <= value < 2**64:
        raise InvalidInputError(f"{value} does not fit into 64 bits")
    return literal_term(integer_literal(value))


def _remainder(a: Datum, b: Datum) -> Datum:
    return pc.subtract(a, pc.multiply(pc.divide_checked(a, b), b))


def _float_remainder(a: Datum, b: Datum) -> Datum:
    """The sign is that of the dividend, as in C."""
    import numpy as np  # noqa: PLC0415 needed here only

    length = max(len(value) for value in (a, b) if not isinstance(value, pa.Scalar))
    sides = [pa.repeat(value, length) if isinstance(value, pa.Scalar) else value for value in (a, b)]
    is_null = np.asarray(pc.or_(pc.is_null(sides[0]), pc.is_null(sides[1])))
    dividend, divisor = (side.to_numpy(zero_copy_only=False) for side in sides)
    with np.errstate(invalid="ignore"):
        return pa.array(np.fmod(dividend, divisor), sides[0].type, mask=is_null)


_INTEGERS: dict[str, Callable[[Datum, Datum], Datum]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
    "/": pc.divide_checked,
    "%": _remainder,
}
_FLOATS = {**_INTEGERS, "/": pc.divide, "%": _float_remainder}


def _half(symbol: str, left: Term, right: Term) -> Term:
    """Arrow has no kernels for 16 bits; one operation in 32 bits, rounded once, gives the same."""
    wide = [converted(term, pa.float32()) for term in (left, right)]
    return converted(apply(_FLOATS[symbol], wide, symbol), pa.float16())


def _decimal(symbol: str, left: Term, right: Term) -> Term:
    if symbol == "%":
        return _whole_remainder(left, right)
    if symbol != "/":
        return apply(_INTEGERS[symbol], (left, right), symbol)
    left_type, other = left.type, right.type
    scale = left_type.scale + _DIVISION_DIGITS
    precision = min(left_type.precision + scale - left_type.scale + other.scale, _MAX_DIGITS)
    digits = max(scale + other.scale - left_type.scale, 0)
    target = pa.decimal128(precision, scale)

    def divide(a: Datum, b: Datum) -> Datum:
        # Enough digits in front, so that the quotient has what is wanted; what is more is cut off.
        wide = pc.cast(a, pa.decimal256(min(left_type.precision + digits, 76), left_type.scale + digits))
        return pc.cast(pc.divide(wide, b), options=_cutting_off(target))

    return apply(divide, (left, right), symbol)


def _whole_remainder(left: Term, right: Term) -> Term:
    """Of whole decimals: signed and unsigned integers meet as such, too."""
    types = (left.type, right.type)
    if any(kind.scale != 0 or kind.precision > _WHOLE_DIGITS for kind in types):
        raise UnsupportedError("the remainder (%) of decimals with fractions or more than 37 digits is not supported")
    target = pa.decimal128(min(kind.precision for kind in types), 0)

    def remainder(a: Datum, b: Datum) -> Datum:
        wide, divisor = (pc.cast(value, pa.decimal256(_WHOLE_DIGITS, 0)) for value in (a, b))
        whole = pc.cast(pc.divide(wide, divisor), options=_cutting_off(wide.type))
        return pc.cast(pc.subtract(wide, pc.multiply(whole, divisor)), target)

    return apply(remainder, (left, right), "%")


def _cutting_off(target: pa.DataType) -> Any:
    return pc.CastOptions(target_type=target, allow_decimal_truncate=True)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _difference(left: Term, right: Term) -> Term:
    """Days between two days, the duration between two times of one unit and zone."""
    if not left.type.equals(right.type):
        raise UnsupportedError(f"cannot subtract {right.type} from {left.type}. CAST one of them")
    if pa.types.is_timestamp(left.type):
        return apply(pc.subtract, (left, right), "-")
    if not pa.types.is_date32(left.type):
        raise UnsupportedError(f"cannot subtract {right.type} from {left.type}")

    def days(a: Datum, b: Datum) -> Datum:
        return pc.subtract(pc.cast(pc.cast(a, pa.int32()), pa.int64()), pc.cast(pc.cast(b, pa.int32()), pa.int64()))

    return apply(days, (left, right), "-")
