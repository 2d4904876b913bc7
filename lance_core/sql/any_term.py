"""Compute whether any of many conditions holds that compare the same values in the same way.

Each condition demands a few comparisons, such as ``a = 5 AND s = 'x'``; only the constants differ. The rows are joined
with the conditions by the values that must be equal, and the other comparisons are made for the pairs that are found.
Conditions that bound one value only are intervals: sorted by their lower bounds, those that begin at or before a value
hold it if the largest of their upper bounds does not lie below it.

The answer is that of SQL: where a value is null, it is null if all that is demanded of the others holds in a condition,
else false.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.kernels import scalar
from lance_core.format.arrow_kinds import is_bytes, is_text
from lance_core.sql import float_order, pruning
from lance_core.sql.arrow_types import coerce, comparison_type
from lance_core.sql.kernels import pc
from lance_core.sql.pruning import UNKNOWN
from lance_core.sql.terms import Term, apply, converted, fitted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_core.sql.pruning import Condition

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_MOST_PAIRS = 1 << 18
"""Pairs of a row and a condition that are looked at together."""
_MOST_SPANS = 64
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_RANGES = ("less", "less_equal", "greater", "greater_equal")
_COMPARE = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}


@frozen
class _Demand:
    """A comparison of all conditions.

    Attributes:
        column: Which of the subjects is compared.
        kernel: Name of an Arrow comparison kernel.
        constants: One value for each condition, in the type of the comparison.
        keys: Integers that are in the same order as the constants; None for text and the like.
        is_exact: A constant 0.0 is not equal to -0.0.
    """

    column: int
    kernel: str
    constants: pa.Array
    keys: Ints | None
    is_exact: bool

    def holds(self, values: pa.Array, rows: Ints, conditions: Ints) -> Mask:
        """Compare pairs of a value and a constant."""
        if self.keys is not None:
            return _COMPARE[self.kernel](_keys(values, is_exact=self.is_exact)[rows], self.keys[conditions])
        return np.asarray(getattr(pc, self.kernel)(values.take(pa.array(rows)), self.constants.take(conditions)))


def any_of(
    comparisons: Sequence[tuple[Term, str, pa.Array]], *, strict: bool = True, is_exact: bool = False
) -> Term | None:
    """Return a term that tells whether any of many conditions holds.

    Args:
        comparisons: What each condition demands: a value, an Arrow comparison kernel, and a literal for each condition.
        strict: As in `lance_core.sql.terms.unify`.
        is_exact: As in `lance_core.sql.terms.compare`.

    Returns:
        The term; None if this module has no fast way for such conditions.
    """
    subjects: list[Term] = []
    demands: list[_Demand] = []
    for subject, kernel, literals in comparisons:
        if not (_is_known(subject.type) and _is_known(literals.type)):
            return None
        options = fitted(subject, literals, strict=strict)
        common = comparison_type(subject.type, options.type)
        subject = converted(subject, common)  # noqa: PLW2901 as it is compared
        constants = coerce(options, common)
        number = next((n for n, subject_ in enumerate(subjects) if _is_same(subject_, subject)), len(subjects))
        if number == len(subjects):
            subjects.append(subject)
        keys = _keys(constants, is_exact=is_exact) if _has_keys(common) else None
        demands.append(_Demand(number, kernel, constants, keys, is_exact))
    if not any(demand.kernel == "equal" for demand in demands) and not _are_intervals(demands):
        return None
    joined = _Any(tuple(demands))
    return apply(joined.evaluate, subjects, "OR", _asks(subjects, demands), kind=pa.bool_())


def _is_same(term: Term, other: Term) -> bool:
    return term is other or (bool(term.path) and term.path == other.path and term.type.equals(other.type))


def _is_known(kind: pa.DataType) -> bool:
    return _has_keys(kind) or is_text(kind) or is_bytes(kind)


def _has_keys(kind: pa.DataType) -> bool:
    types = pa.types
    is_time = types.is_date(kind) or types.is_timestamp(kind)
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or is_time)


def _keys(values: pa.Array, *, is_exact: bool) -> Ints:
    """Return 64-bit integers that are in the order of the values; any integer stands for null."""
    kind = values.type
    if pa.types.is_floating(kind):
        if not is_exact:
            values = pc.if_else(
                float_order.compare("equal", values, scalar(0.0).cast(kind)), scalar(0.0).cast(kind), values
            )
        values = float_order.order_keys(values)
    elif pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif not pa.types.is_integer(kind):
        values = values.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    numbers = np.asarray(pc.fill_null(values, scalar(0)))
    if numbers.dtype == np.uint64:
        return numbers.view(np.int64) ^ _LEAST
    return numbers.astype(np.int64)


def _are_intervals(demands: Sequence[_Demand]) -> bool:
    """Return whether the demands bound one value."""
    positions = {demand.column for demand in demands}
    return len(positions) == 1 and all(demand.kernel in _RANGES and demand.keys is not None for demand in demands)


# ---------------------------------------------------------------------------------------------------------- computing


@frozen
class _Any:
    """Conditions that are joined by OR."""

    demands: tuple[_Demand, ...]

    def evaluate(self, *columns: pa.Array) -> pa.Array:
        """Return the answer for each row."""
        num_rows = len(columns[0])
        pattern = np.zeros(num_rows, np.int64)
        for position, column in enumerate(columns):
            if column.null_count:
                pattern |= np.asarray(column.is_null()).astype(np.int64) << position
        answer, is_null = np.zeros(num_rows, np.bool_), np.zeros(num_rows, np.bool_)
        for nulls in np.unique(pattern).tolist():
            rows = np.flatnonzero(pattern == nulls)
            demands = [demand for demand in self.demands if not nulls >> demand.column & 1]
            some = columns if len(rows) == num_rows else [column.take(pa.array(rows)) for column in columns]
            (is_null if nulls else answer)[rows] = _matches(demands, some, len(rows))
        return pa.array(answer, mask=is_null if pattern.any() else None)


def _matches(demands: Sequence[_Demand], columns: Sequence[pa.Array], num_rows: int) -> Mask:
    """Return the rows for which all demands of a condition hold; what is demanded is not null."""
    if not demands:
        return np.ones(num_rows, np.bool_)
    if _are_intervals(demands):
        return _within(demands, columns[demands[0].column])
    equal = [demand for demand in demands if demand.kernel == "equal"]
    rest = [demand for demand in demands if demand.kernel != "equal"]
    answer = np.zeros(num_rows, np.bool_)
    rows, starts, ends, order = _joined(equal, columns, num_rows, len(demands[0].constants))
    if not rest:
        answer[rows[ends > starts]] = True
        return answer
    for some_rows, conditions in _pairs(rows, starts, ends, order):
        holds = reduce(np.logical_and, (demand.holds(columns[demand.column], some_rows, conditions) for demand in rest))
        answer[some_rows[holds]] = True
    return answer


def _within(demands: Sequence[_Demand], values: pa.Array) -> Mask:
    """Return the rows in any of the intervals."""
    lows, highs = _intervals(demands)
    order = np.argsort(lows, kind="stable")
    lows, highs = lows[order], np.maximum.accumulate(highs[order])
    keys = _keys(values, is_exact=demands[0].is_exact)
    last = np.searchsorted(lows, keys, side="right") - 1
    return (last >= 0) & (highs[last] >= keys) if len(lows) else np.zeros(len(keys), np.bool_)


def _intervals(demands: Sequence[_Demand]) -> tuple[Ints, Ints]:
    """Return first and last keys of the intervals that are not empty."""
    count = len(demands[0].constants)
    lows, highs, is_empty = np.full(count, _LEAST), np.full(count, _MOST), np.zeros(count, np.bool_)
    for demand in demands:
        keys = np.zeros(0, np.int64) if demand.keys is None else demand.keys
        if demand.kernel.startswith("greater"):
            is_open = demand.kernel == "greater"
            is_empty |= is_open & (keys == _MOST)
            lows = np.maximum(lows, keys + (is_open & (keys < _MOST)))
        else:
            is_open = demand.kernel == "less"
            is_empty |= is_open & (keys == _LEAST)
            highs = np.minimum(highs, keys - (is_open & (keys > _LEAST)))
    is_selected = ~is_empty & (lows <= highs)
    return lows[is_selected], highs[is_selected]


def _joined(
    demands: Sequence[_Demand], columns: Sequence[pa.Array], num_rows: int, count: int
) -> tuple[Ints, Ints, Ints, Ints]:
    """Find the conditions whose constants equal the values of a row.

    Returns:
        Rows; for each of them where its conditions begin and end in an order of the conditions; and that order.
    """
    rows, codes, conditions = np.arange(num_rows), np.zeros(num_rows, np.int64), np.zeros(count, np.int64)
    for demand in demands:
        distinct = demand.constants.unique()
        values = columns[demand.column]
        if demand.keys is not None:  # as integers, so that zeros and NaN are equal as they should be
            distinct, inverse = np.unique(demand.keys, return_inverse=True)
            keys = _keys(values, is_exact=demand.is_exact)[rows]
            positions = np.minimum(np.searchsorted(distinct, keys), len(distinct) - 1)
            is_there = distinct[positions] == keys
        else:
            inverse = np.asarray(pc.index_in(demand.constants, value_set=distinct))
            matches = pc.index_in(values.take(pa.array(rows)), value_set=distinct)
            is_there, positions = np.asarray(matches.is_valid()), np.asarray(pc.fill_null(matches, scalar(0)))
        rows = rows[is_there]
        # Numbers of combinations that occur, so that products stay small.
        both, conditions = np.unique(conditions * len(distinct) + inverse, return_inverse=True)
        wanted = codes[is_there] * len(distinct) + positions[is_there]
        positions = np.minimum(np.searchsorted(both, wanted), len(both) - 1)
        is_there = both[positions] == wanted
        rows, codes = rows[is_there], positions[is_there]
    order = np.argsort(conditions, kind="stable")
    ordered = conditions[order]
    return rows, np.searchsorted(ordered, codes), np.searchsorted(ordered, codes, side="right"), order


def _pairs(rows: Ints, starts: Ints, ends: Ints, order: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Return pairs of a row and a condition, some at a time."""
    first, totals = 0, np.cumsum(ends - starts)
    while first < len(rows):
        before = int(totals[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(totals, before + _MOST_PAIRS, side="right")))
        counts = (ends - starts)[first:last]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        yield np.repeat(rows[first:last], counts), order[np.repeat(starts[first:last], counts) + within]
        first = last


# ------------------------------------------------------------------------------------------------------------ pruning


def _asks(subjects: Sequence[Term], demands: Sequence[_Demand]) -> Condition:
    """Return what must hold of single columns for any condition to hold."""
    needed: list[Condition] = [UNKNOWN]
    for demand in demands:
        path = subjects[demand.column].path
        has_nan = pa.types.is_floating(demand.constants.type) and pc.any(pc.is_nan(demand.constants)).as_py()
        if demand.kernel == "equal" and path and not has_nan:
            needed.append(pruning.Membership(path, demand.constants.unique()))
    path = subjects[0].path
    if path and _are_intervals(demands):
        needed.append(_spans(path, demands))
    return reduce(pruning.And, needed)


def _spans(path: str, demands: Sequence[_Demand]) -> Condition:
    """Return groups of neighbouring intervals: between the smallest and the largest constant of each."""
    lows = next((demand for demand in demands if demand.kernel.startswith("greater")), None)
    highs = next((demand for demand in demands if demand.kernel.startswith("less")), None)
    leading = lows or highs
    if leading is None or leading.keys is None:
        return UNKNOWN
    order = np.argsort(leading.keys, kind="stable")
    groups = [part for part in np.array_split(order, _MOST_SPANS) if len(part)]
    return reduce(pruning.Or, (_span(path, [bound for bound in (lows, highs) if bound], group) for group in groups))


def _span(path: str, demands: Sequence[_Demand], group: Ints) -> Condition:
    conditions: list[Condition] = []
    for demand in demands:
        keys = np.zeros(0, np.int64) if demand.keys is None else demand.keys[group]
        is_low = demand.kernel.startswith("greater")
        position = int(group[int(keys.argmin() if is_low else keys.argmax())])
        conditions.append(pruning.Comparison(path, demand.kernel, demand.constants[position]))
    return reduce(pruning.And, conditions)
