"""Evaluate a condition with the answers of indices to the questions in it."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from lance_core.index import answer as answers
from lance_core.index.protocol import RowCounts
from lance_core.sql.pruning import And, Comparison, Constant, FillNull, Not, Or, Range, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lance_core.index.answer import RowAnswer
    from lance_core.sql.pruning import Condition, Question


def evaluate(condition: Condition, ask: Callable[[Question], RowAnswer]) -> RowAnswer:
    """Return what is known of the answer of a condition.

    Args:
        condition: What is asked.
        ask: Returns what is known of the answer to a question about one column.
    """
    match condition:
        case Constant():
            return answers.certain(condition.value)
        case Unknown():
            return answers.UNKNOWN_ANSWER
        case Not():
            return answers.not_(evaluate(condition.inner, ask))
        case FillNull():
            return answers.fill_null(evaluate(condition.inner, ask), value=condition.value)
        case And():
            parts = [evaluate(part, ask) for part in _joined_ranges(condition)]
            return reduce(answers.and_, sorted(parts, key=lambda part: len(part.bounds)))  # results stay small
        case Or():
            return answers.or_(evaluate(condition.left, ask), evaluate(condition.right, ask))
        case _:
            return ask(condition)


_LOW, _HIGH = ("greater", "greater_equal"), ("less", "less_equal")


def _joined_ranges(condition: And) -> Iterator[Condition]:
    """Yield the parts of a conjunction; two that bound a column from both sides become one."""
    open_ends: dict[tuple[str, bool], Comparison] = {}
    for part in _parts(condition):
        if not isinstance(part, Comparison) or part.operator not in (*_LOW, *_HIGH):
            yield part
            continue
        is_low = part.operator in _LOW
        other = open_ends.pop((part.column, not is_low), None)
        if other is not None:
            yield Range(part, other) if is_low else Range(other, part)
        elif (part.column, is_low) in open_ends:
            yield part
        else:
            open_ends[part.column, is_low] = part
    yield from open_ends.values()


def _parts(condition: Condition) -> Iterator[Condition]:
    """Yield the parts of a conjunction, in order."""
    stack = [condition]
    while stack:
        part = stack.pop()
        if isinstance(part, And):
            stack += (part.right, part.left)
        else:
            yield part


_OPPOSITE = {
    "less": "greater_equal",
    "less_equal": "greater",
    "greater": "less_equal",
    "greater_equal": "less",
    "not_equal": "equal",
}


def simplified(condition: Condition) -> Condition:
    """Return an equal condition with ``NOT`` moved to its questions and, where these are comparisons, into them.

    Values are in total order, so that each is either less than another or not: only null is neither.
    """
    match condition:
        case Not(inner=Not(inner=inner)):
            return simplified(inner)
        case Not(inner=And() | Or() as inner):
            sides = simplified(Not(inner.left)), simplified(Not(inner.right))
            return Or(*sides) if isinstance(inner, And) else And(*sides)
        case Not(inner=Comparison() as inner) if inner.operator in _OPPOSITE:
            return Comparison(inner.column, _OPPOSITE[inner.operator], inner.value)
        case And() | Or():
            return type(condition)(simplified(condition.left), simplified(condition.right))
        case FillNull():
            return FillNull(simplified(condition.inner), condition.value)
        case _:
            return condition


def count(condition: Condition, num_rows: int, ask: Callable[[Question], RowCounts | None]) -> RowCounts | None:
    """Return for how many rows a condition is true or null; None if that takes to know which rows these are.

    Args:
        condition: What is asked.
        num_rows: All rows.
        ask: Returns the counts for a question about one column.
    """
    match condition:
        case Unknown() | Or():
            return None
        case Constant():
            return RowCounts(num_rows if condition.value else 0, num_rows if condition.value is None else 0)
        case Not():
            inner = count(condition.inner, num_rows, ask)
            return None if inner is None else inner.opposite(num_rows)
        case FillNull():
            inner = count(condition.inner, num_rows, ask)
            return None if inner is None else RowCounts(inner.true + condition.value * inner.null)
        case Comparison(operator="not_equal"):
            return count(Not(Comparison(condition.column, "equal", condition.value)), num_rows, ask)
        case And():
            parts = list(_joined_ranges(condition))
            return count(parts[0], num_rows, ask) if len(parts) == 1 else None
        case _:
            return ask(condition)


def tells_null_from_false(condition: Condition) -> bool:
    """Return whether it matters for which rows a question in the condition is null and for which it is false."""
    match condition:
        case Not() | FillNull():
            return True
        case And() | Or():
            return tells_null_from_false(condition.left) or tells_null_from_false(condition.right)
        case _:
            return False
