"""Pruning of zones (runs of rows) by the bounds of their values.

Used with the statistics of files of version 0.1 and by indices that know zones. Each part of a condition is judged by
the set of answers it may give in a zone: true, false, null. What cannot be judged may give any, so the judgement errs
only towards reading too much. Floats are in total order, as in predicates, where constant zeros equal zeros of either
sign: bounds are compared as numbers.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.kernels import TRUE_SCALAR, scalar
from lance_core.errors import InvalidInputError
from lance_core.format.arrow_kinds import is_text
from lance_core.sql import ternary
from lance_core.sql.kernels import nulls_as_false, pc

if TYPE_CHECKING:
    from collections.abc import Mapping

Mask: TypeAlias = npt.NDArray[np.bool_]

_MAX_OPTIONS = 64
"""Values of an ``IN`` that are judged one by one; more are judged in so many groups of neighbours."""


# ------------------------------------------------------------------------------------------------- what is known


@frozen(kw_only=True)
class ColumnZones:
    """Bounds and nulls of one column in each zone.

    Attributes:
        num_rows: Shape (zones,), rows; deleted ones may be counted.
        null_count: Shape (zones,), how many of them are null; -1 if that is unknown.
        minimum: One value of the column's type for each zone that no value is less than; null or NaN if unknown.
        maximum: Likewise the other end. NaN values of the column need not lie between the two.
        nan_count: Shape (zones,), how many values are NaN, -1 if unknown; None if all are unknown.
    """

    num_rows: npt.NDArray[np.int64]
    null_count: npt.NDArray[np.int64]
    minimum: pa.Array
    maximum: pa.Array
    nan_count: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        lengths = {len(self.num_rows), len(self.null_count), len(self.minimum), len(self.maximum)}
        if len(lengths) > 1 or (self.nan_count is not None and len(self.nan_count) not in lengths):
            raise InvalidInputError(f"statistics of one column for different numbers of zones: {sorted(lengths)}")


# -------------------------------------------------------------------------------------------------- what is asked


@frozen
class Comparison:
    """A column compared with a value of its type.

    Attributes:
        column: Name, or dotted path inside structs.
        operator: ``equal``, ``not_equal``, ``less``, ``less_equal``, ``greater`` or ``greater_equal``.
        value: A scalar that is not null.
    """

    column: str
    operator: str
    value: pa.Scalar


@frozen
class Range:
    """Both of two comparisons of one column, which bound it from below and from above.

    Indices that would answer each of them with many rows know the few that meet both.

    Attributes:
        low: A comparison by ``greater`` or ``greater_equal``.
        high: A comparison by ``less`` or ``less_equal``.
    """

    low: Comparison
    high: Comparison

    @property
    def column(self) -> str:
        """Name, or dotted path inside structs."""
        return self.low.column


@frozen
class Membership:
    """A column equals one of some values, none of which is null or NaN."""

    column: str
    values: pa.Array


@frozen
class Prefix:
    """Text begins with ``text``; if ``is_exact`` is not set, more is asked of it."""

    column: str
    text: str
    is_exact: bool


@frozen
class Contains:
    """Text contains each of some texts, and more is asked of it."""

    column: str
    texts: tuple[str, ...]


@frozen
class HasItems:
    """A list that is not null has any of some items, or all of them; none of these is null.

    Attributes:
        column: Name, or dotted path inside structs.
        items: The items.
        needs_all: All of them are needed.
    """

    column: str
    items: pa.Array
    needs_all: bool


@frozen
class IsNull:
    """A column is null."""

    column: str


@frozen
class Constant:
    """The same answer everywhere; None is null."""

    value: bool | None


@frozen
class Unknown:
    """A condition that cannot be judged."""


UNKNOWN = Unknown()


@frozen
class Not:
    """The opposite; null stays null."""

    inner: Condition


@frozen
class And:
    """Both, in Kleene's logic."""

    left: Condition
    right: Condition


@frozen
class Or:
    """Either, in Kleene's logic."""

    left: Condition
    right: Condition


@frozen
class FillNull:
    """The inner answer, or ``value`` where that is null."""

    inner: Condition
    value: bool


Question: TypeAlias = Comparison | Range | Membership | Prefix | Contains | HasItems | IsNull
"""What is asked of one column. Files' statistics and indices answer these."""

Condition: TypeAlias = Question | Constant | Unknown | Not | And | Or | FillNull


# ----------------------------------------------------------------------------------------------------- judgement


@frozen
class Answers:
    """Answers that a condition may give for rows of each zone.

    Attributes:
        codes: Shape (zones,), see `lance_core.sql.ternary`.
    """

    codes: ternary.Codes

    @property
    def true(self) -> Mask:
        """Shape (zones,): the answer may be true."""
        return (self.codes & ternary.TRUE) != 0

    @property
    def false(self) -> Mask:
        """Shape (zones,): the answer may be false."""
        return (self.codes & ternary.FALSE) != 0

    @property
    def null(self) -> Mask:
        """Shape (zones,): the answer may be null."""
        return (self.codes & ternary.NULL) != 0


def _answers(true: Mask, false: Mask, null: Mask) -> Answers:
    parts = (true.astype(np.uint8), false.astype(np.uint8), null.astype(np.uint8))
    return Answers(parts[0] * ternary.TRUE | parts[1] * ternary.FALSE | parts[2] * ternary.NULL)


def may_match(condition: Condition, columns: Mapping[str, ColumnZones], num_zones: int) -> Mask:
    """Return a mask of the zones that may hold rows for which a condition is true.

    Args:
        condition: What is asked.
        columns: What is known, by name or dotted path; columns may be missing.
        num_zones: Zones, the same in all columns.

    Returns:
        Shape (num_zones,). False only where no row can match.

    Raises:
        InvalidInputError: Another number of zones in a column.
    """
    return judge(condition, columns, num_zones).true


def judge(condition: Condition, columns: Mapping[str, ColumnZones], num_zones: int) -> Answers:
    """Return all answers that a condition may give; arguments and errors as for `may_match`."""
    match condition:
        case Constant():
            return Answers(np.full(num_zones, ternary.code_of(condition.value), np.uint8))
        case Unknown():
            return _anything(num_zones)
        case Not():
            return Answers(ternary.not_(judge(condition.inner, columns, num_zones).codes))
        case FillNull():
            inner = judge(condition.inner, columns, num_zones)
            return Answers(ternary.fill_null(inner.codes, value=condition.value))
        case And() | Or():
            left = judge(condition.left, columns, num_zones)
            right = judge(condition.right, columns, num_zones)
            rule = ternary.and_ if isinstance(condition, And) else ternary.or_
            return Answers(rule(left.codes, right.codes))
        case _:
            zones = columns.get(condition.column)
            if zones is None:
                return _anything(num_zones)
            if len(zones.num_rows) != num_zones:
                raise InvalidInputError(f"statistics of {len(zones.num_rows)} zones, not {num_zones}")
            return judge_column(condition, zones)


def _anything(num_zones: int) -> Answers:
    return Answers(np.full(num_zones, ternary.ANY, np.uint8))


def judge_column(question: Question, zones: ColumnZones) -> Answers:
    """Return the answers that a question about one column may get in each of its zones."""
    has_null = zones.null_count != 0
    has_values = (zones.null_count < zones.num_rows) & (zones.num_rows > 0)
    match question:
        case IsNull():
            return _answers(has_null, has_values, np.zeros(len(has_null), np.bool_))
        case Comparison():
            true, false = _compare(question.operator, question.value, zones, has_values)
        case Range():
            low, high = (judge_column(part, zones).codes for part in (question.low, question.high))
            return Answers(ternary.and_(low, high))
        case Membership():
            true, false = _judge_membership(question, zones)
        case Prefix():
            true, false = _judge_prefix(question, zones)
        case Contains() | HasItems():
            return _anything(len(zones.num_rows))
    return _answers(true & has_values, false & has_values, has_null)


_OPPOSITE = {"not_equal": "equal", "greater_equal": "less", "greater": "less_equal"}


def _compare(operator: str, value: pa.Scalar, zones: ColumnZones, has_values: Mask) -> tuple[Mask, Mask]:
    """May values compare true, may they compare false."""
    if operator in _OPPOSITE:
        false, true = _compare(_OPPOSITE[operator], value, zones, has_values)
        return true, false
    low, high = zones.minimum, zones.maximum
    match operator:
        case "less":
            true, false = _may("less", low, value), _may("greater_equal", high, value)
        case "less_equal":
            true, false = _may("less_equal", low, value), _may("greater", high, value)
        case "equal":
            true = _may("less_equal", low, value) & _may("greater_equal", high, value)
            false = _may("not_equal", low, value) | _may("not_equal", high, value)
        case _:
            raise InvalidInputError(f"there is no comparison {operator!r}")
    if not pa.types.is_floating(low.type):
        return true, false
    if math.isnan(value.as_py()):
        return np.ones(len(low), np.bool_), np.ones(len(low), np.bool_)
    # NaN is equal to no number, and less than all of them or greater, depending on its sign, which no count tells.
    has_nan, has_numbers = _nan_or_numbers(zones, has_values)
    may_be_nan = np.zeros_like(has_nan) if operator == "equal" else has_nan
    return (true & has_numbers) | may_be_nan, (false & has_numbers) | has_nan


def _nan_or_numbers(zones: ColumnZones, has_values: Mask) -> tuple[Mask, Mask]:
    """May there be NaN, may there be anything else."""
    if zones.nan_count is None:
        return has_values, has_values
    is_all_nan = (zones.nan_count >= 0) & (zones.null_count >= 0)
    is_all_nan &= zones.nan_count + zones.null_count >= zones.num_rows
    return zones.nan_count != 0, has_values & ~is_all_nan


def _may(kernel: str, bounds: pa.Array, value: pa.Scalar) -> Mask:
    """Compare the bounds; True where a bound is unknown or cannot be compared."""
    try:
        answer = getattr(pc, kernel)(bounds, value)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return np.ones(len(bounds), np.bool_)
    is_valid = pc.is_valid(bounds)
    if pa.types.is_floating(bounds.type):
        is_valid = pc.and_(is_valid, pc.invert(pc.fill_null(pc.is_nan(bounds), TRUE_SCALAR)))
    return np.asarray(pc.or_(pc.fill_null(answer, TRUE_SCALAR), pc.invert(is_valid)))


def _judge_membership(condition: Membership, zones: ColumnZones) -> tuple[Mask, Mask]:
    every = np.ones(len(zones.num_rows), np.bool_)
    if not len(condition.values):
        return ~every, every
    if pa.types.is_floating(condition.values.type) and pc.any(pc.is_nan(condition.values)).as_py():
        return every, every  # bounds leave NaN out
    try:
        values = condition.values.take(pc.array_sort_indices(condition.values))
    except pa.ArrowNotImplementedError:
        return every, every
    size = -(-len(values) // _MAX_OPTIONS)
    groups = [values.slice(start, size) for start in range(0, len(values), size)]
    hits = (
        _may("less_equal", zones.minimum, group[-1]) & _may("greater_equal", zones.maximum, group[0])
        for group in groups
    )
    return reduce(np.logical_or, hits), every


def _judge_prefix(condition: Prefix, zones: ColumnZones) -> tuple[Mask, Mask]:
    low, high = zones.minimum, zones.maximum
    if not is_text(low.type):
        return np.ones(len(low), np.bool_), np.ones(len(low), np.bool_)
    first = scalar(condition.text, low.type)
    # Larger than the prefix and not beginning with it: larger than all that begins with it.
    begins = np.asarray(pc.fill_null(pc.starts_with(low, condition.text), TRUE_SCALAR))
    true = _may("greater_equal", high, first) & (_may("less", low, first) | begins)
    if not condition.is_exact:
        return true, np.ones(len(low), np.bool_)
    ends = np.asarray(nulls_as_false(pc.starts_with(high, condition.text)))
    begins = np.asarray(nulls_as_false(pc.starts_with(low, condition.text)))
    return true, ~(begins & ends)
