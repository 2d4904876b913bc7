"""Functions of SQL on numbers; most of them calculate in doubles, or in floats if they get floats."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.encoding.kernels import scalar
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.sql.arrow_types import is_number
from lance_core.sql.kernels import pc
from lance_core.sql.terms import Term, apply, converted, literal_term
from lance_core.sql.text_functions import written_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_core.sql.arrow_types import Datum


def number(term: Term, what: str) -> Term:
    """Return the term itself, which must be a number or NULL."""
    if pa.types.is_null(term.type):
        return literal_term(scalar(None, pa.float64()))
    if not is_number(term.type):
        raise InvalidInputError(f"{what} needs a number, not {term.type}")
    return term


def _float(term: Term, what: str) -> Term:
    given = number(term, what).type
    return converted(number(term, what), pa.float32() if pa.types.is_float32(given) else pa.float64())


def _kernel(name: str, kernel: Callable[[Datum], Datum]) -> Callable[[Sequence[Term]], Term]:
    return lambda terms: apply(kernel, (_float(terms[0], name),), name)


def _numpy(name: str, function: Callable[..., np.ndarray]) -> Callable[[Sequence[Term]], Term]:
    """Return a function that Arrow lacks."""

    def evaluate(*values: Datum) -> pa.Array:
        length = max(len(value) for value in values if not isinstance(value, pa.Scalar))
        arrays = [pa.repeat(value, length) if isinstance(value, pa.Scalar) else value for value in values]
        is_null = np.logical_or.reduce([np.asarray(pc.is_null(array)) for array in arrays])
        with np.errstate(all="ignore"):
            result = function(*(array.to_numpy(zero_copy_only=False) for array in arrays))
        return pa.array(result, arrays[0].type, mask=is_null)

    def build(terms: Sequence[Term]) -> Term:
        if len(terms) == 1:
            return apply(evaluate, (_float(terms[0], name),), name)
        is_double = any(pa.types.is_float64(term.type) or term.literal is not None for term in terms)
        kind = pa.float64() if is_double else pa.float32()
        return apply(evaluate, [converted(number(term, name), kind) for term in terms], name)

    return build


def _power(terms: Sequence[Term]) -> Term:
    if any(pa.types.is_decimal(term.type) for term in terms):
        raise UnsupportedError("power does not support decimals. CAST them AS DOUBLE")
    pair = [converted(number(term, "power"), pa.float64()) for term in terms]
    return apply(pc.power, pair, "power")


def _log(terms: Sequence[Term]) -> Term:
    """To base 10, or to the base that comes first."""
    if len(terms) == 1:
        return _kernel("log", pc.log10)(terms)
    base, value = (converted(number(term, "log"), pa.float64()) for term in terms)
    return apply(lambda a, b: pc.divide(pc.ln(b), pc.ln(a)), (base, value), "log")


def _rounded(name: str) -> Callable[[Sequence[Term]], Term]:
    """``round`` half away from zero, or ``trunc``, to so many digits behind the point."""

    def build(terms: Sequence[Term]) -> Term:
        digits = written_number(terms[1], name) if len(terms) > 1 else 0
        if pa.types.is_decimal(terms[0].type):
            raise UnsupportedError(f"{name} does not support decimals. CAST to the decimal type wanted")
        value = _float(terms[0], name)
        if digits is None:
            return literal_term(scalar(None, value.type))
        if abs(digits) > _MAX_DIGITS:
            raise InvalidInputError(f"{name} does not support {digits} digits")
        factor = scalar(10.0**digits, value.type)

        def evaluate(values: pa.Array) -> pa.Array:
            scaled = values if digits == 0 else pc.multiply(values, factor)
            whole = pc.trunc(scaled) if name == "trunc" else pc.round(scaled, round_mode="half_towards_infinity")
            if digits:
                return pc.divide(whole, factor)
            # trunc alone knows no negative zero
            return pc.if_else(pc.equal(values, 0), scalar(0.0, values.type), whole) if name == "trunc" else whole

        return apply(evaluate, (value,), name)

    return build


_MAX_DIGITS = 30


def _whole(name: str, kernel: Callable[[Datum], Datum]) -> Callable[[Sequence[Term]], Term]:
    """``ceil`` and ``floor``; whole numbers become floats like all others."""

    def build(terms: Sequence[Term]) -> Term:
        if pa.types.is_decimal(terms[0].type):
            raise UnsupportedError(f"{name} does not support decimals. CAST them")
        return apply(kernel, (_float(terms[0], name),), name)

    return build


def _abs(terms: Sequence[Term]) -> Term:
    value = number(terms[0], "abs")
    if pa.types.is_float16(value.type):  # Arrow has no kernel for 16 bits
        return converted(apply(pc.abs, (converted(value, pa.float32()),), "abs"), value.type)
    return apply(pc.abs, (value,), "abs")


def _signum(terms: Sequence[Term]) -> Term:
    """Return the sign as -1, 0 or 1; NaN of either sign gives positive NaN, as in pylance."""
    value = _float(terms[0], "signum")
    nan = scalar(math.nan, value.type)

    def evaluate(values: pa.Array) -> pa.Array:
        return pc.if_else(pc.is_nan(values), nan, pc.cast(pc.sign(values), value.type))

    return apply(evaluate, (value,), "signum")


def _is_nan(terms: Sequence[Term]) -> Term:
    return apply(pc.is_nan, (_float(terms[0], "isnan"),), "isnan")


def _is_zero(terms: Sequence[Term]) -> Term:
    return apply(lambda values: pc.equal(values, 0.0), (_float(terms[0], "iszero"),), "iszero")


def _nanvl(terms: Sequence[Term]) -> Term:
    """Return the second value where the first is NaN."""
    first, second = (_float(term, "nanvl") for term in terms)
    kind = first.type if first.type.equals(second.type) else pa.float64()
    pair = (converted(first, kind), converted(second, kind))
    return apply(lambda a, b: pc.if_else(pc.is_nan(a), b, a), pair, "nanvl")


def _unary(name: str, kernel: Callable[[Datum], Datum]) -> tuple[int, int, Callable[[Sequence[Term]], Term]]:
    return 1, 1, _kernel(name, kernel)


NUMBER_FUNCTIONS: Mapping[str, tuple[int, int, Callable[[Sequence[Term]], Term]]] = {
    "abs": (1, 1, _abs),
    "sqrt": (1, 1, _numpy("sqrt", np.sqrt)),
    "exp": _unary("exp", pc.exp),
    "ln": _unary("ln", pc.ln),
    "log": (1, 2, _log),
    "log2": _unary("log2", pc.log2),
    "log10": _unary("log10", pc.log10),
    "sin": _unary("sin", pc.sin),
    "cos": _unary("cos", pc.cos),
    "tan": _unary("tan", pc.tan),
    "asin": _unary("asin", pc.asin),
    "acos": _unary("acos", pc.acos),
    "atan": _unary("atan", pc.atan),
    "sinh": (1, 1, _numpy("sinh", np.sinh)),
    "cosh": (1, 1, _numpy("cosh", np.cosh)),
    "tanh": (1, 1, _numpy("tanh", np.tanh)),
    "cbrt": (1, 1, _numpy("cbrt", np.cbrt)),
    "atan2": (2, 2, _numpy("atan2", np.arctan2)),
    "degrees": (1, 1, _numpy("degrees", np.degrees)),
    "radians": (1, 1, _numpy("radians", np.radians)),
    "power": (2, 2, _power),
    "pow": (2, 2, _power),
    "round": (1, 2, _rounded("round")),
    "trunc": (1, 2, _rounded("trunc")),
    "ceil": (1, 1, _whole("ceil", pc.ceil)),
    "floor": (1, 1, _whole("floor", pc.floor)),
    "signum": (1, 1, _signum),
    "isnan": (1, 1, _is_nan),
    "iszero": (1, 1, _is_zero),
    "nanvl": (2, 2, _nanvl),
    "pi": (0, 0, lambda _: literal_term(scalar(math.pi))),
}
"""Name to fewest arguments, most arguments and meaning."""
