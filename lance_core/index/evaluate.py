"""Evaluate a condition with the answers of indices to the questions in it."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from lance_core.index import answer as answers
from lance_core.index import row_sets
from lance_core.index.protocol import RowCounts
from lance_core.index.row_sets import RowSets
from lance_core.sql.pruning import And, Comparison, Constant, FillNull, Not, Or, Range, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyroaring import BitMap64

    from lance_core.index.answer import RowAnswer
    from lance_core.sql.pruning import Condition, Question


def evaluate(
    condition: Condition,
    ask: Callable[[Question], RowAnswer | RowSets],
    rows: Callable[[], BitMap64],
    *,
    tells_null: bool = True,
) -> RowAnswer | RowSets:
    """Return what is known of the answer of a condition; sets if they are known for all questions.

    Args:
        condition: What is asked.
        ask: Returns what is known of the answer to a question about one column.
        rows: Returns all rows.
        tells_null: See `lance_core.index.protocol.Segment.answer`.
    """
    match condition:
        case Constant():
            return answers.certain(condition.value)
        case Unknown():
            return answers.UNKNOWN_ANSWER
        case Not():
            inner = evaluate(condition.inner, ask, rows, tells_null=tells_null)
            return row_sets.not_(inner, rows()) if isinstance(inner, RowSets) else answers.not_(inner)
        case FillNull():
            inner = evaluate(condition.inner, ask, rows, tells_null=tells_null)
            if isinstance(inner, RowSets):
                return row_sets.fill_null(inner, value=condition.value)
            return answers.fill_null(inner, value=condition.value)
        case And() | Or():
            is_and = isinstance(condition, And)
            parts = _parts(condition) if is_and else (condition.left, condition.right)
            part_answers = [evaluate(part, ask, rows, tells_null=tells_null) for part in parts]
            return joined(part_answers, is_and=is_and, tells_null=tells_null)
        case _:
            return ask(condition)


def joined(parts: Sequence[RowAnswer | RowSets], *, is_and: bool, tells_null: bool) -> RowAnswer | RowSets:
    """Return the answer of Kleene's ``AND``, or ``OR``, of at least one part; arguments as of `evaluate`."""
    sets = [part for part in parts if isinstance(part, RowSets)]
    others = [part for part in parts if not isinstance(part, RowSets)]
    if sets:
        joined_sets = reduce(row_sets.and_ if is_and else row_sets.or_, sets)
        if not others:
            return joined_sets
        others.append(joined_sets.answer(tells_null=tells_null))
    others.sort(key=lambda part: len(part.bounds))  # results stay small
    return reduce(answers.and_ if is_and else answers.or_, others)


_LOW, _HIGH = ("greater", "greater_equal"), ("less", "less_equal")


def _joined_ranges(parts: Iterable[Condition]) -> Iterator[Condition]:
    """Yield the parts of a conjunction; two that bound a column from both sides become one."""
    open_ends: dict[tuple[str, bool], Comparison] = {}
    for part in parts:
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

    Values are in total order, so that each is either less than another or not: only null is neither. Two comparisons
    that bound a column from both sides become a range.
    """
    match condition:
        case Not(inner=Not(inner=inner)):
            return simplified(inner)
        case Not(inner=And() as inner):
            return Or(simplified(Not(inner.left)), simplified(Not(inner.right)))
        case Not(inner=Or() as inner):
            return simplified(And(Not(inner.left), Not(inner.right)))
        case Not(inner=Comparison() as inner) if inner.operator in _OPPOSITE:
            return Comparison(inner.column, _OPPOSITE[inner.operator], inner.value)
        case And():
            simple = [simplified(part) for part in _parts(condition)]
            return reduce(And, _joined_ranges(inner for part in simple for inner in _parts(part)))
        case Or():
            return Or(simplified(condition.left), simplified(condition.right))
        case FillNull():
            return FillNull(simplified(condition.inner), condition.value)
        case _:
            return condition


def questions(condition: Condition) -> Iterator[Question]:
    """Yield the questions about single columns that are in a condition."""
    match condition:
        case Constant() | Unknown():
            pass
        case Not() | FillNull():
            yield from questions(condition.inner)
        case And() | Or():
            yield from questions(condition.left)
            yield from questions(condition.right)
        case _:
            yield condition


def count(condition: Condition, num_rows: int, ask: Callable[[Question], RowCounts | None]) -> RowCounts | None:
    """Return for how many rows a condition is true or null; None if that takes to know which rows these are.

    Args:
        condition: What is asked.
        num_rows: All rows.
        ask: Returns the counts for a question about one column.
    """
    match condition:
        case Unknown() | And() | Or():
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
