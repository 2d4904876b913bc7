"""Functions of SQL that choose among values: ``CASE``, ``COALESCE`` and what follows from them."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.encoding.kernels import scalar
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.sql.arrow_types import comparison_type, kind_of
from lance_core.sql.kernels import nulls_as_false, pc
from lance_core.sql.terms import Term, apply, boolean, compare, converted, literal_term

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_core.sql.arrow_types import Datum


def common(terms: Sequence[Term], what: str) -> list[Term]:
    """Return the terms in one type that holds all of them; NULL takes any type.

    Raises:
        InvalidInputError: Different kinds of values.
    """
    kinds = [term.type for term in terms if not pa.types.is_null(term.type)]
    if not kinds:
        return list(terms)
    for kind in kinds[1:]:
        if kind_of(kind) != kind_of(kinds[0]):
            raise InvalidInputError(f"{what} cannot combine {kinds[0]} and {kind}")
    target = reduce(lambda a, b: a if a.equals(b) else comparison_type(a, b), kinds)
    return [converted(term, target) for term in terms]


def _coalesce(terms: Sequence[Term]) -> Term:
    same = common(terms, "COALESCE")
    chosen = apply(pc.coalesce, same, "COALESCE")
    return Term(type=chosen.type, evaluate=chosen.evaluate, nullable=all(field.nullable for field in same))


def _nvl(terms: Sequence[Term]) -> Term:
    if any(pa.types.is_decimal(term.type) for term in terms):
        raise UnsupportedError("nvl does not support decimals. Use coalesce")
    return _coalesce(terms)


def _nullif(terms: Sequence[Term]) -> Term:
    """Null where both are equal, else the first."""
    value, other = common(terms, "NULLIF")
    if pa.types.is_null(other.type) or pa.types.is_null(value.type):
        return value
    equal = compare("equal", value, other, strict=False, is_exact=True)

    def choose(same: Datum, values: Datum) -> Datum:
        return pc.if_else(nulls_as_false(same), scalar(None, value.type), values)

    term = apply(choose, (equal, value), "NULLIF")
    return Term(type=term.type, evaluate=term.evaluate)


def _nvl2(terms: Sequence[Term]) -> Term:
    """Return the second value where the first is not null, else the third."""
    first, *rest = terms
    return case([(apply(pc.is_valid, (first,), "nvl2"), rest[0])], rest[1])


def _if(terms: Sequence[Term]) -> Term:
    return case([(terms[0], terms[1])], terms[2])


def _extreme(name: str, kernel: Callable[..., Datum], comparison: str) -> Callable[[Sequence[Term]], Term]:
    """``greatest`` and ``least``: nulls are left out, floats are in total order."""

    def pick(left: Term, right: Term) -> Term:
        if not pa.types.is_floating(left.type):
            return apply(lambda a, b: kernel(a, b, skip_nulls=True), (left, right), name)
        wins = compare(comparison, left, right, strict=False, is_exact=True)

        def choose(is_left: Datum, a: Datum, b: Datum) -> Datum:
            return pc.coalesce(pc.if_else(is_left, a, b), a, b)

        return apply(choose, (wins, left, right), name)

    return lambda terms: reduce(pick, common(terms, name))


def case(branches: Sequence[tuple[Term, Term]], otherwise: Term | None) -> Term:
    """Return the value of the first branch whose condition is true.

    A value is computed for the rows of its branch only, so that a condition can keep a division from failing.
    """
    conditions = [boolean(condition, "WHEN") for condition, _ in branches]
    last = literal_term(scalar(None)) if otherwise is None else otherwise
    values = common([*(value for _, value in branches), last], "CASE")
    kind = values[0].type

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        rows, order, parts = np.arange(batch.num_rows), [np.empty(0, np.int64)], [pa.array([], kind)]
        for condition, value in zip(conditions, values, strict=False):
            here = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
            hit = _mask(condition.evaluate(here), len(rows))
            if hit.any():
                order.append(rows[hit])
                parts.append(_column(value, here.filter(pa.array(hit)), int(hit.sum())))
                rows = rows[~hit]
        if len(rows):
            order.append(rows)
            parts.append(_column(values[-1], batch.take(pa.array(rows)), len(rows)))
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(order), kind="stable")))

    return Term(type=kind, evaluate=evaluate, nullable=any(value.nullable for value in values))


def _mask(answer: Datum, num_rows: int) -> np.ndarray:
    if isinstance(answer, pa.Scalar):
        return np.full(num_rows, answer.as_py() is True)
    return np.asarray(nulls_as_false(answer))


def _column(term: Term, batch: pa.RecordBatch, num_rows: int) -> pa.Array:
    values = term.evaluate(batch)
    return pa.repeat(values, num_rows) if isinstance(values, pa.Scalar) else values


def simple_case(value: Term, branches: Sequence[tuple[Term, Term]], otherwise: Term | None) -> Term:
    """``CASE value WHEN ...``."""
    pairs = [(compare("equal", value, option, strict=False, is_exact=True), then) for option, then in branches]
    return case(pairs, otherwise)


CHOICE_FUNCTIONS: Mapping[str, tuple[int, int, Callable[[Sequence[Term]], Term]]] = {
    "coalesce": (1, 1000, _coalesce),
    "nvl": (2, 2, _nvl),
    "ifnull": (2, 2, _nvl),
    "nvl2": (3, 3, _nvl2),
    "nullif": (2, 2, _nullif),
    "if": (3, 3, _if),
    "greatest": (1, 1000, _extreme("greatest", pc.max_element_wise, "greater")),
    "least": (1, 1000, _extreme("least", pc.min_element_wise, "less")),
}
"""Name to fewest arguments, most arguments and meaning."""
